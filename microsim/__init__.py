"""MicroSim: a deterministic, lightweight robot simulator that speaks ROS 2.

>>> import microsim
>>> sim = microsim.Simulation(microsim.load_scenario("default"), seed=7)
>>> sim.command("drone", vx=1.0)
True
>>> messages = sim.step(60)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.batch import BatchSimulation
    from microsim.errors import MicroSimError, PluginError, ScenarioError, UsageError
    from microsim.messages.outbox import Message
    from microsim.parts.live_tools.client import connect
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
    "connect": "microsim.parts.live_tools.client",
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
