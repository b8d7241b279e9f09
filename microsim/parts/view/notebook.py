"""What a notebook shows of scenarios, runs and batches: a table beside a map."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from microsim.engine.world import World
from microsim.parts.view.dashboard.world_map import MapView, map_image, robot_colour
from microsim.scenario import Scenario
from microsim.scenario.scene import build_world
from microsim.simulation import Simulation

_SIDE_PX, _MOST_DOTS = 360, 5000
_STYLE = "display:flex;gap:16px;align-items:flex-start;font-family:system-ui,sans-serif;font-size:14px"


def html_of(subject: Any) -> str:
    """Of a `Scenario`, a `Simulation` or a `BatchSimulation`."""
    if isinstance(subject, Scenario):
        return _scenario_html(subject)
    return _simulation_html(subject) if isinstance(subject, Simulation) else _batch_html(subject)


def png_of(world: World, places: Mapping[str, npt.NDArray[np.float64]]) -> bytes:
    """The world from above with robots as dots; `places` (n, 2) x, y [m] of each robot."""
    starts = [(float(x), float(y)) for points in places.values() for x, y in points[:_MOST_DOTS]]
    pixels, view = map_image(world, starts, _SIDE_PX, _SIDE_PX)
    image = Image.fromarray(pixels)
    _draw_robots(ImageDraw.Draw(image), view, places)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _draw_robots(draw: ImageDraw.ImageDraw, view: MapView, places: Mapping[str, npt.NDArray[np.float64]]) -> None:
    for index, points in enumerate(places.values()):
        size = 5 if len(points) == 1 else 2
        for x, y in points[:_MOST_DOTS]:
            if np.isfinite(x + y):
                row, column = view.pixel(float(x), float(y))
                box = (column - size, row - size, column + size, row + size)
                draw.ellipse(box, fill=robot_colour(index), outline=(0, 0, 0) if size > 2 else None)


def _scenario_html(scenario: Scenario) -> str:
    places = {name: np.array([[pose.x, pose.y]]) for name, pose in _starts(scenario)}
    rows = [("seed", scenario.seed), ("ticks per second", f"{float(scenario.physics_hz):g}")]
    return _page(scenario.name, rows, scenario, places, build_world(scenario))


def _starts(scenario: Scenario) -> Iterable[tuple[str, Any]]:
    return ((name, robot.start.map_pose) for name, robot in scenario.robots.items())


def _simulation_html(sim: Simulation) -> str:
    states = {name: sim.state(name) for name in sim.robots}
    places = {name: np.array([[state.x, state.y]]) for name, state in states.items()}
    rows = [("seed", sim.seed), ("time", f"{sim.time_ns / 1e9:.3f} s (tick {sim.tick:,})")]
    rows += [("digest", f"{sim.digest()[:16]}…"), ("messages", f"{sim.messages_sent:,}")]
    return _page(sim.scenario.name, rows, sim.scenario, places, sim.world)


def _batch_html(batch: Any) -> str:
    places = {}
    for name in batch.robots:
        state = batch.state(name)
        places[name] = np.stack([np.asarray(_on_host(state[axis]), np.float64) for axis in "xy"], axis=1)
    rows = [("worlds", f"{batch.n:,} on {batch.device}"), ("sensors", ", ".join(batch.sensors) or "none")]
    world = batch.ground.world_of(0) if batch.ground.is_generated else batch.ground.world  # one of many
    return _page(f"{batch.scenario.name}, {batch.n:,} worlds", rows, batch.scenario, places, world)


def _on_host(values: Any) -> Any:
    return values.get() if hasattr(values, "get") else values


def _page(
    title: str, rows: Sequence[tuple[str, Any]], scenario: Scenario, places: Mapping[str, Any], world: World
) -> str:
    picture = base64.b64encode(png_of(world, places)).decode()
    robots = [(name, _robot_text(scenario, name, index)) for index, name in enumerate(scenario.robots)]
    cells = [(html.escape(str(name)), html.escape(str(value))) for name, value in rows]
    lines = "".join(f"<tr><td><b>{name}</b></td><td>{value}</td></tr>" for name, value in [*cells, *robots])
    image = f'<img alt="map" width="{_SIDE_PX}" src="data:image/png;base64,{picture}">'
    return f'<div style="{_STYLE}">{image}<div><b>{html.escape(title)}</b><table>{lines}</table></div></div>'


def _robot_text(scenario: Scenario, name: str, index: int) -> str:
    sensors = ", ".join(sensor for robot, sensor, _, _ in scenario.all_sensors if robot == name)
    dot = '<span style="color:rgb({},{},{})">●</span>'.format(*robot_colour(index))
    return f"{dot} {html.escape(scenario.robots[name].model)}: {html.escape(sensors) or 'no sensors'}"
