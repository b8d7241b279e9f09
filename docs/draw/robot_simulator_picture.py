"""Draws docs/pictures/robot_simulator_states.png (the states) and robot_simulator_run.png (a run among obstacles).

Run it again when either changes: `.venv/bin/python docs/draw/robot_simulator_picture.py` (needs matplotlib).
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from microsim.engine.world import World
from microsim.parts.small_nodes.robot_maps import read_obstacles, world_of_cells
from microsim.parts.small_nodes.robot_simulator_node import PlanarPose, RobotSimulator
from microsim.parts.small_nodes.robot_simulator_settings import RobotSimulatorSettings

PICTURES = Path(__file__).parents[1] / "pictures"
INK, GOOD, WARN, QUIET = "#1f2937", "#15803d", "#b45309", "#6b7280"


# ---- the states -----------------------------------------------------------------------------------------------------

BOXES = {  # name: x, colour, what holds there
    "IDLE": (0.0, QUIET, "place unknown: commands are\nignored with an INFO, only\n/diagnostics is published"),
    "ACTIVE": (
        5.0,
        GOOD,
        "commands are clipped, limited,\nintegrated; /amcl_pose, /odom,\n/tf and /scan are published",
    ),
    "TIMEOUT_STOP": (10.2, WARN, "WARN; target speed 0;\neverything goes on\nbeing published"),
}
WIDTH, HEIGHT = 3.1, 1.5


def box(axes: plt.Axes, name: str, x: float, colour: str, words: str) -> None:
    corner = (x - WIDTH / 2, -HEIGHT / 2)
    axes.add_patch(
        FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle="round,pad=0.06", edgecolor=colour, facecolor="white", lw=1.8)
    )
    axes.text(x, 0.45, name, ha="center", va="center", fontsize=11, fontweight="bold", color=colour)
    axes.text(x, -0.22, words, ha="center", va="center", fontsize=8, color=INK)


def arrow(axes: plt.Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
    style = f"arc3,rad={bend}"
    axes.add_patch(
        FancyArrowPatch(start, end, connectionstyle=style, arrowstyle="-|>", mutation_scale=13, color=INK, lw=1.3)
    )


def states(file: Path) -> None:
    figure, axes = plt.subplots(figsize=(11.2, 3.7))
    for name, (x, colour, words) in BOXES.items():
        box(axes, name, x, colour, words)
    half = WIDTH / 2 + 0.08
    arrow(axes, (-2.35, 0.0), (-half, 0.0))
    axes.text(-2.4, 0.12, "start", ha="left", fontsize=8, color=INK)
    arrow(axes, (half, 0.0), (5.0 - half, 0.0))
    axes.text(
        2.5, 0.95, "first /active_target\nor /initialpose:\nthe robot is there", ha="center", fontsize=8, color=INK
    )
    arrow(axes, (5.0 + half, 0.35), (10.2 - half, 0.35))
    axes.text(7.6, 0.95, "no command for more\nthan cmd_timeout_sec", ha="center", fontsize=8, color=INK)
    arrow(axes, (10.2 - half, -0.35), (5.0 + half, -0.35))
    words = "a command (auto_resume: true),\na new /active_target\n(auto_resume: false),\n/initialpose"
    axes.text(8.1, -1.95, words, ha="center", fontsize=8, color=INK)
    arrow(axes, (4.3, -HEIGHT / 2 - 0.08), (5.7, -HEIGHT / 2 - 0.08), bend=0.9)
    words = "/cmd_vel, further /active_target,\n/initialpose, others' /amcl_pose"
    axes.text(5.0, -1.95, words, ha="center", fontsize=8, color=INK)
    arrow(axes, (-0.7, -HEIGHT / 2 - 0.08), (0.7, -HEIGHT / 2 - 0.08), bend=0.9)
    axes.text(0.0, -1.95, "/cmd_vel, others' /amcl_pose:\nignored with an INFO", ha="center", fontsize=8, color=INK)
    axes.set_xlim(-2.5, 11.9)
    axes.set_ylim(-2.2, 1.75)
    axes.set_aspect("equal")
    axes.axis("off")
    figure.savefig(file, dpi=130, bbox_inches="tight", facecolor="white")
    plt.close(figure)


# ---- a run ----------------------------------------------------------------------------------------------------------


def room() -> World:
    """8 m × 5 m with walls and a pillar, cells of 0.1 m."""
    occupied = np.zeros((50, 80), np.uint8)
    occupied[0] = occupied[-1] = occupied[:, 0] = occupied[:, -1] = 1
    occupied[18:24, 30:36] = 1
    return world_of_cells(occupied, 0.1)


CROWD = {
    "obstacles": [
        {"name": "passer-by", "radius": 0.3, "path": [[5.6, 1.0], [5.6, 4.2]], "speed": 0.45, "repeat": "once"},
    ]
}


def run(file: Path) -> None:
    settings = RobotSimulatorSettings(
        cycle_hz=20.0, scan_hz=20.0, scan_beams=240, max_linear_accel=1.5, slow_distance_m=1.2
    )
    core = RobotSimulator(settings, lambda level, text, kind: None, room(), read_obstacles(CROWD))
    core.initial_pose(0, PlanarPose(0.8, 3.2, 0.0))
    rows, scan = [], None
    for tick in range(240):
        if tick < 120:
            core.command(0, 1.0, 0.0)
        for message in core.step():
            if message.topic == "/scan" and tick == 96:
                scan = message.message, core.place(), core.moving.discs[:, 0].copy()
        rows.append(((tick + 1) / 20.0, core.velocity()[0], core.place().x, core.figures()["state"]))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 3.9), width_ratios=(1.5, 1.0))
    assert scan is not None
    _draw_room(left, core.sim.world, rows, *scan)
    _draw_speed(right, rows)
    figure.tight_layout()
    figure.savefig(file, dpi=130, facecolor="white")
    plt.close(figure)


def _draw_room(axes: plt.Axes, grid: World, rows: list, scan: object, place: PlanarPose, disc: np.ndarray) -> None:
    axes.imshow(grid.occupied, origin="lower", extent=(0, 8, 0, 5), cmap="Greys", vmax=1.6)
    axes.plot([row[2] for row in rows], [3.2] * len(rows), color=GOOD, lw=1.5, label="way")
    angles = [scan.angle_min + k * scan.angle_increment + place.yaw for k in range(len(scan.ranges))]
    points = [
        (place.x + r * math.cos(a), place.y + r * math.sin(a))
        for r, a in zip(scan.ranges, angles, strict=True)
        if r < 12
    ]
    axes.plot(*zip(*points, strict=True), ".", ms=3, color="#1d4ed8", label="/scan at 4.85 s")
    axes.add_patch(Circle((disc[0], disc[1]), disc[2], facecolor="#fcd34d", edgecolor=WARN))
    axes.add_patch(Circle((place.x, place.y), 0.25, facecolor="none", edgecolor=GOOD, lw=1.8))
    axes.annotate("passer-by", (disc[0], disc[1] + 0.42), fontsize=8, color=WARN, ha="center")
    axes.set_xlabel("x [m]")
    axes.set_ylabel("y [m]")
    axes.legend(loc="lower center", fontsize=8, framealpha=1.0)
    axes.set_title("a room of map_server, a passer-by", fontsize=9)


def _draw_speed(axes: plt.Axes, rows: list) -> None:
    times = [row[0] for row in rows]
    axes.plot(times, [row[1] for row in rows], color=INK, lw=1.5)
    stop = next(row[0] for row in rows if row[3] == "TIMEOUT_STOP")
    axes.axvspan(stop, times[-1], color=WARN, alpha=0.15, lw=0)
    axes.text((stop + times[-1]) / 2, 0.62, "TIMEOUT_STOP", ha="center", fontsize=8, color=WARN)
    axes.set_xlabel("time [s]")
    axes.set_ylabel("speed [m/s]")
    axes.set_xlim(0.0, times[-1])
    axes.set_title("commanded: 1 m/s until 6 s, then nothing", fontsize=9)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    states(PICTURES / "robot_simulator_states.png")
    run(PICTURES / "robot_simulator_run.png")
