"""What a bag holds: `microsim bag info`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.recording.bag import READERS, ForeignBag, OwnBag, open_bag
from microsim.recording.entries import BagError, Block


@dataclass
class Traffic:
    """What a topic carried."""

    type: str
    messages: int = 0
    first_ns: int = 0
    last_ns: int = 0

    @property
    def rate_hz(self) -> float | None:
        """Between the first message and the last; None: there are not two."""
        span_ns = self.last_ns - self.first_ns
        return (self.messages - 1) * 1e9 / span_ns if span_ns > 0 else None

    def count(self, time_ns: int) -> None:
        self.first_ns = self.first_ns if self.messages else time_ns
        self.last_ns = time_ns
        self.messages += 1

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, "messages": self.messages, "rate_hz": self.rate_hz}


@dataclass
class Info:
    path: Path
    facts: dict[str, str]
    bytes: int
    topics: dict[str, Traffic]
    first_ns: int
    last_ns: int
    problem: str = ""  # what is wrong with the bag

    @property
    def messages(self) -> int:
        """Of all topics, inputs too."""
        return sum(traffic.messages for traffic in self.topics.values())

    @property
    def duration_s(self) -> float:
        return (self.last_ns - self.first_ns) / 1e9

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "duration_s": self.duration_s,
            "messages": self.messages,
            "problem": self.problem,
            **{_FACT_NAMES.get(name, name): _plain(text) for name, text in self.facts.items()},
            "topics": {topic: traffic.to_dict() for topic, traffic in self.topics.items()},
        }


_FACT_NAMES = {"messages": "sent", "format": "format_version"}  # `sent` are messages without inputs


def _plain(text: str) -> Any:
    """A fact as what it is: the metadata of MCAP files has text only."""
    if text.lstrip("-").isdecimal() or text in ("true", "false") or text.startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


class _Counting:
    def __init__(self) -> None:
        self.channels: dict[int, Traffic] = {}
        self.topics: dict[str, Traffic] = {}
        self.times: list[int] = []

    def add(self, block: Block) -> None:
        for channel in block.channels:
            self.channels[channel.number] = self.topics.setdefault(channel.topic, Traffic(channel.type))
        for number, time in zip(block.numbers, block.times, strict=True):
            self.channels[number].count(time)
        if block.times:
            self.times += (block.times[0], block.times[-1])


def look(path: Path) -> Info:
    """Everything that can be read, and what is wrong with the rest."""
    counting, problem = _Counting(), ""
    facts: dict[str, str] = {}
    files: list[Path] = []
    try:
        bag = open_bag(path)
        files = bag.files if isinstance(bag, OwnBag) else _files(bag)
        facts = {**bag.facts.start, **bag.facts.end}
        for block in bag.blocks():
            counting.add(block)
    except BagError as error:
        files = [each for each in ([path] if path.is_file() else _in(path)) if each.suffix in READERS]
        if not files:
            raise
        problem, counting = str(error), _Counting()
        for file in files:
            reader = READERS[file.suffix](file, tolerant=True)
            for block in reader.blocks():
                counting.add(block)
            facts = {**facts, **reader.facts.start, **reader.facts.end}
    size = sum(file.stat().st_size for file in files)
    first, last = min(counting.times, default=0), max(counting.times, default=0)
    return Info(path, facts, size, dict(sorted(counting.topics.items())), first, last, problem)


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(bag: ForeignBag) -> list[Path]:
    return [file for file in _in(bag.path) if file.is_file()] if bag.path.is_dir() else [bag.path]
