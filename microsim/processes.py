"""Child processes that answer requests, in lines over pipes: how to start them, ask them and end them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SHOWN_LINES = 5  # of the error output of a child that failed
_LAST_BYTES = 4000
_GRACE_S = 5.0  # for a child that closed its pipe to end by itself


def usable_cores() -> int:
    """Of the processor, by this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ChildProcess:
    """`main()` of a module, in a session of its own: Ctrl-C reaches only us, and we end it with all that it started."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            env={**variables, "PYTHONPATH": _import_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self.answers = process, process.stdin, process.stdout

    def send(self, line: bytes) -> None:
        """A child that is gone is not an error here: its answers end."""
        with suppress(OSError):
            self._requests.write(line + b"\n")
            self._requests.flush()

    def kill(self) -> None:
        """With everything it started."""
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def end(self, grace_s: float = 0.0) -> str:
        """End it, unless it ends by itself within the grace period; return how it ended and what it wrote last."""
        if grace_s:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        self.kill()
        code = self._process.wait()
        for stream in (self._requests, self.answers):
            with suppress(OSError):  # what could not be sent any more
                stream.close()
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - _LAST_BYTES, 0))
        last = self._errors.read().decode(errors="replace")
        self._errors.close()
        return exit_reason(code, last)

    def end_gracefully(self) -> str:
        """For a child that closed its pipe: what it still writes is not cut off."""
        return self.end(_GRACE_S)


@contextmanager
def answering() -> Iterator[Callable[[object], None]]:
    """In the child: sends an answer, as JSON. What a plug-in prints goes to the error output instead."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)

        def answer(value: object) -> None:
            answers.write(json.dumps(value).encode() + b"\n")
            answers.flush()

        yield answer


def exit_reason(code: int, errors: str) -> str:
    """How a process ended, with its last lines of error output."""
    how = f"ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    last = " | ".join(line.strip() for line in errors.strip().splitlines()[-_SHOWN_LINES:])
    return f"the process {how}{f': {last}' if last else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _import_path() -> str:
    """So that the child imports the same MicroSim as this process."""
    package = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
