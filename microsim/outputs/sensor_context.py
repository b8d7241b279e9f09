"""What a sensor may know, in one world as in many."""

from __future__ import annotations

from functools import partial
from typing import Any

from microsim.engine.components import FixedMount
from microsim.engine.timekeeper import Clock
from microsim.engine.world import World
from microsim.scenario.bundles import bundle_of
from microsim.scenario.live_changes import instances_of
from microsim.scenario.models import Scenario
from microsim.sensors.sensor import SensorContext


def sensor_context(
    scenario: Scenario, robot: str, name: str, block: Any, world: World, clock: Clock, **of_run: Any
) -> SensorContext:
    """`of_run`: what only a single world has, see `SensorContext`."""
    bundle, mount, robots = scenario.world, getattr(block, "mount", None), scenario.robots
    return SensorContext(
        robot=robot,
        sensor=name,
        settings=block,
        world=world,
        clock=clock,
        mount=FixedMount() if mount is None else FixedMount(mount.xyz, mount.rpy),
        robot_settings=robots[robot],
        base_frame=robots[robot].frame(robot, "base_link"),
        others=tuple((other, each.kind) for other, each in robots.items() if other != robot),
        instances=partial(instances_of, scenario),
        bundle=None if bundle is None else lambda: bundle_of(bundle),
        bundle_key=bundle,
        **of_run,
    )
