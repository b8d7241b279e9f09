"""Compiling before a run is timed, and saying so: kernels are compiled when first used, and then kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from microsim.cli.quiet import is_quiet

if TYPE_CHECKING:
    from microsim.scenario import Scenario

COMPILE_S = 20  # on a laptop of 2020


def rehearse_once(what: str, rehearsal: Callable[[], None]) -> None:
    """Run something short that compiles what `what` needs, unless that was done before on this machine."""
    from microsim.sim.compiled import is_rehearsed, note_rehearsed

    if not is_rehearsed(what):
        rehearsal()
        note_rehearsed(what)


def parts_of(scenario: Scenario) -> str:
    """What decides which kernels a run of it needs: models, sensors and the kind of world."""
    data = scenario.to_dict()
    parts = {f"{robot['model']}.{key}" for robot in data["robots"].values() for key in robot if robot[key] is not None}
    parts |= {f"sensor.{each.get('type')}" for robot in data["robots"].values() for each in _further(robot)}
    parts |= {key for key in ("world", "obstacles", "features", "faults", "randomize") if data.get(key)}
    parts |= {key for key in ("elevation", "surface_types") if data["map"].get(key)}
    return " ".join(sorted(parts))


def _further(robot: dict[str, Any]) -> list[dict[str, Any]]:
    return list((robot.get("sensors") or {}).values())


@contextmanager
def compiling() -> Iterator[None]:
    """Tells that kernels are being compiled, as soon as one is; with none, nothing is said."""
    from numba.core import event
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    status = console.status("", spinner="dots")

    class Teller(event.Listener):  # type: ignore[misc]
        done = depth = 0

        def on_start(self, event: object) -> None:
            if not self.done and not self.depth and not is_quiet():
                self._begin()
            self.depth += 1

        def on_end(self, event: object) -> None:
            self.depth -= 1
            self.done += 1
            if console.is_terminal:
                status.update(self._words())

        def _begin(self) -> None:
            if console.is_terminal:
                status.update(self._words())
                status.start()
            else:
                console.print(f"{self._words()} …")

        def _words(self) -> str:
            count = f", {self.done} done" if self.done else ""
            return f"compiling kernels, about {COMPILE_S} s, first run only{count}"

    try:
        with event.install_listener("numba:compile", Teller()):
            yield
    finally:
        status.stop()
