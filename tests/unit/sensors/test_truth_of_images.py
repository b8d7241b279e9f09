"""What ground truth names is what images show: each world with an actor in it, against the same world without it."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import microsim
from microsim.bundle.bundle_writing import splat_ply
from microsim.engine.world import FIRST_OBSTACLE, TARGET
from microsim.render.splat.picture import SplatActor, Things
from microsim.sensors._splat_camera import SplatScene
from tests.support import COMPILED, decoded

pytestmark = pytest.mark.skipif(not COMPILED, reason="100,000 splats as plain Python take hours")

WIDTH, HEIGHT, FOCAL = 120, 90, 75.0
C0 = 0.28209479177387814
CLEAR = 24  # levels: a change that anybody sees
# Of such pixels, how many are named: in the others fog, leaves or soft rims have more than half of the light. The
# minimal world is made of a few large soft Gaussians.
LEAST_NAMED = {"street": 0.93, "oval": 0.9, "minimal_test": 0.85}
LENSES: dict[str, Any] = {
    "pinhole": {},
    "barrel": {"distortion": {"model": "plumb_bob", "D": [-0.2, 0.03, 0.001, -0.002, 0.0]}},
    "fisheye": {"projection": "fisheye", "distortion": {"model": "equidistant", "D": [-0.02, 0.005, 0.0, 0.0]}},
    "rolling": {"readout_s": 0.05},
}  # fmt: skip
SHAPES: dict[str, Any] = {
    "person": {"model": "actor", "shape": "person"},
    "car": {"model": "bicycle"},
    "ball of splats": {"model": "actor", "shape": "box", "size": [1.0, 1.0, 1.0]},
    "post": {"type": "cylinder", "radius": 0.3, "height": 2.0},
    "crate": {"type": "box", "size": [1.0, 1.5, 1.0]},
}  # fmt: skip


def scenario(world: str, lens: str, start: tuple[float, ...], it: Any = None) -> dict[str, Any]:
    camera = {
        "resolution": {"width": WIDTH, "height": HEIGHT},
        "intrinsics": {"fx": FOCAL, "fy": FOCAL, "cx": WIDTH / 2 - 0.5, "cy": HEIGHT / 2 - 0.5},
        "render": dict.fromkeys(("depth", "instances", "boxes", "segmentation"), True),
        **LENSES[lens],
    }
    bundle = microsim.bundle.load_bundle(world)
    others = (*(f"camera_{name}" for name in bundle.cameras), *(f"lidar_{name}" for name in bundle.lidars))
    x, y, yaw = start
    ego = {
        "start": {"map_pose": {"x": x, "y": y, "yaw": yaw}},
        "sensors": {**dict.fromkeys(others), "camera_front": camera},
    }
    source: dict[str, Any] = {"world": world, "robots": {"ego": ego}}
    if it is not None:
        source.update({"obstacles": [it]} if "type" in it else {"robots": {"ego": ego, "it": it}})
    return source


def ball(folder: Path) -> str:
    """A robot's worth of splats: opaque in its middle, soft at its edge, no model."""
    rows = np.zeros((40, 14), np.float32)
    rows[:, 0:3] = np.random.default_rng(1).normal((0.0, 0.0, 0.6), 0.2, (40, 3))
    rows[:, 3:6], rows[:, 9], rows[:, 10], rows[:, 11] = -2.0, 1.0, 3.0, 2.0
    (folder / "ball.ply").write_bytes(splat_ply(rows, 0))
    return str(folder / "ball.ply")


def places(world: str, count: int, seed: int) -> list[tuple[tuple[float, ...], tuple[float, float], float]]:
    """Starts of the car on the road, and 4 to 12 m before its camera a place on the road, with a heading."""
    sim = microsim.Simulation({"world": world})
    road, cell, rng = sim.world.surface == TARGET, sim.world.cell_m, np.random.default_rng(seed)
    found: list[Any] = []
    while len(found) < count:
        j, i = rng.choice(np.argwhere(road))
        x, y, yaw = sim.world.west + (i + 0.5) * cell, sim.world.south + (j + 0.5) * cell, rng.uniform(-3.1, 3.1)
        ahead = rng.uniform(5.5, 13.5)
        steps = np.linspace(-1.5, ahead + 2.0, 24)[:, None] * (np.cos(yaw), np.sin(yaw)) + (x, y)
        around = (steps[:, None] + np.array([(dx, dy) for dx in (-1.2, 1.2) for dy in (-1.2, 1.2)])).reshape(-1, 2)
        cells = np.floor((around - (sim.world.west, sim.world.south)) / cell).astype(int)
        inside = (cells >= 0).all(axis=1) & (cells < road.shape[::-1]).all(axis=1)
        if inside.all() and road[cells[:, 1], cells[:, 0]].all():
            place = x + ahead * np.cos(yaw), y + ahead * np.sin(yaw)
            found.append(((float(x), float(y), yaw), tuple(map(float, place)), float(rng.uniform(-3.1, 3.1))))
    return found


def pictures(sim: Any, light: float | None = None) -> Any:
    """What the camera shows, without noise and without shadows: (h, w, 3). light: of all that is not the world's."""
    (scene,) = (each for each in sim._shared.values() if isinstance(each, SplatScene))
    (camera,) = scene.cameras
    shots = [replace(shot, shadows=None) for shot in camera.shots(0)]
    if light is not None:
        shots = [
            replace(shot, things=lit(shot.things, light), actors=tuple(map(lit_actor(light), shot.actors)))
            for shot in shots
        ]
    return camera.assembled(scene.pictures(shots)).colours.astype(int)


def lit(things: Any, light: float) -> Any:
    return things and Things(things.depths, np.full_like(things.colours, 255 * light))


def lit_actor(light: float) -> Any:
    def changed(actor: SplatActor) -> SplatActor:
        harmonics = np.zeros_like(actor.splats.harmonics)
        harmonics[:, 0] = (light - 0.5) / C0
        return replace(actor, splats=replace(actor.splats, harmonics=harmonics))

    return changed


class Seen(NamedTuple):
    change: Any  # (h, w) levels by which it changes each pixel
    share: Any  # (h, w) of each pixel's light that is its own
    mask: Any  # (h, w)
    depth: Any  # (h, w) [m]
    boxes: dict[str, Any]


def seen(world: str, lens: str, start: Any, it: Any) -> Seen:
    sim = microsim.Simulation(scenario(world, lens, start, it))
    alone = microsim.Simulation(scenario(world, lens, start))
    sent = sim.step(0)
    change = np.abs(pictures(sim) - pictures(alone)).max(axis=2)
    share = (pictures(sim, 1.0) - pictures(sim, 0.0)).max(axis=2) / 255.0
    raw = {kind: decoded(sent, f"/ego/camera_front/{kind}")[0].data for kind in ("instances", "depth")}
    mask = np.frombuffer(bytes(raw["instances"]), np.uint16).reshape(HEIGHT, WIDTH)
    assert {*np.unique(mask).tolist()} <= {0, FIRST_OBSTACLE if "type" in it else 2}
    boxes = {each.id: each.bbox for each in decoded(sent, "/ego/camera_front/boxes")[0].detections}
    depth = np.frombuffer(bytes(raw["depth"]), np.float32).reshape(HEIGHT, WIDTH)
    return Seen(change, share, mask > 0, depth, boxes)


def put(name: str, place: tuple[float, float], yaw: float, folder: Path) -> dict[str, Any]:
    it = dict(SHAPES[name])
    if "type" in it:
        return {**it, "name": "it", "center": [*place, 0.0]}
    if name == "ball of splats":
        it["splats"] = ball(folder)
    return {**it, "start": {"map_pose": {"x": place[0], "y": place[1], "yaw": yaw}}}


@pytest.mark.parametrize("world", ["street", "oval", "minimal_test"])
def test_truth_names_an_actor_where_half_of_a_pixel_is_its_own_and_nowhere_else(world: str, tmp_path: Path) -> None:
    """Shadows are left out: they change pixels that do not show the actor.

    A lens with distortion mixes four pixels, and the nearest one, of which truth is, may have a quarter of them. Splats
    of an actor may stand among those of the world: whose splat it is that takes the middle of the light decides.
    """
    views = zip(places(world, 10, seed=3), itertools.cycle(SHAPES), itertools.cycle(LENSES), strict=False)
    clear = named = 0
    for (start, place, yaw), name, lens in views:
        change, share, mask, depth, boxes = seen(world, lens, start, put(name, place, yaw, tmp_path))
        case = f"{name} through {lens} at {place} from {start}"
        least, most = (0.0, 0.9) if name == "ball of splats" else (0.24, 0.76) if lens == "barrel" else (0.49, 0.51)
        assert mask[share > most].all(), case
        assert not mask[share < least].any(), case
        assert not mask[(share == 0.0) & (change == 0)].any(), case
        assert (mask.sum() == 0) == (not boxes), case
        if mask.any():
            rows, columns = np.nonzero(mask)
            assert (boxes["it"].size_x, boxes["it"].size_y) == (np.ptp(columns) + 1, np.ptp(rows) + 1), case
            ahead = np.hypot(place[0] - start[0], place[1] - start[1]) - 1.5  # from the camera
            assert (np.abs(depth[mask] - ahead) < 4.2).all(), case
        if name != "ball of splats":
            clear, named = clear + (change > CLEAR).sum(), named + (mask & (change > CLEAR)).sum()
    assert clear > 1000
    assert named > LEAST_NAMED[world] * clear, (named, clear)
