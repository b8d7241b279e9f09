"""Takes docs/pictures/editor.webp: the practice capture in the editor, with some edits.

Run it again when the editor changes: `.venv/bin/python -m docs.editor_picture` (extras `capture`, `view`; chromium).
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from examples.capture import street
from microsim.bundle import load_bundle
from microsim.parts.view.web.interface import PageOptions
from microsim.parts.worlds.capture.capture_world import CaptureOptions, build_capture, write_capture
from microsim.parts.worlds.editor import WorldEditor
from microsim.parts.worlds.edits import WorldEdits
from tests.browser_support import ARGUMENTS, CHROMIUM

OUT = Path(__file__).parents[1] / "pictures" / "editor.webp"
CARS = {"red car": [-6.2, -0.5], "white car": [-19.8, -6.9], "blue car": [-10.0, -7.6]}


def main() -> None:
    options = CaptureOptions(camera_height_m=street.CAMERA_HEIGHT_M)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = street.street()
        street.write_ply(Path("capture/splat.ply"), made)
        street.write_nerfstudio(Path("capture"), made)
        steps = build_capture(Path("capture"), options, lambda step, done, total: None)
        write_capture(Path("my_street"), steps, options, lambda step, done, total: None)
        bundle = load_bundle("my_street")
        boxes = [
            {"name": name, "center": [*at, 0.8], "size": [4.6, 2.2, 1.6], "yaw": 0.42} for name, at in CARS.items()
        ]
        edits = WorldEdits.model_validate({"objects": boxes})
        page = PageOptions(port=0, is_dark=False)
        with WorldEditor(bundle, Path("my_street_edited"), False, page, edits, "my_street") as editor:
            picture = taken(editor.address)
    picture.save(OUT, quality=82)


def taken(address: str) -> Image.Image:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1440, "height": 860})
        page.set_default_timeout(120_000)
        page.goto(f"{address}?light")
        page.wait_for_function("document.body.dataset.map === 'drawn'")
        page.evaluate("document.querySelector('[data-tool=drivable]').click()")
        page.mouse.click(*_place(page, -12.0, -4.0))
        page.wait_for_timeout(12_000)  # until software has drawn the scene
        data = page.screenshot()
        browser.close()
    return Image.open(io.BytesIO(data)).convert("RGB")


def _place(page: Any, x: float, y: float) -> tuple[float, float]:
    found = f"(([u, v], box) => [u + box.left, v + box.top])(MicroSimEditor.toScreen([{x}, {y}]), {_BOX})"
    u, v = page.evaluate(found)
    return u, v


_BOX = "document.getElementById('ms-map').getBoundingClientRect()"

if __name__ == "__main__":
    main()
