"""A controller's file wherever runs are made: `microsim run`, recordings, missions, sweeps, searches, checks."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from microsim import Simulation, load_scenario
from microsim.errors import UsageError
from microsim.parts.missions import fly_mission
from microsim.parts.sweep.check import run_order
from microsim.parts.sweep.commands.sweep import SweepOptions, sweep
from microsim.parts.sweep.find import Shrinking, wanted
from microsim.parts.sweep.plan import Plan, load_sweep, make_plan
from microsim.parts.sweep.run_one import RunFailure, SweepRunner, from_token
from tests.cli_support import run_microsim

# With some seeds the rover turns left, to shelf_a, with the others right, to shelf_b; both are sure to be hit.
AISLE = """
    map: { size_xy_cells: [30, 20] }
    obstacles:
      - { type: box, name: shelf_a, center: [15, 14, 0], size: [10, 1, 2] }
      - { type: box, name: shelf_b, center: [15, 6, 0], size: [10, 1, 2] }
    robots:
      rover: { start: { map_pose: { x: 8, y: 10, yaw: 0 } } }
"""
TURN = """
    class Controller:
        def __init__(self, turn=0.5):
            self.turn, self.side = turn, 0

        def control(self, seen):
            if not self.side:
                self.side = 1 if seen.random.uniform() < 0.5 else -1
            is_straight = abs(seen["odom"].yaw) < 0.9
            return {"v": 1.0, "omega": self.side * self.turn if is_straight else 0.0}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "aisle.yaml").write_text(dedent(AISLE).lstrip())
    (tmp_path / "turn.py").write_text(dedent(TURN).lstrip())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def microsim(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_microsim(*words, cwd=Path.cwd())
    assert done.returncode == code, done.stderr
    return done


def planned(**keys: object) -> Plan:
    given = {"scenario": "aisle.yaml", "controllers": ["turn.py"], "duration": 8, "seeds": "0..7", **keys}
    return make_plan(load_sweep(given))


def rows_of(plan: Plan) -> list[dict[str, object]]:
    runner = SweepRunner(plan.order())
    found = [runner.run(*plan.place(run)) for run in range(len(plan))]
    runner.close()
    return [{} if isinstance(each, RunFailure) else dict(zip(plan.metrics, each, strict=True)) for each in found]


def test_run_records_what_it_commands_and_a_replay_needs_no_controller(folder: Path) -> None:
    words = ("run", "aisle.yaml", "--controller", "turn.py", "--duration", "5", "--rtf", "0")
    result = microsim(*words, "--record", "rec", "--json")
    assert json.loads(result.stdout)["ticks"] == 300
    (folder / "turn.py").unlink()
    verdict = microsim("replay", "rec", "--verify")
    assert "identical" in verdict.stdout


def test_a_replay_names_a_controller_that_has_changed(folder: Path) -> None:
    microsim("run", "aisle.yaml", "--controller", "turn.py", "--duration", "1", "--rtf", "0", "--record", "rec")
    (folder / "turn.py").write_text((folder / "turn.py").read_text() + "# changed\n")
    verdict = microsim("replay", "rec", "--verify")
    assert "controller rover is not the recorded one" in verdict.stdout + verdict.stderr
    assert "identical" in verdict.stdout


def test_a_controller_that_raises_fails_the_run_with_its_line_and_the_recording_is_kept(folder: Path) -> None:
    (folder / "late.py").write_text("def control(seen):\n    return {'v': 1.0 / (seen.tick < 60)}\n")
    words = ("run", "aisle.yaml", "--controller", "late.py", "--duration", "5", "--rtf", "0", "--record", "rec")
    result = microsim(*words, code=1)
    assert "late.py:2: controller of rover at 1.000 s: failed: ZeroDivisionError" in result.stderr
    assert "60 ticks" in microsim("replay", "rec").stdout


def test_a_controller_drives_within_a_mission(folder: Path) -> None:
    (folder / "drive.yaml").write_text(
        "duration: 5\nscenario: aisle.yaml\nexpect: [{robot: rover, value: displacement, at_least: 3}]\n"
    )
    microsim("run", "--mission", "drive.yaml", "--rtf", "0", code=1)
    microsim("run", "--mission", "drive.yaml", "--rtf", "0", "--controller", "turn.py")


def test_a_sweep_varies_its_settings_and_gives_tokens_that_cover_its_code(folder: Path) -> None:
    plan = planned(vary={"controllers.rover.turn": [0.0, 0.5]}, seeds="3", metrics=["collisions", "digest"])
    rows = rows_of(plan)
    assert [row["collisions"] for row in rows] == [0, 1]
    again = from_token(plan.token(1))
    measured = again.metric_run()
    again.sim.step(8 * 60)
    assert again.sim.digest() == rows[1]["digest"]
    assert measured.run.sim is again.sim
    (folder / "turn.py").write_text((folder / "turn.py").read_text() + "# changed\n")
    with pytest.raises(UsageError, match=r"the controller 'turn.py' has changed since the token was made"):
        from_token(plan.token(1))


def test_a_run_whose_controller_fails_has_an_error_and_the_sweep_continues(folder: Path) -> None:
    (folder / "some.py").write_text(
        "def control(seen):\n    if seen.random.uniform() < 0.05:\n        raise KeyError(1)\n"
    )
    runner, plan = None, planned(controllers=["some.py"], duration=1, seeds="0..9", metrics=["collisions"])
    runner = SweepRunner(plan.order())
    found = [runner.run(*plan.place(run)) for run in range(len(plan))]
    runner.close()
    failed = [each for each in found if isinstance(each, RunFailure)]
    assert 0 < len(failed) < len(found)
    assert all("some.py:3: controller of rover at" in each.error and each.is_final for each in failed)


def test_the_first_contact_says_with_what_where_and_how_fast(folder: Path) -> None:
    names = ["first_contact", "first_contact_s", "first_contact_x", "first_contact_y", "first_contact_speed"]
    rows = rows_of(planned(metrics=names))
    assert {row["first_contact"] for row in rows} == {"rover > shelf_a", "rover > shelf_b"}
    for row in rows:
        assert row["first_contact_y"] == pytest.approx(
            13.0 if row["first_contact"] == "rover > shelf_a" else 7.0, abs=0.05
        )
        assert row["first_contact_speed"] == pytest.approx(1.0, abs=0.02)
        assert 4.0 < float(str(row["first_contact_s"])) < 8.0


@pytest.mark.parametrize("thing", ["shelf_a", "shelf_b"])
def test_shrinking_keeps_the_contact_with_the_same_thing(folder: Path, thing: str) -> None:
    """Without the seed, the scenario's own would hit one of them: the other is another failure."""
    condition = wanted(load_sweep({"duration": 1}), "collisions > 0")
    plan = planned(metrics=["collisions", "first_contact"])
    run = next(index for index, row in enumerate(rows_of(plan)) if row["first_contact"] == f"rover > {thing}")
    smallest = Shrinking(plan, condition, run).smallest(folder / f"{thing}.yaml", 300, lambda runs, case: None)
    (contact,) = fly_mission(smallest.file).sim.contacts
    assert (contact.thing, smallest.case.mission["duration"] < 8) == (thing, True)


def test_find_on_the_command_line_says_how_to_run_the_smallest_mission(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = SweepOptions(
        "aisle.yaml", controller=["turn.py"], duration=8, seeds="0..3", find="collisions > 0", jobs=1
    )
    assert sweep(options) == 1
    command = capsys.readouterr().out.splitlines()[-1].split()[1:]
    assert "contacts of rover was 1" in microsim(*command, code=1).stderr


def test_check_runs_controllers_without_a_mission(folder: Path) -> None:
    case = {"scenario": "aisle.yaml", "mission": "", "seed": 3, "controllers": ["turn.py"], "duration": 1.0}
    answer = run_order({**case, "rtf": 0.0, "short_s": None, "tick": None, "chain": str(folder / "chain")})
    sim = Simulation(load_scenario("aisle.yaml", controllers="turn.py"), 3)
    sim.step(60)
    assert (answer["digest"], answer["ticks"]) == (sim.digest(), 60)
