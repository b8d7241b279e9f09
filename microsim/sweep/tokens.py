"""Tokens: one line of text that identifies a run and is enough to repeat it.

    microsim-0.1.0:scenario=flat@3f2a91c0d4e5b6a7:mission=patrol@9b1c…:seed=17:robots.drone.max_vx=2.0:check=1a2b3c4d

It has the names of the scenario and the mission and a hash of their content: if either has changed, the token is
refused. Nothing in a token needs quotes in a shell or in a CSV file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from microsim.errors import MicroSimError, UsageError
from microsim.missions import Mission, load_mission
from microsim.recording.inputs import packed, plugin_hashes
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.overrides import with_values
from microsim.simulation import Simulation
from microsim.sweep.metrics import WatchedRun, all_metrics, has_meaning
from microsim.sweep.run_one import MetricRun
from microsim.version import __version__

_HASH_DIGITS, _CHECK_DIGITS = 16, 8
_PREFIX = "microsim-"
_OWN = ("scenario", "mission", "seed", "duration")
Loaded = TypeVar("Loaded", Scenario, Mission)


@dataclass(frozen=True)
class TokenSource:
    """The name of a scenario or a mission, and a hash of its content."""

    name: str
    content: str

    def __str__(self) -> str:
        return f"{quote(self.name, safe='/')}@{self.content}"


@dataclass(frozen=True)
class Token:
    scenario: TokenSource
    mission: TokenSource | None
    seed: int
    duration: float | None
    changes: Mapping[str, Any] = field(default_factory=dict)  # full key path in the scenario -> value
    version: str = __version__

    def __str__(self) -> str:
        parts: dict[str, str] = {"scenario": str(self.scenario)}
        if self.mission is not None:
            parts["mission"] = str(self.mission)
        parts["seed"] = str(self.seed)
        if self.duration is not None:
            parts["duration"] = repr(self.duration)
        parts |= {
            path: quote(json.dumps(value, separators=(",", ":")), safe="") for path, value in self.changes.items()
        }
        text = ":".join([f"{_PREFIX}{self.version}", *(f"{key}={value}" for key, value in parts.items())])
        return f"{text}:check={_checksum(text)}"


def read_token(text: str) -> Token:
    """UsageError if it is malformed or incomplete."""
    text = text.strip()
    body, found, checksum = text.rpartition(":check=")
    if not found or not body.startswith(_PREFIX):
        raise UsageError(f"expected a token that begins with {_PREFIX} and ends with check=…, found {text[:60]!r}")
    if checksum != _checksum(body):
        raise UsageError("the token is incomplete or was changed: its checksum does not match")
    first, *rest = body.split(":")
    try:
        parts = dict(part.split("=", 1) for part in rest)
        changes = {path: json.loads(unquote(value)) for path, value in parts.items() if path not in _OWN}
        return Token(
            _source(parts["scenario"]),
            _source(parts["mission"]) if "mission" in parts else None,
            int(parts["seed"]),
            float(parts["duration"]) if "duration" in parts else None,
            changes,
            first.removeprefix(_PREFIX),
        )
    except (KeyError, ValueError) as error:
        raise UsageError(f"the token cannot be read: {error}") from None


def _source(text: str) -> TokenSource:
    name, found, content = text.rpartition("@")
    if not found:
        raise ValueError(f"no hash in {text!r}")
    return TokenSource(unquote(name), content)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]


# ---- the content of a source -----------------------------------------------------------------------------------------


def content_of(data: Any) -> str:
    """A hash of plain data: the same for two files that mean the same."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def scenario_content(scenario: Scenario) -> str:
    """Everything the scenario resolves to, with files and the code of plug-ins, whatever folder they are in."""
    data, _ = packed(scenario)  # files are named by their content
    data["plugins"] = []
    if data.get("world"):
        data["world"]["path"] = ""  # its hash is another key
    return content_of([data, plugin_hashes(scenario)])


def mission_data(mission: Mission) -> dict[str, Any]:
    """Plain data that `load_mission` accepts."""
    return mission.model_dump(mode="json", by_alias=True, exclude_unset=True)


def mission_content(mission: Mission) -> str:
    """What is done and expected; neither its name nor its default scenario and seed."""
    data = mission_data(mission)
    return content_of({key: data[key] for key in ("duration", "do", "expect") if key in data})


# ---- the run of a token ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replayable:
    """The run of a token, ready at tick 0."""

    token: Token
    sim: Simulation
    mission: Mission | None

    def metric_run(self) -> MetricRun:
        """With every metric that has a meaning here."""
        run, has_mission = WatchedRun(self.sim, None), self.mission is not None
        names = [
            name
            for name, metric in all_metrics(self.sim.scenario.plugins).items()
            if (has_mission if metric.judges else has_meaning(name, run))
        ]
        return MetricRun(self.sim, self.mission, names)


def from_token(text: str, scenario: str | None = None, mission: str | None = None) -> Replayable:
    """`scenario` and `mission`: where they are, if not where the token says; their content must be the same."""
    token = read_token(text)
    world = _loaded(load_scenario, token, token.scenario, scenario, "scenario", scenario_content)
    steps = None
    if token.mission is not None:
        steps = _loaded(load_mission, token, token.mission, mission, "mission", mission_content)
    elif mission is not None:
        raise UsageError("this token is of a run without a mission; leave out --mission")
    try:
        return Replayable(token, Simulation(with_values(world, token.changes), token.seed), steps)
    except UsageError as error:
        raise UsageError(f"the token does not fit its scenario: {error}") from None


def _loaded(
    load: Callable[[str], Loaded],
    token: Token,
    source: TokenSource,
    given: str | None,
    what: str,
    content_of_it: Callable[[Loaded], str],
) -> Loaded:
    """From where it was given; by default by its name, which is enough for what is shipped or in this folder."""
    try:
        found = load(source.name if given is None else given)
    except MicroSimError as error:
        if given is not None:
            raise
        raise UsageError(
            f"the token's {what} {source.name!r} cannot be loaded; say where it is with --{what}: {error}"
        ) from None
    content = content_of_it(found)
    if content != source.content:
        is_same = token.version == __version__
        by = "" if is_same else f"; the token was made by microsim {token.version}, this is {__version__}"
        raise UsageError(
            f"the {what} {source.name!r} has changed since the token was made (its content was {source.content}, now "
            f"it is {content}){by}: this would be another run"
        )
    return found
