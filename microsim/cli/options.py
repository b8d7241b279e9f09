"""Options of several commands, and how their values are read. A wrong value is refused with what is expected."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from microsim.cli.terminal import set_quiet

ROS_ARGS: list[str] = []  # of this call: `--ros-args …`, which is not for typer to parse

LONGEST_S = 2**31 - 1  # what the seconds of a ROS 2 stamp can hold

_TIMES = {"": "1", "s": "1", "ms": "1/1000", "m": "60", "min": "60", "h": "3600"}
_SIZES = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def flag(*names: str) -> Any:
    """An option that is there or not; its names, then its help."""
    return typer.Option(*names[:-1], metavar="", help=names[-1])


def simulated_time(text: str) -> Fraction:
    """`12.5s`, `500ms`, `2min`; without a unit, seconds."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2].lower() not in _TIMES or len(text) > 30:
        raise typer.BadParameter(f"expected a simulated time such as 12.5s, 500ms or 2min, found {text!r}.")
    return Fraction(found[1]) * Fraction(_TIMES[found[2].lower()])


def size(text: str) -> int:
    """`500kB`, `100MB`, `2GiB`; without a unit, bytes."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2].lower() not in _SIZES or len(text) > 30:
        raise typer.BadParameter(f"expected a size such as 500kB, 100MB or 2GiB, found {text!r}.")
    return int(Fraction(found[1]) * _SIZES[found[2].lower()])


def _number(text: str, least: float, most: float, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise typer.BadParameter(f"expected {what}, found {text!r}.")
    return number


def seconds(text: str | float) -> float:
    """As `simulated_time`, also written as 1e3; a number where it is an option's default."""
    text = str(text)
    found = _QUANTITY.fullmatch(text.strip())
    if found is not None and found[2].lower() in _TIMES and len(text) <= 30:
        text = str(float(simulated_time(text)))
    return _number(text, 0.0, LONGEST_S, f"simulated seconds from 0 to {LONGEST_S:,}, such as 60, 2min or 500ms")


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


# ---- options of several commands -------------------------------------------------------------------------------------

JsonOption = Annotated[bool, flag("--json", "Print one line of JSON.")]
ResultJsonOption = Annotated[bool, flag("--json", "Print the result as one line of JSON, and nothing else on stdout.")]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        callback=set_quiet,
        help="Print nothing when all is well: no progress, no summary; only --json, --digest and errors.",
    ),
]
SeedOption = Annotated[int | None, typer.Option("--seed", parser=seed_value, metavar="N", help="Seed of all noise.")]
PilotOption = Annotated[bool, flag("--demo", "Let a simple pilot fly the drone and drive the rover.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, metavar="S", help="Longest wall time of one run.")]
BagArgument = Annotated[Path, typer.Argument(metavar="BAG", help="A recording: its folder, or one of its files.")]


def words_of(values: list[str] | None) -> tuple[str, ...]:
    """`a,b` and `a` `b` alike; a file may have a comma in its name."""
    split = [[value] if Path(value).exists() else value.split(",") for value in values or ()]
    return tuple(word for words in split for word in words if word)
