"""Sends goals to Nav2, one after another, and says what became of each.

    python3 examples/nav2/goals.py arena
    python3 examples/nav2/goals.py 12,18,0 27,21,1.57
    python3 examples/nav2/goals.py --start 5,5,0.7854 arena

A goal is x, y [m] and yaw [rad] in the world. `--start`: where the map has its origin in it, with SLAM the start of the
robot. The exit code is 0 when all goals were reached.
"""

import math
import sys
import time

TOURS = {
    "arena": ("12,18,0.0", "27,21,0.0", "28,28,3.14"),
    "oval": ("30,-30,0.0", "61.2,-21.2,0.785", "70,0,1.57", "61.2,21.2,2.36", "30,30,3.14"),
}


def seen_from(start: str, place: str) -> tuple[float, float, float]:
    """The place in a map whose origin is at `start`."""
    (x0, y0, turn), (x, y, yaw) = (tuple(map(float, each.split(","))) for each in (start, place))
    c, s, x, y = math.cos(turn), math.sin(turn), x - x0, y - y0
    return c * x + s * y, c * y - s * x, yaw - turn


def main() -> int:
    origin, given = "0,0,0", sys.argv[1:]
    if given[:1] == ["--start"]:  # argparse would take a goal with a negative x for an option
        origin, given = given[1], given[2:]
    import rclpy
    from action_msgs.msg import GoalStatus
    from nav2_msgs.action import NavigateToPose
    from rclpy.action import ActionClient
    from rclpy.node import Node
    from rclpy.parameter import Parameter

    rclpy.init()
    node = Node("goals", parameter_overrides=[Parameter("use_sim_time", value=True)])
    client = ActionClient(node, NavigateToPose, "navigate_to_pose")

    def wait(future):
        rclpy.spin_until_future_complete(node, future)
        return future.result()

    def reached(place: str) -> bool:
        goal = NavigateToPose.Goal()
        goal.pose.header.frame_id = "map"
        x, y, yaw = seen_from(origin, place)
        goal.pose.pose.position.x, goal.pose.pose.position.y = x, y
        goal.pose.pose.orientation.z, goal.pose.pose.orientation.w = math.sin(yaw / 2), math.cos(yaw / 2)
        client.wait_for_server()
        while not (handle := wait(client.send_goal_async(goal))).accepted:  # Nav2 is still starting
            time.sleep(0.5)
        start = node.get_clock().now()
        outcome = wait(handle.get_result_async())
        is_there = outcome.status == GoalStatus.STATUS_SUCCEEDED
        seconds = (node.get_clock().now() - start).nanoseconds / 1e9
        text = "reached" if is_there else f"failed with error {outcome.result.error_code}"
        node.get_logger().info(
            f"goal {place}: {text} after {seconds:.1f} s, {node.get_clock().now().nanoseconds / 1e9:.1f} s"
        )
        return is_there

    places = [place for each in given for place in TOURS.get(each, (each,))]
    return 0 if all(reached(place) for place in places) else 1


if __name__ == "__main__":
    sys.exit(main())
