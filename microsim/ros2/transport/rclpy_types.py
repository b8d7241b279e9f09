"""Types and values of an installed ROS 2: found by name, filled from plain values, described for parameters."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.parameter import Parameter as RosParameter
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.type_support import check_for_type_support

from microsim.messages.topics import Qos
from microsim.ros2.transport import MissingTypeError, Parameter, Value

# no distribution of ROS 2 has this service, so MicroSim brings it under a name of its own
OUR_OWN = {"example_interfaces/srv/SetInt32": "microsim_interfaces/srv/SetInt32"}

_INT64 = (-(2**63), 2**63 - 1)


def find_type(type_name: str) -> Any:
    """The class of a message or service; raises MissingTypeError."""
    try:
        return _import(type_name)
    except MissingTypeError:
        if type_name not in OUR_OWN:
            raise
        return _import(OUR_OWN[type_name])


def _import(type_name: str) -> Any:
    package, kind, short = type_name.split("/")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingTypeError(type_name, f"{package} is not installed; {_how_to_get(package)}") from error
    try:
        module = importlib.import_module(f"{package}.{kind}")
        found = _part_of_action(module, short) if kind == "action" else getattr(module, short)
        check_for_type_support(found)
    except (ImportError, AttributeError) as error:
        raise MissingTypeError(
            type_name, f"the installed {package} does not have it; {_how_to_get(package)}, in a newer version"
        ) from error
    return found


def _part_of_action(module: Any, name: str) -> Any:
    """Of Name_SendGoal, Name_GetResult, Name_FeedbackMessage."""
    action, _, part = name.rpartition("_")
    whole = getattr(module, action)
    check_for_type_support(whole)  # and with it, that of its parts
    return getattr(whole.Impl, part if part == "FeedbackMessage" else f"{part}Service")


def _how_to_get(package: str) -> str:
    if package == "microsim_interfaces":
        return "build it with `colcon build --base-paths . interfaces` in MicroSim's source, and source it"
    distribution = os.environ.get("ROS_DISTRO", "$ROS_DISTRO")
    return f"try `apt install ros-{distribution}-{package.replace('_', '-')}`"


def quality(qos: Qos) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=qos.depth,
        reliability=ReliabilityPolicy.RELIABLE if qos.reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if qos.latched else DurabilityPolicy.VOLATILE,
    )


def descriptor(parameter: Parameter) -> ParameterDescriptor:
    described = ParameterDescriptor(
        name=parameter.name,
        type=RosParameter.Type.from_parameter_value(parameter.value).value,
        description=parameter.description,
        read_only=parameter.read_only,
        dynamic_typing=parameter.any_number,
    )
    low, high = parameter.minimum, parameter.maximum
    if low is None and high is None:
        return described
    if any(isinstance(number, float) for number in _numbers(parameter.value)):
        bounds = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
        described.floating_point_range = [FloatingPointRange(from_value=bounds[0], to_value=bounds[1])]
    else:
        whole = (_INT64[0] if low is None else math.ceil(low), _INT64[1] if high is None else math.floor(high))
        described.integer_range = [IntegerRange(from_value=whole[0], to_value=whole[1])]
    return described


def refusal(parameter: Parameter, value: Any) -> str:
    """What rclpy does not see: another type where a number may take either kind, bounds of arrays, NaN."""
    if parameter.any_number and (isinstance(value, bool) or not isinstance(value, int | float)):
        return f"parameter '{parameter.name}' is a number, found {value!r}"
    low = -math.inf if parameter.minimum is None else parameter.minimum
    high = math.inf if parameter.maximum is None else parameter.maximum
    bounded = parameter.minimum is not None or parameter.maximum is not None
    if bounded and not all(low <= number <= high for number in _numbers(value)):
        return f"parameter '{parameter.name}' must be from {low} to {high}, found {plain_value(value)}"
    return ""


def _numbers(value: Any) -> list[float]:
    elements = [value] if isinstance(value, int | float | str) else value
    return [element for element in elements if isinstance(element, int | float)]


def ros_parameter(described: ParameterDescriptor, value: Value) -> RosParameter:
    if described.dynamic_typing:
        return RosParameter(described.name, value=value)
    return RosParameter(described.name, RosParameter.Type(described.type), value)


def plain_value(value: Any) -> Value:
    """A parameter's value, whichever array rclpy keeps it in."""
    if isinstance(value, bool | int | float | str):
        return value
    return [element[0] if isinstance(element, bytes) else element for element in value]


def fill(message: Any, values: Mapping[str, Any]) -> Any:
    """Set the fields of a message, nested ones from mappings."""
    kinds = message.get_fields_and_field_types()
    for name, value in values.items():
        if name not in kinds:
            raise TypeError(f"{type(message).__name__} has no field {name}; there are: {', '.join(kinds)}")
        setattr(message, name, _field(kinds[name], value))
    return message


def _field(kind: str, value: Any) -> Any:
    """`kind` as rclpy writes it: double, geometry_msgs/Point, sequence<octet, 10>, double[36]."""
    element = kind.removeprefix("sequence<").removesuffix(">").split(",")[0].split("[")[0]
    if element != kind:
        return [_field(element, each) for each in value]
    if isinstance(value, Mapping):
        package, short = kind.split("/")
        return fill(find_type(f"{package}/msg/{short}")(), value)
    if kind == "octet":
        return bytes([value])
    return float(value) if kind in ("float", "double") else value
