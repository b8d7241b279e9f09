"""From a scenario to what a run sends: one function for each kind of sensor makes its outputs.

An output samples numbers in `sim/`, encodes them once and hands them to the outbox.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from microsim.engine import exact
from microsim.engine.bodies import Body, body_row
from microsim.engine.components import Mount
from microsim.engine.faults import FAIL, JUMP, Health, of_target
from microsim.engine.frames import Frames
from microsim.engine.geodesy import tangent_plane
from microsim.engine.geometry import Array, Vector, matrix_from_rpy, rpy_from_matrix
from microsim.engine.motion import Motion, mounted_at, turned
from microsim.engine.noise import stream_key
from microsim.engine.physics import Physics
from microsim.engine.pipeline import Delayed, Latency, Output, Periodic, latency
from microsim.engine.timekeeper import Clock, Trigger
from microsim.engine.world import World
from microsim.errors import PluginError
from microsim.messages import encoders, is_known, markers
from microsim.messages.outbox import Outbox, Send
from microsim.messages.status import HZ, Car, Status
from microsim.messages.topics import ORDER, SENSOR_PATHS, TOPICS
from microsim.plugin_output import PluginOutput, SensorContext, blaming
from microsim.render.image_noise import ImageNoise
from microsim.render.last_image import Film
from microsim.render.palette_camera import CameraModel, Renderer
from microsim.robots import car as bicycle
from microsim.scenario import plugins
from microsim.scenario import sensors as blocks
from microsim.scenario.bundles import bundle_of
from microsim.scenario.models import Scenario
from microsim.scenario.robots import Bicycle
from microsim.sensors.gps import Gps
from microsim.sensors.imu import Imu, axes_of
from microsim.sensors.odometry import Drift, Odometry
from microsim.sensors.range import Range
from microsim.sensors.scan import Scan, beam_table

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
    health: Health = field(default_factory=Health)
    odometry: dict[str, Odometry] = field(default_factory=dict)
    mounts: list[tuple[str, str, Mount]] = field(default_factory=list)  # static frames
    outputs: dict[str, tuple[int, Output]] = field(default_factory=dict)  # by name, with their place in the table
    rates: dict[str, float] = field(default_factory=dict)  # [Hz] by topic, for /sim/info
    sensor: str = ""  # robot/sensor whose outputs are being made

    def key(self, stream: str) -> int:
        return stream_key(self.seed, stream)

    def trigger(self, hz: float) -> Trigger:
        return Trigger(hz, self.scenario.physics_hz)

    def add(self, kind: str, name: str, output: Output) -> None:
        self.outputs[name] = (ORDER[kind], output)

    def periodic(
        self, kind: str, topic: str, hz: float, encode: Callable[[int, int], bytes | None], part: Any = None
    ) -> None:
        """`encode(tick, stamp_ns)` at a rate."""
        self.rates[topic] = hz
        if self.sensor and of_target(self.health.faults, self.sensor):
            encode = self._unless_dropped(self.sensor, encode)
        self.add(kind, topic, Periodic(self.trigger(hz), encode, self.sender(kind, topic), part))

    def _unless_dropped(
        self, sensor: str, encode: Callable[[int, int], bytes | None]
    ) -> Callable[[int, int], bytes | None]:
        return lambda tick, stamp: None if self.health.drops(sensor, tick) else encode(tick, stamp)

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

    def others(self, robot: str) -> dict[str, Body]:
        """What a robot can see of the others."""
        robots = self.scenario.robots
        return {name: Body(*settings.body()) for name, settings in robots.items() if name != robot}

    def sorted_outputs(self) -> dict[str, Output]:
        return {name: output for name, (_, output) in sorted(self.outputs.items(), key=lambda item: item[1][0])}


def bodies_of(robots: Mapping[str, Body], motions: Mapping[str, Motion]) -> Array:
    """(n, 15) where the robots' boxes are now, as `body_row` writes them."""
    return np.array([body_row(motions[name], body) for name, body in robots.items()]).reshape(-1, 15)


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
    gps.jumps = tuple(fault for fault in of_target(run.health.faults, f"{robot}/{sensor}") if fault.kind == JUMP)
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
    from microsim.sensors.lidar import POINT, Lidar  # with all its kernels: most runs start without it
    from microsim.sensors.lidar import beam_table as lidar_beams

    frame, mount = run.mounted(robot, sensor, block.mount)
    others = run.others(robot)
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

    target, health, nothing = f"{robot}/{sensor}", run.health, np.zeros(0, POINT)

    def message(tick: int, stamp: int) -> bytes:
        problem = "failed" if health.at(target, FAIL, tick) is not None else ""
        points = nothing
        if not problem:
            try:
                points = lidar.sample(motions[robot], bodies_of(others, motions), tick)
            except Exception as error:  # of any kind: a sensor that fails must not end the run
                problem = f"failed ({type(error).__name__}: {error})"
        health.note(target, f"{problem}, an empty cloud is sent" if problem else "")
        return encode(stamp, points)

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
    """A plain camera; those that draw splats are added by `splat_cameras`."""
    if block.is_splat:
        return
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

    film = Film(f"{robot}/{sensor}", run.health, (model.height, model.width, 3))

    def sample(tick: int) -> bytes | None:
        image = film.exposed(tick, lambda: noise.apply(camera.image(motions[robot]), noise_key, tick))
        return None if image is None else encode_image(time_ns(tick), image)

    def send(sampled_at: int, image: bytes) -> None:
        stamp = time_ns(sampled_at)
        send_image(stamp, image)
        send_info(stamp, encode_info(stamp))

    run.rates[image_topic] = run.rates[info_topic] = block.hz
    pipeline = camera_latency(run, robot, sensor, block)
    run.add("image", image_topic, Delayed(run.trigger(block.hz), pipeline, sample, send, film))


def camera_latency(run: Run, robot: str, sensor: str, block: blocks.Camera) -> Latency:
    delay = block.latency_ms
    times = delay.mean, delay.jitter, delay.drop_probability
    return latency(*times, run.scenario.physics_hz, run.seed, f"{robot}/{sensor}/latency")


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
    with blaming(context):
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
            run.sensor = f"{robot}/{sensor}"
            add = next(adder for kind, adder in ADD.items() if isinstance(block, kind))
            add(run, robot, sensor, block)
    run.sensor = ""


def add_status(run: Run) -> None:
    """`/sim/status`, where there is something to tell."""
    scenario, physics = run.scenario, run.physics
    cars = {
        name: Car(robot.wheelbase_m, robot.track_m)
        for name, robot in scenario.robots.items()
        if isinstance(robot, Bicycle) and physics.home[name][0].model is bicycle.ROBOT
    }
    if not cars and scenario.world is None and not scenario.faults:
        return
    area = None if scenario.world is None else bundle_of(scenario.world).drivable
    sensors = tuple(f"{robot}/{name}" for robot, each in scenario.robots.items() for name in each.all_sensors())
    hz = min(HZ, float(scenario.physics_hz))
    send, encode = run.sender("sim_status", "/sim/status"), encoders.status()
    run.rates["/sim/status"] = hz
    trigger = run.trigger(hz)
    run.add("sim_status", "/sim/status", Status(physics, cars, area, sensors, run.health, trigger, encode, send))


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
