"""The JSON schema and the models say the same."""

import json
import re
from typing import Annotated, Any

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from microsim.documents.values import Model, describe_error
from microsim.documents.yaml_text import read_yaml
from microsim.errors import ScenarioError
from microsim.paths import scenario_file, scenario_names
from microsim.scenario import Scenario, json_schema, load_scenario
from microsim.scenario.scenario_schema import all_models

SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
BOX = {"type": "box", "center": [50, 50, 0], "size": [1, 1, 1]}


def robot(**block: Any) -> dict[str, Any]:
    return {"robots": {"drone": block}}


def test_the_schema_is_a_schema() -> None:
    VALIDATOR.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    json.dumps(SCHEMA)


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_and_its_dump_are_valid(name: str) -> None:
    text = read_yaml(scenario_file(name).read_text(encoding="utf-8"), name).data
    VALIDATOR.validate(text)
    VALIDATOR.validate(load_scenario(name).to_dict())


def models() -> list[type[Model]]:
    return [model for model in all_models() if model.__module__.startswith("microsim.scenario")]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_block_and_every_key_is_explained(model: type[Model]) -> None:
    assert model.__doc__
    for name, field in model.model_fields.items():
        assert field.description, name
        assert field.description.endswith((".", "].")), name


def test_every_key_of_every_block_is_in_the_schema() -> None:
    blocks = {"Scenario": SCHEMA, **SCHEMA["$defs"]}
    hidden = {
        "Robot",
        "Start",
        "Pose",
        "SensorBlock",
        "MountedSensor",
        "Solid",
    }  # bases of others
    for model in models():
        if model.__name__ in hidden:
            continue
        properties = blocks[model.__name__]["properties"]
        missing = {*model.key_names()} - {*properties} - {"options"}
        assert not missing, model.__name__
        assert all("description" in each for each in properties.values()), model.__name__


def test_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    named = {part.split('"')[0] for part in json.dumps(SCHEMA).split('"$ref": "#/$defs/')[1:]}
    assert named == set(SCHEMA["$defs"])


def test_defaults_in_the_schema_are_those_of_the_models() -> None:
    dump = {
        "collisions": "document",
        "lockstep": [],
        "controllers": {},
        **Scenario().to_dict(),
    }  # younger keys are left out
    for key, described in SCHEMA["properties"].items():
        assert described["default"] == dump.get(key), key  # what is null by default may be left out


GOOD: list[dict[str, Any]] = [
    {},
    {"robots": {}},
    {"robots": {"drone": None, "rover": None, "scout": {"model": "rover", "max_v": 3}}},
    {"robots": {"drone": {"model": "rover", "max_v": 3}}},
    robot(camera=None, gps=False, scan=True, range={}),
    robot(sensors={"eye": {"type": "camera", "hz": 5}}),
    {"obstacles": [{"plugin": "random_maze", "region": [30, 30, 60, 60], "corridor_m": 3}, {**BOX, "class": "hazard"}]},
    {"features": [{"type": "circle", "class_id": "water", "center": [1, 2], "radius": 3}]},
    {"map": {"elevation": {"generate": "hills", "seed": None}, "surface_types": {"default": "water"}}, "robots": {}},
    {"physics_hz": 100.5, "radio": {"rssi": {}, "metrics_hz": 0}},
]

BAD: list[dict[str, Any]] = [
    {"nmae": "x"},
    {"name": 3},
    {"seed": 1.5},
    {"seed": True},
    {"seed": 2**63},
    {"physics_hz": 0},
    {"physics_hz": "60"},
    {"map": {"size_xy_cells": [0, 5]}},
    {"map": {"size_xy_cells": [5]}},
    {"map": {"cell_size_m": -1}},
    {"map": {"elevation": {"generate": "hils"}}},
    {"map": {"elevation": {}}},
    {"map": {"surface_types": {"default": 7}}},
    {"map": {"surface_types": {"patches": [{"type": "circle", "center": [1, 1], "radius": 1}]}}},
    {"obstacles": {}},
    {"obstacles": [{"center": [1, 1, 1], "size": [1, 1, 1]}]},
    {"obstacles": [{**BOX, "size": [1, 1]}]},
    {"obstacles": [{**BOX, "size": [1, 1, 0]}]},
    {"obstacles": [{**BOX, "yaw": 1}]},
    {"obstacles": [{"type": "circle", "class": 1, "center": [1, 1], "radius": 1}]},
    {"obstacles": [{"plugin": "random_maze"}]},
    {"features": [{"type": "circle", "class": "watr", "center": [1, 1], "radius": 1}]},
    {"features": [BOX]},
    {"robots": None},
    {"robots": {"Drone": {"model": "drone"}}},
    {"robots": {"scout": {}}},
    {"robots": {"rover": {"max_vx": 3}}},
    robot(max_v=3),
    robot(camera=3),
    robot(camera={"reolution": {}}),
    robot(camera={"projection": "flat"}),
    robot(camera={"latency_ms": {"drop_probability": 1.5}}),
    robot(sensors={"camera": {"type": "camera"}}),
    robot(sensors={"eye": {"hz": 3}}),
    robot(gps={"hz": 0}),
    {"radio": None},
    {"radio": {"drop_probability": -1}},
    {"wind": {"world_xyz": [1, 2]}},
    {"stamped_cmd_vel": 1},
    {"plugins": "folder"},
]


@pytest.mark.parametrize("data", GOOD, ids=str)
def test_both_accept(data: dict[str, Any]) -> None:
    load_scenario(data)
    VALIDATOR.validate(data)


@pytest.mark.parametrize("data", BAD, ids=str)
def test_both_refuse(data: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError):
        load_scenario(data)
    assert not VALIDATOR.is_valid(data)


@pytest.mark.parametrize("model", all_models(), ids=lambda model: model.__name__)
def test_what_a_number_must_be_reads_the_same_however_far_it_is_off(model: type[Model]) -> None:
    for name, field in model.model_fields.items():
        kind: TypeAdapter[Any] = TypeAdapter(Annotated[(field.annotation, *field.metadata, "")])  # type: ignore[misc]
        for values in ((0.0, -1.0, -1e300), (1e19, 1e300)):
            texts = {text for text in (_bound(kind, value) for value in values) if text}
            assert len(texts) <= 1, f"{model.__name__}.{name}: {texts}"


def _bound(kind: TypeAdapter[Any], number: float) -> str:
    """What is expected of a number that is refused for its size."""
    try:
        kind.validate_python(number)
    except ValidationError as error:
        texts = (describe_error(each) for each in error.errors(include_url=False))
        found = (text.partition(", found")[0] for text in texts)
        return next((text for text in found if re.search(r"above|below|at least|at most|from [-\d]", text)), "")
    return ""
