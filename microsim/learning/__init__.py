"""Environments for reinforcement learning. Importing this registers `MicroSim/…-v0` with Gymnasium (the extra `rl`).

env = gymnasium.make("microsim.learning:MicroSim/RoverAvoid-v0")
many = gymnasium.make_vec("microsim.learning:MicroSim/RoverAvoid-v0", num_envs=1024)
"""

from __future__ import annotations

from microsim.errors import MissingExtraError, install_hint
from microsim.learning.driving import Drive, RoverAvoid
from microsim.learning.flying import Hover, Patrol, TeamTask
from microsim.learning.tasks import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (Hover, Patrol, RoverAvoid, TeamTask, Drive)}


def env_id(task: str) -> str:
    return f"MicroSim/{task}-v0"


def _register() -> None:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError(f"learning needs Gymnasium: {install_hint('rl')}") from None
    for name, task in TASKS.items():
        if env_id(name) not in gymnasium.registry:
            gymnasium.register(
                env_id(name),
                entry_point="microsim.learning.environments:TaskEnv",
                vector_entry_point="microsim.learning.environments:TaskVectorEnv",
                max_episode_steps=task.horizon,
                kwargs={"task": task},
            )


_register()

__all__ = ["TASKS", "Drive", "Hover", "Patrol", "RoverAvoid", "Task", "TeamTask", "env_id"]
