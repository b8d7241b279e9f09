"""Nav2 for a robot of MicroSim: map server, AMCL, planner, controller, behaviours and navigator, as nav2_bringup does.

    ros2 launch examples/nav2/nav2.launch.py
    ros2 launch examples/nav2/nav2.launch.py goals:=arena
    ros2 launch examples/nav2/nav2.launch.py goals:=arena slam:=true
    ros2 launch examples/nav2/nav2.launch.py robot:=none localisation:=false

The simulator runs beside it: see README.md.
"""

from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile

HERE = Path(__file__).resolve().parent
LOCALISATION = {"map_server": "nav2_map_server", "amcl": "nav2_amcl"}
SLAM = {"slam_toolbox": "slam_toolbox"}
EXECUTABLES = {"slam_toolbox": "sync_slam_toolbox_node"}
NAVIGATION = {  # node -> package; the executable has the name of the node, unless EXECUTABLES names another
    "controller_server": "nav2_controller",
    "smoother_server": "nav2_smoother",
    "planner_server": "nav2_planner",
    "behavior_server": "nav2_behaviors",
    "velocity_smoother": "nav2_velocity_smoother",
    "collision_monitor": "nav2_collision_monitor",
    "bt_navigator": "nav2_bt_navigator",
}
TO_SMOOTHER = ("controller_server", "behavior_server", "velocity_smoother")  # cmd_vel between them is cmd_vel_nav
ARGUMENTS = {
    "robot": (
        "rover",
        "the robot, whose name its topics and frames begin with; none: they do not, as of robot_simulator",
    ),
    "map": (str(HERE / "arena_map.yaml"), "map for map_server"),
    "map_topic": (
        "/map",
        "where AMCL and the planner get the map; /world/occupancy: from MicroSim, without map_server",
    ),
    "stamped": ("false", "true: commands are TwistStamped; then MicroSim needs `stamped_cmd_vel: true`"),
    "params_file": (str(HERE / "nav2_params.yaml"), "parameters of all nodes"),
    "overlay": ("", "file with parameters that replace some of them, such as car.yaml"),
    "localisation": ("true", "false: the robot publishes map -> odom itself, AMCL is left out"),
    "slam": ("false", "true: SLAM Toolbox makes the map and localises; map_server and AMCL are left out"),
    "use_sim_time": ("true", "follow /clock"),
    "goals": ("", "what goals.py drives to: a name or 'x,y,yaw x,y,yaw'; empty: wait for goals"),
    "start": ("5,5,0.7854", "where the robot starts in the world: there the map of SLAM has its origin"),
}


def generate_launch_description() -> LaunchDescription:
    declared = [
        DeclareLaunchArgument(name, default_value=value, description=about)
        for name, (value, about) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=_start)])


def _start(context: LaunchContext) -> list:
    given = {name: LaunchConfiguration(name).perform(context) for name in ARGUMENTS}
    context.launch_configurations["prefix"] = "" if given["robot"] == "none" else f"{given['robot']}/"  # of the files
    is_true = {name: given[name].lower() == "true" for name in ("localisation", "slam", "stamped", "use_sim_time")}
    sim_time = {"use_sim_time": is_true["use_sim_time"]}
    stamped = {"enable_stamped_cmd_vel": is_true["stamped"]}  # Jazzy's default is false, that of later ones true
    slam = [str(HERE / "slam.yaml")] if is_true["slam"] else []
    files = [given["params_file"], *slam, *([given["overlay"]] if given["overlay"] else [])]
    shared = [*(ParameterFile(each, allow_substs=True) for each in files), sim_time, stamped]

    def node(name: str, package: str) -> Node:
        remappings = [("cmd_vel", "cmd_vel_nav")] if name in TO_SMOOTHER else []
        own = [{"yaml_filename": given["map"]}] if name == "map_server" else []
        return Node(
            package=package,
            executable=EXECUTABLES.get(name, name),
            name=name,
            parameters=[*shared, *own],
            remappings=remappings,
            output="screen",
        )

    def manager(name: str, nodes: list[str]) -> Node:
        parameters = [{"autostart": True, "node_names": nodes}, sim_time]
        return Node(
            package="nav2_lifecycle_manager",
            executable="lifecycle_manager",
            name=name,
            parameters=parameters,
            output="screen",
        )

    left_out = {"map_server"} if given["map_topic"] != "/map" else set()
    left_out |= set() if is_true["localisation"] else {"amcl"}
    localisation = SLAM if is_true["slam"] else {n: package for n, package in LOCALISATION.items() if n not in left_out}
    actions: list = [node(*each) for each in (localisation | NAVIGATION).items()]
    if localisation:
        actions.append(manager("lifecycle_manager_localization", list(localisation)))
    actions.append(manager("lifecycle_manager_navigation", list(NAVIGATION)))
    if given["goals"]:
        origin = ["--start", given["start"]] if is_true["slam"] else []
        command = ["python3", str(HERE / "goals.py"), *origin, *given["goals"].split()]
        actions.append(ExecuteProcess(cmd=command, output="screen"))
    return actions
