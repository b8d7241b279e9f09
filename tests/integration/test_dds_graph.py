"""What peers learn about the node, read with plain Cyclone DDS; and how the environment shapes discovery."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.topics import Qos

pytest.importorskip("cyclonedds")

from cyclonedds.builtin import (
    BuiltinDataReader,
    BuiltinTopicDcpsParticipant,
    BuiltinTopicDcpsPublication,
    BuiltinTopicDcpsSubscription,
)
from cyclonedds.domain import DomainParticipant
from cyclonedds.qos import Policy

from microsim.parts.ros2.transport.cdr_endpoints import matched
from microsim.parts.ros2.transport.dds_domain import configuration, domain_id
from microsim.parts.ros2.transport.dds_graph import DISCOVERY_TYPE, Graph, announced, user_data_of

from .conftest import Remote, wait_for

TWIST = "geometry_msgs/msg/Twist"
MakeRemote = Callable[..., Remote]


class Observer:
    """Sees the graph as any DDS tool does."""

    def __init__(self, domain: int) -> None:
        self.graph = Graph("observer", "/observers", "/", lambda text: None)
        self.participant = DomainParticipant(domain)
        self.infos: dict[bytes, Any] = {}  # the last ros_discovery_info of each participant
        self.reader = self.graph.reader("ros_discovery_info", DISCOVERY_TYPE, Qos(1000, latched=True), lambda: None)
        self.publications = BuiltinDataReader(self.participant, BuiltinTopicDcpsPublication)
        self.subscriptions = BuiltinDataReader(self.participant, BuiltinTopicDcpsSubscription)
        self.participants = BuiltinDataReader(self.participant, BuiltinTopicDcpsParticipant)

    def look(self) -> None:
        for cdr, _ in self.reader.take():
            info = wire.decode_checked(DISCOVERY_TYPE, cdr)
            self.infos[bytes(info.gid.data)] = info

    def node(self, namespace: str) -> tuple[bytes, Any] | None:
        """Participant and entry of the node in this namespace."""
        self.look()
        for gid, info in self.infos.items():
            for node in info.node_entities_info_seq:
                if node.node_namespace == namespace:
                    return gid, node
        return None

    def endpoints(self, participant: bytes) -> dict[tuple[str, str], Any]:
        """(w or r, topic) -> what is announced of it; of two readers of requests, that which has the service's id."""
        found: dict[tuple[str, str], Any] = {}
        for kind, reader in (("w", self.publications), ("r", self.subscriptions)):
            for endpoint in reader.read(10_000):
                if endpoint.sample_info.valid_data and endpoint.participant_key.bytes == participant:
                    is_idle = endpoint.topic_name.startswith("rq") and "serviceid" not in user_data(endpoint)
                    if not is_idle:
                        found[kind, endpoint.topic_name] = endpoint
        return found


@pytest.fixture
def observer(ros_environment: dict[str, str]) -> Iterator[Observer]:
    made = Observer(int(ros_environment["ROS_DOMAIN_ID"]))
    yield made
    made.graph.close()


def user_data(entity: Any) -> str:
    return bytes(entity.qos[Policy.Userdata].data).decode()


@pytest.fixture
def seen(
    observer: Observer, remote: MakeRemote, namespace: str
) -> tuple[Remote, bytes, Any, dict[tuple[str, str], Any]]:
    peer = remote("microsim")
    peer.do("publisher", topic="/clock", type_name=TWIST, qos={"depth": 10})
    peer.do("publisher", topic="/info", type_name="std_msgs/msg/String", qos={"depth": 3, "latched": True})
    peer.do("subscribe", topic="/cmd", type_name=TWIST, qos={"depth": 5, "reliable": False})
    peer.do("serve", service="/sim/reset")
    peer.do("declare", parameters=[{"name": "seed", "value": 1}])
    wait_for(lambda: (found := observer.node(namespace)) is not None and len(found[1].reader_gid_seq) == 9)
    found = observer.node(namespace)
    assert found is not None
    gid, node = found
    wait_for(lambda: len(observer.endpoints(gid)) >= 20 + 1)
    return peer, gid, node, observer.endpoints(gid)


def test_the_node_is_announced_with_all_its_endpoints(
    seen: tuple[Remote, bytes, Any, dict[tuple[str, str], Any]], namespace: str
) -> None:
    _, _, node, endpoints = seen
    assert (node.node_name, node.node_namespace) == ("microsim", namespace)
    names = [f"{namespace}/microsim/{name}" for name in (
        "describe_parameters", "get_parameter_types", "get_parameters", "list_parameters", "set_parameters",
        "set_parameters_atomically", "get_type_description",
    )]  # fmt: skip
    services = [f"{namespace}/sim/reset", *names]
    readers = {f"rt{namespace}/cmd"} | {f"rq{name}Request" for name in services}
    writers = {"rt/rosout", "rt/parameter_events", f"rt{namespace}/clock", f"rt{namespace}/info"}
    writers |= {f"rr{name}Reply" for name in services}
    assert {topic for kind, topic in endpoints if kind == "r"} == readers
    assert {topic for kind, topic in endpoints if kind == "w"} == writers | {"ros_discovery_info"}

    gids = {bytes(gid.data) for gid in (*node.reader_gid_seq, *node.writer_gid_seq)}
    announced = {e.key.bytes for (_, topic), e in endpoints.items() if topic != "ros_discovery_info"}
    assert gids == announced


def test_endpoints_carry_type_names_type_hashes_and_service_ids(
    seen: tuple[Remote, bytes, Any, dict[tuple[str, str], Any]], namespace: str
) -> None:
    endpoints = seen[3]
    clock = endpoints["w", f"rt{namespace}/clock"]
    assert clock.type_name == "geometry_msgs::msg::dds_::Twist_"
    assert user_data(clock) == f"typehash={wire.type_hash(TWIST)};"
    request, reply = endpoints["r", f"rq{namespace}/sim/resetRequest"], endpoints["w", f"rr{namespace}/sim/resetReply"]
    assert request.type_name == "std_srvs::srv::dds_::SetBool_Request_"
    assert reply.type_name == "std_srvs::srv::dds_::SetBool_Response_"
    ids = []
    for endpoint, half in ((request, "Request"), (reply, "Response")):
        match = re.fullmatch(r"serviceid=([ 0-9a-f.]+);typehash=(\w+);", user_data(endpoint))
        assert match is not None
        assert match[2] == wire.type_hash(f"std_srvs/srv/SetBool_{half}")
        ids.append(match[1])
    assert ids[0] == ids[1]
    assert len(ids[0].split(".")) == 16
    assert all(endpoint.type_id is None for endpoint in endpoints.values())  # nothing of XTypes


def test_quality_of_service_is_announced_as_the_table_has_it(
    seen: tuple[Remote, bytes, Any, dict[tuple[str, str], Any]], namespace: str
) -> None:
    endpoints = seen[3]
    clock, info = endpoints["w", f"rt{namespace}/clock"].qos, endpoints["w", f"rt{namespace}/info"].qos
    command, rosout = endpoints["r", f"rt{namespace}/cmd"].qos, endpoints["w", "rt/rosout"].qos
    assert clock[Policy.Reliability] == Policy.Reliability.Reliable(100_000_000)
    assert clock[Policy.Durability] == Policy.Durability.Volatile
    assert info[Policy.Durability] == Policy.Durability.TransientLocal
    assert info[Policy.DurabilityService].history == Policy.History.KeepLast(3)
    assert command[Policy.Reliability] == Policy.Reliability.BestEffort
    assert rosout[Policy.Durability] == Policy.Durability.TransientLocal
    assert rosout[Policy.Lifespan] == Policy.Lifespan(10 * 10**9)


def test_the_participant_names_its_enclave(
    observer: Observer, seen: tuple[Remote, bytes, Any, dict[tuple[str, str], Any]]
) -> None:
    participants = {p.key.bytes: p for p in observer.participants.read(1000) if p.sample_info.valid_data}
    assert user_data(participants[seen[1]]) == "enclave=/;"


def test_closing_takes_the_node_out_of_the_graph(
    observer: Observer, seen: tuple[Remote, bytes, Any, dict[tuple[str, str], Any]], namespace: str
) -> None:
    peer, gid, _, _ = seen
    peer.do("close")
    wait_for(lambda: observer.node(namespace) is None)
    assert list(observer.infos[gid].node_entities_info_seq) == []

    def alive() -> set[bytes]:
        return {
            p.key.bytes
            for p in observer.participants.read(1000)
            if p.sample_info.valid_data and p.sample_info.instance_state == 16
        }

    wait_for(lambda: gid not in alive())


# ---- the environment


def test_discovery_is_shaped_as_rmw_does() -> None:
    subnet = configuration({})
    assert "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32" in subnet
    assert "AllowMulticast" not in subnet
    local = configuration({"ROS_AUTOMATIC_DISCOVERY_RANGE": "localhost", "ROS_STATIC_PEERS": "10.0.0.1;b"})
    assert "<AllowMulticast>false</AllowMulticast>" in local
    assert local.count("<Peer address=") == 3
    assert '<Peer address="localhost"/><Peer address="10.0.0.1"/>' in local
    off = configuration({"ROS_AUTOMATIC_DISCOVERY_RANGE": "OFF", "ROS_STATIC_PEERS": "10.0.0.1"})
    assert "<ParticipantIndex>none" in off
    assert "Peer address" not in off
    assert "Discovery" not in configuration({"ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT"})


def test_localhost_only_overrules_range_and_peers() -> None:
    environment = {"ROS_LOCALHOST_ONLY": "1", "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET", "ROS_STATIC_PEERS": "10.0.0.1"}
    text = configuration(environment)
    assert "<AllowMulticast>false" in text
    assert "10.0.0.1" not in text


def test_the_users_configuration_comes_last() -> None:
    assert configuration({"CYCLONEDDS_URI": "file:///x.xml"}).endswith("</CycloneDDS>,file:///x.xml")
    assert "NetworkInterface" not in configuration({})  # never one interface
    own = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", "CYCLONEDDS_URI": "<CycloneDDS/>"}
    assert "NetworkInterface" not in configuration(own)  # the user may name some


def test_bad_variables_are_refused_with_what_they_may_be() -> None:
    assert domain_id({}) == 0
    assert domain_id({"ROS_DOMAIN_ID": "42"}) == 42
    for bad in ("x", "-1", "233", "1.5"):
        with pytest.raises(UsageError, match="0 to 232"):
            domain_id({"ROS_DOMAIN_ID": bad})
    with pytest.raises(UsageError, match="there are: SUBNET, LOCALHOST, OFF"):
        configuration({"ROS_AUTOMATIC_DISCOVERY_RANGE": "EVERYWHERE"})


def test_threads_that_look_at_the_graph_at_once_see_what_each_peer_announces() -> None:
    """cyclonedds keeps what it reads in variables of all threads; without a lock this reads at random, or crashes."""
    here, there = (Graph(name, "/", "/", lambda text: None) for name in ("here", "there"))
    types = (TWIST, "std_msgs/msg/String", "sensor_msgs/msg/Imu", "nav_msgs/msg/Odometry")
    writers = [here.writer(f"rt/looked_at_{k}", name, Qos(1)).writer for k, name in enumerate(types)]
    for k, name in enumerate(types):
        there.reader(f"rt/looked_at_{k}", name, Qos(1), lambda: None)
    wait_for(lambda: all(matched(writer) for writer in writers))
    peers = [(writer, matched(writer)[0]) for writer in writers]
    expected = [user_data_of(announced(*peer)) for peer in peers]
    assert len({each["typehash"] for each in expected}) == len(types)
    wrong: list[object] = []

    def look(number: int) -> None:
        try:
            for _ in range(500):
                found = user_data_of(announced(*peers[number]))
                wrong.extend([found] if found != expected[number] else [])
        except Exception as error:  # whatever a race leads to
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=look, args=(number,)) for number in range(len(types))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    here.close()
    there.close()
    assert wrong == []
