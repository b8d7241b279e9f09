"""The three-dimensional part of the page: the world and everything that moves in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from microsim.engine.world import CLASS_NAMES, PALETTE
from microsim.view.web.interface import PageFrame, PageScene
from microsim.view.web.page import world_meshes as meshes
from microsim.view.web.page.layers import RadioPulses, SensorLayers
from microsim.view.web.page.robot_bodies import COLOURS, RobotBody, add_lines, add_points, wxyz_of

# what a page can switch on and off: name -> (shown at first, roots of the scene tree)
LAYERS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "trails": (True, ("/trails",)),
    "sensors": (True, ("/sensors",)),
    "radio": (True, ("/radio",)),
    "waypoints": (True, ("/waypoints",)),
    "labels": (True, ("/scale",)),
    "frames": (False, ("/frames",)),
    "poses": (False, ("/poses",)),
    "points": (True, ("/points",)),
    "drivable": (True, ("/drivable",)),
    "splats": (True, ("/splats",)),
}
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


class Stage3D:
    """Draws frames of one scene."""

    def __init__(
        self, server: Any, scene: PageScene, shadows: bool, scale: float | None = None, is_film: bool = False
    ) -> None:
        """`is_film`: drawn ahead of time, so that everything moves in simulated time."""
        self.server, self.scene = server, scene
        self.scale = robot_scale(scene) if scale is None else scale
        self.colours = {look.name: COLOURS[number % len(COLOURS)] for number, look in enumerate(scene.robots)}
        self._frame: PageFrame | None = None
        self._waypoints: Any = None
        self._world(shadows)
        self._ruler()
        for _, roots in LAYERS.values():
            for root in roots:
                server.scene.add_frame(root, show_axes=False)
        self.bodies = {
            look.name: RobotBody(server, look, number, self.scale, shadows, scene.physics_hz)
            for number, look in enumerate(scene.robots)
        }
        self.sensors = SensorLayers(server, scene, self.bodies, self.scale)
        clock = {"clock": lambda frame: frame.time_ns / 1e9} if is_film else {}
        self._radio = RadioPulses(server, self.scale, **clock) if scene.has_radio else None
        if scene.bundle:
            meshes.draw_bundle(server, scene.bundle, scene.world)
        self.layers = [name for name in LAYERS if self._has(name)]
        self._axes = self._frames()
        for name, (is_shown, _) in LAYERS.items():
            self.show(name, is_shown)

    def _has(self, layer: str) -> bool:
        if layer in ("drivable", "splats"):
            return bool(self.scene.bundle)
        if layer == "radio":
            return self.scene.has_radio
        own = {"points": "points", "poses": "pose"}.get(layer)
        return own is None or any(look.layer == own for look in self.scene.sensors)

    # ---- what does not move ------------------------------------------------------------------------------------------

    def _world(self, shadows: bool) -> None:
        scene, world = self.server.scene, self.scene.world
        west, south, east, north = world.extent_m
        middle, reach = (0.5 * (west + east), 0.5 * (south + north)), max(east - west, north - south)
        scene.configure_default_lights(enabled=False)
        scene.configure_environment_map(None)
        scene.add_light_hemisphere("/light/sky", sky_color=(225, 236, 255), ground_color=(120, 118, 110), intensity=1.6)
        scene.add_light_directional(
            "/light/sun",
            color=(255, 247, 232),
            intensity=2.1,
            position=(middle[0] - 0.6 * reach, middle[1] - 0.8 * reach, 1.2 * reach),
            cast_shadow=shadows,
        )
        scene.add_mesh_trimesh("/world/ground", meshes.ground(world, bool(self.scene.bundle)), cast_shadow=False)
        if world.mesh is not None:
            vertices, triangles = world.mesh.vertices.astype(np.float32), world.mesh.triangles.astype(np.uint32)
            scene.add_mesh_simple(
                "/world/mesh", vertices, triangles, color=(176, 178, 172), flat_shading=True, side="double"
            )
        for class_id, mesh in meshes.shapes(world).items():
            scene.add_mesh_simple(
                f"/world/things/{CLASS_NAMES[class_id]}",
                np.asarray(mesh.vertices, np.float32),
                np.asarray(mesh.faces, np.uint32),
                color=tuple(int(part) for part in PALETTE[class_id]),
                flat_shading=True,
                side="double",
                cast_shadow=shadows,
            )

    def _ruler(self) -> None:
        """Metres along the southern and western edge, and an arrow to the north."""
        scene, world = self.server.scene, self.scene.world
        west, south, east, north = world.extent_m
        step, size = meshes.grid_step(world), max(world.size_m) / 50.0
        scene.add_frame("/scale", show_axes=False)
        style = {"font_size_mode": "scene", "font_scene_height": 0.42 * size, "depth_test": True}
        z = world.ground(west, south)
        z = 0.0 if math.isnan(z) else z
        numbers = [("x", east, number) for number in range(math.ceil(west / step), math.floor(east / step) + 1)]
        first = math.floor(south / step + 0.5) + 1  # not in the corner, where the other axis begins
        numbers += [("y", north, number) for number in range(first, math.floor(north / step) + 1)]
        for axis, end, number in numbers:
            text = f"{number * step:g}" + (" m" if number * step + step > end else "")
            place = (number * step, south - 0.9 * size, z) if axis == "x" else (west - 1.1 * size, number * step, z)
            scene.add_label(f"/scale/{axis}{number}", text, position=place, anchor="center-center", **style)
        ahead = np.array([0.0, 1.0, 0.0])
        at = np.array([east + 1.6 * size, north - 3.2 * size, z + 0.2])
        scene.add_arrows(
            "/scale/north",
            np.array([[at, at + 3.0 * size * ahead]], np.float32),
            colors=(220, 60, 60),
            shaft_radius=0.16 * size,
            head_radius=0.42 * size,
            head_length=1.1 * size,
        )
        north_style = {**style, "font_scene_height": 0.8 * size}
        scene.add_label("/scale/N", "N", position=tuple(at + 3.9 * size * ahead), anchor="center-center", **north_style)

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
        for root in LAYERS[layer][1]:
            handle = self.server.scene.get_handle_by_name(root)
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
        distance = max(1.9 * spread + 7.0 * self.scale, 24.0 if self.scene.bundle else 9.0)
        eye = centre + distance * np.array([-0.48, -0.78, 0.52])
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
