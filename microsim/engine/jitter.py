"""Random latencies that keep the order: of packets on a radio link, of images in their pipeline.

Independent latencies let a packet overtake the one before it; holding it back until then raises the mean, by 13 ms at
60 packets/s with 30 ms of jitter. Here the deviation of the latency from its mean, in standard deviations, is a random
process x(t) of the time t when something is sent, also in standard deviations, and the n-th packet has x(t_n):

- x falls as fast as time passes, so that what is sent meanwhile arrives together: no latency that keeps the order falls
  faster.
- Below 0 it jumps with the rate |x|. So it has fallen to -r when it jumps, and r has a Rayleigh distribution.
- It jumps to +s, and s has a Rayleigh distribution too, independent of everything before.

This leaves the normal distribution as it is: where x < 0, falling gathers the density -x φ(x) in each unit of time, and
the jumps take it away; where x > 0, falling thins x φ(x) out, and the jumps bring it. So each latency is normal with
the configured mean and standard deviation at every rate, the order is kept, and every jump forgets the past. The mean
of x over a long time T has the variance sqrt(2/π) / T: falls last sqrt(2π) on average, and their integrals,
(s² - r²) / 2, have the variance 2. Independent latencies have 1/n. After INDEPENDENT standard deviations a latency is
drawn on its own: one in 90,000 of such pairs would swap, and the second packet then arrives with the first.
"""

import math

from microsim.engine.compiled import kernel
from microsim.engine.exact import log
from microsim.engine.noise import normals, uniforms

INDEPENDENT = 6.0  # [standard deviations] of time between two that are drawn independently


@kernel
def next_deviation(key: int, number: int, last: float, elapsed: float) -> float:
    """Of what is sent `elapsed` after something that deviated by `last`; `number` names its random numbers."""
    if not 0.0 <= elapsed < INDEPENDENT:
        return normals(key, number, 0)[0]
    deviation, left, draw = last, elapsed, 2  # 0 is the one above, 1 is that of losses
    while True:
        first, second = uniforms(key, number, draw)
        below = min(deviation, 0.0)
        until_jump = deviation + math.sqrt(below * below - 2.0 * log(first))
        if until_jump > left:
            return deviation - left
        deviation, left, draw = math.sqrt(-2.0 * log(second)), left - until_jump, draw + 1
