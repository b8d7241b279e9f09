"""The camera: what a pinhole at a pose sees of the world, in the palette's colours.

Optical frame: x right, y down, z along the view. Pixel centres are at integers: without distortion the ray of pixel
(u, v) is ((u - cx) / fx, (v - cy) / fy, 1). The sky, and pixels to which the distortion maps no ray, are class 0.
Robots are seen where their bodies are given.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from microsim.engine.geometry import Array, Grid, Vector
from microsim.engine.world import OBSTACLE, PALETTE, Shape, World
from microsim.render import fisheye
from microsim.render.drawing import Image, Instances, Solids, coloured, draw, draw_bodies, number_obstacles
from microsim.render.image_noise import NoiseParts
from microsim.render.palette_frame import DrawnParts, FrameTable
from microsim.render.relief import relief_depths, world_terrain
from microsim.render.screen import Rays, ScreenIndex, cut_to, screen_index, tile_outlines
from microsim.render.shapes import NO_SHAPES, Shapes, painted_alone, tabulate

Rotation: TypeAlias = tuple[Vector, Vector, Vector]  # rows of the matrix from the optical to the map frame

_NEWTON_STEPS = 30
_TOLERANCE_PX = 1e-9


@dataclass(frozen=True)
class CameraModel:
    """Intrinsics and distortion, as in sensor_msgs/CameraInfo."""

    width: int  # [px]
    height: int
    fx: float  # [px]
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 0.0)  # k1, k2, t1, t2, k3; of a fisheye k1, k2, k3, k4
    is_fisheye: bool = False

    def project(self, x: float, y: float, z: float) -> tuple[float, float]:
        """Pixel (u, v) at which a point of the optical frame is seen; z > 0, unless through a fisheye."""
        if self.is_fisheye:
            right, down = fisheye.seen_at(x, y, z, self.distortion)
            return self.fx * right + self.cx, self.fy * down + self.cy
        a, b = _distort(np.float64(x / z), np.float64(y / z), self.distortion)[:2]
        return float(self.fx * a + self.cx), float(self.fy * b + self.cy)

    def rays(self) -> Rays:
        """a and b of every pixel's ray (a, b, 1); NaN where the lens has no ray."""
        a = (np.arange(self.width, dtype=np.float64) - self.cx) / self.fx
        b = (np.arange(self.height, dtype=np.float64) - self.cy) / self.fy
        rays = np.empty((2, self.height, self.width))
        rays[0], rays[1] = a[None, :], b[:, None]
        if self.is_fisheye:
            fisheye.unbend(rays, np.array(self.distortion), fisheye.largest_angle(self.distortion))
            return rays
        return _undistort(rays, self) if any(self.distortion) else rays


def _distort(a: Array, b: Array, distortion: Sequence[float]) -> tuple[Array, Array, Array, Array, Array]:
    """The distorted a and b, and their derivatives: of a by a, of a by b (as of b by a), of b by b."""
    k1, k2, t1, t2, k3 = distortion
    square = a * a + b * b
    radial = 1.0 + square * (k1 + square * (k2 + square * k3))
    slope = 2.0 * (k1 + square * (2.0 * k2 + square * (3.0 * k3)))
    return (
        a * radial + 2.0 * t1 * a * b + t2 * (square + 2.0 * a * a),
        b * radial + t1 * (square + 2.0 * b * b) + 2.0 * t2 * a * b,
        radial + slope * a * a + 2.0 * t1 * b + 6.0 * t2 * a,
        slope * a * b + 2.0 * t1 * a + 2.0 * t2 * b,
        radial + slope * b * b + 6.0 * t1 * b + 2.0 * t2 * a,
    )


def _undistort(seen: Rays, model: CameraModel) -> Rays:
    """Newton's method from the distorted point, always as many steps; NaN where it found no ray of the inner branch.

    From there it reaches the ray nearest the axis, also where a strong barrel distortion maps several to one pixel.
    """
    a, b = seen[0].copy(), seen[1].copy()
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            at, bt, aa, ab, bb = _distort(a, b, model.distortion)
            off_a, off_b = at - seen[0], bt - seen[1]
            determinant = aa * bb - ab * ab
            a, b = a - (bb * off_a - ab * off_b) / determinant, b - (aa * off_b - ab * off_a) / determinant
        at, bt, aa, ab, bb = _distort(a, b, model.distortion)
        found = abs((at - seen[0]) * model.fx) < _TOLERANCE_PX
        found &= abs((bt - seen[1]) * model.fy) < _TOLERANCE_PX
        found &= (aa * bb - ab * ab > 0.0) & (aa + bb > 0.0)  # beyond, the image folds back or is mirrored
    return np.stack([np.where(found, a, np.nan), np.where(found, b, np.nan)])


class Renderer:
    """Draws one world through one camera model; holds the buffers, so one caller at a time."""

    def __init__(
        self,
        world: World,
        model: CameraModel,
        has_mesh: bool = True,
        *,
        surface: Grid | None = None,  # None: the world's
        mesh_class: int = OBSTACLE,
        has_solids: bool = True,  # obstacles, and features that stand
    ) -> None:
        self.model = model
        self._world, self._has_solids = world, has_solids
        self._rays = model.rays()
        self._screen, self._tiles = screen_index(self._rays), tile_outlines(self._rays)
        self._patches, self._blocks, self._surface, self._lowest = world.derived(world_terrain)
        if surface is not None:
            self._surface = self._surface._replace(classes=surface)
        self._pose = np.zeros(12)
        self._row = np.empty(model.width)
        self._depths = np.empty((model.height, model.width))
        self._classes = np.zeros((model.height, model.width), np.uint8)
        self._ground: Array | None = None
        more = max(mesh_class + 1 - len(PALETTE), 0)  # classes without a colour look like obstacles
        self._palette: Grid = np.vstack([PALETTE, np.tile(PALETTE[OBSTACLE], (more, 1))])
        self._plain: dict[int, Image] = {}  # images of one class
        self.only_class = -1  # that every pixel of the last image is known to show; -1: perhaps several
        self._mesh = None
        if world.mesh is not None and has_mesh:
            from microsim.rays.bvh import mesh_tree
            from microsim.rays.screen_rays import draw_mesh  # most worlds have none, and start without it

            self._draw_mesh = draw_mesh
            a, b = self._rays
            longest = math.sqrt(1.0 + float(np.nanmax(a * a + b * b, initial=0.0)))
            room = (np.empty((3, *self._depths.shape)), np.empty(self._depths.shape, np.int32))
            self._mesh = (longest, world.derived(mesh_tree), mesh_class, *room)
        self.show(world.obstacles)

    def show(self, obstacles: Sequence[Shape]) -> None:
        """From now on, of a world that differs from this one in its obstacles."""
        self._shapes = tabulate(self._world, self._patches, self._lowest, obstacles)
        self._obstacles = len(obstacles)
        if not self._has_solids:
            self._shapes, self._obstacles = painted_alone(self._shapes), 0

    @property
    def is_bare(self) -> bool:
        """True when nothing stands in the world."""
        return self._mesh is None and self._shapes.table.shape[0] == self._shapes.painted

    def _draw(self, position: Vector, rotation: Rotation, bodies: Array | None, needs_depths: bool) -> None:
        ground_above_camera = self._aim(position, rotation)
        is_plane = self._world.is_flat or ground_above_camera >= 0.0
        with np.errstate(all="ignore"):  # uncompiled, NumPy would warn of every ray that goes to infinity
            if not is_plane:
                self._depths[:] = math.inf
                relief_depths(self._pose, self._rays, self._screen, self._patches, self._blocks, self._depths)
            self._draw_shapes(ground_above_camera, is_plane, bodies, needs_depths)

    def _aim(self, position: Vector, rotation: Rotation) -> float:
        """How far the ground is above the camera."""
        pose = (*position, *rotation[0], *rotation[1], *rotation[2])
        if not math.isfinite(math.fsum(pose)):
            raise ValueError(f"the camera's pose is not finite: {pose}")
        self._pose[:] = pose
        return self._world.ground(position[0], position[1]) - float(position[2])

    def _draw_shapes(
        self, ground_above_camera: float, is_plane: bool, bodies: Array | None, needs_depths: bool
    ) -> None:
        pose, rays, canvas = self._pose, self._rays, (self._depths, self._classes)
        bodies = bodies if bodies is not None and bodies.shape[0] else None
        needs_depths = needs_depths or bodies is not None or self._mesh is not None
        scene = (rays, self._tiles, self._screen, self._surface, self._shapes, self._row)
        self.only_class = draw(pose, ground_above_camera, is_plane, needs_depths, *scene, *canvas)
        if self._mesh is not None:
            self._draw_mesh(pose, rays, self._screen, *self._mesh, *canvas)
        if bodies is not None:
            draw_bodies(pose, rays, bodies, OBSTACLE, *canvas)

    def frame_table(self, noise: NoiseParts, xyz: Vector, rotation: Rotation) -> FrameTable | None:
        """By which compiled code draws what a camera mounted there sees; None: the world is not made for it.

        It is valid until `show` is called.
        """
        if self._mesh is not None or not self._world.is_flat:
            return None
        scene = (self._rays, self._tiles, self._screen, self._surface, self._shapes, self._row)
        parts = DrawnParts(*scene, self._depths, self._classes, self._palette)
        return FrameTable(parts, self._world.ground(0.0, 0.0), noise, xyz, rotation)

    def things(self, position: Vector, rotation: Rotation, parts: Array) -> tuple[Image, Array]:
        """The image, and depths of what stands on the ground or above it: infinite where the ground is nearer.

        parts: of robots, as `draw_parts` takes them. The array of depths is reused by the next call.
        """
        from microsim.render.robot_models import draw_parts  # for splat cameras alone

        ground_above_camera, depths = self._aim(position, rotation), self._depths
        depths[:] = math.inf
        scene = self._pose, self._rays, self._screen, parts
        with np.errstate(all="ignore"):
            if self.is_bare:
                image: Image = np.zeros((*depths.shape, 3), np.uint8)
                draw_parts(*scene, depths, depths, image)
                self._hide_behind_ground(ground_above_camera)
                return image, depths
            self._draw_ground(ground_above_camera, self._screen, depths)
            ground = depths.copy()
            self._draw_shapes(ground_above_camera, False, None, True)
            depths[depths >= ground] = math.inf
            image = coloured(self._classes, self._palette)
            draw_parts(*scene, ground, depths, image)
        return image, depths

    def solids(self, position: Vector, rotation: Rotation) -> tuple[Grid, Array]:
        """Class and depth of what stands in the world, also behind the ground; infinite where nothing does."""
        self._depths[:], self._classes[:] = math.inf, 0
        ground_above_camera = self._aim(position, rotation)
        if not self.is_bare:
            with np.errstate(all="ignore"):
                self._draw_shapes(ground_above_camera, False, None, True)
        return self._classes, self._depths

    def _hide_behind_ground(self, ground_above_camera: float) -> None:
        """What was drawn so far. The ground is looked at only there, and no farther."""
        from microsim.render.robot_models import hide, look_no_farther

        if self._ground is None:
            self._ground = np.empty_like(self._depths)
        left, right, top, bottom = look_no_farther(self._depths, self._ground)
        if top < bottom:
            self._draw_ground(ground_above_camera, cut_to(self._screen, left, right, top, bottom), self._ground)
            hide(self._ground, top, bottom, self._depths)

    def _draw_ground(self, ground_above_camera: float, screen: ScreenIndex, depths: Array) -> None:
        """Of relief only where it is nearer than `depths`, and only on this part of the screen; a plane everywhere."""
        if self._world.is_flat or ground_above_camera >= 0.0:
            bare = (self._rays, self._tiles, self._screen, self._surface, NO_SHAPES, self._row)
            draw(self._pose, ground_above_camera, True, True, *bare, depths, self._classes)
        else:
            relief_depths(self._pose, self._rays, screen, self._patches, self._blocks, depths)

    def classes(self, position: Vector, rotation: Rotation) -> Grid:
        """(h, w) class of what each pixel sees. The array is reused by the next call."""
        return self.labels(position, rotation, None)[0]

    def labels(self, position: Vector, rotation: Rotation, bodies: Array | None) -> tuple[Grid, Array]:
        """(h, w) class and (h, w) depth [m] of what each pixel sees. The arrays are reused by the next call."""
        self._draw(position, rotation, bodies, True)
        return self._classes, self._depths

    def number_obstacles(self, first: int, numbers: Instances) -> None:
        """Which obstacle is seen in the pixels of the last frame that has depths, counted from `first`; 0: none."""
        room = np.empty((2, self.model.width))
        with np.errstate(all="ignore"):
            number_obstacles(self._pose, self._rays, self._shapes, self._obstacles, first, room, self._depths, numbers)

    def number_solids(self, numbers: Solids) -> Shapes:
        """Which standing shape is seen in the pixels of the last frame that has depths, from 1; 0: none."""
        count = self._shapes.table.shape[0] - self._shapes.painted
        room, found = np.empty((2, self.model.width)), np.zeros(numbers.shape, np.uint16)
        with np.errstate(all="ignore"):
            number_obstacles(self._pose, self._rays, self._shapes, count, 1, room, self._depths, found)
        numbers[:] = found
        return self._shapes

    def depths(self, position: Vector, rotation: Rotation) -> Array:
        """(h, w) [m] depth along the optical axis of what each pixel sees, inf in the sky. Reused by the next call."""
        return self.labels(position, rotation, None)[1]

    def render(self, position: Vector, rotation: Rotation, bodies: Array | None = None) -> Image:
        """(h, w, 3) in the palette's colours: a new array. Bodies are robots, as `draw_bodies` takes them."""
        self._draw(position, rotation, bodies, False)
        if self.only_class < 0:
            return coloured(self._classes, self._palette)
        if self.only_class not in self._plain:
            colour = self._palette[self.only_class]
            self._plain[self.only_class] = np.broadcast_to(colour, (*self._classes.shape, 3)).copy()
        return self._plain[self.only_class].copy()
