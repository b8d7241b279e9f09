"""What a node needs that runs without an installed ROS 2: its names, parameters, log and answers to requests.

`dds` and `memory` derive from it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from microsim import messages as wire
from microsim.errors import UsageError, did_you_mean
from microsim.messages.descriptions import GET_TYPE_DESCRIPTION, answer_type_description
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import (
    LogLevel,
    MissingTypeError,
    NodeEnds,
    OnRequest,
    OnSet,
    Parameter,
    Publisher,
    Value,
)
from microsim.parts.ros2.transport.ros_arguments import LEVELS, parse_ros_arguments

ROSOUT = "/rosout"  # global, whatever the node's namespace
ROSOUT_TYPE = "rcl_interfaces/msg/Log"
ROSOUT_QOS = Qos(1000, latched=True)
ROSOUT_TOPIC = ROSOUT, ROSOUT_TYPE, ROSOUT_QOS

_FORMAT = "[{severity}] [{time}] [{name}]: {message}"
_COLOURS: Mapping[LogLevel, str] = {"debug": "\033[32m", "info": "", "warn": "\033[33m", "error": "\033[31m"}


class StandaloneNode(ABC):
    tells_senders = True
    serves_many_types = True
    discovery_s = 0.0

    def __init__(self, node_name: str, ros_args: Sequence[str]) -> None:
        self.arguments = parse_ros_arguments(ros_args, node_name)
        self.node_name = self.arguments.node_name
        self.overrides: Mapping[str, Value] = self.arguments.overrides
        self._parameters: ParameterServer | None = None
        self._rosout: Publisher | None = None

    def publisher(self, topic: str, type_name: str, qos: Qos) -> Publisher:
        return self.publisher_at(self.arguments.topic(topic), type_name, qos)

    @abstractmethod
    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> Publisher:
        """On a topic whose name is absolute and not remapped."""

    @abstractmethod
    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None: ...

    def resolved(self, topic: str) -> str:
        return self.arguments.topic(topic)

    def peers(self, topic: str, publishers: bool) -> dict[Hashable, str]:
        return {}

    def described(self, node: str) -> NodeEnds | None:
        return None

    def acquaint(self) -> Callable[[Collection[Hashable]], bool] | None:
        return None

    def is_acknowledged(self, topic: str) -> bool | None:
        return None

    def has_received_all(self, timeout_s: float) -> bool:
        return True

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> Callable[[], Any] | None:
        return None

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        if self._parameters is None:
            events = self.publisher_at(EVENTS, EVENTS_TYPE, PARAMETERS_QOS)
            self._parameters = ParameterServer(self.node_name, events.publish)
            for name, (type_name, handler) in self._parameters.services().items():
                self.serve(f"~/{name}", type_name, handler)
            self.serve("~/get_type_description", GET_TYPE_DESCRIPTION, answer_type_description)
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
            content = {"level": LEVELS[level], "name": logger, "msg": text.replace("\0", "")}
            self._rosout.publish(wire.encode(ROSOUT_TYPE, wire.new(ROSOUT_TYPE, stamp=_stamp(stamp_ns), **content)))


def _stamp(time_ns: int) -> Any:
    return wire.new("builtin_interfaces/msg/Time", sec=time_ns // 10**9, nanosec=time_ns % 10**9)


def _print(level: LogLevel, logger: str, text: str, stamp_ns: int) -> None:
    """As rcl does; RCUTILS_CONSOLE_OUTPUT_FORMAT, _COLORIZED_OUTPUT and _LOGGING_USE_STDOUT are respected."""
    stream = sys.stdout if os.environ.get("RCUTILS_LOGGING_USE_STDOUT") == "1" else sys.stderr
    parts = {"severity": level.upper(), "time": f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}"}
    parts |= {"time_as_nanoseconds": str(stamp_ns), "name": logger, "message": text}
    form = os.environ.get("RCUTILS_CONSOLE_OUTPUT_FORMAT") or _FORMAT
    line = re.sub(r"\{(\w+)\}", lambda key: parts.get(key[1], ""), form)
    setting = os.environ.get("RCUTILS_COLORIZED_OUTPUT", "")
    is_coloured = setting == "1" if setting in ("0", "1") else bool(getattr(stream, "isatty", bool)())
    colour = _COLOURS[level] if is_coloured else ""
    with contextlib.suppress(OSError, ValueError):  # a closed terminal does not stop the node
        print(f"{colour}{line}\033[0m" if colour else line, file=stream, flush=True)


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


EVENTS = "/parameter_events"  # global, whatever the node's namespace
EVENTS_TYPE = "rcl_interfaces/msg/ParameterEvent"
PARAMETERS_QOS = Qos(1000)

NOT_SET, BOOL, INTEGER, DOUBLE, STRING, BYTES, BOOLS, INTEGERS, DOUBLES, STRINGS = range(10)
TYPE_NAMES = (
    *("not set", "bool", "integer", "double", "string", "byte array"),
    *("bool array", "integer array", "double array", "string array"),
)
_FIELDS = ("", *(f"{name.replace(' ', '_')}_value" for name in TYPE_NAMES[1:]))
_SCALARS = {bool: BOOL, int: INTEGER, float: DOUBLE, str: STRING}
_ARRAYS = {bool: BOOLS, int: INTEGERS, float: DOUBLES, str: STRINGS}
_ARRAY_TYPES = {BYTES: np.uint8, BOOLS: np.bool_, INTEGERS: np.int64, DOUBLES: np.float64}
_INT64 = (-(2**63), 2**63 - 1)


def type_of(value: Value) -> int:
    """The number of rcl_interfaces/msg/ParameterType; an empty list could be of any type and counts as doubles."""
    if isinstance(value, (list, tuple)):
        return _ARRAYS[type(value[0])] if value else DOUBLES
    return _SCALARS[type(value)]


class ParameterServer:
    def __init__(self, node_name: str, publish_event: Callable[[bytes], None]) -> None:
        self._node_name, self._publish_event = node_name, publish_event
        self._declared: dict[str, Parameter] = {}
        self._types: dict[str, int] = {}
        self._values: dict[str, Value] = {}
        self._on_set: dict[str, OnSet] = {}

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        for parameter in parameters:
            if parameter.name in self._declared:
                raise UsageError(f"parameter {parameter.name!r} is declared twice")
            self._declared[parameter.name] = parameter
            self._types[parameter.name] = type_of(parameter.value)
            self._values[parameter.name] = parameter.value
            self._on_set[parameter.name] = on_set
        if parameters:
            self._event(new=[parameter.name for parameter in parameters])

    def show(self, values: Mapping[str, Value]) -> None:
        """Values that changed inside the node: `on_set` is not called, but names and types must be right."""
        shown: dict[str, Value] = {}
        for name, given in values.items():
            if name not in self._declared:
                raise UsageError(f"parameter {name!r} was not declared{did_you_mean(name, self._declared)}")
            shown[name] = value = self._declared[name].converted(given)
            kind = self._types[name] if value == [] and self._types[name] >= BYTES else type_of(value)
            if kind != self._types[name]:
                raise UsageError(self._wrong_type(name, kind))
        changed = [name for name, value in shown.items() if value != self._values[name]]
        self._values.update(shown)
        if changed:
            self._event(changed=changed)

    def services(self) -> dict[str, tuple[str, OnRequest]]:
        """Name below the node's -> type and handler."""
        return {
            "describe_parameters": ("rcl_interfaces/srv/DescribeParameters", self._describe),
            "get_parameter_types": ("rcl_interfaces/srv/GetParameterTypes", self._get_types),
            "get_parameters": ("rcl_interfaces/srv/GetParameters", self._get),
            "list_parameters": ("rcl_interfaces/srv/ListParameters", self._list),
            "set_parameters": ("rcl_interfaces/srv/SetParameters", self._set),
            "set_parameters_atomically": ("rcl_interfaces/srv/SetParametersAtomically", self._set_atomically),
        }

    def _apply(self, messages: Sequence[Any]) -> str:
        """All or none; "" when accepted, or the reason."""
        changes: dict[str, Value] = {}
        for message in messages:
            if why := self._refusal(message):
                return why
            changes[message.name] = self._declared[message.name].converted(_plain(message.value))
        for on_set in dict.fromkeys(self._on_set[name] for name in changes):
            if why := on_set({name: value for name, value in changes.items() if self._on_set[name] is on_set}):
                return why
        self._values.update(changes)
        if changes:
            self._event(changed=list(changes))
        return ""

    def _refusal(self, message: Any) -> str:
        name, kind = message.name, message.value.type
        if name not in self._declared:
            return f"parameter '{name}' cannot be set because it was not declared{did_you_mean(name, self._declared)}"
        parameter = self._declared[name]
        if parameter.read_only:
            return f"parameter '{name}' cannot be set because it is read-only"
        if kind == NOT_SET:
            return f"parameter '{name}' cannot be undeclared"
        if kind >= len(_FIELDS):
            return f"parameter '{name}': there is no type {kind}"
        value = parameter.converted(_plain(message.value))
        if not isinstance(value, list):
            kind = type_of(value)
        return self._wrong_type(name, kind) if kind != self._types[name] else parameter.out_of_range(value)

    def _wrong_type(self, name: str, kind: int) -> str:
        expected = self._types[name]
        hint = "; write it with a decimal point" if (expected, kind) in ((DOUBLE, INTEGER), (DOUBLES, INTEGERS)) else ""
        return f"parameter '{name}' is of type {TYPE_NAMES[expected]}, not {TYPE_NAMES[kind]}{hint}"

    def _value_message(self, name: str) -> Any:
        if name not in self._values:
            return wire.new("rcl_interfaces/msg/ParameterValue")
        return value_message(self._values[name], self._types[name])

    def _event(self, new: Sequence[str] = (), changed: Sequence[str] = ()) -> None:
        lists = {"new_parameters": new, "changed_parameters": changed}
        parameters = {
            key: [
                wire.new("rcl_interfaces/msg/Parameter", name=each, value=self._value_message(each)) for each in names
            ]
            for key, names in lists.items()
        }
        event = wire.new(EVENTS_TYPE, stamp=_stamp(time.time_ns()), node=self._node_name, **parameters)
        self._publish_event(wire.encode(EVENTS_TYPE, event))

    def _descriptor(self, name: str) -> Any:
        if name not in self._declared:
            return wire.new("rcl_interfaces/msg/ParameterDescriptor", name=name)
        parameter, kind = self._declared[name], self._types[name]
        about = {"name": name, "type": kind, "description": parameter.description, "read_only": parameter.read_only}
        return wire.new("rcl_interfaces/msg/ParameterDescriptor", **about, **_ranges(parameter, kind))

    def _describe(self, request: Any, response: Any) -> None:
        response.descriptors = [self._descriptor(name) for name in request.names]

    def _get(self, request: Any, response: Any) -> None:
        response.values = [self._value_message(name) for name in request.names]

    def _get_types(self, request: Any, response: Any) -> None:
        response.types = np.array([self._types.get(name, NOT_SET) for name in request.names], np.uint8)

    def _list(self, request: Any, response: Any) -> None:
        names = [name for name in sorted(self._values) if _is_listed(name, request.prefixes, int(request.depth))]
        prefixes = dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name)
        response.result.names, response.result.prefixes = names, list(prefixes)

    def _set(self, request: Any, response: Any) -> None:
        response.results = [_result(self._apply([message])) for message in request.parameters]

    def _set_atomically(self, request: Any, response: Any) -> None:
        response.result = _result(self._apply(request.parameters))


def _result(why_not: str) -> Any:
    return wire.new("rcl_interfaces/msg/SetParametersResult", successful=not why_not, reason=why_not)


def _is_listed(name: str, prefixes: Sequence[str], depth: int) -> bool:
    """As rclcpp: depth counts the parts after the prefix; 0 means all."""
    if not prefixes:
        return depth == 0 or name.count(".") < depth
    return any(
        name == prefix or (name.startswith(f"{prefix}.") and (depth == 0 or name.count(".", len(prefix) + 1) < depth))
        for prefix in prefixes
    )


def value_message(value: Value, kind: int | None = None) -> Any:
    """A rcl_interfaces/msg/ParameterValue."""
    kind = type_of(value) if kind is None else kind
    content: Any = np.asarray(value, _ARRAY_TYPES[kind]) if kind in _ARRAY_TYPES else value
    return wire.new("rcl_interfaces/msg/ParameterValue", type=kind, **{_FIELDS[kind]: content})


def plain_value(message: Any) -> Value | None:
    """What a rcl_interfaces/msg/ParameterValue holds; None: nothing, or a type that is not known."""
    return _plain(message) if NOT_SET < message.type < len(_FIELDS) else None


def _plain(message: Any) -> Value:
    value = getattr(message, _FIELDS[message.type])
    plain: Value = value.tolist() if isinstance(value, np.ndarray) else value
    return plain


def _ranges(parameter: Parameter, kind: int) -> dict[str, list[Any]]:
    if parameter.bounds is None:
        return {}
    low, high = parameter.bounds
    if kind in (INTEGER, INTEGERS):
        ends = whole_bounds(low, high)
        return {"integer_range": [wire.new("rcl_interfaces/msg/IntegerRange", from_value=ends[0], to_value=ends[1])]}
    if kind in (DOUBLE, DOUBLES):
        limits = wire.new("rcl_interfaces/msg/FloatingPointRange", from_value=float(low), to_value=float(high))
        return {"floating_point_range": [limits]}
    return {}


def whole_bounds(low: float, high: float) -> tuple[int, int]:
    """The bounds of a 64-bit integer."""
    return (_INT64[0] if math.isinf(low) else math.ceil(low), _INT64[1] if math.isinf(high) else math.floor(high))
