"""How fast a speed may change: limits of acceleration and jerk, as functions of numbers."""

import math

from microsim.engine.compiled import kernel


@kernel
def towards(v: float, a: float, target: float, max_accel: float, max_jerk: float, dt: float) -> tuple[float, float]:
    """(speed, acceleration) one tick later, on the quickest way to `target` within the limits; 0 means no limit.

    The jerk limit is exact in ticks: the acceleration chosen is the largest from which it can still be brought to 0,
    in steps of max_jerk * dt, no later than the speed arrives. So a target that stands still is never overshot, unless
    the present acceleration already makes that unavoidable, and is then met to the last bit.
    """
    if max_accel <= 0.0 and max_jerk <= 0.0:
        return target, (target - v) / dt
    missing = target - v
    most = max_accel if max_accel > 0.0 else math.inf
    if max_jerk <= 0.0:
        if abs(missing) <= most * dt:
            return target, missing / dt
        wanted = most if missing > 0.0 else -most
        return v + wanted * dt, wanted
    step = max_jerk * dt  # how much the acceleration may change in a tick
    wanted, arrives = _braking(abs(missing) / dt, step)
    if wanted > most:
        wanted, arrives = most, False
    if missing < 0.0:
        wanted = -wanted
    if wanted > a + step:
        wanted, arrives = a + step, False
    elif wanted < a - step:
        wanted, arrives = a - step, False
    return (target if arrives else v + wanted * dt), wanted


@kernel
def _braking(missing: float, step: float) -> tuple[float, bool]:
    """The acceleration a with a + (a - step) + (a - 2 step) + … = missing, and whether its first term is the last."""
    ratio = missing / step
    if ratio > 1e15:  # so far away that only the other limits count
        return math.inf, False
    m = math.floor((math.sqrt(1.0 + 8.0 * ratio) - 1.0) * 0.5)  # terms after the first
    return (missing + step * (0.5 * m * (m + 1.0))) / (m + 1.0), m == 0.0
