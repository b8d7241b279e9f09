"""Keys in the terminal during a run: drive, pause, step, reset, change speed or robot.

A thread reads the keys; they act on the run in the thread that ticks, through the inputs that everybody uses.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from microsim.errors import MicroSimError
from microsim.parts.view.teleop import Teleop
from microsim.runner import Runner

HOLD_S = 0.6  # a key drives for this time: longer than a keyboard waits before it repeats
SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 0.0)  # real-time factors; the last: as fast as possible
_FORWARD, _CLIMB, _TURN = 2.0, 1.0, 0.8  # [m/s], [m/s], [rad/s]
_VEHICLE_FORWARD = 6.0  # [m/s]
_MOST_WAITING = 64

_DRIVES = {  # key: axis and sign
    "up": ("x", 1), "down": ("x", -1), "left": ("turn", 1), "right": ("turn", -1), "pgup": ("z", 1), "pgdn": ("z", -1),
    "w": ("x", 1), "s": ("x", -1), "a": ("turn", 1), "d": ("turn", -1), "e": ("z", 1), "c": ("z", -1),
}  # fmt: skip
_ESCAPES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1b[5~": "pgup", "\x1b[6~": "pgdn",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left",
}  # fmt: skip
HELP = (
    ("↑ ↓ or w s", "drive forwards, backwards"),
    ("← → or a d", "turn left, right"),
    ("PgUp PgDn or e c", "climb, descend (drone)"),
    ("Tab", "another robot"),
    ("p", "give the robot back to its pilot"),
    ("Space", "pause, resume"),
    (".", "one tick"),
    ("r", "reset to the start"),
    ("+ -", "faster, slower"),
    ("q or Ctrl-C", "end the run"),
    ("?", "show or hide these keys"),
)


def keys_in(text: str) -> Iterator[str]:
    """The names of the keys that a terminal sent; other keys come as they are."""
    while text:
        escape = next((each for each in _ESCAPES if text.startswith(each)), "")
        yield _ESCAPES.get(escape, text[0])
        text = text[len(escape) or 1 :]


class KeyState(NamedTuple):
    """For the screen."""

    robot: str = ""  # the one that the arrow keys move
    is_driven: bool = False  # by keys, not by its pilot
    is_paused: bool = False
    is_helping: bool = False
    has_keys: bool = False
    note: str = ""  # why the last key did nothing


NO_KEYS = KeyState()


class KeyControls:
    """What keys do to a run. Called in the thread that ticks."""

    def __init__(self, runner: Runner, reset: Callable[[int | None], None] | None = None) -> None:
        self.runner, self._reset = runner, reset
        self.robot = next(iter(self._drivable()), "")
        self.is_helping = False
        self.note = ""
        self._teleop = Teleop(runner, self._command)

    @property
    def state(self) -> KeyState:
        return KeyState(self.robot, bool(self._teleop.robot), self.runner.paused, self.is_helping, True, self.note)

    def take(self, keys: Sequence[str]) -> None:
        if self.robot not in self._drivable():  # it was deleted, or another scenario was loaded
            self._teleop.release()
            self.robot = next(iter(self._drivable()), "")
        for key in keys:
            self.note = ""
            try:
                self._press(key)
            except MicroSimError as error:
                self.note = str(error)
        self._teleop.let_go()

    def _drivable(self) -> list[str]:
        """Actors on a path take no commands."""
        sim = self.runner.sim
        return [name for name in sim.robots if sim.model(name).inputs]

    def _press(self, key: str) -> None:
        if key in _DRIVES:
            self._drive(*_DRIVES[key])
        elif key in _ACTIONS:
            _ACTIONS[key](self)

    # ---- driving -----------------------------------------------------------------------------------------------------

    def _drive(self, axis: str, sign: int) -> None:
        if not self.robot:
            return
        block = self.runner.sim.scenario.robots[self.robot]
        forward = _VEHICLE_FORWARD if block.is_vehicle else _FORWARD
        speed = {"x": forward, "z": _CLIMB, "turn": _TURN}[axis]
        self._teleop.drive(self.robot, {axis: sign * speed}, HOLD_S)

    def _command(self, robot: str, values: Mapping[str, float]) -> None:
        x, y, z, turn = (values.get(axis, 0.0) for axis in ("x", "y", "z", "turn"))
        self.runner.sim.command_twist(robot, (x, y, z), turn)

    def _give_back(self) -> None:
        self._teleop.release()

    # ---- the run -----------------------------------------------------------------------------------------------------

    def _next_robot(self) -> None:
        self._give_back()
        names = self._drivable()
        self.robot = names[(names.index(self.robot) + 1) % len(names)] if names else ""

    def _pause(self) -> None:
        self.runner.pause(not self.runner.paused)

    def _step(self) -> None:
        self.runner.pause(True)
        self.runner.step(1)

    def _restart(self) -> None:
        if self._reset is None:
            self.note = "this run cannot be reset"
            return
        self._give_back()
        self._reset(None)

    def _change_speed(self, by: int) -> None:
        now = self.runner.rtf
        at = min(range(len(SPEEDS)), key=lambda place: abs((SPEEDS[place] or 1e9) - (now or 1e9)))
        self.runner.set_rtf(SPEEDS[min(max(at + by, 0), len(SPEEDS) - 1)])

    def _help(self) -> None:
        self.is_helping = not self.is_helping


_ACTIONS: dict[str, Callable[[KeyControls], None]] = {
    "\t": KeyControls._next_robot, "p": KeyControls._give_back, " ": KeyControls._pause, ".": KeyControls._step,
    "r": KeyControls._restart, "+": lambda keys: keys._change_speed(1), "=": lambda keys: keys._change_speed(1),
    "-": lambda keys: keys._change_speed(-1), "?": KeyControls._help, "q": lambda keys: keys.runner.stop(),
}  # fmt: skip


class Keyboard:
    """Reads keys as they are pressed, without Enter and without showing them."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque(maxlen=_MOST_WAITING)
        self._closing = threading.Event()

    def take(self) -> list[str]:
        return [self._waiting.popleft() for _ in range(len(self._waiting))]

    @contextmanager
    def reading(self) -> Iterator[None]:
        import termios
        import tty

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        thread = threading.Thread(target=self._read, args=(descriptor,), name="keyboard", daemon=True)
        tty.setcbreak(descriptor, termios.TCSANOW)  # Ctrl-C still interrupts
        try:
            thread.start()
            yield
        finally:
            self._closing.set()
            thread.join(timeout=1.0)
            with suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(descriptor, termios.TCSANOW, before)

    def _read(self, descriptor: int) -> None:
        with suppress(OSError):  # the terminal was closed
            while not self._closing.is_set():
                if select.select([descriptor], [], [], 0.1)[0]:
                    read = os.read(descriptor, 1024)
                    if not read:
                        return
                    self._waiting.extend(keys_in(read.decode("utf-8", "replace")))


def is_available() -> bool:
    """Whether keys can be read: a job in the background would be stopped for trying."""
    if not hasattr(os, "tcgetpgrp"):  # Windows
        return False
    try:
        if not sys.stdin.isatty():
            return False
    except (ValueError, AttributeError):  # stdin is closed
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # a terminal that controls no jobs
        return True
