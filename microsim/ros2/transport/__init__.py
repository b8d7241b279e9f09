"""Transports move bytes for one ROS 2 node, and nothing else.

- `dds`: Eclipse Cyclone DDS from PyPI; no ROS 2 installation needed.
- `rclpy`: an installed ROS 2.
- `memory`: inside one process; what tests and Python users take.

Names are given as in the table of topics, with a leading slash, and are relative to the node's namespace; remappings
are the transport's business. Callbacks run inside `poll`, on the thread that calls it, and nowhere else: so the tick
decides when it listens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from microsim.messages.topics import Qos

Value: TypeAlias = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]
LogLevel: TypeAlias = Literal["debug", "info", "warn", "error"]

OnMessage: TypeAlias = Callable[[bytes], None]  # encoded message, as it came
OnRequest: TypeAlias = Callable[[Any, Any], None]  # (request, response to fill in)
OnSet: TypeAlias = Callable[[Mapping[str, Value]], str]  # changes -> "" when taken, or why not; all or none


@dataclass(frozen=True)
class Parameter:
    """A declared parameter; its value's type is its type for good, save that a number may take the other kind."""

    name: str  # dotted
    value: Value
    description: str = ""
    read_only: bool = False
    minimum: float | None = None
    maximum: float | None = None
    any_number: bool = False  # integers and doubles are both taken (dynamic typing)


class Publisher(Protocol):
    def publish(self, cdr: bytes) -> None:
        """Hand over an encoded message; never waits long for a slow reader, and is quick when nobody listens."""

    @property
    def subscribers(self) -> int: ...


class Transport(Protocol):
    name: str  # dds, rclpy or memory
    node_name: str  # fully qualified, such as /microsim
    overrides: Mapping[str, Value]  # parameters from --ros-args -p and --params-file that are meant for this node
    tells_senders: bool  # whether `from_others` leaves out everything this node sends, not only what it can recognise

    def publisher(self, topic: str, type_name: str, qos: Qos) -> Publisher: ...

    def subscribe(self, topic: str, type_name: str, qos: Qos, on_message: OnMessage, from_others: bool = False) -> None:
        """`from_others`: leave out what this node itself publishes on the topic, known by its publisher."""

    def serve(self, service: str, type_name: str, on_request: OnRequest) -> None:
        """type_name such as std_srvs/srv/SetBool. A request that cannot be decoded never reaches the handler."""

    def call(self, service: str, type_name: str, request: Mapping[str, Any], timeout_s: float = 5.0) -> Any:
        """Call a service of another node and wait, polling; raises TimeoutError."""

    def declare(self, parameters: Sequence[Parameter], on_set: OnSet) -> None:
        """Declare the node's parameters, with its parameter services and /parameter_events."""

    def set_parameters(self, values: Mapping[str, Value]) -> None:
        """Show values that changed inside the node, without asking `on_set`."""

    def log(self, level: LogLevel, text: str) -> None:
        """To the terminal and /rosout."""

    def poll(self, timeout_s: float = 0.0) -> None:
        """Run the callbacks of what has arrived; wait up to timeout_s for something to arrive."""

    def close(self) -> None: ...


class MissingTypeError(Exception):
    """The transport does not know a message type; `reason` says which package has it and how to get it."""

    def __init__(self, type_name: str, reason: str) -> None:
        super().__init__(f"{type_name}: {reason}")
        self.reason = reason
