"""Compiling before a run is timed, and saying so: kernels are compiled when first used, and then kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from microsim.cli.quiet import is_quiet

if TYPE_CHECKING:
    from rich.status import Status

    from microsim.scenario import Scenario

COMPILING = "compiling kernels, about 20 s, first run only"  # on a laptop of 2020


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

    class Teller(event.Listener):  # type: ignore[misc]
        done = 0
        status: Status | None = None  # on a terminal

        def on_start(self, event: object) -> None:
            if not self.done and self.status is None and not is_quiet():
                self.status = _announced()
                self.done = 0 if self.status is not None else 1  # in a log, once is enough

        def on_end(self, event: object) -> None:
            self.done += 1
            if self.status is not None:
                self.status.update(f"{COMPILING}, {self.done} done")

    teller = Teller()
    try:
        with event.install_listener("numba:compile", teller):
            yield
    finally:
        if teller.status is not None:
            teller.status.stop()


def _announced() -> Status | None:
    """On a terminal a line that goes again; in a log one that stays, and None."""
    from rich.console import Console  # not before there is something to say: it takes a tenth of a second

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(f"{COMPILING} …")
        return None
    status = console.status(COMPILING, spinner="dots")
    status.start()
    return status
