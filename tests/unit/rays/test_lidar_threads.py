"""Threads share a LiDAR's turn: how many there are, and in which order they take its parts, changes no bit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.engine.bodies import Body, body_row
from microsim.processes import THREAD_VARIABLES, usable_cores
from microsim.rays import lidar_turn
from microsim.rays.lidar_turn import LidarTurn
from microsim.render.renderer_choice import render_request
from microsim.threads import Threads, usual_threads
from tests.support import bare, many, scenario
from tests.unit.rays.test_fast_rays import mesh_of, scene, sensor_in
from tests.unit.sensors.test_lidar import lidar, motion_at, world


class LastFirst:
    """Parts in the wrong order, as other threads might take them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, task: Callable[[int, int], None], count: int) -> None:
        for number in reversed(range(count)):
            task(number, number % self.count)


def noisy(sensor: LidarTurn, workers: Any) -> LidarTurn:
    return replace(sensor, sigma_m=0.03, dropout_probability=0.1, workers=workers)


@pytest.mark.parametrize("is_upright", [False, True])
@pytest.mark.parametrize("seed", range(many(20, 2)))
def test_workers_change_no_bit_of_a_turn(seed: int, is_upright: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ground, motion = scene(seed, mesh_of(seed))
    if is_upright:
        motion = motion_at(*motion[:3], yaw=0.3 * seed)
    other = body_row(
        motion_at(motion[0] + 2.0, motion[1] + 1.0, motion[2], 0.2), Body((0.0, 0.0, 0.0), (2.0, 1.0, 3.0))
    )
    bodies, alone = np.array([other]), noisy(sensor_in(ground, seed), LastFirst(1))
    assert len(alone.parts) == 1
    expected = alone.sample(motion, bodies, 77, seed)
    monkeypatch.setattr(lidar_turn, "_WORTH_A_THREAD", 1)
    for workers in (LastFirst(2), LastFirst(3), LastFirst(7), Threads(3)):
        shared = noisy(alone, workers)
        found = shared.sample(motion, bodies, 77, seed)
        assert found.tobytes() == expected.tobytes()
        assert shared.best.tobytes() == alone.best.tobytes()
        assert shared.hit.tobytes() == alone.hit.tobytes()
        assert len(shared.parts) > 1 or shared.best.shape[0] == 1


def test_the_parts_of_a_turn_are_whole_sectors_and_cover_it_once() -> None:
    for columns in (1000, 1024, 1799):
        sensor = lidar(world(np.zeros((3, 3))), np.linspace(-0.4, 0.2, 32), columns, workers=LastFirst(3))
        assert len(sensor.parts) > 3
        assert [first for first, _ in sensor.parts] == [0, *(end for _, end in sensor.parts[:-1])]
        assert sensor.parts[-1][1] == columns
        assert all(first % sensor.beams.sectors.columns == 0 for first, _ in sensor.parts)


def test_a_small_lidar_stays_on_one_thread() -> None:
    assert len(lidar(world(np.zeros((3, 3))), (-0.2, 0.0), 360, workers=LastFirst(16)).parts) == 1


def with_lidar() -> Any:
    start = {"map_pose": {"x": 10.0, "y": 10.0, "z": 1.0}}
    return scenario(robots={"drone": bare(start=start, lidar={"hz": 60, "columns": 64})})


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Threads and parts of every turn that was shared, where 100 beams are worth a thread."""
    found: list[tuple[int, int]] = []
    plain = Threads.run

    def run(self: Threads, task: Callable[[int, int], None], count: int) -> None:
        found.append((self.count, count))
        plain(self, task, count)

    monkeypatch.setattr(Threads, "run", run)
    monkeypatch.setattr(lidar_turn, "_WORTH_A_THREAD", 100)
    return found


def test_threads_change_no_bit_of_a_run_with_a_lidar(
    runs: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for threads in (1, 2, 3):
        monkeypatch.setattr(render_request, "threads", threads)
        sim = microsim.Simulation(with_lidar())
        sim.step(3)
        assert {count for count, _ in runs} == {threads}
        assert all((parts > 1) == (threads > 1) for _, parts in runs)
        digests.add(sim.digest())
        runs.clear()
    assert len(digests) == 1


def test_in_a_batch_threads_share_worlds_not_turns(
    runs: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render_request, "threads", 3)
    BatchSimulation(with_lidar(), 1).step(3)
    assert runs == []


def test_processes_of_a_sweep_use_one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "1")
    assert usual_threads() == Threads().count == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "no number")
    assert usual_threads() == usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", "1000000")
    assert usual_threads() == usable_cores()
    assert Threads(5).count == 5
