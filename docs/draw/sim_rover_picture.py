"""Draws docs/pictures/sim_rover.png: a step command, a turn and a timeout, with and without dynamics.

Run it again when the model changes: `.venv/bin/python docs/draw/sim_rover_picture.py` (needs matplotlib).
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from microsim.parts.small_nodes.rover_node import RoverCore, RoverSettings

OUT = Path(__file__).parents[1] / "pictures" / "sim_rover.png"
HZ = 100
LAST_COMMAND_S, END_S = 3.0, 5.0
COLOURS = {True: "#1d4ed8", False: "#b45309"}
NAMES = {True: "dynamics", False: "kinematics"}


def command(seconds: float) -> tuple[float, float]:
    """Straight ahead, then a turn."""
    return 1.0, 0.0 if seconds < 1.5 else 1.2


def drive(use_dynamics: bool) -> np.ndarray:
    """Columns: time, speed, turning rate, x, y."""
    core = RoverCore(RoverSettings(use_dynamics=use_dynamics, update_rate=float(HZ)))
    rows = []
    for tick in range(round(END_S * HZ)):
        if tick % 10 == 0 and tick <= LAST_COMMAND_S * HZ:
            core.command(0, *command(tick / HZ))
        rows.append([tick / HZ, *core.sim.fleet.rows("v", "yaw_rate", "x", "y")[:, 0]])
        core.step()
    return np.array(rows)


def main() -> None:
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (speed, turn, path) = plt.subplots(1, 3, figsize=(11, 3.4), dpi=130, layout="constrained")
    for use_dynamics in (False, True):
        rows = drive(use_dynamics)
        style = {"color": COLOURS[use_dynamics], "label": NAMES[use_dynamics], "lw": 1.8}
        speed.plot(rows[:, 0], rows[:, 1], **style)
        turn.plot(rows[:, 0], rows[:, 2], **style)
        path.plot(rows[:, 3], rows[:, 4], **style)
        path.plot(rows[-1, 3], rows[-1, 4], "o", color=COLOURS[use_dynamics], ms=5)
    terminal = 5.0 / (5.0 + 2.0 * 0.3)
    speed.axhline(terminal, color="#6b7280", lw=0.8, ls=":")
    speed.annotate("v m / (m + c T)", (0.95, terminal), xytext=(0, -12), textcoords="offset points", color="#6b7280")
    for axes, title, unit in ((speed, "speed", "m/s"), (turn, "turning rate", "rad/s")):
        axes.axvspan(LAST_COMMAND_S, LAST_COMMAND_S + 0.5, color="#e5e7eb", lw=0)
        axes.set(title=title, ylim=(-0.05, None), xlabel="time [s]", ylabel=f"[{unit}]", xlim=(0, END_S))
        axes.text(
            LAST_COMMAND_S - 0.05, 0.0, "no command\nfrom here on", ha="right", va="bottom", fontsize=8, color="#6b7280"
        )
    path.set(title="path", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    path.legend(frameon=False, loc="upper left")
    figure.savefig(OUT, metadata={"Software": None})


if __name__ == "__main__":
    main()
