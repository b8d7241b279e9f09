"""When a run that fails was lost: it is repeated up to a moment, and from there on with other random numbers.

The share of these forks that fail is the probability of failure as it was at that moment. At the start it is that of
any such run, at the end of a run that failed it is 1. In between are the moments that decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microsim.engine.components import X, Y
from microsim.engine.noise import stream_key
from microsim.errors import UsageError
from microsim.parts.sweep.expressions import Condition
from microsim.parts.sweep.plan import condition as condition_of
from microsim.parts.sweep.run_one import MetricRun, Replayable, from_token, needs_messages, ticks_of
from microsim.simulation import Simulation, Snapshot

FORKS = 24  # of each moment
PLACES = 9  # moments at which the search begins
RESOLUTION_S = 0.2  # between the moments that enclose what is looked for
_Z = 1.959964  # of 95 % on both sides of a normal distribution
_PATH_POINTS = 60  # of a fork, for pictures

Report = Callable[[int], None]  # how many forks were run


def _ignore(forks: int) -> None:
    pass


@dataclass(frozen=True)
class ForkOutcome:
    """What became of the run when everything after a moment was drawn again."""

    noise_seed: int
    failed: bool
    path: tuple[tuple[float, float], ...] = ()  # of the first robot [m]


@dataclass
class MomentOdds:
    """A moment of the run, and its forks."""

    tick: int
    time_s: float
    forks: list[ForkOutcome] = field(default_factory=list)

    @property
    def failures(self) -> int:
        return sum(each.failed for each in self.forks)

    @property
    def probability(self) -> float:
        return self.failures / len(self.forks)

    @property
    def confidence(self) -> tuple[float, float]:
        """Wilson's interval: in 95 of 100 cases the probability is in it."""
        n, share, square = len(self.forks), self.probability, _Z * _Z
        middle = (share + square / (2 * n)) / (1 + square / n)
        half = _Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
        return max(middle - half, 0.0), min(middle + half, 1.0)


@dataclass(frozen=True)
class Turning:
    """A moment that decided, and the moments looked at that enclose it. `before` is None: from the start on."""

    before: MomentOdds | None
    after: MomentOdds

    @property
    def time_s(self) -> float:
        return 0.0 if self.before is None else 0.5 * (self.before.time_s + self.after.time_s)

    def __str__(self) -> str:
        odds = f"{self.after.failures} of {len(self.after.forks)} forks failed"
        low, high = (round(100 * each) for each in self.after.confidence)
        there = f"at {self.after.time_s:.2f} s {odds} ({low} to {high} %)"
        if self.before is None:
            return f"from the start: {there}"
        low, high = (round(100 * each) for each in self.before.confidence)
        here = f"{self.before.failures} of {len(self.before.forks)} ({low} to {high} %)"
        return f"{self.time_s:.2f} s: at {self.before.time_s:.2f} s {here}, {there}"


@dataclass(frozen=True)
class WhenLost:
    """When a run was lost. `likely`: more than half of what was open at the start is decided; `inevitable`: all is."""

    token: str
    condition: str
    end_s: float  # of the run
    moments: Sequence[MomentOdds]  # in order of time
    likely: Turning
    inevitable: Turning
    path: tuple[tuple[float, float], ...]  # of the run itself
    forker: Forker

    @property
    def likely_s(self) -> float:
        return self.likely.time_s

    @property
    def inevitable_s(self) -> float:
        return self.inevitable.time_s

    @property
    def forks(self) -> int:
        """How many were run."""
        return sum(len(each.forks) for each in self.moments)

    def fork(self, moment: MomentOdds, number: int) -> Snapshot:
        """The run at that moment with the random numbers of a fork: to be restored, or saved as a state."""
        return self.forker.snapshot(moment.tick, moment.forks[number].noise_seed)

    def survivor(self) -> tuple[MomentOdds, int] | None:
        """The latest fork that did not fail."""
        found = [(each, n) for each in self.moments for n, fork in enumerate(each.forks) if not fork.failed]
        return found[-1] if found else None


class Forker:
    """Runs the run of a token, from any moment on with other random numbers."""

    def __init__(self, again: Replayable, condition: Condition) -> None:
        self.again, self.condition = again, condition
        self.sim = again.sim
        self.has_messages = needs_messages(self.sim.scenario, again.mission, condition.metrics)
        self.end = ticks_of(self.sim, self._measured().pilot, again.token.duration)
        self._start = self.sim.snapshot()

    def _measured(self) -> MetricRun:
        return MetricRun(self.sim, self.again.mission, self.condition.metrics)

    def run(self, tick: int | None = None, noise_seed: int = 0) -> ForkOutcome:
        """Up to the tick as it was, and from there to the end with that noise; without a tick, as it was."""
        measured = self._begun()
        path: list[tuple[float, float]] = []
        if tick is not None:
            self._go(measured, tick)
            self.sim.draw_again(noise_seed)
        every = max(1, self.end // _PATH_POINTS)
        while True:
            if self.sim.robots:
                rows = self.sim.rows(self.sim.robots[0])
                path.append((rows[X], rows[Y]))
            if self.sim.tick >= self.end:
                break
            self._go(measured, min(self.sim.tick + every, self.end))
        return ForkOutcome(noise_seed, self.condition.holds(measured.values()), tuple(path))

    def snapshot(self, tick: int, noise_seed: int) -> Snapshot:
        self._go(self._begun(), tick)
        self.sim.draw_again(noise_seed)
        return self.sim.snapshot()

    def _begun(self) -> MetricRun:
        self.sim.restore(self._start)
        measured = self._measured()
        measured(self.sim.step(0) if self.has_messages else ())
        return measured

    def _go(self, measured: MetricRun, end: int) -> None:
        sim = self.sim
        while sim.tick < end:
            ticks = measured.ticks_to_run(end - sim.tick)
            if self.has_messages:
                measured(sim.step(ticks))
            else:
                sim.advance(ticks)
                measured(())


class _Search:
    def __init__(self, forker: Forker, forks: int, report: Report) -> None:
        self.forker, self.forks, self.report = forker, forks, report
        self.moments: dict[int, MomentOdds] = {}
        self.count = 0

    def at(self, tick: int) -> MomentOdds:
        if tick not in self.moments:
            sim = self.forker.sim
            moment = self.moments[tick] = MomentOdds(tick, sim.clock.time_ns(tick) / 1e9)
            for number in range(self.forks):
                seed = stream_key(self.forker.again.token.seed, f"when/{tick}/{number}")
                moment.forks.append(self.forker.run(tick, seed))
                self.count += 1
                self.report(self.count)
        return self.moments[tick]

    def turning(self, is_after: Callable[[MomentOdds], bool], resolution: int) -> Turning:
        """The last moment at which it is not `is_after`, and the next one at which it is."""
        ticks = sorted(self.moments)
        before = [tick for tick in ticks if not is_after(self.at(tick))]
        if not before:
            return Turning(None, self.at(ticks[0]))
        low = before[-1]
        high = next((tick for tick in ticks if tick > low), self.forker.end)
        while high - low > resolution:
            middle = (low + high) // 2
            low, high = (low, middle) if is_after(self.at(middle)) else (middle, high)
        return Turning(self.at(low), self.at(high))


def when(
    token: str,
    condition: str | None = None,
    *,
    scenario: str | None = None,
    mission: str | None = None,
    controllers: Sequence[str] = (),
    forks: int = FORKS,
    resolution_s: float = RESOLUTION_S,
    report: Report = _ignore,
) -> WhenLost:
    """When the run of a token was lost. `condition`: what its failure is; default: `collisions > 0`, or of a run with a
    mission `passed == false`. `scenario`, `mission`, `controllers`: where they are, as for `microsim replay --token`.
    """
    again = from_token(token, scenario, mission, controllers)
    text = condition or ("collisions > 0" if again.mission is None else "passed == false")
    parsed = condition_of(text, again.sim.scenario.plugins)
    if parsed.is_about_all_runs:
        raise UsageError(f"{text!r} is about all runs together; expected a condition about one run")
    forker = Forker(again, parsed)
    itself = forker.run()
    if not itself.failed:
        raise UsageError(f"this run does not fail: {text} does not hold; say with --if what its failure is")
    search = _Search(forker, forks, report)
    for place in range(PLACES):
        search.at(place * forker.end // (PLACES - 1))
    half = 0.5 * (1.0 + search.at(0).probability)
    resolution = max(1, round(resolution_s / again.sim.clock.dt))
    likely = search.turning(lambda moment: moment.probability >= half, resolution)
    inevitable = search.turning(lambda moment: moment.failures == len(moment.forks), resolution)
    end_s = again.sim.clock.time_ns(forker.end) / 1e9
    moments = [search.moments[tick] for tick in sorted(search.moments)]
    return WhenLost(token, text, end_s, moments, likely, inevitable, itself.path, forker)


def draw_when(found: WhenLost, path: Path) -> None:
    """The probability of failure over time, and the ways of the forks."""
    from microsim.plotting import COLOURS, INK, PALE, STYLE, check_name, matplotlib, save

    check_name(path)
    mpl, figures = matplotlib("matplotlib"), matplotlib("matplotlib.figure")
    with mpl.rc_context(STYLE):
        figure = figures.Figure(figsize=(9.0, 4.2), dpi=150, facecolor="white", layout="constrained")
        odds, ways = figure.subplots(1, 2, width_ratios=(3, 2))
        times = [each.time_s for each in found.moments]
        shares = [each.probability for each in found.moments]
        lows, highs = zip(*(each.confidence for each in found.moments), strict=True)
        odds.fill_between(times, lows, highs, color=COLOURS[0], alpha=0.15, linewidth=0)
        odds.plot(times, shares, color=COLOURS[0], marker="o", markersize=3)
        marks = (0.02, found.likely_s, "likely", COLOURS[1]), (0.12, found.inevitable_s, "inevitable", COLOURS[4])
        for place, seconds, name, colour in marks:
            odds.axvline(seconds, color=colour, linestyle="--", linewidth=1.0)
            odds.text(seconds, place, f" {name} {seconds:.1f} s", color=colour, fontsize=8)
        limits: dict[str, Any] = {"ylim": (-0.03, 1.03), "xlim": (0.0, found.end_s)}
        odds.set(title="Probability of failure", xlabel="time of the fork [s]", **limits)
        for moment in found.moments:
            for fork in moment.forks:
                colour = COLOURS[4] if fork.failed else COLOURS[2]
                ways.plot(*zip(*fork.path, strict=True), color=colour, alpha=0.25, linewidth=0.7)
        if found.path:
            ways.plot(*zip(*found.path, strict=True), color=INK, linewidth=1.6)
        ways.set(title="Its forks: red ones fail", xlabel="x [m]", ylabel="y [m]", aspect="equal")
        ways.tick_params(colors=PALE)
        save(figure, path)


def begin_again(found: WhenLost, moment: MomentOdds, number: int) -> Simulation:
    """A simulation at that moment, which continues as that fork did."""
    sim = Simulation(found.forker.sim.initial_scenario, found.forker.sim.seed)
    sim.restore(found.fork(moment, number))
    return sim
