"""Radio in batches: each world delivers, loses and delays what the `Simulation` with its seed does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation
from microsim.errors import UsageError
from microsim.messages.outbox import Messages
from microsim.messages.topics import TOPICS
from tests.support import bare

SCENARIO: dict[str, Any] = {
    "robots": {
        "drone": bare(start={"map_pose": {"x": 5, "y": 6, "z": 3}}),
        "rover": bare(start={"map_pose": {"x": 30, "y": 6}}),
        "third": bare(model="rover", start={"map_pose": {"x": 6, "y": 30}}),
    },
    "radio": {
        "latency_ms_mean": 60, "latency_ms_jitter": 25, "drop_probability": 0.2, "bitrate_bps": 20_000,
        "queue_limit": 6, "rssi": {"tx_power_dbm": 20, "path_loss_exponent": 2.4, "reference_loss_db": 40},
    },
    "faults": ["radio:blackout@0.5s-0.7s"],
}  # fmt: skip
SEEDS = [3, 4, -9]
ROBOTS = list(SCENARIO["robots"])
PAYLOADS = st.one_of(st.none(), st.binary(max_size=40))
ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(ROBOTS), st.lists(PAYLOADS, min_size=3, max_size=3)),
    st.tuples(st.sampled_from(["step", "advance"]), st.integers(0, 9)),
    st.tuples(st.just("restore")),
)


def received(messages: Messages, robot: str) -> list[bytes]:
    return [bytes(each.message.data) for each in messages if each.topic == TOPICS["radio_rx"].of(robot)]


@settings(max_examples=25, deadline=None)
@given(st.lists(ACTIONS, max_size=30))
def test_every_world_receives_what_a_single_one_does(actions: list[Any]) -> None:
    batch = BatchSimulation(SCENARIO, seeds=SEEDS, sensors=())
    singles = [microsim.Simulation(SCENARIO, seed=seed) for seed in SEEDS]
    for sim in singles:
        sim.command("drone", vx=1.0)
    batch.commands("drone")[0] = 1.0
    for action, *values in actions:
        if action == "send":
            batch.radio_send(*values)
            for sim, payload in zip(singles, values[1], strict=True):
                if payload is not None:
                    sim.radio_send(values[0], payload)
        elif action == "restore":
            kept = batch.snapshot()
            batch.reset()
            batch.restore(kept)
            singles = [sim.fork() for sim in singles]
        elif action == "advance":
            batch.advance(values[0])
            for sim in singles:
                sim.advance(values[0])
        else:
            batch.step(values[0])
            heard = [sim.step(values[0]) for sim in singles]
            for robot in ROBOTS:
                expected = {w: received(each, robot) for w, each in enumerate(heard)}
                assert batch.radio_received(robot) == {w: packets for w, packets in expected.items() if packets}
    for world, sim in enumerate(singles):
        network = batch.radio(world)
        if network is not None:
            assert sim.radio is not None
            assert repr(network.save()) == repr(sim.radio.save())


def test_a_reset_world_starts_with_an_empty_radio() -> None:
    batch = BatchSimulation(SCENARIO, seeds=SEEDS, sensors=())
    batch.radio_send("drone", b"on its way")
    batch.step(1)
    batch.reset([1])
    assert batch.radio(0) is not None
    assert batch.radio(1) is None
    arrived: set[int] = set()
    for _ in range(30):
        batch.step(1)
        arrived |= set(batch.radio_received("rover"))
    assert arrived <= {0, 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("dron", b"x"), "no robot 'dron'; did you mean 'drone'"),
        (("drone", "text"), "must be bytes; found str"),
        (("drone", [b"x", b"y"]), "3 worlds need as many payloads; found 2"),
        (("drone", b"x", [7]), "worlds are numbers from 0 to 2"),
    ],
)
def test_a_packet_that_cannot_be_sent_is_refused(call: tuple[Any, ...], message: str) -> None:
    batch = BatchSimulation(SCENARIO, seeds=SEEDS, sensors=())
    with pytest.raises(UsageError, match=message):
        batch.radio_send(*call)
