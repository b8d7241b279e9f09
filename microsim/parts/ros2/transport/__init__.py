"""Transports move bytes for one ROS 2 node, and nothing else.

- `dds`: Eclipse Cyclone DDS from PyPI; no ROS 2 installation needed.
- `rclpy`: an installed ROS 2.
- `memory`: inside one process, for tests and Python users.

Names are written as in the table of topics, with a leading slash, and are relative to the node's namespace; the
transport applies remappings. Callbacks run inside `poll`, on the thread that calls it, and nowhere else: the simulation
decides when it takes inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from microsim.messages.topics import Qos

Value: TypeAlias = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]
LogLevel: TypeAlias = Literal["debug", "info", "warn", "error"]

OnMessage: TypeAlias = Callable[[bytes], None]  # gets an encoded message
OnRequest: TypeAlias = Callable[[Any, Any], None]  # (request, response to fill in)
OnSet: TypeAlias = Callable[[Mapping[str, Value]], str]  # changes -> "" when accepted, or the reason; all or none


@dataclass(frozen=True)
class Parameter:
    """A declared parameter. The type of its value is the type of the parameter and never changes."""

    name: str  # dotted
    value: Value
    description: str = ""
    read_only: bool = False
    minimum: float | None = None
    maximum: float | None = None
    any_number: bool = False  # accepts an integer for a double, and a whole double for an integer; both are converted

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Smallest and largest value; None: not limited."""
        if self.minimum is None and self.maximum is None:
            return None
        return -math.inf if self.minimum is None else self.minimum, math.inf if self.maximum is None else self.maximum

    def converted(self, value: Any) -> Any:
        """A number as the declared kind of number, where it may be given as the other; any other value as it is."""
        if self.any_number and not isinstance(value, bool):
            if isinstance(self.value, float) and isinstance(value, int):
                return float(value)
            if not isinstance(self.value, float) and isinstance(value, float) and value.is_integer():
                return int(value)
        return value

    def out_of_range(self, value: Any) -> str:
        """Why a value, or an element of a list, is outside the bounds; empty when it is not. NaN is outside."""
        numbers = value if isinstance(value, list) else [value]
        if self.bounds is None or all(isinstance(n, str) or self.bounds[0] <= n <= self.bounds[1] for n in numbers):
            return ""
        expected = f"from {self.minimum} to {self.maximum}"
        if self.maximum is None or self.minimum is None:
            expected = f"at least {self.minimum}" if self.maximum is None else f"at most {self.maximum}"
        return f"parameter '{self.name}' must be {expected}, not {value}"


@dataclass(frozen=True)
class NodeEnds:
    """What a node subscribes to, serves and publishes; names as on the network."""

    reads: frozenset[str]
    serves: frozenset[str]
    writes: Mapping[str, tuple[str, Qos]] = field(default_factory=dict, compare=False)  # topic -> type, what is offered


class Publisher(Protocol):
    def publish(self, cdr: bytes) -> None:
        """Send an encoded message; never waits long for a slow reader, and is quick without subscribers."""

    @property
    def subscribers(self) -> int: ...


class Transport(Protocol):
    name: str  # dds, rclpy or memory
    node_name: str  # fully qualified, such as /microsim
    overrides: Mapping[str, Value]  # parameters from --ros-args -p and --params-file that are meant for this node
    tells_senders: bool  # whether `from_others` leaves out everything this node sends, not only what it can recognise
    serves_many_types: bool  # whether a service may be served under several types at once
    discovery_s: float  # without news for this long, the endpoints of a node that has started are known to both sides

    def publisher(self, topic: str, type_name: str, qos: Qos) -> Publisher: ...

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        """`from_others`: leave out what this node itself publishes on the topic, known by its publisher."""

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        """type_name such as std_srvs/srv/SetBool. A request that cannot be decoded never reaches the handler."""

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        """Call a service of another node and wait, polling; raises TimeoutError."""

    def resolved(self, topic: str) -> str:
        """The name of a topic on the network: in the namespace, remapped."""

    def peers(self, topic: str, publishers: bool) -> Mapping[Hashable, str]:
        """Other nodes' publishers or subscribers of a topic: what tells them apart -> node, empty where unknown."""

    def described(self, node: str) -> NodeEnds | None:
        """What another node reads and serves; None: that is not known, or not yet completely."""

    def acquaint(self) -> Callable[[Collection[Hashable]], bool] | None:
        """Begin to find out whether others have discovered every endpoint of this node; None: that cannot be known.

        Gives a function that answers it for the nodes of some endpoints, while the transport is polled.
        """

    def is_acknowledged(self, topic: str) -> bool | None:
        """Whether reliable subscribers have received all that was published on a topic; None: that is not known."""

    def ask(self, service: str, type_name: str, request: Mapping[str, Any]) -> Callable[[], Any] | None:
        """Call a service of another node without waiting; None: there is no server yet.

        Gives a function that gives None until the response has arrived, and that once.
        """

    def wait_for_acks(self, timeout_s: float) -> bool:
        """Wait until all reliable subscribers have received what was published; False: not within that time."""

    def has_received_all(self, timeout_s: float) -> bool:
        """Run the callbacks of all that other nodes on this machine have sent so far; False: not within that time."""

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        """Declare the node's parameters, with its parameter services and /parameter_events."""

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        """Publish values that changed inside the node, without calling `on_set`."""

    def log(self, level: LogLevel, text: str) -> None:
        """Write a line to the terminal and /rosout."""

    def poll(self, timeout_s: float = 0.0) -> None:
        """Run the callbacks of what has arrived; wait up to timeout_s for something to arrive."""

    def close(self) -> None: ...


class MissingTypeError(Exception):
    """The transport does not have a message type; `reason` says which package has it and how to get it."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(f"{type_name}: {reason}")
        self.reason = reason
