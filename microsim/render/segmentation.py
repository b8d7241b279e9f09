"""The segmentation image of a splat camera: what each pixel shows, by class, each in a colour of its own.

Ground, road, obstacles, mesh and robots are those of the world's geometry. What stands before it in the splats alone,
such as a tree without a mesh, is a `thing`.
"""

import numpy as np

from microsim.engine import geometry
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.world import CLASS_NAMES, PALETTE, TARGET, World
from microsim.render.drawing import Image, coloured
from microsim.render.palette_camera import CameraModel, Renderer, Rotation
from microsim.render.screen import Rays
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


def with_roads(world: World) -> Grid:
    """The surface of a world bundle, whose drivable area is of class target, with the road as a class of its own."""
    return np.where(world.surface == TARGET, np.uint8(ROAD), world.surface)


class Segmenter:
    """Labels what one camera sees of one world; holds buffers, so one caller at a time."""

    def __init__(self, world: World, model: CameraModel) -> None:
        surface = world.derived(with_roads)
        self._renderer = Renderer(world, model, surface=surface, mesh_class=MESH, robot_class=ROBOT)
        self._rays = model.rays()
        self._ground = (world.elevation, world.cell_m, world.west, world.south)

    def image(self, position: Vector, rotation: Rotation, bodies: Array, splat_depths: Floats) -> Image:
        """(h, w, 3), a new array; splat_depths (h, w) [m]: infinite where next to nothing is seen."""
        classes, depths = self._renderer.labels(position, rotation, bodies)
        pose = np.array([*position, *rotation[0], *rotation[1], *rotation[2]])
        label_splats(pose, self._rays, splat_depths, depths, *self._ground, classes)
        return coloured(classes, SEGMENT_COLOURS)


@kernel
def label_splats(
    pose: Array,
    rays: Rays,
    splat_depths: Floats,
    depths: Array,
    elevation: Array,
    cell: float,
    west: float,
    south: float,
    classes: Grid,
) -> None:
    """SKY where the geometry ends, THING where splats stand before it and clear of the ground."""
    for v in range(classes.shape[0]):
        for u in range(classes.shape[1]):
            depth, a, b = float(splat_depths[v, u]), rays[0, v, u], rays[1, v, u]
            if not depths[v, u] < np.inf:
                classes[v, u] = SKY
            if not (depth < np.inf and depth < depths[v, u] - CLEAR_OF_GROUND_M):
                continue
            x = pose[0] + depth * (pose[3] * a + pose[4] * b + pose[5])
            y = pose[1] + depth * (pose[6] * a + pose[7] * b + pose[8])
            z = pose[2] + depth * (pose[9] * a + pose[10] * b + pose[11])
            if not z - _ground_height(elevation, cell, x - west, y - south) <= CLEAR_OF_GROUND_M:
                classes[v, u] = THING
