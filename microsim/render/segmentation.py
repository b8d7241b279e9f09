"""What each pixel of a camera shows, by class and by instance: the ground truth of its image.

Ground, road, obstacles, mesh and robots are those of the world's geometry. What stands before it in the splats alone,
such as a tree without a mesh, is a `thing`. Instances are robots, obstacles, and what is inside of a volume: a named
box of a world bundle, or the body of a robot that is drawn as splats.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from microsim.engine import geometry
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.world import CLASS_NAMES, FIRST_OBJECT, FIRST_OBSTACLE, PALETTE, TARGET, Shape, World
from microsim.render.drawing import Instances, pixels_of_body
from microsim.render.palette_camera import CameraModel, Renderer, Rotation
from microsim.render.robot_models import label_parts
from microsim.render.screen import Pose, Rays, ScreenIndex, screen_index
from microsim.render.splat.activation import Floats

_ground_height = geometry.ground_height

ROAD, MESH, ROBOT, THING, SKY = range(len(CLASS_NAMES), len(CLASS_NAMES) + 5)
SEGMENT_NAMES = (*CLASS_NAMES, "road", "mesh", "robot", "thing", "sky")
SEGMENT_COLOURS: Grid = np.array(
    [
        *PALETTE.tolist(), (0x80, 0x40, 0x80), (0x46, 0x46, 0x46), (0x00, 0x00, 0x8E), (0xDC, 0xDC, 0x00),
        (0x46, 0x82, 0xB4),
    ], np.uint8,
)  # fmt: skip

CLEAR_OF_GROUND_M = 0.5  # splats this far above the ground and before what is behind them are a thing
CLEAR_IN_VOLUME_M = 0.1  # likewise, and part of what the volume holds
VOLUME_NUMBERS = 16  # a box as `screen.into_body` takes it, and the number of its instance


class Ground(NamedTuple):
    elevation: Array
    cell_m: float
    west: float
    south: float


class Labels(NamedTuple):
    """Of every pixel; the arrays are reused by the next frame."""

    classes: Grid  # (h, w)
    instances: Instances  # (h, w)
    depths: Array  # (h, w) [m] of the geometry along the optical axis; inf in the sky


def with_roads(world: World) -> Grid:
    """The surface of a world bundle, whose drivable area is of class target, with the road as a class of its own."""
    return np.where(world.surface == TARGET, np.uint8(ROAD), world.surface)


class Segmenter:
    """Labels what one camera sees of one world; holds buffers, so one caller at a time."""

    def __init__(self, world: World, model: CameraModel, has_roads: bool = True) -> None:
        surface = world.derived(with_roads) if has_roads else None
        self._renderer = Renderer(world, model, surface=surface, mesh_class=MESH)
        self._rays = model.rays()
        self._screen = screen_index(self._rays)
        self._ground = Ground(world.elevation, world.cell_m, world.west, world.south)
        self._instances = np.empty((model.height, model.width), np.uint16)
        self._no_splats: Floats = np.full((model.height, model.width), np.inf, np.float32)

    @property
    def height(self) -> int:
        return self._renderer.model.height

    def show(self, obstacles: Sequence[Shape]) -> None:
        """From now on, of a world that differs from this one in its obstacles."""
        self._renderer.show(obstacles)

    def labels(
        self,
        position: Vector,
        rotation: Rotation,
        parts: Array,
        numbers: Instances,
        volumes: Array,
        splat_depths: Floats | None = None,
    ) -> Labels:
        """parts: of robots, whose instances are `numbers`; volumes (n, 16): of what may be in splats or the mesh.

        splat_depths (h, w) [m]: infinite where next to nothing is seen; None: splats are not drawn.
        """
        classes, depths = self._renderer.labels(position, rotation, None)
        self._renderer.number_obstacles(FIRST_OBSTACLE, self._instances)
        pose = np.array([*position, *rotation[0], *rotation[1], *rotation[2]])
        seen = self._no_splats if splat_depths is None else splat_depths
        images = (depths, classes, self._instances)
        with np.errstate(all="ignore"):
            label_parts(pose, self._rays, self._screen, parts, ROBOT, numbers, *images)
            label_splats(pose, self._rays, self._ground, seen, *images)
            label_volumes(pose, self._rays, self._screen, self._ground, volumes, seen, *images)
        return Labels(classes, self._instances, depths)


@kernel
def label_splats(
    pose: Pose,
    rays: Rays,
    ground: Ground,
    splat_depths: Floats,
    depths: Array,
    classes: Grid,
    instances: Instances,
) -> None:
    """SKY where the geometry ends, THING where splats stand before it and clear of the ground."""
    for v in range(classes.shape[0]):
        for u in range(classes.shape[1]):
            depth = float(splat_depths[v, u])
            if not depths[v, u] < np.inf:
                classes[v, u] = SKY
            if not (depth < np.inf and depth < depths[v, u] - CLEAR_OF_GROUND_M):
                continue
            x, y, z = _place(pose, depth, rays[0, v, u], rays[1, v, u])
            if not _above(ground, x, y, z) <= CLEAR_OF_GROUND_M:
                classes[v, u], instances[v, u] = THING, 0


@kernel
def label_volumes(
    pose: Pose,
    rays: Rays,
    screen: ScreenIndex,
    ground: Ground,
    volumes: Array,
    splat_depths: Floats,
    depths: Array,
    classes: Grid,
    instances: Instances,
) -> None:
    """Splats and mesh inside of a volume are its instance; of volumes that overlap, the first one's."""
    for n in range(volumes.shape[0]):
        volume, number = volumes[n], int(volumes[n, 15])
        first, last, top, bottom = pixels_of_body(pose, screen, volume)
        for v in range(top, bottom):
            for u in range(first, last):
                depth, a, b = float(splat_depths[v, u]), rays[0, v, u], rays[1, v, u]
                is_free = instances[v, u] == 0
                if depth < np.inf and (is_free or depth < depths[v, u] - CLEAR_IN_VOLUME_M):
                    x, y, z = _place(pose, depth, a, b)
                    if _is_inside(volume, x, y, z) and not _above(ground, x, y, z) <= CLEAR_IN_VOLUME_M:
                        depths[v, u], instances[v, u] = min(depths[v, u], depth), number
                        classes[v, u] = ROBOT if number < FIRST_OBJECT else classes[v, u]
                        continue
                if is_free and classes[v, u] == MESH and number >= FIRST_OBJECT:
                    x, y, z = _place(pose, depths[v, u], a, b)
                    if _is_inside(volume, x, y, z):
                        instances[v, u] = number


@kernel
def _place(pose: Pose, depth: float, a: float, b: float) -> tuple[float, float, float]:
    """Of what a pixel's ray meets at a depth, in the map frame [m]."""
    return (
        pose[0] + depth * (pose[3] * a + pose[4] * b + pose[5]),
        pose[1] + depth * (pose[6] * a + pose[7] * b + pose[8]),
        pose[2] + depth * (pose[9] * a + pose[10] * b + pose[11]),
    )


@kernel
def _above(ground: Ground, x: float, y: float, z: float) -> float:
    """How far a place is above the ground; NaN where there is none."""
    return z - _ground_height(ground.elevation, ground.cell_m, x - ground.west, y - ground.south)


@kernel
def _is_inside(box: Array, x: float, y: float, z: float) -> bool:
    x, y, z = x - box[0], y - box[1], z - box[2]
    is_inside = True
    for k in range(3):
        is_inside &= abs(box[3 + k] * x + box[6 + k] * y + box[9 + k] * z) <= box[12 + k]
    return is_inside
