"""MicroSim: a deterministic, lightweight robot simulator that speaks ROS 2.

>>> import microsim
>>> sim = microsim.Simulation(microsim.load_scenario("default"), seed=7)
>>> sim.command("drone", vx=1.0)
True
>>> messages = sim.step(60)
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.batch import BatchSimulation
    from microsim.errors import MicroSimError, PluginError, ScenarioError, UsageError
    from microsim.messages.outbox import Message
    from microsim.ros2.client import connect
    from microsim.scenario import Scenario, load_scenario
    from microsim.simulation import Simulation, Snapshot

__all__ = [
    "BatchSimulation",
    "Message",
    "MicroSimError",
    "PluginError",
    "Scenario",
    "ScenarioError",
    "Simulation",
    "Snapshot",
    "UsageError",
    "__version__",
    "connect",
    "load_scenario",
]

_HOMES = {
    "BatchSimulation": "microsim.batch",
    "Message": "microsim.messages.outbox",
    "Scenario": "microsim.scenario",
    "Simulation": "microsim.simulation",
    "Snapshot": "microsim.simulation",
    "connect": "microsim.ros2.client",
    "load_scenario": "microsim.scenario",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `microsim --help` must not pay for numba."""
    if name not in __all__:
        raise AttributeError(f"module 'microsim' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "microsim.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What Tab completion offers: the public names."""
    return __all__


class _FormerModule(ModuleType):
    """A module whose names were documented and are elsewhere now."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(import_module(_FORMER_MODULES[self.__name__]), name)


_ENGINE_OF_0_1 = ("compiled", "components", "exact", "motion", "noise")
_FORMER_MODULES = {
    "microsim.faults.fault_kind": "microsim.faults",
    "microsim.generators.generator": "microsim.generators",
    "microsim.messages.inputs.input_kind": "microsim.messages.inputs",
    "microsim.recording.bag": "microsim.recording.bag_io",
    "microsim.recording.replay": "microsim.recording.bag_replay",
    "microsim.ros2.robot_simulator.core": "microsim.ros2.robot_simulator_node",
    "microsim.ros2.robot_simulator.moving": "microsim.ros2.robot_maps",
    "microsim.ros2.robot_simulator.node": "microsim.ros2.robot_simulator_node",
    "microsim.ros2.robot_simulator.settings": "microsim.ros2.robot_simulator_settings",
    "microsim.ros2.sim_rover": "microsim.ros2.rover_node",
    "microsim.scenario.robots": "microsim.robots.robot",  # this one and the next are of version 0.1
    "microsim.sim": "microsim.engine",
    **{f"microsim.sim.{name}": f"microsim.engine.{name}" for name in _ENGINE_OF_0_1},
}
sys.modules.update({name: _FormerModule(name) for name in _FORMER_MODULES})
