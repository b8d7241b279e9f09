"""Time is a number of ticks; seconds and nanoseconds are computed from it, never added up."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from microsim.engine.multiples import step_of

NS_PER_S = 1_000_000_000


def exact_rate(hz: float | Fraction) -> Fraction:
    """The rate as a person wrote it: 0.1 is one tenth, not its binary neighbour."""
    return Fraction(str(hz))


class Clock:
    """Ticks to nanoseconds at a fixed rate."""

    def __init__(self, physics_hz: float) -> None:
        self.rate = exact_rate(physics_hz)
        self.dt = float(1 / self.rate)  # [s] for integrators
        self._numerator = 2 * NS_PER_S * self.rate.denominator
        self._denominator = 2 * self.rate.numerator
        self._half = self.rate.numerator
        self.step_ns = step_of(NS_PER_S / self.rate)  # of a tick

    @property
    def is_simple(self) -> bool:
        """Whether times are the multiples of `step_ns`, as compiled code has them."""
        return True

    def time_ns(self, tick: int) -> int:
        """Nearest nanosecond to the tick's time."""
        return (tick * self._numerator + self._half) // self._denominator

    def times_ns(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """`time_ns` of `count` ticks from `first` on."""
        if max(first + count, 1) * self._numerator + self._half >= 2**63:  # beyond what a column of integers holds
            return np.array([self.time_ns(first + index) for index in range(count)], np.int64)
        ticks = np.arange(first, first + count, dtype=np.int64)
        return (ticks * self._numerator + self._half) // self._denominator

    def ticks_in(self, seconds: Fraction) -> int:
        """Nearest number of ticks, half up."""
        return round_half_up(seconds * self.rate)


def round_half_up(value: Fraction) -> int:
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


class Trigger:
    """Fires at ticks round(i * physics_hz / rate), i = 0, 1, 2 …: each the nearest tick to its ideal time."""

    def __init__(self, rate_hz: float | Fraction, physics_hz: float | Fraction) -> None:
        period = exact_rate(physics_hz) / exact_rate(rate_hz)  # in ticks
        if period < 1:
            raise ValueError(f"a rate of {rate_hz} Hz is above physics_hz = {physics_hz}")
        self._p, self._q = period.numerator, period.denominator
        self.step = step_of(period)  # in ticks, for compiled code

    @property
    def period(self) -> tuple[int, int]:
        """Ticks between two firings, as a fraction."""
        return self._p, self._q

    def after(self, tick: int) -> int:
        """The tick at which it fires next, given one at which it does."""
        return tick + self._p if self._q == 1 else self.next_tick(tick + 1)

    def next_tick(self, at_least: int) -> int:
        """The first tick not before `at_least` at which it fires. Depends on nothing else: any tick can be resumed."""
        p, q = self._p, self._q
        i = max((2 * at_least * q - q) // (2 * p), 0)  # fires no later than at_least
        tick = (2 * i * p + q) // (2 * q)
        while tick < at_least:
            i += 1
            tick = (2 * i * p + q) // (2 * q)
        return tick
