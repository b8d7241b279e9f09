"""Random missions: recorded, replayed, recorded again; and snapshots anywhere on the way."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.errors import MicroSimError
from microsim.messages.outbox import Message
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import load_state, resume, save_state
from microsim.scenario import load_scenario
from microsim.simulation import Simulation
from tests.recording_support import WORLD, files_of
from tests.support import many

HERTZ = (7, 30, 59.94, 60, 250)
speeds = st.floats(-6, 6) | st.sampled_from([0.0, -0.0, 1e308, 5e-324])
angles = st.floats(-1e3, 1e3) | st.sampled_from([0.0, -0.0, 3.141592653589793, 1e6, 5e-324])
places = st.floats(1, 39)
commands = st.tuples(st.just("drone"), st.fixed_dictionaries(dict.fromkeys(("vx", "vy", "vz", "yaw_rate"), speeds))) | (
    st.tuples(st.just("rover"), st.fixed_dictionaries(dict.fromkeys(("v", "omega"), speeds)))
)
poses = st.tuples(st.sampled_from(("drone", "rover")), places, places, st.none() | st.floats(-5, 50), angles)
packets = st.tuples(st.sampled_from(("drone", "rover")), st.binary(max_size=50))
changes = st.fixed_dictionaries({"wind": st.tuples(speeds.filter(lambda v: abs(v) < 10), st.just(0.0), st.just(0.0))})
ENTITIES: dict[str, dict[str, Any]] = {
    "crate": {"type": "box", "center": [30, 30, 0], "size": [1, 2, 1]},
    "scout": {"model": "rover", "scan": {"beams": 7}, "start": {"map_pose": {"x": 30, "y": 8}}},
    "walker": {"model": "actor", "path": [[0, 8, 30], [2, 12, 30]]},  # takes no commands
}
entities = st.tuples(st.sampled_from(("spawn", "delete", "move", "command")), st.sampled_from(tuple(ENTITIES)))
actions = st.one_of(
    st.tuples(st.just("entity"), entities),
    st.tuples(st.just("command"), commands),
    st.tuples(st.just("pose"), poses),
    st.tuples(st.just("packet"), packets),
    st.tuples(st.just("change"), changes),
    st.tuples(st.just("step"), st.integers(0, 12)),
)
missions = st.lists(actions, max_size=25)
options = st.fixed_dictionaries(
    {
        "storage": st.sampled_from(("mcap", "mcap", "sqlite3")),
        "chunk_bytes": st.sampled_from((1, 5_000, 2**20)),
        "split_bytes": st.sampled_from((None, None, 20_000)),
        "exclude": st.sampled_from(((), ("/clock",), ("*camera*", "/tf*"))),
    }
)


def act(sim: Simulation, action: str, what: Any) -> list[Message]:
    if action == "command":
        sim.command(what[0], **what[1])
    elif action == "pose":
        robot, x, y, z, yaw = what
        sim.set_pose(robot, x, y, z, yaw)
    elif action == "packet":
        sim.radio_send(*what)
    elif action == "change":
        wind = sim.scenario.wind.model_copy(update={"world_xyz": what["wind"]})
        sim.reconfigure(sim.scenario.model_copy(update={"wind": wind}))
    elif action == "entity":
        with suppress(MicroSimError):  # it is there already, or not there
            act_on_entity(sim, *what)
    else:
        return sim.step(what)
    return []


def act_on_entity(sim: Simulation, action: str, name: str) -> None:
    if action == "spawn":
        sim.spawn(name, ENTITIES[name])
    elif action == "delete":
        sim.delete(name)
    elif action == "move":
        sim.move_obstacle(name, (25.0, 30.0, 0.5))
    else:
        sim.command(name)


@settings(max_examples=many(40))
@given(missions, options, st.sampled_from(HERTZ), st.integers(-(2**63), 2**63 - 1))
def test_a_recorded_mission_is_replayed_and_recorded_again(
    mission: list[Any], chosen: dict[str, Any], hz: float, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sim = Simulation({**WORLD, "physics_hz": hz}, seed)
        with Recorder(folder / "one", sim, RecordOptions(**chosen)) as recorder:
            recorder.on_messages(sim.step(0))
            for action in mission:
                recorder.on_messages(act(sim, *action))
        with Replay(open_bag(folder / "one")) as again:
            verdict = again.verify()
        assert verdict.is_identical, verdict
        assert verdict.digest == sim.digest()
        with Replay(open_bag(folder / "one")) as again, Recorder(folder / "two", again.sim, recorder.options) as other:
            again.run(other.on_messages)
        assert files_of(folder / "one") == files_of(folder / "two")


def story(messages: list[Message]) -> list[tuple[str, int, bytes]]:
    return [(each.topic, each.stamp_ns, each.cdr) for each in messages]


@settings(max_examples=many(40))
@given(missions, missions, st.integers(0, 150), st.sampled_from(HERTZ))
def test_going_on_from_a_file_is_never_having_stopped(
    before: list[Any], after: list[Any], ticks: int, hz: float
) -> None:
    world = load_scenario({**WORLD, "physics_hz": hz})
    sim = Simulation(world, 5)
    for action in before:
        act(sim, *action)
    sim.step(ticks)
    for action in before[:3]:  # some are taken but not yet applied, some messages not yet handed out
        if action[0] != "step":
            act(sim, *action)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.state"
        save_state(path, sim.snapshot())
        alone = resume(path, Path(name))
        other = Simulation(world, 1)
        other.step(3)
        load_state(path, other)
        for action in [*after, ("step", 30)]:
            expected = story(act(sim, *action))
            assert story(act(alone, *action)) == expected
            assert story(act(other, *action)) == expected
        assert alone.digest() == other.digest() == sim.digest()
        assert alone.counters == other.counters == sim.counters
