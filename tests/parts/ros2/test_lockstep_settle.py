"""Lockstep with nodes that read several topics, or reply only sometimes: they settle before time goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import microsim
from microsim import messages as wire
from microsim.errors import MicroSimError
from microsim.messages.topics import Qos
from microsim.parts.ros2.lockstep import LockstepError
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.recording.bag_io import open_bag
from microsim.recording.compare import diff
from microsim.recording.recorder import Recorder
from microsim.runner import Watcher
from tests.parts.ros2.lockstep_loop import ODOM, ROVER, TWIST, Loop, Reader, world

SETTLE = {"settle": {"node": "/reader"}}
DONE = {"after": "/rover/odom", "settle": {"node": "/reporter", "done": "/reporter/done"}}


def test_a_node_that_reads_several_topics_has_handled_the_others_when_it_is_asked_to_reply() -> None:
    """Its executor takes one message of each subscription: odometry could overtake the IMU, which is more frequent."""
    digests = set()
    for dawdles_s in (0.0, 0.002, 0.01):
        loop = Loop(world(ROVER))
        reader = Reader(loop.bus, dawdles_s)
        reader.start()
        loop.runner.run(30)
        reader.end()
        digests.add(loop.sim.digest())
        speeds = [round(100 * item.values[0]) for _, item in loop.inputs]
        assert speeds == [1 + tick for tick in range(0, 30, 2)], "the IMU sends in each tick"
    assert len(digests) == 1


@pytest.mark.parametrize("remap", [("__ns:=/left",), ("rover/odom:=/left/rover/odom", "rover/cmd_vel:=/go")])
def test_nodes_are_asked_in_any_namespace_too(remap: tuple[str, ...]) -> None:
    """The names of gates are those of the scenario; nodes have their own."""
    arguments = ["--ros-args", *(word for rule in remap for word in ("-r", rule))]
    for gate, speeds in ((ROVER, [1, 3, 5, 7, 9]), ({"settle": {"node": "/left/reader"}}, [0, 2, 4, 6, 8])):
        loop = Loop(world(gate), ros_args=arguments)
        back = ["-r", "/left/rover/cmd_vel:=/go", "-r", "/left/rover/imu/data_raw:=/rover/imu/data_raw"]
        own = ["--ros-args", "-r", "__ns:=/left", *(back if len(remap) > 1 else [])]
        reader = Reader(loop.bus, 0.002, ros_args=own)
        reader.start()
        try:
            loop.runner.run(10)
        finally:
            reader.end()
        assert reader.requests >= 10
        assert [round(100 * item.values[0]) for _, item in loop.inputs] == speeds


def test_a_request_to_a_node_that_is_lost_is_repeated() -> None:
    loop = Loop(world(ROVER))
    reader = Reader(loop.bus, 0.0, loses=5)
    reader.start()
    loop.runner.run(10)
    reader.end()
    assert reader.requests > 10
    assert [round(100 * item.values[0]) for _, item in loop.inputs] == [1, 3, 5, 7, 9]


def seldom(count: int) -> bool:
    return count % 3 == 1


def settled(scenario: dict[str, Any], dawdles_s: float, ticks: int = 30, rtf: float | None = None) -> Loop:
    loop = Loop(scenario, rtf)
    reader = Reader(loop.bus, dawdles_s, replies=seldom)
    reader.start()
    try:
        loop.runner.run(ticks)
    finally:
        reader.end()
    return loop


def test_a_node_that_replies_only_sometimes_gives_one_digest_when_it_settles() -> None:
    loops = [settled(world(SETTLE), dawdles_s) for dawdles_s in (0.0, 0.002, 0.01)]
    for loop in loops:
        taken = [(tick, round(100 * item.values[0])) for tick, item in loop.inputs]
        assert taken == [(tick, tick) for tick in range(0, 30, 6)], "the IMU is sent after the odometry of its tick"
    assert len({loop.sim.digest() for loop in loops}) == 1


def test_without_settling_the_same_node_gives_several_digests() -> None:
    assert len({settled(world(), dawdles_s, rtf=3.0).sim.digest() for dawdles_s in (0.0, 0.01, 0.04)}) > 1


class Reporter(threading.Thread):
    """Replies to every third message, and reports each with which it is done; it has no parameter services."""

    def __init__(self, bus: Bus, reports: Callable[[int], bool] = lambda count: True) -> None:
        super().__init__(daemon=True)
        self.transport, self.count, self.is_over, self._reports = (
            MemoryTransport("reporter", bus=bus),
            0,
            False,
            reports,
        )
        self._commands = self.transport.publisher("/rover/cmd_vel", TWIST, Qos(10))
        self._done = self.transport.publisher("/reporter/done", "std_msgs/msg/Header", Qos(10))
        self.transport.subscribe("/rover/odom", ODOM, Qos(10), self._on_odometry)

    def _on_odometry(self, cdr: bytes) -> None:
        self.count += 1
        if seldom(self.count):
            command = wire.new(TWIST)
            command.linear.x = 0.01 * self.count
            self._commands.publish(wire.encode(TWIST, command))
        if self._reports(self.count):
            self._done.publish(wire.encode("std_msgs/msg/Header", wire.decode(ODOM, cdr).header))

    def run(self) -> None:
        while not self.is_over:
            self.transport.poll(0.01)
        self.transport.close()

    def __enter__(self) -> Reporter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.join()


def test_a_node_may_report_itself_up_to_which_stamp_it_is_done() -> None:
    loop = Loop(world(DONE))
    with Reporter(loop.bus):
        loop.runner.run(24)
    assert [(tick, round(100 * item.values[0])) for tick, item in loop.inputs] == [(0, 1), (6, 4), (12, 7), (18, 10)]


def test_a_node_that_does_not_report_is_named_with_the_stamp() -> None:
    loop = Loop(world({**DONE, "within": 0.3}))
    with (
        Reporter(loop.bus, lambda count: count < 4),
        pytest.raises(LockstepError, match=r"/reporter to settle after /rover/odom since .*not reported 0\.100 s"),
    ):
        loop.runner.run(24)
    assert loop.sim.tick == 6


def test_a_node_that_cannot_be_asked_is_refused_with_the_way_out() -> None:
    loop = Loop(world({"settle": {"node": "/reporter"}}))
    with Reporter(loop.bus), pytest.raises(LockstepError, match=r"/reporter has no parameter services: .*done: TOPIC"):
        loop.runner.run(5)


def test_a_node_to_settle_that_is_not_there_is_named_within_seconds() -> None:
    loop, found = Loop(world(SETTLE)), list[str]()

    def look() -> None:
        found.append(loop.notes())
        if found[-1]:
            loop.runner.stop()

    loop.runner.watchers.append(Watcher(0.05, look))
    loop.runner.run(5)
    assert "the run has not begun" in found[-1]
    assert "no /reader reads a topic of this run" in found[-1]


def test_a_node_that_dies_is_waited_for_until_another_takes_its_place() -> None:
    loop = Loop(world(SETTLE))
    first, second = Reader(loop.bus, 0.0), list[Reader]()
    first.start()

    def look() -> None:
        if not first.is_alive() and " /reader to settle" in loop.notes() and not second:
            second.append(Reader(loop.bus, 0.0))
            second[0].start()

    loop.runner.listen(messages=lambda messages: first.end() if loop.sim.tick >= 6 and first.is_alive() else None)
    loop.runner.watchers.append(Watcher(0.02, look))
    loop.runner.run(30)
    second[0].end()
    assert loop.sim.tick == 30
    assert second[0].odometry + first.odometry >= 15


@pytest.mark.parametrize("gate", [ROVER, SETTLE])
def test_a_node_in_place_of_one_that_was_killed_between_messages_is_not_taken_for_it(gate: dict[str, Any]) -> None:
    """Both have one name, and its requests are answered again: what it had received before is not known."""
    loop = Loop(world(gate))
    loop.node.transport.discovery_s = 3.0  # so that it answers before all of it is known
    first, second = Reader(loop.bus, 0.0, dies_at=10), list[Reader]()
    first.start()

    def look() -> None:
        if not first.is_alive() and not second:
            for name in [name for name, server in loop.bus.servers.items() if server.owner is first.transport]:
                del loop.bus.servers[name]
            second.append(Reader(loop.bus, 0.0))
            second[0].start()

    loop.runner.watchers.append(Watcher(0.05, look))
    loop.runner.run(30)
    second[0].end()
    assert loop.sim.tick == 30
    known = [not doubt for *_, doubt in loop.waits]
    assert known == sorted(known, reverse=True)
    assert (known[0], known[-1]) == (True, False)
    assert "/reader has joined" in loop.notes()


def test_nodes_settle_one_after_another_so_that_the_first_may_send_to_the_second() -> None:
    """A planner, which plans only sometimes, and a follower that commands after each plan."""
    digests = set()
    for dawdles_s in (0.0, 0.01):
        loop = Loop(world({"settle": {"node": "/reader"}}, {"settle": {"node": "/follower"}}))
        planner, follower = Reader(loop.bus, dawdles_s, replies=seldom), Reader(loop.bus, dawdles_s, name="follower")
        plan = planner.transport.publisher("/plan", TWIST, Qos(10))
        planner._commands = plan
        follower.transport.subscribe("/plan", TWIST, Qos(10), follower._commands.publish)
        follower._replies = lambda count: False
        planner.start()
        follower.start()
        loop.runner.run(24)
        planner.end()
        follower.end()
        assert [tick for tick, _ in loop.inputs] == [0, 6, 12, 18]
        digests.add(loop.sim.digest())
    assert len(digests) == 1


def test_diff_names_a_node_that_settled_after_another_reply(tmp_path: Path) -> None:
    for name, last in (("one", 100), ("two", 8)):
        loop = Loop(world(SETTLE))
        recorder = Recorder(tmp_path / name, loop.sim)
        recorder.attach(loop.runner)
        reader = Reader(loop.bus, 0.0, replies=lambda count, last=last: count < last)  # type: ignore[misc]
        reader.start()
        loop.runner.run(30)
        reader.end()
        recorder.close()
    found = diff(open_bag(tmp_path / "one"), open_bag(tmp_path / "two"))
    assert found.culprit == "/reader replied differently to the same inputs at 0.233333333 s"


@pytest.mark.parametrize(
    ("gate", "part"),
    [
        ({"after": "/rover/odom"}, "missing key 'expect' or 'settle'"),
        ({**ROVER, **SETTLE}, "missing key 'expect' or 'settle': a gate has one of them"),
        ({**SETTLE, "after": "/rover/odom", "every": 1.0}, "either `after: TOPIC` or `every: SECONDS`"),
        ({**SETTLE, "after": "/rover/odo"}, "lockstep[0].after: this run does not send /rover/odo; did you mean"),
        ({"settle": {"node": "/a", "done": "/b"}}, "`done` needs `after`"),
        ({**SETTLE, "count": 2}, "`count` is for `expect`"),
        ({**SETTLE, "match": "stamp"}, "`match` is for `expect`"),
        ({"settle": {"node": "reader"}}, "lockstep[0].settle.node"),
        ({"settle": {}}, "missing key 'node'"),
    ],
)
def test_what_cannot_settle_is_refused_before_the_start(gate: dict[str, Any], part: str) -> None:
    with pytest.raises(MicroSimError) as caught:
        Loop(world(gate))
    assert part in str(caught.value)


def test_a_node_settles_once() -> None:
    with pytest.raises(MicroSimError, match="another gate already waits for /reader to settle"):
        microsim.load_scenario(world(SETTLE, {**SETTLE, "after": "/rover/odom"}))


def test_a_scenario_with_nodes_that_settle_is_written_and_read_again() -> None:
    scenario = microsim.load_scenario(world(SETTLE, DONE))
    assert microsim.load_scenario(scenario.to_dict()) == scenario
