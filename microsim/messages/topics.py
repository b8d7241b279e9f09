"""THE table: every topic, its type, quality of service and rate. What is sent in one tick is sent in this order.

`{robot}` stands for a robot's name, `{sensor}` for a sensor's: the built-in ones have the names of their types.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Qos:
    depth: int
    reliable: bool = True
    latched: bool = False  # transient local: late subscribers get the last one


DEFAULT_QOS = Qos(10)  # ROS 2's own default


@dataclass(frozen=True)
class Topic:
    kind: str  # by which the code finds the row
    name: str
    type: str
    qos: Qos
    rate: str  # where the rate is set in a scenario, or when it is sent
    direction: Literal["out", "in"] = "out"
    about: str = ""

    def of(self, robot: str = "", sensor: str = "") -> str:
        return self.name.format(robot=robot, sensor=sensor)


TABLE = (
    Topic("clock", "/clock", "rosgraph_msgs/msg/Clock", Qos(10), "every tick", about="simulated time"),
    Topic("tf", "/tf", "tf2_msgs/msg/TFMessage", Qos(100), "frames.tf_hz", about="map → odom → base_link"),
    Topic(
        "tf_static",
        "/tf_static",
        "tf2_msgs/msg/TFMessage",
        Qos(1, latched=True),
        "at the start",
        about="base_link → sensors",
    ),
    Topic(
        "sim_info",
        "/sim/info",
        "std_msgs/msg/String",
        Qos(1, latched=True),
        "at the start and on change",
        about="JSON: version, scenario, seed, rates, noise",
    ),
    Topic("odom", "/{robot}/{sensor}", "nav_msgs/msg/Odometry", Qos(10), "robots.*.odom.hz", about="pose and velocity"),
    Topic(
        "joint_states",
        "/{robot}/{sensor}",
        "sensor_msgs/msg/JointState",
        Qos(10),
        "robots.*.joint_states.hz",
        about="angles of wheels and steering",
    ),
    Topic(
        "gps",
        "/{robot}/{sensor}/fix",
        "sensor_msgs/msg/NavSatFix",
        Qos(5),
        "robots.*.gps.hz",
        about="WGS-84 with covariance",
    ),
    Topic(
        "imu",
        "/{robot}/{sensor}/data_raw",
        "sensor_msgs/msg/Imu",
        Qos(10),
        "robots.*.imu.hz",
        about="turn rate and specific force, no orientation (REP-145)",
    ),
    Topic(
        "image",
        "/{robot}/{sensor}/image_raw",
        "sensor_msgs/msg/Image",
        Qos(2),
        "robots.*.camera.hz",
        about="rgb8, stamped when exposed, sent after its latency",
    ),
    Topic(
        "camera_info",
        "/{robot}/{sensor}/camera_info",
        "sensor_msgs/msg/CameraInfo",
        Qos(2),
        "with its image",
        about="intrinsics, same stamp as the image",
    ),
    Topic(
        "depth",
        "/{robot}/{sensor}/depth",
        "sensor_msgs/msg/Image",
        Qos(2),
        "with its image",
        about="32FC1, metres along the optical axis; +inf where nothing is seen (REP-118); splat cameras on request",
    ),
    Topic(
        "segmentation",
        "/{robot}/{sensor}/segmentation",
        "sensor_msgs/msg/Image",
        Qos(2),
        "with its image",
        about="rgb8, what is seen by class in the palette's colours; splat cameras on request",
    ),
    Topic(
        "range",
        "/{robot}/{sensor}",
        "sensor_msgs/msg/Range",
        Qos(5),
        "robots.*.range.hz",
        about="distance ahead; ±inf out of range (REP-117), NaN for a dropout",
    ),
    Topic("scan", "/{robot}/{sensor}", "sensor_msgs/msg/LaserScan", Qos(5), "robots.*.scan.hz", about="planar scan"),
    Topic(
        "points",
        "/{robot}/{sensor}/points",
        "sensor_msgs/msg/PointCloud2",
        Qos(5),
        "robots.*.lidar.hz",
        about="x, y, z, intensity, ring, time of each beam that came back",
    ),
    Topic(
        "sim_status",
        "/sim/status",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(10),
        "10 Hz and on change, with a car, a world bundle or faults",
        about="is_offroad, polygon in force, state, health of sensors",
    ),
    Topic(
        "radio_metrics",
        "/radio/metrics",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(1),
        "radio.metrics_hz",
        about="latency, loss and queue of each direction",
    ),
    Topic(
        "occupancy",
        "/world/occupancy",
        "nav_msgs/msg/OccupancyGrid",
        Qos(1, latched=True),
        "world_topics.occupancy_hz",
        about="occupied cells",
    ),
    Topic(
        "markers",
        "/world/markers",
        "visualization_msgs/msg/MarkerArray",
        Qos(1, latched=True),
        "world_topics.markers_hz",
        about="obstacles, features and robots for RViz",
    ),
    Topic(
        "radio_rx",
        "/radio/{robot}_rx",
        "std_msgs/msg/ByteMultiArray",
        Qos(5, reliable=False),
        "when a packet arrives",
        about="what the robot receives",
    ),
    Topic(
        "diagnostics",
        "/diagnostics",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(10),
        "1 Hz of wall time",
        about="real-time factor, lateness, queues, what was ignored; not part of the digest",
    ),
    Topic(
        "cmd_vel",
        "/{robot}/cmd_vel",
        "geometry_msgs/msg/Twist",
        Qos(10),
        "≤ 60 Hz",
        "in",
        "body-frame velocity, held until the next or, where a robot has one, its timeout",
    ),
    Topic(
        "ackermann_cmd",
        "/{robot}/ackermann_cmd",
        "ackermann_msgs/msg/AckermannDriveStamped",
        Qos(10),
        "any",
        "in",
        "of cars: steering angle and speed, held until the next or the timeout",
    ),
    Topic("set_pose", "/{robot}/set_pose", "geometry_msgs/msg/PoseStamped", Qos(10), "any", "in", "teleport, at rest"),
    Topic(
        "radio_tx",
        "/radio/{robot}_tx",
        "std_msgs/msg/ByteMultiArray",
        Qos(1, reliable=False),
        "any",
        "in",
        "what the robot sends to the others",
    ),
)


@dataclass(frozen=True)
class Service:
    name: str
    type: str
    about: str


SERVICES = (
    Service("/sim/reset", "std_srvs/srv/Empty", "back to the start, with the seed and parameters set meanwhile"),
    Service("/sim/set_seed", "example_interfaces/srv/SetInt32", "seed of the next reset"),
    Service("/sim/pause", "example_interfaces/srv/SetBool", "true: pause, false: go on"),
    Service("/sim/step", "example_interfaces/srv/SetInt32", "advance a paused simulation by that many ticks"),
)

TOPICS = {topic.kind: topic for topic in TABLE}
ORDER = {topic.kind: index for index, topic in enumerate(TABLE)}

# the part of a topic's name that a built-in sensor has in place of its own name
SENSOR_PATHS = {"range": "range/front"}
