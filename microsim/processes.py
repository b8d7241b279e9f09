"""Child processes: how they end, and how we end them."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import Any

_SHOWN_LINES = 5  # of what a broken child wrote


def obituary(code: int, stderr: str) -> str:
    """How a process ended, and its last words."""
    how = f"ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    last = " | ".join(line.strip() for line in stderr.strip().splitlines()[-_SHOWN_LINES:])
    return f"the process {how}{f': {last}' if last else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill(process: subprocess.Popen[Any]) -> None:
    """With whatever it started, if it was started in a session of its own."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
