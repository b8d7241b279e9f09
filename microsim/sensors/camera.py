"""Camera (PRD 4.2.2): a pinhole with lens distortion, blur, jitter and a pipeline that delays and loses images.

`render: plain` draws the world in the palette's colours; `render: splat` draws the Gaussians of a world bundle (see
`splat_camera`). The frame is an optical one: x right, y down, z along the view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails
from typing_extensions import Self

from microsim.documents.values import (
    VARIES,
    Chance,
    Finite,
    Hertz,
    Milliseconds,
    Model,
    Probability,
    Switch,
    detail,
    fail,
    show,
)
from microsim.engine import exact
from microsim.engine.geometry import Vector, matrix_from_rpy
from microsim.engine.motion import Motion, Rotation, mounted_at, moved, turned
from microsim.engine.world import END_OF_INSTANCES, FIRST_OBJECT, FIRST_OBSTACLE, FIRST_ROBOT, Shape
from microsim.render.appearance import ImageAppearance
from microsim.render.image_noise import ImageNoise
from microsim.render.palette_camera import CameraModel, Renderer
from microsim.render.palette_frame import FrameTable
from microsim.sensors._camera_lens import Distortion, Intrinsics, Resolution, check_fisheye, lens_model
from microsim.sensors._camera_messages import CHANNELS, FORMS, ON_REQUEST, channels, images_in
from microsim.sensors.sensor import (
    DROPOUT,
    FAIL,
    CameraViews,
    Display,
    Instrument,
    Mount,
    MountedSensor,
    Reader,
    SensorContext,
    View,
)

if TYPE_CHECKING:
    from microsim.engine.world import World
    from microsim.sensors._camera_truth import PaletteTruth

STRIP_ROWS = 16  # of a rolling shutter: as many as a tile of the splats has
Pose: TypeAlias = tuple[Vector, Rotation]
LOOKING_FORWARD = (-exact.PI / 2, 0.0, -exact.PI / 2)
LOOKING_DOWN = (exact.PI, 0.0, -exact.PI / 2)  # the top of the image is the robot's forward


class CameraNoise(Model):
    """Light visual noise."""

    blur_sigma_px: Annotated[Finite, Field(ge=0, le=20)] = Field(0.5, description="Gaussian blur; 0: none [px].")
    color_jitter: Probability = Field(0.0, description="Multiplicative jitter of the colours, 0..1; 0: none.")


class Appearance(Model):
    """Light, weather and lens, on the finished image: the same bytes for the same seed. Depth and classes stay true."""

    exposure_ev: Annotated[Finite, Field(ge=-10, le=10), VARIES] = Field(
        0.0, description="Exposure in stops: levels are multiplied by 2 to this power, and saturate [EV]."
    )
    vignetting: Chance = Field(0.0, description="Share of the light that the lens loses in the farthest corner, 0..1.")
    dusk: Chance = Field(0.0, description="From day, 0, to dusk, 1: darker, bluer, less colour.")
    rain: Chance = Field(0.0, description="From none, 0, to heavy, 1: a grey veil, and streaks drawn by the seed.")


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
    depth: bool = Field(False, description="Depth images (`32FC1`, metres) on `<sensor>/depth`.")
    segmentation: bool = Field(
        False, description="What is seen by class, a colour for each, on `<sensor>/segmentation`."
    )
    instances: bool = Field(
        False, description="The instance in each pixel (`mono16`, listed in /sim/info), on `<sensor>/instances`."
    )
    boxes: bool = Field(False, description="The box around the visible pixels of each instance, on `<sensor>/boxes`.")

    normals: bool = Field(
        False, description="Which way each surface faces (`32FC3`, optical frame), on `<sensor>/normals`."
    )

    @model_serializer(mode="wrap")
    def _without_younger(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """/sim/info of runs without them is older than these keys."""
        return {key: value for key, value in handler(self).items() if key not in ON_REQUEST[2:] or value}


class Camera(MountedSensor):
    """`sensor_msgs/Image` on `camera/image_raw` and `sensor_msgs/CameraInfo` on `camera/camera_info`."""

    hz: Hertz = Field(2, description="Rate; at most physics_hz [Hz].")
    resolution: Resolution = Field(Resolution(), description="Size of the image.")
    encoding: Literal["rgb8"] = Field("rgb8", description="Encoding of the image.")
    projection: Literal["pinhole", "fisheye"] = Field(
        "pinhole",
        description="`fisheye`: Kannala–Brandt, up to 179° across; beyond it images are black (plain: class 0).",
    )
    intrinsics: Intrinsics = Field(
        Intrinsics(fx=120.0, fy=120.0, cx=64.0, cy=64.0),
        description="Focal lengths and axis. What is left out: the field of view of 120 px at 128 px, square pixels, "
        "axis at (width/2, height/2).",
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
    sees_robots: Switch = Field(
        False, description="true: plain images show other robots, as boxes of class 1; splat cameras always do."
    )
    appearance: Appearance | None = Field(
        None, description="Exposure, vignetting, dusk and rain on the image; null: none."
    )
    readout_s: Annotated[Finite, Field(gt=0, le=1)] | None = Field(
        None,
        description="Rolling shutter: time in which the rows are read, top to bottom, one after the other; its middle "
        "is the stamp. At most 1 / hz. null: all rows at once [s].",
    )
    compressed: Literal["png", "jpeg"] | None = Field(
        None,
        description="Images also as `sensor_msgs/CompressedImage` on `<sensor>/image_raw/compressed`. `png`: the same "
        "bytes everywhere; `jpeg`: smaller, bytes depend on the version of Pillow. null: not sent.",
    )

    @model_serializer(mode="wrap")
    def _without_younger(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """/sim/info of runs without them is older than these keys."""
        younger = ("appearance", "readout_s", "compressed")
        return {key: value for key, value in handler(self).items() if key not in younger or value}

    @field_validator("render", mode="before")
    @classmethod
    def _render_by_type(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @property
    def is_splat(self) -> bool:
        return self.render is not None and self.render.type == "splat"

    @property
    def has_instances(self) -> bool:
        return "instances" in channels(self)

    def unfit(self, name: str, others: Mapping[str, Any]) -> list[InitErrorDetails]:
        problems = []
        if self.is_splat and "world" in others and others["world"] is None:
            message = "splats belong to a world bundle: name one with `world:`, or write `render: plain`"
            problems.append(detail(message, "render"))
        if self.has_instances:
            numbered = {"robots": FIRST_OBJECT - FIRST_ROBOT, "obstacles": END_OF_INSTANCES - FIRST_OBSTACLE}
            problems += [
                detail(f"masks of instances tell at most {most} {key} apart, found {len(others[key])}", "render")
                for key, most in numbered.items()
                if len(others.get(key, ())) > most
            ]
        return problems

    @property
    def model(self) -> CameraModel:
        """The lens as the renderers know it."""
        return lens_model(self.resolution, self.intrinsics, self.distortion, self.projection == "fisheye")

    @model_validator(mode="after")
    def _complete_lens(self) -> Self:
        given = self.intrinsics if "intrinsics" in self.model_fields_set else Intrinsics()
        self.__dict__["intrinsics"] = given.completed(self.resolution)  # the model is frozen for everyone else
        self.__dict__["distortion"] = self.distortion.completed(self.projection)
        if self.projection == "fisheye":
            check_fisheye(self.intrinsics, self.model)
        if self.readout_s is not None and self.readout_s * self.hz > 1.0:
            message = f"expected at most 1 / hz, which is {1.0 / self.hz:.4g}, found {show(self.readout_s)}"
            fail([detail(message, "readout_s")])
        return self


def pose_at(motion: Motion, xyz: Vector, rotation: Rotation, delay_s: float) -> Pose:
    """Of a camera fixed to a robot, so much after its stamp."""
    position, turn = mounted_at(motion, xyz), turned(motion, rotation)
    return moved(motion, position, turn, delay_s) if delay_s else (position, turn)


def strips_of(block: Camera) -> list[tuple[int, int, float]]:
    """Rows of the image that are drawn at once, [begin, end), and when they are read after the stamp [s].

    Row v is read (v + 1/2) / height of the readout after its start; a strip is drawn as its middle is.
    """
    height = block.resolution.height
    if block.readout_s is None:
        return [(0, height, 0.0)]
    ends = [(begin, min(begin + STRIP_ROWS, height)) for begin in range(0, height, STRIP_ROWS)]
    return [(begin, end, block.readout_s * (0.5 * (begin + end) / height - 0.5)) for begin, end in ends]


@dataclass(frozen=True)
class MountedCamera:
    """Renders what a camera fixed to a robot sees."""

    strips: tuple[tuple[Renderer, float], ...]  # and when they are read after the stamp [s]
    xyz: Vector
    rotation: Rotation  # optical frame in base_link
    sees_robots: bool

    @property
    def is_plain(self) -> bool:
        """Whether the last image is known to have one colour."""
        first = self.strips[0][0].only_class
        return first >= 0 and all(renderer.only_class == first for renderer, _ in self.strips)

    def poses(self, motion: Motion) -> list[Pose]:
        """Of each strip."""
        return [pose_at(motion, self.xyz, self.rotation, delay_s) for _, delay_s in self.strips]

    def image(self, motion: Motion, bodies: Any) -> Any:
        """bodies (n, 15): the other robots."""
        seen = bodies if self.sees_robots else None
        images = [
            renderer.render(*pose, seen) for (renderer, _), pose in zip(self.strips, self.poses(motion), strict=True)
        ]
        return images[0] if len(images) == 1 else np.vstack(images)


def mounted_camera(context: SensorContext) -> MountedCamera:
    """The renderers are costly to make and independent of the seed: they are kept from reset to reset."""
    block, strips = context.settings, []
    for begin, end, delay_s in strips_of(block):
        model = replace(block.model, height=end - begin, cy=block.model.cy - begin)
        key = (f"{context.robot}/{context.sensor}", model)
        if key not in context.shared:
            context.shared[key] = Renderer(context.world, model)
        strips.append((context.shared[key], delay_s))
    return MountedCamera(tuple(strips), block.mount.xyz, matrix_from_rpy(*block.mount.rpy), block.sees_robots)


@dataclass(frozen=True)
class PaletteCamera:
    camera: MountedCamera
    noise: ImageNoise
    kinds: Sequence[str] = ("image",)
    truth: PaletteTruth | None = None

    @property
    def sees_robots(self) -> bool:
        return self.camera.sees_robots

    def show_obstacles(self, obstacles: Sequence[Shape]) -> None:
        """From now on, of a world that differs from its own in its obstacles."""
        for renderer, _ in self.camera.strips:
            renderer.show(obstacles)
        if self.truth is not None:
            self.truth.show_obstacles(obstacles)

    def compiled(self) -> FrameTable | None:
        blur, camera = self.noise.blur_only, self.camera
        if blur is None or self.truth is not None or camera.sees_robots or len(camera.strips) > 1:
            return None
        return camera.strips[0][0].frame_table(blur, camera.xyz, camera.rotation)

    def read(self, view: View) -> npt.NDArray[np.uint8]:
        drawn = self.camera.image(view.motion, view.bodies)
        image: npt.NDArray[np.uint8] = self.noise.apply(drawn, view.key, view.tick, self.camera.is_plain)
        if self.truth is None:
            return image
        from microsim.render.robot_models import boxes_as_parts
        from microsim.sensors._camera_truth import side_by_side

        labels = self.truth.labels(self.camera.poses(view.motion), boxes_as_parts(view.bodies))
        return side_by_side(self.kinds, image, labels.depths.astype(np.float32), labels)


def appearance_of(context: SensorContext) -> ImageAppearance | None:
    block, lens = context.settings, context.settings.model
    key = (block.appearance, lens)
    if block.appearance is not None and key not in context.shared:
        size, centre = (lens.width, lens.height), (lens.cx, lens.cy)
        blind = np.isnan(lens.rays()[0]) if lens.is_fisheye and block.is_splat else None
        context.shared[key] = ImageAppearance(size, centre, blind, **block.appearance.model_dump())
    return context.shared.get(key)


def image_noise(context: SensorContext) -> ImageNoise:
    size, noise = context.settings.resolution, context.settings.noise
    return ImageNoise(size.width, size.height, noise.blur_sigma_px, noise.color_jitter, appearance_of(context))


def _instrument(context: SensorContext) -> Reader:
    if context.settings.is_splat:
        from microsim.sensors._splat_camera import splat_instrument

        return splat_instrument(context)
    camera, kinds, truth = mounted_camera(context), channels(context.settings), None
    if len(kinds) > 1:
        from microsim.sensors._camera_truth import palette_truth  # most cameras have no need of it

        truth = palette_truth(context, [renderer.model for renderer, _ in camera.strips])
    return PaletteCamera(camera, image_noise(context), kinds, truth)


def image_now(context: SensorContext, tick: int) -> npt.NDArray[np.uint8]:
    """What a camera sees now, before blur and jitter."""
    if context.settings.is_splat:
        from microsim.sensors._splat_camera import picture_now

        image: npt.NDArray[np.uint8] = picture_now(context, tick)
    else:
        image = mounted_camera(context).image(context.motion, context.bodies())
    appearance = appearance_of(context)
    return image if appearance is None else appearance.apply(image, context.key, tick)


def _is_plain(block: Camera, world: World, has_others: bool) -> bool:
    """Whether an image shows ground, obstacles and features alone, all at one time."""
    is_bare = world.mesh is None and not (block.sees_robots and has_others)
    has_effects = block.appearance is not None or block.readout_s is not None or channels(block) != ["image"]
    return is_bare and not (block.is_splat or has_effects)


def _shape(context: SensorContext) -> tuple[int, int, int]:
    size = context.settings.resolution
    return size.height, size.width, sum(CHANNELS[kind] for kind in channels(context.settings))


SENSOR = Instrument(
    "camera",
    Camera,
    _instrument,
    title="Camera",
    about="colour images",
    shape=_shape,
    dtype=np.uint8,
    mount=Mount(rpy=LOOKING_FORWARD),
    messages=FORMS,
    faults=(DROPOUT, FAIL),
    display=Display("{width}×{height}  seen {age:.2f} s ago", layer="image", order=40),
    camera=CameraViews(image_now, images_in, _is_plain),
    not_in_batch=lambda settings, has_others: (
        "the camera {target} draws splats, in a batch only without other robots: write `render: plain`"
        if settings.is_splat and has_others
        else ""
    ),
    parameters={
        **{key: key for key in ("enabled", "hz")},
        **{key: f"resolution.{key}" for key in ("width", "height")},
        **{key: key for key in ("encoding", "projection")},
        **{f"intrinsics.{number}": f"intrinsics.{number}" for number in ("fx", "fy", "cx", "cy")},
        **{key: key for key in ("distortion.model", "distortion.D", "noise.blur_sigma_px", "noise.color_jitter")},
        "latency_ms_mean": "latency_ms.mean",
        "latency_ms_jitter": "latency_ms.jitter",
        "drop_probability": "latency_ms.drop_probability",
    },
    position=50,
)  # fmt: skip
