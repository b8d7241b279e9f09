"""MicroSim: a deterministic, lightweight robot simulator that speaks ROS 2.

>>> import microsim
>>> sim = microsim.Simulation(microsim.load_scenario("default"), seed=7)
>>> sim.command("drone", vx=1.0)
True
>>> messages = sim.step(60)

The names here are public, and `docs/lookup/python_api.md` explains each. Everything else is internal and may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from microsim.version import __version__ as __version__

if TYPE_CHECKING:
    from microsim.attachment import Attachment as Attachment
    from microsim.attachment import Plan as Plan
    from microsim.attachment import Run as Run
    from microsim.batch import BatchSimulation as BatchSimulation
    from microsim.bundle import load_bundle as load_bundle
    from microsim.cli.command import Command as Command
    from microsim.documents.values import Hertz as Hertz
    from microsim.documents.values import Noise as Noise
    from microsim.engine import components as components
    from microsim.engine import exact as exact
    from microsim.engine import motion as motion
    from microsim.engine.compiled import kernel as kernel
    from microsim.engine.components import RobotModel as RobotModel
    from microsim.engine.noise import normals as normals
    from microsim.engine.noise import stream_key as stream_key
    from microsim.engine.world import World as World
    from microsim.errors import MicroSimError as MicroSimError
    from microsim.errors import PluginError as PluginError
    from microsim.errors import ScenarioError as ScenarioError
    from microsim.errors import UsageError as UsageError
    from microsim.faults import FaultKind as FaultKind
    from microsim.faults import OnMessages as OnMessages
    from microsim.faults import OnNode as OnNode
    from microsim.faults import OnRadio as OnRadio
    from microsim.faults import OnSensor as OnSensor
    from microsim.generators import Generator as Generator
    from microsim.listening import Listener as Listener
    from microsim.messages import decode as decode
    from microsim.messages import encode as encode
    from microsim.messages import new as new
    from microsim.messages.encoders import header as header
    from microsim.messages.inputs import InputKind as InputKind
    from microsim.messages.outbox import Message as Message
    from microsim.messages.topics import Qos as Qos
    from microsim.options import check_can_write as check_can_write
    from microsim.options import option as option
    from microsim.parts.learning.evaluation import evaluate as evaluate
    from microsim.parts.learning.gym import make_vec as make_vec
    from microsim.parts.learning.observations import Numbers as Numbers
    from microsim.parts.learning.observations import Reading as Reading
    from microsim.parts.learning.parallel import TaskParallelEnv as TaskParallelEnv
    from microsim.parts.learning.parallel import TeamParallelEnv as TeamParallelEnv
    from microsim.parts.learning.policy import load_policy as load_policy
    from microsim.parts.learning.task import Outcome as Outcome
    from microsim.parts.learning.task import Task as Task
    from microsim.parts.learning.task import distance as distance
    from microsim.parts.live_tools.client import connect as connect
    from microsim.parts.live_tools.client.client_node import ClientNode as ClientNode
    from microsim.parts.missions.mission_file import Mission as Mission
    from microsim.parts.missions.mission_file import load_mission as load_mission
    from microsim.parts.missions.outcome import fly_mission as fly_mission
    from microsim.parts.missions.pilot import MissionPilot as MissionPilot
    from microsim.parts.ros2.transport.memory import MemoryTransport as MemoryTransport
    from microsim.parts.ros2.transports import TransportKind as TransportKind
    from microsim.parts.small_nodes.robot_maps import read_obstacles as read_obstacles
    from microsim.parts.small_nodes.robot_simulator_node import PlanarPose as PlanarPose
    from microsim.parts.small_nodes.robot_simulator_node import RobotSimulator as RobotSimulator
    from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings as RobotSimulatorSettings
    from microsim.parts.small_nodes.rover_node import RoverCore as RoverCore
    from microsim.parts.small_nodes.rover_node import RoverSettings as RoverSettings
    from microsim.parts.sweep.metrics import Metric as Metric
    from microsim.parts.sweep.plan import load_sweep as load_sweep
    from microsim.parts.sweep.plan import make_plan as make_plan
    from microsim.parts.sweep.run_all import sweep_to_file as sweep_to_file
    from microsim.parts.sweep.when import when as when
    from microsim.parts.sweep.worker_pool import LocalWorkers as LocalWorkers
    from microsim.recording.bag_io import open_bag as open_bag
    from microsim.recording.bag_replay import Replay as Replay
    from microsim.recording.recorder import Recorder as Recorder
    from microsim.recording.state_file import load_state as load_state
    from microsim.recording.state_file import save_state as save_state
    from microsim.robots.robot import Robot as Robot
    from microsim.runner import Runner as Runner
    from microsim.scenario import Scenario as Scenario
    from microsim.scenario import load_scenario as load_scenario
    from microsim.sensors.sensor import Display as Display
    from microsim.sensors.sensor import Instrument as Instrument
    from microsim.sensors.sensor import KernelSensor as KernelSensor
    from microsim.sensors.sensor import MessageForm as MessageForm
    from microsim.sensors.sensor import MountedSensor as MountedSensor
    from microsim.sensors.sensor import PythonSensor as PythonSensor
    from microsim.simulation import Simulation as Simulation
    from microsim.simulation import Snapshot as Snapshot

_NAMES = {  # public names of the core by module; those of a part are in its module `public`
    # running a simulation
    "attachment": (
        "Attachment",
        "Plan",
        "Run",
    ),
    "batch": ("BatchSimulation",),
    "bundle": ("load_bundle",),
    "listening": ("Listener",),
    "recording.bag_io": ("open_bag",),
    "recording.bag_replay": ("Replay",),
    "recording.recorder": ("Recorder",),
    "recording.state_file": (
        "load_state",
        "save_state",
    ),
    "runner": ("Runner",),
    "scenario": (
        "Scenario",
        "load_scenario",
    ),
    "simulation": (
        "Simulation",
        "Snapshot",
    ),
    # data
    "engine.world": ("World",),
    "messages": (
        "decode",
        "encode",
        "new",
    ),
    "messages.encoders": ("header",),
    "messages.outbox": ("Message",),
    "messages.topics": ("Qos",),
    # what plug-ins declare
    "cli.command": ("Command",),
    "documents.values": (
        "Hertz",
        "Noise",
    ),
    "engine": (
        "components",
        "exact",
        "motion",
    ),
    "engine.compiled": ("kernel",),
    "engine.components": ("RobotModel",),
    "engine.noise": (
        "normals",
        "stream_key",
    ),
    "faults": (
        "FaultKind",
        "OnMessages",
        "OnNode",
        "OnRadio",
        "OnSensor",
    ),
    "generators": ("Generator",),
    "messages.inputs": ("InputKind",),
    "options": (
        "check_can_write",
        "option",
    ),
    "robots.robot": ("Robot",),
    "sensors.sensor": (
        "Display",
        "Instrument",
        "KernelSensor",
        "MessageForm",
        "MountedSensor",
        "PythonSensor",
    ),
    # errors
    "errors": (
        "MicroSimError",
        "PluginError",
        "ScenarioError",
        "UsageError",
    ),
}


def _homes() -> dict[str, str]:
    """The module of every public name."""
    from microsim.registry import public_names

    own = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}
    return {**own, **public_names()}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: `microsim --help` must not pay for numba."""
    if name == "__all__":
        return sorted([*_homes(), "__version__"])
    home = next((f"{__name__}.{module}" for module, names in _NAMES.items() if name in names), None)
    home = home or (None if name.startswith("_") else _homes().get(name))
    if home is None:
        raise AttributeError(f"module 'microsim' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What Tab completion offers: the public names."""
    return sorted([*_homes(), "__version__"])
