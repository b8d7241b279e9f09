"""What the small nodes share: the pace, whose time it is, settings as parameters, inputs that cannot be read."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any

import pytest
from pydantic import Field

from microsim.bare_simulation import BareRun, BareSimulation, OffsetClock
from microsim.documents.values import Finite
from microsim.engine.pipeline import Periodic
from microsim.errors import UsageError
from microsim.messages import decode, encode, encoders, new
from microsim.messages.topics import DEFAULT_QOS
from microsim.parts.ros2.node_parameters import read_settings
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.parts.small_nodes.node_scenario import PLANE, node_scenario
from microsim.parts.small_nodes.paced_node import PacedNode, TimeSettings, fixed, node_clock

FLOAT = "std_msgs/msg/Float64"
CLOCK = "rosgraph_msgs/msg/Clock"


class Settings(TimeSettings):
    """Of a node that counts."""

    gain: Annotated[Finite, Field(ge=0, le=10)] = Field(1.0, description="What is added at every tick.")
    label: str = fixed("a", "A word.")


class Counting:
    """Adds `gain` at every tick and sends the sum."""

    def __init__(self, settings: Settings, clock: OffsetClock) -> None:
        self.pace: Callable[[], Mapping[str, str]] = dict
        self.gain, self.sum, self.stamps = settings.gain, 0.0, list[int]()
        self.sim = BareSimulation(node_scenario("counter", 10.0, 0, {}), PLANE, clock, False, self._compose)

    def _compose(self, run: BareRun) -> None:
        send = run.sender("/sum", FLOAT, DEFAULT_QOS)
        run.add(0, "/sum", Periodic(run.trigger(10.0), self._count, send))

    def _count(self, tick: int, stamp_ns: int) -> bytes:
        self.sum = tick * self.gain
        self.stamps.append(stamp_ns)
        return encode(FLOAT, new(FLOAT, data=self.sum))


class Hands:
    """A wall clock turned by hand: sleeping is what moves it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def time_ns(self) -> int:
        return round(1e9 * self.seconds)

    def sleep(self, seconds: float = 0.0) -> None:
        self.seconds += max(seconds, 1e-9) if seconds > 0.0 else 0.0


@pytest.fixture
def bus() -> Bus:
    return Bus()


def made(bus: Bus, *arguments: str, clock: Any = None) -> tuple[PacedNode, Counting, Settings]:
    transport = MemoryTransport("counter", ["--ros-args", *arguments], bus)
    settings = read_settings(transport, Settings)
    core = Counting(settings, node_clock(settings, 10.0))
    return PacedNode(transport, core, settings, clock), core, settings


def heard(bus: Bus, topic: str, type_name: str) -> tuple[MemoryTransport, list[Any]]:
    peer, got = MemoryTransport("peer", bus=bus), list[Any]()
    peer.subscribe(topic, type_name, DEFAULT_QOS, lambda cdr: got.append(decode(type_name, cdr)))
    return peer, got


def said(bus: Bus) -> tuple[MemoryTransport, list[str]]:
    peer, lines = MemoryTransport("ear", bus=bus), list[str]()
    log = "rcl_interfaces/msg/Log"
    from microsim.parts.ros2.transport.standalone import ROSOUT, ROSOUT_QOS

    peer.subscribe(ROSOUT, log, ROSOUT_QOS, lambda cdr: lines.append(decode(log, cdr).msg))
    return peer, lines


def test_tick_zero_is_sent_and_then_every_tick(bus: Bus) -> None:
    peer, got = heard(bus, "/sum", FLOAT)
    node, _, _ = made(bus, "-p", "publish_clock:=true", "-p", "speed_factor:=1000.0")
    node.run(3)
    peer.poll()
    assert [message.data for message in got] == [0.0, 1.0, 2.0, 3.0]


def test_the_node_keeps_the_pace_of_the_wall_clock(bus: Bus) -> None:
    hands = Hands()
    node, _, _ = made(bus, clock=hands)
    due: list[float] = []
    node.transport.poll = hands.sleep  # type: ignore[method-assign]
    node.runner.overrides.append(lambda: due.append(hands.now()))
    node.run(5)
    assert due == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_own_time_starts_at_zero_and_goes_by_ticks(bus: Bus) -> None:
    node, core, _ = made(bus, "-p", "publish_clock:=true", "-p", "speed_factor:=1000.0")
    node.run(2)
    assert core.stamps == [0, 100_000_000, 200_000_000]


def test_system_time_stamps_with_the_time_of_day(bus: Bus) -> None:
    import time

    before = time.time_ns()
    node, core, _ = made(bus)
    node.start()
    assert before <= core.stamps[0] <= time.time_ns()


def tell_clock(bus: Bus) -> Callable[[float], None]:
    clock = encoders.clock()
    publisher = MemoryTransport("time", bus=bus).publisher("/clock", CLOCK, DEFAULT_QOS)
    return lambda seconds: publisher.publish(clock(round(1e9 * seconds)))


def test_with_use_sim_time_the_node_moves_as_far_as_the_clock_has(bus: Bus) -> None:
    tell = tell_clock(bus)
    node, core, _ = made(bus, "-p", "use_sim_time:=true")
    tell(7.0)
    tell(7.35)
    node.run(3)
    assert core.stamps[1:] == [7_100_000_000, 7_200_000_000, 7_300_000_000]


def test_a_clock_that_jumps_back_is_followed_from_there(bus: Bus) -> None:
    tell = tell_clock(bus)
    node, core, _ = made(bus, "-p", "use_sim_time:=true")
    tell(7.0)
    tell(7.2)
    node.run(2)
    tell(1.0)
    tell(1.1)
    node.transport.poll()
    node.run(1)
    assert core.stamps[-1] == 1_100_000_000


def test_a_clock_that_jumps_ahead_is_followed_from_there_and_not_tick_by_tick(bus: Bus) -> None:
    ear, lines = said(bus)
    tell = tell_clock(bus)
    node, core, _ = made(bus, "-p", "use_sim_time:=true")
    tell(7.0)
    tell(7.1)
    node.run(1)
    tell(7000.0)
    node.transport.poll()
    node.run(1)
    tell(7000.1)
    node.transport.poll()
    node.run(1)
    assert core.stamps[1:] == [7_100_000_000, 7_000_000_000_000, 7_000_100_000_000]
    ear.poll()
    assert any("/clock is 6992.800 s ahead" in line for line in lines)


def test_in_a_namespace_the_global_clock_is_followed_unless_there_is_one_of_its_own(bus: Bus) -> None:
    node, core, _ = made(bus, "-r", "__ns:=/fleet", "-p", "use_sim_time:=true")
    tell = tell_clock(bus)
    tell(3.0)
    tell(3.1)
    node.run(1)
    assert core.stamps[-1] == 3_100_000_000
    own = MemoryTransport("time", bus=bus).publisher("/fleet/clock", CLOCK, DEFAULT_QOS)
    own.publish(encoders.clock()(10**9))
    own.publish(encoders.clock()(1_100_000_000))
    tell(9.0)
    node.transport.poll()
    node.run(1)
    assert core.stamps[-1] == 1_100_000_000


def test_stamps_of_wall_time_are_as_far_apart_as_the_motion_however_late_ticks_are(bus: Bus) -> None:
    hands = Hands()
    node, core, _ = made(bus, clock=hands)
    node.transport.poll = hands.sleep  # type: ignore[method-assign]
    node.runner.overrides.append(lambda: hands.sleep(0.07 if core.sim.tick % 3 else 0.0))
    node.run(8)
    steps = [after - before for before, after in pairwise(core.stamps[1:])]
    assert steps == [100_000_000] * 7


def test_a_stall_and_a_lag_are_warned_about(bus: Bus) -> None:
    ear, lines = said(bus)
    hands = Hands()
    node, _, _ = made(bus, clock=hands)
    delays = {1: 0.5, 7: 3.0}
    node.transport.poll = hands.sleep  # type: ignore[method-assign]
    node.runner.overrides.append(lambda: hands.sleep(delays.get(node.sim.tick, 0.0)))
    node.run(9)
    ear.poll()
    late = [line for line in lines if not line.startswith("started")]
    assert late == [
        "tick lag 400 ms: this machine does not keep up with 10 updates a second",
        "stalled for 2.9 s (machine busy or asleep); no tick was skipped",
    ]


def test_a_speed_factor_without_own_time_is_refused(bus: Bus) -> None:
    with pytest.raises(UsageError, match="speed_factor needs publish_clock"):
        made(bus, "-p", "speed_factor:=2.0")


def test_a_wrong_parameter_at_the_start_is_refused_with_its_name_and_bound(bus: Bus) -> None:
    with pytest.raises(UsageError, match=r"gain: expected a value of at most 10, found 11\.0"):
        made(bus, "-p", "gain:=11.0")


def test_an_unknown_parameter_is_warned_about_with_the_nearest_one(bus: Bus) -> None:
    ear, lines = said(bus)
    made(bus, "-p", "gian:=1.0")
    ear.poll()
    assert lines == ["there is no parameter gian; did you mean 'gain'?"]


def set_parameter(bus: Bus, node: PacedNode, name: str, kind: int, **value: Any) -> Any:
    peer = MemoryTransport("setter", bus=bus)
    wanted = new(
        "rcl_interfaces/msg/Parameter", name=name, value=new("rcl_interfaces/msg/ParameterValue", type=kind, **value)
    )
    answer = peer.call("/counter/set_parameters", "rcl_interfaces/srv/SetParameters", {"parameters": [wanted]})
    node.transport.poll()
    return answer.results[0]


def test_a_parameter_set_at_run_time_reaches_the_core_and_a_wrong_one_does_not(bus: Bus) -> None:
    node, core, settings = made(bus)

    def change(wanted: Settings) -> None:
        if wanted.gain == 3.0:
            raise UsageError("three is taken")
        core.gain = wanted.gain

    node.declare(settings, change)
    node.start()
    assert set_parameter(bus, node, "gain", 3, double_value=2.5).successful
    node.step()
    assert core.sum == 2.5
    assert set_parameter(bus, node, "gain", 3, double_value=3.0).reason == "three is taken"
    assert "from 0" in set_parameter(bus, node, "gain", 3, double_value=-1.0).reason
    assert "read-only" in set_parameter(bus, node, "label", 4, string_value="b").reason
    assert core.gain == 2.5


def test_what_cannot_be_read_is_counted_and_said_once_a_second_of_node_time(bus: Bus) -> None:
    ear, lines = said(bus)
    node, _, _ = made(bus)
    taken: list[Any] = []
    node.subscribe("/in", FLOAT, taken.append)
    sender = MemoryTransport("sender", bus=bus).publisher("/in", FLOAT, DEFAULT_QOS)
    for _ in range(25):
        sender.publish(b"\0\1\0\0")
        node.transport.poll()
        node.step()
    sender.publish(encode(FLOAT, new(FLOAT, data=4.0)))
    node.transport.poll()
    ear.poll()
    assert node.ignored == {"malformed messages on /in": 25}
    assert len(lines) == 3
    assert "(1 so far)" in lines[0]
    assert "(11 so far)" in lines[1]
    assert [message.data for message in taken] == [4.0]


def test_stop_ends_the_run_after_the_tick_under_way(bus: Bus) -> None:
    node, core, _ = made(bus, "-p", "publish_clock:=true", "-p", "speed_factor:=1000.0")
    node.runner.overrides.append(lambda: node.runner.stop() if core.sim.tick == 4 else None)
    node.run()
    assert core.sum == 5.0
