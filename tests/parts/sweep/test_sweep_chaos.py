"""Sweeps over faults that the seed draws: found, and shrunk to the fewest and smallest that still break the mission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from microsim.errors import MicroSimError
from microsim.parts.missions import fly_mission
from microsim.parts.sweep.find import Shrinking, Smallest, first_match, wanted
from microsim.parts.sweep.plan import Plan, RunOutcome, load_sweep, make_plan
from microsim.parts.sweep.run_one import SweepRunner, from_token

WORLD = """
name: wall
map: {size_xy_cells: [40, 40]}
robots: {rover: {start: {map_pose: {x: 5.5, y: 10.5, yaw: 0}}}}
obstacles: [{type: box, center: [10.5, 10.5, 0], size: [1, 4, 2]}]
world_topics: {occupancy_hz: 0, markers_hz: 0}
"""
DRIVE = """
duration: 8
do:
  - {robot: rover, command: {v: 1.0}}
  - {at: 3, robot: rover, command: {v: 0.0}}
"""
KINDS = ["delay", "loss", "duplication", "reordering"]
CHAOS = {"rate": 2.0, "to_s": 5.0, "longest_s": 0.6, "kinds": KINDS, "targets": ["/rover/cmd_vel", "/rover/odom"]}


def planned(folder: Path, **more: Any) -> Plan:
    (folder / "wall.yaml").write_text(WORLD)
    (folder / "drive.yaml").write_text(DRIVE)
    data = {"scenario": "wall.yaml", "mission": "drive.yaml", "metrics": ["collisions"], **more}
    (folder / "sweep.yaml").write_text(yaml.safe_dump(data))
    return make_plan(load_sweep(folder / "sweep.yaml"))


def outcomes(plan: Plan) -> list[RunOutcome]:
    runner = SweepRunner(plan.order())
    try:
        found = [(run, runner.run(*plan.place(run))) for run in range(len(plan))]
        return [RunOutcome(run, values) for run, values in found if isinstance(values, list)]
    finally:
        runner.close()


def smallest(plan: Plan, folder: Path) -> Smallest:
    wish = wanted(load_sweep({"duration": 1}), "collisions > 0")
    found = first_match(plan, wish, outcomes(plan))
    assert found is not None
    return Shrinking(plan, wish, found.run).smallest(folder / "smallest.yaml", 500, lambda runs, case: None)


def test_without_chaos_no_seed_breaks_the_mission_and_with_it_some_do(tmp_path: Path) -> None:
    assert {each.values[0] for each in outcomes(planned(tmp_path, seeds="0..9"))} == {0}
    values = [each.values[0] for each in outcomes(planned(tmp_path, seeds="0..29", chaos=CHAOS))]
    assert 0 < sum(value > 0 for value in values) < 30


def test_a_found_run_shrinks_to_the_one_fault_that_breaks_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, seeds="0..29", chaos=CHAOS)
    found = smallest(plan, tmp_path)
    assert found.before.faults is not None
    assert len(found.before.faults) == 10
    assert found.case.faults is not None
    (fault,) = found.case.faults
    assert (fault["target"], fault["kind"]) in {("/rover/cmd_vel", "loss"), ("/rover/cmd_vel", "reordering")}
    assert fault["from_s"] <= 3.0 < fault["to_s"]
    assert fault["to_s"] - fault["from_s"] < 0.1, "as short as it may be"
    written = yaml.safe_load((tmp_path / "smallest.scenario.yaml").read_text())
    assert [each["kind"] for each in written["faults"]] == [fault["kind"]]
    assert "chaos" not in written
    assert fly_mission(tmp_path / "smallest.yaml").sim.state("rover").contacts > 0


def test_a_token_repeats_a_run_with_the_chaos_of_its_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = planned(tmp_path, seeds="0..29", chaos=CHAOS, vary={"rover.max_v": [2.0]})
    broken = next(each for each in outcomes(plan) if each.values[0])
    replay = from_token(plan.token(broken.run))
    assert replay.sim.resolved.faults
    run = replay.metric_run()
    run(replay.sim.step(0))
    for _ in range(8 * 60):
        run(replay.sim.step())
    assert run.values()["collisions"] == broken.values[0]


def test_the_rate_can_be_varied(tmp_path: Path) -> None:
    plan = planned(tmp_path, seeds="0..4", chaos=CHAOS, vary={"chaos.rate": [0.0, 4.0]})
    values = [each.values[0] for each in outcomes(plan)]
    assert set(values[:5]) == {0}
    assert sum(values[5:]) > 0


def test_a_sweep_refuses_faults_of_nodes_and_chaos_that_does_not_fit(tmp_path: Path) -> None:
    for chaos, part in (
        ({"rate": 1.0, "kinds": ["kill"]}, "`chaos`, which a sweep .which runs without ROS 2 nodes. does not support"),
        ({**CHAOS, "kinds": ["kil"]}, "unknown fault 'kil'"),
        ({**CHAOS, "targets": ["/rover/cmd"]}, "none of these kinds fits any of them"),
    ):
        with pytest.raises(MicroSimError, match=part):
            planned(tmp_path, chaos=chaos)
