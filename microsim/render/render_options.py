"""What this process draws splats with, and where it reports problems; no part of a simulation: images are the same."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Choice: TypeAlias = Literal["auto", "cpu", "gpu"]
Say: TypeAlias = Callable[[str], None]


def nobody(text: str) -> None:
    """Reports nothing."""


@dataclass
class RenderRequest:
    choice: Choice = "auto"
    threads: int = 0  # 0: as many as there are processors
    say: Say = nobody


render_request = RenderRequest()
