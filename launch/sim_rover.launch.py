"""A rover with mass and drag, and robot_state_publisher beside it.

    ros2 launch microsim sim_rover.launch.py
    ros2 launch microsim sim_rover.launch.py robot_id:=rover params_file:=my_rover.yaml

In RViz: fixed frame `odom`, and a RobotModel on /<robot_id>/robot_description.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

SHARE = Path(__file__).resolve().parent.parent  # share/microsim, or a checkout


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            DeclareLaunchArgument("robot_id", default_value="p0", description="namespace of topics and frames"),
            DeclareLaunchArgument(
                "params_file", default_value="", description="YAML with more parameters of the node; empty: none"
            ),
            OpaqueFunction(function=_start),
        ]
    )


def _start(context: LaunchContext) -> list:
    import xacro

    robot_id = LaunchConfiguration("robot_id").perform(context).strip()
    params_file = LaunchConfiguration("params_file").perform(context).strip()
    model = xacro.process_file(str(SHARE / "urdf" / "rover.urdf.xacro")).toxml()
    publisher = Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=robot_id,
        parameters=[
            {"robot_description": ParameterValue(model, value_type=str), "frame_prefix": f"{robot_id}/"},
        ],
    )
    rover = Node(
        package="microsim",
        executable="sim_rover",
        name="fake_rover_state_controller",
        parameters=[
            *([params_file] if params_file else []),
            {"robot_id": ParameterValue(robot_id, value_type=str), "publish_tf": True},
        ],
        output="screen",
        additional_env={"PYTHONUNBUFFERED": "1"},
        on_exit=Shutdown(reason="the rover ended"),
    )
    return [publisher, rover]  # the rover last: where a package is missing the launch fails before anything runs
