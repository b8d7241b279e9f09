"""What one robot sends: its topics and the encoders for them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from microsim.engine import exact
from microsim.engine import nav_robots as nav
from microsim.messages import encoders
from microsim.messages.outbox import Outbox
from microsim.messages.topics import TOPICS, Qos
from microsim.ros2.robot_simulator.scanner import Scanner
from microsim.ros2.robot_simulator.settings import RobotSimulatorSettings

POSE = "geometry_msgs/msg/PoseWithCovarianceStamped"
AMCL_QOS = Qos(1)  # §9: reliable, keep last 1
ODOM_QOS = Qos(10)  # §9: reliable, keep last 10
REMEMBERED = 10_000  # own poses, to know them again where a transport does not say who sent a message

# parents and children in /tf, and where their transforms stand in a robot's row of `nav_robots.observe`
_TREES = {
    "map_base": ((("map", "base"),), (nav.TRUE_X,)),
    "map_odom_base": ((("map", "odom"), ("odom", "base")), (nav.ORIGIN_X, nav.ODOM_X)),
    "odom_base": ((("odom", "base"),), (nav.ODOM_X,)),
}


def topic_of(robot: str, name: str) -> str:
    """A robot without a name has the document's topics; others have them below their names."""
    return f"/{robot}{name}" if robot else name


class Sending:
    """The senders of one robot."""

    def __init__(self, robot: str, settings: RobotSimulatorSettings, outbox: Outbox, scanner: Scanner | None) -> None:
        frame_map, odom, base = settings.frame_map, settings.frame_odom, settings.frame_base
        self._send_pose = outbox.sender(topic_of(robot, "/amcl_pose"), POSE, AMCL_QOS)
        self._send_odom = outbox.sender(topic_of(robot, "/odom"), TOPICS["odom"].type, ODOM_QOS)
        self._send_tf = outbox.sender(topic_of(robot, "/tf"), TOPICS["tf"].type, TOPICS["tf"].qos)
        self._encode_odom = encoders.odometry(odom, base)
        pairs, self._tf_columns = _TREES[settings.tf_tree]
        names = {"map": frame_map, "odom": odom, "base": base}
        self._encode_tf = encoders.transforms([(names[parent], names[child]) for parent, child in pairs])
        self.sent: OrderedDict[int, tuple[float, ...]] | None = None  # stamp [ns] -> pose in /amcl_pose
        self.configure(settings)
        if scanner is not None:
            self.encode_scan = encoders.scan(
                settings.frame_scan or base,
                scanner.angle_min,
                scanner.step,
                settings.scan_beams,
                1.0 / settings.scan_hz,
                scanner.min_m,
                scanner.max_m,
            )
            self.send_scan = outbox.sender(topic_of(robot, "/scan"), TOPICS["scan"].type, TOPICS["scan"].qos)

    def configure(self, settings: RobotSimulatorSettings) -> None:
        """Take over what may change."""
        self.publish_tf = settings.publish_tf
        sigma_yaw = settings.yaw_noise_std_deg * (exact.PI / 180.0)
        variances = settings.pose_noise_std_m * settings.pose_noise_std_m, sigma_yaw * sigma_yaw
        self._encode_pose = encoders.pose_with_covariance(settings.frame_map, *variances)

    def pose(self, stamp_ns: int, row: Sequence[float]) -> None:
        x, y, qz, qw = row[nav.POSE_X : nav.POSE_QW + 1]
        self._send_pose(stamp_ns, self._encode_pose(stamp_ns, x, y, qz, qw))
        if self.sent is not None:
            self.sent[stamp_ns] = (x, y, qz, qw)
            if len(self.sent) > REMEMBERED:
                self.sent.popitem(last=False)

    def odom_and_tf(self, stamp_ns: int, row: Sequence[float]) -> None:
        x, y, qz, qw, v, omega = row[: nav.TURN + 1]
        self._send_odom(
            stamp_ns, self._encode_odom(stamp_ns, (x, y, 0.0, 0.0, 0.0, qz, qw), (v, 0.0, 0.0, 0.0, 0.0, omega), None)
        )
        if self.publish_tf:
            transforms = [_transform(*row[first : first + 4]) for first in self._tf_columns]
            self._send_tf(stamp_ns, self._encode_tf(stamp_ns, transforms))

    def remember(self) -> None:
        """From now on keep what was sent, so that `is_own` can answer."""
        if self.sent is None:
            self.sent = OrderedDict()

    def is_own(self, stamp_ns: int, pose: tuple[float, ...]) -> bool:
        """Whether a message with this stamp and this pose (x, y, quaternion z, w) is one of ours.

        The stamp alone does not tell: a localiser stamps its pose with the scan's time, and that is ours too.
        """
        return self.sent is not None and self.sent.get(stamp_ns) == pose


def _transform(x: float, y: float, qz: float, qw: float) -> tuple[float, ...]:
    return x, y, 0.0, 0.0, 0.0, qz, qw
