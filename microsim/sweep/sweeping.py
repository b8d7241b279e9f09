"""A sweep from its beginning, or from where it was left, to its result file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from microsim.errors import UsageError
from microsim.sweep import results
from microsim.sweep.crew import Crew, fly_all
from microsim.sweep.journal import Journal, Outcome, journal_of, recalled
from microsim.sweep.metric import Value
from microsim.sweep.plan import Plan
from microsim.sweep.summary import Broken, broken

MakeCrew = Callable[[], Crew]


def _nobody(_: object) -> None:
    pass


@dataclass
class Reports:
    """Who hears of what happens."""

    begun: Callable[[int], None] = _nobody  # how many runs are done already
    done: Callable[[Outcome], None] = _nobody
    trouble: Callable[[str], None] = _nobody


@dataclass(frozen=True)
class Finished:
    plan: Plan
    rows: list[dict[str, Value]] = field(repr=False)

    @property
    def failed(self) -> list[dict[str, Value]]:
        """Rows of runs that did not come to their end."""
        return [row for row in self.rows if row["error"] is not None]

    @property
    def broken(self) -> list[Broken]:
        return broken(self.plan.conditions, self.rows)

    @property
    def is_good(self) -> bool:
        return not self.failed and not self.broken


def check_files(out: Path, resume: bool, overwrite: bool) -> None:
    """Nothing that took hours is lost by accident."""
    results.check_target(out)
    journal = journal_of(out)
    if overwrite:
        for path in (out, journal):
            path.unlink(missing_ok=True)
    elif out.exists() and not journal.exists():
        what = "is complete, there is nothing to resume" if resume else "is there already"
        raise UsageError(f"{out} {what}; --overwrite begins anew")
    elif journal.exists() and not resume:
        raise UsageError(f"{journal} is left of a sweep that did not end: go on with --resume, or --overwrite it")


def sweep_to_file(plan: Plan, crew: MakeCrew, out: Path, reports: Reports | None = None) -> Finished:
    """Fly what is not in the journal yet; the journal goes when every run came to its end."""
    reports = reports or Reports()
    journal_path = journal_of(out)
    outcomes = recalled(journal_path, plan)
    reports.begun(len(outcomes))
    with ExitStack() as stack:
        journal: Journal | None = None
        for outcome in _flown(plan, outcomes, crew, reports):
            journal = journal or stack.enter_context(
                Journal(journal_path, plan)
            )  # none before there is something in it
            journal.add([outcome])
            outcomes[outcome.run] = outcome
            reports.done(outcome)
    rows = results.rows_of(plan, outcomes.values())
    results.write(out, plan, rows)
    finished = Finished(plan, rows)
    if not finished.failed:
        journal_path.unlink(missing_ok=True)
    return finished


def sweep_in_memory(plan: Plan, crew: MakeCrew, reports: Reports | None = None) -> Finished:
    reports = reports or Reports()
    found = []
    for outcome in _flown(plan, {}, crew, reports):
        found.append(outcome)
        reports.done(outcome)
    return Finished(plan, results.rows_of(plan, found))


def _flown(plan: Plan, known: Mapping[int, Outcome], make_crew: MakeCrew, reports: Reports) -> Iterator[Outcome]:
    left = [run for run in range(len(plan)) if run not in known]
    if not left:
        return
    crew = make_crew()
    try:
        yield from fly_all(plan, left, crew, reports.trouble)
    finally:
        crew.dismiss()
