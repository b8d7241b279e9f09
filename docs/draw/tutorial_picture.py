"""Draws docs/pictures/tutorial_world.webp: the world of the tutorial from above, and where its rover stops.

The scenario is the one on the page. Run it again when the page changes: `make pictures ARGS=tutorial`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt
from PIL import Image

import microsim
from microsim.documents.yaml_text import read_yaml
from microsim.engine.world import PALETTE

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "learn" / "tutorial_world.md"
OUT = DOCS / "pictures" / "tutorial_world.webp"
COLOURS = {"drone": "#5b21b6", "rover": "#c2410c", "scout": "#0f766e"}


def scenario() -> object:
    found = re.search(r":caption: my_world\.yaml\n\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None, PAGE
    return read_yaml(found[1], "my_world.yaml").data


def main() -> None:
    sim = microsim.Simulation(scenario())
    sim.command("rover", v=2.0)
    path = []
    for _ in range(20 * 6):
        sim.step(10)
        path.append((sim.state("rover").x, sim.state("rover").y))
    figure, axes = plt.subplots(figsize=(7.2, 4.9), layout="constrained")
    colours = np.asarray(PALETTE, dtype=np.uint8)[np.asarray(sim.world.surface)]
    height, width = colours.shape[:2]
    axes.imshow(colours, origin="lower", extent=(0, width, 0, height), alpha=0.55)
    axes.add_patch(plt.Rectangle((28, 16), 4, 8, color="#475569"))
    axes.add_patch(plt.Rectangle((48.5, 28.5), 3, 3, color="#e11d48"))
    axes.annotate("box, 2 m high", (30, 24.2), ha="center", va="bottom")
    axes.annotate("water", (40, 12), ha="center", va="center")
    axes.annotate("target", (50, 32), ha="center", va="bottom")
    axes.plot(*zip(*path, strict=True), color=COLOURS["rover"], linewidth=2)
    axes.annotate(f"stops at x = {path[-1][0]:.3f}", path[-1], (16, 15.5), ha="center", arrowprops={"arrowstyle": "->"})
    for robot, (x, y) in {"rover": (5, 20), "scout": (5, 30), "drone": (30, 20)}.items():
        axes.plot(x, y, "o", color=COLOURS[robot], markersize=8, markeredgecolor="white")
        beside_the_box = (28, -4) if robot == "drone" else (7, 5)
        axes.annotate(robot, (x, y), beside_the_box, textcoords="offset points")
    axes.set(xlabel="x [m], east", ylabel="y [m], north", xlim=(0, width), ylim=(0, height), aspect="equal")
    held = io.BytesIO()
    figure.savefig(held, dpi=110)
    Image.open(held).convert("RGB").save(OUT, quality=82, method=6)


if __name__ == "__main__":
    main()
