"""A controller on `microsim.connect()`. Arguments: namespace, longest delay, random from [s], then topics in the order
of subscribing: odom, imu, range, gps, scan; without them: odom.

It replies to the first of odom and range that is there, and with several topics its commands show the order in which
it handled them.
"""

import random
import sys
import threading
import time
from typing import Any

import microsim
from microsim.messages.topics import Qos

TOPICS = {
    "odom": ("odom", "nav_msgs/msg/Odometry"),
    "imu": ("imu/data_raw", "sensor_msgs/msg/Imu"),
    "range": ("range/front", "sensor_msgs/msg/Range"),
    "gps": ("gps/fix", "sensor_msgs/msg/NavSatFix"),
    "scan": ("scan", "sensor_msgs/msg/LaserScan"),
}
namespace, longest_s, random_from_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
order = sys.argv[4:] or ["odom"]
latest = {"odom": 0.0, "order": 0.0}

with microsim.connect("controller") as node:
    commands = node.publisher(f"{namespace}/rover/cmd_vel", "geometry_msgs/msg/Twist", Qos(10))

    def on_message(name: str, message: Any) -> None:
        time.sleep(longest_s * random.random())
        stamp = message.header.stamp
        latest["order"] = (0.7 * latest["order"] + 0.01 * len(name) + 0.1 * list(TOPICS).index(name)) % 1.0
        if name == "odom":
            latest["odom"] = 0.1 * (25.0 - message.pose.pose.position.x)
        if name != ("range" if "range" in order else "odom"):
            return
        speed = latest["odom"] + (0.1 * latest["order"] if len(order) > 1 else 0.0)
        if stamp.sec + 1e-9 * stamp.nanosec >= random_from_s:
            speed = random.random()
        commands.publish({"linear": {"x": speed}})

    for each in order:
        topic, kind = TOPICS[each]
        node.subscribe(
            f"{namespace}/rover/{topic}", lambda message, name=each: on_message(name, message), type=kind, qos=Qos(10)
        )
    threading.Event().wait()
