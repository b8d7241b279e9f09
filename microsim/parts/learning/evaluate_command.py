"""`microsim policy evaluate`: how often a policy succeeds in worlds it has not seen, and where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typing_extensions import TypedDict

from microsim.cli.command import (
    WORLD_THREADS,
    PluginsOption,
    PolicyArgument,
    QuietOption,
    ResultJsonOption,
    WorldThreadsOption,
    seed_value,
)
from microsim.cli.precompile import compiling
from microsim.cli.terminal import Bar, ExitCode, interruptible, print_json, tell, warn
from microsim.errors import UsageError
from microsim.options import flag, option

if TYPE_CHECKING:
    from microsim.parts.learning.evaluation import Episodes
    from microsim.parts.sweep.plan import Plan

_SHOWN = 5  # failures on the terminal
_MOST_WRITTEN = 100  # missions in --failures
_COLLIDES = "collisions > 0"


class EvaluateOptions(NamedTuple):
    policy: PolicyArgument
    worlds: Annotated[int, option("--worlds N", "Number of worlds, each for one episode.", min=1, max=1_000_000)] = 1000
    seed: Annotated[
        int | None, option("--seed N", "Seed of the first world.", parser=seed_value, show_default="1000000000")
    ] = None
    threads: WorldThreadsOption = WORLD_THREADS
    failures: Annotated[
        Path | None,
        option("--failures FOLDER", "Write failed episodes (at most 100) as missions, with tokens to replay them."),
    ] = None
    shrink: Annotated[bool, flag("--shrink", "Shrink the first failure with a collision; needs --failures.")] = False
    at_least: Annotated[
        float, option("--at-least SHARE", "Exit code 1 if a smaller share succeeds: from 0 to 1.", min=0.0, max=1.0)
    ] = 0.0
    plugins: PluginsOption = None
    json: ResultJsonOption = False
    quiet: QuietOption = False


class EvaluationFailure(TypedDict):
    seed: int
    collision: bool
    steps: Annotated[int, "Environment steps until the end of the episode."]
    token: Annotated[str | None, "`microsim replay --token TOKEN` repeats it; null without --failures."]


class EvaluateOutput(TypedDict):
    task: str
    worlds: int
    success: Annotated[float, "Share of the worlds."]
    collision: Annotated[float, "Share of the worlds."]
    reward: Annotated[float, "Mean of the episodes."]
    steps: Annotated[float, "Mean length of the episodes."]
    failures: list[EvaluationFailure]
    smallest: Annotated[str | None, "The file of the smallest mission with a collision; null without --shrink."]


def evaluate(options: EvaluateOptions) -> int:
    """Run a policy in worlds it has not seen; report successes and collisions.

    The result is the same every time and on every machine. --failures writes
    episodes without success as missions with their commands; a token repeats
    one with all its messages, and --shrink finds the smallest mission that
    still collides.

    \b
    Examples:
      microsim policy evaluate RoverAvoid --worlds 1000
      microsim policy evaluate rover.npz --failures failed --shrink
      microsim policy evaluate rover.npz --at-least 0.95 --json
    """
    if options.shrink and options.failures is None:
        raise UsageError("--shrink needs --failures FOLDER for the missions")
    from microsim.parts.learning.evaluation import UNSEEN
    from microsim.parts.learning.evaluation import evaluate as run
    from microsim.parts.learning.policy import load_policy

    policy = load_policy(options.policy)
    first = UNSEEN if options.seed is None else options.seed
    with interruptible(), compiling():
        found = run(policy, options.worlds, first, options.threads)
    plans = dict(_written(options, policy, found)) if options.failures is not None else {}
    result = _result(policy.task, found, {seed: plan.token(0) for seed, plan in plans.items()})
    result["smallest"] = _shrunk(options, found, plans) if options.shrink else None
    if options.json:
        print_json(result)
    else:
        _tell_result(result, found, options)
    return ExitCode.GOOD if result["success"] >= options.at_least else ExitCode.FAILED


def _result(task: str, found: Episodes, tokens: dict[int, str]) -> dict[str, Any]:
    failures = [
        {"seed": int(seed), "collision": bool(hit), "steps": int(steps), "token": tokens.get(int(seed))}
        for seed, hit, steps, is_good in zip(found.seeds, found.collision, found.steps, found.success, strict=True)
        if not is_good
    ]
    return {
        "task": task, "worlds": len(found.seeds), **found.figures(),
        "steps": float(found.steps.mean()), "failures": failures, "smallest": None,
    }  # fmt: skip


def _written(options: EvaluateOptions, policy: Any, found: Episodes) -> Iterator[tuple[int, Plan]]:
    """The scenario and a mission for each failure, as a sweep of one run: it has the token, and can be shrunk."""
    from microsim.documents.yaml_text import to_yaml
    from microsim.parts.learning.evaluation import recorded
    from microsim.parts.sweep.plan import load_sweep, make_plan

    folder = options.failures
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    scenario = folder / "scenario.yaml"
    for seed in found.failures[:_MOST_WRITTEN].tolist():
        episode = recorded(policy, seed)
        scenario.write_text(episode.scenario.to_yaml(), encoding="utf-8")
        mission = folder / f"seed_{seed}.yaml"
        data = {"scenario": scenario.name, "seed": seed, "duration": episode.duration, "do": episode.entries}
        mission.write_text(to_yaml(data), encoding="utf-8")
        yield seed, make_plan(load_sweep({"scenario": str(scenario), "mission": str(mission), "seeds": [seed]}))


def _shrunk(options: EvaluateOptions, found: Episodes, plans: dict[int, Plan]) -> str | None:
    from microsim.parts.sweep.find import Shrinking
    from microsim.parts.sweep.plan import condition

    hits = [seed for seed in found.seeds[found.collision & ~found.success].tolist() if seed in plans]
    if not hits or options.failures is None:
        which = (
            "no failure has" if len(found.failures) == len(plans) else f"none of the first {len(plans)} failures has"
        )
        warn(f"{which} a collision: there is nothing to shrink")
        return None
    plan = plans[hits[0]]
    file = options.failures / "smallest.yaml"
    with Bar("shrinking", None, "runs") as bar:
        shrinking = Shrinking(plan, condition(_COLLIDES), 0)
        smallest = shrinking.smallest(file, 2000, lambda runs, case: bar.count(f"{case.size[0]} commands"))
    return str(smallest.file)


def _tell_result(result: dict[str, Any], found: Episodes, options: EvaluateOptions) -> None:
    tell(
        f"{result['task']}: {result['worlds']} unseen worlds, success {100 * result['success']:.1f} %, collision "
        f"{100 * result['collision']:.1f} %, reward {result['reward']:.2f}, {result['steps']:.0f} steps"
    )
    for failure in result["failures"][:_SHOWN]:
        how = "collision" if failure["collision"] else "no success"
        tell(f"  seed {failure['seed']}: {how} after {failure['steps']} steps")
        if failure["token"]:
            tell(f"    microsim replay --token {failure['token']}")
    if len(result["failures"]) > _SHOWN:
        tell(f"  and {len(result['failures']) - _SHOWN} more: --json lists all")
    if result["smallest"]:
        tell(f"smallest mission that collides: {result['smallest']}")
