"""Bags of others, played into nodes on threads of their own: recorded order, gates, and one digest of the replies."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from rosbags.interfaces import Qos as RosbagsQos
from rosbags.interfaces import QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from typer.testing import CliRunner

from microsim import messages as wire
from microsim.cli import app
from microsim.errors import MicroSimError, UsageError
from microsim.messages.topics import Qos
from microsim.parts.ros2.bag_player import Playing
from microsim.parts.ros2.lockstep import LockstepError
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.recording.bag_model import BagError
from microsim.recording.bag_source import BagSource
from microsim.scenario import load_scenario

MS = 10**6
EPOCH = 1_700_000_000 * 10**9  # a real robot's clock
IMU, RANGE, STRING = "sensor_msgs/msg/Imu", "sensor_msgs/msg/Range", "std_msgs/msg/String"
CLOCK = "rosgraph_msgs/msg/Clock"
GAUGE = "yard_msgs/msg/Gauge"
LATCHED = RosbagsQos(
    QosHistory.KEEP_LAST, 1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, QosTime(0, 0), QosTime(0, 0),
    QosLiveliness.AUTOMATIC, QosTime(0, 0), False,
)  # fmt: skip
Entry = tuple[str, str, int, bytes]


def stamped(kind: str, time_ns: int, **values: Any) -> bytes:
    message = wire.new(kind, **values)
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(time_ns, 10**9)
    return wire.encode(kind, message)


def drive(count: int = 40) -> list[Entry]:
    """An IMU every 5 ms, and a range every 20 ms which often comes at the same time."""
    entries = [("/imu", IMU, EPOCH + 5 * MS * n, stamped(IMU, EPOCH + 5 * MS * n)) for n in range(count)]
    entries += [
        ("/range", RANGE, EPOCH + 20 * MS * n, stamped(RANGE, EPOCH + 20 * MS * n, range=float(n)))
        for n in range(count // 4)
    ]
    return sorted(entries, key=lambda entry: entry[2])


def write(folder: Path, entries: Sequence[Entry], storage: StoragePlugin = StoragePlugin.MCAP, **more: Any) -> Path:
    """By a writer of others."""
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(get_types_from_msg("std_msgs/Header header\nfloat64 level\n", GAUGE))
    with Writer(folder, version=9, storage_plugin=storage) as writer:
        known: dict[str, Any] = {}
        for topic, kind, time_ns, data in entries:
            if topic not in known:
                qos = [LATCHED] if topic in more.get("latched", ()) else []
                known[topic] = writer.add_connection(topic, kind, typestore=store, offered_qos_profiles=qos)
            writer.write(known[topic], time_ns, data)
    return folder


class Node(threading.Thread):
    """Handles one message at a time, dawdling, and replies with all that it has heard so far."""

    def __init__(
        self, bus: Bus, topics: dict[str, str], replies_to: str, seed: int = 0, longest_s: float = 0.002, depth: int = 1
    ) -> None:
        super().__init__(daemon=True)
        self.hangs_at = 0  # the number of a message: from there on it handles nothing
        self.heard: list[tuple[str, int]] = []
        self._transport = MemoryTransport("slam", bus=bus)
        self._transport.declare([], lambda changes: "")
        self._out = self._transport.publisher("/answer", STRING, Qos(10))
        self._path = self._transport.publisher("/path", STRING, Qos(10))
        self._chance, self._longest_s, self._replies_to = random.Random(seed), longest_s, replies_to
        self._is_over = False
        for topic, kind in topics.items():
            self._transport.subscribe(topic, kind, Qos(depth), self._take(topic, kind))

    def _take(self, topic: str, kind: str) -> Callable[[bytes], None]:
        def take(cdr: bytes) -> None:
            time.sleep(self._longest_s * self._chance.random())
            stamp = wire.decode(kind, cdr)
            stamp = stamp.clock if kind == CLOCK else stamp.header.stamp
            self.heard.append((topic, (stamp.sec * 10**9 + stamp.nanosec)))
            while len(self.heard) == self.hangs_at and not self._is_over:
                time.sleep(0.01)
            if topic == self._replies_to:
                told = f"{len(self.heard)} {hash(tuple(self.heard))}"
                self._out.publish(wire.encode(STRING, wire.new(STRING, data=told)))
                self._path.publish(wire.encode(STRING, wire.new(STRING, data=f"path {told}")))

        return take

    def run(self) -> None:
        while not self._is_over:
            self._transport.poll(0.01)
        self._transport.close()

    def end(self) -> None:
        self._is_over = True
        self.join()


@contextmanager
def played(
    bag: Path, gates: Sequence[dict[str, Any]], node: Callable[[Bus], Node], record: Path | None = None, **more: Any
) -> Iterator[tuple[BagSource, Node]]:
    bus = Bus()
    slam, transport = node(bus), MemoryTransport("microsim", ["--ros-args", "--disable-stdout-logs"], bus)
    slam.start()
    try:
        source = BagSource(bag, record, **more)
        playing = Playing(transport, load_scenario({"physics_hz": 1000, "lockstep": list(gates)}).lockstep)
        with closing(source), playing(source) as player:
            player.run()
        yield source, slam
    finally:
        slam.end()
        transport.close()


REPLY, SETTLE = {"after": "/range", "expect": "/answer"}, {"settle": {"node": "/slam"}}
GATE = ["--lockstep", "after: /range, expect: /answer"]
BOTH = {"/imu": IMU, "/range": RANGE}


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
@pytest.mark.parametrize("gate", [REPLY, SETTLE])
def test_a_node_with_queues_of_one_message_gets_every_message_in_recorded_order_whatever_its_delays(
    tmp_path: Path, gate: dict[str, Any], storage: StoragePlugin
) -> None:
    entries = drive()
    bag, digests = write(tmp_path / "bag", entries, storage), set()
    for seed in range(3):
        with played(bag, [gate], lambda bus, seed=seed: Node(bus, BOTH, "/range", seed)) as (source, node):  # type: ignore[misc]
            assert node.heard == [(topic, time_ns) for topic, _, time_ns, _ in entries]
            assert source.count == len(entries)
            digests.add(source.digest)
    assert len(digests) == 1


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_a_node_that_never_handles_the_last_message_is_named_and_holds_the_end_no_longer_than_it_may(
    tmp_path: Path, policy: str
) -> None:
    entries = drive()
    assert entries[-1][0] == "/imu", "no gate waits for it"
    bag = write(tmp_path / "bag", entries)

    def hanging(bus: Bus) -> Node:
        node = Node(bus, BOTH, "/range", longest_s=0.0)
        node.hangs_at = len(entries)
        return node

    problem = r"waiting at the end since \d\.\d s: /slam has not handled the last messages, sent at .*\.195 s"
    fails = pytest.raises(LockstepError, match=problem) if policy == "fail" else nullcontext()
    with fails, played(bag, [{**REPLY, "within": 1, "on_stall": policy}], hanging) as (source, _):
        assert source.count == len(entries)


def test_what_a_settled_node_publishes_is_recorded_with_the_time_of_its_message_and_can_be_read_by_others(
    tmp_path: Path,
) -> None:
    bag, recorded = write(tmp_path / "bag", drive()), []
    for name in ("one", "two"):
        with played(bag, [SETTLE], lambda bus: Node(bus, BOTH, "/range"), tmp_path / name) as (source, _):
            assert source.replies == 20
        with Reader(tmp_path / name) as reader:
            recorded.append([(each.topic, time_ns) for each, time_ns, _ in reader.messages()])
    times = [EPOCH + 20 * MS * n for n in range(10)]
    assert recorded[0] == [(topic, time_ns) for time_ns in times for topic in ("/answer", "/path")]
    data = [(tmp_path / name / "microsim_0.mcap").read_bytes() for name in ("one", "two")]
    assert data[0] == data[1]
    assert (tmp_path / "one" / "lockstep.csv").read_text().startswith("time_ns,expect,nodes,waited_ms,not_known\n")


def test_a_gate_with_a_period_sends_the_clock_at_its_multiples_between_messages(tmp_path: Path) -> None:
    bag = write(tmp_path / "bag", [each for each in drive() if each[0] == "/range"])
    gate = {"every": 0.005, "expect": "/answer"}
    with played(bag, [gate], lambda bus: Node(bus, {"/clock": CLOCK}, "/clock")) as (source, node):
        assert {time_ns for _, time_ns in node.heard} - {EPOCH} == {EPOCH + 5 * MS * n for n in range(1, 37)}
    assert source.replies >= 36


def test_the_clock_of_a_bag_is_the_time_of_its_messages(tmp_path: Path) -> None:
    """Recorded with simulated time in the messages, and the time of day as that of the recorder."""
    entries: list[Entry] = []
    for n in range(10):
        clock = wire.new(CLOCK)
        clock.clock.nanosec = 20 * MS * n
        entries.append(("/clock", CLOCK, EPOCH + 3 * n, wire.encode(CLOCK, clock)))
        entries.append(("/range", RANGE, EPOCH + 3 * n + 1, stamped(RANGE, 20 * MS * n)))
    bag = write(tmp_path / "bag", entries)
    with played(bag, [REPLY], lambda bus: Node(bus, {"/range": RANGE, "/clock": CLOCK}, "/range")) as (source, node):
        assert source.span_ns == 180 * MS
        assert {time_ns for topic, time_ns in node.heard if topic == "/clock"} == {20 * MS * n for n in range(10)}
    entries.append(("/clock", CLOCK, EPOCH + 100, wire.encode(CLOCK, wire.new(CLOCK))))
    with pytest.raises(BagError, match=r"/clock jumps back from 0\.180 s to 0\.000 s"):
        list(BagSource(write(tmp_path / "reset", entries)).messages())


def test_types_of_others_are_read_from_the_bag(tmp_path: Path) -> None:
    level = wire.encode("std_msgs/msg/Header", wire.new("std_msgs/msg/Header"))
    gauge = level + bytes(-len(level) % 8 + 4) + bytes(8)
    bag = write(tmp_path / "bag", [("/gauge", GAUGE, EPOCH + n * MS, gauge) for n in range(5)])
    source = BagSource(bag)
    assert source.topics["/gauge"] == (GAUGE, Qos(10))
    assert [message.cdr for _, message in source.messages() if message is not None] == [gauge] * 5
    assert wire.is_known(GAUGE)


def played_of(bag: Path) -> tuple[list[str], str, BagSource]:
    """Topics of the messages that are played, and notes."""
    source = BagSource(bag)
    return [each.topic for _, each in source.messages() if each is not None], "; ".join(source.notes), source


def test_a_topic_is_played_with_its_first_type_and_clock_only_with_its_own(tmp_path: Path) -> None:
    drive_ = drive(8)
    text = wire.encode(STRING, wire.new(STRING))
    entries = [("/clock", STRING, EPOCH, text), *drive_]
    store = get_typestore(Stores.ROS2_JAZZY)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        for topic, kind, time_ns, data in [*entries, ("/imu", STRING, EPOCH + 100 * MS, text)]:
            writer.write(_connection(writer, topic, kind, store), time_ns, data)
    topics, notes, source = played_of(tmp_path / "bag")
    assert topics == [topic for topic, *_ in drive_]
    other = "not played, because they have another type, too"
    assert notes == f"{other}: /clock (std_msgs/msg/String), /imu (std_msgs/msg/String)"
    assert source.span_ns == 35 * MS, "of the recorder: there is no /clock"


def _connection(writer: Writer, topic: str, kind: str, store: Any) -> Any:
    found = (each for each in writer.connections if (each.topic, each.msgtype) == (topic, kind))
    return next(found, None) or writer.add_connection(topic, kind, typestore=store)


def test_names_that_ros_2_does_not_have_are_left_out_and_named(tmp_path: Path) -> None:
    names = ["/a b", "/ü", "/1a", "/a//b", "/a/", "imu", "/_a1/b"]
    topics, notes, _ = played_of(write(tmp_path / "bag", [(name, IMU, EPOCH, stamped(IMU, 0)) for name in names]))
    assert topics == ["imu", "/_a1/b"]
    named = ", ".join(f"{name} ({IMU})" for name in names[:5])
    assert notes == f"not played, because their names are not those of topics of ROS 2: {named}"


def test_messages_that_are_empty_or_encoded_otherwise_are_left_out_and_counted(tmp_path: Path) -> None:
    """rosbag2 has recorded such where its middleware failed."""
    good = stamped(IMU, 0)
    data = [good, b"", b"\0\1\0\0", b"\0\0" + good[2:], good]
    topics, _, source = played_of(
        write(tmp_path / "bag", [("/imu", IMU, EPOCH + n, each) for n, each in enumerate(data)])
    )
    assert topics == ["/imu"] * 2
    assert source.damaged == {"/imu": 3}


def test_a_damaged_clock_is_named_with_its_bag(tmp_path: Path) -> None:
    bag = write(tmp_path / "bag", [("/clock", CLOCK, EPOCH, b"\0\1\0\0\1")])
    with pytest.raises(BagError, match=r"bag: /clock: rosgraph_msgs/msg/Clock: 1 bytes? (are|is) too few"):
        list(BagSource(bag).messages())


def test_a_bag_whose_types_have_other_fields_says_so(tmp_path: Path) -> None:
    """`Range` of Humble ends earlier than that of later distributions."""
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/range", RANGE, typestore=get_typestore(Stores.ROS2_HUMBLE))
        writer.write(connection, EPOCH, stamped(RANGE, 0)[:-4])
    topics, notes, _ = played_of(tmp_path / "bag")
    assert topics == ["/range"]
    assert notes.startswith(f"/range: the bag defines {RANGE} otherwise than ROS 2 Jazzy")
    assert not played_of(write(tmp_path / "today", drive(4)))[1]


def test_a_part_of_a_bag_begins_with_what_was_latched_before_it(tmp_path: Path) -> None:
    map_ = [("/map", STRING, EPOCH, wire.encode(STRING, wire.new(STRING, data="map")))]
    bag = write(tmp_path / "bag", [*map_, *drive()], latched=["/map"])
    source = BagSource(bag, None, (Fraction("0.1"), Fraction("0.15")), [], ["/imu"])
    found = [(message.topic, time_ns - EPOCH) for time_ns, message in source.messages() if message is not None]
    assert found == [("/map", 100 * MS), ("/range", 100 * MS), ("/range", 120 * MS), ("/range", 140 * MS)]
    assert source.topics["/map"][1].latched
    assert "/imu" not in source.topics


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--with", "node"], "add --lockstep"),
        (["--lockstep", "after: /rang, expect: /answer"], r"the bag has no /rang; did you mean '/range'"),
        (["--lockstep", "after: /range"], "missing key 'expect' or 'settle'"),
        (["--lockstep", "after: /range, expect: /x", "--transport", "none"], "leave out --transport none"),
        (
            ["--lockstep", "after: /range, expect: /x", "--verify"],
            "plays the bag's messages into nodes: leave out --verify",
        ),
        (
            ["--lockstep", "after: /range, expect: /x", "--topics", "/tf*"],
            "no topic fits '/tf\\*'; there are: /imu, /range",
        ),
        (["--topics", "/range"], "add --lockstep GATE"),
    ],
)
def test_what_cannot_be_played_is_refused(tmp_path: Path, options: list[str], expected: str) -> None:
    bag = write(tmp_path / "bag", drive(4))
    result = CliRunner().invoke(app, ["replay", str(bag), *options])
    assert isinstance(result.exception, MicroSimError)
    assert re.search(expected, str(result.exception))


def test_a_gate_with_stamps_needs_a_reply_that_has_one(tmp_path: Path) -> None:
    bag = write(tmp_path / "bag", drive(8))
    gate = {**REPLY, "match": "stamp"}
    with pytest.raises(UsageError, match="/answer is a std_msgs/msg/String, which has no stamp"):  # noqa: SIM117
        with played(bag, [gate], lambda bus: Node(bus, BOTH, "/range")):
            pass
