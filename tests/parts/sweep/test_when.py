"""When a run was lost, on failures whose truth is known by construction."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from microsim.errors import UsageError
from microsim.parts.sweep.plan import load_sweep, make_plan
from microsim.parts.sweep.run_one import RunFailure, SweepRunner
from microsim.parts.sweep.when import WhenLost, begin_again, draw_when, when

WORLD = """
    physics_hz: 20
    map: { size_xy_cells: [40, 12] }
    obstacles: [{ type: box, name: wall, center: [30, 6, 0], size: [1, 10, 2] }]
    world_topics: { occupancy_hz: 0, markers_hz: 0 }
    robots:
      rover: { start: { map_pose: { x: 6, y: 6, yaw: 0 } }, range: null, odom: { hz: 2 } }
"""
# Each drives into the wall at 18 to 19 s, unless it stops before.
COIN = """
    hz = 4
    class Controller:
        v = 1.3
        def control(self, seen):
            if seen.tick == 240 and seen.random.uniform() < 0.5:  # at 12.0 s
                self.v = 0.0
            return {"v": self.v}
"""
WRONG_TURN = """
    hz = 4
    class Controller:
        v, is_wrong = 1.3, False
        def control(self, seen):
            if seen.tick == 160:  # at 8.0 s, rarely
                self.is_wrong = seen.random.uniform() < 0.1
                self.v = 1.3 if self.is_wrong else 0.2
            if seen.tick == 280 and self.is_wrong and seen.random.uniform() < 0.25:  # at 14.0 s, the last chance
                self.v = 0.0
            return {"v": self.v}
"""
CERTAIN = """
    hz = 4
    def control(seen):
        return {"v": 1.3 + seen.random.normal(0.0, 0.01)}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "lane.yaml").write_text(dedent(WORLD).lstrip())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def failing_token(folder: Path, code: str) -> str:
    (folder / "drive.py").write_text(dedent(code).lstrip())
    sweep = {"scenario": "lane.yaml", "controllers": ["drive.py"], "duration": 20, "seeds": "0..99"}
    plan = make_plan(load_sweep({**sweep, "metrics": ["collisions"]}))
    runner = SweepRunner(plan.order())
    for run in range(len(plan)):
        found = runner.run(*plan.place(run))
        assert not isinstance(found, RunFailure), found.error
        if found[0]:
            runner.close()
            return plan.token(run)
    raise AssertionError("no run fails")


def found_in(folder: Path, code: str, forks: int = 32, resolution_s: float = 0.2) -> WhenLost:
    return when(failing_token(folder, code), forks=forks, resolution_s=resolution_s)


def test_a_coin_that_is_tossed_decides_at_once(folder: Path) -> None:
    found = found_in(folder, COIN, forks=9, resolution_s=0.5)
    assert found.likely_s == pytest.approx(12.0, abs=0.5)
    assert found.inevitable_s == pytest.approx(12.0, abs=0.5)
    before, after = found.inevitable.before, found.inevitable.after
    assert before is not None
    assert before.confidence[0] < 0.5 < before.confidence[1]
    assert after.confidence[0] > 0.6
    moment, number = found.survivor() or (after, 0)
    again = begin_again(found, moment, number)  # a fork can be run again, and does what it did
    again.step(400 - again.tick)
    assert (again.contacts, moment.forks[number].failed) == ((), False)
    draw_when(found, folder / "when.png")
    assert (folder / "when.png").stat().st_size > 10_000


@pytest.mark.slow
def test_a_coin_is_found_exactly_with_many_forks(folder: Path) -> None:
    found = found_in(folder, COIN)
    assert found.likely_s == pytest.approx(12.0, abs=0.2)
    assert found.inevitable_s == pytest.approx(12.0, abs=0.2)


@pytest.mark.slow
def test_a_wrong_turn_is_likely_to_fail_and_its_last_chance_makes_it_inevitable(folder: Path) -> None:
    found = found_in(folder, WRONG_TURN, forks=32)
    assert found.likely_s == pytest.approx(8.0, abs=0.5)
    assert found.inevitable_s == pytest.approx(14.0, abs=0.5)


def test_what_was_certain_is_lost_from_the_start(folder: Path) -> None:
    found = found_in(folder, CERTAIN, forks=6)
    assert (found.likely_s, found.inevitable_s, found.survivor()) == (0.0, 0.0, None)
    assert str(found.likely).startswith("from the start: at 0.00 s 6 of 6 forks failed")


def test_the_same_run_is_lost_at_the_same_moment(folder: Path) -> None:
    token = failing_token(folder, COIN)
    first, second = (when(token, forks=3, resolution_s=4.0) for _ in range(2))
    assert [each.failures for each in first.moments] == [each.failures for each in second.moments]


def test_a_run_that_does_not_fail_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="this run does not fail: collisions > 5 does not hold"):
        when(failing_token(folder, CERTAIN), "collisions > 5")
