"""Environment steps per second of VMAS on one thread: its `drone`, and its `discovery` with one agent's 15 rays."""

import json
import sys
from importlib.metadata import version

import torch
import vmas

from benchmarks.harness import cpu_seconds

N = int(sys.argv[1])
torch.set_num_threads(1)


def steps_per_s(scenario: str, n: int, steps: int, **options: object) -> float:
    env = vmas.make_env(scenario=scenario, num_envs=n, device="cpu", continuous_actions=True, seed=0, **options)
    env.reset()
    ranges = [torch.as_tensor(agent.action.u_range, dtype=torch.float32) for agent in env.agents]
    sizes = [env.get_agent_action_size(agent) for agent in env.agents]
    actions = [torch.zeros(n, size).uniform_(-1, 1) * reach for size, reach in zip(sizes, ranges, strict=True)]
    env.step(actions)
    return n * steps / cpu_seconds(lambda: [env.step(actions) for _ in range(steps)], 5)


print(
    json.dumps(
        {
            "name": "VMAS",
            "version": version("vmas"),
            "about": "one agent; discovery: with 15 rays",
            "drone": steps_per_s("drone", N, 5, n_agents=1),
            "discovery": steps_per_s("discovery", 1024, 3, n_agents=1, use_agent_lidar=False),
        }
    )
)
