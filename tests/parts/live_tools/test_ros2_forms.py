"""The verbs for a ROS 2 network take what `ros2` (Jazzy) takes: every documented form, or one sentence why not."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
import typer.main
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import UsageError
from tests.parts.live_tools.ros2_verbs import VERBS, Verb

# what `ros2 VERB --help` lists, with values as its tutorials write them
FORMS = """
topic list
topic list -t
topic list --show-types
topic list -c
topic list --count-topics
topic list --include-hidden-topics
topic list -v
topic list --verbose --no-daemon --spin-time 2 -s
topic info /chatter
topic info /chatter -v
topic info --verbose /chatter
topic type /chatter
topic find std_msgs/msg/String
topic find std_msgs/msg/String -c
topic find --count-topics --include-hidden-topics std_msgs/msg/String
topic echo /chatter
topic echo /chatter std_msgs/msg/String
topic echo --once /chatter
topic echo /chatter --field data
topic echo /imu --csv
topic echo /map --no-arr
topic echo /chatter --no-str
topic echo /chatter --flow-style
topic echo /map -f
topic echo /map --full-length
topic echo /map -l 10
topic echo /map --truncate-length 10
topic echo /chatter --raw
topic echo /chatter --no-lost-messages
topic echo /chatter --lost-messages
topic echo /chatter --timeout 3
topic echo /chatter --qos-profile sensor_data
topic echo /chatter --qos-depth 5 --qos-history keep_last --qos-reliability best_effort --qos-durability volatile
topic echo /chatter --qos-history keep_all
topic echo /chatter --qos-reliability system_default --qos-durability best_available --qos-liveliness automatic
topic echo /chatter --no-daemon --spin-time 1.5 --use-sim-time
topic hz /scan
topic hz -w 50 /scan
topic hz /scan --window 50 --wall-time
topic hz /scan --spin-time 2
topic bw /scan
topic bw -w 50 /scan
topic delay /scan
topic delay /scan -w 10
topic delay /scan --window 10 --use-sim-time
topic pub /chatter std_msgs/msg/String "data: Hello"
topic pub --once /chatter std_msgs/msg/String "data: Hello"
topic pub -1 /cmd_vel geometry_msgs/msg/Twist "{linear: {x: 2.0, y: 0.0, z: 0.0}, angular: {x: 0.0, y: 0.0, z: 1.8}}"
topic pub -r 10 /chatter std_msgs/msg/String "{data: Hello}"
topic pub --rate 1 /cmd_vel geometry_msgs/msg/Twist
topic pub -t 5 -p 2 /chatter std_msgs/msg/String "{data: Hello}"
topic pub --times 5 --print 2 /chatter std_msgs/msg/String
topic pub -w 2 --max-wait-time-secs 3 /chatter std_msgs/msg/String
topic pub --wait-matching-subscriptions 0 --keep-alive 0.5 /chatter std_msgs/msg/String
topic pub -n talker /chatter std_msgs/msg/String
topic pub --node-name talker /chatter std_msgs/msg/String
topic pub --qos-profile default --qos-depth 1 --qos-reliability reliable /chatter std_msgs/msg/String
topic pub --qos-durability transient_local --qos-history keep_last /chatter std_msgs/msg/String
service list
service list -t
service list -c
service list --show-types --count-services --include-hidden-services
service type /clear
service find std_srvs/srv/Empty
service find -c std_srvs/srv/Empty
service find --include-hidden-services --count-services std_srvs/srv/Empty
service info /clear
service call /clear std_srvs/srv/Empty
service call /spawn turtlesim/srv/Spawn "{x: 2, y: 2, theta: 0.2, name: ''}"
service call -r 2 /clear std_srvs/srv/Empty
service call --rate 2 /clear std_srvs/srv/Empty "{}"
service echo /clear
service echo /clear std_srvs/srv/Empty --csv
interface show geometry_msgs/msg/Twist
interface show geometry_msgs/msg/Twist --all-comments
interface proto geometry_msgs/msg/Twist
interface list -m
interface package geometry_msgs
interface packages --only-srvs
bag info flight
bag info -s mcap flight
action list
action list -t
action list -c
action list --show-types --count-actions
action info /turtle1/rotate_absolute
action info -t -c /turtle1/rotate_absolute
action type /turtle1/rotate_absolute
action find turtlesim/action/RotateAbsolute
action find -c turtlesim/action/RotateAbsolute
action send_goal /turtle1/rotate_absolute turtlesim/action/RotateAbsolute "{theta: 1.57}"
action send_goal -f /turtle1/rotate_absolute turtlesim/action/RotateAbsolute "{theta: 1.57}"
action send_goal /turtle1/rotate_absolute turtlesim/action/RotateAbsolute "{theta: -1.57}" --feedback
action send-goal /turtle1/rotate_absolute "{theta: -1.57}"
param list
param list /turtlesim
param list --include-hidden-nodes --param-prefixes background --param-type /turtlesim
param list --filter background.* /turtlesim
param list --no-daemon --spin-time 1 -s
param get /turtlesim background_g
param get --hide-type /turtlesim background_g
param get --include-hidden-nodes /turtlesim background_g
param set /turtlesim background_r 150
param set /turtlesim offset -1.5
param set --include-hidden-nodes /turtlesim axes "[x, y, z]"
param describe /turtlesim background_r
param describe /turtlesim background_r background_g
param dump /turtlesim
param dump /turtlesim --output-dir .
param dump --print /turtlesim
param load /turtlesim ./turtlesim.yaml
param load --no-use-wildcard /turtlesim turtlesim.yaml
param delete /turtlesim background_r
node list
node list -a
node list --all
node list -c
node list --count-nodes
node list --no-daemon --spin-time 3
node info /my_turtle
node info --include-hidden /my_turtle
tf echo map base_link
tf echo map base_link 10
tf echo map base_link -r 10
"""

REFUSED = {
    "topic echo /chatter --filter m.data==1": "--filter is not supported: .* --json",
    "topic echo /chatter --include-message-info": "--include-message-info is not supported",
    "topic echo /chatter --qos-liveliness-lease-duration-seconds 2": "liveliness is automatic",
    "topic hz /scan --filter m.x>0": "--filter is not supported",
    "topic hz /scan --use-sim-time": "rates are measured in wall time",
    "topic pub /chatter std_msgs/msg/String -s": "`stamp: now` is wall time",
    "topic pub -n 3 /chatter std_msgs/msg/String": "3 is not a name; use --times N or -t N",
    "topic pub /chatter std_msgs/msg/String data: Hello": "put quotes around VALUES",
    "bag play flight -r 2 --loop": "`bag play` is not supported: `microsim replay",
    "bag record -a": "`bag record` is not supported: `microsim run",
    "bag reindex flight": "`bag reindex` is not supported: `microsim bag repair",
    "topic echo /chatter -i": "--include-message-info is not supported",
    "service call /clear --stdin {}": "--stdin reads VALUES from standard input; leave out '{}'",
    "service call /clear {} std_srvs/srv/Empty": "put quotes around VALUES",
    "param list /turtlesim --filter [": "is not a regular expression",
}


def parse(words: list[str]) -> dict[str, Any]:
    """The options of the verb, as they would be handed to it."""
    command: Any = typer.main.get_command(app)
    context = click.Context(command)
    for depth in range(3):
        if not hasattr(command, "get_command"):
            made: dict[str, Any] = command.make_context(words[depth - 1], words[depth:]).params
            return made
        command = command.get_command(context, words[depth])
        assert command is not None, words[: depth + 1]
    raise AssertionError(words)


VALUES = {"--timeout": "3", "--qos-profile": "sensor_data", "--field": "data", "--filter": "m", "--node-name": "n"}
VALUES |= {"--param-prefixes": "a", "--storage": "mcap"}


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb.words))
def test_every_argument_of_every_verb_of_ros2_is_taken(verb: Verb) -> None:
    needed = [each.strip("[].") for each in verb.needed]
    assert parse([*verb.words, *needed])
    if len(needed) < len(verb.arguments):
        assert parse([*verb.words, *[each.strip("[].") for each in verb.arguments]])
    given = []
    for names, has_value in verb.options:
        value = [next((VALUES[name] for name in names if name in VALUES), "2")] if has_value else []
        for name in names:
            assert parse([*verb.words, *needed, name, *value]) != parse([*verb.words, *needed]), name
            assert parse([*verb.words, name, *value, *needed]) if name != "--param-prefixes" else True
        given += [names[-1], *value]
    assert parse([*verb.words, *needed, *given])


def test_several_prefixes_follow_one_option() -> None:
    options = parse(["param", "list", "/turtlesim", "--param-prefixes", "a", "b", "--param-type"])
    assert (options["prefixes"], options["node_name"], options["with_types"]) == (["a", "b"], "/turtlesim", True)
    options = parse(["param", "list", "--param-prefixes", "a", "b"])
    assert (options["prefixes"], options["node_name"]) == (["a", "b"], "")


@pytest.mark.parametrize("form", FORMS.strip().splitlines())
def test_every_form_of_ros2_is_taken(form: str) -> None:
    assert parse(shlex.split(form))


@pytest.mark.parametrize("form", REFUSED)
def test_what_is_not_supported_is_refused_with_a_sentence(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("microsim.parts.live_tools.client.connect", _nobody)
    with pytest.raises((UsageError, NoNetworkError)) as refused:
        CliRunner().invoke(app, shlex.split(form), catch_exceptions=False)
    refused.match(REFUSED[form])


class NoNetworkError(Exception):
    """The verb went as far as to the network."""


def _nobody(*args: Any, **options: Any) -> Any:
    raise NoNetworkError


def test_the_type_of_a_service_or_an_action_is_no_value() -> None:
    given = parse(shlex.split('service call /a std_srvs/srv/SetBool "{data: true}"'))["given"]
    assert given == ["std_srvs/srv/SetBool", "{data: true}"]
