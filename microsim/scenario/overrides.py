"""Other values for keys of a scenario, named by their path: `wind.gust_sigma`, `obstacles.0.size`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from microsim.errors import UsageError, unknown
from microsim.scenario.loading import load_scenario
from microsim.scenario.models import Scenario


class SettingError(UsageError):
    """A key path that leads nowhere."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def with_values(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with other values; SettingError names a path that does not exist, ScenarioError what is wrong."""
    if not changes:
        return scenario
    document = {"chaos": None, **scenario.to_dict()}  # which is not written where there is none
    for path, value in changes.items():
        _write(document, path, copy.deepcopy(value))
    return load_scenario(document)


def full_path(scenario: Scenario, path: str) -> str:
    """`drone.max_vx` is short for `robots.drone.max_vx` where the scenario has a robot `drone`."""
    first = path.partition(".")[0]
    is_short = first in scenario.robots and first not in Scenario.key_names()
    return f"robots.{path}" if is_short else path


def _write(document: Any, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        place = _place(document, key, path)
        if document[place] is None:  # a sensor that is absent can be described
            document[place] = {}
        document = document[place]
    if isinstance(document, dict) and not document:
        document[last] = value
    else:
        document[_place(document, last, path)] = value


def _place(document: Any, key: str, path: str) -> str | int:
    """The key, or the index in a list, under which a part of the path stands."""
    if isinstance(document, list):
        if key.isdecimal() and int(key) < len(document):
            return int(key)
        raise SettingError(
            f"the scenario has no {path!r}: expected an index below {len(document)}, found {key!r}", path
        )
    if not isinstance(document, dict) or key not in document:
        names = document if isinstance(document, dict) else ()
        raise SettingError(unknown("the scenario has no", repr(path), key, names), path)
    return key
