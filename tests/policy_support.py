"""Policies that were not trained, and the digest of what one does in a batch."""

from itertools import pairwise

import numpy as np

from microsim.parts.learning.policy import Policy, input_names, input_of
from microsim.parts.learning.policy_node import scenario_for
from microsim.parts.learning.task import find_task
from microsim.simulation import Simulation

SEED = 7
OPTIONS = {"LaneKeeping": {"render": "plain"}}  # quicker


def arbitrary(task: str, seed: int = 1) -> Policy:
    """One that moves robots, not one that is any good."""
    options = OPTIONS.get(task, {})
    world, dice = find_task(task)(1, **options), np.random.default_rng(seed)
    agents = len(world.agents) if world.alike else 1
    sizes = (input_of(world).shape[1] // agents, 24, world.action_size // agents)
    layers = tuple(
        (dice.normal(0, 0.5, (a, b)).astype(np.float32), dice.normal(0, 0.3, b).astype(np.float32))
        for a, b in pairwise(sizes)
    )
    return Policy(layers, {"task": task, "observations": input_names(world), "options": options})


def batch_digest(policy: Policy, ticks: int) -> str:
    """Of a simulation that gets the commands of the batch."""
    task = find_task(policy.task)(3)
    task.reset(seeds=np.arange(SEED, SEED + 3))
    sim = Simulation(scenario_for(policy), SEED)
    sim.step(0)
    while sim.tick < ticks:
        task.act(policy.actions(input_of(task)))
        for robot in task.actions:
            values = dict(zip(task.batch.inputs(robot), task.batch.commands(robot)[:, 0].tolist(), strict=True))
            sim.command(robot, **values)
        sim.step(task.ticks)
        task.judge()
    return sim.digest()
