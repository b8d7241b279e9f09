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
    from microsim.engine.compiled import is_rehearsed, note_rehearsed

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
    from microsim.engine.compiled import watched

    teller = _Teller()
    try:
        with watched(teller.begun, teller.done):
            yield
    finally:
        teller.end()


class _Teller:
    def __init__(self) -> None:
        self._has_told = False
        self._count = 0
        self._status: Status | None = None  # on a terminal

    def begun(self) -> None:
        if not self._has_told and not is_quiet():
            self._has_told = True
            self._status = _announced()

    def done(self) -> None:
        self._count += 1
        if self._status is not None:
            self._status.update(f"{COMPILING}, {self._count} done")

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()


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
