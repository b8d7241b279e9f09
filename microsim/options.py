"""How options are declared: plain data, so that a part that joins a run needs nothing of the command line.

A group of options is a `NamedTuple` whose fields are annotated with what `option`, `flag` or `argument` give:

    class TraceOptions(NamedTuple):
        trace: Annotated[Path | None, option("--trace FILE", "Write every pose as CSV.")] = None

The command line makes them parameters of its commands, see `microsim.cli.command`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, get_type_hints

from microsim.errors import UsageError


@dataclass(frozen=True)
class Option:
    """One option, or an argument."""

    names: tuple[str, ...]  # `--out`, `-o`; of an argument its name
    value: str | None  # what its value is called; empty: it has none; None: as its type
    text: str  # for the help
    panel: str | None = None  # heading in the help
    is_argument: bool = False
    without_value: str | None = None  # what it means when its value is left out
    former: tuple[str, ...] = ()  # names it had in the version before, which still work
    settings: Mapping[str, Any] = field(default_factory=dict)  # such as `min`, `max`, `parser`, `show_default`


def option(names: str, text: str, panel: str | None = None, without_value: str | None = None, **settings: Any) -> Any:
    """`option("--out -o FILE", …)`: the names of an option, then what its value is called; its help."""
    words = names.split()
    value = None if words[-1].startswith("-") else words.pop()
    return Option(tuple(words), value, text, panel, without_value=without_value, settings=settings)


def flag(names: str, text: str, panel: str | None = None, former: tuple[str, ...] = (), **settings: Any) -> Any:
    """An option that is there or not."""
    return Option(tuple(names.split()), "", text, panel, former=former, settings=settings)


def argument(name: str, text: str, **settings: Any) -> Any:
    return Option((name,), name, text, is_argument=True, settings=settings)


def declared(group: type[Any]) -> dict[str, Option]:
    """The options of a group, by field; not those of groups within it."""
    hints = get_type_hints(group, include_extras=True)
    notes = {name: getattr(hints[name], "__metadata__", ()) for name in group._fields}
    return {name: found[0] for name, found in notes.items() if found and isinstance(found[0], Option)}


def options_in(group: type[Any]) -> dict[str, Option]:
    """Every option of a group, also of groups within it, by each of its names."""
    own = {name: each for each in declared(group).values() if not each.is_argument for name in each.names}
    for within in group._field_defaults.values():
        own |= options_in(type(within)) if hasattr(within, "_fields") else {}
    return own


def given(options: Any) -> list[str]:
    """What is not as by default, each by the first name of its option."""
    known = declared(type(options))
    found: list[str] = []
    for name, value in zip(options._fields, options, strict=True):
        if hasattr(value, "_fields"):
            found += given(value)
        elif value not in (options._field_defaults.get(name), []):
            found.append(known[name].names[0])
    return found


# ---- values: a wrong one is refused with what is expected ------------------------------------------------------------

_TIMES: Mapping[str, Fraction | int] = {"": 1, "s": 1, "ms": Fraction(1, 1000), "m": 60, "min": 60, "h": 3600}
_SIZES = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")

Parser = Callable[[str], Any]  # raises UsageError with what it expects


def _quantity(text: str, units: Mapping[str, Fraction | int], expected: str) -> Fraction:
    found = _QUANTITY.fullmatch(text.strip()) if len(text) <= 30 else None
    if found is None or found[2].lower() not in units:
        raise UsageError(f"expected {expected}, found {text!r}.")
    return Fraction(found[1]) * units[found[2].lower()]


def simulated_time(text: str) -> Fraction:
    """`12.5s`, `500ms`, `2min`; without a unit, seconds."""
    return _quantity(text, _TIMES, "a simulated time such as 12.5s, 500ms or 2min")


def size(text: str) -> int:
    """`500kB`, `100MB`, `2GiB`; without a unit, bytes."""
    return int(_quantity(text, _SIZES, "a size such as 500kB, 100MB or 2GiB"))


def check_can_write(name: str, file: Path | None) -> None:
    """Refuse, before the work, a file of that option that could not be written after it."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        what = "it is a folder" if file.is_dir() else f"there is no folder {file.parent}"
        raise UsageError(f"{name} {file}: {what}")
