"""What `render` returns or shows: an image of a world from above, or world 0 in the web viewer."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.batch import BatchSimulation
from microsim.engine.components import YAW, X, Y
from microsim.engine.exact import sincos
from microsim.engine.world import OBSTACLE, PALETTE, TARGET
from microsim.errors import UsageError, install_hint
from microsim.parts.learning.task import Task
from microsim.runner import Runner
from microsim.simulation import Simulation

RENDER_MODES = ("rgb_array", "human") if find_spec("viser") is not None else ("rgb_array",)  # the extra `view`
SIZE_PX = 400  # of the longer side
COLOURS = ((0x2C, 0x3E, 0x50), (0xD3, 0x54, 0x00), (0x8E, 0x44, 0xAD), (0x16, 0xA0, 0x85))  # of robots, in order


class RenderWindow:
    """Renders in the mode of an environment."""

    def __init__(self, task: Task, mode: str | None) -> None:
        if mode is not None and mode not in RENDER_MODES:
            hint = f"; 'human' shows the web viewer: {install_hint('view')}" if mode == "human" else ""
            raise UsageError(f"no render_mode {mode!r}; there are: {', '.join(RENDER_MODES)}{hint}")
        self.task, self.mode = task, mode
        self._live_view: BatchViewer | None = None

    def render(self, worlds: Sequence[int]) -> list[npt.NDArray[np.uint8]] | None:
        if self.mode == "rgb_array":
            return [draw(self.task.batch, world, self.task.landmarks(world)) for world in worlds]
        return None

    def after_step(self) -> None:
        if self.mode == "human":
            self._live_view = self._live_view or BatchViewer(self.task.batch)
            self._live_view.follow()

    def close(self) -> None:
        if self._live_view is not None:
            self._live_view.close()
            self._live_view = None


def draw(
    batch: BatchSimulation, world: int, landmarks: Sequence[tuple[float, float, float]] = ()
) -> npt.NDArray[np.uint8]:
    """(height, width, 3), north up."""
    ground = batch.ground
    clearance = batch.loops.host(ground.clearances[0 if ground.is_shared else world])
    rows, columns = clearance.shape
    scale = SIZE_PX / (max(rows, columns) * ground.cell)  # px per metre
    height, width = (max(round(count * ground.cell * scale), 1) for count in (rows, columns))
    x = ground.west + (np.arange(width) + 0.5) / scale
    y = ground.south + (np.arange(height)[::-1] + 0.5) / scale
    i = np.minimum(((x - ground.west) / ground.cell).astype(int), columns - 1)
    j = np.minimum(((y - ground.south) / ground.cell).astype(int), rows - 1)
    image: npt.NDArray[np.uint8] = np.full((height, width, 3), 0xF2, np.uint8)
    image[clearance[np.ix_(j, i)] == 0] = PALETTE[OBSTACLE]
    for mark_x, mark_y, radius in landmarks:
        _disc(image, x, y, mark_x, mark_y, radius, PALETTE[TARGET])
    for number, robot in enumerate(batch.robots):
        state = batch.rows(robot)[:, world]
        sine, cosine = sincos(float(state[YAW]))
        size = 5.0 / scale
        for share in (0.0, 0.7, 1.3):  # pointing ahead
            at = (float(state[X]) + share * size * cosine, float(state[Y]) + share * size * sine)
            _disc(image, x, y, *at, size * (1.0 - 0.3 * share), COLOURS[number % len(COLOURS)])
    return image


def _disc(
    image: npt.NDArray[np.uint8],
    x: npt.NDArray[np.float64],
    y: npt.NDArray[np.float64],
    middle_x: float,
    middle_y: float,
    radius: float,
    colour: Sequence[int] | npt.NDArray[np.uint8],
) -> None:
    inside = np.square(x - middle_x)[None, :] + np.square(y - middle_y)[:, None] <= radius * radius
    image[inside] = colour


class BatchViewer:
    """World 0 in the web viewer, in real time: a `Simulation` with its seed and commands, equal bit for bit."""

    def __init__(self, batch: BatchSimulation) -> None:
        from microsim.parts.view.web import Viewer

        self._batch = batch
        self._runner = Runner(Simulation(batch.scenario, int(batch.seeds[0])))
        self._viewer: Any = Viewer(self._runner)
        self._viewer.__enter__()
        print(f"watch at {self._viewer.address}")

    def follow(self) -> None:
        """Advance to where world 0 is now."""
        batch, sim = self._batch, self._runner.sim
        ticks = int(batch.tick[0]) - sim.tick
        if ticks < 0 or sim.seed != int(batch.seeds[0]):
            sim.reset(int(batch.seeds[0]))
            ticks = int(batch.tick[0])
        for robot in batch.robots:
            values = batch.commands(robot)[:, 0].tolist()
            sim.command(robot, **dict(zip(batch.inputs(robot), values, strict=True)))
        self._runner.run(ticks)

    def close(self) -> None:
        self._viewer.__exit__(None, None, None)
