"""Two bags side by side: `microsim diff A B`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from microsim.recording.bag import ForeignBag, OwnBag
from microsim.recording.comparison import is_chosen
from microsim.recording.differences import Difference, Entry, Place
from microsim.recording.entries import Channel


@dataclass(frozen=True)
class Comparison:
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


def diff(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag) -> Comparison:
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


def _first(one: OwnBag | ForeignBag, other: OwnBag | ForeignBag, shared: set[str], notes: list[str]) -> Comparison:
    pairs = zip_longest(_entries(one, shared), _entries(other, shared))
    before: tuple[Entry | None, Entry | None] = (None, None)
    count = 0
    for left, right in pairs:
        if left != right:
            following = next(pairs, (None, None))
            places = [Place(*triple) for triple in zip(before, (left, right), following, strict=True)]
            names = (str(one.path), str(other.path))
            return Comparison(count, Difference(count, places[0], places[1], names), tuple(notes))
        before, count = (left, right), count + 1
    return Comparison(count, None, tuple(notes))


def _topics(bag: OwnBag | ForeignBag) -> set[str]:
    return {channel.topic for block in bag.blocks() for channel in block.channels}


def _entries(bag: OwnBag | ForeignBag, topics: set[str]) -> Iterator[Entry]:
    channels: dict[int, Channel] = {}
    for block in bag.blocks():
        channels.update((channel.number, channel) for channel in block.channels)
        for number, time, data in zip(block.numbers, block.times, block.data, strict=True):
            channel = channels[number]
            if channel.topic in topics:
                yield Entry(channel.topic, channel.type, time, data)


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
