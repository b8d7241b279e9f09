"""What the core has by name: scenarios, worlds, robots, sensors, generators, faults."""

from __future__ import annotations

from collections.abc import Mapping

from microsim import paths
from microsim.errors import MicroSimError
from microsim.listings import Listing, first_line
from microsim.shipped import first_comment, world_about


def _robots() -> Mapping[str, str]:
    from microsim.robots.robot import ROBOTS

    found = {name: first_line(model) for name, model in ROBOTS.built_in.items()}
    return {**found, **dict.fromkeys(ROBOTS.plugin_names(), "plug-in")}


def _sensors() -> Mapping[str, str]:
    from microsim.robots.robot import COMMON_SENSORS
    from microsim.sensors import SENSORS

    found = {name: first_line(sensor.settings) for name, sensor in COMMON_SENSORS.items()}
    return {**found, **dict.fromkeys(SENSORS.plugin_names(), "plug-in")}


def _generators() -> Mapping[str, str]:
    from microsim.generators import GENERATORS

    return {name: _generator_about(name) for name in GENERATORS.names()}


def _generator_about(name: str) -> str:
    from microsim.generators import GENERATORS

    try:
        generator = GENERATORS.find(name)
    except MicroSimError as error:
        return f"cannot be loaded: {error}"
    return first_line(generator.generate) if generator is not None else ""


def _faults() -> Mapping[str, str]:
    from microsim.faults import FAULTS

    return {name: kind.about for name, kind in FAULTS.built_in.items()}


LISTING = (
    Listing(
        "scenarios", 10, lambda: {each: first_comment(paths.scenario_file(each)) for each in paths.scenario_names()}
    ),
    Listing("worlds", 30, lambda: {each: world_about(each) for each in paths.world_names()}),
    Listing("robots", 40, _robots),
    Listing("sensors", 50, _sensors),
    Listing("generators", 60, _generators),
    Listing("faults", 70, _faults),
)
