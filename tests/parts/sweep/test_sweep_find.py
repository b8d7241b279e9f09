"""Finding a run that fails, and the smallest mission that still does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.errors import UsageError
from microsim.parts.missions import fly_mission, load_mission
from microsim.parts.sweep.commands.sweep import SweepOptions, sweep
from microsim.parts.sweep.find import FailingCase, Shrinker, Shrinking, first_match, simpler_numbers, wanted
from microsim.parts.sweep.plan import RunOutcome, load_sweep, make_plan
from microsim.parts.sweep.run_one import SweepRunner, run_one
from microsim.simulation import Simulation
from tests.cli_support import run_microsim as cli
from tests.sweep_support import plan_of, write_yard

# One of nine entries drives the rover into the wall at x = 15; only with little lag does it get there in time.
PLANTED = """
duration: 20
do:
  - {robot: drone, waypoints: [[6, 6, 5], [7, 6.5, 6], [5, 5, 5]], speed: 2}
  - {name: talk, robot: drone, radio: "hello {n}", every: 0.5, times: 20}
  - {after: talk, at: 0.25, robot: drone, command: {vx: 0.2}}
  - {at: 1, robot: rover, command: {v: 0.5, omega: 0.3}}
  - {at: 2, robot: rover, command: {v: 0.5, omega: -0.3}}
  - {at: 3, robot: rover, command: {}}
  - {at: 4, set: {wind.gust_sigma: 1.25}}
  - {at: 5.5, robot: rover, waypoints: [[8, 10.5], [11.375, 10.5], [17.25, 10.625]], speed: 1.875}
  - {at: 15, robot: drone, command: {vz: 0.5}}
expect:
  - {robot: drone, value: height, at_least: 1}
"""

SWEEP = load_sweep({"duration": 1})


@pytest.fixture
def folder(tmp_path):
    write_yard(tmp_path)
    (tmp_path / "drive.yaml").write_text(PLANTED)
    return tmp_path


def shrunk(plan, folder, text="collisions > 0", run=0, name="smallest.yaml"):
    return Shrinking(plan, wanted(SWEEP, text), run).smallest(folder / name, 2000, lambda runs, case: None)


def test_a_planted_failure_shrinks_to_the_one_entry_that_fails(folder):
    plan = plan_of(folder, seeds="3", vary={"rover.cmd_time_constant": [0.2]}, metrics=["collisions"])
    found = shrunk(plan, folder)
    assert found.case.seed is None  # neither the seed nor what was varied matters
    assert found.case.changes == {}
    assert found.case.size[0] == 1
    (entry,) = found.case.mission["do"]
    assert entry["robot"] == "rover"
    assert len(entry["waypoints"]) == 1
    assert set(entry) <= {"robot", "waypoints", "speed"}
    assert found.values == {"collisions": 1}
    assert found.case.mission.get("expect", []) == []
    # nothing shorter fails: the wall is 10 m away
    shorter = {**found.case.mission, "duration": round(found.case.mission["duration"] - 0.1, 1)}
    assert run_one(Simulation(plan.scenario), load_mission(shorter), None, ["collisions"])["collisions"] == 0
    # the file is a mission like any other, and fails as such
    outcome = fly_mission(folder / "smallest.yaml")
    assert outcome.sim.state("rover").contacts > 0
    assert "contacts of rover was 1" in outcome.violations[-1]


def test_the_scenario_of_a_sweep_file_in_another_folder_is_found_again(folder, tmp_path_factory):
    (folder / "drive.yaml").write_text("duration: 1\ndo: [{robot: rover, command: {v: 1.0}}]\n")
    (folder / "sweep.yaml").write_text("scenario: yard.yaml\nmission: drive.yaml\nseeds: 3\nmetrics: [digest]\n")
    plan = make_plan(load_sweep(folder / "sweep.yaml"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = shrunk(plan, elsewhere, "path_length > 0.1 and digest != 'ab'")
    assert found.values["path_length"] > 0.1
    assert fly_mission(elsewhere / "smallest.yaml").sim.scenario.name == "yard"


def test_what_is_needed_for_the_failure_stays(folder):
    """The drone comes low only with wind from above, and only with some seeds."""
    (folder / "drive.yaml").write_text("duration: 6\ndo:\n  - {at: 1, robot: drone, command: {vz: -0.5}}\n")
    (folder / "yard.yaml").write_text((folder / "yard.yaml").read_text().replace("gust_sigma: 0.5", "gust_sigma: 0.1"))
    plan = plan_of(folder, seeds="0..19", vary={"wind.world_xyz": [[0, 0, 0], [0, 0, -0.2]]}, metrics=["min_height"])
    runner = SweepRunner(plan.order())
    heights = [runner.run(*plan.place(run))[0] for run in range(len(plan))]
    runner.close()
    limit = (min(heights[20:]) + sorted(heights[20:])[1]) / 2.0  # only one run is lower
    run = heights.index(min(heights))
    assert run >= 20
    found = shrunk(plan, folder, f"min_height < {limit!r}", run)
    assert found.case.changes == {"wind.world_xyz": [0, 0, -0.2]}
    assert found.values["min_height"] < limit
    flown = fly_mission(folder / "smallest.yaml")  # with smallest.scenario.yaml beside it
    assert flown.sim.scenario.wind.world_xyz == (0.0, 0.0, -0.2)
    again = shrunk(plan, folder, f"min_height < {limit!r}", run, "again.yaml")
    assert again.case == found.case
    shown = (folder / "again.yaml").read_text().replace("again.scenario.yaml", "smallest.scenario.yaml")
    assert shown == (folder / "smallest.yaml").read_text()


def test_the_first_match_is_that_of_the_plan_in_whatever_order_runs_come(folder):
    plan = plan_of(folder, seeds="0..9", metrics=["collisions"])
    outcomes = [RunOutcome(run, [1 if run in (4, 7) else 0]) for run in range(10)]
    wish = wanted(SWEEP, "collisions > 0")
    for order in (outcomes, outcomes[::-1], outcomes[5:] + outcomes[:5]):
        found = first_match(plan, wish, iter(order))
        assert found is not None
        assert found.run == 4
    taken = iter(outcomes)
    first_match(plan, wish, taken)
    assert next(taken).run == 5  # no more are flown than needed
    assert first_match(plan, wanted(SWEEP, "collisions > 5"), iter(outcomes)) is None


def test_what_is_searched_for_must_be_about_one_run():
    with pytest.raises(UsageError, match="about all runs together; expected a condition about one run"):
        wanted(SWEEP, "mean(collisions) > 0")


# ---- shrinking by itself ---------------------------------------------------------------------------------------------

letters = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12)


@given(letters, st.data())
def test_what_is_left_is_exactly_what_is_needed(entries, data):
    """Against the closed form: a mission that fails when it has all of some letters shrinks to one of each."""
    needed = data.draw(st.sets(st.sampled_from(entries), min_size=1, max_size=3))
    mission = {"duration": 8.0, "do": [{"robot": letter, "command": {"v": 1.2345}} for letter in entries]}
    case = FailingCase(mission, 7, {"a.b": 1})

    def fails(candidate):
        return needed <= {entry["robot"] for entry in candidate.mission["do"]}

    assert fails(case)
    found = Shrinker(fails, 5000).shrink(case)
    assert sorted(entry["robot"] for entry in found.mission["do"]) == sorted(needed)
    assert all(not entry["command"] for entry in found.mission["do"])
    assert (found.mission["duration"], found.seed, found.changes) == (0.1, None, {})


@given(st.integers(1, 79), st.floats(-9, 9).map(lambda x: round(x, 4)))
def test_durations_and_numbers_are_the_smallest_that_fail(tenths, least):
    """Fails from some duration on, and for numbers of at least `least`."""
    mission = {"duration": 8.0, "do": [{"robot": "rover", "command": {"v": 9.87654}}]}

    def fails(case):
        speeds = [entry["command"].get("v", 0.0) for entry in case.mission["do"]]
        return round(case.mission["duration"] * 10) >= tenths and len(speeds) == 1 and speeds[0] >= least

    found = Shrinker(fails, 5000).shrink(FailingCase(mission, None, {}))
    assert round(found.mission["duration"] * 10) == tenths
    (entry,) = found.mission["do"]
    assert entry["command"].get("v", 0.0) >= least
    assert json.dumps(entry["command"]) in ("{}", '{"v": 10.0}', '{"v": 9.9}', '{"v": 9.88}', '{"v": 9.8765}')


@given(st.floats(-1e6, 1e6))
def test_a_simpler_number_is_shorter_or_smaller(number):
    written = len(f"{number:.15g}".lstrip("-0"))
    for simpler in simpler_numbers(number):
        assert simpler != number
        assert len(f"{simpler:.15g}".lstrip("-0")) <= written


# ---- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_finds_shrinks_and_writes_a_mission_that_fails(folder):
    (folder / "drive.yaml").write_text(
        "duration: 9\ndo: [{robot: rover, command: {v: 1.9}}, {robot: drone, command: {}}]"
    )
    arguments = ("sweep", "yard.yaml", "--mission", "drive.yaml", "--seeds", "0..3", "--jobs", "2")
    done = cli(*arguments, "--find", "collisions > 0", cwd=folder)
    assert done.returncode == 1, done.stderr
    assert "smallest mission that still does: 1 step" in done.stdout
    assert "in run 0 of 4" in done.stdout
    flown = cli("run", "--mission", "smallest.yaml", "--rtf", "0", "--headless", cwd=folder)
    assert flown.returncode == 1
    assert "contacts of rover" in flown.stderr


def test_nothing_found_is_no_failure(folder, capsys):
    options = SweepOptions(
        str(folder / "yard.yaml"), "0..3", mission=str(folder / "drive.yaml"), duration=0.5, out=folder / "other.yaml",
        find="collisions > 9", jobs=1, timeout=60, shrink_runs=9, json=True,
    )  # fmt: skip
    assert sweep(options) == 0
    assert json.loads(capsys.readouterr().out) == {"found": False, "runs": 4}
    assert not (folder / "other.yaml").exists()
