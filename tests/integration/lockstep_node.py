"""A controller on `microsim.connect()`: replies to odometry. Arguments: namespace, longest delay, random from [s]."""

import random
import sys
import threading
import time
from typing import Any

import microsim
from microsim.messages.topics import Qos

namespace, longest_s, random_from_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])

with microsim.connect("controller") as node:
    commands = node.publisher(f"{namespace}/rover/cmd_vel", "geometry_msgs/msg/Twist", Qos(10))

    def on_odometry(message: Any) -> None:
        time.sleep(longest_s * random.random())
        stamp, speed = message.header.stamp, 0.1 * (25.0 - message.pose.pose.position.x)
        if stamp.sec + 1e-9 * stamp.nanosec >= random_from_s:
            speed = random.random()
        commands.publish({"linear": {"x": speed}})

    node.subscribe(f"{namespace}/rover/odom", on_odometry, type="nav_msgs/msg/Odometry", qos=Qos(10))
    threading.Event().wait()
