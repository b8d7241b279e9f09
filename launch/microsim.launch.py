"""MicroSim with RViz, robot models and a recording, as asked for.

    ros2 launch microsim microsim.launch.py
    ros2 launch microsim microsim.launch.py scenario:=obstacles_arena seed:=7 headless:=true
    ros2 launch microsim microsim.launch.py --show-args

What is not given is not passed on, so that it comes from the params file, else from the scenario.
"""

import os
import re
import sys
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

SHARE = Path(__file__).resolve().parent.parent  # share/microsim, or a checkout
ROBOTS = ("drone", "rover")
SWITCH = ("true", "false", "True", "False")
AUTO = ("auto", *SWITCH)


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            _argument("scenario", "", "a shipped scenario or a file; empty: that of params_file, else 'default'"),
            _argument("seed", "", "seed of all noise, a whole number; empty: that of params_file, else the scenario's"),
            _argument("params_file", "", "YAML file with ROS parameters of the node microsim; empty: none"),
            _argument("namespace", "", "put every node, topic and service under this name, for several simulators"),
            _argument("headless", "false", "true: no window, whatever use_rviz says", SWITCH),
            _argument("use_rviz", "auto", "show RViz; auto: when it is installed and there is a display", AUTO),
            _argument("rviz_config", str(SHARE / "rviz" / "microsim_view.rviz"), "what RViz shows"),
            _argument(
                "use_robot_state_publisher",
                "auto",
                "true: static frames come from urdf/, not from the simulator; auto: only models, when RViz is shown",
                AUTO,
            ),
            _argument("record", "", "record all topics with `ros2 bag record` into this new folder; empty: do not"),
            OpaqueFunction(function=_start),
        ]
    )


def _argument(name: str, default: str, about: str, choices: tuple[str, ...] | None = None) -> DeclareLaunchArgument:
    return DeclareLaunchArgument(name, default_value=default, description=about, choices=choices)


def _start(context: LaunchContext) -> list:
    def given(name: str) -> str:
        return LaunchConfiguration(name).perform(context).strip()

    def switch(name: str, automatic: bool = False) -> bool:
        return automatic if given(name) == "auto" else given(name).lower() == "true"

    namespace = "/".join(["", *filter(None, given("namespace").split("/"))])  # "" or "/one/two"
    shows_rviz = switch("use_rviz", _can_show_rviz()) and not switch("headless")
    gives_frames = switch("use_robot_state_publisher")
    # The simulator comes last: where a package is missing the launch fails, and should fail before anything runs.
    actions: list = []
    if shows_rviz:
        actions.append(_rviz(namespace, given("rviz_config")))
    if switch("use_robot_state_publisher", shows_rviz):
        actions += [_robot_model(namespace, robot, gives_frames) for robot in ROBOTS]
    if given("record"):
        actions.append(_recorder(namespace, given("record")))
    actions.append(_simulator(namespace, given("scenario"), given("seed"), given("params_file"), gives_frames))
    return actions


def _can_show_rviz() -> bool:
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    try:
        return has_display and bool(get_package_prefix("rviz2"))
    except PackageNotFoundError:
        return False


def _simulator(namespace: str, scenario: str, seed: str, params_file: str, others_give_frames: bool) -> Node:
    parameters: dict = {"use_sim_time": True}
    if scenario:
        parameters["scenario"] = ParameterValue(scenario, value_type=str)  # even if the name looks like a number
    if seed:
        parameters["seed"] = int(seed)
    if others_give_frames:
        parameters["frames.publish_static_tf"] = False
    return Node(
        package="microsim",
        executable="microsim",
        name="microsim",
        namespace=namespace,
        parameters=[*([params_file] if params_file else []), parameters],
        output="screen",
        additional_env={"PYTHONUNBUFFERED": "1"},
        on_exit=Shutdown(reason="the simulator ended"),
    )


def _robot_model(namespace: str, robot: str, gives_frames: bool) -> Node:
    """Publishes robot_description and, on request, the frames of the sensors under the names the simulator gives them.

    Unless it is to give frames, its own go to a topic nobody reads: the simulator's are those of the scenario, with
    every sensor and its mount. `static` makes propellers and wheels part of the body: nobody publishes joint states
    here, and without them there are no frames for joints that turn, which RViz reports as errors. To see them turn,
    leave `static` out in a launch file of your own and run joint_state_publisher (or your controller) beside it.
    """
    import xacro

    model = xacro.process_file(str(SHARE / "urdf" / f"{robot}.urdf.xacro"), mappings={"static": "true"}).toxml()
    return Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=f"{namespace}/{robot}",
        parameters=[
            {
                "robot_description": ParameterValue(model, value_type=str),
                "frame_prefix": f"{robot}/",
                "use_sim_time": True,
            }
        ],
        remappings=[
            *_under(namespace, "/clock"),
            *_under(namespace if gives_frames else f"{namespace}/{robot}", "/tf", "/tf_static"),
        ],
    )


def _rviz(namespace: str, config: str) -> Node:
    topics = re.findall(r"^ +Value: (/\S+)$", Path(config).read_text(encoding="utf-8"), re.MULTILINE)
    topics += [topic.replace("/image_raw", "/camera_info") for topic in topics if topic.endswith("/image_raw")]
    return Node(
        package="rviz2",
        executable="rviz2",
        name="rviz2",
        namespace=namespace,
        arguments=["--display-config", config],
        parameters=[{"use_sim_time": True}],
        remappings=_under(namespace, "/clock", "/tf", "/tf_static", *sorted(set(topics))),
    )


def _recorder(namespace: str, folder: str) -> ExecuteProcess:
    # The recorder knows simulated time by the name /clock alone.
    what = ["--regex", f"^{namespace}/.*"] if namespace else ["--all", "--use-sim-time"]
    return ExecuteProcess(cmd=["ros2", "bag", "record", "--output", folder, *what], output="screen")


def _under(namespace: str, *topics: str) -> list[tuple[str, str]]:
    """Absolute names do not follow a node's namespace by themselves."""
    return [(topic, namespace + topic) for topic in topics] if namespace else []
