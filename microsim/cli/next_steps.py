"""The "What next?" at the end of a run: commands that fit what the user just did, each to be pasted as it is."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microsim.cli.commands.run import RunOptions


def after(options: RunOptions) -> str:
    """Empty for scripts and tests."""
    rows = list(_rows(options))
    return "\n".join(["", "What next?", *(f"  # {what}\n  {command}" for what, command in rows)]) if rows else ""


def _rows(options: RunOptions) -> Iterator[tuple[str, str]]:
    record = options.recording.record
    if options.demo:
        in_checkout = Path("Makefile").is_file() and Path("microsim", "cli").is_dir()
        yield "watch and drive in the browser", "make demo" if in_checkout else _command("demo", "oval", "--open")
    if record is not None:
        yield "watch the recording in the browser", _command("replay", str(record), "--open")
        yield "plot it", _command("plot", str(record))
        yield "list its topics", _command("bag", "info", str(record))
    again = ["run", *_written(options)]
    if options.demo and record is None:
        folder = next(name for number in count(1) if not Path(name := f"flight{number}").exists())
        fast = ["--rtf", "0", "--duration", "60"]
        yield "record a minute, as fast as possible", _command(*again, "--demo", *fast, "--record", folder)
    if options.demo:
        yield "list other worlds, missions and robots", _command("list")
    elif record is None and not (options.headless or options.mission) and sys.stdout.isatty():
        yield "let a pilot move the robots", _command(*again, "--demo")
        yield "watch and drive in the browser", _command(*again, "--open")


def _written(options: RunOptions) -> list[str]:
    """The scenario or world as the user wrote it."""
    return [*([options.scenario] if options.scenario else []), *(["--world", options.world] if options.world else [])]


def _command(*words: str) -> str:
    """For a shell here: `make run` calls a program that is not on the path."""
    called = Path(sys.argv[0])
    if shutil.which("microsim"):
        program = ["microsim"]
    else:
        program = [str(called)] if called.name == "microsim" else [sys.executable, "-m", "microsim"]
    return shlex.join([*program, *words])
