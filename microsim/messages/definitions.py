"""Services, actions, the messages only they use, and ackermann_msgs, as text: what `rosbags` does not bring.

Fields and constants as in the .msg, .srv and .action files of ROS 2 Jazzy, of simulation_interfaces 2.1 and of
ackermann_msgs 2.0.
A service `pkg/srv/Name` gives the types `pkg/srv/Name_Request` and `pkg/srv/Name_Response`.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from rosbags.interfaces import Nodetype

Definition: TypeAlias = tuple[list[tuple[str, str, Any]], list[tuple[str, Any]]]  # constants, fields

MESSAGES = {
    "ackermann_msgs/msg/AckermannDrive": """
        float32 steering_angle
        float32 steering_angle_velocity
        float32 speed
        float32 acceleration
        float32 jerk""",
    "ackermann_msgs/msg/AckermannDriveStamped": "std_msgs/Header header\nAckermannDrive drive",
    "simulation_interfaces/msg/Bounds": """
        uint8 TYPE_EMPTY=0
        uint8 TYPE_BOX=1
        uint8 TYPE_CONVEX_HULL=2
        uint8 TYPE_SPHERE=3
        uint8 type
        geometry_msgs/Vector3[] points""",
    "simulation_interfaces/msg/EntityCategory": """
        uint8 CATEGORY_OBJECT=0
        uint8 CATEGORY_ROBOT=1
        uint8 CATEGORY_HUMAN=2
        uint8 CATEGORY_DYNAMIC_OBJECT=4
        uint8 CATEGORY_STATIC_OBJECT=5
        uint8 category""",
    "simulation_interfaces/msg/EntityFilters": """
        string filter
        EntityCategory[] categories
        TagsFilter tags
        Bounds bounds""",
    "simulation_interfaces/msg/EntityInfo": "EntityCategory category\nstring description\nstring[] tags",
    "simulation_interfaces/msg/EntityState": """
        std_msgs/Header header
        geometry_msgs/Pose pose
        geometry_msgs/Twist twist
        geometry_msgs/Accel acceleration""",
    "simulation_interfaces/msg/Resource": "string uri\nstring resource_string",
    "simulation_interfaces/msg/Result": """
        uint8 RESULT_FEATURE_UNSUPPORTED=0
        uint8 RESULT_OK=1
        uint8 RESULT_NOT_FOUND=2
        uint8 RESULT_INCORRECT_STATE=3
        uint8 RESULT_OPERATION_FAILED=4
        uint8 result
        string error_message""",
    "simulation_interfaces/msg/SimulationState": """
        uint8 STATE_STOPPED=0
        uint8 STATE_PLAYING=1
        uint8 STATE_PAUSED=2
        uint8 STATE_QUITTING=3
        uint8 STATE_NO_WORLD=4
        uint8 STATE_LOADING_WORLD=5
        uint8 state""",
    "simulation_interfaces/msg/SimulatorFeatures": """
        uint8 SPAWNING=0
        uint8 DELETING=1
        uint8 NAMED_POSES=2
        uint8 POSE_BOUNDS=3
        uint8 ENTITY_TAGS=4
        uint8 ENTITY_BOUNDS=5
        uint8 ENTITY_BOUNDS_BOX=6
        uint8 ENTITY_BOUNDS_CONVEX=7
        uint8 ENTITY_CATEGORIES=8
        uint8 SPAWNING_RESOURCE_STRING=9
        uint8 ENTITY_STATE_GETTING=10
        uint8 ENTITY_STATE_SETTING=11
        uint8 ENTITY_INFO_GETTING=12
        uint8 ENTITY_INFO_SETTING=13
        uint8 SPAWNABLES=14
        uint8 SIMULATION_RESET=20
        uint8 SIMULATION_RESET_TIME=21
        uint8 SIMULATION_RESET_STATE=22
        uint8 SIMULATION_RESET_SPAWNED=23
        uint8 SIMULATION_STATE_GETTING=24
        uint8 SIMULATION_STATE_SETTING=25
        uint8 SIMULATION_STATE_PAUSE=26
        uint8 STEP_SIMULATION_SINGLE=31
        uint8 STEP_SIMULATION_MULTIPLE=32
        uint8 STEP_SIMULATION_ACTION=33
        uint8 WORLD_LOADING=40
        uint8 WORLD_RESOURCE_STRING=41
        uint8 WORLD_TAGS=42
        uint8 WORLD_UNLOADING=43
        uint8 WORLD_INFO_GETTING=44
        uint8 AVAILABLE_WORLDS=45
        uint8 SPAWNING_ENTITIES=50
        uint16[] features
        string[] spawn_formats
        string custom_info""",
    "simulation_interfaces/msg/TagsFilter": """
        string[] tags
        uint8 FILTER_MODE_ANY=0
        uint8 FILTER_MODE_ALL=1
        uint8 filter_mode""",
    "simulation_interfaces/msg/WorldResource": """
        string name
        Resource world_resource
        string description
        string[] tags""",
}

_DONE = "bool success\nstring message"
_RESULT = "simulation_interfaces/Result result\n"
_FILTERS = "simulation_interfaces/EntityFilters filters"
_PARAMETERS = "rcl_interfaces/Parameter[] parameters"

SERVICES = {  # request --- response
    "std_srvs/srv/Empty": "---",
    "std_srvs/srv/SetBool": f"bool data\n---\n{_DONE}",
    "std_srvs/srv/Trigger": f"---\n{_DONE}",
    "example_interfaces/srv/AddTwoInts": "int64 a\nint64 b\n---\nint64 sum",
    "example_interfaces/srv/SetBool": f"bool data\n---\n{_DONE}",
    "example_interfaces/srv/SetInt32": f"int32 data\n---\n{_DONE}",  # ours: upstream has none of this name
    "example_interfaces/srv/Trigger": f"---\n{_DONE}",
    "microsim_interfaces/srv/SetInt32": f"int32 data\n---\n{_DONE}",
    "action_msgs/srv/CancelGoal": """
        GoalInfo goal_info
        ---
        int8 ERROR_NONE=0
        int8 ERROR_REJECTED=1
        int8 ERROR_UNKNOWN_GOAL_ID=2
        int8 ERROR_GOAL_TERMINATED=3
        int8 return_code
        GoalInfo[] goals_canceling""",
    "rcl_interfaces/srv/DescribeParameters": "string[] names\n---\nParameterDescriptor[] descriptors",
    "rcl_interfaces/srv/GetParameterTypes": "string[] names\n---\nuint8[] types",
    "rcl_interfaces/srv/GetParameters": "string[] names\n---\nParameterValue[] values",
    "rcl_interfaces/srv/ListParameters": """
        uint64 DEPTH_RECURSIVE=0
        string[] prefixes
        uint64 depth
        ---
        ListParametersResult result""",
    "rcl_interfaces/srv/SetParameters": f"{_PARAMETERS}\n---\nSetParametersResult[] results",
    "rcl_interfaces/srv/SetParametersAtomically": f"{_PARAMETERS}\n---\nSetParametersResult result",
    "simulation_interfaces/srv/GetAvailableWorlds": f"""
        string[] additional_sources
        TagsFilter filter
        bool offline_only
        bool continue_on_error
        ---
        uint8 DEFAULT_SOURCES_FAILED=101
        {_RESULT}
        WorldResource[] worlds""",
    "simulation_interfaces/srv/GetCurrentWorld": f"---\nuint8 NO_WORLD_LOADED=101\n{_RESULT}WorldResource world",
    "simulation_interfaces/srv/GetEntities": f"{_FILTERS}\n---\n{_RESULT}string[] entities",
    "simulation_interfaces/srv/GetEntitiesStates": (
        f"{_FILTERS}\n---\n{_RESULT}string[] entities\nEntityState[] states"
    ),
    "simulation_interfaces/srv/GetEntityInfo": f"string entity\n---\n{_RESULT}EntityInfo info",
    "simulation_interfaces/srv/GetEntityState": f"string entity\n---\n{_RESULT}EntityState state",
    "simulation_interfaces/srv/GetSimulationState": f"---\nSimulationState state\n{_RESULT}",
    "simulation_interfaces/srv/GetSimulatorFeatures": "---\nSimulatorFeatures features",
    "simulation_interfaces/srv/LoadWorld": f"""
        Resource world_resource
        bool fail_on_unsupported_element
        bool ignore_missing_or_unsupported_assets
        ---
        uint8 UNSUPPORTED_FORMAT=101
        uint8 NO_RESOURCE=102
        uint8 RESOURCE_PARSE_ERROR=103
        uint8 MISSING_ASSETS=104
        uint8 UNSUPPORTED_ASSETS=105
        uint8 UNSUPPORTED_ELEMENTS=106
        {_RESULT}
        WorldResource world""",
    "simulation_interfaces/srv/ResetSimulation": f"""
        uint8 SCOPE_DEFAULT=0
        uint8 SCOPE_TIME=1
        uint8 SCOPE_STATE=2
        uint8 SCOPE_SPAWNED=4
        uint8 SCOPE_ALL=255
        uint8 scope
        ---
        {_RESULT}""",
    "simulation_interfaces/srv/SetEntityState": f"""
        string entity
        EntityState state
        bool set_pose
        bool set_twist
        bool set_acceleration
        ---
        uint8 INVALID_POSE=101
        {_RESULT}""",
    "simulation_interfaces/srv/SetSimulationState": f"""
        SimulationState state
        ---
        uint8 ALREADY_IN_TARGET_STATE=101
        uint8 STATE_TRANSITION_ERROR=102
        uint8 INCORRECT_TRANSITION=103
        {_RESULT}""",
    "simulation_interfaces/srv/StepSimulation": f"uint64 steps\n---\n{_RESULT}",
}

ACTIONS = {  # goal --- result --- feedback
    "simulation_interfaces/action/SimulateSteps": (
        f"uint64 steps\n---\n{_RESULT}\n---\nuint64 completed_steps\nuint64 remaining_steps"
    ),
}

_GOAL_ID = "unique_identifier_msgs/UUID goal_id\n"
_EMPTY = "uint8 structure_needs_at_least_one_member"  # what IDL makes of a struct without members
_BASE_TYPES = {"bool", "byte", "char", "float32", "float64", "string"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
_LINE = re.compile(r"(?P<type>[\w/]+)(?P<many>\[(?P<count>\d*)\])?\s+(?P<name>\w+)\s*(=\s*(?P<value>\S+))?")


def definitions() -> dict[str, Definition]:
    """Every type of this module, as the store of `rosbags` takes them."""
    texts = dict(MESSAGES)
    for name, text in SERVICES.items():
        texts.update(_halves(name, *text.split("---")))
    for name, text in ACTIONS.items():
        texts.update(_action(name, *text.split("---")))
    return {name: _definition(name, text) for name, text in texts.items()}


def is_service(type_name: str) -> bool:
    """Whether `type_name` names a service (also one of an action's) whose request and response are known."""
    action = re.sub(r"_(SendGoal|GetResult)$", "", type_name)
    return type_name in SERVICES or (action != type_name and action in ACTIONS)


def _halves(name: str, request: str, response: str) -> dict[str, str]:
    return {f"{name}_Request": request, f"{name}_Response": response}


def _action(name: str, goal: str, result: str, feedback: str) -> dict[str, str]:
    """What rosidl makes of an action: three messages, two services and the message of the feedback topic."""
    return {
        f"{name}_Goal": goal,
        f"{name}_Result": result,
        f"{name}_Feedback": feedback,
        f"{name}_FeedbackMessage": f"{_GOAL_ID}{name}_Feedback feedback",
        **_halves(f"{name}_SendGoal", f"{_GOAL_ID}{name}_Goal goal", "bool accepted\nbuiltin_interfaces/Time stamp"),
        **_halves(f"{name}_GetResult", _GOAL_ID, f"int8 status\n{name}_Result result"),
    }


def _definition(name: str, text: str) -> Definition:
    constants, fields = [], []
    for line in _lines(text):
        if line["value"] is not None:
            constants.append((line["name"], line["type"], int(line["value"])))
        else:
            fields.append((line["name"], _kind(name.partition("/")[0], line)))
    return (constants, fields) if fields else _definition(name, f"{text}\n{_EMPTY}")


def _lines(text: str) -> Iterator[re.Match[str]]:
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _LINE.fullmatch(line)
        assert match is not None, f"not a field or a constant: {line}"
        yield match


def _kind(package: str, line: re.Match[str]) -> tuple[Nodetype, Any]:
    element: tuple[Nodetype, Any]
    if line["type"] in _BASE_TYPES:
        element = (Nodetype.BASE, (line["type"], 0))
    else:
        element = (Nodetype.NAME, _full_name(package, line["type"]))
    if line["many"] is None:
        return element
    return (Nodetype.ARRAY if line["count"] else Nodetype.SEQUENCE), (element, int(line["count"] or 0))


def _full_name(package: str, name: str) -> str:
    parts = name.split("/")
    return name if len(parts) == 3 else f"{parts[0] if len(parts) == 2 else package}/msg/{parts[-1]}"
