"""Every rule of world bundles, each with a bundle that breaks exactly that one.

A test `test_rule_<name>…` belongs to the rule <name> of `microsim.bundle.rules`; the last test counts them.
"""

import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from microsim.bundle import RULES, check_bundle, load_bundle
from microsim.bundle.bundle_writing import mesh_ply, splat_ply
from microsim.bundle.mapped_arrays import columns_of
from microsim.errors import BundleError, ScenarioError
from microsim.scenario import load_scenario
from tests.bundle_support import CUBE_TRIANGLES, CUBE_VERTICES, assert_breaks, change, problems, small_bundle

TEXTS = {
    "metadata.json", "gaussians/render_config.json", "geometry/heightmap.yaml", "sensors/calibration.yaml",
    "sensors/tf_static.json", "sim/timebase.yaml", "world.yaml",
}  # fmt: skip


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "small")


def camera(data):
    return data["cameras"]["front"]


def lidar(data):
    return data["lidars"]["top"]


def splat(bundle: Path, header=lambda text: text, values=None, degree=0) -> None:
    """Writes the Gaussians anew, with a changed header or changed values."""
    file = bundle / "gaussians/background.splat.ply"
    if values is not None:
        file.write_bytes(splat_ply(values, degree))
    raw = file.read_bytes()
    end = raw.index(b"end_header\n") + len(b"end_header\n")
    file.write_bytes(header(raw[:end].decode()).encode() + raw[end:])


def gaussians(bundle: Path) -> np.ndarray:
    return np.array(load_bundle(bundle).gaussians.values)


def ring(bundle: Path, edit) -> None:
    def on_ring(data):
        rings = data["features"][0]["geometry"]["coordinates"]
        edit(rings)

    change(bundle / "geometry/drivable.geojson", on_ring)


def test_the_small_bundle_breaks_no_rule(bundle):
    assert problems(bundle) == []


# ---- files


def test_rule_entry_point(bundle):
    (bundle / "world.yaml").unlink()
    assert_breaks(bundle, "entry-point", "no world.yaml")


def test_rule_entry_point_names_what_there_is():
    with pytest.raises(BundleError, match="did you mean 'oval'"):
        load_bundle("ovla")


@pytest.mark.parametrize(
    "name", sorted(TEXTS - {"world.yaml"} | {"geometry/heightmap.bin", "geometry/static_mesh.ply"})
)
def test_rule_required_file_is_there(bundle, name):
    (bundle / name).unlink()
    assert_breaks(bundle, "required-file", "no such file", name, "world.yaml:")


@pytest.mark.parametrize("key", ["metadata", "gaussians", "geometry.heightmap", "sensors.tf_static", "sim"])
def test_rule_required_file_is_named(bundle, key):
    def remove(world):
        *above, last = key.split(".")
        for part in above:
            world = world[part]
        del world[last]

    change(bundle / "world.yaml", remove)
    assert_breaks(bundle, "required-file", key, count=2 if key == "gaussians" else 1)


def test_rule_required_file_suggests_the_nearest(bundle):
    (bundle / "metadata.json").rename(bundle / "metadat.json")
    assert_breaks(bundle, "required-file", "did you mean 'metadat.json'")


def test_files_that_world_yaml_does_not_name_are_ignored(bundle):
    change(bundle / "world.yaml", lambda world: world["geometry"].pop("static_mesh"))
    (bundle / "geometry/static_mesh.ply").write_bytes(b"garbage")
    (bundle / "Not A Good Name").write_text("garbage")
    (bundle / "sensors/tf_static_old.json").write_text("{")
    assert problems(bundle) == []
    assert load_bundle(bundle).mesh is None


def test_rule_regular_file_refuses_a_folder(bundle):
    (bundle / "metadata.json").unlink()
    (bundle / "metadata.json").mkdir()
    assert_breaks(bundle, "regular-file", "a folder")


def test_rule_regular_file_refuses_a_pipe_without_waiting_for_it(bundle):
    (bundle / "metadata.json").unlink()
    os.mkfifo(bundle / "metadata.json")
    assert_breaks(bundle, "regular-file", "not a regular file")


def test_rule_regular_file_bounds_texts(bundle):
    (bundle / "sim/timebase.yaml").write_text("version: 1.0.0\n" + "#" * 600_000)
    assert_breaks(bundle, "regular-file", "500,000 bytes")


def test_rule_regular_file_bounds_binaries(bundle):
    with (bundle / "geometry/heightmap.bin").open("r+b") as file:
        file.truncate(65 * 1024**3)  # a hole: it takes no place
    assert_breaks(bundle, "regular-file", "68,719,476,736 bytes")


@pytest.mark.parametrize(
    "path", ["/etc/metadata.json", "C:/metadata.json", "c:\\metadata.json", "~/metadata.json", "file:///m.json"]
)
def test_rule_relative_path(bundle, path):
    change(bundle / "world.yaml", lambda world: world.update(metadata=path))
    assert_breaks(bundle, "relative-path", "relative to world.yaml")


@pytest.mark.parametrize("path", ["../metadata.json", "gaussians/../metadata.json", "sim/../../small/metadata.json"])
def test_rule_inside_bundle(bundle, path):
    change(bundle / "world.yaml", lambda world: world.update(metadata=path))
    assert_breaks(bundle, "inside-bundle", "'..'")


def test_rule_link_inside_refuses_a_link_to_the_outside(bundle, tmp_path):
    (tmp_path / "outside.json").write_bytes((bundle / "metadata.json").read_bytes())
    (bundle / "metadata.json").unlink()
    (bundle / "metadata.json").symlink_to(tmp_path / "outside.json")
    assert_breaks(bundle, "link-inside", "outside the bundle")


def test_rule_link_inside_refuses_a_linked_folder_to_the_outside(bundle, tmp_path):
    (bundle / "sim").rename(tmp_path / "sim")
    (bundle / "sim").symlink_to(tmp_path / "sim")
    assert_breaks(bundle, "link-inside", "outside the bundle")


def test_rule_link_inside_refuses_a_linked_entry_point(bundle, tmp_path):
    (bundle / "world.yaml").rename(tmp_path / "world.yaml")
    (bundle / "world.yaml").symlink_to(tmp_path / "world.yaml")
    assert_breaks(bundle, "link-inside")


def test_rule_link_inside_follows_links_within_the_bundle(bundle):
    (bundle / "metadata.json").rename(bundle / "sim/real_metadata.json")
    (bundle / "metadata.json").symlink_to("sim/real_metadata.json")
    assert problems(bundle) == []


def test_links_that_go_round_in_a_circle_are_refused(bundle):
    (bundle / "metadata.json").unlink()
    (bundle / "metadata.json").symlink_to("metadata.json")
    assert {problem.rule for problem in problems(bundle)} <= {"regular-file", "required-file"}


def test_rule_forward_slash(bundle):
    change(bundle / "world.yaml", lambda world: world["sim"].update(timebase="sim\\timebase.yaml"))
    assert_breaks(bundle, "forward-slash", "sim/timebase.yaml")


@pytest.mark.parametrize(
    "name", ["Metadata.json", "meta-data.json", "meta data.json", "metaデータ.json", "sub//metadata.json"]
)
def test_rule_file_name(bundle, name):
    change(bundle / "world.yaml", lambda world: world.update(metadata=name))
    assert_breaks(bundle, "file-name", "lower-case")


@pytest.mark.parametrize("name", ["metadata", "metadata.yaml"])
def test_rule_file_extension(bundle, name):
    change(bundle / "world.yaml", lambda world: world.update(metadata=name))
    (bundle / name).write_bytes((bundle / "metadata.json").read_bytes())
    assert_breaks(bundle, "file-extension")


# ---- texts


@pytest.mark.parametrize("name", sorted({*TEXTS, "geometry/drivable.geojson"}))
def test_rule_parse(bundle, name):
    with (bundle / name).open("a") as file:
        file.write("\n]}")
    found = assert_breaks(bundle, "parse", name, "not valid")
    assert found[0].line is not None


@pytest.mark.parametrize("name", ["metadata.json", "sim/timebase.yaml"])
def test_rule_parse_asks_for_utf_8(bundle, name):
    file = bundle / name
    file.write_bytes(file.read_bytes().rstrip() + b"\xff")
    assert_breaks(bundle, "parse", "UTF-8")


@pytest.mark.parametrize(
    "text", ['{"version": "1.0.0", "version": "1.0.0"}', '{"version": NaN}', "[" * 100_000, "9" * 10_000]
)
def test_rule_parse_refuses_what_json_readers_disagree_about(bundle, text):
    (bundle / "sensors/tf_static.json").write_text(text)
    assert_breaks(bundle, "parse")


def test_yaml_can_run_nothing(bundle):
    (bundle / "sim/timebase.yaml").write_text('version: "1.0.0"\nphysics_hz: !!python/object/apply:os.getcwd []\n')
    assert_breaks(bundle, "parse", "tag")


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_rule_version_is_in_every_configuration_file(bundle, name):
    change(bundle / name, lambda data: data.pop("version"))
    assert_breaks(bundle, "version", "missing field 'version'", name)


@pytest.mark.parametrize(
    "version", ["2.0.0", "0.9.0", "1.0", "1", "v1.0.0", "1.0.0-rc1", "01.0.0", 1.0, 1, ["1.0.0"], None]
)
def test_rule_version_must_be_supported(bundle, version):
    change(bundle / "sim/timebase.yaml", lambda data: data.update(version=version))
    assert_breaks(bundle, "version")


@pytest.mark.parametrize("version", ["1.0.0", "1.0.99", "1.7.0"])
def test_rule_version_takes_every_minor_and_patch_of_major_1(bundle, version):
    for name in TEXTS:
        change(bundle / name, lambda data: data.update(version=version))
    assert problems(bundle) == []


def test_rule_unknown_field(bundle):
    change(bundle / "sim/timebase.yaml", lambda data: data.update(phsyics_hz=50))
    assert_breaks(bundle, "unknown-field", "did you mean 'physics_hz'")


def test_rule_unknown_field_is_only_a_warning_in_a_newer_minor(bundle):
    change(bundle / "sim/timebase.yaml", lambda data: data.update(version="1.3.0", substeps=4))
    found = assert_breaks(bundle, "unknown-field")
    assert found[0].is_warning
    load_bundle(bundle)


def test_no_number_of_warnings_hides_an_error(bundle):
    many = {f"field_{index}": index for index in range(300)}
    change(bundle / "world.yaml", lambda data: data.update(version="1.9.0", **many))
    found = problems(bundle)
    assert len(found) == 201
    assert found[-1].message == "100 more problems are not listed"
    assert all(problem.is_warning for problem in found)
    change(bundle / "sim/timebase.yaml", lambda data: data.update(physics_hz=0))
    found = problems(bundle)
    assert [problem.rule for problem in found if not problem.is_warning] == ["field-value", ""]


def test_metadata_may_hold_fields_of_other_programs(bundle):
    change(bundle / "metadata.json", lambda data: data.update(license="CC0-1.0", captured={"by": "drone"}))
    assert problems(bundle) == []


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("sim/timebase.yaml", lambda data: data.update(physics_hz=0)),
        ("sim/timebase.yaml", lambda data: data.update(physics_hz="100")),
        ("sim/timebase.yaml", lambda data: data.update(control_timeout_s=math.inf)),
        ("sim/timebase.yaml", lambda data: data.update(control_timeout_s=True)),
        ("metadata.json", lambda data: data.pop("origin")),
        ("metadata.json", lambda data: data["origin"].update(latitude_deg=91)),
        ("geometry/heightmap.yaml", lambda data: data.update(resolution_m=-0.5)),
        ("geometry/heightmap.yaml", lambda data: data.update(width=0)),
        ("geometry/heightmap.yaml", lambda data: data.update(origin=[0.0])),
        ("sensors/calibration.yaml", lambda data: camera(data).update(width=1.5)),
        ("sensors/calibration.yaml", lambda data: camera(data)["intrinsics"].pop("fx")),
        ("sensors/calibration.yaml", lambda data: camera(data).update(intrinsics=None)),
        ("sensors/calibration.yaml", lambda data: camera(data).update(rate_hz=None)),
        ("sensors/calibration.yaml", lambda data: lidar(data).update(extrinsics=None)),
        ("sensors/calibration.yaml", lambda data: lidar(data).update(range_max_m=0.1)),
        ("sensors/calibration.yaml", lambda data: lidar(data).update(dropout_probability=2)),
        ("sensors/calibration.yaml", lambda data: lidar(data)["extrinsics"].update(parent="map")),
        ("sensors/calibration.yaml", lambda data: data.update(cameras=[1])),
        ("world.yaml", lambda data: data.update(vehicle={"wheelbase_m": 0})),
        ("world.yaml", lambda data: data.update(vehicle=3)),
        ("world.yaml", lambda data: data.update(vehicle={"length_m": 3.0})),
        ("world.yaml", lambda data: data.update(name=["x"])),
    ],
)
def test_rule_field_value(bundle, name, edit):
    change(bundle / name, edit)
    found = assert_breaks(bundle, "field-value", name)
    assert found[0].line is not None


def test_all_problems_are_reported_at_once_each_with_its_file_and_line(bundle):
    change(bundle / "sim/timebase.yaml", lambda data: data.update(physics_hz=-1, use_sim_time=False))
    change(bundle / "metadata.json", lambda data: data["origin"].update(latitude_deg="north"))
    change(bundle / "sensors/calibration.yaml", lambda data: camera(data).pop("camera_convention"))
    (bundle / "geometry/heightmap.bin").write_bytes(b"123")
    (bundle / "gaussians/background.splat.ply").write_bytes(b"nothing")
    ring(bundle, lambda rings: rings[0].pop())
    found = problems(bundle)
    assert check_bundle(bundle) == found
    assert {Path(problem.file or "").name for problem in found} == {
        "timebase.yaml", "metadata.json", "calibration.yaml", "heightmap.bin", "background.splat.ply",
        "drivable.geojson",
    }  # fmt: skip
    assert {problem.rule for problem in found} == {
        "field-value", "simulated-time", "camera-convention", "heightmap-size", "splat-format", "ring-closed",
    }  # fmt: skip


def test_rule_degrees_needs_the_suffix(bundle):
    def bare(data):
        lidar(data)["elevations"] = lidar(data).pop("elevations_deg")

    change(bundle / "sensors/calibration.yaml", bare)
    assert_breaks(bundle, "degrees", "'elevations_deg'", count=None)


def test_rule_degrees_refuses_both_at_once(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: lidar(data).update(elevations=[0.0]))
    assert_breaks(bundle, "degrees", "found both")


def test_rule_degrees_refuses_the_suffix_on_what_is_no_angle(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: lidar(data).update(rate_hz_deg=20))
    assert_breaks(bundle, "degrees", "not an angle")


def test_rule_degrees_holds_for_the_origin_too(bundle):
    change(bundle / "metadata.json", lambda data: data["origin"].update(latitude=35.0))
    assert_breaks(bundle, "degrees", "latitude_deg")


def test_rule_degrees_gives_the_same_angles_in_either_unit(bundle):
    degrees = load_bundle(bundle).lidars["top"].elevations

    def in_radians(data):
        lidar(data)["elevations"] = [value * math.pi / 180 for value in lidar(data).pop("elevations_deg")]

    change(bundle / "sensors/calibration.yaml", in_radians)
    assert load_bundle(bundle).lidars["top"].elevations == pytest.approx(degrees, abs=1e-15)


# ---- conventions


@pytest.mark.parametrize("change_to", [{"coordinate_system": "NED"}, {"units": "cm"}])
def test_rule_map_frame(bundle, change_to):
    change(bundle / "metadata.json", lambda data: data.update(change_to))
    assert_breaks(bundle, "map-frame", "x east, y north, z up")


@pytest.mark.parametrize("quat", [[0, 0, 0, 1.1], [0.0, 0.0, 0.0, 0.0], [0.707, 0.0, 0.0, 0.708]])
def test_rule_unit_quaternion(bundle, quat):
    change(bundle / "sensors/calibration.yaml", lambda data: camera(data)["extrinsics"].update(rotation_quat=quat))
    assert_breaks(bundle, "unit-quaternion", "length", "write")


def test_rule_unit_quaternion_takes_the_documents_own_example(bundle):
    example = [0.0, 0.0, 0.707107, 0.707107]
    change(bundle / "sensors/calibration.yaml", lambda data: camera(data)["extrinsics"].update(rotation_quat=example))
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][0].update(rotation_quat=example))
    assert problems(bundle) == []
    x, y, z, w = load_bundle(bundle).cameras["front"].quat
    assert x * x + y * y + z * z + w * w == pytest.approx(1.0, abs=1e-15)


def test_rule_unit_quaternion_holds_in_tf_static_too(bundle):
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][1].update(rotation_quat=[0, 0, 0, 2]))
    assert_breaks(bundle, "unit-quaternion", "transforms[1].rotation_quat")


def test_rule_unit_quaternion_holds_for_every_gaussian(bundle):
    values = gaussians(bundle)
    values[57, 6:10] = 0.0, 0.0, 0.5, 0.5
    splat(bundle, values=values)
    assert_breaks(bundle, "unit-quaternion", "Gaussian 57", "0.707107")


def test_quaternions_are_x_y_z_w_and_euler_angles_intrinsic_z_y_x(bundle):
    def in_euler(data):
        extrinsics = camera(data)["extrinsics"]
        extrinsics.pop("rotation_quat")
        extrinsics["rotation_rpy_deg"] = [-90.0, 0.0, -90.0]  # the usual turn from optical axes to forward

    quat = load_bundle(bundle).cameras["front"].quat
    change(bundle / "sensors/calibration.yaml", in_euler)
    assert problems(bundle) == []  # so it agrees with tf_static
    assert load_bundle(bundle).cameras["front"].quat == pytest.approx(quat, abs=1e-15)


def test_rule_camera_convention_is_mandatory(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: camera(data).pop("camera_convention"))
    assert_breaks(bundle, "camera-convention", "opencv", "ros")


def test_rule_camera_convention_is_one_of_two(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: camera(data).update(camera_convention="opengl"))
    assert_breaks(bundle, "camera-convention", "opengl")


def test_both_camera_conventions_look_the_same_way(bundle):
    """x right, y up, z backward, turned by half a turn about x, is x right, y down, z forward."""
    forward = load_bundle(bundle).cameras["front"].optical_quat
    backward = [0.5, -0.5, -0.5, 0.5]

    def as_ros(data):
        camera(data)["camera_convention"] = "ros"
        camera(data)["extrinsics"]["rotation_quat"] = backward

    change(bundle / "sensors/calibration.yaml", as_ros)
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][0].update(rotation_quat=backward))
    found = load_bundle(bundle).cameras["front"].optical_quat
    assert abs(sum(a * b for a, b in zip(found, forward, strict=True))) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["front left", "front-left", "front/left", "前", "front.left", "", "Front", "f" * 58])
def test_rule_sensor_id(bundle, name):
    def rename(data):
        data["cameras"][name] = data["cameras"].pop("front")

    change(bundle / "sensors/calibration.yaml", rename)
    assert_breaks(bundle, "sensor-id")


@pytest.mark.parametrize("name", ["cam_0", "0", "camera1", "lidar_2"])
def test_rule_sensor_id_meaning_is_a_warning(bundle, name):
    def rename(data):
        data["cameras"][name] = data["cameras"].pop("front")

    change(bundle / "sensors/calibration.yaml", rename)
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][0].update(child=f"camera_{name}"))
    found = assert_breaks(bundle, "sensor-id-meaning", "front, rear_left, top")
    assert all(problem.is_warning for problem in found)


def test_rule_sensor_rate(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: lidar(data).update(rate_hz=101))
    assert_breaks(bundle, "sensor-rate", "physics_hz", "100")


def test_rule_calibration_wins_and_says_how_far_apart_they_are(bundle):
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][0].update(translation=[1.5, 0.03, 1.24]))
    assert_breaks(bundle, "calibration-wins", "camera_front", "0.05 m", "0 rad", "microsim bundle tf")


def test_rule_calibration_wins_over_rotations(bundle):
    turned = [0.0, 0.0, math.sin(0.05), math.cos(0.05)]
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][1].update(rotation_quat=turned))
    assert_breaks(bundle, "calibration-wins", "lidar_top", "0.1 rad", "5.73 deg")


def test_rule_calibration_wins_the_same_rotation_with_the_other_sign_is_the_same(bundle):
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"][1].update(rotation_quat=[0, 0, 0, -1]))
    assert problems(bundle) == []


def test_rule_calibration_wins_when_a_transform_is_missing_unknown_or_doubled(bundle):
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"].pop())
    assert_breaks(bundle, "calibration-wins", "no transform to lidar_top")
    change(bundle / "sensors/tf_static.json", lambda data: data["transforms"].append(data["transforms"][0]))
    assert_breaks(bundle, "calibration-wins", "twice", count=2)


def test_rule_calibration_wins_over_a_sensor_only_tf_knows(bundle):
    change(bundle / "sensors/calibration.yaml", lambda data: data.pop("lidars"))
    assert_breaks(bundle, "calibration-wins", "has no 'lidar_top'")


def test_rule_simulated_time(bundle):
    change(bundle / "sim/timebase.yaml", lambda data: data.update(use_sim_time=False))
    assert_breaks(bundle, "simulated-time", "true")


@pytest.mark.parametrize("place", [(-33.0, 0.0), (0.0, 32.0), (1e6, 1e6)])
def test_rule_start_pose_is_on_the_map(bundle, place):
    x, y = place
    change(bundle / "world.yaml", lambda data: data.update(vehicle={"start": {"x": x, "y": y}}))
    found = assert_breaks(bundle, "start-pose", "outside the map, which is x from -32 to 32 and y from -32 to 32")
    assert (found[0].path, Path(found[0].file or "").name) == ("vehicle.start", "world.yaml")
    assert found[0].line is not None


@pytest.mark.parametrize("hole", [(64, 34), (63, 33), (65, 35)])
def test_rule_start_pose_is_where_there_is_ground(bundle, hole):
    heights = np.zeros((128, 128), np.float32)
    heights[hole] = np.nan
    (bundle / "geometry/heightmap.bin").write_bytes(heights.tobytes())
    found = assert_breaks(bundle, "start-pose", "x -15, y 0 is in or beside a cell without ground")
    assert found[0].line is not None


@pytest.mark.parametrize(
    ("east", "is_refused"), [(0.0, True), (0.55, True), (-0.45, True), (-0.55, False), (2.1, False)]
)
def test_rule_start_pose_is_outside_the_mesh_as_a_run_requires(bundle, east, is_refused):
    """A cube of 1 m half a metre above the ground; a run refuses the same starts."""
    vertices = np.array(CUBE_VERTICES, float)
    vertices += [-15.0 + east, 0.0, 0.5] - vertices.mean(axis=0)
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(vertices, CUBE_TRIANGLES))
    if is_refused:
        found = assert_breaks(bundle, "start-pose", "x -15, y 0 is in a cell that the static mesh occupies")
        assert (found[0].path, Path(found[0].file or "").name) == ("vehicle.start", "world.yaml")
        assert found[0].line is not None
    else:
        assert problems(bundle) == []
    change(bundle / "world.yaml", lambda data: data.pop("vehicle"))
    robots = {"ego": {"model": "bicycle", "start": {"map_pose": {"x": -15.0, "y": 0.0}}}}
    if is_refused:
        with pytest.raises(ScenarioError, match="occupied"):
            load_scenario({"world": str(bundle), "robots": robots})
    else:
        load_scenario({"world": str(bundle), "robots": robots})


def test_rule_start_pose_that_is_left_out_is_a_warning(bundle):
    change(bundle / "world.yaml", lambda data: data.pop("vehicle"))
    heights = np.zeros((128, 128), np.float32)
    heights[64, 64] = np.nan
    (bundle / "geometry/heightmap.bin").write_bytes(heights.tobytes())
    (found,) = check_bundle(bundle)
    assert (found.rule, found.is_warning) == ("start-pose", True)
    assert "x 0, y 0 (the default, since `vehicle.start` is missing) is in or beside a cell" in found.message


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda data: camera(data).update(width=8192, height=8192), ("16,000,000 pixels", "8192 x 8192")),
        (lambda data: camera(data).update(width=8193), ("at most 8192", "8193")),
        (lambda data: lidar(data).update(elevations_deg=[0.01 * ring for ring in range(1000)]), ("256", "1000")),
        (lambda data: lidar(data).update(elevations_deg=[90.0]), ("89.95", "90.0")),
        (lambda data: lidar(data).update(columns=100_000), ("65536", "100000")),
        (
            lambda data: lidar(data).update(columns=65_536, elevations_deg=[0.1 * ring for ring in range(100)]),
            ("4,000,000 beams", "6,553,600"),
        ),
    ],
)
def test_rule_field_value_bounds_sensors_as_scenarios_do(bundle, edit, words):
    """What a run would refuse is refused by the check, with the bundle's own file and line."""
    change(bundle / "sensors/calibration.yaml", edit)
    found = assert_breaks(bundle, "field-value", *words)
    assert Path(found[0].file or "").name == "calibration.yaml"
    assert found[0].line is not None


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("sensors/calibration.yaml", lambda data: camera(data).update(width=5000, height=3200)),
        (
            "sensors/calibration.yaml",
            lambda data: lidar(data).update(columns=15_625, elevations_deg=[0.1 * ring for ring in range(256)]),
        ),
        ("sensors/calibration.yaml", lambda data: lidar(data).update(elevations_deg=[-89.95, 89.95])),
        ("world.yaml", lambda data: data.update(vehicle={"start": {"x": -32, "y": 31.99}})),
        ("world.yaml", lambda data: data["vehicle"].update(max_steer_deg=80, length_m=3.6)),
        ("sim/timebase.yaml", lambda data: data.update(physics_hz=10_000, control_timeout_s=3600)),
    ],
)
def test_what_the_check_just_accepts_a_scenario_accepts_too(bundle, name, edit):
    from microsim.scenario import load_scenario

    change(bundle / name, edit)
    assert problems(bundle) == []
    assert "ego" in load_scenario({"world": str(bundle)}).robots


def test_a_vehicle_holds_only_what_its_file_says(bundle):
    change(bundle / "world.yaml", lambda data: data.update(vehicle={"wheelbase_m": 2.5, "max_steer_deg": 30}))
    vehicle = load_bundle(bundle).vehicle
    assert vehicle is not None
    assert vehicle.model_dump(exclude_none=True) == {"wheelbase_m": 2.5, "max_steer": pytest.approx(math.pi / 6)}


def test_the_timebase_has_the_documents_defaults(bundle):
    timebase = load_bundle(bundle).timebase
    assert (timebase.physics_hz, timebase.control_timeout_s, timebase.emergency_brake_m_per_s2) == (100, 1.0, 3.0)


# ---- binaries


@pytest.mark.parametrize("change_to", [{"dtype": "float64"}, {"byte_order": "big"}])
def test_rule_little_endian_float32(bundle, change_to):
    change(bundle / "geometry/heightmap.yaml", lambda data: data.update(change_to))
    assert_breaks(bundle, "little-endian-float32")


def test_heights_are_read_as_little_endian_float32_from_the_south(bundle):
    heights = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    (bundle / "geometry/heightmap.bin").write_bytes(heights.astype("<f4").tobytes())
    loaded = load_bundle(bundle).heightmap
    assert (loaded.values == heights).all()
    assert (loaded.west, loaded.south, loaded.resolution_m) == (-32.0, -32.0, 0.5)


@pytest.mark.parametrize("cut", [-4, -1, 4])
def test_rule_heightmap_size(bundle, cut):
    file = bundle / "geometry/heightmap.bin"
    raw = file.read_bytes()
    file.write_bytes(raw + bytes(cut) if cut > 0 else raw[:cut])
    assert_breaks(bundle, "heightmap-size", "65,536", "128 x 128")


def test_rule_heightmap_size_of_an_empty_file(bundle):
    (bundle / "geometry/heightmap.bin").write_bytes(b"")
    assert_breaks(bundle, "heightmap-size", "found 0")


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e9])
def test_rule_heightmap_value(bundle, value):
    heights = np.zeros((128, 128), np.float32)
    heights[3, 7] = value
    (bundle / "geometry/heightmap.bin").write_bytes(heights.tobytes())
    assert_breaks(bundle, "heightmap-value", "row 3, column 7", "NaN")


def test_nan_means_no_ground_there(bundle):
    heights = np.zeros((128, 128), np.float32)
    heights[3, 7] = np.nan
    (bundle / "geometry/heightmap.bin").write_bytes(heights.tobytes())
    assert np.isnan(load_bundle(bundle).heightmap.values[3, 7])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("binary_little_endian", "ascii", "ASCII PLY is not supported"),
        ("binary_little_endian", "binary_big_endian", "big endian"),
        ("1.0\n", "2.0\n", "binary_little_endian 1.0"),
        ("ply\n", "plx\n", "expected a PLY"),
        ("end_header", "end_heaver", "end_header"),
        ("property float x", "property flota x", "property"),
        ("element vertex 100", "element vertex many", "element"),
    ],
)
def test_rule_splat_format(bundle, old, new, said):
    splat(bundle, lambda text: text.replace(old, new, 1))
    assert_breaks(bundle, "splat-format", said)


def test_rule_splat_format_refuses_npz_by_name_and_by_content(bundle):
    np.savez(bundle / "gaussians/background.npz", x=np.zeros(3))
    (bundle / "gaussians/background.npz").rename(bundle / "gaussians/background.splat.ply")
    assert_breaks(bundle, "splat-format", "NPZ")
    change(bundle / "world.yaml", lambda world: world["gaussians"].update(background="gaussians/background.npz"))
    assert_breaks(bundle, "splat-format", "npz", "import-splat")


def test_rule_splat_name(bundle):
    (bundle / "gaussians/background.splat.ply").rename(bundle / "gaussians/scene.ply")
    change(bundle / "world.yaml", lambda world: world["gaussians"].update(background="gaussians/scene.ply"))
    assert_breaks(bundle, "splat-name", "background.splat.ply")


@pytest.mark.parametrize("name", ["x", "scale_1", "rot_3", "opacity", "f_dc_2"])
def test_rule_splat_properties_none_may_be_missing(bundle, name):
    splat(bundle, lambda text: text.replace(f"property float {name}\n", "", 1))
    assert_breaks(bundle, "splat-properties", f"'property float {name}'", "import-splat")


@pytest.mark.parametrize(("one", "other"), [("x", "y"), ("rot_0", "rot_3"), ("scale_0", "opacity")])
def test_rule_splat_properties_are_in_order(bundle, one, other):
    def swapped(text: str) -> str:
        return (
            text.replace(f"float {one}\n", "float ?\n")
            .replace(f"float {other}\n", f"float {one}\n")
            .replace("?", other)
        )

    splat(bundle, swapped)
    found = assert_breaks(bundle, "splat-properties", f"'property float {one}'")
    assert found[0].line is not None


@pytest.mark.parametrize(
    "extra", ["property float nx\n", "property uchar red\n", "element face 0\nproperty list uchar int vertex_indices\n"]
)
def test_rule_splat_properties_and_no_others(bundle, extra):
    splat(bundle, lambda text: text.replace("end_header", extra + "end_header"))
    assert_breaks(bundle, "splat-properties")


def test_rule_splat_properties_are_floats(bundle):
    splat(bundle, lambda text: text.replace("property float opacity", "property double opacity"))
    assert_breaks(bundle, "splat-properties", "double opacity")


@pytest.mark.parametrize("cut", [-1, -56, 3])
def test_rule_splat_size(bundle, cut):
    file = bundle / "gaussians/background.splat.ply"
    raw = file.read_bytes()
    file.write_bytes(raw + bytes(cut) if cut > 0 else raw[:cut])
    assert_breaks(bundle, "splat-size")


def test_rule_splat_size_with_a_count_beyond_all_memory(bundle):
    splat(bundle, lambda text: text.replace("vertex 100", "vertex 999999999999"))
    assert_breaks(bundle, "splat-size", "cut short")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_rule_splat_value(bundle, value):
    values = gaussians(bundle)
    values[42, 4] = value
    splat(bundle, values=values)
    assert_breaks(bundle, "splat-value", "Gaussian 42", "scale_1")


@pytest.mark.parametrize(
    ("column", "value", "bound"),
    [("scale_1", 15.0, "13.8"), ("f_dc_0", 1e7, "1e+06"), ("x", -2e6, "-1e+06"), ("opacity", 1e30, "1e+06")],
)
def test_rule_splat_value_refuses_what_would_not_be_drawn(bundle, column, value, bound):
    values = gaussians(bundle)
    values[42, columns_of(0).index(column)] = value
    splat(bundle, values=values)
    assert_breaks(bundle, "splat-value", "Gaussian 42", column, f"{value:g}", bound)


def test_rule_splat_value_has_the_bounds_of_the_renderer():
    from microsim.bundle.mapped_arrays import LARGEST, LARGEST_LOG_SCALE
    from microsim.render.splat import activation

    assert (LARGEST, LARGEST_LOG_SCALE) == (activation._LARGEST, activation._LARGEST_LOG_SCALE)


def test_rule_sh_degree_is_mandatory(bundle):
    change(bundle / "gaussians/render_config.json", lambda data: data.pop("sh_degree"))
    assert_breaks(bundle, "sh-degree", "sh_degree")


@pytest.mark.parametrize("degree", [-1, 4, 1.0, "3", True])
def test_rule_sh_degree_is_0_to_3(bundle, degree):
    change(bundle / "gaussians/render_config.json", lambda data: data.update(sh_degree=degree))
    assert_breaks(bundle, "sh-degree")


def test_rule_sh_degree_fits_the_number_of_coefficients(bundle):
    change(bundle / "gaussians/render_config.json", lambda data: data.update(sh_degree=2))
    assert_breaks(bundle, "sh-degree", "0 f_rest", "says 2")


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_every_sh_degree_is_read(bundle, degree):
    count = len(columns_of(degree))
    assert count == 14 + {0: 0, 1: 9, 2: 24, 3: 45}[degree]
    values = np.zeros((7, count), np.float32)
    values[:, 9] = 1.0
    values[:, -1] = np.arange(7)
    splat(bundle, values=values, degree=degree)
    change(bundle / "gaussians/render_config.json", lambda data: data.update(sh_degree=degree))
    loaded = load_bundle(bundle).gaussians
    assert (loaded.values == values).all()
    assert loaded.sh_degree == degree
    assert (loaded.column("rot_0", 4) == [0, 0, 0, 1]).all()


@pytest.mark.parametrize(
    "raw",
    [b"", b"garbage", mesh_ply(CUBE_VERTICES, CUBE_TRIANGLES)[:-5], mesh_ply(CUBE_VERTICES, CUBE_TRIANGLES) + b"1"],
)
def test_rule_mesh_format(bundle, raw):
    (bundle / "geometry/static_mesh.ply").write_bytes(raw)
    assert_breaks(bundle, "mesh-format")


def test_rule_mesh_value_wants_finite_vertices(bundle):
    vertices = CUBE_VERTICES.copy()
    vertices[3, 1] = np.nan
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(vertices, CUBE_TRIANGLES))
    assert_breaks(bundle, "mesh-value", "vertex 3")


def test_rule_mesh_value_refuses_a_signalling_nan_without_a_warning(bundle):
    vertices = CUBE_VERTICES.astype(np.float32)
    vertices.view(np.uint32)[3, 1] = 0x7F800001  # the processor reports an invalid operation when it is converted
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(vertices, CUBE_TRIANGLES))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_breaks(bundle, "mesh-value", "vertex 3")


@pytest.mark.parametrize("index", [-1, 8])
def test_rule_mesh_value_wants_vertices_that_exist(bundle, index):
    triangles = CUBE_TRIANGLES.copy()
    triangles[5, 0] = index
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(CUBE_VERTICES, triangles))
    assert_breaks(bundle, "mesh-value", "face 5", "there are 8")


# ---- drivable area


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.update(type="Feature"),
        lambda data: data.pop("features"),
        lambda data: data.update(features={}),
        lambda data: data["features"].append(3),
        lambda data: data["features"][0].update(geometry=None),
        lambda data: data["features"][0]["geometry"].update(type="LineString"),
        lambda data: data["features"][0]["geometry"].update(coordinates=[]),
        lambda data: data["features"][0]["geometry"]["coordinates"][0].__setitem__(1, ["a", 0]),
        lambda data: data["features"][0]["geometry"]["coordinates"][0].__setitem__(1, [1]),
        lambda data: data["features"][0]["geometry"]["coordinates"].__setitem__(0, [[0, 0], [1, 0], [0, 0]]),
        lambda data: data["features"][0]["geometry"]["coordinates"][0].__setitem__(1, [1e300, 0]),
    ],
)
def test_rule_drivable_structure(bundle, edit):
    change(bundle / "geometry/drivable.geojson", edit)
    assert_breaks(bundle, "drivable-structure")


@pytest.mark.parametrize(
    "crs", [{"type": "name", "properties": {"name": "urn:ogc:def:crs:OGC:1.3:CRS84"}}, {}, "map_frame"]
)
def test_rule_drivable_frame(bundle, crs):
    change(bundle / "geometry/drivable.geojson", lambda data: data.update(crs=crs))
    assert_breaks(bundle, "drivable-frame", "map_frame")


@pytest.mark.parametrize("properties", [{}, {"type": "road"}, {"type": None}, None])
def test_rule_drivable_type(bundle, properties):
    change(bundle / "geometry/drivable.geojson", lambda data: data["features"][0].update(properties=properties))
    assert_breaks(bundle, "drivable-type", "drivable")


@pytest.mark.parametrize("priority", ["0", None, True, [1], 1e300])
def test_rule_drivable_priority(bundle, priority):
    change(
        bundle / "geometry/drivable.geojson", lambda data: data["features"][0]["properties"].update(priority=priority)
    )
    assert_breaks(bundle, "drivable-priority")


def test_the_priority_is_0_when_it_is_not_written(bundle):
    change(bundle / "geometry/drivable.geojson", lambda data: data["features"][0]["properties"].pop("priority"))
    assert load_bundle(bundle).drivable.priority.tolist() == [0.0]


def test_rule_ring_closed(bundle):
    ring(bundle, lambda rings: rings[0].pop())
    found = assert_breaks(bundle, "ring-closed", "repeat the first point")
    assert found[0].path == "features[0].geometry.coordinates[0]"


def test_rule_ring_orientation_of_the_outer_ring(bundle):
    ring(bundle, lambda rings: rings[0].reverse())
    assert_breaks(bundle, "ring-orientation", "counter-clockwise")


def test_rule_ring_orientation_of_a_hole(bundle):
    ring(bundle, lambda rings: rings.append([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]))
    assert_breaks(bundle, "ring-orientation", "a hole to run clockwise")


@pytest.mark.parametrize(
    "rings",
    [
        [[[0, 0], [10, 0], [0, 8], [8, 8], [0, 0]]],  # a bow tie
        [[[0, 0], [10, 0], [10, 10], [5, 0], [0, 10], [0, 0]]],  # touches itself
        [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]], [[20, 20], [20, 21], [21, 21], [20, 20]]],  # a hole outside
        [[[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]], [[5, 5], [5, 12], [8, 8], [5, 5]]],  # a hole across the edge
    ],
)
def test_rule_ring_simple(bundle, rings):
    ring(bundle, lambda found: found.__setitem__(slice(None), rings))
    assert_breaks(bundle, "ring-simple")


def test_polygons_with_holes_and_multipolygons_are_read_and_z_is_ignored(bundle):
    def edit(data):
        outer = [[-9, -9, 5.0], [9, -9, 7], [9, 9], [-9, 9], [-9, -9, 1]]
        hole = [[-1, -1], [-1, 1], [1, 1], [1, -1], [-1, -1]]
        island = [[20, 20], [21, 20], [21, 21], [20, 20]]
        data["features"][0]["geometry"] = {"type": "MultiPolygon", "coordinates": [[outer, hole], [island]]}
        data["features"][0]["properties"]["priority"] = 3

    change(bundle / "geometry/drivable.geojson", edit)
    area = load_bundle(bundle).drivable
    assert area.priority.tolist() == [3.0, 3.0]
    assert [area.polygon_at(*point) for point in ((5.0, 5.0), (0.0, 0.0), (20.5, 20.2), (15.0, 15.0))] == [0, -1, 1, -1]


def test_rule_drivable_empty_is_a_warning_and_everything_is_off_road(bundle):
    change(bundle / "geometry/drivable.geojson", lambda data: data.update(features=[]))
    found = assert_breaks(bundle, "drivable-empty", "off-road")
    assert all(problem.is_warning for problem in found)
    assert load_bundle(bundle).drivable.polygon_at(0.0, 0.0) == -1


# ---- recommended limits: said, but nothing stops


def test_rule_limit_bundle_size(bundle, monkeypatch):
    monkeypatch.setattr("microsim.bundle.bundle_loading.RECOMMENDED_BYTES", 50_000)
    assert all(problem.is_warning for problem in assert_breaks(bundle, "limit-bundle-size", "2 GB"))


def test_rule_limit_gaussians(bundle, monkeypatch):
    monkeypatch.setattr("microsim.bundle.mapped_arrays.RECOMMENDED_GAUSSIANS", 99)
    assert all(problem.is_warning for problem in assert_breaks(bundle, "limit-gaussians", "100 Gaussians"))


def test_rule_limit_heightmap(bundle, monkeypatch):
    monkeypatch.setattr("microsim.bundle.mapped_arrays.RECOMMENDED_CELLS", 128 * 127)
    assert all(problem.is_warning for problem in assert_breaks(bundle, "limit-heightmap", "128 x 128"))


def test_rule_limit_triangles(bundle, monkeypatch):
    monkeypatch.setattr("microsim.bundle.mesh_files.RECOMMENDED_TRIANGLES", 11)
    assert all(problem.is_warning for problem in assert_breaks(bundle, "limit-triangles", "12 triangles"))


def test_the_limits_are_those_of_the_document():
    from microsim.bundle import bundle_loading, mapped_arrays, mesh_files

    assert bundle_loading.RECOMMENDED_BYTES == 2_000_000_000
    assert mapped_arrays.RECOMMENDED_GAUSSIANS == 5_000_000
    assert mapped_arrays.RECOMMENDED_CELLS == 4096 * 4096
    assert mesh_files.RECOMMENDED_TRIANGLES == 10_000_000


def test_rule_lanes_format(bundle):
    world = bundle / "world.yaml"
    world.write_text(world.read_text().replace("  drivable:", "  lanes: geometry/lanes.geojson\n  drivable:"))
    for text in ("[]", "{}", '{"features": [{"properties": {"id": "1", "next": ["2"], "left": [], "right": []}}]}'):
        (bundle / "geometry/lanes.geojson").write_text(text)
        assert_breaks(bundle, "lanes-format")


def test_rule_object_name(bundle):
    world = bundle / "world.yaml"
    world.write_text(world.read_text().replace("  drivable:", "  objects: geometry/objects.yaml\n  drivable:"))
    box = "{name: bench, center: [0, 0, 0], size: [1, 1, 1]}"
    (bundle / "geometry/objects.yaml").write_text(f'version: "1.0.0"\nobjects: [{box}, {box}]\n')
    assert_breaks(bundle, "object-name")


def test_every_rule_has_a_test_named_after_it():
    tested = [name.removeprefix("test_rule_") for name in globals() if name.startswith("test_rule_")]
    missing = [rule for rule in RULES if not any(name.startswith(rule.replace("-", "_")) for name in tested)]
    assert missing == []
