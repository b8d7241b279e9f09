"""Numbers that options take: read from what was typed, refused with what was expected."""

from __future__ import annotations

import math

import typer

LONGEST_S = 2**31 - 1  # what the seconds of a ROS 2 stamp can hold


def _number(text: str, least: float, most: float, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise typer.BadParameter(f"expected {what}, found {text!r}.")
    return number


def seconds(text: str) -> float:
    return _number(text, 0.0, LONGEST_S, f"simulated seconds from 0 to {LONGEST_S:,}")


def real_time_factor(text: str) -> float:
    expected = "0 (as fast as possible) or a factor from 0.001 to 100,000"
    number = _number(text, 0.0, 100_000.0, expected)
    return _number(text, 0.001, 100_000.0, expected) if number else 0.0


def seed_value(text: str) -> int:
    try:
        seed = int(text.strip(), 10)
    except ValueError:
        seed = 2**63
    if not -(2**63) <= seed < 2**63:
        raise typer.BadParameter(f"expected a whole number of 64 bits, found {text!r}.")
    return seed
