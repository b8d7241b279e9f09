"""What other nodes offer beside topics and services: their parameters, and goals for their actions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from microsim.errors import UsageError, did_you_mean
from microsim.parts.live_tools.client.reasons import listed
from microsim.parts.ros2.transport import Value
from microsim.parts.ros2.transport.graph_view import ACTION
from microsim.parts.ros2.transport.ros_arguments import read_value_as
from microsim.parts.ros2.transport.standalone import (
    DOUBLE,
    DOUBLES,
    INTEGER,
    INTEGERS,
    TYPE_NAMES,
    plain_value,
    type_of,
    value_message,
)

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode


class RemoteParameters:
    """`parameters["seed"]`, `parameters["seed"] = 7`, `set(...)`, `names()`, `describe(...)`."""

    def __init__(self, node: ClientNode, name: str, timeout: float = 5.0) -> None:
        self.name, self.timeout = name, timeout
        self._node = node

    def _call(self, service: str, **request: Any) -> Any:
        kind = "".join(word.capitalize() for word in service.split("_"))
        try:
            return self._node.call(
                f"{self.name}/{service}", request, type=f"rcl_interfaces/srv/{kind}", timeout=self.timeout
            )
        except UsageError as error:
            if "no service" in str(error):
                raise UsageError(f"node {self.name} has no parameter services") from None
            raise

    def names(self) -> list[str]:
        return sorted(self._call("list_parameters").result.names)

    def get(self, *names: str) -> dict[str, Any]:
        """Values by name; without names all of them."""
        wanted = list(names) or self.names()
        values = self._call("get_parameters", names=wanted).values
        found = {name: plain_value(value) for name, value in zip(wanted, values, strict=False)}
        if missing := [name for name in wanted if found.get(name) is None]:
            self._refuse(missing[0], wanted != list(names))
        return found

    def _refuse(self, name: str, is_listed: bool) -> None:
        if is_listed:
            return  # declared without a value
        names = self.names()
        if name not in names:
            guess = did_you_mean(name, names)
            raise UsageError(
                f"node {self.name} has no parameter {name!r}{guess}{' ' if guess else '; '}{listed(names)}"
            )

    def set(self, name: str, value: Value) -> None:
        """Raises UsageError with the node's reason. A whole number is accepted for a double."""
        self.set_all({name: value})

    def set_text(self, name: str, text: str) -> None:
        """The value is YAML, read as the type of the parameter: in a list of texts, `y` is a letter."""
        (kind,) = self._types([name]).values()
        self.set(name, read_value_as(text, "VALUE", TYPE_NAMES[kind] if 0 <= kind < len(TYPE_NAMES) else ""))

    def set_all(self, values: Mapping[str, Value]) -> None:
        if refused := self.set_each(values):
            for name, kind in self._types(values).items():
                if not kind:
                    self._refuse(name, is_listed=False)
            raise UsageError(f"node {self.name}: {'; '.join(refused.values())}")

    def set_each(self, values: Mapping[str, Value]) -> dict[str, str]:
        """By name, why the node refused what it refused."""
        wanted = self._types(values)
        messages = [
            {"name": name, "value": value_message(_converted(value, wanted.get(name, 0)))}
            for name, value in values.items()
        ]
        return self._refused(values, messages)

    def delete(self, name: str) -> None:
        """Raises UsageError with the node's reason."""
        if not self._types([name])[name]:
            self._refuse(name, is_listed=False)
        if refused := self._refused([name], [{"name": name, "value": {}}]):
            raise UsageError(f"node {self.name}: {refused[name]}")

    def _types(self, names: Iterable[str]) -> dict[str, int]:
        wanted = list(names)
        kinds = self._call("get_parameter_types", names=wanted).types
        return {**dict.fromkeys(wanted, 0), **dict(zip(wanted, map(int, kinds), strict=False))}

    def _refused(self, names: Iterable[str], messages: list[dict[str, Any]]) -> dict[str, str]:
        results = self._call("set_parameters", parameters=messages).results
        pairs = zip(names, results, strict=False)
        return {name: each.reason or "refused" for name, each in pairs if not each.successful}

    def describe(self, *names: str) -> dict[str, dict[str, Any]]:
        """By name: type, description, read_only, and the range where there is one."""
        wanted = list(names) or self.names()
        found = {each.name: _description(each) for each in self._call("describe_parameters", names=wanted).descriptors}
        for name in wanted:
            if found.get(name, {}).get("type", "not set") == "not set":
                self._refuse(name, is_listed=not names)
        return found

    def __getitem__(self, name: str) -> Any:
        return self.get(name)[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self.set(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def _converted(value: Any, kind: int) -> Any:
    if kind == DOUBLE and type(value) is int:
        return float(value)
    if kind == DOUBLES and isinstance(value, list) and all(type(each) in (int, float) for each in value):
        return [float(each) for each in value]
    if kind in (INTEGER, INTEGERS) or not kind:
        return value
    return (
        str(value)
        if TYPE_NAMES[kind] == "string" and isinstance(value, (int, float)) and type_of(value) != kind
        else value
    )


def _description(message: Any) -> dict[str, Any]:
    known = 0 <= message.type < len(TYPE_NAMES)
    found: dict[str, Any] = {"type": TYPE_NAMES[message.type] if known else f"type {message.type}"}
    found |= {"description": message.description, "read_only": bool(message.read_only)}
    for limits in (*message.integer_range, *message.floating_point_range):
        found |= {"minimum": limits.from_value, "maximum": limits.to_value}
        if limits.step:
            found["step"] = limits.step
    if message.additional_constraints:
        found["constraints"] = message.additional_constraints
    return found


STATUS = ("unknown", "accepted", "executing", "canceling", "succeeded", "canceled", "aborted")


class GoalOutcome(NamedTuple):
    status: str  # one of STATUS, or rejected
    result: Any  # a message; None when the goal was rejected


def send_goal(
    node: ClientNode, action: str, kind: str, goal: Mapping[str, Any],
    on_feedback: Callable[[Any], Any] | None, timeout: float | None,
) -> GoalOutcome:  # fmt: skip
    goal_id = {"uuid": np.frombuffer(uuid.uuid4().bytes, np.uint8)}
    subscription = None
    if on_feedback is not None:
        name, wanted = f"{action}{ACTION}feedback", goal_id["uuid"].tobytes()

        def hear(message: Any) -> None:
            if message.goal_id.uuid.tobytes() == wanted:
                on_feedback(message.feedback)

        subscription = node.subscribe(name, hear, type=f"{kind}_FeedbackMessage", depth=100)
    try:
        sent = node.call(f"{action}{ACTION}send_goal", {"goal_id": goal_id, "goal": goal}, type=f"{kind}_SendGoal")
        if not sent.accepted:
            return GoalOutcome("rejected", None)
        return _result(node, action, kind, goal_id, timeout)
    except UsageError as error:  # about the goal, not about the message around it
        raise UsageError(str(error).replace(f"{kind}_SendGoal_Request: goal.", f"{kind}_Goal: ")) from None
    finally:
        if subscription is not None:
            subscription.close()


def _result(node: ClientNode, action: str, kind: str, goal_id: Mapping[str, Any], timeout: float | None) -> GoalOutcome:
    request, service = {"goal_id": goal_id}, f"{action}{ACTION}get_result"
    future = node.begin_call(service, request, type=f"{kind}_GetResult", timeout=None)
    try:
        done = future.result(timeout)
    except (FutureTimeout, KeyboardInterrupt) as error:
        future.cancel()
        with suppress(TimeoutError, UsageError):
            cancel = {"goal_info": {"goal_id": goal_id}}
            node.call(f"{action}{ACTION}cancel_goal", cancel, type="action_msgs/srv/CancelGoal", timeout=2.0)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise TimeoutError(f"action {action}: no result within {timeout:g} s; the goal was cancelled") from None
    return GoalOutcome(STATUS[done.status] if 0 <= done.status < len(STATUS) else "unknown", done.result)
