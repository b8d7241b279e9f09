"""What a node says: a line in the terminal as rcl writes it, and a message on /rosout."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Mapping

from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.ros2.transport import LogLevel
from microsim.ros2.transport.ros_arguments import LEVELS

ROSOUT = "/rosout"  # global, whatever the node's namespace
ROSOUT_TYPE = "rcl_interfaces/msg/Log"
ROSOUT_QOS = Qos(1000, latched=True)
ROSOUT_LIFESPAN_S = 10.0

_FORMAT = "[{severity}] [{time}] [{name}]: {message}"
_COLOURS: Mapping[LogLevel, str] = {"debug": "\033[32m", "info": "", "warn": "\033[33m", "error": "\033[31m"}


def say(level: LogLevel, logger: str, text: str, stamp_ns: int) -> None:
    """To the terminal; RCUTILS_CONSOLE_OUTPUT_FORMAT, _COLORIZED_OUTPUT and _LOGGING_USE_STDOUT as in ROS 2."""
    stream = sys.stdout if os.environ.get("RCUTILS_LOGGING_USE_STDOUT") == "1" else sys.stderr
    parts = {
        "severity": level.upper(),
        "time": f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}",
        "time_as_nanoseconds": str(stamp_ns),
        "name": logger,
        "message": text,
    }
    form = os.environ.get("RCUTILS_CONSOLE_OUTPUT_FORMAT") or _FORMAT
    line = re.sub(r"\{(\w+)\}", lambda key: parts.get(key[1], ""), form)
    colour = _COLOURS[level] if _is_coloured(stream) else ""
    with contextlib.suppress(OSError, ValueError):  # a closed terminal is no reason to stop
        print(f"{colour}{line}\033[0m" if colour else line, file=stream, flush=True)


def log_message(level: LogLevel, logger: str, text: str, stamp_ns: int) -> bytes:
    stamp = wire.new("builtin_interfaces/msg/Time", sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
    return wire.encode(
        ROSOUT_TYPE, wire.new(ROSOUT_TYPE, stamp=stamp, level=LEVELS[level], name=logger, msg=text.replace("\0", ""))
    )


def now_ns() -> int:
    return time.time_ns()


def _is_coloured(stream: object) -> bool:
    wish = os.environ.get("RCUTILS_COLORIZED_OUTPUT", "")
    return wish == "1" if wish in ("0", "1") else bool(getattr(stream, "isatty", bool)())
