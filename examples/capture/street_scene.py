"""A street that does not exist: a ring road around a block, with houses, trees and parked cars, as textured triangles.

`photographed_street.py` photographs it. Metres, x east, y north, z up.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from PIL import Image

HALF_X, HALF_Y, CORNER = 26.0, 16.0, 9.0  # of the road's middle [m]
ROAD, PAVEMENT, KERB = 3.5, 2.2, 0.12  # half width, width, height [m]
Array = np.ndarray


def relief(x: Array, y: Array) -> Array:
    """The land is not quite level [m]."""
    return 0.25 * np.sin(x / 19.0) * np.cos(y / 23.0)


def ring(step: float = 0.5) -> tuple[Array, Array, Array]:
    """Points of the road's middle, counter-clockwise, their outward normals, and how far along they are [m]."""
    points, normals = [], []
    straight_x, straight_y = HALF_X - CORNER, HALF_Y - CORNER
    corners = [
        (straight_x, straight_y),
        (-straight_x, straight_y),
        (-straight_x, -straight_y),
        (straight_x, -straight_y),
    ]
    for turn, (x, y) in enumerate(corners):
        for angle in np.linspace(0.0, math.pi / 2, int(CORNER * math.pi / 2 / step), endpoint=False):
            normal = np.array([math.cos(angle + turn * math.pi / 2), math.sin(angle + turn * math.pi / 2)])
            points.append((x, y) + CORNER * normal)
            normals.append(normal)
        to = corners[(turn + 1) % 4]
        normal = np.array([math.cos((turn + 1) * math.pi / 2), math.sin((turn + 1) * math.pi / 2)])
        length = math.dist((x, y), to)
        for part in np.arange(0.0, 1.0, step / length):
            points.append(np.array((x, y)) * (1 - part) + np.array(to) * part + CORNER * normal)
            normals.append(normal)
    found = np.array(points)
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(found, axis=0), axis=1))])
    return found, np.array(normals), along


# ---- pictures on surfaces --------------------------------------------------------------------------------------------


def cloud(random: np.random.Generator, height: int, width: int, octaves: int = 6) -> Array:
    """Noise of all sizes, about 0, that continues at its edges."""
    total = np.zeros((height, width))
    for octave in range(octaves):
        rows, columns = max(2, height >> (octaves - octave)), max(2, width >> (octaves - octave))
        coarse = random.normal(size=(rows, columns)).astype(np.float32)
        total += np.array(Image.fromarray(np.tile(coarse, (3, 3))).resize((3 * width, 3 * height), Image.BICUBIC))[
            height : 2 * height, width : 2 * width
        ] / (1.7 ** (octaves - octave) * 0.05 + 1.0)
    return total / total.std()


def road_picture(random: np.random.Generator, length: float) -> Array:
    """Asphalt, (across, along): patches, cracks, a dashed line, two crossings."""
    per_m = 64
    rows, columns = int(2 * ROAD * per_m), int(length * per_m)
    grain = random.normal(size=(rows, columns))
    stain = np.kron(cloud(random, rows // 8, columns // 8), np.ones((8, 8)))
    shade = np.full((rows, columns), 0.16)
    shade[: stain.shape[0], : stain.shape[1]] += 0.015 * stain
    shade += 0.02 * grain
    for _ in range(14):  # repaired places
        r, c = random.integers(0, rows - 120), random.integers(0, columns - 400)
        shade[r : r + random.integers(60, 120), c : c + random.integers(120, 400)] -= 0.035
    for _ in range(40):  # cracks
        r, c = float(random.integers(0, rows)), random.integers(0, columns - 500)
        for k in range(random.integers(80, 500)):
            r += random.normal(0.0, 0.8)
            shade[np.clip(int(r), 0, rows - 1), c + k] -= 0.09
    picture = np.repeat(shade[..., None], 3, 2)
    worn = 0.62 + 0.1 * random.normal(size=(rows, columns, 1)) * np.ones(3)
    across, along = np.arange(rows)[:, None] / per_m - ROAD, np.arange(columns)[None] / per_m
    paint = (np.abs(across) < 0.07) & (np.mod(along, 6.0) < 3.0)
    paint |= np.abs(np.abs(across) - ROAD + 0.25) < 0.06
    for place in (0.21 * length, 0.66 * length):
        near = np.abs(along - place) < 1.6
        paint = np.where(near, (np.mod(across, 1.0) < 0.5) & (np.abs(across) < ROAD - 0.4), paint)
        paint |= (np.abs(along - place - 3.0) < 0.2) & (across < -0.1) & (across > 0.3 - ROAD)
    return np.where(paint[..., None] & (random.uniform(size=(rows, columns, 1)) > 0.06), worn, picture)


def paving_picture(random: np.random.Generator) -> Array:
    """Slabs of 0.5 m, four by four."""
    size = 512
    slabs = np.kron(random.normal(0.0, 0.025, (4, 4)), np.ones((128, 128)))
    shade = 0.42 + slabs + 0.02 * cloud(random, size, size) + 0.012 * random.normal(size=(size, size))
    joint = (np.mod(np.arange(size), 128) < 3)[:, None] | (np.mod(np.arange(size), 128) < 3)[None]
    shade = np.where(joint, 0.2, shade)
    return shade[..., None] * (1.0, 0.97, 0.92)


def grass_picture(random: np.random.Generator) -> Array:
    size = 1024
    tone = 0.09 * cloud(random, size, size) + 0.14 * random.normal(size=(size, size))
    blurred = (tone + np.roll(tone, 1, 0) + np.roll(tone, 1, 1)) / 2
    green = np.array([0.10, 0.19, 0.045]) * (1.0 + 0.5 * blurred)[..., None]
    dry = np.clip(cloud(random, size, size, 5) - 1.2, 0.0, 1.0)[..., None]
    return green * (1 - 0.6 * dry) + 0.6 * dry * np.array([0.22, 0.2, 0.09])


def facade_picture(random: np.random.Generator, wall: Array, brick: bool, floors: int, bays: int) -> Array:
    """A wall with a grid of windows, the middle one of the ground floor is a door; 0 is at the top."""
    cell_h, cell_w = 320, 300  # pixels of 1 cm: 3.2 x 3.0 m
    rows, columns = floors * cell_h, bays * cell_w
    stain = cloud(random, rows, columns)
    picture = wall * (1.0 + 0.05 * stain + 0.03 * random.normal(size=(rows, columns)))[..., None]
    if brick:
        y, x = np.mgrid[:rows, :columns]
        course = y // 8
        tone = random.normal(0.0, 0.1, (rows // 8 + 1, columns // 24 + 2))[course, (x + 12 * (course % 2)) // 24]
        picture *= (1.0 + tone)[..., None]
        joint = (y % 8 < 1) | ((x + 12 * (course % 2)) % 24 < 1)
        picture = np.where(joint[..., None], 0.45, picture)
    picture *= (1.0 - 0.25 * np.clip(np.arange(rows) / rows * 6 - 5, 0, 1))[:, None, None]  # splashed near the ground
    for floor in range(floors):
        for bay in range(bays):
            top, left = floor * cell_h + 70, bay * cell_w + 80
            is_door = floor == floors - 1 and bay == bays // 2
            height, width = (250, 120) if is_door else (150, 140)
            if is_door:
                left += 10
            picture[top - 8 : top + height + 8, left - 8 : left + width + 8] = (0.72, 0.7, 0.66)
            inside = random.uniform(0.02, 0.09) * np.array([0.8, 0.95, 1.1])
            if is_door:
                inside = random.uniform(0.05, 0.3, 3)
            pane = np.tile(inside, (height, width, 1)) * np.linspace(1.5, 0.7, height)[:, None, None]
            if not is_door:
                pane[:, width // 2 - 3 : width // 2 + 3] = pane[height // 3 - 3 : height // 3 + 3] = 0.65
                if random.uniform() < 0.5:  # a curtain
                    fold = 0.5 + 0.08 * np.sin(np.arange(width) / random.uniform(3, 6))
                    drawn = np.abs(np.arange(width) - width / 2) > random.uniform(20, 55)
                    pane[:, drawn] = 0.6 * pane[:, drawn] + 0.4 * fold[drawn][None, :, None]
            picture[top : top + height, left : left + width] = pane
    return picture


# ---- surfaces --------------------------------------------------------------------------------------------------------


class Scene:
    """Triangles by material, with places on its picture."""

    def __init__(self) -> None:
        self.parts: dict[str, list[tuple[Array, Array, Array]]] = {}
        self.materials: dict[str, Any] = {}  # name -> what makes its picture, or its colour

    def add(self, material: str, vertices: Any, faces: Any, places: Any = None) -> None:
        corners = np.asarray(vertices, float)
        uv = np.zeros((len(corners), 2)) if places is None else np.asarray(places, float)
        self.parts.setdefault(material, []).append((corners, np.asarray(faces, int), uv))

    def quad(self, material: str, corner: Any, u: Any, v: Any, tile: tuple[float, float] = (1.0, 1.0)) -> None:
        corner, u, v = (np.asarray(each, float) for each in (corner, u, v))
        places = [(0, 0), (tile[0], 0), tile, (0, tile[1])]
        self.add(material, [corner, corner + u, corner + u + v, corner + v], [(0, 1, 2), (0, 2, 3)], places)

    def box(self, material: str, middle: Any, size: Any, yaw: float = 0.0) -> None:
        """On its base's middle."""
        turn = np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1.0]])
        x, y, z = (np.asarray(size, float) * axis @ turn.T for axis in np.eye(3))
        low = np.asarray(middle, float) - x / 2 - y / 2
        for corner, u, v in (
            (low, x, z), (low + x, y, z), (low + x + y, -x, z), (low + y, -y, z), (low + z, x, y), (low + y, x, -y),
        ):  # fmt: skip
            self.quad(material, corner, u, v)

    def tube(
        self, material: str, base: Any, top: Any, radius: float, end: float | None = None, sides: int = 10
    ) -> None:
        base, top = np.asarray(base, float), np.asarray(top, float)
        axis = (top - base) / np.linalg.norm(top - base)
        side = np.cross(axis, (1.0, 0.2, 0.0) if abs(axis[2]) > 0.9 else (0.0, 0.0, 1.0))
        side /= np.linalg.norm(side)
        angles = np.linspace(0, 2 * math.pi, sides, endpoint=False)
        circle = np.cos(angles)[:, None] * side + np.sin(angles)[:, None] * np.cross(axis, side)
        vertices = np.concatenate(
            [base + radius * circle, top + (radius if end is None else end) * circle, [base, top]]
        )
        k = np.arange(sides)
        n = (k + 1) % sides
        faces = np.concatenate([
            np.stack([k, n, n + sides], 1), np.stack([k, n + sides, k + sides], 1),
            np.stack([n, k, 0 * k + 2 * sides], 1), np.stack([k + sides, n + sides, 0 * k + 2 * sides + 1], 1),
        ])  # fmt: skip
        self.add(material, vertices, faces)

    def leaves(self, random: np.random.Generator, materials: list[str], points: Array, size: float) -> None:
        """Little quads that face anywhere."""
        for material, own in zip(materials, np.array_split(random.permutation(points), len(materials)), strict=True):
            u = random.normal(size=own.shape)
            u *= size * random.uniform(0.6, 1.2, (len(own), 1)) / np.linalg.norm(u, axis=1, keepdims=True)
            v = np.cross(u, random.normal(size=own.shape))
            v *= 0.6 * np.linalg.norm(u, axis=1, keepdims=True) / np.linalg.norm(v, axis=1, keepdims=True)
            vertices = np.stack([own - u, own + v, own + u, own - v], 1).reshape(-1, 3)
            first = 4 * np.arange(len(own))[:, None]
            self.add(material, vertices, np.concatenate([first + np.array([0, 1, 2]), first + np.array([0, 2, 3])]))


def street(seed: int = 3) -> Scene:
    random, scene = np.random.default_rng(seed), Scene()
    _ground(scene)
    _houses(random, scene)
    _greenery(random, scene)
    _parked_cars(scene)
    _furniture(scene)
    return scene


def up(height: float) -> Array:
    return np.array([0.0, 0.0, height])


def place_on_ground(x: float, y: float, above: float = KERB) -> Array:
    return np.array([x, y, float(relief(np.array(x), np.array(y))) + above])


def _band(scene: Scene, material: str, profile: list[tuple[float, float]], tile: tuple[float, float]) -> None:
    """Along the ring: (outwards, height) of each edge; the picture covers `tile` metres (along, across)."""
    points, normals, along = ring()
    closed = np.append(along, along[-1] + 0.5)
    points, normals = np.concatenate([points, points[:1]]), np.concatenate([normals, normals[:1]])
    rows = []
    for out, height in profile:
        xy = points + out * normals
        rows.append(np.column_stack([xy, relief(*xy.T) + height]))
    across = np.array([out for out, _ in profile])
    across = np.cumsum(np.concatenate([[0.0], np.hypot(np.diff(across), np.diff([h for _, h in profile]))]))
    for k in range(len(profile) - 1):
        count = len(points)
        vertices = np.concatenate([rows[k], rows[k + 1]])
        places = np.concatenate(
            [np.column_stack([closed / tile[0], np.full(count, across[j] / tile[1])]) for j in (k, k + 1)]
        )
        i = np.arange(count - 1)
        faces = np.concatenate([np.stack([i, i + count, i + count + 1], 1), np.stack([i, i + count + 1, i + 1], 1)])
        scene.add(material, vertices, faces, places)


def _ground(scene: Scene) -> None:
    length = ring()[2][-1] + 0.5
    scene.materials |= {
        "road": lambda: road_picture(np.random.default_rng(10), length),
        "paving": lambda: paving_picture(np.random.default_rng(11)),
        "grass": lambda: grass_picture(np.random.default_rng(12)),
        "kerbstone": {"colour": (0.5, 0.49, 0.46)},
    }  # fmt: skip
    _band(scene, "road", [(out, -0.02 * abs(out)) for out in np.linspace(-ROAD, ROAD, 9)], (length, 2 * ROAD + 0.003))
    edge = -0.02 * ROAD
    for side in (-1, 1):
        _band(scene, "kerbstone", [(side * ROAD, edge), (side * ROAD, KERB), (side * (ROAD + 0.15), KERB)], (1, 1))
        outer = side * (ROAD + PAVEMENT)
        _band(scene, "paving", [(side * (ROAD + 0.15), KERB), (outer, KERB)], (2.0, 2.0))
    _band(
        scene,
        "grass",
        [(ROAD + PAVEMENT, KERB), (9.0, 0.15), (14.0, 0.2), (40.0, 0.6), (90.0, 5.0), (300.0, 26.0)],
        (6.0, 6.0),
    )
    _band(scene, "grass", [(-ROAD - PAVEMENT, KERB), (-8.95, 0.15)], (6.0, 6.0))
    x, y = np.meshgrid(np.linspace(-17.1, 17.1, 40), np.linspace(-7.1, 7.1, 20))
    vertices = np.column_stack([x.ravel(), y.ravel(), (relief(x, y) + 0.15).ravel()])
    i = (np.arange(19)[:, None] * 40 + np.arange(39)).ravel()
    faces = np.concatenate([np.stack([i, i + 1, i + 41], 1), np.stack([i, i + 41, i + 40], 1)])
    scene.add("grass", vertices, faces, vertices[:, :2] / 6.0)


WALLS = (
    (0.62, 0.52, 0.38),
    (0.42, 0.18, 0.13),
    (0.66, 0.63, 0.56),
    (0.55, 0.36, 0.24),
    (0.36, 0.42, 0.46),
    (0.70, 0.58, 0.34),
)


def _houses(random: np.random.Generator, scene: Scene) -> None:
    scene.materials |= {"tiles": {"colour": (0.30, 0.13, 0.09)}, "slate": {"colour": (0.10, 0.11, 0.13)}}
    scene.materials |= {"sill": {"colour": (0.6, 0.58, 0.55)}}
    number = 0
    front_y, front_x = HALF_Y + ROAD + PAVEMENT + 2.0, HALF_X + ROAD + PAVEMENT + 2.0
    for x in (-22.0, -11.5, 0.0, 11.5, 22.0):
        for side in (-1, 1):
            _house(random, scene, number, (x, side * (front_y + 4.0)), 9.0, 8.0, 0.0 if side < 0 else math.pi)
            number += 1
    for y in (-11.0, 0.0, 11.0):
        for side in (-1, 1):
            _house(random, scene, number, (side * (front_x + 4.0), y), 9.0, 8.0, side * math.pi / 2)
            number += 1
    for x in (-10.5, 10.5):  # in the middle of the block
        _house(random, scene, number, (x, 0.0), 12.0, 9.0, 0.0 if x < 0 else math.pi, floors=3)
        number += 1


def _house(
    random: np.random.Generator, scene: Scene, number: int, middle: tuple[float, float], width: float, depth: float,
    yaw: float, floors: int | None = None,
) -> None:  # fmt: skip
    """Its front, with the door, looks along y of its own frame."""
    floors = floors or int(random.integers(2, 4))
    material, wall = f"facade_{number}", np.array(WALLS[number % len(WALLS)]) * random.uniform(0.85, 1.1)
    is_brick = number % 3 == 1
    for name, length in ((material, width), (f"side_{number}", depth)):
        own = np.random.default_rng((number, int(length)))
        scene.materials[name] = partial(facade_picture, own, wall, is_brick, floors, int(length // 3))
    height, turn = 3.2 * floors, np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
    base = float(place_on_ground(*middle)[2]) - 0.25

    def at(x: float, y: float, z: float) -> Array:
        return np.array([*(turn @ (x, y) + middle), base + z])

    w, d = width / 2, depth / 2
    corners = [(w, d), (-w, d), (-w, -d), (w, -d)]
    for k, (x, y) in enumerate(corners):
        nx, ny = corners[(k + 1) % 4]
        name = material if k % 2 == 0 else f"side_{number}"
        scene.quad(name, at(x, y, 0), at(nx, ny, 0) - at(x, y, 0), (0, 0, height))
    roof, rise = ("tiles", "slate")[number % 2], random.uniform(1.8, 3.0)
    for side in (-1, 1):
        eave = at(-w - 0.3, side * (d + 0.4), height - 0.3)
        scene.quad(
            roof, eave, at(w + 0.3, side * (d + 0.4), height - 0.3) - eave, at(-w - 0.3, 0, height + rise) - eave
        )
        gable = [at(side * w, -d, height), at(side * w, d, height), at(side * w, 0, height + rise - 0.2)]
        scene.add(f"side_{number}", gable, [(0, 1, 2)], [(0.02, 0.02), (0.1, 0.02), (0.05, 0.08)])
    for bay in range(int(width // 3)):
        for floor in range(floors):
            if floor or bay != int(width // 3) // 2:
                scene.box(
                    "sill",
                    at(w - 3.0 * bay * w * 2 / (int(width // 3) * 3) - 1.5, d + 0.08, 3.2 * floor + 0.9),
                    (1.6, 0.18, 0.07),
                    yaw,
                )
    scene.box("sill", at(0.0, d + 0.5, 2.75), (1.9, 1.0, 0.12), yaw)  # over the door
    scene.box("sill", at(0.0, d + 0.5, 0.1), (1.6, 1.0, 0.3), yaw)
    scene.box("tiles", at(0.25 * width, 0.8, height), (0.7, 0.7, rise + 0.9), yaw)


def _greenery(random: np.random.Generator, scene: Scene) -> None:
    for k, colour in enumerate(((0.07, 0.16, 0.03), (0.11, 0.22, 0.04), (0.16, 0.26, 0.06), (0.05, 0.12, 0.04))):
        scene.materials[f"leaf_{k}"] = {"colour": colour, "is_leaf": True}
    scene.materials["bark"] = {"colour": (0.13, 0.09, 0.06)}
    leaves = [f"leaf_{k}" for k in range(4)]
    trees = [(0.0, 3.0, 5.5), (-1.5, -4.0, 4.5), (2.0, -1.0, 6.0)]
    trees += [(x, side * 20.9, 4.6) for x in (-16.8, -5.8, 5.8, 16.8) for side in (-1, 1)]
    trees += [(side * 31.0, y, 4.8) for y in (-5.5, 5.5) for side in (-1, 1)]
    trees += [(sx * 29.5, sy * 20.5, 7.0) for sx in (-1, 1) for sy in (-1, 1)]
    for x, y, height in trees:
        foot = place_on_ground(x, y, 0.0)
        lean = random.normal(0.0, 0.15, 2)
        top = foot + np.array([*lean, 0.55 * height])
        scene.tube("bark", foot, top, 0.17, 0.1)
        crown = 0.30 * height
        for _ in range(6):
            to = top + random.normal(0.0, 0.35, 3) * crown + (0, 0, 0.5 * crown)
            scene.tube("bark", top - (0, 0, 0.3), to, 0.06, 0.02, 6)
        count = int(2200 * height / 5)
        direction = random.normal(size=(count, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        lumps = 1.0 + 0.22 * np.sin(direction @ random.normal(size=(3, 5)) * 3).sum(1) / 2
        points = top + (0, 0, 0.6 * crown) + direction * crown * (random.uniform(0.5, 1.0, (count, 1)) * lumps[:, None])
        scene.leaves(random, leaves, points, 0.16)
    for x, y, length, yaw in (
        (-27, 24.5, 5, 0.4),
        (27, -24.5, 5, 0.4),
        (-5.75, 24.2, 2.2, 0),
        (5.75, -24.2, 2.2, 0),
        (0, 6.4, 5.5, 0),
    ):
        count = int(700 * length)
        inside = random.uniform((-length / 2, -0.4, 0.0), (length / 2, 0.4, 1.0), (count, 3))
        turn = np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])
        scene.leaves(random, leaves, inside @ turn.T + place_on_ground(x, y), 0.11)


PARKED = (  # part of the way around, colour
    (0.13, (0.30, 0.02, 0.02)),
    (0.33, (0.02, 0.06, 0.22)),
    (0.52, (0.55, 0.55, 0.54)),
    (0.58, (0.03, 0.03, 0.03)),
    (0.80, (0.40, 0.40, 0.10)),
    (0.95, (0.05, 0.17, 0.09)),
)


def _parked_cars(scene: Scene) -> None:
    """Outlines of the side, drawn out to the width, narrower above."""
    scene.materials |= {
        "tyre": {"colour": (0.02, 0.02, 0.02)},
        "glass": {"colour": (0.02, 0.025, 0.03), "is_shiny": True},
    }
    scene.materials |= {
        "rim": {"colour": (0.5, 0.5, 0.52)},
        "lamp": {"colour": (0.7, 0.7, 0.6)},
        "tail": {"colour": (0.4, 0.01, 0.01)},
    }
    points, normals, along = ring()
    for number, (part, colour) in enumerate(PARKED):
        k = int(np.searchsorted(along, part * along[-1]))
        normal, ahead = normals[k], np.array([-normals[k][1], normals[k][0]])
        middle = place_on_ground(*(points[k] + 2.45 * normal), above=-0.02 * 2.45)
        paint = f"paint_{number}"
        scene.materials[paint] = {"colour": colour, "is_shiny": True}
        frame = np.array([[*ahead, 0.0], [*normal, 0.0], [0, 0, 1.0]])
        _car(scene, paint, middle, frame)


def _car(scene: Scene, paint: str, middle: Array, frame: Array) -> None:
    body = np.array([(-2.1, 0.25), (2.1, 0.25), (2.15, 0.55), (2.0, 0.78), (0.95, 0.92), (-1.75, 0.95), (-2.1, 0.85)])
    cabin = np.array([(1.0, 0.9), (0.25, 1.42), (-1.15, 1.45), (-1.8, 0.93)])
    for outline, low, high, material in ((body, 0.88, 0.84, paint), (cabin, 0.82, 0.66, "glass")):
        count = len(outline)
        rise = (outline[:, 1] - outline[:, 1].min()) / np.ptp(outline[:, 1])
        half = low + (high - low) * rise
        vertices = np.concatenate([np.column_stack([outline[:, 0], side * half, outline[:, 1]]) for side in (-1, 1)])
        k = np.arange(count)
        n = (k + 1) % count
        rim = np.concatenate([np.stack([k, n, n + count], 1), np.stack([k, n + count, k + count], 1)])
        fan = np.stack([np.zeros(count - 2, int), k[1:-1], k[2:]], 1)
        scene.add(material, vertices @ frame + middle, np.concatenate([rim, fan[:, ::-1], fan + count]))
    roof = np.array([(0.28, 1.40), (0.22, 1.46), (-1.12, 1.49), (-1.2, 1.43)])
    vertices = np.concatenate([np.column_stack([roof[:, 0], np.full(4, side * 0.68), roof[:, 1]]) for side in (-1, 1)])
    scene.add(
        paint,
        vertices @ frame + middle,
        [(0, 1, 5), (0, 5, 4), (1, 2, 6), (1, 6, 5), (2, 3, 7), (2, 7, 6), (0, 3, 2), (0, 2, 1), (4, 5, 6), (4, 6, 7)],
    )
    yaw = math.atan2(frame[0, 1], frame[0, 0])
    for x in (1.3, -1.3):
        for side in (-1, 1):
            hub, out = np.array([x, side * 0.72, 0.32]), np.array([0.0, side * 0.18, 0.0])
            scene.tube("tyre", hub @ frame + middle, (hub + out) @ frame + middle, 0.32, sides=20)
            scene.tube("rim", (hub + out) @ frame + middle, (hub + 1.08 * out) @ frame + middle, 0.19, sides=12)
    for side in (-1, 1):
        scene.box("lamp", np.array([2.08, side * 0.62, 0.58]) @ frame + middle, (0.12, 0.34, 0.14), yaw)
        scene.box("tail", np.array([-2.08, side * 0.66, 0.62]) @ frame + middle, (0.08, 0.26, 0.16), yaw)


def _furniture(scene: Scene) -> None:
    scene.materials |= {
        "steel": {"colour": (0.16, 0.18, 0.19)},
        "wood": {"colour": (0.30, 0.18, 0.09)},
        "red": {"colour": (0.5, 0.03, 0.03)},
    }
    points, normals, _ = ring()
    for part in np.arange(0.04, 1.0, 0.125):
        k = int(part * len(points))
        foot = place_on_ground(*(points[k] - (ROAD + 0.4) * normals[k]))
        top = foot + up(5.0)
        arm = top + np.array([*(0.9 * normals[k]), 0.15])
        scene.tube("steel", foot, top, 0.07, 0.05)
        scene.tube("steel", top, arm, 0.04)
        scene.box("lamp", arm - (0, 0, 0.05), (0.5, 0.2, 0.08), math.atan2(*normals[k][::-1]))
    for part in (0.18, 0.63):  # signs at the crossings
        k = int(part * len(points))
        foot = place_on_ground(*(points[k] + (ROAD + 0.35) * normals[k]))
        scene.tube("steel", foot, foot + up(2.4), 0.03)
        ahead = np.array([-normals[k][1], normals[k][0], 0.0])
        scene.tube("red", foot + up(2.2) - 0.03 * ahead, foot + up(2.2) - 0.06 * ahead, 0.32, sides=8)
    for x, y, yaw in ((-3.0, 1.2, 0.0), (3.4, -4.6, 1.2), (-1.0, 8.9, 0.0)):
        seat = place_on_ground(x, y, 0.2)
        scene.box("wood", seat + up(0.38), (1.7, 0.45, 0.06), yaw)
        scene.box("wood", seat + np.array([-0.22 * math.sin(yaw), 0.22 * math.cos(yaw), 0.5]), (1.7, 0.05, 0.4), yaw)
        for end in (-0.7, 0.7):
            scene.box("steel", seat + end * np.array([math.cos(yaw), math.sin(yaw), 0.0]), (0.08, 0.4, 0.38), yaw)
    for part in (0.3, 0.72, 0.9):  # bins
        k = int(part * len(points))
        foot = place_on_ground(*(points[k] + (ROAD + 1.6) * normals[k]))
        scene.tube("steel", foot, foot + up(0.9), 0.25, 0.28)
