"""A run on ROS 2: `Network` opens the transport, `Node` joins the run on every transport that was opened.

An attachment that is prepared between the two adds a transport of its own to those of `Network`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from typing_extensions import TypedDict

from microsim.attachment import Attachment, NoOptions, Plan, Run
from microsim.errors import MicroSimError, UsageError
from microsim.options import flag, option
from microsim.parts.ros2.transports import AUTO, NONE, transport_option

if TYPE_CHECKING:
    from microsim.cli.commands.replay import ReplayOptions
    from microsim.parts.ros2.microsim_node import MicroSimNode, NodeStart
    from microsim.parts.ros2.transport import Transport

_NOT_WITH_PLAY = (
    "--scenario", "--seed", "--plugins", "--world", "--verify", "--html", "--view", "--open", "--save-state", "--token",
)  # fmt: skip
WATCHED_S = 10.0  # simulated, without --duration
_TRANSPORT = (
    "Connect to ROS 2 through rclpy or the built-in dds; none: do not connect. auto: rclpy if it can be imported, "
    "else dds. Default with --rtf 0: none."
)
_LOCKSTEP = (
    "Stop simulated time until nodes have replied: 'after: /rover/odom, expect: /rover/cmd_vel', "
    "'every: 0.05, expect: /rover/cmd_vel' or 'settle: {node: /planner}'. May be repeated. As fast as the nodes reply, "
    "unless --rtf is given. auto: watch the nodes and print a proposal."
)
_WITH = (
    "Start a node with the run, in a separate process, and stop it at the end: 'ros2 run my_package my_node'. "
    "The faults `node:pause@3s-5s` and `node:kill@3s-5s` suspend and kill it."
)


class NetworkOptions(NamedTuple):
    transport: Annotated[str | None, transport_option(_TRANSPORT, NONE, is_network=True, show_default="auto")] = None
    lockstep: Annotated[list[str] | None, option("--lockstep GATE", _LOCKSTEP)] = None


class Network(Attachment):
    """The transport of the run, and the gates at which it waits for nodes."""

    name, always, position = "network", ("run",), 20
    options: ClassVar[Any] = {"run": NetworkOptions}
    transports: list[Transport]

    def __init__(self, given: Any = None) -> None:
        super().__init__(given)
        self.transports = []

    @property
    def proposes_gates(self) -> bool:
        return bool(self.given.lockstep == [AUTO])

    def prepare(self, plan: Plan) -> None:
        from microsim.scenario.gates import gates_from_text

        if self.proposes_gates:
            plan.use_gates([])
            plan.duration = WATCHED_S if plan.duration is None else plan.duration
        elif gates := [gate for text in self.given.lockstep or () for gate in gates_from_text(text)]:
            plan.use_gates(gates)
        transport = self._opened(plan)
        if transport is not None:
            self.join(transport, plan)

    def join(self, transport: Transport, plan: Plan) -> None:
        """One more, which is closed after the run."""
        plan.stack.callback(transport.close)
        self.transports.append(transport)

    def _opened(self, plan: Plan) -> Transport | None:
        """By default none as fast as possible (a stray command would spoil a digest), nor for tick 0 only."""
        from microsim.scenario import load_scenario

        choice, is_quick = self.given.transport, 0.0 in (plan.rtf, plan.duration)
        gates = load_scenario(plan.scenario).lockstep if plan.scenario is not None else ()
        if gates and choice == NONE:
            raise UsageError("lockstep waits for ROS 2 nodes: leave out --transport none, or the gates")
        is_quick = is_quick and not gates
        if choice == NONE or (choice is None and is_quick and not plan.ros_args):
            if plan.ros_args:
                raise UsageError("--ros-args cannot be used with --transport none: leave one of them out")
            return None
        from microsim.parts.ros2.transports import open_transport

        try:
            return open_transport(choice or AUTO, "microsim", plan.ros_args)
        except MicroSimError as error:
            if choice is not None or plan.ros_args or gates:
                raise
            plan.console.warn(f"running without ROS 2: {error}")
            return None


class ReplayNetworkOptions(NamedTuple):
    transport: Annotated[
        str | None,
        transport_option(
            "auto, dds or rclpy: publish the messages on ROS 2 too.", NONE, is_network=True, show_default=NONE
        ),
    ] = None


class ReplayNetwork(Network):
    """The transport of a replay."""

    name, always = "network of a replay", ("replay",)
    options: ClassVar[Any] = {"replay": ReplayNetworkOptions}
    proposes_gates = False

    def prepare(self, plan: Plan) -> None:
        from microsim.parts.ros2.transports import open_transport

        if self.given.transport not in (None, NONE):
            self.join(open_transport(self.given.transport, "microsim", plan.ros_args), plan)
        elif plan.ros_args:
            raise UsageError("--ros-args need a transport: add --transport auto")


_PLAYED_WITH = (
    "Play the messages of the bag, any bag, into a node that is started in a separate process, in lockstep: "
    "'ros2 run my_package my_node'."
)
_PLAYED_UNTIL = (
    "Play the messages of the bag, any bag, into nodes, and stop time until they have replied: "
    "'after: /points, expect: /odometry' or 'settle: {node: /slam}'. May be repeated."
)


class BagPlayOptions(NamedTuple):
    lockstep: Annotated[list[str] | None, option("--lockstep GATE", _PLAYED_UNTIL)] = None
    with_node: Annotated[str | None, option("--with COMMAND", _PLAYED_WITH)] = None
    only: Annotated[
        list[str] | None, option("--topics PATTERN", "With --lockstep: play only these topics. May be repeated.")
    ] = None
    without: Annotated[
        list[str] | None, option("--exclude PATTERN", "With --lockstep: do not play these topics. May be repeated.")
    ] = None


class PlayOutput(TypedDict):
    """With --lockstep."""

    messages: Annotated[int, "That were played."]
    replies: Annotated[int, "Messages of the nodes."]
    seconds: Annotated[float, "From the first message that was played to the last, in the time of the bag."]
    wall_s: Annotated[float, "How long it took, from when the nodes were there."]
    digest: Annotated[str, "Of the replies, with their times."]
    complete: Annotated[bool, "Whether the bag was played to its end, and not stopped."]


class BagPlay(Attachment):
    """The messages of a bag go to nodes, in place of a replay of its run."""

    name, position = "bag play", 6
    options: ClassVar[Any] = {"replay": BagPlayOptions}
    json_instead: ClassVar[Any] = {"replay": PlayOutput}

    def instead(self, plan: Plan, options: ReplayOptions) -> int:
        from microsim.parts.ros2.bag_player import play

        given = self.given
        if not given.lockstep:
            rule = "name what they wait for: 'after: /points, expect: /odometry' or 'settle: {node: /slam}'"
            raise UsageError(f"messages are played into nodes in lockstep: add --lockstep GATE; {rule}")
        unfit = [name for name in plan.given if name in _NOT_WITH_PLAY]
        if unfit:
            raise UsageError(f"--lockstep plays the bag's messages into nodes: leave out {', '.join(unfit)}")
        if options.path is None:
            raise UsageError("--lockstep plays a bag: name one")
        return play(options.path, plan, given, options)


class NodeOptions(NamedTuple):
    with_node: Annotated[str | None, option("--with COMMAND", _WITH)] = None
    paused: Annotated[
        bool, flag("--paused", "Start paused, after tick 0: resume with /sim/pause, the page or the dashboard.")
    ] = False


class Node(Attachment):
    """The node `microsim`, if there is a transport for it."""

    name, always, position = "node", ("run",), 29
    options: ClassVar[Any] = {"run": NodeOptions, "replay": NoOptions, "demo": NoOptions}
    _start: NodeStart | None = None

    def prepare(self, plan: Plan) -> None:
        network = plan.find(Network)
        if network is None or not network.transports:
            return
        from microsim.parts.ros2.microsim_node import read_start
        from microsim.parts.ros2.transport.joined import JoinedTransports

        transport = reduce(JoinedTransports, network.transports)
        start = self._start = read_start(transport, plan.scenario, plan.seed, plan.rtf)
        plan.scenario, plan.seed, plan.rtf = start.settings.scenario, start.seed, start.rtf

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        network = run.plan.find(Network)
        node = None
        if self._start is not None:
            node = self._start.join(run.runner, run.plan.takes_inputs)
            run.logs_warnings = False
        with ExitStack() as stack:
            self._start_nodes(node, run, stack)
            proposal = None
            if network is not None and network.proposes_gates:
                from microsim.parts.ros2.gate_proposal import propose

                proposal = propose(node, run.console.is_json)
            if getattr(self.given, "paused", False):
                if node is None:
                    raise UsageError("--paused: nothing could resume the run: leave out --transport none and --rtf 0")
                run.runner.pause(True)
            yield
            if proposal is not None and not run.error:
                nothing = "# no node sent anything that the simulation takes: start yours, and try again"
                print(proposal.block() or nothing)

    def _start_nodes(self, node: MicroSimNode | None, run: Run, stack: ExitStack) -> None:
        """What `--with` says; without it, refuse faults that need it."""
        command = getattr(self.given, "with_node", None)
        if command is not None:
            from microsim.parts.ros2.node_process import start_nodes

            start_nodes(command, node, run.runner, stack)
        elif run.plan.takes_inputs:
            from microsim.scenario.fault_models import refuse_faults

            refuse_faults("a run without --with COMMAND", run.sim.scenario, "node")


ATTACHMENT = (Network, ReplayNetwork, BagPlay, Node)
