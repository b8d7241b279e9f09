"""Calls of a controller's code: whatever goes wrong in it is one sentence with file and line."""

from __future__ import annotations

import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.controllers.controller_code import ControllerCode
from microsim.errors import PluginError
from microsim.plugin_errors import cause

LONGEST_CALL_S = 5.0  # wall time; what takes longer sleeps, or never returns
_AGAIN_S = 0.1  # until a call that catches every exception is stopped once more


class _TooLongError(BaseException):
    """Not an `Exception`, which a controller may catch."""


@dataclass(frozen=True)
class Guard:
    code: ControllerCode
    who: str  # such as `controller of rover`

    def call(self, function: Callable[..., Any], *given: Any, when: str = "", **settings: Any) -> Any:
        """What it prints goes to stderr: stdout may be for a result."""
        try:
            with redirect_stdout(sys.stderr), _limited(LONGEST_CALL_S):
                return function(*given, **settings)
        except PluginError:
            raise
        except _TooLongError as error:
            text = f"did not return within {LONGEST_CALL_S:g} s of wall time; it may neither sleep nor wait"
            raise self.error(text, when, error) from None
        except (Exception, SystemExit) as error:  # code of the user can raise anything
            raise self.error(f"failed: {cause(error)}", when, error) from error

    def error(self, text: str, when: str = "", raised: BaseException | None = None) -> PluginError:
        """About the line in which something was raised; by default, about the function as a whole."""
        place = self.code.place if raised is None else self._place_of(raised) or self.code.place
        return PluginError(f"{place}: {self.who}{f' at {when}' if when else ''}: {text}")

    def _place_of(self, error: BaseException) -> str:
        """The innermost line of the controller's own folder."""
        folder = self.code.file.resolve().parent
        frames = traceback.extract_tb(error.__traceback__)
        inside = [each for each in frames if folder in Path(each.filename).resolve().parents]
        own = [each for each in inside if Path(each.filename).resolve() == self.code.file.resolve()]
        found = (inside or own)[-1:]
        return f"{self.code.file if found[0] in own else found[0].filename}:{found[0].lineno}" if found else ""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, where the system can: in the main thread, by a signal."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise _TooLongError

    handler = signal.signal(signal.SIGALRM, interrupt)
    begin = time.monotonic()
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # an alarm that was set before
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), 1e-3), every)
