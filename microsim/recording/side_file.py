"""`recording.json`: facts of the wall clock, kept out of the files that two runs must share byte for byte."""

from __future__ import annotations

import json
import platform
import sys
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from microsim.runner import Runner
from microsim.version import __version__

NAME = "recording.json"


class SideFile:
    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._facts: dict[str, Any] = {
            "started": _now(),
            "host": platform.node(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "microsim": __version__,
            "command": sys.argv,
        }
        self._write()

    def finish(self, runner: Runner | None) -> None:
        self._facts["ended"] = _now()
        if runner is not None:
            self._facts |= {"wall_s": round(runner.wall_s, 6), "real_time_factor": round(runner.achieved_rtf, 4)}
        self._write()

    def _write(self) -> None:
        with suppress(OSError):  # nothing depends on it
            text = json.dumps(self._facts, indent=2, ensure_ascii=False) + "\n"
            self._path.write_text(text, encoding="utf-8", errors="backslashreplace")  # arguments may be any bytes


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
