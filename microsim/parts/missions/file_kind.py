"""Missions, for `microsim validate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from microsim import paths
from microsim.errors import Problem
from microsim.file_kinds import FileKind


def _is_mission(source: str) -> bool:
    from microsim.parts.missions.mission_file import is_mission

    return is_mission(Path(source))


def _check(source: str) -> Sequence[Problem]:
    from microsim.parts.missions.mission_file import load_mission
    from microsim.parts.missions.pilot import check
    from microsim.simulation import Simulation

    mission = load_mission(source)
    if mission.scenario is not None:  # it may run in others
        check(mission, Simulation(mission.scenario, mission.seed))
    return ()


FILE_KIND = FileKind(
    "mission", 20, names=paths.mission_names, is_one=_is_mission, check=_check,
)  # fmt: skip
