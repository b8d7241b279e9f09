"""A simulator, and nodes on threads that the operating system runs when it likes; for tests of lockstep."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import microsim
from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.microsim_node import MicroSimNode, start_node
from microsim.parts.ros2.transport import Parameter
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport

ODOM, TWIST, STAMPED = "nav_msgs/msg/Odometry", "geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped"
ROVER, DRONE = (
    {"after": "/rover/odom", "expect": "/rover/cmd_vel"},
    {"after": "/drone/imu/data_raw", "expect": "/drone/cmd_vel"},
)
TICKS = 60

Reply = Callable[[Any], Sequence[tuple[float, int]]]  # odometry -> speeds and stamps [ns] to send


def world(*gates: dict[str, Any], **more: Any) -> dict[str, Any]:
    quiet = {"occupancy_hz": 0, "markers_hz": 0}
    drone = {"camera": None, "start": {"map_pose": {"x": 20, "y": 20, "z": 10}}}
    return {"world_topics": quiet, "robots": {"drone": drone, "rover": {}}, "lockstep": list(gates), **more}


class Replier(threading.Thread):
    """A node that answers each message on a topic with commands for a robot."""

    def __init__(self, bus: Bus, robot: str, topic: str, type_name: str, answer: Reply, kind: str = TWIST) -> None:
        super().__init__(daemon=True)
        self.transport = MemoryTransport(f"{robot}_controller", bus=bus)
        self.heard: list[int] = []  # stamps [ns]
        self._answer, self._kind, self._type_name = answer, kind, type_name
        self._commands = self.transport.publisher(f"/{robot}/cmd_vel", kind, Qos(10))
        self._topic = topic
        self.subscribes_when = threading.Event()
        self.subscribes_when.set()
        self._is_over = False

    def start(self) -> None:
        if self.subscribes_when.is_set():
            self._subscribe()
        super().start()

    def _subscribe(self) -> None:
        self.transport.subscribe(self._topic, self._type_name, Qos(10), self._on_message)

    def run(self) -> None:
        if not self.subscribes_when.is_set():
            self.subscribes_when.wait(60.0)
            self._subscribe()
        while not self._is_over:
            self.transport.poll(0.01)
        self.transport.close()

    def end(self) -> None:
        self._is_over = True
        self.join()

    def _on_message(self, cdr: bytes) -> None:
        message = wire.decode(self._type_name, cdr)
        stamp = message.header.stamp
        self.heard.append(stamp.sec * 10**9 + stamp.nanosec)
        for speed, stamp_ns in self._answer(message):
            command = wire.new(self._kind)
            twist = command.twist if self._kind == STAMPED else command
            twist.linear.x = speed
            if self._kind == STAMPED:
                command.header.stamp.sec, command.header.stamp.nanosec = divmod(stamp_ns, 10**9)
            self._commands.publish(wire.encode(self._kind, command))


def proportional(message: Any) -> Sequence[tuple[float, int]]:
    stamp = message.header.stamp
    return [(25.0 - message.pose.pose.position.x, stamp.sec * 10**9 + stamp.nanosec)]


def dawdling(seed: int, longest_s: float = 0.004) -> Reply:
    chance = random.Random(seed)

    def answer(message: Any) -> Sequence[tuple[float, int]]:
        time.sleep(longest_s * chance.random())
        return proportional(message)

    return answer


@contextmanager
def ended(*nodes: Replier) -> Iterator[None]:
    for node in nodes:
        node.start()
    try:
        yield
    finally:
        for node in nodes:
            node.end()


class Loop:
    """A simulator on a bus."""

    def __init__(self, scenario: dict[str, Any], rtf: float | None = None, ros_args: Sequence[str] = ()) -> None:
        self.bus = Bus()
        self.node: MicroSimNode = start_node(
            MemoryTransport("microsim", ros_args, self.bus), microsim.load_scenario(scenario), rtf=rtf
        )
        self.runner, self.sim = self.node.runner, self.node.sim
        self.inputs: list[tuple[int, Any]] = []
        self.runner.listen(inputs=lambda tick, item: self.inputs.append((tick, item)))
        self.waits: list[tuple[int, str, str, float, str]] = []
        self.runner.listen(waits=lambda *facts: self.waits.append(facts))

    def rover(self, answer: Reply = proportional, kind: str = TWIST) -> Replier:
        return Replier(self.bus, "rover", "/rover/odom", ODOM, answer, kind)

    def notes(self) -> str:
        return "\n".join(note.text for note in self.runner.notes.take())

    def until(self, is_true: Callable[[], bool]) -> None:
        """Run on until something holds; the test fails if it does not within a while."""
        end = time.monotonic() + 120.0
        while not is_true():
            assert time.monotonic() < end, self.notes()
            self.runner.run(1)


def digest(scenario: dict[str, Any], seed: int, rtf: float | None = None, longest_s: float = 0.004) -> str:
    loop = Loop(scenario, rtf)
    with ended(loop.rover(dawdling(seed, longest_s))):
        loop.runner.run(TICKS)
    return loop.sim.digest()


class _Killed(Exception):  # noqa: N818 - as a signal would
    pass


class Reader(threading.Thread):
    """As rclpy: one message of each subscription at a time, in the order of subscribing, then one request."""

    def __init__(
        self,
        bus: Bus,
        dawdles_s: float,
        loses: int = -1,
        replies: Callable[[int], bool] = lambda count: True,
        name: str = "reader",
        ros_args: Sequence[str] = (),
        dies_at: int = -1,
    ) -> None:
        """`loses`: the number of a request that is not answered; `replies`: to which message of odometry;
        `dies_at`: the number of a message of the IMU, at which it disappears and stays in the graph.
        """
        super().__init__(daemon=True)
        self.requests, self.loses, self.odometry, self._replies = 0, loses, 0, replies
        self.transport = MemoryTransport(name, ros_args, bus)
        self.transport.declare([Parameter("gain", 1.0)], lambda changes: "")
        self.transport.poll = self._turn  # type: ignore[method-assign]
        self.imu, self._dies_at = 0, dies_at
        self._dawdles_s, self._is_over, self._chance = dawdles_s, False, random.Random(int(1e6 * dawdles_s))
        self._commands = self.transport.publisher("/rover/cmd_vel", TWIST, Qos(10))
        self.transport.subscribe("/rover/imu/data_raw", "sensor_msgs/msg/Imu", Qos(10), self._on_imu)
        self.transport.subscribe("/rover/odom", ODOM, Qos(10), self._on_odometry)

    def _on_imu(self, cdr: bytes) -> None:
        self.imu += 1
        if self.imu == self._dies_at:
            raise _Killed

    def _on_odometry(self, cdr: bytes) -> None:
        self.odometry += 1
        if not self._replies(self.odometry):
            return
        command = wire.new(TWIST)
        command.linear.x = 0.01 * self.imu
        self._commands.publish(wire.encode(TWIST, command))

    def _turn(self, timeout_s: float = 0.0) -> None:
        bus = self.transport.bus
        time.sleep(self._dawdles_s * self._chance.random())
        with bus.changed:
            bus.changed.wait_for(self.transport._has_work, 0.01)
            ready = [each for each in bus.subscriptions if each.owner is self.transport and each.queue]
            servers = [each for each in bus.servers.values() if each.owner is self.transport and each.queue]
        for each in ready:
            each.on_message(each.queue.popleft())
        for server in servers:
            request = server.queue.popleft()
            if self.requests != self.loses:
                self.transport._answer(server, request)
            self.requests += 1

    def run(self) -> None:
        with suppress(_Killed):
            while not self._is_over:
                self._turn()
            self.transport.close()

    def end(self) -> None:
        self._is_over = True
        self.join()
