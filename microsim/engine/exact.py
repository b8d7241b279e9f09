"""sin, cos, exp, log and atan2 from + - * / alone: the same bits on every processor.

The C library's and NumPy's versions differ between processors and releases in the last bit, which is enough for two
runs to part. Polynomials and reductions follow Sun's fdlibm (public domain figures); errors stay below 1 ulp, tested
against 50 digits. Arguments of `sincos` must be below 1e5 in magnitude.
"""

import math

from microsim.engine.compiled import inlined, kernel

PI = 3.141592653589793
TWO_PI = 6.283185307179586
_INVERSE_TWO_PI = 0.15915494309189535
_TWO_OVER_PI = 0.6366197723675814
_ROUND = 6755399441055744.0  # 1.5 * 2**52: adding and subtracting it rounds to the nearest integer

# pi/2 in three parts of 33 bits, so that k * part is exact for |k| < 2**20
_PIO2_1 = 1.57079632673412561417e00
_PIO2_2 = 6.07710050630396597660e-11
_PIO2_2T = 2.02226624879595063154e-21

_S1 = -1.66666666666666324348e-01
_S2 = 8.33333333332248946124e-03
_S3 = -1.98412698298579493134e-04
_S4 = 2.75573137070700676789e-06
_S5 = -2.50507602534068634195e-08
_S6 = 1.58969099521155010221e-10
_C1 = 4.16666666666666019037e-02
_C2 = -1.38888888888741095749e-03
_C3 = 2.48015872894767294178e-05
_C4 = -2.75573143513906633035e-07
_C5 = 2.08757232129817482790e-09
_C6 = -1.13596475577881948265e-11

_LN2_HI = 6.93147180369123816490e-01
_LN2_LO = 1.90821492927058770002e-10
_INVERSE_LN2 = 1.44269504088896338700e00
_P1 = 1.66666666666666019037e-01
_P2 = -2.77777777770155933842e-03
_P3 = 6.61375632143793436117e-05
_P4 = -1.65339022054652515390e-06
_P5 = 4.13813679705723846039e-08

_SQRT_HALF = 0.7071067811865476
_L1 = 6.666666666666735130e-01
_L2 = 3.999999999940941908e-01
_L3 = 2.857142874366239149e-01
_L4 = 2.222219843214978396e-01
_L5 = 1.818357216161805012e-01
_L6 = 1.531383769920937332e-01
_L7 = 1.479819860511658591e-01

_A0 = 3.33333333333329318027e-01
_A1 = -1.99999999998764832476e-01
_A2 = 1.42857142725034663711e-01
_A3 = -1.11111104054623557880e-01
_A4 = 9.09088713343650656196e-02
_A5 = -7.69187620504482999495e-02
_A6 = 6.66107313738753120669e-02
_A7 = -5.83357013379057348645e-02
_A8 = 4.97687799461593236017e-02
_A9 = -3.65315727442169155270e-02
_A10 = 1.62858201153657823623e-02
_ATAN_HALF_HI, _ATAN_HALF_LO = 4.63647609000806093515e-01, 2.26987774529616870924e-17
_ATAN_ONE_HI, _ATAN_ONE_LO = 7.85398163397448278999e-01, 3.06161699786838301793e-17
_ATAN_THREE_HALVES_HI, _ATAN_THREE_HALVES_LO = 9.82793723247329054082e-01, 1.39033110312309984516e-17
_ATAN_INF_HI, _ATAN_INF_LO = 1.57079632679489655800e00, 6.12323399573676603587e-17
_PI_LO = 1.2246467991473531772e-16


@inlined
def sincos(x: float) -> tuple[float, float]:
    """(sin x, cos x) for |x| < 1e5; without branches, so that loops over it become SIMD."""
    k = (x * _TWO_OVER_PI + _ROUND) - _ROUND
    r = x - k * _PIO2_1
    w = k * _PIO2_2
    r1 = r - w
    w = k * _PIO2_2T - ((r - r1) - w)
    y = r1 - w
    tail = (r1 - y) - w
    z = y * y
    v = z * y
    s = y - ((z * (0.5 * tail - v * (_S2 + z * (_S3 + z * (_S4 + z * (_S5 + z * _S6))))) - tail) - v * _S1)
    half_z = 0.5 * z
    one = 1.0 - half_z
    p = z * (_C1 + z * (_C2 + z * (_C3 + z * (_C4 + z * (_C5 + z * _C6)))))
    c = one + (((1.0 - one) - half_z) + (z * p - y * tail))
    quadrant = k - 4.0 * ((k * 0.25 + _ROUND) - _ROUND)  # -2, -1, 0, 1 or 2
    odd = (quadrant == 1.0) | (quadrant == -1.0)
    opposite = (quadrant == 2.0) | (quadrant == -2.0)
    sine = c if odd else s
    cosine = s if odd else c
    sine = -sine if opposite | (quadrant == -1.0) else sine
    cosine = -cosine if opposite | (quadrant == 1.0) else cosine
    return sine, cosine


@kernel
def sin(x: float) -> float:
    return sincos(x)[0]


@kernel
def cos(x: float) -> float:
    return sincos(x)[1]


@inlined
def wrap_angle(angle: float) -> float:
    """The same direction within [-pi, pi]."""
    return angle - ((angle * _INVERSE_TWO_PI + _ROUND) - _ROUND) * TWO_PI


@kernel
def exp(x: float) -> float:
    if x != x:
        return x
    if x > 709.0:
        return math.inf
    if x < -708.0:
        return 0.0  # subnormal results are flushed: no user of this module needs them
    k = (x * _INVERSE_LN2 + _ROUND) - _ROUND
    hi = x - k * _LN2_HI
    lo = k * _LN2_LO
    r = hi - lo
    t = r * r
    c = r - t * (_P1 + t * (_P2 + t * (_P3 + t * (_P4 + t * _P5))))
    return math.ldexp(1.0 - ((lo - (r * c) / (2.0 - c)) - hi), int(k))


@kernel
def log(x: float) -> float:
    """Natural logarithm of a positive, finite number."""
    mantissa, exponent = math.frexp(x)
    return log_of_parts(mantissa, float(exponent))


@inlined
def log_of_parts(mantissa: float, exponent: float) -> float:
    """Of mantissa * 2**exponent, as `frexp` gives them; without branches, so that loops over it become SIMD."""
    is_low = mantissa < _SQRT_HALF
    mantissa = 2.0 * mantissa if is_low else mantissa
    exponent = exponent - 1.0 if is_low else exponent
    f = mantissa - 1.0
    s = f / (2.0 + f)
    z = s * s
    r = z * (_L1 + z * (_L2 + z * (_L3 + z * (_L4 + z * (_L5 + z * (_L6 + z * _L7))))))
    half_square = 0.5 * f * f
    return exponent * _LN2_HI - ((half_square - (s * (half_square + r) + exponent * _LN2_LO)) - f)


@inlined
def _atan_of_positive(x: float) -> float:
    """Without branches, like `atan2`. Each of its five stretches has its own t, of which one division gives four."""
    is_small, is_half, is_one, is_three_halves = x < 0.4375, x < 0.6875, x < 1.1875, x < 2.4375
    hi = _ATAN_THREE_HALVES_HI if is_three_halves else _ATAN_INF_HI
    lo = _ATAN_THREE_HALVES_LO if is_three_halves else _ATAN_INF_LO
    above = x - 1.5 if is_three_halves else -1.0
    below = 1.0 + 1.5 * x if is_three_halves else x
    hi, lo = _ATAN_ONE_HI if is_one else hi, _ATAN_ONE_LO if is_one else lo
    above, below = x - 1.0 if is_one else above, x + 1.0 if is_one else below
    hi, lo = _ATAN_HALF_HI if is_half else hi, _ATAN_HALF_LO if is_half else lo
    above, below = 2.0 * x - 1.0 if is_half else above, 2.0 + x if is_half else below
    hi, lo = 0.0 if is_small else hi, 0.0 if is_small else lo
    t = above / below
    t = x if is_small else t
    z = t * t
    w = z * z
    odd = z * (_A0 + w * (_A2 + w * (_A4 + w * (_A6 + w * (_A8 + w * _A10)))))
    even = w * (_A1 + w * (_A3 + w * (_A5 + w * (_A7 + w * _A9))))
    return hi - ((t * (odd + even) - lo) - t)


@inlined
def atan2(y: float, x: float) -> float:
    """The angle of (x, y) in [-pi, pi]; atan2(0, 0) is 0. Signed zeros count as +0."""
    is_upright = x == 0.0
    angle = _atan_of_positive(abs(y / (1.0 if is_upright else x)))
    angle = PI - (angle - _PI_LO) if x < 0.0 else angle
    angle = (0.0 if y == 0.0 else _ATAN_INF_HI) if is_upright else angle
    return -angle if y < 0.0 else angle


def tan(x: float) -> float:
    sine, cosine = sincos(x)
    return sine / cosine
