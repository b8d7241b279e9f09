"""The editor of worlds in a real browser: what is drawn on the map is in the saved world."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from microsim.bundle import load_bundle
from microsim.bundle.drivable_geojson import covered_area_m2
from microsim.cli import app
from tests.browser_support import NOT_OURS, PATIENCE_MS, SLOW_SCREEN, Run, open_panels
from tests.bundle_support import small_bundle

SIZE = {"width": 1100, "height": 640}


class EditorTab:
    """The page of an editor; remembers every complaint."""

    def __init__(self, browser: Any, address: str) -> None:
        self.context = browser.new_context(viewport=SIZE)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._on_console)
        self.page.add_init_script(SLOW_SCREEN)
        self.page.goto(f"{address}?light&map")
        self.until("document.body.dataset.map === 'drawn'")

    def _on_console(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith(NOT_OURS):
            self.complaints.append(message.text)

    def until(self, condition: str) -> None:
        self.page.wait_for_function(condition, polling=50)

    def press(self, selector: str) -> None:
        """At once: waiting for a still picture, as playwright does, takes long in software."""
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A point of the map on the screen."""
        place = f"MicroSimEditor.toScreen([{x}, {y}])"
        box = "document.getElementById('ms-map').getBoundingClientRect()"
        u, v = self.page.evaluate(f"(([u, v], box) => [u + box.left, v + box.top])({place}, {box})")
        return u, v

    def click(self, x: float, y: float) -> None:
        self.page.mouse.click(*self.at(x, y))

    def drag(self, *points: tuple[float, float]) -> None:
        self.page.mouse.move(*self.at(*points[0]))
        self.page.mouse.down()
        for point in points[1:]:
            self.page.mouse.move(*self.at(*point))
        self.page.mouse.up()

    def text(self, name: str) -> str:
        return str(self.page.evaluate(f"document.querySelector('[data-testid={name}]').textContent"))

    def until_text(self, name: str, words: str) -> None:
        self.until(f"document.querySelector('[data-testid={name}]').textContent.includes({json.dumps(words)})")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worlds")
    small_bundle(folder / "small")
    return folder


@pytest.fixture(scope="module")
def run(started_once: Callable[..., Run], worlds: Path) -> Run:
    return started_once("bundle", "edit", str(worlds / "small"), "--output", str(worlds / "better"))


def test_what_is_drawn_on_the_map_is_in_the_saved_world(
    browser: Any, run: Run, worlds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab = EditorTab(browser, run.address)
    tab.until_text("status", "Nothing changed")
    tab.click(10, 10)  # selects the square, whose corner is then moved
    tab.drag((24, 24), (25, 26), (27, 27))
    tab.until_text("edits", "Polygon 0")
    tab.press("#ms-new")
    for point in ((-27, -27), (-25, -27), (-25, -25), (-27, -27)):
        tab.click(*point)
    tab.until_text("edits", "New polygon")
    tab.press("[data-tool=start]")
    tab.drag((5, 8), (6, 10), (5, 18))
    tab.press("[data-tool=objects]")
    tab.drag((-12, -4), (-10, -2), (-8, 2))
    tab.page.keyboard.type("bench")
    tab.page.keyboard.press("Enter")
    tab.drag((7, -12), (9, -9), (12, -7))
    tab.page.keyboard.type("Crate")
    tab.page.keyboard.press("Enter")
    tab.press("#ms-cut")
    tab.until_text("edits", "cut out")
    tab.press("[data-tool=level]")
    for count, point in enumerate(((-20, 0), (20, 1), (0, 20)), 1):
        tab.click(*point)
        tab.until(f"MicroSimEditor.items().level.length === {count}")
    tab.page.keyboard.press("Control+z")  # levelled it would be no more than drawn
    tab.until_text("edits", "1 more")
    tab.page.evaluate("document.querySelector('[aria-label=\"Take back: Level\"]').click()")
    tab.until_text("yaml", "bench")
    tab.until("!document.querySelector('[data-testid=yaml]').textContent.includes('level')")
    tab.press("#ms-save")
    tab.until_text("status", "Saved")
    assert "better/actors/scenario.yaml --view" in tab.page.evaluate("document.getElementById('ms-done').textContent")
    assert (worlds / "better/actors/crate.ply").stat().st_size > 0
    assert "model: actor" in (worlds / "better/actors/scenario.yaml").read_text()
    after = load_bundle(worlds / "better")
    assert after.drivable.count == 2
    assert covered_area_m2(after.drivable) == pytest.approx(48 * 48 + 3 * 48 + 2, abs=30)
    assert after.start is not None
    assert (after.start.x, after.start.y) == pytest.approx((5, 8), abs=0.2)
    assert after.start.yaw == pytest.approx(math.pi / 2, abs=0.1)
    assert [each.name for each in after.objects] == ["bench"]  # what is cut out is not part of the world
    assert after.objects[0].center == pytest.approx((-10, -1, 1.05), abs=0.2)
    command = tab.text("command").split()
    tab.press("#ms-continue")
    tab.until_text("world", "better")
    tab.until_text("command", "--in-place")
    tab.until_text("status", "Nothing changed")
    assert tab.complaints == []
    tab.context.close()
    monkeypatch.chdir(worlds)
    again = [*command[1:-1], str(worlds / "again")]  # what the page shows gives the same
    assert CliRunner().invoke(app, again).exit_code == 0
    for name in (name for name in after.files if name != "world.yaml"):
        assert (worlds / "again" / name).read_bytes() == after.files[name].read_bytes(), name


def test_a_wrong_edit_is_reported_beside_it_and_unsaved_edits_are_kept(run: Run) -> None:
    """Without a browser: what pages send, and what they are answered."""
    with open_panels(run.address) as page:
        facts = json.loads(page.recv(timeout=60))
        assert facts["type"] == "world"
        assert facts["image"].startswith("data:image/webp;base64,")
        for nonsense in ("{", "[]", '{"kind": "pick", "value": 3}', '{"kind": "__init__"}'):
            page.send(nonsense)
        page.send(json.dumps({"kind": "pick", "value": {"x": 10.0, "y": 0.0, "id": 7}}))
        answer = json.loads(page.recv(timeout=60))
        assert answer == {"type": "picked", "id": 7, "point": [10.0, 0.0, pytest.approx(0.05, abs=0.001)]}
        crossing = {"outer": [[0, 0], [4, 4], [4, 0], [0, 4]]}
        page.send(json.dumps({"kind": "save", "value": {"drivable": [crossing]}}))
        problems = json.loads(page.recv(timeout=60))["problems"]
        assert [each["path"] for each in problems] == ["drivable[0]"]
        page.send(json.dumps({"kind": "save", "value": {"start": {"x": 500, "y": 0}}}))
        problems = json.loads(page.recv(timeout=60))["problems"]
        assert [each["path"] for each in problems] == ["start"]
        assert "outside the map" in problems[0]["text"]
    run.stop()
    kept = re.search(r"unsaved edits are in (\S+);", run.errors.read_text())
    assert kept is not None
    assert "x: 500" in Path(kept[1]).read_text()
