"""The transport over Cyclone DDS: a node like any other on the ROS 2 network, without an installed ROS 2."""

from __future__ import annotations

import atexit
import itertools
import struct
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from microsim import messages as wire
from microsim.errors import UsageError
from microsim.messages.checked import decode_request
from microsim.messages.topics import Qos
from microsim.messages.types import ENCAPSULATION
from microsim.parts.ros2.transport import LogLevel, NodeEnds, OnMessage, OnRequest
from microsim.parts.ros2.transport.cdr_endpoints import CdrWriter, instance_handle, matched
from microsim.parts.ros2.transport.dds_domain import ReceivingThreads, domain_id, interfaces, uses_multicast
from microsim.parts.ros2.transport.dds_graph import Graph, announced, dds_type, type_hash_data, user_data_of
from microsim.parts.ros2.transport.rtps_packets import FAST_DDS, PREFIX
from microsim.parts.ros2.transport.rtps_participant import RtpsRequest, ServiceParticipant
from microsim.parts.ros2.transport.standalone import (
    ROSOUT_TOPIC,
    NotYet,
    StandaloneNode,
    answer,
    known_service,
    known_type,
)

if TYPE_CHECKING:
    from microsim.parts.ros2.transport.graph_view import GraphView
    from microsim.parts.ros2.transport.introduction import Introduction

SERVICE_QOS = Qos(1000)  # rmw keeps all requests; a bound keeps a flood out of memory
REQUESTS_PER_POLL = 32
REPLY_READER_S = 0.1  # how long a reply waits for its client to be ready for it
RMW_HINT = "set RMW_IMPLEMENTATION=rmw_cyclonedds_cpp there"

_HEADER = struct.Struct("<Qq")  # client id, sequence number
_BODY = len(ENCAPSULATION) + _HEADER.size
_ANSWERED_ELSEWHERE = "fast"  # in place of a client's id: one on Fast DDS, whose request also arrives by RTPS
_MANY = 256  # clients remembered before those that have gone are forgotten

Log: TypeAlias = Callable[[LogLevel, str], None]
Reply: TypeAlias = Callable[[bytes], None]  # sends it
Receive: TypeAlias = Callable[[bytes, Reply, bytes], None]  # gets a request, and the GUID of its writer


class FastDdsServices:
    """Serves clients on Fast DDS and calls its servers. What arrives comes through `Graph.waiter`, as from others."""

    def __init__(self, graph: Graph, log: Log, participant: ServiceParticipant) -> None:
        self._log, self._participant = log, participant
        self._receivers: dict[int, tuple[str, Receive]] = {}
        self._callers: dict[int, Callable[[int, bytes], None]] = {}
        participant.wake = graph.bell(self._receive)

    def serve(self, name: str, type_name: str, identity: str, receive: Receive) -> None:
        number = self._participant.serve(*_ends(name, type_name), identity + type_hash_data(f"{type_name}_Request"))
        self._receivers[number] = (name, receive)

    def client(self, name: str, type_name: str, identity: str, on_reply: Callable[[int, bytes], None]) -> int:
        """Gives its number; `on_reply` gets the token of the request, and the reply."""
        number = self._participant.client(*_ends(name, type_name), identity + type_hash_data(f"{type_name}_Request"))
        self._callers[number] = on_reply
        return number

    def has_server(self, client: int) -> bool:
        return client in self._participant.with_server

    def ask(self, client: int, token: int, request: bytes) -> None:
        if not self._participant.ask(client, token, request):
            raise UsageError(f"a request of {len(request):,} bytes is too large for a server on Fast DDS")

    def close(self) -> None:
        self._participant.close()

    def _receive(self) -> None:
        requests, replies = self._participant.requests, self._participant.replies
        while requests:
            request = requests.popleft()
            name, receive = self._receivers[request.service]
            receive(request.body, partial(self._answer, name, request), request.writer)
        while replies:
            reply = replies.popleft()
            self._callers[reply.client](reply.token, reply.body)

    def _answer(self, name: str, request: RtpsRequest, response: bytes) -> None:
        if not self._participant.answer(request, response):
            self._log("error", f"service {name}: a reply of {len(response):,} bytes is too large for Fast DDS")


def _ends(name: str, type_name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Topic and type of the requests of a service, and of its replies."""
    return (f"rq{name}Request", dds_type(f"{type_name}_Request")), (f"rr{name}Reply", dds_type(f"{type_name}_Response"))


def service_participant(log: Log) -> ServiceParticipant | None:
    """None where all ports are taken or discovery is off; Fast DDS clients are then refused with a hint."""
    try:
        participant = ServiceParticipant(domain_id(), interfaces(), uses_multicast()) if interfaces() else None
    except OSError as error:
        log("warn", f"services can be called from Cyclone DDS only: {error}")
        return None
    if participant is not None:
        participant.start()
    return participant


class DdsServer:
    """Adds itself to `waiting` while it has requests to answer or replies to send later."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        type_name: str,
        on_request: OnRequest,
        log: Log,
        waiting: list[DdsServer],
        fast_dds: FastDdsServices | None,
    ) -> None:
        self._name, self._type_name, self._on_request, self._log = name, type_name, on_request, log
        self._waiting, self._fast_dds = waiting, fast_dds
        identity = f"serviceid={graph.unique_id()};"
        if fast_dds is not None:  # rtps_participant.py says why, and why readers come before the writer
            graph.idle_reader(f"rq{name}Request", f"{type_name}_Request")
        requests = f"rq{name}Request", f"{type_name}_Request", SERVICE_QOS
        # as in executors of ROS 2: a node that answers has handled the messages that it received before
        self._requests = graph.reader(*requests, self._receive, identity, is_last=True)
        self._replies = graph.writer(f"rr{name}Reply", f"{type_name}_Response", SERVICE_QOS, identity)
        if fast_dds is not None:
            fast_dds.serve(name, type_name, identity, self._receive_from_fast_dds)
        self._has_versions = wire.has_older_version(f"{type_name}_Response")
        self._clients: dict[int, str] = {}  # handle of a request writer -> clientid, "": of another RMW
        self._listeners: dict[int, str] = {}  # handle of a reply reader -> clientid
        self._open: list[tuple[Any, Reply]] = []  # requests whose handlers cannot answer yet
        self._held: list[tuple[str, bytes, float]] = []  # clients that cannot receive yet, replies, until when
        self._has_hinted = False
        self._complained_at = float("-inf")

    def again(self) -> None:
        """Call handlers again that could not answer, and send replies whose clients have become ready."""
        open_requests, self._open = self._open, []
        for request, reply in open_requests:
            self._handle(request, reply)
        held, self._held = self._held, []
        for client, cdr, until in held:
            if self._can_receive(client) or time.monotonic() > until:
                self._replies.write(cdr)
            else:
                self._held.append((client, cdr, until))
        if not self._open and not self._held and self in self._waiting:
            self._waiting.remove(self)

    def _receive(self) -> None:
        for cdr, source in self._requests.take(REQUESTS_PER_POLL):
            client = self._client(source)
            if client is None or client == _ANSWERED_ELSEWHERE:  # None: it has disappeared
                continue
            if not client:
                if not self._has_hinted:
                    self._has_hinted = True
                    refusal = "refused a client whose RMW is not Cyclone DDS"
                    self._log("warn", f"service {self._name}: {refusal}; {RMW_HINT}")
                continue
            body = ENCAPSULATION + cdr[_BODY:] if cdr[:2] == ENCAPSULATION[:2] and len(cdr) >= _BODY else b""
            reply = partial(self._send, client, cdr[len(ENCAPSULATION) : _BODY])
            if self._has_versions:
                endpoint = announced(self._requests.reader, source)
                reply = partial(self._reply_to, endpoint.key.bytes if endpoint is not None else b"", reply)
            self._decode(body, reply)

    def _receive_from_fast_dds(self, cdr: bytes, reply: Reply, writer: bytes) -> None:
        if self._has_versions:
            reply = partial(self._reply_to, writer, reply)
        self._decode(cdr if cdr[:2] == ENCAPSULATION[:2] else b"", reply)

    def _reply_to(self, writer: bytes, reply: Reply, response: bytes) -> None:
        """In the version of the type that the client announces; `writer`: of its requests."""
        hashes = {
            user_data_of(endpoint).get("typehash", "")
            for handle in matched(self._replies.writer)
            if (endpoint := announced(self._replies.writer, handle)) is not None
            and endpoint.key.bytes[:PREFIX] == writer[:PREFIX]
        }
        name = f"{self._type_name}_Response"
        its_hash = hashes.pop() if len(hashes) == 1 else wire.type_hash(name)
        aged = wire.for_reader(name, response, its_hash)
        if aged is None:
            refusal = f"refused a client with another version of {self._type_name} ({its_hash})"
            self._log("warn", f"service {self._name}: {refusal}; known are simulation_interfaces 1.x and 2.x")
            return
        reply(aged)

    def _decode(self, body: bytes, reply: Reply) -> None:
        try:
            request = decode_request(f"{self._type_name}_Request", body)
        except wire.WireError as error:
            if time.monotonic() - self._complained_at >= 1.0:
                self._complained_at = time.monotonic()
                refusal = f"refused a request: {error}; if its RMW is another, {RMW_HINT}"
                self._log("warn", f"service {self._name}: {refusal}")
            return
        self._handle(request, reply)

    def _handle(self, request: Any, reply: Reply) -> None:
        try:
            reply(answer(self._type_name, self._on_request, request, self._log_error))
        except NotYet:
            self._open.append((request, reply))
            self._wait()

    def _log_error(self, problem: str) -> None:
        self._log("error", f"service {self._name}: {problem}")

    def _send(self, client: str, header: bytes, response: bytes) -> None:
        cdr = ENCAPSULATION + header + response[len(ENCAPSULATION) :]
        if self._can_receive(client):
            self._replies.write(cdr)
        else:
            self._held.append((client, cdr, time.monotonic() + REPLY_READER_S))
            self._wait()

    def _wait(self) -> None:
        if self not in self._waiting:
            self._waiting.append(self)

    def _client(self, source: int) -> str | None:
        if source not in self._clients:
            endpoint = announced(self._requests.reader, source)
            if endpoint is None:
                return None
            if len(self._clients) > _MANY:
                there = set(matched(self._requests.reader))
                self._clients = {handle: client for handle, client in self._clients.items() if handle in there}
            is_fast = self._fast_dds is not None and endpoint.key.bytes[:2] == FAST_DDS
            self._clients[source] = _ANSWERED_ELSEWHERE if is_fast else user_data_of(endpoint).get("clientid", "")
        return self._clients[source]

    def _can_receive(self, client: str) -> bool:
        if client in self._listeners.values():
            return True
        writer = self._replies.writer
        known, self._listeners = self._listeners, {}
        for handle in matched(writer):
            if handle in known:
                self._listeners[handle] = known[handle]
            else:
                endpoint = announced(writer, handle)
                self._listeners[handle] = user_data_of(endpoint).get("clientid", "")
        return client in self._listeners.values()


class Client:
    """Calls a server on Cyclone DDS, or else one on Fast DDS."""

    def __init__(self, graph: Graph, name: str, type_name: str, fast_dds: FastDdsServices | None = None) -> None:
        self._type_name, self._fast_dds = type_name, fast_dds
        identity = f"clientid={graph.unique_id()};"
        if fast_dds is not None:
            self._number = fast_dds.client(name, type_name, identity, self._take_reply)
        self._requests = graph.writer(f"rq{name}Request", f"{type_name}_Request", SERVICE_QOS, identity)
        self._replies = graph.reader(f"rr{name}Reply", f"{type_name}_Response", SERVICE_QOS, self._receive, identity)
        self._id = instance_handle(self._requests.writer)
        self._numbers = itertools.count(1)
        self._answers: dict[int, bytes] = {}  # by sequence number; empty while waiting
        self._ready_with: tuple[list[int], list[int]] | None = None  # peers when a server was last found

    def is_ready(self) -> bool:
        """Whether one server is matched with both halves."""
        return self._is_on_cyclone() or (self._fast_dds is not None and self._fast_dds.has_server(self._number))

    def _is_on_cyclone(self) -> bool:
        peers = matched(self._replies.reader), matched(self._requests.writer)
        if peers != self._ready_with:
            self._ready_with = peers if self._servers() - {""} else None
        return self._ready_with is not None

    def problem(self) -> str:
        return f"its server uses another RMW; {RMW_HINT}" if self._servers() else "there is no server"

    def _servers(self) -> set[str]:
        """Ids of the servers matched with both halves; "": one without an id."""
        ends = self._replies.reader, self._requests.writer
        ids = [{user_data_of(announced(end, peer)).get("serviceid", "") for peer in matched(end)} for end in ends]
        return ids[0] & ids[1]

    def send(self, request: Mapping[str, Any] | Any) -> int:
        """A mapping or a message; gives its number."""
        name, number = f"{self._type_name}_Request", next(self._numbers)
        cdr = wire.encode(name, wire.from_mapping(name, request) if isinstance(request, Mapping) else request)
        self._answers[number] = b""
        if self._fast_dds is not None and not self._is_on_cyclone():
            self._fast_dds.ask(self._number, number, cdr)
        else:
            header = _HEADER.pack(self._id, number)
            self._requests.write(ENCAPSULATION + header + cdr[len(ENCAPSULATION) :])
        return number

    def answer(self, number: int) -> Any:
        """The response, or None while there is none."""
        cdr = self._answers[number]
        return wire.decode_checked(f"{self._type_name}_Response", cdr) if cdr else None

    def forget(self, number: int) -> None:
        self._answers.pop(number, None)

    def _receive(self) -> None:
        for cdr, _ in self._replies.take():
            if len(cdr) < _BODY:
                continue
            client, number = _HEADER.unpack_from(cdr, len(ENCAPSULATION))
            if client == self._id:
                self._take_reply(number, cdr[: len(ENCAPSULATION)] + cdr[_BODY:])

    def _take_reply(self, number: int, cdr: bytes) -> None:
        if number in self._answers:
            self._answers[number] = cdr


ROSOUT_LIFESPAN_S = 10.0
ARRIVAL_S = 0.1  # longest wait for messages that are on their way through this process
LONGEST_WAIT_S = 0.2  # longest single wait in the library, so that Ctrl-C is noticed
ASK_EVERY = 32  # messages without a subscriber
RETRY_S = 0.002  # how soon requests and replies that could not be handled are tried again


class DdsPublisher:
    def __init__(self, transport: DdsTransport, topic: str, type_name: str, qos: Qos, lifespan_s: float | None) -> None:
        self._transport, self._qos = transport, qos
        self.writer = transport.graph.writer(f"rt{topic}", known_type(type_name), qos, lifespan_s=lifespan_s)
        self._unheard = 0  # messages without a subscriber

    def publish(self, cdr: bytes) -> None:
        """Does nothing without subscribers, unless late ones get the message. `poll` notices new subscribers."""
        if not self._transport.graph.is_announced:
            self._transport.graph.announce()
        if not self._qos.latched and not self.writer.is_heard:
            self._unheard += 1
            if self._unheard % ASK_EVERY != 1 or not self.writer.matched():  # for nodes that never poll
                return
        self._unheard = 0  # the first message without one asks again: `poll` may not have noticed it yet
        self.writer.write(cdr)
        if self._qos.reliable:
            self._transport.unacknowledged[self.writer] = None

    @property
    def subscribers(self) -> int:
        return self.writer.matched()


class DdsTransport(StandaloneNode):
    name = "dds"
    discovery_s = 1.0

    def __init__(self, node_name: str = "microsim", ros_args: Sequence[str] = (), reports_types: bool = True) -> None:
        super().__init__(node_name, ros_args)
        arguments = self.arguments
        names = arguments.node, arguments.namespace, arguments.enclave
        self.graph = Graph(*names, lambda text: self.log("warn", text), reports_types)
        self.unacknowledged: dict[CdrWriter, None] = {}  # written to since the last `wait_for_acks`
        self.takes_messages_first = False  # waits before each request for messages that were sent before it
        self._published: dict[str, DdsPublisher] = {}
        self._introduction: Introduction | None = None
        self._waiting: list[DdsServer] = []  # with answers they could not give yet
        self._fast_dds: FastDdsServices | None = None  # made with the first service or client
        self._clients: dict[tuple[str, str], Client] = {}
        if arguments.rosout:
            self._rosout = DdsPublisher(self, *ROSOUT_TOPIC, ROSOUT_LIFESPAN_S)
        self._is_open = True
        atexit.register(self.close)  # so that peers see the node leave at once, without a timeout

    def publisher_at(self, topic: str, type_name: str, qos: Qos) -> DdsPublisher:
        self._published[topic] = DdsPublisher(self, topic, type_name, qos, lifespan_s=None)
        return self._published[topic]

    @cached_property
    def view(self) -> GraphView:
        """What other nodes there are; from the first use on."""
        from microsim.parts.ros2.transport.graph_view import GraphView

        return GraphView(self.graph, lambda topics: None)

    def peers(self, topic: str, publishers: bool) -> dict[Hashable, str]:
        view = self.view
        found = view.on(self.arguments.topic(topic), publishers)
        return {each.guid: view.owner(each) for each in found if not each.guid.startswith(view.own)}

    def described(self, node: str) -> NodeEnds | None:
        view = self.view
        guids = [guid for nodes in view.nodes.values() for name, own in nodes if name == node for guid in own]
        if not guids or not all(guid in view.endpoints for guid in guids):
            return None
        from microsim.parts.ros2.transport.graph_view import servers

        readers = [end for guid in guids if not (end := view.endpoints[guid]).is_writer]
        reads = frozenset(each.name for each in readers if each.topic.startswith("rt/"))
        writers = [end for guid in guids if (end := view.endpoints[guid]).is_writer and end.topic.startswith("rt/")]
        writes = {each.name: (each.type, each.qos) for each in writers}
        return NodeEnds(reads, frozenset(each.name for each in servers(readers)), writes)

    def acquaint(self) -> Callable[[Collection[Hashable]], bool] | None:
        from microsim.parts.ros2.transport.introduction import Introduction

        if not self.graph.is_announced:
            self.graph.announce()
        if self._introduction is not None:
            self._introduction.close()
        self._introduction = Introduction(self.graph)
        return self._introduction.is_over

    def is_acknowledged(self, topic: str) -> bool | None:
        publisher = self._published.get(self.arguments.topic(topic))
        return None if publisher is None else publisher.writer.wait_for_acks(0.0)

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> Callable[[], Any] | None:
        client = self.client(self.arguments.service(service), known_service(type_name))
        if not client.is_ready():
            return None
        number = client.send(request)

        def answer() -> Any:
            response = client.answer(number)
            if response is not None:
                client.forget(number)
            return response

        return answer

    def wait_for_acks(self, timeout_s: float) -> bool:
        writers, self.unacknowledged = self.unacknowledged, {}
        end = time.monotonic() + timeout_s
        return all(writer.wait_for_acks(end - time.monotonic()) for writer in writers)

    def has_received_all(self, timeout_s: float) -> bool:
        is_quiet = self._threads.wait(timeout_s)
        self.poll()
        return is_quiet

    @cached_property
    def _threads(self) -> ReceivingThreads:
        return ReceivingThreads()

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        def deliver() -> None:
            for cdr, _ in reader.take():
                on_message(cdr)

        name = f"rt{self.arguments.topic(topic)}"
        reader = self.graph.reader(name, known_type(type_name), qos, deliver, from_others=from_others)

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        name = self.arguments.service(service)
        kind = known_service(type_name)
        DdsServer(self.graph, name, kind, on_request, self.log, self._waiting, self._services_of_fast_dds())

    def _services_of_fast_dds(self) -> FastDdsServices | None:
        if self._fast_dds is None and (participant := service_participant(self.log)) is not None:
            self._fast_dds = FastDdsServices(self.graph, self.log, participant)
        return self._fast_dds

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        name, end = self.arguments.service(service), time.monotonic() + timeout_s
        client = self.client(name, known_service(type_name))
        while not client.is_ready():
            if time.monotonic() > end:
                raise TimeoutError(f"service {name}: {client.problem()}")
            self.poll(RETRY_S)
        number = client.send(request)
        try:
            while (response := client.answer(number)) is None:
                left = end - time.monotonic()
                if left < 0:
                    raise TimeoutError(f"service {name}: no answer within {timeout_s} s")
                self.poll(left)
            return response
        finally:
            client.forget(number)

    def client(self, name: str, type_name: str) -> Client:
        """Of a service whose name is absolute."""
        if (name, type_name) not in self._clients:
            self._clients[name, type_name] = Client(self.graph, name, type_name, self._services_of_fast_dds())
        return self._clients[name, type_name]

    def poll(self, timeout_s: float = 0.0) -> None:
        if not self.graph.is_announced:
            self.graph.announce()
        end = time.monotonic() + timeout_s if timeout_s > 0 else 0.0
        while True:
            for server in list(self._waiting):
                server.again()
            left = end - time.monotonic() if end else 0.0
            longest = RETRY_S if self._waiting else LONGEST_WAIT_S
            fired = self.graph.waiter.wait(int(min(left, longest) * 1e9) if left > 0 else 0)
            if self.takes_messages_first and self.graph.waiter.has_last:
                self._threads.wait(ARRIVAL_S)
                fired = self.graph.waiter.wait(0)
            for action in fired:
                action()
            if fired or left <= 0:
                return

    def close(self) -> None:
        if self._is_open:
            self._is_open, self._rosout = False, None
            atexit.unregister(self.close)
            if self._fast_dds is not None:
                self._fast_dds.close()
            self.graph.close()
