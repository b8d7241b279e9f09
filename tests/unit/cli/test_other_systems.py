"""The core needs nothing that only Linux has. This is no run on another system: it takes away what those lack."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.cli_support import ROOT

POSIX_MODULES = {"fcntl", "termios", "tty", "pty", "resource", "pwd", "grp", "syslog", "posix"}
OF_LINUX: tuple[str, ...] = (
    "sched_getaffinity",
    "sched_setaffinity",
    "fork",
    "forkpty",
    "killpg",
    "getuid",
    "geteuid",
    "getpgid",
)
OF_LINUX += ("mkfifo", "setsid", "getloadavg", "posix_fallocate", "posix_fadvise", "sendfile", "pidfd_open")
PROGRAM = f"""
import asyncio, multiprocessing, os, signal, subprocess, sys, tempfile, shutil, zipfile  # of Python itself
for name in {OF_LINUX!r}:
    if hasattr(os, name): delattr(os, name)
for name in ("SIGHUP", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM"):
    if hasattr(signal, name): delattr(signal, name)
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {POSIX_MODULES!r}: raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
for name in {POSIX_MODULES!r}: sys.modules.pop(name, None)
from microsim.cli import main
main()
"""


def test_a_run_and_a_replay_work_without_what_linux_adds(tmp_path: Path) -> None:
    digests = []
    run = ("run", "flat", "--transport", "none", "--headless", "--rtf", "0", "--duration", "1", "--seed", "5", "-q")
    for words in (
        (*run, "--digest"),
        (*run, "--record", "bag"),
        ("replay", "bag", "--verify", "-q"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        digests.append(done.stdout.strip())
    whole = subprocess.run(
        [sys.executable, "-m", "microsim", *run, "--digest"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert digests[0] == whole.stdout.strip() != ""


def test_no_module_imports_what_only_posix_has_when_it_is_loaded() -> None:
    strays = []
    for file in (ROOT / "microsim").rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:  # at the top, not within functions
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            strays += [f"{file.relative_to(ROOT)}:{node.lineno}: {name}" for name in names if name in POSIX_MODULES]
    assert strays == []


def test_the_core_looks_into_proc_nowhere() -> None:
    parts = ROOT / "microsim" / "parts"
    core = [file for file in (ROOT / "microsim").rglob("*.py") if parts not in file.parents]
    assert len(core) > 150
    assert [file.name for file in core if "/proc/" in file.read_text(encoding="utf-8")] == []
