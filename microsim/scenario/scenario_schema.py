"""The JSON schema of a scenario, for editors that complete and check while one types.

It is made from the models, so that it cannot fall behind them. It does not know what only shows at load: files,
plug-ins, starts, rates beside physics_hz, and conditions between two keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.json_schema import models_json_schema

from microsim.documents.values import Model
from microsim.generators import GENERATORS
from microsim.robots.robot import COMMON_SENSORS, FURTHER_SENSORS, RESERVED_NAMES, ROBOTS
from microsim.scenario.models import Scenario
from microsim.scenario.world_models import FEATURES, OBSTACLES, PATCHES, FlatElevation, HillsElevation
from microsim.sensors.plugin import PluginSensor

Schema = dict[str, Any]

ROS_NAME = "^[a-z][a-z0-9_]{0,63}$"


def json_schema() -> Schema:
    """JSON schema (draft 2020-12) of what `load_scenario` takes."""
    generators = {name: each.options for name, each in GENERATORS.built_in.items() if each.options is not None}
    models: list[type[Any]] = [
        Scenario, *ROBOTS.built_in.values(), *FURTHER_SENSORS.values(), PluginSensor, *generators.values()
    ]  # fmt: skip
    _, whole = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Schema] = whole["$defs"]
    for model in all_models():
        if model.__name__ in definitions:
            _describe(definitions[model.__name__], model)
            _allow_class_id(definitions[model.__name__])
    for kind in (*OBSTACLES.values(), *FEATURES.values(), *PATCHES.values(), *FURTHER_SENSORS.values()):
        _require(definitions[kind.__name__], "type")
    for elevation in (FlatElevation, HillsElevation):
        _require(definitions[elevation.__name__], "generate")
    for robot in ROBOTS.built_in.values():
        _let_parts_be_switched(definitions[robot.__name__])
    definitions["Map"]["properties"]["image"]["anyOf"].append({"type": "string"})  # the path of its YAML file
    _open_to_plugins(definitions, generators)
    _name_robots(definitions)
    scenario = definitions.pop("Scenario")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **scenario,
        "title": "MicroSim scenario",
        "$defs": definitions,
    }


def all_models(root: type[Model] = Model) -> list[type[Model]]:
    """Every block a scenario can hold."""
    return [model for kind in root.__subclasses__() for model in (kind, *all_models(kind))]


def _describe(definition: Schema, model: type[Model]) -> None:
    """pydantic leaves the description out where a field has a validator and a model for a type."""
    for name, field in model.model_fields.items():
        definition["properties"][field.alias or name].setdefault("description", field.description)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _require(definition: Schema, key: str) -> None:
    definition["required"] = sorted({key, *definition.get("required", ())})


def _allow_class_id(definition: Schema) -> None:
    properties = definition.get("properties", {})
    if "class" not in properties:
        return
    properties["class_id"] = {**properties["class"], "title": "Class Id"}
    if "class" in definition.get("required", ()):
        definition["required"].remove("class")
        definition["anyOf"] = [{"required": ["class"]}, {"required": ["class_id"]}]


def _let_parts_be_switched(robot: Schema) -> None:
    """`camera: null` and `camera: false` take a sensor away; `scan: true`, `dynamics: true`: with every default."""
    for name in (*COMMON_SENSORS, "dynamics"):
        if name in robot["properties"]:
            robot["properties"][name]["anyOf"].append({"type": "boolean"})


def _open_to_plugins(definitions: dict[str, Schema], generators: Mapping[str, type[Any]]) -> None:
    for name, options in generators.items():
        block = definitions[options.__name__]
        block["properties"] = {
            "plugin": {"const": name, "description": (options.__doc__ or name)},
            **block["properties"],
        }
        _require(block, "plugin")
    definitions["PluginEntry"] = {
        "title": "PluginEntry",
        "description": "Obstacles and features from a generator: `{plugin: NAME, ...options}`.",
        "type": "object",
        "required": ["plugin"],
        "properties": {
            "plugin": {"type": "string", "not": {"enum": list(generators)}, "description": "Name of the generator."}
        },
    }
    for key in ("obstacles", "features"):
        items = definitions["Scenario"]["properties"][key]["items"]
        items["anyOf"] += [*(_ref(options.__name__) for options in generators.values()), _ref("PluginEntry")]
    controller = definitions["ControllerBlock"]
    del controller["properties"]["options"]
    controller["additionalProperties"] = True
    by_robot = definitions["Scenario"]["properties"]["controllers"]
    by_robot["additionalProperties"] = {"anyOf": [{"type": "string"}, _ref("ControllerBlock")]}
    sensor = definitions["PluginSensor"]
    del sensor["properties"]["options"]
    sensor["properties"]["type"]["not"] = {"enum": list(COMMON_SENSORS)}
    sensor["additionalProperties"] = True
    further = [_ref(kind.__name__) for kind in FURTHER_SENSORS.values()]
    for robot in ROBOTS.built_in.values():
        left_out = [{"type": "null"}] * robot.is_vehicle  # a sensor of the world bundle
        definitions[robot.__name__]["properties"]["sensors"] |= {
            "additionalProperties": False,
            "patternProperties": {
                _ros_name_but(COMMON_SENSORS): {"anyOf": [*further, _ref("PluginSensor"), *left_out]}
            },
        }


def _name_robots(definitions: dict[str, Schema]) -> None:
    """A robot needs no `model` where its name is one; models of other packages are taken on trust."""
    other = {
        "type": "object",
        "required": ["model"],
        "properties": {"model": {"type": "string", "not": {"enum": list(ROBOTS.built_in)}}},
    }
    named = [{"allOf": [_ref(kind.__name__), {"required": ["model"]}]} for kind in ROBOTS.built_in.values()]
    definitions["AnyRobot"] = {"title": "AnyRobot", "description": "A robot under any name.", "anyOf": [*named, other]}
    definitions["Scenario"]["properties"]["robots"] |= {
        "additionalProperties": False,
        "properties": {
            name: {"anyOf": [_ref(kind.__name__), {"type": "null"}, _ref("AnyRobot")]}
            for name, kind in ROBOTS.built_in.items()
        },
        "patternProperties": {_ros_name_but([*ROBOTS.built_in, *RESERVED_NAMES]): _ref("AnyRobot")},
    }
    for name in ("Robot", "SensorBlock", "Start", "Pose"):
        if _ref(name)["$ref"] not in json.dumps({key: each for key, each in definitions.items() if key != name}):
            definitions.pop(name, None)


def _ros_name_but(taken: Iterable[str]) -> str:
    return ROS_NAME.replace("^", f"^(?!(?:{'|'.join(taken)})$)")
