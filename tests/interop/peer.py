"""A ROS 2 node under remote control: one JSON request a line on stdin, one JSON reply a line on stdout.

Runs on real rclpy (see setup.sh) and knows nothing of MicroSim, so that tests can ask it what a stranger sees. A reply
is {"ok": true, ...} or {"ok": false, "error": "..."}. `Peer` in driver.py speaks this protocol; the operations are the
functions below that are named in OPERATIONS. Bytes travel as base64, times as integers in nanoseconds.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rclpy
from message_values import fill, plain, type_of  # beside this file
from rclpy.action import ActionClient, ActionServer
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message

POLL_S = 0.01  # the graph has no event that Python can wait for
KEPT = 100_000  # messages of a subscription

arrived = threading.Condition()  # anything new: a message, a request, a response


class Received:
    """What a subscription got, in the order it came."""

    def __init__(self, message_type: type) -> None:
        self.type = message_type
        self.count = 0
        self.messages: deque[tuple[int, bytes]] = deque(maxlen=KEPT)  # (monotonic time of arrival, encoded message)

    def add(self, cdr: bytes) -> None:
        with arrived:
            self.count += 1
            self.messages.append((time.monotonic_ns(), bytes(cdr)))
            arrived.notify_all()


class State:
    def __init__(self, node: Any) -> None:
        self.node = node
        self.subscriptions: dict[str, Any] = {}
        self.received: dict[str, Received] = {}
        self.publishers: dict[str, Any] = {}
        self.clients: dict[str, Any] = {}
        self.requests: dict[str, list[Any]] = {}


def quality(depth: int = 10, reliable: bool = True, latched: bool = False) -> QoSProfile:
    return QoSProfile(
        depth=depth,
        history=HistoryPolicy.KEEP_LAST,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def stamp_ns(message: Any) -> int:
    if hasattr(message, "transforms"):
        message = message.transforms[0]
    stamp = message.clock if hasattr(message, "clock") else message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


def until(condition: Callable[[], bool], timeout: float) -> bool:
    """Wait for a condition that messages, requests and responses can change."""
    with arrived:
        return arrived.wait_for(condition, timeout)


def until_graph(condition: Callable[[], bool], timeout: float) -> bool:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


# ---- topics ---------------------------------------------------------------------------------------------------------


def subscribe(state: State, topic: str, type: str, qos: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Collect from now on. Subscribing again starts anew."""
    unsubscribe(state, topic)
    received = state.received[topic] = Received(type_of(type))
    state.subscriptions[topic] = state.node.create_subscription(
        received.type, topic, received.add, quality(**(qos or {})), raw=True
    )
    return {}


def unsubscribe(state: State, topic: str) -> dict[str, Any]:
    if topic in state.subscriptions:
        state.node.destroy_subscription(state.subscriptions.pop(topic))
        del state.received[topic]
    return {}


def wait(state: State, topic: str, count: int = 1, timeout: float = 30.0) -> dict[str, Any]:
    """Until so many messages have arrived since the subscription."""
    received = state.received[topic]
    if not until(lambda: received.count >= count, timeout):
        raise TimeoutError(f"{received.count} of {count} messages on {topic} within {timeout} s")
    return {"count": received.count}


def collect(
    state: State, topic: str, raw: bool = False, messages: bool = False, stamps: bool = False, clear: bool = False
) -> dict[str, Any]:
    """What has arrived on a topic: the count, when, and as asked the bytes, the decoded messages and their stamps."""
    received = state.received[topic]
    with arrived:
        taken, count = list(received.messages), received.count
        if clear:
            received.messages.clear()
            received.count = 0
    reply: dict[str, Any] = {"count": count, "arrived_ns": [at for at, _ in taken]}
    if raw:
        reply["raw"] = [base64.b64encode(cdr).decode() for _, cdr in taken]
    decoded = [deserialize_message(cdr, received.type) for _, cdr in taken] if messages or stamps else []
    if messages:
        reply["messages"] = [plain(message) for message in decoded]
    if stamps:
        reply["stamps_ns"] = [stamp_ns(message) for message in decoded]
    return reply


def advertise(state: State, topic: str, type: str, qos: Mapping[str, Any] | None = None) -> dict[str, Any]:
    if topic not in state.publishers:
        state.publishers[topic] = state.node.create_publisher(type_of(type), topic, quality(**(qos or {})))
    return {}


def publish(
    state: State,
    topic: str,
    type: str,
    qos: Mapping[str, Any] | None = None,
    message: Mapping[str, Any] | None = None,
    raw: str | None = None,
    count: int = 1,
    rate_hz: float = 0.0,
    subscribers: int = 1,
    acknowledged: bool = True,
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Send a message, or bytes as they are, once the subscribers are there; then wait until they have acknowledged."""
    advertise(state, topic, type, qos)
    publisher = state.publishers[topic]
    if not until_graph(lambda: publisher.get_subscription_count() >= subscribers, timeout):
        raise TimeoutError(f"{publisher.get_subscription_count()} of {subscribers} subscribers on {topic}")
    what = base64.b64decode(raw) if raw is not None else fill(type_of(type)(), message or {})
    began = time.monotonic()
    for number in range(count):
        if rate_hz:
            time.sleep(max(0.0, began + number / rate_hz - time.monotonic()))
        publisher.publish(what)
    reliable = publisher.qos_profile.reliability == ReliabilityPolicy.RELIABLE
    if acknowledged and reliable and not publisher.wait_for_all_acked(rclpy.duration.Duration(seconds=timeout)):
        raise TimeoutError(f"not acknowledged by all subscribers of {topic} within {timeout} s")
    return {"seconds": time.monotonic() - began}


def unadvertise(state: State, topic: str) -> dict[str, Any]:
    if topic in state.publishers:
        state.node.destroy_publisher(state.publishers.pop(topic))
    return {}


def encode(state: State, type: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes that rclpy makes of a message."""
    return {"raw": base64.b64encode(serialize_message(fill(type_of(type)(), message))).decode()}


def recode(state: State, type: str, raw: str) -> dict[str, Any]:
    """Bytes, made a message by rclpy and bytes again."""
    message = deserialize_message(base64.b64decode(raw), type_of(type))
    return {"raw": base64.b64encode(serialize_message(message)).decode()}


def types(state: State, names: list[str]) -> dict[str, Any]:
    """Which of these types are installed."""
    known = []
    for name in names:
        try:
            type_of(name)
        except (ImportError, AttributeError):
            continue
        known.append(name)
    return {"known": known}


# ---- services and parameters ----------------------------------------------------------------------------------------


def call(
    state: State, service: str, type: str, request: Mapping[str, Any] | None = None, timeout: float = 30.0
) -> dict[str, Any]:
    kind = type_of(type)
    if service not in state.clients:
        state.clients[service] = state.node.create_client(kind, service)
    client = state.clients[service]
    if not until_graph(client.service_is_ready, timeout):
        raise TimeoutError(f"no service {service} within {timeout} s")
    began = time.monotonic_ns()
    future = client.call_async(fill(kind.Request(), request or {}))
    try:
        response = plain(completed(future, timeout, f"no answer from {service}"))
    except TimeoutError:
        client.remove_pending_request(future)
        raise
    return {"response": response, "took_ns": time.monotonic_ns() - began}


def announce() -> None:
    with arrived:
        arrived.notify_all()


def serve(state: State, service: str, type: str, response: Mapping[str, Any]) -> dict[str, Any]:
    """Answer every request with this response."""
    requests = state.requests[service] = []

    def answer(request: Any, reply: Any) -> Any:
        requests.append(plain(request))
        announce()
        return fill(reply, response)

    state.node.create_service(type_of(type), service, answer)
    return {}


def served(state: State, service: str, count: int = 0, timeout: float = 30.0) -> dict[str, Any]:
    until(lambda: len(state.requests[service]) >= count, timeout)
    return {"requests": state.requests[service]}


def act(
    state: State, action: str, type: str, goal: Mapping[str, Any] | None = None, timeout: float = 30.0
) -> dict[str, Any]:
    """Send a goal and wait for its result."""
    kind = type_of(type)
    client, feedback = ActionClient(state.node, kind, action), []
    try:
        if not until_graph(client.server_is_ready, timeout):
            raise TimeoutError(f"no action {action} within {timeout} s")
        wish = fill(kind.Goal(), goal or {})
        sent = client.send_goal_async(wish, feedback_callback=lambda each: feedback.append(plain(each.feedback)))
        handle = completed(sent, timeout, f"no answer to the goal of {action}")
        if not handle.accepted:
            return {"accepted": False}
        done = completed(handle.get_result_async(), timeout, f"no result of {action}")
        return {"accepted": True, "status": done.status, "result": plain(done.result), "feedback": feedback}
    finally:
        client.destroy()


def serve_action(state: State, action: str, type: str, feedback: Mapping[str, Any]) -> dict[str, Any]:
    """Each goal gets this feedback and succeeds."""
    kind = type_of(type)

    def execute(goal: Any) -> Any:
        goal.publish_feedback(fill(kind.Feedback(), feedback))
        goal.succeed()
        return kind.Result()

    state.requests[action] = [ActionServer(state.node, kind, action, execute)]
    return {}


def completed(future: Any, timeout: float, complaint: str) -> Any:
    future.add_done_callback(lambda _: announce())
    if not until(future.done, timeout):
        raise TimeoutError(f"{complaint} within {timeout} s")
    return future.result()


# field of rcl_interfaces/msg/ParameterValue for each of its types
FIELDS = (
    "",
    "bool_value",
    "integer_value",
    "double_value",
    "string_value",
    "byte_array_value",
    "bool_array_value",
    "integer_array_value",
    "double_array_value",
    "string_array_value",
)


def parameter_value(value: Any) -> dict[str, Any]:
    first = value[0] if isinstance(value, list) and value else value
    kind = 1 if isinstance(first, bool) else 2 if isinstance(first, int) else 3 if isinstance(first, float) else 4
    kind = 0 if value is None else kind + 5 if isinstance(value, list) else kind
    return {"type": kind, FIELDS[kind]: value} if kind else {"type": 0}


def value_of(parameter: Mapping[str, Any]) -> Any:
    return parameter[FIELDS[parameter["type"]]] if parameter["type"] else None


def ask(state: State, node: str, service: str, timeout: float, request: Mapping[str, Any]) -> Any:
    kind = "".join(word.capitalize() for word in service.split("_"))
    return call(state, f"{node}/{service}", f"rcl_interfaces/srv/{kind}", request, timeout)["response"]


def get_parameters(state: State, node: str, names: list[str], timeout: float = 30.0) -> dict[str, Any]:
    """Values by name; an unknown one is null."""
    values = ask(state, node, "get_parameters", timeout, {"names": names})["values"]
    return {"values": dict(zip(names, map(value_of, values), strict=False))}


def set_parameters(
    state: State, node: str, values: Mapping[str, Any], atomically: bool = False, timeout: float = 30.0
) -> dict[str, Any]:
    """Each result as {successful, reason}; atomically there is only one. The type is that of the JSON value."""
    parameters = [{"name": name, "value": parameter_value(value)} for name, value in values.items()]
    service = "set_parameters_atomically" if atomically else "set_parameters"
    answer = ask(state, node, service, timeout, {"parameters": parameters})
    return {"results": [answer["result"]] if atomically else answer["results"]}


def list_parameters(state: State, node: str, timeout: float = 30.0) -> dict[str, Any]:
    return {"names": ask(state, node, "list_parameters", timeout, {})["result"]["names"]}


def describe_parameters(state: State, node: str, names: list[str], timeout: float = 30.0) -> dict[str, Any]:
    descriptors = ask(state, node, "describe_parameters", timeout, {"names": names})["descriptors"]
    return {"descriptors": {each["name"]: each for each in descriptors}}


# ---- the graph ------------------------------------------------------------------------------------------------------


def graph(state: State) -> dict[str, Any]:
    node = state.node
    return {
        "nodes": sorted(f"{space.rstrip('/')}/{name}" for name, space in node.get_node_names_and_namespaces()),
        "topics": dict(node.get_topic_names_and_types()),
        "services": dict(node.get_service_names_and_types()),
    }


def node_graph(state: State, node: str, having: Sequence[str] = (), timeout: float = 30.0) -> dict[str, Any]:
    """What one node publishes, subscribes to and serves: name -> types. Waits for the node and for what it should have.

    Which node an endpoint belongs to is told after the endpoint itself.
    """
    found: dict[str, Any] = {}

    def is_there() -> bool:
        found.update(_of_node(state.node, node))
        return bool(found) and all(any(name in kind for kind in found.values()) for name in having)

    if not until_graph(is_there, timeout):
        raise TimeoutError(f"no node {node} with {list(having)} within {timeout} s, but {found}")
    return found


def _of_node(node: Any, whole_name: str) -> dict[str, Any]:
    namespace, _, name = whole_name.rpartition("/")
    where = (name, namespace or "/")
    try:
        return {
            "publishers": dict(node.get_publisher_names_and_types_by_node(*where)),
            "subscriptions": dict(node.get_subscriber_names_and_types_by_node(*where)),
            "services": dict(node.get_service_names_and_types_by_node(*where)),
        }
    except rclpy.node.NodeNameNonExistentError:
        return {}


def endpoint(info: Any) -> dict[str, Any]:
    qos = info.qos_profile
    return {
        "node": f"{info.node_namespace.rstrip('/')}/{info.node_name}",
        "type": info.topic_type,
        "type_hash": str(getattr(info, "topic_type_hash", "")),
        "qos": {
            "depth": qos.depth,  # 0 where the middleware does not announce it
            "reliable": qos.reliability == ReliabilityPolicy.RELIABLE,
            "latched": qos.durability == DurabilityPolicy.TRANSIENT_LOCAL,
            "lifespan_ns": qos.lifespan.nanoseconds,
            "deadline_ns": qos.deadline.nanoseconds,
        },
    }


def publishers(state: State, topic: str) -> dict[str, Any]:
    return {"endpoints": [endpoint(info) for info in state.node.get_publishers_info_by_topic(topic)]}


def subscriptions(state: State, topic: str) -> dict[str, Any]:
    return {"endpoints": [endpoint(info) for info in state.node.get_subscriptions_info_by_topic(topic)]}


def wait_graph(
    state: State,
    nodes: Sequence[str] = (),
    publishers: Sequence[str] = (),
    subscriptions: Sequence[str] = (),
    services: Sequence[str] = (),
    gone: Sequence[str] = (),
    timeout: float = 30.0,
) -> dict[str, Any]:
    """Until these nodes, publishers and subscriptions (by topic) and services are there, and `gone` nodes are not."""

    def missing() -> list[str]:
        seen = graph(state)
        return [
            *(name for name in nodes if name not in seen["nodes"]),
            *(topic for topic in publishers if not state.node.count_publishers(topic)),
            *(topic for topic in subscriptions if not state.node.count_subscribers(topic)),
            *(service for service in services if service not in seen["services"]),
            *(f"{name} still there" for name in gone if name in seen["nodes"]),
        ]

    if not until_graph(lambda: not missing(), timeout):
        raise TimeoutError(f"not in the graph within {timeout} s: {', '.join(missing())}")
    return {}


def hello(state: State) -> dict[str, Any]:
    return {"node": state.node.get_fully_qualified_name(), "rmw": rclpy.get_rmw_implementation_identifier()}


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    operation.__name__: operation
    for operation in (
        *(
            hello,
            subscribe,
            unsubscribe,
            wait,
            collect,
            advertise,
            publish,
            unadvertise,
            encode,
            recode,
            types,
            call,
            act,
            serve,
            serve_action,
        ),
        *(served, get_parameters, set_parameters, list_parameters, describe_parameters),
        *(graph, node_graph, publishers, subscriptions, wait_graph),
    )
}


def answer(state: State, line: str) -> dict[str, Any]:
    try:
        request = json.loads(line)
        name = request.pop("op")
        if name not in OPERATIONS:
            raise ValueError(f"no operation {name}; there are: {', '.join(OPERATIONS)}")
        return {"ok": True, **OPERATIONS[name](state, **request)}
    except Exception as error:  # whatever it is, the test must be told
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def spin(executor: SingleThreadedExecutor) -> None:
    with contextlib.suppress(ExternalShutdownException):
        executor.spin()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not disturb the protocol
    rclpy.init(args=sys.argv, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
    node = rclpy.create_node("peer")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinning = threading.Thread(target=spin, args=(executor,), daemon=True)
    spinning.start()
    state = State(node)
    for line in sys.stdin:
        print(json.dumps(answer(state, line)), file=replies, flush=True)
    executor.shutdown()
    spinning.join(5.0)
    node.destroy_node()
    rclpy.shutdown()


if __name__ == "__main__":
    main()
