"""`BatchSimulation`: n worlds of one scenario in arrays, each with a seed of its own.

World i is bit for bit the `Simulation` with its seed, for any n, any number of threads, and on a GPU: all run the same
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from microsim.batch.batch_columns import (
    Array,
    Integers,
    Loops,
    checked_seeds,
    checked_threads,
    is_on_gpu,
    whole_numbers,
)
from microsim.batch.batch_ground import Ground
from microsim.batch.batch_radio import BatchRadio
from microsim.batch.device_choice import choose_loops
from microsim.batch.instrument_columns import sensor_columns
from microsim.batch.robot_columns import RobotColumns
from microsim.batch.sensor_columns import BatchContext, KernelColumns, SensorColumns, why_not
from microsim.display import display
from microsim.engine.contact_tables import Contacts, Mover
from microsim.engine.radio import RadioNetwork
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world_arrays import WorldArray
from microsim.engine.worlds import SavedWorlds, Worlds
from microsim.errors import UsageError, unknown
from microsim.outputs.compose import radio_network
from microsim.plugin_errors import plugin_errors
from microsim.scenario import Scenario, load_scenario
from microsim.scenario.fault_models import refuse_faults
from microsim.scenario.live_changes import obstacle_names
from microsim.scenario.scene import build_world, checked_packet, faults_in_ticks
from microsim.simulation import END_OF_TIME_NS

_CHUNK = 64  # worlds of a thread come in multiples of these


@dataclass(frozen=True)
class BatchSnapshot:
    """Some worlds as they were. Made by `BatchSimulation.snapshot`; belongs to that scenario and its sensors."""

    scenario: Scenario
    sensors: tuple[str, ...]
    seeds: Integers
    worlds: SavedWorlds
    radios: Sequence[Any]

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def arrays(self) -> dict[str, Any]:
        """All by name, what robots touched among them."""
        arrays, (_, _, touched), _ = self.worlds
        return {**arrays, "touched": touched}


class BatchSimulation:
    """n worlds that advance together when `step` is called.

    `seeds` has one for each world; by default they count up from the scenario's. `sensors` are those to run, as
    `robot/sensor`; by default all, and one that cannot run in a batch is refused by name. Cameras cost most: leave them
    out if they are not read. `threads` share the worlds among them.

    With `device="cuda"` (the extra `gpu`) worlds live on an NVIDIA GPU, and arrays are CuPy's, which torch, JAX and
    others share without a copy. Where no GPU gives the CPU's bits, it is refused with the reason; `device="auto"` warns
    and runs on the CPU. The attribute `device` is the one in use.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path | Mapping[str, Any],
        n: int | None = None,
        seeds: Sequence[int] | Integers | None = None,
        *,
        sensors: Iterable[str] | None = None,
        threads: int = 1,
        device: str | Loops = "cpu",
    ) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
        refuse_faults("a batch", self.scenario, "messages", "node", can_draw=False)
        if self.scenario.controllers:
            raise UsageError("a batch has no controllers: fill in its commands, or run each world as a Simulation")
        given = checked_seeds(self.scenario, n, seeds)
        self.n = len(given)
        self.loops = choose_loops(device, self.scenario, sensors, BatchSimulation)
        self.seeds: Integers = self.loops.array(given)
        self.clock = Clock(self.scenario.physics_hz)
        self.tick: Integers = self.loops.xp.zeros(self.n, np.int64)
        self.ground = Ground(self.scenario, build_world(self.scenario), self.clock.dt, self.n, self.loops)
        make = (self.scenario, self.ground, self.clock.dt, self.n)
        self._robots = {}
        for name, settings in self.scenario.robots.items():
            with plugin_errors(f"robot {name}", type(settings)):
                self._robots[name] = RobotColumns(make[0], name, *make[1:])
        self.needs_tick: list[bool] = []  # of each robot, as it is in the table of `worlds`
        self.worlds = self._make_worlds()
        self._faults = faults_in_ticks(self.scenario, self.clock)
        self._radio = BatchRadio(self._radio_of, self.worlds.distance)
        self._sensors = self._make_sensors(sensors)
        self._all: Integers = self.loops.xp.arange(self.n)
        self._threads = checked_threads(threads) if self.device == "cpu" else 1
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
        self._declare_arrays()
        self.reset()

    def __repr__(self) -> str:
        robots, sensors = ", ".join(self.robots) or "no robots", ", ".join(self.sensors) or "no sensors"
        where = f"{self.n:,} worlds on {self.device}"
        return f"<BatchSimulation {self.scenario.name!r}, {where}: {robots}; {sensors}>"

    def _repr_html_(self) -> str:
        return display().html_of(self)

    @property
    def movers(self) -> list[RobotColumns]:
        """All robots, in the order in which they make way for each other."""
        return list(self._robots.values())

    @property
    def device(self) -> str:
        """Where the worlds are: "cpu" or "cuda"."""
        return self.loops.name

    # ---- running ---------------------------------------------------------------------------------------------

    def step(self, ticks: int = 1) -> None:
        """Put the commands into force, move all worlds on by `ticks`, and sample the sensors that are due on the way.

        Then `readings` hold each sensor's latest reading.
        """
        self._run(ticks, is_sensing=True)

    def advance(self, ticks: int = 1) -> None:
        """Move the robots only, as `Simulation.advance` does: what was due on the way is left out."""
        self._run(ticks, is_sensing=False)

    def reset(self, worlds: Any = None, seeds: Sequence[int] | Integers | None = None) -> None:
        """These worlds back to tick 0, with other seeds if given; the others continue.

        `worlds` is a mask (n,) of bool, a list of numbers, or None for all.
        """
        chosen = self._chosen(worlds)
        if seeds is not None:
            given = self._whole_numbers(seeds, "seeds")
            if given.shape != chosen.shape:
                raise UsageError(f"{chosen.size} worlds need as many seeds; found {given.size}")
            self.seeds[chosen] = given
        if not chosen.size:
            return
        drawn = self.seeds[chosen]
        self.tick[chosen] = 0
        if self._radio.is_used:
            self._radio.reset(self.loops.host(chosen).tolist())
        self._lay_out(chosen)
        self.worlds.contacts.touched[:, :, chosen] = 0
        for robot in self._robots.values():
            with plugin_errors(f"robot {robot.name}", type(robot.settings)):
                robot.reset(chosen, drawn)
        for sensor in (*self._unseen, *self._sensors.values()):
            with plugin_errors(f"sensor {sensor.target}", sensor.sensor):
                sensor.reset(chosen, drawn)
        self._track(chosen)
        for sensor in self._sensors.values():
            with plugin_errors(f"sensor {sensor.target}", sensor.sensor):
                sensor.sample(chosen, self.tick)
                sensor.finish(chosen, self.tick)

    def _lay_out(self, worlds: Integers) -> None:
        """What the seeds of these worlds decide about their ground."""
        self.ground.draw(worlds, self.seeds[worlds])
        if self.ground.is_generated:
            self.worlds.contacts.show(self.ground.outlines, self.ground.moved, self.ground.heights)

    def _run(self, ticks: int, is_sensing: bool) -> None:
        self._check_ticks(ticks)
        if ticks or not is_sensing:  # as in a single world, where `advance(0)` takes inputs and `step(0)` does not
            self._radio.take(self.seeds, self.tick)
        chunks = self._chunks()
        if self._pool is None or len(chunks) == 1:
            for chunk in chunks:
                self._run_chunk(*chunk, int(ticks), is_sensing)
        else:
            for done in [self._pool.submit(self._run_chunk, *chunk, int(ticks), is_sensing) for chunk in chunks]:
                done.result()
        if is_sensing:
            self._radio.deliver(self.tick, int(ticks))

    def _chunks(self) -> list[tuple[int, int]]:
        size = -(-self.n // self._threads)
        size = -(-size // _CHUNK) * _CHUNK
        return [(begin, min(begin + size, self.n)) for begin in range(0, self.n, size)]

    def _run_chunk(self, begin: int, end: int, ticks: int, is_sensing: bool) -> None:
        for robot in self._robots.values() if ticks else ():
            self.loops.take(robot, begin, end)
        done = 0
        events = self._events(begin, end, ticks) if is_sensing else {}
        for offset in sorted(events):
            self._move(begin, end, offset - done)
            done = offset
            self._track(self._all[begin:end])
            for sensor, worlds in events[offset]:
                with plugin_errors(f"sensor {sensor.target}", sensor.sensor):
                    sensor.sample(worlds, self.tick)
        self._move(begin, end, ticks - done)
        for sensor in self._sensors.values() if is_sensing and ticks else ():
            with plugin_errors(f"sensor {sensor.target}", sensor.sensor):
                sensor.finish(self._all[begin:end], self.tick)

    def _move(self, begin: int, end: int, ticks: int) -> None:
        if ticks:
            self.loops.move(self, ticks, begin, end)
            self.tick[begin:end] += ticks

    def _events(self, begin: int, end: int, ticks: int) -> dict[int, list[tuple[SensorColumns, Integers]]]:
        """By the number of ticks from now: which sensors of which worlds are read, as far as anyone will see it."""
        events: dict[int, list[tuple[SensorColumns, Integers]]] = {}
        events |= {offset: [] for offset in range(1, ticks + 1) if self._trackers}
        now = self.tick[begin:end]
        is_together = bool(self._sensors) and bool((now == now[0]).all())
        for sensor in self._sensors.values():
            for offset, worlds in self._firings(sensor, begin, end, ticks, is_together):
                events.setdefault(offset, []).append((sensor, worlds))
        return events

    def _firings(
        self, sensor: SensorColumns, begin: int, end: int, ticks: int, is_together: bool
    ) -> Iterable[tuple[int, Integers]]:
        start, everyone = self.tick[begin:end], self._all[begin:end]
        if is_together:
            offsets = firings(sensor.trigger, int(start[0]), ticks)
            return [(offset, everyone) for offset in (offsets if sensor.has_history else offsets[-1:])]
        found: list[tuple[int, Integers]] = []
        reach = ticks
        while reach > 0:
            offsets_of = self.loops.last_firing(sensor.trigger.step, start, reach)
            latest = int(offsets_of.max())
            if latest == 0:
                break
            is_one = int(offsets_of.min()) == latest  # for all worlds, as where steps are as long as a period
            if sensor.has_history or is_one:  # from the latest to the first
                found.append((latest, everyone if is_one else everyone[offsets_of == latest]))
                reach = latest - 1 if sensor.has_history else 0
                continue
            for offset in self.loops.xp.unique(offsets_of[offsets_of > 0]).tolist():
                found.append((offset, everyone[offsets_of == offset]))
            break
        return found

    def _track(self, worlds: Integers) -> None:
        for sensor in self._trackers:
            sensor.track(worlds, self.tick)

    # ---- arrays, without a copy ------------------------------------------------------------------------------

    @property
    def robots(self) -> tuple[str, ...]:
        return tuple(self._robots)

    @property
    def sensors(self) -> tuple[str, ...]:
        return tuple(self._sensors)

    @property
    def readings(self) -> dict[str, Any]:
        """By `robot/sensor`: the latest reading of each world, a row each."""
        return {name: sensor.readings for name, sensor in self._sensors.items()}

    @property
    def sampled_at(self) -> dict[str, Integers]:
        """By `robot/sensor`: the tick of each world's latest reading; -1 where there is none yet."""
        return {name: self.loops.array(sensor.sampled_at[: self.n]) for name, sensor in self._sensors.items()}

    def fields(self, sensor: str) -> tuple[str, ...]:
        """Names of the numbers of one reading, in their order."""
        columns = self._sensors[sensor]
        names = list(columns.sensor.reading) if isinstance(columns, KernelColumns) else []
        total = int(np.prod(columns.readings.shape[1:], dtype=int))
        each = total // max(len(names), 1)  # of each name
        if len(names) < 2 and each != 1:
            return tuple(str(number) for number in range(total))
        return tuple(names if each == 1 else (f"{name}_{number}" for name in names for number in range(each)))

    def images(self, sensor: str) -> dict[str, Any]:
        """A camera's latest images: `image` (n, h, w, 3), and those that its `render` requests: `depth` (n, h, w) [m],
        `segmentation` (n, h, w, 3), `instances` (n, h, w). On the CPU they are views of its `readings`.
        """
        columns = self._sensors[sensor]
        if columns.sensor.camera is None:
            raise UsageError(f"{sensor} is not a camera: it has no images")
        return columns.sensor.camera.images(columns.block, columns.readings, self.loops.xp)

    def commands(self, robot: str) -> Array:
        """(inputs, n) to write into. Its values are sent with every `step`, in the order of `inputs`.

        A column with NaN or infinity is ignored and counted; values beyond the limits are clamped.
        """
        return self._robot(robot).new_command[:, : self.n]

    def inputs(self, robot: str) -> tuple[str, ...]:
        return self._robot(robot).model.inputs

    def state(self, robot: str) -> dict[str, Array]:
        """The true state as `Simulation.state` names it: each (n,)."""
        columns = self._robot(robot)
        return {name: columns.state[row, : self.n] for name, row in columns.model.state.items()}

    def touching(self, robot: str, world: int) -> tuple[str, ...]:
        """What a robot touches now, as `Simulation.touching` names it."""
        return self.worlds.touching(self._robot(robot).name, world, self.ground.names_of(world))

    def last_contact(self, robot: str, world: int) -> str:
        """What it touched last since the reset of its world; empty: nothing."""
        return self.worlds.last_contact(self._robot(robot).name, world, self.ground.names_of(world))

    def rows(self, robot: str) -> Array:
        """(rows, n) as `microsim.engine.components` names them."""
        return self._robot(robot).state[:, : self.n]

    def ignored(self, robot: str) -> Integers:
        """(n,) commands that were ignored since the last reset."""
        return self._robot(robot).ignored[: self.n]

    def free_places(
        self, stream: str, x: tuple[float, float], y: tuple[float, float], gap_m: float = 1.0, worlds: Any = None
    ) -> Array:
        """(len(worlds), 2): in each world a place in a free cell, which its seed draws from a stream of that name."""
        chosen, spans = self._chosen(worlds), np.array((*x, *y, gap_m), np.float64)
        return self.loops.free_places(self.ground, spans, chosen, self.loops.stream_keys(self.seeds[chosen], stream))

    def stream_keys(self, stream: str, worlds: Any = None) -> Integers:
        """(len(worlds),): for each world a number of 63 bits that its seed decides, another for each stream."""
        return self.loops.stream_keys(self.seeds[self._chosen(worlds)], stream)

    def memory_bytes(self) -> int:
        """Of all arrays that have an entry for each world, readings included."""
        arrays = [each.array for each in self.worlds.arrays.values()]
        return sum(
            int(array.nbytes) for array in (*arrays, *self.ground.generated, self.worlds.contacts.touched, self.seeds)
        )

    # ---- radio -----------------------------------------------------------------------------------------------

    def radio_send(
        self, sender: str, payload: bytes | Sequence[bytes | None], worlds: Sequence[int] | Integers | None = None
    ) -> None:
        """Hand in a packet in each of these worlds (all by default), as `Simulation.radio_send` does.

        `payload`: the same for all, or one for each; None sends nothing there.
        """
        self._robot(sender)
        chosen = self.loops.host(self._chosen(worlds)).tolist()
        is_one = isinstance(payload, (bytes, bytearray, memoryview, str))  # a str is refused below
        payloads: list[Any] = [payload] * len(chosen) if is_one else list(payload)
        if len(payloads) != len(chosen):
            raise UsageError(f"{len(chosen)} worlds need as many payloads; found {len(payloads)}")
        packets = [None if each is None else checked_packet(self.scenario, sender, each) for each in payloads]
        self._radio.send(sender, packets, chosen)

    def radio_received(self, receiver: str) -> dict[int, list[bytes]]:
        """By world: the packets that arrived at a robot in the last `step`, in their order (without empty lists)."""
        name = self._robot(receiver).name
        found = {w: [payload for to, payload in packets if to == name] for w, packets in self._radio.received.items()}
        return {world: packets for world, packets in found.items() if packets}

    def radio(self, world: int) -> RadioNetwork | None:
        """The radio of one world, with its figures, as `Simulation.radio`; None before its first packet."""
        return self._radio.networks.get(world)

    def _radio_of(self, seed: int) -> RadioNetwork:
        network = radio_network(self.scenario, seed, self._faults)
        assert network is not None  # else nothing could be sent
        return network

    # ---- time travel -----------------------------------------------------------------------------------------

    def snapshot(self, worlds: Any = None) -> BatchSnapshot:
        chosen = self._chosen(worlds)
        worlds = self.worlds.save(lambda array: self._beside(array, chosen))
        radios = self._radio.save(self.loops.host(chosen).tolist())
        return BatchSnapshot(self.scenario, self.sensors, self.seeds[chosen], worlds, radios)

    def restore(self, snapshot: BatchSnapshot, worlds: Any = None) -> None:
        """Make these worlds (by default as many as the snapshot has, from the first on) those of the snapshot."""
        if snapshot.scenario != self.scenario or snapshot.sensors != self.sensors:
            raise UsageError("the snapshot is of another scenario or of other sensors")
        chosen = self._chosen(range(len(snapshot)) if worlds is None else worlds)
        if chosen.size != len(snapshot):
            raise UsageError(f"the snapshot has {len(snapshot)} worlds; {chosen.size} are to be restored")
        self.seeds[chosen] = snapshot.seeds
        if self.ground.is_generated:
            self._lay_out(chosen)
        self.worlds.load(snapshot.worlds, lambda array: self._beside(array, chosen))
        for sensor in self._sensors.values():
            sensor.loaded(chosen, self.seeds[chosen])
        for robot in self._robots.values():
            robot.look_at_parameters()
        self._radio.load(self.loops.host(chosen).tolist(), self.seeds, snapshot.radios)

    def fork(self, worlds: Any = None) -> BatchSimulation:
        """An independent twin of these worlds."""
        snapshot = self.snapshot(worlds)
        options: dict[str, Any] = {"sensors": self.sensors, "threads": self._threads, "device": self.loops}
        twin = BatchSimulation(self.scenario, seeds=self.loops.host(snapshot.seeds), **options)
        twin.restore(snapshot)
        return twin

    def _beside(self, array: Any, worlds: Integers) -> Integers:
        """The numbers of worlds in the memory in which an array is."""
        return self.loops.host(worlds) if isinstance(array, np.ndarray) else worlds

    def _declare_arrays(self) -> None:
        """All that worlds are, for snapshots."""
        self.worlds.arrays |= {"tick": WorldArray(self.tick), **self.ground.arrays()}
        parts: list[tuple[str, RobotColumns | SensorColumns]] = [*self._robots.items(), *self._sensors.items()]
        self.worlds.arrays |= {f"{name}:{what}": each for name, part in parts for what, each in part.arrays().items()}
        self.worlds.lines |= {name: each.line for name, each in self._sensors.items() if each.line is not None}

    def kernels(self) -> set[Any]:
        """All functions of robots and sensors that a step of this batch runs."""
        found = {robot.model.advance for robot in self._robots.values()}
        for sensor in (*self._unseen, *self._sensors.values()):
            found |= sensor.kernels()
        return found

    # ---- composition -----------------------------------------------------------------------------------------

    def _make_worlds(self) -> Worlds:
        scenario, ground, robots = self.scenario, self.ground, self._robots.values()
        contacts = Contacts(
            [Mover(robot.name, robot.model, robot.state) for robot in robots],
            {robot.name: robot.body() for robot in robots},
            ground.world,
            ground.scene,
            scenario.collisions == "stop",
            self.n,
            None if ground.is_shared else ground.moved,
            self.loops,
            ground.is_generated,
            obstacle_names(scenario),
        )
        home = {robot.name: (robot.fleet, 0) for robot in robots}
        return Worlds([robot.fleet for robot in robots], home, contacts, self.n, self.loops)

    def _make_sensors(self, wanted: Iterable[str] | None) -> dict[str, SensorColumns]:
        there = {
            f"{robot}/{name}": (robot, name, block, kind) for robot, name, block, kind in self.scenario.all_sensors
        }
        has_others = len(self._robots) > 1
        reasons = {full: why_not(full, block, kind, has_others) for full, (_, _, block, kind) in there.items()}
        possible = [full for full, reason in reasons.items() if not reason]
        names = list(there if wanted is None else wanted)
        for name in names:
            if name not in there:
                raise UsageError(unknown("no sensor", repr(name), name, possible))
            if reasons[name]:
                choice = f"; choose sensors with sensors=[...] from: {', '.join(possible)}"
                raise UsageError(reasons[name] + choice)
        batch = BatchContext(self.scenario, self._robots, self.clock, self._faults)
        made: dict[str, SensorColumns] = {}
        for full, (robot, name, block, kind) in there.items():
            if full in set(names) or (kind.tracker is not None and kind.tracker.is_shared and name == kind.name):
                with plugin_errors(f"sensor {full}", kind):
                    made[full] = sensor_columns(batch, self._robots[robot], name, block, kind, self.n)
        self._trackers = [each for each in made.values() if isinstance(each, KernelColumns) and each.is_tracking]
        self._unseen = [each for each in self._trackers if each.target not in names]  # what others share is kept up
        return {full: columns for full, columns in made.items() if full in set(names)}

    # ---- what users get wrong --------------------------------------------------------------------------------

    def _robot(self, robot: str) -> RobotColumns:
        if robot not in self._robots:
            raise UsageError(unknown("no robot", repr(robot), robot, self._robots))
        return self._robots[robot]

    def _chosen(self, worlds: Any) -> Integers:
        if worlds is None:
            return self._all
        chosen = list(worlds) if isinstance(worlds, range) else worlds
        chosen = self.loops.xp.asarray(chosen) if is_on_gpu(chosen) else np.asarray(chosen)
        if chosen.dtype == bool:
            if chosen.shape != (self.n,):
                raise UsageError(f"a mask has one value for each of the {self.n} worlds; found {chosen.shape}")
            return self.loops.array(chosen).nonzero()[0]
        numbers = self._whole_numbers(chosen, "worlds")
        if numbers.size and not (self._is_rising(numbers) or self._is_rising(self.loops.xp.sort(numbers))):
            raise UsageError(f"worlds are numbers from 0 to {self.n - 1}, each once; found {worlds!r}")
        return numbers

    def _is_rising(self, numbers: Integers) -> bool:
        """Whether they are worlds, each once, in their order; asks a GPU once."""
        return bool((numbers[0] >= 0) & (numbers[-1] < self.n) & (numbers[1:] > numbers[:-1]).all())

    def _whole_numbers(self, values: Any, what: str) -> Integers:
        """On the batch's device; values that are on a GPU already stay there."""
        if self.device == "cuda" and is_on_gpu(values):
            found: Integers = self.loops.xp.asarray(values)
            if found.dtype == np.int64:
                return self.loops.xp.ascontiguousarray(found).reshape(-1)
        return self.loops.array(whole_numbers(values, what))

    def _check_ticks(self, ticks: Any) -> None:
        if isinstance(ticks, bool) or not isinstance(ticks, (int, np.integer)) or ticks < 0:
            raise UsageError(f"the number of ticks must be a whole number, 0 or more; found {ticks!r}")
        if self.clock.time_ns(int(self.tick.max()) + int(ticks)) >= END_OF_TIME_NS:
            raise UsageError(f"{ticks} more ticks would pass 2**31 seconds, where the stamps of ROS 2 end")


def firings(trigger: Trigger, tick: int, ticks: int) -> list[int]:
    """How many ticks after `tick` the trigger fires, up to `ticks`."""
    found, due = [], trigger.next_tick(tick + 1)
    while due <= tick + ticks:
        found.append(due - tick)
        due = trigger.next_tick(due + 1)
    return found
