"""Each demo on its page. With MICROSIM_KEEP_PICTURES set the pictures of docs/ are taken anew, large ones."""

import json
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.paths import demo_names, world_names
from tests.browser_support import PROBES, SMALL, Run, Tab, open_panels

KEEP = bool(os.environ.get("MICROSIM_KEEP_PICTURES"))
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
MOMENT_S = {"hover": 15, "patrol": 45, "avoid": 50, "team": 66, "oval": 20}  # worth a picture
HZ = {"oval": 100}
LAPTOP = {"width": 1440, "height": 900}


@pytest.mark.parametrize(
    "name", [name if name == "team" else pytest.param(name, marks=pytest.mark.slow) for name in demo_names()]
)
def test_a_demo_runs_on_its_page(browser: Any, started: Callable[..., Run], tmp_path: Path, name: str) -> None:
    run = started("demo", name)
    hand = open_panels(run.address)
    hand.send('{"kind": "pause", "value": true}')
    tab = Tab(browser, run.address, LAPTOP if KEEP else SMALL, "?dark" if name in ("avoid", "hover") else "?light")
    try:
        tab.until_status("Paused")
        ahead = MOMENT_S[name] * HZ.get(name, 60) - tab.tick
        hand.send(json.dumps({"kind": "step", "value": ahead}))
        tab.until_tick(MOMENT_S[name] * HZ.get(name, 60))
        tab.page.wait_for_timeout(25_000 if KEEP else 700)
        picture = tab.page.screenshot()
        keep(picture, PICTURES / f"demo_{name}.webp" if KEEP else tmp_path / f"{name}.webp")
        assert colours(picture) > 40
    finally:
        tab.close()


SONAR = """
from microsim.sensors.sensor import Display, PythonSensor

class Sonar:
    def __init__(self, context): ...
    def update(self, dt): ...
    def publish(self):
        return {"range": 2.5, "min_range": 0.1, "max_range": 6.0}

SENSOR = PythonSensor("sonar", "sensor_msgs/msg/Range", Sonar, display=Display(layer="beam"))
"""
TOUR = """'''The rover drives ahead for two seconds.'''
SCENARIO = {
    "name": "tour",
    "plugins": [PLUGINS],
    "map": {"size_xy_cells": [30, 30]},
    "robots": {"rover": {"start": {"map_pose": {"x": 8, "y": 10}}, "sensors": {"sonar": {"type": "sonar"}}}},
}


class Pilot:
    def __init__(self, sim):
        self.sim, self.events, self.is_done = sim, [], False

    def __call__(self, messages):
        self.sim.command("rover", v=1.0)
        if self.sim.time_ns >= 2_000_000_000 and not self.is_done:
            self.is_done = True
            self.events.append((self.sim.time_ns / 1e9, "the rover arrived"))
"""
EYE = "MicroSimDrawn.eye"


def test_a_demo_says_what_it_shows_ends_and_starts_again(
    browser: Any, started: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "sonar.py").write_text(SONAR)
    (tmp_path / "tour.py").write_text(TOUR.replace("PLUGINS", repr(str(tmp_path / "plugins"))))
    tab = Tab(browser, started("demo", str(tmp_path / "tour.py"), "--plugins", str(tmp_path / "plugins")).address)
    try:
        assert tab.text("story-title") == "tour"
        assert tab.text("about") == "The rover drives ahead for two seconds."
        assert "range beam" in tab.text("legend")
        tab.until("document.getElementById('ms-events').innerText === '2.0 s: the rover arrived'")
        tab.until("document.getElementById('ms-the-end').innerText.startsWith('The end. Starts again in')")
        tab.until("document.getElementById('ms-veil').hidden && MicroSimDrawn.ground")  # in this order
        tab.until(f"({PROBES}.press('speed', 0.3, 0.8), !document.getElementById('ms-zoom-out').hidden)")  # by dragging
        tab.page.select_option("#ms-add-plot", "sonar:range")  # a plug-in's field
        canvas = "document.querySelector('canvas[data-plot=\"sonar:range\"]')"
        tab.until(f"{canvas}?.ariaLabel?.includes('rover 2.5')")
        wheel = "document.getElementById('root').dispatchEvent(new Event('wheel'))"  # the user takes over
        assert tab.page.evaluate(f"({wheel}, document.querySelector('[data-mode=free]').ariaPressed)") == "true"
        tab.until("Number(document.getElementById('ms-time').textContent) < 2")  # from the start
        tab.until("document.querySelector('[data-mode=all]').ariaPressed === 'true'")
        tab.until(f"{canvas}?.ariaLabel?.includes('rover 2.5')")  # still plotted
        tab.until(f"Math.hypot({EYE}[0] - 8, {EYE}[1] - 10) < 30")  # and the robot is framed again
        tab.page.keyboard.press("?")
        tab.until("document.getElementById('ms-keys').innerText.includes('drive the chosen robot')")
    finally:
        tab.close()


def test_every_demo_and_world_can_be_chosen_on_the_page(browser: Any, started: Callable[..., Run]) -> None:
    tab = Tab(browser, started("run", "flat", "--view", "--transport", "none").address)
    try:
        tab.until("document.getElementById('ms-hint').innerText.startsWith('drone and rover have no pilot')")
        offered = set(
            tab.page.evaluate("[...document.querySelectorAll('#ms-scenario option')].map((each) => each.value)")
        )
        assert offered >= {f"demo:{name}" for name in demo_names()} | {f"world:{name}" for name in world_names()}
        tab.page.select_option("#ms-scenario", "demo:team")
        tab.until("document.getElementById('ms-veil-title').textContent.startsWith('Loading team')")
        tab.until("document.getElementById('ms-story-title').textContent === 'team'")
        tab.until("document.getElementById('ms-veil').hidden")
        tab.until_robot("drone", "up > 4.2")  # it has its pilot
    finally:
        tab.close()


def colours(picture: bytes) -> int:
    from PIL import Image

    image = np.asarray(Image.open(BytesIO(picture)).convert("RGB")).astype(int)
    return len({tuple(colour) for colour in (image.reshape(-1, 3) // 24)})


def keep(picture: bytes, path: Path) -> None:
    from PIL import Image

    Image.open(BytesIO(picture)).convert("RGB").save(path, quality=86, method=6)
