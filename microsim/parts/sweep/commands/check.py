"""`microsim determinism`: the determinism check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typing_extensions import NotRequired, TypedDict

from microsim.cli.command import (
    ControllerOption,
    PluginsOption,
    QuietOption,
    TimeoutOption,
    renamed,
    seconds,
    words_of,
)
from microsim.cli.json_schemas import Digest, Ticks
from microsim.cli.terminal import Bar, ExitCode, interruptible, is_quiet, print_json, print_table, warn
from microsim.errors import UsageError
from microsim.options import argument, flag, option
from microsim.parts.missions.ci_reports import CiCase, ReportOptions
from microsim.parts.ros2.transports import transport_option
from microsim.processes import usable_cores

if TYPE_CHECKING:
    from microsim.parts.sweep.check import Case, CheckVerdict, Children, Environment, Finding
    from microsim.parts.sweep.check.node_check import LoopRun

_SCENARIOS = ("default", "flat", "obstacles_arena")  # when none is named
_EXPLAINED = 3  # differences that are explained; the others have the same cause more often than not


def jobs_option(most: int) -> Any:
    return option("--jobs J", "Processes at a time.", min=1, max=most, show_default="one per processor core")


_WITH = (
    "Check your own node: run it with the simulator in lockstep, under varied load, and report whether and when it "
    "replies differently."
)


class CheckOptions(NamedTuple):
    scenarios: Annotated[
        list[str] | None,
        argument("SCENARIO", "Scenarios, shipped or files.", show_default="default flat obstacles_arena"),
    ] = None
    missions: Annotated[
        list[str] | None, option("--missions A,B", "Missions, shipped or files.", show_default="all shipped ones")
    ] = None
    seeds: Annotated[int, option("--seeds N", "Run each mission with N seeds: its own, 1, 2 …", min=1, max=1000)] = 1
    jobs: Annotated[int | None, jobs_option(256)] = None
    timeout: TimeoutOption = 600.0
    slow: Annotated[bool, flag("--slow", "Also without the compiler: half a simulated second of each mission.")] = False
    with_node: Annotated[str | None, option("--with COMMAND", _WITH)] = None
    lockstep: Annotated[
        list[str] | None, option("--lockstep GATE", "With --with: gates, as in `microsim run`; repeatable.")
    ] = None
    controller: ControllerOption = None
    duration: Annotated[
        float, option("--duration TIME", "Without a mission, with --with or --controller: time.", parser=seconds)
    ] = 10.0
    transport: Annotated[
        str | None,
        transport_option("With --with: as in `microsim run`.", is_network=True, show_default="auto"),
    ] = None
    plugins: PluginsOption = None
    json: Annotated[bool, flag("--json", "Print the result as one line of JSON.")] = False
    quiet: QuietOption = False
    report: ReportOptions = ReportOptions()


def determinism(options: CheckOptions) -> int:
    """Check that missions give the same messages everywhere.

    Each mission runs in processes with another hash seed, one thread, another
    pace, kernels compiled for any processor, and NumPy without this processor's
    vector units. A difference is reported with the environment, the first tick
    and topic, and the field. Only determinism is checked, not expectations.

    Exit codes: 0 identical, 1 different, 2 the input is wrong. The first
    time, kernels are compiled twice, which takes about a minute.

    \b
    Examples:
      microsim determinism                        three scenarios × five missions
      microsim determinism flat --missions hover,patrol
      microsim determinism world.yaml --missions mission.yaml --seeds 5 --jobs 4
      microsim determinism flat --missions radio_ping --slow --json
      microsim determinism --junit check.xml --markdown check.md    for CI
      microsim determinism flat --controller rover=controller.py      your code
      microsim determinism flat --with 'ros2 run my_package my_node' \\
          --lockstep 'after: /rover/odom, expect: /rover/cmd_vel'
    """
    import tempfile

    from microsim.parts.sweep.check import CheckRun, Children, environments, judged, run_all

    options.report.check()
    if options.with_node is not None:
        return _check_node(options, options.with_node)
    if options.lockstep:
        raise UsageError("--lockstep is for --with COMMAND, which starts the node that replies")
    if options.transport is not None:
        raise UsageError("--transport is for --with COMMAND; other checks run without ROS 2")
    cases = _cases(options)
    tried = environments(options.slow)
    with interruptible(), tempfile.TemporaryDirectory(prefix="microsim-check-") as folder:
        children = Children(Path(folder), options.timeout)
        runs = [CheckRun(case, environment) for case in cases for environment in tried]
        bar = Bar("running", len(runs), "runs")
        try:
            with bar:
                jobs = options.jobs or usable_cores()
                results = run_all(runs, children, jobs, lambda result: bar.count(str(result.run)))
                verdicts = [judged(case, tried, results) for case in cases]
                findings = _findings(verdicts, children, bar)
        except KeyboardInterrupt:
            children.end()
            warn(f"stopped after {bar.done} of {len(runs)} runs, without a result")
            return ExitCode.FAILED
    _say(verdicts, findings, tried, options.json)
    options.report.write("microsim determinism", list(_ci_cases(verdicts, findings)))
    if any(result.is_refused for verdict in verdicts for result in verdict.broken):
        return ExitCode.WRONG_INPUT
    return ExitCode.GOOD if all(verdict.is_good for verdict in verdicts) else ExitCode.FAILED


class CheckDifference(TypedDict):
    environment: str
    digest: Digest
    tick: NotRequired[Annotated[int | None, "Of the first difference, where it was looked for."]]
    topic: NotRequired[Annotated[str | None, "Of the first message that differs."]]
    about: NotRequired[Annotated[str, "The difference as text."]]


class CheckFailure(TypedDict):
    environment: str
    error: str


class CheckedMission(TypedDict):
    scenario: str
    mission: str
    seed: Annotated[int | None, "null: the reference run failed."]
    ticks: Ticks
    digest: Digest
    same: Annotated[list[str], "Environments with the same messages as the reference."]
    different: list[CheckDifference]
    failed: list[CheckFailure]


class CheckOutput(TypedDict):
    identical: Annotated[bool, "Whether all missions are the same in all environments."]
    environments: Annotated[dict[str, str], "Name of each environment, and what is special about it."]
    missions: list[CheckedMission]


COMMAND = renamed("determinism")


def _cases(options: CheckOptions) -> list[Case]:
    """Every combination; a wrong name or file is refused before anything runs."""
    from microsim import paths
    from microsim.parts.missions import load_mission
    from microsim.parts.sweep.check import Case
    from microsim.scenario import load_scenario
    from microsim.scenario.gates import refuse_gates

    scenarios = list(dict.fromkeys(options.scenarios or _SCENARIOS))
    controllers = tuple(options.controller or ())
    missions = list(dict.fromkeys(words_of(options.missions) or ([""] if controllers else paths.mission_names())))
    for scenario in scenarios:
        refuse_gates("microsim determinism", load_scenario(scenario, controllers=controllers))
    for mission in filter(None, missions):
        refuse_gates("microsim determinism", load_mission(mission))
    if not scenarios or not missions:
        raise UsageError("there is nothing to check")
    seeds = [None, *range(1, options.seeds)]
    how = controllers, float(options.duration)
    return [Case(scenario, mission, seed, *how) for scenario in scenarios for mission in missions for seed in seeds]


def _findings(verdicts: Sequence[CheckVerdict], children: Children, bar: Bar) -> list[Finding]:
    from microsim.parts.sweep.check import find

    pairs = [(verdict.reference, result) for verdict in verdicts for result in verdict.different]
    found = []
    for reference, result in pairs[:_EXPLAINED]:
        bar.say("flying again to find the first difference")
        found.append(find(reference, result, children))
    return found


def _say(
    verdicts: Sequence[CheckVerdict], findings: Sequence[Finding], tried: Sequence[Environment], as_json: bool
) -> None:
    if as_json:
        print_json(_report(verdicts, findings, tried))
        return
    if not is_quiet():
        _print_table(verdicts, tried)
        _print_environments(tried)
    for verdict in verdicts:
        for result in verdict.broken:
            warn(f"{result.run}: {result.error}")
    for finding in findings:
        warn(finding)
    if not is_quiet() or not all(verdict.is_good for verdict in verdicts):
        print(_conclusion(verdicts, len(tried)))


def _conclusion(verdicts: Sequence[CheckVerdict], tried: int) -> str:
    good = sum(verdict.is_good for verdict in verdicts)
    count = f"{good} of {len(verdicts)} missions"
    if good == len(verdicts):
        return f"identical: {count} in {tried} environments"
    return f"NOT identical: only {count} in {tried} environments"


def _print_table(verdicts: Sequence[CheckVerdict], tried: Sequence[Environment]) -> None:
    rows = [_row(verdict) for verdict in verdicts]
    titles = ("scenario", "mission", "seed", "ticks", "digest", f"in {len(tried)} environments")
    print_table(titles, rows, len(titles) - 1, ["green" if row[-1] == "same" else "bold red" for row in rows])


def _row(verdict: CheckVerdict) -> tuple[str, ...]:
    reference, case = verdict.reference, verdict.case
    entry = ("", "", "") if reference.error else (str(reference.seed), str(reference.ticks), reference.digest[:16])
    what = case.mission or ", ".join(case.controllers)
    mission = Path(what).stem if what.endswith((".yaml", ".yml", ".json")) else what
    return (case.scenario, mission, *entry, _outcome(verdict))


def _outcome(verdict: CheckVerdict) -> str:
    groups = {"DIFFERENT": verdict.different, "FAILED": verdict.broken}
    parts = [
        f"{word} in {', '.join(result.run.environment.name for result in results)}"
        for word, results in groups.items()
        if results
    ]
    return "; ".join(parts) or "same"


def _print_environments(tried: Sequence[Environment]) -> None:
    width = max(len(environment.name) for environment in tried)
    print()
    for environment in tried:
        print(f"  {environment.name:{width}}  {environment.about}")


def _report(
    verdicts: Sequence[CheckVerdict], findings: Sequence[Finding], tried: Sequence[Environment]
) -> dict[str, Any]:
    found = {(each.result.run.case, each.result.run.environment.name): each for each in findings}
    return {
        "identical": all(verdict.is_good for verdict in verdicts),
        "environments": {environment.name: environment.about for environment in tried},
        "missions": [_case_report(verdict, found) for verdict in verdicts],
    }


def _ci_cases(verdicts: Sequence[CheckVerdict], findings: Sequence[Finding]) -> Iterator[CiCase]:
    """A mission in an environment is a test."""
    explained = {(each.result.run.case, each.result.run.environment.name): str(each) for each in findings}
    for verdict in verdicts:
        case, group = verdict.case, " ".join(_row(verdict)[:3]).strip()
        yield from (CiCase(group, name) for name in verdict.same)
        for result in verdict.different:
            name = result.run.environment.name
            text = f"different: digest {result.digest}, expected {verdict.reference.digest}"
            yield CiCase(group, name, explained.get((case, name), text))
        yield from (CiCase(group, each.run.environment.name, each.error) for each in verdict.broken)


def _case_report(verdict: CheckVerdict, found: dict[tuple[Case, str], Finding]) -> dict[str, Any]:
    reference, case = verdict.reference, verdict.case
    differences = []
    for result in verdict.different:
        finding = found.get((case, result.run.environment.name))
        entry: dict[str, Any] = {"environment": result.run.environment.name, "digest": result.digest}
        if finding is not None:
            entry |= {"tick": finding.tick, "topic": finding.topic, "about": str(finding)}
        differences.append(entry)
    return {
        "scenario": case.scenario, "mission": case.mission, "seed": None if reference.error else reference.seed,
        "ticks": reference.ticks, "digest": reference.digest, "same": list(verdict.same), "different": differences,
        "failed": [{"environment": each.run.environment.name, "error": each.error} for each in verdict.broken],
    }  # fmt: skip


# ---- a user's node ---------------------------------------------------------------------------------------------------


def _check_node(options: CheckOptions, command: str) -> int:
    import tempfile

    from microsim.parts.sweep.check.node_check import NodeCheck, check_node, conditions, first_differences

    tried = conditions()
    with interruptible(), tempfile.TemporaryDirectory(prefix="microsim-check-") as folder:
        bar = Bar("running", len(tried), "runs")
        check = NodeCheck(_run_arguments(options), command, Path(folder), options.timeout)
        try:
            with bar:
                runs = check_node(check, tried, lambda run: bar.count(run.condition.name))
        except KeyboardInterrupt:
            warn(f"stopped after {bar.done} of {len(tried)} runs, without a result")
            return ExitCode.FAILED
        differences = first_differences(runs)
    _say_node(runs, differences, options)
    group = f"{command} in {(options.scenarios or [''])[0]}"
    cases = [
        CiCase(group, each.condition.name, each.error or differences.get(each.condition.name, "")) for each in runs
    ]
    options.report.write("microsim determinism --with", cases)
    return ExitCode.FAILED if differences or any(run.error for run in runs) else ExitCode.GOOD


def _run_arguments(options: CheckOptions) -> list[str]:
    from microsim.parts.missions import load_mission
    from microsim.scenario import load_scenario
    from microsim.scenario.gates import gates_from_text

    missions, scenarios = words_of(options.missions), options.scenarios or []
    if len(scenarios) != 1 or len(missions) > 1:
        raise UsageError("--with checks one scenario, with one mission at most")
    scenario = scenarios[0]
    gates: list[Any] = [gate for text in options.lockstep or () for gate in gates_from_text(text)]
    if not (gates or load_scenario(scenario).lockstep or any(load_mission(each).lockstep for each in missions)):
        raise UsageError("nothing waits for the node: add --lockstep 'after: TOPIC, expect: TOPIC'")
    arguments = [scenario, *(("--transport", options.transport) if options.transport is not None else ())]
    arguments += [*(word for text in options.lockstep or () for word in ("--lockstep", text))]
    return [*arguments, *(("--mission", missions[0]) if missions else ("--duration", str(options.duration)))]


def _say_node(runs: Sequence[LoopRun], differences: dict[str, str], options: CheckOptions) -> None:
    same = [run for run in runs if not run.error and run.condition.name not in differences]
    is_good = len(same) == len(runs)
    if options.json:
        print_json(_node_report(runs, differences, options))
        return
    if not is_quiet():
        rows = [
            (run.condition.name, run.condition.about, run.digest[:16], _node_outcome(run, differences)) for run in runs
        ]
        colours = ["green" if run in same else "bold red" for run in runs]
        print_table(("condition", "what it varies", "digest", "result"), rows, 3, colours)
    for run in runs:
        if run.error:
            warn(f"{run.condition.name}: {run.error}")
    for name, text in differences.items():
        warn(f"{name}: {text}")
    if not is_quiet() or not is_good:
        print(f"{'identical' if is_good else 'NOT identical'}: {len(same)} of {len(runs)} runs gave the first digest")


def _node_outcome(run: LoopRun, differences: dict[str, str]) -> str:
    return "FAILED" if run.error else "DIFFERENT" if run.condition.name in differences else "same"


def _node_report(runs: Sequence[LoopRun], differences: dict[str, str], options: CheckOptions) -> dict[str, Any]:
    """As of a mission in environments."""
    good = [run for run in runs if not run.error]
    reference = runs[0]
    case = {
        "scenario": (options.scenarios or [""])[0], "mission": ",".join(words_of(options.missions)),
        "seed": reference.seed, "ticks": reference.ticks, "digest": reference.digest,
        "same": [run.condition.name for run in good[1:] if run.condition.name not in differences],
        "different": [
            {"environment": run.condition.name, "digest": run.digest, "about": differences[run.condition.name]}
            for run in good
            if run.condition.name in differences
        ],
        "failed": [{"environment": run.condition.name, "error": run.error} for run in runs if run.error],
    }  # fmt: skip
    environments = {run.condition.name: run.condition.about for run in runs}
    return {"identical": not differences and len(good) == len(runs), "environments": environments, "missions": [case]}
