"""What can run by its name: the demos, scenarios and worlds that are shipped, and demos of your own."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from microsim.errors import PluginError, UsageError, unknown
from microsim.paths import demo_file, demo_names, scenario_file, scenario_names, world_folder, world_names

if TYPE_CHECKING:
    from microsim.runner import MakePilot, Pilot
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation


class Chosen(NamedTuple):
    """What runs. A page can choose another."""

    kind: str = ""  # demo, scenario or world
    name: str = ""  # as the user wrote it
    about: str = ""  # a sentence; empty: it is not shipped
    pilot: MakePilot | None = None  # of its own

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind else ""

    @property
    def title(self) -> str:
        """Files of the user have none."""
        return self.name if self.about or self.kind == "demo" else ""


def named(scenario: str | None, world: str | None) -> Chosen:
    """What `microsim run` names."""
    kind, name, known = ("world", world, world_names()) if world else ("scenario", scenario or "default", None)
    is_known = name in (scenario_names() if known is None else known)
    return Chosen(kind, name, about(kind, name) if is_known else "")


def choices() -> dict[str, tuple[str, ...]]:
    """Kind -> names."""
    return {"demo": tuple(demo_names()), "scenario": tuple(scenario_names()), "world": tuple(world_names())}


def choose(choice: str) -> tuple[Chosen, Scenario]:
    """What is shipped, as `kind:name`."""
    from microsim.scenario import load_scenario

    kind, _, name = choice.partition(":")
    if name not in choices().get(kind, ()):
        raise UsageError(f"the page can load only shipped demos, scenarios and worlds, not {choice!r}")
    if kind == "demo":
        demo = load_demo(name)
        return Chosen(kind, name, demo.about, demo.pilot), load_scenario(demo.scenario)
    scenario = load_scenario({"world": name} if kind == "world" else scenario_file(name))
    return Chosen(kind, name, about(kind, name)), scenario


def about(kind: str, name: str) -> str:
    """A sentence about a shipped scenario or world."""
    return world_about(name) if kind == "world" else first_comment(scenario_file(name))


def world_about(name: str) -> str:
    try:
        metadata = json.loads((world_folder(name) / "metadata.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return str(metadata.get("description", "")) if isinstance(metadata, dict) else ""


def first_comment(file: Path) -> str:
    """The first sentence of the opening comment of a scenario or mission."""
    words = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    text = " ".join(words)
    end = text.find(". ")
    return text if end < 0 else text[: end + 1]


# ---- demos -----------------------------------------------------------------------------------------------------------


class Demo(NamedTuple):
    """A file with `SCENARIO`, a name or a mapping, and `Pilot(sim)`, called with each tick's messages."""

    name: str
    path: Path
    scenario: Any
    pilot: Callable[[Simulation], Pilot]

    @property
    def about(self) -> str:
        return demo_about(self.path)


def load_demo(name: str) -> Demo:
    """A shipped one by its name, or a file."""
    path = demo_file(name) if name in demo_names() else Path(name)
    if not path.is_file():
        raise UsageError(unknown("no demo", repr(name), name, demo_names()))
    spec = importlib.util.spec_from_file_location(f"microsim_demo_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: expected a Python file, whose name ends with .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file can raise anything
        raise PluginError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [word for word in ("SCENARIO", "Pilot") if not hasattr(module, word)]
    if missing:
        raise PluginError(f"{path}: a demo has SCENARIO and Pilot; there is no {missing[0]}")
    return Demo(path.stem, path, module.SCENARIO, module.Pilot)


def demo_about(path: Path) -> str:
    """The first line of a demo's documentation, without running it."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
