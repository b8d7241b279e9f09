"""Cameras that show the Gaussians of a world bundle, with what is simulated among them.

A GPU that fails in the middle of a run is replaced by the CPU, whose pictures are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.geometry import Array, Vector, matrix_from_rpy
from microsim.engine.motion import Motion, mounted_at, turned
from microsim.engine.noise import normals
from microsim.engine.timekeeper import Trigger
from microsim.render.image_noise import ImageNoise
from microsim.render.palette_camera import CameraModel
from microsim.render.palette_camera import Renderer as PlainRenderer
from microsim.render.render_options import render_request
from microsim.render.renderer_choice import open_renderer
from microsim.render.robot_models import shade
from microsim.render.segmentation import Segmenter
from microsim.render.splat.activation import Splats, activate
from microsim.render.splat.picture import (
    CpuRenderer,
    Exposure,
    Lens,
    Picture,
    Shot,
    Sky,
    SplatRenderer,
    Things,
    lens_of,
)
from microsim.render.splat.rasteriser import Threads, available
from microsim.sensors.camera import image_noise
from microsim.sensors.sensor import SensorContext, View

Bytes: TypeAlias = npt.NDArray[np.uint8]

_LN_2 = 0.6931471805599453

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
        self.cameras: list[SplatCamera] = []
        self._drawn: tuple[int, dict[str, Picture]] = (-1, {})

    def picture(self, camera: SplatCamera, tick: int) -> Picture:
        if self._drawn[0] != tick or camera.name not in self._drawn[1]:
            due = [each for each in self.cameras if each is camera or each.is_due(tick)]
            pictures = self.pictures([each.shot(tick) for each in due])
            self._drawn = tick, {each.name: each.shaded(picture) for each, picture in zip(due, pictures, strict=True)}
        return self._drawn[1].pop(camera.name)

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        try:
            return self.renderer.pictures(shots)
        except Exception as error:  # CuPy's and the driver's errors have no common class
            if isinstance(self.renderer, CpuRenderer):
                raise
            render_request.say(
                f"the GPU failed ({type(error).__name__}: {error}): splats are drawn on the CPU from now on"
            )
            self.renderer = CpuRenderer(self.splats, Threads(available()))
            return self.renderer.pictures(shots)


def scene_of(context: SensorContext) -> SplatScene:
    key, bundle = ("splats", context.bundle_key), context.bundle
    assert bundle is not None, "splat cameras without a world bundle are refused with the scenario"
    if key not in context.shared:
        context.shared[key] = SplatScene(context.bundle_key, bundle().gaussians)
    scene: SplatScene = context.shared[key]
    return scene


@dataclass
class SplatCamera:
    """A camera fixed to a robot, and all it needs to be drawn at a tick."""

    name: str
    scene: SplatScene
    model: CameraModel
    lens: Lens
    xyz: Vector
    rotation: tuple[Vector, Vector, Vector]  # optical frame in base_link
    things: PlainRenderer  # of what stands in the world, through the lens's pinhole
    motion: Callable[[], Motion]
    bodies: Callable[[], Array]  # of the other robots
    parts: Callable[[], Array]  # of their models
    trigger: Trigger
    key: int = 0
    _rays: Array | None = None  # of the model, once they are needed

    def is_due(self, tick: int) -> bool:
        return self.trigger.next_tick(tick) == tick

    def pose(self) -> tuple[Vector, tuple[Vector, Vector, Vector]]:
        motion = self.motion()
        return mounted_at(motion, self.xyz), turned(motion, self.rotation)

    def shot(self, tick: int) -> Shot:
        settings, (position, rotation) = self.scene.settings, self.pose()
        sky = Sky(settings.background_rgb, settings.sky_rgb or settings.background_rgb)
        return Shot(
            self.lens, position, rotation, sky, self._exposure(tick), self._things(position, rotation),
            settings.near_plane_m,
        )  # fmt: skip

    def _exposure(self, tick: int) -> Exposure:
        settings = self.scene.settings
        gain = exact.exp(_LN_2 * settings.exposure_ev) if settings.exposure_ev else 1.0
        if settings.gain_sigma:
            gain *= max(1.0 + settings.gain_sigma * normals(self.key, tick, 1 << 31)[0], 0.0)
        return Exposure(gain, settings.noise_sigma, self.key, tick)

    def _things(self, position: Vector, rotation: tuple[Vector, Vector, Vector]) -> Things | None:
        parts = self.parts()
        if self.things.is_bare and not parts.shape[0]:
            return None
        image, depths = self.things.things(position, rotation, parts)
        return Things(depths.astype(np.float32), image)

    def shaded(self, picture: Picture) -> Picture:
        """With the shadows of the other robots."""
        bodies = self.bodies()
        if bodies.shape[0]:
            if self._rays is None:
                self._rays = self.model.rays()
            position, rotation = self.pose()
            pose = np.array([*position, *rotation[0], *rotation[1], *rotation[2]])
            with np.errstate(all="ignore"):
                shade(pose, self._rays, picture.depths, bodies, picture.colours)
        return picture


def _things_renderer(context: SensorContext, model: CameraModel, mesh: bool) -> PlainRenderer:
    key = f"{context.robot}/{context.sensor}/things", model
    if key not in context.shared:
        context.shared[key] = PlainRenderer(context.world, model, has_mesh=mesh)
    found: PlainRenderer = context.shared[key]
    return found


def splat_camera(context: SensorContext) -> SplatCamera:
    block, scene = context.settings, scene_of(context)
    lens, mesh = lens_of(block.model), block.render is not None and block.render.mesh
    camera = SplatCamera(
        name=f"{context.robot}/{context.sensor}",
        scene=scene,
        model=block.model,
        lens=lens,
        xyz=block.mount.xyz,
        rotation=matrix_from_rpy(*block.mount.rpy),
        things=_things_renderer(context, lens.canvas, mesh),
        motion=lambda: context.motion,
        bodies=context.bodies,
        parts=context.parts,
        trigger=Trigger(block.hz, context.clock.rate),
        key=context.key,
    )
    scene.cameras = [each for each in scene.cameras if each.name != camera.name] + [camera]
    return camera


@dataclass
class SplatInstrument:
    """All images of a tick, side by side in each pixel: what is kept for a failure is one array."""

    camera: SplatCamera
    has_depth: bool
    segmenter: Segmenter | None
    noise: ImageNoise
    is_batched: bool = False  # one of many worlds, each seen from its own `View`
    may_break: bool = True  # a GPU can be lost

    def read(self, view: View) -> Bytes:
        camera = self.camera
        if self.is_batched:
            camera = replace(camera, motion=lambda: view.motion, key=view.key)
            picture = camera.shaded(camera.scene.pictures([camera.shot(view.tick)])[0])
        else:
            picture = camera.scene.picture(camera, view.tick)
        images = [self.noise.apply(picture.colours, camera.key, view.tick)]
        if self.has_depth:
            images.append(picture.depths.view(np.uint8).reshape(*picture.depths.shape, 4))
        if self.segmenter is not None:
            images.append(self.segmenter.image(*camera.pose(), camera.bodies(), picture.depths))
        return images[0] if len(images) == 1 else np.concatenate(images, axis=2)


def splat_instrument(context: SensorContext) -> SplatInstrument:
    block = context.settings
    segmenter = _segmenter(context) if block.render.segmentation else None
    is_batched = context.physics is None
    return SplatInstrument(splat_camera(context), block.render.depth, segmenter, image_noise(context), is_batched)


def _segmenter(context: SensorContext) -> Segmenter:
    key = f"{context.robot}/{context.sensor}/segmentation", context.settings.model
    if key not in context.shared:
        context.shared[key] = Segmenter(context.world, key[1])
    found: Segmenter = context.shared[key]
    return found


def picture_now(context: SensorContext, tick: int) -> Bytes:
    """What a camera sees at this tick, before noise."""
    scene = scene_of(context)
    camera = next(each for each in scene.cameras if each.name == f"{context.robot}/{context.sensor}")
    shot = camera.shot(tick)
    picture = scene.pictures([replace(shot, exposure=replace(shot.exposure, noise_sigma=0.0))])[0]
    return camera.shaded(picture).colours
