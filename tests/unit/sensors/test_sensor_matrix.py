"""Every kind of sensor × all that the engine does with them. What is not supported is refused by name, never ignored.

Built-in sensors are taken from the registry: a new one is in the matrix without being named here. Plug-ins are there in
both forms: with a kernel, and the simple one with `update` and `publish`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

import microsim
from microsim.batch import BatchSimulation
from microsim.errors import ScenarioError, UsageError
from microsim.faults import FAULTS
from microsim.scenario import load_scenario
from microsim.sensors import SENSORS
from microsim.sensors.sensor import KernelSensor, PythonSensor, Sensor, varies
from tests.support import bare, decoded, on_topic, scenario
from tests.unit.batch.batch_reference import Singles, assert_equal, reading

SIMPLE = '''
"""A thermometer that warms up with the way its robot has gone."""
from pydantic import BaseModel
from microsim.engine.motion import FORWARD
from microsim.sensors.sensor import PythonSensor

class Options(BaseModel):
    sigma_k: float = 0.5

class Thermometer:
    def __init__(self, context):
        self.context, self.way_m = context, 0.0

    def update(self, dt):
        self.way_m += dt * self.context.motion[FORWARD]

    def publish(self):
        noise = self.context.options["sigma_k"] * self.context.normals()[0]
        return {"temperature": self.way_m + noise, "variance": self.context.place[0]}

SENSOR = PythonSensor("simple_probe", "sensor_msgs/msg/Temperature", Thermometer, Options)
'''

KERNEL = '''
"""The same as a kernel."""
from pydantic import Field
from microsim.documents.values import Finite, Noise
from microsim.engine import noise
from microsim.engine.compiled import kernel
from microsim.engine.motion import FORWARD, PLACE_X
from microsim.messages.encoders import header
from microsim.messages.topics import DEFAULT_QOS
from microsim.messages.types import new
from microsim.sensors.sensor import DROPOUT, JUMP, KernelSensor, MessageForm, Mount, MountedSensor, Tracker

_normals = noise.normals

class ThermometerSettings(MountedSensor):
    sigma_k: Noise = Field(0.5, description="White noise [K].")
    kelvin_per_m: Finite = Field(2.0, description="Warming [K/m].")

@kernel
def track(settings, motion, memory, scene, key, tick, reading):
    memory[0] += scene.dt * motion[FORWARD]

@kernel
def sample(settings, motion, memory, scene, key, tick, reading):
    reading[0] = settings[1] * memory[0] + settings[0] * _normals(key, tick, 0)[0]
    reading[1] = motion[PLACE_X]

SENSOR = KernelSensor(
    "kernel_probe",
    settings=ThermometerSettings,
    sample=sample,
    mount=Mount(xyz=(0.5, 0.0, 1.0)),
    tracker=Tracker(track),
    memory=("way_m",),
    reading={"temperature": "K", "place": "m"},
    numbers=lambda context: (context.settings.sigma_k, context.settings.kelvin_per_m),
    messages=(
        MessageForm(
            "sensor_msgs/msg/Temperature", "/{robot}/{sensor}", DEFAULT_QOS, "how warm it is",
            lambda context: new("sensor_msgs/msg/Temperature", header=header(context.frame)),
            {"temperature": "temperature", "variance": "place"},
        ),
    ),
    faults=(DROPOUT, JUMP),
)
'''


ALTERING = '''
"""A fault that is not built in: every number of a reading is one too large."""
from microsim.engine.compiled import kernel
from microsim.faults import FaultKind, OnSensor

@kernel
def alter(settings, motion, memory, scene, key, tick, reading):
    if settings[0] <= tick < settings[1]:
        for k in range(reading.shape[0]):
            reading[k] += 1.0
        memory[0] += 1.0

FAULT = FaultKind("inflate", "readings are one too large", OnSensor(alter=alter))
'''


@pytest.fixture(scope="session", autouse=True)
def _plugins(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "simple_probe.py").write_text(SIMPLE)
    (folder / "kernel_probe.py").write_text(KERNEL)
    (folder / "inflate.py").write_text(ALTERING)
    PLUGINS.append(str(folder))


PLUGINS: list[str] = []
SECOND = 100  # ticks
NO_DELAY = {"mean": 0.0, "jitter": 0.0, "drop_probability": 0.0}
SMALL = {
    "camera": {"resolution": {"width": 16, "height": 12}},
    "lidar": {"columns": 24, "rings": 4},
    "scan": {"beams": 9},
}
BOXES = [{"type": "box", "center": [x, y, 0], "size": [1, 1, 2]} for x in (12, 36) for y in (20, 29, 33)]


@dataclass(frozen=True)
class Subject:
    """A sensor of the car `ego`: its kind, its keys, and what else the scenario must say."""

    kind: str
    block: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    name: str = ""  # of a further sensor; default: the kind's

    @property
    def is_further(self) -> bool:
        return bool(self.name) or self.kind not in SENSORS.built_in

    @property
    def sensor(self) -> Sensor:
        found = SENSORS.find(self.kind, PLUGINS)
        assert found is not None
        return found

    @property
    def target(self) -> str:
        return f"ego/{self.name or self.kind}"

    @property
    def path(self) -> str:
        """Of its block in the scenario."""
        return f"robots.ego.{'sensors.' if self.is_further else ''}{self.target[4:]}"

    def scenario(self, *faults: str, randomize: Any = None, **block: Any) -> dict[str, Any]:
        keys = {"hz": 10, **SMALL.get(self.kind, {}), **self.block, **block}
        if self.sensor.settings is not None and "latency_ms" in self.sensor.settings.model_fields:
            keys = {"latency_ms": NO_DELAY, **keys}
        name = self.target[4:]
        carried = {"sensors": {name: {"type": self.kind, **keys}}} if self.is_further else {name: keys}
        start = {"map_pose": {"x": 20.0, "y": 30.0, "yaw": 0.2}}
        car = bare(start=start, cmd_timeout_s=None, **{"joint_states": None, "lidar": None, "scan": None, **carried})
        return scenario(
            physics_hz=SECOND,
            map={"size_xy_cells": [60, 60]},
            obstacles=BOXES,
            robots={"ego": car},
            plugins=PLUGINS,
            faults=[fault.replace("IT", self.target) for fault in faults],
            randomize=randomize,
            **self.more,
        )

    def topics(self, sim: Any) -> list[str]:
        block = sim.scenario.robots["ego"].all_sensors()[self.target[4:]]
        forms = [form for form in self.sensor.messages if form.applies(block)]
        return [self.sensor.topic(form, "ego", self.target[4:]) for form in forms]


SUBJECTS = {
    **{kind: Subject(kind) for kind in SENSORS.built_in},
    "walking gps": Subject("gps", {"bias_drift_m_per_s": 0.5}),
    "second gps": Subject("gps", name="rear", block={"mount": {"xyz": [-1.0, 0.2, 1.0]}}),
    "drifting odom": Subject(
        "odom", {"drift": {"position_per_m": 0.1, "yaw_per_rad": 0.1}}, {"frames": {"per_robot_odom": True}}
    ),
    "late camera": Subject("camera", {"latency_ms": {"mean": 120.0, "jitter": 60.0, "drop_probability": 0.1}}),
    "simple plug-in": Subject("simple_probe", name="mine"),
    "kernel plug-in": Subject("kernel_probe", name="mine"),
}
every_sensor = pytest.mark.parametrize("subject", [pytest.param(each, id=label) for label, each in SUBJECTS.items()])


def drive(sim: Any, ticks: int = SECOND) -> list[Any]:
    """Messages of a drive on a curve."""
    sent = [*sim.step(0)]
    for _ in range(ticks // 10):
        sim.command("ego", speed=3.0, steering=0.2)
        sent += sim.step(10)
    return sent


def run(data: dict[str, Any], seed: int = 5) -> tuple[Any, list[Any]]:
    sim = microsim.Simulation(data, seed)
    return sim, drive(sim)


def stream(sent: list[Any], topics: list[str], is_within: Any = lambda ms: True) -> list[tuple[str, int, bytes]]:
    return [
        (each.topic, each.stamp_ns, each.cdr)
        for topic in topics
        for each in on_topic(sent, topic)
        if is_within(each.stamp_ns // 1_000_000)
    ]


def inside(ms: int) -> bool:
    return 300 <= ms < 600


def outside(ms: int) -> bool:
    return not inside(ms)


def before(ms: int) -> bool:
    return ms < 300


def status_of(sent: list[Any], target: str) -> list[dict[str, str]]:
    return [
        {pair.key: pair.value for pair in each.values}
        for message in decoded(sent, "/sim/status")
        for each in message.status
        if each.name == target
    ]


def forgets(subject: Subject) -> bool:
    """Whether a reading is independent of those before it: not that of a GPS whose bias walks from fix to fix."""
    return subject.block.get("bias_drift_m_per_s", 0.005 if subject.kind == "gps" else 0.0) == 0.0


# ---- mount -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gps", "scan", "kernel_probe"])
def test_a_further_sensor_sits_where_its_declaration_says_unless_the_scenario_says_otherwise(kind: str) -> None:
    sensors = {"one": {"type": kind}, "two": {"type": kind, "mount": {"rpy": [0.0, 0.0, 1.0]}}}
    data = scenario(plugins=PLUGINS, robots={"drone": bare(sensors=sensors, start={"map_pose": {"x": 5.0, "y": 5.0}})})
    sim = microsim.Simulation(data)
    one, two = (sim.scenario.robots["drone"].sensors[name].mount for name in ("one", "two"))
    sensor, robot = SENSORS.find(kind, PLUGINS), type(sim.scenario.robots["drone"])
    assert sensor is not None
    declared = robot.mounts.get(kind, sensor.mount)
    assert any(declared.xyz)
    assert (one.xyz, one.rpy) == (declared.xyz, declared.rpy)
    assert (two.xyz, two.rpy) == (declared.xyz, (0.0, 0.0, 1.0))
    frames = {each.child_frame_id: each.transform for each in decoded(sim.step(0), "/tf_static")[0].transforms}
    place = frames["drone/one_link"].translation
    assert (place.x, place.y, place.z) == declared.xyz
    assert load_scenario(sim.scenario.to_dict()) == sim.scenario


# ---- one more --------------------------------------------------------------------------------------------------------


ONLY_ONE = ("drifting odom", "joint_states", "autoware")  # a robot has one at most: refused as further sensors


@pytest.mark.parametrize("robot", ["drone", "rover", "ego"])
@pytest.mark.parametrize("label", [label for label in SUBJECTS if label not in ONLY_ONE])
def test_adding_a_sensor_changes_no_other_topic(label: str, robot: str) -> None:
    """But `/tf_static` and `/sim/info`, which list it; `/sim/status` is sent and reports a fault of another sensor."""
    subject = SUBJECTS[label]

    def sent(*further: dict[str, Any]) -> list[Any]:
        places = {
            "drone": {"x": 8.0, "y": 9.0, "z": 4.0},
            "rover": {"x": 30.0, "y": 8.0},
            "ego": {"x": 20.0, "y": 30.0},
        }
        robots = {name: bare(start={"map_pose": pose}, gps={"hz": 10}) for name, pose in places.items()}
        for each in further:
            robots[robot]["sensors"] = {"extra": each}
        data = scenario(
            physics_hz=SECOND, map={"size_xy_cells": [60, 60]}, obstacles=BOXES, robots=robots, plugins=PLUGINS,
            faults=["ego/gps:dropout@0.1s-0.2s"], **subject.more,
        )  # fmt: skip
        return drive(microsim.Simulation(data, 5), 40)

    block = {"type": subject.kind, "hz": 20, **SMALL.get(subject.kind, {}), **subject.block}
    with_it, without = sent(block), sent()
    new = {each.topic for each in with_it} - {each.topic for each in without}
    assert new, "it must send something"
    listing = {"/tf_static", "/sim/info"}
    kept, before = (
        [(each.topic, each.stamp_ns, each.cdr) for each in sent_ if each.topic not in new | listing]
        for sent_ in (with_it, without)
    )
    assert kept == before
    assert "/sim/status" in {topic for topic, _, _ in kept}


# ---- faults ----------------------------------------------------------------------------------------------------------


@every_sensor
def test_a_dropout_keeps_every_message_of_its_window_back_is_counted_and_changes_nothing_else(subject: Subject) -> None:
    still = {} if forgets(subject) else {"bias_drift_m_per_s": 0.0}
    (sim, plain), (faulty, sent) = (
        run(subject.scenario(**still)),
        run(subject.scenario("IT:dropout@0.3s-0.6s", **still)),
    )
    topics = subject.topics(sim)
    kept_back = stream(plain, topics[:1], inside)
    assert kept_back, "the window must hold messages"
    assert stream(plain, topics, outside), "there must be messages outside"
    assert stream(sent, topics, inside) == []
    assert stream(sent, topics, outside) == stream(plain, topics, outside)
    others = sorted(set(sim.topics) - {*topics, "/sim/status", "/sim/info"})
    assert stream(sent, others) == stream(plain, others)
    assert faulty.health.dropped == {subject.target: len(kept_back)}
    states = status_of(sent, subject.target)
    assert {each["health"] for each in states} == {"ok", "dropout"}
    assert states[-1] == {"health": "ok", "degraded_frames": "0", "dropped_frames": str(len(kept_back))}


@every_sensor
def test_after_a_dropout_a_sensor_is_as_often_sent_as_before(subject: Subject) -> None:
    (_, plain), (sim, sent) = run(subject.scenario()), run(subject.scenario("IT:dropout@0.3s-0.6s"))
    topics = subject.topics(sim)
    assert stream(sent, topics, before) == stream(plain, topics, before)
    stamps = [[stamp for _, stamp, _ in stream(each, topics, outside)] for each in (plain, sent)]
    assert stamps[0] == stamps[1]


@every_sensor
@pytest.mark.parametrize("kind", [each for each in FAULTS.built_in if each not in ("dropout", "blackout")])
def test_any_other_fault_shows_where_it_is_supported_and_is_refused_by_name_elsewhere(
    subject: Subject, kind: str
) -> None:
    offset = "(7,-3,2)" if FAULTS.built_in[kind].takes_offset else ""
    data = subject.scenario(f"IT:{kind}{offset}@0.3s-0.6s")
    if kind not in subject.sensor.faults:
        with pytest.raises(
            ScenarioError, match=f"{subject.target} cannot {kind}|{kind} and {subject.target} do not fit"
        ):
            load_scenario(data)
        return
    (_, plain), (sim, sent) = run(subject.scenario()), run(data)
    topics = subject.topics(sim)
    assert len(stream(sent, topics, inside)) == len(stream(plain, topics, inside)) > 0
    for ours, theirs in zip(stream(sent, topics[:1], inside), stream(plain, topics[:1], inside), strict=True):
        assert ours[:2] == theirs[:2]
        assert ours[2] != theirs[2]
    assert stream(sent, topics, outside) == stream(plain, topics, outside)
    assert sim.health.dropped == {}


@every_sensor
def test_a_plug_in_s_fault_alters_readings_of_kernels_alone_and_in_batches_and_is_refused_by_name_elsewhere(
    subject: Subject,
) -> None:
    data = subject.scenario("IT:inflate@0.3s-0.6s", "IT:dropout@0.35s-0.45s")
    if not isinstance(subject.sensor, KernelSensor):
        with pytest.raises(ScenarioError, match=f"{subject.target} cannot inflate"):
            load_scenario(data)
        return
    still = {} if forgets(subject) else {"bias_drift_m_per_s": 0.0}
    (sim, plain), (_, sent) = run(subject.scenario(**still)), run(subject.scenario("IT:inflate@0.3s-0.6s", **still))
    topic = subject.topics(sim)[0]
    assert stream(sent, [topic], outside) == stream(plain, [topic], outside)
    ours, theirs = (
        [
            reading(each.message, subject.sensor)
            for each in on_topic(messages, topic)
            if inside(each.stamp_ns // 1_000_000)
        ]
        for messages in (sent, plain)
    )
    assert len(ours) == 3
    np.testing.assert_allclose(ours, np.array(theirs) + 1.0, rtol=1e-6)
    assert_batch_equals_singles(data)
    twin = microsim.Simulation(data, 5)
    twin.step(47)
    assert [each.cdr for each in twin.fork().step(30)] == [each.cdr for each in twin.step(30)]


@every_sensor
def test_a_blackout_is_the_radio_s_alone(subject: Subject) -> None:
    with pytest.raises(ScenarioError, match="a blackout applies to the radio alone"):
        load_scenario(subject.scenario("IT:blackout@0.3s-0.6s"))


# ---- time travel -----------------------------------------------------------------------------------------------------


@every_sensor
@pytest.mark.parametrize("tick", [0, 23, 35, 57])
@pytest.mark.parametrize("way", ["fork", "restore", "another simulation"])
def test_from_a_snapshot_the_same_messages_come_again(subject: Subject, tick: int, way: str) -> None:
    data = subject.scenario("IT:dropout@0.3s-0.5s")
    sim = microsim.Simulation(data, 5)
    sim.command("ego", speed=3.0, steering=0.2)
    sim.step(tick)
    snapshot, twin = sim.snapshot(), sim.fork()
    expected = [(each.topic, each.stamp_ns, each.cdr) for each in sim.step(60)]
    if way == "restore":
        sim.restore(snapshot)
        twin = sim
    elif way == "another simulation":
        twin = microsim.Simulation(data, 99)
        twin.step(3)
        twin.restore(snapshot)
    assert [(each.topic, each.stamp_ns, each.cdr) for each in twin.step(60)] == expected
    assert set(subject.topics(sim)) <= {topic for topic, _, _ in expected}
    assert twin.digest() == sim.digest()
    assert twin.health.dropped == sim.health.dropped


# ---- randomisation ---------------------------------------------------------------------------------------------------


def numbers_in(model: BaseModel, path: str = "") -> Iterator[tuple[str, bool]]:
    """Every number in a block, by its path, and whether its declaration says that it varies."""
    for key in type(model).model_fields:
        value = getattr(model, key)
        if isinstance(value, BaseModel):
            yield from numbers_in(value, f"{path}{key}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"{path}{key}", varies(type(model), key)


def cases(is_varying: bool) -> list[Any]:
    found = []
    for label, subject in SUBJECTS.items():
        if subject.kind in SENSORS.built_in:
            settings = SENSORS.built_in[subject.kind].settings
            assert settings is not None
            keys = [
                key for key, is_marked in numbers_in(settings.model_validate(subject.block)) if is_marked is is_varying
            ]
        elif subject.kind == "kernel_probe":
            keys = ["sigma_k"] if is_varying else ["hz", "kelvin_per_m"]
        else:
            keys = [] if is_varying else ["hz", "sigma_k"]
        found += [pytest.param(subject, key, id=f"{label}-{key}") for key in keys]
    return found


def drawing(subject: Subject, key: str) -> dict[str, Any]:
    return subject.scenario(randomize={"values": {f"{subject.path}.{key}": [0.4, 0.9]}})


def value_at(sim: Any, subject: Subject, key: str) -> float:
    value = sim.resolved.robots["ego"].all_sensors()[subject.target[4:]]
    for part in key.split("."):
        value = getattr(value, part)
    return float(value)


@pytest.mark.parametrize(("subject", "key"), cases(is_varying=True))
def test_a_number_that_varies_is_drawn_by_the_seed_and_felt_in_the_messages(subject: Subject, key: str) -> None:
    data, written = drawing(subject, key), subject.scenario()
    (one, first), (_, again), (other, second), (_, plain) = (run(data, 5), run(data, 5), run(data, 6), run(written, 5))
    assert 0.4 <= value_at(one, subject, key) <= 0.9
    assert value_at(one, subject, key) != value_at(other, subject, key)
    topics = subject.topics(one)
    assert stream(first, topics) == stream(again, topics)
    assert stream(first, topics) != stream(second, topics)
    assert stream(first, topics) != stream(plain, topics)  # which has the same noise, and another sigma


@pytest.mark.parametrize(("subject", "key"), cases(is_varying=False))
def test_a_number_that_does_not_vary_is_refused_by_its_path(subject: Subject, key: str) -> None:
    with pytest.raises(ScenarioError, match=subject.path) as caught:
        load_scenario(drawing(subject, key))
    assert key.rpartition(".")[2] in str(caught.value)
    assert "cannot be drawn" in str(caught.value) or "has no" in str(caught.value)


# ---- batches ---------------------------------------------------------------------------------------------------------

ALL_FAULTS = ("IT:dropout@0.35s-0.42s", "IT:fail@0.5s-0.65s", "IT:jump(7,-3,2)@0.5s-0.65s")


def in_a_batch(subject: Subject) -> bool:
    return not isinstance(subject.sensor, PythonSensor)


def assert_batch_equals_singles(
    data: dict[str, Any], steps: tuple[int, ...] = (1, 9, 13, 18, 9, 3, 40)
) -> BatchSimulation:
    seeds = [5, -3, 2**40]
    batch, singles = BatchSimulation(data, seeds=seeds), Singles(data, seeds)
    commands = np.zeros((len(batch.inputs("ego")), len(seeds)))
    for index, name in enumerate(batch.inputs("ego")):
        commands[index] = {"speed": [3.0, 2.0, -1.0], "steering": [0.2, -0.3, 0.0]}.get(name, 0.0)
    assert_equal(batch, singles)
    for ticks in steps:
        batch.commands("ego")[:] = commands
        singles.command("ego", commands)
        batch.step(ticks)
        singles.step(ticks)
        assert_equal(batch, singles)
    for column, target in zip(batch._sensors.values(), batch.sensors, strict=True):
        assert column.dropped[: len(seeds)].tolist() == [sim.health.dropped[target] for sim in singles.sims]
    return batch


@every_sensor
@pytest.mark.parametrize("is_faulty", [False, True])
def test_each_world_of_a_batch_is_the_simulation_of_its_seed_or_the_sensor_is_refused(
    subject: Subject, is_faulty: bool
) -> None:
    faults = [each for each in ALL_FAULTS if is_faulty and any(f":{kind}" in each for kind in subject.sensor.faults)]
    data = subject.scenario(*faults)
    assert bool(faults) is is_faulty
    if not in_a_batch(subject):
        with pytest.raises(UsageError, match=f"{subject.target} is a plug-in without a kernel"):
            BatchSimulation(data, 2)
        return
    assert assert_batch_equals_singles(data).sensors == (subject.target,)


@pytest.mark.parametrize(("subject", "key"), cases(is_varying=True))
def test_worlds_of_a_batch_draw_what_simulations_of_their_seeds_draw(subject: Subject, key: str) -> None:
    assert_batch_equals_singles(drawing(subject, key))


@every_sensor
def test_worlds_of_a_batch_go_on_from_a_snapshot(subject: Subject) -> None:
    if not in_a_batch(subject):
        with pytest.raises(UsageError, match=subject.target):
            BatchSimulation(subject.scenario(), 2)
        return
    batch = BatchSimulation(subject.scenario("IT:dropout@0.3s-0.42s"), seeds=[5, 6])
    batch.commands("ego")[:2] = 1.0
    batch.step(35)
    twin = batch.fork()
    for each in (batch, twin):
        each.commands("ego")[:2] = 1.0
        each.step(40)
    name = subject.target
    assert batch.readings[name].tobytes() == twin.readings[name].tobytes()
    assert batch.sampled_at[name].tolist() == twin.sampled_at[name].tolist()
    assert batch._sensors[name].dropped.tolist() == twin._sensors[name].dropped.tolist()


# ---- latency ---------------------------------------------------------------------------------------------------------


def has_latency(subject: Subject) -> bool:
    return subject.sensor.settings is not None and "latency_ms" in subject.sensor.settings.model_fields


def sent_at(data: dict[str, Any], subject: Subject) -> list[tuple[int, int]]:
    """(stamp [ms], time of sending [ms]) of every message on its first topic."""
    sim = microsim.Simulation(data, 5)
    topic, found, messages = subject.topics(sim)[0], [], sim.step(0)
    while sim.tick < SECOND:
        found += [(each.stamp_ns // 1_000_000, sim.time_ns // 1_000_000) for each in on_topic(messages, topic)]
        messages = sim.step(1)
    return found


@every_sensor
def test_a_pipeline_delays_messages_and_keeps_their_stamps_or_is_refused_by_name(subject: Subject) -> None:
    delay = {"latency_ms": {"mean": 130.0, "jitter": 0.0, "drop_probability": 0.0}}
    if not has_latency(subject):
        with pytest.raises(ScenarioError, match=f"{subject.path}.latency_ms: unknown key"):
            load_scenario(subject.scenario(**delay))
        assert all(stamp == now for stamp, now in sent_at(subject.scenario(), subject))
        return
    assert sent_at(subject.scenario(**delay), subject) == [
        (at, at + 130) for at in range(0, 900, 100) if at + 130 < 1000
    ]
    assert sent_at(subject.scenario(latency_ms=NO_DELAY), subject) == [(at, at) for at in range(0, 1000, 100)]


LATE = [pytest.param(each, id=label) for label, each in SUBJECTS.items() if each.kind == "camera"]


@pytest.mark.parametrize("subject", LATE)
def test_what_is_under_way_in_a_pipeline_survives_a_snapshot_and_is_late_in_a_batch_too(subject: Subject) -> None:
    data = subject.scenario(latency_ms={"mean": 130.0, "jitter": 20.0, "drop_probability": 0.2})
    sim = microsim.Simulation(data, 5)
    sim.command("ego", speed=3.0)
    sim.step(44)  # what was exposed at 0.4 s has not left yet
    twin, topics = sim.fork(), subject.topics(sim)
    first = [stream([*each.step(60)], topics) for each in (sim, twin)]
    assert first[0] == first[1]
    assert any(stamp <= 440_000_000 for _, stamp, _ in first[0])
    assert_batch_equals_singles(data)


def test_nothing_with_a_pipeline_is_left_out_above() -> None:
    late = {
        kind for kind, each in SENSORS.built_in.items() if each.settings and "latency_ms" in each.settings.model_fields
    }
    assert late == {"camera"}
