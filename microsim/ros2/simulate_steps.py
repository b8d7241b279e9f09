"""The action `simulation_interfaces/action/SimulateSteps`, from the services and topics an action is made of."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microsim import messages as wire
from microsim.engine.timekeeper import NS_PER_S
from microsim.messages.topics import Qos
from microsim.ros2.message_filling import fill
from microsim.ros2.transport.requests import NotYet

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode

ACTION = "simulation_interfaces/action/SimulateSteps"
TOPIC = "/simulate_steps/_action"
EXECUTING, SUCCEEDED, CANCELED = 2, 4, 5  # action_msgs/msg/GoalStatus
AT_ONCE = 20  # ticks between two looks at what has arrived: a cancellation is heard
KEPT = 100  # ended goals whose result can still be asked for


@dataclass
class Goal:
    id: bytes
    steps: int
    stamp_ns: int
    done: int = 0
    status: int = EXECUTING


class SimulateSteps:
    """One goal after the other; each steps a paused simulation."""

    def __init__(self, node: MicroSimNode) -> None:
        self.node = node
        self.goals: OrderedDict[bytes, Goal] = OrderedDict()
        node.transport.serve(f"{TOPIC}/send_goal", f"{ACTION}_SendGoal", self._on_goal)
        node.transport.serve(f"{TOPIC}/get_result", f"{ACTION}_GetResult", self._on_result)
        node.transport.serve(f"{TOPIC}/cancel_goal", "action_msgs/srv/CancelGoal", self._on_cancel)
        self._feedback = node.transport.publisher(f"{TOPIC}/feedback", f"{ACTION}_FeedbackMessage", Qos(10))
        latched = Qos(1, latched=True)
        self._status = node.transport.publisher(f"{TOPIC}/status", "action_msgs/msg/GoalStatusArray", latched)

    @property
    def under_way(self) -> Goal | None:
        return next((goal for goal in self.goals.values() if goal.status == EXECUTING), None)

    def go_on(self) -> None:
        """A few ticks of the goal under way; called whenever the node listens."""
        goal = self.under_way
        if goal is None:
            return
        if not self.node.runner.paused:  # somebody let the simulation run meanwhile
            self._end(goal, CANCELED)
            return
        count = min(AT_ONCE, goal.steps - goal.done)
        self.node.runner.step(count)
        goal.done += count
        values = {
            "goal_id": {"uuid": list(goal.id)},
            "feedback": {"completed_steps": goal.done, "remaining_steps": goal.steps - goal.done},
        }
        message = fill(wire.new(f"{ACTION}_FeedbackMessage"), values)
        self._feedback.publish(wire.encode(f"{ACTION}_FeedbackMessage", message))
        if goal.done == goal.steps:
            self._end(goal, SUCCEEDED)

    def _on_goal(self, request: Any, response: Any) -> None:
        goal = Goal(bytes(request.goal_id.uuid), int(request.goal.steps), self.node.sim.time_ns)
        response.accepted = self.node.runner.paused and goal.steps >= 1 and goal.id not in self.goals
        response.stamp.sec, response.stamp.nanosec = divmod(goal.stamp_ns, NS_PER_S)
        if not response.accepted:
            self.node.warn("simulate_steps: refused; pause the simulation and ask for 1 step or more")
            return
        self.goals[goal.id] = goal
        while len(self.goals) > KEPT and next(iter(self.goals.values())).status != EXECUTING:
            self.goals.popitem(last=False)
        self._tell_status()

    def _on_result(self, request: Any, response: Any) -> None:
        goal = self.goals.get(bytes(request.goal_id.uuid))
        if goal is None:
            return  # status 0: unknown
        if goal.status == EXECUTING:
            raise NotYet
        response.status = goal.status
        outcome = {"result": 1 if goal.status == SUCCEEDED else 4, "error_message": ""}
        if goal.status != SUCCEEDED:
            outcome["error_message"] = f"canceled after {goal.done} of {goal.steps} steps"
        fill(response.result, {"result": outcome})

    def _on_cancel(self, request: Any, response: Any) -> None:
        wanted = bytes(request.goal_info.goal_id.uuid)
        ended = [goal for goal in self.goals.values() if goal.status == EXECUTING and wanted in (bytes(16), goal.id)]
        for goal in ended:
            self._end(goal, CANCELED)
        response.return_code = 0 if ended else 2
        fill(response, {"goals_canceling": [{"goal_id": {"uuid": list(goal.id)}} for goal in ended]})

    def _end(self, goal: Goal, status: int) -> None:
        goal.status = status
        self._tell_status()

    def _tell_status(self) -> None:
        entries = [
            {"goal_info": {"goal_id": {"uuid": list(goal.id)}, "stamp": _stamp(goal.stamp_ns)}, "status": goal.status}
            for goal in self.goals.values()
        ]
        message = fill(wire.new("action_msgs/msg/GoalStatusArray"), {"status_list": entries})
        self._status.publish(wire.encode("action_msgs/msg/GoalStatusArray", message))


def _stamp(stamp_ns: int) -> dict[str, int]:
    seconds, nanoseconds = divmod(stamp_ns, NS_PER_S)
    return {"sec": seconds, "nanosec": nanoseconds}
