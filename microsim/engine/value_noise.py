"""Smooth random heights from + - * on single elements: the same bits on every machine."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]
Words: TypeAlias = npt.NDArray[np.uint64]

OCTAVES = 4  # each of half the wavelength and half the height of the one before


def octaves(x: Array, y: Array, seed: int, wavelength: float) -> Array:
    total = np.zeros((len(y), len(x)), np.float64)
    weight = 1.0
    for octave in range(OCTAVES):
        total += weight * _value_noise(x / wavelength, y / wavelength, seed, octave)
        weight *= 0.5
        wavelength *= 0.5
    return total


def _value_noise(u: Array, v: Array, seed: int, octave: int) -> Array:
    """Random values in [0, 1) at whole coordinates, joined smoothly (first and second derivative)."""
    i, j = np.floor(u), np.floor(v)
    s, t = _smooth(u - i)[None, :], _smooth(v - j)[:, None]
    columns, rows = i.astype(np.int64).astype(np.uint64)[None, :], j.astype(np.int64).astype(np.uint64)[:, None]
    one = np.uint64(1)
    stream = mix(np.array((seed & (2**64 - 1)) ^ (octave * 0x9E3779B97F4A7C15 & (2**64 - 1)), np.uint64))
    south_west, south_east = _lattice(columns, rows, stream), _lattice(columns + one, rows, stream)
    north_west, north_east = _lattice(columns, rows + one, stream), _lattice(columns + one, rows + one, stream)
    south = south_west + (south_east - south_west) * s
    north = north_west + (north_east - north_west) * s
    return south + (north - south) * t


def _smooth(t: Array) -> Array:
    return t * t * t * (t * (t * 6.0 - 15.0) + 10.0)


def _lattice(columns: Words, rows: Words, stream: Words) -> Array:
    """The random value of each lattice point, in [0, 1)."""
    word: Words = mix(mix(stream ^ columns) ^ rows)
    values: Array = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return values


def mix(word: Any) -> Any:
    """SplitMix64 of every element."""
    with np.errstate(over="ignore"):
        word = word + np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
