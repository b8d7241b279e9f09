"""Pacing, with a clock that the test turns; telemetry; and that neither reaches the digest."""

import csv
import itertools
from pathlib import Path

import pytest

import microsim
from microsim.errors import UsageError
from microsim.recording.telemetry import COLUMNS, Telemetry, TelemetryError
from microsim.runner import STALL_S, Pacer, Runner, Watcher

DT = 1.0 / 60.0


class FakeClock:
    """Time passes in sleep, and in `work` for every look at it."""

    def __init__(self, work_s: float = 0.0) -> None:
        self.time_s = 1000.0
        self.work_s = work_s
        self.naps: list[float] = []

    def now(self) -> float:
        self.time_s += self.work_s
        return self.time_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0.0
        self.naps.append(seconds)
        self.time_s += seconds


def simulation(**changes: object) -> microsim.Simulation:
    return microsim.Simulation({"map": {"size_xy_cells": [40, 40]}, **changes}, seed=1)


def tick_times(runner: Runner, clock: FakeClock) -> list[float]:
    """Fills with the wall time at which each tick was run."""
    times: list[float] = []
    runner.listen(timing=lambda took, late: times.append(clock.time_s - 1000.0))
    return times


@pytest.mark.parametrize("rtf", [0.5, 1.0, 20.0])
def test_tick_k_is_run_at_k_dt_over_rtf(rtf: float) -> None:
    clock = FakeClock()
    runner = Runner(simulation(), rtf, clock=clock)
    times = tick_times(runner, clock)
    runner.run(30)
    assert times == pytest.approx([k * DT / rtf for k in range(1, 31)])
    assert runner.achieved_rtf == pytest.approx(rtf)


def test_a_reset_does_not_spoil_the_real_time_factor(tmp_path: Path) -> None:
    clock = FakeClock()
    runner = Runner(simulation(), 2.0, clock=clock)
    telemetry = Telemetry(tmp_path / "telemetry.csv")
    telemetry.attach(runner)

    resets: list[int] = []

    def reset_once() -> None:
        if not resets:
            resets.append(runner.sim.tick)
            runner.sim.reset()
            runner.restart(runner.sim)

    runner.watchers.append(Watcher(0.8, reset_once))
    runner.run(120)
    telemetry.close()
    assert runner.sim_s == pytest.approx(2.0)
    assert runner.advanced_s == pytest.approx(2.0 + resets[0] * DT)
    assert runner.achieved_rtf == pytest.approx(2.0, rel=0.05)
    # what the summary shows is of the last run alone
    assert runner.lap_wall_s == pytest.approx(1.0, abs=0.05) != pytest.approx(runner.wall_s, abs=0.5)
    alone = Runner(simulation(), 0.0)
    alone.run(120)
    assert runner.lap_messages == alone.messages < runner.messages
    rows = list(csv.DictReader((tmp_path / "telemetry.csv").open()))
    assert [float(row["rtf"]) for row in rows] == pytest.approx([2.0] * len(rows), rel=0.1)


def test_no_sleep_is_so_long_that_a_stop_would_wait_for_it() -> None:
    clock = FakeClock()
    Runner(simulation(), 0.01, clock=clock).run(2)
    assert max(clock.naps) <= 0.05


def test_as_fast_as_possible_never_sleeps() -> None:
    clock = FakeClock(work_s=1e-4)
    runner = Runner(simulation(), 0.0, clock=clock)
    runner.run(600)
    assert runner.sim.tick == 600
    assert clock.naps == []


def run_that_is_held_up(seconds: float, ticks: int) -> tuple[Runner, list[float]]:
    """In real time, and at tick 10 the machine does nothing for so long; with the time of every tick."""
    clock = FakeClock()
    runner = Runner(simulation(), 1.0, clock=clock)
    times = tick_times(runner, clock)

    def hold_up(messages: object) -> None:
        if runner.sim.tick == 10:
            clock.time_s += seconds

    runner.listen(messages=hold_up)
    runner.run(ticks)
    return runner, times


def test_what_is_late_is_caught_up_and_no_tick_is_skipped() -> None:
    runner, times = run_that_is_held_up(0.5, ticks=60)
    assert runner.sim.tick == 60
    assert times[10] == pytest.approx(10 * DT + 0.5)
    assert times[45:] == pytest.approx([k * DT for k in range(46, 61)])
    assert runner.worst_lateness_s == pytest.approx(0.5 - DT)
    assert runner.pacer.stalls == 0


def test_after_a_stall_the_run_resumes_from_now_without_a_burst() -> None:
    runner, times = run_that_is_held_up(3600.0, ticks=20)  # a laptop sleeps
    resumed = times[10]
    assert resumed == pytest.approx(3600.0 + 10 * DT)
    assert times[10:] == pytest.approx([resumed + k * DT for k in range(10)])
    assert runner.pacer.stalls == 1


def test_a_machine_that_is_too_slow_runs_every_tick_and_never_owes_more_than_a_stall() -> None:
    clock = FakeClock(work_s=0.02)  # more than a tick's time, at every look at the clock
    runner = Runner(simulation(), 1.0, clock=clock)
    runner.run(300)
    assert runner.sim.tick == 300
    assert runner.worst_lateness_s <= STALL_S + 0.1


def test_a_new_real_time_factor_counts_from_now_on() -> None:
    clock = FakeClock()
    runner = Runner(simulation(), 1.0, clock=clock)
    times = tick_times(runner, clock)

    def faster(messages: object) -> None:
        if runner.sim.tick == 6:
            runner.set_rtf(10.0)

    runner.listen(messages=faster)
    runner.run(12)
    assert times[:6] == pytest.approx([k * DT for k in range(1, 7)])
    assert times[6:] == pytest.approx([6 * DT + k * DT / 10.0 for k in range(1, 7)])


def test_a_stop_ends_the_run_after_the_tick_under_way() -> None:
    runner = Runner(simulation(), 0.0, lambda messages: runner.stop() if runner.sim.tick == 7 else None)
    runner.run()
    assert runner.sim.tick == 7


@pytest.mark.parametrize("rtf", [-1.0, 1e-4, 1e6, float("nan"), float("inf")])
def test_real_time_factors_that_make_no_sense_are_refused(rtf: float) -> None:
    with pytest.raises(UsageError, match="real-time factor"):
        Pacer(DT, rtf)


def test_a_watcher_looks_once_a_period_also_after_a_stall() -> None:
    clock = FakeClock()
    looks: list[float] = []
    runner = Runner(simulation(), 1.0, clock=clock)
    runner.watchers.append(Watcher(0.25, lambda: looks.append(clock.time_s - 1000.0)))
    runner.listen(messages=lambda messages: setattr(clock, "time_s", clock.time_s + 5.0 * (runner.sim.tick == 30)))
    runner.run(60)
    assert all(later - sooner > 0.2 for sooner, later in itertools.pairwise(looks))
    assert 3 <= len(looks) <= 5


def test_every_message_is_counted_and_handed_out_once() -> None:
    seen: list[microsim.Message] = []
    runner = Runner(simulation(), 0.0)
    runner.listen(messages=seen.extend)
    runner.run(90)
    expected = simulation().step(90)
    assert runner.messages == len(expected)
    assert [(each.topic, each.stamp_ns, each.cdr) for each in seen] == [
        (each.topic, each.stamp_ns, each.cdr) for each in expected
    ]


@pytest.mark.parametrize("rtf", [0.0, 5.0, 20.0])
@pytest.mark.parametrize("with_telemetry", [False, True])
def test_the_digest_does_not_depend_on_pacing_or_telemetry(rtf: float, with_telemetry: bool, tmp_path: Path) -> None:
    runner = Runner(simulation(), rtf, clock=FakeClock(work_s=1e-3))
    telemetry = Telemetry(tmp_path / "t.csv") if with_telemetry else None
    if telemetry:
        telemetry.attach(runner)
    runner.run(120)
    if telemetry:
        telemetry.close()
    sim = simulation()
    sim.step(120)
    assert runner.sim.digest() == sim.digest()


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_telemetry_has_a_row_for_each_second_and_one_for_the_rest(tmp_path: Path) -> None:
    clock = FakeClock()
    sim = simulation()
    sim.command("drone", vx=float("nan"))
    runner = Runner(sim, 1.0, clock=clock)
    telemetry = Telemetry(tmp_path / "t.csv")
    telemetry.attach(runner)
    runner.run(150)
    telemetry.close()
    rows = rows_of(tmp_path / "t.csv")
    assert [float(row["wall_s"]) for row in rows] == pytest.approx([1.0, 2.0, 2.5], abs=0.06)
    assert [float(row["rtf"]) for row in rows] == pytest.approx([1.0] * 3, abs=0.05)
    assert float(rows[-1]["sim_s"]) == pytest.approx(2.5)
    assert {row["ignored"] for row in rows} == {"1"}
    for row in rows:
        assert set(row) == set(COLUMNS)
        assert all(float(value) >= 0.0 for value in row.values())
        assert float(row["tick_us_p50"]) <= float(row["tick_us_p99"]) <= float(row["tick_us_max"])


def test_telemetry_tells_lateness_and_the_radio(tmp_path: Path) -> None:
    clock = FakeClock()
    sim = simulation(radio={"latency_ms_mean": 5000.0, "latency_ms_jitter": 0.0, "drop_probability": 0.0})
    sim.radio_send("drone", b"hello")
    runner = Runner(sim, 1.0, clock=clock)
    runner.listen(messages=lambda messages: setattr(clock, "time_s", clock.time_s + 0.25 * (sim.tick == 10)))
    telemetry = Telemetry(tmp_path / "t.csv")
    telemetry.attach(runner)
    runner.run(30)
    telemetry.close()
    (row,) = rows_of(tmp_path / "t.csv")
    assert float(row["lateness_ms_max"]) == pytest.approx(250.0 - 1000.0 * DT, abs=1.0)
    assert row["radio_queue"] == "1"


def test_telemetry_of_a_run_without_ticks_has_one_row(tmp_path: Path) -> None:
    runner = Runner(simulation(), clock=FakeClock())
    telemetry = Telemetry(tmp_path / "t.csv")
    telemetry.attach(runner)
    runner.run(0)
    telemetry.close()
    assert len(rows_of(tmp_path / "t.csv")) == 1


@pytest.mark.parametrize("name", ["", "missing/t.csv", "null\0.csv"])
def test_a_file_that_cannot_be_written_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(TelemetryError, match="cannot be written"):
        Telemetry(tmp_path / name)


def test_a_full_disk_is_told_from_other_failures() -> None:
    with pytest.raises(TelemetryError, match="No space left"):
        Telemetry(Path("/dev/full"))
