"""What a lockstep run leaves behind: recordings with gates and waits, replays without the nodes, who differed first."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.compare import diff
from microsim.recording.recorder import Recorder
from tests.parts.ros2.lockstep_loop import ROVER, TICKS, Loop, Reply, dawdling, ended, proportional, world


def recorded(folder: Path, answer: Reply, ticks: int = TICKS) -> Loop:
    loop = Loop(world(ROVER))
    recorder = Recorder(folder, loop.sim)
    recorder.attach(loop.runner)
    with ended(loop.rover(answer)):
        loop.runner.run(ticks)
    recorder.close()
    assert not recorder.error
    return loop


def test_a_recorded_lockstep_run_is_repeated_without_the_nodes_and_holds_its_waits(tmp_path: Path) -> None:
    loop = recorded(tmp_path / "run", dawdling(1))
    with Replay(open_bag(tmp_path / "run")) as replay:
        assert replay.verify().is_identical
        assert replay.sim.digest() == loop.sim.digest()
        assert [gate.expect for gate in replay.sim.scenario.lockstep] == ["/rover/cmd_vel"]
    rows = list(csv.DictReader((tmp_path / "run" / "lockstep.csv").open()))
    assert len(rows) == TICKS // 2
    assert {(row["expect"], row["nodes"]) for row in rows} == {("/rover/cmd_vel", "/rover_controller")}
    assert 0.0 < max(float(row["waited_ms"]) for row in rows) < 5000.0


def test_diff_names_the_node_that_replied_differently_and_when(tmp_path: Path) -> None:
    def changed(message: Any) -> Sequence[tuple[float, int]]:
        ((speed, stamp),) = proportional(message)
        return [(speed + (stamp >= 500_000_000) * 1e-9, stamp)]

    recorded(tmp_path / "one", dawdling(1))
    recorded(tmp_path / "two", dawdling(2))
    recorded(tmp_path / "three", changed)
    one, two, three = (open_bag(tmp_path / name) for name in ("one", "two", "three"))
    assert diff(one, two).is_identical
    found = diff(one, three)
    assert found.culprit == "/rover_controller replied differently to the same inputs at 0.5 s"
    assert str(found).startswith(f"different: {found.culprit}; the first message that differs is /rover/cmd_vel")
