"""How well wall time is kept, for `/diagnostics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from microsim.runner import Runner

Measure: TypeAlias = Callable[[float, float], None]  # a tick's duration and lateness [s]


class Lateness:
    """Figures over the time since they were last asked for."""

    def __init__(self) -> None:
        self._late_s: list[float] = []
        self._before = (0.0, 0.0)

    def beside(self, other: Measure | None) -> Measure:
        """Takes note of each tick, and tells `other` too."""

        def note(tick_s: float, late_s: float) -> None:
            self._late_s.append(late_s)
            if other is not None:
                other(tick_s, late_s)

        return note

    def rtf(self, runner: Runner) -> float:
        wall, advanced = runner.wall_s, runner.advanced_s
        (wall_before, advanced_before), self._before = self._before, (wall, advanced)
        return (advanced - advanced_before) / (wall - wall_before) if wall > wall_before else 0.0

    def figures(self) -> dict[str, str]:
        late, self._late_s = sorted(self._late_s) or [0.0], []
        last = len(late) - 1
        return {
            "lateness_ms_p50": f"{1e3 * late[round(0.5 * last)]:.3f}",
            "lateness_ms_p99": f"{1e3 * late[round(0.99 * last)]:.3f}",
            "lateness_ms_max": f"{1e3 * late[last]:.3f}",
        }
