"""Cameras that show the Gaussians of a world bundle, with what is simulated among them.

A GPU that fails in the middle of a run is replaced by the CPU, whose pictures are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.geometry import Array, Vector, matrix_from_rpy
from microsim.engine.motion import Motion, Rotation, mounted_at, turned
from microsim.engine.noise import normals
from microsim.engine.timekeeper import Trigger
from microsim.engine.world import Shape
from microsim.render.image_noise import ImageNoise
from microsim.render.palette_camera import CameraModel
from microsim.render.palette_camera import Renderer as PlainRenderer
from microsim.render.relief import Ground, ground_of
from microsim.render.renderer_choice import open_renderer, render_request, report
from microsim.render.segmentation import MESH, Labels
from microsim.render.splat.activation import Splats, activate
from microsim.render.splat.picture import (
    CpuRenderer,
    Exposure,
    Lens,
    Picture,
    Shadows,
    Shot,
    Sky,
    SplatActor,
    SplatRenderer,
    Things,
    lens_of,
    strip_of,
)
from microsim.sensors._camera_messages import channels
from microsim.sensors._camera_truth import SplatTruth, side_by_side, splat_truth
from microsim.sensors.camera import Pose, image_noise, pose_at, strips_of
from microsim.sensors.sensor import SensorContext, View
from microsim.threads import Threads

Bytes: TypeAlias = npt.NDArray[np.uint8]

_LN_2 = 0.6931471805599453
MOST_PIXELS = 1 << 22  # of images that batches draw in one call: they take about 30 bytes each on a GPU
_UNTURNED: Rotation = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)

_newest: list[Any] = []  # the last bundle's splats: large, and the same for every simulation in that world


def splats_of(world: Any, gaussians: Any) -> Splats:
    """world: what tells bundles apart."""
    if _newest[:1] != [world]:
        _newest[:] = [world, activate(gaussians.values, gaussians.sh_degree)]
    found: Splats = _newest[1]
    return found


class SplatScene:
    """A simulation's splats and what draws them, kept from reset to reset. Cameras due at a tick are drawn at once."""

    def __init__(self, world: Any, gaussians: Any) -> None:
        self.splats = splats_of(world, gaussians)
        self.settings = gaussians.render
        self.renderer: SplatRenderer = open_renderer(
            self.splats, render_request.choice, render_request.threads, render_request.say
        )
        self.workers = Threads(render_request.threads)
        self.cameras: list[SplatCamera] = []
        self._drawn: tuple[int, dict[str, Picture]] = (-1, {})

    def picture(self, camera: SplatCamera, tick: int) -> Picture:
        if self._drawn[0] != tick or camera.name not in self._drawn[1]:
            due = [each for each in self.cameras if each is camera or each.is_due(tick)]
            pictures = iter(self.pictures([shot for each in due for shot in each.shots(tick)]))
            self._drawn = tick, {each.name: each.assembled(list(islice(pictures, len(each.strips)))) for each in due}
        return self._drawn[1].pop(camera.name)

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        try:
            return self.renderer.pictures(shots)
        except Exception as error:  # CuPy's and the driver's errors have no common class
            if isinstance(self.renderer, CpuRenderer):
                raise
            text = f"the GPU failed ({type(error).__name__}: {error}): splats are drawn on the CPU from now on"
            report(text, render_request.say)
            self.renderer = CpuRenderer(self.splats, self.workers)
            return self.renderer.pictures(shots)

    def images_on_gpu(self, shots: Sequence[Shot]) -> list[Any] | None:
        """None where no GPU draws; one that fails is reported by `pictures`, which then draws them."""
        if isinstance(self.renderer, CpuRenderer):
            return None
        gpu: Any = self.renderer
        try:
            found: list[Any] = gpu.images(shots)
        except Exception:  # CuPy's and the driver's errors have no common class
            return None
        return found


def scene_of(context: SensorContext) -> SplatScene:
    key, bundle = ("splats", context.bundle_key), context.bundle
    assert bundle is not None, "splat cameras without a world bundle are refused with the scenario"
    if key not in context.shared:
        context.shared[key] = SplatScene(context.bundle_key, bundle().gaussians)
    scene: SplatScene = context.shared[key]
    return scene


@dataclass
class SplatStrip:
    """Rows of a camera's image that are read at one time: all of them, unless it has a rolling shutter."""

    lens: Lens
    things: PlainRenderer  # of what stands in the world, on the lens's canvas
    delay_s: float  # after the stamp
    model: CameraModel
    ground: Ground
    _rays: Array | None = None  # of the model, once they are needed

    @property
    def rays(self) -> Array:
        if self._rays is None:
            self._rays = self.model.rays()
        return self._rays

    def shadows(self, bodies: Array) -> Shadows | None:
        return Shadows(bodies, self.rays, self.ground) if bodies.shape[0] else None

    def things_at(self, pose: Pose, parts: Array) -> Things | None:
        if self.things.is_bare and not parts.shape[0]:
            return self.lens.no_things
        return self.lens.things(*self.things.things(*pose, parts))


@dataclass
class SplatCamera:
    """A camera fixed to a robot, and all it needs to be drawn at a tick."""

    name: str
    scene: SplatScene
    strips: list[SplatStrip]
    xyz: Vector
    rotation: tuple[Vector, Vector, Vector]  # optical frame in base_link
    motion: Callable[[], Motion]
    bodies: Callable[[], Array]  # of the other robots
    parts: Callable[[], Array]  # of their models
    trigger: Trigger
    truth: SplatTruth | None = None
    key: int = 0
    actors: Callable[[], tuple[SplatActor, ...]] = tuple
    has_depths: bool = True  # someone looks at them
    casting: Sequence[int] | None = None  # which of the bodies cast shadows; None: all

    def is_due(self, tick: int) -> bool:
        return self.trigger.next_tick(tick) == tick

    def poses(self) -> list[Pose]:
        """Of each strip."""
        return [pose_at(self.motion(), self.xyz, self.rotation, strip.delay_s) for strip in self.strips]

    def shots(self, tick: int) -> list[Shot]:
        settings, parts, exposure = self.scene.settings, self.parts(), self._exposure(tick)
        actors, bodies, near_m = self.actors(), self._casting(), settings.near_plane_m
        sky = Sky(settings.background_rgb, settings.sky_rgb or settings.background_rgb, settings.ground_rgb)

        def shot(strip: SplatStrip, pose: Pose) -> Shot:
            things = strip.things_at(pose, parts)
            shadows = strip.shadows(bodies)
            return Shot(strip.lens, *pose, sky, exposure, things, near_m, actors, shadows, self.has_depths)

        return list(map(shot, self.strips, self.poses()))

    def _casting(self) -> Array:
        """The bodies that cast shadows."""
        return self.bodies() if self.casting is None else self.bodies()[self.casting]

    def _exposure(self, tick: int) -> Exposure:
        settings = self.scene.settings
        gain = exact.exp(_LN_2 * settings.exposure_ev) if settings.exposure_ev else 1.0
        if settings.gain_sigma:
            gain *= max(1.0 + settings.gain_sigma * normals(self.key, tick, 1 << 31)[0], 0.0)
        return Exposure(gain, settings.noise_sigma, self.key, tick)

    def assembled(self, pictures: Sequence[Picture]) -> Picture:
        """The strips' pictures as one."""
        if len(pictures) == 1:
            return pictures[0]
        images = zip(*((each.colours, each.depths, each.owners) for each in pictures), strict=True)
        return Picture(*map(np.vstack, images))

    def labels(self, picture: Picture) -> Labels | None:
        """What is seen by class and instance, where that is wanted."""
        if self.truth is None:
            return None
        return self.truth.labels(self.poses(), self.parts(), self._in_strips(picture))

    def _in_strips(self, picture: Picture) -> list[Picture]:
        parts, top = [], 0
        for strip in self.strips:
            rows, top = slice(top, top + strip.model.height), top + strip.model.height
            parts.append(Picture(picture.colours[rows], picture.depths[rows], picture.owners[rows]))
        return parts


def _kept(context: SensorContext, what: str, model: CameraModel, make: Callable[[], Any]) -> Any:
    """What is costly to make and independent of the seed."""
    key = f"{context.robot}/{context.sensor}/{what}", model
    if key not in context.shared:
        context.shared[key] = make()
    return context.shared[key]


def _strips(context: SensorContext) -> list[SplatStrip]:
    block, world = context.settings, context.world
    whole, strips = lens_of(block.model), []
    for begin, end, delay_s in strips_of(block):
        lens = whole if end - begin == block.resolution.height else strip_of(whole, begin, end)
        model = replace(block.model, height=end - begin, cy=block.model.cy - begin)
        things = _kept(
            context,
            "things",
            lens.canvas,
            partial(PlainRenderer, world, lens.canvas, has_mesh=block.render.mesh, mesh_class=MESH),
        )
        strips.append(SplatStrip(lens, things, delay_s, model, world.derived(ground_of)))
    return strips


def _actors(context: SensorContext) -> Callable[[], tuple[SplatActor, ...]]:
    """The other robots that are splats, where they are when it is called."""
    own = context.splats_of_others
    for each in own.values():
        if ("splats", each.key) not in context.shared:
            context.shared["splats", each.key] = activate(*each.read())
    known = {name: (context.shared["splats", each.key], each.origin) for name, each in own.items()}

    def now() -> tuple[SplatActor, ...]:
        if not known:  # so it is in batches
            return ()
        assert context.worlds is not None
        places = ((*each, context.worlds.motions[name]) for name, each in known.items())
        return tuple(SplatActor(it, mounted_at(at, origin), turned(at, _UNTURNED)) for it, origin, at in places)

    return now


def splat_camera(context: SensorContext) -> SplatCamera:
    shadowless = [name for name, each in context.splats_of_others.items() if not each.has_shadow]
    block, scene, strips = context.settings, scene_of(context), _strips(context)
    is_labelled = {"segmentation", "instances", "normals"} & {*channels(block)}
    camera = SplatCamera(
        name=f"{context.robot}/{context.sensor}",
        scene=scene,
        strips=strips,
        truth=splat_truth(context, [(strip.model, strip.lens, strip.things) for strip in strips])
        if is_labelled
        else None,
        xyz=block.mount.xyz,
        rotation=matrix_from_rpy(*block.mount.rpy),
        motion=lambda: context.motion,
        bodies=context.bodies,
        parts=context.parts,
        trigger=Trigger(block.hz, context.clock.rate),
        key=context.key,
        actors=_actors(context),
        has_depths=bool({*channels(block)} - {"image"}),
        casting=[k for k, (name, _) in enumerate(context.others) if name not in shadowless] if shadowless else None,
    )
    scene.cameras = [each for each in scene.cameras if each.name != camera.name] + [camera]
    return camera


@dataclass(frozen=True)
class AimedCamera:
    """A camera in one world, with all that its image needs."""

    camera: SplatCamera
    tick: int
    shots: Sequence[Shot]


@dataclass
class SplatInstrument:
    """All images of a tick, side by side in each pixel: what is kept for a failure is one array."""

    camera: SplatCamera
    kinds: Sequence[str]
    noise: ImageNoise
    is_batched: bool = False  # one of many worlds, each seen from its own `View`
    may_break: bool = True  # a GPU can be lost

    def read(self, view: View) -> Bytes:
        if self.is_batched:
            return self.draw([self.aim(view)])[0]
        return self._reading(self.camera, view.tick, self.camera.scene.picture(self.camera, view.tick))

    def _reading(self, camera: SplatCamera, tick: int, picture: Picture) -> Bytes:
        image = self.noise.apply(picture.colours, camera.key, tick)
        return side_by_side(self.kinds, image, picture.depths, camera.labels(picture))

    def show_obstacles(self, obstacles: Sequence[Shape]) -> None:
        """From now on, of a world that differs from its own in its obstacles."""
        for strip in self.camera.strips:
            strip.things.show(obstacles)

    # ---- of many worlds in one call: each is aimed at with its obstacles, then all are drawn -------------------------

    @property
    def at_once(self) -> int:
        """How many images may be drawn in one call: one where labels need the obstacles of its world."""
        if self.camera.truth is not None:
            return 1
        sizes = [strip.lens.canvas for strip in self.camera.strips]
        return max(MOST_PIXELS // sum(size.width * size.height for size in sizes), 1)

    def aim(self, view: View) -> AimedCamera:
        camera = replace(self.camera, motion=lambda: view.motion, key=view.key)
        return AimedCamera(camera, view.tick, camera.shots(view.tick))

    def draw(self, aimed: Sequence[AimedCamera], may_stay: bool = False) -> Sequence[Any]:
        """`may_stay`: images that the GPU has finished may stay in its memory."""
        shots = [shot for each in aimed for shot in each.shots]
        if may_stay and len(shots) == len(aimed) and self.noise.is_none and list(self.kinds) == ["image"]:
            images = self.camera.scene.images_on_gpu(shots)
            if images is not None:
                return images
        pictures = iter(self.camera.scene.pictures(shots))
        return [
            self._reading(each.camera, each.tick, each.camera.assembled(list(islice(pictures, len(each.shots)))))
            for each in aimed
        ]


def splat_instrument(context: SensorContext) -> SplatInstrument:
    camera, noise = splat_camera(context), image_noise(context)
    return SplatInstrument(camera, channels(context.settings), noise, is_batched=context.worlds is None)


def picture_now(context: SensorContext, tick: int) -> Bytes:
    """What a camera sees at this tick, before noise."""
    scene = scene_of(context)
    camera = next(each for each in scene.cameras if each.name == f"{context.robot}/{context.sensor}")
    shots = [replace(shot, exposure=replace(shot.exposure, noise_sigma=0.0)) for shot in camera.shots(tick)]
    return camera.assembled(scene.pictures(shots)).colours
