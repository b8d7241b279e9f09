"""What commands print with `--json` has a published schema, and fits it."""

import json
import runpy
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from microsim.cli import app
from microsim.cli.command import json_outputs
from microsim.errors import UsageError
from tests.json_support import assert_published
from tests.sweep_support import write_yard

ROOT = Path(__file__).resolve().parents[3]
TOOL = runpy.run_path(str(ROOT / "docs" / "make_schemas.py"), run_name="schemas")


def output(*arguments: object, code: int = 0):
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Two recordings that differ, and the output of the run that made the first."""
    folder = tmp_path_factory.mktemp("bags")
    (folder / "far.yaml").write_text("duration: 1\nexpect: [{robot: rover, value: x, at_least: 1000}]\n")
    mission = ("--mission", folder / "far.yaml", "--rtf", 0, "--json", "--quiet")
    made = output("run", "flat", *mission, "--record", folder / "a", code=1)
    output("run", "flat", "--seed", 2, "--duration", 1, "--rtf", 0, "--json", "--record", folder / "b")
    return folder / "a", folder / "b", made


def test_the_published_schemas_are_what_the_commands_declare():
    published = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in TOOL["FOLDER"].glob("*.json")}
    assert published == TOOL["schemas"](), "run: python docs/make_schemas.py"


def test_every_command_with_json_declares_its_output():
    def named(command, name):
        for each, below in getattr(command, "commands", {}).items():
            if below.hidden:  # another spelling
                continue
            yield from named(below, f"{name} {each}".strip())
        if any("--json" in parameter.opts for parameter in command.params):
            yield name

    root = typer.main.get_command(app)
    found = [each for name in root.list_commands(None) for each in named(root.get_command(None, name), name)]
    missing = sorted(set(found) - set(json_outputs()))
    assert not missing, f"name the output of these in their Command(json=...): {missing}"
    assert sorted(found) == sorted(json_outputs())


def test_run_and_its_mission(bags):
    assert bags[2]["mission"]["violations"]
    assert_published("run", bags[2])


def test_demo(tmp_path):
    assert_published("demo", output("demo", "hover", "--no-view", "--duration", 0.5, "--rtf", 0, "--json"))


def test_recordings(bags):
    one, other, _ = bags
    assert_published("bag info", output("bag", "info", one, "--json"))
    assert_published("diff", output("diff", one, one, "--json"))
    assert_published("diff", output("diff", one, other, "--json", code=1))
    assert_published("replay", output("replay", one, "--json"))
    assert_published("replay", output("replay", one, "--verify", "--json"))


def test_scenarios_and_worlds(tmp_path):
    assert_published("list", output("list", "--json"))
    (tmp_path / "bad.yaml").write_text("robots: {rover: {max_v: fast}}\n")
    (tmp_path / "empty").mkdir()
    sources = ("flat", "hover", "minimal_test", tmp_path / "bad.yaml", tmp_path / "nowhere.yaml")
    assert_published("validate", output("validate", *sources, "--json", code=2))
    assert_published("bundle info", output("bundle", "info", "minimal_test", "--json"))


def test_sweeps_and_searches(tmp_path, monkeypatch):
    write_yard(tmp_path)
    monkeypatch.chdir(tmp_path)
    sweep = ("sweep", "yard.yaml", "--mission", "drive.yaml", "--jobs", 1, "--json")
    made = output(*sweep, "--seeds", 0, "--assert", "path_length > 99", code=1)
    assert_published("sweep", made)
    assert_published("sweep", output(*sweep, "--seeds", 0, "--find", "path_length > 99"))
    found = output(*sweep, "--seeds", 0, "--find", "path_length > 1", "--shrink-runs", 3, code=1)
    assert_published("sweep", found)
    assert_published("replay", output("replay", "--token", found["token"], "--json"))


def test_a_field_that_is_gone_is_noticed():
    lost = lambda before, after: list(TOOL["lost"](before, after))  # noqa: E731
    number, text = {"type": "number"}, {"type": "string"}
    before = {"type": "object", "properties": {"a": number, "b": text}, "required": ["a"]}
    more = {**before, "properties": {**before["properties"], "c": text}, "required": ["a", "c"]}
    assert lost(before, more) == []
    assert lost(more, before) == ["c: is gone"]
    assert lost(before, {**before, "required": []}) == ["a: may be missing now"]
    assert lost(before, {**before, "properties": {"a": text, "b": text}}) == ["a: type was number, is string"]
    either = {"anyOf": [number, {"type": "null"}]}
    assert lost(either, {"anyOf": [number]}) == ["the output: its form 2 is gone or has changed"]


def test_the_schema_command_prints_them_and_names_the_nearest():
    assert output("schema", "bag", "info") == TOOL["schemas"]()["bag_info.json"]
    with pytest.raises(UsageError, match=r"no command with --json 'bag inf'; did you mean 'bag info'\?"):
        output("schema", "bag", "inf")
