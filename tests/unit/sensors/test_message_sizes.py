"""Messages of every length: what is sent is what was read, whatever its size and whatever anything is called.

CDR pads: after a name, and at the end of a message. Sizes and names that are a multiple of four hide mistakes in that.
"""

from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.messages.types import store_with
from microsim.render.image_noise import ImageNoise
from tests.support import COMPILED, bare, many
from tests.unit.batch.batch_reference import Singles, assert_equal

SIZES = 200  # of images, of all kinds together
LARGEST = 24  # [px]
NOWHERE = {"mean": 0, "jitter": 0, "drop_probability": 0}
EVERYTHING = {"depth": True, "segmentation": True, "instances": True, "boxes": True, "normals": True}
KINDS: dict[str, dict[str, Any]] = {
    "compiled": {},
    "compiled, late": {"latency_ms": {"mean": 180, "jitter": 80, "drop_probability": 0.1}},
    "compiled, unblurred": {"noise": {"blur_sigma_px": 0}},
    "jitter": {"noise": {"color_jitter": 0.3}},
    "appearance": {"appearance": {"dusk": 0.4, "rain": 0.5, "vignetting": 0.3, "exposure_ev": 0.5}},
    "fisheye": {"projection": "fisheye"},
    "distorted": {"distortion": {"model": "plumb_bob", "D": [-0.2, 0.05, 0.01, 0, 0]}},
    "rolling shutter": {"readout_s": 0.05},
    "sees robots": {"sees_robots": True},
    "ground truth": {"render": EVERYTHING},
    "compressed": {"compressed": "png"},
}
THINGS: list[dict[str, Any]] = [
    {"type": "box", "center": [6, 9, 0], "size": [1.5, 1.0, 1.0], "name": "a_box"},
    {"type": "cylinder", "center": [9, 8, 0], "radius": 0.6, "height": 1.0, "name": "cylinder"},
]


def names(dice: np.random.Generator, count: int) -> list[str]:
    """Different names of 1 to 16 letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(dice.choice(list(ascii_lowercase), int(dice.integers(1, 17))))] = None
    return list(found)


def sizes(dice: np.random.Generator, count: int) -> list[dict[str, int]]:
    """Of images; most of them do not fill whole words of four bytes."""
    known = [{"width": 5, "height": 3}, {"width": 1, "height": 1}, {"width": 17, "height": 9}]
    found = dice.integers(1, LARGEST + 1, (count, 2)).tolist()
    return (known + [{"width": width, "height": height} for width, height in found])[:count]


def world(dice: np.random.Generator, drone: str, drone_sensors: Any, **changes: Any) -> dict[str, Any]:
    columns, rows = dice.integers(14, 20, 2).tolist()
    start = {"map_pose": {"x": 4.5, "y": 8.4, "z": 2.5, "yaw": 0.1}}
    return {
        "map": {"size_xy_cells": [columns, rows]},
        "physics_hz": 10,
        "obstacles": THINGS,
        "robots": {drone: bare(model="drone", start=start, sensors=drone_sensors)},
        "world_topics": {"occupancy_hz": 5, "markers_hz": 5},
        **changes,
    }


def cameras(dice: np.random.Generator, kind: str, count: int) -> tuple[str, dict[str, Any]]:
    robot, *own = names(dice, count + 1)
    blocks = {
        name: {
            "type": "camera", "hz": 5, "latency_ms": NOWHERE, "resolution": size,
            "mount": {"rpy": [-2.2, 0.1, float(dice.uniform(-2, -1))]}, **KINDS[kind],
        }
        for name, size in zip(own, sizes(dice, count), strict=True)
    }  # fmt: skip
    return robot, world(dice, robot, blocks)


def assert_reencodes(messages: Any) -> None:
    """Every message, decoded and encoded again by the library of others, is the same bytes up to the padding."""
    for each in messages:
        again = bytes(store_with(each.type).serialize_cdr(each.message, each.type))
        assert each.cdr[: len(again)] == again, each.topic
        assert len(each.cdr) % 4 == 0, each.topic
        assert each.cdr[len(again) :] == bytes(-len(again) % 4), each.topic


def noisy(sim: microsim.Simulation, robot: str, camera: str) -> Any:
    """What `render` gives, with the camera's noise."""
    context = sim._contexts[f"{robot}/{camera}"]
    size, noise = context.settings.resolution, context.settings.noise
    maker = ImageNoise(size.width, size.height, noise.blur_sigma_px, noise.color_jitter)
    return maker.apply(sim.render(robot, camera), context.key, sim.tick)


def assert_sent_is_seen(written: dict[str, Any], robot: str, ticks: int) -> None:
    sim, twin = microsim.Simulation(written, 3), microsim.Simulation(written, 3)
    batch = BatchSimulation(written, seeds=[3, 4])
    for each in (sim, twin):
        each.command(robot, **dict.fromkeys(each.model(robot).inputs, 0.3))
    batch.commands(robot)[:] = 0.3
    own = [name for owner, name, _, kind in sim.scenario.all_sensors if owner == robot and kind.camera is not None]
    seen: dict[tuple[str, int], Any] = {}
    sent, latest = list(sim.step(0)), {}
    for _ in range(ticks + 1):
        seen |= {(name, twin.time_ns): noisy(twin, robot, name) for name in own}
        twin.step()
    for _ in range(ticks):
        sent += sim.step()
        batch.step()
    assert_reencodes(sent)
    for message in sent:
        for name in own:
            if message.topic == f"/{robot}/{name}/image_raw":
                image = message.message.data.reshape(message.message.height, message.message.width, 3)
                np.testing.assert_array_equal(image, seen[name, message.stamp_ns], message.topic)
                latest[name] = image
    assert len(latest) == len(own)
    for name, image in latest.items():
        np.testing.assert_array_equal(image, batch.readings[f"{robot}/{name}"][0][..., :3], name)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_of_any_size_is_sent_as_it_is_seen(kind: str) -> None:
    dice = np.random.default_rng(list(KINDS).index(kind))
    robot, written = cameras(dice, kind, many(-(-SIZES // len(KINDS)), 4))
    if kind == "sees robots":
        written["robots"]["rover"] = bare(model="rover", start={"map_pose": {"x": 5.5, "y": 7.4}})
    assert_sent_is_seen(written, robot, 8)


@pytest.mark.skipif(not COMPILED, reason="100,000 splats as plain Python take hours")
def test_an_image_of_splats_of_any_size_is_sent_as_it_is_seen() -> None:
    dice = np.random.default_rng(1)
    own = names(dice, 8)
    lens = {"fx": 12.0, "fy": 12.0, "cx": 6.0, "cy": 6.0}
    common = {"type": "camera", "hz": 5, "latency_ms": NOWHERE, "render": "splat", "intrinsics": lens}
    blocks = {name: {**common, "resolution": size} for name, size in zip(own, sizes(dice, 8), strict=True)}
    robots = {"ego": {"sensors": {"camera_front": None, "lidar_top": None, **blocks}}}
    assert_sent_is_seen({"world": "worlds/minimal_test", "physics_hz": 10, "robots": robots}, "ego", 2)


@pytest.mark.parametrize("seed", range(3))
def test_a_message_of_any_length_is_its_reading_and_encodes_again_to_the_same_bytes(seed: int) -> None:
    """Scans, point clouds, detections, joint states, occupancy grids, markers and packets; names of 1 to 16 letters."""
    dice = np.random.default_rng(seed)
    drone, rover, *own = names(dice, 14)
    scans = {name: {"type": "scan", "hz": 5, "beams": int(dice.integers(1, 40))} for name in own[:6]}
    clouds = {
        name: {"type": "lidar", "hz": 5, "rings": int(dice.integers(1, 6)), "columns": int(dice.integers(4, 30))}
        for name in own[6:9]
    }
    others = {own[9]: {"type": "detections", "hz": 5}, own[10]: {"type": "imu", "hz": 5}, own[11]: {"type": "gps"}}
    written = world(
        dice, drone, {**scans, **clouds}, radio={"drop_probability": 0, "latency_ms_mean": 0, "latency_ms_jitter": 0}
    )
    start = {"map_pose": {"x": 7.5, "y": 8.4}}
    rover_block = {"model": "rover", "camera": None, "dynamics": {}, "joint_states": {"hz": 5}}
    written["robots"][rover] = {**rover_block, "start": start, "sensors": others}
    written["obstacles"] = [{**each, "name": name} for each, name in zip(THINGS, names(dice, 2), strict=True)]
    singles = Singles(written, [5])
    batch = BatchSimulation(written, seeds=[5])
    sent: list[Any] = []
    for length in dice.integers(1, 40, 8).tolist():
        payload = bytes(length)
        singles.sims[0].radio_send(drone, payload)
        batch.radio_send(drone, payload)
        for robot in batch.robots:  # a batch sends commands with every step
            singles.command(robot, batch.commands(robot))
        found = singles.sims[0].step()
        singles.last[0].update({message.topic: message for message in found})
        sent += found
        batch.step()
    assert_reencodes(sent)
    assert_equal(batch, singles)
    assert {message.type for message in sent} >= {
        "sensor_msgs/msg/LaserScan", "sensor_msgs/msg/PointCloud2", "vision_msgs/msg/Detection3DArray",
        "sensor_msgs/msg/JointState", "nav_msgs/msg/OccupancyGrid", "visualization_msgs/msg/MarkerArray",
        "std_msgs/msg/ByteMultiArray",
    }  # fmt: skip
