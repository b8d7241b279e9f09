"""Small plug-ins whose kernels have one random fault each, and what must become of them. Runs as a child process too.

The child runs every plug-in alone, in a batch and in a fork, and prints what each raised. Its exit code says whether
memory was damaged: with `MALLOC_CHECK_` the allocator aborts where it was.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import microsim
from microsim.batch import BatchSimulation
from tests.support import bare

SENSOR = """
from numba import njit
from microsim.engine.compiled import kernel
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import MessageForm, MountedSensor, KernelSensor

class Settings(MountedSensor):
    "A gauge."

@HELPER
def helper(numbers, k):
    return numbers[k]

@DECORATOR
def sample(PARAMETERS):
    reading[0] = motion[0]
    if tick >= FROM:
        BODY

SENSOR = KernelSensor(
    "gauge", settings=Settings, sample=sample, reading={"pressure": "Pa", "b": "", "c": ""}, memory=("last", "first"),
    numbers=lambda context: (1.0, 2.0, 3.0, 4.0), table=lambda context: [5.0, 6.0],
    messages=(MessageForm("sensor_msgs/msg/FluidPressure", "/{robot}/{sensor}", Qos(5), "",
        lambda context: new("sensor_msgs/msg/FluidPressure", header=header(context.frame)),
        {"fluid_pressure": "pressure"}),),
)
"""

ROBOT = """
from typing import Literal
from numba import njit
from pydantic import Field
from microsim.engine.compiled import kernel
from microsim.engine.components import RobotModel
from microsim.robots.robot import Robot

@HELPER
def helper(numbers, k):
    return numbers[k]

@DECORATOR
def advance(PARAMETERS):
    robot.x += 0.01
    if tick >= FROM:
        BODY

class Sled(Robot):
    "On rails."
    engine = RobotModel(name="sled", inputs=("v",), twist_fields=("linear.x",), own=("one", "two"), shown=("x",),
        parameter_names=("a", "b"), parameters=lambda settings, wind, dt: (1, 2), advance=advance, is_ground_bound=True)
    model: Literal["sled"] = Field("sled", description="On rails.")

ROBOT = Sled
"""

FAULT = """
from numba import njit
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

@HELPER
def helper(numbers, k):
    return numbers[k]

@DECORATOR
def alter(PARAMETERS):
    if tick >= FROM:
        BODY

FAULT = FaultKind("stuck", "a reading is stuck", OnSensor(alter=alter))
"""

SAMPLE_PARAMETERS = "settings, motion, memory, scene, key, tick, reading"
ADVANCE_PARAMETERS = "robot, command, parameters, key, scene, tick"
SIZES = {
    "sensor": {"settings": 4, "motion": 40, "memory": 2, "reading": 3, "scene.table": 2, "scene.plane": 12},
    "fault": {"settings": 5, "memory": 3, "reading": 3},
    "robot": {"scene.plane": 12},  # its own numbers have names
}  # at least so many are refused; of `motion` there are fewer


@dataclass(frozen=True)
class Case:
    kind: str  # of the plug-in: sensor, robot, fault
    about: str
    body: str
    expected: str  # in the message
    start: int = 20  # first tick with the fault
    decorator: str = "kernel"
    parameters: str = ""
    is_built: bool = True  # the fault shows when the run is put together, not at a tick

    @property
    def source(self) -> str:
        text = {"sensor": SENSOR, "robot": ROBOT, "fault": FAULT}[self.kind]
        usual = ADVANCE_PARAMETERS if self.kind == "robot" else SAMPLE_PARAMETERS
        decorator = "" if self.decorator == "none" else f"@{self.decorator}"
        names = {"@DECORATOR": decorator, "@HELPER": decorator or "@kernel", "PARAMETERS": self.parameters or usual}
        for name, value in {**names, "FROM": str(self.start), "BODY": self.body}.items():
            text = text.replace(name, value)
        return text

    @property
    def lines(self) -> tuple[int, ...]:
        """One of which the message names: that of the fault, or where the kernel begins if it is wrong as a whole."""
        numbered = list(enumerate(self.source.splitlines(), 1))
        body = [number for number, line in numbered if line.strip() == self.body]
        helper = [number for number, line in numbered if line.strip().startswith("return numbers")]
        begins = [number for number, line in numbered if re.match(r"def (sample|advance|alter)", line)]
        if self.about in ("fewer", "more", "generator"):
            return begins[0], begins[0] - 1
        return tuple(helper + body if self.about == "helper" else body)  # a compiled helper of plain Python has no line


def random_case(random: Random, about: str) -> Case:
    kind = random.choice(["sensor", "robot", "fault"])
    decorator = random.choice(["kernel", "kernel", "njit", "none"])
    start = random.choice([0, 1, 20, 29])
    array, size = random.choice(list(SIZES[kind].items()))
    index = random.choice(
        [size + random.randrange(100), 10 ** random.randrange(3, 12), -size - 1 - random.randrange(100)]
    )
    some = "robot.y" if kind == "robot" else "reading[0]"
    runtime: dict[str, Callable[[], tuple[str, str]]] = {
        "raise": lambda: ('raise ValueError("worn out")', "ValueError: worn out"),
        "assert": lambda: ("assert tick < 0", "AssertionError"),
        "read": lambda: (f"{some} = {array}[{index}]", "IndexError"),
        "write": lambda: (f"{array}[{index}] = 1.5", "IndexError"),
        "helper": lambda: (f"{some} = helper({array}, {index})", "IndexError"),
        "division": lambda: (f"{some} = {random.choice(['1.0 /', '1 //', 'tick %'])} (tick - tick)", "by zero"),
        "grid": lambda: ("scene.elevation[0, 0] = scene.elevation[10**7, 3]", "IndexError"),
    }
    if about in runtime:
        body, expected = runtime[about]()
        return Case(kind, about, body, expected, start, decorator, is_built=False)
    decorator = random.choice(["kernel", "njit"])
    usual = ADVANCE_PARAMETERS if kind == "robot" else SAMPLE_PARAMETERS
    count = usual.count(",") + 1
    fewer, more = usual.rpartition(", ")[0], f"{usual}, more"
    built: dict[str, tuple[str, str, str]] = {
        "fewer": ("pass", f"expected {count} parameters", fewer),
        "more": ("pass", f"expected {count} parameters", more),
        "unknown name": (f"{some} = no_such_name", "no_such_name", ""),
        "unknown attribute": (f"{some} = scene.no_such_grid[0]", "no_such_grid", ""),
        "text": (f'{some} = "text"', "text", ""),
        "generator": ("yield 1", "no yield", ""),
    }
    body, expected, parameters = built[about]
    return Case(kind, about, body, expected, start, decorator, parameters)


KINDS = (
    "raise", "assert", "read", "write", "helper", "division", "grid", "fewer", "more", "unknown name",
    "unknown attribute", "text", "generator",
)  # fmt: skip


# ---- the child -------------------------------------------------------------------------------------------------------


def scenario_of(case: Case, folder: Path) -> dict[str, Any]:
    sensors = {"gauge": {"type": "gauge", "hz": 60}} if case.kind == "sensor" else {}
    robot: dict[str, Any] = {"start": {"map_pose": {"x": 5.0, "y": 5.0}}, "sensors": sensors}
    robots = {"sled": bare(**robot)} if case.kind == "robot" else {"rover": bare(**robot, gps={"hz": 60})}
    faults = [{"target": "gps", "kind": "stuck", "from_s": 0.0, "to_s": 9.0}] if case.kind == "fault" else []
    return {"plugins": [str(folder)], "robots": robots, "faults": faults, "map": {"size_xy_cells": [20, 20]}}


def ways(scenario: Any, is_built: bool) -> dict[str, Callable[[], None]]:
    def alone() -> None:
        microsim.Simulation(scenario).step(40)

    def forked() -> None:
        sim = microsim.Simulation(scenario)
        sim.step(10)
        sim.fork().step(40)

    def skipped() -> None:
        sim = microsim.Simulation(scenario)
        sim.advance(40)
        sim.step(2)

    def batch() -> None:
        BatchSimulation(scenario, n=3, threads=2).step(40)

    def many() -> None:
        worlds = BatchSimulation(scenario, n=70, threads=2)
        worlds.step(40)
        worlds.advance(10)

    if is_built:
        return {"alone": alone, "batch": batch}
    return {"alone": alone, "fork": forked, "advance": skipped, "batch": batch, "many": many}


def outcome(work: Callable[[], None]) -> str:
    try:
        work()
    except microsim.PluginError as error:
        return str(error)
    except BaseException as error:  # what is not a PluginError is what the test looks for
        return f"{type(error).__name__}! {error}"
    finally:
        gc.collect()
    return "nothing was raised"


def main(folder: Path) -> None:
    for number, data in enumerate(json.loads((folder / "cases.json").read_text())):
        case, plugins = Case(**data), folder / f"plugins_{number}"
        plugins.mkdir()
        (plugins / "part.py").write_text(case.source)
        scenario = microsim.load_scenario(scenario_of(case, plugins))
        found = {name: outcome(work) for name, work in ways(scenario, case.is_built).items()}
        print(json.dumps(found), flush=True)


def as_json(cases: list[Case]) -> str:
    return json.dumps([asdict(case) for case in cases])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
