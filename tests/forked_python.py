"""A Python that has imported MicroSim already: `forked_python()` stands for `sys.executable` in a command.

A process that starts from nothing imports for 1.5 s before it does what its test is about. So one server for each
process of pytest imports everything once, and forks for each command. The command itself is this file, which starts in
20 ms: it gives the server its arguments, streams, folder and variables, passes signals on, and ends as its fork ends.

What Python and its libraries read while they start (`PYTHONHASHSEED`, `NUMBA_DISABLE_JIT`, ...) cannot change in a
fork: `forked_python` then gives the real Python. A fork has another process id, group and session than its command,
and cannot be stopped by SIGSTOP: tests of those things use `sys.executable`.
"""

import contextlib
import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Request = tuple[list[str], str, dict[str, str]]  # arguments of Python, folder, variables


def forked_python(variables: Mapping[str, str] | None = None) -> list[str]:
    """The first words of a command that is given these variables; default: ours."""
    here = server()
    if variables is not None and read_early(variables) != here.variables:
        return [sys.executable]
    return [sys.executable, "-IS", __file__, here.path]


def read_early(variables: Mapping[str, str]) -> dict[str, str]:
    """Those that imports may depend on; PYTHONPATH is taken over by a fork."""
    late = ("ROS_", "CYCLONEDDS_", "PYTEST_", "PYTHONPATH", "COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR")
    return {name: value for name, value in variables.items() if not name.startswith(late)}


# ---- a command -------------------------------------------------------------------------------------------------------


def request(path: str, wanted: Request, streams: tuple[int, int, int]) -> socket.socket:
    """A connection on which the server answers with the process id, and at the end with the exit code."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    text = marshal.dumps(wanted)
    socket.send_fds(connection, [len(text).to_bytes(4, "big")], list(streams))
    connection.sendall(text)
    return connection


def main() -> None:
    """What the command does. It uses little of the standard library, which takes time to import."""
    arguments = sys.argv[2:]
    connection = request(sys.argv[1], (arguments, os.getcwd(), dict(os.environ)), (0, 1, 2))  # noqa: PTH109
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: connection.sendall(bytes([number])))
    for stream in (0, 1, 2):
        os.close(stream)  # they are the fork's: whoever reads them waits for its end
    with connection.makefile() as answers:
        answers.readline()
        code = int(answers.readline() or 70)
    if code < 0:  # ended by a signal, as we then do
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ---- the server ------------------------------------------------------------------------------------------------------


class Server:
    """The process that forks; it ends with ours."""

    def __init__(self) -> None:
        import atexit
        import shutil
        import subprocess
        import tempfile
        from pathlib import Path

        root = Path(__file__).resolve().parents[1]
        folder = tempfile.mkdtemp(prefix="microsim-tests-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.path = f"{folder}/server"
        self.variables = read_early(os.environ)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(self.path)
        listening.listen(64)
        self._life, theirs = socket.socketpair()  # ours is closed when this process ends, however it ends
        numbers = (listening.fileno(), theirs.fileno())
        code = f"import sys; sys.path[0] = {str(root)!r}; from tests.forked_python import serve; serve{numbers}"
        self._process = subprocess.Popen([sys.executable, "-c", code], pass_fds=numbers, stdin=subprocess.DEVNULL)
        listening.close()
        theirs.close()


_servers: list[Server] = []


def server() -> Server:
    if not _servers:
        _servers.append(Server())
    return _servers[0]


def serve(listening_number: int, life_number: int) -> None:
    """Forks for each request. It returns in the forks only, at the end of which Python ends as it always does."""
    import gc

    import microsim
    import microsim.cli.commands.run
    import microsim.parts.missions.attachment
    import microsim.parts.ros2.attachment
    import microsim.parts.ros2.transport.dds
    import microsim.parts.sweep.attachment
    import microsim.parts.view.attachment
    import microsim.recording.recorder

    microsim.Simulation("default").step(1)  # imports, and loads kernels
    gc.collect()
    gc.freeze()  # otherwise the end of each fork visits, and so copies, all of this
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, whose end ends this
    with socket.socket(fileno=listening_number) as listening, socket.socket(fileno=life_number) as life:
        while True:
            if life in select.select([listening, life], [], [])[0]:
                os._exit(0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended since the last request
                    pass
            connection = listening.accept()[0]
            if not os.fork():
                break
            connection.close()
    _watch(connection)


def _watch(connection: socket.socket) -> None:
    """Forks again, for the command, and passes signals on to it; ends it when the other side has ended."""
    head, streams, _, _ = socket.recv_fds(connection, 4, 3)
    wanted: Request = marshal.loads(connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))  # noqa: S302
    process = os.fork()
    if not process:
        connection.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _become(streams, wanted)
        return
    for stream in streams:
        os.close(stream)
    connection.sendall(f"{process}\n".encode())
    end = os.pidfd_open(process)
    watched: list[int | socket.socket] = [end, connection]
    while end not in (ready := select.select(watched, [], [])[0]):
        numbers = connection.recv(16) if ready else b""
        for number in numbers or bytes([signal.SIGKILL]):
            os.kill(process, number)
        if not numbers:
            watched.remove(connection)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with contextlib.suppress(OSError):  # nobody is interested any more
        connection.sendall(f"{code}\n".encode())
    os._exit(0)


def _become(streams: list[int], wanted: Request) -> None:
    """What `python ARGUMENTS` does: `-m MODULE ...`, `-c CODE ...` or `FILE ...`."""
    import runpy
    import types

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    _open_streams()
    arguments, folder, variables = wanted
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[0:1] = [folder, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    if arguments[0] == "-m":
        sys.argv[:] = ["-m", *arguments[2:]]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-c":
        sys.argv[:] = ["-c", *arguments[2:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[1], "<string>", "exec"), vars(main))  # noqa: S102 - it is our own test's
    else:
        sys.argv[:] = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))  # noqa: PTH100, PTH120
        runpy.run_path(arguments[0], run_name="__main__")


def _open_streams() -> None:
    """As Python does when it starts: what they are decides how they are buffered."""
    sys.stdin = sys.__stdin__ = open(0, encoding=sys.stdin.encoding, closefd=False)  # noqa: SIM115
    for name, number in (("stdout", 1), ("stderr", 2)):
        before, buffering = getattr(sys, name), 1 if number == 2 or os.isatty(number) else -1
        opened = open(number, "w", buffering, before.encoding, before.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


if __name__ == "__main__":
    main()
