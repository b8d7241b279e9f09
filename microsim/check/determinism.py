"""Compares the results of the same case in different environments, and finds the first difference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from microsim.check.check_runs import DIGEST_BYTES, Case, CheckRun, Children, Environment, Result
from microsim.recording.compare import BagEntry, Difference, StreamPlace


@dataclass(frozen=True)
class CheckVerdict:
    """One case in all environments."""

    case: Case
    reference: Result
    same: tuple[str, ...]  # names of environments with the reference's messages
    different: tuple[Result, ...]
    broken: tuple[Result, ...]  # no digest at all

    @property
    def is_good(self) -> bool:
        return not self.different and not self.broken


def judged(case: Case, environments: Sequence[Environment], results: Mapping[CheckRun, Result]) -> CheckVerdict:
    """The first environment is the reference."""
    mine = [results[CheckRun(case, environment)] for environment in environments]
    reference = mine[0]
    broken = tuple(result for result in mine if result.error)
    if reference.error:
        return CheckVerdict(case, reference, (), (), broken)
    whole = [result for result in mine[1:] if not result.error]
    different = tuple(result for result in whole if not _agree(reference, result))
    same = tuple(result.run.environment.name for result in whole if result not in different)
    return CheckVerdict(case, reference, same, different, broken)


def _agree(reference: Result, result: Result) -> bool:
    """A shorter run must have had the reference's digest at the same tick."""
    is_short = result.run.environment.short_s is not None
    if not is_short and result.ticks != reference.ticks:
        return False
    return bytes.fromhex(result.digest) == reference.digest_at(result.ticks)


def first_tick(one: Path, other: Path) -> int:
    """The first tick after which two chains of digests differ."""
    left, right = one.read_bytes(), other.read_bytes()
    ticks = min(len(left), len(right)) // DIGEST_BYTES
    for tick in range(ticks):
        part = slice(DIGEST_BYTES * tick, DIGEST_BYTES * (tick + 1))
        if left[part] != right[part]:
            return tick
    return ticks


@dataclass(frozen=True)
class Finding:
    """Where two environments differ."""

    result: Result
    tick: int
    difference: Difference | None  # None: not reproduced, so the run differs from itself
    error: str = ""

    @property
    def topic(self) -> str:
        here = self.difference and (self.difference.first.here or self.difference.second.here)
        return here.topic if here else ""

    def __str__(self) -> str:
        case, name = self.result.run.case, self.result.run.environment.name
        head = f"{case}: {name} differs from the reference, first at tick {self.tick}"
        if self.error:
            return f"{head}; repeating both failed: {self.error}"
        if self.difference is None:
            return (
                f"{head}; repeated, each alone, both agree there: the run sometimes differs from itself, or depends on "
                "what its process ran before"
            )
        return f"{head}, on {self.topic}\n" + "\n".join(f"  {line}" for line in str(self.difference).splitlines())


def find(reference: Result, result: Result, children: Children) -> Finding:
    """Repeat both up to the first tick that differs and compare its messages."""
    tick = first_tick(reference.chain, result.chain)
    dumps = [children.folder / f"{name}.json" for name in ("reference", "other")]
    for run, dump in zip((reference.run, result.run), dumps, strict=True):
        again = children.run(run, tick, dump)
        if again.error or not dump.exists():
            return Finding(result, tick, None, again.error or "the run ends before that tick")
    names = (reference.run.environment.name, result.run.environment.name)
    before, one = _dumped(dumps[0])
    _, other = _dumped(dumps[1])
    return Finding(result, tick, _difference(before, one, other, names))


def _dumped(file: Path) -> tuple[int, list[BagEntry]]:
    """(number of messages before the tick, those of the tick); removes the file."""
    dumped = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    rows = dumped["messages"]
    return dumped["before"], [
        BagEntry(topic, kind, stamp_ns, bytes.fromhex(cdr)) for topic, kind, stamp_ns, cdr in rows
    ]


def _difference(
    before: int, one: Sequence[BagEntry], other: Sequence[BagEntry], names: tuple[str, str]
) -> Difference | None:
    longest = max(len(one), len(other))
    for index in range(longest):
        if index >= min(len(one), len(other)) or one[index] != other[index]:
            return Difference(before + index, _around(one, index), _around(other, index), names)
    return None


def _around(entries: Sequence[BagEntry], index: int) -> StreamPlace:
    before, here, after = (entries[i] if 0 <= i < len(entries) else None for i in (index - 1, index, index + 1))
    return StreamPlace(before, here, after)
