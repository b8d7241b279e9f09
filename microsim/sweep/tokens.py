"""Tokens: one line of text that stands for one run, and is all that is needed to fly it again.

    microsim-0.1.0:scenario=flat@3f2a91c0d4e5b6a7:mission=patrol@9b1c…:seed=17:robots.drone.max_vx=2.0:check=1a2b3c4d

Scenario and mission are named as they were, with a hash of their content: a run that could be another one is refused.
Nothing in a token needs quotes in a shell or in a CSV file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from microsim.errors import UsageError
from microsim.missions import Mission
from microsim.recording.inputs import packed, plugin_hashes
from microsim.scenario import Scenario
from microsim.version import __version__

_HASH_DIGITS, _CHECK_DIGITS = 16, 8
_PREFIX = "microsim-"
_OWN = ("scenario", "mission", "seed", "duration")


@dataclass(frozen=True)
class Source:
    """A scenario or a mission: what it is called, and what it says."""

    name: str
    content: str  # hash

    def __str__(self) -> str:
        return f"{quote(self.name, safe='/')}@{self.content}"


@dataclass(frozen=True)
class Token:
    scenario: Source
    mission: Source | None
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
    """UsageError when it is not one, or not whole."""
    text = text.strip()
    body, found, checksum = text.rpartition(":check=")
    if not found or not body.startswith(_PREFIX):
        raise UsageError(f"expected a token that begins with {_PREFIX} and ends with check=…, found {text[:60]!r}")
    if checksum != _checksum(body):
        raise UsageError("the token is not whole: its checksum does not fit what it says")
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


def _source(text: str) -> Source:
    name, found, content = text.rpartition("@")
    if not found:
        raise ValueError(f"no hash in {text!r}")
    return Source(unquote(name), content)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_CHECK_DIGITS]


# ---- what a source says ----------------------------------------------------------------------------------------------


def content_of(data: Any) -> str:
    """Of plain data: the same for two files that mean the same."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def scenario_content(scenario: Scenario) -> str:
    """Everything the scenario resolves to, files and the code of plug-ins included, whatever folder they are in."""
    data, _ = packed(scenario)  # files are named by their content
    data["plugins"] = []
    if data.get("world"):
        data["world"]["path"] = ""  # its hash is beside it
    return content_of([data, plugin_hashes(scenario)])


def mission_data(mission: Mission) -> dict[str, Any]:
    """Plain data that `load_mission` takes back."""
    return mission.model_dump(mode="json", by_alias=True, exclude_unset=True)


def mission_content(mission: Mission) -> str:
    """What is done and expected; not what it is called, nor where and with which seed it is flown by default."""
    data = mission_data(mission)
    return content_of({key: data[key] for key in ("duration", "do", "expect") if key in data})
