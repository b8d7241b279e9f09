"""Named, counter-based noise: a draw is a function of (seed, stream name, tick, index), of nothing else.

So adding a sensor changes nobody else's noise, and any tick's noise can be drawn without its past. The generator is
Philox4x32-10 (Salmon et al., 2011); normals are its uniforms through Wichura's inverse normal distribution (AS 241),
one uniform each, which needs only + - * / sqrt and our own log.

Everything is written in integers masked to 32 bits, so that plain Python and compiled code agree.
"""

import hashlib
import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import calls, exact
from microsim.engine.compiled import inlined, kernel

Array: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

_log, _log_of_parts = exact.log, exact.log_of_parts
_room, _integers_at, _table_address = calls.room, calls.integers_at, calls.table_address
_MASK = 0xFFFFFFFF
_MIDDLE = 0.425  # from 0.5: where one formula does
_FAR = 5.0  # beyond it tails have another formula
_LANES = 16  # tails side by side
_MANTISSA, _HALF = 0x000FFFFFFFFFFFFF, 0x3FE0000000000000  # bits of a float: its mantissa, those of 0.5
_TO_UNIT = 1.0 / 4503599627370496.0  # 2**-52: 52 bits and a half are exact, 53 and a half would round up to 1


@inlined
def _round(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    p0 = 0xD2511F53 * c0
    p1 = 0xCD9E8D57 * c2
    return ((p1 >> 32) & _MASK) ^ c1 ^ k0, p1 & _MASK, ((p0 >> 32) & _MASK) ^ c3 ^ k1, p0 & _MASK


@inlined
def _philox(c0: int, c1: int, c2: int, c3: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Ten rounds, written out: a loop here would keep loops over it from becoming SIMD."""
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    return c0, c1, c2, c3


@kernel
def mix(seed: int, stream: int) -> int:
    """63 bits that depend on every bit of seed and stream."""
    seed, stream = int(seed), int(stream)
    a, b, _, _ = _philox(
        stream & _MASK, (stream >> 32) & _MASK, 0x4D696372, 0x6F53696D, seed & _MASK, (seed >> 32) & _MASK
    )
    return ((a & 0x7FFFFFFF) << 32) | b


def stream_key(seed: int, name: str) -> int:
    """The key of one noise source of one run, to be given to the functions below."""
    return int(mix(seed, stream_number(name)))


def stream_number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") >> 1


def stream_keys(seeds: npt.NDArray[np.int64], name: str) -> npt.NDArray[np.int64]:
    """`stream_key` of many runs."""
    return _mix_each(seeds, stream_number(name))


@kernel
def _mix_each(seeds: npt.NDArray[np.int64], stream: int) -> npt.NDArray[np.int64]:
    keys = np.empty(seeds.shape[0], np.int64)
    for i in range(seeds.shape[0]):
        keys[i] = mix(seeds[i], stream)
    return keys


@kernel
def words(key: int, tick: int, index: int) -> tuple[int, int, int, int]:
    """Four random numbers of 32 bits."""
    key, tick, index = int(key), int(tick), int(index)
    return _philox(index, 0, tick & _MASK, (tick >> 32) & _MASK, key & _MASK, (key >> 32) & _MASK)


@kernel
def uniforms(key: int, tick: int, index: int) -> tuple[float, float]:
    """Two numbers in the open interval (0, 1), odd multiples of 2**-53."""
    a, b, c, d = words(key, tick, index)
    first = (float((a << 20) | (b >> 12)) + 0.5) * _TO_UNIT
    second = (float((c << 20) | (d >> 12)) + 0.5) * _TO_UNIT
    return first, second


@kernel
def _tail(r: float) -> float:
    """Inverse normal distribution far from the middle; r = sqrt(-log(distance to 0 or 1))."""
    if r <= _FAR:
        return _near_tail(r)
    r -= _FAR
    num = 2.71155556874348757815e-5 + r * 2.01033439929228813265e-7
    num = 2.65321895265761230930e-2 + r * (1.24266094738807843860e-3 + r * num)
    num = 1.78482653991729133580 + r * (2.96560571828504891230e-1 + r * num)
    num = 6.65790464350110377720 + r * (5.46378491116411436990 + r * num)
    den = 1.42151175831644588870e-7 + r * 2.04426310338993978564e-15
    den = 7.86869131145613259100e-4 + r * (1.84631831751005468180e-5 + r * den)
    den = 1.36929880922735805310e-1 + r * (1.48753612908506148525e-2 + r * den)
    return num / (1.0 + r * (5.99832206555887937690e-1 + r * den))


@inlined
def _near_tail(r: float) -> float:
    """The same for r up to FAR: all but one draw in 10**11."""
    r -= 1.6
    num = 2.27238449892691845833e-2 + r * 7.74545014278341407640e-4
    num = 1.27045825245236838258 + r * (2.41780725177450611770e-1 + r * num)
    num = 5.76949722146069140550 + r * (3.64784832476320460504 + r * num)
    num = 1.42343711074968357734 + r * (4.63033784615654529590 + r * num)
    den = 5.47593808499534494600e-4 + r * 1.05075007164441684324e-9
    den = 1.48103976427480074590e-1 + r * (1.51986665636164571966e-2 + r * den)
    den = 1.67638483018380384940 + r * (6.89767334985100004550e-1 + r * den)
    return num / (1.0 + r * (2.05319162663775882187 + r * den))


@kernel
def _in_the_middle(q: float) -> float:
    """Inverse normal distribution of 0.5 + q."""
    r = 0.180625 - q * q
    num = 3.3430575583588128105e4 + r * 2.5090809287301226727e3
    num = 4.5921953931549871457e4 + r * (6.7265770927008700853e4 + r * num)
    num = 1.9715909503065514427e3 + r * (1.3731693765509461125e4 + r * num)
    num = 3.3871328727963666080 + r * (1.3314166789178437745e2 + r * num)
    den = 2.8729085735721942674e4 + r * 5.2264952788528545610e3
    den = 2.1213794301586595867e4 + r * (3.9307895800092710610e4 + r * den)
    den = 6.8718700749205790830e2 + r * (5.3941960214247511077e3 + r * den)
    return q * num / (1.0 + r * (4.2313330701600911252e1 + r * den))


@kernel
def normal_from_uniform(u: float) -> float:
    """The standard normal quantile of u in (0, 1), accurate to about 1e-16."""
    q = u - 0.5
    if abs(q) <= _MIDDLE:
        return _in_the_middle(q)
    if q < 0.0:
        return -_tail(math.sqrt(-_log(u)))
    return _tail(math.sqrt(-_log(1.0 - u)))


@kernel
def normals(key: int, tick: int, index: int) -> tuple[float, float]:
    """Two independent standard normal numbers."""
    first, second = uniforms(key, tick, index)
    return normal_from_uniform(first), normal_from_uniform(second)


@kernel
def fill_normals(key: int, tick: int, out: npt.NDArray[np.float64]) -> None:
    """The numbers that `normals(key, tick, 0)`, `normals(key, tick, 1)`, … give, in a row."""
    for i in range(0, out.shape[0] - 1, 2):
        out[i], out[i + 1] = normals(key, tick, i // 2)
    if out.shape[0] % 2:
        out[out.shape[0] - 1] = normals(key, tick, out.shape[0] // 2)[0]


@kernel
def fill_pairs(key: int, tick: int, first: int, room: npt.NDArray[np.float64], out: npt.NDArray[np.float64]) -> None:
    """The firsts of `normals(key, tick, first)`, `normals(key, tick, first + 1)`, …, after them the seconds; in SIMD.

    `out` has an even length, `room` is as long.
    """
    half = out.shape[0] // 2
    k0, k1, c2, c3 = key & _MASK, (key >> 32) & _MASK, tick & _MASK, (tick >> 32) & _MASK
    for k in range(half):
        a, b, c, d = _philox(first + k, 0, c2, c3, k0, k1)
        room[k] = (float((a << 20) | (b >> 12)) + 0.5) * _TO_UNIT
        room[half + k] = (float((c << 20) | (d >> 12)) + 0.5) * _TO_UNIT
    for i in range(2 * half):
        out[i] = _in_the_middle(room[i] - 0.5)
    for i in range(2 * half):
        if abs(room[i] - 0.5) > _MIDDLE:
            out[i] = normal_from_uniform(room[i])


@kernel
def six_normals(key: int, tick: int) -> tuple[float, float, float, float, float, float]:
    """What one sample of a GPS or an IMU needs, in one call."""
    a, b = normals(key, tick, 0)
    c, d = normals(key, tick, 1)
    e, f = normals(key, tick, 2)
    return a, b, c, d, e, f


@inlined
def fill_uniforms(keys: Integers, ticks: Integers, index: int, out: Array) -> None:
    """The firsts of `uniforms(keys[i], ticks[i], index)` for all i, after them the seconds; in SIMD."""
    count = out.shape[0] // 2
    for i in range(count):
        key, tick = int(keys[i]), int(ticks[i])
        a, b, c, d = _philox(index, 0, tick & _MASK, (tick >> 32) & _MASK, key & _MASK, (key >> 32) & _MASK)
        out[i] = (float((a << 20) | (b >> 12)) + 0.5) * _TO_UNIT
        out[count + i] = (float((c << 20) | (d >> 12)) + 0.5) * _TO_UNIT


@inlined
def fill_quantiles(uniforms: Array, tails: Integers, out: Array) -> None:
    """`normal_from_uniform` of every number, in SIMD: the middle for all, then those in the tails, side by side.

    All are as long; `tails` is room to work in, LANES longer.
    """
    count = 0
    for i in range(uniforms.shape[0]):
        out[i] = _in_the_middle(uniforms[i] - 0.5)
    for i in range(uniforms.shape[0]):
        tails[count] = i
        count += 1 if abs(uniforms[i] - 0.5) > _MIDDLE else 0
    for i in range(count, count + _LANES):
        tails[i] = tails[0] if count else 0
    for first in range(0, count, _LANES):
        _fill_tails(uniforms, tails[first : first + _LANES], out)


@inlined
def _fill_tails(uniforms: Array, tails: Integers, out: Array) -> None:
    """LANES numbers in the tails, named by their places."""
    far, near, exponent, beyond = _room(_LANES), _room(_LANES), _room(_LANES), 0
    bits = _integers_at(_table_address(near), _LANES)
    for k in range(_LANES):
        u = uniforms[tails[k]]
        far[k] = u - 0.5
        near[k] = u if u < 0.5 else 1.0 - u
    for k in range(_LANES):  # what `frexp` does
        exponent[k] = float((bits[k] >> 52) - 1022)
        bits[k] = (bits[k] & _MANTISSA) | _HALF
    for k in range(_LANES):
        r = math.sqrt(-_log_of_parts(near[k], exponent[k]))
        quantile = _near_tail(r)
        near[k] = -quantile if far[k] < 0.0 else quantile
        beyond += 1 if r > _FAR else 0
    for k in range(_LANES):
        out[tails[k]] = near[k]
    for k in range(_LANES if beyond else 0):
        out[tails[k]] = normal_from_uniform(uniforms[tails[k]])
