"""How worlds show themselves: as HTML in notebooks, and with `show()`. A part does it.

    DISPLAY = Display("page", html_of=…, show=…)

It is declared in the module `display` of a part's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from microsim.errors import UsageError
from microsim.registry import Registry


@dataclass(frozen=True)
class Display:
    """The functions import what they need when they are called."""

    name: str
    html_of: Callable[[Any], str]  # of a `Scenario`, a `Simulation` or a `BatchSimulation`
    show: Callable[..., Any]  # see `Simulation.show`


DISPLAYS: Registry[Display] = Registry(
    constant="DISPLAY", package="microsim", in_folders="display", group="microsim.displays",
    expected="Display(...)", is_one=lambda declared: isinstance(declared, Display),
)  # fmt: skip


def display() -> Display:
    """The first that there is."""
    found = DISPLAYS.all()
    if not found:
        raise UsageError("no part of MicroSim that shows worlds is installed")
    return found[0]
