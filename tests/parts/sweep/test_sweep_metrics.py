"""Metrics register themselves: a class here, a file in a plug-in folder or an installed package, and nothing else."""

import csv
import io
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import microsim
from docs.ext import reference
from microsim.errors import PluginError, SweepError, UsageError
from microsim.parts.missions import load_mission
from microsim.parts.sweep import metrics as built_in
from microsim.parts.sweep.find import wanted
from microsim.parts.sweep.metrics import METRICS, Metric, all_metrics, find_metric
from microsim.parts.sweep.plan import load_sweep, make_plan
from microsim.parts.sweep.run_one import SweepRunner, from_token, needs_messages, run_one
from tests.cli_support import run_microsim as cli
from tests.sweep_support import write_yard

BUMPS = '''
from microsim.parts.sweep.metrics import Metric

class Bumps(Metric):
    """Ticks in which a robot was slower than in the tick before."""

    name, kind, unit, of_robots = "bumps", int, "ticks", True

    def __init__(self, run, robots):
        super().__init__(run, robots)
        self.count = 0

    def look(self, block):
        for robot in self.robots:
            speeds = abs(block[robot][:, 4:7]).sum(axis=1)
            self.count += (speeds[1:] < speeds[:-1]).sum()

    def value(self):
        return self.count

METRIC = Bumps
'''
SWEEP = """
scenario: yard.yaml
mission: drive.yaml
seeds: 0..1
metrics: [bumps, bumps.rover, path_length]
assert: [bumps >= 0, share(bumps.rover > 1000) == 0]
"""


@pytest.fixture
def folder(tmp_path):
    """A scenario that names a folder of plug-ins with one metric, and a sweep that uses it."""
    write_yard(tmp_path)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "bumps.py").write_text(BUMPS)
    (tmp_path / "yard.yaml").write_text((tmp_path / "yard.yaml").read_text() + "plugins: [plugins]\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def subclasses(kind):
    return {each for direct in kind.__subclasses__() for each in (direct, *subclasses(direct))}


def test_every_named_class_is_a_metric_and_nothing_else_is():
    named = {each for each in subclasses(Metric) if each.__module__ == built_in.__name__ and "name" in vars(each)}
    assert named == set(METRICS.values())
    assert {metric.name: metric for metric in named} == METRICS
    assert len(METRICS) == 22
    assert list(METRICS)[:2] == ["collisions", "contact_s"]  # the order of the documentation


def test_the_table_in_the_documentation_is_that_of_the_registry():
    rows = [line.split("|") for line in reference.metrics().splitlines()[2:]]
    assert [row[1].strip() for row in rows] == [f"`{name}`" for name in METRICS]
    for row, metric in zip(rows, METRICS.values(), strict=True):
        assert row[4].strip() == " ".join(metric.__doc__.split())


def test_a_metric_in_a_folder_is_known_to_the_sweep_its_conditions_workers_and_tokens(folder, monkeypatch):
    monkeypatch.chdir(folder)
    sweep = load_sweep(folder / "sweep.yaml")
    plan = make_plan(sweep)
    assert plan.metrics == ("bumps", "bumps.rover", "path_length")
    assert plan.columns["bumps"] is int
    assert wanted(sweep, "bumps.rover > 0 and path_length < 9").metrics == ("bumps.rover", "path_length")
    runner = SweepRunner(plan.order())
    total, rover, _ = runner.run(0, 0)
    runner.close()
    assert 0 <= rover <= total
    assert total > 0
    again = from_token(plan.token(0)).metric_run()
    assert "bumps" in again.values()


def test_the_command_line_knows_it_too(folder):
    options = ("--plugins", "plugins", "--jobs", "1", "--out", "a.csv", "--plot", "a.svg")
    done = cli("sweep", "sweep.yaml", *options, cwd=folder)
    assert "plot written to a.svg\n" in done.stderr
    assert (folder / "a.svg").exists()
    assert done.returncode == 0, done.stderr
    assert "2 assertions hold" in done.stdout
    rows = list(csv.DictReader(io.StringIO((folder / "a.csv").read_text())))
    assert all(int(row["bumps"]) >= int(row["bumps.rover"]) for row in rows)


def test_a_misspelt_metric_of_a_plug_in_is_answered_with_its_name(folder):
    (folder / "sweep.yaml").write_text(SWEEP.replace("[bumps,", "[bump,"))
    with pytest.raises(SweepError, match=r"no metric 'bump'; did you mean 'bumps'\?"):
        load_sweep(folder / "sweep.yaml")
    with pytest.raises(UsageError, match="no metric 'bumps'"):
        find_metric("bumps")


def test_a_scenario_that_cannot_be_loaded_is_the_problem_not_its_metrics(folder):
    (folder / "yard.yaml").write_text("robts: {}\nplugins: [plugins]\n")
    with pytest.raises(microsim.ScenarioError, match="did you mean 'robots'"):
        make_plan(load_sweep(folder / "sweep.yaml"))


def test_a_journal_is_not_continued_with_another_version_of_the_metric(folder):
    before = make_plan(load_sweep(folder / "sweep.yaml")).identity
    assert make_plan(load_sweep(folder / "sweep.yaml")).identity == before
    (folder / "plugins" / "bumps.py").write_text(BUMPS.replace("return self.count", "return self.count + 1"))
    assert make_plan(load_sweep(folder / "sweep.yaml")).identity != before


def test_an_installed_package_adds_a_metric_by_entry_point(monkeypatch):
    entry = EntryPoint("digest_twin", "tests.parts.sweep.test_sweep_metrics:Twin", "microsim.metrics")
    monkeypatch.setattr(built_in._REGISTRY, "_entries", lambda: [entry])
    assert find_metric("twin") is Twin
    assert list(all_metrics()) == [*METRICS, "twin"]
    assert load_sweep({"duration": 1, "metrics": ["twin"], "assert": ["twin == 'x'"]}).all_metrics == ("twin",)


def test_the_metric_on_the_page_works(folder):
    page = (Path(__file__).resolve().parents[3] / "docs" / "do/sweeps.md").read_text(encoding="utf-8")
    text = page.split(":caption: plugins/climb.py\n")[1].split("```")[0]
    (folder / "plugins" / "climb.py").write_text(text)
    world = microsim.load_scenario(folder / "yard.yaml")
    up_and_down = [{"robot": "drone", "command": {"vz": 1}}, {"at": 1, "robot": "drone", "command": {"vz": -1}}]
    mission = load_mission({"duration": 3, "do": up_and_down, "expect": []})
    found = run_one(microsim.Simulation(world), mission, None, ["climb", "climb.rover", "climb.drone"])
    assert found["climb.rover"] == 0.0
    assert found["climb"] == found["climb.drone"] == pytest.approx(1.0, abs=0.5)


class Twin(Metric):
    """Text."""

    name, kind = "twin", str

    def value(self):
        return "x"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("METRIC = Bumps", "METRIC = 5", "bumps.py: expected METRIC = a subclass of Metric, found 5"),
        ("METRIC = Bumps", "METRIC = int", "bumps.py: expected METRIC = a subclass of Metric"),
        (" int,", " list,", "bumps.py: expected the kind float, int, bool or str"),
        ('"bumps"', '"my bumps"', "expected a name such as 'tilt' for the metric, found 'my bumps'"),
        ('"bumps"', '"collisions"', "there is another metric named 'collisions'"),
        ("def value", "def result", r"bumps.py: the metric 'bumps' has no method value\(\)"),
        ("METRIC = Bumps", "METRIC = Bump", "bumps.py:.*could not be loaded: NameError"),
    ],
)
def test_a_plug_in_that_is_wrong_is_refused_by_its_file(folder, old, new, message):
    (folder / "plugins" / "bumps.py").write_text(BUMPS.replace(old, new))
    with pytest.raises(PluginError, match=message):
        make_plan(load_sweep(folder / "sweep.yaml"))


def test_a_value_of_the_wrong_kind_is_refused_by_the_name_of_its_metric(folder):
    (folder / "plugins" / "bumps.py").write_text(BUMPS.replace("return self.count", "return 'many'"))
    world, mission = microsim.load_scenario(folder / "yard.yaml"), load_mission(folder / "drive.yaml")
    with pytest.raises(PluginError, match="the metric 'bumps' returned 'many'; expected int or None"):
        run_one(microsim.Simulation(world), mission, 0.1, ["bumps"])


def test_a_metric_that_hears_messages_gets_them(folder):
    world = microsim.load_scenario(folder / "yard.yaml")
    assert not needs_messages(world, None, ["bumps"])
    (folder / "plugins" / "bumps.py").write_text(
        BUMPS.replace(
            "def look(self, block):",
            "def hear(self, messages):\n        self.count += len(messages)\n\n    def see(self, block):",
        )
    )
    assert needs_messages(world, None, ["bumps"])
    assert run_one(microsim.Simulation(world), None, 0.5, ["bumps"])["bumps"] > 30
