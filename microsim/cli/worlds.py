"""Options of `microsim run` that change a scenario: another world, other robots, injected faults."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.scenario import Scenario

WorldOption = Annotated[
    str | None,
    typer.Option("--world", metavar="BUNDLE", help="A world bundle in place of a scenario: a name or folder."),
]
RobotsOption = Annotated[
    str | None,
    typer.Option("--robots", metavar="NAMES", help="These robots: `ego,drone`, or `scout=rover` to name the model."),
]


class RenderChoice(str, Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


RenderOption = Annotated[
    RenderChoice,
    typer.Option("--render", help="What draws splats; auto: a GPU where there is one. The pictures are the same."),
]
InjectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--inject",
        metavar="FAULT",
        help="A fault for a while: `camera_front:fail@3s-5s`, `rover/gps:dropout@1s-2s`, `gps:jump(10,0,0)@3s-9s`, "
        "`radio:blackout@3s-5s`. May be repeated.",
    ),
]


def assembled(
    scenario: str | None, world: str | None, robots: str | None, faults: Sequence[str]
) -> Scenario | str | None:
    """The scenario as it stands, or with another world, robots and faults."""
    if world is None and robots is None and not faults:
        return scenario
    from microsim.scenario import load_scenario

    if world is not None and scenario is not None:
        raise UsageError("give a scenario or --world, not both; a scenario can name its world: `world: PATH`")
    data: dict[str, Any] = {"world": world} if world is not None else load_scenario(scenario or "default").to_dict()
    if robots is not None:
        data["robots"] = _robots(robots, data.get("robots", {}))
    if faults:
        data["faults"] = [*data.get("faults", ()), *faults]
    return load_scenario(data)


def _robots(text: str, known: dict[str, Any]) -> dict[str, Any]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("expected names of robots after --robots, such as ego,drone")
    found: dict[str, Any] = {}
    for part in names:
        name, _, model = part.partition("=")
        if name in found:
            raise UsageError(f"--robots names {name!r} twice")
        found[name] = {"model": model} if model else known.get(name, {})
    return found


def draw_with(choice: RenderChoice) -> None:
    """What splats are drawn with from now on, and where that is told."""
    from microsim.render.render_options import wish

    wish.choice = choice.value
    wish.say = lambda text: typer.echo(f"microsim: {text}", err=True)
