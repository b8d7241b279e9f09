"""What sensors see, drawn from their messages: beams, scans, images, fixes."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from microsim.engine.geodesy import enu_from_wgs84, tangent_plane
from microsim.engine.geometry import matrix_from_rpy
from microsim.messages import decode
from microsim.view.web.interface import News, RobotFrame, Scene, SensorLook

_BEAM, _HIT, _MISS = (255, 64, 64), (255, 64, 64), (255, 150, 150)
_MOST_POINTS = 40_000  # of a LiDAR
_FIXES = 15  # GPS fixes that stay


def pose_of(frame: RobotFrame, look: SensorLook) -> tuple[Any, Any]:
    """(position, rotation matrix) of a sensor in the map frame."""
    body = np.array(matrix_from_rpy(*frame.rpy))
    return np.array(frame.position) + body @ np.array(look.mount.xyz), body @ np.array(matrix_from_rpy(*look.mount.rpy))


class RangeBeam:
    def __init__(self, server: Any, look: SensorLook, scale: float) -> None:
        self.look = look
        name = f"/sensors/{look.robot}/{look.name}"
        self._reading = math.nan
        self._line = server.scene.add_line_segments(
            name, np.zeros((1, 2, 3), np.float32), colors=_BEAM, thickness=2.0, thickness_units="screen"
        )
        self._hit = server.scene.add_icosphere(
            f"{name}/hit", radius=0.07 * max(scale, 1.5), color=_HIT, cast_shadow=False
        )

    def hear(self, news: News) -> None:
        reading = float(decode(news.type, news.cdr).range)
        if not math.isnan(reading):  # a dropout says nothing
            self._reading = reading

    def draw(self, frame: RobotFrame) -> None:
        start, axes = pose_of(frame, self.look)
        is_hit = math.isfinite(self._reading)
        length = self._reading if is_hit else self.look.max_m
        end = start + axes[:, 0] * length
        self._line.points = np.array([[start, end]], np.float32)
        self._line.colors = np.array([[_BEAM, _BEAM if is_hit else _MISS]], np.uint8)
        self._hit.position = end
        self._hit.visible = is_hit

    @property
    def facts(self) -> dict[str, Any]:
        return {"range": self._reading if math.isfinite(self._reading) else None, "max": self.look.max_m}


class ScanFan:
    def __init__(self, server: Any, look: SensorLook, scale: float) -> None:
        self.look = look
        self._ranges, self._angles = np.zeros(0), np.zeros(0)
        self._pose: tuple[Any, Any] | None = None
        self._cloud = server.scene.add_point_cloud(
            f"/sensors/{look.robot}/{look.name}",
            np.zeros((1, 3), np.float32),
            colors=(255, 170, 0),
            point_size=0.12,
            point_shape="circle",
            precision="float32",
        )
        self._is_new = False

    def hear(self, news: News) -> None:
        message = decode(news.type, news.cdr)
        self._ranges = np.asarray(message.ranges, float)
        self._angles = message.angle_min + np.arange(len(self._ranges)) * message.angle_increment
        self._is_new = True

    def draw(self, frame: RobotFrame) -> None:
        if not self._is_new:
            return
        self._is_new = False
        start, axes = pose_of(frame, self.look)
        good = np.isfinite(self._ranges)
        angle, length = self._angles[good], self._ranges[good]
        local = np.stack([length * np.cos(angle), length * np.sin(angle), np.zeros_like(length)], axis=1)
        points = (start + local @ axes.T).astype(np.float32)
        if len(points):
            self._cloud.points = points
        self._cloud.visible = bool(len(points))


class LidarCloud:
    """The newest turn of a LiDAR, coloured by height above the robot."""

    def __init__(self, server: Any, look: SensorLook, scale: float) -> None:
        self.look = look
        self._local: Any = None
        self._cloud = server.scene.add_point_cloud(
            f"/lidar/{look.robot}/{look.name}",
            np.zeros((1, 3), np.float32),
            colors=(255, 255, 255),
            point_size=0.09,
            point_shape="circle",
            precision="float32",
            visible=False,
        )

    def hear(self, news: News) -> None:
        message = decode(news.type, news.cdr)
        at = {each.name: each.offset for each in message.fields}
        every = max(1, math.ceil(message.width * message.height / _MOST_POINTS))
        rows = np.asarray(message.data, np.uint8).reshape(-1, message.point_step)[::every]
        axes = [np.ascontiguousarray(rows[:, at[axis] : at[axis] + 4]).view("<f4")[:, 0] for axis in "xyz"]
        self._local = np.stack(axes, axis=1).astype(float)

    def draw(self, frame: RobotFrame) -> None:
        if self._local is None:
            return
        start, axes = pose_of(frame, self.look)
        points = start + self._local @ axes.T
        if len(points):
            self._cloud.points = points.astype(np.float32)
            self._cloud.colors = by_height(points[:, 2] - frame.position[2])
        self._cloud.visible = bool(len(points))
        self._local = None


_HEIGHTS = np.array([-2.0, 0.0, 0.6, 1.5, 3.0, 6.0])  # [m]
_HEIGHT_COLOURS = np.array(
    [(70, 40, 160), (50, 110, 230), (30, 200, 200), (90, 220, 90), (250, 200, 40), (250, 70, 50)], float
)


def by_height(heights: Any) -> Any:
    """(n, 3) colours from violet (below) over blue (the ground) and green to red (above)."""
    parts = [np.interp(heights, _HEIGHTS, _HEIGHT_COLOURS[:, part]) for part in range(3)]
    return np.stack(parts, axis=1).astype(np.uint8)


class CameraView:
    """A frustum with the newest image in it, standing where the camera is."""

    def __init__(self, server: Any, look: SensorLook, scale: float) -> None:
        self.look = look
        width, height = look.size
        self.image: Any = None
        self.stamp_ns = -1
        self._frustum = server.scene.add_camera_frustum(
            f"/sensors/{look.robot}/{look.name}",
            fov=2.0 * math.atan(0.5 * height / look.focal_px[1]),
            aspect=width / height,
            scale=1.6 * scale,
            color=(255, 255, 255),
            image=np.full((height, width, 3), 200, np.uint8),
            format="jpeg",
            jpeg_quality=88,
            thickness=1.5,
            thickness_units="screen",
            cast_shadow=False,
        )

    def hear(self, news: News) -> None:
        message = decode(news.type, news.cdr)
        self.image = np.asarray(message.data, np.uint8).reshape(message.height, message.width, 3)
        self.stamp_ns = news.stamp_ns
        self._frustum.image = self.image

    def draw(self, frame: RobotFrame) -> None:
        from viser.transforms import SO3

        start, axes = pose_of(frame, self.look)
        self._frustum.position = start
        self._frustum.wxyz = SO3.from_matrix(axes).wxyz


class Fixes:
    """The last GPS fixes, the newest with one standard deviation around it."""

    def __init__(self, server: Any, look: SensorLook, plane: Any, colour: tuple[int, int, int]) -> None:
        self.look, self._plane = look, plane
        self._points: deque[tuple[float, float, float]] = deque(maxlen=_FIXES)
        self._sigma = (0.0, 0.0, 0.0)
        self._is_new = False
        name = f"/sensors/{look.robot}/{look.name}"
        self._cloud = server.scene.add_point_cloud(
            f"{name}/fixes",
            np.zeros((1, 3), np.float32),
            colors=colour,
            point_size=0.16,
            point_shape="diamond",
            precision="float32",
            visible=False,
        )
        self._cloud_of_doubt = server.scene.add_icosphere(
            f"{name}/sigma", radius=1.0, color=colour, opacity=0.13, cast_shadow=False, visible=False
        )

    def hear(self, news: News) -> None:
        message = decode(news.type, news.cdr)
        self._points.append(enu_from_wgs84(self._plane, message.latitude, message.longitude, message.altitude))
        covariance = np.sqrt(np.maximum(np.asarray(message.position_covariance)[[0, 4, 8]], 0.0))
        self._sigma = (float(covariance[0]), float(covariance[1]), float(covariance[2]))
        self._is_new = True

    def forget(self) -> None:
        self._points.clear()

    def draw(self, frame: RobotFrame) -> None:
        if not self._is_new or not self._points:
            return
        self._is_new = False
        self._cloud.points = np.array(self._points, np.float32)
        self._cloud.visible = True
        self._cloud_of_doubt.position = self._points[-1]
        self._cloud_of_doubt.scale = tuple(max(each, 0.01) for each in self._sigma)
        self._cloud_of_doubt.visible = True

    @property
    def facts(self) -> dict[str, Any]:
        if not self._points:
            return {}
        x, y, z = self._points[-1]
        return {"gps": [round(x, 1), round(y, 1), round(z, 1)], "gps_sigma": round(self._sigma[0], 2)}


def drawn(server: Any, scene: Scene, colours: dict[str, tuple[int, int, int]], scale: float) -> dict[str, Any]:
    """Topic -> what draws its messages."""
    plane = tangent_plane(*scene.origin_wgs84)
    found: dict[str, Any] = {}
    for look in scene.sensors:
        if look.kind == "gps":
            found[look.topic] = Fixes(server, look, plane, colours[look.robot])
        else:
            kind = {"range": RangeBeam, "scan": ScanFan, "camera": CameraView, "lidar": LidarCloud}[look.kind]
            found[look.topic] = kind(server, look, scale)
    return found
