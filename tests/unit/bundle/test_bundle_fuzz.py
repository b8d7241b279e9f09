"""Damaged and mistyped bundles: a list of problems or a complete bundle, never a traceback, never half of one."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microsim.bundle import load_bundle
from microsim.bundle.bundle_writing import pack, unpack
from microsim.bundle.splat_import import SplatOptions, import_splat
from microsim.documents.json_text import read_json
from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.errors import MicroSimError, ScenarioError
from tests.bundle_support import problems, small_bundle
from tests.parts.worlds.test_bundle_commands import usual_ply
from tests.unit.bundle.test_bundle_meshes import cube_glb, cube_obj

TEXTS = [
    "world.yaml", "metadata.json", "gaussians/render_config.json", "geometry/heightmap.yaml",
    "geometry/drivable.geojson", "sensors/calibration.yaml", "sensors/tf_static.json", "sim/timebase.yaml",
]  # fmt: skip
BINARIES = ["gaussians/background.splat.ply", "geometry/heightmap.bin", "geometry/static_mesh.ply"]
MESHES = ["geometry/static_mesh.glb", "geometry/static_mesh.obj"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_bundle(tmp_path_factory.mktemp("fuzz") / "small")
    (folder / "geometry/static_mesh.glb").write_bytes(cube_glb())
    (folder / "geometry/static_mesh.obj").write_bytes(cube_obj())
    return folder


def assert_all_or_nothing(folder: Path, name: str, raw: bytes) -> None:
    """With these bytes in place of that file; the file is put back afterwards."""
    file = folder / name
    before, world = file.read_bytes(), (folder / "world.yaml").read_text()
    try:
        if name in MESHES:
            (folder / "world.yaml").write_text(world.replace("geometry/static_mesh.ply", name))
        file.write_bytes(raw)
        found = problems(folder)
        assert all(problem.file and problem.message and problem.rule for problem in found)
        if not any(not problem.is_warning for problem in found):
            use(folder)
    finally:
        file.write_bytes(before)
        (folder / "world.yaml").write_text(world)


def use(folder: Path) -> None:
    """Whatever a loaded bundle holds can be used."""
    bundle = load_bundle(folder)
    assert bundle.heightmap.resolution_m > 0.0
    assert not np.isinf(bundle.heightmap.values).any()
    assert np.isfinite(bundle.gaussians.values).all()
    if bundle.mesh is not None and len(bundle.mesh.triangles):
        assert np.isfinite(bundle.mesh.vertices[bundle.mesh.triangles]).all()
    bundle.drivable.polygon_at(0.0, 0.0)
    for camera in bundle.cameras.values():
        assert camera.width > 0
        assert camera.intrinsics.fx > 0.0
        assert sum(part * part for part in camera.optical_quat) == pytest.approx(1.0)
    for lidar in bundle.lidars.values():
        assert lidar.columns > 0
        assert all(abs(elevation) <= 1.6 for elevation in lidar.elevations)
        assert 0.0 < lidar.rate_hz <= bundle.timebase.physics_hz


def flipped(raw: bytes, places: list[tuple[float, int]]) -> bytes:
    changed = bytearray(raw)
    for place, value in places:
        if changed:
            changed[int(place * (len(changed) - 1))] = value
    return bytes(changed)


PLACES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8)
ENDS = st.lists(st.tuples(st.floats(0.98, 1), st.integers(0, 255)), min_size=1, max_size=4)
HEADS = st.lists(st.tuples(st.floats(0, 0.05), st.integers(0, 255)), min_size=1, max_size=4)
FILES = st.sampled_from(TEXTS + BINARIES + MESHES)


@given(FILES, st.one_of(PLACES, HEADS))
@settings(max_examples=60)
def test_flipped_bytes_never_give_a_traceback_or_half_a_bundle(bundle, name, places):
    assert_all_or_nothing(bundle, name, flipped((bundle / name).read_bytes(), places))


@given(FILES, st.floats(0, 1), st.binary(max_size=8))
@settings(max_examples=40)
def test_truncated_files_never_give_a_traceback_or_half_a_bundle(bundle, name, part, tail):
    raw = (bundle / name).read_bytes()
    assert_all_or_nothing(bundle, name, raw[: int(part * len(raw))] + tail)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.sampled_from(["", "/", "..", "1.0.0", "2.0.0", "base_link", "opencv", -1, 0, 1, 1e308, 10**400]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=6,
)


def mutated(data: Any, path: list[float], value: Any, how: str) -> Any:
    """The data with one node somewhere below replaced, removed or added."""
    data = copy.deepcopy(data)
    node = data
    for step in path:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            break
        key = keys[int(step * (len(keys) - 1))]
        if isinstance(node[key], (dict, list)) and step != path[-1]:
            node = node[key]
            continue
        if how == "replace":
            node[key] = value
        elif how == "remove":
            del node[key]
        elif isinstance(node, dict):
            node[f"{key}_deg"] = value
        else:
            node.append(value)
        break
    return data


@given(
    st.sampled_from(TEXTS),
    st.lists(st.floats(0, 1), min_size=1, max_size=7),
    values,
    st.sampled_from(["replace", "remove", "add"]),
)
@settings(max_examples=100)
def test_mutated_data_never_gives_a_traceback_or_half_a_bundle(bundle, name, path, value, how):
    text = (bundle / name).read_text()
    if name.endswith(".yaml"):
        data = mutated(read_yaml(text, name).data, path, value, how)
        raw = to_yaml(data).encode("utf-8", "surrogateescape")
    else:
        raw = json.dumps(mutated(json.loads(text), path, value, how)).encode("utf-8", "surrogateescape")
    assert_all_or_nothing(bundle, name, raw)


@pytest.mark.slow
@given(FILES, st.one_of(PLACES, HEADS), st.floats(0.5, 1))
@settings(max_examples=3000)
def test_many_damaged_files_never_give_a_traceback_or_half_a_bundle(bundle, name, places, part):
    raw = flipped((bundle / name).read_bytes(), places)
    assert_all_or_nothing(bundle, name, raw[: int(part * len(raw))] if part < 0.6 else raw)


@pytest.mark.slow
@given(
    st.sampled_from(TEXTS),
    st.lists(st.floats(0, 1), min_size=1, max_size=7),
    values,
    st.sampled_from(["replace", "remove", "add"]),
)
@settings(max_examples=3000)
def test_much_mutated_data_never_gives_a_traceback_or_half_a_bundle(bundle, name, path, value, how):
    test_mutated_data_never_gives_a_traceback_or_half_a_bundle.hypothesis.inner_test(bundle, name, path, value, how)


@given(st.one_of(PLACES, ENDS))
@example(places=[(0.9913824976963657, 0)])  # a name that begins with a zero byte
@settings(max_examples=40)
def test_a_damaged_archive_gives_a_whole_bundle_or_nothing(tmp_path_factory, places):
    folder = tmp_path_factory.mktemp("archive")
    pack("minimal_test", folder / "good.zip")
    (folder / "bad.zip").write_bytes(flipped((folder / "good.zip").read_bytes(), places))
    try:
        unpack(folder / "bad.zip", folder / "out", 10_000_000)
    except MicroSimError:
        assert sorted(path.name for path in folder.iterdir()) == ["bad.zip", "good.zip"]
    else:
        use(folder / "out")


@given(st.sampled_from(["binary_little_endian", "ascii"]), st.one_of(PLACES, HEADS))
@settings(max_examples=60)
def test_a_damaged_splat_is_imported_finite_or_refused(tmp_path_factory, form, places):
    folder = tmp_path_factory.mktemp("splat")
    (folder / "bad.ply").write_bytes(flipped(usual_ply(20, 1, form)[0], places))
    try:
        imported = import_splat(folder / "bad.ply", folder / "good.ply", SplatOptions(axes="y-down", keep=10))
    except MicroSimError:
        return
    assert imported.kept <= 10
    assert np.isfinite(imported.points).all()


NASTY = [
    None,
    True,
    "",
    "x",
    "..",
    [],
    {},
    [[]],
    0,
    -1,
    10**400,
    -(10**400),
    1e308,
    -1e308,
    -0.0,
    5e-324,
    [10**400] * 4,
]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_every_value_replaced_by_nasty_ones_never_gives_a_traceback_or_half_a_bundle(bundle, name):
    text = (bundle / name).read_text()
    is_yaml = name.endswith(".yaml")
    data = read_yaml(text, name).data if is_yaml else json.loads(text)
    for path in paths_of(data)[1:]:
        for nasty in [*NASTY, *([math.nan, math.inf, -math.inf] if is_yaml else [])]:
            changed = copy.deepcopy(data)
            node = changed
            for part in path[:-1]:
                node = node[part]
            node[path[-1]] = nasty
            raw = to_yaml(changed) if is_yaml else json.dumps(changed)
            assert_all_or_nothing(bundle, name, raw.encode())


@given(st.text(max_size=60))
@settings(max_examples=150)
def test_any_text_is_json_or_refused(text):
    try:
        expected = json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        with pytest.raises(ScenarioError):
            read_json(text, "any.json")
    else:
        assert read_json(text, "any.json").data == expected


def paths_of(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [above, *(path for key, value in items for path in paths_of(value, (*above, key)))]


@given(values.filter(lambda value: "nan" not in repr(value) and "inf" not in repr(value)), st.integers(0, 4))
@settings(max_examples=100)
def test_every_value_of_a_json_text_is_found_where_it_stands(data, indent):
    text = json.dumps(data, indent=indent or None)
    document = read_json(text, "any.json")
    lines = text.split("\n")
    every = paths_of(data)
    for path in [*every, *every[::-1]]:
        value = data
        for part in path:
            value = value[part]
        place = document.place(path)
        assert place is not None
        line, column = place
        rest = "\n".join([lines[line - 1][column - 1 :], *lines[line:]])
        assert json.JSONDecoder().raw_decode(rest)[0] == value
