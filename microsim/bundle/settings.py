"""The small configuration files: `metadata.json`, `timebase.yaml`, and what `world.yaml` says itself."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from microsim.bundle.fields import Fields
from microsim.bundle.models import StartPose, Timebase, Vector, Vehicle
from microsim.bundle.report import Source
from microsim.engine.exact import PI
from microsim.errors import show


def read_metadata(source: Source) -> tuple[Vector, str]:
    """Origin on Earth, description. Fields of other programs are left alone: this is the place for them."""
    assert source.document is not None
    fields = Fields(source, source.document.data)
    remedy = "map coordinates are x east, y north, z up, in metres"
    fields.choice("coordinate_system", ["ENU"], "ENU", "map-frame", remedy)
    fields.choice("units", ["m", "metre", "meter"], "m", "map-frame", remedy)
    description = fields.text("description", "")
    origin = fields.block("origin")
    if origin is None:
        return (0.0, 0.0, 0.0), description
    latitude = origin.number("latitude_deg", least=-90.0, most=90.0)
    longitude = origin.number("longitude_deg", least=-180.0, most=180.0)
    altitude = origin.number("altitude_m", 0.0, least=-20_000.0, most=1e7)
    _degrees_only(origin, "latitude", "longitude")
    origin.done()
    return (latitude, longitude, altitude), description


def _degrees_only(fields: Fields, *names: str) -> None:
    for name in names:
        if fields.has(name):
            fields.known.append(name)
            fields.wrong((name,), f"'{name}' is in degrees", "degrees", f"name it '{name}_deg'", at_key=True)


def read_timebase(source: Source) -> Timebase:
    assert source.document is not None
    fields = Fields(source, source.document.data)
    fields.known.append("version")
    defaults = Timebase()
    physics = fields.number("physics_hz", defaults.physics_hz, above=0.0, most=10_000.0)
    timeout = fields.number("control_timeout_s", defaults.control_timeout_s, above=0.0, most=3600.0)
    brake = fields.number("emergency_brake_m_per_s2", defaults.emergency_brake_m_per_s2, above=0.0, most=100.0)
    simulated = fields.take("use_sim_time", True)
    if simulated is not True:
        message = f"expected true, found {show(simulated)}"
        fields.wrong(("use_sim_time",), message, "simulated-time", "write use_sim_time: true")
    fields.done()
    whole = math.isfinite(physics) and physics == int(physics)
    return Timebase(int(physics) if whole else physics, timeout, brake)


def read_vehicle(block: Fields | None) -> tuple[Vehicle | None, StartPose | None]:
    """The block `vehicle:` of world.yaml; every field has a default."""
    if block is None:
        return None, None
    start = _start(block.block("start", required=False))
    values = {field.name: _vehicle_field(block, field.name, field.default) for field in dataclasses.fields(Vehicle)}
    block.done()
    least = values["rear_overhang_m"] + values["wheelbase_m"]
    if values["length_m"] < least:
        message = f"expected at least rear_overhang_m + wheelbase_m, which is {least:g}, found {values['length_m']:g}"
        block.wrong(("length_m",), message)
    return Vehicle(**values), start


def _vehicle_field(block: Fields, name: str, default: Any) -> float:
    if name == "max_steer":
        return block.angle(name, default, least=0.01, most=0.45 * PI)
    if name == "max_steer_rate":
        return block.angle(name, default, least=0.001, most=100.0)
    if name == "rear_overhang_m" or name == "max_reverse_m_per_s":
        return block.number(name, default, least=0.0, most=100.0)
    return block.number(name, default, above=0.0, most=1000.0)


def _start(block: Fields | None) -> StartPose | None:
    if block is None:
        return None
    pose = StartPose(block.number("x"), block.number("y"), block.angle("yaw", 0.0, least=-2.0 * PI, most=2.0 * PI))
    block.done()
    return pose
