"""Adding a sensor, robot, fault, metric, input, generator or command touches one file.

Each part is one file in a temporary folder. A child process puts the folders beside the shipped ones, and everything
that is derived from declarations must then know the new part.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

PARTS = {
    "microsim.sensors": (
        "altitude_meter",
        '''
from pydantic import Field
from microsim.documents.values import Hertz, Noise
from microsim.engine.compiled import kernel
from microsim.engine.motion import PLACE_Z
from microsim.engine.noise import normals
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, MessageForm, MountedSensor, KernelSensor

class AltitudeMeter(MountedSensor):
    """Height above the map's zero."""
    hz: Hertz = Field(20, description="Rate; at most physics_hz [Hz].")
    wobble_m: Noise = Field(0.5, description="White noise, 1 sigma [m].")

@kernel
def sample(settings, motion, memory, scene, key, tick, reading):
    reading[0] = motion[PLACE_Z] + settings[0] * normals(key, tick, 0)[0]

SENSOR = KernelSensor(
    "altitude_meter", title="Altitude meter", about="height", settings=AltitudeMeter, sample=sample,
    reading={"altitude": "m"}, numbers=lambda context: (context.settings.wobble_m,),
    messages=(MessageForm("std_msgs/msg/Float64", "/{robot}/{sensor}", Qos(5), "how high it is",
                          lambda context: new("std_msgs/msg/Float64"), {"data": "altitude"}),),
    display=Display("{data:.1f} m up", plot=("data",)), position=90,
)
''',
    ),
    "microsim.robots": (
        "blimp",
        '''
from typing import ClassVar, Literal
from pydantic import Field
from microsim.engine.compiled import kernel
from microsim.engine.components import RobotModel
from microsim.robots.robot import Look, Robot

@kernel
def advance(robot, command, parameters, key, scene, tick):
    robot.z += min(command.climb, parameters.max_climb) * scene.dt

class Blimp(Robot):
    """A blimp: it goes up."""
    engine: ClassVar[RobotModel] = RobotModel(name="blimp", inputs=("climb",), twist_fields=("linear.z",),
        shown=("x", "y", "z"), parameter_names=("max_climb",), advance=advance, is_ground_bound=False)
    model: Literal["blimp"] = Field("blimp", description="A blimp.")
    max_climb: float = Field(2.0, description="Greatest speed up [m/s].")
    def look(self):
        return Look("cylinder", (3.0, 1.0, 1.0), (1.0, 1.0, 0.0))

ROBOT = Blimp
''',
    ),
    "microsim.faults": (
        "stuck",
        """
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

@kernel
def alter(settings, motion, memory, scene, key, tick, reading):
    if settings[0] <= tick < settings[1]:
        reading[0] = 7.0

FAULT = FaultKind("stuck", "a reading is 7", OnSensor(alter=alter))
""",
    ),
    "microsim.messages.inputs": (
        "kick",
        """
from microsim.messages.inputs import InputKind
from microsim.messages.topics import Qos

def take(sim, robot, message):
    return sim.command_twist(robot, (message.data, 0.0, message.data), 0.0)

INPUT = InputKind("kick", "/{robot}/kick", "std_msgs/msg/Float64", Qos(3), "any", "one number for all axes", take,
                  meant_for=lambda sim, robot: True)
""",
    ),
    "microsim.generators": (
        "pillars",
        '''
from pydantic import BaseModel
from microsim.generators import Generator

class PillarOptions(BaseModel):
    """Pillars in a row."""
    count: int = 3

GENERATOR = Generator("pillars", lambda options, map, random: [
    {"type": "cylinder", "center": [30.0 + 2 * k, 30.0, 0.0], "radius": 0.5, "height": 2.0}
    for k in range(options.count)
], PillarOptions)
''',
    ),
}

COMMAND = '''
from microsim.cli.command import Command

def greet() -> int:
    """Say hello to the robots."""
    print("hello, robots")
    return 0

COMMAND = Command(greet, panel="Run", position=999)
'''

METRIC = '''
from microsim.parts.sweep.metrics import Metric

class Highest(Metric):
    """Greatest height of any robot."""
    name, unit, of_robots = "highest", "m", True
    most = 0.0
    def look(self, block):
        for robot in self.robots:
            self.most = max(self.most, float(block[robot][:, 2].max()))
    def value(self):
        return self.most

METRIC = Highest
'''

CHILD = r"""
import importlib, json, sys
folders = json.loads(sys.argv[1])
for package, folder in folders.items():
    if package != "metrics":
        importlib.import_module(package).__path__.append(folder)

import runpy
from pathlib import Path
import microsim
from microsim.batch import BatchSimulation
from microsim.messages.topics import table
from microsim.parts.missions import load_mission
from microsim.recording.recorder import Recorder
from microsim.recording.bag_io import open_bag
from microsim.parts.ros2.node_parameters import ScenarioParameters
from microsim.scenario import json_schema, load_scenario
from microsim.parts.sweep.run_one import run_one

data = {
    "plugins": [folders["metrics"]],
    "robots": {"blimp": {"start": {"map_pose": {"x": 20, "y": 20, "z": 5}}, "altitude_meter": {"wobble_m": 0.25}},
               "rover": {}},
    "obstacles": [{"plugin": "pillars", "count": 4}],
    "faults": ["blimp/altitude_meter:stuck@1s-2s"],
    "randomize": {"values": {"robots.blimp.altitude_meter.wobble_m": [0.1, 0.2]}},
}
scenario = load_scenario(data)
sim = microsim.Simulation(scenario, seed=3)
messages = list(sim.step(0))
out = Path(sys.argv[2])
with Recorder(out / "bag", microsim.Simulation(scenario, seed=3)) as recorder:
    recorder._sim.step(180)
sim.command("blimp", climb=1.0)
messages += sim.step(180)
heights = [(each.stamp_ns, each.message.data) for each in messages if each.topic == "/blimp/altitude_meter"]
twin = sim.fork()
batch = BatchSimulation(scenario, seeds=[3])
batch.commands("blimp")[:] = 1.0
batch.step(180)
kick = importlib.import_module("microsim.messages.inputs").INPUTS.built_in["kick"]

class Message:
    data = 0.5

is_taken = kick.take(sim, "rover", Message)
page = runpy.run_path(str(Path(sys.argv[3]) / "docs" / "make_interface.py"))["page"]()
schema = json.dumps(json_schema())
result = run_one(microsim.Simulation(scenario, seed=3), None, 1.0, ["highest"])
print(json.dumps({
    "schema": schema, "topics": sorted(sim.topics), "page": page,
    "parameters": [each.name for each in ScenarioParameters(scenario).declarations()],
    "heights": heights, "fork": [each.message.data for each in twin.step(60) if each.topic == "/blimp/altitude_meter"],
    "here": [each.message.data for each in sim.fork().step(60) if each.topic == "/blimp/altitude_meter"],
    "batch": float(batch.readings["blimp/altitude_meter"][0]),
    "sampled_at": int(batch.sampled_at["blimp/altitude_meter"][0]),
    "obstacles": len(scenario.obstacles), "is_taken": is_taken,
    "table": [topic.of("R", topic.sensor) for topic in table()],
    "recorded": [channel.topic for channel, _, _ in open_bag(out / "bag").entries_of({"/blimp/altitude_meter"})],
    "drawn": sim.resolved.robots["blimp"].altitude_meter.wobble_m,
    "metric": repr(result), "z": sim.state("blimp").z,
}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process knows beside whose packages lies one new file each."""
    folder = tmp_path_factory.mktemp("parts")
    folders = {}
    for package, (name, text) in PARTS.items():
        home = folder / package
        home.mkdir()
        (home / f"{name}.py").write_text(text)
        folders[package] = str(home)
    greetings = folder / "new" / "greetings" / "commands"
    greetings.mkdir(parents=True)
    (greetings / "greet.py").write_text(COMMAND)
    home = folder / "metrics"
    home.mkdir()
    (home / "highest.py").write_text(METRIC)
    folders["metrics"] = str(home)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(folders), str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    result: dict[str, Any] = json.loads(child.stdout.strip().split("\n")[-1])
    greeted = "import sys, microsim; microsim.__path__.append(sys.argv.pop(1)); from microsim.cli import main; main()"
    for words, key in ((["--help"], "help"), (["greet"], "greeting")):
        ran = subprocess.run(
            [sys.executable, "-c", greeted, str(folder / "new"), *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        result[key] = ran.stdout + ran.stderr
    return result


def test_a_sensor_is_one_file(found: dict[str, Any]) -> None:
    assert '"altitude_meter"' in found["schema"]
    assert "wobble_m" in found["schema"]
    assert "/blimp/altitude_meter" in found["topics"]
    assert "/blimp/altitude_meter" in found["recorded"]
    assert "blimp.altitude_meter.wobble_m" in found["parameters"]
    assert "/R/altitude_meter" in found["table"]
    assert "how high it is" in found["page"]
    assert 0.1 <= found["drawn"] <= 0.2
    assert found["fork"] == found["here"]
    stamps = [stamp for stamp, _ in found["heights"]]
    assert stamps[:3] == [0, 50_000_000, 100_000_000]
    assert found["batch"] == found["heights"][-1][1]
    assert found["sampled_at"] == 180


def test_a_robot_is_one_file(found: dict[str, Any]) -> None:
    assert '"Blimp"' in found["schema"]
    assert "/blimp/odom" in found["topics"]
    assert "blimp.max_climb" in found["parameters"]
    assert found["z"] == pytest.approx(5.0 + 180 / 60)


def test_a_fault_is_one_file(found: dict[str, Any]) -> None:
    assert '"stuck"' in found["schema"]
    inside = [value for stamp, value in found["heights"] if 1e9 <= stamp < 2e9]
    outside = [value for stamp, value in found["heights"] if not 1e9 <= stamp < 2e9]
    assert len(inside) == 20
    assert set(inside) == {7.0}
    assert 7.0 not in outside


def test_an_input_is_one_file(found: dict[str, Any]) -> None:
    assert found["is_taken"] is True
    assert "/R/kick" in found["table"]
    assert "one number for all axes" in found["page"]


def test_a_generator_is_one_file(found: dict[str, Any]) -> None:
    assert found["obstacles"] == 4
    assert "PillarOptions" in found["schema"]


def test_a_metric_is_one_file(found: dict[str, Any]) -> None:
    assert "highest" in found["metric"]


def test_a_command_is_one_file(found: dict[str, Any]) -> None:
    assert "greet" in found["help"]
    assert "Say hello to the robots" in found["help"]
    assert found["greeting"].strip() == "hello, robots"


def test_no_other_module_names_a_kind_of_sensor() -> None:
    """Robots name the sensors they carry, and the two small nodes the robots of their documents."""
    allowed = re.compile(r"microsim/(sensors|robots|parts/small_nodes/(robot_simulator|rover_node))")
    wanted = re.compile(r"from microsim\.sensors\.(?!(?:sensor|plugin)\b)(\w+) import")
    strangers = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in sorted((ROOT / "microsim").rglob("*.py"))
        if not allowed.match(str(path.relative_to(ROOT)))
        for found in wanted.finditer(path.read_text(encoding="utf-8"))
    ]
    assert strangers == []
