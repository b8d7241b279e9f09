"""The block `controllers:` of a scenario: which file commands which robot, how often, and with which settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, model_serializer, model_validator
from pydantic_core import InitErrorDetails

from microsim.controllers.controller_code import ControllerCode, controller_in
from microsim.documents.values import Hertz, Model, detail
from microsim.errors import PluginError, UsageError, unknown

EVERY_ROBOT = "*"  # in place of a robot's name: one controller of all robots
_OWN = ("file", "hz", "options")


class ControllerBlock(Model):
    """`{file: controller.py, hz: 20, ...settings of the controller}`; the name of the file alone is enough."""

    file: str = Field(min_length=1, description="Python code with `control(seen)`, or with a class `Controller`.")
    hz: Hertz | None = Field(None, description="How often it is called; default: what its file says, or 20 [Hz].")
    options: dict[str, Any] = Field({}, description="The controller's own keys: keyword parameters of its code.")

    @model_validator(mode="before")
    @classmethod
    def _flat_to_nested(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"file": data}
        if not isinstance(data, Mapping) or "options" in data:
            return data
        own = {key: value for key, value in data.items() if key not in _OWN}
        return {**{key: data[key] for key in data if key in _OWN}, "options": own}

    @model_serializer(mode="wrap")
    def _nested_to_flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        options = data.pop("options")
        return {**data, **options}

    @property
    def code(self) -> ControllerCode:
        return controller_in(self.file)


def checked_controllers(
    blocks: Mapping[str, ControllerBlock], info: ValidationInfo
) -> tuple[dict[str, ControllerBlock], list[InitErrorDetails]]:
    """The blocks with every setting written out, and what is wrong with them."""
    robots, physics_hz = info.data.get("robots", {}), info.data.get("physics_hz")
    found, problems = {}, []
    for name, block in blocks.items():
        if name != EVERY_ROBOT and name not in robots:
            problems.append(detail(unknown("no robot", repr(name), name, robots), name, at_key=True))
            continue
        try:
            code = block.code
            settings = code.checked(block.options)
        except PluginError as error:
            problems.append(detail(str(error), name, "file"))
            continue
        except ValueError as error:
            problems.append(detail(str(error), name))
            continue
        hz = code.hz if block.hz is None else block.hz
        if physics_hz is not None and hz > physics_hz:
            if block.hz is not None:
                most = f"expected at most physics_hz, which is {physics_hz:g}"
                problems.append(detail(f"{most}, found {hz:g}", name, "hz"))
            hz = physics_hz
        found[name] = block.model_copy(update={"hz": hz, "options": settings})
    return found, problems


def written_controllers(texts: Sequence[str], robots: Iterable[str]) -> dict[str, str]:
    """Of `--controller`: `controller.py`, or `rover=controller.py`, `*=team.py`. Robot -> absolute path of the file."""
    names, found = list(robots), dict[str, str]()
    for text in texts:
        robot, is_named, file = text.partition("=")
        if not is_named or Path(text).is_file():
            robot, file = names[0] if len(names) == 1 else "", text
        if not robot:
            each = f"--controller {names[-1] if names else 'rover'}={file}"
            raise UsageError(f"the scenario has the robots {', '.join(names)}; say which one {file} drives: {each}")
        if robot != EVERY_ROBOT and robot not in names:
            raise UsageError(unknown("--controller: no robot", repr(robot), robot, names))
        if robot in found:
            raise UsageError(f"--controller: {robot} has two controllers")
        found[robot] = str(Path(file).absolute())
    return found
