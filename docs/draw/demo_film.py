"""Films the demo `oval` in the web viewer: docs/pictures/demo_oval_film.webp, at the top of the README, and a still.

Run it again when the demo, the world or the page changes: `PYTHONPATH=. .venv/bin/python docs/draw/demo_film.py` (needs
chromium and the extra `dev`; a few minutes). The run is paused and advanced between two pictures, so that a slow
machine gives the same film as a quick one; the film plays in real time, and its status says so.
"""

from __future__ import annotations

import json
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from tests.browser_support import ARGUMENTS, CHROMIUM, Run, Tab, open_panels

OUT = Path(__file__).parents[1] / "pictures" / "demo_oval_film.webp"
STILL = OUT.with_name("demo_oval.webp")
PAGE, SIZE = {"width": 1280, "height": 720}, (960, 540)  # [px]
FIRST_S, FRAMES, TICKS, HZ = 13.0, 26, 20, 100  # the last bend before the start line; ticks from picture to picture
SETTLE_MS = 1200  # for drawing in software
RUNNING = """() => {
  const [pill, play] = [document.getElementById("ms-pill"), document.getElementById("ms-play")];
  pill.textContent = "Running"; pill.className = "pill"; play.textContent = "Pause";
}"""


def filmed(tab: Tab, hand: Any) -> list[Image.Image]:
    tick = round(FIRST_S * HZ)
    hand.send(json.dumps({"kind": "step", "value": tick - tab.tick}))
    pictures = []
    for number in range(FRAMES):
        tab.until_tick(tick + number * TICKS)
        tab.page.wait_for_timeout(8 * SETTLE_MS if number == 0 else SETTLE_MS)
        tab.page.evaluate(RUNNING)
        picture = Image.open(BytesIO(tab.page.screenshot())).convert("RGB")
        pictures.append(picture.resize(SIZE, Image.Resampling.LANCZOS))
        if number == 0:
            picture.save(STILL, quality=84, method=6)
        for _ in range(TICKS // 10):
            tab.click("step-10")
    return pictures


def main() -> None:
    from playwright.sync_api import sync_playwright

    run = Run(Path(tempfile.mkdtemp()), "demo", "oval")
    try:
        hand = open_panels(run.address)
        hand.send('{"kind": "pause", "value": true}')
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            tab = Tab(browser, run.address, PAGE, "?light")
            tab.until("document.getElementById('ms-veil').hidden")
            first, *rest = filmed(tab, hand)
            first.save(
                OUT, save_all=True, append_images=rest, duration=1000 * TICKS // HZ, loop=0, quality=52, method=6
            )
            browser.close()
    finally:
        run.stop()
    print(f"{OUT}: {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
