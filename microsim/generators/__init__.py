"""Generators of obstacles and features, one file each, with one constant `GENERATOR = Generator(...)`.

`GENERATORS` finds them: built in, installed, or in a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microsim.registry import Registry

if TYPE_CHECKING:
    from pydantic import BaseModel

_MASK = 2**64 - 1


class Dice:
    """A source of random numbers that is a function of its key alone."""

    def __init__(self, *key: str | int) -> None:
        text = "\0".join(str(part) for part in key)
        self._state = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def bits(self) -> int:
        """A whole number from 0 to 2^64 - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((self._state ^ (self._state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A number in [low, high]."""
        return low + (high - low) * ((self.bits() >> 11) * 2.0**-53)

    def below(self, count: int) -> int:
        """A whole number from 0 to count - 1."""
        return (self.bits() * count) >> 64


@dataclass(frozen=True)
class Generator:
    """An obstacle generator.

    `generate(options, map, random)` returns a list of obstacles and features, each a dict as in a scenario's YAML.
    `options` is an instance of the options model (or None), `map` the scenario's map, and `random` a `Dice`; what is
    drawn from it is the same on every machine.
    """

    name: str  # what a scenario writes as `plugin:`
    generate: Callable[[Any, Any, Dice], Sequence[Any]]
    options: type[BaseModel] | None = None  # the generator's own keys in a scenario; None: it has none

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name: expected text, found {self.name!r}")
        if not callable(self.generate):
            raise TypeError(f"{self.name}: generate: expected a function, found {self.generate!r}")
        if self.options is not None and not hasattr(self.options, "model_fields"):
            raise TypeError(f"{self.name}: options: expected a pydantic model, found {self.options!r}")


GENERATORS: Registry[Generator] = Registry(
    "GENERATOR", "microsim.generators", "microsim.worlds", "Generator(...)", lambda part: isinstance(part, Generator)
)
