"""The demo pilot: it does what it says, and the same again."""

import itertools
import math

import pytest

import microsim
from microsim.messages.outbox import Message
from microsim.parts.missions.demo_pilot import DemoPilot

SCENARIOS = ["default", "flat", "maze", "obstacles_arena", "showcase"]


def flown(scenario: object, seconds: int, seed: int = 5) -> tuple[microsim.Simulation, list[Message]]:
    sim = microsim.Simulation(scenario, seed=seed)  # type: ignore[arg-type]
    pilot = DemoPilot(sim)
    messages = [*sim.step(0)]
    pilot(messages)
    for _ in range(60 * seconds):
        fresh = sim.step(1)
        pilot(fresh)
        messages += fresh
    return sim, messages


def positions(messages: list[Message], robot: str) -> list[tuple[float, float, float]]:
    poses = [each.message.pose.pose.position for each in messages if each.topic == f"/{robot}/odom"]
    return [(pose.x, pose.y, pose.z) for pose in poses]


def test_the_same_seed_gives_the_same_digest_and_another_another() -> None:
    digests = [flown("default", 8, seed)[0].digest() for seed in (5, 5, 6)]
    assert digests[0] == digests[1] != digests[2]


def test_the_drone_flies_a_square_of_20_m_at_a_height_of_10_m() -> None:
    sim, messages = flown("flat", 35)
    track = positions(messages, "drone")
    x0, y0, _ = track[0]
    for corner in [(x0 + 20, y0), (x0 + 20, y0 + 20), (x0, y0 + 20), (x0, y0)]:
        assert min(math.dist(corner, (x, y)) for x, y, _ in track[60:]) < 2.0
    assert all(-2.0 < x - x0 < 22.0 and -2.0 < y - y0 < 22.0 for x, y, _ in track)
    assert sim.state("drone").z == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_rover_keeps_moving_wherever_it_is(scenario: str) -> None:
    sim, messages = flown(scenario, 20)
    track = positions(messages, "rover")
    driven = sum(math.dist(a, b) for a, b in itertools.pairwise(track))
    assert driven > 5.0
    assert not sim.counters


def test_the_rover_turns_away_before_it_touches_a_wall() -> None:
    walls = [
        {"type": "box", "center": [20, edge, 0], "size": [40, 1, 2]} if flat else
        {"type": "box", "center": [edge, 20, 0], "size": [1, 40, 2]}
        for edge in (0.5, 39.5) for flat in (True, False)
    ]  # fmt: skip
    arena = {
        "map": {"size_xy_cells": [40, 40]},
        "obstacles": walls,
        "robots": {"rover": {"start": {"map_pose": {"x": 20, "y": 20, "yaw": 0.0}}}},
    }
    sim, _ = flown(arena, 40)
    assert sim.state("rover").contacts < 60


def test_the_drone_reports_once_a_second_and_the_rover_answers_what_it_hears() -> None:
    _sim, messages = flown({"radio": {"drop_probability": 0.0}}, 10)
    heard = [each.message.data.tobytes() for each in messages if each.topic == "/radio/rover_rx"]
    answers = [each.message.data.tobytes() for each in messages if each.topic == "/radio/drone_rx"]
    assert len(heard) in (9, 10)
    assert all(packet.startswith(b"position ") for packet in heard)
    assert answers == [b"heard " + packet for packet in heard[: len(answers)]]
    assert len(answers) >= 9


@pytest.mark.parametrize(
    "scenario",
    [
        {"robots": {}},
        {"robots": {"drone": {}}},
        {"radio": {"enabled": False}},
        {"robots": {"drone": {"odom": None}, "rover": {"range": None, "odom": None}}},
        {"robots": {f"d{i}": {"model": "drone"} for i in range(3)} | {f"r{i}": {"model": "rover"} for i in range(2)}},
    ],
    ids=["no robots", "alone", "no radio", "blind", "many"],
)
def test_it_takes_any_robots_and_whatever_they_lack(scenario: dict[str, object]) -> None:
    sim, _ = flown(scenario, 3)
    assert sim.tick == 180
