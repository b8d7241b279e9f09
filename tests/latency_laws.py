"""What latencies that keep the order obey (`microsim.engine.jitter`), computed without random numbers."""

import math

import numpy as np

from microsim.engine.jitter import INDEPENDENT
from microsim.engine.radio import RadioNetwork, RadioSettings

JITTER_MS = 30.0
MEAN_MS, SPREAD_MS = 80.0354, 29.8965  # of max(N(80, 30), 0), to the nearest of ticks of 1 ms
RATES = (1, 5, 10, 20, 30, 60, 120, 250, 1000)  # per second: 33 to 0.03 standard deviations apart


def correlation(lags: np.ndarray, step: float = 0.01) -> np.ndarray:
    """E x(t) x(t + lag) for ascending lags, by the backward equation instead of random numbers.

    m(x, s), the mean of x a time s after x, obeys m_s = -m_x + |x| (E m(Rayleigh, s) - m) for x < 0, = -m_x for x > 0.
    """
    x = np.arange(-8.0, 8.0, step) + step / 2
    normal = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * step
    rayleigh = np.where(x > 0, x * np.exp(-x * x / 2), 0.0) * step
    stays = np.exp(-step * np.abs(np.minimum(x, 0.0)))
    m, found = x.copy(), [float(normal @ (x * x))]
    for _ in range(math.ceil(lags[-1] / step) + 1):
        before = np.concatenate([[x[0] - step], m[:-1]])  # a step of falling
        m = stays * before + (1 - stays) * float(rayleigh @ m)
        found.append(float(normal @ (x * m)))
    return np.interp(lags, step * np.arange(len(found)), found)


def variance_of_mean(gap: float, count: int) -> float:
    """Of the mean of `count` deviations; 1 / count if they were independent."""
    lags = gap * np.arange(1, count)
    near = lags[lags < INDEPENDENT] if gap < INDEPENDENT else lags[:0]
    weights = 1.0 - np.arange(1, near.size + 1) / count
    return (1.0 + 2.0 * float(weights @ correlation(near))) / count if near.size else 1.0 / count


def link_latencies(seed: int, rate: int, count: int, hz: int = 1000) -> np.ndarray:
    """Latencies [ms] of a radio."""
    settings = RadioSettings(80.0, JITTER_MS, 0.0, False, False, None, 10**9, None)
    radio = RadioNetwork(settings, ("drone", "rover"), hz, seed)
    for k in range(count):
        radio.send("drone", b"", k * hz // rate, lambda *_: 0.0)
    queue = radio.links[0].queue
    assert [packet.number for packet in queue] == list(range(count))
    return np.array([packet.arrival_tick - packet.sent_tick for packet in queue]) * (1000.0 / hz)


def violations(rate: int, count: int, seed: int = 1) -> list[str]:
    """What is further from its law than 5 standard errors."""
    found, gap = link_latencies(seed, rate, count), 1000.0 / rate / JITTER_MS
    z = (found - MEAN_MS) / SPREAD_MS
    neighbours = 1.0 / math.sqrt(count) if gap >= INDEPENDENT else math.sqrt(max(5.0 / gap, 1.0) / count)
    laws = {
        "mean [ms]": (found.mean(), MEAN_MS, JITTER_MS * math.sqrt(variance_of_mean(gap, count)) + 0.002),
        "spread [ms]": (found.std(), SPREAD_MS, JITTER_MS * neighbours + 0.002),
        "correlation of neighbours": (
            float(np.mean(z[1:] * z[:-1])),
            float(correlation(np.array([gap]))[0]) if gap < INDEPENDENT else 0.0,
            neighbours + 0.001,
        ),
    }
    return [
        f"{rate} packets/s: {name} {measured:.4f}, not {expected:.4f}"
        for name, (measured, expected, error) in laws.items()
        if abs(measured - expected) > 5.0 * error
    ]
