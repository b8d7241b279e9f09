"""Sweeps in one process: metrics against closed forms, plans, journals, results, what is refused and how."""

import csv
import io
import json
import math
import re
import statistics
from contextlib import closing
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import microsim
from microsim.cli import app
from microsim.errors import SweepError, UsageError
from microsim.parts.missions import MissionPilot, fly_mission, load_mission
from microsim.parts.sweep.metrics import METRICS, WatchedRun, watch
from microsim.parts.sweep.plan import RunOutcome, is_sweep, load_sweep, make_plan, values_of
from microsim.parts.sweep.results import Finished, broken, check_figure, draw, problem_of, summarised, write
from microsim.parts.sweep.run_all import Journal, check_files, recalled
from microsim.parts.sweep.run_one import (
    MetricRun,
    RunFailure,
    SweepOrder,
    SweepRunner,
    from_token,
    mission_data,
    needs_messages,
    run_one,
)
from microsim.scenario.loading import full_path, with_values
from tests.cli_support import run_microsim as cli
from tests.support import bare, scenario
from tests.sweep_support import METRICS as TAKEN
from tests.sweep_support import PLUGIN, plan_of, write_yard


@pytest.fixture
def folder(tmp_path):
    write_yard(tmp_path)
    return tmp_path


def flown(world, mission, *metrics, seed=1):
    return run_one(microsim.Simulation(world, seed), load_mission(mission), None, metrics)


def rover_world(**more):
    start = {"map_pose": {"x": 5, "y": 10.5, "yaw": 0}}
    wall = {"type": "box", "center": [15.5, 10.5, 0], "size": [1, 8, 1]}
    return scenario(robots={"rover": bare(start=start)}, obstacles=[wall], **more)


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_of_many_ticks_at_a_time_are_those_of_a_run_tick_by_tick(folder):
    mission = load_mission(folder / "drive.yaml")
    world = with_values(microsim.load_scenario(folder / "yard.yaml"), {"robots.drone.odom": {"hz": 7}})
    names = [name for name in METRICS if name not in ("offroad_s", "min_range")]
    change = {**mission_data(mission), "duration": 6, "expect": [{"robot": "rover", "value": "x", "at_least": 6}]}
    change["do"] += [{"at": 3, "set": {"wind.gust_sigma": 2.0}}, {"at": 4, "robot": "drone", "waypoints": [[9, 9, 2]]}]
    for plan in (mission, load_mission(change)):
        sim = microsim.Simulation(world, 3)
        measured = MetricRun(sim, plan, names)
        measured(sim.step(0))
        while sim.tick < measured.pilot.end:
            measured(sim.step())
        assert run_one(microsim.Simulation(world, 3), plan, None, names) == measured.values()


def test_a_straight_drive_is_as_long_as_the_way_driven():
    drive = {"duration": 4, "do": [{"robot": "rover", "command": {"v": 1.0}}]}
    found = flown(rover_world(), drive, "path_length", "displacement", "max_speed", "duration_s", "collisions")
    assert found["path_length"] == pytest.approx(found["displacement"], rel=1e-12)
    # first-order lag: x(t) = t - tau (1 - exp(-t / tau)), here in steps of 1/60 s with the new velocity
    lag, dt = 1.0 - math.exp(-1.0 / 60.0 / 0.1), 1.0 / 60.0
    velocity = way = 0.0
    for _ in range(240):
        velocity += (1.0 - velocity) * lag
        way += velocity * dt
    assert found["path_length"] == pytest.approx(way, rel=1e-9)
    assert found["max_speed"] == pytest.approx(velocity, rel=1e-9)
    assert found["duration_s"] == 4.0
    assert found["collisions"] == 0


def test_teleports_are_no_way_travelled():
    jump = {"duration": 1, "do": [{"at": 0.5, "robot": "rover", "teleport": {"x": 3, "y": 3}}]}
    found = flown(rover_world(), jump, "path_length", "displacement.rover")
    assert found["path_length"] == 0.0
    assert found["displacement.rover"] == pytest.approx(math.hypot(2.0, 7.5))


def test_leaning_against_a_wall_is_one_collision_and_coming_back_is_another():
    drive = {
        "duration": 14,
        "do": [
            {"robot": "rover", "command": {"v": 2.0}},
            {"at": 8, "robot": "rover", "command": {"v": -1.0}},
            {"at": 10, "robot": "rover", "command": {"v": 2.0}},
        ],
    }
    found = flown(rover_world(), drive, "collisions", "contact_s", "collisions.rover")
    sim = microsim.Simulation(rover_world(), 1)
    pilot, ticks = MissionPilot(sim, load_mission(drive)), 0
    pilot(sim.step(0))
    for _ in range(pilot.end):
        pilot(sim.step())
        ticks += sim.touching("rover") != ()
    assert found["collisions"] == found["collisions.rover"] == sim.state("rover").contacts == 2
    assert found["contact_s"] == pytest.approx(ticks / 60.0)
    assert found["contact_s"] > 4.0


def test_heights_and_distances_are_the_smallest_on_the_way():
    robots = {
        "a": bare(model="drone", start={"map_pose": {"x": 5, "y": 5, "z": 8}}),
        "b": bare(model="drone", start={"map_pose": {"x": 5, "y": 9, "z": 8}}),
    }
    dive = {
        "duration": 6,
        "do": [{"robot": "a", "command": {"vz": -1.0}}, {"at": 3, "robot": "a", "command": {"vz": 1.0}}],
    }
    found = flown(scenario(robots=robots), dive, "min_height", "min_height.b", "min_separation")
    assert 4.8 < found["min_height"] < 5.2
    assert found["min_height.b"] == 8.0
    assert found["min_separation"] == 4.0


def test_a_car_is_off_the_road_when_one_wheel_is():
    """Beside a second implementation, which asks for each of the five points by itself."""
    from microsim.engine.drivable import OFFROAD
    from microsim.scenario.bundles import bundle_of

    start = {"map_pose": {"x": 15, "y": 0, "yaw": 0}}  # nine metres from the edge of the road
    world = microsim.load_scenario({"world": "minimal_test", "robots": {"ego": {"start": start}}})
    area, car = bundle_of(world.world).drivable, world.robots["ego"]
    steer = {"robot": "ego", "command": {"speed": 8.0, "steering": 0.3}, "every": 0.5, "times": 8}
    found = flown(world, {"duration": 4, "do": [steer]}, "offroad_s", "offroad_s.ego", "collisions")
    sim = microsim.Simulation(world, 1)
    off = 0
    for tick in range(sim.clock.ticks_in(Fraction(4))):
        if tick % (sim.clock.ticks_in(Fraction(1)) // 2) == 0:
            sim.command("ego", speed=8.0, steering=0.3)
        sim.advance()
        pose = sim.state("ego")
        along, half = (0.0, car.wheelbase_m), 0.5 * car.track_m
        points = [(0.0, 0.0), *((forward, side) for forward in along for side in (half, -half))]
        polygons = [
            area.polygon_at(
                pose.x + math.cos(pose.yaw) * forward - math.sin(pose.yaw) * side,
                pose.y + math.sin(pose.yaw) * forward + math.cos(pose.yaw) * side,
            )
            for forward, side in points
        ]
        off += OFFROAD in polygons
    assert found["offroad_s"] == found["offroad_s.ego"] == off * sim.clock.dt
    assert 0.0 < found["offroad_s"] < 4.0


def test_radio_figures_are_those_of_the_links():
    world = scenario(
        robots={
            name: bare(model="drone", start={"map_pose": {"x": 5, "y": 5 + i, "z": 8}}) for i, name in enumerate("ab")
        },
        radio={"drop_probability": 0.3},
    )
    talk = {"duration": 4, "do": [{"robot": "a", "radio": "{n}", "every": 0.02, "times": 100}]}
    found = flown(world, talk, "radio_drop", "radio_sent", "radio_latency_ms")
    link = fly_mission(talk, world, 1).sim.radio.links[0]
    assert (found["radio_drop"], found["radio_sent"]) == (link.dropped / 100, 100)
    assert found["radio_latency_ms"] == pytest.approx(1000.0 / 60.0 * link.latency_sum / link.delivered)
    silent = flown(world, {"duration": 1}, "radio_drop", "radio_latency_ms", "radio_sent")
    assert silent == {"radio_drop": None, "radio_latency_ms": None, "radio_sent": 0}


def test_the_smallest_range_is_that_of_the_messages():
    world = rover_world()
    world["robots"]["rover"]["range"] = {"hz": 10}
    drive = {"duration": 4, "do": [{"robot": "rover", "command": {"v": 1.5}}]}
    heard = []
    fly_mission(drive, world, 1, heard.extend)
    ranges = [each.message.range for each in heard if each.type == "sensor_msgs/msg/Range"]
    assert flown(world, drive, "min_range")["min_range"] == min(ranges)


def test_judging_a_mission_is_that_of_the_mission():
    drive = {
        "duration": 1,
        "do": [{"robot": "rover", "command": {"v": 1.0}}],
        "expect": [
            {"robot": "rover", "value": "x", "at_least": 100},
            {"topic": "/clock", "value": "count", "equals": 60},
            {"topic": "/clock", "value": "count", "equals": 7},
        ],
    }
    found = flown(rover_world(), drive, "passed", "violations", "ignored")
    assert found == {"passed": False, "violations": 2, "ignored": 0}
    assert len(fly_mission(drive, rover_world(), 1).violations) == 2


@settings(max_examples=5)
@given(st.integers(0, 2**63 - 1))
def test_metrics_of_states_are_the_same_with_and_without_messages(seed):
    names = ["path_length", "collisions", "contact_s", "displacement", "max_speed", "min_separation", "passed"]
    mission = {
        "duration": 1.5,
        "do": [
            {"robot": "drone", "waypoints": [[21, 21, 9]], "speed": 2},
            {"at": 0.5, "set": {"wind.gust_sigma": 2.0}},
            {"robot": "rover", "command": {"v": 1.0, "omega": 0.2}},
        ],
    }
    slow = flown("flat", mission, *names, "digest", seed=seed)
    assert {name: slow[name] for name in names} == flown("flat", mission, *names, seed=seed)
    assert slow["digest"] == fly_mission(mission, "flat", seed).sim.digest()


def test_messages_are_made_only_where_somebody_needs_them():
    flat = microsim.load_scenario("flat")
    plain = load_mission({"duration": 1, "expect": [{"robot": "rover", "value": "x", "at_least": 0}]})
    counts = load_mission({"duration": 1, "expect": [{"topic": "/clock", "value": "count", "at_least": 0}]})
    talks = load_mission({"duration": 1, "do": [{"robot": "drone", "radio": "hello"}]})
    assert not needs_messages(flat, plain, ["path_length", "passed"])
    assert not needs_messages(flat, counts, ["path_length"])
    assert needs_messages(flat, counts, ["passed"])
    assert needs_messages(flat, talks, ["path_length"])
    assert needs_messages(flat, None, ["digest"])


def test_every_metric_says_what_it_is():
    for name, metric in METRICS.items():
        assert metric.__doc__, name
        assert "value" in vars(metric), name


@pytest.mark.parametrize(
    ("world", "name", "message"),
    [
        (scenario(), "path_length", "cannot measure anything without a robot"),
        (rover_world(), "path_length.dorne", "has no robot 'dorne'"),
        (rover_world(), "min_height", "cannot measure rover"),
        (rover_world(), "min_separation", "it needs two robots"),
        (rover_world(), "radio_drop", "there is no radio between robots"),
        (rover_world(), "min_range", "cannot measure rover"),
        (rover_world(), "offroad_s", "only world bundles have a drivable area"),
        (rover_world(), "passed", "there is no mission to judge"),
    ],
)
def test_a_metric_that_has_no_meaning_in_a_world_is_refused(world, name, message):
    with pytest.raises(UsageError, match=message):
        watch(name, WatchedRun(microsim.Simulation(world), None))


# ---- flying many -----------------------------------------------------------------------------------------------------


def test_a_run_does_not_depend_on_the_runs_before_it(folder):
    plan = plan_of(folder, seeds="0..3", vary={"wind.gust_sigma": [0, 2], "drone.cmd_time_constant": [0.1, 0.5]})
    plain = json.loads(json.dumps(plan.order().to_plain()))
    first, second = SweepRunner(SweepOrder.from_plain(plain)), SweepRunner(plan.order())
    forth = {run: first.run(*plan.place(run)) for run in range(len(plan))}
    back = {run: second.run(*plan.place(run)) for run in reversed(range(len(plan)))}
    assert forth == back
    first.close()
    second.close()
    run = 13
    combination, seed = plan.place(run)
    assert (combination, seed) == (3, 1)
    changes = {"wind.gust_sigma": 2, "robots.drone.cmd_time_constant": 0.5}
    assert plan.changes(combination) == changes
    alone = fly_mission(plan.mission, with_values(plan.scenario, changes), seed)
    assert forth[run][-1] == alone.sim.digest()
    assert len({values[-1] for values in forth.values()}) == len(plan)


def test_a_mission_that_changes_settings_leaves_nothing_behind(folder):
    (folder / "drive.yaml").write_text("duration: 1\ndo: [{at: 0.2, set: {wind.gust_sigma: 3.0}}]\n")
    plan = plan_of(folder, seeds="0..2")
    runner = SweepRunner(plan.order())
    for seed in (0, 1, 0):
        assert runner.run(0, seed)[-1] == fly_mission(plan.mission, plan.scenario, seed).sim.digest()
    runner.close()


def test_what_a_plug_in_raises_fails_its_run_and_no_other(folder):
    write_yard(folder, "if noise > 0.5: raise ValueError(f'too much {object()}')")
    plan = plan_of(folder, seeds="0..9")
    runner = SweepRunner(plan.order())
    results = [runner.run(0, seed) for seed in range(10)]
    bad = [result for result in results if isinstance(result, RunFailure)]
    assert 0 < len(bad) < 10
    assert all("too much <object object>" in failure.error for failure in bad)
    runner.close()


# ---- plans and what is refused ---------------------------------------------------------------------------------------


def test_a_short_path_names_a_robot():
    world = microsim.load_scenario("flat")
    assert full_path(world, "drone.max_vx") == "robots.drone.max_vx"
    assert full_path(world, "wind.gust_sigma") == "wind.gust_sigma"
    other = with_values(world, {"robots.drone.max_vx": 2, "map.size_xy_cells": [50, 60]})
    assert (other.robots["drone"].max_vx, other.map.size_xy_cells) == (2.0, (50, 60))


def test_values_are_written_as_in_yaml():
    assert values_of("0.1,2,true,maze,[0, 0, 1]") == [0.1, 2, True, "maze", [0, 0, 1]]
    with pytest.raises(UsageError, match="expected values"):
        values_of("[1,2")


def test_metrics_are_chosen_when_none_are_named(folder):
    assert plan_of(folder, metrics=[]).metrics == ("passed", "collisions", "path_length")
    world = scenario(robots={"drone": bare(start={"map_pose": {"x": 5, "y": 5, "z": 8}})})
    (folder / "sky.yaml").write_text(json.dumps(world))
    plan = plan_of(folder, metrics=[], scenario=str(folder / "sky.yaml"), mission=None, duration=1.0)
    assert plan.metrics == ("collisions", "path_length")  # a mission alone can pass
    assert list(plan.columns) == ["seed", "collisions", "path_length", "error", "token"]


BAD = """\
scenario: yard.yaml
mision: drive.yaml
seeds: 5..1
vary:
  drone.max_vx: 3
  seed: [1]
metrics: [colisions, digest]
assert:
  - collisions == 0
  - collisions = 0
out: results.xlsx
"""


def test_everything_wrong_with_a_sweep_file_is_told_with_its_place(folder):
    (folder / "bad.yaml").write_text(BAD)
    with pytest.raises(SweepError) as caught:
        load_sweep(folder / "bad.yaml")
    lines = [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]
    for start, part in [
        ("bad.yaml:2:1", "did you mean 'mission'?"),
        ("bad.yaml:3:8", "expected the smaller seed first"),
        ("bad.yaml:5:17", "expected a list of values, found 3"),
        ("bad.yaml:6:9", "seeds have a key of their own"),
        ("bad.yaml:7:11", "did you mean 'collisions'?"),
        ("bad.yaml:10:5", "equality is written =="),
        ("bad.yaml:11:6", "expected a name that ends with .csv or .parquet"),
    ]:
        assert any(line.startswith(start) and part in line for line in lines), (start, part, lines)
    assert is_sweep(folder / "bad.yaml")
    assert not is_sweep(folder / "yard.yaml")
    assert not is_sweep("flat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vary: {drone.max_vy: [1, -2]}", r"sweep.yaml:2:26: vary.drone.max_vy\[1\]: expected a value of at least 0"),
        ("vary: {drone.max_vq: [1]}", "sweep.yaml:2:8: vary.drone.max_vq: the scenario has no .*did you mean 'max_v"),
        ("vary: {physics_hz: [30]}", r"sweep.yaml:2:21: .*robots.drone.imu.hz: expected at most physics_hz"),
        ("vary: {obstacles.7.size: [[1, 1, 1]]}", "expected an index below 1, found '7'"),
        ("metrics: [min_range, path_length.rovr]", r"sweep.yaml:2:22: metrics\[1\]: .*did you mean 'rover'"),
        ("vary: {obstacles: [[], [{type: box, center: [5, 10.5, 0], size: [1, 1, 1]}]]}", r"sweep.yaml:2:24"),
    ],
)
def test_what_does_not_fit_the_scenario_is_told_with_its_place(folder, text, message):
    (folder / "sweep.yaml").write_text(f"{{scenario: yard.yaml, mission: drive.yaml,\n{text}}}")
    with pytest.raises(SweepError, match=message):
        make_plan(load_sweep(folder / "sweep.yaml"))


def test_a_sweep_without_mission_or_duration_is_refused():
    with pytest.raises(SweepError, match="`duration` is required"):
        load_sweep({"scenario": "flat", "seeds": "0..3"})
    with pytest.raises(SweepError, match="the seed 2 is listed twice"):
        load_sweep({"scenario": "flat", "duration": 1, "seeds": [1, 2, 2]})


# ---- the journal -----------------------------------------------------------------------------------------------------


def test_whatever_is_cut_off_a_journal_the_whole_lines_count(folder, tmp_path):
    plan = plan_of(folder, seeds="0..9")
    outcomes = [RunOutcome(run, [0.1 * run, run, 1.5, None, "ab" * 32]) for run in (3, 1, 2, 7)]
    path = tmp_path / "a.journal"
    with closing(Journal(path, plan)) as journal:
        for outcome in outcomes:
            journal.add([outcome])
    raw = path.read_bytes()
    for length in [0, 1, raw.index(b"\n"), *range(len(raw) - 180, len(raw), 7), len(raw)]:
        path.write_bytes(raw[:length])
        found = recalled(path, plan)
        whole = max(raw[:length].count(b"\n") - 1, 0)
        assert found == {outcome.run: outcome for outcome in outcomes[:whole]}
        with closing(Journal(path, plan)) as journal:
            journal.add(outcomes[whole:])
        assert recalled(path, plan) == {outcome.run: outcome for outcome in outcomes}


def test_failed_runs_are_flown_again_on_resuming(folder, tmp_path):
    plan = plan_of(folder, seeds="0..1")
    with closing(Journal(tmp_path / "a.journal", plan)) as journal:
        journal.add([RunOutcome(0, [], "broken"), RunOutcome(1, [0.0, 0, 0.0, None, "x"])])
    assert list(recalled(tmp_path / "a.journal", plan)) == [1]


def test_the_journal_of_another_sweep_is_refused(folder, tmp_path):
    path = tmp_path / "a.journal"
    Journal(path, plan_of(folder, seeds="0..9")).close()
    for other in (
        {"seeds": "0..8"},
        {"seeds": "0..9", "vary": {"wind.gust_sigma": [1]}},
        {"seeds": "0..9", "duration": 1},
    ):
        with pytest.raises(UsageError, match="belongs to another sweep"):
            recalled(path, plan_of(folder, **other))
    path.write_bytes(b"hello\nworld\n")
    with pytest.raises(UsageError, match="is not the journal of a sweep"):
        recalled(path, plan_of(folder, seeds="0..9"))


def test_nothing_is_overwritten_unless_asked(tmp_path):
    out = tmp_path / "a.csv"
    check_files(out, resume=False, overwrite=False)
    check_files(out, resume=True, overwrite=False)
    (tmp_path / "a.csv.journal").write_text("x")
    with pytest.raises(UsageError, match="continue it with --resume"):
        check_files(out, resume=False, overwrite=False)
    check_files(out, resume=True, overwrite=False)
    (tmp_path / "a.csv.journal").unlink()
    out.write_text("x")
    with pytest.raises(UsageError, match="already exists"):
        check_files(out, resume=False, overwrite=False)
    with pytest.raises(UsageError, match="nothing to resume"):
        check_files(out, resume=True, overwrite=False)
    check_files(out, resume=False, overwrite=True)
    assert not out.exists()
    with pytest.raises(UsageError, match=r"ends with .csv or .parquet"):
        check_files(tmp_path / "a.txt", False, False)
    with pytest.raises(UsageError, match="there is no folder"):
        check_files(tmp_path / "no" / "a.csv", False, False)


# ---- results and summary ---------------------------------------------------------------------------------------------


@pytest.fixture
def finished(folder):
    plan = plan_of(
        folder,
        seeds="0..3",
        vary={"wind.gust_sigma": [0, 1.5], "wind.world_xyz": [[0, 0, 0], [1, 0, 0]]},
        metrics=["path_length", "collisions", "radio_drop", "passed"],
        **{"assert": ["path_length > 2 and collisions == 0", "mean(path_length) < 100", "share(passed) == 1"]},
    )
    outcomes = [RunOutcome(run, [run / 3.0, run % 2, None, True]) for run in range(15)] + [
        RunOutcome(15, [], "broken: x")
    ]
    return Finished.of(plan, outcomes)


def test_without_pyarrow_parquet_is_refused_before_anything_is_flown(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr("microsim.parts.sweep.results.import_module", absent)
    with pytest.raises(UsageError, match=r"pip install -e '.*\[sweep\]', or write a .csv file"):
        check_files(tmp_path / "a.parquet", False, False)
    check_files(tmp_path / "a.csv", False, False)


def test_csv_and_parquet_hold_the_same_to_the_bit(finished, tmp_path):
    from pyarrow import parquet

    for name in ("a.csv", "a.parquet"):
        write(tmp_path / name, finished)
    table = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert table == finished.rows
    read = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [float(row["path_length"]) for row in read[:-1]] == [run / 3.0 for run in range(15)]
    assert (read[0]["passed"], read[0]["radio_drop"], read[15]["path_length"]) == ("true", "", "")
    assert (read[15]["error"], read[4]["wind.world_xyz"], read[4]["seed"]) == ("broken: x", "[1,0,0]", "0")
    metadata = parquet.read_metadata(tmp_path / "a.parquet").metadata or {}
    assert set(metadata) <= {b"ARROW:schema"}


def test_the_summary_is_that_of_the_rows(finished):
    groups = summarised(finished.plan, finished.rows)
    assert [(group.key, group.value, group.runs) for group in groups] == [
        ("wind.gust_sigma", 0.0, 8),
        ("wind.gust_sigma", 1.5, 8),
        ("wind.world_xyz", "[0,0,0]", 8),
        ("wind.world_xyz", "[1,0,0]", 8),
    ]
    figures = groups[1].figures["path_length"]
    expected = [run / 3.0 for run in range(8, 15)]
    assert figures.mean == pytest.approx(statistics.fmean(expected))
    assert (figures.least, figures.most, figures.count) == (min(expected), max(expected), 7)
    assert groups[0].figures["radio_drop"] is None
    # path_length > 2 from run 7 on, collisions in every odd run, run 15 broken
    assert [bool(problem_of(row, finished.plan.conditions)) for row in finished.rows[6:10]] == [True, True, False, True]
    assert (groups[0].failed, groups[1].failed) == (8, 4)


def test_broken_assertions_name_a_run_that_breaks_them(finished):
    (only,) = broken(finished.plan.conditions, finished.rows)
    assert len(only.rows) == 11
    assert "does not hold in 11 runs: path_length > 2 and collisions == 0" in str(only)
    assert f"microsim replay --token {finished.rows[0]['token']}" in str(only)
    assert not finished.is_good


def test_a_picture_is_drawn(finished, tmp_path):
    draw(finished, tmp_path / "a.png")
    draw(finished, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(microsim.MicroSimError, match="ends with"):
        check_figure(tmp_path / "a.gif")


# ---- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_gives_its_run_again(folder):
    plan = plan_of(folder, seeds="0..3", vary={"wind.gust_sigma": [0, 2]}, duration=1.0)
    runner = SweepRunner(plan.order())
    for run in (0, 6):
        again = from_token(plan.token(run))
        assert run_one(again.sim, again.mission, again.token.duration, TAKEN) == dict(
            zip(TAKEN, runner.run(*plan.place(run)), strict=True)
        )
    runner.close()


def test_a_token_is_refused_when_its_files_have_changed(folder):
    plan = plan_of(folder, seeds="7")
    token = plan.token(0)
    world, mission = folder / "yard.yaml", folder / "drive.yaml"
    world.write_text("# a word more changes nothing\n" + world.read_text())
    before = from_token(token).sim.digest()
    text = mission.read_text()
    mission.write_text(text.replace("v: 1.5", "v: 1.4"))
    with pytest.raises(UsageError, match=r"the mission .* has changed since the token was made"):
        from_token(token)
    mission.write_text(text)
    moved = world.rename(folder / "moved.yaml")
    with pytest.raises(UsageError, match="say where it is with --scenario"):
        from_token(token)
    assert from_token(token, scenario=str(moved)).sim.digest() == before
    moved.write_text(moved.read_text().replace("gust_sigma: 0.5", "gust_sigma: 0.6"))
    with pytest.raises(UsageError, match=r"the scenario .* has changed"):
        from_token(token, scenario=str(moved))


def test_the_code_of_plug_ins_is_part_of_what_a_token_stands_for(folder):
    write_yard(folder, "pass")
    token = plan_of(folder, seeds="7").token(0)
    from_token(token)
    (folder / "odd.py").write_text(PLUGIN.replace("BODY", "noise = 2"))
    with pytest.raises(UsageError, match="has changed"):
        from_token(token)


def test_the_command_line_replays_a_token(folder):
    done = cli("sweep", "yard.yaml", "--mission", "drive.yaml", "--seeds", "7", "--metrics", "digest,path_length",
               "--out", "a.csv", "--jobs", "1", cwd=folder)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = csv.DictReader(io.StringIO((folder / "a.csv").read_text()))
    again = cli("replay", "--token", row["token"], "--record", "bag", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert f"digest {row['digest']}" in again.stdout
    assert re.search(rf"^  path_length +{re.escape(row['path_length'])}$", again.stdout, re.MULTILINE)
    assert (folder / "bag").is_dir()


def test_a_token_stands_alone(folder):
    for words, expected in (
        (["bag", "--token", "microsim-", "--seed", "3"], "leave out BAG, --seed"),
        (["--token", "hello"], "expected a token that begins with microsim-"),
    ):
        result = CliRunner().invoke(app, ["replay", *words])
        assert isinstance(result.exception, UsageError)
        assert expected in str(result.exception)
