"""Telemetry: how well a run keeps its pace, as CSV. Wall time, so it is in no recording and in no digest."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from microsim.errors import MicroSimError
from microsim.runner import Runner, Watcher


class TelemetryError(MicroSimError):
    """The telemetry file cannot be written."""


COLUMNS = (
    *("wall_s", "sim_s", "rtf", "tick_us_p50", "tick_us_p99", "tick_us_max"),
    *("lateness_ms_p50", "lateness_ms_p99", "lateness_ms_max", "radio_queue", "radio_dropped", "ignored"),
)


class Telemetry:
    """CSV for the metrics of a run: a row for each second of wall time, and one for the rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_broken = False
        try:
            self._file: TextIO = path.open("w", newline="", encoding="utf-8")
            self._rows = csv.writer(self._file, lineterminator="\n")
            self._write(COLUMNS)
        except (OSError, ValueError) as error:
            raise TelemetryError(_refusal(path, error)) from None

    def attach(self, runner: Runner) -> None:
        self._runner = runner
        self._tick_s: list[float] = []
        self._late_s: list[float] = []
        self._before = (0.0, 0.0)  # wall time and simulated time gone by at the last row
        runner.listen(timing=self._measure)
        runner.watchers.append(Watcher(1.0, self._row))

    def close(self) -> None:
        """Write the rest."""
        try:
            if not self._is_broken and (self._tick_s or self._before == (0.0, 0.0)):
                self._row()
        finally:
            with suppress(OSError):  # every row was flushed; what is left could not be written
                self._file.close()

    def _measure(self, tick_s: float, late_s: float) -> None:
        self._tick_s.append(tick_s)
        self._late_s.append(late_s)

    def _row(self) -> None:
        runner = self._runner
        wall, advanced = runner.wall_s, runner.advanced_s
        span = wall - self._before[0]
        rtf = (advanced - self._before[1]) / span if span > 0.0 else 0.0
        links = runner.sim.radio.links if runner.sim.radio else []
        numbers = [f"{wall:.3f}", f"{runner.sim_s:.3f}", f"{rtf:.3f}"]
        numbers += [f"{1e6 * value:.1f}" for value in _spread(self._tick_s)]
        numbers += [f"{1e3 * value:.3f}" for value in _spread(self._late_s)]
        queued, lost = sum(len(link.queue) for link in links), sum(link.dropped + link.overflowed for link in links)
        counts = (queued, lost, sum(runner.sim.counters.values()))
        try:
            self._write([*numbers, *map(str, counts)])
        except OSError as error:
            self._is_broken = True
            raise TelemetryError(_refusal(self.path, error)) from None
        self._tick_s, self._late_s, self._before = [], [], (wall, advanced)

    def _write(self, row: Sequence[str]) -> None:
        self._rows.writerow(row)
        self._file.flush()


def _refusal(path: Path, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"telemetry cannot be written to {path}: {reason}; give another file to --telemetry"


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, 99th percentile (nearest rank) and maximum."""
    if not values:
        return 0.0, 0.0, 0.0
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(0.5 * last)], ordered[round(0.99 * last)], ordered[last]
