"""Random rates and ticks, with the exact firings as fractions have them: the reference for every form of a trigger."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from microsim.documents.values import MAX_HZ, MIN_HZ
from microsim.engine.compiled_tick import LAST_TICK
from microsim.engine.timekeeper import Trigger, exact_rate, round_half_up

TICKS_OF_A_RATE = 40


class Sample(NamedTuple):
    rate: float
    physics_hz: float
    ticks: list[int]

    @property
    def period(self) -> Fraction:
        return exact_rate(self.physics_hz) / exact_rate(self.rate)

    def last_firing(self, tick: int) -> int:
        """The last one not after this tick: i · period + 1/2 must be less than tick + 1."""
        i = -((tick + Fraction(1, 2)) // -self.period) - 1
        return round_half_up(max(i, 0) * self.period)

    def time_ns(self, tick: int) -> int:
        return round_half_up(tick * 10**9 / exact_rate(self.physics_hz))


def a_rate(dice: np.random.Generator) -> float:
    """As people write them, as divisions give them, as slow and as fast as they may be."""
    kind = dice.integers(6)
    if kind == 0:
        return int(dice.integers(1, MAX_HZ, endpoint=True))
    if kind == 1:
        return float(f"{dice.uniform(0.01, 200):.3g}")
    if kind == 2:
        return float(min(dice.integers(1, 1000) / dice.integers(1, 1000), MAX_HZ))
    if kind == 3:
        return float(10 ** dice.uniform(-9, 4))
    if kind == 4:
        return float(dice.choice([MIN_HZ, 250 / 3, 60 / 7, 1 / 3, 1 / 30, 1 / 7e5, 59.94, 9999.999999999998, MAX_HZ]))
    return float(dice.choice([20, 30, 50, 60, 100, 125, 200, 250, 400, 500, 1000]))


def some_ticks(dice: np.random.Generator, period: Fraction) -> list[int]:
    """Early and late ones, and those at and just before a firing."""
    early, late = dice.integers(0, 5000, 10), 10 ** dice.uniform(3, np.log10(LAST_TICK), 10)
    ticks = [*early.tolist(), *map(int, late)]
    for share in dice.uniform(0, 1, 10).tolist():
        firing = round_half_up(int(share**8 * (LAST_TICK // period)) * period)
        ticks += [firing, max(firing - 1, 0)]
    return ticks


def samples(count: int, seed: int) -> Iterator[Sample]:
    """`count` ticks, TICKS_OF_A_RATE of each pair of rates."""
    dice: Any = np.random.default_rng(seed)
    for _ in range(count // TICKS_OF_A_RATE):
        rate, physics_hz = sorted((a_rate(dice), a_rate(dice)))
        yield Sample(rate, physics_hz, some_ticks(dice, exact_rate(physics_hz) / exact_rate(rate)))


def assert_worlds_fire(loops: Any, sample: Sample) -> None:
    """Worlds of a batch on these loops, each of which reaches one of the ticks."""
    step, ends = Trigger(sample.rate, sample.physics_hz).step, np.array(sample.ticks, np.int64)
    last = np.array([sample.last_firing(tick) for tick in sample.ticks])
    for reach in (0, 1, 700):
        begin = np.maximum(ends - reach, 0)
        whole = ends == begin + reach  # others began less than `reach` ago
        offsets = loops.last_firing(step, begin[whole], reach)
        assert offsets.tolist() == np.maximum(last - begin, 0)[whole].tolist(), sample
