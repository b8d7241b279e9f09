"""The journal beside the result: a line for each run that is done, appended as they come.

Whatever ends the process, lines that are whole count; what comes after the last whole line is cut off on resuming.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from typing_extensions import Self

from microsim.errors import UsageError
from microsim.sweep.metric import Value
from microsim.sweep.plan import Plan

SUFFIX = ".journal"
_FORMAT = 1


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    run: int  # its number in the plan
    values: Sequence[Value]  # in the order of the metrics; none where it failed
    error: str = ""


def journal_of(out: Path) -> Path:
    return out.with_name(out.name + SUFFIX)


class Journal:
    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self._stream = path.open("ab")
        if self._stream.tell() == 0:
            self._write({"format": _FORMAT, "sweep": plan.identity, "runs": len(plan), "metrics": plan.metrics})

    def add(self, outcomes: Sequence[Outcome]) -> None:
        self._write(*([each.run, list(each.values), each.error] for each in outcomes))

    def _write(self, *entries: Any) -> None:
        lines = [json.dumps(entry, ensure_ascii=True, separators=(",", ":")) for entry in entries]
        self._stream.write("".join(f"{line}\n" for line in lines).encode())
        self._stream.flush()

    def close(self) -> None:
        if not self._stream.closed:
            os.fsync(self._stream.fileno())
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def recalled(path: Path, plan: Plan) -> dict[int, Outcome]:
    """Runs that need not be flown again; failed ones are. Cuts off what a kill left half written."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    whole = raw[: raw.rfind(b"\n") + 1]
    if not whole:
        path.unlink()
        return {}
    head, *lines = whole.splitlines()
    _check_head(path, head, plan)
    found: dict[int, Outcome] = {}
    for number, line in enumerate(lines, start=2):
        outcome = _outcome(path, number, line, plan)
        found[outcome.run] = outcome
    if len(whole) != len(raw):
        os.truncate(path, len(whole))
    return {run: outcome for run, outcome in found.items() if not outcome.error}


def _check_head(path: Path, head: bytes, plan: Plan) -> None:
    try:
        facts = json.loads(head)
        identity, form = facts["sweep"], facts["format"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is no journal of a sweep; remove it, or give another --out") from None
    if form != _FORMAT:
        raise UsageError(f"{path} was written by another version of microsim; --overwrite begins anew")
    if identity != plan.identity:
        raise UsageError(
            f"{path} belongs to another sweep: its scenario, mission, seeds, values, metrics or microsim's version "
            "differ; --overwrite begins anew"
        )


def _outcome(path: Path, number: int, line: bytes, plan: Plan) -> Outcome:
    try:
        run, values, error = json.loads(line)
        is_whole = isinstance(run, int) and 0 <= run < len(plan) and len(values) == (0 if error else len(plan.metrics))
        if is_whole and isinstance(error, str):
            return Outcome(run, values, error)
    except (ValueError, TypeError):
        pass
    raise UsageError(f"{path}:{number}: damaged; --overwrite begins anew")
