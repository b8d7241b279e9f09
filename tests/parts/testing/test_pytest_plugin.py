"""The pytest plug-in: a sample project whose wrong controller fails, assertions over time, digests, ROS 2 nodes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from microsim.errors import UsageError
from microsim.parts.testing import SimUnderTest
from microsim.parts.testing.sim_under_test import GoldenDigests
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay

ROOT = Path(__file__).resolve().parents[3]
PLUGIN = ("-p", "no:microsim", "-p", "microsim.parts.testing.pytest_plugin", "-p", "no:cacheprovider")
FAILING = """
scenario: flat
duration: 1
expect:
  - { robot: rover, value: x, at_most: -5 }
"""
STARTS = """
import pytest

@pytest.mark.microsim("obstacles_aren")
def test_unknown(sim): ...

@pytest.mark.microsim("flat", sed=3)
def test_argument(sim): ...

@pytest.mark.microsim("flat", 3)
def test_two(sim): ...

@pytest.mark.microsim("flat", seed="x")
def test_seed(sim): ...

@pytest.mark.microsim("beside.yaml", seed=4)
def test_beside(sim):
    assert (sim.scenario.name, sim.seed, sim.tick) == ("beside", 4, 0)

def test_default(sim):
    assert sim.scenario.name == "default"
"""
NODE = """
import sys
from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transports import open_transport

node = open_transport("dds", "controller")
twist = "geometry_msgs/msg/Twist"
commands = node.publisher("/rover/cmd_vel", twist, Qos(10))
message = wire.from_mapping(twist, {"linear": {"x": 1.0}})

def drive(cdr):
    if "dies" in sys.argv:
        sys.exit("no such gain: kp")
    commands.publish(wire.encode(twist, message))

node.subscribe("/rover/odom", "nav_msgs/msg/Odometry", Qos(10), drive)
while True:
    node.poll(0.05)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One pytest run of the sample project, of a mission that fails and of wrong markers: what it prints, and where."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_late.yaml").write_text(FAILING)
    (folder / "test_data.yaml").write_text("duration: 3\n")  # not a mission
    (folder / "test_starts.py").write_text(STARTS)
    (folder / "beside.yaml").write_text("name: beside\nmap: {size_xy_cells: [50, 50]}\n")
    places = ("--rootdir", str(folder), "--microsim-artefacts", "art", str(ROOT / "examples" / "testing"), str(folder))
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-c", os.devnull, "-q", *places]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=variables, timeout=280, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, folder


@pytest.fixture
def sim(tmp_path):
    run = SimUnderTest("flat", 3, tmp_path / "run", GoldenDigests(tmp_path / "digests", "test"))
    yield run
    run.close()


# ---- pytest runs of a project ----------------------------------------------------------------------------------------


def test_the_wrong_controller_of_the_sample_project_fails_and_leaves_its_artefacts(project):
    printed, folder = project
    assert "2 failed, 6 passed, 4 errors" in printed
    assert "rover is 0.396 m away from what is in the way, expected 0.4 m or more" in printed
    assert "sim_under_test.py" not in printed, "frames of the plug-in say nothing about the mistake"
    wrong = next((folder / "art").glob("*wrong_controller*"))
    assert {each.name for each in wrong.iterdir()} == {"recording", "plot.png", "run.html", "failure.txt"}
    assert f"microsim replay {wrong / 'recording'} --open" in printed
    assert "expected 0.4 m" in (wrong / "failure.txt").read_text(encoding="utf-8")
    assert "MICROSIM_RUN" in (wrong / "run.html").read_text(encoding="utf-8")
    assert len(list((folder / "art").iterdir())) == 2, "tests that pass leave nothing"
    with Replay(open_bag(wrong / "recording")) as again:
        assert again.verify().is_identical


def test_a_mission_as_a_test_names_the_line_of_what_was_not_met(project):
    printed, folder = project
    assert f"{folder / 'test_late.yaml'}:5:5: x of rover was" in printed
    assert "Traceback" not in printed


def test_a_wrong_marker_is_explained_without_a_traceback(project):
    printed, _ = project
    assert "did you mean 'obstacles_arena'?" in printed
    assert "@pytest.mark.microsim has no argument 'sed'; did you mean 'seed'?" in printed
    assert "takes one scenario, found 2" in printed
    assert "a seed must be a 64-bit integer; found 'x'" in printed
    assert "def _started" not in printed


def test_loading_the_plug_in_does_not_pay_for_numba():
    code = "import sys, microsim.parts.testing.pytest_plugin as _\n"
    code += "print(sorted({'numba', 'numpy', 'rosbags'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


# ---- assertions over time --------------------------------------------------------------------------------------------


def test_eventually_ends_at_the_tick_at_which_it_is_true(sim):
    start = sim.state("rover").y
    sim.command("rover", v=1.0)
    reached = sim.eventually(lambda: sim.state("rover").y > start + 1.0, within=10)
    assert reached == sim.time_s < 2.0
    assert start + 1.0 < sim.state("rover").y < start + 1.05
    assert sim.eventually(lambda: True, within=0) == reached, "what is true already takes no time"
    with pytest.raises(
        AssertionError, match=r"not true within 0.5 s from 1\.\d+ s on: a miracle; now drone: \(.*rover: "
    ):
        sim.eventually(lambda: False, within=0.5, about="a miracle")
    assert sim.time_s == pytest.approx(reached + 0.5)


def test_always_holds_from_now_on_and_stops_at_the_first_tick_that_breaks_it(sim):
    sim.run(0.5)
    sim.always(lambda: sim.tick < 60, "before tick 60")
    sim.run(0.4)
    with pytest.raises(
        AssertionError, match=r"at 1\.000 s: no longer true: before tick 60 \(required since 0\.500 s\)"
    ):
        sim.run(5)
    assert sim.tick == 60


def test_what_is_wrong_already_fails_at_once(sim):
    def rover_is_found():
        return False

    with pytest.raises(AssertionError, match=r"^at 0\.000 s: no longer true: rover_is_found$"):
        sim.always(rover_is_found)


def test_plain_steps_are_checked_too(sim):
    sim.always(lambda: sim.tick < 30)
    with pytest.raises(AssertionError, match=r"at 0\.500 s: no longer true: sim.always\(lambda: sim.tick < 30\)"):
        sim.step(100)


def test_distances_to_robots_places_and_what_is_in_the_way(sim):
    rover = sim.state("rover")
    sim.never_closer_than("drone", 1.0, to="rover")
    sim.never_closer_than("rover", 0.5, to=(rover.x, rover.y + 2.0))
    sim.command("rover", v=1.0)
    with pytest.raises(AssertionError, match=r"rover is 0\.\d+ m away from \(.*\), expected 0.5 m or more"):
        sim.run(5)
    assert sim.state("rover").y - rover.y == pytest.approx(1.5, abs=0.03)
    with pytest.raises(AssertionError, match=r"rover is .* m away from what is in the way, expected 1000 m or more"):
        sim.never_closer_than("rover", 1000)
    with pytest.raises(UsageError, match=r"no other robot 'dron'; did you mean 'drone'\?"):
        sim.never_closer_than("rover", 1.0, to="dron")
    with pytest.raises(UsageError, match=r"no other robot 'rover'.*there are: drone"):
        sim.never_closer_than("rover", 1.0, to="rover")
    with pytest.raises(UsageError, match=r"expected a place \(x, y\) or \(x, y, z\)"):
        sim.never_closer_than("rover", 1.0, to=(1,))


def test_a_mission_in_python_names_what_was_not_met(sim):
    with pytest.raises(AssertionError, match=r"mission mission:\nexpect\[0\]: x of rover was .*; expected at most -5"):
        sim.fly({"duration": 1, "expect": [{"robot": "rover", "value": "x", "at_most": -5}]})
    with pytest.raises(UsageError, match="begins at time 0"):
        sim.fly("hover")


def test_a_digest_is_stored_compared_and_updated(sim, tmp_path):
    sim.run(0.1)
    with pytest.raises(AssertionError, match=r"no digest is stored in .*test\.json; `pytest --update-digests`"):
        sim.assert_digest()
    GoldenDigests(tmp_path / "digests", "test", is_updating=True).check(sim, "")
    sim.assert_digest()
    sim.step()
    with pytest.raises(AssertionError, match=r"(?s)ticks: expected 6, found 7.*digest: expected [0-9a-f]{64}, found"):
        sim.assert_digest()
    (tmp_path / "digests" / "test-end.json").write_text("[1")
    with pytest.raises(AssertionError, match="is damaged"):
        sim.assert_digest("end")


# ---- ROS 2 nodes -----------------------------------------------------------------------------------------------------


def test_a_ros_2_node_beside_the_run_drives_the_rover_and_is_stopped(sim, tmp_path):
    (tmp_path / "node.py").write_text(NODE)
    start = sim.state("rover").y
    process = sim.start_node(sys.executable, str(tmp_path / "node.py"), rtf=2.0)
    assert sim.tick == 0, "time waits for the node"
    sim.eventually(lambda: sim.state("rover").y > start + 0.5, within=20)
    sim.close()
    assert process.process.returncode is not None


def test_a_node_that_ends_fails_the_test_with_its_output(sim, tmp_path):
    (tmp_path / "node.py").write_text(NODE)
    sim.start_node(sys.executable, str(tmp_path / "node.py"), "dies")
    with pytest.raises(AssertionError, match=r"(?s)ended with exit code 1; its output ends with:\nno such gain: kp"):
        sim.run(20)
    started = time.monotonic()
    with pytest.raises(
        AssertionError, match=r"has not subscribed to a topic of the simulation within 0.2 s and printed"
    ):
        sim.start_node("sleep", "100", timeout_s=0.2)
    with pytest.raises(UsageError, match="no_such_program cannot be started"):
        sim.start_node("no_such_program")
    sim.close()
    assert time.monotonic() - started < 60.0, "`sleep` ends at once, not after its 100 s"
