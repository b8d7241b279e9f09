"""`microsim topic`: topics of any ROS 2 network."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption, with_options
from microsim.cli.terminal import note, print_json
from microsim.errors import UsageError
from microsim.options import argument, flag, option
from microsim.parts.live_tools.live import (
    PANEL,
    FormOptions,
    ListOptions,
    MessageOutput,
    NamesOutput,
    OnceOption,
    Ros2Options,
    StdinOption,
    TypesOption,
    WithinOption,
    connected,
    list_names,
    messages_of,
    not_supported,
    print_message_as,
    read_values,
    type_and_values,
)
from microsim.parts.live_tools.named_verbs import Named

if TYPE_CHECKING:
    from microsim.messages.topics import Qos
    from microsim.parts.live_tools.client.client_node import ClientPublisher
    from microsim.parts.live_tools.client.subscription import Subscription
    from microsim.parts.ros2.transport.graph_view import GraphEndpoint, GraphView

topic = typer.Typer(no_args_is_help=True, help="List, echo, measure and publish topics.")


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


class DelayOutput(TypedDict):
    """One line for each report."""

    delay_s: float
    min_s: float
    max_s: float
    std_s: float
    messages: Annotated[int, "That were averaged."]


OUTPUTS = {
    "list": NamesOutput,
    "info": TopicOutput,
    "type": list[str],
    "find": list[str],
    "echo": MessageOutput,
    "hz": RateOutput,
    "bw": BandwidthOutput,
    "delay": DelayOutput,
}
COMMAND = Command(topic, panel=PANEL, position=610, json=OUTPUTS)

REPORT_S = 1.0
WINDOW = 10_000  # messages over which rates are averaged
DEEP = 1000  # messages that may wait, so that none is lost while measuring
NO_SUBSCRIBER_S = 2.0

TopicArgument = Annotated[str, argument("TOPIC", "Name of the topic.")]
_RELIABILITIES, _DURABILITIES = ("reliable", "best_effort"), ("volatile", "transient_local")
_HISTORIES = ("keep_last", "keep_all")
_ADAPTED = ("system_default", "best_available", "unknown")  # words of ros2 that leave the choice
_PROFILES = {  # of ros2: reliable, depth
    "default": (True, 10),
    "sensor_data": (False, 5),
    "services_default": (True, 10),
    "parameters": (True, 1000),
    "parameter_events": (True, 1000),
}
ALL = 100_000  # messages that may wait with keep_all


class EndOptions(NamedTuple):
    """Of a publisher or subscriber."""

    types: TypesOption = None
    profile: Annotated[str, option("--qos-profile NAME", "As in ros2, such as sensor_data; by default adapted.")] = ""
    reliability: Annotated[str, option("--qos-reliability KIND", "reliable or best_effort; by default adapted.")] = ""
    durability: Annotated[str, option("--qos-durability KIND", "volatile or transient_local; by default adapted.")] = ""
    depth: Annotated[int | None, option("--qos-depth N", "Messages that may wait.", min=1)] = None
    history: Annotated[str, option("--qos-history KIND", "keep_last or keep_all.")] = ""
    liveliness: Annotated[str, option("--qos-liveliness KIND", "automatic.", hidden=True)] = ""
    lease: Annotated[
        float | None, option("--qos-liveliness-lease-duration-seconds S", "Not supported.", hidden=True)
    ] = None
    timeout: WithinOption = None
    ros2: Ros2Options = Ros2Options()

    def qos(self) -> Qos | None:
        """None: not chosen, but adapted."""
        from microsim.messages.topics import Qos

        known = (self.reliability, _RELIABILITIES), (self.durability, _DURABILITIES), (self.history, _HISTORIES)
        for given, words in (*known, (self.profile, _PROFILES), (self.liveliness, ("automatic",))):
            if given and given not in (*words, *_ADAPTED):
                raise typer.BadParameter(f"expected {_listed(words)}, found {given!r}.")
        if self.lease is not None:
            not_supported("--qos-liveliness-lease-duration-seconds", "leave it out; liveliness is automatic")
        chosen = _PROFILES.get(self.profile)
        reliability, durability = ("" if each in _ADAPTED else each for each in (self.reliability, self.durability))
        if not (chosen or reliability or durability or self.depth or self.history == "keep_all"):
            return None
        reliable, depth = chosen or (True, 10)
        depth = ALL if self.history == "keep_all" else self.depth or depth
        return Qos(depth, reliability == "reliable" if reliability else reliable, durability == "transient_local")


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


class TopicListOptions(NamedTuple):
    names: ListOptions = ListOptions()
    verbose: Annotated[bool, flag("--verbose -v", "How many publishers and subscribers each topic has.")] = False


_TOPIC = Named(
    "topic", "msg", "/rover/odom", "nav_msgs/msg/Odometry",
    names=lambda node: node.topics(), types_of=lambda node, name: node.types_of(name),
)  # fmt: skip


@topic.command("list")
@with_options
def list_topics(options: TopicListOptions) -> None:
    """List the topics.

    \b
    Examples:
      microsim topic list
      microsim topic list -t
      microsim topic list --json
    """
    if options.verbose and not options.names.json:
        _list_sides(options.names)
    else:
        list_names(_TOPIC.names, options.names)


def _list_sides(options: ListOptions) -> None:
    from microsim.parts.ros2.transport.graph_view import is_hidden

    with connected(None) as node:
        found = [(name, types) for name, types in node.topics().items() if options.has_hidden or not is_hidden(name)]
        for title, side, is_writer in (("Published", "publisher", True), ("Subscribed", "subscriber", False)):
            print(f"{title} topics:")
            for name, types in found:
                count = len(node.endpoints(partial(_on, name, is_writer)))
                if count:
                    print(f"  {name} [{', '.join(types)}] {count} {side}{'s' * (count != 1)}")


def _on(name: str, is_writer: bool, view: GraphView) -> list[GraphEndpoint]:
    return view.on(name, is_writer=is_writer)


_TOPIC.add_type_and_find(topic)


class InfoOptions(NamedTuple):
    name: TopicArgument
    json: JsonOption = False
    verbose: Annotated[bool, flag("--verbose -v", "All is shown in any case.", hidden=True)] = False
    ros2: Ros2Options = Ros2Options()


@topic.command()
@with_options
def info(options: InfoOptions) -> None:
    """Show who publishes a topic and who subscribes to it, with their quality of service.

    \b
    Examples:
      microsim topic info /rover/odom
      microsim topic info /rover/cmd_vel --json
    """
    with connected(None) as node:
        name = node.absolute(options.name)
        type_names = node.types_of(name)
        node.settle()
        publishers = node.endpoints(lambda view: view.on(name, is_writer=True))
        subscribers = node.endpoints(lambda view: view.on(name, is_writer=False))
        mismatches = list(_mismatches(publishers, subscribers))
        if options.json:
            sides = {"publishers": publishers, "subscribers": subscribers}
            listed = {side: [_described(*each) for each in found] for side, found in sides.items()}
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
    from microsim.parts.live_tools.client.reasons import quality_text

    return quality_text(endpoint)


def _described(owner: str, endpoint: GraphEndpoint) -> dict[str, Any]:
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
    given_type: Annotated[str, argument("[TYPE]", "Type of the topic, as --type.")] = ""
    field: Annotated[str, option("--field PATH", "Print only this field, such as pose.pose.position.x.")] = ""
    once: OnceOption = False
    times: Annotated[int | None, option("--times -n N", "Exit after N messages.", min=1)] = None
    rate: Annotated[float | None, option("--rate HZ", "Print at most HZ messages per second.", min=0.001)] = None
    json: Annotated[bool, flag("--json", "One message a line as JSON; lists of bytes in Base64.")] = False
    form: FormOptions = FormOptions()
    type: Annotated[str, option("--type TYPE", "Type of the topic; by default that of its publishers.")] = ""
    raw: Annotated[bool, flag("--raw", "Print the bytes of a message, as they were received.")] = False
    filter: Annotated[str, option("--filter EXPR", "Not supported.", hidden=True)] = ""
    with_info: Annotated[bool, flag("--include-message-info -i", "Not supported.", hidden=True)] = False
    lost: Annotated[bool, flag("--lost-messages --no-lost-messages", "As in ros2: nothing.", hidden=True)] = False
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
    if options.filter:
        not_supported("--filter", "it would run Python code; filter the output of --json, for example with jq")
    if options.with_info:
        not_supported("--include-message-info", "--json --field header has the stamp of a message")
    rate, timeout, type_name, qos = (
        options.rate,
        options.end.timeout,
        options.type or options.given_type,
        options.end.qos(),
    )
    form = options.form.of(options.json)
    with connected(options.end.types) as node:
        depth = 10 if qos is None else qos.depth
        subscription = node.subscribe(
            options.name, type=type_name, qos=qos, raw=options.raw, timeout=timeout, depth=depth
        )
        left, next_s = 1 if options.once else options.times, 0.0
        for message in messages_of(subscription, timeout):
            if rate is not None and time.monotonic() < next_s:
                continue
            next_s = time.monotonic() + 1.0 / rate if rate else 0.0
            if options.raw:
                print(message.cdr, flush=True)
            else:
                print_message_as(message, options.field, form)
            left = left - 1 if left is not None else None
            if left == 0:
                return
            if not (options.json or options.field or form.is_csv):
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
        answer = {"mean_bytes": sum(sizes) / len(sizes), "min_bytes": min(sizes), "max_bytes": max(sizes)}
        return {"bytes_per_s": sum(sizes[1:]) / span_s, **answer, "messages": len(sizes)}


class MeasureOptions(NamedTuple):
    name: TopicArgument
    window: Annotated[int, option("--window -w N", "Average over N messages.", min=2)] = WINDOW
    once: OnceOption = False
    duration: Annotated[float | None, option("--duration S", "Exit after this time.", min=0.1)] = None
    json: JsonOption = False
    timeout: WithinOption = None
    types: TypesOption = None
    wall_time: Annotated[bool, flag("--wall-time", "Rates are measured in wall time anyway.", hidden=True)] = False
    filter: Annotated[str, option("--filter EXPR", "Not supported.", hidden=True)] = ""
    ros2: Ros2Options = Ros2Options()


def _measure(
    options: MeasureOptions, figures: Callable[[ArrivalTimes], Figures | None], text: Callable[[Figures], str]
) -> None:
    """Report every second. The first moment does not count: what had waited arrives at once."""
    if options.filter:
        not_supported("--filter", "it would run Python code; measure a topic that has only what you count")
    if options.ros2.use_sim_time:
        not_supported("--use-sim-time", "rates are measured in wall time")
    with connected(options.types) as node:
        subscription = node.subscribe(options.name, depth=DEEP, raw=True, timeout=options.timeout)
        arrivals, begun = ArrivalTimes(options.window), 0
        reports = _Reports(options, text)
        for received in _until_over(subscription, options):
            if received is not None:
                begun = begun or received.time_ns
                if received.time_ns >= begun + 10**8 or options.once:
                    arrivals.seen.append((received.time_ns, len(received.cdr)))
            if (received is None or reports.is_due()) and reports.is_last(figures(arrivals)):
                return


def _until_over(subscription: Subscription, options: MeasureOptions | DelayOptions) -> Iterator[Any]:
    """Messages; None when the time of `--duration` is over, which also ends silence."""
    if options.duration is None:
        yield from messages_of(subscription, options.timeout)
        return
    end = time.monotonic() + options.duration
    while (left := end - time.monotonic()) > 0.0:
        message = subscription.wait(left)
        if message is not None:
            yield message
    yield None
    raise TimeoutError(f"too little arrived on {subscription.topic} within {options.duration:g} s to be measured")


class _Reports:
    """Figures as lines: one every second, or one at the end of the time that was chosen."""

    def __init__(self, options: MeasureOptions | DelayOptions, text: Callable[[Figures], str]) -> None:
        self._options, self._text, self._next_s = options, text, 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        self._next_s = self._next_s or now + REPORT_S
        if now < self._next_s:
            return False
        self._next_s = now + REPORT_S
        return self._options.duration is None

    def is_last(self, found: Figures | None) -> bool:
        """Print what was found; whether that was all."""
        if found is None:
            return False
        print_json(found) if self._options.json else print(
            f"{self._text(found)}, {found['messages']:,} messages", flush=True
        )
        return self._options.once or self._options.duration is not None


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


class DelayOptions(NamedTuple):
    name: TopicArgument
    window: Annotated[int, option("--window -w N", "Average over N messages.", min=1)] = WINDOW
    once: OnceOption = False
    duration: Annotated[float | None, option("--duration S", "Exit after this time.", min=0.1)] = None
    json: JsonOption = False
    timeout: WithinOption = None
    types: TypesOption = None
    ros2: Ros2Options = Ros2Options()


@topic.command()
@with_options
def delay(options: DelayOptions) -> None:
    """Measure how old the messages of a topic are when they arrive, by their stamps; a report every second.

    Stamps of a simulation are simulated time: --use-sim-time takes the time from
    /clock.

    \b
    Examples:
      microsim topic delay /rover/scan --use-sim-time
      microsim topic delay /camera/image_raw --once
    """

    def text(found: Figures) -> str:
        spread = f"min {found['min_s']:.4f} s, max {found['max_s']:.4f} s, std dev {found['std_s']:.5f} s"
        return f"{found['delay_s']:.4f} s  {spread}"

    with connected(options.types) as node:
        subscription = node.subscribe(options.name, depth=DEEP, timeout=options.timeout)
        seen, reports = deque[float](maxlen=options.window), _Reports(options, text)
        for message in _until_over(subscription, options):
            if message is not None:
                header = getattr(message, "header", None)
                if header is None:
                    raise UsageError(f"{subscription.topic}: {subscription.type} has no header, and so no stamp")
                now_ns = node.time_ns() if options.ros2.use_sim_time else time.time_ns()
                seen.append((now_ns - header.stamp.sec * 10**9 - header.stamp.nanosec) / 10**9)
            if (message is None or reports.is_due()) and reports.is_last(_delays(seen)):
                return


def _delays(seen: Sequence[float]) -> Figures | None:
    if not seen:
        return None
    mean = sum(seen) / len(seen)
    spread = math.sqrt(sum((each - mean) ** 2 for each in seen) / len(seen))
    return {"delay_s": mean, "min_s": min(seen), "max_s": max(seen), "std_s": spread, "messages": len(seen)}


class PublishOptions(NamedTuple):
    name: TopicArgument
    given: Annotated[
        list[str] | None, argument("[TYPE] [VALUES]", "Type, where no subscriber has one; fields as YAML or JSON.")
    ] = None
    stdin: StdinOption = False
    once: Annotated[bool, flag("--once -1", "Publish once, as soon as there is a subscriber.")] = False
    times: Annotated[int | None, option("--times -t N", "Publish N times.", min=1)] = None
    shown: Annotated[int | None, option("--print -p N", "Report every Nth message.", min=1)] = None
    matching: Annotated[
        int | None, option("--wait-matching-subscriptions -w N", "Wait until there are N subscribers.", min=0)
    ] = None
    longest_wait: Annotated[
        float | None, option("--max-wait-time-secs S", "Wait for subscribers no longer than this.", min=0.0)
    ] = None
    keep_alive: Annotated[float, option("--keep-alive S", "Stay for this time after the last message.", min=0.0)] = 0.0
    node_name: Annotated[str, option("--node-name -n NAME", "Name of the publishing node.")] = ""
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
    type_name, text = type_and_values(options.given or [], "TOPIC", options.stdin)
    values, timeout = read_values(text) if text else {}, options.end.timeout
    if options.node_name.isdecimal():
        raise UsageError(f"-n names the node, as in ros2, and {options.node_name} is not a name; use --times N or -t N")
    if options.end.ros2.use_sim_time:
        not_supported("--use-sim-time", "`stamp: now` is wall time; write the stamp you need")
    with connected(options.end.types, options.node_name) as node:
        publisher = node.publisher(options.name, type_name, options.end.qos(), timeout)
        node.message(publisher.type, values)  # mistakes, before anything waits
        _wait_for_subscribers(publisher, options)
        count = _publish(publisher, values, options)
        publisher.wait_for_acks()
        time.sleep(options.keep_alive)
        note(f"published {count} message{'s' * (count != 1)} of {publisher.type} on {publisher.topic}")


def _wait_for_subscribers(publisher: ClientPublisher, options: PublishOptions) -> None:
    """As many as requested; one with `--once`. Without a request, not for long."""
    most = options.end.timeout if options.longest_wait is None else options.longest_wait
    needed = (1 if options.once else 0) if options.matching is None else options.matching
    if options.matching == 0 or publisher.wait_for_subscriber(
        min(NO_SUBSCRIBER_S, NO_SUBSCRIBER_S if most is None else most), max(needed, 1)
    ):
        return
    reasons = (
        "; ".join(publisher.why_no_subscriber())
        or f"{publisher.subscribers} of {needed} subscribers on {publisher.topic}"
    )
    note(f"waiting for a subscriber: {reasons}" if needed else f"not received: {reasons}")
    left = 1e9 if most is None else max(0.0, most - NO_SUBSCRIBER_S)
    if needed and not publisher.wait_for_subscriber(left, needed):
        raise TimeoutError(f"not enough subscribers on {publisher.topic} within {most:g} s: {reasons}")


def _publish(publisher: ClientPublisher, values: dict[str, Any], options: PublishOptions) -> int:
    start, count, times = time.monotonic(), 0, 1 if options.once else options.times
    try:
        while times is None or count < times:
            time.sleep(max(0.0, start + count / options.rate - time.monotonic()))
            publisher.publish(values)
            count += 1
            if options.shown and count % options.shown == 0:
                note(f"publishing #{count}")
    except KeyboardInterrupt:
        pass
    return count
