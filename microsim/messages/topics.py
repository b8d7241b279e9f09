"""The table of topics: those of the simulator itself, of every built-in sensor, and of every input.

What is sent in one tick is sent in the order of `position`. `{robot}` stands for a robot's name, `{sensor}` for a
sensor's: the built-in ones have the names of their types.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal


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
    position: int = 0  # among the topics of a tick
    sensor: str = ""  # what stands for {sensor} where a sensor is named like its type

    def of(self, robot: str = "", sensor: str = "") -> str:
        return self.name.format(robot=robot, sensor=sensor)


_OWN = (
    Topic("clock", "/clock", "rosgraph_msgs/msg/Clock", Qos(10), "every tick", about="simulated time", position=0),
    Topic("tf", "/tf", "tf2_msgs/msg/TFMessage", Qos(100), "frames.tf_hz", about="map → odom → base_link", position=1),
    Topic(
        "tf_static",
        "/tf_static",
        "tf2_msgs/msg/TFMessage",
        Qos(1, latched=True),
        "at the start",
        about="base_link → sensors",
        position=2,
    ),
    Topic(
        "sim_info",
        "/sim/info",
        "std_msgs/msg/String",
        Qos(1, latched=True),
        "at the start and on change",
        about="JSON: version, scenario, seed, rates, noise",
        position=3,
    ),
    Topic(
        "sim_status",
        "/sim/status",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(10),
        "10 Hz and on change, with a car, a world bundle or faults",
        about="is_offroad, current polygon, state, health of sensors",
        position=100,
    ),
    Topic(
        "radio_metrics",
        "/radio/metrics",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(1),
        "radio.metrics_hz",
        about="latency, loss and queue of each direction",
        position=101,
    ),
    Topic(
        "occupancy",
        "/world/occupancy",
        "nav_msgs/msg/OccupancyGrid",
        Qos(1, latched=True),
        "world_topics.occupancy_hz",
        about="occupied cells",
        position=102,
    ),
    Topic(
        "markers",
        "/world/markers",
        "visualization_msgs/msg/MarkerArray",
        Qos(1, latched=True),
        "world_topics.markers_hz",
        about="ground, surfaces, obstacles, features and robots for RViz",
        position=103,
    ),
    Topic(
        "radio_rx",
        "/radio/{robot}_rx",
        "std_msgs/msg/ByteMultiArray",
        Qos(5, reliable=False),
        "when a packet arrives",
        about="packets that the robot receives",
        position=104,
    ),
    Topic(
        "diagnostics",
        "/diagnostics",
        "diagnostic_msgs/msg/DiagnosticArray",
        Qos(10),
        "1 Hz of wall time",
        about="real-time factor, tick lag, queues, ignored messages; not part of the digest",
        position=105,
    ),
)


@dataclass(frozen=True)
class Service:
    name: str
    type: str
    about: str


SERVICES = (
    Service("/sim/reset", "std_srvs/srv/Empty", "reset to the start, with the current seed and parameters"),
    Service("/sim/set_seed", "example_interfaces/srv/SetInt32", "seed of the next reset"),
    Service("/sim/pause", "example_interfaces/srv/SetBool", "true: pause, false: resume"),
    Service("/sim/step", "example_interfaces/srv/SetInt32", "advance a paused simulation by that many ticks"),
)


@cache
def table() -> tuple[Topic, ...]:
    """Every topic: what is sent, in the order of sending, then what is taken."""
    from microsim.messages.inputs import INPUTS
    from microsim.sensors import SENSORS

    sensors = [
        Topic(
            form.kind or sensor.name,
            form.topic,
            form.type,
            form.qos,
            form.rate or f"robots.*.{sensor.name}.hz",
            about=form.about,
            position=sensor.position,
            sensor=sensor.path or sensor.name,
        )
        for sensor in SENSORS.built_in.values()
        for form in sensor.messages
    ]
    inputs = [each.topic_row() for each in INPUTS.built_in.values()]
    return (*sorted([*_OWN, *sensors], key=lambda topic: topic.position), *inputs)


TOPICS: dict[str, Topic]


def __getattr__(name: str) -> Any:
    """`TOPICS`: the table by kind."""
    if name == "TOPICS":
        return {topic.kind: topic for topic in table()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
