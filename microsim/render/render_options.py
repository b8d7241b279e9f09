"""What this process computes images and point clouds with, and where it reports problems.

No part of a simulation: images and points are the same.
"""

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
    threads: int = 0  # of a simulation's splat cameras and LiDARs; 0: the usual number of `threads.py`
    say: Say = nobody


render_request = RenderRequest()
