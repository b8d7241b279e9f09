"""Child processes: programs that run beside us, and our own that answer requests in lines over pipes.

Each has a session of its own: Ctrl-C reaches only us, and we end it with all that it started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from microsim.errors import os_errors

THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SHOWN_LINES = 5  # of the error output of a child that failed
_LAST_BYTES, _LAST_CHARACTERS = 4000, 1500
_GRACE_S = 5.0  # for a child that closed its pipe to end by itself


def usable_cores() -> int:
    """Of the processor, by this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(command: Sequence[str], variables: Mapping[str, str], **streams: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=dict(variables), start_new_session=True, **streams)


def signal_all(process: subprocess.Popen[bytes], number: int) -> None:
    """A process, and all that it started."""
    with suppress(OSError):  # it has ended
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def kill_all(process: subprocess.Popen[bytes]) -> int:
    """Returns how the process ended."""
    signal_all(process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    return process.wait()


class StartedProcess:
    """A program that was started; what it writes is in files."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], output: Path, errors: Path | None = None
    ) -> None:
        """Without `errors`, the error output is in `output` too."""
        self.command, self._output, self._errors = " ".join(command), output, errors or output
        with output.open("wb") as out, ExitStack() as stack, os_errors(f"{command[0]} cannot be started"):
            err = subprocess.STDOUT if errors is None else stack.enter_context(errors.open("wb"))
            self.process = start(command, variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def output(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    def errors(self) -> str:
        """The last that it wrote."""
        written = self._errors.read_text(encoding="utf-8", errors="replace") or self.output()
        return written[-_LAST_CHARACTERS:].strip() or "no output"

    def end(self, grace_s: float = 0.0) -> None:
        """As Ctrl-C does, if there is a grace period; with all that it started."""
        if grace_s and self.process.poll() is None:
            signal_all(self.process, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        kill_all(self.process)


@contextmanager
def started(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[StartedProcess]:
    """Ended with the context; what it writes is kept as long."""
    with tempfile.TemporaryDirectory(prefix="microsim-") as folder:
        process = StartedProcess(command, variables, Path(folder) / "output", Path(folder) / "errors")
        try:
            yield process
        finally:
            process.end()


class ChildProcess:
    """`main()` of a module, which answers requests."""

    def __init__(self, module: str, variables: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        process = start(
            [sys.executable, "-c", f"from {module} import main; main()"],
            {**variables, "PYTHONPATH": _import_path()},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
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
        signal_all(self._process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)

    def end(self, grace_s: float = 0.0) -> str:
        """End it, unless it ends by itself within the grace period; return how it ended and what it wrote last."""
        if grace_s:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        code = kill_all(self._process)
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
