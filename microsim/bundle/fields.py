"""Reads a mapping field by field; what is missing, of the wrong kind or out of bounds becomes a problem.

A field that could not be read gives NaN, 0 or an empty value, so that reading goes on and finds the other problems.
Nothing of it is used: a bundle with problems is never handed out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from microsim.bundle.report import Source
from microsim.engine.exact import PI
from microsim.errors import show, unknown

if TYPE_CHECKING:
    from microsim.documents.yaml_text import Path

MAX_LENGTH_M = 1e7
DEGREE = PI / 180.0
_MISSING: Any = object()


class Fields:
    """One mapping of a file. Call the readers, then `done`, which complains about the fields nobody read."""

    def __init__(self, source: Source, data: Any, path: Path = ()) -> None:
        self.source = source
        self.path = path
        self.known: list[str] = []
        self.is_mapping = isinstance(data, Mapping)
        self.data: Mapping[str, Any] = data if self.is_mapping else {}
        if not self.is_mapping:
            self.wrong((), f"expected a mapping, found {show(data)}")

    def wrong(self, below: Path, message: str, rule: str = "field-value", remedy: str = "", **place: bool) -> None:
        self.source.problem(rule, message, (*self.path, *below), remedy, **place)

    def has(self, name: str) -> bool:
        return name in self.data

    def take(self, name: str, default: Any = _MISSING, rule: str = "field-value", remedy: str = "") -> Any:
        """The value as it stands, or the default; `_MISSING` and a problem when there is neither."""
        self.known.append(name)
        value = self.data.get(name, _MISSING)
        if value is not _MISSING:
            return value
        if default is _MISSING and self.is_mapping:
            self.wrong((name,), f"missing field '{name}'", rule, remedy or f"add '{name}:'")
        return default

    def number(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        least: float = -MAX_LENGTH_M,
        most: float = MAX_LENGTH_M,
        above: float | None = None,
    ) -> float:
        value = self.take(name, default)
        return math.nan if value is _MISSING else self.checked(value, (name,), least, most, above)

    def checked(self, value: Any, below: Path, least: float, most: float, above: float | None = None) -> float:
        """A finite number within bounds, or NaN and a problem."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.wrong(below, f"expected a number, found {show(value)}")
            return math.nan
        low = above if above is not None else least
        if not low <= value <= most or (above is not None and value == above) or not math.isfinite(value):
            words = f"above {low:g} and up to {most:g}" if above is not None else f"from {low:g} to {most:g}"
            self.wrong(below, f"expected a number {words}, found {show(value)}")
            return math.nan
        return float(value)

    def integer(self, name: str, default: Any = _MISSING, *, least: int, most: int) -> int:
        value = self.take(name, default)
        if value is _MISSING:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.wrong((name,), f"expected a whole number from {least} to {most}, found {show(value)}")
            return 0
        return value

    def text(self, name: str, default: Any = _MISSING, most: int = 10_000) -> str:
        value = self.take(name, default)
        if value is _MISSING:
            return ""
        if not isinstance(value, str) or len(value) > most:
            self.wrong((name,), f"expected text of at most {most} characters, found {show(value)}")
            return ""
        return value

    def choice(
        self, name: str, choices: Iterable[str], default: Any = _MISSING, rule: str = "field-value", remedy: str = ""
    ) -> str:
        names = list(choices)
        value = self.take(name, default, rule, remedy)
        if value is _MISSING:
            return ""
        if not isinstance(value, str) or value not in names:
            self.wrong((name,), f"expected one of {', '.join(names)}, found {show(value)}", rule, remedy)
            return ""
        return value

    def numbers(
        self, name: str, count: int, default: Any = _MISSING, least: float = -MAX_LENGTH_M, most: float = MAX_LENGTH_M
    ) -> tuple[float, ...]:
        """A list of exactly so many numbers."""
        value = self.take(name, default)
        if value is _MISSING:
            return (math.nan,) * count
        if not isinstance(value, (list, tuple)) or len(value) != count:
            self.wrong((name,), f"expected a list of {count} numbers, found {show(value)}")
            return (math.nan,) * count
        return tuple(self.checked(item, (name, index), least, most) for index, item in enumerate(value))

    def angle(self, name: str, default: Any = _MISSING, *, least: float, most: float) -> float:
        """Radians under `name`, or degrees under `name_deg`; bounds in radians."""
        chosen, factor = self._angle_name(name, default)
        value = self.take(chosen, default)
        if value is _MISSING:
            return math.nan
        return self._angle(value, (chosen,), factor, least, most)

    def angles(self, name: str, most_values: int, *, least: float, most: float) -> tuple[float, ...]:
        """A list of angles, likewise."""
        chosen, factor = self._angle_name(name, _MISSING)
        value = self.take(chosen)
        if value is _MISSING:
            return ()
        if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= most_values:
            self.wrong((chosen,), f"expected a list of 1 to {most_values} angles, found {show(value)}")
            return ()
        return tuple(self._angle(item, (chosen, i), factor, least, most) for i, item in enumerate(value))

    def _angle_name(self, name: str, default: Any) -> tuple[str, float]:
        degrees = f"{name}_deg"
        self.known += [name, degrees]
        if name in self.data and degrees in self.data:
            message = f"expected either '{name}' in radians or '{degrees}' in degrees, found both"
            self.wrong((degrees,), message, "degrees", "keep one of the two", at_key=True)
        return (degrees, DEGREE) if degrees in self.data and name not in self.data else (name, 1.0)

    def _angle(self, value: Any, below: Path, factor: float, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1e9:
            self.wrong(below, f"expected an angle, found {show(value)}")
            return math.nan
        unit = "degrees" if factor != 1.0 else "radians"
        if not least - 1e-9 <= value * factor <= most + 1e-9:
            message = f"expected {least / factor:.6g} to {most / factor:.6g} {unit}, found {show(value)}"
            looks = factor == 1.0 and least <= value * DEGREE <= most
            remedy = f"if these are degrees, name the field '{below[0]}_deg'" if looks else ""
            self.wrong(below, message, "degrees" if looks else "field-value", remedy)
            return math.nan
        return float(value) * factor if factor != 1.0 else float(value)

    def block(self, name: str, required: bool = True) -> Fields | None:
        """The mapping under `name`; None when it is not there, or, unless required, when it is null."""
        value = self.take(name, _MISSING if required else None)
        if value is _MISSING or (value is None and not required):
            return None
        return Fields(self.source, value, (*self.path, name))

    def done(self) -> None:
        """Complains about fields that nobody asked for."""
        names = list(dict.fromkeys(self.known))
        for key in self.data:
            if key not in names:
                self._unknown(str(key), names)

    def _unknown(self, key: str, names: list[str]) -> None:
        stem = key.removesuffix("_deg")
        if stem != key and stem in names:
            remedy = f"'{stem}' is no angle: write it without the suffix"
            self.wrong((key,), f"'{key}' is not an angle", "degrees", remedy, at_key=True)
            return
        message = unknown("unknown field", repr(key), key, names)
        remedy = "take it out, or write it as the documentation does"
        later = self.source.newer_minor
        self.wrong((key,), message, "unknown-field", remedy, at_key=True, warning=later)
