"""What a sensor is, in one world as in many: what it may know, what faults do to it, and the calls of its kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from microsim.engine.components import FixedMount
from microsim.engine.faults import TimedFault, of_target
from microsim.engine.geometry import Array
from microsim.engine.records import address_of
from microsim.engine.sensor_calls import Call, Window, windows_of
from microsim.engine.timekeeper import Clock
from microsim.engine.world import World
from microsim.engine.world_arrays import HERE, Memory, WorldArray
from microsim.errors import PluginError
from microsim.faults import FAULTS, FaultKind, OnSensor
from microsim.plugin_errors import plugin_errors
from microsim.scenario.bundles import bundle_of
from microsim.scenario.live_changes import instances_of
from microsim.scenario.models import Scenario
from microsim.sensors.sensor import KernelSensor, SensorContext

# ---- what it may know ------------------------------------------------------------------------------------------------


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


# ---- what faults do to it --------------------------------------------------------------------------------------------


@dataclass
class SensorFaults:
    """Windows of ticks, by effect."""

    silent: list[Window] = field(default_factory=list)  # nothing is sent
    fails: list[Window] = field(default_factory=list)  # there is no new reading
    jumps: list[Window] = field(default_factory=list)  # its place is off
    altering: list[tuple[FaultKind, OnSensor, TimedFault]] = field(default_factory=list)  # kernels change its readings

    def __bool__(self) -> bool:
        return bool(self.silent or self.fails or self.jumps or self.altering)


def sensor_faults(faults: Iterable[TimedFault], target: str, folders: Iterable[str]) -> SensorFaults:
    """`folders`: of plug-ins."""
    found = SensorFaults()
    for fault in of_target(faults, target):
        kind = FAULTS.find(fault.kind, folders)
        if kind is None or not isinstance(kind.effect, OnSensor):
            continue
        effect, window = kind.effect, (fault.first_tick, fault.end_tick, *fault.offset)
        windows = (effect.is_silent, found.silent), (effect.fails, found.fails), (effect.is_shifted, found.jumps)
        for applies, those in windows:
            if applies:
                those.append(window)
        if effect.alter is not None:
            found.altering.append((kind, effect, fault))
    return found


def is_in(windows: Iterable[Window], tick: int) -> bool:
    return any(first <= tick < end for first, end, *_ in windows)


# ---- what makes its readings -----------------------------------------------------------------------------------------


class Sensing:
    """A sensor with a kernel: its calls, and the arrays that they work on, with a row for each of n worlds.

    `state`: of its robot. In a single world `column` is the robot's there, and `motion` the address of its motion.
    `owners`: the sensor whose memory others of its kind read, by robot and kind.
    """

    def __init__(
        self,
        sensor: KernelSensor,
        context: SensorContext,
        faults: SensorFaults,
        state: Array,
        owners: dict[tuple[str, str], Sensing],
        *,
        column: int = 0,
        motion: int = 0,
        n: int = 1,
        memory: Memory = HERE,
        has_own_settings: bool = False,
        is_rounded: bool = False,
    ) -> None:
        """`has_own_settings`: the seed decides them; `is_rounded`: readings are kept elsewhere, as float32."""
        self.sensor, self.context, self.target = sensor, context, f"{context.robot}/{context.sensor}"
        kernel, tracker, xp = sensor.kernel(context), sensor.tracker, memory.xp
        if kernel is None:
            model = context.robot_settings.model
            raise PluginError(f"robots.{context.robot}.{context.sensor}: the model {model} has no joints")
        is_shared = tracker is not None and tracker.is_shared
        owner = owners.setdefault((context.robot, sensor.name), self) if is_shared else self
        self._other_owner = (
            None if owner is self else owner
        )  # not itself: that would keep its arrays until a collection
        # a GPU has no empty arrays: these have a number more than kernels may use
        numbers = np.array([*sensor.numbers(context), 0.0], np.float64)
        self.settings: Array = memory.array(np.tile(numbers, (n if has_own_settings else 1, 1)))
        self.memories: Array = xp.zeros((n, max(len(sensor.memory), 1)))
        table = np.zeros(0) if sensor.table is None else np.ascontiguousarray(sensor.table(context), np.float64)
        self._table = memory.array(table if table.size else np.zeros(1))
        size = max(sensor.reading_size(context), 1)
        self.readings: Array = xp.zeros((1 if is_rounded else n, size))
        self._jumps, reads_state = windows_of(faults.jumps, memory.table), sensor.reads == "state"
        self.kernels, own = [kernel], self.owner
        self.sample = Call(
            memory.sample_function(kernel),
            own.settings[:, :-1],
            self.readings,
            address_of(state) + 8 * column if reads_state else motion,
            context.key,
            memory=own.memories[:, : len(own.sensor.memory)],
            table=self._table[: table.size],
            mount=context.mount.xyz,
            jumps=self._jumps,
            owner=f"sensor {self.target}",
        )
        if reads_state:
            self.sample = replace(self.sample, size=state.shape[0], stride=state.shape[1])
        self.track: Call | None = None
        if tracker is not None and own is self and tracker.applies(context.settings):
            self.track = replace(self.sample, function=memory.sample_function(tracker.kernel), jumps=windows_of(()))
        self.kept_by_faults: dict[str, Array] = {}  # by fault
        self.altering = [self._altering(*each, n, memory) for each in faults.altering]

    def _altering(self, kind: FaultKind, effect: OnSensor, fault: TimedFault, n: int, memory: Memory) -> Call:
        """A fault that changes the reading: a kernel with a sensor's signature, after the sensor's own."""
        assert effect.alter is not None
        settings = memory.array(np.array([[fault.first_tick, fault.end_tick, *fault.offset]], np.float64))
        kept, owner = memory.xp.zeros((n, self.readings.shape[1])), f"the fault {kind.name} of {self.sample.owner}"
        self.kernels.append(effect.alter)
        self.kept_by_faults[f"{kind.name}:{fault.first_tick}"] = kept
        with plugin_errors(owner, kind):
            function = memory.sample_function(effect.alter)
        return replace(self.sample, function=function, settings=settings, memory=kept, owner=owner)

    @property
    def owner(self) -> Sensing:
        """Whose memory it reads."""
        return self._other_owner or self

    @property
    def calls(self) -> list[Call]:
        """That make a reading, one after the other."""
        return [self.sample, *self.altering]

    @property
    def needs_every_reading(self) -> bool:
        """Whether a reading depends on the ones before it, or counts."""
        return (bool(self.sensor.memory) and self.sensor.tracker is None) or bool(self.altering)

    def begin(self, worlds: Any, motions: Array, to_memory: Any = np.asarray) -> None:
        """What it keeps in these worlds as a run starts with it. motions: (len(worlds), FIELDS) on the CPU."""
        self.memories[worlds] = 0.0
        for kept in self.kept_by_faults.values():
            kept[worlds] = 0.0
        tracker = self.sensor.tracker
        if tracker is not None and tracker.begin is not None and self.owner is self:
            seen: Any = motions[0].tolist() if len(motions) == 1 else motions.T
            *begun, _ = np.broadcast_arrays(*tracker.begin(seen, self.context.settings), np.empty(len(motions)))
            self.memories[worlds] = to_memory(np.stack(begun, axis=1))

    def arrays(self) -> dict[str, WorldArray]:
        """What it keeps from reading to reading."""
        kept = {name: WorldArray(array) for name, array in self.kept_by_faults.items()}
        return {"memory": WorldArray(self.memories), **kept} if self.sensor.memory and self.owner is self else kept

    def kinds(self) -> set[Any]:
        """All kernels that it calls."""
        tracker = () if self.track is None or self.sensor.tracker is None else (self.sensor.tracker.kernel,)
        return {*self.kernels, *tracker}


def in_rows(calls: Iterable[Call], scene: int) -> npt.NDArray[Any]:
    """Their `CALL` records."""
    return np.concatenate([call.row(scene) for call in calls])
