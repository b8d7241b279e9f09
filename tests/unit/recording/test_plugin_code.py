"""The code of plug-ins in tokens, recordings and states: any edit of any of its modules is noticed.

A generator writes a folder of plug-ins of every kind, with modules that they import, and edits one of them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from importlib.util import spec_from_file_location
from pathlib import Path
from random import Random
from typing import Any

import pytest

import microsim
from microsim.errors import UsageError
from microsim.generators import GENERATORS
from microsim.messages.inputs import INPUTS
from microsim.parts.sweep.plan import load_sweep, make_plan
from microsim.parts.sweep.run_one import from_token
from microsim.plugin_code import _NEEDED, _code, code_files, code_hash, entry_file
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.inputs import plugin_hashes
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import SnapshotError, resume, save_state
from microsim.registry import origin_of
from microsim.simulation import Simulation
from tests.cli_support import run_microsim
from tests.forked_python import forked_python
from tests.support import bare

ROOT = Path(__file__).parents[3]
FILES = {
    "gauge.py": """
from pathlib import Path
import sys
sys.path.insert(0, str(Path(__file__).parent / "lib"))
from shared_numbers import GAIN, scaled
from microsim.engine.compiled import kernel
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import MessageForm, MountedSensor, KernelSensor

OFFSET = 1.0

class Settings(MountedSensor):
    "A gauge."

@kernel
def doubled(value):
    return 2.0 * value

@kernel
def sample(settings, motion, memory, scene, key, tick, reading):
    reading[0] = OFFSET + GAIN * doubled(scaled(1.0))

SENSOR = KernelSensor("gauge", settings=Settings, sample=sample, reading={"pressure": "Pa"},
    messages=(MessageForm("sensor_msgs/msg/FluidPressure", "/{robot}/{sensor}", Qos(5), "",
        lambda context: new("sensor_msgs/msg/FluidPressure", header=header(context.frame)),
        {"fluid_pressure": "pressure"}),))
""",
    "lib/shared_numbers.py": """
from microsim.engine.compiled import kernel
from deeper_numbers import FACTOR

GAIN = 3.0

@kernel
def scaled(value):
    return FACTOR * value
""",
    "lib/deeper_numbers.py": "FACTOR = 5.0\n",
    "sled.py": """
from typing import Literal
from pydantic import Field
from microsim.engine.compiled import kernel
from microsim.engine.components import RobotModel
from microsim.robots.robot import Robot

SPEED = 0.5

@kernel
def advance(robot, command, parameters, key, scene, tick):
    robot.x += SPEED * scene.dt

class Sled(Robot):
    "On rails."
    engine = RobotModel(name="sled", inputs=("v",), twist_fields=("linear.x",), shown=("x",),
        advance=advance, is_ground_bound=True)
    model: Literal["sled"] = Field("sled", description="On rails.")

ROBOT = Sled
""",
    "stuck.py": """
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

STUCK = 7.0

@kernel
def alter(settings, motion, memory, scene, key, tick, reading):
    reading[0] += STUCK

FAULT = FaultKind("stuck", "a reading is stuck", OnSensor(alter=alter))
""",
    "kick.py": """
from microsim.messages.inputs import InputKind
from microsim.messages.topics import Qos

STRENGTH = 1.5

def take(sim, robot, message):
    return sim.command_twist(robot, (STRENGTH * message.data, 0.0, 0.0), 0.0)

INPUT = InputKind("kick", "/{robot}/kick", "std_msgs/msg/Float64", Qos(3), "any", "a kick", take,
                  meant_for=lambda sim, robot: True)
""",
    "posts.py": """
from microsim.generators import Generator

HEIGHT = 2.5

def generate(options, map, random):
    return [{"type": "cylinder", "center": [12.0, 12.0, 0.0], "radius": 0.5, "height": HEIGHT}]

GENERATOR = Generator("posts", generate)
""",
    "tilt.py": """
from microsim.parts.sweep.metrics import Metric

START = 0.25

class Tilt(Metric):
    "A number."
    name = "tilt"

    def value(self):
        return START

METRIC = Tilt
""",
}
# file -> what is edited there: a text, and which of the plug-ins it belongs to
EDITS = [
    ("gauge.py", "OFFSET = 1.0", "gauge"),
    ("gauge.py", "return 2.0", "gauge"),
    ("lib/shared_numbers.py", "GAIN = 3.0", "gauge"),
    ("lib/shared_numbers.py", "return FACTOR", "gauge"),
    ("lib/deeper_numbers.py", "FACTOR = 5.0", "gauge"),
    ("sled.py", "SPEED = 0.5", "model sled"),
    ("stuck.py", "STUCK = 7.0", "fault stuck"),
    ("kick.py", "STRENGTH = 1.5", "input kick"),
    ("posts.py", "HEIGHT = 2.5", "generator posts"),
    ("tilt.py", "START = 0.25", "metric tilt"),
]
QUICK = ("lib/shared_numbers.py return FACTOR", "stuck.py STUCK = 7.0", "tilt.py START = 0.25")
CASES = [pytest.param(*each, marks=() if " ".join(each[:2]) in QUICK else pytest.mark.slow) for each in EDITS]
IN_THE_RECORDING = ("kick.py", "posts.py", "tilt.py")  # what they did is there, so that they need not run again
SCENARIO: dict[str, Any] = {
    "name": "yard",
    "plugins": ["plugins"],
    "map": {"size_xy_cells": [20, 20]},
    "robots": {"sled": bare(start={"map_pose": {"x": 2.0, "y": 2.0}}, sensors={"gauge": {"type": "gauge"}})},
    "faults": [{"target": "gauge", "kind": "stuck", "from_s": 0.1, "to_s": 9.0}],
    "obstacles": [{"plugin": "posts"}],
}


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / "plugins" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "plugins" / name).write_text(text)
    (tmp_path / "yard.yaml").write_text(json.dumps(SCENARIO))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "plugins" / "lib")])
    for name in ("shared_numbers", "deeper_numbers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


GROUPS = {
    "gauge": "sensors", "sled": "robots", "stuck": "faults", "kick": "inputs", "posts": "worlds", "tilt": "metrics",
}  # fmt: skip
CONSTANTS = {"gauge": "SENSOR", "posts": "GENERATOR", "tilt": "METRIC"}  # that entry points name; others name modules


def install(site: Path, distribution: str, version: str, top: str, entry_points: str = "") -> None:
    facts = site / f"{distribution.replace('-', '_')}-1.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (facts / "top_level.txt").write_text(f"{top}\n")
    (facts / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same plug-ins as an installed package, which needs another one. Gives the folder of its modules."""
    site, package = tmp_path / "site-packages", "yard_parts"
    for name, text in FILES.items():
        file = site / package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        ours = text.replace('sys.path.insert(0, str(Path(__file__).parent / "lib"))', "import yard_library")
        ours = ours.replace("from shared_numbers", f"from {package}.lib.shared_numbers")
        file.write_text(ours.replace("from deeper_numbers", "from .deeper_numbers"))
    for folder in (package, f"{package}/lib"):
        (site / folder / "__init__.py").write_text("")
    (site / "yard_library.py").write_text("LENGTH = 1.0\n")
    lines = [
        f"[microsim.{group}]\n{name} = {package}.{name}{':' * (name in CONSTANTS)}{CONSTANTS.get(name, '')}\n"
        for name, group in GROUPS.items()
    ]
    install(site, "yard-parts", "1.0", package, "".join(lines))
    install(site, "yard-library", "2.5", "yard_library")
    scenario = {key: value for key, value in SCENARIO.items() if key != "plugins"}
    (tmp_path / "yard.yaml").write_text(json.dumps(scenario))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    yield site / package
    for name in [each for each in sys.modules if each.partition(".")[0] in (package, "yard_library")]:
        del sys.modules[name]


def edit(folder: Path, name: str, old: str, random: Random) -> None:
    """Another number in that place, or another operation."""
    edit_file(folder / "plugins" / name, old, random)


def edit_file(file: Path, old: str, random: Random) -> None:
    text = file.read_text()
    digits = "".join(each for each in old.partition("=")[2] if each in "0123456789.")
    new = old.replace(digits, str(random.randrange(10, 99))) if digits else f"{old} * {random.randrange(2, 9)} "
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    os.utime(file, ns=(random.randrange(10**18), random.randrange(10**18)))  # the size may be the same


def token_of_a_run() -> str:
    return make_plan(load_sweep({"scenario": "yard.yaml", "duration": 1, "seeds": [3]})).token(0)


@pytest.mark.parametrize(("name", "old", "part"), EDITS)
def test_an_edit_of_any_module_is_another_hash_and_another_token(yard: Path, name: str, old: str, part: str) -> None:
    token, before = token_of_a_run(), plugin_hashes(microsim.load_scenario("yard.yaml"))
    edit(yard, name, old, Random(f"{name} {old}"))
    after = plugin_hashes(microsim.load_scenario("yard.yaml"))
    assert [each for each in after if after[each] != before[each]] == [part]
    with pytest.raises(UsageError, match="has changed since the token was made"):
        from_token(token)


@pytest.mark.parametrize(("name", "old", "part"), EDITS)
def test_an_edit_of_an_installed_package_is_another_hash_and_another_token(
    installed: Path, name: str, old: str, part: str
) -> None:
    scenario = microsim.load_scenario("yard.yaml")
    token, before = token_of_a_run(), plugin_hashes(scenario)
    assert set(before) == {part for *_, part in EDITS}
    assert from_token(token).sim.tick == 0
    sim = Simulation(scenario, 3)
    with Recorder(Path("bag"), sim):
        sim.step(30)
        save_state(Path("at.state"), sim.snapshot())
    edit_file(installed / name, old, Random(f"{name} {old}"))
    after = plugin_hashes(scenario)
    assert [each for each in after if after[each] != before[each]] == [part]
    with pytest.raises(UsageError, match="has changed since the token was made"):
        from_token(token)
    with Replay(open_bag(Path("bag"))) as again:
        assert again.notes == [f"the code of the plug-in {part} is not the recorded one"]
    if name in IN_THE_RECORDING:
        assert resume(Path("at.state"), Path()).tick == 30
    else:
        with pytest.raises(SnapshotError, match="is not what was saved"):
            resume(Path("at.state"), Path())


def test_verify_and_tokens_notice_an_edited_package_in_another_process(installed: Path) -> None:
    site = str(installed.parent)
    program = f"import sys; sys.path.insert(0, {site!r}); from microsim.__main__ import main; main()"
    token = token_of_a_run()

    def microsim_says(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*forked_python(), "-c", program, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    recorded = microsim_says("run", "yard.yaml", "--duration", "0.5", "--rtf", "0", "--headless", "--record", "bag")
    assert recorded.returncode == 0, recorded.stderr
    assert microsim_says("replay", "bag", "--verify").returncode == 0
    edit_file(installed / "lib" / "deeper_numbers.py", "FACTOR = 5.0", Random(1))
    done = microsim_says("replay", "bag", "--verify")
    assert done.returncode == 1, done.stderr
    assert "the code of the plug-in gauge is not the recorded one" in done.stderr
    assert "fluid_pressure" in done.stdout
    done = microsim_says("replay", "--token", token)
    assert done.returncode == 2
    assert "has changed since the token was made" in done.stderr


ADDING = {
    "lib": 'sys.path.insert(0, str(Path(__file__).parent / "lib"))',
    "../more/lib": 'sys.path.append(os.path.join(os.path.dirname(__file__), "..", "more", "lib"))',
    "..": "sys.path[:0] = []; sys.path.append(str(Path(__file__).resolve().parents[1]))",
}


@pytest.mark.parametrize("place", ADDING)
def test_the_hash_is_the_same_before_and_after_a_plug_in_adds_a_folder_to_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A recording is made after its plug-ins ran, and compared before they run."""
    file = tmp_path / "plugins" / "gauge.py"
    module = file.parent / place / "added_numbers.py"
    for each in (file, module):
        each.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"import os, sys\nfrom pathlib import Path\n{ADDING[place]}\nfrom added_numbers import GAIN\n")
    module.write_text("from added_deeper import GAIN\n")
    (module.parent / "added_deeper.py").write_text("GAIN = 1.0\n")
    before = code_hash(file)
    monkeypatch.syspath_prepend(str(module.parent.resolve()))
    assert code_hash(file) == before
    (module.parent / "added_deeper.py").write_text("GAIN = 2.0\n")
    assert code_hash(file) != before


def test_of_other_libraries_the_version_counts_and_of_microsims_own_nothing(installed: Path) -> None:
    before = code_hash(installed / "gauge.py")
    (installed.parent / "yard_library.py").write_text("LENGTH = 2.0\n")
    assert code_hash(installed / "gauge.py") == before
    install(installed.parent, "yard-library", "2.6", "yard_library")
    assert code_hash(installed / "gauge.py") != before
    files, libraries = _code(installed / "gauge.py")
    assert libraries == {"yard-library==2.6"}
    assert {str(file.relative_to(installed)) for file in files} >= {"gauge.py", "lib/deeper_numbers.py"}
    (installed / "more.py").write_text("import numpy, pydantic, numba, hypothesis.strategies, os, microsim.errors\n")
    files, libraries = _code(installed / "more.py")
    assert files == {installed / "more.py", installed / "__init__.py"}
    assert {each.partition("==")[0] for each in libraries} == {"hypothesis"}


def test_the_libraries_that_do_not_count_are_those_that_an_installation_needs() -> None:
    needed = (ROOT / "setup.py").read_text().partition("install_requires=[")[2].partition("]")[0]
    names = {re.split(r"[^\w.-]", each)[0] for each in re.findall(r'"([^"]+)",', needed)}
    assert names | {"cyclonedds"} == _NEEDED


def test_a_package_that_is_installed_where_its_source_is_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As setuptools does it: with a finder of its own, and no folder on Python's path."""
    source = tmp_path / "source" / "yard_source"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("from .numbers import HEIGHT\n")
    (source / "numbers.py").write_text("HEIGHT = 2.5\n")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> Any:
            return spec_from_file_location(name, source / "__init__.py") if name == source.name else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    file = entry_file(EntryPoint("posts", "yard_source", "microsim.worlds"))
    assert file == source / "__init__.py"
    assert entry_file(EntryPoint("posts", "yard_source.numbers:HEIGHT", "microsim.worlds")) == source / "numbers.py"
    assert entry_file(EntryPoint("posts", "yard_source.other", "microsim.worlds")) is None
    before = code_hash(file)
    (source / "numbers.py").write_text("HEIGHT = 2.6\n")
    assert code_hash(file) != before


def test_the_origin_of_a_part_is_the_module_that_its_entry_point_names(installed: Path) -> None:
    for name, registry in (("posts", GENERATORS), ("kick", INPUTS)):
        origin = origin_of(registry.find(name))
        assert origin is not None
        assert origin.file == installed / f"{name}.py"


@pytest.mark.parametrize(("name", "old", "part"), CASES)
def test_an_edit_of_any_module_is_noticed_by_token_recording_and_state(
    yard: Path, name: str, old: str, part: str
) -> None:
    random = Random(f"{name} {old}")
    scenario = microsim.load_scenario("yard.yaml")
    assert part in plugin_hashes(scenario)
    token = token_of_a_run()
    assert from_token(token).sim.tick == 0
    sim = Simulation(scenario, 3)
    with Recorder(yard / "bag", sim):
        sim.step(30)
        save_state(yard / "at.state", sim.snapshot())
    plugins = [yard / "plugins"]
    with Replay(open_bag(yard / "bag"), plugin_folders=plugins) as again:
        assert again.notes == []
        assert again.verify().is_identical
    edit(yard, name, old, random)
    with pytest.raises(UsageError, match="has changed since the token was made"):
        from_token(token)
    with Replay(open_bag(yard / "bag"), plugin_folders=plugins) as again:
        assert again.notes == [f"the code of the plug-in {part} is not the recorded one"]
        verdict = again.verify()
    assert verdict.is_identical == (name in IN_THE_RECORDING)
    if name not in IN_THE_RECORDING:
        assert verdict.difference is not None
        with pytest.raises(SnapshotError, match="is not what was saved"):
            resume(yard / "at.state", yard, plugins)
    else:
        assert resume(yard / "at.state", yard, plugins).tick == 30


def test_verify_shows_the_first_difference_after_a_plug_in_changed(yard: Path) -> None:
    sim = Simulation("yard.yaml", 3)
    with Recorder(yard / "bag", sim):
        sim.step(30)
    edit(yard, "lib/deeper_numbers.py", "FACTOR = 5.0", Random(1))
    done = run_microsim("replay", "bag", "--verify", "--plugins", "plugins", cwd=yard)
    assert done.returncode == 1, done.stderr
    assert "the code of the plug-in gauge is not the recorded one" in done.stderr
    assert "/sled/gauge" in done.stdout
    assert "fluid_pressure" in done.stdout


def test_a_change_of_what_a_plug_in_imports_takes_effect_in_the_same_process(yard: Path) -> None:
    before = Simulation("yard.yaml", 3)
    before.step(30)
    edit(yard, "lib/deeper_numbers.py", "FACTOR = 5.0", Random(1))
    after = Simulation("yard.yaml", 3)
    after.step(30)
    assert before.digest() != after.digest()


def test_what_a_program_imports_too_is_imported_once_unless_it_changes(yard: Path) -> None:
    import shared_numbers  # type: ignore[import-not-found]

    Simulation("yard.yaml", 3)
    assert sys.modules["shared_numbers"] is shared_numbers
    (yard / "plugins" / "gauge.py").write_text(FILES["gauge.py"] + "# another size\n")
    Simulation("yard.yaml", 3)
    assert sys.modules["shared_numbers"] is shared_numbers


def test_code_is_a_file_and_what_it_imports_of_the_users_own(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "sub").mkdir(parents=True)
    texts = {
        "__init__.py": "",
        "part.py": "import math, numpy, microsim.engine.exact\nfrom .sub import helper\nfrom . import beside\n",
        "sub/__init__.py": "from .constants import GAIN\n",
        "sub/helper.py": "import package.other\n",
        "sub/constants.py": "GAIN = 1\n",
        "beside.py": "from package.sub.helper import *\n",
        "other.py": "import nowhere\n",
        "unused.py": "",
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    found = {str(file.relative_to(package)) for file in code_files(package / "part.py")}
    assert found == {*texts} - {"unused.py"}
    before = code_hash(package / "part.py")
    (package / "unused.py").write_text("x = 1\n")
    assert code_hash(package / "part.py") == before
    (tmp_path / "elsewhere").mkdir()
    assert code_hash(package.rename(tmp_path / "elsewhere" / "package") / "part.py") == before


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_any_series_of_edits_is_noticed(yard: Path, seed: int) -> None:
    """Each of them, also one after the other, and an edit that is taken back."""
    random = Random(seed)
    known = {json.dumps(plugin_hashes(microsim.load_scenario("yard.yaml")))}
    first = {name: (yard / "plugins" / name).read_text() for name in FILES}
    for count in range(1, 9):
        name, old, part = random.choice(EDITS)
        (yard / "plugins" / name).write_text(first[name].replace(old, f"{old}{'0' * count}  # {count}"))
        hashes = json.dumps(plugin_hashes(microsim.load_scenario("yard.yaml")))
        assert hashes not in known, (name, part)
        known.add(hashes)
    for name, text in first.items():
        (yard / "plugins" / name).write_text(text)
    assert json.dumps(plugin_hashes(microsim.load_scenario("yard.yaml"))) in known
