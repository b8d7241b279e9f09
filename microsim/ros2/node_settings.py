"""Settings as ROS 2 parameters: a frozen pydantic model whose every field is one, with its bounds and description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from microsim.documents.values import Model
from microsim.errors import UsageError, did_you_mean
from microsim.ros2.node_parameters import field_limits
from microsim.ros2.transport import Parameter, Transport, Value
from microsim.scenario.files import Places

Settings = TypeVar("Settings", bound=Model)


def read_settings(transport: Transport, kind: type[Settings]) -> Settings:
    """The defaults with what --ros-args say; an unknown parameter is warned about, a wrong value refused."""
    given = dict(transport.overrides)
    for name in [name for name in given if name not in kind.model_fields]:
        transport.log("warn", f"there is no parameter {name}{did_you_mean(name, list(kind.model_fields))}")
        del given[name]
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise UsageError(f"a parameter from --ros-args cannot be taken: {_reasons(error)}") from None


def changed(settings: Settings, changes: Mapping[str, Value]) -> Settings:
    """The settings with other values, checked as a whole."""
    try:
        return type(settings).model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        raise UsageError(_reasons(error)) from None


def declarations(settings: Model) -> list[Parameter]:
    """Every setting as a ROS 2 parameter with its present value."""
    return [_declaration(name, getattr(settings, name), info) for name, info in type(settings).model_fields.items()]


def _declaration(name: str, value: Any, info: FieldInfo) -> Parameter:
    low, high = field_limits(info)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
    return Parameter(
        name,
        list(value) if isinstance(value, tuple) else value,
        info.description or "",
        read_only=bool(extra.get("read_only")),
        minimum=low if is_number else None,
        maximum=high if is_number else None,
        any_number=is_number,
    )


def _reasons(error: ValidationError) -> str:
    return "; ".join(map(str, Places().problems(error, {}, lambda path: path)))
