"""`microsim check`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim import paths
from microsim.check.check_runs import Case, CheckRun, Children, Environment, Result, environments, run_all
from microsim.check.determinism import CheckVerdict, Finding, find, judged
from microsim.cli.progress import Bar, interruptible
from microsim.cli.quiet import is_quiet
from microsim.cli.tables import print_table
from microsim.errors import UsageError

SCENARIOS = ("default", "flat", "obstacles_arena")  # when none is named
_EXPLAINED = 3  # differences that are looked into; the others have the same cause more often than not


@dataclass(frozen=True)
class Options:
    scenarios: tuple[str, ...]
    missions: tuple[str, ...]
    seeds: int
    jobs: int
    timeout_s: float
    slow: bool
    json: bool


def check(options: Options) -> int:
    """0: the same everywhere; 1: not; 2: the input is wrong."""
    cases = _cases(options)
    tried = environments(options.slow)
    with interruptible(), tempfile.TemporaryDirectory(prefix="microsim-check-") as folder:
        children = Children(Path(folder), options.timeout_s)
        runs = [CheckRun(case, environment) for case in cases for environment in tried]
        told = Bar("flying", len(runs), "runs")
        try:
            with told:
                results = run_all(runs, children, options.jobs, lambda result: told.count(_said(result)))
                verdicts = [judged(case, tried, results) for case in cases]
                findings = _findings(verdicts, children, told)
        except KeyboardInterrupt:
            children.end()
            print(f"microsim: stopped after {told.done} of {len(runs)} runs; nothing is proved", file=sys.stderr)
            return 1
    _say(verdicts, findings, tried, options.json)
    if any(result.is_refused for verdict in verdicts for result in verdict.broken):
        return 2
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _cases(options: Options) -> list[Case]:
    """Every combination; a name or file that is wrong is refused before anything runs."""
    from microsim.missions import load_mission
    from microsim.scenario import load_scenario

    scenarios = list(dict.fromkeys(options.scenarios or SCENARIOS))
    missions = list(dict.fromkeys(options.missions or paths.mission_names()))
    for scenario in scenarios:
        load_scenario(scenario)
    for mission in missions:
        load_mission(mission)
    if not scenarios or not missions:
        raise UsageError("there is nothing to check")
    seeds = [None, *range(1, options.seeds)]
    return [Case(scenario, mission, seed) for scenario in scenarios for mission in missions for seed in seeds]


def _findings(verdicts: Sequence[CheckVerdict], children: Children, told: Bar) -> list[Finding]:
    pairs = [(verdict.reference, result) for verdict in verdicts for result in verdict.different]
    found = []
    for reference, result in pairs[:_EXPLAINED]:
        told.say("flying again to find the first difference")
        found.append(find(reference, result, children))
    return found


def _said(result: Result) -> str:
    return f"{result.run.case} in {result.run.environment.name}"


# ---- telling ---------------------------------------------------------------------------------------------------------


def _say(
    verdicts: Sequence[CheckVerdict], findings: Sequence[Finding], tried: Sequence[Environment], as_json: bool
) -> None:
    if as_json:
        print(json.dumps(report(verdicts, findings, tried), ensure_ascii=False))
        return
    if not is_quiet():
        _print_table(verdicts, tried)
        _print_environments(tried)
    for verdict in verdicts:
        for result in verdict.broken:
            print(f"microsim: {verdict.case} in {result.run.environment.name}: {result.error}", file=sys.stderr)
    for finding in findings:
        print(f"microsim: {finding}", file=sys.stderr)
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
    facts = ("", "", "") if reference.error else (str(reference.seed), str(reference.ticks), reference.digest[:16])
    mission = Path(case.mission).stem if case.mission.endswith((".yaml", ".yml", ".json")) else case.mission
    return (case.scenario, mission, *facts, _outcome(verdict))


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


def report(
    verdicts: Sequence[CheckVerdict], findings: Sequence[Finding], tried: Sequence[Environment]
) -> dict[str, Any]:
    found = {(each.result.run.case, each.result.run.environment.name): each for each in findings}
    return {
        "identical": all(verdict.is_good for verdict in verdicts),
        "environments": {environment.name: environment.about for environment in tried},
        "missions": [_case_report(verdict, found) for verdict in verdicts],
    }


def _case_report(verdict: CheckVerdict, found: dict[tuple[Case, str], Finding]) -> dict[str, Any]:
    reference, case = verdict.reference, verdict.case
    differences = []
    for result in verdict.different:
        finding = found.get((case, result.run.environment.name))
        facts: dict[str, Any] = {"environment": result.run.environment.name, "digest": result.digest}
        if finding is not None:
            facts |= {"tick": finding.tick, "topic": finding.topic, "about": str(finding)}
        differences.append(facts)
    return {
        "scenario": case.scenario,
        "mission": case.mission,
        "seed": None if reference.error else reference.seed,
        "ticks": reference.ticks,
        "digest": reference.digest,
        "same": list(verdict.same),
        "different": differences,
        "failed": [{"environment": each.run.environment.name, "error": each.error} for each in verdict.broken],
    }


def default_jobs() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
