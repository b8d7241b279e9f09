"""Faults on messages in both directions, and faults that the seed draws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim import Simulation
from microsim.batch import BatchSimulation
from microsim.errors import MicroSimError
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.scenario.fault_models import drawn_faults

QUIET: dict[str, Any] = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}}
CHAOS = {"rate": 2.0, "to_s": 3.0, "longest_s": 0.5}


def world(*faults: str, **more: Any) -> Simulation:
    robots = {"rover": {}, "drone": {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}}}
    return Simulation({**QUIET, "robots": robots, "faults": list(faults), **more})


def received(sim: Simulation, topic: str, ticks: int = 60, at_once: int = 1) -> list[tuple[int, int]]:
    """(tick in which it arrived, its stamp in ticks)."""
    found = []
    for _ in range(ticks // at_once):
        messages = sim.step(at_once)
        found += [(sim.tick, round(each.stamp_ns * 60 / 1e9)) for each in messages if each.topic == topic]
    return found


# ---- messages that the simulation sends ------------------------------------------------------------------------------


STORM = """
from microsim.faults import FaultKind, OnMessages

def change(message):
    message.copies = 1 + int(3 * message.draw)
    message.until = message.tick + 4

FAULT = FaultKind("storm", "messages come late, and some of them often", OnMessages(change))
"""
MUTE = """
from microsim.faults import FaultKind, OnSensor

FAULT = FaultKind("mute", "as a dropout", OnSensor(is_silent=True), applies=lambda sensor: True)
"""


def test_a_plug_in_decides_what_happens_to_messages_and_to_sensors(tmp_path: Path) -> None:
    (tmp_path / "storm.py").write_text(STORM)
    (tmp_path / "mute.py").write_text(MUTE)
    plugins: dict[str, Any] = {"plugins": [str(tmp_path)]}
    found = Counter(received(world("/rover/odom:storm@0.2s-0.5s", **plugins), "/rover/odom"))
    assert found == Counter(received(world("/rover/odom:storm@0.2s-0.5s", **plugins), "/rover/odom", at_once=1))
    meanwhile = {stamp: (tick - stamp, count) for (tick, stamp), count in found.items() if 12 <= stamp < 30}
    assert {delay for delay, _ in meanwhile.values()} == {4}
    assert {count for _, count in meanwhile.values()} == {1, 2, 3}
    gps, mute = "/rover/gps/fix", received(world("rover/gps:mute@0.2s-0.5s", **plugins), "/rover/gps/fix")
    assert mute == received(world("rover/gps:dropout@0.2s-0.5s"), gps) != received(world(), gps)


def test_a_mistake_of_a_plug_in_in_a_message_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "storm.py").write_text(STORM.replace("message.draw", "message.drew"))
    sim = world("/rover/odom:storm@0.2s-0.5s", plugins=[str(tmp_path)])
    with pytest.raises(MicroSimError, match=r"storm.py:5: the fault storm.*no attribute 'drew'"):
        sim.step(60)


def test_messages_on_a_topic_are_late_and_keep_their_order() -> None:
    plain, late = received(world(), "/rover/odom"), received(world("/rover/odom:delay(0.1)@0.2s-0.5s"), "/rover/odom")
    assert [stamp for _, stamp in late] == [stamp for _, stamp in plain], "in their order, also after the fault"
    by_stamp = {stamp: tick for tick, stamp in late}
    assert by_stamp[10] == 10
    assert by_stamp[12] == 12 + 6
    assert by_stamp[28] == 28 + 6
    assert by_stamp[30] == 34, "not before the last that was late"
    assert by_stamp[36] == 36


def test_messages_are_lost_come_twice_and_change_places() -> None:
    plain = [stamp for _, stamp in received(world(), "/rover/odom")]
    lost = [stamp for _, stamp in received(world("/rover/odom:loss@0.2s-0.5s"), "/rover/odom")]
    assert lost == [stamp for stamp in plain if not 12 <= stamp < 30]
    twice = Counter(stamp for _, stamp in received(world("/rover/odom:duplication@0.2s-0.5s"), "/rover/odom"))
    assert twice == {stamp: 1 + (12 <= stamp < 30) for stamp in plain}
    swapped = [stamp for _, stamp in received(world("/rover/odom:reordering@0.2s-0.3s"), "/rover/odom")]
    assert swapped == [0, 2, 4, 6, 8, 10, 14, 12, 18, 16, *range(20, 61, 2)]


def test_faults_change_no_other_topic_and_do_not_depend_on_how_many_ticks_are_run_at_once() -> None:
    faults = ("/rover/odom:delay(0.1)@0.2s-0.5s", "/rover/imu/data_raw:loss(0.5)@0s-1s")
    for topic in ("/drone/imu/data_raw", "/clock", "/tf"):
        assert received(world(*faults), topic) == received(world(), topic)
    one, many = world(*faults), world(*faults)
    one.step(60)
    received(many, "/rover/odom")
    assert one.digest() == many.digest() != world().digest()


@given(probability=st.sampled_from([0.0, 0.3, 1.0]), seed=st.integers(0, 5))
@settings(max_examples=8)
def test_a_probability_of_0_changes_nothing_and_one_between_loses_some(probability: float, seed: int) -> None:
    plain = [stamp for _, stamp in received(world(seed=seed), "/rover/odom", 120, 60)]
    sim = world(f"/rover/odom:loss({probability})@0s-9s", seed=seed)
    left = [stamp for _, stamp in received(sim, "/rover/odom", 120, 60)]
    share = len(left) / len(plain)
    assert share == 1 - probability if probability in (0.0, 1.0) else 0.4 < share < 0.95
    assert left == sorted(left)


# ---- what it takes ---------------------------------------------------------------------------------------------------


def speeds(*faults: str, ticks: int = 12) -> list[int]:
    """What was put into force, by tick: commands of 1, 2, 3 … mm/s, one in each."""
    sim, found = world(*faults), []
    taken = sim._schedule.worlds.command
    sim._schedule.worlds.command = lambda robot, values: (found.append(round(1000 * values[0])), taken(robot, values))  # type: ignore[method-assign, func-returns-value, assignment]
    per_tick = []
    for tick in range(ticks):
        sim.command("rover", v=0.001 * (tick + 1))
        sim.step()
        per_tick.append(found[-1] if found else 0)
    return per_tick


def test_commands_are_late_lost_and_change_places_too() -> None:
    assert speeds() == list(range(1, 13))
    assert speeds("/rover/cmd_vel:delay(0.05)@0s-9s") == [0, 0, 0, *range(1, 10)]
    assert speeds("/rover/cmd_vel:loss@0.05s-0.1s") == [1, 2, 3, 3, 3, 3, *range(7, 13)]
    assert speeds("/rover/cmd_vel:duplication@0s-9s") == speeds()
    assert speeds("/rover/cmd_vel:reordering@0s-9s") == [0, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11]


def test_late_commands_count_at_their_tick_however_many_are_run_at_once_or_skipped() -> None:
    states = []
    for run in (lambda sim: sim.step(20), lambda sim: [sim.step() for _ in range(20)], lambda sim: sim.advance(20)):
        sim = world("/rover/cmd_vel:delay(0.1)@0s-9s")
        sim.command("rover", v=1.0)
        run(sim)
        states.append(sim.state("rover"))
    assert states[0] == states[1] == states[2]
    prompt = world()
    prompt.command("rover", v=1.0)
    prompt.step(14)
    assert states[0].x == pytest.approx(prompt.state("rover").x)


def test_a_fork_and_a_reconfigured_run_keep_what_is_under_way() -> None:
    sim = world("/rover/cmd_vel:delay(0.2)@0s-9s", "/rover/odom:delay(0.2)@0s-9s")
    sim.command("rover", v=1.0)
    sim.step(6)
    twin = sim.fork()
    twin.reconfigure(twin.scenario)
    for each in (sim, twin):
        each.step(30)
    assert twin.state("rover") == sim.state("rover")
    assert twin.digest() == sim.digest()
    assert sim.state("rover").v > 0.5


def test_a_recording_of_a_run_with_faults_is_repeated_byte_for_byte(tmp_path: Path) -> None:
    sim = world("/rover/cmd_vel:delay(0.1)@0s-9s", "/rover/odom:loss(0.5)@0s-9s", chaos=CHAOS)
    recorder = Recorder(tmp_path / "run", sim)
    for tick in range(90):
        sim.command("rover", v=0.01 * tick)
        sim.step()
    recorder.close()
    with Replay(open_bag(tmp_path / "run")) as replay:
        assert replay.verify().is_identical
        assert replay.sim.digest() == sim.digest()


# ---- faults that the seed draws --------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1000))
@settings(max_examples=15)
def test_the_same_seed_draws_the_same_faults_and_as_many_as_the_rate_says(seed: int) -> None:
    scenario = world(chaos=CHAOS).scenario
    found = drawn_faults(scenario, seed)
    assert found == drawn_faults(scenario, seed)
    assert len(found) == 6
    assert all(0.0 <= each.from_s < 3.5 and 0.0 < each.to_s - each.from_s <= 0.501 for each in found)
    assert found != drawn_faults(scenario, seed + 1)


def test_all_kinds_are_drawn_of_messages_in_both_directions_sensors_and_the_radio() -> None:
    found = drawn_faults(world(chaos={"rate": 20.0, "to_s": 50.0}).scenario, 1)
    assert {each.kind for each in found} >= {
        "delay",
        "loss",
        "duplication",
        "reordering",
        "dropout",
        "jump",
        "blackout",
    }
    assert {"/rover/cmd_vel", "/rover/odom", "radio"} <= {each.target for each in found}
    assert not {"node", "/clock"} & {each.target for each in found}


def test_a_rate_of_0_is_a_run_without_chaos_and_other_seeds_give_other_digests() -> None:
    def digest(**more: Any) -> str:
        sim = world(**more)
        for _ in range(60):
            sim.command("rover", v=0.5)
            sim.step()
        return "".join(str(message) for message in sim.step() if message.topic != "/sim/status") + str(
            sim.state("rover")
        )

    assert digest(chaos={**CHAOS, "rate": 0.0}) == digest()
    sims = [world(chaos=CHAOS, seed=seed) for seed in (1, 1, 2)]
    for sim in sims:
        sim.step(180)
    assert sims[0].digest() == sims[1].digest() != sims[2].digest()


def test_kinds_and_targets_can_be_chosen() -> None:
    chaos = {**CHAOS, "kinds": ["delay", "loss"], "targets": ["/rover/cmd_vel"]}
    found = drawn_faults(world(chaos=chaos).scenario, 3)
    assert {each.target for each in found} == {"/rover/cmd_vel"}
    assert {each.kind for each in found} <= {"delay", "loss"}


def test_faults_are_reported_in_sim_status_while_they_last() -> None:
    sim = world("/rover/cmd_vel:loss@0.1s-0.3s", "node:pause@0.2s-0.3s")
    found: dict[int, dict[str, tuple[str, str]]] = {}
    for _ in range(30):
        sim.command("rover", v=0.1)
        for message in sim.step():
            if message.topic == "/sim/status":
                entries = {each.name: each for each in message.message.status}
                counts = {value.key: value.value for value in entries["/rover/cmd_vel"].values}
                found[sim.tick] = {
                    "messages": (entries["/rover/cmd_vel"].message, counts["affected_messages"]),
                    "node": (entries["node"].message, ""),
                }
    assert found[6]["messages"] == ("loss", "0")
    assert found[12] == {"messages": ("loss", "6"), "node": ("pause", "")}
    assert found[18] == {"messages": ("ok", "12"), "node": ("ok", "")}


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("/rover/odo:loss@1s-2s", "faults: this run neither sends nor takes /rover/odo; did you mean '/rover/odom'"),
        ("/clock:delay(0.1)@1s-2s", "/clock cannot have faults"),
        ("/rover/odom:delay@1s-2s", "a delay needs it: /rover/cmd_vel:delay(0.2)@3s-5s"),
        ("/rover/odom:dropout@1s-2s", "dropout and /rover/odom do not fit: it is a fault of sensors"),
        ("gps:loss@1s-2s", "loss and gps do not fit: it is a fault of messages, whose target is a topic"),
        ("rover:pause@1s-2s", "pause and rover do not fit: it is a fault of the nodes that the run starts"),
        ("node:dropout@1s-2s", "dropout and node do not fit"),
        ("/rover/odom:los@1s-2s", "unknown fault 'los'; did you mean 'loss'"),
        ("/rover/odom:loss(2)@1s-2s", "found 2"),
    ],
)
def test_faults_that_do_not_fit_are_refused(fault: str, part: str) -> None:
    with pytest.raises(MicroSimError) as caught:
        world(fault)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("chaos", "part"),
    [
        ({}, "chaos.rate: missing key 'rate'"),
        ({"rate": -1}, "chaos.rate"),
        ({"rate": 1, "kinds": ["dela"]}, "chaos.kinds[0]: unknown fault 'dela'; did you mean 'delay'"),
        ({"rate": 1, "targets": ["/rover/odo"]}, "chaos.targets: none of these kinds fits any of them; there are"),
        ({"rate": 1, "from_s": 5, "to_s": 4}, "expected from_s below to_s"),
        ({"rate": 100, "to_s": 1000}, "expected at most 10,000 faults"),
    ],
)
def test_chaos_that_cannot_be_drawn_is_refused(chaos: dict[str, Any], part: str) -> None:
    with pytest.raises(MicroSimError) as caught:
        world(chaos=chaos)
    assert part in str(caught.value)


def test_a_batch_refuses_by_name_what_it_cannot_do() -> None:
    for more, part in (
        ({"faults": ["/rover/cmd_vel:loss@1s-2s"]}, r"faults\[0\]: a batch does not support /rover/cmd_vel:loss"),
        ({"faults": ["node:kill@1s-2s"]}, r"a batch does not support node:kill"),
        ({"chaos": CHAOS}, "has `chaos`, which a batch does not support"),
    ):
        with pytest.raises(MicroSimError, match=part):
            BatchSimulation({**QUIET, "robots": {"rover": {}}, **more}, 2)


def test_scenarios_without_chaos_are_written_as_before() -> None:
    data = world("rover/gps:dropout@1s-2s").scenario.to_dict()
    assert "chaos" not in data
    assert set(data["faults"][0]) == {"target", "kind", "from_s", "to_s", "offset_m"}
    again = microsim.load_scenario(world("/rover/odom:loss(0.5)@1s-2s", chaos=CHAOS).scenario.to_dict())
    assert again.faults[0].probability == 0.5
    assert again.chaos is not None


def test_chaos_finds_every_topic_of_cameras_that_is_sent_and_no_other() -> None:
    robots = {"drone": {"camera": {"compressed": "png"}}, "rover": {}}
    chaos = {"rate": 50, "to_s": 10, "kinds": ["loss"]}
    sim = microsim.Simulation({"robots": robots, "chaos": chaos})  # which refuses faults on topics that do not exist
    found = {fault.target for fault in drawn_faults(sim.scenario, 1)}
    assert "/drone/camera/image_raw/compressed" in found
    assert {topic for topic in found if "camera" in topic} == {topic for topic in sim.topics if "camera" in topic}
