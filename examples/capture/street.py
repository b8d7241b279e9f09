"""Makes a capture to practise with: a street with parked cars, as a 3DGS trainer writes it, photographed on a walk.

    python examples/capture/street.py my_capture
    microsim bundle from-capture my_capture my_street --camera-height 1.6

The street is made in metres with z up and then written as a trainer would leave it: tilted, in arbitrary units, with a
sky and with floaters. Since the truth is known, MicroSim's tests measure with it how well a world is recovered.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PARKED = ((-9.0, -2.4), (-2.5, 2.5), (6.0, -2.4))  # middles of cars [m]
CAR = (4.2, 1.8, 1.4)
FACADE_Y, FACADE_HEIGHT, HALF_LENGTH = 8.0, 5.0, 18.0
KERB_Y, KERB_M = 4.2, 0.12
CAMERA_HEIGHT_M = 1.6
SOFT_M = 0.2  # standard deviation of how far the soft ones lie beside the surfaces


@dataclass
class Street:
    """Splats in truth's frame, the surfaces they lie on, and the cameras."""

    points: np.ndarray
    axes: np.ndarray  # (n, 3, 3) columns: two in the surface, the normal
    sigmas: np.ndarray
    opacity: np.ndarray
    colours: np.ndarray
    vertices: np.ndarray  # of the true objects
    triangles: np.ndarray
    positions: np.ndarray  # of the cameras
    turns: np.ndarray
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))  # truth to capture
    scale: float = 1.0  # metres per unit
    move: np.ndarray = field(default_factory=lambda: np.zeros(3))

    def captured(self, points: np.ndarray) -> np.ndarray:
        return points @ self.rotation.T / self.scale + self.move


def ground_height(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A cambered road between kerbs, and lawns that rise towards the houses."""
    across = np.abs(y)
    road = -0.02 * np.minimum(across, KERB_Y)
    return road + np.where(across > KERB_Y, KERB_M, 0.0) + np.where(across > 5.5, 0.04 * (across - 5.5), 0.0)


def street(
    seed: int = 1,
    spacing: float = 0.1,
    scale: float = 7.3,
    sky: bool = True,
    noise_m: float = 0.008,
    soft: float = 0.0,
    balls: bool = False,
) -> Street:
    """`spacing` [m] decides how many Gaussians there are; `balls` are as wide in every direction.

    `soft` is the share of them that are half transparent and lie beside the surfaces.
    """
    random = np.random.default_rng(seed)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # points, normals, colours
    vertices: list[np.ndarray] = []
    triangles: list[np.ndarray] = []

    def quad(corner: Any, u: Any, v: Any, colour: Any, solid: bool = True) -> None:
        corner, u, v = (np.array(each, float) for each in (corner, u, v))
        a, b = (max(2, int(np.linalg.norm(each) / spacing)) for each in (u, v))
        s, t = np.meshgrid((np.arange(a) + 0.5) / a, (np.arange(b) + 0.5) / b)
        s = s.ravel() + random.uniform(-0.4, 0.4, a * b) / a
        t = t.ravel() + random.uniform(-0.4, 0.4, a * b) / b
        normal = np.cross(u, v) / np.linalg.norm(np.cross(u, v))
        points = corner + s[:, None] * u + t[:, None] * v
        painted = colour(points) if callable(colour) else np.tile(colour, (a * b, 1))
        parts.append((points, np.tile(normal, (a * b, 1)), painted))
        if solid:
            start = sum(map(len, vertices))
            vertices.append(np.stack([corner, corner + u, corner + u + v, corner + v]))
            triangles.append(np.array([[0, 1, 2], [0, 2, 3]]) + start)

    def box(x: float, y: float, size: Any, colour: Any) -> None:
        dx, dy, dz = size
        low = float(ground_height(np.array([x]), np.array([y]))[0])
        x0, y0 = x - dx / 2, y - dy / 2
        quad((x0, y0, low), (dx, 0, 0), (0, 0, dz), colour)
        quad((x0 + dx, y0 + dy, low), (-dx, 0, 0), (0, 0, dz), colour)
        quad((x0, y0 + dy, low), (0, -dy, 0), (0, 0, dz), colour)
        quad((x0 + dx, y0, low), (0, dy, 0), (0, 0, dz), colour)
        quad((x0, y0, low + dz), (dx, 0, 0), (0, dy, 0), colour)

    xs = np.arange(-HALF_LENGTH, HALF_LENGTH, spacing)
    ys = np.arange(-FACADE_Y, FACADE_Y, spacing)
    x, y = (each.ravel() for each in np.meshgrid(xs, ys))
    x, y = x + random.uniform(-0.4, 0.4, len(x)) * spacing, y + random.uniform(-0.4, 0.4, len(x)) * spacing
    free = np.ones(len(x), bool)
    for cx, cy in PARKED:  # a trainer draws nothing under a car
        free &= (np.abs(x - cx) > CAR[0] / 2) | (np.abs(y - cy) > CAR[1] / 2)
    x, y = x[free], y[free]
    paint = _ground_paint(x, y, random)
    parts.append((np.stack([x, y, ground_height(x, y)], axis=1), np.tile((0.0, 0.0, 1.0), (len(x), 1)), paint))
    for side in (-1.0, 1.0):
        low = float(ground_height(np.zeros(1), np.array([FACADE_Y]))[0])
        quad(
            (-side * HALF_LENGTH, side * FACADE_Y, low),
            (2 * side * HALF_LENGTH, 0, 0),
            (0, 0, FACADE_HEIGHT),
            _facade_paint,
        )
    for (cx, cy), colour in zip(PARKED, ((0.7, 0.1, 0.1), (0.1, 0.2, 0.6), (0.8, 0.8, 0.8)), strict=True):
        box(cx, cy, CAR, _car_paint(colour))
    for tx in (-12.0, 0.0, 12.0):  # posts
        box(tx, 6.5, (0.35, 0.35, 2.2), (0.35, 0.25, 0.15))
    points, normals, colours = (np.concatenate([each[index] for each in parts]) for index in range(3))
    points = points + normals * random.normal(0.0, noise_m, len(points))[:, None]
    tilt = normals + random.normal(0.0, 0.08, normals.shape)
    axes = _frames(tilt / np.linalg.norm(tilt, axis=1, keepdims=True), random)
    sigmas = np.stack([*(spacing * random.uniform(0.5, 0.9, (2, len(points)))), np.full(len(points), 0.01)], axis=1)
    opacity = 1.0 / (1.0 + np.exp(-random.normal(3.0, 0.8, len(points))))
    if balls:
        sigmas = np.tile(sigmas[:, :1], 3)
    if soft > 0.0:
        beside = np.flatnonzero(random.random(len(points)) < soft)
        points[beside] += normals[beside] * random.normal(0.0, SOFT_M, len(beside))[:, None]
        opacity[beside] = random.uniform(0.05, 0.6, len(beside))
    if sky:
        points, axes, sigmas, opacity, colours = _with_sky_and_floaters(random, points, axes, sigmas, opacity, colours)
    positions, turns = _walk(random)
    found = Street(
        points, axes, sigmas, opacity, colours, np.concatenate(vertices), np.concatenate(triangles), positions, turns
    )
    found.rotation, found.scale, found.move = _rotation(random), scale, random.normal(0.0, 2.0, 3)
    return found


def _ground_paint(x: np.ndarray, y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Asphalt with a dashed line, kerbs, lawns; a little noise, as nothing real is of one colour."""
    across = np.abs(y)
    paint = np.where((across < KERB_Y)[:, None], (0.30, 0.30, 0.32), (0.28, 0.44, 0.19))
    paint = np.where(((across < 0.1) & (np.mod(x, 4.0) < 2.0))[:, None], (0.9, 0.9, 0.88), paint)
    paint = np.where(((across > KERB_Y - 0.1) & (across < KERB_Y + 0.25))[:, None], (0.62, 0.6, 0.57), paint)
    return np.clip(paint + random.normal(0.0, 0.025, (len(x), 1)), 0.0, 1.0)


def _facade_paint(points: np.ndarray) -> np.ndarray:
    """Plaster of another colour for every house, with rows of windows."""
    house = np.floor((points[:, 0] + HALF_LENGTH) / 6.0).astype(int) % 3
    paint = np.array([[0.76, 0.66, 0.52], [0.72, 0.52, 0.44], [0.66, 0.68, 0.62]])[house]
    along = np.mod(points[:, 0], 2.0)
    window = (along > 0.6) & (along < 1.6) & (np.mod(points[:, 2] + 0.4, 2.4) > 1.1)
    return np.where(window[:, None], (0.22, 0.28, 0.36), paint)


def _car_paint(colour: tuple[float, float, float]) -> Any:
    """Body, windows all around, roof."""

    def paint(points: np.ndarray) -> np.ndarray:
        above = points[:, 2] - ground_height(points[:, 0], points[:, 1])
        return np.where(((above > 0.75) & (above < CAR[2] - 0.12))[:, None], (0.12, 0.14, 0.17), colour)

    return paint


def _frames(normals: np.ndarray, random: np.random.Generator) -> np.ndarray:
    other = random.normal(size=normals.shape)
    u = np.cross(normals, other)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    return np.stack([u, np.cross(normals, u), normals], axis=2)


def _with_sky_and_floaters(random: np.random.Generator, *have: np.ndarray) -> tuple[np.ndarray, ...]:
    count = 3000
    direction = random.normal(size=(count, 3))
    direction[:, 2] = np.abs(direction[:, 2])
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    sky = (
        direction * 300.0, _frames(direction, random), np.full((count, 3), 9.0), np.full(count, 0.95),
        np.tile((0.5, 0.7, 0.9), (count, 1)),
    )  # fmt: skip
    count = 400
    float_points = random.uniform((-17, -7.5, -6.0), (17, 7.5, 9.0), (count, 3))
    float_points = float_points[(float_points[:, 2] > 2.0) | (float_points[:, 2] < -0.6)]
    count = len(float_points)
    floaters = (
        float_points, _frames(random.normal(size=(count, 3)) * 0.1 + (0, 0, 1.0), random),
        random.uniform(0.02, 0.3, (count, 3)), random.uniform(0.4, 0.9, count), random.uniform(0, 1, (count, 3)),
    )  # fmt: skip
    return tuple(np.concatenate(each) for each in zip(have, sky, floaters, strict=True))


def _walk(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    count = 80
    t = np.linspace(0.0, 1.0, count)
    x, y = -15.0 + 30.0 * t, 0.3 * np.sin(9.0 * t)
    z = ground_height(x, y) + CAMERA_HEIGHT_M + random.normal(0.0, 0.03, count)
    yaw = 0.9 * np.sin(20.0 * t)
    turns = []
    for angle, roll, pitch in zip(yaw, random.normal(0, 0.03, count), random.normal(-0.1, 0.03, count), strict=True):
        forward = np.array([np.cos(angle) * np.cos(pitch), np.sin(angle) * np.cos(pitch), np.sin(pitch)])
        right = np.cross(forward, (0.0, 0.0, 1.0))
        right /= np.linalg.norm(right)
        down = np.cross(forward, right)
        right, down = np.cos(roll) * right + np.sin(roll) * down, np.cos(roll) * down - np.sin(roll) * right
        turns.append(np.stack([right, down, forward], axis=1))
    return np.stack([x, y, z], axis=1), np.array(turns)


def _rotation(random: np.random.Generator) -> np.ndarray:
    q, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return q * np.sign(np.linalg.det(q))


# ---- as programs write it --------------------------------------------------------------------------------------------


def quaternions(matrices: np.ndarray) -> np.ndarray:
    """(n, 4) w x y z; an independent way: the eigenvector of the largest eigenvalue (Bar-Itzhack)."""
    m = matrices
    k = np.zeros((len(m), 4, 4))
    k[:, 0, 0] = m[:, 0, 0] - m[:, 1, 1] - m[:, 2, 2]
    k[:, 1, 1] = m[:, 1, 1] - m[:, 0, 0] - m[:, 2, 2]
    k[:, 2, 2] = m[:, 2, 2] - m[:, 0, 0] - m[:, 1, 1]
    k[:, 3, 3] = m[:, 0, 0] + m[:, 1, 1] + m[:, 2, 2]
    k[:, 0, 1] = k[:, 1, 0] = m[:, 1, 0] + m[:, 0, 1]
    k[:, 0, 2] = k[:, 2, 0] = m[:, 2, 0] + m[:, 0, 2]
    k[:, 1, 2] = k[:, 2, 1] = m[:, 2, 1] + m[:, 1, 2]
    k[:, 0, 3] = k[:, 3, 0] = m[:, 2, 1] - m[:, 1, 2]
    k[:, 1, 3] = k[:, 3, 1] = m[:, 0, 2] - m[:, 2, 0]
    k[:, 2, 3] = k[:, 3, 2] = m[:, 1, 0] - m[:, 0, 1]
    vectors = np.linalg.eigh(k)[1][:, :, 3]
    return vectors[:, [3, 0, 1, 2]]


def rows_of(world: Street) -> np.ndarray:
    """(n, 17) as the original trainer: x y z nx ny nz f_dc(3) opacity scale(3) rot(4, w first)."""
    points = world.captured(world.points)
    rotation = quaternions(world.rotation @ world.axes)
    logit = np.log(world.opacity / (1.0 - world.opacity))
    dc = (world.colours - 0.5) / 0.28209479177387814
    parts = [points, np.zeros_like(points), dc, logit[:, None], np.log(world.sigmas / world.scale), rotation]
    return np.concatenate(parts, axis=1).astype("<f4")


_NAMES = [
    "x",
    "y",
    "z",
    "nx",
    "ny",
    "nz",
    "f_dc_0",
    "f_dc_1",
    "f_dc_2",
    "opacity",
    "scale_0",
    "scale_1",
    "scale_2",
    "rot_0",
    "rot_1",
    "rot_2",
    "rot_3",
]


def write_ply(file: Path, world: Street, ascii: bool = False) -> None:
    rows = rows_of(world)
    form = "ascii" if ascii else "binary_little_endian"
    lines = ["ply", f"format {form} 1.0", f"element vertex {len(rows)}", *(f"property float {name}" for name in _NAMES)]
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        stream.write(("\n".join([*lines, "end_header"]) + "\n").encode())
        if ascii:
            np.savetxt(stream, rows, "%.7g")
        else:
            stream.write(rows.tobytes())


def write_splat(file: Path, world: Street) -> None:
    rows = rows_of(world)
    kind = np.dtype([("xyz", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("wxyz", "u1", 4)])
    out = np.zeros(len(rows), kind)
    out["xyz"], out["scale"] = rows[:, 0:3], np.exp(rows[:, 10:13])
    out["rgba"][:, :3] = np.clip(world.colours * 255.0, 0, 255)
    out["rgba"][:, 3] = np.round(world.opacity * 255.0)
    out["wxyz"] = np.clip(np.round(rows[:, 13:17] * 128.0 + 128.0), 0, 255)
    file.write_bytes(out.tobytes())


def write_spz(file: Path, world: Street, version: int = 2) -> None:
    rows, bits = rows_of(world), 12
    count = len(rows)
    fixed = np.round(rows[:, 0:3].astype(np.float64) * 2**bits).astype(np.int32)
    positions = np.stack([(fixed >> shift) & 255 for shift in (0, 8, 16)], axis=2).astype(np.uint8)
    alpha = np.round(world.opacity * 255.0).astype(np.uint8)
    colour = np.clip(np.round((rows[:, 6:9] * 0.15 + 0.5) * 255.0), 0, 255).astype(np.uint8)
    scale = np.clip(np.round((rows[:, 10:13] + 10.0) * 16.0), 0, 255).astype(np.uint8)
    q = rows[:, [14, 15, 16, 13]].astype(np.float64)
    q *= np.where(q[:, 3:] < 0.0, -1.0, 1.0)
    if version == 2:
        rotation = np.clip(np.round((q[:, :3] + 1.0) * 127.5), 0, 255).astype(np.uint8).tobytes()
    else:
        rotation = b"".join(struct.pack("<I", _packed(each)) for each in q)
    head = struct.pack("<IIIBBBB", 0x5053474E, version, count, 0, bits, 0, 0)
    data = head + positions.tobytes() + alpha.tobytes() + colour.tobytes() + scale.tobytes() + rotation
    file.write_bytes(gzip.compress(data, 1))


def _packed(q: np.ndarray) -> int:
    """The largest component's number, then sign and nine bits of each of the others, in order."""
    largest = int(np.argmax(np.abs(q)))
    q = q if q[largest] >= 0.0 else -q
    word = largest
    for index in range(4):
        if index != largest:
            size = int(511.0 * abs(q[index]) / np.sqrt(0.5) + 0.5)
            word = (word << 10) | ((1 if q[index] < 0.0 else 0) << 9) | min(size, 511)
    return word


def write_colmap(folder: Path, world: Street, binary: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    turns = np.transpose(world.rotation @ world.turns, (0, 2, 1))  # from the world to the camera
    shifts = -(turns @ world.captured(world.positions)[:, :, None])[:, :, 0]
    if binary:
        data = struct.pack("<Q", len(turns))
        for index, (q, t) in enumerate(zip(quaternions(turns), shifts, strict=True)):
            data += struct.pack("<i7di", index + 1, *q, *t, 1) + f"frame_{index:04}.jpg".encode() + b"\0"
            data += struct.pack("<Q", 1) + struct.pack("<ddq", 1.0, 2.0, -1)
        (folder / "images.bin").write_bytes(data)
        return
    lines = ["# Image list with two lines of data per image:"]
    for index, (q, t) in enumerate(zip(quaternions(turns), shifts, strict=True)):
        numbers = " ".join(f"{value:.12g}" for value in (*q, *t))
        lines += [f"{index + 1} {numbers} 1 frame_{index:04}.jpg", "1.0 2.0 -1"]
    (folder / "images.txt").write_text("\n".join(lines) + "\n")


def write_nerfstudio(folder: Path, world: Street, applied: bool = True) -> None:
    """Poses in a frame of its own, and what the data parser did to them before training.

    `applied`: with what `ns-process-data` did to COLMAP's frame before it wrote the poses. The data parser's file
    includes it.
    """
    random = np.random.default_rng(5)
    turn, scale, move = _rotation(random), 0.37, random.normal(size=3)
    # trained = scale · (turn · written + move)
    places = (world.captured(world.positions) / scale - move) @ turn
    turns = turn.T @ world.rotation @ world.turns @ np.diag([1.0, -1.0, -1.0])
    frames = []
    for index, (place, rotation) in enumerate(zip(places, turns, strict=True)):
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = rotation, place
        frames.append({"file_path": f"images/frame_{index:04}.jpg", "transform_matrix": matrix.tolist()})
    folder.mkdir(parents=True, exist_ok=True)
    data: dict[str, Any] = {"camera_model": "OPENCV", "frames": frames}
    transform = np.concatenate([turn, move[:, None]], axis=1)
    if applied:
        before = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, -1.0, 0.0, 0.0]])
        data["applied_transform"] = before.tolist()
        transform = transform @ np.concatenate([before, [[0.0, 0.0, 0.0, 1.0]]])
    (folder / "transforms.json").write_text(json.dumps(data))
    write_data_parser(folder, transform, scale)


def write_data_parser(folder: Path, transform: np.ndarray, scale: float) -> None:
    content = {"transform": transform.tolist(), "scale": scale}
    (folder / "dataparser_transforms.json").write_text(json.dumps(content))


def write_original(folder: Path, world: Street) -> None:
    """`cameras.json`, as the original trainer writes it next to its point clouds."""
    turns = world.rotation @ world.turns
    cameras = [
        {"id": index, "img_name": f"frame_{index:04}", "width": 1920, "height": 1080, "position": place.tolist(),
         "rotation": turn.tolist(), "fx": 1000.0, "fy": 1000.0}
        for index, (place, turn) in enumerate(zip(world.captured(world.positions), turns, strict=True))
    ]  # fmt: skip
    (folder / "cameras.json").write_text(json.dumps(cameras))


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder, world = Path(sys.argv[1]), street()
    write_ply(folder / "splat.ply", world)
    write_nerfstudio(folder, world)
    print(f"wrote {folder}: {len(world.points):,} Gaussians, {len(world.positions)} cameras")


if __name__ == "__main__":
    main()
