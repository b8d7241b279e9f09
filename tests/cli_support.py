"""`microsim` on the command line: a process for each call, forked from one that has imported everything.

A call that changes a variable which a fork cannot change starts from nothing: see `tests.forked_python`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile

from tests.forked_python import read_early, request, server
from tests.ros_domains import own_domain

ROOT = Path(__file__).resolve().parents[1]


def environment(**changes: str) -> dict[str, str]:
    """No terminal, and nobody else's commands, whatever the tests are started from."""
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TERM")}
    own = {"PYTHONPATH": str(ROOT), "COLUMNS": "120", "ROS_DOMAIN_ID": own_domain("commands")}
    return {**kept, **own, **changes}


def run_microsim(*arguments: str, cwd: Path = ROOT, **changes: str) -> subprocess.CompletedProcess[str]:
    """What a shell sees of a command: its output and its exit code."""
    variables = environment(**changes)
    if read_early(variables) == server().variables:
        done = _run_forked(arguments, cwd, variables)
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


def _run_forked(arguments: tuple[str, ...], cwd: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the command of `forked_python` does, but without a process for it."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err, Path(os.devnull).open() as nothing:
        wanted = ["-m", "microsim", *arguments], str(cwd), variables
        with request(server().path, wanted, (nothing.fileno(), out.fileno(), err.fileno())) as connection:
            connection.settimeout(300)  # closing it ends the process
            with connection.makefile() as answers:
                answers.readline()
                code = int(answers.readline())
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())
