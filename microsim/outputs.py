"""From a scenario to what a run sends: one function for each kind of sensor makes its outputs.

An output samples numbers in `sim/`, encodes them once and hands them to the outbox.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from microsim import encoders, markers
from microsim.errors import PluginError
from microsim.outbox import Outbox, Send
from microsim.scenario import plugins
from microsim.scenario import sensors as blocks
from microsim.scenario.models import Scenario
from microsim.sim import exact
from microsim.sim.components import Mount
from microsim.sim.geodesy import tangent_plane
from microsim.sim.geometry import Vector, matrix_from_rpy, rpy_from_matrix
from microsim.sim.motion import Motion, mounted_at, turned
from microsim.sim.noise import stream_key
from microsim.sim.sensors.camera import CameraModel, Renderer
from microsim.sim.sensors.gps import Gps
from microsim.sim.sensors.image_noise import ImageNoise
from microsim.sim.sensors.imu import Imu, axes_of
from microsim.sim.sensors.lidar import Body, Lidar, body_row
from microsim.sim.sensors.lidar import beam_table as lidar_beams
from microsim.sim.sensors.odometry import Drift, Odometry
from microsim.sim.sensors.range import Range
from microsim.sim.sensors.scan import Scan, beam_table
from microsim.sim.systems.physics import Physics
from microsim.sim.systems.sensors import Delayed, Output, Periodic, latency
from microsim.sim.systems.tf import Frames
from microsim.sim.timekeeper import Clock, Trigger
from microsim.sim.world import World
from microsim.topics import ORDER, SENSOR_PATHS, TOPICS
from microsim.wire import is_known

# costly to make and independent of the seed, so kept from reset to reset; each has buffers of its own
Renderers: TypeAlias = dict[tuple[str, CameraModel], Renderer]


@dataclass
class Run:
    """What the outputs of one run share."""

    scenario: Scenario
    seed: int
    world: World
    clock: Clock
    physics: Physics
    outbox: Outbox
    renderers: Renderers
    odometry: dict[str, Odometry] = field(default_factory=dict)
    mounts: list[tuple[str, str, Mount]] = field(default_factory=list)  # static frames
    outputs: dict[str, tuple[int, Output]] = field(default_factory=dict)  # by name, with their place in the table
    rates: dict[str, float] = field(default_factory=dict)  # [Hz] by topic, for /sim/info

    def key(self, stream: str) -> int:
        return stream_key(self.seed, stream)

    def trigger(self, hz: float) -> Trigger:
        return Trigger(hz, self.scenario.physics_hz)

    def add(self, kind: str, name: str, output: Output) -> None:
        self.outputs[name] = (ORDER[kind], output)

    def periodic(self, kind: str, topic: str, hz: float, encode: Callable[[int, int], bytes], part: Any = None) -> None:
        """`encode(tick, stamp_ns)` at a rate."""
        self.rates[topic] = hz
        self.add(kind, topic, Periodic(self.trigger(hz), encode, self.sender(kind, topic), part))

    def once(self, kind: str, topic: str, cdr: bytes) -> None:
        self.add(kind, topic, Once(cdr, self.sender(kind, topic)))

    def sender(self, kind: str, topic: str) -> Send:
        return self.outbox.sender(topic, TOPICS[kind].type, TOPICS[kind].qos)

    def mounted(self, robot: str, sensor: str, mount: Any, suffix: str = "_link") -> tuple[str, Mount]:
        """Register a sensor's link in the tree of frames; gives its name."""
        settings, fixed = self.scenario.robots[robot], Mount(mount.xyz, mount.rpy)
        frame = settings.sensor_frame(robot, sensor, suffix)
        self.mounts.append((settings.frame(robot, "base_link"), frame, fixed))
        return frame, fixed

    def sorted_outputs(self) -> dict[str, Output]:
        return {name: output for name, (_, output) in sorted(self.outputs.items(), key=lambda item: item[1][0])}


def topic_name(kind: str, robot: str, sensor: str) -> str:
    return TOPICS[kind].of(robot, SENSOR_PATHS.get(sensor, sensor))


def add_odometry(run: Run, robot: str, sensor: str, block: blocks.Odometry) -> None:
    drift = None
    if block.drift is not None:
        drift = Drift(block.drift.position_per_m, block.drift.yaw_per_rad, run.key(f"{robot}/{sensor}/drift"))
        drift.start(run.physics.motions[robot])
    odometry = run.odometry[robot] if sensor != "odom" else Odometry(drift)
    run.odometry[robot] = odometry
    frame = f"{robot}/odom" if run.scenario.frames.per_robot_odom else "odom"
    encode = encoders.odometry(frame, run.scenario.robots[robot].frame(robot, "base_link"))
    motions = run.physics.motions

    def message(tick: int, stamp: int) -> bytes:
        motion = motions[robot]
        variance = None if odometry.drift is None else odometry.pose_variance()
        return encode(stamp, odometry.pose(motion), odometry.twist(motion), variance)

    run.periodic("odom", topic_name("odom", robot, sensor), block.hz, message, odometry)


def add_joint_states(run: Run, robot: str, sensor: str, block: blocks.JointStates) -> None:
    settings = run.scenario.robots[robot]
    fleet, column = run.physics.home[robot]
    values = fleet.model.joint_values
    if values is None:
        raise PluginError(f"robots.{robot}.{sensor}: the model {fleet.model.name} has no joints")
    encode, state = encoders.joint_states(settings.frame(robot, "base_link"), fleet.model.joints), fleet.state

    def message(tick: int, stamp: int) -> bytes:
        return encode(stamp, *values(state[:, column].tolist(), settings))

    run.periodic("joint_states", topic_name("joint_states", robot, sensor), block.hz, message)


def add_gps(run: Run, robot: str, sensor: str, block: blocks.Gps) -> None:
    frame, mount = run.mounted(robot, sensor, block.mount)
    plane = tangent_plane(*run.scenario.map.origin_wgs84)
    gps = Gps(plane, mount.xyz, block.sigma_m, block.bias_drift_m_per_s, run.clock.dt, run.key(f"{robot}/{sensor}"))
    encode, motions = encoders.gps_fix(frame), run.physics.motions
    run.periodic(
        "gps",
        topic_name("gps", robot, sensor),
        block.hz,
        lambda tick, stamp: encode(stamp, gps.sample(motions[robot], tick)),
        gps,
    )


def add_imu(run: Run, robot: str, sensor: str, block: blocks.Imu) -> None:
    frame, mount = run.mounted(robot, sensor, block.mount)
    key, axes = run.key(f"{robot}/{sensor}"), axes_of(mount.rpy)
    imu = Imu(block.gyro_sigma_rad_per_s, block.accel_sigma_m_per_s2, key, axes)
    encode, motions = encoders.imu(frame, imu.gyro_sigma, imu.accel_sigma), run.physics.motions
    run.periodic(
        "imu",
        topic_name("imu", robot, sensor),
        block.hz,
        lambda tick, stamp: encode(stamp, imu.sample(motions[robot], tick)),
    )


def add_range(run: Run, robot: str, sensor: str, block: blocks.Range) -> None:
    frame, mount = run.mounted(robot, sensor, block.mount)
    yaw = mount.rpy[2]
    beam = Range(
        run.world,
        mount.xyz,
        (exact.cos(yaw), exact.sin(yaw)),
        block.min_m,
        block.max_m,
        block.sigma_m,
        block.dropout_probability,
        run.key(f"{robot}/{sensor}"),
    )
    encode = encoders.distance(frame, block.field_of_view_rad, block.min_m, block.max_m, block.sigma_m)
    motions = run.physics.motions
    run.periodic(
        "range",
        topic_name("range", robot, sensor),
        block.hz,
        lambda tick, stamp: encode(stamp, beam.sample(motions[robot], tick)),
    )


def add_scan(run: Run, robot: str, sensor: str, block: blocks.Scan) -> None:
    frame, mount = run.mounted(robot, sensor, block.mount)
    beams, step = beam_table(block.angle_min, block.angle_max, block.beams, mount.rpy[2])
    scan = Scan(
        run.world,
        mount.xyz,
        beams,
        block.min_m,
        block.max_m,
        block.sigma_m,
        block.dropout_probability,
        run.key(f"{robot}/{sensor}"),
    )
    encode = encoders.scan(frame, block.angle_min, step, block.beams, 1.0 / block.hz, block.min_m, block.max_m)
    motions = run.physics.motions
    run.periodic(
        "scan",
        topic_name("scan", robot, sensor),
        block.hz,
        lambda tick, stamp: encode(stamp, scan.sample(motions[robot], tick)),
    )


def add_lidar(run: Run, robot: str, sensor: str, block: blocks.Lidar) -> None:
    frame, mount = run.mounted(robot, sensor, block.mount)
    others = {name: Body(*settings.body()) for name, settings in run.scenario.robots.items() if name != robot}
    lidar = Lidar(
        run.world,
        mount.xyz,
        matrix_from_rpy(*mount.rpy),
        lidar_beams(block.ring_elevations(), block.columns),
        block.min_m,
        block.max_m,
        block.sigma_m,
        block.dropout_probability,
        run.key(f"{robot}/{sensor}"),
    )
    encode, motions = encoders.point_cloud(frame), run.physics.motions

    def message(tick: int, stamp: int) -> bytes:
        bodies = np.array([body_row(motions[name], body) for name, body in others.items()]).reshape(-1, 15)
        return encode(stamp, lidar.sample(motions[robot], bodies, tick))

    run.periodic("points", topic_name("points", robot, sensor), block.hz, message)


def camera_model(block: blocks.Camera) -> CameraModel:
    pinhole, size = block.intrinsics, block.resolution
    if pinhole.fov_deg is not None:
        focal = 0.5 * size.width / exact.tan(0.5 * pinhole.fov_deg * exact.PI / 180.0)
        fx, fy = focal, focal
    else:
        fx, fy = float(pinhole.fx or 0.0), float(pinhole.fy or 0.0)
    distortion = tuple(float(number) for number in block.distortion.D)
    k1, k2, t1, t2, k3 = distortion
    return CameraModel(
        size.width, size.height, fx, fy, float(pinhole.cx or 0.0), float(pinhole.cy or 0.0), (k1, k2, t1, t2, k3)
    )


@dataclass(frozen=True)
class MountedCamera:
    """Renders what a camera fixed to a robot sees."""

    renderer: Renderer
    xyz: Vector
    rotation: tuple[Vector, Vector, Vector]  # optical frame in base_link

    def image(self, motion: Motion) -> Any:
        return self.renderer.render(mounted_at(motion, self.xyz), turned(motion, self.rotation))


def mounted_camera(world: World, renderers: Renderers, robot: str, sensor: str, block: blocks.Camera) -> MountedCamera:
    key = f"{robot}/{sensor}", camera_model(block)
    if key not in renderers:
        renderers[key] = Renderer(world, key[1])
    return MountedCamera(renderers[key], block.mount.xyz, matrix_from_rpy(*block.mount.rpy))


def camera_frame(run: Run, robot: str, sensor: str, block: blocks.Camera) -> str:
    """The frame of its images. With axes as `ros` has them, the optical frame is a further one in the camera's."""
    if block.convention != "ros":
        return run.mounted(robot, sensor, block.mount)[0]
    (a, b, c), (d, e, f), (g, h, i) = matrix_from_rpy(*block.mount.rpy)
    frame, _ = run.mounted(
        robot, sensor, Mount(block.mount.xyz, rpy_from_matrix(((a, -b, -c), (d, -e, -f), (g, -h, -i))))
    )
    run.mounts.append((frame, f"{frame}_optical", Mount(rpy=(exact.PI, 0.0, 0.0))))
    return f"{frame}_optical"


def add_camera(run: Run, robot: str, sensor: str, block: blocks.Camera) -> None:
    frame = camera_frame(run, robot, sensor, block)
    camera = mounted_camera(run.world, run.renderers, robot, sensor, block)
    model, motions = camera.renderer.model, run.physics.motions
    noise = ImageNoise(model.width, model.height, block.noise.blur_sigma_px, block.noise.color_jitter)
    noise_key = run.key(f"{robot}/{sensor}")
    encode_image = encoders.image(frame, model.width, model.height)
    encode_info = encoders.camera_info(
        frame, model.width, model.height, (model.fx, model.fy, model.cx, model.cy), model.distortion
    )
    image_topic, info_topic = topic_name("image", robot, sensor), topic_name("camera_info", robot, sensor)
    send_image, send_info = run.sender("image", image_topic), run.sender("camera_info", info_topic)
    time_ns = run.clock.time_ns

    def sample(tick: int) -> bytes:
        image = noise.apply(camera.image(motions[robot]), noise_key, tick)
        return encode_image(time_ns(tick), image)

    def send(sampled_at: int, image: bytes) -> None:
        stamp = time_ns(sampled_at)
        send_image(stamp, image)
        send_info(stamp, encode_info(stamp))

    delay = block.latency_ms
    pipeline = latency(
        delay.mean,
        delay.jitter,
        delay.drop_probability,
        run.scenario.physics_hz,
        run.seed,
        f"{robot}/{sensor}/latency",
    )
    run.rates[image_topic] = run.rates[info_topic] = block.hz
    run.add("image", image_topic, Delayed(run.trigger(block.hz), pipeline, sample, send))


@dataclass
class SensorContext:
    """What a plug-in sensor may know: its place, its options, the world, the robot's motion, and noise of its own."""

    robot: str
    sensor: str
    options: dict[str, Any]
    world: World
    physics: Physics
    key: int
    mount: Mount = field(default_factory=Mount)
    tick: int = 0

    @property
    def motion(self) -> Motion:
        """The robot's motion now; fields are named in `microsim.sim.motion`."""
        return self.physics.motions[self.robot]

    @property
    def place(self) -> tuple[float, float, float]:
        """Where the sensor is now: x, y, z in the map frame [m]."""
        return mounted_at(self.motion, self.mount.xyz)

    def normals(self, index: int = 0) -> tuple[float, float]:
        """Two standard normal numbers of this sensor and tick; another index gives others."""
        from microsim.sim.noise import normals

        return normals(self.key, self.tick, index)


@dataclass(frozen=True)
class PluginMemory:
    """What a plug-in sensor's own `memory()` gave, from a snapshot's file."""

    values: Any


@dataclass
class PluginOutput:
    """Calls a plug-in's `update(dt)` every tick and sends what `publish()` gives when it is due."""

    context: SensorContext
    sensor: Any
    trigger: Trigger
    dt: float
    send: Callable[[int, Any], None]
    due: float = 0
    next_message: int = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.context.tick = tick
        with _blaming(self.context):
            if tick > 0:
                self.sensor.update(self.dt)
            if tick >= self.next_message:
                self.send(stamp_ns, self.sensor.publish())
        if tick >= self.next_message:
            self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def memory(self) -> Any:
        return self.context, self._copy(self.sensor, self.context)

    def recall(self, memory: Any, tick: int) -> None:
        if isinstance(memory, PluginMemory):
            with _blaming(self.context):
                self.sensor.recall(memory.values)
        elif memory is not None:
            theirs, sensor = memory
            self.sensor = self._copy(sensor, theirs)
        self.context.tick = tick
        self.next_message = self.trigger.next_tick(tick + 1)
        self.due = tick + 1

    def _copy(self, sensor: Any, theirs: SensorContext) -> Any:
        """A copy of the sensor that sees our world and robots, though it may have been made in another Simulation."""
        ours = self.context
        shared = {
            id(theirs): ours,
            id(theirs.world): ours.world,
            id(theirs.physics): ours.physics,
            id(theirs.physics.motions): ours.physics.motions,
        }
        with _blaming(ours):
            return copy.deepcopy(sensor, shared)


@contextmanager
def _blaming(context: SensorContext) -> Iterator[None]:
    """Whatever a third party's code raises is reported as that sensor's fault."""
    try:
        yield
    except Exception as error:
        place = f"sensor {context.robot}/{context.sensor} failed at tick {context.tick}"
        raise PluginError(f"{place}: {type(error).__name__}: {error}") from error


def add_plugin(run: Run, robot: str, sensor: str, block: blocks.PluginSensor) -> None:
    plugin = plugins.find_sensor(block.type, run.scenario.plugins)
    if plugin is None:
        raise PluginError(
            f"robots.{robot}.sensors.{sensor}: the plug-in {block.type!r} is gone since the scenario was read"
        )
    frame, mount = run.mounted(robot, sensor, block.mount, plugin.frame_suffix)
    key = run.key(f"{robot}/{sensor}")
    context = SensorContext(robot, sensor, dict(block.options), run.world, run.physics, key, mount)
    topic = f"/{robot}/{sensor}"
    if not is_known(plugin.message_type):
        raise PluginError(f"sensor {robot}/{sensor}: there is no message type {plugin.message_type!r}")
    encode = encoders.from_fields(plugin.message_type, frame)
    publish = run.outbox.sender(topic, plugin.message_type)

    def send(stamp: int, fields: Any) -> None:
        if fields is not None:
            publish(stamp, encode(stamp, fields))

    run.rates[topic] = block.hz
    with _blaming(context):
        created = plugin.create(context)
    output = PluginOutput(context, created, run.trigger(block.hz), run.clock.dt, send)
    run.outputs[topic] = (len(ORDER), output)


ADD: dict[type, Callable[[Run, str, str, Any], None]] = {
    blocks.Odometry: add_odometry,
    blocks.JointStates: add_joint_states,
    blocks.Gps: add_gps,
    blocks.Imu: add_imu,
    blocks.Camera: add_camera,
    blocks.Range: add_range,
    blocks.Scan: add_scan,
    blocks.Lidar: add_lidar,
    blocks.PluginSensor: add_plugin,
}


def add_sensors(run: Run) -> None:
    for robot, settings in run.scenario.robots.items():
        run.odometry[robot] = Odometry()
        for sensor, block in settings.all_sensors().items():
            add = next(adder for kind, adder in ADD.items() if isinstance(block, kind))
            add(run, robot, sensor, block)


def add_frames(run: Run) -> None:
    """`/tf` at its rate; `/tf_static` once."""
    base_frames = {name: robot.frame(name, "base_link") for name, robot in run.scenario.robots.items()}
    frames = Frames(base_frames, run.odometry, run.scenario.frames.per_robot_odom)
    encode, motions = encoders.transforms(frames.pairs()), run.physics.motions
    run.periodic("tf", "/tf", run.scenario.frames.tf_hz, lambda tick, stamp: encode(stamp, frames.poses(motions)))
    if run.scenario.frames.publish_static_tf:
        run.once("tf_static", "/tf_static", encoders.static_transforms(run.mounts))


@dataclass
class Once:
    """Sent at tick 0, after every reset, and again when it has changed."""

    cdr: bytes
    send: Send
    due: float = 0

    def fire(self, tick: int, stamp_ns: int) -> None:
        self.send(stamp_ns, self.cdr)
        self.due = math.inf

    def memory(self) -> tuple[bytes, float]:
        return self.cdr, self.due

    def recall(self, memory: tuple[bytes, float] | None, tick: int) -> None:
        cdr, due = memory or (b"", math.inf)
        self.due = due if cdr == self.cdr else tick + 1


def add_world(run: Run) -> None:
    settings = run.scenario.world_topics
    if settings.occupancy_hz:
        encode = markers.occupancy(run.world)
        run.periodic("occupancy", "/world/occupancy", settings.occupancy_hz, lambda tick, stamp: encode(stamp))
    if settings.markers_hz:
        kinds = {name: robot.model for name, robot in run.scenario.robots.items()}
        encode_markers, motions = markers.markers(run.world, kinds), run.physics.motions
        run.periodic(
            "markers", "/world/markers", settings.markers_hz, lambda tick, stamp: encode_markers(stamp, motions)
        )
