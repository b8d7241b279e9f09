"""The three-dimensional part of the page: the world and everything that moves in it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import trimesh
from PIL import Image, ImageDraw, ImageFilter

from microsim.bundle import Bundle, load_bundle
from microsim.bundle.bundle_model import rotation_matrix
from microsim.engine.world import CLASS_NAMES, GROUND, PALETTE, TARGET, WATER, Shape, World
from microsim.parts.view.web.interface import PageFrame, PageScene
from microsim.parts.view.web.page.layers import RadioPulses, SensorLayers
from microsim.parts.view.web.page.robot_bodies import (
    COLOURS,
    Floats,
    RobotBody,
    add_lines,
    add_mesh,
    add_points,
    wxyz_of,
)

_MOST_CELLS = 200  # along one side of the mesh; finer maps are thinned out, their colours are not
_TEXTURE = 1024  # [px] at most along one side
_PAINT_M = 0.03  # height of flat features above the ground, else the two would flicker
_ROUND = 40  # corners of a circle
_ROAD, _GRASS = (88, 94, 104), (150, 163, 138)  # of world bundles, where the drivable area is of class target
_SUN = (-0.6, -0.8, 1.2)  # towards it; not to scale
_SHADE, _SHADE_M = 0.42, 0.35  # how dark shadows on the ground are, and how soft
_MOST_SPLATS = 250_000  # the most opaque ones are drawn


# ---- ground ----------------------------------------------------------------------------------------------------------


def ground_mesh(world: World, bundle: Bundle | None = None) -> trimesh.Trimesh:
    """Cell corners at the height of the ground, with the surface classes as a texture."""
    west, south, east, north = world.extent_m
    rows, columns = world.elevation.shape
    if world.is_flat:
        x, y = np.array([west, east]), np.array([south, north])
    else:
        x = np.linspace(west, east, min(columns, _MOST_CELLS) + 1)
        y = np.linspace(south, north, min(rows, _MOST_CELLS) + 1)
    heights = heights_at(world, x, y)
    across, along = np.meshgrid(x, y)
    vertices = np.stack([across, along, heights], axis=-1).reshape(-1, 3)
    uv = np.stack([(across - west) / (east - west), (along - south) / (north - south)], axis=-1).reshape(-1, 2)
    material = trimesh.visual.material.PBRMaterial(
        baseColorTexture=ground_texture(world, bundle, has_shadows=True), roughnessFactor=1.0, metallicFactor=0.0
    )
    visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    return trimesh.Trimesh(vertices, _grid_faces(len(y), len(x)), visual=visual, process=False)


def heights_at(world: World, x: Floats, y: Floats) -> Floats:
    """(len(y), len(x)) bilinear between cell centres, continued at the edges; NaN, no ground, is drawn lowest."""
    grid = np.asarray(world.elevation)
    if np.isnan(grid).any():
        grid = np.nan_to_num(grid, nan=float(np.nanmin(grid)) if not np.isnan(grid).all() else 0.0)
    rows, columns = grid.shape
    u = np.clip((x - world.west) / world.cell_m - 0.5, 0, columns - 1)
    v = np.clip((y - world.south) / world.cell_m - 0.5, 0, rows - 1)
    i, j = np.minimum(u.astype(int), max(columns - 2, 0)), np.minimum(v.astype(int), max(rows - 2, 0))
    s, t = (u - i)[None, :], (v - j)[:, None]
    i1, j1 = np.minimum(i + 1, columns - 1), np.minimum(j + 1, rows - 1)
    low = grid[j[:, None], i] * (1 - s) + grid[j[:, None], i1] * s
    high = grid[j1[:, None], i] * (1 - s) + grid[j1[:, None], i1] * s
    found: Floats = low * (1 - t) + high * t
    return found


def _grid_faces(rows: int, columns: int) -> npt.NDArray[np.int64]:
    first = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)[None, :]).reshape(-1)
    a, b, c, d = first, first + 1, first + columns + 1, first + columns
    return np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])


def grid_step(world: World) -> float:
    """Metres between the lines of the grid: about ten to twenty of them."""
    steps, longest = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0), max(world.size_m)
    return next((step for step in steps if longest / step <= 22), 1000.0)


def ground_texture(world: World, bundle: Bundle | None = None, has_shadows: bool = False) -> Image.Image:
    """Classes in the palette's colours, or a bundle's in those of its splats; relief as light. Row 0 is the north."""
    rows, columns = world.elevation.shape
    scale = max(1, min(_TEXTURE // columns, _TEXTURE // rows, 16))
    if max(rows, columns) > _TEXTURE:
        thin = math.ceil(max(rows, columns) / _TEXTURE)
        classes, scale = world.surface[::thin, ::thin], 1
    else:
        classes = np.repeat(np.repeat(world.surface, scale, axis=0), scale, axis=1)
    height, width = classes.shape
    west, south, east, north = world.extent_m
    x = west + (np.arange(width) + 0.5) * (east - west) / width
    y = south + (np.arange(height) + 0.5) * (north - south) / height
    palette = PALETTE.copy()
    if bundle is not None:
        palette[GROUND], palette[TARGET] = _GRASS, _ROAD
    colours = palette[classes].astype(float)
    if bundle is not None:
        _take_colours_of_splats(bundle, world, colours)
    if not world.is_flat:
        heights = heights_at(world, x, y)
        slope_y, slope_x = np.gradient(heights, y[1] - y[0], x[1] - x[0])
        shade = np.clip(1.0 + 0.5 * (slope_x - slope_y), 0.8, 1.12)
        span = np.ptp(heights) or 1.0
        shade *= 0.9 + 0.16 * (heights - heights.min()) / span
        colours *= np.where(classes == WATER, 1.0, shade)[:, :, None]
    image = Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8)[::-1])
    if bundle is None:
        _rule(image, world)
    return _shaded(image, world) if has_shadows else image


def _shaded(image: Image.Image, world: World) -> Image.Image:
    """With the shadows of obstacles and features: a soft one away from the sun, and a dark rim where they stand."""
    west, south, east, north = world.extent_m
    per_x, per_y = image.width / (east - west), image.height / (north - south)
    long, rim = Image.new("L", image.size, 0), Image.new("L", image.size, 0)
    draw, dark = ImageDraw.Draw(long), ImageDraw.Draw(rim)
    for shape in (*world.obstacles, *world.features):
        if not shape.height_m or shape.base_m > 0.5:
            continue
        outline = [((x - west) * per_x, (north - y) * per_y) for x, y in footprint(shape)]
        reach_x, reach_y = (-each / _SUN[2] * shape.height_m for each in _SUN[:2])
        for step in range(13):
            draw.polygon([(u + reach_x * per_x * step / 12, v - reach_y * per_y * step / 12) for u, v in outline], 255)
        dark.polygon(outline, 255)
    soft = max(_SHADE_M * per_x, 0.6)
    shade = np.asarray(long.filter(ImageFilter.GaussianBlur(soft)), float) / 255 * _SHADE
    shade = np.maximum(shade, np.asarray(rim.filter(ImageFilter.GaussianBlur(1.6 * soft)), float) / 255 * 0.6)
    return Image.fromarray((np.asarray(image) * (1.0 - shade[:, :, None])).astype(np.uint8))


def _take_colours_of_splats(bundle: Bundle, world: World, colours: Floats) -> None:
    """Where splats lie on the ground, their mean colour; elsewhere the colours stay."""
    found = bundle.gaussians
    if not len(found.values):
        return
    x, y, z = np.asarray(found.column("x", 3), np.float64).T
    height, width, _ = colours.shape
    west, south, east, north = world.extent_m
    u, v = ((x - west) / (east - west) * width).astype(int), ((y - south) / (north - south) * height).astype(int)
    column, row = ((x - west) / world.cell_m).astype(int), ((y - south) / world.cell_m).astype(int)
    inside = (u >= 0) & (u < width) & (v >= 0) & (v < height) & (x >= west) & (y >= south)
    u, v, z, row, column = u[inside], v[inside], z[inside], row[inside], column[inside]
    low = np.abs(z - np.asarray(world.elevation)[row, column]) < 0.3
    shades = found.colours(inside)[low]
    place, cells = v[low] * width + u[low], height * width
    counts = np.bincount(place, minlength=cells).astype(float)
    layers = [counts, *(np.bincount(place, shades[:, part], cells) for part in range(3))]
    radius = max(1, round(0.7 / world.cell_m * width / world.elevation.shape[1]))
    for _ in range(2):
        layers = [_blurred(each.reshape(height, width), radius).reshape(-1) for each in layers]
    known = layers[0] > 0.02 / radius
    for part in range(3):
        colours.reshape(-1, 3)[known, part] = 255 * layers[1 + part][known] / layers[0][known]


def _blurred(grid: Floats, radius: int) -> Floats:
    """Mean over a square."""
    for axis in (0, 1):
        sums = np.cumsum(np.concatenate([np.zeros_like(np.take(grid, [0], axis)), grid], axis), axis)
        last, ends = grid.shape[axis], np.arange(grid.shape[axis])
        high, low = np.minimum(ends + radius + 1, last), np.maximum(ends - radius, 0)
        grid = (np.take(sums, high, axis) - np.take(sums, low, axis)) / (2 * radius + 1)
    return grid


def _rule(image: Image.Image, world: World) -> None:
    west, south, east, north = world.extent_m
    step, draw = grid_step(world), ImageDraw.Draw(image, "RGBA")
    per_x, per_y = image.width / (east - west), image.height / (north - south)
    for size, alpha, width in ((step / 5.0, 16, 1), (step, 60, max(1, image.width // 1000))):
        if size * per_x < 6.0:
            continue
        for number in range(math.ceil(west / size), math.floor(east / size) + 1):
            u = (number * size - west) * per_x
            draw.line([(u, 0), (u, image.height)], fill=(20, 30, 45, alpha), width=width)
        for number in range(math.ceil(south / size), math.floor(north / size) + 1):
            v = (north - number * size) * per_y
            draw.line([(0, v), (image.width, v)], fill=(20, 30, 45, alpha), width=width)


# ---- obstacles and features ------------------------------------------------------------------------------------------


def shape_meshes(world: World) -> dict[int, trimesh.Trimesh]:
    """Obstacles and features, those of one class in one mesh."""
    parts: dict[int, list[trimesh.Trimesh]] = {}
    for shape in (*world.obstacles, *world.features):
        parts.setdefault(shape.class_id, []).append(_solid(world, shape))
    return {class_id: trimesh.util.concatenate(each) for class_id, each in sorted(parts.items())}


def _solid(world: World, shape: Shape) -> trimesh.Trimesh:
    if shape.kind == "billboard":
        return _billboard(world, shape)
    outline = footprint(shape)
    return _prism(world, shape, outline) if shape.height_m else _painted(world, shape, outline)


def footprint(shape: Shape) -> Floats:
    """(n, 2) corners in the map frame, counter-clockwise."""
    if shape.kind == "triangle":
        return np.array(shape.vertices)
    if shape.kind == "circle":
        angle = np.linspace(0.0, 2.0 * math.pi, _ROUND, endpoint=False)
        return np.array(shape.center) + shape.radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    half = 0.5 * np.array(shape.size)
    corners = half * np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    cosine, sine = math.cos(shape.yaw or 0.0), math.sin(shape.yaw or 0.0)
    turned: Floats = np.array(shape.center) + corners @ np.array([[cosine, sine], [-sine, cosine]])
    return turned


def _prism(world: World, shape: Shape, outline: Floats) -> trimesh.Trimesh:
    base = world.ground(*shape.center) + shape.base_m
    low = min(world.ground(*corner) for corner in outline) if not shape.base_m else base
    low = base - 0.5 if math.isnan(low) else min(low, base)
    count = len(outline)
    bottom = np.column_stack([outline, np.full(count, low)])
    top = np.column_stack([outline, np.full(count, base + shape.height_m)])
    faces = [(0, k, k + 1) for k in range(1, count - 1)]
    roof = trimesh.Trimesh(top, faces, process=False)
    after = np.roll(np.arange(count), -1)
    walls = [np.array([bottom[k], bottom[after[k]], top[after[k]], top[k]]) for k in range(count)]
    sides = [trimesh.Trimesh(wall, [(0, 1, 2), (0, 2, 3)], process=False) for wall in walls]
    return trimesh.util.concatenate([roof, *sides])


def _painted(world: World, shape: Shape, outline: Floats) -> trimesh.Trimesh:
    """A flat feature, draped over the ground."""
    centre = outline.mean(axis=0)
    rings = 1 if world.is_flat else 6
    points, faces = [centre], []
    for ring in range(1, rings + 1):
        points += list(centre + (outline - centre) * ring / rings)
    count = len(outline)
    for k in range(count):
        after = (k + 1) % count
        faces.append((0, 1 + k, 1 + after))
        for ring in range(rings - 1):
            a, b = 1 + ring * count + k, 1 + ring * count + after
            faces += [(a, a + count, b + count), (a, b + count, b)]
    lifted = [(x, y, world.ground(float(x), float(y)) + shape.base_m + _PAINT_M) for x, y in points]
    return trimesh.Trimesh(lifted, faces, process=False)


def _billboard(world: World, shape: Shape) -> trimesh.Trimesh:
    """Yaw is where it faces; one that always faces the camera is drawn as a cross."""
    x, y = shape.center
    base = world.ground(x, y) + shape.base_m
    plates = []
    for turn in [shape.yaw] if shape.yaw is not None else [0.0, math.pi / 2]:
        plate = trimesh.creation.box(extents=(0.04, shape.size[0], shape.size[1]))
        plate.apply_transform(trimesh.transformations.rotation_matrix(turn, (0, 0, 1)))
        plate.apply_translation((x, y, base + 0.5 * shape.size[1]))
        plates.append(plate)
    return trimesh.util.concatenate(plates)


# ---- world bundles ---------------------------------------------------------------------------------------------------


def draw_bundle(server: Any, bundle: Bundle) -> int:
    """The number of splats that are drawn."""
    edges = bundle.drivable.edges
    if len(edges):
        add_lines(server.scene, "/drivable/edges", (255, 214, 64), 2.5, on_the_ground(bundle, edges))
    for index, each in enumerate(bundle.objects):
        x, y, z = each.center
        server.scene.add_label(f"/labels/object_{index}", each.name, position=(x, y, z + 0.5 * each.size[2] + 0.3))
    splats = _gaussians(bundle)
    if splats is not None:
        server.scene.add_gaussian_splats("/splats/background", **splats)
    return 0 if splats is None else len(splats["centers"])


def on_the_ground(bundle: Bundle, edges: Any, above_m: float = 0.06) -> Any:
    """(n, 2, 3): each edge in pieces of at most two metres, a little above the ground."""
    lines = [np.zeros((0, 2, 3))]
    for x0, y0, x1, y1 in edges:
        count = max(1, min(200, int(np.hypot(x1 - x0, y1 - y0) / 2.0) + 1))
        x, y = np.linspace(x0, x1, count + 1), np.linspace(y0, y1, count + 1)
        points = np.stack([x, y, np.nan_to_num(bundle.heightmap.heights(x, y)) + above_m], axis=1)
        lines.append(np.stack([points[:-1], points[1:]], axis=1))
    return np.concatenate(lines).astype(np.float32)


def _gaussians(bundle: Bundle) -> dict[str, Any] | None:
    """Centres, covariances, colours and opacities as viser takes them; colours are the same from everywhere."""
    found = bundle.gaussians
    count = len(found.values)
    if not count:
        return None
    opacity = found.opacities()
    rows = np.arange(count)
    if count > _MOST_SPLATS:
        rows = np.sort(np.argsort(-opacity, kind="stable")[:_MOST_SPLATS])
    centres, scales = (np.asarray(found.column(name, 3), np.float64)[rows] for name in ("x", "scale_0"))
    turn = rotation_matrix(*np.asarray(found.column("rot_0", 4), np.float64)[rows].T).transpose(2, 0, 1)
    stretched = turn * np.exp(scales)[:, None, :]
    return {
        "centers": centres.astype(np.float32),
        "covariances": (stretched @ stretched.transpose(0, 2, 1)).astype(np.float32),
        "rgbs": found.colours(rows).astype(np.float32),
        "opacities": opacity[rows, None].astype(np.float32),
    }


# what a page can switch on and off, each a root of the scene tree -> whether it is shown at first
LAYERS = dict.fromkeys(("trails", "sensors", "radio", "waypoints", "labels", "frames", "poses"), True)
LAYERS |= {"frames": False, "poses": False, "points": True, "drivable": False, "mesh": False, "splats": True}
Place: TypeAlias = tuple[float, float, float]  # [m] map frame
DAY = ((138, 178, 219), (236, 242, 247))  # sky: top, horizon
NIGHT = ((10, 14, 24), (44, 55, 74))


def sky(is_dark: bool) -> Any:
    top, horizon = NIGHT if is_dark else DAY
    ramp = np.linspace(0.0, 1.0, 64)[:, None] ** 0.8
    rows = np.array(top) * (1 - ramp) + np.array(horizon) * ramp
    return np.repeat(rows[:, None, :], 8, axis=1).astype(np.uint8)


def robot_scale(scene: PageScene) -> float:
    """Half a metre in a field of two hundred cannot be seen: robots are drawn larger in large worlds."""
    if scene.bundle:
        return 1.0
    return float(min(max(max(scene.world.size_m) / 30.0, 1.0), 5.0))


_BUILDS = itertools.count(1)


class Stage3D:
    """Draws frames of one scene."""

    def __init__(self, server: Any, scene: PageScene, scale: float | None = None, is_film: bool = False) -> None:
        """`is_film`: drawn ahead of time, so that everything moves in simulated time."""
        self.server, self.scene = server, scene
        self.ground = f"ground_{next(_BUILDS)}"  # a page knows by this name that the ground is drawn
        bundle = load_bundle(Path(scene.bundle)) if scene.bundle else None
        self.scale = robot_scale(scene) if scale is None else scale
        self.colours = {look.name: COLOURS[number % len(COLOURS)] for number, look in enumerate(scene.robots)}
        self._frame: PageFrame | None = None
        self._waypoints: Any = None
        self._world(bundle)
        if bundle is None:
            self._ruler()
        for layer in LAYERS:
            server.scene.add_frame(f"/{layer}", show_axes=False)
        self.bodies = {
            look.name: RobotBody(server, look, number, self.scale, scene.physics_hz)
            for number, look in enumerate(scene.robots)
        }
        self.sensors = SensorLayers(server, scene, self.bodies, self.scale)
        clock = {"clock": lambda frame: frame.time_ns / 1e9} if is_film else {}
        self._radio = RadioPulses(server, self.scale, **clock) if scene.has_radio else None
        self.splats = draw_bundle(server, bundle) if bundle is not None else 0
        self.layers = [name for name in LAYERS if self._has(name)]
        self._axes = self._frames()
        for name, is_shown in LAYERS.items():
            self.show(name, is_shown)

    def _has(self, layer: str) -> bool:
        if layer in ("drivable", "splats", "mesh"):
            return self.splats > 0 if layer != "drivable" else bool(self.scene.bundle)
        if layer == "radio":
            return self.scene.has_radio
        own = {"points": "points", "poses": "pose"}.get(layer)
        return own is None or any(look.layer == own for look in self.scene.sensors)

    # ---- what does not move ------------------------------------------------------------------------------------------

    def _world(self, bundle: Bundle | None) -> None:
        """Shadows are part of the ground's texture: a shadow map over the whole world would be coarse and flicker."""
        scene, world = self.server.scene, self.scene.world
        scene.configure_default_lights(enabled=False)
        scene.configure_environment_map(None)
        scene.add_light_hemisphere("/light/sky", sky_color=(225, 236, 255), ground_color=(120, 118, 110), intensity=1.6)
        sun = {"color": (255, 247, 232), "intensity": 2.1, "cast_shadow": False}
        scene.add_light_directional("/light/sun", position=tuple(1000.0 * each for each in _SUN), **sun)
        ground = trimesh.Scene()
        ground.add_geometry(ground_mesh(world, bundle), node_name=self.ground, geom_name=self.ground)
        data = ground.export(file_type="glb")
        scene.add_glb("/world/ground", data, cast_shadow=False, receive_shadow=False)
        if world.mesh is not None:  # beside splats it is what LiDARs see, and off at first
            name = "/world/mesh" if bundle is None or not len(bundle.gaussians.values) else "/mesh/static"
            add_mesh(scene, name, world.mesh.vertices, world.mesh.triangles, (176, 178, 172), side="double")
        for class_id, mesh in shape_meshes(world).items():
            name, colour = f"/world/things/{CLASS_NAMES[class_id]}", tuple(int(part) for part in PALETTE[class_id])
            add_mesh(scene, name, mesh.vertices, mesh.faces, colour, side="double")

    def _ruler(self) -> None:
        """Metres along the southern and western edge, and an arrow to the north."""
        scene, world = self.server.scene, self.scene.world
        west, south, east, north = world.extent_m
        step, size = 2.0 * grid_step(world), max(world.size_m) / 50.0
        scene.add_frame("/labels", show_axes=False)
        style = {"font_size_mode": "screen", "depth_test": True}
        z = world.ground(west, south)
        z = 0.0 if math.isnan(z) else z
        numbers = [("x", east, number) for number in range(math.ceil(west / step), math.floor(east / step) + 1)]
        first = math.floor(south / step + 0.5) + 1  # not in the corner, where the other axis begins
        numbers += [("y", north, number) for number in range(first, math.floor(north / step) + 1)]
        for axis, end, number in numbers:
            text = f"{number * step:g}" + (" m" if number * step + step > end else "")
            place = (number * step, south - 0.9 * size, z) if axis == "x" else (west - 1.1 * size, number * step, z)
            scene.add_label(f"/labels/{axis}{number}", text, position=place, anchor="center-center", **style)
        ahead = np.array([0.0, 1.0, 0.0])
        at = np.array([east + 1.6 * size, north - 3.2 * size, z + 0.2])
        arrow = {"shaft_radius": 0.16 * size, "head_radius": 0.42 * size, "head_length": 1.1 * size}
        ends = np.array([[at, at + 3.0 * size * ahead]], np.float32)
        scene.add_arrows("/labels/north", ends, colors=(220, 60, 60), **arrow)
        place = tuple(at + 3.9 * size * ahead)
        scene.add_label("/labels/N", "N", position=place, anchor="center-center", **style)

    def _frames(self) -> dict[str, Any]:
        """Axes of map, base_links and sensors."""
        length = 0.45 * self.scale
        axes = {"axes_length": length, "axes_radius": 0.03 * length}
        self.server.scene.add_frame("/frames/map", **{key: 3.0 * value for key, value in axes.items()})
        found = {}
        for look in self.scene.robots:
            found[look.name] = self.server.scene.add_frame(f"/frames/{look.name}", **axes)
            for sensor in self.scene.sensors:
                if sensor.robot == look.name:
                    small = {key: 0.6 * value for key, value in axes.items()}
                    place = tuple(self.scale * each for each in sensor.mount.xyz)
                    path = f"/frames/{look.name}/{sensor.name}"
                    self.server.scene.add_frame(path, position=place, wxyz=wxyz_of(sensor.mount.rpy), **small)
        return found

    def show(self, layer: str, is_shown: bool) -> None:
        handle = self.server.scene.get_handle_by_name(f"/{layer}")
        if handle is not None:
            handle.visible = is_shown

    def home(self, seen: Sequence[Place]) -> tuple[Place, Place]:
        """(position, look at) from where all of these places are seen; without any, the world."""
        places = np.array(seen, float)
        if not len(places):
            west, south, east, north = self.scene.world.extent_m
            places = np.array([(west, south, 0.0), (east, north, 0.0)])
        centre = 0.5 * (places.min(axis=0) + places.max(axis=0))
        spread = float(np.linalg.norm(places - centre, axis=1).max())
        size = max((look.radius_m for look in self.scene.robots), default=1.0)
        distance = 2.1 * spread + 7.0 * self.scale * max(size, 1.0)
        eye = centre + distance * np.array([-0.48, -0.78, 0.48])
        return (float(eye[0]), float(eye[1]), float(eye[2])), (float(centre[0]), float(centre[1]), float(centre[2]))

    # ---- what moves --------------------------------------------------------------------------------------------------

    def draw(self, frame: PageFrame) -> None:
        before = self._frame
        is_new = before is None or frame.epoch != before.epoch or frame.tick < before.tick or frame.is_past
        is_new = is_new or (before is not None and before.is_past)
        seconds = 0.0 if before is None or is_new else (frame.time_ns - before.time_ns) / 1e9
        self._frame = frame
        for topic, news in frame.news.items():
            self.sensors.receive(topic, news)
        with self.server.atomic():
            for name, body in self.bodies.items():
                if name in frame.robots:
                    body.move(frame.robots[name], seconds)
                    if is_new and not frame.is_past:
                        body.forget_after(frame.tick)
                    body.extend([(step.tick, step.robots[name].position) for step in frame.way if name in step.robots])
                    body.draw_trail(frame.tick)
                    axes = self._axes[name]
                    axes.position, axes.wxyz = frame.robots[name].position, wxyz_of(frame.robots[name].rpy)
            self.sensors.draw(frame.robots, is_new)
            if self._radio is not None:
                self._radio.draw(frame, is_new)
            self._draw_waypoints(frame)

    def _draw_waypoints(self, frame: PageFrame) -> None:
        if frame.waypoints == self._waypoints:
            return
        self._waypoints = frame.waypoints
        scene = self.server.scene
        for name in self.bodies:
            points = np.array(frame.waypoints.get(name, ()), np.float32).reshape(-1, 3)
            scene.remove_by_name(f"/waypoints/{name}")
            if not len(points):
                continue
            colour = self.colours[name]
            size = (0.3 if len(points) < 20 else 0.08) * self.scale
            add_points(scene, f"/waypoints/{name}", colour, size, "diamond", points)
            if len(points) > 1:
                add_lines(scene, f"/waypoints/{name}/way", colour, 1.0, np.stack([points[:-1], points[1:]], axis=1))
