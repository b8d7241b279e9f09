"""`microsim sweep`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from microsim.cli.check import default_jobs
from microsim.cli.progress import Bar, interruptible
from microsim.cli.quiet import is_quiet, tell
from microsim.cli.rehearsal import compiling, parts_of, rehearse_once
from microsim.cli.tables import print_table
from microsim.errors import UsageError
from microsim.sweep.expressions import Condition
from microsim.sweep.find import FailingCase, FindError, Shrinking, Smallest, first_match, wanted
from microsim.sweep.plan import Plan, RunOutcome, make_plan
from microsim.sweep.results import Figures, Finished, Group, ResultError, check_figure, draw, summarised
from microsim.sweep.run_all import Reports, check_files, journal_of, run_all, sweep_in_memory, sweep_to_file
from microsim.sweep.sweep_file import Sweep, is_sweep, load_sweep, values_of
from microsim.sweep.worker_pool import LocalWorkers, WorkerError, WorkerPool

GOOD, FAILED = 0, 1
_SHOWN_FAILURES = 5
_SMALLEST = Path("smallest.yaml")


@dataclass(frozen=True)
class Options:
    source: str | None
    given: dict[str, Any]  # keys of the sweep, as in its file
    vary: tuple[str, ...]
    out: Path | None
    plot: Path | None
    find: str | None
    jobs: int | None
    ray: str | None
    resume: bool
    overwrite: bool
    timeout_s: float
    shrink_runs: int
    json: bool

    def workers(self, plan: Plan) -> WorkerPool:
        if self.ray is not None:
            from microsim.sweep.ray_workers import RayWorkers

            return RayWorkers(plan.order(), self.ray, self.jobs, self.timeout_s)
        jobs = min(self.jobs or default_jobs(), len(plan))
        return LocalWorkers(plan.order(), jobs, self.timeout_s)


def sweep(options: Options) -> int:
    """The exit code."""
    with interruptible():
        try:
            wish = _sweep(options)
            if options.find is not None:
                return _find(wish, options)
            return _fly(wish, options)
        except (WorkerError, FindError, ResultError) as error:
            print(f"microsim: {error}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            print("microsim: stopped; nothing was written", file=sys.stderr)
            return FAILED


def _sweep(options: Options) -> Sweep:
    """The file's, with what was given otherwise."""
    given = dict(options.given)
    if options.vary:
        given["vary"] = varied = dict(map(_varied, options.vary))
        if len(varied) < len(options.vary):
            raise UsageError("--vary: a key is there twice; write its values with commas between them")
    if options.source is not None and is_sweep(options.source):
        return load_sweep(options.source, **given)
    return load_sweep({"scenario": options.source or "default", **given})


def _varied(text: str) -> tuple[str, list[Any]]:
    key, found, values = text.partition("=")
    if not found or not key.strip() or not values.strip():
        raise UsageError(f"--vary: expected KEY=VALUE,VALUE such as wind.gust_sigma=0,0.5,1, found {text!r}")
    return key.strip(), values_of(values)


def _rehearse(plan: Plan) -> None:
    """Compile once, here, before many workers would do it side by side."""
    from microsim.simulation import Simulation
    from microsim.sweep.run_one import run_one

    def rehearsal() -> None:
        run_one(Simulation(plan.scenario), plan.mission, min(plan.duration or 1.0, 1.0), plan.metrics)

    with compiling():
        rehearse_once(f"sweep {parts_of(plan.scenario)} {' '.join(plan.metrics)}", rehearsal)


# ---- a sweep ---------------------------------------------------------------------------------------------------------


def _fly(wish: Sweep, options: Options) -> int:
    out = options.out if options.out is not None else None if wish.out is None else Path(wish.out)
    if out is None and options.resume:
        raise UsageError("--resume needs --out: the journal lies beside it")
    if out is not None:
        check_files(out, options.resume, options.overwrite)
    plan = make_plan(wish)
    if options.plot is not None:
        check_figure(options.plot)
    _rehearse(plan)
    with Bar("flying", len(plan), "runs") as bar:
        reports = Reports(bar.begin_with, lambda outcome: _count(bar, plan, outcome), bar.note)
        try:
            finished = _finished(plan, options, out, reports)
        except KeyboardInterrupt:
            return _stopped(bar, out)
    if options.plot is not None:
        draw(finished, options.plot)
    _say(finished, options, out)
    return GOOD if finished.is_good else FAILED


def _finished(plan: Plan, options: Options, out: Path | None, reports: Reports) -> Finished:
    if out is None:
        return sweep_in_memory(plan, lambda: options.workers(plan), reports)
    return sweep_to_file(plan, lambda: options.workers(plan), out, reports)


def _count(bar: Bar, plan: Plan, outcome: RunOutcome) -> None:
    bar.count()
    if outcome.error:
        bar.note(f"microsim: run {outcome.run} failed: {outcome.error}: {plan.token(outcome.run)}")


def _stopped(bar: Bar, out: Path | None) -> int:
    kept = "nothing is kept without --out"
    if out is not None:
        kept = (
            f"kept in {journal_of(out)}; --resume goes on" if journal_of(out).exists() else "there is nothing to keep"
        )
    print(f"microsim: stopped after {bar.done:,} of {bar.total:,} runs; {kept}", file=sys.stderr)
    return FAILED


# ---- telling ---------------------------------------------------------------------------------------------------------


def _say(finished: Finished, options: Options, out: Path | None) -> None:
    groups = summarised(finished.plan, finished.rows)
    if options.json:
        print(json.dumps(_report(finished, groups, out), ensure_ascii=False))
        return
    if not is_quiet():
        _print_table(finished.plan, groups)
    for row in finished.failed[:_SHOWN_FAILURES]:
        print(f"microsim: failed: {row['error']}: {row['token']}", file=sys.stderr)
    for each in finished.broken:
        print(f"microsim: {each}", file=sys.stderr)
    if not is_quiet() or not finished.is_good:
        print(_conclusion(finished, out))


def _conclusion(finished: Finished, out: Path | None) -> str:
    parts = [f"{len(finished.rows):,} runs"]
    if finished.failed:
        parts.append(f"{len(finished.failed):,} FAILED")
    conditions = finished.plan.conditions
    if conditions:
        bad = len(finished.broken)
        parts.append(f"{bad} of {len(conditions)} assertions BROKEN" if bad else f"{len(conditions)} assertions hold")
    return ", ".join(parts) + ("" if out is None else f" → {out}")


def _print_table(plan: Plan, groups: Sequence[Group]) -> None:
    titles = ["", "runs", "failed", *groups[0].figures]
    rows = [_cells(plan, group) for group in groups]
    print_table(titles, rows, 2, ["bold red" if group.failed else "green" for group in groups])


def _cells(plan: Plan, group: Group) -> list[str]:
    name = f"{group.key} = {group.value}" if group.key else "all"
    share = f"{100.0 * group.failure_share:.3g} %"
    figures = [_figures(figures, plan.metric(name).kind is bool) for name, figures in group.figures.items()]
    return [name, f"{group.runs:,}", share, *figures]


def _figures(figures: Figures | None, is_share: bool) -> str:
    """`54.9 (54.8 … 55.2)`: mean, least and most; of what is true or false, how often it is true."""
    if figures is None:
        return "–"
    if is_share:
        return f"{100.0 * figures.mean:.3g} %"
    if figures.least == figures.most:
        return f"{figures.mean:.5g}"
    return f"{figures.mean:.5g} ({figures.least:.5g} … {figures.most:.5g})"


def _report(finished: Finished, groups: Sequence[Group], out: Path | None) -> dict[str, Any]:
    plan = finished.plan
    return {
        "good": finished.is_good,
        "runs": len(finished.rows),
        "failed": [{"error": row["error"], "token": row["token"]} for row in finished.failed],
        "assertions": {condition.text: True for condition in plan.conditions}
        | {each.condition.text: False for each in finished.broken},
        "out": None if out is None else str(out),
        "summary": [{**asdict(group), "failure_share": group.failure_share} for group in groups],
    }


# ---- finding and shrinking -------------------------------------------------------------------------------------------


def _find(wish: Sweep, options: Options) -> int:
    assert options.find is not None
    condition = wanted(wish, options.find)
    file = options.out or _SMALLEST
    _check_mission_file(file, options)
    plan = make_plan(wish.model_copy(update={"asserts": (), "metrics": condition.metrics}))
    _rehearse(plan)
    with Bar("searching", len(plan), "runs") as bar:
        try:
            found = _searched(plan, condition, options, bar)
        except KeyboardInterrupt:
            print(f"microsim: stopped after {bar.done:,} of {len(plan):,} runs; nothing was found", file=sys.stderr)
            return FAILED
    if found is None:
        _say_nothing_found(plan, options)
        return GOOD
    shrinking = Shrinking(plan, condition, found.run)
    with Bar("shrinking", None, "flights") as bar:
        smallest = shrinking.smallest(file, options.shrink_runs, lambda runs, case: bar.count(_sized(case)))
    _say_smallest(plan, found, smallest, options)
    return FAILED


def _searched(plan: Plan, condition: Condition, options: Options, bar: Bar) -> RunOutcome | None:
    pool = options.workers(plan)

    def counted() -> Any:
        for outcome in run_all(plan, range(len(plan)), pool, bar.note):
            _count(bar, plan, outcome)
            yield outcome

    try:
        return first_match(plan, condition, counted())
    finally:
        pool.close()


def _check_mission_file(file: Path, options: Options) -> None:
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--find writes a mission: expected a name that ends with .yaml for --out, found {file}")
    if options.resume or options.plot is not None:
        raise UsageError("--find searches anew, and draws nothing: leave out --resume and --plot")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}")
    for path in (file, file.with_name(f"{file.stem}.scenario.yaml")):
        if options.overwrite:
            with suppress(FileNotFoundError):
                path.unlink()
        elif path.exists():
            raise UsageError(f"{path} is there already; --overwrite writes over it")


def _sized(case: FailingCase) -> str:
    steps, seconds = case.size
    return f"{steps} {'step' if steps == 1 else 'steps'}, {seconds:g} s"


def _say_nothing_found(plan: Plan, options: Options) -> None:
    if options.json:
        print(json.dumps({"found": False, "runs": len(plan)}))
    else:
        tell(f"not found in {len(plan):,} runs: {options.find}")


def _say_smallest(plan: Plan, found: RunOutcome, smallest: Smallest, options: Options) -> None:
    token = plan.token(found.run)
    if options.json:
        facts = {"found": True, "token": token, "file": str(smallest.file), "values": smallest.values}
        print(json.dumps({**facts, "flights": smallest.runs, "mission": smallest.case.mission}, ensure_ascii=False))
        return
    values = ", ".join(f"{name} = {value}" for name, value in smallest.values.items())
    print(f"found: {options.find}: in run {found.run:,} of {len(plan):,}: {token}")
    print(f"smallest mission that still does: {_sized(smallest.case)} instead of {_sized(smallest.before)}; {values}")
    print(f"verified by re-running it ({smallest.runs:,} runs). Written to {smallest.file}; run it with:")
    print(f"  microsim run --mission {smallest.file} --rtf 0")
