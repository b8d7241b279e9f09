"""Each demo on its page. With MICROSIM_KEEP_PICTURES set the pictures of docs/ are taken anew, large ones."""

import json
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from microsim.paths import demo_names
from tests.browser_support import SMALL, Run, Tab, open_panels

KEEP = bool(os.environ.get("MICROSIM_KEEP_PICTURES"))
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "_static"
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


def colours(picture: bytes) -> int:
    from PIL import Image

    image = np.asarray(Image.open(BytesIO(picture)).convert("RGB")).astype(int)
    return len({tuple(colour) for colour in (image.reshape(-1, 3) // 24)})


def keep(picture: bytes, path: Path) -> None:
    from PIL import Image

    Image.open(BytesIO(picture)).convert("RGB").save(path, quality=86, method=6)
