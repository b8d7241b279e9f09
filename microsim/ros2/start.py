"""From a transport and the user's wishes to a node that is ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from microsim.errors import UsageError, did_you_mean
from microsim.ros2.microsim_node import OWN_PARAMETERS, MicroSimNode
from microsim.ros2.node_parameters import Settings
from microsim.ros2.transport import Transport, Value
from microsim.runner import Pilot, Runner
from microsim.scenario import Scenario, load_scenario
from microsim.simulation import Simulation

_RENAMED = {"camera_hz": "drone.camera.hz"}  # PRD 5.4 calls the first deprecated


def start_node(
    transport: Transport,
    scenario: Scenario | str | None,
    seed: int | None = None,
    rtf: float | None = None,
    pilot_for: Callable[[Simulation], Pilot | None] = lambda sim: None,
    takes_inputs: bool = True,
) -> MicroSimNode:
    """Scenario < parameters from --ros-args < what is given here. `pilot_for`: who drives, if nobody on ROS 2 does."""
    problems: list[str] = []

    def warn(text: str) -> None:
        transport.log("warn", text)
        problems.append(text)

    overrides = _renamed(warn, transport.overrides)
    own = {name: overrides.pop(name) for name in OWN_PARAMETERS if name in overrides}
    settings = Settings(load_scenario(scenario if scenario is not None else str(own.get("scenario", "default"))))
    _apply(warn, settings, overrides)
    chosen_seed = own.get("seed") if seed is None else seed
    chosen_rtf = own.get("real_time_factor", 1.0) if rtf is None else rtf
    if "stamped_cmd_vel" in own:
        settings.set_stamped(bool(own["stamped_cmd_vel"]))
    sim = Simulation(settings.scenario, _whole(chosen_seed))
    runner = Runner(sim, _number("real_time_factor", chosen_rtf), pilot_for(sim))
    node = MicroSimNode(transport, runner, settings, pilot_for, takes_inputs)
    for problem in problems:
        runner.note("warn", problem)
    return node


def _renamed(warn: Callable[[str], None], overrides: Mapping[str, Value]) -> dict[str, Any]:
    found = dict(overrides)
    for old, new in _RENAMED.items():
        if old in found:
            warn(f"the parameter {old} is deprecated: use {new}")
            found.setdefault(new, found.pop(old))
    return found


def _apply(warn: Callable[[str], None], settings: Settings, overrides: Mapping[str, Value]) -> None:
    known = {name: value for name, value in overrides.items() if settings.knows(name)}
    for name in overrides:
        if name not in known:
            near = did_you_mean(name, [*settings.values(), *OWN_PARAMETERS])
            warn(f"there is no parameter {name}{near}")
    refusal = settings.change(known) if known else ""
    if refusal:
        raise UsageError(f"a parameter from --ros-args cannot be taken: {refusal}")
    settings.use_next()


def _whole(seed: Any) -> int | None:
    if seed is None or (isinstance(seed, int) and not isinstance(seed, bool)):
        return seed
    raise UsageError(f"the parameter seed must be a whole number, found {seed!r}")


def _number(name: str, value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise UsageError(f"the parameter {name} must be a number, found {value!r}")
