"""Robots in the scene: their bodies, what turns on them, their names and the ways they came."""

from __future__ import annotations

import math
from collections import deque
from itertools import islice
from typing import Any

import numpy as np

from microsim.engine.geometry import quaternion_from_rpy
from microsim.view.web.interface import RobotFrame, RobotLook
from microsim.view.web.page.meshes import robot_links

COLOURS = ((45, 125, 246), (245, 124, 32), (16, 160, 110), (150, 70, 220), (220, 50, 90), (10, 150, 180), (200, 160, 0))
_TRAIL_POINTS, _TRAIL_M, _TRAIL_S = 1500, 0.12, 90.0
_SPIN_RAD_PER_S = 38.0  # of propellers: slow enough to be seen turning


def wxyz_of(rpy: tuple[float, float, float]) -> tuple[float, float, float, float]:
    x, y, z, w = quaternion_from_rpy(*rpy)
    return w, x, y, z


def spin(axis: Any, angle: float) -> tuple[float, float, float, float]:
    half = math.sin(0.5 * angle)
    return math.cos(0.5 * angle), half * axis[0], half * axis[1], half * axis[2]


class Body:
    """One robot, drawn `scale` times its size."""

    def __init__(self, server: Any, look: RobotLook, number: int, scale: float, shadows: bool, hz: float) -> None:
        self.look = look
        self._hz = hz
        self.colour = COLOURS[number % len(COLOURS)]
        self._server = server
        self._root = server.scene.add_frame(f"/robots/{look.name}", show_axes=False)
        self._turning: list[tuple[Any, Any]] = []
        self._angle = 0.0
        self._paths = {"": f"/robots/{look.name}"}
        for link in robot_links(look.model, self.colour):
            self._add(link, scale, shadows)
        up = (2.2 if look.wheel_radius_m > 0.2 else 0.75 if look.is_ground_bound else 0.45) * scale
        server.scene.add_label(
            f"/robots/{look.name}/name", look.name, position=(0, 0, up), anchor="bottom-center", font_screen_scale=0.9
        )
        self._trail: deque[tuple[int, tuple[float, float, float]]] = deque(maxlen=_TRAIL_POINTS)
        self._line = server.scene.add_line_segments(
            f"/trails/{look.name}",
            np.zeros((1, 2, 3), np.float32),
            colors=self.colour,
            thickness=2.5,
            thickness_units="screen",
        )
        self._drawn = (0, 0)  # first and last tick of the line

    def _add(self, link: Any, scale: float, shadows: bool) -> None:
        path = self._paths[link.name] = f"{self._paths.get(link.parent, self._paths[''])}/{link.name}"
        place = tuple(scale * link.origin[:3, 3])
        turn = _quaternion(link.origin[:3, :3])
        frame = self._server.scene.add_frame(path, show_axes=False, position=place, wxyz=turn)
        for number, ((red, green, blue, alpha), mesh) in enumerate(link.meshes):
            self._server.scene.add_mesh_simple(
                f"{path}/{number}",
                np.asarray(mesh.vertices, np.float32),
                np.asarray(mesh.faces, np.uint32),
                color=(round(255 * red), round(255 * green), round(255 * blue)),
                opacity=alpha if alpha < 1.0 else None,
                flat_shading=True,
                scale=scale,
                cast_shadow=shadows and alpha == 1.0,
            )
        if link.axis is not None:
            self._turning.append((frame, link.axis))

    def move(self, frame: RobotFrame, seconds: float) -> None:
        """`seconds`: simulated time since the last frame; 0 when time has jumped."""
        self._root.position = frame.position
        self._root.wxyz = wxyz_of(frame.rpy)
        self._turn(frame, seconds)

    def forget_after(self, tick: int) -> None:
        """What was to come has not happened."""
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

    def _turn(self, frame: RobotFrame, seconds: float) -> None:
        if not self._turning or seconds <= 0.0:
            return
        if self.look.is_ground_bound:
            yaw = frame.rpy[2]
            ahead = frame.velocity[0] * math.cos(yaw) + frame.velocity[1] * math.sin(yaw)
            self._angle += seconds * ahead / self.look.wheel_radius_m
        elif frame.height > 0.15 or frame.speed > 0.05:
            self._angle += min(seconds, 0.1) * _SPIN_RAD_PER_S
        for node, axis in self._turning:  # wheels of ground robots turn about y, what steers them about z
            is_steering = self.look.is_ground_bound and abs(axis[2]) > 0.5
            node.wxyz = spin(axis, frame.steering if is_steering else self._angle)


def _quaternion(matrix: Any) -> tuple[float, float, float, float]:
    from viser.transforms import SO3

    wxyz = SO3.from_matrix(np.asarray(matrix, float)).wxyz
    return float(wxyz[0]), float(wxyz[1]), float(wxyz[2]), float(wxyz[3])
