"""Snapshot, restore, fork: from any tick a run goes on bit for bit, with all that was under way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from tests.golden.mission import SHORT
from tests.support import many, scenario


def busy(seed=None, pending=True):
    """Commands, packets and images under way, drift, gusts and a bias that has walked."""
    sim = microsim.Simulation(SHORT, seed)
    sim.command("drone", vx=1.0, yaw_rate=0.4)
    sim.command("rover", v=0.5, omega=0.3)
    return sim


def drive(sim, ticks):
    """A run whose inputs depend on the tick alone; gives everything sent."""
    sent = []
    for _ in range(ticks):
        if sim.tick % 3 == 0:
            sim.radio_send("drone", bytes([sim.tick % 256]) * 20)
        if sim.tick % 7 == 0:
            sim.command("drone", vx=0.1 * (sim.tick % 20), vy=-0.5, yaw_rate=0.2)
        if sim.tick % 31 == 0:
            sim.set_pose("scout", x=3.0 + 0.01 * sim.tick, y=3.0)
        sent += [(m.topic, m.stamp_ns, m.cdr) for m in sim.step()]
    return sent


@settings(max_examples=many(12, 3))
@given(st.integers(0, 60), st.integers(1, 40))
def test_from_any_tick_a_restored_run_goes_on_bit_for_bit(before, after):
    sim = busy()
    drive(sim, before)
    snap = sim.snapshot()
    first = drive(sim, after)
    digest = sim.digest()
    drive(sim, 5)
    sim.restore(snap)
    assert sim.tick == before
    assert drive(sim, after) == first
    assert sim.digest() == digest


@settings(max_examples=many(12, 3))
@given(st.integers(0, 60), st.integers(1, 40))
def test_a_fork_goes_its_own_way_from_the_same_point(before, after):
    sim = busy()
    drive(sim, before)
    twin = sim.fork()
    assert (twin.tick, twin.digest(), twin.seed) == (sim.tick, sim.digest(), sim.seed)
    other = sim.fork()
    other.command("rover", v=-1.0)
    drive(other, 3)
    assert drive(twin, after) == drive(sim, after)
    assert twin.digest() == sim.digest()


def test_inputs_that_wait_are_part_of_a_snapshot():
    sim = busy()
    sim.step(10)
    sim.command("drone", vx=3.0)
    sim.set_pose("scout", x=5.0, y=5.0)
    sim.radio_send("rover", b"waiting")
    twin = sim.fork()
    sim.step(30)
    twin.step(30)
    assert twin.digest() == sim.digest()
    assert twin.state("scout").x == 5.0


def test_messages_not_yet_handed_out_are_part_of_a_snapshot():
    sim = microsim.Simulation(SHORT)
    twin = sim.fork()
    assert [m.cdr for m in twin.step(0)] == [m.cdr for m in sim.step(0)] != []
    snap = sim.snapshot()
    sim.step(5)
    sim.restore(snap)
    assert sim.step(0) == []


def test_images_and_packets_under_way_arrive_after_a_restore():
    sim = busy()
    sim.step(1)
    for _ in range(5):
        sim.radio_send("drone", b"x" * 30)
    sim.step(1)
    snap = sim.snapshot()
    sent = [(m.topic, m.stamp_ns) for m in sim.step(40)]
    assert ("/drone/camera/image_raw", 0) in sent or any(topic.endswith("image_raw") for topic, _ in sent)
    assert [topic for topic, _ in sent].count("/radio/rover_rx") >= 3
    sim.restore(snap)
    assert [(m.topic, m.stamp_ns) for m in sim.step(40)] == sent


def test_a_snapshot_is_not_changed_by_what_happens_later():
    sim = busy()
    drive(sim, 20)
    snap = sim.snapshot()
    expected = drive(sim, 20)
    for _ in range(3):
        sim.restore(snap)
        assert drive(sim, 20) == expected


def test_a_snapshot_of_another_seed_brings_its_seed_along():
    one, other = busy(seed=1), busy(seed=2)
    drive(one, 15)
    other.restore(one.snapshot())
    assert other.seed == 1
    assert drive(other, 20) == drive(one, 20)
    assert other.digest() == one.digest()


def test_a_seed_set_for_the_next_reset_travels_too():
    sim = busy(seed=1)
    sim.set_seed(9)
    twin = sim.fork()
    twin.reset()
    assert twin.seed == 9
    assert sim.seed == 1


def test_a_snapshot_of_another_scenario_is_refused():
    other = microsim.Simulation({**SHORT, "name": "other"})
    with pytest.raises(
        microsim.UsageError, match="began with another scenario: name is 'short' there and 'other' here"
    ):
        other.restore(busy().snapshot())


def test_counters_travel_too():
    sim = busy()
    sim.command("drone", vx=float("nan"))
    snap = sim.snapshot()
    sim.command("drone", vx=float("nan"))
    sim.restore(snap)
    assert sum(sim.counters.values()) == 1
    assert sum(sim.fork().counters.values()) == 1


def test_a_snapshot_after_advance_goes_on_at_the_sensors_own_ticks():
    sim = busy()
    sim.step(3)
    sim.advance(101)
    twin = sim.fork()
    assert [(m.topic, m.cdr) for m in twin.step(50)] == [(m.topic, m.cdr) for m in sim.step(50)]


def test_back_to_the_start_equals_a_reset():
    sim = busy(seed=5)
    start = sim.snapshot()
    first = drive(sim, 30)
    sim.restore(start)
    assert drive(sim, 30) == first
    sim.reset()
    sim.command("drone", vx=1.0, yaw_rate=0.4)
    sim.command("rover", v=0.5, omega=0.3)
    assert drive(sim, 30) == first


@pytest.mark.parametrize("seed", [0, 7, -(2**63)])
def test_a_reset_to_a_seed_equals_a_fresh_simulation_with_it(seed):
    used = busy(seed=1)
    drive(used, 40)
    used.reset(seed=seed)
    fresh = microsim.Simulation(SHORT, seed)
    assert drive(used, 40) == drive(fresh, 40)
    assert used.digest() == fresh.digest()


def test_the_bias_of_a_gps_and_the_drift_of_odometry_walk_on_from_where_they_were():
    walking = scenario(
        frames={"per_robot_odom": True},
        robots={
            "rover": {
                "start": {"map_pose": {"x": 5, "y": 5}},
                "gps": {"hz": 60, "sigma_m": 0, "bias_drift_m_per_s": 1.0},
                "odom": {"hz": 60, "drift": {"position_per_m": 0.5, "yaw_per_rad": 0.5}},
            }
        },
    )
    sim = microsim.Simulation(walking)
    sim.command("rover", v=1.0, omega=0.5)
    sim.step(100)
    snap = sim.snapshot()
    straight = [m.cdr for m in sim.step(30)]
    sim.reset()
    sim.restore(snap)
    assert [m.cdr for m in sim.step(30)] == straight


# ---- reconfiguring


def changed(**changes):
    return microsim.load_scenario({**SHORT, **changes})


def test_a_reconfiguration_that_changes_nothing_leaves_no_trace():
    sim, other = busy(), busy()
    drive(sim, 20)
    drive(other, 20)
    sim.reconfigure(microsim.load_scenario(SHORT))
    assert drive(sim, 40) == drive(other, 40)


@pytest.mark.parametrize(
    "changes",
    [
        {"radio": {**SHORT["radio"], "rssi": None}},
        {"radio": {"drop_probability": 1.0}},
        {"radio": {"enabled": False}},
        {"wind": {"world_xyz": [3.0, 0.0, 0.0]}},
        {"world_topics": {"occupancy_hz": 0, "markers_hz": 5}},
        {"frames": {"per_robot_odom": True, "tf_hz": 10}},
    ],
)
def test_a_run_goes_on_after_a_reconfiguration_and_back(changes):
    sim = busy()
    drive(sim, 20)
    sim.reconfigure(changed(**changes))
    if changes.get("radio", {}).get("enabled", True):
        drive(sim, 20)
    else:
        sim.step(20)
    sim.reconfigure(microsim.load_scenario(SHORT))
    drive(sim, 20)
    assert sim.tick == 60


def test_the_map_cannot_change_during_a_run():
    sim = busy()
    with pytest.raises(microsim.UsageError, match="cannot change during a run"):
        sim.reconfigure(changed(map={"size_xy_cells": [50, 50]}, obstacles=[]))
