"""Scenario, seed and commands decide every byte: not the process, grouping of ticks, other sensors or robots."""

import copy
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from tests.golden.mission import SHORT, fly, run_short_mission
from tests.support import bare, many, on_topic, scenario

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "altimeter"


def by_topic(messages):
    topics = {}
    for message in messages:
        topics.setdefault(message.topic, []).append((message.stamp_ns, message.cdr))
    return topics


def commanded(scenario, seed=None):
    sim = microsim.Simulation(scenario, seed)
    sim.command("drone", vx=1.5, vy=-0.5, vz=0.2, yaw_rate=0.6)
    sim.command("rover", v=1.0, omega=-0.4)
    for _ in range(3):
        sim.radio_send("drone", b"hello")
        sim.radio_send("rover", b"back")
    return sim


def with_(changes):
    """SHORT with some keys of robots changed: {"rover": {"scan": None}}."""
    scenario = copy.deepcopy(SHORT)
    for robot, block in changes.items():
        scenario["robots"].setdefault(robot, {}).update(block)
    return scenario


def test_twice_in_a_process():
    assert run_short_mission() == run_short_mission()


def test_two_simulations_side_by_side_do_not_disturb_each_other():
    alone, one, other = commanded(SHORT), commanded(SHORT), commanded(SHORT, seed=99)
    alone.step(60)
    for _ in range(60):
        one.step()
        other.step()
        other.render("drone")
    assert one.digest() == alone.digest() != other.digest()


def test_one_step_at_a_time_equals_six_hundred_at_once():
    at_once, one_by_one, ticks = commanded(SHORT), commanded(SHORT), many(600, 60)
    messages = at_once.step(ticks)
    singly = [message for _ in range(ticks) for message in one_by_one.step(1)]
    assert [(m.topic, m.cdr) for m in singly] == [(m.topic, m.cdr) for m in messages]
    assert one_by_one.digest() == at_once.digest()


@settings(max_examples=many(10, 2))
@given(st.integers(0, 2**32 - 1))
def test_any_grouping_of_ticks_gives_the_same_bytes(seed):
    dice, left = random.Random(seed), 150
    grouped, at_once = commanded(SHORT), commanded(SHORT)
    at_once.step(left)
    while left:
        ticks = dice.randint(0, min(left, 40))
        grouped.step(ticks)
        left -= ticks
    assert grouped.digest() == at_once.digest()


@pytest.mark.parametrize("group", [2, 7, 20, 100])
def test_a_packet_handed_in_before_a_long_step_arrives_at_its_tick(group):
    """Also where nothing but the packet interrupts the compiled ticks."""

    def run(ticks):
        robots = {name: bare(model="rover") for name in ("a", "b")}
        sim = microsim.Simulation(scenario(robots=robots, radio={"latency_ms_mean": 80.0, "latency_ms_jitter": 60.0}))
        sent = sim.step(0)
        while sim.tick < 300:
            if sim.tick % 100 == 0:
                sim.radio_send("a", bytes([sim.tick % 256]))
            sent += sim.step(min(ticks, 100 - sim.tick % 100))
        return sim, sent

    def received(sent):
        return [(m.stamp_ns, m.cdr) for m in on_topic(sent, "/radio/b_rx")]

    (sim, one_by_one), (other, grouped) = run(1), run(group)
    assert len(received(one_by_one)) > 0
    assert received(grouped) == received(one_by_one)
    assert (other.tick, other.digest()) == (sim.tick, sim.digest())


@pytest.mark.parametrize(
    ("robot", "sensor", "block", "its_topics"),
    [
        ("drone", "second_gps", {"type": "gps", "hz": 7}, {"/drone/second_gps/fix"}),
        ("rover", "second_imu", {"type": "imu"}, {"/rover/second_imu/data_raw"}),
        ("rover", "attitude", {"type": "ahrs"}, {"/rover/attitude/data"}),
        ("rover", "left", {"type": "range", "mount": {"rpy": [0, 0, 1.57]}}, {"/rover/left"}),
        ("scout", "laser", {"type": "scan", "beams": 12}, {"/scout/laser"}),
        (
            "drone",
            "nose",
            {"type": "camera", "hz": 5, "resolution": {"width": 8, "height": 8}},
            {"/drone/nose/image_raw", "/drone/nose/camera_info"},
        ),
        ("drone", "wind", {"type": "gps"}, {"/drone/wind/fix"}),
        ("drone", "baro", {"type": "altimeter"}, {"/drone/baro"}),
    ],
)
def test_another_sensor_leaves_the_bytes_of_all_others_alone(robot, sensor, block, its_topics):
    scenario = with_({robot: {"sensors": {sensor: block}}})
    scenario["plugins"] = [str(EXAMPLE)]
    before, after = by_topic(commanded(SHORT).step(120)), by_topic(commanded(scenario).step(120))
    assert set(after) - set(before) == its_topics
    for topic, messages in before.items():
        if topic not in ("/tf_static", "/sim/info"):  # which tell of the new sensor
            assert after[topic] == messages, topic


@pytest.mark.parametrize("sensor", ["gps", "imu", "camera", "range", "scan"])
def test_a_sensor_taken_away_leaves_the_bytes_of_all_others_alone(sensor):
    scenario = with_({robot: {sensor: None} for robot in ("drone", "rover", "scout")})
    before, after = by_topic(commanded(SHORT).step(120)), by_topic(commanded(scenario).step(120))
    assert set(after) < set(before)
    for topic in set(after) - {"/tf_static", "/sim/info"}:
        assert after[topic] == before[topic], topic


@pytest.mark.parametrize("place", ["first", "last"])
def test_another_robot_leaves_the_bytes_of_the_others_sensors_alone(place):
    extra = {"third": {"model": "drone", "start": {"map_pose": {"x": 4, "y": 9, "z": 7}}}}
    scenario = copy.deepcopy(SHORT)
    robots = scenario["robots"]
    scenario["robots"] = {**extra, **robots} if place == "first" else {**robots, **extra}
    before, after = by_topic(commanded(SHORT).step(120)), by_topic(commanded(scenario).step(120))
    shared = ("/tf", "/tf_static", "/sim/info", "/radio/metrics", "/world/markers")
    for topic, messages in before.items():
        if topic not in shared:
            assert after[topic] == messages, topic


def test_another_rate_of_one_sensor_leaves_the_others_alone():
    scenario = with_({"rover": {"range": {"hz": 3, "dropout_probability": 0.2}}})
    before, after = by_topic(commanded(SHORT).step(120)), by_topic(commanded(scenario).step(120))
    for topic in set(before) - {"/rover/range/front", "/sim/info"}:
        assert after[topic] == before[topic], topic


def test_a_reading_at_a_tick_does_not_depend_on_the_sensors_rate():
    """Noise is keyed by the tick: any tick's noise can be drawn without its past."""
    slow, fast = (by_topic(commanded(with_({"rover": {"imu": {"hz": hz}}})).step(100)) for hz in (10, 50))
    assert set(slow["/rover/imu/data_raw"]) < set(fast["/rover/imu/data_raw"])


def test_the_order_of_calls_for_different_robots_does_not_matter():
    one, other = microsim.Simulation(SHORT), microsim.Simulation(SHORT)
    calls = [
        lambda sim: sim.command("drone", vx=1.0),
        lambda sim: sim.command("rover", v=1.0),
        lambda sim: sim.set_pose("scout", x=4.0, y=4.0),
    ]
    for call in calls:
        call(one)
    for call in reversed(calls):
        call(other)
    one.step(30)
    other.step(30)
    assert one.digest() == other.digest()


def test_for_one_robot_the_last_command_of_a_tick_counts():
    one, other = microsim.Simulation(SHORT), microsim.Simulation(SHORT)
    one.command("drone", vx=-3.0)
    one.command("drone", vx=2.0)
    other.command("drone", vx=2.0)
    one.step(30)
    other.step(30)
    assert one.digest() == other.digest()


def test_a_command_repeated_changes_nothing_and_another_does():
    one, other, third = (microsim.Simulation(SHORT) for _ in range(3))
    for sim in (one, other, third):
        sim.command("rover", v=1.0)
    for _ in range(30):
        one.step()
        other.command("rover", v=1.0)
        other.step()
        third.command("rover", v=1.0000000000000002)
        third.step()
    assert one.digest() == other.digest() != third.digest()


def test_the_digest_covers_every_message_and_its_stamp():
    digests = set()
    for changes in ({}, {"name": "other"}, {"seed": 8}, {"world_topics": {"markers_hz": 2}}, {"physics_hz": 51}):
        sim = commanded({**SHORT, **changes})
        sim.step(50)
        digests.add(sim.digest())
    assert len(digests) == 5


def test_looking_changes_nothing():
    looked, alone = commanded(SHORT), commanded(SHORT)
    for _ in range(50):
        for robot in looked.robots:
            looked.state(robot)
        looked.render("drone")
        looked.snapshot()
        looked.digest()
        for message in looked.step():
            message.message  # noqa: B018
        alone.step()
    assert looked.digest() == alone.digest()


def test_the_mission_uses_everything_it_claims_to():
    sim = microsim.Simulation(SHORT)
    fly(sim, 3)
    assert sum(sim.counters.values()) >= 4
    assert any(link.dropped or link.queue or link.delivered for link in sim.radio.links)
    assert sim.state("rover").contacts >= 0
    assert sim.tick == 153
