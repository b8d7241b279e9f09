"""An angle of more than a turn was probably meant in degrees: a warning with its place, for every key that is one."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from microsim.cli import app
from microsim.documents.values import in_degrees
from microsim.errors import ScenarioWarning
from microsim.parts.missions import load_mission
from microsim.parts.missions.mission_file import TeleportPlace
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings
from microsim.parts.small_nodes.rover_node import RoverSettings
from microsim.scenario import load_scenario
from microsim.scenario.map_images import MapImage
from microsim.scenario.scenario_schema import all_models

ROVER = """\
robots:
  rover:
    start: {map_pose: {x: 10, y: 10, yaw: 90}}
    camera: {mount: {rpy: [0, 180, -0.1]}}
"""
TEXT = "angles are in radians: 90 is 14.3 turns; for 90° write 1.5708"


def said(function: Any, *arguments: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ScenarioWarning)
        function(*arguments)
    return [str(each.message.problem) for each in caught if isinstance(each.message, ScenarioWarning)]


def test_an_angle_in_degrees_is_warned_about_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(ROVER)
    assert said(load_scenario, "my.yaml") == [
        f"my.yaml:3:43: robots.rover.start.map_pose.yaw: {TEXT}",
        "my.yaml:4:31: robots.rover.camera.mount.rpy[1]: angles are in radians: 180 is 28.6 turns; "
        "for 180° write 3.1416",
    ]


def test_a_mission_warns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("go.yaml").write_text("duration: 1\ndo:\n- at: 0\n  robot: rover\n  teleport: {x: 1, y: 1, yaw: -90}\n")
    found = said(load_mission, "go.yaml")
    assert len(found) == 1
    assert found[0].startswith("go.yaml:5:31: do[0].teleport.yaw: angles are in radians: -90 is 14.3 turns")


@pytest.mark.parametrize("yaw", [0, math.pi, -2 * math.pi, 6.28])
def test_angles_of_up_to_a_turn_are_not_doubted(yaw: float) -> None:
    assert said(load_scenario, {"robots": {"rover": {"start": {"map_pose": {"yaw": yaw}}}}}) == []


def test_commands_show_the_warning_once_and_validate_lists_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(ROVER)
    done = CliRunner().invoke(app, ["run", "my.yaml", "--duration", "0", "--rtf", "0", "-q"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stderr.count(f"microsim: warning: my.yaml:3:43: robots.rover.start.map_pose.yaw: {TEXT}") == 1
    done = CliRunner().invoke(app, ["validate", "my.yaml", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(done.stdout)[0]
    assert report["ok"]
    assert [(each["line"], each["is_warning"]) for each in report["problems"]] == [(3, True), (4, True)]


# ---- every key -------------------------------------------------------------------------------------------------------

OTHERS = (TeleportPlace, MapImage, RobotSimulatorSettings, RoverSettings)


def keys_in_radians() -> list[tuple[type[BaseModel], str]]:
    """Keys whose description says [rad], or that are named as angles are; neither noise nor mappings."""
    models = [each for each in all_models() if each.__module__.startswith("microsim.")]
    return [
        (model, name)
        for model in dict.fromkeys([*models, *OTHERS])
        for name, field in model.model_fields.items()
        if ("[rad]" in (field.description or "") or name in ("yaw", "rpy"))
        and not re.search("sigma|noise|command", name)
    ]


def parts(kind: Any) -> list[Any]:
    inner = kind.metadata if isinstance(kind, FieldInfo) else get_args(kind)
    return [kind, *(deeper for each in inner for deeper in parts(each))]


def declared(model: type[BaseModel], name: str) -> list[Any]:
    """Everything that the key's type consists of."""
    field = model.model_fields[name]
    return [*field.metadata, *parts(field.annotation)]


def test_there_are_many_keys_in_radians() -> None:
    assert len(keys_in_radians()) > 20


@pytest.mark.parametrize(("model", "name"), keys_in_radians(), ids=lambda each: getattr(each, "__name__", each))
def test_every_key_in_radians_refuses_degrees_or_is_warned_about(model: type[BaseModel], name: str) -> None:
    found = declared(model, name)
    lists = [get_args(each) for each in found if get_origin(each) is tuple]
    field = model.model_fields[name]
    try:
        TypeAdapter(Annotated[(field.annotation, *field.metadata, None)]).validate_python(
            (90.0,) * len(lists[0]) if lists else 90.0
        )
    except ValidationError:
        return  # 90 is refused
    others: dict[str, Any] = dict.fromkeys(model.model_fields)
    made = model.model_construct(**{**others, name: (90.0,) * len(lists[0]) if lists else 90.0})
    places = [path for _, path in in_degrees({"deep": [made]})]
    assert places
    assert all(path[:3] == ("deep", 0, name) for path in places)
