"""The transport over an installed ROS 2: an rclpy node, so that ROS 2 itself reads `--ros-args`."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import rclpy
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor, TimeoutException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.type_support import check_for_type_support

from microsim.errors import UsageError
from microsim.messages import fill
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport import (
    LogLevel,
    MissingTypeError,
    NodeEnds,
    OnMessage,
    OnRequest,
    OnSet,
    Parameter,
    Value,
)
from microsim.parts.ros2.transport.rtps_packets import PREFIX
from microsim.parts.ros2.transport.standalone import NotYet, whole_bounds

CALLBACKS_PER_POLL = 200  # a flood of messages must not hold up the tick
IDLE_S = 0.001  # asking rclpy takes 0.3 ms, longer than a tick: when nothing has arrived, wait before asking again
READING_S = 0.01  # that subscribers get to read what was published
GRAPH_POLL_S = 0.01  # rclpy has no event for "a service has appeared"
REPEAT_S = 1.0  # between two warnings of the same kind
SIM_TIME = "use_sim_time"
_NAMELESS = ("_CREATED_BY_BARE_DDS_APP_", "_NODE_NAME_UNKNOWN_")  # what rmw calls nodes that it does not know yet

T = TypeVar("T")


class RclpyTransport:
    name = "rclpy"
    discovery_s = 1.0
    tells_senders = False  # not every distribution and middleware says who sent a message
    serves_many_types = False  # rmw_fastrtps_cpp allows one

    def __init__(self, node_name: str = "microsim", ros_args: Sequence[str] = ()) -> None:
        self._context = Context()
        self._node = _node(node_name, list(ros_args), self._context)
        self._executor = _Executor(context=self._context)
        self._executor.add_node(self._node)
        self._answers = ReentrantCallbackGroup()  # so that a callback may call a service
        self._publishers: list[RclpyPublisher] = []
        self._own_change = False
        self._later: list[Callable[[], None]] = []  # requests whose handlers could not answer
        self._asked: dict[str, Any] = {}  # clients of `ask`, by service
        self._failure: BaseException | None = None  # raised by a callback of ours
        self._complained_at = float("-inf")
        self._idle_until = 0.0
        self._open = True
        self._participants: dict[str, bytes] = {}  # node -> the first bytes of its gids
        self._own_publishers: dict[bytes, bool] = {}  # by their gid; False: another node's
        self.node_name: str = self._node.get_fully_qualified_name()
        self.overrides: Mapping[str, Value] = _overrides(self._node)

    def publisher(self, topic: str, type_name: str, qos: Qos) -> RclpyPublisher:
        made = self._node.create_publisher(find_type(type_name), _relative(topic), quality(qos))
        self._publishers.append(RclpyPublisher(made, keeps_last=qos.latched))
        return self._publishers[-1]

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        callback = self._guarded(lambda cdr: on_message(bytes(cdr)))

        def filtered(cdr: bytes, information: Any) -> None:  # rclpy looks at the number of arguments
            if not self._is_own(topic, information):
                callback(cdr)

        self._node.create_subscription(
            find_type(type_name), _relative(topic), filtered if from_others else callback, quality(qos), raw=True
        )

    def _is_own(self, topic: str, information: Any) -> bool:
        """Whether a message is known to come from a publisher of this node. Older distributions do not say."""
        gid = (information.get("publisher_gid") or {}).get("data", b"")
        if gid and gid not in self._own_publishers:
            node = self._node.get_name(), self._node.get_namespace()
            for each in self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(_relative(topic))):
                self._own_publishers[bytes(each.endpoint_gid)] = (each.node_name, each.node_namespace) == node
        return self._own_publishers.get(gid, False)

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        kind = find_type(type_name)

        def answer(request: Any, response: Any) -> Any:
            try:
                on_request(request, response)
            except NotYet:
                return _Later(request)
            except Exception as error:  # of any kind: the client waits for an answer
                self.log("error", f"service {service}: {type(error).__name__}: {error}")
                response = kind.Response()
                if hasattr(response, "message"):
                    response.message = f"{type(error).__name__}: {error}"
            return response

        def reply(response: Any, header: Any) -> None:
            if isinstance(response, _Later):
                request = response.request
                self._later.append(lambda: reply(answer(request, kind.Response()), header))
            else:
                send(response, header)

        made = self._node.create_service(kind, _relative(service), answer)
        # rclpy answers as soon as the callback returns; this is where it would
        send, made.send_response = made.send_response, reply

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        kind, end = find_type(type_name), time.monotonic() + timeout_s
        message = fill(kind.Request(), request)
        name = self._node.resolve_service_name(_relative(service))
        client = self._node.create_client(kind, _relative(service), callback_group=self._answers)
        try:
            while not client.service_is_ready():
                self._poll_before(end, GRAPH_POLL_S, f"no service {name} within {timeout_s} s")
            future = client.call_async(message)
            while not future.done():
                self._poll_before(end, timeout_s, f"no answer from {name} within {timeout_s} s")
            return future.result()
        finally:
            self._node.destroy_client(client)

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> Callable[[], Any] | None:
        kind = find_type(type_name)
        if service not in self._asked:
            self._asked[service] = self._node.create_client(kind, _relative(service), callback_group=self._answers)
        if not self._asked[service].service_is_ready():
            return None
        future = self._asked[service].call_async(fill(kind.Request(), request))
        return lambda: future.result() if future.done() else None

    def _poll_before(self, end: float, at_most_s: float, complaint: str) -> None:
        left = end - time.monotonic()
        if left <= 0.0:
            raise TimeoutError(complaint)
        self.poll(min(left, at_most_s))

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        for parameter in parameters:
            if self._node.has_parameter(parameter.name):  # rclpy declares use_sim_time itself
                self._node.set_descriptor(parameter.name, descriptor(parameter))
                self.set_parameters({parameter.name: parameter.value})
            else:
                # the node has read `overrides` already: the value it gives is the current one
                told = parameter.name, parameter.value, descriptor(parameter)
                self._node.declare_parameter(*told, ignore_override=True)
        declared = {parameter.name: parameter for parameter in parameters}
        guarded = self._guarded(on_set)

        def convert(changes: list[Any]) -> list[Any]:
            """Whole numbers for doubles: before rclpy compares types."""
            return [
                RosParameter(each.name, value=declared[each.name].converted(each.value))
                if each.name in declared and declared[each.name].any_number and each.value is not None
                else each
                for each in changes
            ]

        def check(changes: list[Any]) -> SetParametersResult:
            ours = {} if self._own_change else {each.name: each.value for each in changes if each.name in declared}
            plain = {name: plain_value(value) for name, value in ours.items()}
            reason = next(filter(None, (declared[name].out_of_range(value) for name, value in plain.items())), "")
            if plain and not reason:
                reason = guarded(plain)
            return SetParametersResult(successful=not reason, reason=reason)

        if hasattr(self._node, "add_pre_set_parameters_callback"):  # not in Humble, where types must match exactly
            self._node.add_pre_set_parameters_callback(convert)
        self._node.add_on_set_parameters_callback(check)

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        current = {name: self._node.get_parameter(name) for name in values}
        changed = {name: value for name, value in values.items() if plain_value(current[name].value) != value}
        if not changed:  # which rclpy refuses
            return
        described = [self._node.describe_parameter(name) for name in changed]
        locked = [each for each in described if each.read_only]  # read-only for others
        self._own_change = True
        try:
            for each in locked:
                each.read_only = False
            parameters = []
            for name, value in changed.items():
                kind = current[name].type_
                given = float(value) if isinstance(value, int) and kind == RosParameter.Type.DOUBLE else value
                parameters.append(RosParameter(name, kind, given))
            result = self._node.set_parameters_atomically(parameters)
        finally:
            self._own_change = False
            for each in locked:
                each.read_only = True
        if not result.successful:
            raise UsageError(result.reason)

    def resolved(self, topic: str) -> str:
        return str(self._node.resolve_topic_name(_relative(topic)))

    def peers(self, topic: str, publishers: bool) -> dict[Hashable, str]:
        node, name = self._node, self.resolved(topic)
        found = node.get_publishers_info_by_topic(name) if publishers else node.get_subscriptions_info_by_topic(name)
        named = {bytes(each.endpoint_gid): f"{each.node_namespace.rstrip('/')}/{each.node_name}" for each in found}
        known = {gid: "" if name.endswith(_NAMELESS) else name for gid, name in named.items()}
        self._participants.update({owner: gid[:PREFIX] for gid, owner in known.items() if owner})
        if "" in known.values():
            owners = self._owners(name, publishers, {gid[:PREFIX]: bool(owner) for gid, owner in known.items()})
            known = {gid: owner or owners.get(gid[:PREFIX], "") for gid, owner in known.items()}
        return {gid: owner for gid, owner in known.items() if owner != self.node_name}

    def _owners(self, topic: str, publishers: bool, participants: Mapping[bytes, bool]) -> dict[bytes, str]:
        """Participant -> its node that has endpoints of this topic, for those where no other can be meant.

        Fast DDS 3 does not know to which participant an endpoint on Cyclone DDS belongs, but which topics a node has.
        `participants`: that have such endpoints, and whether these are named already.
        """
        graph = self._node
        topics_of = graph.get_publisher_names_and_types_by_node
        if not publishers:
            topics_of = graph.get_subscriber_names_and_types_by_node
        owners: dict[bytes, list[str]] = {}
        homeless: list[str] = []
        for node, namespace in set(graph.get_node_names_and_namespaces()):
            full = f"{namespace.rstrip('/')}/{node}"
            with suppress(RuntimeError):  # it has left
                if full != self.node_name and topic in dict(topics_of(node, namespace)):
                    participant = self._participants.get(full, b"")
                    known = owners.setdefault(participant, []) if participant in participants else homeless
                    known.append(full)
        nameless = [each for each, is_named in participants.items() if not is_named and each not in owners]
        if len(nameless) == len(homeless) == 1:
            self._participants[homeless[0]] = nameless[0]
            owners[nameless[0]] = homeless
        return {participant: names[0] for participant, names in owners.items() if len(names) == 1}

    def described(self, node: str) -> NodeEnds | None:
        namespace, _, name = node.rpartition("/")
        try:
            reads = self._node.get_subscriber_names_and_types_by_node(name, namespace or "/")
            serves = self._node.get_service_names_and_types_by_node(name, namespace or "/")
            writes = self._node.get_publisher_names_and_types_by_node(name, namespace or "/")
        except RuntimeError:  # it is not known yet, or has left
            return None
        read, served = (frozenset(topic for topic, _ in found) for found in (reads, serves))
        written = {topic: (types[0], self._offered(topic)) for topic, types in writes if types}
        return NodeEnds(read, served, written)

    def _offered(self, topic: str) -> Qos:
        """The strongest quality of service that all publishers of a topic offer."""
        found = [each.qos_profile for each in self._node.get_publishers_info_by_topic(topic)]
        reliable = all(each.reliability == ReliabilityPolicy.RELIABLE for each in found)
        return Qos(1, reliable, all(each.durability == DurabilityPolicy.TRANSIENT_LOCAL for each in found))

    def acquaint(self) -> Callable[[Collection[Hashable]], bool] | None:
        """No RMW reports it."""
        return None

    def is_acknowledged(self, topic: str) -> bool | None:
        return None

    def wait_for_acks(self, timeout_s: float) -> bool:
        """Give subscribers time to read. No RMW reports acknowledgements soon: Fast DDS needs up to 3 s for one."""
        if any(publisher.subscribers for publisher in self._publishers):
            time.sleep(min(timeout_s, READING_S))
        return True

    def has_received_all(self, timeout_s: float) -> bool:
        """The RMW delivers in the order of arrival, and a poll runs all that has been delivered."""
        self._idle_until = 0.0
        self.poll()
        return True

    def log(self, level: LogLevel, text: str) -> None:
        _LOG[level](self._node.get_logger(), text)

    def poll(self, timeout_s: float = 0.0) -> None:
        if not self._open or (timeout_s <= 0.0 and not self._later and time.monotonic() < self._idle_until):
            return
        try:
            later, self._later = self._later, []
            for ask in later:  # handlers that could not answer at the last poll
                ask()
            if not self._executor.run_ready(timeout_s, CALLBACKS_PER_POLL):
                self._idle_until = time.monotonic() + IDLE_S
        except Exception as error:  # a request that rclpy cannot read, an answer to a client that has gone
            if self._failure is None and time.monotonic() - self._complained_at >= REPEAT_S:
                self._complained_at = time.monotonic()
                self.log("warn", str(error))
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def _guarded(self, callback: Callable[..., T]) -> Callable[..., T]:
        """Keep what our callbacks raise, which `poll` raises again, apart from errors inside rclpy."""

        def guarded(*arguments: Any) -> T:
            try:
                return callback(*arguments)
            except BaseException as error:  # Ctrl-C too: rclpy must not keep it for itself
                self._failure = error
                raise

        return guarded


@dataclass(frozen=True)
class _Later:
    """In place of a response: the handler must be called again."""

    request: Any


class RclpyPublisher:
    def __init__(self, publisher: Any, keeps_last: bool) -> None:
        self._publisher = publisher
        self._keeps_last = keeps_last

    def publish(self, cdr: bytes) -> None:
        if self._keeps_last or self._publisher.get_subscription_count():
            self._publisher.publish(cdr)

    @property
    def subscribers(self) -> int:
        return int(self._publisher.get_subscription_count())


class _Executor(SingleThreadedExecutor):  # type: ignore[misc]
    def run_ready(self, timeout_s: float, at_most: int) -> int:
        """Run every callback that is ready, waiting for the first one; gives how many there were.

        A pass takes one message of each subscription.
        """
        ran = ran_before_pass = 0
        while ran < at_most:
            try:
                task, _, _ = self.wait_for_ready_callbacks(timeout_sec=0.0 if ran else max(timeout_s, 0.0))
            except TimeoutException:
                if ran == ran_before_pass:
                    break
                ran_before_pass = ran
                continue
            except (ShutdownException, ExternalShutdownException):
                break
            ran += 1
            task()
            if task.exception() is not None:
                raise task.exception()
        return ran


def _node(name: str, ros_args: list[str], context: Context) -> Node:
    try:
        # SIGINT and SIGTERM are the caller's, who ends the run before the node
        rclpy.init(args=ros_args, context=context, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        raise UsageError(f"--ros-args: {re.sub(r', at [^ ,]+:[0-9]+', '', str(error))}") from error
    # This node publishes /clock: with use_sim_time, which launch files set for every node, its own clock would wait
    # for itself. So it keeps the wall clock, whatever the parameter says.
    node = Node(name, context=context, parameter_overrides=[RosParameter(SIM_TIME, value=False)])
    node.remove_on_set_parameters_callback(node._time_source._on_parameter_event)
    return node


def _overrides(node: Node) -> dict[str, Value]:
    with node.handle:  # where rclpy itself reads them; it has no public name for them
        given = node.handle.get_parameters(RosParameter)
    return {name: plain_value(parameter.value) for name, parameter in given.items()}


def _relative(name: str) -> str:
    return name[1:] if name.startswith("//") else name.lstrip("/")


# rclpy requires one place in the source for each level
_LOG: dict[LogLevel, Callable[[Any, str], Any]] = {
    "debug": lambda logger, text: logger.debug(text),
    "info": lambda logger, text: logger.info(text),
    "warn": lambda logger, text: logger.warning(text),
    "error": lambda logger, text: logger.error(text),
}


def find_type(type_name: str) -> Any:
    """The class of a message or service; raises MissingTypeError."""
    package, kind, short = type_name.split("/")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise MissingTypeError(type_name, f"{package} is not installed; {_how_to_get(package)}") from error
    try:
        module = importlib.import_module(f"{package}.{kind}")
        if kind == "action":  # a part of it: Name_SendGoal, Name_GetResult, Name_FeedbackMessage
            action, _, part = short.rpartition("_")
            check_for_type_support(getattr(module, action))  # and with it, that of its parts
            found = getattr(getattr(module, action).Impl, part if part == "FeedbackMessage" else f"{part}Service")
        else:
            found = getattr(module, short)
        check_for_type_support(found)
    except (ImportError, AttributeError) as error:
        reason = f"the installed {package} does not have it; {_how_to_get(package)}, in a newer version"
        raise MissingTypeError(type_name, reason) from error
    return found


def _how_to_get(package: str) -> str:
    if package == "microsim_interfaces":
        return "build it with `colcon build --base-paths . interfaces` in MicroSim's source, and source it"
    distribution = os.environ.get("ROS_DISTRO", "$ROS_DISTRO")
    return f"try `apt install ros-{distribution}-{package.replace('_', '-')}`"


def quality(qos: Qos) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=qos.depth,
        reliability=ReliabilityPolicy.RELIABLE if qos.reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if qos.latched else DurabilityPolicy.VOLATILE,
    )


def descriptor(parameter: Parameter) -> ParameterDescriptor:
    described = ParameterDescriptor(
        name=parameter.name,
        type=RosParameter.Type.from_parameter_value(parameter.value).value,
        description=parameter.description,
        read_only=parameter.read_only,
    )
    if parameter.bounds is None:
        return described
    low, high = parameter.bounds
    elements = parameter.value if isinstance(parameter.value, list) else [parameter.value]
    if any(isinstance(element, float) for element in elements):
        described.floating_point_range = [FloatingPointRange(from_value=float(low), to_value=float(high))]
    else:
        bounds = whole_bounds(low, high)
        described.integer_range = [IntegerRange(from_value=bounds[0], to_value=bounds[1])]
    return described


def plain_value(value: Any) -> Value:
    """A parameter's value, whatever kind of array rclpy keeps it in."""
    if isinstance(value, bool | int | float | str):
        return value
    return [element[0] if isinstance(element, bytes) else element for element in value]
