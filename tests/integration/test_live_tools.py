"""The commands for a ROS 2 network and `microsim.connect()`, against a running simulator on Cyclone DDS."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import microsim
from microsim.cli import app

pytest.importorskip("cyclonedds")

from microsim.messages.topics import Qos
from microsim.messages.type_files import event_type
from microsim.parts.live_tools.client.client_node import ClientNode
from microsim.parts.live_tools.client.reasons import nobody_there, participants_on_this_machine
from microsim.parts.ros2.transport import Parameter
from microsim.parts.ros2.transport.dds import DdsTransport
from microsim.parts.ros2.transport.dds_domain import domain_id
from tests.forked_python import forked_python
from tests.json_support import assert_published
from tests.ros_domains import free_domain
from tests.support import run_apart

from .conftest import PATIENCE_S, ROOT, wait_for


@pytest.fixture(scope="module")
def simulator() -> Iterator[None]:
    """`microsim run`, until the module is done."""
    command = [*forked_python(), "-m", "microsim", "run", "flat", "--headless", "--transport", "dds"]
    process = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with microsim.connect() as node:
            node.subscribe("/clock", type="rosgraph_msgs/msg/Clock").get(300.0)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def node(simulator: None) -> Iterator[ClientNode]:
    with microsim.connect("tester") as connected:
        yield connected


class PollingPeer:
    """A node of ours in this process, polled by a thread."""

    def __init__(self) -> None:
        self.transport = DdsTransport("peer")
        self._is_open = True
        self._thread = threading.Thread(target=self._poll)

    def start(self) -> None:
        self._thread.start()

    def _poll(self) -> None:
        while self._is_open:
            self.transport.poll(0.02)

    def close(self) -> None:
        self._is_open = False
        if self._thread.ident is not None:
            self._thread.join()
        self.transport.close()


@pytest.fixture
def peer() -> Iterator[PollingPeer]:
    made = PollingPeer()
    yield made
    made.close()


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and stdout; a mistake of the user is raised as in Python."""
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "--json" in arguments:
        for line in done.stdout.splitlines():
            assert_published(" ".join(arguments[:2]), json.loads(line))
    return done.exit_code, done.stdout


# ---- the commands


def test_topics_services_actions_and_nodes_are_listed(simulator: None) -> None:
    code, text = run("topic", "list", "-t")
    assert code == 0
    assert "/rover/odom [nav_msgs/msg/Odometry]" in text.splitlines()
    assert "_action" not in text
    assert "/simulate_steps/_action/feedback" in run("topic", "list", "-a")[1]
    assert "std_srvs/srv/SetBool" in json.loads(run("service", "list", "--json")[1])["/sim/pause"]
    assert run("action", "list")[1] == "/simulate_steps\n"
    assert "/microsim" in run("node", "list")[1].splitlines()


def test_topic_info_names_the_nodes_and_their_quality_of_service(simulator: None) -> None:
    found = json.loads(run("topic", "info", "/rover/cmd_vel", "--json")[1])
    assert [each["node"] for each in found["subscribers"]] == ["/microsim"]
    assert found["subscribers"][0]["reliability"] == "reliable"
    assert "  type         tf2_msgs/msg/TFMessage" in run("topic", "info", "/tf_static")[1].splitlines()


def test_echo_prints_yaml_json_and_a_field(simulator: None) -> None:
    text = run("topic", "echo", "/rover/odom", "--once")[1]
    assert "child_frame_id: rover/base_link" in text.splitlines()
    message = json.loads(run("topic", "echo", "/tf_static", "--once", "--json")[1])  # latched: adapted
    assert "rover/range_link" in [each["child_frame_id"] for each in message["transforms"]]
    assert run("topic", "echo", "/rover/odom", "--field", "header.frame_id", "-n", "2")[1] == "odom\nodom\n"
    with pytest.raises(microsim.UsageError, match=r"has no field 'pos'; did you mean 'pose'\?"):
        run("topic", "echo", "/rover/odom", "--once", "--field", "pos.x")


def test_hz_and_bw_measure(simulator: None) -> None:
    assert json.loads(run("topic", "hz", "/clock", "--once", "--json")[1])["hz"] == pytest.approx(
        60.0, rel=0.25
    )  # a busy machine
    assert json.loads(run("topic", "bw", "/clock", "--once", "--json")[1])["mean_bytes"] == 12.0


def test_pub_moves_the_rover(node: ClientNode) -> None:
    before = node.subscribe("/rover/odom").get().pose.pose.position
    run("topic", "pub", "/rover/cmd_vel", "{linear: {x: 1.0}}", "--times", "3", "--rate", "20")
    for odometry in node.subscribe("/rover/odom"):
        place = odometry.pose.pose.position
        if abs(place.x - before.x) + abs(place.y - before.y) > 0.05:
            break
    run("topic", "pub", "/rover/cmd_vel", "geometry_msgs/Twist", "{}", "--once")


def test_wrong_values_are_reported_with_their_path_and_type(simulator: None) -> None:
    with pytest.raises(microsim.UsageError, match=r"linear.x: expected float64, found 'fast'"):
        run("topic", "pub", "/rover/cmd_vel", "{linear: {x: fast}}", "--once")
    with pytest.raises(microsim.UsageError, match=r"SetBool_Request: data: expected bool, found 'x'"):
        run("service", "call", "/sim/pause", "{data: x}")
    with pytest.raises(microsim.UsageError, match=r"SimulateSteps_Goal: steps: expected uint64"):
        run("action", "send-goal", "/simulate_steps", "{steps: -1}")
    with pytest.raises(microsim.ScenarioError, match=r"VALUES:1:.*not valid YAML"):
        run("service", "call", "/sim/pause", "{data: ")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("topic", "echo", "/rover/odm", "--once"), r"no topic '/rover/odm'; did you mean '/rover/odom'\? there are: "),
        (("service", "call", "/sim/puase"), r"no service '/sim/puase'; did you mean '/sim/pause'\? there are: "),
        (("action", "send-goal", "/simulate_step"), r"no action '/simulate_step'; did you mean '/simulate_steps'\?"),
        (("node", "info", "/microsm"), r"no node '/microsm'; did you mean '/microsim'\? there are: (?!.*/_micro)"),
        (("param", "get", "/microsim", "sead"), r"has no parameter 'sead'; did you mean 'seed'\? there are: "),
        (("tf", "echo", "map", "rover/bas_link", "--once"), r"no frame 'rover/bas_link'; did you mean"),
        (("topic", "pub", "/x", "std_msgs/msg/Strin", "{}"), r"unknown type 'std_msgs/msg/Strin'; did you mean"),
        (("topic", "pub", "/x", "Twist", "{}"), r"expected TOPIC \[TYPE\] \[VALUES\]"),
        (("topic", "echo", "not a topic"), r"'not a topic' is not the name of a topic"),
    ],
)  # fmt: skip
def test_an_unknown_name_lists_what_there_is(simulator: None, arguments: tuple[str, ...], expected: str) -> None:
    with pytest.raises(microsim.UsageError, match=expected):
        run(*arguments)


def test_parameters_are_read_set_described_and_dumped(simulator: None, tmp_path: Path) -> None:
    assert (
        run("param", "set", "/microsim", "rover.max_v", "2")[1] == "rover.max_v: 2.0\n"
    )  # a double takes a whole number
    assert run("param", "get", "/microsim", "rover.max_v")[1] == "2.0\n"
    assert json.loads(run("param", "describe", "/microsim", "rover.max_v", "--json")[1])["type"] == "double"
    assert "seed" in run("param", "list", "/microsim")[1].split()
    (tmp_path / "dumped.yaml").write_text(run("param", "dump", "/microsim")[1], encoding="utf-8")
    from microsim.parts.ros2.transport.ros_arguments import read_params_file

    assert {each.name: each.value for each in read_params_file(tmp_path / "dumped.yaml")}["rover.max_v"] == 2.0
    with pytest.raises(microsim.UsageError, match="is of type integer, not string"):
        run("param", "set", "/microsim", "seed", "many")
    with pytest.raises(microsim.UsageError, match="must be from 0 to"):  # not taken for an option
        run("param", "set", "/microsim", "rover.max_v", "-1.5")


def test_transforms_are_shown_as_a_tree_and_looked_up(simulator: None) -> None:
    frames = json.loads(run("tf", "tree", "--json")[1])
    assert frames["rover/base_link"] == {"parent": "odom", "is_static": False}
    assert frames["rover/range_link"] == {"parent": "rover/base_link", "is_static": True}
    found = json.loads(run("tf", "echo", "rover/base_link", "rover/range_link", "--once", "--json")[1])
    assert found["is_static"]
    assert found["translation"][0] == pytest.approx(0.25)


def test_a_goal_is_sent_and_its_feedback_printed(simulator: None) -> None:
    run("service", "call", "/sim/pause", "{data: true}", "--type", "std_srvs/srv/SetBool")
    code, text = run("action", "send-goal", "/simulate_steps", "{steps: 3}", "--feedback", "--json")
    run("service", "call", "/sim/pause", "{data: false}")
    lines = [json.loads(line) for line in text.splitlines()]
    assert code == 0
    steps = [line["feedback"]["completed_steps"] for line in lines if "feedback" in line]
    assert steps == [1, 2, 3]
    assert lines[-1]["status"] == "succeeded"
    assert run("action", "send-goal", "/simulate_steps", "{steps: 3}")[0] == 1  # refused: the simulation is not paused


# ---- why nothing arrives


def silence(*arguments: str) -> str:
    """What a command reports that waits in vain."""
    done = CliRunner().invoke(app, [*arguments, "--timeout", "0.4"])
    assert done.exit_code == 1
    return done.stderr


def test_silence_is_explained(node: ClientNode, peer: PollingPeer) -> None:
    best_effort = peer.transport.publisher("/quiet", "std_msgs/msg/String", Qos(1, reliable=False))
    peer.transport.subscribe("/heard", "std_msgs/msg/String", Qos(1), lambda cdr: None)
    peer.start()
    assert node.type_of("/quiet") == node.type_of("/heard") == "std_msgs/msg/String"
    assert "/peer is connected and has sent nothing since" in silence("topic", "echo", "/quiet")
    demanding = silence("topic", "echo", "/quiet", "--qos-reliability", "reliable")
    assert "/peer is best effort, and reliable was demanded" in demanding
    assert "/peer publishes std_msgs/msg/String, not std_msgs/msg/Int32" in silence(
        "topic", "echo", "/quiet", "--type", "std_msgs/msg/Int32"
    )
    assert "no publisher on /heard (1 subscribed)" in silence("topic", "hz", "/heard")
    unheard = silence("topic", "pub", "/heard", "std_msgs/msg/Int32", "{}", "--once")
    assert "/peer expects std_msgs/msg/String, not std_msgs/msg/Int32" in unheard
    assert best_effort.subscribers == 0


def test_nobody_in_a_domain_is_explained(simulator: None) -> None:
    here = domain_id()
    assert here in participants_on_this_machine()
    empty = next(number for number in range(1, 200) if number not in participants_on_this_machine())
    reasons = nobody_there({"ROS_DOMAIN_ID": str(empty), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"})
    assert f"no ROS 2 node was found in domain {empty}" in reasons
    assert any(str(here) in each and "set ROS_DOMAIN_ID=" in each for each in reasons)
    assert "ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST limits discovery to this machine" in reasons


SLEEPER = "import microsim; node = microsim.connect('sleeper'); print('ready', flush=True); input()"


@pytest.mark.skipif(sys.platform != "linux", reason="open ports of other processes are known on Linux")
def test_a_neighbour_who_answers_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(
            [sys.executable, "-c", SLEEPER], env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes
        ) as other:
            assert other.stdout.readline() == b"ready\n"
            other.send_signal(signal.SIGSTOP)
            wakes = threading.Timer(1.5, other.send_signal, [signal.SIGCONT])
            wakes.start()
            try:
                assert run("node", "list")[1] == "/sleeper\n"
            finally:
                wakes.cancel()
                other.send_signal(signal.SIGCONT)
                other.stdin.close()


def test_a_server_that_never_answers_is_named(node: ClientNode, peer: PollingPeer) -> None:
    peer.transport.serve("/sleepy", "std_srvs/srv/Trigger", lambda request, response: None)
    peer.transport.poll()  # announced, and never polled again
    with pytest.raises(TimeoutError, match=r"service /sleepy of /peer: no answer within 0.5 s"):
        node.call("/sleepy", timeout=0.5)


# ---- in Python


def test_ten_lines_drive_the_rover(simulator: None) -> None:
    with microsim.connect() as node:
        start = node.lookup_transform("map", "rover/base_link")
        for odometry in node.subscribe("/rover/odom"):
            node.publish("/rover/cmd_vel", {"linear": {"x": 1.0}, "angular": {"z": 0.3}})
            if odometry.twist.twist.linear.x > 0.5:
                break
        node.publish("/rover/cmd_vel", node.message("geometry_msgs/msg/Twist"))
        node.sleep(0.2)
        end = node.lookup_transform("map", "rover/base_link")
    assert end.translation != start.translation
    assert end.time_ns > start.time_ns


def test_callbacks_may_call_services(node: ClientNode) -> None:
    answers: list[Any] = []
    arrived = threading.Event()

    def on_clock(message: Any) -> None:
        if not answers:
            answers.append(node.call("/sim/pause", {"data": False}))
            arrived.set()

    with node.subscribe("/clock", on_clock):
        assert arrived.wait(PATIENCE_S)
    assert answers[0].success


def test_a_callback_that_fails_is_printed_and_the_node_continues(
    node: ClientNode, capfd: pytest.CaptureFixture[str]
) -> None:
    called = threading.Semaphore(0)

    def fail(message: Any) -> None:
        called.release()
        raise RuntimeError("of the user")

    with node.subscribe("/clock", fail):
        assert called.acquire(timeout=PATIENCE_S)
        assert called.acquire(timeout=PATIENCE_S)
    assert "RuntimeError: of the user" in capfd.readouterr().err


def test_asyncio_receives_and_calls(simulator: None) -> None:
    async def work() -> tuple[list[int], Any]:
        async with microsim.connect() as node:
            stamps = []
            async for message in node.subscribe("/clock"):
                stamps.append(message.clock.sec * 10**9 + message.clock.nanosec)
                if len(stamps) == 5:
                    break
            return stamps, await node.call_async("/sim/pause", {"data": False})

    stamps, answer = run_apart(asyncio.wait_for(work(), PATIENCE_S))
    assert stamps == sorted(stamps)
    assert answer.success


def test_closing_ends_iterations_and_calls(simulator: None) -> None:
    node = microsim.connect()
    subscription = node.subscribe("/chatter", type="std_msgs/msg/String")
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: (list(subscription), ended.set()))
    waiting.start()
    node.close()
    assert ended.wait(PATIENCE_S)
    waiting.join()
    with pytest.raises(microsim.UsageError, match="the connection is closed"):
        node.topics()


def test_a_subscription_follows_publishers_of_other_quality(node: ClientNode, peer: PollingPeer) -> None:
    """First a latched one; then one that is best effort, which the first reader could not hear."""
    kind = "std_msgs/msg/String"
    cdr = {text: microsim_message(text) for text in ("old", "new")}
    peer.transport.publisher("/changing", kind, Qos(1, latched=True)).publish(cdr["old"])
    subscription = node.subscribe("/changing")
    assert subscription.get(PATIENCE_S).data == "old"  # sent before it existed
    other = peer.transport.publisher("/changing", kind, Qos(1, reliable=False))
    peer.start()
    wait_for(lambda: other.subscribers)  # the reader was made again
    received = None
    for _ in range(200):
        other.publish(cdr["new"])
        received = subscription.wait(0.05) or received
        if received is not None and received.data == "new":
            return
    raise AssertionError(f"nothing was heard: {received}, {subscription.why_silent()}")


def microsim_message(text: str) -> bytes:
    from microsim import messages as wire

    return wire.encode("std_msgs/msg/String", wire.new("std_msgs/msg/String", data=text))


def test_types_of_a_folder_pass_both_ways(tmp_path: Path, simulator: None) -> None:
    folder = tmp_path / "my_msgs" / "msg"
    folder.mkdir(parents=True)
    (folder / "Cell.msg").write_text("std_msgs/Header header\nfloat32[<=4] volts\nPart[] parts\n", encoding="utf-8")
    (folder / "Part.msg").write_text("string<=8 name\nuint8[2] code\n", encoding="utf-8")
    values = {"volts": [1.5, 2.5], "parts": [{"name": "cell", "code": [1, 2]}]}
    with microsim.connect(types=[tmp_path]) as node:
        subscription = node.subscribe("/cell", type="my_msgs/msg/Cell")
        publisher = node.publisher("/cell", "my_msgs/msg/Cell")
        assert publisher.wait_for_subscriber()
        publisher.publish(values)
        message = subscription.get()
        assert message.volts.tolist() == [1.5, 2.5]
        assert message.parts[0].name == "cell"
        with pytest.raises(microsim.UsageError, match=r"volts: expected at most 4 values of float32, found 5"):
            publisher.publish({"volts": [0.0] * 5})
        with pytest.raises(microsim.UsageError, match=r"parts\[0\].code\[1\]: expected uint8 \(0 to 255\), found 300"):
            publisher.publish({"parts": [{"code": [1, 300]}]})


# with real answers; `tests/parts/live_tools/test_ros2_forms.py` has every form that is parsed
ROS2_FORMS = [
    ("topic type /rover/odom", r"nav_msgs/msg/Odometry\n"),
    ("topic find nav_msgs/msg/Odometry", r"/drone/odom\n/rover/odom\n"),
    ("topic find -c nav_msgs/Odometry", r"2\n"),
    ("topic list --count-topics --no-daemon", r"\d+\n"),
    ("topic list -v", r"(?s)Published topics:\n.* /clock \[.*\] 1 publisher\n.*Subscribed topics:\n.*/rover/cmd_vel.*"),
    ("topic echo --once /rover/odom nav_msgs/msg/Odometry --no-arr", r"(?s).*covariance: .*list of 36.*"),
    ("topic echo --once /rover/odom --csv --field pose.pose.position", r"[-\d.e]+,[-\d.e]+,[-\d.e]+\n"),
    ("topic echo --once /clock --flow-style", r"\{clock: \{sec: \d+, nanosec: \d+\}\}\n"),
    ("topic echo --once /rover/odom --no-str --field header", r"(?s).*frame_id: .*text of 4.*"),
    ("topic echo --once /clock --raw", r"b['\"].*['\"]\n"),
    ("topic echo --once --qos-profile sensor_data --qos-history keep_all /clock --field clock.sec", r"\d+\n"),
    ("topic hz -w 20 --duration 1.5 /clock", r"[\d.]+ Hz  min .* messages\n"),
    ("topic delay /rover/odom --use-sim-time --duration 1", r"-?[\d.]+ s  min .* messages\n"),
    ('topic pub -t 2 -w 1 -n talker -p 1 /rover/cmd_vel geometry_msgs/msg/Twist "{}" -r 50', r""),
    ('service call /sim/pause std_srvs/srv/SetBool "{data: false}"', r"success: true\nmessage: running\n"),
    ('service call /sim/pause example_interfaces/srv/SetBool "{data: false}"', r"success: true\n.*\n"),
    ("service type /sim/reset", r"std_srvs/srv/Empty\n"),
    ("service find -c std_srvs/srv/SetBool", r"\d+\n"),
    ("service info /sim/pause", r"(?s)/sim/pause\n.*servers  1\n    /microsim\n.*"),
    ("action info -t /simulate_steps", r"(?s)/simulate_steps\n  type .*SimulateSteps\n.*servers  1\n    /microsim\n.*"),
    ("action type /simulate_steps", r"simulation_interfaces/action/SimulateSteps\n"),
    ("param list /microsim --param-prefixes rover.max --param-type", r"(rover.max_\w+ \(type: double\)\n){2}"),
    ("param describe /microsim seed rover.max_v", r"(?s)name: seed\n.*name: rover.max_v\n.*"),
    ("node list -c", r"\d+\n"),
    ("node info --include-hidden /microsim", r"(?s)/microsim\n.*/simulate_steps/_action/feedback.*"),
    ("tf echo map rover/base_link 10 --once", r"(?s)rover/base_link in map.*"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "expected"), ROS2_FORMS)
def test_forms_of_ros2_are_answered(simulator: None, form: str, expected: str) -> None:
    code, text = run(*shlex.split(form))
    assert code == 0
    assert re.fullmatch(expected, text), text


def test_parameters_are_set_loaded_and_deleted_as_with_ros2(
    node: ClientNode, peer: PollingPeer, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"axes": ["a"], "switches": [True], "title": "a", "gain": 1.0}
    peer.transport.declare([Parameter(name, value, "") for name, value in values.items()], lambda changes: "")
    peer.start()
    parameters = node.parameters("/peer")
    for name, text, expected in (
        ("axes", "[x, y, z]", ["x", "y", "z"]),
        ("axes", "[on, 1, 2.5, 'no']", ["on", "1", "2.5", "no"]),
        ("switches", "[y, no]", [True, False]),
        ("title", "yes", "yes"),
        ("title", "'12'", "12"),
        ("gain", "2", 2.0),
    ):
        assert run("param", "set", "/peer", name, text)[0] == 0
        assert parameters[name] == expected
    assert run("param", "dump", "/peer", "--output-dir", str(tmp_path))[0] == 0
    parameters["gain"] = 3
    assert run("param", "load", "/peer", str(tmp_path / "peer.yaml"))[0] == 0
    assert parameters.get() == {"axes": ["on", "1", "2.5", "no"], "switches": [True, False], "title": "12", "gain": 2.0}
    (tmp_path / "other.yaml").write_text("/other: {ros__parameters: {gain: 1.0}}\n")
    with pytest.raises(microsim.UsageError, match="no parameters for the node"):
        run("param", "load", "/peer", str(tmp_path / "other.yaml"))
    with pytest.raises(microsim.UsageError, match="no parameter 'gian'; did you mean 'gain'"):
        run("param", "delete", "/peer", "gian")


def test_parameters_as_a_mapping(node: ClientNode, peer: PollingPeer) -> None:
    declared = [Parameter("gain", 1.0, "Of the loop.", minimum=0.0, maximum=5.0), Parameter("name", "a")]
    peer.transport.declare(declared, lambda changes: "")
    peer.start()
    parameters = node.parameters("/peer")
    parameters["gain"] = 2
    assert parameters["gain"] == 2.0
    assert parameters.describe("gain")["gain"]["maximum"] == 5.0
    with pytest.raises(microsim.UsageError, match=r"must be from 0.0 to 5.0"):
        parameters["gain"] = 9.0


@pytest.mark.parametrize(
    "command",
    [
        *(("topic", "list"), ("action", "list"), ("node", "list"), ("node", "info", "/microsim"), ("param", "list")),
        *(("param", "list", "/microsim"), ("param", "get", "/microsim", "seed"), ("param", "dump", "/microsim")),
        ("service", "call", "/sim/set_seed", "{data: 12345}"),
    ],
    ids=" ".join,
)
def test_json_fits_its_schema(command: tuple[str, ...], simulator: None) -> None:
    code, text = run(*command, "--json")  # compares
    assert (code, bool(text)) == (0, True)


def test_calls_of_a_service_with_introspection_are_printed(node: ClientNode, simulator: None) -> None:
    """A node publishes them, as one does whose introspection is on."""
    event = {
        "info": {"event_type": 1, "sequence_number": 7, "stamp": {"sec": 3}, "client_gid": list(range(16))},
        "request": [{"data": True}],
    }
    publisher = node.publisher("/sim/pause/_service_event", event_type("std_srvs/srv/SetBool"), Qos(10))
    is_over = threading.Event()

    def publish() -> None:
        while not is_over.wait(0.1):
            publisher.publish(event)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        code, text = run("service", "echo", "/sim/pause", "--once", "--json", "--timeout", "60")
        flow = run("service", "echo", "/sim/pause", "std_srvs/srv/SetBool", "--once", "--flow-style")[1]
    finally:
        is_over.set()
        thread.join()
    found = json.loads(text)
    assert code == 0
    assert (found["info"]["event_type"], found["info"]["sequence_number"]) == ("REQUEST_RECEIVED", 7)
    assert (found["request"], found["response"]) == ([{"data": True}], [])
    assert "event_type: REQUEST_RECEIVED" in flow
    assert "request: [{data: true}], response: []" in flow


def test_a_service_without_introspection_says_so(simulator: None) -> None:
    done = CliRunner().invoke(app, ["service", "echo", "/sim/reset", "--timeout", "0.5"])
    assert done.exit_code == 1
    assert "is introspection of the service enabled" in done.stderr
