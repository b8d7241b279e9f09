"""The CUDA source of the GPU back end, `splat.cu`, with the constants of the CPU's code."""

from pathlib import Path

import numpy as np

from microsim.render import splat
from microsim.render.splat import activation, blending, picture, projection, sorting


def _float(value: float) -> str:
    return f"{float(np.float32(value)).hex()}f"


def _defines() -> str:
    """The constants of the CPU's code, digit by digit."""
    floats = {
        "ALPHA_MAX": splat.ALPHA_MAX,
        "TRANSMITTANCE_MIN": splat.TRANSMITTANCE_MIN,
        "SEEN_ALPHA": picture.SEEN_ALPHA,
        **{f"E{k}": value for k, value in enumerate(blending.EXPONENTIAL)},
        **{f"H{k}": float(value) for k, value in enumerate(projection.HARMONICS)},
    }
    doubles = {
        "DILATION": splat.DILATION_PX2,
        "MARGIN_PX": projection.MARGIN_PX,
        "REACH_FACTOR": projection.REACH_FACTOR,
        "REACH_MARGIN_PX": projection.REACH_MARGIN_PX,
        "EXTENT_FACTOR": sorting.EXTENT_FACTOR,
        "EXTENT_MARGIN": sorting.EXTENT_MARGIN,
        "TILE_MARGIN_PX": sorting.MARGIN_PX,
    }
    assert (splat.TILE, splat.CHUNK, activation.GEOMETRY, projection.FOOTPRINT) == (16, 256, 12, 16)
    lines = [f"#define {name} ({_float(value)})" for name, value in floats.items()]
    lines += [f"#define {name} ({float(value).hex()})" for name, value in doubles.items()]
    return "\n".join(lines)


def source() -> str:
    return f"{_defines()}\n{Path(__file__).with_name('splat.cu').read_text(encoding='utf-8')}"
