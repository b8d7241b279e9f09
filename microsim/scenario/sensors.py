"""The sensors a robot can carry. `SENSORS` names the built-in types; plug-ins add others (see plugins.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    MAX_BEAMS,
    MAX_COLUMNS,
    MAX_ELEVATION,
    MAX_IMAGE_PIXELS,
    MAX_IMAGE_SIDE_PX,
    MAX_RINGS,
    Angle,
    Count,
    Finite,
    Height,
    Hertz,
    Length,
    Milliseconds,
    Model,
    PointXYZ,
    Positive,
    Probability,
    RollPitchYaw,
    Sigma,
    Switch,
    exactly,
    show,
)

PI = 3.141592653589793
Elevation = Annotated[Finite, Field(ge=-MAX_ELEVATION, le=MAX_ELEVATION)]
DEFAULT_FOCAL_PER_WIDTH = 120.0 / 128.0  # the PRD's camera: fx = 120 at 128 pixels


class Mount(Model):
    """Where a sensor sits: its link in the robot's base_link."""

    xyz: PointXYZ = Field((0.0, 0.0, 0.0), description="Position in base_link [m].")
    rpy: RollPitchYaw = Field(
        (0.0, 0.0, 0.0),
        description="Roll, pitch, yaw in base_link [rad]; for a camera, of its optical frame (z along the view).",
    )


class SensorBlock(Model):
    """What every sensor has."""

    enabled: Switch = Field(True, description="false takes the sensor away, as `null` in place of the block does.")
    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")


class MountedSensor(SensorBlock):
    """A sensor with a link of its own."""

    mount: Mount = Field(Mount(), description="Where it sits; the default depends on the robot's model.")


class OdometryDrift(Model):
    """How dead reckoning goes astray."""

    position_per_m: Sigma = Field(
        0.01, description="Error of position after one metre, 1 sigma; it grows with the square root of the way [m/√m]."
    )
    yaw_per_rad: Sigma = Field(
        0.01, description="Error of heading after one radian turned, 1 sigma; grows likewise [rad/√rad]."
    )


class Odometry(SensorBlock):
    """`nav_msgs/Odometry` on `odom`."""

    hz: Hertz = Field(30, description="Rate; at most physics_hz [Hz].")
    drift: OdometryDrift | None = Field(None, description="null: exact; otherwise needs frames.per_robot_odom: true.")


class JointStates(SensorBlock):
    """`sensor_msgs/JointState` on `joint_states`."""

    hz: Hertz = Field(30, description="Rate; at most physics_hz [Hz].")


class Gps(MountedSensor):
    """`sensor_msgs/NavSatFix` on `gps/fix`."""

    hz: Hertz = Field(5, description="Rate; at most physics_hz [Hz].")
    sigma_m: Sigma = Field(2.0, description="White noise of each axis, 1 sigma [m].")
    bias_drift_m_per_s: Sigma = Field(
        0.005,
        description="Slow random walk of the bias: 1 sigma after one second, growing with its square root [m/√s].",
    )


class Imu(MountedSensor):
    """`sensor_msgs/Imu` on `imu/data_raw`."""

    hz: Hertz = Field(60, description="Rate; at most physics_hz [Hz].")
    gyro_sigma_rad_per_s: Sigma = Field(0.002, description="White noise of each rate, 1 sigma [rad/s].")
    accel_sigma_m_per_s2: Sigma = Field(0.02, description="White noise of each acceleration, 1 sigma [m/s²].")


class Resolution(Model):
    """Size of an image."""

    width: Annotated[Count, Field(le=MAX_IMAGE_SIDE_PX)] = Field(128, description="Columns [px].")
    height: Annotated[Count, Field(le=MAX_IMAGE_SIDE_PX)] = Field(128, description="Rows [px].")

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.width * self.height > MAX_IMAGE_PIXELS:
            raise ValueError(f"expected at most {MAX_IMAGE_PIXELS:,} pixels, found {self.width}×{self.height}")
        return self


class Intrinsics(Model):
    """The pinhole: focal lengths and centre, or the horizontal field of view."""

    fx: Positive | None = Field(None, description="Focal length along x [px].")
    fy: Positive | None = Field(None, description="Focal length along y [px]; default: fx.")
    cx: Finite | None = Field(None, description="Column of the optical axis, pixel centres at integers [px].")
    cy: Finite | None = Field(None, description="Row of the optical axis, pixel centres at integers [px].")
    fov_deg: Annotated[Finite, Field(ge=1, le=179)] | None = Field(
        None, description="Horizontal field of view, in place of fx and fy [deg]."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.fov_deg is not None and (self.fx is not None or self.fy is not None):
            raise ValueError("expected either 'fov_deg', or 'fx' and 'fy', found both")
        if self.fx is None and self.fy is not None:
            raise ValueError("expected 'fx' beside 'fy'")
        return self


class Distortion(Model):
    """Lens distortion, as `sensor_msgs/CameraInfo` has it."""

    model: Literal["none", "plumb_bob"] = Field("plumb_bob", description="Distortion model.")
    D: Annotated[tuple[Finite, Finite, Finite, Finite, Finite], exactly(5, "[k1, k2, t1, t2, k3]")] = Field(
        (0.0, 0.0, 0.0, 0.0, 0.0), description="Coefficients k1, k2, t1, t2, k3 of plumb_bob."
    )

    @model_validator(mode="after")
    def _none_means_none(self) -> Self:
        if self.model == "none" and any(self.D):
            raise ValueError(f"model 'none' takes no coefficients, found D: {show(self.D)}; write model: plumb_bob")
        return self


class CameraNoise(Model):
    """Light visual noise."""

    blur_sigma_px: Annotated[Finite, Field(ge=0, le=20)] = Field(0.5, description="Gaussian blur; 0: none [px].")
    color_jitter: Probability = Field(0.0, description="Multiplicative jitter of the colours, 0..1; 0: none.")


class CameraLatency(Model):
    """The time from exposure to publishing."""

    mean: Milliseconds = Field(80.0, description="Mean [ms].")
    jitter: Milliseconds = Field(30.0, description="1 sigma [ms].")
    drop_probability: Probability = Field(0.01, description="Probability that an image is lost.")


class Render(Model):
    """What draws a camera's images; `render: splat` is short for `render: {type: splat}`."""

    type: Literal["plain", "splat"] = Field(
        "plain", description="`plain`: the world in the palette's colours; `splat`: the Gaussians of a world bundle."
    )
    mesh: bool = Field(False, description="Splats: the bundle's static mesh is drawn among them.")
    depth: bool = Field(False, description="Splats: depth images (`32FC1`, metres) on `<sensor>/depth`.")
    segmentation: bool = Field(
        False,
        description="Splats: what is seen by class, in the palette's colours, on `<sensor>/segmentation`.",
    )


class Camera(MountedSensor):
    """`sensor_msgs/Image` on `camera/image_raw` and `sensor_msgs/CameraInfo` on `camera/camera_info`."""

    hz: Hertz = Field(2, description="Rate; at most physics_hz [Hz].")
    resolution: Resolution = Field(Resolution(), description="Size of the image.")
    encoding: Literal["rgb8"] = Field("rgb8", description="Encoding of the image.")
    projection: Literal["pinhole"] = Field("pinhole", description="Projection.")
    intrinsics: Intrinsics = Field(
        Intrinsics(fx=120.0, fy=120.0, cx=64.0, cy=64.0),
        description="The pinhole. What is left out: the field of view of 120 px at 128 px, square pixels, axis at "
        "(width/2, height/2).",
    )
    distortion: Distortion = Field(Distortion(), description="Lens distortion.")
    noise: CameraNoise = Field(CameraNoise(), description="Visual noise.")
    latency_ms: CameraLatency = Field(CameraLatency(), description="Pipeline latency and loss.")
    convention: Literal["opencv", "ros"] | None = Field(
        None,
        description="Axes of its frame: `opencv` (default; x right, y down, z forward) or `ros` as world bundles have "
        "it (x right, y up, z backward); then images are in a further frame `<frame>_optical`.",
    )
    render: Render | None = Field(
        None, description="What draws the image: `plain` (default), or the Gaussians of a world bundle, `splat`."
    )

    @field_validator("render", mode="before")
    @classmethod
    def _render_by_type(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @property
    def is_splat(self) -> bool:
        return self.render is not None and self.render.type == "splat"

    @model_validator(mode="after")
    def _complete_intrinsics(self) -> Self:
        given = self.intrinsics if "intrinsics" in self.model_fields_set else Intrinsics()
        width, height = self.resolution.width, self.resolution.height
        fx = given.fx
        if fx is None and given.fov_deg is None:
            fx = DEFAULT_FOCAL_PER_WIDTH * width
        complete = Intrinsics(
            fx=fx,
            fy=given.fy if given.fy is not None else fx,
            cx=given.cx if given.cx is not None else width / 2,
            cy=given.cy if given.cy is not None else height / 2,
            fov_deg=given.fov_deg,
        )
        self.__dict__["intrinsics"] = complete  # the model is frozen for everyone else
        return self


def _nearest_first(near: float, far: float) -> None:
    if near >= far:
        raise ValueError(f"expected min_m below max_m, found min_m {show(near)} and max_m {show(far)}")


class Range(MountedSensor):
    """`sensor_msgs/Range` on `range/front`: one ray along the x axis of its link."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    min_m: Height = Field(0.2, description="Nearer than this reads -inf [m].")
    max_m: Length = Field(10.0, description="Farther than this reads +inf [m].")
    sigma_m: Sigma = Field(0.05, description="White noise, 1 sigma [m].")
    dropout_probability: Probability = Field(0.0, description="Probability that a reading is NaN.")
    field_of_view_rad: Annotated[Finite, Field(ge=0, le=PI)] = Field(
        0.05, description="Opening angle that the message reports [rad]; the reading is of one ray."
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _nearest_first(self.min_m, self.max_m)
        return self


class Scan(MountedSensor):
    """`sensor_msgs/LaserScan` on `scan`: a fan of rays in the plane of its link."""

    hz: Hertz = Field(10, description="Rate; at most physics_hz [Hz].")
    beams: Annotated[Count, Field(le=100_000)] = Field(360, description="Number of rays.")
    angle_min: Annotated[Angle, Field(ge=-2 * PI, le=2 * PI)] = Field(-PI, description="Direction of the first [rad].")
    angle_max: Annotated[Angle, Field(ge=-2 * PI, le=2 * PI)] = Field(PI, description="Direction of the last [rad].")
    min_m: Height = Field(0.1, description="Nearer than this reads -inf [m].")
    max_m: Length = Field(20.0, description="Farther than this reads +inf [m].")
    sigma_m: Sigma = Field(0.01, description="White noise, 1 sigma [m].")
    dropout_probability: Probability = Field(0.0, description="Probability that a reading is NaN.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _nearest_first(self.min_m, self.max_m)
        if self.angle_min >= self.angle_max:
            raise ValueError(
                f"expected angle_min below angle_max, found {show(self.angle_min)} and {show(self.angle_max)}"
            )
        return self


class Lidar(MountedSensor):
    """`sensor_msgs/PointCloud2` on `lidar/points`: x, y, z, intensity, ring, time of every beam that comes back."""

    hz: Hertz = Field(10, description="Turns per second; at most physics_hz [Hz].")
    rings: Annotated[Count, Field(le=MAX_RINGS)] = Field(16, description="Beams above each other.")
    lowest: Elevation = Field(-0.2617993877991494, description="Elevation of the first ring [rad].")
    highest: Elevation = Field(0.2617993877991494, description="Elevation of the last ring [rad].")
    elevations: tuple[Elevation, ...] | None = Field(
        None,
        min_length=1,
        max_length=MAX_RINGS,
        description="Elevation of each ring [rad], in place of rings, lowest and highest.",
    )
    columns: Annotated[Count, Field(le=MAX_COLUMNS)] = Field(
        360, description="Azimuths of a turn, evenly spaced, the first one forward, counter-clockwise."
    )
    min_m: Height = Field(0.5, description="Nothing nearer comes back [m].")
    max_m: Length = Field(100.0, description="Nothing farther comes back [m].")
    sigma_m: Sigma = Field(0.02, description="White noise of the distance, 1 sigma [m].")
    dropout_probability: Probability = Field(0.0, description="Probability that a beam does not come back.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _nearest_first(self.min_m, self.max_m)
        if self.elevations is None and self.rings > 1 and self.lowest >= self.highest:
            raise ValueError(f"expected lowest below highest, found {show(self.lowest)} and {show(self.highest)}")
        if len(self.ring_elevations()) * self.columns > MAX_BEAMS:
            raise ValueError(f"expected at most {MAX_BEAMS:,} beams a turn, found {self.columns * self.rings:,}")
        return self

    def ring_elevations(self) -> tuple[float, ...]:
        """[rad] of each ring."""
        if self.elevations is not None:
            return self.elevations
        step = (self.highest - self.lowest) / max(self.rings - 1, 1)
        return tuple(self.lowest + step * ring for ring in range(self.rings))


class PluginSensor(MountedSensor):
    """A sensor from a plug-in: `{type: NAME, hz, mount, ...options of the plug-in}`."""

    type: str = Field(description="Name of the plug-in sensor.")
    options: dict[str, Any] = Field({}, description="The plug-in's own keys, checked by the plug-in's model.")

    @field_validator("options")
    @classmethod
    def _own_copy(cls, value: dict[str, Any]) -> dict[str, Any]:
        return dict(value)

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole: dict[str, Any] = handler(self)
        options: Mapping[str, Any] = whole.pop("options")
        return {**whole, **options}


SENSORS: dict[str, type[SensorBlock]] = {
    "odom": Odometry,
    "gps": Gps,
    "imu": Imu,
    "camera": Camera,
    "range": Range,
    "scan": Scan,
    "lidar": Lidar,
}
