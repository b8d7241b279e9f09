"""Two streams of messages side by side: `microsim diff`, and the first difference of a replay."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from microsim.errors import show
from microsim.messages import WireError, decode_checked, fields_of, is_known
from microsim.messages.outbox import Message
from microsim.recording.bag_io import Bag, OwnBag
from microsim.recording.bag_model import BagChannel, BagError, fits
from microsim.recording.inputs import is_input
from microsim.recording.recorder import CLOCK, has_gates, repliers


def _seconds(time_ns: int) -> str:
    """Exact, without zeros that say nothing: `12.5 s`."""
    return f"{time_ns / 1e9:.9f}".rstrip("0").rstrip(".") + " s"


class BagEntry(NamedTuple):
    topic: str
    type: str
    time_ns: int
    cdr: bytes

    def __str__(self) -> str:
        return f"{self.topic} at {_seconds(self.time_ns)}"


class StreamPlace(NamedTuple):
    """A message with the ones before and after it; None: there is none."""

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
        entry = self.first.here or self.second.here
        stamp = stamp_of(entry) if entry is not None else None
        stamped = f", stamp {_seconds(stamp)}" if stamp is not None else ""
        same = f"{self.number:,} equal message{'s' * (self.number != 1)}"
        lines = [f"different after {same}: {entry or 'the end'}{stamped}"]
        found = self.field()
        if found is not None:
            where, *values = shown_apart(*found)
            lines.append(f"  field {where}")
            for name, value in zip(self.names, values, strict=True):
                lines.append(f"    {name:{width}}  {value}")
        for name, place in zip(self.names, (self.first, self.second), strict=True):
            lines.append(f"  {name:{width}}  {place}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For machines; `about` is the text for people."""
        entry = self.first.here or self.second.here
        plain: dict[str, Any] = {"after_messages": self.number, "topic": None, "time_ns": None, "field": None}
        if entry is not None:
            plain |= {"topic": entry.topic, "time_ns": entry.time_ns}
        found = self.field()
        if found is not None:
            where, *values = shown_apart(*found)
            plain |= {"field": where, "values": dict(zip(self.names, values, strict=True))}
        return {**plain, "about": str(self)}


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


def _differences(detail: Any, one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Path and values of fields that differ; `detail` is the name of a message's type, or describes a field."""
    if isinstance(detail, str):
        for name, (_, inner) in fields_of(detail):
            yield from _differences(inner, getattr(one, name), getattr(other, name), f"{path}.{name}" if path else name)
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
        yield from _differences(kind, left, right, f"{path}[{index}]")


def _same(one: Any, other: Any) -> bool:
    """Bit for bit: 0.0 and -0.0 differ, a NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)
    return bool(one == other)


_WIDTH = 200  # of a value, in characters
_BEFORE = 60  # characters of a long text that are shown before the first difference


def shown_apart(path: str, one: Any, other: Any) -> tuple[str, str, str]:
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


def first_difference(
    one: Iterable[BagEntry], other: Iterable[BagEntry], names: tuple[str, str]
) -> tuple[int, Difference | None]:
    """How many messages are the same, and the first that is not."""
    pairs = zip_longest(one, other)
    before: tuple[BagEntry | None, BagEntry | None] = (None, None)
    count = 0
    for left, right in pairs:
        if left != right:
            following = next(pairs, (None, None))
            first, second = map(StreamPlace, before, (left, right), following)
            return count, Difference(count, first, second, names)
        before, count = (left, right), count + 1
    return count, None


def recorded_entries(bag: Bag, is_wanted: Callable[[str], bool]) -> Iterator[BagEntry]:
    """What a bag holds on some topics."""
    channels: dict[int, BagChannel] = {}
    for block in bag.blocks():
        channels.update((channel.number, channel) for channel in block.channels if is_wanted(channel.topic))
        for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
            if (channel := channels.get(number)) is not None:
                yield BagEntry(channel.topic, channel.type, time, data)


def sent_entries(portions: Iterable[Sequence[Message]], is_wanted: Callable[[str], bool]) -> Iterator[BagEntry]:
    """What a simulation sends on some topics, as a recorder would write it down."""
    wanted = cache(is_wanted)
    time = 0
    for messages in portions:
        for message in messages:
            time = message.stamp_ns if message.topic == CLOCK else time
            if wanted(message.topic):
                yield BagEntry(message.topic, message.type, time, message.cdr)


def recorded_choice(bag: OwnBag) -> dict[str, list[str]]:
    """Patterns of the topics that were chosen and left out; empty: all were recorded."""
    try:
        choice = json.loads(bag.run_info.start.get("topics", "{}"))
        return {key: list(map(str, patterns)) for key, patterns in choice.items() if patterns}
    except (ValueError, AttributeError, TypeError):
        raise BagError(f"{bag.path}: damaged: the choice of topics cannot be read") from None


def is_chosen(bag: OwnBag, topic: str) -> bool:
    """Whether this topic was to be recorded. Inputs always are."""
    choice = recorded_choice(bag)
    return is_input(topic) or fits(topic, choice.get("only", ()), choice.get("without", ()))


@dataclass(frozen=True)
class BagComparison:
    """What `diff` found; `notes` are other differences than messages, and what was left out.

    `causes`: why the runs differ, as far as that is known: `seeds (1 and 2)`; None: one is not a MicroSim recording.
    """

    messages: int
    difference: Difference | None
    notes: tuple[str, ...]
    problem: str = ""  # every message that both hold is the same, but the runs differ, or cannot be compared
    is_partial: bool = False  # some topics are in one of them only, because the other left them out
    causes: tuple[str, ...] | None = ()
    culprit: str = ""  # the node whose reply is the first message that differs, and when
    doubt: str = ""  # why no node is named, although a reply is the first

    @property
    def is_identical(self) -> bool:
        return self.difference is None and not self.problem

    def to_dict(self) -> dict[str, Any]:
        difference = None if self.difference is None else self.difference.to_dict()
        found = {"identical": self.is_identical, "messages": self.messages, "difference": difference}
        more = {"problem": self.problem, "is_partial": self.is_partial, "notes": list(self.notes)}
        return {**found, **more, "culprit": self.culprit, "doubt": self.doubt, "summary": self.summary()}

    def summary(self) -> str:
        """One sentence: whether they differ, why, and in which message first."""
        if self.is_identical:
            return f"identical{' in the topics of both' if self.is_partial else ''}: {self.messages:,} messages"
        why = "different"
        if self.culprit:
            why = f"different: {self.culprit}"
        elif self.doubt:
            why = f"different: {self.doubt}"
        elif self.causes:
            why = f"different {' and '.join(self.causes)}"
        elif self.causes is not None:
            why = "different, although version, scenario and seed are the same"
        return f"{why}; {self._where()}"

    def _where(self) -> str:
        if self.difference is None:
            return self.problem
        place = self.difference.first.here or self.difference.second.here
        return f"the first message that differs is {place or 'the end'}"

    def __str__(self) -> str:
        head = [self.summary(), *([] if self.difference is None else [str(self.difference)])]
        return "\n".join([*head, *(f"  {note}" for note in self.notes)])


def diff(one: Bag, other: Bag) -> BagComparison:
    """The first difference in the topics that both hold."""
    topics = _topics(one), _topics(other)
    shared = topics[0] & topics[1]
    extra = [(bag.path, sorted(own - shared)) for bag, own in zip((one, other), topics, strict=True)]
    notes = [f"only in {path}: {', '.join(names)}" for path, names in extra if names]
    is_partial = bool(notes)
    causes, others = _causes(one, other)
    notes += others
    left, right = (recorded_entries(bag, shared.__contains__) for bag in (one, other))
    count, difference = first_difference(left, right, (str(one.path), str(other.path)))
    if difference is not None:
        culprit, doubt = ("", "") if causes else _culprit(difference, one, other)
        return BagComparison(count, difference, tuple(notes), causes=causes, culprit=culprit, doubt=doubt)
    problem = _problem(one, other, topics)
    if is_partial and not problem and one.run_info.end.get("digest") == other.run_info.end.get("digest", "?"):
        notes.append("the digest, which covers all topics, is the same")
    return BagComparison(count, None, tuple(notes), problem, is_partial, causes)


def _culprit(difference: Difference, one: Bag, other: Bag) -> tuple[str, str]:
    """`/planner replied differently to the same inputs at 12.35 s`, where an input of a lockstep run is the first.

    A node is named only if all it received until then was recorded, in the order in which it handled it; the second
    text says what is not known.
    """
    places = [side.here for side in (difference.first, difference.second)]
    replies = [entry for entry in places if entry is not None and is_input(entry.topic)]
    if not any(has_gates(Path(bag.path)) for bag in (one, other)) or not replies:
        return "", ""
    entry = min(replies, key=lambda entry: (entry.time_ns, entry.topic))
    found = [repliers(Path(bag.path), entry.topic, entry.time_ns) for bag in (one, other)]
    nodes = next((names for names, _ in found if names), "")
    doubt = next((why for names, why in found if names and why), "")
    if not nodes or doubt:
        why = doubt or "the node that replied has no name"
        return "", f"the reply differs, but not all inputs before it are known: {why}"
    return f"{nodes} replied differently to the same inputs at {_seconds(entry.time_ns)}", ""


def _problem(one: Bag, other: Bag, topics: tuple[set[str], set[str]]) -> str:
    """Why two bags are not the same run though no message of the topics they share differs."""
    for bag, lacking in ((one, topics[1] - topics[0]), (other, topics[0] - topics[1])):
        missing = sorted(topic for topic in lacking if isinstance(bag, OwnBag) and is_chosen(bag, topic))
        if missing:
            return f"{bag.path} has nothing on {', '.join(missing)}"
    digests = one.run_info.end.get("digest", ""), other.run_info.end.get("digest", "")
    if all(digests):
        differ = "the messages in both are the same, but the digests of all messages differ"
        return "" if digests[0] == digests[1] else differ
    if topics[0].isdisjoint(topics[1]) and topics[0] | topics[1]:
        return "they have no topic in common: there is nothing to compare"
    return ""


def _topics(bag: Bag) -> set[str]:
    return {channel.topic for block in bag.blocks() for channel in block.channels}


_CAUSES = ("version", "seed")  # what decides every message, beside the scenario and the commands


def _causes(one: Bag, other: Bag) -> tuple[tuple[str, ...] | None, list[str]]:
    """Why the two runs differ, and what else is not the same about them; None where that is not known."""
    if not (one.is_ours and other.is_ours):
        return None, []
    left, right = ({**bag.run_info.start, **bag.run_info.end} for bag in (one, other))
    pairs = {
        key: f"{left.get(key, 'unknown')} and {right.get(key, 'unknown')}"
        for key in (*_CAUSES, "ticks", "digest", "complete")
        if left.get(key) != right.get(key)
    }
    causes = [f"{key}s ({pair})" for key, pair in pairs.items() if key in _CAUSES]
    if left["scenario"] != right["scenario"]:
        causes.append(_scenario_difference(left["scenario"], right["scenario"]))
    return tuple(causes), [f"{key}: {pair}" for key, pair in pairs.items() if key not in _CAUSES]


def _scenario_difference(one: str, other: str) -> str:
    """`scenarios (flat and maze)`, or of one scenario the first setting that differs."""
    try:
        left, right = json.loads(one), json.loads(other)
        names = left.get("name"), right.get("name")
    except (ValueError, AttributeError):
        return "scenarios"
    if names[0] != names[1]:
        return f"scenarios ({names[0]} and {names[1]})"
    path, first, second = next(_settings_that_differ(left, right, ""), ("", None, None))
    return f"scenario settings ({path}: {show(first)} and {show(second)})"


def _settings_that_differ(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            yield from _settings_that_differ(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    elif one != other:
        yield path, one, other
