"""Lockstep over DDS: a controller on `microsim.connect()`, in a process of its own."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import microsim
from microsim.cli import app
from microsim.parts.ros2.microsim_node import MicroSimNode, start_node
from microsim.parts.ros2.transport.dds import DdsTransport
from microsim.parts.sweep.check.node_check import NodeCheck, check_node, conditions, first_differences
from microsim.runner import Watcher
from tests.cli_support import run_microsim
from tests.forked_python import forked_python
from tests.integration.conftest import PATIENCE_S, ROOT

SCRIPT = Path(__file__).parent / "lockstep_node.py"
GATE = {"after": "/rover/odom", "expect": "/rover/cmd_vel"}
ROVER = {"max_v": 20.0, "gps": {}, "scan": {}}
WORLD: dict[str, Any] = {"world_topics": {"occupancy_hz": 0, "markers_hz": 0}, "robots": {"rover": ROVER}}
NEVER = 1e9


@contextmanager
def controller(namespace: str, longest_s: float = 0.0, *topics: str) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [namespace, str(longest_s), str(NEVER), *topics]
    process = subprocess.Popen([*forked_python(), str(SCRIPT), *arguments], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # it says goodbye: otherwise others remember it until its lease ends
        try:
            process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def simulator(namespace: str, gate: dict[str, Any] | None = GATE, rtf: float | None = None) -> Iterator[MicroSimNode]:
    transport = DdsTransport("microsim", ["--ros-args", "-r", f"__ns:={namespace}"])
    try:
        scenario = {**WORLD, "lockstep": [gate] if gate else []}
        node = start_node(transport, microsim.load_scenario(scenario), rtf=rtf)
        node.runner.watchers.append(Watcher(PATIENCE_S, node.runner.stop))
        yield node
    finally:
        transport.close()


def digest(namespace: str, ticks: int, rtf: float | None, gate: dict[str, Any] | None = GATE) -> str:
    with simulator(namespace, gate, rtf) as node:
        node.runner.run(ticks)
        assert node.sim.tick == ticks, [note.text for note in node.runner.notes.take()]
        return node.sim.digest()


def test_a_node_that_dawdles_gives_one_digest_as_fast_as_possible_and_in_real_time(namespace: str) -> None:
    with controller(namespace, 0.02):
        digests = {digest(namespace, 60, rtf) for rtf in (None, 1.0, None)}
    with controller(namespace):
        digests.add(digest(namespace, 60, None))
    assert len(digests) == 1


def test_a_node_that_reads_five_topics_gives_one_digest_whatever_the_order_of_its_subscriptions(namespace: str) -> None:
    gate = {"after": "/rover/range/front", "expect": "/rover/cmd_vel"}
    digests = set()
    for order in ("scan gps range imu odom", "range odom imu gps scan", "gps imu odom scan range"):
        with controller(namespace, 0.003, *order.split()):
            digests.add(digest(namespace, 30, None, gate))
    assert len(digests) == 1


def test_a_node_that_outlives_runs_is_met_by_each(namespace: str) -> None:
    with controller(namespace):
        assert len({digest(namespace, 20, None) for _ in range(3)}) == 1


def test_a_node_that_is_killed_stops_time_until_another_takes_its_place(namespace: str) -> None:
    with simulator(namespace) as node, controller(namespace) as first:
        node.runner.watchers.append(Watcher(0.01, lambda: first.kill() if node.sim.tick >= 30 else None))
        waiting: list[int] = []

        def look() -> None:
            waiting.append(node.sim.tick)
            if first.poll() is not None and waiting[-20:] == [node.sim.tick] * 20:
                node.runner.stop()

        node.runner.watchers.append(Watcher(0.05, look))
        node.runner.run(100_000)
        stopped_at = node.sim.tick
        assert first.poll() is not None
        node.runner.is_stopping = False
        node.runner.watchers.pop()
        with controller(namespace):
            node.runner.run(60)
        assert node.sim.tick == stopped_at + 60, [note.text for note in node.runner.notes.take()]
        assert any("/controller has joined" in note.text for note in node.runner.notes.take())


def test_check_names_a_node_that_is_not_deterministic_and_from_when(tmp_path: Path) -> None:
    world = {**WORLD, "lockstep": [GATE]}
    (tmp_path / "world.yaml").write_text(json.dumps(world))
    command = f"{shlex.join(forked_python())} {SCRIPT} '' 0 0.5"
    arguments = [str(tmp_path / "world.yaml"), "--duration", "1", "--transport", "dds"]
    check = NodeCheck(arguments, command, tmp_path, 120.0)
    runs = check_node(check, conditions()[:2], lambda run: None)
    assert [run.error for run in runs] == ["", ""]
    assert first_differences(runs) == {"again": "/controller replied differently to the same inputs at 0.5 s"}


def test_each_condition_of_the_check_differs_from_the_reference_in_one_thing() -> None:
    reference, again, *others = (
        {key: value for key, value in vars(each).items() if key not in ("name", "about")} for each in conditions()
    )
    assert again == reference
    for each in others:
        assert sum(each[key] != reference[key] for key in each) == 1


def test_check_reports_a_node_that_ends_or_cannot_be_started(tmp_path: Path) -> None:
    arguments = ["flat", "--duration", "1", "--transport", "dds", "--lockstep", "every: 1, expect: /rover/cmd_vel"]
    (run,) = check_node(NodeCheck(arguments, "false", tmp_path, 60.0), conditions(), lambda run: None)
    assert "the node ended before the run, with status 1" in run.error
    with pytest.raises(microsim.errors.UsageError, match="/no/such/node cannot be started: No such file"):
        NodeCheck(arguments, "/no/such/node", tmp_path, 60.0).run(conditions()[1])


def digest_with_node(folder: Path, *faults: str, chaos: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of a run that starts the node itself."""
    (folder / "world.yaml").write_text(json.dumps({**WORLD, "lockstep": [GATE], "faults": faults, "chaos": chaos}))
    options = ("--quiet", "--transport", "dds", "--with", f"{sys.executable} {SCRIPT} '' 0.01 {NEVER}")
    done = run_microsim("run", str(folder / "world.yaml"), "--duration", "1", "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_node_that_faults_stop_and_kill_gives_one_digest_which_is_another_than_without(tmp_path: Path) -> None:
    faults = ("node:pause@0.2s-0.3s", "node:kill@0.5s-0.6s")
    runs = [digest_with_node(tmp_path, *faults) for _ in range(2)]
    assert runs[0]["digest"] == runs[1]["digest"] != digest_with_node(tmp_path)["digest"]
    assert runs[0]["ticks"] == 60


def test_a_run_that_starts_paused_waits_for_somebody_to_resume_it() -> None:
    with pytest.raises(microsim.errors.UsageError, match="--paused: nothing could resume the run"):
        quick_run("--paused")
    command = [*forked_python(), "-m", "microsim", "run", "flat", "--paused", "--duration", "0.2", "--transport", "dds"]
    with subprocess.Popen([*command, "--json", "--quiet"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        with microsim.connect() as node:
            assert node.wait_until(lambda: "/sim/pause" in node.view.services(), PATIENCE_S)
            node.call("/sim/step_once", {}, type="std_srvs/srv/Trigger", timeout=PATIENCE_S)
            assert process.poll() is None
            node.call("/sim/pause", {"data": False}, type="std_srvs/srv/SetBool", timeout=PATIENCE_S)
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(output)["ticks"] == 12


def test_faults_of_nodes_need_a_node_that_the_run_starts() -> None:
    with pytest.raises(microsim.errors.UsageError, match="a run without --with COMMAND does not support node:pause"):
        quick_run("--inject", "node:pause@1s-2s")
    with pytest.raises(microsim.errors.UsageError, match="--with starts a ROS 2 node: leave out --transport none"):
        quick_run("--with", "true")


def quick_run(*options: str) -> None:
    CliRunner().invoke(app, ["run", "flat", "--duration", "1", "--rtf", "0", "-q", *options], catch_exceptions=False)
