"""The log of a run: every warning there is, one line a kind, counted, bounded; no message depends on it."""

import math
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim.messages.topics import Qos
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.view.web.interface import FrameCollector
from microsim.parts.view.web.page.panel_data import Panels
from microsim.recording.recorder import Recorder
from microsim.runner import LONGEST_NOTE, MOST_NOTES, Note, Notes, Runner
from tests.support import SleepClock

BARE: dict[str, Any] = {
    "world_topics": {"occupancy_hz": 0, "markers_hz": 0},
    "robots": {"drone": {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}}, "rover": {}},
}


def run_of(scenario: dict[str, Any], **options: Any) -> tuple[Runner, FrameCollector]:
    runner = Runner(microsim.Simulation(scenario), clock=SleepClock(), **options)
    collector = FrameCollector(runner)
    collector.scene()
    return runner, collector


def lines(collector: FrameCollector) -> dict[str, int]:
    return {note.text: note.count for note in collector.frame().log}


def test_notes_of_a_kind_are_one_line_with_the_newest_text() -> None:
    notes = Notes()
    for second in range(5):
        notes.add(Note(second, "warn", f"late by {second}", "late"))
        notes.add(Note(second, "info", "hello", "hello"))
    notes.add(Note(9, "warn", "late by 9", "late"))
    assert [(each.seconds, each.text, each.count) for each in notes.take()] == [(4, "hello", 5), (9, "late by 9", 6)]
    assert notes.take() == ()


def test_notes_are_bounded_and_say_what_was_thrown_away() -> None:
    notes = Notes()
    for number in range(MOST_NOTES + 30):
        notes.add(Note(number, "warn", "x" * (10 * LONGEST_NOTE), str(number)))
    first, *rest = notes.take()
    assert (first.kind, first.count, len(rest)) == ("lost notes", 30, MOST_NOTES)
    assert max(len(each.text) for each in rest) == LONGEST_NOTE


def test_what_ros_2_sends_wrongly_is_in_the_log_with_its_topic_each_time() -> None:
    bus = Bus()
    node = start_node(MemoryTransport("microsim", bus=bus), microsim.load_scenario(BARE))
    other = MemoryTransport("other", bus=bus).publisher("/rover/cmd_vel", "geometry_msgs/msg/Twist", Qos(100))
    collector = FrameCollector(node.runner)
    collector.scene()
    twist = microsim.messages.new("geometry_msgs/msg/Twist")
    twist.linear.x = math.nan
    for _ in range(4):
        other.publish(b"garbage")
        other.publish(microsim.messages.encode("geometry_msgs/msg/Twist", twist))
    node.transport.poll()
    node.runner.step(1)
    found = lines(collector)
    assert found.pop("/rover/cmd_vel: ignored: commands with NaN or infinity") == 4
    ((text, count),) = found.items()
    assert text.startswith("/rover/cmd_vel: ignored a message that is not a valid geometry_msgs/msg/Twist: ")
    assert count == 4
    assert lines(collector) == {}


def test_parameters_that_there_are_not_are_in_the_log() -> None:
    transport = MemoryTransport("microsim", ("--ros-args", "-p", "drone.max_vxx:=1.0"), Bus())
    node = start_node(transport, microsim.load_scenario(BARE))
    assert any("there is no parameter drone.max_vxx" in note.text for note in node.runner.notes.take())


def test_what_a_pilot_commands_wrongly_is_counted() -> None:
    runner, collector = run_of(BARE)
    for _ in range(3):
        runner.sim.command("rover", v=math.inf)
    runner.sim.set_pose("rover", -100.0, 0.0)
    assert lines(collector) == {
        "ignored: commands with NaN or infinity": 3,
        "ignored: poses off the map or in an occupied cell": 1,
    }
    runner.sim.command("rover", v=math.inf)
    assert lines(collector) == {"ignored: commands with NaN or infinity": 1}


def test_sensors_that_fail_or_drop_out_are_in_the_log_and_others_hear_of_it_too() -> None:
    faults = ["drone/camera:fail@0.2s-0.5s", "rover/gps:dropout@0.1s-0.4s"]
    robots = {**BARE["robots"], "rover": {"gps": {"hz": 10}}, "drone": {"camera": {"hz": 10}}}
    runner, collector = run_of({**BARE, "robots": robots, "faults": faults})
    heard: list[str] = []
    runner.listen(warnings=heard.append)
    runner.step(60)
    found = lines(collector)
    assert found["rover/gps: drops out, its messages are missing"] == 3
    assert [text for text in found if "drone/camera" in text] == heard
    assert len(heard) == 1


def test_a_full_radio_queue_is_in_the_log() -> None:
    radio = {"queue_limit": 2, "latency_ms_mean": 500.0, "drop_probability": 0.0}
    runner, collector = run_of({**BARE, "radio": radio})
    for _ in range(6):
        runner.sim.radio_send("rover", b"hello")
    runner.step(1)
    assert lines(collector) == {"radio rover → drone: the queue is full, packets are lost": 4}


def test_a_stall_is_in_the_log() -> None:
    runner, collector = run_of(BARE)
    clock = runner.clock
    assert isinstance(clock, SleepClock)

    def sleep_of_a_laptop(messages: object) -> None:
        clock.time_s += 3600.0 if runner.sim.tick == 10 else 0.0

    runner.listen(messages=sleep_of_a_laptop)
    runner.run(20)
    ((text, count),) = lines(collector).items()
    assert text.startswith("stalled for 3600.0 s")
    assert count == 1


def test_a_run_that_cannot_keep_its_pace_is_told_so_once() -> None:
    runner, collector = run_of(BARE)
    found: list[str] = []
    for second in range(60):
        runner.step(3)
        runner.clock.sleep(0.1)
        found += lines(collector)
        assert second < 30 or found
    assert len(found) == 1
    assert found[0].startswith("too slow: 0.5")


def test_a_recording_that_stops_is_in_the_log(tmp_path: Path) -> None:
    runner, collector = run_of(BARE)
    recorder = Recorder(tmp_path / "bag", runner.sim)
    recorder.attach(runner)
    runner.publish(runner.sim.step(0))
    runner.sim.advance(3)
    runner.step(1)
    recorder.close()
    (note,) = collector.frame().log
    assert note.level == "error"
    assert note.text.startswith("the recording stopped at 0.000 s")


def test_the_panels_count_on_and_are_bounded() -> None:
    panels = Panels(lambda page, kind, value: None)
    for number in range(1000):
        panels._take_note(Note(number, "warn", f"text {number}", "same", 2))
        panels._take_note(Note(number, "warn", f"other {number}", str(number)))
    panels._state = {"type": "state"}
    import json

    known = {"scene": {}, "line": 0, "images": {}, "plot": -1.0, "fields": 0}
    (state,) = (json.loads(text) for text in panels._unknown_to(known))
    assert len(state["log"]) == 200
    number, seconds, level, text, times = state["log"][-2]
    assert (seconds, level, text, times) == (999, "warn", "text 999", 2000)
    assert number == 1


@pytest.mark.parametrize("looks", [True, False])
def test_the_log_leaves_no_trace_in_the_messages(looks: bool) -> None:
    runner, collector = run_of(BARE)
    for tick in range(30):
        runner.sim.command("rover", v=math.nan if tick % 3 else 1.0)
        runner.step(1)
        if looks:
            collector.frame()
    assert runner.sim.digest() == _digest()


def _digest() -> str:
    sim = microsim.Simulation(BARE)
    for tick in range(30):
        if tick % 3 == 0:
            sim.command("rover", v=1.0)
        sim.step()
    return sim.digest()
