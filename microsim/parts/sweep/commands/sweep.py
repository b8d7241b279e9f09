"""`microsim sweep`: a mission with many seeds and settings; or the search for a run that fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from typing_extensions import TypedDict

from microsim.cli import terminal
from microsim.cli.command import Command, ControllerOption, PluginsOption, QuietOption, TimeoutOption, words_of
from microsim.cli.precompile import compiling, precompile_scenario
from microsim.cli.terminal import Bar, ExitCode, is_quiet, note, print_json, tell, warn
from microsim.errors import UsageError
from microsim.options import argument, flag, given, option
from microsim.parts.missions.ci_reports import CiCase, ReportOptions
from microsim.parts.sweep.commands.check import jobs_option
from microsim.processes import usable_cores

if TYPE_CHECKING:
    from microsim.parts.sweep.expressions import Condition
    from microsim.parts.sweep.find import FailingCase, Smallest
    from microsim.parts.sweep.plan import Plan, RunOutcome, Sweep
    from microsim.parts.sweep.results import Figures, Finished, Group
    from microsim.parts.sweep.run_all import Reports
    from microsim.parts.sweep.worker_pool import WorkerPool

_SHOWN_FAILURES = 5
_SMALLEST = Path("smallest.yaml")


class SweepOptions(NamedTuple):
    source: Annotated[
        str | None,
        argument("SCENARIO|FILE", "A scenario, shipped or a file; or a sweep file with everything."),
    ] = None
    seeds: Annotated[str | None, option("--seeds A..B", "Seeds: 0..9999 (both ends included), or 1,2,5..8.")] = None
    vary: Annotated[
        list[str] | None, option("--vary KEY=V,V", "Values for a key of the scenario; every combination is run.")
    ] = None
    mission: Annotated[str | None, option("--mission FILE", "The mission to run: a shipped one or a file.")] = None
    controller: ControllerOption = None
    duration: Annotated[
        float | None, option("--duration S", "Simulated seconds of each run.", show_default="the mission's")
    ] = None
    metrics: Annotated[
        list[str] | None,
        option(
            "--metrics A,B",
            "What to measure in each run.",
            show_default="passed, collisions, path_length as far as they apply",
        ),
    ] = None
    asserts: Annotated[
        list[str] | None,
        option("--assert EXPR", "What must hold: 'collisions == 0', 'mean(path_length) < 60'; repeatable."),
    ] = None
    out: Annotated[Path | None, option("--out FILE", "Result: .csv or .parquet; with --find, the mission: .yaml.")] = (
        None
    )
    plot: Annotated[
        Path | None, option("--plot FILE", "Plot the result: .png, .svg or .pdf (needs the extra `plot`).")
    ] = None
    find: Annotated[
        str | None, option("--find EXPR", "Search for a run such as 'collisions > 0'; write its smallest mission.")
    ] = None
    jobs: Annotated[int | None, jobs_option(10_000)] = None
    ray: Annotated[
        str | None, option("--ray ADDRESS", "Run on a Ray cluster: HOST:PORT, auto, or local (needs the extra `ray`).")
    ] = None
    resume: Annotated[bool, flag("--resume", "Continue from the journal next to --out.")] = False
    overwrite: Annotated[bool, flag("--overwrite", "Start again and replace an old result or journal.")] = False
    timeout: TimeoutOption = 600.0
    shrink_runs: Annotated[
        int, option("--shrink-runs N", "With --find: maximum number of runs for shrinking.", min=0)
    ] = 2000
    plugins: PluginsOption = None
    json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False
    quiet: QuietOption = False
    report: ReportOptions = ReportOptions()

    @property
    def keys(self) -> dict[str, Any]:
        """Keys of the sweep, as in its file."""
        plain = {"seeds": self.seeds, "mission": self.mission, "duration": self.duration}
        lists = {"metrics": words_of(self.metrics), "assert": tuple(self.asserts or ())}
        lists |= {"controllers": tuple(self.controller or ())}
        return {key: value for key, value in {**plain, **lists}.items() if value not in (None, ())}

    def workers(self, plan: Plan) -> WorkerPool:
        if self.ray is not None:
            from microsim.parts.sweep.worker_pool import RayWorkers

            return RayWorkers(plan.order(), self.ray, self.jobs, self.timeout)
        from microsim.parts.sweep.worker_pool import LocalWorkers

        jobs = min(self.jobs or usable_cores(), len(plan))
        return LocalWorkers(plan.order(), jobs, self.timeout)


def sweep(options: SweepOptions) -> int:
    """Run a mission with many seeds and settings.

    Each run gives a row of numbers. Workers are processes on this machine or on
    a Ray cluster; the result is the same, byte for byte. Each row ends with a
    token: `microsim replay --token TOKEN` repeats exactly that run. --resume
    continues after a kill.

    Exit codes: 0 success; 1 an assertion does not hold, a run failed, it was
    stopped, or --find found something; 2 the input is wrong.

    \b
    Examples:
      microsim sweep flat --mission patrol --seeds 0..99
      microsim sweep default --mission patrol --seeds 0..9999 \\
          --vary drone.cmd_time_constant=0.1,0.15,0.2 \\
          --metrics collisions,path_length --out results.csv --plot results.png
      microsim sweep nightly.yaml                  everything in a file
      microsim sweep nightly.yaml --resume         continue after a kill
      microsim sweep nightly.yaml --junit sweep.xml    for CI: each run is a test
      microsim sweep nightly.yaml --ray 10.0.0.5:6379    on a cluster
      microsim sweep maze --mission patrol --seeds 0..999 \\
          --find "collisions > 0" --out smallest.yaml
      microsim sweep maze --controller rover=controller.py --duration 60 \\
          --seeds 0..9999 --vary controllers.rover.near_m=1,2,3
    """
    from microsim.parts.sweep.find import FindError
    from microsim.parts.sweep.results import ResultError
    from microsim.parts.sweep.worker_pool import WorkerError

    with terminal.interruptible():
        try:
            requested = _sweep(options)
            return _fly(requested, options) if options.find is None else _find(requested, options)
        except (WorkerError, FindError, ResultError) as error:
            warn(error)
            return ExitCode.FAILED
        except KeyboardInterrupt:
            warn("stopped; nothing was written")
            return ExitCode.FAILED


class FailedRun(TypedDict):
    error: str
    token: Annotated[str, "`microsim replay --token TOKEN` repeats the run."]


class FiguresOutput(TypedDict):
    mean: float
    least: float
    most: float
    count: Annotated[int, "Runs that have a value."]


class GroupOutput(TypedDict):
    """The runs with one value of one key; without a key, all runs."""

    key: str
    value: Any
    runs: int
    failed: Annotated[int, "Runs that failed, whose mission did not pass, or that break an assertion."]
    failure_share: float
    figures: Annotated[dict[str, FiguresOutput | None], "Of each metric; null: no run has a value."]


class SweepOutput(TypedDict):
    good: Annotated[bool, "Whether all runs reached their end and all assertions hold."]
    runs: int
    failed: Annotated[list[FailedRun], "Runs that did not reach their end."]
    assertions: Annotated[dict[str, bool], "Whether each holds."]
    out: Annotated[str | None, "The file of the rows; null: none."]
    summary: list[GroupOutput]


class NothingFound(TypedDict):
    """With --find, when there is no such run."""

    found: Literal[False]
    runs: int


class FoundOutput(TypedDict):
    """With --find."""

    found: Literal[True]
    token: Annotated[str, "Of the run that was found."]
    file: Annotated[str, "The smallest mission that still does it."]
    values: Annotated[dict[str, Any], "Metrics of that mission."]
    flights: Annotated[int, "Runs that were spent on shrinking it."]
    mission: Annotated[dict[str, Any], "Its content."]


COMMAND = Command(sweep, panel="Test", position=220, json=SweepOutput | NothingFound | FoundOutput)


def _sweep(options: SweepOptions) -> Sweep:
    """The file's, with what the options change."""
    from microsim.parts.sweep.plan import is_sweep, load_sweep
    from microsim.scenario import load_scenario

    given = options.keys
    if options.vary:
        given["vary"] = varied = dict(map(_varied, options.vary))
        if len(varied) < len(options.vary):
            raise UsageError("--vary: a key is given twice; write its values with commas between them")
    if options.source is not None and is_sweep(options.source):
        return load_sweep(options.source, **given)
    scenario = options.source or "default"
    load_scenario(scenario)  # a missing file is reported before anything else
    return load_sweep({"scenario": scenario, **given})


def _varied(text: str) -> tuple[str, list[Any]]:
    key, found, values = text.partition("=")
    if not found or not key.strip() or not values.strip():
        raise UsageError(f"--vary: expected KEY=VALUE,VALUE such as wind.gust_sigma=0,0.5,1, found {text!r}")
    from microsim.parts.sweep.plan import values_of

    return key.strip(), values_of(values)


def _precompile(plan: Plan) -> None:
    """Compile once, here, before many workers would do it side by side."""
    from microsim.parts.sweep.run_one import run_one
    from microsim.simulation import Simulation

    def one_second() -> None:
        run_one(Simulation(plan.scenario), plan.mission, min(plan.duration or 1.0, 1.0), plan.metrics)

    with compiling():
        precompile_scenario(plan.scenario, one_second, f"sweep {' '.join(plan.metrics)} ")


# ---- a sweep ---------------------------------------------------------------------------------------------------------


def _fly(requested: Sweep, options: SweepOptions) -> int:
    from microsim.parts.sweep.plan import make_plan
    from microsim.parts.sweep.run_all import Reports, check_files

    options.report.check()
    out = options.out if options.out is not None else None if requested.out is None else Path(requested.out)
    if out is None and options.resume:
        raise UsageError("--resume needs --out: the journal is next to it")
    if out is not None:
        check_files(out, options.resume, options.overwrite)
    plan = make_plan(requested)
    if options.plot is not None:
        from microsim.parts.sweep.results import check_figure

        check_figure(options.plot)
    _precompile(plan)
    with Bar("running", len(plan), "runs") as bar:
        reports = Reports(bar.begin_with, lambda outcome: _count(bar, plan, outcome), bar.note)
        try:
            finished = _finished(plan, options, out, reports)
        except KeyboardInterrupt:
            return _stopped(bar, out)
    if options.plot is not None:
        from microsim.parts.sweep.results import draw

        draw(finished, options.plot)
        note(f"plot written to {options.plot}")
    _say(finished, options, out)
    options.report.write("microsim sweep", list(_ci_cases(finished)))
    return ExitCode.GOOD if finished.is_good else ExitCode.FAILED


def _finished(plan: Plan, options: SweepOptions, out: Path | None, reports: Reports) -> Finished:
    from microsim.parts.sweep.run_all import sweep_in_memory, sweep_to_file

    if out is None:
        return sweep_in_memory(plan, lambda: options.workers(plan), reports)
    return sweep_to_file(plan, lambda: options.workers(plan), out, reports)


def _count(bar: Bar, plan: Plan, outcome: RunOutcome) -> None:
    bar.count()
    if outcome.error:
        bar.note(f"microsim: run {outcome.run} failed: {outcome.error}: {plan.token(outcome.run)}")


def _stopped(bar: Bar, out: Path | None) -> int:
    from microsim.parts.sweep.run_all import journal_of

    kept = "nothing is kept without --out"
    if out is not None:
        journal = journal_of(out)
        kept = f"kept in {journal}; --resume continues" if journal.exists() else "there is nothing to keep"
    warn(f"stopped after {bar.done:,} of {bar.total:,} runs; {kept}")
    return ExitCode.FAILED


def _say(finished: Finished, options: SweepOptions, out: Path | None) -> None:
    from microsim.parts.sweep.results import summarised

    groups = summarised(finished.plan, finished.rows)
    if options.json:
        print_json(_report(finished, groups, out))
        return
    if not is_quiet():
        _print_table(finished.plan, groups)
    for row in finished.failed[:_SHOWN_FAILURES]:
        warn(f"failed: {row['error']}: {row['token']}")
    for each in finished.broken:
        warn(each)
    if not is_quiet() or not finished.is_good:
        print(_conclusion(finished, out))


def _conclusion(finished: Finished, out: Path | None) -> str:
    parts = [f"{len(finished.rows):,} runs"]
    if finished.failed:
        parts.append(f"{len(finished.failed):,} FAILED")
    conditions = finished.plan.conditions
    if conditions:
        bad = len(finished.broken)
        held = "1 assertion holds" if len(conditions) == 1 else f"{len(conditions)} assertions hold"
        parts.append(f"{bad} of {len(conditions)} assertions BROKEN" if bad else held)
    return ", ".join(parts) + ("" if out is None else f" → {out}")


def _print_table(plan: Plan, groups: Sequence[Group]) -> None:
    titles = ["", "runs", "failed", *groups[0].figures]
    rows = [_cells(plan, group) for group in groups]
    terminal.print_table(titles, rows, 2, ["bold red" if group.failed else "green" for group in groups])


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
        "good": finished.is_good, "runs": len(finished.rows),
        "failed": [{"error": row["error"], "token": row["token"]} for row in finished.failed],
        "assertions": {condition.text: True for condition in plan.conditions}
        | {each.condition.text: False for each in finished.broken}, "out": None if out is None else str(out),
        "summary": [{**asdict(group), "failure_share": group.failure_share} for group in groups],
    }  # fmt: skip


def _ci_cases(finished: Finished) -> Iterator[CiCase]:
    """Each run is a test, and each assertion about all runs."""
    from microsim.parts.sweep.results import problem_of

    plan = finished.plan
    group = f"{plan.mission.name if plan.mission is not None else 'no mission'} in {plan.scenario.name}"
    for row in finished.rows:
        name = ", ".join(f"{key} {row[key]}" for key in dict.fromkeys(("seed", *plan.varied)) if key in row)
        problem = problem_of(row, plan.conditions)
        yield CiCase(group, name, f"{problem}: microsim replay --token {row['token']}" if problem else "")
    broken = {each.condition.text: str(each) for each in finished.broken}
    for condition in plan.conditions:
        if condition.is_about_all_runs:
            yield CiCase(group, condition.text, broken.get(condition.text, ""))


# ---- finding and shrinking -------------------------------------------------------------------------------------------


def _find(requested: Sweep, options: SweepOptions) -> int:
    from microsim.parts.sweep.find import Shrinking, wanted
    from microsim.parts.sweep.plan import make_plan

    assert options.find is not None
    condition = wanted(requested, options.find)
    file = options.out or _SMALLEST
    _check_mission_file(file, options)
    plan = make_plan(requested.model_copy(update={"asserts": (), "metrics": condition.metrics}))
    _precompile(plan)
    with Bar("searching", len(plan), "runs") as bar:
        try:
            found = _searched(plan, condition, options, bar)
        except KeyboardInterrupt:
            warn(f"stopped after {bar.done:,} of {len(plan):,} runs; nothing was found")
            return ExitCode.FAILED
    if found is None:
        _say_nothing_found(plan, options)
        return ExitCode.GOOD
    shrinking = Shrinking(plan, condition, found.run)
    with Bar("shrinking", None, "runs") as bar:
        smallest = shrinking.smallest(file, options.shrink_runs, lambda runs, case: bar.count(_sized(case)))
    _say_smallest(plan, found, smallest, options)
    return ExitCode.FAILED


def _searched(plan: Plan, condition: Condition, options: SweepOptions, bar: Bar) -> RunOutcome | None:
    from microsim.parts.sweep.find import first_match
    from microsim.parts.sweep.run_all import run_all

    pool = options.workers(plan)

    def counted() -> Iterator[RunOutcome]:
        for outcome in run_all(plan, range(len(plan)), pool, bar.note):
            _count(bar, plan, outcome)
            yield outcome

    try:
        return first_match(plan, condition, counted())
    finally:
        pool.close()


def _check_mission_file(file: Path, options: SweepOptions) -> None:
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--find writes a mission: expected a name that ends with .yaml for --out, found {file}")
    unfit = [name for name in given(options) if name in ("--resume", "--plot", "--junit", "--markdown")]
    if unfit:
        raise UsageError(f"--find starts a new search and writes a mission only: leave out {', '.join(unfit)}")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}")
    for path in (file, file.with_name(f"{file.stem}.scenario.yaml")):
        if options.overwrite:
            with suppress(FileNotFoundError):
                path.unlink()
        elif path.exists():
            raise UsageError(f"{path} already exists; --overwrite replaces it")


def _sized(case: FailingCase) -> str:
    steps, seconds, faults = case.size
    more = f", {faults} {'fault' if faults == 1 else 'faults'}" if case.faults is not None else ""
    return f"{steps} {'step' if steps == 1 else 'steps'}, {seconds:g} s{more}"


def _say_nothing_found(plan: Plan, options: SweepOptions) -> None:
    if options.json:
        print_json({"found": False, "runs": len(plan)})
    else:
        tell(f"not found in {len(plan):,} runs: {options.find}")


def _say_smallest(plan: Plan, found: RunOutcome, smallest: Smallest, options: SweepOptions) -> None:
    token = plan.token(found.run)
    if options.json:
        answer = {"found": True, "token": token, "file": str(smallest.file), "values": smallest.values}
        print_json({**answer, "flights": smallest.runs, "mission": smallest.case.mission})
        return
    values = ", ".join(f"{name} = {value}" for name, value in smallest.values.items())
    print(f"found: {options.find}: in run {found.run:,} of {len(plan):,}: {token}")
    print(f"smallest mission that still does: {_sized(smallest.case)} instead of {_sized(smallest.before)}; {values}")
    print(f"verified by re-running it ({smallest.runs:,} runs). Written to {smallest.file}; run it with:")
    folders = dict.fromkeys(str(Path(block.file).parent) for block in plan.scenario.controllers.values())
    trusted = "".join(f" --plugins {shlex.quote(folder)}" for folder in folders)
    print(f"  microsim run --mission {smallest.file} --rtf 0{trusted}")
