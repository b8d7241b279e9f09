"""Scenarios and world bundles, for `microsim validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from microsim import paths
from microsim.errors import Problem, ScenarioError
from microsim.file_kinds import FileKind


def _check_scenario(source: str | Mapping[str, Any]) -> Sequence[Problem]:
    """What a run checks before its first tick. What names topics is checked against those that there are."""
    from microsim.scenario import load_scenario

    scenario = load_scenario(source)
    if scenario.lockstep or scenario.faults:
        from microsim.gate_checks import check_gates
        from microsim.simulation import Simulation

        check_gates(Simulation(scenario))
    return ()


def _is_bundle(source: str) -> bool:
    from microsim.bundle import is_bundle

    return is_bundle(source)


def _check_bundle(source: str) -> Sequence[Problem]:
    from microsim.bundle import check_bundle

    found = check_bundle(source)
    is_bad = any(not problem.is_warning for problem in found)
    return found if is_bad else [*found, *_refusals({"world": source}, source)]


def _refusals(scenario: dict[str, Any], file: str) -> Iterator[Problem]:
    """Why a world that is right cannot be run on its own: its car has no ground where it starts by default."""
    try:
        _check_scenario(scenario)
    except ScenarioError as error:
        for problem in error.problems:
            yield replace(problem, file=problem.file or file, remedy=problem.remedy or "so it cannot be run on its own")


FILE_KIND = (
    FileKind(
        "scenario", 10, names=paths.scenario_names, is_one=lambda source: True, check=_check_scenario,
    ),
    FileKind(
        "bundle", 30, names=lambda: (), is_one=_is_bundle, check=_check_bundle
    ),
)  # fmt: skip
