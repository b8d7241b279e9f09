"""A controller on rclpy, for docs/do/lockstep.md: keeps the rover one metre off what its range sensor sees."""

import rclpy
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import Range


class Controller(Node):
    def __init__(self) -> None:
        super().__init__("controller")
        self.speed = 0.0
        self.commands = self.create_publisher(Twist, "/rover/cmd_vel", 10)
        self.create_subscription(Odometry, "/rover/odom", self.on_odometry, 10)
        # last: when several messages wait, rclpy calls the subscriptions in the order in which they were made
        self.create_subscription(Range, "/rover/range/front", self.on_range, 10)

    def on_odometry(self, message: Odometry) -> None:
        self.speed = message.twist.twist.linear.x

    def on_range(self, message: Range) -> None:
        command = Twist()
        command.linear.x = 0.8 * (min(message.range, 5.0) - 1.0) - 0.2 * self.speed
        self.commands.publish(command)


if __name__ == "__main__":
    rclpy.init()
    rclpy.spin(Controller())
