"""What each pixel of a camera shows, by class and by instance: the ground truth of its image.

Palette cameras show the world's geometry alone. What a splat camera shows was decided while its image was drawn: each
pixel has the depth of a surface, and whose it is. A robot or an obstacle is who it is. Splats of the world are named
after the geometry that is there: ground, road and mesh. Those for which there is none, such as a tree without a mesh,
are a `thing`. Named boxes of a world bundle are instances of what is inside of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from microsim.engine import geometry
from microsim.engine.compiled import kernel
from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.world import CLASS_NAMES, FIRST_OBSTACLE, PALETTE, TARGET, Shape, World
from microsim.render.drawing import Instances, Solids, pixels_of_body
from microsim.render.palette_camera import CameraModel, Renderer, Rotation
from microsim.render.relief import Ground, Surface, class_at, ground_of
from microsim.render.robot_models import label_parts
from microsim.render.screen import Pose, Rays, ScreenIndex, screen_index
from microsim.render.splat.activation import Floats
from microsim.render.splat.blending import SPLATS, Owners
from microsim.render.splat.blending import THING as SIMULATED
from microsim.render.splat.picture import Lens, Picture
from microsim.render.surface_normals import normals_of_depths, normals_of_things

_ground_height = geometry.ground_height

ROAD, MESH, ROBOT, THING, SKY = range(len(CLASS_NAMES), len(CLASS_NAMES) + 5)
SEGMENT_NAMES = (*CLASS_NAMES, "road", "mesh", "robot", "thing", "sky")
SEGMENT_COLOURS: Grid = np.array(
    [
        *PALETTE.tolist(), (0x80, 0x40, 0x80), (0x46, 0x46, 0x46), (0x00, 0x00, 0x8E), (0xDC, 0xDC, 0x00),
        (0x46, 0x82, 0xB4),
    ], np.uint8,
)  # fmt: skip

NEAR_GROUND_M = 0.5  # splats up to so far above the ground, or from the geometry on their ray, are what is there
CLEAR_IN_VOLUME_M = 0.1  # splats so far above the ground are part of what a volume holds
NO_NORMALS: Floats = np.empty((0, 0, 3), np.float32)
VOLUME_NUMBERS = 16  # a box as `screen.into_body` takes it, and the number of its instance


class Labels(NamedTuple):
    """Of every pixel; the arrays are reused by the next frame."""

    classes: Grid  # (h, w)
    instances: Instances  # (h, w)
    depths: Array  # (h, w) [m] of what is seen along the optical axis; inf: nothing
    normals: Floats  # (h, w, 3) in the optical frame; NaN: nothing is seen; (0, 0, 3): not wanted


class InstanceNumbers(NamedTuple):
    """Of what a camera may see, besides obstacles."""

    robots: Instances  # the others, in their order
    actors: Instances  # those of them that are splats
    objects: Array  # (n, 16) volumes of the bundle's objects


class Layer(NamedTuple):
    """What a part of the world looks like, each in (h, w)."""

    depths: Array
    classes: Grid
    instances: Instances
    solids: Solids


def with_roads(world: World) -> Grid:
    """The surface of a world bundle, whose drivable area is of class target, with the road as a class of its own."""
    return np.where(world.surface == TARGET, np.uint8(ROAD), world.surface)


class Segmenter:
    """Labels what a palette camera sees of one world; holds buffers, so one caller at a time."""

    def __init__(self, world: World, model: CameraModel, has_roads: bool = True, has_normals: bool = False) -> None:
        surface = world.derived(with_roads) if has_roads else None
        self._renderer = Renderer(world, model, surface=surface, mesh_class=MESH)
        self._rays = model.rays()
        self._screen = screen_index(self._rays)
        self._ground = world.derived(ground_of)
        self._instances = np.empty((model.height, model.width), np.uint16)
        self._no_owners: Owners = np.zeros((model.height, model.width), np.uint16)
        self._solids: Solids = np.zeros((model.height, model.width), np.int32)
        self._normals = NormalImages((model.height, model.width)) if has_normals else None

    def show(self, obstacles: Sequence[Shape]) -> None:
        """From now on, of a world that differs from this one in its obstacles."""
        self._renderer.show(obstacles)

    def labels(self, position: Vector, rotation: Rotation, parts: Array, numbers: InstanceNumbers) -> Labels:
        """parts: of the other robots. Objects may be in the mesh."""
        classes, depths = self._renderer.labels(position, rotation, None)
        self._renderer.number_obstacles(FIRST_OBSTACLE, self._instances)
        shapes = None if self._normals is None else self._renderer.number_solids(self._solids)
        pose = np.array([*position, *rotation[0], *rotation[1], *rotation[2]])
        images = (depths, classes, self._instances)
        with np.errstate(all="ignore"):
            label_parts(pose, self._rays, self._screen, parts, ROBOT, numbers.robots, *images, self._solids)
            label_sky(depths, classes)
            label_volumes(pose, self._rays, self._screen, self._ground, numbers.objects, self._no_owners, *images)
            if self._normals is None or shapes is None:
                return Labels(classes, self._instances, depths, NO_NORMALS)
            normals_of_things(pose, self._rays, depths, self._solids, shapes, parts, self._normals.own)
            normals_of_depths(self._rays, depths.astype(np.float32), self._normals.found)
        return Labels(classes, self._instances, depths, self._normals.merged(self._normals.own))


class NormalImages:
    """Room for the normals of a camera's image."""

    def __init__(self, size: tuple[int, int], canvas: tuple[int, int] | None = None) -> None:
        self.found: Floats = np.empty((*size, 3), np.float32)
        self.own: Floats = np.empty((*(canvas or size), 3), np.float32)  # of things

    def merged(self, own: Floats) -> Floats:
        """Those of things, in their place before the others."""
        return np.where(np.isnan(own), self.found, own)


class SplatSegmenter:
    """Labels what a splat camera's pictures show; holds buffers, so one caller at a time."""

    def __init__(
        self, world: World, model: CameraModel, lens: Lens, things: Renderer, has_normals: bool = False
    ) -> None:
        """`things` draws what stands in the world in the camera's pictures, on the canvas of its lens."""
        self._scene = Renderer(world, model, surface=world.derived(with_roads), mesh_class=MESH, has_solids=False)
        self._rays, self._screen = model.rays(), screen_index(model.rays())
        self._things = things
        self._thing_rays, self._thing_screen = lens.canvas.rays(), screen_index(lens.canvas.rays())
        self._places = places_on_canvas(lens)
        self._ground = world.derived(ground_of)
        self._surface = Surface(world.derived(with_roads), float(world.cell_m), float(world.west), float(world.south))
        self._thing_instances = np.empty((lens.canvas.height, lens.canvas.width), np.uint16)
        self._instances = np.empty((model.height, model.width), np.uint16)
        size, canvas = (model.height, model.width), self._thing_instances.shape
        self._solids: Solids = np.zeros(canvas, np.int32)
        self._normals = NormalImages(size, (canvas[0], canvas[1])) if has_normals else None

    def labels(
        self, position: Vector, rotation: Rotation, parts: Array, numbers: InstanceNumbers, picture: Picture
    ) -> Labels:
        """parts: of the other robots that have a model. Objects may be in the splats of the world or in its mesh."""
        classes, depths = self._scene.labels(position, rotation, None)
        pose = np.array([*position, *rotation[0], *rotation[1], *rotation[2]])
        things = self._layer_of_things(position, rotation, pose, parts, numbers.robots)
        own = depths, classes, self._instances
        with np.errstate(all="ignore"):
            label_surfaces(
                pose, self._rays, self._ground, self._surface, picture.depths, picture.owners, self._places, things,
                numbers.actors, *own,
            )  # fmt: skip
            label_volumes(pose, self._rays, self._screen, self._ground, numbers.objects, picture.owners, *own)
        return Labels(classes, self._instances, depths, self._seen_normals(picture))

    def _seen_normals(self, picture: Picture) -> Floats:
        """Of things where they are seen, of depths elsewhere."""
        if self._normals is None:
            return NO_NORMALS
        with np.errstate(all="ignore"):
            normals_of_depths(self._rays, picture.depths, self._normals.found)
        own = self._normals.own.reshape(-1, 3)[self._places]
        own[picture.owners != SIMULATED] = np.nan
        return self._normals.merged(own)

    def _layer_of_things(
        self, position: Vector, rotation: Rotation, pose: Array, parts: Array, numbers: Instances
    ) -> Layer:
        classes, depths = self._things.solids(position, rotation)
        self._things.number_obstacles(FIRST_OBSTACLE, self._thing_instances)
        shapes = None if self._normals is None else self._things.number_solids(self._solids)
        found = Layer(depths, classes, self._thing_instances, self._solids)
        with np.errstate(all="ignore"):
            label_parts(pose, self._thing_rays, self._thing_screen, parts, ROBOT, numbers, *found)
            if self._normals is not None and shapes is not None:
                normals_of_things(pose, self._thing_rays, depths, self._solids, shapes, parts, self._normals.own)
        return found


def places_on_canvas(lens: Lens) -> npt.NDArray[np.int32]:
    """(h, w) number of the canvas's pixel whose surface each pixel of the image has; -1: it shows none."""
    height, width = lens.size
    if lens.lookup is None:
        return np.arange(height * width, dtype=np.int32).reshape(height, width)
    columns, rows = (np.floor(lens.lookup[..., k] + np.float32(0.5)) for k in (0, 1))  # as `look_up_surfaces`
    is_inside = (columns >= 0) & (rows >= 0) & (columns < lens.canvas.width) & (rows < lens.canvas.height)
    places = np.where(is_inside, rows * lens.canvas.width + columns, -1)
    return places.astype(np.int32)


@kernel
def label_sky(depths: Array, classes: Grid) -> None:
    for v in range(classes.shape[0]):
        for u in range(classes.shape[1]):
            if not depths[v, u] < np.inf:
                classes[v, u] = SKY


@kernel
def label_surfaces(
    pose: Pose,
    rays: Rays,
    ground: Ground,
    surface: Surface,
    seen_depths: Floats,
    owners: Owners,
    places: npt.NDArray[np.int32],
    things: Layer,
    actors: Instances,
    depths: Array,
    classes: Grid,
    instances: Instances,
) -> None:
    """From the geometry of ground and mesh, which the last three hold, to what the picture shows."""
    thing_depths, thing_classes, thing_instances, _ = things
    columns = thing_depths.shape[1]
    for v in range(classes.shape[0]):
        for u in range(classes.shape[1]):
            owner, place, behind = int(owners[v, u]), int(places[v, u]), depths[v, u]
            depth = np.float64(seen_depths[v, u])  # a `float` stays a float32 in numba
            instances[v, u] = 0
            if owner < SIMULATED:  # nothing is drawn: ground and mesh are what they are, though they show the sky
                if not behind < np.inf:
                    classes[v, u] = SKY
                continue
            depths[v, u] = depth
            if owner == SIMULATED:
                j, i = place // columns, place % columns
                classes[v, u], instances[v, u] = thing_classes[j, i], thing_instances[j, i]
                if not thing_depths[j, i] < np.inf:  # where a lens sees nothing
                    classes[v, u] = SKY
            elif owner > SPLATS:
                classes[v, u], instances[v, u] = ROBOT, actors[owner - SPLATS - 1]
            elif not abs(depth - behind) <= NEAR_GROUND_M:
                x, y, z = _place(pose, depth, rays[0, v, u], rays[1, v, u])
                if _above(ground, x, y, z) <= NEAR_GROUND_M:
                    classes[v, u] = class_at(surface, x, y)
                elif classes[v, u] != MESH or depth < behind:
                    classes[v, u] = THING


@kernel
def label_volumes(
    pose: Pose,
    rays: Rays,
    screen: ScreenIndex,
    ground: Ground,
    volumes: Array,
    owners: Owners,
    depths: Array,
    classes: Grid,
    instances: Instances,
) -> None:
    """The world's splats and mesh inside of a volume are its instance; of volumes that overlap, the first one's."""
    for n in range(volumes.shape[0]):
        volume, number = volumes[n], int(volumes[n, 15])
        first, last, top, bottom = pixels_of_body(pose, screen, volume)
        for v in range(top, bottom):
            for u in range(first, last):
                is_splats = owners[v, u] == SPLATS
                if instances[v, u] == 0 and (is_splats or classes[v, u] == MESH):
                    x, y, z = _place(pose, depths[v, u], rays[0, v, u], rays[1, v, u])
                    is_clear = not is_splats or not _above(ground, x, y, z) <= CLEAR_IN_VOLUME_M
                    if is_clear and _is_inside(volume, x, y, z):
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
