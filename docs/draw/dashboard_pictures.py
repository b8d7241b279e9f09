"""Draws docs/pictures/dashboard_*.webp: what `make run` shows in terminals of three sizes, and its keys.

Run it again when the dashboard changes: `.venv/bin/python docs/draw/dashboard_pictures.py` (needs chromium).
"""

from __future__ import annotations

import io
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image
from rich.console import Console

import microsim
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.parts.view.dashboard import DashboardState, StateCollector, screen_of
from microsim.parts.view.dashboard.keyboard import KeyControls
from microsim.runner import Runner

OUT = Path(__file__).parents[1] / "pictures"
SECONDS, DURATION = 20.0, 60.0
SIZES = {"dashboard_80": (80, 24), "dashboard_120": (120, 40), "dashboard_200": (200, 60)}
WIDEST = 1400  # [px]


def main() -> None:
    sim = microsim.Simulation("showcase")
    runner = Runner(sim, 0.0, DemoPilot(sim))
    collector = StateCollector(runner, round(DURATION / sim.clock.dt))
    collector.keys = KeyControls(runner)
    runner.run(round(SECONDS / sim.clock.dt))
    facts = replace(collector.state(), asked_rtf=1.0, rtf=1.0)
    for name, size in SIZES.items():
        save(runner, facts, size, OUT / f"{name}.webp")
    keys = facts.keys._replace(is_helping=True, is_paused=True)
    save(runner, replace(facts, keys=keys), (80, 24), OUT / "dashboard_keys.webp")


def save(runner: Runner, facts: DashboardState, size: tuple[int, int], target: Path) -> None:
    width, height = size
    console = Console(width=width, height=height, record=True, force_terminal=True, file=io.StringIO())
    console.print(screen_of(runner).draw(facts, width, height), height=height)
    with tempfile.TemporaryDirectory() as folder:
        drawing, shot = Path(folder, "screen.svg"), Path(folder, "screen.png")
        console.save_svg(str(drawing), title="make run")
        box = [round(float(number)) for number in drawing.read_text().split('viewBox="')[1].split('"')[0].split()[2:]]
        browser = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={box[0]},{box[1]}"]
        subprocess.run([*browser, f"--screenshot={shot}", drawing.as_uri()], check=True, capture_output=True)
        image = Image.open(shot).convert("RGB")
        image.thumbnail((WIDEST, WIDEST))
        image.save(target, quality=82, method=6)
    print(target)


if __name__ == "__main__":
    main()
