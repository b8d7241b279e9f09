"""Splats with torch on one CPU thread: projection and colours of all splats at once, then tile by tile.

The usual way to write it in a tensor library: every step an operation on whole tensors; batches of 256 splats a tile,
cumulative products for the transmittance, and a stop when a tile is full. Prints JSON.
"""

import json
import math
import sys
import time

import numpy as np
import torch

torch.set_num_threads(1)


def rotations(q):
    x, y, z, w = q.unbind(1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, 1).reshape(-1, 3, 3)


def basis(d):
    x, y, z = d.unbind(1)
    xx, yy, zz = x * x, y * y, z * z
    c = (
        0.28209479,
        0.48860251,
        1.09254843,
        0.31539157,
        0.54627422,
        0.59004359,
        2.89061144,
        0.45704580,
        0.37317633,
        1.44530572,
    )
    parts = [
        torch.full_like(x, c[0]), -c[1] * y, c[1] * z, -c[1] * x,
        c[2] * x * y, -c[2] * y * z, c[3] * (2 * zz - xx - yy), -c[2] * x * z, c[4] * (xx - yy),
        -c[5] * y * (3 * xx - yy), c[6] * x * y * z, -c[7] * y * (4 * zz - xx - yy),
        c[8] * z * (2 * zz - 3 * xx - 3 * yy),
        -c[7] * x * (4 * zz - xx - yy), c[9] * z * (xx - yy), -c[5] * x * (xx - 3 * yy),
    ]  # fmt: skip
    return torch.stack(parts, 1)


@torch.no_grad()
def render(geometry, harmonics, view):
    position, axes = view[0:3], view[3:12].reshape(3, 3)
    fx, fy, cx, cy = (float(v) for v in view[12:16])
    width, height = int(view[16]), int(view[17])
    offset = geometry[:, :3] - position
    places = offset @ axes.T
    z = places[:, 2]
    keep = z > 0.2
    geometry, harmonics, offset, places, z = geometry[keep], harmonics[keep], offset[keep], places[keep], z[keep]
    slope_x = (places[:, 0] / z).clamp(float(view[18]), float(view[19]))
    slope_y = (places[:, 1] / z).clamp(float(view[20]), float(view[21]))
    zero = torch.zeros_like(z)
    jacobian = torch.stack([fx / z, zero, -fx * slope_x / z, zero, fy / z, -fy * slope_y / z], 1).reshape(-1, 2, 3)
    shape = jacobian @ axes @ (rotations(geometry[:, 6:10]) * geometry[:, None, 3:6])
    covariance = shape @ shape.transpose(1, 2)
    a, b, c = covariance[:, 0, 0] + 0.3, covariance[:, 0, 1], covariance[:, 1, 1] + 0.3
    determinant = a * c - b * b
    u, v = fx * places[:, 0] / z + cx, fy * places[:, 1] / z + cy
    extent = torch.sqrt(2 * geometry[:, 11])
    reach_x, reach_y = extent * torch.sqrt(a), extent * torch.sqrt(c)
    keep = (u + reach_x >= 0) & (u - reach_x < width) & (v + reach_y >= 0) & (v - reach_y < height) & (determinant > 0)
    u, v, z, reach_x, reach_y = u[keep], v[keep], z[keep], reach_x[keep], reach_y[keep]
    conic = torch.stack([c, -b, a], 1)[keep] / determinant[keep, None]
    opacity = geometry[keep, 10]
    direction = torch.nn.functional.normalize(offset[keep], dim=1)
    colour = (torch.einsum("nk,nkc->nc", basis(direction), harmonics[keep]) + 0.5).clamp_min(0)
    order = torch.argsort(z, stable=True)
    u, v, reach_x, reach_y, conic, opacity, colour = (
        t[order] for t in (u, v, reach_x, reach_y, conic, opacity, colour)
    )
    columns, rows = math.ceil(width / 16), math.ceil(height / 16)
    first_x, last_x = (
        ((u - reach_x) / 16).floor().clamp(0, columns - 1),
        ((u + reach_x) / 16).floor().clamp(0, columns - 1),
    )
    first_y, last_y = ((v - reach_y) / 16).floor().clamp(0, rows - 1), ((v + reach_y) / 16).floor().clamp(0, rows - 1)
    wide, high = (last_x - first_x + 1).long(), (last_y - first_y + 1).long()
    counts = wide * high
    index = torch.repeat_interleave(torch.arange(len(u)), counts)
    within = torch.arange(int(counts.sum())) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    tile = (first_y[index].long() + within // wide[index]) * columns + first_x[index].long() + within % wide[index]
    tile, by_tile = torch.sort(tile, stable=True)
    index = index[by_tile]
    bounds = torch.searchsorted(tile, torch.arange(columns * rows + 1)).tolist()
    image = torch.zeros(rows * 16, columns * 16, 3)
    y, x = (t.reshape(1, -1).float() for t in torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij"))
    for t in range(columns * rows):
        mine = index[bounds[t] : bounds[t + 1]]
        top, left = t // columns * 16, t % columns * 16
        rest, picture, is_open = torch.ones(1, 256), torch.zeros(256, 3), torch.ones(1, 256, dtype=torch.bool)
        for start in range(0, len(mine), 256):
            g = mine[start : start + 256]
            dx, dy = u[g, None] - (x + left), v[g, None] - (y + top)
            power = 0.5 * (conic[g, 0:1] * dx * dx + conic[g, 2:3] * dy * dy) + conic[g, 1:2] * dx * dy
            alpha = (opacity[g, None] * torch.exp(-power)).clamp_max(0.99)
            alpha = torch.where((power < 0) | (alpha < 1 / 255), 0.0, alpha)
            after = torch.cumprod(1 - alpha, 0) * rest
            before = torch.cat([rest, after[:-1]])
            goes_on = (after > 1e-4) & is_open
            picture += torch.where(goes_on, alpha * before, 0.0).T @ colour[g]
            rest, is_open = after[-1:], goes_on[-1:]
            if not bool(is_open.any()):
                break
        image[top : top + 16, left : left + 16] = picture.reshape(16, 16, 3)
    return image[:height, :width]


scene = np.load(sys.argv[1])
numbers = [torch.from_numpy(scene[name].astype(np.float32)) for name in ("geometry", "harmonics", "view")]
image = render(*numbers)
best = math.inf
for _ in range(2):
    start = time.process_time()
    image = render(*numbers)
    best = min(best, time.process_time() - start)
mean = float((image.clamp(0, 1) * 255).mean())
print(json.dumps({"seconds": best, "mean": mean, "version": torch.__version__}))
