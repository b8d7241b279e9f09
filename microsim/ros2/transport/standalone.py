"""What a node needs that runs without an installed ROS 2: its names, parameters, log and answers to requests.

`dds` and `memory` derive from it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.ros2.transport import LogLevel, MissingTypeError, OnRequest, OnSet, Parameter, Publisher, Value
from microsim.ros2.transport.parameter_server import EVENTS, EVENTS_TYPE, PARAMETERS_QOS, ParameterServer
from microsim.ros2.transport.ros_arguments import LEVELS, parse_ros_arguments

ROSOUT = "/rosout"  # global, whatever the node's namespace
ROSOUT_TYPE = "rcl_interfaces/msg/Log"
ROSOUT_QOS = Qos(1000, latched=True)

_FORMAT = "[{severity}] [{time}] [{name}]: {message}"
_COLOURS: Mapping[LogLevel, str] = {"debug": "\033[32m", "info": "", "warn": "\033[33m", "error": "\033[31m"}


class StandaloneNode:
    def __init__(self, node_name: str, ros_args: Sequence[str]) -> None:
        self.arguments = parse_ros_arguments(ros_args, node_name)
        self.node_name = self.arguments.node_name
        self.overrides: Mapping[str, Value] = self.arguments.overrides
        self._parameters: ParameterServer | None = None
        self._rosout: Publisher | None = None

    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> Publisher:
        """On a topic whose name is absolute and not remapped."""
        raise NotImplementedError

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        raise NotImplementedError

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        if self._parameters is None:
            events = self.publisher_at(EVENTS, EVENTS_TYPE, PARAMETERS_QOS)
            self._parameters = ParameterServer(self.node_name, events.publish)
            for name, (type_name, handler) in self._parameters.services().items():
                self.serve(f"~/{name}", type_name, handler)
        self._parameters.declare(parameters, on_set)

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        if self._parameters is None:
            raise UsageError("no parameters were declared")
        self._parameters.show(values)

    def log(self, level: LogLevel, text: str) -> None:
        if not self.arguments.shows(level):
            return
        stamp_ns, logger = time.time_ns(), self.arguments.logger
        if self.arguments.terminal:
            _print(level, logger, text, stamp_ns)
        if self._rosout is not None:
            stamp = wire.new("builtin_interfaces/msg/Time", sec=stamp_ns // 10**9, nanosec=stamp_ns % 10**9)
            text = text.replace("\0", "")
            message = wire.new(ROSOUT_TYPE, stamp=stamp, level=LEVELS[level], name=logger, msg=text)
            self._rosout.publish(wire.encode(ROSOUT_TYPE, message))


def _print(level: LogLevel, logger: str, text: str, stamp_ns: int) -> None:
    """As rcl does; RCUTILS_CONSOLE_OUTPUT_FORMAT, _COLORIZED_OUTPUT and _LOGGING_USE_STDOUT are respected."""
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
    with contextlib.suppress(OSError, ValueError):  # a closed terminal does not stop the node
        print(f"{colour}{line}\033[0m" if colour else line, file=stream, flush=True)


def _is_coloured(stream: object) -> bool:
    setting = os.environ.get("RCUTILS_COLORIZED_OUTPUT", "")
    return setting == "1" if setting in ("0", "1") else bool(getattr(stream, "isatty", bool)())


# ---- requests --------------------------------------------------------------------------------------------------------


class NotYet(Exception):  # noqa: N818 - not an error
    """Raised by a handler that cannot answer yet: the request is kept, and the handler is called again later."""


def answer(type_name: str, on_request: OnRequest, request: Any, log_error: Callable[[str], None]) -> bytes:
    """The encoded response. A handler that fails still answers, with `success` false where the response has it."""
    response = wire.new(f"{type_name}_Response")
    try:
        on_request(request, response)
        return wire.encode(f"{type_name}_Response", response)
    except NotYet:
        raise
    except Exception as error:  # of any kind: the client waits for an answer
        problem = f"{type(error).__name__}: {error}"
    log_error(problem)
    response = wire.new(f"{type_name}_Response")
    if hasattr(response, "message"):
        response.message = problem
    return wire.encode(f"{type_name}_Response", response)


def known_type(type_name: str) -> str:
    """`type_name`, or MissingTypeError."""
    if not wire.is_known(type_name):
        package = type_name.partition("/")[0]
        raise MissingTypeError(type_name, f"not among the types that MicroSim includes (package {package})")
    return type_name


def known_service(type_name: str) -> str:
    known_type(f"{type_name}_Request")
    return type_name
