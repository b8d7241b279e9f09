"""Two streams of messages side by side: `microsim diff`, and the first difference of a replay."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile, zip_longest
from typing import Any

import numpy as np

from microsim.messages import WireError, decode_checked, fields_of, is_known
from microsim.messages.outbox import Message
from microsim.recording.bag import ForeignBag, OwnBag
from microsim.recording.bag_model import BagChannel, BagError, Block
from microsim.recording.inputs import is_input
from microsim.recording.recorder import CLOCK


@dataclass(frozen=True)
class BagEntry:
    """One message of a stream."""

    topic: str
    type: str
    time_ns: int
    cdr: bytes

    def __str__(self) -> str:
        return f"{self.topic} at {self.time_ns / 1e9:.9f} s"


@dataclass(frozen=True)
class StreamPlace:
    """A message with the one before and the one after it; None: there is none."""

    before: BagEntry | None
    here: BagEntry | None
    after: BagEntry | None

    def __str__(self) -> str:
        if self.here is None:
            return f"nothing more, after {self.before or 'nothing'}"
        return f"{self.here}, between {self.before or 'the start'} and {self.after or 'the end'}"


@dataclass(frozen=True)
class Difference:
    """The first difference between two streams, and what to call them."""

    number: int  # messages that are the same before it
    first: StreamPlace
    second: StreamPlace
    names: tuple[str, str] = ("recorded", "replayed")

    def field(self) -> tuple[str, Any, Any] | None:
        """Path and both values, when the same message is in both with another content."""
        one, other = self.first.here, self.second.here
        if one is None or other is None or (one.topic, one.type) != (other.topic, other.type):
            return None
        return first_field(one.type, one.cdr, other.cdr)

    def __str__(self) -> str:
        width = max(map(len, self.names))
        lines = [self._headline()]
        found = self.field()
        if found is not None:
            where, *values = _shown_apart(*found)
            lines.append(f"  field {where}")
            for name, value in zip(self.names, values, strict=True):
                lines.append(f"    {name:{width}}  {value}")
        for name, place in zip(self.names, (self.first, self.second), strict=True):
            lines.append(f"  {name:{width}}  {place}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For machines; `about` is what a person is told."""
        entry = self.first.here or self.second.here
        facts: dict[str, Any] = {"after_messages": self.number, "topic": None, "time_ns": None, "field": None}
        if entry is not None:
            facts |= {"topic": entry.topic, "time_ns": entry.time_ns}
        found = self.field()
        if found is not None:
            where, *values = _shown_apart(*found)
            facts |= {"field": where, "values": dict(zip(self.names, values, strict=True))}
        return {**facts, "about": str(self)}

    def _headline(self) -> str:
        entry = self.first.here or self.second.here
        stamp = stamp_of(entry) if entry is not None else None
        stamped = f", stamp {stamp / 1e9:.9f} s" if stamp is not None else ""
        return f"different after {self.number:,} messages: {entry or 'the end'}{stamped}"


def stamp_of(entry: BagEntry) -> int | None:
    """[ns] of the message's header or clock, where it has one."""
    try:
        message = decode_checked(entry.type, entry.cdr)
    except (WireError, KeyError):
        return None
    stamp = getattr(getattr(message, "header", None), "stamp", getattr(message, "clock", None))
    return None if stamp is None else int(stamp.sec) * 10**9 + int(stamp.nanosec)


def first_field(type_name: str, one: bytes, other: bytes) -> tuple[str, Any, Any] | None:
    """Path of the first field that differs, and its two values."""
    if one == other:
        return None
    try:
        if not is_known(type_name):
            raise WireError("a type of its own")
        first, second = decode_checked(type_name, one), decode_checked(type_name, other)
    except WireError:
        return _first_byte(one, other)
    return next(_differences(type_name, first, second, ""), None) or _first_byte(one, other)


def _first_byte(one: bytes, other: bytes) -> tuple[str, Any, Any]:
    at = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return "(length in bytes)", len(one), len(other)
    return f"(byte {at})", one[at], other[at]


def _differences(type_name: str, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    for name, (_, detail) in fields_of(type_name):
        inner = f"{path}.{name}" if path else name
        yield from _values(detail, getattr(one, name), getattr(other, name), inner)


def _values(detail: Any, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(detail, str):
        yield from _differences(detail, one, other, path)
    elif isinstance(one, (list, np.ndarray)):
        yield from _elements(detail, one, other, path)
    elif not _same(one, other):
        yield path, one, other


def _elements(detail: Any, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if len(one) != len(other):
        yield f"{path} (length)", len(one), len(other)
    if isinstance(one, np.ndarray):
        shared = min(len(one), len(other))
        wide = f"V{one.dtype.itemsize}"
        for index in np.flatnonzero(one[:shared].view(wide) != other[:shared].view(wide))[:1].tolist():
            yield f"{path}[{index}]", one[index].item(), other[index].item()
        return
    kind = detail[0][1] if isinstance(detail, Sequence) and isinstance(detail[0], Sequence) else detail
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        yield from _values(kind, left, right, f"{path}[{index}]")


def _same(one: Any, other: Any) -> bool:
    """Bit for bit: 0.0 and -0.0 differ, a NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return bool(one == other)


_WIDTH = 200  # of a value, in characters
_BEFORE = 60  # characters of a long text that are shown before the first difference


def _shown_apart(path: str, one: Any, other: Any) -> tuple[str, str, str]:
    """Of long texts, the part in which they differ."""
    if isinstance(one, str) and isinstance(other, str) and max(len(one), len(other)) > _WIDTH:
        at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        start = max(at - _BEFORE, 0)
        dots = "…" if start else ""
        shown = [f"{dots}{_shown(text[start : start + _WIDTH - _BEFORE])}" for text in (one, other)]
        return f"{path}, from character {at:,} on", shown[0], shown[1]
    return path, _shown(one), _shown(other)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}…"


def recorded_choice(bag: OwnBag) -> dict[str, list[str]]:
    """Patterns of the topics that were chosen and left out; empty: all were recorded."""
    try:
        choice = json.loads(bag.facts.start.get("topics", "{}"))
        return {key: list(map(str, patterns)) for key, patterns in choice.items() if patterns}
    except (ValueError, AttributeError, TypeError):
        raise BagError(f"{bag.path}: damaged: the choice of topics cannot be read") from None


def is_chosen(bag: OwnBag, topic: str) -> bool:
    """Whether this topic was to be recorded. Inputs always are."""
    if is_input(topic):
        return True
    choice = recorded_choice(bag)
    only, left_out = choice.get("only", []), choice.get("without", [])
    chosen = not only or any(fnmatchcase(topic, pattern) for pattern in only)
    return chosen and not any(fnmatchcase(topic, pattern) for pattern in left_out)


def without(block: Block, places: Sequence[int]) -> Block:
    """The block without the entries at these places."""
    gone = set(places)
    kept = [index for index in range(len(block.numbers)) if index not in gone]
    return Block(
        block.channels,
        [block.numbers[index] for index in kept],
        [block.times[index] for index in kept],
        [block.data[index] for index in kept],
    )


class DifferentError(Exception):
    def __init__(self, difference: Difference) -> None:
        self.difference = difference


class MessageComparison:
    """Two streams side by side: what the simulation sends, and what was recorded. Both keep whole ticks together."""

    def __init__(self, bag: OwnBag) -> None:
        self._bag = bag
        self.same = 0
        self.is_partial = bool(recorded_choice(bag))
        self._numbers: dict[str, int] = {}  # by topic; 0: not recorded by choice, -1: recorded never
        self._channels: dict[int, BagChannel] = {}
        self._sent = Block()
        self._strangers: dict[int, tuple[str, str]] = {}
        self._time = 0
        self._before: tuple[BagEntry | None, BagEntry | None] = (None, None)

    def collect(self, messages: Sequence[Message]) -> None:
        numbers, sent, time = self._numbers, self._sent, self._time
        for message in messages:
            topic = message.topic
            if topic == CLOCK:
                time = message.stamp_ns
            number = numbers.get(topic)
            if number is None:
                number = self._stranger(topic, message.type)
            if number:
                sent.numbers.append(number)
                sent.times.append(time)
                sent.data.append(message.cdr)
        self._time = time

    def _stranger(self, topic: str, type_name: str) -> int:
        """A topic that the bag has not named so far."""
        if not is_chosen(self._bag, topic):
            self._numbers[topic] = 0
            return 0
        number = -1 - len(self._strangers)
        self._strangers[number] = (topic, type_name)
        self._numbers[topic] = number
        return number

    def compare(self, recorded: Block) -> None:
        """What was sent so far with this block."""
        for channel in recorded.channels:
            self._channels[channel.number] = channel
            number = self._numbers.get(channel.topic)
            self._numbers[channel.topic] = channel.number
            if number is not None and number < 0:
                self._rename(number, channel.number)
        sent = self._sent
        if sent.numbers != recorded.numbers or sent.times != recorded.times or sent.data != recorded.data:
            raise DifferentError(self._first(recorded))
        if sent.numbers:
            self._before = self._entry(recorded, -1), self._entry(sent, -1)
        self.same += len(sent.numbers)
        self._sent.numbers, self._sent.times, self._sent.data = [], [], []

    def _rename(self, old: int, new: int) -> None:
        """A topic whose first message was sent in this very block, before the block named it."""
        if self._channels[new].type == self._strangers[old][1]:
            self._sent.numbers = [new if number == old else number for number in self._sent.numbers]

    def rest(self) -> Difference | None:
        """After the recording's end nothing may be left."""
        return self._first(Block()) if self._sent.numbers else None

    def _first(self, recorded: Block) -> Difference:
        sent = self._sent
        pairs = [list(zip(b.numbers, b.times, b.data, strict=True)) for b in (recorded, sent)]
        shared = min(map(len, pairs))
        index = next((i for i in range(shared) if pairs[0][i] != pairs[1][i]), shared)
        first = self._place(recorded, index, self._before[0])
        return Difference(self.same + index, first, self._place(sent, index, self._before[1]))

    def _place(self, block: Block, index: int, before: BagEntry | None) -> StreamPlace:
        return StreamPlace(
            self._entry(block, index - 1) if index else before, *(self._entry(block, index + n) for n in (0, 1))
        )

    def _entry(self, block: Block, index: int) -> BagEntry | None:
        if index >= len(block.numbers):
            return None
        number = block.numbers[index]
        if number < 0:
            topic, type_name = self._strangers[number]
        else:
            topic, type_name = self._channels[number].topic, self._channels[number].type
        return BagEntry(topic, type_name, block.times[index], block.data[index])


@dataclass(frozen=True)
class BagComparison:
    """What `diff` found; `notes` are differences beside the messages, and what was left out."""

    messages: int
    difference: Difference | None
    notes: tuple[str, ...]
    problem: str = ""  # every message that both hold is the same, and yet the runs are not, or nobody knows
    is_partial: bool = False  # some topics are in one of them only, because the other left them out

    @property
    def is_identical(self) -> bool:
        return self.difference is None and not self.problem

    def to_dict(self) -> dict[str, Any]:
        difference = None if self.difference is None else self.difference.to_dict()
        facts = {"identical": self.is_identical, "messages": self.messages, "difference": difference}
        return {**facts, "problem": self.problem, "is_partial": self.is_partial, "notes": list(self.notes)}

    def __str__(self) -> str:
        if self.difference is not None:
            head = str(self.difference)
        elif self.problem:
            head = f"different: {self.problem}"
        else:
            head = f"identical{' in what both hold' if self.is_partial else ''}: {self.messages:,} messages"
        return "\n".join([head, *(f"  {note}" for note in self.notes)])


def diff(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag) -> BagComparison:
    """The first difference in the topics that both hold."""
    topics = _topics(one), _topics(other)
    shared = topics[0] & topics[1]
    notes = [
        f"only in {bag.path}: {', '.join(sorted(own - shared))}"
        for bag, own in zip((one, other), topics, strict=True)
        if own - shared
    ]
    is_partial = bool(notes)
    found = _first(one, other, shared, notes + _facts(one, other))
    if found.difference is not None:
        return found
    found = replace(found, problem=_problem(one, other, topics), is_partial=is_partial)
    if is_partial and found.is_identical and one.facts.end.get("digest") == other.facts.end.get("digest", "?"):
        return replace(found, notes=(*found.notes, "the digest, which covers all topics, is the same"))
    return found


def _problem(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag, topics: tuple[set[str], set[str]]) -> str:
    """Why two bags are not the same run though no message of the topics they share differs."""
    for bag, lacking in ((one, topics[1] - topics[0]), (other, topics[0] - topics[1])):
        missing = sorted(topic for topic in lacking if isinstance(bag, OwnBag) and is_chosen(bag, topic))
        if missing:
            return f"{bag.path} has nothing on {', '.join(missing)}"
    digests = one.facts.end.get("digest", ""), other.facts.end.get("digest", "")
    if all(digests):
        same = digests[0] == digests[1]
        return "" if same else "the messages that both hold are the same, but the digests of all are not"
    if topics[0].isdisjoint(topics[1]) and topics[0] | topics[1]:
        return "they have no topic in common: there is nothing to compare"
    return ""


def _first(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag, shared: set[str], notes: list[str]) -> BagComparison:
    pairs = zip_longest(_entries(one, shared), _entries(other, shared))
    before: tuple[BagEntry | None, BagEntry | None] = (None, None)
    count = 0
    for left, right in pairs:
        if left != right:
            following = next(pairs, (None, None))
            places = [StreamPlace(*triple) for triple in zip(before, (left, right), following, strict=True)]
            names = (str(one.path), str(other.path))
            return BagComparison(count, Difference(count, places[0], places[1], names), tuple(notes))
        before, count = (left, right), count + 1
    return BagComparison(count, None, tuple(notes))


def _topics(bag: OwnBag | ForeignBag) -> set[str]:
    return {channel.topic for block in bag.blocks() for channel in block.channels}


def _entries(bag: OwnBag | ForeignBag, topics: set[str]) -> Iterator[BagEntry]:
    channels: dict[int, BagChannel] = {}
    for block in bag.blocks():
        channels.update((channel.number, channel) for channel in block.channels)
        for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
            channel = channels[number]
            if channel.topic in topics:
                yield BagEntry(channel.topic, channel.type, time, data)


def _facts(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag) -> list[str]:
    """What was told about the runs, where both were told of."""
    if not (one.is_ours and other.is_ours):
        return []
    left, right = ({**bag.facts.start, **bag.facts.end} for bag in (one, other))
    notes = []
    for key in ("version", "seed", "ticks", "digest", "complete"):
        if left.get(key) != right.get(key):
            notes.append(f"{key}: {left.get(key, 'unknown')} and {right.get(key, 'unknown')}")
    if left["scenario"] != right["scenario"]:
        notes.append("the scenarios differ")
    return notes
