"""`microsim` on the command line: a process for each call, forked from one that has imported everything.

A process that starts from nothing imports for two seconds before it does what its test is about. What Python and its
libraries read while they start (`PYTHONHASHSEED`, `NUMBA_DISABLE_JIT`, ...) cannot change in a fork: a call that
changes such a variable starts from nothing.
"""

import gc
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from tests.ros_domains import own_domain

ROOT = Path(__file__).resolve().parents[1]
READ_LATE = re.compile(r"(ROS|CYCLONEDDS|PYTEST)_\w+|COLUMNS|LINES|TERM|NO_COLOR|FORCE_COLOR")  # not by imports


def environment(**changes: str) -> dict[str, str]:
    """No terminal, and nobody else's commands, whatever the tests are started from."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TERM")}
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "ROS_DOMAIN_ID": own_domain("commands")}
    return {**kept, **own, **changes}


def run_microsim(*arguments: str, cwd: Path = ROOT, **changes: str) -> subprocess.CompletedProcess[str]:
    """What a shell sees of a command: its output and its exit code."""
    variables = environment(**changes)
    server = _server()
    if _read_early(variables) == server.variables:
        done = server.run(arguments, cwd, variables)
    else:
        done = run_from_nothing(*arguments, cwd=cwd, **changes)
    assert "Traceback" not in done.stderr, done.stderr
    if "XDG_CACHE_HOME" not in changes:  # said in the first run on a machine only
        done.stderr = re.sub(r"^compiling kernels.*\n", "", done.stderr, flags=re.MULTILINE)
    return done


def run_from_nothing(*arguments: str, cwd: Path = ROOT, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "microsim", *arguments]
    variables = environment(**changes)
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables, timeout=300, check=False)


def _read_early(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if not READ_LATE.fullmatch(name)}


class _Server:
    """The process that forks; it ends with ours."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self.variables = _read_early(environment())
        command = [sys.executable, "-c", f"from tests.cli_support import serve; serve({theirs.fileno()})"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=self.variables, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._answers = self._socket.makefile()

    def run(self, arguments: tuple[str, ...], cwd: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            request = json.dumps([arguments, str(cwd), variables]).encode()
            socket.send_fds(self._socket, [len(request).to_bytes(4, "big")], [out.fileno(), err.fileno()])
            self._socket.sendall(request)
            child = int(self._answers.readline())
            try:
                self._socket.settimeout(300)
                code = int(self._answers.readline())
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@cache
def _server() -> _Server:
    return _Server()


def serve(descriptor: int) -> None:
    """Forks for each request. It returns in the children only, at the end of which Python ends as it always does."""
    import microsim

    microsim.Simulation("default").step(1)  # imports, and loads kernels
    gc.collect()
    gc.freeze()  # otherwise the end of each child visits, and so copies, all of this
    with socket.socket(fileno=descriptor) as requests:
        while True:
            head, files, _, _ = socket.recv_fds(requests, 4, 2)
            if not head:
                os._exit(0)
            request = requests.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            child = os.fork()
            if not child:
                break
            for file in files:
                os.close(file)
            requests.sendall(f"{child}\n".encode())
            requests.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
    _become(files, *json.loads(request))


def _become(files: list[int], arguments: list[str], cwd: str, variables: dict[str, str]) -> None:
    for file, stream in zip(files, (1, 2), strict=True):
        os.dup2(file, stream)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[0] = cwd
    sys.argv[1:] = arguments
    runpy.run_module("microsim", run_name="__main__", alter_sys=True)
