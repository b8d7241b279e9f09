"""Any bag as a source of messages for nodes, and what nodes publish meanwhile as another bag with one digest."""

from __future__ import annotations

import re
import struct
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from microsim.engine.timekeeper import NS_PER_S
from microsim.errors import UsageError, os_errors, there_are
from microsim.messages import WireError, decode_checked, fields_of
from microsim.messages.outbox import STAMP_AND_LENGTH, Message, name_in_transcript
from microsim.messages.topics import DEFAULT_QOS, TOPICS, Qos
from microsim.messages.type_files import add_definition, defined_otherwise, find_type
from microsim.messages.types import ENCAPSULATION
from microsim.recording.bag_io import BagWriter, DescribedChannel, ForeignBag, RecordOptions, open_bag
from microsim.recording.bag_model import BagChannel, BagError, Block, RunInfo, fits, qos_text
from microsim.recording.inputs import JSON_TOPICS
from microsim.recording.recorder import GateLog

CLOCK = TOPICS["clock"].name
_MOST_LATCHED = 1000
_AT_ONCE = 1000  # messages in a block of what is recorded
_HEADER = "std_msgs/msg/Header"
_NAME = re.compile(r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)


class BagSource:
    """Gives the messages of a bag in recorded order, and takes what nodes answer.

    The time of a message is that of the recorder. In a bag with /clock it is simulated time: the latest on that topic.
    """

    def __init__(
        self,
        path: Path,
        record: Path | None = None,
        span: tuple[Fraction | None, Fraction | None] = (None, None),
        only: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        """`span`: from when to when [s], from the first message on. `only`, `without`: shell patterns of topics."""
        self.notes: list[str] = []
        self.count = self.replies = 0
        self.span_ns = 0  # from the first message that was played to the latest
        open_bag(path)  # says what is wrong with one of ours
        self._bag, self._span = ForeignBag(path), span  # as they are all read
        self.damaged = Counter[str]()  # by topic: messages that are empty, or not in CDR of little endian
        self._digest = sha256()
        self._has_clock = False
        self._stamped: dict[str, bool] = {}  # by topic: whether its messages begin with a header
        self.topics = {CLOCK: (TOPICS["clock"].type, TOPICS["clock"].qos), **self._topics(only, without)}
        self._writer = None if record is None else BagWriter(record, RunInfo({}, {}), RecordOptions())
        self._waits = None if record is None else GateLog(record)
        self._channels: dict[tuple[str, str], BagChannel] = {}
        self._block = Block()

    # ---- what is played ----------------------------------------------------------------------------------------------

    def _topics(self, only: Sequence[str], without: Sequence[str]) -> dict[str, tuple[str, Qos]]:
        found: dict[str, tuple[str, Qos]] = {}
        left_out: dict[str, list[str]] = {}  # by reason
        latched: Counter[str] = Counter()  # messages of each topic, of all its publishers
        for channel in self._bag.channels():
            topic = channel.topic
            if topic in JSON_TOPICS or (topic != CLOCK and not fits(topic, only, without)):
                continue
            expected = TOPICS["clock"].type if topic == CLOCK else found.get(topic, (channel.type,))[0]
            if problem := _problem(channel, expected):
                left_out.setdefault(problem, []).append(f"{topic} ({channel.type})")
            elif topic == CLOCK:
                self._has_clock = self._has_clock or channel.messages > 0
            else:
                latched[topic] += channel.messages if channel.latched else 0
                depth = min(latched[topic], _MOST_LATCHED) or DEFAULT_QOS.depth
                found[topic] = (channel.type, Qos(depth, latched=latched[topic] > 0))
                first = next(iter(fields_of(channel.type)), None)
                self._stamped[topic] = first is not None and first[1][1] == _HEADER
                self._note_version(channel)
        everything = {channel.topic for channel in self._bag.channels()}
        for pattern in only:
            if not any(fits(topic, [pattern], ()) for topic in everything):
                raise UsageError(f"no topic fits {pattern!r}; {there_are(sorted(everything))}")
        self.notes += [f"not played, because {problem}: {', '.join(topics)}" for problem, topics in left_out.items()]
        return found

    def _note_version(self, channel: DescribedChannel) -> None:
        """Of types that other versions of ROS 2 define otherwise, such as `sensor_msgs/msg/Range` of Humble."""
        try:
            others = defined_otherwise(channel.type, channel.definition, channel.is_idl) if channel.definition else []
        except UsageError:  # it is known anyway
            return
        if others:
            rule = "only nodes with the version of the bag read it right"
            self.notes.append(
                f"{channel.topic}: the bag defines {', '.join(others)} otherwise than ROS 2 Jazzy: {rule}"
            )

    def messages(self) -> Iterator[tuple[int, Message | None]]:
        """Times, and messages in recorded order; None: only time passes."""
        latched: dict[str, deque[Message]] = {}  # from before the start
        start_ns, end_ns = (None if each is None else int(each * NS_PER_S) for each in self._span)
        first_ns = begin_ns = None
        for time_ns, message in self._timed():
            if first_ns is None:
                first_ns = time_ns
            gone_ns = time_ns - first_ns
            if end_ns is not None and gone_ns > end_ns:
                break
            if start_ns is not None and gone_ns < start_ns:
                if message is not None and self.topics[message.topic][1].latched:
                    kept = latched.setdefault(message.topic, deque(maxlen=self.topics[message.topic][1].depth))
                    kept.append(message)
                continue
            for messages in latched.values():
                yield from ((time_ns, each) for each in messages)
            self.count += sum(map(len, latched.values())) + (message is not None)
            latched.clear()
            begin_ns = time_ns if begin_ns is None else begin_ns
            self.span_ns = time_ns - begin_ns
            yield time_ns, message

    def _timed(self) -> Iterator[tuple[int, Message | None]]:
        channels: dict[int, BagChannel] = {}
        waiting: list[Message] = []  # from before the first /clock
        now_ns: int | None = None
        for block in self._bag.blocks():
            channels.update((channel.number, channel) for channel in block.channels)
            for number, time_ns, cdr in zip(block.numbers, block.times, block.data, strict=True):
                topic, type_name = channels[number].topic, channels[number].type
                if self.topics.get(topic, ("",))[0] != type_name:
                    continue
                if len(cdr) <= len(ENCAPSULATION) or not cdr.startswith(ENCAPSULATION[:2]):
                    self.damaged[topic] += 1
                elif topic == CLOCK:
                    try:
                        stamp = decode_checked(type_name, cdr).clock
                    except WireError as error:
                        raise BagError(f"{self._bag.path}: {topic}: {error}") from None
                    clock_ns = stamp.sec * NS_PER_S + stamp.nanosec
                    if now_ns is not None and clock_ns < now_ns:
                        back = f"from {now_ns / 1e9:.3f} s to {clock_ns / 1e9:.3f} s"
                        raise BagError(f"{self._bag.path}: /clock jumps back {back}: play each run by itself")
                    now_ns = clock_ns
                    yield now_ns, None
                    yield from ((now_ns, each) for each in waiting)
                    waiting.clear()
                else:
                    message = Message(topic, type_name, self._stamp_ns(topic, time_ns, cdr), cdr)
                    if not self._has_clock:
                        yield time_ns, message
                    elif now_ns is None:
                        waiting.append(message)
                    else:
                        yield now_ns, message

    def _stamp_ns(self, topic: str, time_ns: int, cdr: bytes) -> int:
        """Of its header."""
        if not self._stamped[topic] or len(cdr) < 12:
            return time_ns
        seconds, nanoseconds = struct.unpack_from("<iI" if cdr[1] & 1 else ">iI", cdr, 4)
        return int(seconds) * NS_PER_S + int(nanoseconds)

    # ---- what nodes publish ------------------------------------------------------------------------------------------

    def take(self, time_ns: int, topic: str, type_name: str, cdr: bytes) -> None:
        head = name_in_transcript(topic, type_name) + STAMP_AND_LENGTH.pack(time_ns, len(cdr))
        self._digest.update(head + cdr)
        self.replies += 1
        if self._writer is None:
            return
        key = topic, type_name
        if key not in self._channels:
            channel = BagChannel(len(self._channels) + 1, topic, type_name, qos_text(DEFAULT_QOS))
            self._channels[key] = channel
            self._block.channels.append(channel)
        self._block.numbers.append(self._channels[key].number)
        self._block.times.append(time_ns)
        self._block.data.append(cdr)
        self._block.size += len(cdr)
        if len(self._block.numbers) >= _AT_ONCE:
            self._write()

    def note_wait(self, time_ns: int, topic: str, nodes: str, waited_s: float, doubt: str) -> None:
        if self._waits is not None:
            self._waits.add(time_ns, topic, nodes, waited_s, doubt)

    def _write(self) -> None:
        if self._writer is not None and self._block.numbers:
            with os_errors(f"{self._writer.folder} cannot be written", BagError):
                self._writer.write(self._block)
        self._block = Block()

    @property
    def digest(self) -> str:
        """Of all that nodes published, with its times."""
        return self._digest.hexdigest()

    def close(self) -> None:
        self._write()
        if self._writer is not None:
            with os_errors(f"{self._writer.folder} cannot be written", BagError):
                self._writer.close({})
        if self._waits is not None:
            self._waits.close()


def _problem(channel: DescribedChannel, expected: str) -> str:
    """Why a topic, or one of its types, cannot be played; empty: it can."""
    if not _NAME.fullmatch(channel.topic):
        return "their names are not those of topics of ROS 2"
    try:
        if channel.definition:
            add_definition(channel.type, channel.definition, channel.is_idl)
        is_known = find_type(channel.type)
    except UsageError:
        is_known = False
    if not is_known:
        return "the bag does not define their types"
    return "" if channel.type == expected else "they have another type, too"
