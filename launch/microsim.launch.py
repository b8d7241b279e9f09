"""MicroSim with RViz, robot models and a recording.

    ros2 launch microsim microsim.launch.py
    ros2 launch microsim microsim.launch.py scenario:=obstacles_arena seed:=7 headless:=true
    ros2 launch microsim microsim.launch.py --show-args

Arguments that are not given are not passed on: their values come from the params file, else from the scenario.
"""

import atexit
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ament_index_python.packages import PackageNotFoundError, get_package_prefix
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

SHARE = Path(__file__).resolve().parent.parent  # share/microsim, or a checkout
ROBOTS = ("drone", "rover")
SWITCH = ("true", "false", "True", "False")
AUTO = ("auto", *SWITCH)
SAME = {  # names that launch files of Nav2 and Gazebo use for the same
    "world": "scenario",
    "rviz_config_file": "rviz_config",
    "use_robot_state_pub": "use_robot_state_publisher",
}
START = {"x_pose": "x", "y_pose": "y", "z_pose": "z", "yaw": "yaw"}


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            _argument("scenario", "", "a shipped scenario or a file; empty: that of params_file, else 'default'"),
            _argument("seed", "", "seed of all noise, a whole number; empty: that of params_file, else the scenario's"),
            _argument("params_file", "", "YAML file with ROS parameters of the node microsim; empty: none"),
            _argument("namespace", "", "put every node, topic and service under this name, for several simulators"),
            _argument("use_sim_time", "true", "whether RViz and the robots' models follow /clock", SWITCH),
            _argument("robot_name", "", "robot that x_pose … yaw are meant for; empty: rover, in a world bundle ego"),
            *(
                _argument(name, "", f"{axis} of its start in the map; empty: the scenario's")
                for name, axis in START.items()
            ),
            *(_argument(name, "", f"the same as {ours}") for name, ours in SAME.items()),
            _argument("headless", "false", "true: no window, whatever use_rviz says", SWITCH),
            _argument("use_rviz", "auto", "show RViz; auto: when it is installed and there is a display", AUTO),
            _argument(
                "rviz_config",
                "",
                "what RViz shows; empty: microsim_drive.rviz in a world bundle, else microsim_view.rviz",
            ),
            _argument(
                "use_robot_state_publisher",
                "auto",
                "true: static frames come from urdf/, not from the simulator; auto: only models, when RViz is shown",
                AUTO,
            ),
            _argument(
                "record", "", "record all messages and commands, from tick 0, into this new folder; empty: do not"
            ),
            _argument("plugins", "", "folders of plug-ins whose code may run, with a colon between them; empty: none"),
            OpaqueFunction(function=_start),
        ]
    )


def _argument(name: str, default: str, about: str, choices: tuple[str, ...] | None = None) -> DeclareLaunchArgument:
    return DeclareLaunchArgument(name, default_value=default, description=about, choices=choices)


def _start(context: LaunchContext) -> list:
    def given(name: str) -> str:
        """Of an argument, or of the one with the other name for the same."""
        own = LaunchConfiguration(name).perform(context).strip()
        other = next((each for each, ours in SAME.items() if ours == name), "")
        return (LaunchConfiguration(other).perform(context).strip() if other else "") or own

    def switch(name: str, automatic: bool = False) -> bool:
        return automatic if given(name) == "auto" else given(name).lower() == "true"

    namespace = "/".join(["", *filter(None, given("namespace").split("/"))])  # "" or "/one/two"
    shows_rviz = switch("use_rviz", _can_show_rviz()) and not switch("headless")
    gives_frames, sim_time = switch("use_robot_state_publisher"), switch("use_sim_time")
    # The simulator comes last: where a package is missing the launch fails, and should fail before anything runs.
    actions: list = []
    drives = _is_world(given("scenario"))
    profile = SHARE / "rviz" / ("microsim_drive.rviz" if drives else "microsim_view.rviz")
    if shows_rviz:
        actions.append(
            _rviz(namespace, given("rviz_config") or _fitted(profile, given("scenario"), _folders(given)), sim_time)
        )
    if switch("use_robot_state_publisher", shows_rviz):
        models = [] if drives else [_robot_model(namespace, each, gives_frames, sim_time) for each in ROBOTS]
        actions += models or [_car_model(namespace, given("scenario"), sim_time)]
    start = _start_pose(given("robot_name") or ("ego" if drives else "rover"), given)
    actions.append(_simulator(namespace, given, gives_frames, start))
    return actions


def _start_pose(robot: str, given: Callable[[str], str]) -> dict[str, float]:
    """Parameters of the node, for what is given."""
    return {f"{robot}.start.map_pose.{axis}": _number(name, given(name)) for name, axis in START.items() if given(name)}


def _is_world(scenario: str) -> bool:
    """Whether it is a world bundle, shipped or a folder: its robot is the car `ego`."""
    return bool(scenario) and any(
        (folder / "world.yaml").is_file() for folder in (SHARE / "worlds" / scenario, Path(scenario))
    )


def _can_show_rviz() -> bool:
    has_display = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    try:
        return has_display and bool(get_package_prefix("rviz2"))
    except PackageNotFoundError:
        return False


def _simulator(namespace: str, given: Callable[[str], str], others_give_frames: bool, start: dict[str, float]) -> Node:
    parameters: dict = {"use_sim_time": True, **start}
    if given("scenario"):
        # a string, even if the name looks like a number
        parameters["scenario"] = ParameterValue(given("scenario"), value_type=str)
    if given("seed"):
        parameters["seed"] = _whole("seed", given("seed"))
    if others_give_frames:
        parameters["frames.publish_static_tf"] = False
    record, params_file = given("record"), given("params_file")
    if record and Path(record).exists():
        raise RuntimeError(f"record:={record} already exists; choose another folder")
    if params_file and not Path(params_file).is_file():
        raise RuntimeError(f"params_file:={params_file} does not exist")
    options = [*(["--record", record] if record else []), *(w for f in _folders(given) for w in ("--plugins", f))]
    return Node(
        package="microsim",
        executable="microsim",
        name="microsim",
        namespace=namespace,
        # the simulator records itself: a recorder of its own process would subscribe only after the first ticks
        arguments=["run", *options] if options else [],
        parameters=[*([params_file] if params_file else []), parameters],
        output="screen",
        additional_env={"PYTHONUNBUFFERED": "1"},
        on_exit=Shutdown(reason="the simulator ended"),
    )


def _folders(given: Callable[[str], str]) -> list[str]:
    return [folder for folder in given("plugins").split(":") if folder]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(f"{name}:={text} is not a whole number") from None


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RuntimeError(f"{name}:={text} is not a number") from None


def _robot_model(namespace: str, robot: str, gives_frames: bool, sim_time: bool) -> Node:
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
                "use_sim_time": sim_time,
            }
        ],
        remappings=[
            *_under(namespace, "/clock"),
            *_under(namespace if gives_frames else f"{namespace}/{robot}", "/tf", "/tf_static"),
        ],
    )


def _car_model(namespace: str, world: str, sim_time: bool) -> Node:
    """The car's model, and frames of its wheels, which turn as /ego/joint_states says. Its frames have no prefix."""
    import xacro

    model = xacro.process_file(str(SHARE / "urdf" / "ego.urdf.xacro"), mappings=_car_sizes(world)).toxml()
    return Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=f"{namespace}/ego",
        parameters=[{"robot_description": ParameterValue(model, value_type=str), "use_sim_time": sim_time}],
        remappings=_under(namespace, "/clock", "/tf", "/tf_static"),
    )


def _car_sizes(world: str) -> dict[str, str]:
    """Arguments of the model for the car of this world: else its frames would differ from the simulator's."""
    try:
        from microsim import load_scenario
        from microsim.registry import code_only_from

        with code_only_from(()):  # a world bundle has none
            car = load_scenario(world).robots["ego"]
    except Exception:  # whatever is wrong with the world, the simulator reports it
        return {}
    sizes = {name: str(getattr(car, f"{name}_m")) for name in ("wheelbase", "track", "wheel_radius")}
    mounts = {name: getattr(car, name).mount for name in ("gps", "imu") if getattr(car, name) is not None}
    return {**sizes, **{f"{name}_xyz": " ".join(map(str, mount.xyz)) for name, mount in mounts.items()}}


def _fitted(profile: Path, scenario: str, plugins: list[str]) -> str:
    """A copy of a profile whose grid and views fit the scenario's map, gone when the launch ends."""
    try:
        from microsim.parts.ros2.rviz_profile import fitted
        from microsim.registry import code_only_from

        with code_only_from(plugins):
            text = fitted(profile, scenario or "default")
    except Exception:  # whatever is wrong with the scenario, the simulator reports it
        return str(profile)
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"{profile.stem}_", suffix=".rviz", delete=False, encoding="utf-8"
    ) as file:
        file.write(text)
    atexit.register(Path(file.name).unlink, missing_ok=True)
    return file.name


def _rviz(namespace: str, config: str, sim_time: bool) -> Node:
    topics = re.findall(r"^ +Value: (/\S+)$", Path(config).read_text(encoding="utf-8"), re.MULTILINE)
    topics += [topic.replace("/image_raw", "/camera_info") for topic in topics if topic.endswith("/image_raw")]
    return Node(
        package="rviz2",
        executable="rviz2",
        name="rviz2",
        namespace=namespace,
        arguments=["--display-config", config],
        parameters=[{"use_sim_time": sim_time}],
        remappings=_under(namespace, "/clock", "/tf", "/tf_static", *sorted(set(topics))),
    )


def _under(namespace: str, *topics: str) -> list[tuple[str, str]]:
    """Absolute names do not follow a node's namespace by themselves."""
    return [(topic, namespace + topic) for topic in topics] if namespace else []
