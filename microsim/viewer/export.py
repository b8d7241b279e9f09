"""A run as one page that needs nothing else: viser's player with our words on it."""

from __future__ import annotations

import contextlib
import html
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from microsim.errors import MicroSimError
from microsim.runner import Runner
from microsim.simulation import Simulation
from microsim.viewer.collector import Collector
from microsim.viewer.extra import need_extra
from microsim.viewer.timeline import Moving

FRAMES_PER_S = 15.0
_STYLE = """
#ms-card { position: fixed; left: 1em; top: 1em; z-index: 300; padding: .7em 1em; border-radius: .6em;
  background: rgba(255, 255, 255, .92); color: #16202e; font: 14px/1.5 system-ui, sans-serif; pointer-events: none;
  box-shadow: 0 1px 4px rgba(20, 30, 50, .2); }
#ms-card b { font-size: 1.15em; } #ms-card code { color: #5a6678; font-size: .9em; }
.mantine-Notifications-root { display: none !important; }
"""
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
    from microsim.viewer.page.scene import Stage3D, sky
    from microsim.viewer.page.server import quiet_server

    runner = Runner(sim, 0.0)
    collector = Collector(runner)
    scene = collector.scene(mode="replay")
    server = quiet_server()
    try:
        stage = Stage3D(server, scene, shadows=True)
        server.scene.set_background_image(sky(False))
        collector.tap(sim.step(0))
        frame = collector.frame()
        stage.draw(frame)
        eye, centre = stage.home(frame)
        server.initial_camera.position, server.initial_camera.look_at = eye, centre
        server.initial_camera.fov, server.initial_camera.far = 0.8, 5000.0
        recording = server.get_scene_serializer()
        every = max(1, round(sim.scenario.physics_hz / FRAMES_PER_S), replay.last // _MOST_FRAMES)
        while replay.room:
            before = sim.tick
            replay.move(before + min(every, replay.room), collector.tap)
            recording.insert_sleep((sim.tick - before) * sim.clock.dt)
            stage.draw(collector.frame())
            tell(sim.tick / max(replay.last, 1))
        text = _page(recording.as_html(), facts, sim)
    finally:
        with contextlib.redirect_stdout(io.StringIO()):  # it says so
            server.stop()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportError(f"{path}: cannot be written: {error.strerror or error}") from None
    return len(text.encode())


def _page(page: str, facts: Facts, sim: Simulation) -> str:
    from microsim.viewer.page.html import with_head

    words = [
        f"<b>{html.escape(facts.scenario)}</b>",
        f"{html.escape(facts.name)}, seed {facts.seed}, {sim.time_ns / 1e9:.1f} s, {sim.tick:,} ticks",
        f"<code>{html.escape(facts.digest[:16])}…</code>" if facts.digest else "",
        html.escape(facts.note),
    ]
    card = json.dumps("<br>".join(word for word in words if word))
    script = f"""addEventListener("DOMContentLoaded", () => {{
  const card = document.createElement("div");
  card.id = "ms-card";
  card.innerHTML = {card};
  document.body.append(card);
}});"""
    return with_head(page, f"{html.escape(facts.name)} · MicroSim", f"<style>{_STYLE}</style><script>{script}</script>")
