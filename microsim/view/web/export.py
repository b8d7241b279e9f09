"""A run as one page that needs nothing else: viser's player with our words and plots beside it."""

from __future__ import annotations

import contextlib
import html
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError
from microsim.runner import Runner
from microsim.simulation import Simulation
from microsim.view.web.collector import Collector
from microsim.view.web.extra import need_extra
from microsim.view.web.timeline import Moving

FRAMES_PER_S = 15.0
_MOST_FRAMES = 6000  # longer runs have fewer of them in a second


class ExportError(MicroSimError):
    """The page cannot be written."""


@dataclass(frozen=True)
class Facts:
    """What the page says about its run."""

    scenario: str
    seed: int
    name: str
    digest: str
    note: str = ""


def write_html(
    path: Path, sim: Simulation, replay: Moving, facts: Facts, tell: Callable[[float], None] = lambda share: None
) -> int:
    """Run it and write what happened; gives the size in bytes."""
    need_extra("a page")
    if not path.parent.is_dir():
        raise ExportError(f"{path}: cannot be written: there is no folder {path.parent}")
    from microsim.view.web.page.curves import point
    from microsim.view.web.page.scene import Stage3D, sky
    from microsim.view.web.page.server import quiet_server

    runner = Runner(sim, 0.0)
    collector = Collector(runner)
    scene = collector.scene(mode="replay")
    server = quiet_server()
    try:
        stage = Stage3D(server, scene, shadows=True, is_film=True)
        server.scene.set_background_image(sky(False))
        collector.tap(sim.step(0))
        frame = collector.frame()
        stage.draw(frame)
        server.initial_camera.position, server.initial_camera.look_at = stage.home([])
        server.initial_camera.fov, server.initial_camera.far = 0.8, 5000.0
        recording = server.get_scene_serializer()
        every = max(1, round(sim.scenario.physics_hz / FRAMES_PER_S), replay.last // _MOST_FRAMES)
        steps = list(frame.way)
        while replay.room:
            before = sim.tick
            replay.move(before + min(every, replay.room), collector.tap)
            recording.insert_sleep((sim.tick - before) * sim.clock.dt)
            frame = collector.frame()
            stage.draw(frame)
            steps += frame.way
            tell(sim.tick / max(replay.last, 1))
        colours = {name: "rgb({},{},{})".format(*colour) for name, colour in stage.colours.items()}
        _aim(recording, *stage.home([each.position for step in steps[::5] for each in step.robots.values()]))
        text = _page(recording.as_html(), facts, sim, colours, [point(step) for step in steps])
    finally:
        with contextlib.redirect_stdout(io.StringIO()):  # it says so
            server.stop()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error.strerror or error}") from None
    return len(text.encode())


def _aim(recording: Any, eye: Any, centre: Any) -> None:
    """Where the player looks from, once it is known where robots have been."""
    for _, message in recording._messages:
        if message["type"] in ("SetCameraPositionMessage", "SetCameraLookAtMessage"):
            is_eye = message["type"] == "SetCameraPositionMessage"
            message["position" if is_eye else "look_at"] = eye if is_eye else centre


def _page(page: str, facts: Facts, sim: Simulation, colours: Mapping[str, str], points: Sequence[Any] = ()) -> str:
    from microsim.view.web.page.curves import as_script, columns
    from microsim.view.web.page.html import own, with_head

    words = [
        facts.scenario,
        f"{facts.name}, seed {facts.seed}, {sim.time_ns / 1e9:.1f} s, {sim.tick:,} ticks",
        f"digest {facts.digest[:16]}…" if facts.digest else "",
        facts.note,
    ]
    run = {"words": [word for word in words if word], "colours": colours, "points": columns(points)}
    head = (
        f"<style>{own('export.css')}</style><script>window.MICROSIM_RUN={as_script(run)};</script>"
        f"<script>{own('plots.js')}</script><script>{own('export.js')}</script>"
    )
    return with_head(page, f"{html.escape(facts.name)} · MicroSim", head)
