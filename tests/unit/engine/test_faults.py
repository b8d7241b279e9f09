"""Faults on purpose, and what /sim/status says about them and about the road."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.cli.commands.run import assembled
from microsim.errors import ScenarioError, UsageError
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import resume, save_state
from microsim.scenario import load_scenario
from tests.support import bare, decoded, on_topic, scenario, stamp_ns

QUICK = {"mean": 0.0, "jitter": 0.0, "drop_probability": 0.0}
CAMERA = {"hz": 10, "resolution": {"width": 16, "height": 12}, "latency_ms": QUICK, "noise": {"color_jitter": 0.3}}


def setting(*faults: Any, **changes: Any) -> dict[str, Any]:
    start = {"map_pose": {"x": 20.0, "y": 20.0}}
    car = bare(
        start=start, joint_states=None, camera=CAMERA, lidar={"columns": 24, "hz": 10}, gps={"hz": 10, "sigma_m": 0.0}
    )
    return scenario(
        physics_hz=100, map={"size_xy_cells": [60, 60]}, robots={"ego": car}, faults=list(faults), **changes
    )


def run(*faults: Any, ticks: int = 100, **changes: Any) -> tuple[Any, list[Any]]:
    sim = microsim.Simulation(setting(*faults, **changes))
    sent = sim.step(0)
    for _ in range(ticks // 10):
        sim.command("ego", speed=2.0)
        sent += sim.step(10)
    return sim, sent


def by_stamp(sent: list[Any], topic: str) -> dict[int, Any]:
    return {stamp_ns(each.header) // 1_000_000: each for each in decoded(sent, topic)}


def statuses(sent: list[Any]) -> list[tuple[int, dict[str, dict[str, str]]]]:
    found = []
    for message in decoded(sent, "/sim/status"):
        parts = {each.name: {pair.key: pair.value for pair in each.values} for each in message.status}
        found.append((stamp_ns(message.header) // 1_000_000, parts))
    return found


def test_a_failing_camera_repeats_its_last_image_with_new_stamps_and_is_counted() -> None:
    sim, sent = run("camera:fail@0.3s-0.6s")
    images = {at: bytes(image.data) for at, image in by_stamp(sent, "/ego/camera/image_raw").items()}
    assert sorted(images) == list(range(0, 1001, 100))
    assert images[300] == images[400] == images[500] == images[200]
    assert images[600] != images[200]
    assert sim.health.degraded["ego/camera"] == 3


def test_the_very_first_image_of_a_failing_camera_is_black() -> None:
    _, sent = run("camera:fail@0s-0.25s")
    images = by_stamp(sent, "/ego/camera/image_raw")
    assert [int(images[at].data.max()) for at in (0, 100, 200)] == [0, 0, 0]
    assert images[300].data.max() > 0


def test_a_failing_lidar_sends_empty_clouds() -> None:
    sim, sent = run("lidar:fail@0.3s-0.6s")
    clouds = by_stamp(sent, "/ego/lidar/points")
    assert {at: cloud.width > 0 for at, cloud in clouds.items()} == {
        at: not 300 <= at < 600 for at in range(0, 1001, 100)
    }
    assert sim.health.degraded["ego/lidar"] == 3


def test_a_lidar_that_breaks_by_itself_sends_empty_clouds_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from microsim.rays.lidar_turn import LidarTurn

    whole = LidarTurn.sample

    def breaking(self: Any, motion: Any, bodies: Any, key: int, tick: int) -> Any:
        if 30 <= tick < 50:
            raise MemoryError("no room")
        return whole(self, motion, bodies, key, tick)

    monkeypatch.setattr(LidarTurn, "sample", breaking)
    sim, sent = run()
    assert [cloud.width > 0 for cloud in by_stamp(sent, "/ego/lidar/points").values()] == [True] * 3 + [False] * 2 + [
        True
    ] * 6
    assert sim.health.degraded["ego/lidar"] == 2


@pytest.mark.parametrize(
    ("sensor", "topic"), [("gps", "/ego/gps/fix"), ("camera", "/ego/camera/image_raw"), ("lidar", "/ego/lidar/points")]
)
def test_a_dropout_sends_nothing(sensor: str, topic: str) -> None:
    sim, sent = run(f"{sensor}:dropout@0.3s-0.6s")
    assert sorted(by_stamp(sent, topic)) == [0, 100, 200, 600, 700, 800, 900, 1000]
    assert sim.health.dropped[f"ego/{sensor}"] == 3


def test_other_sensors_and_what_comes_after_a_fault_are_as_without_it() -> None:
    _, plain = run()
    _, faulty = run("camera:fail@0.3s-0.6s", "gps:dropout@0.3s-0.6s")
    for topic in ("/ego/lidar/points", "/tf"):
        assert [each.cdr for each in on_topic(plain, topic)] == [each.cdr for each in on_topic(faulty, topic)]
    late = [
        {each.stamp_ns: each.cdr for each in on_topic(sent, "/ego/camera/image_raw") if each.stamp_ns >= 600_000_000}
        for sent in (plain, faulty)
    ]
    assert late[0] == late[1]


def test_a_gps_jump_moves_the_fix_east_and_north_while_it_lasts() -> None:
    _, plain = run()
    _, faulty = run("gps:jump(100,50,-3)@0.3s-0.6s")
    fixes = [by_stamp(sent, "/ego/gps/fix") for sent in (plain, faulty)]
    for at in fixes[0]:
        north = (fixes[1][at].latitude - fixes[0][at].latitude) * 110_600
        up = fixes[1][at].altitude - fixes[0][at].altitude
        assert north == pytest.approx(50.0 if 300 <= at < 600 else 0.0, abs=0.6)
        assert up == pytest.approx(-3.0 if 300 <= at < 600 else 0.0, abs=0.01)
        assert (fixes[1][at].longitude > fixes[0][at].longitude) == (300 <= at < 600)


def test_a_blackout_loses_every_packet_handed_in_meanwhile() -> None:
    radio = {"latency_ms_mean": 0.0, "latency_ms_jitter": 0.0, "drop_probability": 0.0}
    robots = {
        name: bare(model="rover", start={"map_pose": {"x": 5.0 + i, "y": 5.0}}) for i, name in enumerate(("a", "b"))
    }
    sim = microsim.Simulation(scenario(physics_hz=100, robots=robots, radio=radio, faults=["radio:blackout@0.2s-0.5s"]))
    received = []
    for tick in range(100):
        sim.radio_send("a", bytes([tick]))
        received += [int(each.message.data[0]) for each in on_topic(sim.step(), "/radio/b_rx")]
    assert received == [*range(20), *range(50, 100)]


def test_a_warning_is_given_once_when_a_sensor_begins_to_fail() -> None:
    sim = microsim.Simulation(setting("camera:fail@0.3s-0.6s", "lidar:fail@0.3s-0.6s"))
    heard: list[str] = []
    sim.listen(warnings=heard.append)
    sim.step(100)
    assert len(heard) == 2
    assert any("ego/camera: failed, its last image is sent again" in text for text in heard)


SEEING = """
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

@kernel
def alter(settings, motion, memory, scene, key, tick, reading):
    reading[0] = motion[1]

FAULT = FaultKind("mislead", "the first number is the robot's y", OnSensor(alter=alter))
"""


@pytest.mark.parametrize(("sensor", "number"), [("joint_states", "position"), ("gps", "latitude"), ("scan", "ranges")])
def test_a_fault_that_alters_a_reading_sees_the_robot_that_carries_the_sensor(
    tmp_path: Path, sensor: str, number: str
) -> None:
    """Its state where the sensor's own kernel sees that, else its motion."""
    (tmp_path / "mislead.py").write_text(SEEING)
    robots = {
        name: bare(model="bicycle", joint_states=None, start={"map_pose": {"x": 10.0, "y": y}})
        for name, y in (("first", 7.0), ("second", 14.0))
    }
    robots["second"][sensor] = {"hz": 10, **({"beams": 3} if sensor == "scan" else {})}
    faults = [f"second/{sensor}:mislead@0s-1s"]
    sim = microsim.Simulation(scenario(plugins=[str(tmp_path)], robots=robots, faults=faults))
    topic = next(topic for topic in sim.topics if topic.startswith(f"/second/{sensor}"))
    (message,) = decoded(sim.step(0), topic)
    assert np.atleast_1d(getattr(message, number))[0] == 14.0


# ---- the same again --------------------------------------------------------------------------------------------------

EVERYTHING = ("camera:fail@0.2s-0.7s", "lidar:fail@0.4s-0.6s", "gps:jump(5,0,0)@0.1s-0.9s", "imu:dropout@0.5s-0.8s")


def everything() -> dict[str, Any]:
    data = setting(*EVERYTHING)
    data["robots"]["ego"]["imu"] = {"hz": 50}
    return data


def wander(sim: Any, until: int) -> list[Any]:
    sent = sim.step(0)
    while sim.tick < until:
        if sim.tick % 40 == 0:
            sim.command("ego", speed=3.0, steering=0.125)
        sent += sim.step(10)
    return sent


def test_faults_are_part_of_the_digest_of_snapshots_and_of_recordings(tmp_path: Path) -> None:
    first, second = (microsim.Simulation(everything()) for _ in range(2))
    with Recorder(tmp_path / "bag", first, RecordOptions()) as recorder:
        recorder.on_messages(wander(first, 50))
        middle = first.snapshot()
        recorder.on_messages(wander(first, 150))
    second.restore(middle)
    wander(second, 150)
    assert first.digest() == second.digest()
    save_state(tmp_path / "x.state", middle)
    third = resume(tmp_path / "x.state", tmp_path)
    wander(third, 150)
    assert third.digest() == first.digest()
    assert third.health.degraded == first.health.degraded
    plain = microsim.Simulation({**everything(), "faults": []})
    wander(plain, 150)
    assert plain.digest() != first.digest()
    with Replay(open_bag(tmp_path / "bag")) as again:
        verdict = again.verify()
    assert verdict.is_identical, str(verdict)


# ---- /sim/status -----------------------------------------------------------------------------------------------------


def test_status_comes_at_10_hz_and_whenever_something_changes() -> None:
    _, sent = run("camera:fail@0.33s-0.55s", ticks=200)
    at = [stamp for stamp, _ in statuses(sent)]
    assert set(range(0, 2001, 100)) <= set(at)
    assert 400 in at  # the first image that fails
    changes = {stamp: parts["ego"]["state"] for stamp, parts in statuses(sent)}
    assert changes[300] == "running"
    assert changes[400] == "degraded"
    assert changes[600] == "running"
    last = statuses(sent)[-1][1]
    assert last["ego/camera"] == {"health": "ok", "degraded_frames": "2", "dropped_frames": "0"}
    assert last["ego"]["degraded_frames"] == "2"
    assert last["ego"]["is_offroad"] == "unknown"  # a grid scenario does not say where one may drive


def test_status_tells_an_emergency_stop_and_its_end() -> None:
    sim = microsim.Simulation(setting())
    sim.command("ego", speed=3.0)
    sent = sim.step(250)
    states = {stamp: parts["ego"]["state"] for stamp, parts in statuses(sent)}
    assert states[1000] == "running"
    assert states[1010] == "emergency_stop"  # on change, not at the next tenth
    sim.command("ego", speed=3.0)
    assert statuses(sim.step(1))[0][1]["ego"]["state"] == "running"


def test_a_run_without_car_bundle_and_faults_has_no_status() -> None:
    assert "/sim/status" not in microsim.Simulation("default").topics
    assert "/sim/status" in microsim.Simulation({"faults": ["drone/gps:dropout@1s-2s"]}).topics


def bundle_run(x: float, y: float, yaw: float) -> Mapping[str, str]:
    quiet = {"camera_front": None, "lidar_top": None}
    pose = {"map_pose": {"x": x, "y": y, "yaw": yaw}}
    sim = microsim.Simulation({"world": "minimal_test", "robots": {"ego": {"start": pose, "sensors": quiet}}})
    return statuses(sim.step(0))[0][1]["ego"]


def test_the_road_is_asked_about_for_the_reference_point_and_every_wheel() -> None:
    from microsim.bundle import load_bundle

    bundle = load_bundle("minimal_test")
    edges = bundle.drivable.edges
    low_x, high_x, low_y, high_y = edges[:, 0].min(), edges[:, 0].max(), edges[:, 1].min(), edges[:, 1].max()
    middle_x, middle_y = 0.5 * (low_x + high_x), 0.5 * (low_y + high_y)
    inside = bundle_run(middle_x, middle_y, 0.0)
    assert (inside["is_offroad"], inside["polygon"], inside["points_offroad"]) == ("false", "0", "0")
    rng = np.random.default_rng(4)
    for _ in range(6):
        x, y, yaw = rng.uniform(low_x - 3, high_x + 3), rng.uniform(low_y - 3, high_y + 3), rng.uniform(-3, 3)
        points = [(0.0, 0.0), (0.0, 0.8), (0.0, -0.8), (2.7, 0.8), (2.7, -0.8)]
        places = [(x + np.cos(yaw) * p - np.sin(yaw) * q, y + np.sin(yaw) * p + np.cos(yaw) * q) for p, q in points]
        outside = sum(bundle.drivable.polygon_at(*place) < 0 for place in places)
        found = bundle_run(x, y, yaw)
        assert found["points_offroad"] == str(outside)
        assert found["is_offroad"] == str(outside > 0).lower()


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("camra:fail@1s-2s", "did you mean 'camera'"),
        ("camera:fail", "expected TARGET:KIND@FROMs-TOs"),
        ("camera:fail@x-2s", "expected TARGET:KIND@FROMs-TOs"),
        ("camera:fail@3s-2s", "expected from_s below to_s"),
        ("camera:explode@1s-2s", "fail"),
        ("gps:fail@1s-2s", "ego/gps cannot fail; supported by: ego/camera, ego/lidar"),
        ("gps:jump@1s-2s", "a jump needs `offset_m`"),
        ("camera:blackout@1s-2s", "a blackout applies to the radio alone"),
        ({"target": "camera", "kind": "fail", "to": 3}, "did you mean 'to_s'"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_the_reason(fault: Any, says: str) -> None:
    with pytest.raises(ScenarioError, match=says.replace("(", r"\(")):
        load_scenario(setting(fault))


def test_a_sensor_that_several_robots_have_must_be_named_in_full() -> None:
    with pytest.raises(ScenarioError, match="say which: drone/gps, rover/gps"):
        load_scenario({"faults": ["gps:dropout@1s-2s"]})
    assert load_scenario({"faults": ["rover/gps:dropout@1s-2s"]}).faults[0].target == "rover/gps"


def test_the_command_line_adds_faults_robots_and_a_world() -> None:
    made: Any = assembled(None, "minimal_test", "ego,drone", ["camera_front:fail@3s-5s", "radio:blackout@1s-2s"])
    assert [each.target for each in made.faults] == ["ego/camera_front", "radio"]
    assert list(made.robots) == ["ego", "drone"]
    made = assembled("flat", None, "scout=rover", [])
    assert made.robots["scout"].model == "rover"
    assert assembled("flat", None, None, []) == "flat"
    with pytest.raises(UsageError, match="not both"):
        assembled("flat", "oval", None, [])
    with pytest.raises(UsageError, match="twice"):
        assembled(None, None, "ego,ego", [])
    assert json.dumps(made.to_dict())
