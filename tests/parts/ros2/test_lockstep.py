"""Lockstep on the memory transport: nodes on threads of their own, which the operating system runs when it likes."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import microsim
from microsim import messages as wire
from microsim.attachment import Plan
from microsim.cli import app
from microsim.errors import MicroSimError
from microsim.messages.topics import Qos
from microsim.parts.ros2.gate_proposal import GateProposal
from microsim.parts.ros2.lockstep import Lockstep, LockstepError
from microsim.parts.ros2.transport import Parameter
from microsim.parts.ros2.transport.memory import MemoryTransport
from microsim.runner import Watcher
from microsim.scenario.gates import refuse_gates
from tests.parts.ros2.lockstep_loop import (
    DRONE,
    ODOM,
    ROVER,
    STAMPED,
    TWIST,
    Loop,
    Replier,
    dawdling,
    digest,
    ended,
    proportional,
    world,
)

STEPS, STEPS_TYPE = "/simulate_steps/_action", "simulation_interfaces/action/SimulateSteps"


def test_a_node_that_dawdles_gives_one_digest_at_any_speed() -> None:
    assert len({digest(world(ROVER), seed, rtf) for seed, rtf in ((1, None), (2, 0.0), (3, 1.0), (4, 5.0))}) == 1


def test_without_gates_the_same_node_gives_several_digests() -> None:
    assert len({digest(world(), seed, 3.0, 0.02) for seed in range(3)}) > 1


def test_a_reply_counts_in_the_tick_after_the_message_it_answers() -> None:
    loop = Loop(world(ROVER))
    with ended(loop.rover()):
        loop.runner.run(12)
    period = 60 // 30  # ticks between two messages of odometry
    assert [tick for tick, _ in loop.inputs] == list(range(0, 12, period))
    assert [facts[:3] for facts in loop.waits] == [
        (tick, "/rover/cmd_vel", "/rover_controller") for tick in range(0, 12, period)
    ]


def test_two_nodes_at_different_rates_are_taken_by_topic_whoever_is_first() -> None:
    orders = []
    for slow in ("rover", "drone"):
        loop = Loop(world(ROVER, DRONE))

        def answer(message: Any, delay: float) -> Sequence[tuple[float, int]]:
            time.sleep(delay)
            return [(1.0, 0)]

        nodes = [
            Replier(loop.bus, "rover", "/rover/odom", ODOM, lambda m, d=slow == "rover": answer(m, 0.003 * d)),  # type: ignore[misc]
            Replier(
                loop.bus,
                "drone",
                "/drone/imu/data_raw",
                "sensor_msgs/msg/Imu",
                lambda m, d=slow == "drone": answer(m, 0.003 * d),
            ),  # type: ignore[misc]
        ]
        with ended(*nodes):
            loop.runner.run(20)
        orders.append([(tick, item.robot) for tick, item in loop.inputs])
    assert orders[0] == orders[1]
    assert len(nodes[1].heard) > 1.5 * len(nodes[0].heard)
    both = [robot for tick, robot in orders[0] if tick == 0]
    assert both == ["drone", "rover"]


def test_inputs_that_no_gate_expects_are_taken_by_topic_too() -> None:
    loop = Loop(world(ROVER))
    other = MemoryTransport("teleop", bus=loop.bus)
    pose = wire.new("geometry_msgs/msg/PoseStamped")
    pose.header.frame_id, pose.pose.orientation.w, pose.pose.position.x, pose.pose.position.y = "map", 1.0, 20.0, 20.0
    with ended(loop.rover()):
        loop.runner.run(2)
        other.publisher("/rover/set_pose", "geometry_msgs/msg/PoseStamped", Qos(1)).publish(
            wire.encode("geometry_msgs/msg/PoseStamped", pose)
        )
        other.publisher("/drone/cmd_vel", TWIST, Qos(10)).publish(wire.encode(TWIST, wire.new(TWIST)))
        loop.runner.run(1)
    assert [type(item).__name__ + " " + item.robot for tick, item in loop.inputs if tick == 2] == [
        "Command drone", "Command rover", "Teleport rover",
    ]  # fmt: skip


def test_of_inputs_that_pile_up_at_a_gate_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.parts.ros2.lockstep.MOST_REPLIES", 3, raising=False)
    loop = Loop(world(ROVER))
    teleop = MemoryTransport("teleop", bus=loop.bus).publisher("/drone/cmd_vel", TWIST, Qos(10))
    with ended(loop.rover()):
        loop.runner.run(2)
        for number in range(5):
            teleop.publish(wire.encode(TWIST, wire.from_mapping(TWIST, {"linear": {"x": float(number)}})))
        loop.runner.run(1)
    assert [item.values[0] for tick, item in loop.inputs if (tick, item.robot) == (2, "drone")] == [2.0, 3.0, 4.0]


@contextmanager
def timer_node(loop: Loop) -> Iterator[list[int]]:
    """A node with a timer of 20 Hz in simulated time, which also reads an IMU; gives when it fired [ns]."""
    transport, fired = MemoryTransport("timer", bus=loop.bus), list[int]()
    commands = transport.publisher("/rover/cmd_vel", TWIST, Qos(10))
    over = threading.Event()

    def on_clock(cdr: bytes) -> None:
        clock = wire.decode("rosgraph_msgs/msg/Clock", cdr).clock
        now = clock.sec * 10**9 + clock.nanosec
        while now >= (len(fired) + 1) * 50_000_000:
            fired.append(now)
            commands.publish(wire.encode(TWIST, wire.new(TWIST)))

    transport.subscribe("/clock", "rosgraph_msgs/msg/Clock", Qos(10), on_clock)
    transport.subscribe("/drone/imu/data_raw", "sensor_msgs/msg/Imu", Qos(10), lambda cdr: None)

    def spin() -> None:
        while not over.is_set():
            transport.poll(0.01)

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield fired
    finally:
        over.set()
        thread.join()


def test_a_timer_in_simulated_time_is_waited_for_in_each_period() -> None:
    loop = Loop(world({"every": 0.05, "expect": "/rover/cmd_vel"}))
    with timer_node(loop) as fired:
        loop.runner.run(31)
    assert [tick for tick, _ in loop.inputs] == [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]
    assert fired == [50_000_000 * n for n in range(1, 11)]


def test_the_run_begins_when_the_node_is_there_and_sends_it_the_first_tick() -> None:
    loop = Loop(world(ROVER))
    joined: list[Replier] = []

    def join() -> None:
        joined.append(loop.rover())
        joined[0].start()

    timer = threading.Timer(0.3, join)
    timer.start()
    loop.runner.run(4)
    joined[0].end()
    assert joined[0].heard[0] == 0
    assert [tick for tick, _ in loop.inputs] == [0, 2]


def test_a_node_that_dies_stops_time_and_one_that_takes_its_place_is_asked_again() -> None:
    loop = Loop(world(ROVER))
    first = loop.rover(lambda message: [] if len(first.heard) == 5 else proportional(message))
    with ended(first):
        stalled = threading.Event()
        loop.runner.watchers.append(Watcher(0.05, lambda: len(first.heard) == 5 and stalled.set()))

        def replace() -> None:
            stalled.wait(60.0)
            first._is_over = True
            first.join()
            second.append(loop.rover())
            second[0].start()

        second: list[Replier] = []
        helper = threading.Thread(target=replace)
        helper.start()
        loop.runner.run(20)
        helper.join()
    second[0].end()
    assert second[0].heard[0] == first.heard[-1], "the message that was not answered"
    assert [tick for tick, _ in loop.inputs] == list(range(0, 20, 2))
    assert "/rover_controller has joined" in loop.notes()


def test_a_node_that_joins_is_asked_once_it_subscribes_and_others_that_join_change_nothing() -> None:
    loop = Loop(world(ROVER))
    first = loop.rover(lambda message: [] if len(first.heard) == 5 else proportional(message))
    monitors = [MemoryTransport("monitor", bus=loop.bus)]
    monitors[0].subscribe("/rover/odom", ODOM, Qos(10), lambda cdr: None)
    second: list[Replier] = []

    def look() -> None:
        """Four steps, each after several looks at the graph."""
        looks.append(loop.sim.tick if len(first.heard) == 5 else -1)
        since = sum(tick >= 0 for tick in looks)
        if since == 10:  # a stranger listens: nothing is sent again
            monitors.append(MemoryTransport("echo", bus=loop.bus))
            monitors[1].subscribe("/rover/odom", ODOM, Qos(10), lambda cdr: None)
        elif since == 20:
            first._is_over = True
        elif since == 30:
            second.append(loop.rover())
            second[0].subscribes_when.clear()
            second[0].start()
        elif since == 40:
            second[0].subscribes_when.set()

    looks: list[int] = []
    loop.runner.watchers.append(Watcher(0.05, look))
    loop.runner.watchers.append(Watcher(30.0, loop.runner.stop))
    with ended(first):
        loop.runner.run(20)
    second[0].end()
    assert loop.sim.tick == 20, loop.notes()
    assert second[0].heard[0] == first.heard[-1]
    assert all(len(set(node.heard)) == len(node.heard) for node in (first, second[0])), "nothing was sent twice"


def test_a_stall_names_gate_node_message_and_time_in_log_and_diagnostics() -> None:
    loop = Loop(world(ROVER))
    received: list[bytes] = []
    other = MemoryTransport("monitor", bus=loop.bus)
    other.subscribe("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray", Qos(10), received.append)
    mute = loop.rover(lambda message: [] if len(mute.heard) == 3 else proportional(message))
    started = time.monotonic()
    found: list[str] = []

    def stalled() -> list[Any]:
        other.poll()
        statuses = [each for cdr in received for each in wire.decode("diagnostic_msgs/msg/DiagnosticArray", cdr).status]
        return [each for each in statuses if each.name == "microsim lockstep" and each.level]

    def look() -> None:
        found.append(loop.notes())
        if ("waiting for" in "".join(found) and stalled()) or time.monotonic() > started + 120.0:
            loop.runner.stop()

    loop.runner.watchers.append(Watcher(0.05, look))
    with ended(mute):
        loop.runner.run(20)
    text = "".join(found)
    for part in ("/rover/cmd_vel after /rover/odom", "no reply from /rover_controller", "at 0.067 s"):
        assert part in text
    assert re.search(r"since [1-9]\d*\.\d s", text)  # at first after a second; a busy machine looks later
    assert loop.sim.tick == 4
    status = stalled()[0]
    assert "no reply from /rover_controller" in status.message
    assert {each.key for each in status.values} >= {"waiting_s /rover/cmd_vel"}


@pytest.mark.parametrize("namespace", ["", "/left"])
def test_a_node_that_is_not_there_is_named_before_the_run_begins(namespace: str) -> None:
    arguments = ["--ros-args", "-r", f"__ns:={namespace or '/'}"]
    loop = Loop(world({**ROVER, "on_stall": "wait"}), ros_args=arguments)
    found: list[str] = []

    def look() -> None:
        found.append(loop.notes())
        if found[-1]:
            loop.runner.stop()

    loop.runner.watchers.append(Watcher(0.05, look))
    started = time.monotonic()
    loop.runner.run(5)
    assert "has not begun" in found[-1]
    assert f"no node publishes {namespace}/rover/cmd_vel" in found[-1]
    assert time.monotonic() - started < 60.0
    assert loop.sim.tick == 0


def test_a_gate_with_a_limit_fails_the_run() -> None:
    loop = Loop(world({**ROVER, "within": 1.0}))
    mute = loop.rover(lambda message: [] if len(mute.heard) == 3 else proportional(message))
    with (
        ended(mute),
        pytest.raises(LockstepError, match="no reply from /rover_controller, which was sent /rover/odom at"),
    ):
        loop.runner.run(20)
    assert loop.sim.tick == 4


def test_a_gate_may_continue_without_the_reply_which_is_left_out_when_it_comes() -> None:
    loop = Loop(world({**ROVER, "within": 0.3, "on_stall": "continue"}))

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        if len(slow.heard) == 3:
            given_up.wait(60.0)
        return [(0.1 * len(slow.heard), 0)]

    given_up = threading.Event()
    assert isinstance(loop.node.lockstep, Lockstep)
    lockstep = loop.node.lockstep
    loop.runner.watchers.append(Watcher(0.01, lambda: given_up.set() if lockstep.missed else None))
    slow = loop.rover(answer)
    with ended(slow):
        loop.runner.run(20)
    assert loop.node.lockstep.missed >= 1
    taken = {tick: round(10 * item.values[0]) for tick, item in loop.inputs}
    assert 4 not in taken, "it came too late"
    assert all(value == tick // 2 + 1 for tick, value in taken.items()), "each counts for the message it answers"
    assert "continued without it" in loop.notes()


@pytest.mark.parametrize("can_be_asked", [True, False])
@pytest.mark.parametrize("silent", [range(3, 4), range(1, 4), (3, 5, 6)])
def test_a_node_that_was_silent_is_heard_again(silent: Sequence[int], can_be_asked: bool) -> None:
    loop = Loop(world({**ROVER, "within": 0.3, "on_stall": "continue"}))

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        return [] if len(node.heard) in silent else [(0.1 * len(node.heard), 0)]

    node = loop.rover(answer)
    if can_be_asked:
        node.transport.declare([Parameter("gain", 1.0)], lambda changes: "")
    with ended(node):
        loop.runner.run(20)
    taken = {tick: round(10 * item.values[0]) for tick, item in loop.inputs}
    assert taken == {tick: tick // 2 + 1 for tick in range(0, 20, 2) if tick // 2 + 1 not in silent}
    assert isinstance(loop.node.lockstep, Lockstep)
    assert loop.node.lockstep.missed == len(silent)


def test_a_late_reply_is_left_out_once_whenever_it_comes() -> None:
    """The same gate again and again: replies come at once, late, after the next message, or never."""
    chance = random.Random(5)
    delays = [chance.choice((0.0, 0.0, 0.25, 0.45, None)) for _ in range(12)]
    loop = Loop(world({**ROVER, "within": 0.2, "on_stall": "continue"}))

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        delay = delays[len(node.heard) - 1] if len(node.heard) <= len(delays) else 0.0
        time.sleep(delay or 0.0)
        return [] if delay is None else [(0.01 * len(node.heard), 0)]

    node = loop.rover(answer)
    node.transport.declare([Parameter("gain", 1.0)], lambda changes: "")
    with ended(node):
        loop.runner.run(50)
    taken = {tick: round(100 * item.values[0]) for tick, item in loop.inputs}
    assert all(value == tick // 2 + 1 for tick, value in taken.items() if tick >= 2 * len(delays) + 2)
    assert len([tick for tick in taken if tick >= 2 * len(delays) + 2]) == 12, "it has recovered"


def test_a_node_that_replies_twice_keeps_its_order_and_is_left_out_when_stamps_tell() -> None:
    def twice(message: Any) -> Sequence[tuple[float, int]]:
        ((_, stamp),) = proportional(message)
        return [(0.1 * len(node.heard), stamp), (0.01 * len(node.heard), stamp)]

    found = {}
    for match, kind in (("order", TWIST), ("stamp", STAMPED)):
        loop = Loop(world({**ROVER, "match": match}, stamped_cmd_vel=kind == STAMPED))
        node = loop.rover(twice, kind)
        with ended(node):
            loop.runner.run(8)
        found[match] = [round(item.values[0], 3) for _, item in loop.inputs]
    assert found == {"order": [0.1, 0.01, 0.2, 0.02], "stamp": [0.1, 0.2, 0.3, 0.4]}


@pytest.mark.parametrize(("replies", "is_reported"), [(8, False), (30, True)])
def test_replies_that_wait_for_later_gates_are_reported_once(replies: int, is_reported: bool) -> None:
    loop = Loop(world(ROVER))
    with ended(loop.rover()):
        loop.runner.run(4)
    assert loop.node.lockstep is not None
    for _ in range(replies):
        loop.node.lockstep.arrived("/rover/cmd_vel", None, lambda: None)
    assert loop.notes().count("/rover/cmd_vel: 10 replies wait for later gates") == is_reported


def test_a_reply_with_an_old_stamp_does_not_open_a_gate_and_is_named() -> None:
    def late(message: Any) -> Sequence[tuple[float, int]]:
        ((speed, stamp),) = proportional(message)
        return [(speed, 0 if len(node.heard) == 4 else stamp)]

    loop = Loop(world({**ROVER, "match": "stamp", "within": 0.5}, stamped_cmd_vel=True))
    node = loop.rover(late, STAMPED)
    with ended(node), pytest.raises(LockstepError, match=r"1 left out: stamp 0.000 s, expected 0.100"):
        loop.runner.run(20)
    assert loop.sim.tick == 6


def test_several_replies_to_a_message_are_waited_for() -> None:
    loop = Loop(world({**ROVER, "count": 3}))
    with ended(loop.rover(lambda message: [(0.1, 0), (0.2, 0), (0.3, 0)])):
        loop.runner.run(4)
    assert [(tick, round(item.values[0], 3)) for tick, item in loop.inputs] == [
        (0, 0.1), (0, 0.2), (0, 0.3), (2, 0.1), (2, 0.2), (2, 0.3),
    ]  # fmt: skip


def test_services_and_parameters_answer_while_a_run_waits_and_a_reset_begins_again() -> None:
    loop = Loop(world(ROVER))
    waiting = threading.Event()
    go_on = threading.Event()

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        if len(node.heard) == 3:
            waiting.set()
            assert go_on.wait(60.0)
        return [(0.1 * len(node.heard), 0)]

    node = loop.rover(answer)
    caller = MemoryTransport("caller", bus=loop.bus)
    answers: list[Any] = []

    def call() -> None:
        waiting.wait(60.0)
        value = {"type": 3, "double_value": 0.5}
        request = {"parameters": [{"name": "rover.max_v", "value": value}]}
        answers.append(caller.call("/microsim/set_parameters", "rcl_interfaces/srv/SetParameters", request, 20.0))
        answers.append(loop.sim.tick)
        answers.append(caller.call("/sim/reset", "std_srvs/srv/Empty", {}, 20.0))
        go_on.set()

    thread = threading.Thread(target=call)
    thread.start()
    with ended(node):
        loop.until(lambda: bool(answers) and loop.sim.tick == 6)
    thread.join()
    assert answers[0].results[0].successful
    assert answers[1] == 4
    after = [round(item.values[0], 3) for _, item in loop.inputs if hasattr(item, "values")]
    assert after[:3] == [0.1, 0.2, 0.4], "the reply to what was sent before the reset is left out"


def by_service(caller: MemoryTransport, steps: int) -> bool:
    answer = caller.call("/sim/step", "example_interfaces/srv/SetInt32", {"data": steps}, 20.0)
    return bool(answer.success)


def by_action(caller: MemoryTransport, steps: int) -> bool:
    goal = {"goal_id": {"uuid": list(range(16))}, "goal": {"steps": steps}}
    assert caller.call(f"{STEPS}/send_goal", f"{STEPS_TYPE}_SendGoal", goal, 20.0).accepted
    result = caller.call(f"{STEPS}/get_result", f"{STEPS_TYPE}_GetResult", {"goal_id": goal["goal_id"]}, 20.0)
    return int(result.status) == 4


@pytest.mark.parametrize("step", [by_service, by_action])
def test_a_step_of_a_paused_run_waits_at_gates(step: Callable[[MemoryTransport, int], bool]) -> None:
    loop = Loop(world(ROVER))
    loop.runner.pause(True)
    caller = MemoryTransport("caller", bus=loop.bus)
    has_succeeded: list[bool] = []

    def call() -> None:
        has_succeeded.append(step(caller, 10))
        loop.runner.stop()

    node = loop.rover(dawdling(1))
    thread = threading.Thread(target=call)
    thread.start()
    with ended(node):
        loop.runner.run(1000)
    thread.join()
    assert has_succeeded == [True]
    assert loop.sim.tick == 10
    assert [tick for tick, _ in loop.inputs] == [0, 2, 4, 6, 8]


def test_an_action_that_waits_at_a_gate_can_be_canceled() -> None:
    loop = Loop(world(ROVER))
    loop.runner.pause(True)
    waiting, go_on = threading.Event(), threading.Event()

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        if len(node.heard) == 3:
            waiting.set()
            assert go_on.wait(60.0)
        return proportional(message)

    node = loop.rover(answer)
    caller = MemoryTransport("caller", bus=loop.bus)
    results: list[int] = []

    def call() -> None:
        goal = {"goal_id": {"uuid": [7] * 16}, "goal": {"steps": 1000}}
        caller.call(f"{STEPS}/send_goal", f"{STEPS_TYPE}_SendGoal", goal, 20.0)
        waiting.wait(60.0)
        results.append(caller.call(f"{STEPS}/cancel_goal", "action_msgs/srv/CancelGoal", {}, 20.0).return_code)
        result = caller.call(f"{STEPS}/get_result", f"{STEPS_TYPE}_GetResult", {"goal_id": goal["goal_id"]}, 20.0)
        results.append(result.status)
        go_on.set()
        loop.runner.stop()

    thread = threading.Thread(target=call)
    thread.start()
    with ended(node):
        loop.runner.run(1000)
    thread.join()
    assert results == [0, 5]
    assert loop.sim.tick == 4


@pytest.mark.parametrize(
    ("gate", "part"),
    [
        ({**ROVER, "after": "/rover/odo"}, "lockstep[0].after: this run does not send /rover/odo; did you mean"),
        ({**ROVER, "expect": "/rover/cmd_vl"}, "lockstep[0].expect: this run does not take /rover/cmd_vl; did you"),
        ({**ROVER, "match": "stamp"}, "has no stamp; set `stamped_cmd_vel: true`"),
        ({**ROVER, "after": "rover/odom"}, "a name with a leading slash, such as /rover/odom, found 'rover/odom'"),
        ({"expect": "/rover/cmd_vel"}, "either `after: TOPIC` or `every: SECONDS`"),
        ({**ROVER, "every": 1.0}, "either `after: TOPIC` or `every: SECONDS`"),
        ({"every": 0.001, "expect": "/rover/cmd_vel"}, "at least one tick"),
        ({"every": 0.1, "match": "stamp", "expect": "/rover/cmd_vel"}, "needs `after`"),
        ({**ROVER, "within": 1.0, "on_stall": "wait"}, "`within` is for"),
        ({**ROVER, "on_stall": "sleep"}, "expected 'wait', 'fail' or 'continue'"),
    ],
)  # fmt: skip
def test_a_gate_that_can_never_open_is_refused_before_the_start(gate: dict[str, Any], part: str) -> None:
    with pytest.raises(MicroSimError) as caught:
        Loop(world(gate))
    assert part in str(caught.value)


def test_two_gates_cannot_expect_the_same_topic() -> None:
    with pytest.raises(MicroSimError, match="another gate already expects /rover/cmd_vel"):
        microsim.load_scenario(world(ROVER, {"every": 0.1, "expect": "/rover/cmd_vel"}))


def test_a_sweep_refuses_a_scenario_with_gates() -> None:
    with pytest.raises(MicroSimError, match="unnamed has `lockstep`, but a sweep runs without ROS 2 nodes"):
        refuse_gates("a sweep", microsim.load_scenario(world(ROVER)), None)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("after /rover/odom", "--lockstep: expected 'after: TOPIC, expect: TOPIC', 'every: SECONDS"),
        ("after: /rover/odom, expect: /rover/cmd_vel", "lockstep waits for ROS 2 nodes: leave out --transport none"),
        ("after: /rover/odom", "missing key 'expect' or 'settle': a gate has one of them"),
    ],
)
def test_gates_of_the_command_line_are_checked(text: str, part: str) -> None:
    with pytest.raises(MicroSimError) as caught:
        CliRunner().invoke(app, ["run", "flat", "--lockstep", text, "--transport", "none"], catch_exceptions=False)
    assert part in str(caught.value)


def test_gates_are_proposed_that_were_tried() -> None:
    loop = Loop(world(), rtf=5.0)
    proposal = GateProposal(loop.node)
    assert not proposal.block()
    with ended(loop.rover()):
        loop.runner.run(60)
        lines = proposal.block().splitlines()
    assert lines[0] == "lockstep:"
    assert lines[1].startswith("  - {after: /rover/odom, expect: /rover/cmd_vel} # /rover_controller; tried: 59 gates")
    gates = yaml.safe_load("\n".join(lines))["lockstep"]
    assert microsim.load_scenario(world(*gates)).lockstep[0].after == "/rover/odom"


def test_a_gate_that_cannot_be_kept_is_not_proposed_but_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer in simulated time fires twice for each message of a slow IMU, but it does not answer it."""
    monkeypatch.setattr("microsim.parts.ros2.gate_proposal.WITHIN_S", 0.5)
    drone = {"camera": None, "imu": {"hz": 10}, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}}
    loop = Loop(world(robots={"drone": drone, "rover": {}}), rtf=5.0)
    with timer_node(loop):
        proposal = GateProposal(loop.node)
        loop.runner.run(240)
        lines = proposal.block().splitlines()
    assert not [line for line in lines if line.startswith("  - {after")]
    assert all(": " in line for line in lines if line.startswith("  # not {after: /drone/imu/data_raw"))
    assert lines[-1].startswith("  - {every: 0.05, expect: /rover/cmd_vel} # /timer; tried: "), lines


def test_a_proposal_does_not_wait_at_the_gates_of_the_scenario() -> None:
    loop = Loop(world(ROVER), rtf=50.0)
    GateProposal(loop.node)
    loop.runner.run(10)
    assert loop.sim.tick == 10
    plan = Plan("run", microsim.load_scenario(world(ROVER)))
    plan.use_gates([])
    assert not microsim.load_scenario(plan.scenario).lockstep
