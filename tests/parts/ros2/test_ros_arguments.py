"""`--ros-args` as rcl reads them."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.errors import UsageError
from microsim.parts.ros2.transport import Value
from microsim.parts.ros2.transport.ros_arguments import RosArguments, parse_ros_arguments


def parse(*arguments: str, node: str = "microsim") -> RosArguments:
    return parse_ros_arguments(["--ros-args", *arguments], node)


def override(text: str) -> Value:
    return parse("-p", f"x:={text}").overrides["x"]


# ---- names


def test_without_arguments_a_node_is_at_the_root() -> None:
    arguments = parse_ros_arguments([], "microsim")
    assert (arguments.node_name, arguments.logger) == ("/microsim", "microsim")
    assert arguments.topic("/clock") == "/clock"
    assert arguments.service("~/get_parameters") == "/microsim/get_parameters"


def test_topics_of_the_table_belong_to_the_namespace() -> None:
    arguments = parse("-r", "__ns:=/fleet/a", "-r", "__node:=sim")
    assert arguments.node_name == "/fleet/a/sim"
    assert arguments.logger == "fleet.a.sim"
    assert arguments.topic("/drone/odom") == "/fleet/a/drone/odom"
    assert arguments.service("~/get_parameters") == "/fleet/a/sim/get_parameters"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("drone/cmd_vel:=/teleop", "/teleop"),
        ("drone/cmd_vel:=teleop", "/a/teleop"),
        ("/a/drone/cmd_vel:=teleop", "/a/teleop"),
        ("/drone/cmd_vel:=/teleop", "/a/drone/cmd_vel"),  # another topic: the node's is in its namespace
        ("microsim:drone/cmd_vel:=/teleop", "/teleop"),
        ("other:drone/cmd_vel:=/teleop", "/a/drone/cmd_vel"),
        ("rostopic://drone/cmd_vel:=/teleop", "/teleop"),
        ("rosservice://drone/cmd_vel:=/teleop", "/a/drone/cmd_vel"),
        ("drone/cmd_vel:=~/teleop", "/a/microsim/teleop"),
        ("drone/cmd_vel:={node}/teleop", "/a/microsim/teleop"),
    ],
)
def test_remapping(rule: str, name: str) -> None:
    assert parse("-r", "__ns:=/a", "--remap", rule).topic("/drone/cmd_vel") == name


def test_the_first_rule_that_matches_wins() -> None:
    arguments = parse("-r", "clock:=one", "-r", "clock:=two", "-r", "one:=three")
    assert arguments.topic("/clock") == "/one"


def test_services_are_remapped_like_topics() -> None:
    arguments = parse("-r", "sim/reset:=/reset", "-r", "rostopic://sim/pause:=/x")
    assert arguments.service("/sim/reset") == "/reset"
    assert arguments.service("/sim/pause") == "/sim/pause"


def test_a_rule_for_the_name_of_another_node_is_not_ours() -> None:
    assert parse("-r", "other:__node:=x").node_name == "/microsim"
    assert parse("-r", "microsim:__name:=x").node_name == "/x"


# ---- parameters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x10", 16),
        ("010", 8),
        ("1.0", 1.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("99999999999999999999", 1e20),
        ("true", True),
        ("off", False),
        ("Yes", True),
        ("hello", "hello"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("1.2.3", "1.2.3"),
        ("null", "null"),
        ("a b c", "a b c"),
        ("''", ""),
        ("[1, 2]", [1, 2]),
        ("[1.0, 2.5]", [1.0, 2.5]),
        ("[yes, no]", [True, False]),
        ("[a, '1']", ["a", "1"]),
        ("[]", []),
    ],
)
def test_values_are_typed_as_rcl_types_them(text: str, value: Value) -> None:
    found = override(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_double() -> None:
    assert math.isnan(override(".nan"))  # type: ignore[arg-type]


def test_a_parameter_may_be_meant_for_one_node() -> None:
    arguments = parse("-p", "microsim:a:=1", "-p", "other:a:=2", "-p", "robots.drone.max_vx:=3.0")
    assert arguments.overrides == {"a": 1, "robots.drone.max_vx": 3.0}


def test_the_last_of_files_and_parameters_wins_as_in_rcl(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("/**:\n  ros__parameters: {a: 1, b: 1, c: 1}\n")
    second.write_text("/**:\n  ros__parameters: {b: 2, c: 2}\n")
    arguments = parse("-p", "c:=3", "--params-file", str(first), "--params-file", str(second))
    assert arguments.overrides == {"a": 1, "b": 2, "c": 2}
    arguments = parse("--params-file", str(second), "-p", "c:=3", "--params-file", str(first), "-p", "a:=4")
    assert arguments.overrides == {"a": 4, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("key", "is_ours"),
    [
        ("/**", True),
        ("/*", False),
        ("/*/microsim", True),
        ("/a/microsim", True),
        ("/a/*", True),
        ("/a/**", True),
        ("/**/microsim", True),
        ("microsim", False),
        ("a/microsim", True),
        ("/b/microsim", False),
        ("/a", False),
    ],
)
def test_nodes_in_a_file_are_found_by_their_full_name(tmp_path: Path, key: str, is_ours: bool) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(f"'{key}':\n  ros__parameters:\n    seed: 7\n")
    found = parse("-r", "__ns:=/a", "--params-file", str(file)).overrides
    assert found == ({"seed": 7} if is_ours else {})


def test_namespaces_and_names_may_be_nested_or_dotted(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        """
a:
  microsim:
    ros__parameters:
      robots:
        drone: {max_vx: 4.0}
      robots.rover.max_v: 1.5
      names: [left, right]
  other:
    ros__parameters: {robots.drone.max_vx: 9.0}
"""
    )
    assert parse("-r", "__ns:=/a", "--params-file", str(file)).overrides == {
        "robots.drone.max_vx": 4.0,
        "robots.rover.max_v": 1.5,
        "names": ["left", "right"],
    }


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("microsim:\n  seed: 1\n", ":2", "expected a node's name or ros__parameters, found '1'"),
        ("ros__parameters:\n  seed: 1\n", ":1", "must be under a node's name"),
        ("/**:\n  ros__parameters:\n    a: [1, x]\n", ":3", "one type"),
        ("/**:\n  ros__parameters:\n    a: [[1]]\n", ":3", "a list"),
        ("/**:\n  ros__parameters:\n    a:\n", ":3", "a value is missing"),
        ("/**:\n  ros__parameters: 3\n", ":2", "expected parameters"),
        ("/**: {\n", ":2", "not YAML"),
        ("- 1\n", ":1", "a list"),
        ("a: &x {b: *x}\n", "", "nested too deeply"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path: Path, text: str, place: str, why: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        parse("--params-file", str(file))
    assert f"{file}{place}" in str(caught.value)
    assert why in str(caught.value)


def test_a_file_without_anything_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing\n")
    assert parse("--params-file", str(file)).overrides == {}
    file.write_text("/**:\n  ros__parameters:\n")
    assert parse("--params-file", str(file)).overrides == {}


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_a_usage_error(text: str) -> None:
    try:
        value = override(text)
    except UsageError:
        return
    assert isinstance(value, (bool, int, float, str, list))


# ---- logging and the rest


def test_log_levels_are_inherited_along_the_name() -> None:
    assert not parse().shows("debug")
    assert parse().shows("info")
    assert parse("--log-level", "DEBUG").shows("debug")
    assert not parse("--log-level", "a:=error", "-r", "__ns:=/a").shows("warn")
    assert parse("--log-level", "other:=error").shows("warn")
    assert parse("--log-level", "warn", "--log-level", "microsim:=debug").shows("debug")


def test_switches_and_what_is_not_for_us() -> None:
    arguments = parse_ros_arguments(
        ["run", "--ros-args", "--disable-rosout-logs", "--disable-stdout-logs", "--enable-external-lib-logs",
         "-e", "/secure", "--log-config-file", "f", "--", "--seed", "3", "--ros-args", "-p", "a:=1"],
        "microsim",
    )  # fmt: skip
    assert arguments.other == ("run", "--seed", "3")
    assert (arguments.rosout, arguments.terminal, arguments.enclave) == (False, False, "/secure")
    assert arguments.overrides == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["-p"], "-p requires name:=value"),
        (["-p", "--"], "-p requires name:=value"),
        (["-p", "a"], "written name:=value"),
        (["-p", "a:="], "a value is missing"),
        (["-p", ":=1"], "written name:=value"),
        (["-p", "a:=[1, x]"], "one type"),
        (["-p", "a:={b: 1}"], "found a mapping"),
        (["-p", "a:=!!int x"], "not of the type int"),
        (["-r", "a"], "written old:=new"),
        (["-r", "a:="], "written old:=new"),
        (["-r", "a:=b c"], "'b c' is not the name"),
        (["-r", "a:=1b"], "'1b' is not the name"),
        (["-r", "a/*:=b"], "wildcards"),
        (["-r", "__ns:=a"], "not a namespace, such as /robots/a"),
        (["-r", "__node:=a/b"], "not a node's name"),
        (["--log-level", "loud"], "no level 'loud'; there are: unset, debug"),
        (["--parms-file", "x"], r"'--parms-file' is not a ROS argument; did you mean '--params-file'\?"),
        (["--params-file", "/does/not/exist.yaml"], "--params-file /does/not/exist.yaml: No such file"),
        (["-e", "x"], "starts with a slash"),
        (["extra"], "not a ROS argument"),
    ],
)
def test_a_mistake_is_told_with_the_argument(arguments: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(*arguments)
