"""A sweep from its start, or from where it was stopped, to its result: every run given to a worker, and its journal.

The journal is beside the result file and has a line for each run that is done. Whatever ends the process, complete
lines count; what follows the last of them is cut off on resuming.
"""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from microsim.errors import UsageError
from microsim.parts.sweep.plan import Plan, RunOutcome
from microsim.parts.sweep.results import Finished, check_result_file, write
from microsim.parts.sweep.run_one import RunFailure
from microsim.parts.sweep.worker_pool import Done, Lost, WorkerPool

ATTEMPTS = 3  # for a run in which a worker died
_MOST_AT_ONCE = 32  # runs given to a worker
_POLL_S = 0.2
_JOURNAL_FORMAT = 1

MakePool: TypeAlias = Callable[[], WorkerPool]


def _ignore(_: object) -> None:
    pass


@dataclass
class Reports:
    """Callbacks for what happens."""

    begun: Callable[[int], None] = _ignore  # how many runs are done already
    done: Callable[[RunOutcome], None] = _ignore
    trouble: Callable[[str], None] = _ignore  # a worker was lost


def sweep_to_file(plan: Plan, pool: MakePool, out: Path, reports: Reports | None = None) -> Finished:
    """Run what is not in the journal yet; the journal is removed when every run reached its end."""
    reports = reports or Reports()
    journal_path = journal_of(out)
    outcomes = recalled(journal_path, plan)
    reports.begun(len(outcomes))
    with ExitStack() as stack:
        journal: Journal | None = None  # no file before there is something to write
        for outcome in _outcomes(plan, outcomes, pool, reports):
            journal = journal or stack.enter_context(closing(Journal(journal_path, plan)))
            journal.add([outcome])
            outcomes[outcome.run] = outcome
            reports.done(outcome)
    finished = Finished.of(plan, outcomes.values())
    write(out, finished)
    if not finished.failed:
        journal_path.unlink(missing_ok=True)
    return finished


def sweep_in_memory(plan: Plan, pool: MakePool, reports: Reports | None = None) -> Finished:
    reports = reports or Reports()
    found = []
    for outcome in _outcomes(plan, {}, pool, reports):
        found.append(outcome)
        reports.done(outcome)
    return Finished.of(plan, found)


def _outcomes(plan: Plan, known: Mapping[int, RunOutcome], make: MakePool, reports: Reports) -> Iterator[RunOutcome]:
    left = [run for run in range(len(plan)) if run not in known]
    if not left:
        return
    pool = make()
    try:
        yield from run_all(plan, left, pool, reports.trouble)
    finally:
        pool.close()


# ---- who runs what ---------------------------------------------------------------------------------------------------


def run_all(plan: Plan, runs: Iterable[int], pool: WorkerPool, report: Callable[[str], None]) -> Iterator[RunOutcome]:
    """The outcome of every run, as they arrive. `report` is called with the reason when a worker is lost."""
    return _Dispatcher(plan, runs, pool, report).outcomes()


class _Dispatcher:
    def __init__(self, plan: Plan, runs: Iterable[int], pool: WorkerPool, report: Callable[[str], None]) -> None:
        self.plan, self.pool, self.report = plan, pool, report
        self.waiting = deque(runs)
        self.alone: deque[int] = deque()  # one of them may have killed a worker: each is given alone
        self.attempts: Counter[int] = Counter()
        self.in_progress = 0

    def outcomes(self) -> Iterator[RunOutcome]:
        while self.waiting or self.alone or self.in_progress:
            self._hand_out()
            for event in self.pool.wait(_POLL_S):
                yield from self._lost(event) if isinstance(event, Lost) else self._done(event)

    def _hand_out(self) -> None:
        while (self.waiting or self.alone) and self.pool.has_room():
            runs = self._next()
            self.pool.give([(run, *self.plan.place(run)) for run in runs])
            self.in_progress += len(runs)

    def _next(self) -> list[int]:
        """Many at first, few towards the end, so that all workers finish together."""
        if not self.waiting:
            return [self.alone.popleft()]
        count = max(1, min(_MOST_AT_ONCE, len(self.waiting) // (4 * self.pool.size)))
        return [self.waiting.popleft() for _ in range(count)]

    def _done(self, event: Done) -> Iterator[RunOutcome]:
        self.in_progress -= 1
        result = event.result
        if not isinstance(result, RunFailure):
            yield RunOutcome(event.run, result)
        elif result.is_final:
            yield RunOutcome(event.run, [], result.error)
        else:
            yield from self._tried(event.run, result.error)

    def _lost(self, lost: Lost) -> Iterator[RunOutcome]:
        self.in_progress -= len(lost.suspects) + len(lost.others)
        self.waiting.extendleft(reversed(lost.others))
        self.report(f"a worker was lost and replaced: {lost.why}")
        if len(lost.suspects) == 1:
            yield from self._tried(lost.suspects[0], "a worker died in this run")
        else:
            self.alone.extend(lost.suspects)

    def _tried(self, run: int, error: str) -> Iterator[RunOutcome]:
        self.attempts[run] += 1
        if self.attempts[run] < ATTEMPTS:
            self.alone.append(run)
        else:
            yield RunOutcome(run, [], f"{error} ({ATTEMPTS} attempts)")


# ---- the journal -----------------------------------------------------------------------------------------------------


def journal_of(out: Path) -> Path:
    return out.with_name(out.name + ".journal")


def check_files(out: Path, resume: bool, overwrite: bool) -> None:
    """Nothing that took hours is lost by accident."""
    check_result_file(out)
    journal = journal_of(out)
    if overwrite:
        for path in (out, journal):
            path.unlink(missing_ok=True)
    elif out.exists() and not journal.exists():
        what = "is complete, there is nothing to resume" if resume else "already exists"
        raise UsageError(f"{out} {what}; --overwrite starts again")
    elif journal.exists() and not resume:
        raise UsageError(f"{journal} is from a sweep that was stopped; continue it with --resume, or --overwrite it")


class Journal:
    def __init__(self, path: Path, plan: Plan) -> None:
        self._stream = path.open("ab")
        if self._stream.tell() == 0:
            head = {"format": _JOURNAL_FORMAT, "sweep": plan.identity, "runs": len(plan), "metrics": plan.metrics}
            self._write(head)

    def add(self, outcomes: Sequence[RunOutcome]) -> None:
        self._write(*([each.run, list(each.values), each.error] for each in outcomes))

    def _write(self, *entries: Any) -> None:
        lines = [json.dumps(entry, ensure_ascii=True, separators=(",", ":")) for entry in entries]
        self._stream.write("".join(f"{line}\n" for line in lines).encode())
        self._stream.flush()

    def close(self) -> None:
        os.fsync(self._stream.fileno())
        self._stream.close()


def recalled(path: Path, plan: Plan) -> dict[int, RunOutcome]:
    """Runs that need not be repeated; failed ones must be. Cuts off what a kill left half written."""
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
    found: dict[int, RunOutcome] = {}
    for number, line in enumerate(lines, start=2):
        outcome = _read_outcome(path, number, line, plan)
        found[outcome.run] = outcome
    if len(whole) != len(raw):
        os.truncate(path, len(whole))
    return {run: outcome for run, outcome in found.items() if not outcome.error}


def _check_head(path: Path, head: bytes, plan: Plan) -> None:
    try:
        header = json.loads(head)
        identity, form = header["sweep"], header["format"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not the journal of a sweep; remove it, or choose another --out") from None
    if form != _JOURNAL_FORMAT:
        raise UsageError(f"{path} was written by another version of microsim; --overwrite starts again")
    if identity != plan.identity:
        raise UsageError(
            f"{path} belongs to another sweep: its scenario, mission, seeds, values, metrics or microsim's version "
            "differ; --overwrite starts again"
        )


def _read_outcome(path: Path, number: int, line: bytes, plan: Plan) -> RunOutcome:
    try:
        run, values, error = json.loads(line)
        is_whole = isinstance(run, int) and 0 <= run < len(plan) and len(values) == (0 if error else len(plan.metrics))
        if is_whole and isinstance(error, str):
            return RunOutcome(run, values, error)
    except (ValueError, TypeError):
        pass
    raise UsageError(f"{path}:{number}: damaged; --overwrite starts again")
