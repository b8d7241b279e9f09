"""Robots in the scene: their bodies from URDF or `look`, what moves on them, their names and trails."""

from __future__ import annotations

import io
import math
from collections import deque
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import trimesh

from microsim.engine.geometry import quaternion_from_rpy
from microsim.parts.view.run_state import RobotState
from microsim.parts.view.web.interface import RobotLook
from microsim.paths import data_folder
from microsim.robots.robot import Look

Floats: TypeAlias = npt.NDArray[np.float64]
Rgba: TypeAlias = tuple[float, float, float, float]

_ACCENT: Rgba = (0.123, 0.456, 0.789, 1.0)  # no material has this colour

COLOURS = ((45, 125, 246), (245, 124, 32), (16, 160, 110), (150, 70, 220), (220, 50, 90), (10, 150, 180), (200, 160, 0))
_TRAIL_POINTS, _TRAIL_M, _TRAIL_S = 1500, 0.12, 90.0
_SPIN_RAD_PER_S = 38.0  # of propellers: slow enough to see them turn


def add_points(scene: Any, name: str, colour: Any, size_m: float, shape: str = "circle", points: Any = None) -> Any:
    """A point cloud; without points, one that is hidden until it has some."""
    first = np.zeros((1, 3), np.float32) if points is None else points
    style = {"point_size": size_m, "point_shape": shape, "precision": "float32", "visible": points is not None}
    return scene.add_point_cloud(name, first, colors=colour, **style)


def add_mesh(scene: Any, name: str, vertices: Any, faces: Any, colour: Any, **style: Any) -> None:
    corners, triangles = np.asarray(vertices, np.float32), np.asarray(faces, np.uint32)
    style = {"cast_shadow": False, "receive_shadow": False, "flat_shading": True, **style}
    scene.add_mesh_simple(name, corners, triangles, color=colour, **style)


def add_lines(scene: Any, name: str, colour: Any, width_px: float, ends: Any = None) -> Any:
    """Line segments, (n, 2, 3)."""
    first = np.zeros((1, 2, 3), np.float32) if ends is None else ends
    return scene.add_line_segments(name, first, colors=colour, thickness=width_px, thickness_units="screen")


@cache
def contact_shadow() -> npt.NDArray[np.uint8]:
    """(64, 64, 4) black, darkest in the middle."""
    side = np.linspace(-1.0, 1.0, 64)
    away = np.sqrt(side[:, None] ** 2 + side[None, :] ** 2)
    image = np.zeros((64, 64, 4), np.uint8)
    image[:, :, 3] = 150 * np.clip(1.0 - away, 0.0, 1.0) ** 1.2
    return image


def wxyz_of(rpy: tuple[float, float, float]) -> tuple[float, float, float, float]:
    x, y, z, w = quaternion_from_rpy(*rpy)
    return w, x, y, z


def spin(axis: Any, angle: float) -> tuple[float, float, float, float]:
    half = math.sin(0.5 * angle)
    return math.cos(0.5 * angle), half * axis[0], half * axis[1], half * axis[2]


def wxyz_of_matrix(matrix: Any) -> tuple[float, float, float, float]:
    from viser.transforms import SO3

    wxyz = SO3.from_matrix(np.asarray(matrix, float)).wxyz
    return float(wxyz[0]), float(wxyz[1]), float(wxyz[2]), float(wxyz[3])


# ---- links -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RobotLink:
    """One link of a robot: its visuals, those of one colour in one mesh."""

    name: str
    parent: str  # "": the robot itself
    meshes: tuple[tuple[Rgba, trimesh.Trimesh], ...]
    origin: Floats  # (4, 4) in its parent
    joint: str = ""  # that moves it; "": fixed
    axis: Floats | None = None  # about which it turns
    radius_m: float = 0.0  # of what turns


def robot_links(look: RobotLook, accent: tuple[int, int, int]) -> tuple[RobotLink, ...]:
    """From the robot's URDF, in that colour; without one, its look with a lid in that colour."""
    colour: Rgba = (accent[0] / 255, accent[1] / 255, accent[2] / 255, 1.0)
    is_path = look.urdf.endswith((".urdf", ".xacro"))
    named = Path(look.urdf) if is_path else data_folder() / "urdf" / f"{look.urdf}.urdf.xacro"
    file = named if look.urdf and named.is_file() else None
    return tuple(
        replace(link, meshes=tuple((colour if each == _ACCENT else each, mesh) for each, mesh in link.meshes))
        for link in (_look_links(look.look) if file is None else _urdf_links(file))
    )


def _look_links(look: Look) -> tuple[RobotLink, ...]:
    size, parts = np.array(look.size), []
    for colour, part, lift in (((*look.colour, 1.0), size, 0.0), (_ACCENT, size * (0.6, 0.6, 0.1), 0.55 * size[2])):
        if look.shape == "cylinder":
            mesh = trimesh.creation.cylinder(radius=0.5, height=part[2], sections=24)
            mesh.apply_scale((part[0], part[1], 1.0))
        else:
            mesh = trimesh.creation.box(extents=part)
        mesh.apply_translation(np.array(look.center) + np.array((0.0, 0.0, lift)))
        parts.append((colour, mesh))
    return (RobotLink("base_link", "", tuple(parts), np.eye(4)),)


@cache
def _urdf_links(file: Path) -> tuple[RobotLink, ...]:
    """Where the robot's own colour goes there is `_ACCENT`: the file is read once for all robots of a model."""
    import xacrodoc
    import yourdfpy

    accent = " ".join(map(str, _ACCENT))
    text = xacrodoc.XacroDoc.from_file(str(file), subargs={"accent": accent, "paint": accent}).to_urdf_string()
    urdf = yourdfpy.URDF.load(io.StringIO(text), build_scene_graph=False, load_meshes=False)
    colours = {each.name: each.color for each in urdf.robot.materials if each.color is not None}
    joints = {joint.child: joint for joint in urdf.robot.joints}
    return tuple(_urdf_link(link, joints.get(link.name), colours) for link in urdf.robot.links)


def _urdf_link(link: Any, joint: Any, colours: dict[str, Any]) -> RobotLink:
    parts = [part for visual in link.visuals if (part := _visual(visual, colours)) is not None]
    if joint is None:
        return RobotLink(link.name, "", _by_colour(parts), np.eye(4))
    origin = np.eye(4) if joint.origin is None else joint.origin
    fixed = RobotLink(link.name, joint.parent, _by_colour(parts), origin)
    if joint.type not in ("continuous", "revolute"):
        return fixed
    axis = np.array(joint.axis, float)
    reach = [np.linalg.norm(np.cross(mesh.vertices, axis), axis=1).max() for _, mesh in parts]
    return replace(fixed, joint=joint.name, axis=axis, radius_m=float(max(reach, default=0.0)))


def _by_colour(parts: list[tuple[Rgba, trimesh.Trimesh]]) -> tuple[tuple[Rgba, trimesh.Trimesh], ...]:
    groups: dict[Rgba, list[trimesh.Trimesh]] = {}
    for colour, part in parts:
        groups.setdefault(colour, []).append(part)
    return tuple((colour, trimesh.util.concatenate(group)) for colour, group in groups.items())


def _visual(visual: Any, colours: dict[str, Any]) -> tuple[Rgba, trimesh.Trimesh] | None:
    shape = visual.geometry
    if shape.box is not None:
        part = trimesh.creation.box(extents=shape.box.size)
    elif shape.cylinder is not None:
        part = trimesh.creation.cylinder(radius=shape.cylinder.radius, height=shape.cylinder.length, sections=24)
    elif shape.sphere is not None:
        part = trimesh.creation.icosphere(subdivisions=1, radius=shape.sphere.radius)
    else:
        return None
    if visual.origin is not None:
        part.apply_transform(visual.origin)
    material = visual.material
    colour = material.color if material is not None and material.color is not None else None
    if colour is None and material is not None:
        colour = colours.get(material.name)
    red, green, blue, alpha = (0.7, 0.7, 0.7, 1.0) if colour is None else (float(each) for each in colour.rgba)
    return (red, green, blue, alpha), part


# ---- a robot in the scene --------------------------------------------------------------------------------------------


class RobotBody:
    """One robot, drawn `scale` times its size."""

    def __init__(self, server: Any, look: RobotLook, number: int, scale: float, hz: float) -> None:
        self.look = look
        self._hz = hz
        self.colour = COLOURS[number % len(COLOURS)]
        self._server = server
        self._root = server.scene.add_frame(f"/robots/{look.name}", show_axes=False)
        self.joints: dict[str, float] = {}  # [rad] by name, as far as they are known
        self._turning: list[tuple[Any, RobotLink]] = []
        self._way = self._spin = 0.0  # [m] driven, [rad] turned by propellers
        self._paths = {"": f"/robots/{look.name}"}
        for link in robot_links(look, self.colour):
            self._add(link, scale)
        reach = 3.0 * scale * look.radius_m
        self._shadow = server.scene.add_image(
            f"/shadows/{look.name}", contact_shadow(), reach, reach, cast_shadow=False, receive_shadow=False
        )
        self._scale = scale
        above = (0, 0, (look.top_m + 0.5) * scale)
        server.scene.add_label(
            f"/robots/{look.name}/name", look.name, position=above, anchor="bottom-center", font_screen_scale=0.9
        )
        self._trail: deque[tuple[int, tuple[float, float, float]]] = deque(maxlen=_TRAIL_POINTS)
        self._line = add_lines(server.scene, f"/trails/{look.name}", self.colour, 2.5)
        self._drawn = (0, 0)  # first and last tick of the line

    def _add(self, link: RobotLink, scale: float) -> None:
        path = self._paths[link.name] = f"{self._paths.get(link.parent, self._paths[''])}/{link.name}"
        place = tuple(scale * link.origin[:3, 3])
        turn = wxyz_of_matrix(link.origin[:3, :3])
        frame = self._server.scene.add_frame(path, show_axes=False, position=place, wxyz=turn)
        for number, ((red, green, blue, alpha), mesh) in enumerate(link.meshes):
            colour = (round(255 * red), round(255 * green), round(255 * blue))
            style = {"opacity": alpha if alpha < 1.0 else None, "scale": scale}
            add_mesh(self._server.scene, f"{path}/{number}", mesh.vertices, mesh.faces, colour, **style)
        if link.axis is not None:
            self._turning.append((frame, link))

    def move(self, frame: RobotState, seconds: float) -> None:
        """`seconds`: simulated time since the last frame; 0 when time has jumped."""
        self._root.position = frame.position
        self._root.wxyz = wxyz_of(frame.rpy)
        self._turn(frame, seconds)
        x, y, z = frame.position
        height = frame.height if math.isfinite(frame.height) else 0.0
        tilt = frame.rpy if self.look.is_ground_bound else (0.0, 0.0, frame.rpy[2])
        self._shadow.position = (x, y, z - height + 0.03)
        self._shadow.wxyz = wxyz_of(tilt)
        self._shadow.scale = 1.0 + min(0.08 * max(height, 0.0), 1.5)  # the higher, the wider

    def forget_after(self, tick: int) -> None:
        """Remove the later part of the trail."""
        while self._trail and self._trail[-1][0] > tick:
            self._trail.pop()

    def extend(self, way: list[tuple[int, tuple[float, float, float]]]) -> None:
        """The trail grows by the places between two frames."""
        for tick, (x, y, z) in way:
            lifted = (x, y, z + 0.05)
            is_later = not self._trail or tick > self._trail[-1][0]
            if is_later and (not self._trail or math.dist(self._trail[-1][1], lifted) > _TRAIL_M):
                self._trail.append((tick, lifted))
        while way and self._trail and self._trail[0][0] < way[-1][0] - _TRAIL_S * self._hz:
            self._trail.popleft()

    def draw_trail(self, tick: int) -> None:
        """Up to that tick."""
        if self._trail and self._trail[-1][0] <= tick:
            shown = len(self._trail)
        else:
            shown = sum(each <= tick for each, _ in self._trail)
        extent = (self._trail[0][0], self._trail[shown - 1][0]) if shown > 1 else (0, 0)
        if extent == self._drawn:
            return
        self._drawn = extent
        if shown < 2:
            self._line.points = np.zeros((1, 2, 3), np.float32)
            return
        points = np.array([point for _, point in islice(self._trail, shown)], np.float32)
        self._line.points = np.stack([points[:-1], points[1:]], axis=1)

    def _turn(self, robot: RobotState, seconds: float) -> None:
        if self.look.is_ground_bound:
            yaw = robot.rpy[2]
            self._way += seconds * (robot.velocity[0] * math.cos(yaw) + robot.velocity[1] * math.sin(yaw))
        elif robot.height > 0.15 or robot.speed > 0.05:
            self._spin += min(seconds, 0.1) * _SPIN_RAD_PER_S
        for node, link in self._turning:
            angle = self.joints.get(link.joint)
            node.wxyz = spin(link.axis, self._guessed(link) if angle is None else angle)

    def _guessed(self, link: RobotLink) -> float:
        """[rad] of a joint without messages: wheels roll, propellers turn, other joints do not move."""
        if not self.look.is_ground_bound:
            return self._spin
        is_wheel = link.axis is not None and abs(link.axis[1]) > 0.5 and link.radius_m > 0.0
        return self._way / link.radius_m if is_wheel else 0.0
