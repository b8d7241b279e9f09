"""Compiling before a run is timed, and saying so: kernels are compiled when first used, and then kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from microsim.cli.terminal import is_quiet

if TYPE_CHECKING:
    from rich.status import Status

    from microsim.scenario import Scenario

COMPILING = "compiling kernels, about 20 s, first run only"  # on a laptop of 2020


def precompile(what: str, short_run: Callable[[], None]) -> None:
    """Do a short run that compiles what `what` needs, unless that was done before on this machine."""
    from microsim.engine.compiled import is_rehearsed, note_rehearsed

    if not is_rehearsed(what):
        short_run()
        note_rehearsed(what)


def parts_of(scenario: Scenario) -> str:
    """What decides which kernels a run needs: models, sensors and the kind of world."""
    data = scenario.to_dict()
    robots = data["robots"].values()
    parts = {f"{robot['model']}.{key}" for robot in robots for key in robot if robot[key] is not None}
    parts |= {f"sensor.{each.get('type')}" for robot in robots for each in (robot.get("sensors") or {}).values()}
    parts |= {key for key in ("world", "obstacles", "features", "faults", "randomize") if data.get(key)}
    parts |= {key for key in ("elevation", "surface_types") if data["map"].get(key)}
    return " ".join(sorted(parts))


@contextmanager
def compiling() -> Iterator[None]:
    """Says that kernels are being compiled, as soon as one is."""
    from microsim.engine.compiled import watched

    notice = _Notice()
    try:
        with watched(notice.begun, notice.done):
            yield
    finally:
        notice.end()


class _Notice:
    def __init__(self) -> None:
        self._is_shown = False
        self._count = 0
        self._status: Status | None = None  # on a terminal

    def begun(self) -> None:
        if not self._is_shown and not is_quiet():
            self._is_shown = True
            self._status = _announced()

    def done(self) -> None:
        self._count += 1
        if self._status is not None:
            self._status.update(f"{COMPILING}, {self._count} done")

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()


def _announced() -> Status | None:
    """On a terminal a line that disappears again; in a log one that stays, and None."""
    from rich.console import Console  # not before there is something to say: it takes a tenth of a second

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        console.print(f"{COMPILING} …")
        return None
    status = console.status(COMPILING, spinner="dots")
    status.start()
    return status
