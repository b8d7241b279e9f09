"""`render_mode="human"`: world 0 on the web page, in real time.

What is shown is a `Simulation` with that world's seed and commands: bit for bit the same world.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from microsim.batch import BatchSimulation
from microsim.runner import Runner
from microsim.simulation import Simulation


def has_page() -> bool:
    """Whether what the page needs is installed: the extra `view`."""
    return find_spec("viser") is not None


class Page:
    def __init__(self, batch: BatchSimulation) -> None:
        from microsim.view.web import Viewer

        self._batch = batch
        self._runner = Runner(Simulation(batch.scenario, int(batch.seeds[0])))
        self._viewer: Any = Viewer(self._runner)
        self._viewer.__enter__()
        print(f"watch at {self._viewer.address}")

    def follow(self) -> None:
        """Bring the page to where world 0 is now."""
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
