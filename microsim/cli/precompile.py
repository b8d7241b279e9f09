"""Compiling before a run is timed: kernels are compiled when first used, and then kept on disk.

numba compiles in one thread. So a first run compiles in two processes: the child what is called through tables (motion,
contacts, small sensors), this one what Python calls (cameras, LiDAR). Afterwards everything is in the cache.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from microsim.cli.terminal import is_quiet, warn
from microsim.processes import ChildProcess, answering, usable_cores

if TYPE_CHECKING:
    from rich.status import Status

    from microsim.scenario import Scenario

COMPILING = "compiling kernels"
_NOT_KEPT = (
    "compiled kernels cannot be kept ({}), so every start compiles them again, which can take a minute; "
    "set NUMBA_CACHE_DIR to a folder that can be written to"
)
_KERNELS, _KERNELS_OF_WORLD = 200, 350  # that a first run compiles, give or take 10 %; in a world bundle


def precompile(what: str, short_run: Callable[[], None]) -> None:
    """Do a short run that compiles what `what` needs, unless that was done before on this machine."""
    from microsim.engine.compiled import is_precompiled, note_precompiled

    if not is_precompiled(what):
        short_run()
        note_precompiled(what)


def precompile_scenario(scenario: Scenario, short_run: Callable[[], None], prefix: str = "") -> None:
    def both() -> None:
        from microsim.engine.compiled import CACHE_FOLDER  # through which the child gives us what it compiled

        if CACHE_FOLDER is not None and usable_cores() > 1 and not scenario.plugins:
            _in_two_processes(scenario)
        short_run()  # compiles what is left

    precompile(f"{prefix}{_parts_of(scenario)}", both)


def _parts_of(scenario: Scenario) -> str:
    """What decides which kernels a run needs: models, sensors and the kind of world."""
    data = scenario.to_dict()
    robots = data["robots"].values()
    parts = {f"{robot['model']}.{key}" for robot in robots for key in robot if robot[key] is not None}
    further = [each for robot in robots for each in (robot.get("sensors") or {}).values() if each]
    parts |= {f"sensor.{each.get('type')}" for each in further}
    parts |= {key for key in ("world", "obstacles", "features", "faults", "randomize") if data.get(key)}
    parts |= {key for key in ("elevation", "surface_types") if data["map"].get(key)}
    return " ".join(sorted(parts))


# ---- two processes ---------------------------------------------------------------------------------------------------


def _in_two_processes(scenario: Scenario) -> None:
    from microsim.engine.calls import skipped_calls
    from microsim.simulation import Simulation

    if _progress.expected and scenario.world is not None:
        _progress.expected = _KERNELS_OF_WORLD
    child = ChildProcess(__name__, os.environ)
    child.send(json.dumps(scenario.to_dict()).encode())
    has_tables = Event()
    Thread(target=_listen, args=(child, has_tables), daemon=True).start()
    try:
        with skipped_calls(), suppress(Exception):  # readings of nothing can fail anywhere; the short run is complete
            Simulation(scenario)
        has_tables.wait()
    finally:
        child.end()


def _listen(child: ChildProcess, has_tables: Event) -> None:
    for line in child.answers:
        if json.loads(line) == "tables":
            has_tables.set()
        else:
            _progress.done()
    has_tables.set()  # or it failed: then the short run compiles them


def main() -> None:
    """The child: receives a scenario, compiles what its tables call, and answers for each kernel.

    Then it helps with what Python calls, from the other end, until the parent has come to it.
    """
    from microsim.engine.compiled import watched
    from microsim.engine.faults import Health
    from microsim.engine.timekeeper import Clock
    from microsim.messages.outbox import Outbox
    from microsim.outputs.compose import compose
    from microsim.scenario import load_scenario
    from microsim.scenario.randomised import draw
    from microsim.scenario.scene import build_world

    with answering() as answer, watched(lambda: None, lambda: answer(1)):
        scenario = load_scenario(json.loads(sys.stdin.readline()))
        drawn, world = draw(scenario, build_world(scenario), scenario.seed)
        health = Health((), lambda text: None)
        schedule, _ = compose(drawn, scenario.seed, world, Clock(scenario.physics_hz), Outbox(), {}, health)
        answer("tables")
        for _, output in reversed(tuple(schedule.python.values())):
            output.fire(0, 0)


# ---- progress --------------------------------------------------------------------------------------------------------


class _Progress:
    """A line that counts kernels as they are compiled; on a terminal it disappears again."""

    def __init__(self) -> None:
        self.expected = 0  # 0: not known, because some come from the cache
        self._count, self._has_begun = 0, False
        self._has_reported = False  # that the cache cannot be used
        self._text = COMPILING
        self._status: Status | None = None

    def begun(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        if not self._report_problem():
            self._text = f"{COMPILING}, first run only"
        if is_quiet():
            return
        from rich.console import Console  # not before there is something to say: it takes a tenth of a second

        console = Console(stderr=True, highlight=False)
        if console.is_terminal:
            self._status = console.status(self._text, spinner="dots")
            self._status.start()
        else:
            console.print(f"{self._text} …")

    def _report_problem(self) -> bool:
        """Once, also with `--quiet`: a minute for each start is worth a line."""
        from microsim.engine.compiled import CACHE_PROBLEMS

        if CACHE_PROBLEMS and not self._has_reported:
            self._has_reported = True
            warn(_NOT_KEPT.format(CACHE_PROBLEMS[0]))
        return bool(CACHE_PROBLEMS)

    def done(self) -> None:
        self._count += 1
        if self._status is not None:
            of = f" of about {self.expected}" if self._count <= self.expected else ""
            self._status.update(f"{self._text}: {self._count}{of}")

    def end(self) -> None:
        if self._status is not None:
            self._status.stop()
        if self._has_begun:
            self._report_problem()  # the disk may have become full meanwhile


_progress = _Progress()


@contextmanager
def compiling() -> Iterator[None]:
    """Says that kernels are being compiled, as soon as one is."""
    global _progress  # noqa: PLW0603 - the one line of this process
    from microsim.engine.compiled import CACHE_FOLDER, watched

    _progress = progress = _Progress()
    if CACHE_FOLDER is None or not any(CACHE_FOLDER.iterdir()):
        progress.expected = _KERNELS
    try:
        with watched(progress.begun, progress.done):
            yield
    finally:
        progress.end()
