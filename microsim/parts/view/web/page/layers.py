"""What sensors and radio report, drawn from messages. A kind of layer exists once, for any sensor that declares it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.engine.geodesy import enu_from_wgs84, tangent_plane
from microsim.engine.geometry import matrix_from_rpy, quaternion_from_rpy
from microsim.messages import decode
from microsim.parts.view.run_state import RobotState, picture
from microsim.parts.view.web.interface import News, PageFrame, PageScene, SensorLook
from microsim.parts.view.web.page.robot_bodies import RobotBody, add_lines, add_points, wxyz_of_matrix

_HIT, _MISS = (255, 64, 64), (255, 150, 150)
_MOST_POINTS = 40_000  # of a point cloud
_FIXES = 15  # fixes that stay
_FIELD_OF_VIEW = 0.9  # [rad] of an image without a CameraInfo
_RING = np.array([(math.cos(turn), math.sin(turn), 0.0) for turn in np.linspace(0.0, math.tau, 49)])
_HEIGHTS = np.array([-2.0, 0.0, 0.6, 1.5, 3.0, 6.0])  # [m]
_HEIGHT_COLOURS = np.array(
    [(70, 40, 160), (50, 110, 230), (30, 200, 200), (90, 220, 90), (250, 200, 40), (250, 70, 50)], float
)


class SensorLayer:
    """Draws the messages of one sensor."""

    root = "/sensors"
    image: Any = None  # the newest, of a layer of images
    stamp_ns = -1  # of that image
    reading: float | None = None  # [m] of a beam; inf: nothing in reach

    def __init__(self, server: Any, look: SensorLook, scene: PageScene, body: RobotBody, scale: float) -> None:
        self.look, self.scene, self.body, self.scale = look, scene, body, scale
        self.name = f"{self.root}/{look.robot}/{look.name}"
        self.build(server.scene)

    def build(self, scene: Any) -> None:
        """Add what it consists of."""

    def receive(self, message: Any, stamp_ns: int) -> None:
        """A new message."""

    def draw(self, robot: RobotState) -> None:
        """In every frame."""

    def forget(self) -> None:
        """Time has jumped."""

    def pose(self, robot: RobotState) -> tuple[Any, Any]:
        """Position and rotation matrix of the sensor in the map frame."""
        body, mount = np.array(matrix_from_rpy(*robot.rpy)), self.look.mount
        return np.array(robot.position) + body @ np.array(mount.xyz), body @ np.array(matrix_from_rpy(*mount.rpy))


class Beam(SensorLayer):
    """The ray of a `sensor_msgs/Range` and where it ends."""

    reach = 0.0

    def build(self, scene: Any) -> None:
        self._line = add_lines(scene, self.name, _HIT, 2.0)
        self._end = scene.add_icosphere(
            f"{self.name}/hit", radius=0.07 * max(self.scale, 1.5), color=_HIT, cast_shadow=False
        )

    def receive(self, message: Any, stamp_ns: int) -> None:
        self.reach = float(message.max_range)
        if not math.isnan(message.range):  # a dropout says nothing
            self.reading = float(message.range)

    def draw(self, robot: RobotState) -> None:
        start, axes = self.pose(robot)
        is_hit = self.reading is not None and math.isfinite(self.reading)
        end = start + axes[:, 0] * (self.reading if is_hit else self.reach)
        self._line.points = np.array([[start, end]], np.float32)
        self._line.colors = np.array([[_HIT, _HIT if is_hit else _MISS]], np.uint8)
        self._end.position = end
        self._end.visible = is_hit


class PointsLayer(SensorLayer):
    """Points in the sensor's frame, which stay where they were measured."""

    size_m, colour = 0.12, (255, 170, 0)
    _local: Any = None  # (n, 3) to be drawn

    def build(self, scene: Any) -> None:
        self._cloud = add_points(scene, self.name, self.colour, self.size_m)

    def draw(self, robot: RobotState) -> None:
        if self._local is None:
            return
        start, axes = self.pose(robot)
        points, self._local = start + self._local @ axes.T, None
        if len(points):
            self._cloud.points = points.astype(np.float32)
            self.paint(points[:, 2] - robot.position[2])
        self._cloud.visible = bool(len(points))

    def paint(self, heights: Any) -> None:
        """Heights [m] of the points above the robot."""


class Fan(PointsLayer):
    """The hits of a `sensor_msgs/LaserScan`."""

    def receive(self, message: Any, stamp_ns: int) -> None:
        ranges = np.asarray(message.ranges, float)
        angles = message.angle_min + np.arange(len(ranges)) * message.angle_increment
        hits = np.isfinite(ranges)
        x, y = ranges[hits] * np.cos(angles[hits]), ranges[hits] * np.sin(angles[hits])
        self._local = np.stack([x, y, np.zeros_like(x)], axis=1)


class PointCloud(PointsLayer):
    """The newest `sensor_msgs/PointCloud2`, coloured by height: violet below, blue at the ground, green, red above."""

    root, size_m, colour = "/points", 0.09, (255, 255, 255)

    def receive(self, message: Any, stamp_ns: int) -> None:
        at = {each.name: each.offset for each in message.fields}
        every = max(1, math.ceil(message.width * message.height / _MOST_POINTS))
        rows = np.asarray(message.data, np.uint8).reshape(-1, message.point_step)[::every]
        axes = [np.ascontiguousarray(rows[:, at[axis] : at[axis] + 4]).view("<f4")[:, 0] for axis in "xyz"]
        self._local = np.stack(axes, axis=1).astype(float)

    def paint(self, heights: Any) -> None:
        parts = [np.interp(heights, _HEIGHTS, _HEIGHT_COLOURS[:, part]) for part in range(3)]
        self._cloud.colors = np.stack(parts, axis=1).astype(np.uint8)


class ImageView(SensorLayer):
    """A frustum with the newest `sensor_msgs/Image` in it, as wide as its CameraInfo says."""

    def build(self, scene: Any) -> None:
        style = {"color": (255, 255, 255), "thickness": 1.5, "thickness_units": "screen", "cast_shadow": False}
        image = {"image": np.full((8, 8, 3), 200, np.uint8), "format": "jpeg", "jpeg_quality": 88}
        size = {"fov": _FIELD_OF_VIEW, "aspect": 1.0, "scale": 1.6 * self.scale}
        self._frustum = scene.add_camera_frustum(self.name, **size, **image, **style)

    def receive(self, message: Any, stamp_ns: int) -> None:
        if hasattr(message, "distortion_model"):  # a CameraInfo
            if message.k[4] > 0.0:
                self._frustum.fov = 2.0 * math.atan(0.5 * message.height / message.k[4])
            return
        self.image, self.stamp_ns = picture(message), stamp_ns
        self._frustum.aspect = message.width / message.height
        self._frustum.image = self.image

    def draw(self, robot: RobotState) -> None:
        self._frustum.position, axes = self.pose(robot)
        self._frustum.wxyz = wxyz_of_matrix(axes)


class Fixes(SensorLayer):
    """The last `sensor_msgs/NavSatFix`es, the newest with a ring of one standard deviation around it."""

    def build(self, scene: Any) -> None:
        self._plane = tangent_plane(*self.scene.origin_wgs84)
        self._points: deque[tuple[float, float, float]] = deque(maxlen=_FIXES)
        self._sigma = (0.0, 0.0, 0.0)
        self._is_new = False
        self._cloud = add_points(scene, f"{self.name}/fixes", self.body.colour, 0.16, "diamond")
        self._doubt = add_lines(scene, f"{self.name}/sigma", self.body.colour, 1.5)
        self._doubt.visible = False

    def receive(self, message: Any, stamp_ns: int) -> None:
        self._points.append(enu_from_wgs84(self._plane, message.latitude, message.longitude, message.altitude))
        sigmas = np.sqrt(np.maximum(np.asarray(message.position_covariance)[[0, 4, 8]], 0.0))
        self._sigma = (float(sigmas[0]), float(sigmas[1]), float(sigmas[2]))
        self._is_new = True

    def forget(self) -> None:
        self._points.clear()

    def draw(self, robot: RobotState) -> None:
        if not self._is_new or not self._points:
            return
        self._is_new = False
        self._cloud.points = np.array(self._points, np.float32)
        self._cloud.visible = self._doubt.visible = True
        ring = np.array(self._points[-1]) + _RING * self._sigma
        self._doubt.points = np.stack([ring[:-1], ring[1:]], axis=1).astype(np.float32)


class PoseAxes(SensorLayer):
    """Axes at the pose that a sensor reports: Odometry, PoseStamped, PoseWithCovarianceStamped, Pose, Pose2D."""

    root = "/poses"

    def build(self, scene: Any) -> None:
        length = 0.6 * self.scale
        self._axes = scene.add_frame(self.name, axes_length=length, axes_radius=0.03 * length, visible=False)

    def receive(self, message: Any, stamp_ns: int) -> None:
        while hasattr(message, "pose"):
            message = message.pose
        if hasattr(message, "theta"):
            z = self._axes.position[2]
            position, quaternion = (message.x, message.y, z), quaternion_from_rpy(0.0, 0.0, message.theta)
        else:
            here, turn = message.position, message.orientation
            position, quaternion = (here.x, here.y, here.z), (turn.x, turn.y, turn.z, turn.w)
        self._axes.position, self._axes.wxyz = position, (quaternion[3], *quaternion[:3])
        self._axes.visible = True


class Joints(SensorLayer):
    """A `sensor_msgs/JointState` moves the joints of the robot's model."""

    def receive(self, message: Any, stamp_ns: int) -> None:
        self.body.joints.update(zip(message.name, map(float, message.position), strict=False))


_LAYERS: dict[str, type[SensorLayer]] = {"beam": Beam, "fan": Fan, "points": PointCloud, "image": ImageView}
_LAYERS |= {"fix": Fixes, "pose": PoseAxes, "joints": Joints}


class SensorLayers:
    """All sensors of a scene that declare a layer."""

    def __init__(self, server: Any, scene: PageScene, bodies: dict[str, RobotBody], scale: float) -> None:
        self.layers = [
            _LAYERS[look.layer](server, look, scene, bodies[look.robot], scale) for look in scene.sensors if look.layer
        ]
        self._by_topic = {
            topic: layer for layer in self.layers for topic in (layer.look.topic, layer.look.info_topic) if topic
        }
        self.problems: dict[str, str] = {}  # topic -> why its messages cannot be drawn

    def receive(self, topic: str, news: News) -> None:
        layer = self._by_topic.get(topic)
        if layer is None or topic in self.problems:
            return
        try:
            layer.receive(decode(news.type, news.cdr), news.stamp_ns)
        except Exception as error:  # a plug-in's message need not be what its layer requires
            self.problems[topic] = (
                f"{topic}: {news.type} cannot be drawn as {layer.look.layer!r}: {type(error).__name__}: {error}"
            )

    def draw(self, robots: Any, is_new: bool) -> None:
        """`is_new`: time has jumped."""
        for layer in self.layers:
            if is_new:
                layer.forget()
            layer.draw(robots[layer.look.robot])


# ---- radio -----------------------------------------------------------------------------------------------------------

_PULSE_S = 0.7  # the real 80 ms could not be seen
_MOST_PULSES = 24
_MOST_LINES = 15  # between robots: those of six
_ARRIVING, _LOST = (0, 214, 143), (255, 59, 48)


@dataclass
class Pulse:
    sender: str
    receiver: str
    is_lost: bool
    began_s: float


class RadioPulses:
    """Radio packets as pulses between robots: delivered ones reach the receiver, lost ones end half-way."""

    def __init__(
        self, server: Any, scale: float, clock: Callable[[PageFrame], float] = lambda frame: time.monotonic()
    ) -> None:
        self._clock = clock
        self._pulses: list[Pulse] = []
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._line = add_lines(server.scene, "/radio/line", (0, 180, 130), 1.0)
        self._cloud = add_points(server.scene, "/radio/packets", _ARRIVING, 0.2 * min(max(scale, 1.0), 2.5))

    def draw(self, frame: PageFrame, is_new: bool) -> None:
        now = self._clock(frame)
        self._add_pulses(frame, now, is_new or frame.is_past)
        self._pulses = [pulse for pulse in self._pulses if now - pulse.began_s < _PULSE_S]
        robots = frame.robots
        pairs = {tuple(sorted((link.sender, link.receiver))) for link in frame.links if link.sent}
        if len(pairs) > _MOST_LINES:  # then only where a packet is in flight
            pairs = {tuple(sorted((pulse.sender, pulse.receiver))) for pulse in self._pulses}
        ends = [[robots[a].position, robots[b].position] for a, b in sorted(pairs) if a in robots and b in robots]
        if ends:
            self._line.points = np.array(ends, np.float32) + np.array([0, 0, 0.2], np.float32)
        self._line.visible = bool(ends)
        self._cloud.visible = bool(self._pulses)
        if not self._pulses:
            return
        points, colours = [], []
        for pulse in self._pulses:
            way = (now - pulse.began_s) / _PULSE_S * (0.5 if pulse.is_lost else 1.0)
            start, end = np.array(robots[pulse.sender].position), np.array(robots[pulse.receiver].position)
            points.append(start + way * (end - start) + (0, 0, 0.2))
            colours.append(_LOST if pulse.is_lost else _ARRIVING)
        self._cloud.points = np.array(points, np.float32)
        self._cloud.colors = np.array(colours, np.uint8)

    def _add_pulses(self, frame: PageFrame, now: float, has_jumped: bool) -> None:
        for link in frame.links:
            key = link.sender, link.receiver
            delivered, lost = self._counts.get(key, (link.delivered, link.lost))
            self._counts[key] = link.delivered, link.lost
            if not has_jumped:
                for more, is_lost in ((link.delivered - delivered, False), (link.lost - lost, True)):
                    self._pulses += [Pulse(*key, is_lost, now)] * min(more, 4)
        del self._pulses[:-_MOST_PULSES]
