"""Cameras that show the Gaussians of a world bundle, with what is simulated among them.

A GPU that fails in the middle of a run is replaced by the CPU, whose pictures are the same; a picture that cannot be
made at all is replaced by the camera's last one (`Film`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.geometry import Array, Vector, matrix_from_rpy
from microsim.engine.motion import Motion, mounted_at, turned
from microsim.engine.noise import normals
from microsim.engine.pipeline import Delayed
from microsim.engine.timekeeper import Trigger
from microsim.engine.world import World
from microsim.messages import encoders
from microsim.outputs import (
    Renderers,
    Run,
    bodies_of,
    camera_frame,
    camera_latency,
    camera_model,
    mounted_camera,
    topic_name,
)
from microsim.render.image_noise import ImageNoise
from microsim.render.last_image import Film
from microsim.render.palette_camera import CameraModel
from microsim.render.palette_camera import Renderer as PlainRenderer
from microsim.render.render_options import wish
from microsim.render.renderer_choice import open_renderer
from microsim.render.splat.activation import Splats, activate
from microsim.render.splat.picture import Exposure, Lens, Picture, Shot, Sky, Things, lens_of
from microsim.render.splat.renderer import CpuRenderer, Renderer
from microsim.render.threads import Threads, available
from microsim.scenario import sensors as blocks
from microsim.scenario.bundles import WorldBundle, bundle_of

Bytes: TypeAlias = npt.NDArray[np.uint8]

CHANNELS = {"image": 3, "depth": 4, "segmentation": 3}  # bytes of a pixel
_LN_2 = 0.6931471805599453

_newest: list[Any] = []  # the last bundle's splats: large, and the same for every simulation in that world


def splats_of(world: WorldBundle) -> Splats:
    if _newest[:1] != [world]:
        gaussians = bundle_of(world).gaussians
        _newest[:] = [world, activate(gaussians.values, gaussians.sh_degree)]
    found: Splats = _newest[1]
    return found


class SplatScene:
    """A simulation's splats and what draws them, kept from reset to reset. Cameras due at a tick are drawn at once."""

    def __init__(self, world: WorldBundle) -> None:
        self.splats = splats_of(world)
        self.settings = bundle_of(world).gaussians.render
        self.renderer: Renderer = open_renderer(self.splats, wish.choice, wish.threads, wish.say)
        self.cameras: list[SplatCamera] = []
        self._drawn: tuple[int, dict[str, Picture]] = (-1, {})

    def picture(self, camera: SplatCamera, tick: int) -> Picture:
        if self._drawn[0] != tick or camera.name not in self._drawn[1]:
            due = [each for each in self.cameras if each is camera or each.is_due(tick)]
            pictures = self.pictures([each.shot(tick) for each in due])
            self._drawn = tick, {each.name: picture for each, picture in zip(due, pictures, strict=True)}
        return self._drawn[1].pop(camera.name)

    def pictures(self, shots: Sequence[Shot]) -> list[Picture]:
        try:
            return self.renderer.pictures(shots)
        except Exception as error:  # CuPy's and the driver's errors have no common class
            if isinstance(self.renderer, CpuRenderer):
                raise
            wish.say(f"the GPU failed ({type(error).__name__}: {error}): splats are drawn on the CPU from now on")
            self.renderer = CpuRenderer(self.splats, Threads(available()))
            return self.renderer.pictures(shots)


Scenes: TypeAlias = dict[WorldBundle, SplatScene]


def scene_of(world: WorldBundle | None, scenes: Scenes) -> SplatScene:
    assert world is not None, "splat cameras without a world bundle are refused with the scenario"
    if world not in scenes:
        scenes[world] = SplatScene(world)
    return scenes[world]


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
    trigger: Trigger
    key: int = 0

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
        bodies = self.bodies()
        if self.things.is_bare and not bodies.shape[0]:
            return None
        image, depths = self.things.things(position, rotation, bodies)
        return Things(depths.astype(np.float32), image)


def splat_camera(run: Run, scene: SplatScene, robot: str, sensor: str, block: blocks.Camera) -> SplatCamera:
    model, name = camera_model(block), f"{robot}/{sensor}"
    lens, mesh = lens_of(model), block.render is not None and block.render.mesh
    motions, others = run.physics.motions, run.others(robot)
    return SplatCamera(
        name=name,
        scene=scene,
        model=model,
        lens=lens,
        xyz=block.mount.xyz,
        rotation=matrix_from_rpy(*block.mount.rpy),
        things=_things_renderer(run.world, run.renderers, name, lens.canvas, mesh),
        motion=lambda: motions[robot],
        bodies=lambda: bodies_of(others, motions),
        trigger=run.trigger(block.hz),
        key=run.key(name),
    )


def _things_renderer(world: World, renderers: Renderers, name: str, model: CameraModel, mesh: bool) -> PlainRenderer:
    key = f"{name}/things", model
    if key not in renderers:
        renderers[key] = PlainRenderer(world, model, has_mesh=mesh)
    return renderers[key]


@dataclass
class Delivery:
    """What a splat camera sends at a tick: its images, encoded, by kind."""

    camera: SplatCamera
    encode: Mapping[str, Callable[[int, Any], bytes]]
    classes: PlainRenderer | None  # for the segmentation
    noise: ImageNoise
    film: Film
    time_ns: Callable[[int], int]

    def sample(self, tick: int) -> tuple[tuple[str, bytes], ...] | None:
        seen = self.film.exposed(tick, lambda: self._see(tick))
        if seen is None:
            return None
        stamp, images = self.time_ns(tick), self._apart(seen)
        return tuple((kind, encode(stamp, images[kind])) for kind, encode in self.encode.items())

    def _see(self, tick: int) -> Bytes:
        """All images of a tick, side by side in each pixel: what the film keeps is one array."""
        picture = self.camera.scene.picture(self.camera, tick)
        images = [self.noise.apply(picture.colours, self.camera.key, tick)]
        if "depth" in self.encode:
            images.append(picture.depths.view(np.uint8).reshape(*picture.depths.shape, 4))
        if self.classes is not None:
            images.append(self.classes.render(*self.camera.pose(), self.camera.bodies()))
        return images[0] if len(images) == 1 else np.concatenate(images, axis=2)

    def _apart(self, seen: Bytes) -> dict[str, Any]:
        if len(self.encode) == 1:
            return {"image": seen}
        start, images = 0, {}
        for kind in self.encode:
            end = start + CHANNELS[kind]
            part = np.ascontiguousarray(seen[..., start:end])
            images[kind] = part.view(np.float32)[..., 0] if kind == "depth" else part
            start = end
        return images


def add_splat_cameras(run: Run, scenes: Scenes) -> None:
    cameras = []
    for robot, settings in run.scenario.robots.items():
        for sensor, block in settings.all_sensors().items():
            if isinstance(block, blocks.Camera) and block.is_splat:
                scene = scene_of(run.scenario.world, scenes)
                cameras.append(splat_camera(run, scene, robot, sensor, block))
                _add(run, robot, sensor, block, cameras[-1])
                scene.cameras = cameras


def _add(run: Run, robot: str, sensor: str, block: blocks.Camera, camera: SplatCamera) -> None:
    frame, model = camera_frame(run, robot, sensor, block), camera.model
    size = model.width, model.height
    render = block.render or blocks.Render()
    encode = {"image": encoders.image(frame, *size)}
    if render.depth:
        encode["depth"] = encoders.depth_image(frame, *size)
    if render.segmentation:
        encode["segmentation"] = encoders.image(frame, *size)
    classes = mounted_camera(run.world, run.renderers, robot, sensor, block).renderer if render.segmentation else None
    noise = ImageNoise(*size, block.noise.blur_sigma_px, block.noise.color_jitter)
    shape = model.height, model.width, sum(CHANNELS[kind] for kind in encode)
    film = Film(camera.name, run.health, shape, may_break=True)
    delivery = Delivery(camera, encode, classes, noise, film, run.clock.time_ns)
    intrinsics = model.fx, model.fy, model.cx, model.cy
    encode_info = encoders.camera_info(frame, *size, intrinsics, model.distortion)
    topics = {kind: topic_name(kind, robot, sensor) for kind in (*encode, "camera_info")}
    senders = {kind: run.sender(kind, topic) for kind, topic in topics.items()}
    run.rates.update(dict.fromkeys(topics.values(), block.hz))

    def send(sampled_at: int, images: tuple[tuple[str, bytes], ...]) -> None:
        stamp = run.clock.time_ns(sampled_at)
        for kind, image in images:
            senders[kind](stamp, image)
        senders["camera_info"](stamp, encode_info(stamp))

    pipeline = camera_latency(run, robot, sensor, block)
    run.add("image", topics["image"], Delayed(run.trigger(block.hz), pipeline, delivery.sample, send, film))


def picture_now(scenes: Scenes, name: str, tick: int) -> Bytes:
    """What a camera sees at this tick, before noise."""
    scene, camera = next((scene, each) for scene in scenes.values() for each in scene.cameras if each.name == name)
    shot = camera.shot(tick)
    return scene.pictures([replace(shot, exposure=replace(shot.exposure, noise_sigma=0.0))])[0].colours
