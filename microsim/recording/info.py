"""What a bag holds: `microsim bag info`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.recording.bag import READERS, ForeignBag, OwnBag, open_bag
from microsim.recording.entries import BagError, Block


@dataclass
class Info:
    path: Path
    facts: dict[str, str]
    bytes: int
    topics: dict[str, tuple[str, int]]  # type and number of messages
    first_ns: int
    last_ns: int
    problem: str = ""  # what is wrong with the bag

    @property
    def messages(self) -> int:
        return sum(count for _, count in self.topics.values())

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
            **self.facts,
            "topics": {topic: {"type": kind, "messages": count} for topic, (kind, count) in self.topics.items()},
        }


class _Counting:
    def __init__(self) -> None:
        self.types: dict[int, tuple[str, str]] = {}
        self.counts: Counter[int] = Counter()
        self.times: list[int] = []

    def add(self, block: Block) -> None:
        self.types.update((channel.number, (channel.topic, channel.type)) for channel in block.channels)
        self.counts.update(block.numbers)
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
    topics = {topic: (kind, counting.counts[number]) for number, (topic, kind) in counting.types.items()}
    size = sum(file.stat().st_size for file in files)
    first, last = min(counting.times, default=0), max(counting.times, default=0)
    return Info(path, facts, size, dict(sorted(topics.items())), first, last, problem)


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _files(bag: ForeignBag) -> list[Path]:
    return [file for file in _in(bag.path) if file.is_file()] if bag.path.is_dir() else [bag.path]
