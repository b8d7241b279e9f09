"""What a world bundle consists of, once loaded: frozen, read-only, large arrays mapped from their files.

Map frame: x east, y north, z up [m]. Quaternions are [x, y, z, w]. Angles in radians, whatever the files say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from microsim.engine.drivable import DrivableArea
    from microsim.errors import Problem

Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Int32: TypeAlias = npt.NDArray[np.int32]

Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]  # x, y, z, w


@dataclass(frozen=True)
class Heightmap:
    """Ground heights at cell centres: cell (row j, column i) is at x = west + (i + 0.5)·resolution_m, likewise y."""

    values: Float32  # (ny, nx) [m], row 0 in the south, mapped read-only; NaN: no ground there
    resolution_m: float  # edge of a square cell
    west: float  # x of the western edge of column 0 [m]
    south: float  # y of the southern edge of row 0 [m]

    @property
    def size_m(self) -> tuple[float, float]:
        rows, columns = self.values.shape
        return columns * self.resolution_m, rows * self.resolution_m


@dataclass(frozen=True)
class Mesh:
    """Triangles that stand in the world and do not move."""

    vertices: Float64  # (n, 3) [m] map frame
    triangles: Int32  # (m, 3) rows of vertices


@dataclass(frozen=True)
class RenderConfig:
    """How the Gaussians are to be drawn."""

    sh_degree: int  # 0..3
    background_rgb: Vector = (0.0, 0.0, 0.0)  # in 0..1, where no Gaussian is; with a sky, the colour of its horizon
    near_plane_m: float = 0.2
    sky_rgb: Vector | None = None  # in 0..1, the sky at its zenith; None: one colour everywhere
    exposure_ev: float = 0.0  # every colour times 2 to this
    gain_sigma: float = 0.0  # standard deviation of a frame's brightness, as a share of it
    noise_sigma: float = 0.0  # of every colour of every pixel, in steps of 8 bits


@dataclass(frozen=True)
class Gaussians:
    """Splats as they stand in the file: log scale, logit opacity, rotation [x, y, z, w], SH coefficients."""

    values: Float32  # (n, 14 + rest) mapped read-only; columns as in `columns`; may be unaligned in foreign files
    columns: tuple[str, ...]  # x y z scale_0..2 rot_0..3 opacity f_dc_0..2 f_rest_0..
    render: RenderConfig

    @property
    def sh_degree(self) -> int:
        return self.render.sh_degree

    @property
    def count(self) -> int:
        return int(self.values.shape[0])

    def column(self, first: str, count: int = 1) -> Float32:
        """`count` columns beginning with the one of that name, shape (n, count), without copying."""
        start = self.columns.index(first)
        return self.values[:, start : start + count]


@dataclass(frozen=True)
class Extrinsics:
    """Where a sensor sits on the car, in base_link."""

    xyz: Vector = (0.0, 0.0, 0.0)  # [m]
    quat: Quaternion = (0.0, 0.0, 0.0, 1.0)  # x, y, z, w: from the sensor's axes to those of base_link


@dataclass(frozen=True)
class CameraCalibration:
    """One camera: frame `camera_<id>`, topics `/ego/camera_<id>/…`."""

    id: str
    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    distortion: tuple[float, ...]  # plumb_bob k1 k2 p1 p2 k3; all 0 or empty: none
    convention: str  # "opencv": x right, y down, z forward; "ros": x right, y up, z backward
    rate_hz: float
    extrinsics: Extrinsics

    @property
    def xyz(self) -> Vector:
        return self.extrinsics.xyz

    @property
    def quat(self) -> Quaternion:
        """From the axes of the convention to base_link: what TF says about the frame."""
        return self.extrinsics.quat

    @property
    def optical_quat(self) -> Quaternion:
        """From x right, y down, z forward to base_link, whatever the convention: what a renderer wants."""
        x, y, z, w = self.quat
        if self.convention == "opencv":
            return self.quat
        return (w, z, -y, -x)  # q · (half a turn about x)


@dataclass(frozen=True)
class LidarCalibration:
    """One LiDAR: frame `lidar_<id>` (x forward, y left, z up), topic `/ego/lidar_<id>/points`."""

    id: str
    elevations: tuple[float, ...]  # [rad] above the sensor's horizon, ring 0 first
    columns: int  # azimuths of one turn, evenly spaced, the first one straight ahead, counter-clockwise
    rate_hz: float
    range_min_m: float
    range_max_m: float
    range_sigma_m: float
    dropout_probability: float
    extrinsics: Extrinsics

    @property
    def xyz(self) -> Vector:
        return self.extrinsics.xyz

    @property
    def quat(self) -> Quaternion:
        return self.extrinsics.quat


@dataclass(frozen=True)
class Timebase:
    """Of the simulation in this world."""

    physics_hz: float | int = 100
    control_timeout_s: float = 1.0
    emergency_brake_m_per_s2: float = 3.0


@dataclass(frozen=True)
class Vehicle:
    """The ego car; base_link is the middle of its rear axle, on the ground."""

    wheelbase_m: float = 2.7
    track_m: float = 1.6
    wheel_radius_m: float = 0.33
    length_m: float = 4.5
    width_m: float = 1.8
    height_m: float = 1.5
    rear_overhang_m: float = 0.9
    max_steer: float = 0.6  # [rad]
    max_steer_rate: float = 1.0  # [rad/s]
    max_speed_m_per_s: float = 20.0
    max_reverse_m_per_s: float = 5.0
    max_acceleration_m_per_s2: float = 3.0
    max_brake_m_per_s2: float = 8.0


@dataclass(frozen=True)
class StartPose:
    """Where the ego car begins, in the map frame; its height is the ground's."""

    x: float = 0.0
    y: float = 0.0
    yaw: float = 0.0  # [rad] from east, counter-clockwise


@dataclass(frozen=True)
class Bundle:
    """A world, complete and checked."""

    name: str
    root: Path
    description: str
    origin_wgs84: Vector  # latitude [deg], longitude [deg], altitude [m] of the map frame's origin
    heightmap: Heightmap
    drivable: DrivableArea
    mesh: Mesh | None
    gaussians: Gaussians
    cameras: dict[str, CameraCalibration]  # by id, in the order of the file
    lidars: dict[str, LidarCalibration]  # by id, in the order of the file
    timebase: Timebase
    vehicle: Vehicle | None
    start: StartPose | None
    files: dict[str, Path] = field(default_factory=dict)  # every file that belongs to it, by its name in world.yaml
    warnings: tuple[Problem, ...] = ()
