"""Splats with gsplat's own torch code on one CPU thread: its projection, colours and lists of tiles, then a blend.

gsplat blends with CUDA only, so its tiles are blended here, in tensors, as `splat_torch.py` does. Prints JSON.
"""

import json
import math
import sys
import time

import gsplat
import numpy as np
import torch
from gsplat.cuda import _torch_impl as published

torch.set_num_threads(1)
TILE = 16


@torch.no_grad()
def render(geometry, harmonics, view):
    position, axes = view[0:3], view[3:12].reshape(3, 3)
    fx, fy, cx, cy = (float(value) for value in view[12:16])
    width, height = int(view[16]), int(view[17])
    extrinsics = torch.eye(4)
    extrinsics[:3, :3], extrinsics[:3, 3] = axes, -axes @ position
    intrinsics = torch.tensor([[fx, 0.0, cx + 0.5], [0.0, fy, cy + 0.5], [0.0, 0.0, 1.0]])  # its pixels begin at whole
    means, scales, turns, opacity = geometry[:, :3], geometry[:, 3:6], geometry[:, [9, 6, 7, 8]], geometry[:, 10]
    covariance, _ = published._quat_scale_to_covar_preci(turns, scales, True, False)
    radii, places, depths, conics, _ = published._fully_fused_projection(
        means, covariance, extrinsics[None], intrinsics[None], width, height, near_plane=0.2
    )
    colours = published._spherical_harmonics(3, (means - position)[None], harmonics[None])[0] + 0.5
    columns, rows = math.ceil(width / TILE), math.ceil(height / TILE)
    _, tiles, order = published._isect_tiles(places, radii, depths, TILE, columns, rows)
    starts = published._isect_offset_encode(tiles, 1, columns, rows).reshape(-1).tolist()
    lists = [order[a:b].long() for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]
    return blend(lists, columns, places[0], conics[0], opacity, colours.clamp_min(0))[:height, :width]


def blend(lists, columns, places, conics, opacity, colours):
    image = torch.zeros(len(lists) // columns * TILE, columns * TILE, 3)
    grid = torch.meshgrid(torch.arange(TILE), torch.arange(TILE), indexing="ij")
    y, x = (axis.reshape(1, -1) + 0.5 for axis in grid)
    for tile, mine in enumerate(lists):
        top, left = tile // columns * TILE, tile % columns * TILE
        rest, picture = torch.ones(1, TILE * TILE), torch.zeros(TILE * TILE, 3)
        is_open = torch.ones(1, TILE * TILE, dtype=torch.bool)
        for start in range(0, len(mine), 256):
            g = mine[start : start + 256]
            dx, dy = places[g, 0:1] - (x + left), places[g, 1:2] - (y + top)
            power = 0.5 * (conics[g, 0:1] * dx * dx + conics[g, 2:3] * dy * dy) + conics[g, 1:2] * dx * dy
            alpha = (opacity[g, None] * torch.exp(-power)).clamp_max(0.99)
            alpha = torch.where((power < 0) | (alpha < 1 / 255), 0.0, alpha)
            after = torch.cumprod(1 - alpha, 0) * rest
            before = torch.cat([rest, after[:-1]])
            goes_on = (after > 1e-4) & is_open
            picture += torch.where(goes_on, alpha * before, 0.0).T @ colours[g]
            rest, is_open = after[-1:], goes_on[-1:]
            if not bool(is_open.any()):
                break
        image[top : top + TILE, left : left + TILE] = picture.reshape(TILE, TILE, 3)
    return image


scene = np.load(sys.argv[1])
numbers = [torch.from_numpy(scene[name].astype(np.float32)) for name in ("geometry", "harmonics", "view")]
best = math.inf
for _ in range(2):
    start = time.process_time()
    image = render(*numbers)
    best = min(best, time.process_time() - start)
mean = float((image.clamp(0, 1) * 255).mean())
print(json.dumps({"seconds": best, "mean": mean, "version": gsplat.__version__}))
