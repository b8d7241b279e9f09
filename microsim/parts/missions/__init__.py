"""Missions: YAML files that say what is done at which time, and the expected result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from microsim.parts.missions.mission_file import Mission, load_mission
    from microsim.parts.missions.outcome import MissionOutcome, fly_mission
    from microsim.parts.missions.pilot import MissionPilot

__all__ = ["Mission", "MissionOutcome", "MissionPilot", "fly_mission", "load_mission"]

_HOMES = {
    "Mission": "mission_file", "MissionOutcome": "outcome", "MissionPilot": "pilot", "fly_mission": "outcome",
    "load_mission": "mission_file",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imported when first used: the help of `microsim run` must not pay for numba."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
