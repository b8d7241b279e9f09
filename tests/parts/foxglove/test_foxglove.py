"""Foxglove, live: a WebSocket client that speaks its protocol watches, drives, pauses and steps a run."""

import json
import os
import re
import struct
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from typer.testing import CliRunner
from websockets.sync.client import connect

import microsim
from microsim import messages as wire
from microsim.cli import app
from microsim.cli.command import Commands
from microsim.errors import UsageError
from microsim.messages.topics import Qos
from microsim.parts.foxglove.transport import FoxgloveTransport
from microsim.parts.ros2.microsim_node import start_node
from microsim.parts.ros2.transport.joined import JoinedTransports
from microsim.parts.ros2.transport.memory import Bus, MemoryTransport
from microsim.paths import data_folder
from tests.forked_python import forked_python

ROOT = Path(__file__).resolve().parents[3]
TWIST, BOOL, INT = "geometry_msgs/msg/Twist", "example_interfaces/srv/SetBool", "example_interfaces/srv/SetInt32"
DATA, TIME, RESPONSE = 1, 2, 3  # binary messages of the server


class FoxgloveClient:
    """Speaks `foxglove.sdk.v1`."""

    def __init__(self, port: int) -> None:
        self.socket = connect(
            f"ws://127.0.0.1:{port}", subprotocols=["foxglove.sdk.v1"], max_size=None, close_timeout=0.2
        )
        self.channels: dict[str, dict] = {}
        self.services: dict[str, dict] = {}
        self.subscriptions: dict[int, str] = {}
        self.info: dict = {}
        self.time_ns = -1
        self.published = 0  # channels of its own
        self.latest: dict[str, tuple[int, bytes]] = {}  # of each topic: time and bytes
        self.statuses: list[str] = []
        self.until(lambda op, facts: "/sim/info" in self.channels and "/microsim/set_parameters" in self.services)

    def read(self, timeout_s=120.0):
        """One message: its op or number, and its content."""
        message = self.socket.recv(timeout_s)
        if isinstance(message, bytes):
            if message[0] == TIME:
                self.time_ns = struct.unpack_from("<Q", message, 1)[0]
            elif message[0] == DATA:
                subscription, time_ns = struct.unpack_from("<IQ", message, 1)
                self.latest[self.subscriptions[subscription]] = time_ns, message[13:]
            return message[0], message[1:]
        facts = json.loads(message)
        if facts["op"] == "serverInfo":
            self.info = facts
        if facts["op"] == "status":
            self.statuses.append(facts["message"])
        self.channels |= {each["topic"]: each for each in facts.get("channels", ())}
        if facts["op"] == "advertiseServices":
            self.services |= {each["name"]: each for each in facts["services"]}
        return facts["op"], facts

    def until(self, condition, timeout_s=120.0):
        end = time.monotonic() + timeout_s
        while True:
            op, facts = self.read(max(end - time.monotonic(), 0.01))
            if condition(op, facts):
                return facts

    def send(self, **facts):
        self.socket.send(json.dumps(facts))

    def subscribe(self, *topics):
        wanted = {len(self.subscriptions) + n + 1: topic for n, topic in enumerate(topics)}
        self.subscriptions |= wanted
        self.send(
            op="subscribe",
            subscriptions=[{"id": each, "channelId": self.channels[topic]["id"]} for each, topic in wanted.items()],
        )

    def message(self, topic):
        """The next message: its time and bytes."""
        facts = self.until(
            lambda op, facts: op == DATA and self.subscriptions[struct.unpack_from("<I", facts)[0]] == topic
        )
        return struct.unpack_from("<Q", facts, 4)[0], bytes(facts[12:])

    def publish(self, topic, type_name, data, encoding="cdr"):
        self.published += 1
        channel = {"id": self.published, "topic": topic, "encoding": encoding, "schemaName": type_name}
        self.send(op="advertise", channels=[channel])
        self.socket.send(struct.pack("<BI", 1, self.published) + data)

    def call(self, service, type_name, **request):
        cdr = wire.encode(f"{type_name}_Request", wire.from_mapping(f"{type_name}_Request", request))
        return wire.decode_checked(f"{type_name}_Response", self.raw_call(service, cdr)[1])

    def raw_call(self, service, payload, encoding=b"cdr"):
        head = struct.pack("<BIII", 2, self.services[service]["id"], 7, len(encoding))
        self.socket.send(head + encoding + payload)
        facts = self.until(lambda op, facts: op in (RESPONSE, "serviceCallFailure"))
        if isinstance(facts, dict):
            return facts["message"], b""
        return "", bytes(facts[12 + struct.unpack_from("<I", facts, 8)[0] :])

    def parameters(self, **request):
        self.send(**{"id": "p", **request})
        found = self.until(lambda op, facts: op == "parameterValues" and facts.get("id") == "p")
        return {each["name"]: each.get("value") for each in found["parameters"]}


@contextmanager
def running(transport, scenario="flat", **options):
    """A node on a transport whose run goes on in a thread."""
    node = start_node(transport, scenario, **options)
    thread = threading.Thread(target=node.runner.run)
    thread.start()
    try:
        yield node
    finally:
        node.runner.stop()
        thread.join()
        transport.close()


@pytest.fixture(scope="module")
def node():
    with running(FoxgloveTransport(port=0), "obstacles_arena", seed=3) as made:
        yield made


@pytest.fixture
def client(node):
    made = FoxgloveClient(node.transport.port)
    yield made
    made.socket.close()
    node.runner.pause(False)  # also after a test that failed


def pause(client, paused=True):
    assert client.call("/sim/pause", BOOL, data=paused).success


def test_every_topic_has_its_ros_2_schema_and_our_bytes(node, client):
    extra = {"/diagnostics", "/rosout", "/parameter_events"}
    assert set(client.channels) == {*node.sim.topics} | extra
    assert {"clientPublish", "services", "parameters", "time"} <= {*client.info["capabilities"]}
    pause(client)
    sent = {}
    listener = node.runner.listen(messages=lambda messages: sent.update((each.topic, each) for each in messages))
    topics = ["/drone/camera/image_raw", "/tf", "/world/markers", "/rover/range/front"]
    client.subscribe(*topics)
    client.call("/sim/step", INT, data=60)
    while not all(client.latest.get(topic, (0, b""))[1] == sent[topic].cdr for topic in topics):
        client.read()
    assert client.latest["/tf"][0] == sent["/tf"].stamp_ns == node.sim.time_ns
    node.runner.listeners.remove(listener)
    store = get_typestore(Stores.EMPTY)
    for topic in topics:
        channel = client.channels[topic]
        assert (channel["encoding"], channel["schemaEncoding"]) == ("cdr", "ros2msg")
        assert channel["schemaName"] == node.sim.topics[topic][0]
        store.register(get_types_from_msg(channel["schema"], channel["schemaName"]))
        store.deserialize_cdr(client.latest[topic][1], channel["schemaName"])  # by the schema that clients get
    pause(client, False)


def test_what_is_sent_once_reaches_a_client_that_comes_later(client):
    client.subscribe("/tf_static", "/sim/info")
    _, cdr = client.message("/tf_static")
    frames = {each.child_frame_id for each in wire.decode_checked("tf2_msgs/msg/TFMessage", cdr).transforms}
    assert "rover/range_link" in frames
    client.message("/sim/info")


def test_time_is_simulated_time_and_pause_and_step_act_on_it(node, client):
    pause(client)
    before = node.sim.tick
    assert client.call("/sim/step", INT, data=30).message == f"now at tick {before + 30}"
    assert node.sim.tick == before + 30
    while client.time_ns != node.sim.time_ns:
        client.read()
    pause(client, False)
    refused = client.call("/sim/step", INT, data=30)
    assert (refused.success, "pause it first" in refused.message) == (False, True)


@pytest.mark.parametrize("encoding", ["cdr", "json"])
def test_a_teleop_panel_drives_the_rover(node, client, encoding):
    taken = threading.Event()
    listener = node.sim.listen(inputs=lambda tick, item: taken.set())
    values = {"linear": {"x": 0.5}, "angular": {"z": 0.25}}
    cdr = wire.encode(TWIST, wire.from_mapping(TWIST, values))
    client.publish("/rover/cmd_vel", TWIST, cdr if encoding == "cdr" else json.dumps(values).encode(), encoding)
    assert taken.wait(300)
    node.sim.listeners.remove(listener)
    client.subscribe("/rover/odom")
    odometry = "nav_msgs/msg/Odometry"
    client.until(
        lambda op, facts: (
            op == DATA and abs(wire.decode_checked(odometry, bytes(facts[12:])).twist.twist.linear.x - 0.5) < 0.05
        )
    )


def test_what_cannot_be_published_is_explained_and_the_run_goes_on(node, client):
    client.publish("/rover/cmd_ve", TWIST, b"")
    client.until(lambda op, facts: op == "status")
    client.publish("/rover/cmd_vel", "std_msgs/msg/String", b"")
    client.until(lambda op, facts: op == "status")
    assert "did you mean '/rover/cmd_vel'?" in client.statuses[0]
    assert client.statuses[1] == "/rover/cmd_vel has the type geometry_msgs/msg/Twist, not std_msgs/msg/String"
    client.subscribe("/rosout")
    client.publish("/rover/cmd_vel", TWIST, b"\x00\x01\x00\x00short")
    client.publish("/drone/cmd_vel", TWIST, b'{"linear": {"x": "fast"}}', "json")
    logged = ""
    while "not a valid geometry_msgs/msg/Twist" not in logged or "/drone/cmd_vel: ignored: not a" not in logged:
        logged += wire.decode_checked("rcl_interfaces/msg/Log", client.message("/rosout")[1]).msg
    why, _ = client.raw_call("/sim/pause", b"\x00")
    assert why
    tick = node.sim.tick
    client.until(lambda op, facts: op == TIME and node.sim.tick > tick)


NAN_TWIST = wire.encode(TWIST, wire.from_mapping(TWIST, {"linear": {"x": float("nan")}}))


@pytest.mark.parametrize(
    ("encoding", "data", "reason"),
    [
        ("cdr", b"\x00\x01\x00\x00short", "ignored a message that is not a valid geometry_msgs/msg/Twist: "),
        ("cdr", b"", "ignored a message that is not"),
        ("cdr", bytes(2**20 + 1), "ignored: messages have 1048576 bytes at most, this one has 1048577"),
        ("cdr", NAN_TWIST, "ignored: "),
        ("json", b'{"linear": {"x": "fast"}}', "ignored: not a geometry_msgs/msg/Twist"),
        ("json", b'{"liner": {}}', "ignored: "),
        ("json", b"[1]", "ignored: expected a JSON object"),
        ("json", b"\xff{", "ignored: "),
    ],
)
def test_what_a_client_sends_wrongly_is_reported_to_it(encoding, data, reason):
    """As a status, which Foxglove shows; the run goes on."""
    transport = FoxgloveTransport(port=0)
    with running(transport, "flat", seed=3) as node:
        client = FoxgloveClient(transport.port)
        client.publish("/rover/cmd_vel", TWIST, data, encoding)
        found = client.until(lambda op, facts: op == "status" and "/rover/cmd_vel" in facts["message"])
        assert found["message"].startswith(f"/rover/cmd_vel: {reason}")
        assert found["level"] == 1
        tick = node.sim.tick
        client.until(lambda op, facts: op == TIME and node.sim.tick > tick)


def test_reports_of_wrong_messages_do_not_flood_a_client(node, client):
    begun, sent = time.monotonic(), 0
    while sent < 100 or len(client.statuses) < 2:  # the test before may have caused one in this second
        client.publish("/rover/cmd_vel", TWIST, b"\x00\x01\x00\x00short")
        client.publish("/drone/cmd_vel", TWIST, b"[1]", "json")
        client.call("/sim/pause", BOOL, data=False)
        sent += 2
    assert len(client.statuses) <= 2 * (time.monotonic() - begun + 2.0)  # once a second of each topic


def test_parameters_are_read_and_set_and_a_wrong_value_is_refused(node, client):
    everything = client.parameters(op="getParameters", parameterNames=[])
    assert {"seed", "real_time_factor", "rover.max_v"} <= set(everything)
    changed = {"name": "rover.max_v", "value": 2}  # JSON has one kind of number
    assert client.parameters(op="setParameters", parameters=[changed]) == {"rover.max_v": 2.0}
    assert node.sim.scenario.robots["rover"].max_v == 2.0
    wrong = [{"name": "rover.max_v", "value": "fast"}, {"name": "rover.max_w", "value": 1}]
    assert client.parameters(op="setParameters", parameters=wrong)["rover.max_v"] == 2.0
    assert any("rover.max_v" in text and "double" in text for text in client.statuses)
    assert any("rover.max_w" in text and "was not declared" in text for text in client.statuses)


def test_a_client_that_does_not_read_never_slows_the_tick(node):
    stuck = FoxgloveClient(node.transport.port)
    stuck.subscribe(*stuck.channels)
    late, end, is_over = [], node.sim.tick + 4_000, threading.Event()

    def note(took_s, late_s):
        late.append(took_s)
        if node.sim.tick > end:
            is_over.set()

    listener = node.runner.listen(timing=note)
    node.runner.set_rtf(0.0)  # hundreds of images a second, far more than its buffers hold
    assert is_over.wait(300)
    node.runner.set_rtf(1.0)
    node.runner.listeners.remove(listener)
    assert sorted(late)[len(late) // 2] < 0.1, "a tick that waits for a client takes as long as it likes"
    stuck.socket.close()


def test_ros_2_and_foxglove_have_one_node():
    bus = Bus()
    controller = MemoryTransport("controller", bus=bus)
    live = FoxgloveTransport(port=0, ros_args=["--ros-args", "--disable-stdout-logs"])
    with running(JoinedTransports(MemoryTransport("microsim", bus=bus), live)) as node:
        client = FoxgloveClient(live.port)
        odometry = []
        controller.subscribe("/rover/odom", "nav_msgs/msg/Odometry", Qos(10), odometry.append)
        client.subscribe("/rover/odom")
        client.message("/rover/odom")
        client.parameters(op="setParameters", parameters=[{"name": "rover.max_v", "value": 1.5}])
        answer = controller.call(
            "/microsim/get_parameters", "rcl_interfaces/srv/GetParameters", {"names": ["rover.max_v"]}
        )
        assert answer.values[0].double_value == 1.5
        change = {"name": "rover.max_v", "value": {"type": 3, "double_value": 1.25}}
        parameter = wire.from_mapping("rcl_interfaces/msg/Parameter", change)
        controller.call("/microsim/set_parameters", "rcl_interfaces/srv/SetParameters", {"parameters": [parameter]})
        assert client.parameters(op="getParameters", parameterNames=["rover.max_v"]) == {"rover.max_v": 1.25}
        assert controller.call("/sim/pause", "std_srvs/srv/SetBool", {"data": True}).success
        assert client.call("/sim/step", INT, data=1).message == f"now at tick {node.sim.tick}"
        assert odometry
        client.socket.close()


def test_the_layout_names_topics_and_services_that_exist(node, client):
    layout = json.loads((data_folder() / "layouts" / "foxglove.json").read_text(encoding="utf-8"))
    panels = layout["configById"]
    used = {*re.findall(r'"(\w+!\w+)"', json.dumps(layout["layout"]))}
    assert used == set(panels)
    sent, taken = set(client.channels), {"/rover/cmd_vel", "/rover/initialpose", "/clicked_point"}
    paths = [path["value"].partition(".")[0] for panel in panels.values() for path in panel.get("paths", ())]
    shown = [*panels["3D!view"]["topics"], *panels["Image!camera"]["imageMode"].values(), *paths]
    assert set(shown) <= sent
    assert {panels["Teleop!rover"]["topic"], panels["3D!view"]["publish"]["poseEstimateTopic"]} <= taken
    for name, panel in panels.items():
        if name.startswith("CallService!"):
            service = client.services[panel["serviceName"]]
            assert client.call(service["name"], service["type"], **json.loads(panel["requestPayload"])).success
    pause(client, False)


def test_who_can_connect_finds_everything_at_once():
    """The port opens with the topics and services, not seconds before them."""
    transport = FoxgloveTransport(port=0)
    opened = []
    transport._opened = lambda port: opened.append((port, {*transport._publishers}, {*transport._services}))
    with running(transport):
        client = FoxgloveClient(transport.port)
        assert client.channels.keys() == {each.channel.topic() for each in transport._publishers.values()}
        assert {"/clock", "/tf", "/rover/odom", "/rosout"} <= client.channels.keys()
        client.socket.close()
        assert opened == [(transport.port, {*transport._publishers}, {*transport._services})]


def test_an_address_that_is_taken_is_refused(node):
    port = node.transport.port
    with pytest.raises(UsageError, match=rf"cannot be served on 127.0.0.1:{port}: .*--foxglove {port + 1}"):
        FoxgloveTransport(port=port)


@pytest.mark.parametrize(
    ("words", "port", "seed", "scenario"),
    [
        (["--foxglove", "--seed", "3"], 8765, 3, None),
        (["flat", "--foxglove"], 8765, None, "flat"),
        (["--foxglove", "9000"], 9000, None, None),
        (["--foxglove=9000", "flat"], 9000, None, "flat"),
        (["flat"], None, None, "flat"),
        ([], None, None, None),
    ],
)
def test_the_port_may_be_left_out(words: list[str], port: int | None, seed: int | None, scenario: str | None) -> None:
    given = Commands(name="microsim").get_command(None, "run").make_context("run", words).params
    (found,) = (value for name, value in given.items() if name.endswith("_foxglove"))
    assert (found, given["seed"], given["scenario"]) == (port, seed, scenario)


def test_a_run_from_the_command_line_is_served_and_ends_with_it():
    command = ["run", "flat", "--foxglove", "0", "--transport", "none", "--headless", "--duration", "60"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*forked_python(), "-m", "microsim", *command], stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    ) as process:
        assert process.stderr is not None
        address = re.search(r"ws://127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert address is not None
        client = FoxgloveClient(int(address[1]))
        client.subscribe("/clock")
        client.message("/clock")
        client.socket.close()
        process.terminate()
        assert process.wait(60) == 0
    with pytest.raises(UsageError, match="needs --foxglove"):
        CliRunner().invoke(app, ["run", "--transport", "none", "--foxglove-host", "0.0.0.0"], catch_exceptions=False)


def test_a_run_in_foxglove_has_the_same_digest():
    with running(FoxgloveTransport(port=0), "flat", seed=5, rtf=5.0) as node:
        client = FoxgloveClient(node.transport.port)
        client.subscribe(*client.channels)
        client.message("/rover/odom")
        client.socket.close()
    sim = microsim.Simulation("flat", 5)
    sim.step(node.sim.tick)
    assert sim.digest() == node.sim.digest()
