"""The parameters of `robot_simulator`. The first fifteen are the design document's (§4), by its names and defaults."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from microsim.documents.values import (
    Angle,
    Finite,
    Hertz,
    HertzOrOff,
    Length,
    Metres,
    Seed,
    Sigma,
    Switch,
    detail,
    fail,
)
from microsim.engine import exact
from microsim.engine.timekeeper import exact_rate
from microsim.parts.small_nodes.paced_node import TimeSettings, changeable, fixed
from microsim.robots.navigation_robot import NavigationRobot
from microsim.robots.robot import COMMON_SENSORS, FURTHER_SENSORS
from microsim.sensors.odometry import Odometry, OdometryDrift
from microsim.sensors.scan import Scan
from microsim.sensors.sensor import Mount

Speed = Annotated[Finite, Field(ge=0, le=1e6)]
Limit = Annotated[Finite, Field(ge=0, le=1e9)]  # 0: none
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=4000)]
Seconds = Annotated[Finite, Field(ge=0.001, le=1e6)]
Milliseconds = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Degrees = Annotated[Finite, Field(ge=-360, le=360)]
Distance = Annotated[Finite, Field(ge=0, le=1e6)]
RobotName = Annotated[str, Field(pattern=r"^([A-Za-z][A-Za-z0-9_]*)?$", max_length=100)]


# what a robot's settings have under the same name, and under others
_SAME = (
    *("max_linear_accel", "max_linear_jerk", "max_angular_accel", "max_angular_jerk", "min_turn_radius_m"),
    *("slow_distance_m", "stop_distance_m"),
)
_RENAMED = {
    "max_v": "max_linear_mps",
    "max_omega": "max_angular_rps",
    "limit_commands": "enable_cmd_limit",
    "cmd_timeout_s": "cmd_timeout_sec",
    "slow_down": "enable_slow_down",
    "radius_m": "robot_radius_m",
    "odom_frame": "frame_odom",
    "base_frame": "frame_base",
    "scan_frame": "frame_scan",
}


class NodeRobot(NavigationRobot):
    """A navigation robot whose frames have the names of the node's parameters."""

    odom_frame: str = "odom"
    base_frame: str = "base_link"
    scan_frame: str = ""

    def frame(self, robot: str, link: str) -> str:
        return self.base_frame

    def sensor_frame(self, robot: str, sensor: str, suffix: str = "_link") -> str:
        return self.scan_frame or self.base_frame


class RobotSimulatorSettings(TimeSettings):
    # ---- the document's §4
    cycle_hz: Hertz = fixed(10.0, "Updates per second [Hz]; /amcl_pose is sent at every one.")
    max_linear_mps: Speed = changeable(2.0, "Greatest linear speed of a command [m/s], with enable_cmd_limit.")
    max_angular_rps: Speed = changeable(3.0, "Greatest angular speed of a command [rad/s], with enable_cmd_limit.")
    enable_cmd_limit: Switch = changeable(True, "Whether commands are clipped to these limits.")
    pose_noise_std_m: Sigma = changeable(0.0, "Standard deviation of the noise on the position in /amcl_pose [m].")
    yaw_noise_std_deg: Sigma = changeable(0.0, "Standard deviation of the noise on the heading in /amcl_pose [deg].")
    publish_tf: Switch = changeable(True, "Whether /tf is sent.")
    frame_map: Name = fixed("map", "Frame of /amcl_pose, and parent in /tf.")
    frame_odom: Name = fixed("odom", "Frame of /odom.")
    frame_base: Name = fixed("base_link", "Child frame in /tf and /odom.")
    x0: Metres = fixed(0.0, "Where the odometry starts [m].")
    y0: Metres = fixed(0.0, "Where the odometry starts [m].")
    yaw0_deg: Degrees = fixed(0.0, "Where the odometry starts [deg].")
    timer_publish_odom_ms: Milliseconds = changeable(100, "Period of /odom and /tf [ms].")
    cmd_timeout_sec: Seconds = changeable(2.0, "The robot stops when no command has come for longer than this [s].")
    # ---- its §11, and what Nav2 needs
    auto_resume: Switch = changeable(True, "Whether a command after a timeout sets the robot in motion again.")
    max_linear_accel: Limit = changeable(0.0, "Greatest linear acceleration and deceleration [m/s^2]; 0: none.")
    max_linear_jerk: Limit = changeable(0.0, "Greatest change of linear acceleration [m/s^3]; 0: none.")
    max_angular_accel: Limit = changeable(0.0, "Greatest angular acceleration [rad/s^2]; 0: none.")
    max_angular_jerk: Limit = changeable(0.0, "Greatest change of angular acceleration [rad/s^3]; 0: none.")
    min_turn_radius_m: Distance = changeable(0.0, "Smallest radius of a curve [m], as of a car; 0: turns on the spot.")
    enable_slow_down: Switch = changeable(True, "Whether the robot slows down before obstacles, where there are any.")
    slow_distance_m: Distance = changeable(1.5, "From this free way on the speed is limited [m] …")
    stop_distance_m: Distance = changeable(0.3, "… down to 0 at this one [m].")
    robot_radius_m: Distance = changeable(0.25, "Radius of the robot, for the free way before it [m].")
    map: Text = fixed("", "Map of obstacles: a map_server YAML file, a scenario's name or file; empty: none.")
    map_topic: Text = fixed("", "Topic of a nav_msgs/OccupancyGrid to listen to, such as /map; empty: none.")
    map_occupied_min: Annotated[int, Field(strict=True, ge=1, le=100)] = fixed(
        65, "A cell of an occupancy grid is an obstacle from this value on."
    )
    obstacles: Text = fixed("", "YAML file of moving obstacles; empty: none.")
    scan_hz: HertzOrOff = fixed(0.0, "Scans per second [Hz]; 0: no /scan.")
    scan_beams: Annotated[int, Field(strict=True, ge=1, le=100_000)] = fixed(360, "Beams of a scan.")
    scan_angle_min: Angle = fixed(-3.141592653589793, "First beam [rad].")
    scan_angle_max: Angle = fixed(3.141592653589793, "Last beam [rad]; a full turn does not repeat its first beam.")
    scan_range_min: Distance = fixed(0.05, "Below this a beam reports -inf [m].")
    scan_range_max: Length = fixed(12.0, "Above this a beam reports +inf [m].")
    scan_noise_std_m: Sigma = fixed(0.0, "Standard deviation of the noise on each beam [m].")
    frame_scan: Text = fixed("", "Frame of /scan; empty: frame_base.")
    diagnostics_hz: HertzOrOff = fixed(1.0, "Rate of /diagnostics beside every change of state [Hz]; 0: never.")
    tf_tree: Literal["map_base", "map_odom_base", "odom_base"] = fixed(
        "map_base",
        "map_base: /tf holds map → base_link, as documented; map_odom_base: map → odom → base_link, for Nav2; "
        "odom_base: odom → base_link, where another node localises.",
    )
    stamped_cmd_vel: Switch = fixed(False, "Take geometry_msgs/TwistStamped, as Nav2 sends it from Kilted on.")
    robots: Annotated[tuple[RobotName, ...], Field(min_length=1, max_length=10_000)] = fixed(
        ("",), "Names of the robots; each has the topics of a node of its own below its name. One without a name: none."
    )
    seed: Seed = fixed(0, "Of all noise.")

    @property
    def odom_hz(self) -> Fraction:
        """Rate of /odom and /tf: at most every update."""
        return min(Fraction(1000, self.timer_publish_odom_ms), exact_rate(self.cycle_hz))

    def robot(self) -> NodeRobot:
        """Each robot of the node, as a scenario would have it."""
        scan = None
        if self.scan_hz:
            values: dict[str, Any] = {"enabled": True, "hz": self.scan_hz, "mount": Mount(), "dropout_probability": 0.0}
            values |= {"beams": self.scan_beams, "angle_min": self.scan_angle_min, "angle_max": self.scan_angle_max}
            values |= {"min_m": self.scan_range_min, "max_m": self.scan_range_max, "sigma_m": self.scan_noise_std_m}
            scan = Scan.model_construct(**values)
        localisation: Any = FURTHER_SENSORS["localisation"]
        pose = localisation(
            hz=self.cycle_hz,
            position_sigma_m=self.pose_noise_std_m,
            yaw_sigma_rad=self.yaw_noise_std_deg * (exact.PI / 180.0),
            frame_id=self.frame_map,
        )
        drift = OdometryDrift(position_per_m=0.0, yaw_per_rad=0.0)  # exact, in a frame that starts anywhere
        same: dict[str, Any] = {**dict.fromkeys(COMMON_SENSORS), **{name: getattr(self, name) for name in _SAME}}
        robot = NodeRobot(**same, **{name: getattr(self, ours) for name, ours in _RENAMED.items()})
        odom = Odometry(drift=drift).model_copy(update={"hz": self.odom_hz})
        return robot.model_copy(update={"odom": odom, "scan": scan, "sensors": {"amcl_pose": pose}})

    @field_validator("robots")
    @classmethod
    def _names_differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for index, name in enumerate(value) if name in value[:index]), None)
        if twice is not None:
            raise ValueError(f"two robots cannot both be called {twice!r}")
        return value

    @model_validator(mode="after")
    def _values_fit(self) -> Self:
        if self.stop_distance_m >= self.slow_distance_m > 0.0:
            message = f"expected less than slow_distance_m, which is {self.slow_distance_m:g}, found "
            fail([detail(f"{message}{self.stop_distance_m:g}", "stop_distance_m")])
        if self.scan_hz > self.cycle_hz:
            fail([detail(f"expected at most cycle_hz, which is {self.cycle_hz:g}, found {self.scan_hz:g}", "scan_hz")])
        if self.scan_range_min >= self.scan_range_max:
            fail([detail(f"expected less than scan_range_max, {self.scan_range_max:g}", "scan_range_min")])
        if self.scan_angle_max < self.scan_angle_min:
            fail([detail(f"expected at least scan_angle_min, {self.scan_angle_min:g}", "scan_angle_max")])
        return self
