"""What `microsim list` lists: groups of names, declared in the module `listing` of a folder of the core or of a part.

LISTING = Listing("metrics", 80, lambda: {"collisions": "Contacts with obstacles."})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from microsim.registry import Registry


@dataclass(frozen=True)
class Listing:
    name: str  # of the group
    position: int
    entries: Callable[[], Mapping[str, str]]  # names, each with a sentence about it


LISTINGS: Registry[Listing] = Registry(
    constant="LISTING", package="microsim", in_folders="listing", group="microsim.listings",
    expected="Listing(...)", is_one=lambda declared: isinstance(declared, Listing),
    order=lambda declared: declared.position,
)  # fmt: skip


def first_line(documented: Any) -> str:
    """What the docstring of a class or function says first."""
    return (documented.__doc__ or "").strip().split("\n")[0]
