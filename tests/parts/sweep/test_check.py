"""`microsim determinism`: what is the same is proved, what differs is found, what breaks is told, and nothing hangs."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from microsim.cli import app
from microsim.parts.sweep.check import (
    Case,
    CheckRun,
    Children,
    Environment,
    Finding,
    Result,
    batches,
    dispatched_features,
    environments,
    find,
    first_tick,
    judged,
)
from tests.cli_support import run_microsim
from tests.json_support import assert_published

ROOT = Path(__file__).resolve().parents[3]

# A sensor of somebody else's that does what `BODY` says when it is read for the third time, at tick 12.
PLUGIN = """
import os, signal, time
from pydantic import BaseModel
from microsim.sensors.sensor import PythonSensor

class Options(BaseModel):
    pass

class Odd:
    def __init__(self, context):
        self.reads = 0

    def update(self, dt):
        pass

    def publish(self):
        self.reads += 1
        value = 7.0
        if self.reads == 3:
            BODY
        return {"fluid_pressure": value, "variance": 0.0}

SENSOR = PythonSensor(name="odd", message_type="sensor_msgs/msg/FluidPressure", create=Odd, options=Options)
"""
WORLD = """
name: odd
map: {size_xy_cells: [20, 20]}
world_topics: {occupancy_hz: 0, markers_hz: 0}
plugins: [.]
robots:
  drone:
    start: {map_pose: {x: 5, y: 5, z: 5}}
    odom: null
    gps: null
    imu: null
    camera: null
    sensors: {odd: {type: odd, hz: 10}}
"""
MISSION = "duration: 0.5\ndo: [{robot: drone, command: {vx: 1}}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a scenario `world.yaml` and a mission `fly.yaml`."""
    (tmp_path / "world.yaml").write_text(WORLD)
    (tmp_path / "fly.yaml").write_text(MISSION)
    write_plugin(tmp_path, "pass")
    return tmp_path


def write_plugin(folder: Path, body: str) -> None:
    (folder / "odd.py").write_text(PLUGIN.replace("BODY", body))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "microsim", "determinism", "--plugins", ".", *arguments]


def cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_microsim("determinism", "--plugins", ".", *arguments, cwd=cwd)


@pytest.fixture
def short_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`microsim determinism` in the folder, with the reference and another hash seed only: two seconds each."""
    two = environments()[:2]
    monkeypatch.setattr("microsim.parts.sweep.check.environments", lambda slow: two)
    monkeypatch.chdir(folder)
    return lambda *arguments: CliRunner().invoke(app, ["determinism", "--plugins", ".", *arguments])


# ---- whole checks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("further", [[], pytest.param(["--slow"], marks=pytest.mark.slow)], ids=["quick", "slow"])
def test_a_run_that_depends_on_nothing_is_proved_the_same(folder: Path, further: list[str]) -> None:
    done = cli("world.yaml", "--missions", "fly.yaml", *further, "--json", "--jobs", "2", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(done.stdout)
    assert_published("determinism", facts)
    names = list(facts["environments"])
    assert facts["identical"] is True
    assert {"reference", "hash_seed", "one_thread", "real_time", "generic_cpu"} <= set(names)
    assert ("no_compiler" in names) == ("--slow" in further)
    (mission,) = facts["missions"]
    assert sorted(mission["same"]) == sorted(names[1:])
    assert (mission["ticks"], mission["different"], mission["failed"]) == (30, [], [])


def test_a_dependence_on_the_hash_seed_is_found_with_tick_topic_and_field(
    folder: Path, short_check: Callable[..., Any]
) -> None:
    write_plugin(folder, "value = float(hash('text') % 1000)")
    done = short_check("world.yaml", "--missions", "fly.yaml", "--jobs", "2", "--junit", "check.xml")
    assert done.exit_code == 1
    report = (folder / "check.xml").read_text(encoding="utf-8")
    assert 'failures="1"' in report
    assert 'name="hash_seed">\n      <failure message="' in report
    assert "hash_seed differs from the reference, first at tick 12, on /drone/odd" in done.stderr
    assert "field fluid_pressure" in done.stderr
    assert (
        "different after 30 equal messages: /drone/odd" in done.stderr
    )  # 13 of /clock and /tf, tf_static, info, 2 of its own
    row = next(line for line in done.stdout.splitlines() if line.startswith("world.yaml"))
    assert row.endswith("DIFFERENT in hash_seed")
    assert "NOT identical: only 0 of 1 missions" in done.stdout


def test_a_mission_that_the_scenario_cannot_fly_is_wrong_input(folder: Path, short_check: Callable[..., Any]) -> None:
    (folder / "rover.yaml").write_text("duration: 1\ndo: [{robot: rover, command: {}}]\n")
    done = short_check("world.yaml", "--missions", "rover.yaml", "--jobs", "2")
    assert done.exit_code == 2
    assert "rover.yaml:2:14: do[0].robot: the scenario 'odd' has no robot 'rover'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["flatt"], "did you mean 'flat'?"),
        (["flat", "--missions", "hovr"], "did you mean 'hover'?"),
        (["flat", "--seeds", "0"], "--seeds"),
        (["flat", "--jobs", "many"], "--jobs"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(arguments: list[str], words: str, folder: Path) -> None:
    began = time.monotonic()
    done = cli(*arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert time.monotonic() - began < 60


def children_of(folder: Path) -> list[int]:
    """Processes that fly something in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace")
            if "microsim.parts.sweep.check" in words and str(folder) in str((entry / "cwd").readlink()):
                found.append(int(entry.name))
        except OSError:  # gone meanwhile
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_all_its_processes(number: int, folder: Path) -> None:
    write_plugin(folder, "time.sleep(1e6)")
    process = subprocess.Popen(
        command("world.yaml", "--missions", "fly.yaml", "--jobs", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        until = time.monotonic() + 300
        while len(children_of(folder)) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert len(children_of(folder)) == 2
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "stopped after 0 of" in stderr
    assert "Traceback" not in stderr
    assert (stdout, children_of(folder)) == ("", [])


# ---- its processes --------------------------------------------------------------------------------------------------


@pytest.fixture
def case(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.chdir(folder)
    return Case("world.yaml", "fly.yaml", None)


REFERENCE = Environment("reference", "")


def test_a_child_that_crashes_is_told_of(case: Case, folder: Path) -> None:
    write_plugin(folder, "os.kill(os.getpid(), signal.SIGSEGV)")
    result = Children(folder, 300).run(CheckRun(case, REFERENCE))
    assert result.error == "the process ended by SIGSEGV"
    write_plugin(folder, "print('last words', file=__import__('sys').stderr, flush=True); os._exit(9)")
    assert (
        Children(folder, 300).run(CheckRun(case, REFERENCE)).error == "the process ended with exit code 9: last words"
    )


def test_a_child_that_hangs_is_ended_at_its_time_limit(case: Case, folder: Path) -> None:
    write_plugin(folder, "time.sleep(1e6)")
    began = time.monotonic()
    result = Children(folder, 5).run(CheckRun(case, REFERENCE))
    assert result.error == "no answer in 5 s; allow more with --timeout"
    assert time.monotonic() - began < 60
    assert children_of(folder) == []


def test_what_a_child_prints_is_not_taken_for_its_answer(case: Case, folder: Path) -> None:
    write_plugin(folder, "print('{\"digest\": 1}')")
    result = Children(folder, 300).run(CheckRun(case, REFERENCE))
    assert not result.error
    assert len(result.digest) == 64


def test_the_chain_holds_the_digest_after_every_tick(case: Case, folder: Path) -> None:
    result = Children(folder, 300).run(CheckRun(case, REFERENCE))
    assert result.chain.stat().st_size == 32 * 31
    assert result.digest_at(30).hex() == result.digest


def test_a_run_that_differs_from_itself_is_called_that(case: Case, folder: Path) -> None:
    """The chains differ, yet both agree when they are flown again."""
    children = Children(folder, 300)
    one = children.run(CheckRun(case, REFERENCE))
    other = children.run(CheckRun(case, Environment("other", "")))
    data = other.chain.read_bytes()
    other.chain.write_bytes(data[: 32 * 20] + bytes(32) + data[32 * 21 :])
    finding = find(one, other, children)
    assert (finding.tick, finding.difference) == (20, None)
    assert "the run sometimes differs from itself" in str(finding)


# ---- comparing ------------------------------------------------------------------------------------------------------


def result(folder: Path, environment: Environment, digests: list[bytes], case: Case) -> Result:
    chain = folder / f"{environment.name}.chain"
    chain.write_bytes(b"".join(digests))
    return Result(CheckRun(case, environment), chain, digests[-1].hex(), len(digests) - 1, 1)


def test_a_short_run_is_compared_with_the_same_tick_of_the_reference(tmp_path: Path) -> None:
    case = Case("flat", "hover", None)
    links = [hashlib.sha256(bytes([tick])).digest() for tick in range(50)]
    short, brief = Environment("short", "", short_s=0.5), Environment("brief", "")
    tried = (REFERENCE, short, brief)
    results = {
        CheckRun(case, REFERENCE): result(tmp_path, REFERENCE, links, case),
        CheckRun(case, short): result(tmp_path, short, links[:31], case),
        CheckRun(case, brief): result(tmp_path, brief, links[:31], case),
    }
    verdict = judged(case, tried, results)
    assert verdict.same == ("short",)
    assert [each.run.environment.name for each in verdict.different] == ["brief"]  # it should not have ended
    assert not verdict.is_good


def test_the_first_tick_that_differs_is_found(tmp_path: Path) -> None:
    links = [hashlib.sha256(bytes([tick])).digest() for tick in range(50)]
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"".join(links))
    for tick in (0, 1, 49):
        other.write_bytes(b"".join([*links[:tick], *[bytes(32)] * (50 - tick)]))
        assert first_tick(one, other) == tick
    other.write_bytes(b"".join(links[:20]))
    assert first_tick(one, other) == 20


def test_without_a_reference_nothing_is_called_the_same(tmp_path: Path) -> None:
    case, other = Case("flat", "hover", None), Environment("other", "")
    results = {
        CheckRun(case, REFERENCE): Result(CheckRun(case, REFERENCE), tmp_path / "none", error="broke"),
        CheckRun(case, other): result(tmp_path, other, [bytes(32)], case),
    }
    verdict = judged(case, (REFERENCE, other), results)
    assert (verdict.same, verdict.is_good) == ((), False)


def test_a_finding_whose_second_flight_failed_says_so(tmp_path: Path) -> None:
    run = CheckRun(Case("flat", "hover", 3), Environment("other", ""))
    finding = Finding(Result(run, tmp_path / "x"), 5, None, "no answer in 5 s")
    assert str(finding).startswith("flat × hover, seed 3: other differs from the reference, first at tick 5; repeating")


# ---- environments ---------------------------------------------------------------------------------------------------


def test_an_environment_differs_from_the_reference_in_one_way_whatever_the_user_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "PYTHONHASHSEED", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    reference, *others = environments(slow=True)
    before = reference.process_variables()
    assert before["PYTHONHASHSEED"] == "0"
    assert not {"NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "OMP_NUM_THREADS"} & set(before)
    for environment in others:
        changed = {key for key, value in environment.process_variables().items() if before.get(key) != value}
        assert changed == set(environment.variables)
        assert changed or environment.rtf


@pytest.mark.parametrize("features", [["AVX2", "FMA3"], []])
def test_numpy_loses_exactly_what_this_processor_has(features: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.parts.sweep.check.dispatched_features", lambda: features)
    disabled = [
        environment.variables["NPY_DISABLE_CPU_FEATURES"].split()
        for environment in environments()
        if environment.name == "numpy_plain"
    ]
    assert disabled == ([features] if features else [])


def test_the_features_that_numpy_uses_are_those_it_reports() -> None:
    umath = pytest.importorskip("numpy._core._multiarray_umath")
    enabled = {name for name, is_on in umath.__cpu_features__.items() if is_on}
    assert set(dispatched_features()) == enabled & set(umath.__cpu_dispatch__)


# ---- several missions in one process --------------------------------------------------------------------------------


def three(folder: Path, body: str) -> list[Result]:
    """A mission, one in which the plug-in does something, and the first again."""
    write_plugin(folder, f"if os.path.exists('now'): {body}")
    (folder / "other.yaml").write_text(MISSION.replace("vx: 1", "vx: 2"))
    runs = [
        CheckRun(Case("world.yaml", mission, seed), REFERENCE) for mission, seed in (("fly.yaml", 1), ("other.yaml", 2))
    ]
    children = Children(folder, 300)
    flown = children.run_each([runs[0], runs[1], runs[0]])
    results = [next(flown)]
    (folder / "now").touch()
    children.timeout_s = 3 if "sleep" in body else 300  # it is warm by now
    results.append(next(flown))
    (folder / "now").unlink()
    children.timeout_s = 300
    return [*results, *flown]


@pytest.mark.parametrize(
    ("body", "words"), [("os._exit(3)", "ended with exit code 3"), ("time.sleep(1e6)", "no answer in 3 s")]
)
def test_a_process_that_ends_or_hangs_takes_no_other_run_with_it(
    case: Case, folder: Path, body: str, words: str
) -> None:
    first, broken, again = three(folder, body)
    assert words in broken.error
    assert not first.error
    assert again.digest == first.digest


def test_missions_flown_in_one_process_are_those_flown_alone(case: Case, folder: Path) -> None:
    results = three(folder, "pass")
    alone = [Children(folder, 300).run(result.run) for result in results[:2]]
    assert [result.digest for result in results[:2]] == [result.digest for result in alone]
    assert results[2].digest == results[0].digest
    assert results[0].digest != results[1].digest


def test_a_run_that_depends_on_what_its_process_flew_before_is_found(
    folder: Path, short_check: Callable[..., Any]
) -> None:
    write_plugin(folder, "Odd.flown = getattr(Odd, 'flown', 0) + 1; value = float(Odd.flown)")
    done = short_check("world.yaml", "--missions", "fly.yaml", "--seeds", "2", "--jobs", "1")
    assert done.exit_code == 1
    assert "DIFFERENT in hash_seed" in done.stdout
    assert "depends on what its process ran before" in done.stderr


@pytest.mark.parametrize("jobs", [1, 2, 7, 100])
def test_each_process_has_one_environment_and_every_run_is_flown_once(jobs: int) -> None:
    tried = environments()
    runs = [CheckRun(Case(scenario, "hover", seed), each) for scenario in "abc" for seed in range(4) for each in tried]
    found = batches(runs, jobs)
    assert sorted(map(str, runs)) == sorted(str(run) for batch in found for run in batch)
    assert all(len({run.environment.name for run in batch}) == 1 for batch in found)
    assert min(jobs, len(runs)) <= len(found) <= len(tried) + jobs
    firsts = {batch[0].environment.name: batch[0].case for batch in found}
    assert len(set(firsts.values())) > 1  # not all in the same order
