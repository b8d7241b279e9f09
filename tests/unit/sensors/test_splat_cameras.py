"""Splat cameras in the engine: what they send, what they show of the simulated world, and what stops nothing."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.bundle.bundle_writing import mesh_ply, splat_ply
from microsim.engine.world import OBSTACLE, PALETTE
from microsim.errors import MicroSimError, ScenarioError
from microsim.paths import data_folder
from microsim.render import renderer_choice as choice
from microsim.render.palette_camera import CameraModel
from microsim.render.relief import NO_GROUND, Ground
from microsim.render.render_options import render_request
from microsim.render.robot_models import BOX, CYLINDER, SPHERE, draw_parts, shade
from microsim.render.screen import screen_index
from microsim.render.segmentation import SEGMENT_COLOURS, SEGMENT_NAMES
from microsim.render.splat.activation import activate
from microsim.render.splat.blending import SPLATS, THING
from microsim.render.splat.picture import CpuRenderer, Shot, Sky, lens_of
from microsim.sensors import _splat_camera as splat_cameras
from tests.bundle_support import CUBE_TRIANGLES, CUBE_VERTICES, small_bundle
from tests.support import COMPILED, decoded

pytestmark = pytest.mark.skipif(
    not COMPILED, reason="100,000 splats as plain Python take hours; `test_splat` runs the same lines on few"
)

SMALL = {
    "resolution": {"width": 64, "height": 48},
    "intrinsics": {"fx": 40.0, "fy": 40.0, "cx": 31.5, "cy": 23.5},
}


def scenario(camera: Any = None, **changes: Any) -> dict[str, Any]:
    sensors = {"camera_front": {**SMALL, **(camera or {})}, "lidar_top": None}
    return {"world": "worlds/minimal_test", "robots": {"ego": {"sensors": sensors}}, **changes}


def images(messages: Any, topic: str = "image_raw") -> list[np.ndarray]:
    found = decoded(messages, f"/ego/camera_front/{topic}")
    kinds = {"rgb8": (np.uint8, 3), "32FC1": (np.float32, 1)}
    return [
        np.frombuffer(bytes(each.data), kinds[each.encoding][0]).reshape(each.height, each.width, -1) for each in found
    ]


@pytest.fixture(scope="module")
def plain_run() -> tuple[microsim.Simulation, Any]:
    sim = microsim.Simulation(scenario())
    return sim, sim.step(20)


def test_a_bundle_s_camera_sends_rgb8_and_its_calibration_at_its_rate(plain_run: Any) -> None:
    _, sent = plain_run
    infos, found = decoded(sent, "/ego/camera_front/camera_info"), decoded(sent, "/ego/camera_front/image_raw")
    assert [(each.header.stamp.sec, each.header.stamp.nanosec) for each in found] == [
        (0, 0), (0, 80_000_000), (0, 170_000_000),
    ]  # fmt: skip
    assert (found[0].encoding, found[0].width, found[0].height) == ("rgb8", 64, 48)
    assert found[0].header.frame_id == infos[0].header.frame_id == "camera_front"
    assert infos[0].k[0] == 40.0
    assert images(sent)[0].std() > 5.0  # there is something to be seen


def test_what_render_gives_is_what_the_camera_sends(plain_run: Any) -> None:
    sim = microsim.Simulation(scenario())
    np.testing.assert_array_equal(sim.render("ego", "camera_front"), images(plain_run[1])[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit_of_a_run(threads: int, plain_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_request, "threads", threads)
    sim = microsim.Simulation(scenario())
    sim.step(20)
    assert sim.digest() == plain_run[0].digest()


def test_a_fork_goes_on_as_its_twin_does() -> None:
    sim = microsim.Simulation(scenario())
    sim.step(9)
    twin = sim.fork()
    assert [m.cdr for m in sim.step(12)] == [m.cdr for m in twin.step(12)]


def test_depth_and_segmentation_come_with_the_image_when_asked_for() -> None:
    wanted = {"render": {"type": "splat", "depth": True, "segmentation": True, "mesh": True}}
    sent = microsim.Simulation(scenario(wanted)).step(10)
    depths, classes = images(sent, "depth"), images(sent, "segmentation")
    assert len(depths) == len(classes) == len(images(sent)) == 2
    stamps = {
        str(each.header.stamp)
        for topic in ("depth", "image_raw")
        for each in decoded(sent, f"/ego/camera_front/{topic}")
    }
    assert len(stamps) == 2
    assert np.isfinite(depths[0]).any()
    assert depths[0].min() > 0.2  # the near plane
    colours = {tuple(int(part) for part in colour) for colour in SEGMENT_COLOURS}
    assert {tuple(colour) for colour in classes[0].reshape(-1, 3).tolist()} <= colours
    assert len(colours) == len(SEGMENT_NAMES)  # no two classes share one


BOXES = {"mesh": ((-8.0, 1.03, 0.04), (-7.0, 2.03, 1.04)), "obstacle": ((-6.52, -2.46, 0.0), (-5.52, -1.46, 1.0))}
BLOB = (-5.0, 0.0, 2.0)  # of splats, without a mesh
SCOUT = (-4.0, 6.0)


def segmented_world(folder: Path) -> Path:
    """A plane with a road |x|, |y| < 24 m, a mesh, and splats that only the camera sees."""
    bundle = small_bundle(folder)
    (bundle / "geometry/heightmap.bin").write_bytes(np.zeros((128, 128), np.float32).tobytes())
    (bundle / "geometry/static_mesh.ply").write_bytes(mesh_ply(CUBE_VERTICES + BOXES["mesh"][0], CUBE_TRIANGLES))
    blob = [*BLOB, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 6.0, 1.0, 0.0, 0.0]
    (bundle / "gaussians/background.splat.ply").write_bytes(splat_ply(np.array([blob], np.float32), 0))
    return bundle


def expected_segments() -> tuple[np.ndarray, np.ndarray]:
    """Names for each pixel, by intersecting its ray with boxes and the plane; the second: where splats or robots are.

    The camera is 1.5 m before the car's rear axle at (-15, 0), 1.2 m high, and looks to the east.
    """
    eye = np.array([-13.5, 0.0, 1.2])
    v, u = np.mgrid[0:48, 0:64]
    rays = np.stack([np.ones(v.shape), -(u - 31.5) / 40.0, -(v - 23.5) / 40.0], axis=-1)
    with np.errstate(divide="ignore"):
        depth = np.where(rays[..., 2] < 0.0, -eye[2] / rays[..., 2], np.inf)
    point = eye[:2] + np.where(np.isfinite(depth), depth, 0.0)[..., None] * rays[..., :2]
    names = np.where(np.isinf(depth), "sky", np.where((np.abs(point) < 24.0).all(axis=-1), "road", "ground"))
    names = names.astype("U8")
    for name, (low, high) in BOXES.items():
        near, far = (np.array(low) - eye) / rays, (np.array(high) - eye) / rays
        enter, leave = np.minimum(near, far).max(axis=-1), np.maximum(near, far).min(axis=-1)
        hit = (enter <= leave) & (enter > 0.0) & (enter < depth)
        names[hit], depth[hit] = name, enter[hit]
    masked = np.zeros(v.shape, bool)
    for x, y, z, radius in ((*BLOB, 1.6), (*SCOUT, 0.7, 3.5)):
        ahead = x - eye[0]
        masked |= np.hypot(u - (31.5 - 40.0 * y / ahead), v - (23.5 - 40.0 * (z - eye[2]) / ahead)) < (
            40.0 * radius / ahead + 1.5
        )
    return names, masked


def test_the_segmentation_tells_sky_road_ground_meshes_obstacles_robots_and_splats_apart(tmp_path: Path) -> None:
    render = {"type": "splat", "segmentation": True}
    scout = {"model": "bicycle", "start": {"map_pose": {"x": SCOUT[0] - 1.4, "y": SCOUT[1], "yaw": 0.0}}}
    robots = {"ego": {"sensors": {"camera_front": {**SMALL, "render": render}, "lidar_top": None}}, "scout": scout}
    (low, high), size = BOXES["obstacle"], [1.0, 1.0, 1.0]
    box = {"type": "box", "center": [0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), 0.0], "size": size}
    world = str(segmented_world(tmp_path / "segments"))
    image = images(microsim.Simulation({"world": world, "robots": robots, "obstacles": [box]}).step(1), "segmentation")[
        0
    ]
    by_colour = {tuple(colour): name for name, colour in zip(SEGMENT_NAMES, SEGMENT_COLOURS.tolist(), strict=True)}
    found = np.array([[by_colour[tuple(pixel)] for pixel in row] for row in image.tolist()])
    names, masked = expected_segments()
    assert {"sky", "road", "ground", "mesh", "obstacle"} <= set(names[~masked])
    assert (found == names)[~masked].all()
    for (x, y, z), name in ((BLOB, "thing"), ((*SCOUT, 0.7), "robot")):
        row, column = round(23.5 - 40.0 * (z - 1.2) / (x + 13.5)), round(31.5 - 40.0 * y / (x + 13.5))
        assert found[row, column] == name
    assert set(found[found != names]) == {"thing", "robot"}


def on_the_oval(render: Any = "splat", **changes: Any) -> dict[str, Any]:
    """Before the car lies the road, free for 20 m: what is put there is seen through nothing."""
    others = dict.fromkeys(("camera_front_left", "camera_front_right", "lidar_top"))
    sensors = {"camera_front": {**SMALL, "render": render}, **others}
    robots = {"ego": {"sensors": sensors}, **changes.pop("robots", {})}
    return {"world": "worlds/oval", "robots": robots, **changes}


def test_an_obstacle_is_seen_among_the_splats_where_it_stands() -> None:
    """The ground before it covers its foot; nothing behind it is seen."""
    box = {"type": "box", "center": [-10.0, -30.0, 0.0], "size": [0.5, 3.0, 6.0]}
    sent = microsim.Simulation(on_the_oval({"type": "splat", "depth": True}, obstacles=[box])).step(1)
    image, depths = images(sent)[0], images(sent, "depth")[0][..., 0]
    assert np.abs(image[18:24, 28:36] - PALETTE[OBSTACLE].astype(int)).max() <= 3
    assert depths[18:24, 28:36] == pytest.approx(np.full((6, 8), 8.15), abs=0.3)
    assert (image[47] != PALETTE[OBSTACLE]).any(axis=1).all()  # the road just ahead


def test_another_robot_is_seen_where_it_stands() -> None:
    ahead = {"model": "bicycle", "start": {"map_pose": {"x": -12.0, "y": -30.0, "yaw": 0.3}}}
    alone = images(microsim.Simulation(on_the_oval()).step(1))[0]
    both = images(microsim.Simulation(on_the_oval(robots={"scout": ahead})).step(1))[0]
    changed = (alone != both).any(axis=2)
    rows, columns = np.nonzero(changed)
    assert 30 < changed.sum() < 400
    assert abs(columns.mean() - 31.5) < 4.0
    assert rows.mean() > 25.0  # on the ground, below the camera's axis
    red, _, blue = both[changed].astype(int).T
    assert (blue > red + 40).sum() > 20  # its blue paint
    below = changed & (both.astype(int).sum(axis=2) < 0.8 * alone.astype(int).sum(axis=2))
    below[: rows.max() - 2] = False
    assert below.sum() > 3  # its shadow, on the road before it


def test_the_shipped_models_are_those_of_their_urdfs() -> None:
    """Cameras draw numbers, since a reader of URDF need not be installed."""
    maker = runpy.run_path(str(data_folder() / "urdf" / "make_parts.py"))
    assert (data_folder() / "urdf" / "parts.json").read_text() == maker["made"]()


def test_a_box_hides_the_sun_from_the_ground_beside_it_and_not_from_itself() -> None:
    """The sun is in the east-north-east: the shadow of a box of 2 m lies in the west-south-west."""
    box = np.array([[0.0, 0.0, 1.0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1.0, 1.0, 1.0]])
    rays = np.zeros((2, 1, 5))
    rays[0, 0] = np.array([-1.4, 1.4, -4.0, 0.0, 0.0]) / 10.0
    pose = np.array([0.0, 0.0, 10.0, 1, 0, 0, 0, -1, 0, 0, 0, -1])  # looks down from 10 m
    depths = np.array([[10.0, 10.0, 10.0, 8.0, np.inf]], np.float32)
    image = np.full((1, 5, 3), 200, np.uint8)
    shade(pose, rays, depths, np.full((1, 5), SPLATS, np.uint16), NO_GROUND, box, 0, 1, image)
    in_shadow, towards_the_sun, far, roof, sky = image[0, :, 0]
    assert in_shadow < 150
    assert (towards_the_sun, far, roof, sky) == (200, 200, 200, 200)


def shaded(depths: Any, rays: Any, owners: Any, ground: Ground) -> Any:
    """Light of each pixel of a camera 3 m above the ground that looks along x, with a crate before it."""
    pose = np.array([0.0, 0.0, 3.0, 0, 0, 1, -1, 0, 0, 0, -1, 0])
    crate = np.array([[8.0, 0.0, 1.0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1.5, 1.5, 1.0]])
    image = np.full((*depths.shape, 3), 200, np.uint8)
    shade(
        pose,
        rays,
        depths.astype(np.float32),
        np.full(depths.shape, owners, np.uint16),
        ground,
        crate,
        0,
        len(depths),
        image,
    )
    return image[..., 0].astype(int)


@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_a_shadow_lies_on_the_ground_and_does_not_tear_where_splats_are_uneven(slope: float) -> None:
    """Each pixel's splat is up to 30 cm above or 1 m below the ground: its shadow is that of the ground itself."""
    v, u = np.mgrid[0:60, 0:80]
    rays = np.stack([(u - 39.5) / 60.0, (v + 12.0) / 60.0])
    x = np.arange(41.0) - 20.0
    ground = Ground(np.broadcast_to(slope * (x + 0.5), (41, 41)).copy(), 1.0, -20.0, -20.0)  # at the middle of cells

    def depths(above: Any) -> Any:
        return (3.0 - above) / (rays[1] + slope)

    even = shaded(depths(0.0), rays, SPLATS, ground)
    rough = depths(np.random.default_rng(2).uniform(-1.0, 0.3, v.shape))
    assert 100 < (even < 150).sum() < 2000
    assert np.abs(shaded(rough, rays, SPLATS, ground) - even).max() <= (20 if slope else 1)  # a slope is found by steps
    for owner, where in (
        (THING, ground),
        (SPLATS, NO_GROUND),
    ):  # a robot's surface is where it is, as all is without ground
        assert (np.abs(shaded(rough, rays, owner, where) - even) > 20).sum() > 100


def test_below_the_horizon_a_hole_shows_the_colour_of_the_ground() -> None:
    model = CameraModel(24, 20, 20.0, 20.0, 11.5, 9.5)
    level = ((0.0, 0.0, 1.0), (-1.0, 0.0, 0.0), (0.0, -1.0, 0.0))
    sky, ground, nothing = (0.2, 0.4, 0.6), (0.6, 0.4, 0.2), activate(np.empty((0, 14), np.float32), 0)
    shots = [Shot(lens_of(model), (0.0, 0.0, 1.0), level, Sky(sky, sky, below)) for below in (None, ground)]
    plain, found = (each.colours for each in CpuRenderer(nothing).pictures(shots))
    assert (plain == np.round(255 * np.array(sky))).all()
    assert (found[:10] == plain[:10]).all()
    assert (found[10:] == np.round(255 * np.array(ground))).all()


@pytest.mark.parametrize("kind", [BOX, CYLINDER, SPHERE])
def test_a_part_of_a_model_is_drawn_where_it_is_and_lit_from_above(kind: int) -> None:
    part = np.array([[5.0, 0.0, 0.0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1.0, 1.0, 1.0, kind, 0.5, 0.5, 0.5]])
    model = CameraModel(21, 21, 20.0, 20.0, 10.0, 10.0)
    rays = model.rays()
    depths, ground = np.full((21, 21), np.inf), np.full((21, 21), np.inf)
    image = np.zeros((21, 21, 3), np.uint8)
    pose = np.array([0.0, 0.0, 2.0, 0, 0, 1, -1, 0, 0, 0, -1, 0])  # looks ahead, from above
    draw_parts(pose, rays, screen_index(rays), part, ground, depths, image)
    assert depths[18, 10] == pytest.approx(4.0, abs=0.1)
    assert not np.isfinite(depths[2, 10])
    assert image[14, 10, 0] > image[18, 10, 0] > 0


def test_a_robot_behind_a_wall_is_not_seen() -> None:
    """The oval's outer barrier, 1 m high, stands between the road and the rover."""
    hidden = {"model": "rover", "start": {"map_pose": {"x": 2.0, "y": -42.0, "yaw": 0.0}}}
    alone = images(microsim.Simulation(on_the_oval()).step(1))[0]
    both = images(microsim.Simulation(on_the_oval(robots={"scout": hidden})).step(1))[0]
    assert np.abs(alone.astype(int) - both).max() <= 3


def test_the_mesh_is_drawn_among_the_splats_when_wanted() -> None:
    plain, mesh = (
        images(microsim.Simulation(on_the_oval({"type": "splat", "mesh": wanted})).step(1))[0]
        for wanted in (False, True)
    )
    changed = (plain != mesh).any(axis=2)  # where it is before the splats that show the same wall or tree
    assert 0.005 < changed.mean() < 0.3


def test_the_bundle_s_exposure_gain_and_noise_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = splat_cameras.SplatScene.__init__

    def noisy(self: Any, *given: Any) -> None:
        made(self, *given)
        self.settings = self.settings.model_copy(update={"exposure_ev": -0.5, "gain_sigma": 0.1, "noise_sigma": 4.0})

    clean = images(microsim.Simulation(scenario(), seed=1).step(1))[0].astype(float)
    monkeypatch.setattr(splat_cameras.SplatScene, "__init__", noisy)
    one, again, other = (images(microsim.Simulation(scenario(), seed=seed).step(1))[0] for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).mean() > 0.5
    assert one.mean() == pytest.approx(clean.mean() * 2**-0.5, rel=0.35)


# What stops nothing


class Failing(CpuRenderer):
    """Gives its first pictures, and fails from then on."""

    good = 1

    def pictures(self, shots: Any) -> Any:
        self.good -= 1
        if self.good < 0:
            raise RuntimeError("the device is lost")
        return super().pictures(shots)


def test_a_frame_that_cannot_be_drawn_is_the_last_one_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splat_cameras, "open_renderer", lambda splats, *_: Failing(splats))
    sim = microsim.Simulation(scenario())
    found = images(sim.step(30))
    assert len(found) == 4
    assert all((each == found[0]).all() for each in found)
    assert sim.health.degraded["ego/camera_front"] == 3


def test_a_gpu_that_fails_in_a_run_is_replaced_by_the_cpu(monkeypatch: pytest.MonkeyPatch, plain_run: Any) -> None:
    class FailingGpu:
        def __init__(self, splats: Any) -> None:
            self.inner = Failing(splats)

        def pictures(self, shots: Any) -> Any:
            return self.inner.pictures(shots)

    said: list[str] = []
    monkeypatch.setattr(render_request, "say", said.append)
    monkeypatch.setattr(splat_cameras, "open_renderer", lambda splats, *_: FailingGpu(splats))
    sim = microsim.Simulation(scenario())
    sim.step(20)
    assert sim.digest() == plain_run[0].digest()
    assert len(said) == 1
    assert "drawn on the CPU from now on" in said[0]


def test_splats_without_a_world_bundle_are_refused_in_words() -> None:
    with pytest.raises(ScenarioError, match=r"drone\.camera\.render.*\n?.*world bundle"):
        microsim.Simulation({"robots": {"drone": {"camera": {"render": "splat"}}}})


def test_the_back_end_of_a_run_is_the_one_wished_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        splat_cameras, "open_renderer", lambda splats, *a: asked.append(a) or choice.open_renderer(splats, "cpu")
    )
    monkeypatch.setattr(render_request, "choice", "gpu")
    microsim.Simulation(scenario())
    assert asked[0][0] == "gpu"


FISHEYE = {
    "projection": "fisheye", "readout_s": 0.04, "appearance": {"rain": 0.7},
    "intrinsics": {**SMALL["intrinsics"], "fx": 20.0, "fy": 20.0},
}  # fmt: skip


def test_all_images_of_a_fisheye_with_a_rolling_shutter_agree() -> None:
    """Where it sees nothing it is black and has no depth; what stands in the world is where its depth is."""
    render = {"type": "splat", "depth": True, "segmentation": True, "mesh": True}
    box = {"type": "box", "center": [-9.0, 0.0, 0.0], "size": [1.0, 2.0, 2.0]}
    camera = {**FISHEYE, "render": render}
    sim = microsim.Simulation(scenario(camera, obstacles=[box]))
    sent = sim.step(0)
    image, depth, classes = images(sent)[0], images(sent, "depth")[0][..., 0], images(sent, "segmentation")[0]
    model = sim.scenario.robots["ego"].all_sensors()["camera_front"].model
    blind = np.isnan(model.rays()[0])
    assert 0.05 < blind.mean() < 0.3
    assert (image[blind] == 0).all()
    assert np.isinf(depth[blind]).all()
    obstacle = (classes == PALETTE[OBSTACLE]).all(axis=2) & (depth < 5.0)
    assert obstacle.sum() > 40
    np.testing.assert_allclose(np.median(depth[obstacle]), 4.0, atol=0.1)  # from x = -13.5 to x = -9.5
    left = np.argwhere(obstacle)[:, 1].min()
    assert model.project(-1.0, 0.0, 4.0)[0] == pytest.approx(left, abs=1.0)


@pytest.mark.parametrize("camera", [{}, FISHEYE], ids=["pinhole", "fisheye, rolling shutter, rain"])
def test_a_batch_draws_the_splats_of_each_world_as_a_single_one_does(camera: Any) -> None:
    from microsim.batch import BatchSimulation

    batch = BatchSimulation(scenario(camera), seeds=[3, 4])
    batch.commands("ego")[1] = 5.0, -2.0
    batch.step(40)
    readings = next(value for name, value in batch.readings.items() if name.endswith("camera_front"))
    for world, speed in enumerate((5.0, -2.0)):
        single = microsim.Simulation(scenario(camera), 3 + world)
        single.command("ego", speed=speed)
        np.testing.assert_array_equal(readings[world], images(single.step(40))[-1])
    assert (readings[0] != readings[1]).any()


def test_a_batch_refuses_splat_cameras_that_would_see_other_robots() -> None:
    from microsim.batch import BatchSimulation

    crowded = scenario()
    crowded["robots"] = {**crowded["robots"], "drone": {"start": {"map_pose": {"x": 0, "y": 0, "z": 4}}}}
    with pytest.raises(MicroSimError, match=r"camera_front draws splats.*without other robots.*render: plain"):
        BatchSimulation(crowded, 2)


def test_an_injected_failure_sends_the_last_frame_again_until_it_is_over() -> None:
    """Frames are due at 0, 80 and 170 ms; that of 80 ms fails."""
    sim = microsim.Simulation(scenario(faults=["camera_front:fail@0.05s-0.1s"]))
    healthy = microsim.Simulation(scenario())
    sim.command("ego", speed=5.0)
    healthy.command("ego", speed=5.0)
    found, expected = images(sim.step(20)), images(healthy.step(20))
    assert (expected[1] != expected[0]).any()  # the car moves, so a frame that is sent again can be told
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], expected[2])
    assert sim.digest() != healthy.digest()
