"""Robots as others see them."""

from dataclasses import dataclass

from microsim.engine.geometry import Vector
from microsim.engine.motion import Motion, mounted_at, turned


@dataclass(frozen=True)
class Body:
    """What others see of a robot: a box fixed to its base_link."""

    center: Vector  # [m] base_link
    size: Vector  # [m] along the axes of base_link


def body_row(motion: Motion, body: Body) -> tuple[float, ...]:
    """Middle and axes of the box in the map frame, half its size."""
    axes = turned(motion, ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    half = (0.5 * body.size[0], 0.5 * body.size[1], 0.5 * body.size[2])
    return (*mounted_at(motion, body.center), *axes[0], *axes[1], *axes[2], *half)
