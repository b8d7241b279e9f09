"""Batches of the same worlds on both devices."""

import warnings
from typing import Any

from microsim.batch import BatchSimulation


def pair(source: Any, n: int, **options: Any) -> list[BatchSimulation]:
    """The same worlds on the CPU and on the GPU; no warning, so the GPU passed its test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        made = [BatchSimulation(source, n, device=device, **options) for device in ("cpu", "cuda")]
    assert [each.device for each in made] == ["cpu", "cuda"]
    return made
