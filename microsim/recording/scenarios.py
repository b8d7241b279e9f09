"""A scenario inside a bag: complete, and independent of the machine it came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from microsim.documents.yaml_text import read_yaml
from microsim.errors import ScenarioError
from microsim.recording.entries import BagError
from microsim.scenario import ElevationFile, Scenario, load_scenario
from microsim.scenario.files import located
from microsim.scenario.plugins import find_sensor
from microsim.scenario.robots import ROBOTS
from microsim.scenario.sensors import PluginSensor


def packed(scenario: Scenario) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Plain data in which files are named by their content, and these files."""
    data, elevation = scenario.to_dict(), scenario.map.elevation
    if not isinstance(elevation, ElevationFile):
        return data, {}
    path = located(elevation.file)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BagError(f"{path} cannot be read: {error.strerror or error}") from None
    name = f"elevation-{hashlib.sha256(content).hexdigest()[:16]}{path.suffix}"
    data["map"]["elevation"] = {"file": name}
    return data, {name: content}


def as_text(data: Mapping[str, Any]) -> str:
    """JSON, which is YAML too and a hundred times quicker."""
    return json.dumps(data, ensure_ascii=False, indent=2)


def unpacked(
    text: str,
    folder: Path,
    files: Mapping[str, bytes],
    plugins: Sequence[str | Path] | None = None,
    world: str | Path | None = None,
) -> Scenario:
    """The scenario again; its files are put into `folder`. `plugins` and `world`: in place of the folders it names."""
    try:
        data = json.loads(text) if text.startswith("{") else read_yaml(text, "the recorded scenario").data
        elevation = data.get("map", {}).get("elevation", {})
        if "file" in elevation:
            elevation["file"] = str(_placed(str(elevation["file"]), folder, files))
        if plugins is not None:
            data["plugins"] = list(map(str, plugins))
        if world is not None:
            if not data.get("world"):
                raise BagError("the recorded scenario has no world bundle: leave out --world")
            data["world"]["path"] = str(world)  # its hash stays, and is checked
        return load_scenario(data)
    except ScenarioError as error:
        raise BagError(f"the recorded scenario cannot be run: {error}") from None
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise BagError(f"the recorded scenario is damaged: {error}") from None


def _placed(name: str, folder: Path, files: Mapping[str, bytes]) -> Path:
    if name not in files or Path(name).name != name:
        raise BagError(f"the file {name!r} that the recorded scenario needs is not there")
    path = folder / name
    if not path.exists():
        path.write_bytes(files[name])
    return path


def plugin_hashes(scenario: Scenario) -> dict[str, str]:
    """SHA-256 of the code of each sensor type and robot model that is not built in: the bag holds data, never code."""
    found = {}
    for robot in scenario.robots.values():
        if robot.model not in ROBOTS:
            found[f"model {robot.model}"] = _code_hash(type(robot))
        for block in robot.all_sensors().values():
            plugin = find_sensor(block.type, scenario.plugins) if isinstance(block, PluginSensor) else None
            if plugin is not None:
                found[plugin.name] = _code_hash(plugin.create)
    return dict(sorted(found.items()))


def _code_hash(made_by: Any) -> str:
    """Of the file that it is written in."""
    import inspect

    try:
        code = Path(inspect.getfile(made_by)).read_bytes()
    except (OSError, TypeError):
        code = b""
    return hashlib.sha256(code).hexdigest()
