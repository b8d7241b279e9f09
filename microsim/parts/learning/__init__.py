"""Environments for reinforcement learning. Importing this registers `MicroSim/…-v0` with Gymnasium (the extra `rl`).

env = gymnasium.make("microsim.parts.learning:MicroSim/RoverAvoid-v0")
many = gymnasium.make_vec("microsim.parts.learning:MicroSim/RoverAvoid-v0", num_envs=1024)
mine = gymnasium.make("microsim.parts.learning:MicroSim/Task-v0", task="my_task.py")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.errors import MissingExtraError, install_hint
from microsim.parts.learning.observations import Numbers, Reading
from microsim.parts.learning.task import TASKS, Outcome, Task, distance, find_task

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


def env_id(task: str) -> str:
    return f"MicroSim/{task}-v0"


def register(task: str | Path | type[Task]) -> str:
    """Make a task known to Gymnasium, also one in a file of its own; returns the id of its environments."""
    found = find_task(task)
    _register(found.name, found.horizon, {"task": found})
    return env_id(found.name)


def make_vec(
    task: str | Path | type[Task],
    num_envs: int,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """`gymnasium.make_vec` of a task by name or file, with wrappers of vectors, which Gymnasium's does not take."""
    import gymnasium

    made = gymnasium.make_vec(register(task), num_envs=num_envs, **options)
    for wrapper in wrappers:
        made = wrapper(made)
    return made


def _register(name: str, horizon: int | None, kwargs: dict[str, Any]) -> None:
    import gymnasium

    if env_id(name) in gymnasium.registry:
        del gymnasium.registry[env_id(name)]  # a file that was changed
    gymnasium.register(
        env_id(name),
        entry_point="microsim.parts.learning.environments:TaskEnv",
        vector_entry_point="microsim.parts.learning.environments:TaskVectorEnv",
        max_episode_steps=horizon,
        kwargs=kwargs,
    )


def _register_known() -> None:
    try:
        import gymnasium  # noqa: F401 - to say what is missing
    except ImportError:
        raise MissingExtraError(f"learning needs Gymnasium: {install_hint('rl')}") from None
    for name in TASKS.built_in:
        register(name)
    for name in TASKS.plugin_names():
        _register(name, None, {"task": name})  # loaded when it is made
    _register("Task", None, {})  # task="my_task.py"


_register_known()

__all__ = ["TASKS", "Numbers", "Outcome", "Reading", "Task", "distance", "env_id", "find_task", "make_vec", "register"]
