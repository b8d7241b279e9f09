"""What this process draws splats with, and whom it tells: no part of a simulation, for the pictures are the same."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["auto", "cpu", "gpu"]
Say: TypeAlias = Callable[[str], None]


def nobody(text: str) -> None:
    """Tell it to."""


@dataclass
class Wish:
    choice: Choice = "auto"
    threads: int = 0  # 0: as many as there are processors
    say: Say = nobody


wish = Wish()
