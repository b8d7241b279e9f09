"""`microsim topic`: topics of any ROS 2 network."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.json_schemas import MessageOutput, NamesOutput
from microsim.cli.live import (
    PANEL,
    ListOptions,
    OnceOption,
    TypesOption,
    WithinOption,
    connected,
    list_names,
    messages_of,
    print_message,
    read_values,
)
from microsim.cli.terminal import note, print_json
from microsim.errors import UsageError
from microsim.options import argument, flag, option

if TYPE_CHECKING:
    from microsim.messages.topics import Qos
    from microsim.ros2.client.client_node import ClientPublisher
    from microsim.ros2.transport.graph_view import GraphEndpoint

topic = typer.Typer(no_args_is_help=True, help="List, echo, measure and publish topics of any ROS 2 network.")


class EndpointOutput(TypedDict):
    node: Annotated[str, "Name of the node; empty: not known."]
    type: str
    type_hash: str
    reliability: Literal["reliable", "best_effort"]
    durability: Literal["transient_local", "volatile"]
    middleware: str


class TopicOutput(TypedDict):
    topic: str
    types: list[str]
    publishers: list[EndpointOutput]
    subscribers: list[EndpointOutput]
    mismatches: Annotated[list[str], "Pairs that exchange nothing, and why."]


class RateOutput(TypedDict):
    """One line for each report."""

    hz: float
    min_s: Annotated[float, "Shortest time between two messages [s]."]
    max_s: float
    std_s: float
    messages: Annotated[int, "That were averaged."]


class BandwidthOutput(TypedDict):
    """One line for each report."""

    bytes_per_s: float
    mean_bytes: Annotated[float, "Of a message."]
    min_bytes: int
    max_bytes: int
    messages: Annotated[int, "That were averaged."]


OUTPUTS = {"list": NamesOutput, "info": TopicOutput, "echo": MessageOutput, "hz": RateOutput, "bw": BandwidthOutput}
COMMAND = Command(topic, panel=PANEL, position=350, json=OUTPUTS)

REPORT_S = 1.0
WINDOW = 10_000  # messages over which rates are averaged
DEEP = 1000  # messages that may wait, so that none is lost while measuring
NO_SUBSCRIBER_S = 2.0

TopicArgument = Annotated[str, argument("TOPIC", "Name of the topic.")]
_RELIABILITIES, _DURABILITIES = ("reliable", "best_effort"), ("volatile", "transient_local")


class EndOptions(NamedTuple):
    """Of a publisher or subscriber."""

    types: TypesOption = None
    reliability: Annotated[str, option("--qos-reliability KIND", "reliable or best_effort; by default adapted.")] = ""
    durability: Annotated[str, option("--qos-durability KIND", "volatile or transient_local; by default adapted.")] = ""
    timeout: WithinOption = None

    def qos(self) -> Qos | None:
        """None: not chosen, but adapted."""
        from microsim.messages.topics import Qos

        for given, known in ((self.reliability, _RELIABILITIES), (self.durability, _DURABILITIES)):
            if given and given not in known:
                raise typer.BadParameter(f"expected {' or '.join(known)}, found {given!r}.")
        if not self.reliability and not self.durability:
            return None
        return Qos(10, self.reliability != "best_effort", self.durability == "transient_local")


@topic.command("list")
@with_options
def list_topics(options: ListOptions) -> None:
    """List the topics.

    \b
    Examples:
      microsim topic list
      microsim topic list -t
      microsim topic list --json
    """
    list_names(lambda node: node.topics(), options)


@topic.command()
def info(name: TopicArgument, as_json: JsonOption = False) -> None:
    """Show who publishes a topic and who subscribes to it, with their quality of service.

    \b
    Examples:
      microsim topic info /rover/odom
      microsim topic info /rover/cmd_vel --json
    """
    with connected(None) as node:
        name = node.absolute(name)
        type_names = node.types_of(name)
        node.settle()
        publishers = node.endpoints(lambda view: view.on(name, is_writer=True))
        subscribers = node.endpoints(lambda view: view.on(name, is_writer=False))
        mismatches = list(_mismatches(publishers, subscribers))
        if as_json:
            sides = {"publishers": publishers, "subscribers": subscribers}
            listed = {side: [_facts(*each) for each in found] for side, found in sides.items()}
            print_json({"topic": name, "types": type_names, **listed, "mismatches": mismatches})
            return
        print(f"{name}\n  type         {', '.join(type_names)}")
        for side, found in (("publishers", publishers), ("subscribers", subscribers)):
            print(f"  {side:11}  {len(found)}")
            for owner, each in sorted(found, key=lambda pair: pair[0]):
                print(f"    {owner or '(no node)'}  {_quality(each)}, {each.rmw}")
        for text in mismatches:
            print(f"  mismatch     {text}")


def _quality(endpoint: GraphEndpoint) -> str:
    from microsim.ros2.client.reasons import quality_text

    return quality_text(endpoint)


def _facts(owner: str, endpoint: GraphEndpoint) -> dict[str, Any]:
    qos = endpoint.qos
    return {
        "node": owner,
        "type": endpoint.type,
        "type_hash": endpoint.type_hash,
        "reliability": "reliable" if qos.reliable else "best_effort",
        "durability": "transient_local" if qos.latched else "volatile",
        "middleware": endpoint.rmw,
    }


def _mismatches(
    publishers: list[tuple[str, GraphEndpoint]], subscribers: list[tuple[str, GraphEndpoint]]
) -> Iterator[str]:
    """Pairs that exchange nothing, and why."""
    for who, writer in publishers:
        for whom, reader in subscribers:
            if writer.type != reader.type:
                yield f"{who} publishes {writer.type}, {whom} expects {reader.type}"
            elif reader.qos.reliable > writer.qos.reliable:
                yield f"{who} is best effort, {whom} demands reliable"
            elif reader.qos.latched > writer.qos.latched:
                yield f"{who} is volatile, {whom} demands transient_local"


class EchoOptions(NamedTuple):
    name: TopicArgument
    field: Annotated[str, option("--field PATH", "Print only this field, such as pose.pose.position.x.")] = ""
    once: OnceOption = False
    times: Annotated[int | None, option("--times -n N", "Exit after N messages.", min=1)] = None
    rate: Annotated[float | None, option("--rate HZ", "Print at most HZ messages per second.", min=0.001)] = None
    json: Annotated[bool, flag("--json", "One message a line as JSON; lists of bytes in Base64.")] = False
    full: Annotated[bool, flag("--full", "Print long lists completely.")] = False
    type: Annotated[str, option("--type TYPE", "Type of the topic; by default that of its publishers.")] = ""
    end: EndOptions = EndOptions()


@topic.command()
@with_options
def echo(options: EchoOptions) -> None:
    """Print the messages of a topic. If nothing arrives, print the likely cause.

    \b
    Examples:
      microsim topic echo /rover/odom
      microsim topic echo /rover/odom --field pose.pose.position
      microsim topic echo /drone/gps/fix --once --json
      microsim topic echo /battery --types ~/ws/src/my_msgs
    """
    rate, timeout = options.rate, options.end.timeout
    with connected(options.end.types) as node:
        subscription = node.subscribe(options.name, type=options.type, qos=options.end.qos(), timeout=timeout)
        left, next_s = 1 if options.once else options.times, 0.0
        for message in messages_of(subscription, timeout):
            if rate is not None and time.monotonic() < next_s:
                continue
            next_s = time.monotonic() + 1.0 / rate if rate else 0.0
            print_message(message, options.field, options.json, options.full)
            left = left - 1 if left is not None else None
            if left == 0:
                return
            if not options.json and not options.field:
                print("---", flush=True)


Figures: TypeAlias = "dict[str, float | int]"


class ArrivalTimes:
    """When messages arrived, and how large they were."""

    def __init__(self, window: int) -> None:
        self.seen: deque[tuple[int, int]] = deque(maxlen=window)  # time [ns], bytes

    def rate(self) -> Figures | None:
        times = [at for at, _ in self.seen]
        if len(times) < 2 or times[-1] == times[0]:
            return None
        gaps = [(later - earlier) / 1e9 for earlier, later in pairwise(times)]
        mean = (times[-1] - times[0]) / 1e9 / len(gaps)
        spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
        return {"hz": 1.0 / mean, "min_s": min(gaps), "max_s": max(gaps), "std_s": spread, "messages": len(times)}

    def bandwidth(self) -> Figures | None:
        sizes = [size for _, size in self.seen]
        span_s = (self.seen[-1][0] - self.seen[0][0]) / 1e9 if sizes else 0.0
        if span_s <= 0.0:
            return None
        facts = {"mean_bytes": sum(sizes) / len(sizes), "min_bytes": min(sizes), "max_bytes": max(sizes)}
        return {"bytes_per_s": sum(sizes[1:]) / span_s, **facts, "messages": len(sizes)}


class MeasureOptions(NamedTuple):
    name: TopicArgument
    window: Annotated[int, option("--window N", "Average over N messages.", min=2)] = WINDOW
    once: OnceOption = False
    json: JsonOption = False
    timeout: WithinOption = None
    types: TypesOption = None


def _measure(
    options: MeasureOptions, figures: Callable[[ArrivalTimes], Figures | None], text: Callable[[Figures], str]
) -> None:
    """Report every second. The first moment does not count: what had waited arrives at once."""
    with connected(options.types) as node:
        subscription = node.subscribe(options.name, depth=DEEP, raw=True, timeout=options.timeout)
        arrivals, next_s, begun = ArrivalTimes(options.window), 0.0, 0
        for received in messages_of(subscription, options.timeout):
            begun = begun or received.time_ns
            if received.time_ns < begun + 10**8 and not options.once:
                continue
            arrivals.seen.append((received.time_ns, len(received.cdr)))
            next_s = next_s or time.monotonic() + REPORT_S
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + REPORT_S
                found = figures(arrivals)
                if found is None:
                    continue
                print_json(found) if options.json else print(
                    f"{text(found)}, {found['messages']:,} messages", flush=True
                )
                if options.once:
                    return


@topic.command()
@with_options
def hz(options: MeasureOptions) -> None:
    """Measure the rate of a topic, in wall time; a report every second.

    \b
    Examples:
      microsim topic hz /rover/odom
      microsim topic hz /clock --once
      microsim topic hz /drone/imu/data_raw --window 100
    """

    def text(found: Figures) -> str:
        spread = f"min {found['min_s']:.4f} s, max {found['max_s']:.4f} s, std dev {found['std_s']:.5f} s"
        return f"{found['hz']:.3f} Hz  {spread}"

    _measure(options, ArrivalTimes.rate, text)


@topic.command()
@with_options
def bw(options: MeasureOptions) -> None:
    """Measure how many bytes of a topic arrive; a report every second.

    \b
    Examples:
      microsim topic bw /drone/camera/image_raw
      microsim topic bw /tf --once --json
    """

    def text(found: Figures) -> str:
        sizes = ", ".join(f"{each} {_bytes(found[f'{each}_bytes'])}" for each in ("mean", "min", "max"))
        return f"{_bytes(found['bytes_per_s'])}/s  {sizes}"

    _measure(options, ArrivalTimes.bandwidth, text)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000.0:
            return f"{count:.4g} {unit}"
        count /= 1000.0
    return f"{count:.4g} GB"


class PublishOptions(NamedTuple):
    name: TopicArgument
    given: Annotated[
        list[str] | None, argument("[TYPE] [VALUES]", "Type, where no subscriber has one; fields as YAML or JSON.")
    ] = None
    once: Annotated[bool, flag("--once -1", "Publish once, as soon as there is a subscriber.")] = False
    times: Annotated[int | None, option("--times -n N", "Publish N times.", min=1)] = None
    rate: Annotated[float, option("--rate -r HZ", "Messages per second.", min=0.001, max=10_000.0)] = 1.0
    end: EndOptions = EndOptions()


@topic.command()
@with_options
def pub(options: PublishOptions) -> None:
    """Publish a message repeatedly until Ctrl-C. `header: auto` and `stamp: now` use the current time.

    \b
    Examples:
      microsim topic pub /rover/cmd_vel "{linear: {x: 1.0}}" --rate 10
      microsim topic pub /rover/cmd_vel "{angular: {z: 0.3}}" --once
      microsim topic pub /chatter std_msgs/msg/String "{data: hello}" --times 3
    """
    type_name, text = _type_and_values(options.given or [])
    values, timeout = read_values(text) if text else {}, options.end.timeout
    with connected(options.end.types) as node:
        publisher = node.publisher(options.name, type_name, options.end.qos(), timeout)
        node.message(publisher.type, values)  # mistakes, before anything waits
        _wait_for_subscriber(publisher, options.once, timeout)
        count = _publish(publisher, values, 1 if options.once else options.times, options.rate)
        publisher.wait_for_acks()
        note(f"published {count} message{'s' * (count != 1)} of {publisher.type} on {publisher.topic}")


def _type_and_values(given: list[str]) -> tuple[str, str]:
    """Both, or one of them: values begin like a mapping."""
    if not given:
        return "", ""
    is_type = ["/" in each and not set(each) & set("{}: \n") for each in given]
    if len(given) > 2 or (len(given) == 2 and not is_type[0]):
        raise UsageError(f"expected TOPIC [TYPE] [VALUES], found {' '.join(given)!r}; put quotes around VALUES")
    if len(given) == 2:
        return given[0], given[1]
    return (given[0], "") if is_type[0] else ("", given[0])


def _wait_for_subscriber(publisher: ClientPublisher, must: bool, timeout: float | None) -> None:
    if publisher.wait_for_subscriber(min(NO_SUBSCRIBER_S, timeout or NO_SUBSCRIBER_S)):
        return
    reasons = "; ".join(publisher.why_unheard()) or f"no subscriber on {publisher.topic}"
    note(f"waiting for a subscriber: {reasons}" if must else f"not received: {reasons}")
    if must and not publisher.wait_for_subscriber(max(0.0, timeout - NO_SUBSCRIBER_S) if timeout else 1e9):
        raise TimeoutError(f"no subscriber on {publisher.topic} within {timeout:g} s: {reasons}")


def _publish(publisher: ClientPublisher, values: dict[str, Any], times: int | None, rate: float) -> int:
    start, count = time.monotonic(), 0
    try:
        while times is None or count < times:
            time.sleep(max(0.0, start + count / rate - time.monotonic()))
            publisher.publish(values)
            count += 1
    except KeyboardInterrupt:
        pass
    return count
