"""The table of metrics: a name for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microsim.errors import UsageError, unknown
from microsim.sweep.metric import Metric
from microsim.sweep.robot_metrics import (
    Collisions,
    ContactTime,
    Displacement,
    MaxSpeed,
    MinHeight,
    MinSeparation,
    OffroadTime,
    PathLength,
)
from microsim.sweep.run_metrics import (
    Digest,
    Duration,
    Ignored,
    MinRange,
    Passed,
    RadioDrop,
    RadioLatency,
    RadioSent,
    Violations,
)
from microsim.sweep.trace import Run

METRICS: Mapping[str, type[Metric]] = {
    "collisions": Collisions,
    "contact_s": ContactTime,
    "offroad_s": OffroadTime,
    "path_length": PathLength,
    "displacement": Displacement,
    "max_speed": MaxSpeed,
    "min_height": MinHeight,
    "min_separation": MinSeparation,
    "min_range": MinRange,
    "radio_drop": RadioDrop,
    "radio_sent": RadioSent,
    "radio_latency_ms": RadioLatency,
    "passed": Passed,
    "violations": Violations,
    "ignored": Ignored,
    "duration_s": Duration,
    "digest": Digest,
}


def metric(name: str) -> type[Metric]:
    """The metric of a name such as `collisions` or `path_length.rover`; UsageError when there is none."""
    first, _, robot = name.partition(".")
    if first not in METRICS:
        raise UsageError(unknown("no metric", repr(name), first, METRICS))
    if robot and not METRICS[first].of_robots:
        raise UsageError(f"the metric {first!r} is not one of robots: leave out {'.' + robot!r}")
    return METRICS[first]


def kinds(names: Sequence[str]) -> dict[str, type]:
    return {name: metric(name).kind for name in names}


def watch(name: str, run: Run) -> Metric:
    """Begin to take a metric of a run; UsageError when this world has no such thing."""
    found, robot = metric(name), name.partition(".")[2]
    able, world = found.able(run.sim), f"the scenario {run.sim.scenario.name!r}"
    if robot and robot not in run.sim.robots:
        raise UsageError(unknown(f"{name}: {world} has no robot", repr(robot), robot, run.sim.robots))
    problem = found.problem(run.sim, run.pilot is not None)
    if not problem and found.of_robots and (robot not in able if robot else not able):
        problem = f"it cannot be taken of {robot or ', '.join(run.sim.robots) or 'no robot at all'}"
    if problem:
        raise UsageError(f"the metric {name!r} has no meaning in {world}: {problem}")
    return found(run, [robot] if robot else able)
