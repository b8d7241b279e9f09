"""Goals for action servers of other nodes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from microsim.errors import UsageError
from microsim.ros2.transport.graph_view import ACTION

if TYPE_CHECKING:
    from microsim.ros2.client.client_node import ClientNode

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
