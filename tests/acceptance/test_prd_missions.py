"""PRD §11.4, the five acceptance scenarios flown as missions, with the tolerances written there; and §11.3, a scripted
mission recorded twice.

More about states and messages is in test_prd_acceptance.py; here robots get there by a mission.
"""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.engine.world import PALETTE
from microsim.parts.missions import fly_mission, load_mission
from tests.acceptance.test_prd_acceptance import camera_pose, project
from tests.support import COMPILED, on_topic

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ("default", "flat", "obstacles_arena")
GROUND, OBSTACLE, _, TARGET, _ = (tuple(int(part) for part in colour) for colour in PALETTE)

pytestmark = pytest.mark.skipif(not COMPILED, reason="minutes without the compiler")


def shipped(name: str, *more: dict[str, Any]) -> dict[str, Any]:
    """A shipped mission as plain data, with further expectations."""
    data = load_mission(name).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**data, "expect": [*data["expect"], *more]}


# ---- 1 hover demo


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_hover_a_minute_camera_at_two_hertz_gps_covariance_sane_no_ground_penetration(scenario: str) -> None:
    mission = load_mission("hover")
    assert mission.duration >= 60
    expected = {(getattr(each, "robot", None) or getattr(each, "topic", None), each.value) for each in mission.expect}
    assert expected >= {
        ("drone", "displacement"),
        ("drone", "height"),
        ("/drone/camera/image_raw", "rate_hz"),
        ("/drone/gps/fix", "position_covariance[0]"),
    }
    assert not fly_mission(mission, scenario).violations


def test_hover_fails_when_the_drone_does_not_hold_its_place() -> None:
    """In the wind of the default scenario, nobody at the controls: the expectation can fail."""
    adrift = {**shipped("hover"), "do": []}
    (sentence,) = fly_mission(adrift, "default").violations
    assert sentence.startswith("expect[0]: displacement of drone was 0.50")


# ---- 2 obstacle stop


@pytest.mark.parametrize("seed", [12345, 1, 2])
def test_obstacle_stop_within_one_cell_and_a_stable_range_sensor(seed: int) -> None:
    """At the wall the range is below its minimum, which REP-117 calls -inf: at every reading, never a NaN."""
    stable = {"topic": "/rover/range/front", "value": "range", "at_most": 0.2, "from": 8}
    approach = {"topic": "/rover/range/front", "value": "range", "at_least": 0.2, "at_most": 8, "from": 0.5, "to": 4}
    outcome = fly_mission(shipped("obstacle_stop", stable, approach), "obstacles_arena", seed)
    assert not outcome.violations
    state, world = outcome.sim.state("rover"), outcome.sim.world
    assert not world.is_occupied(state.x, state.y)
    assert world.is_occupied(state.x, state.y - world.cell_m)  # the first occupied cell is the next one


# ---- 3 radio ping


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_radio_ping_a_hundred_messages_one_percent_ten_milliseconds(scenario: str) -> None:
    mission = load_mission("radio_ping")
    tolerances = {each.value: (each.equals, each.within) for each in mission.expect}
    assert tolerances == {"sent": (100, 0), "drop_rate": (0.03, 0.01), "latency_ms": (80, 10)}
    assert not fly_mission(mission, scenario).violations


def test_radio_ping_ten_thousand_messages_at_any_seed() -> None:
    """Among a hundred packets one percent is less than one sigma; among ten thousand it is six."""
    many = shipped("radio_ping")
    many = {**many, "duration": 1002, "do": [{**many["do"][0], "times": 10_000}]}
    many["expect"] = [{**each, "equals": 10_000} if each["value"] == "sent" else each for each in many["expect"]]
    quiet = {"odom": None, "gps": None, "imu": None, "camera": None, "range": None}
    world = {"robots": {"drone": quiet, "rover": quiet}, "world_topics": {"occupancy_hz": 0, "markers_hz": 0}}
    assert not fly_mission(many, world, seed=7).violations


def test_radio_ping_fails_when_the_radio_is_worse_than_the_scenario_says() -> None:
    worse = shipped("radio_ping")
    worse["do"] = [{"set": {"radio.drop_probability": 0.1, "radio.latency_ms_mean": 120}}, *worse["do"]]
    sentences = fly_mission(worse, "flat").violations
    assert [sentence.split(" from ")[0] for sentence in sentences] == ["expect[1]: drop_rate", "expect[2]: latency_ms"]


# ---- 4 camera occlusion, 5 CameraInfo validity

SHARP = {"noise": {"blur_sigma_px": 0}, "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0}}
START = {"start": {"map_pose": {"x": 42, "y": 50, "z": 12, "yaw": 0.5}}}
OVERFLIGHT = {
    "duration": 12,
    "do": [{"robot": "drone", "waypoints": [[50, 50, 10, 0.0], [53, 52, 9, 0.8], [50, 50, 10, 0.0]], "speed": 2}],
    "expect": [{"robot": "drone", "value": "position", "equals": [50, 50, 10], "within": 0.5}],
}


def photographs(**world: Any) -> list[tuple[np.ndarray, Any, tuple[np.ndarray, np.ndarray]]]:
    """(pixels, CameraInfo, position and rotation of the camera from TF) of each image of the overflight."""
    messages: list[Any] = []
    outcome = fly_mission(
        OVERFLIGHT, {"robots": {"drone": {**START, "camera": SHARP}}, **world}, on_messages=messages.extend
    )
    assert not outcome.violations
    static = on_topic(messages, "/tf_static")
    infos = {each.stamp_ns: each.message for each in on_topic(messages, "/drone/camera/camera_info")}
    frames = {each.stamp_ns: each for each in on_topic(messages, "/tf")}
    found = []
    for each in on_topic(messages, "/drone/camera/image_raw"):
        image = each.message
        pixels = image.data.reshape(image.height, image.width, 3)
        pose = camera_pose(outcome.sim, [frames[each.stamp_ns], *static])
        found.append((pixels, infos[each.stamp_ns], pose))
    return found


def colours(pixels: np.ndarray, info: Any, pose: Any, points: Any) -> set[tuple[int, ...]]:
    """Of the pixels that show these points of the map, as far as they are in the image."""
    found = set()
    for point in points:
        u, v = project(point, *pose, info)
        if 0 <= round(u) < info.width and 0 <= round(v) < info.height:
            found.add(tuple(int(part) for part in pixels[round(v), round(u)]))
    return found


def test_camera_occlusion_the_obstacle_hides_the_patch_in_every_image_of_the_overflight() -> None:
    box = {"type": "box", "center": [51, 50.5, 0], "size": [2, 2, 2]}
    patch = {"type": "rectangle", "class": "target", "center": [51, 50.5], "size": [3, 3]}
    top = [(x, y, 2.0) for x in np.linspace(50.15, 51.85, 9) for y in np.linspace(49.65, 51.35, 9)]
    images = photographs(obstacles=[box], features=[patch])
    seen = [colours(*image, top) for image in images]
    assert set.union(*seen) == {OBSTACLE}
    assert sum(map(bool, seen)) > 15
    *_, last = images  # above (50, 50) again: the west edge of the patch sticks out
    assert colours(*last, [(49.75, 50.0, 0.0), (49.75, 51.0, 0.0)]) == {TARGET}
    assert colours(*last, [(47.5, 47.5, 0.0), (54.0, 54.0, 0.0)]) == {GROUND}


def test_camera_info_targets_back_project_within_one_pixel_in_every_image_of_the_overflight() -> None:
    grid = [(x, y) for x in (46.0, 48.0, 50.0, 52.0, 54.0) for y in (46.0, 48.0, 50.0, 52.0, 54.0)]
    targets = [{"type": "circle", "class": "target", "center": list(point), "radius": 0.4} for point in grid]
    checked = 0
    for pixels, info, (position, rotation) in photographs(features=targets):
        k = info.k.reshape(3, 3)
        is_target = (pixels == TARGET).all(axis=2)
        for point in grid:
            u, v = project((*point, 0.0), position, rotation, info)
            if not (10 <= u < info.width - 10 and 10 <= v < info.height - 10):
                continue
            rows, columns = np.nonzero(is_target[round(v) - 8 : round(v) + 9, round(u) - 8 : round(u) + 9])
            seen_u, seen_v = columns.mean() + round(u) - 8, rows.mean() + round(v) - 8
            assert math.hypot(seen_u - u, seen_v - v) < 1.0
            ray = rotation @ np.linalg.inv(k) @ (seen_u, seen_v, 1.0)
            hit = position - ray * position[2] / ray[2]
            assert math.dist(hit[:2], point) < position[2] / k[0, 0]
            checked += 1
    assert checked > 200


# ---- §11.3 determinism


def test_a_scripted_mission_recorded_twice_gives_the_same_files_and_replays_identically(tmp_path: Path) -> None:
    def microsim(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "random"}
        words = [sys.executable, "-m", "microsim", *arguments]
        done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=variables, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        options = ("--mission", "team_task", "--rtf", "0", "--headless", "--record", "bag")
        microsim("run", "obstacles_arena", *options, cwd=tmp_path / name)
    bags = [tmp_path / name / "bag" for name in ("one", "two")]
    files = sorted(path.name for path in bags[0].iterdir() if path.suffix in (".mcap", ".yaml"))
    assert len(files) >= 2
    for name in files:
        assert (bags[0] / name).read_bytes() == (bags[1] / name).read_bytes(), name
    assert "identical: " in microsim("replay", "bag", "--verify", cwd=tmp_path / "one").stdout
