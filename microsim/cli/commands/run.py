"""`microsim run`: a scenario, live in the terminal, on ROS 2, in the browser, or as a test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from microsim.cli import next_steps, run_parts, terminal
from microsim.cli.ci_reports import ReportOptions
from microsim.cli.command import (
    ROS_ARGS,
    Command,
    PilotOption,
    QuietOption,
    ResultJsonOption,
    argument,
    flag,
    given,
    option,
    real_time_factor,
    seconds,
    seed_value,
)
from microsim.cli.json_schemas import RunOutput
from microsim.cli.precompile import compiling, first_second, precompile_scenario
from microsim.cli.run_parts import Flight, FoxgloveOptions, Programme, RecordingOptions, Recordings, ViewerOptions
from microsim.cli.terminal import FAILED, GOOD, print_json, tell, warn
from microsim.errors import MicroSimError, UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.engine.radio import Link
    from microsim.ros2.microsim_node import MicroSimNode
    from microsim.ros2.transport import Transport
    from microsim.runner import Pilot, Runner, Telemetry
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation

AUTO = "auto"  # of --lockstep
WATCHED_S = 10.0  # simulated, without --duration
_SHOWN_LINKS = 10  # of the radio, in the summary


class TransportChoice(str, Enum):
    auto = "auto"
    dds = "dds"
    rclpy = "rclpy"
    none = "none"


class RenderChoice(str, Enum):
    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"


_RTF = "Real-time factor: 1 real time, 5 five times as fast, 0 as fast as possible."
_TRANSPORT = (
    "Connect to ROS 2 through rclpy or the built-in dds; none: do not connect. auto: rclpy if it can be imported, "
    "else dds. Default with --rtf 0: none."
)
_INJECT = (
    "A temporary fault: `camera_front:fail@3s-5s`, `rover/gps:dropout@1s-2s`, `gps:jump(10,0,0)@3s-9s`, "
    "`radio:blackout@3s-5s`, `/rover/cmd_vel:delay(0.2)@3s-5s`. May be repeated."
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
_MISSION = (
    "Run a mission: a shipped one (see `microsim list`) or a file. It ends the run; the run fails if one of the "
    "mission's expectations is not met."
)


class RunOptions(NamedTuple):
    scenario: Annotated[
        str | None,
        argument("SCENARIO", "A shipped scenario (see `microsim list`) or a file.", show_default="default"),
    ] = None
    seed: Annotated[
        int | None, option("--seed N", "Seed of all noise; default: the scenario's.", parser=seed_value)
    ] = None
    duration: Annotated[
        float | None,
        option(
            "--duration TIME", "Simulated time: 60, 2min, 500ms; default: until Ctrl-C. 0: only tick 0.", parser=seconds
        ),
    ] = None
    rtf: Annotated[float | None, option("--rtf X", _RTF, parser=real_time_factor, show_default="1")] = None
    transport: Annotated[TransportChoice | None, option("--transport", _TRANSPORT, show_default="auto")] = None
    headless: Annotated[bool, flag("--headless", "No dashboard; progress on one line.")] = False
    digest: Annotated[bool, flag("--digest", "Print the SHA-256 over every message, alone on the last line.")] = False
    telemetry: Annotated[
        Path | None,
        option("--telemetry FILE", "Write a CSV row each second: real-time factor, tick time, lag, radio."),
    ] = None
    json: ResultJsonOption = False
    quiet: QuietOption = False
    demo: PilotOption = False
    world: Annotated[
        str | None, option("--world BUNDLE", "A world bundle instead of a scenario: a name or folder.")
    ] = None
    robots: Annotated[
        str | None, option("--robots NAMES", "Use these robots: `ego,drone`, or `scout=rover` to name the model.")
    ] = None
    inject: Annotated[list[str] | None, option("--inject FAULT", _INJECT)] = None
    render: Annotated[
        RenderChoice,
        option("--render", "Device that renders splats; auto: a GPU if there is one. The images are identical."),
    ] = RenderChoice.auto
    lockstep: Annotated[list[str] | None, option("--lockstep GATE", _LOCKSTEP)] = None
    with_node: Annotated[str | None, option("--with COMMAND", _WITH)] = None
    viewer: ViewerOptions = ViewerOptions()
    foxglove: FoxgloveOptions = FoxgloveOptions()
    mission: Annotated[str | None, option("--mission FILE", _MISSION)] = None
    from_state: Annotated[
        Path | None,
        option(
            "--from-state FILE",
            "Resume from a saved state, with its scenario and seed, as if the run had never stopped.",
        ),
    ] = None
    plugins: Annotated[
        list[Path] | None,
        option("--plugins FOLDER", "With --from-state: a folder of plug-ins whose code may run; repeatable."),
    ] = None
    recording: RecordingOptions = RecordingOptions()
    report: ReportOptions = ReportOptions()


def run(options: RunOptions) -> int:
    """Run a scenario, shown live in the terminal.

    Press ? for the keys that drive, pause and reset; Ctrl-C ends the run.
    Exit codes: 0 good, 1 the run failed or its mission's expectations were not
    met, 2 the input is wrong.

    \b
    Examples:
      microsim run --demo                          watch something happen
      microsim run --demo --open                   watch and drive in the browser
      microsim run --demo --foxglove               watch and drive in Foxglove
      microsim run maze --seed 3 --rtf 5           five times as fast as real time
      microsim run my_world.yaml --duration 2min --rtf 0 --headless --digest
      microsim run --world oval --robots ego,drone    drive and fly in a bundle
      microsim run --world oval --inject camera_front:fail@3s-5s
      microsim run --duration 10 --rtf 0 --json    for scripts
      microsim run --demo --duration 60 --rtf 0 --record flight
      microsim run flat --mission patrol --rtf 0 --quiet    a test: its exit code
      microsim run flat --mission patrol --rtf 0 --junit patrol.xml    for CI
      microsim run --from-state five.state         resume from a saved state
      microsim run flat --lockstep 'after: /rover/odom, expect: /rover/cmd_vel'
      microsim run flat --ros-args -p rover.max_v:=1.0 -r __ns:=/left
    """
    _render_with(options.render)
    if options.from_state is not None:
        _check_state_options(options)
    elif options.plugins:
        raise UsageError("--plugins is for --from-state; a scenario names its folders under `plugins:`")
    scenario = run_parts.assembled(options.scenario, options.world, options.robots, options.inject or ())
    programme = Programme.of(options.scenario, options.world, options.demo)
    return run_scenario(RunRequest(options, scenario, options.seed, options.duration, programme, tuple(ROS_ARGS)))


COMMAND = Command(run, panel="Run", position=110, json=RunOutput)


def _check_state_options(options: RunOptions) -> None:
    """Refuse options that the state decides, or that need the start of a run."""
    for name in given(options):
        if name in ("SCENARIO", "--seed", "--world", "--robots", "--inject", "--lockstep"):
            raise UsageError(f"--from-state uses the scenario and seed of the file: leave out {name}")
    if options.mission is not None:
        raise UsageError(
            "a mission begins at time 0, and its pilot's plans are not part of a state: leave out --mission, or run it "
            "from the start"
        )
    if options.recording.record is not None:
        raise UsageError(
            "a recording begins at time 0, so that it can be replayed on its own: leave out --record, or record from "
            "the start; `microsim replay BAG --at TIME --save-state FILE` then gives any moment of it"
        )


def _render_with(choice: RenderChoice) -> None:
    from microsim.render.render_options import render_request

    render_request.choice = choice.value
    render_request.say = warn


# ---- the work, also of `microsim demo` -------------------------------------------------------------------------------


class RunRequest(NamedTuple):
    """The options of a run, with what they, its mission or its saved state decide."""

    options: RunOptions
    scenario: Scenario | str | None
    seed: int | None
    duration: float | None
    programme: Programme
    ros_args: tuple[str, ...] = ()
    flight: Flight | None = None  # the mission, loaded


def run_scenario(request: RunRequest) -> int:
    """The exit code."""
    with terminal.interrupts_end_the_run() as interrupts:
        recordings = Recordings()
        try:
            return _run(_with_gates(_with_mission(request)), interrupts, recordings)
        except KeyboardInterrupt:
            return _stopped_at_once(interrupts, recordings)


def _run(request: RunRequest, interrupts: terminal.Interrupts, recordings: Recordings) -> int:
    from microsim.ros2.node_process import start_nodes

    with ExitStack() as stack:
        if request.options.from_state is not None:
            plugins = request.options.plugins or ()
            scenario, seed = run_parts.scenario_of_state(request.options.from_state, stack, plugins)
            request = request._replace(scenario=scenario, seed=seed)
        with compiling():
            runner, node = _prepared(request, stack)
        if request.options.from_state is not None:
            run_parts.resume(request.options.from_state, runner)
        start_nodes(request.options.with_node, node, runner, stack)
        proposal = None
        if request.options.lockstep == [AUTO]:
            from microsim.ros2.gate_state import propose

            proposal = propose(node, request.options.json)
        interrupts.runner = runner
        telemetry = _telemetry(request, runner)  # after the scenario is loaded: a bad one must not cost an old file
        recordings.begin(request.options.recording, runner)
        if request.flight is not None:
            request.flight.attach(runner)
        if request.options.viewer.is_requested:
            _show_page(runner, node, request, stack)
        ticks = None if request.duration is None else runner.sim.clock.ticks_in(Fraction(str(request.duration)))
        try:
            shown = _shown(runner, node, ticks, request)
            with closing(telemetry) if telemetry is not None else nullcontext(), shown:
                runner.run(ticks)
        except (MicroSimError, MemoryError) as error:
            warn(f"the run failed at tick {runner.sim.tick}: {str(error) or 'out of memory'}")
            recordings.finish(str(error))
            return FAILED
        if proposal is not None:
            print(proposal.block() or "# no node sent anything that the simulation takes: start yours, and try again")
    code = recordings.finish()
    return _say_result(runner, request) or code


def _with_mission(request: RunRequest) -> RunRequest:
    """With the mission loaded; scenario, seed and duration are the mission's unless they were given."""
    if request.options.mission is None:
        if given(request.options.report):
            raise UsageError(f"{given(request.options.report)[0]} reports on a mission: add --mission FILE")
        return request
    request.options.report.check()
    if request.options.demo:
        raise UsageError("--mission and --demo both steer the robots; leave one of them out")
    from microsim.missions import load_mission

    mission = load_mission(request.options.mission)
    return request._replace(
        flight=Flight(mission),
        scenario=mission.scenario if request.scenario is None else request.scenario,
        seed=mission.seed if request.seed is None else request.seed,
        duration=mission.duration if request.duration is None else request.duration,
    )


def _with_gates(request: RunRequest) -> RunRequest:
    """With the gates of the command line, else of the mission, else of the scenario."""
    from microsim.scenario.gates import gates_from_text

    if request.options.lockstep == [AUTO]:
        free = run_parts.with_gates(request.scenario, [], request.ros_args)
        return request._replace(scenario=free, duration=WATCHED_S if request.duration is None else request.duration)
    gates: list[Any] = [gate for text in request.options.lockstep or () for gate in gates_from_text(text)]
    if gates := gates or list(request.flight.mission.lockstep if request.flight is not None else ()):
        return request._replace(scenario=run_parts.with_gates(request.scenario, gates, request.ros_args))
    return request


# ---- before the first tick -------------------------------------------------------------------------------------------


def _prepared(request: RunRequest, stack: ExitStack) -> tuple[Runner, MicroSimNode | None]:
    """A runner, with a ROS 2 node if one is requested; `stack` closes what it opened."""
    from microsim.scenario import load_scenario

    transport = request.options.foxglove.joined(_transport(request), request.ros_args, stack)
    if transport is None:
        from microsim.simulation import Simulation

        scenario = load_scenario(request.scenario or "default")
        _precompile(scenario, request)
        sim = Simulation(scenario, request.seed)
        runner = _runner(sim, request)
        runner.listen(warnings=lambda text: warn(f"{runner.sim_s:.3f} s: {text}"))
        return runner, None
    from microsim.ros2.microsim_node import start_node

    _precompile(load_scenario(request.scenario or str(transport.overrides.get("scenario", "default"))), request)
    node = start_node(transport, request.scenario, request.seed, request.options.rtf)
    node.runner.steer(lambda sim: _pilot(sim, request))
    return node.runner, node


def _transport(request: RunRequest) -> Transport | None:
    """By default none as fast as possible (a stray command would spoil a digest), nor for tick 0 only."""
    from microsim.scenario import load_scenario

    choice, is_quick = request.options.transport, 0.0 in (request.options.rtf, request.duration)
    gates = load_scenario(request.scenario).lockstep if request.scenario is not None else ()
    if gates and choice is TransportChoice.none:
        raise UsageError("lockstep waits for ROS 2 nodes: leave out --transport none, or the gates")
    is_quick = is_quick and not gates
    if choice is TransportChoice.none or (choice is None and is_quick and not request.ros_args):
        if request.ros_args:
            raise UsageError("--ros-args cannot be used with --transport none: leave one of them out")
        return None
    from microsim.ros2.transport import open_transport

    try:
        return open_transport("auto" if choice is None else choice.value, "microsim", request.ros_args)
    except MicroSimError as error:
        if choice is not None or request.ros_args or gates:
            raise
        warn(f"running without ROS 2: {error}")
        return None


def _precompile(scenario: Scenario, request: RunRequest) -> None:
    """Compile what the first second needs, so that it is not part of the run."""
    from microsim.simulation import Simulation

    is_recorded = request.options.recording.record is not None

    def short_run() -> None:
        with suppress(MicroSimError):  # an error will come again, in the run itself
            first_second(_runner(Simulation(scenario, request.seed), request), is_recorded)

    if request.duration != 0.0:
        precompile_scenario(scenario, short_run, "recorded " if is_recorded else "")


def _runner(sim: Simulation, request: RunRequest) -> Runner:
    from microsim.runner import Runner

    runner = Runner(sim, 1.0 if request.options.rtf is None else request.options.rtf)
    runner.steer(lambda sim: _pilot(sim, request))
    return runner


def _pilot(sim: Simulation, request: RunRequest) -> Pilot | None:
    if request.flight is not None:
        return request.flight.pilot(sim)
    if request.programme.pilot is not None:
        return request.programme.pilot(sim)
    if not request.options.demo:
        return None
    from microsim.missions.demo_pilot import DemoPilot

    return DemoPilot(sim)


def _telemetry(request: RunRequest, runner: Runner) -> Telemetry | None:
    path, scenario = request.options.telemetry, request.scenario
    if path is None:
        return None
    from microsim.runner import Telemetry

    if isinstance(scenario, str) and scenario and path.exists() and Path(scenario).exists() and path.samefile(scenario):
        raise UsageError(f"telemetry would overwrite the scenario {path}; give another file to --telemetry")
    telemetry = Telemetry(path)
    telemetry.attach(runner)
    return telemetry


def _show_page(runner: Runner, node: MicroSimNode | None, request: RunRequest, stack: ExitStack) -> None:
    if request.flight is not None:
        request.programme.title = request.flight.mission.name
    stage = run_parts.stage_of(runner, request.programme)
    viewer = request.options.viewer.show(runner, stack, stage)
    if request.options.recording.record is not None:
        viewer.forbid_branches()


# ---- while it runs ---------------------------------------------------------------------------------------------------


@contextmanager
def _shown(runner: Runner, node: MicroSimNode | None, ticks: int | None, request: RunRequest) -> Iterator[None]:
    """With the dashboard if there is a terminal for it, else with lines of progress."""
    options, end = request.options, ticks and runner.sim.tick + ticks
    has_dashboard = not (options.headless or options.json or terminal.is_quiet() or options.viewer.is_requested)
    if end == 0:
        yield
    elif has_dashboard and terminal.can_rewrite(sys.stdout):
        from microsim.view.dashboard import Dashboard

        with Dashboard(runner, end, reset=runner.reset) as dashboard:
            yield
        if dashboard.error is not None:
            warn(f"the dashboard stopped: {dashboard.error!r}; use --headless to go without")
    else:
        with terminal.RunProgress(runner, end).shown():
            yield


def _stopped_at_once(interrupts: terminal.Interrupts, recordings: Recordings) -> int:
    if interrupts.runner is None:
        print("\nmicrosim: stopped before the first tick", file=sys.stderr)
        return GOOD
    print("\nmicrosim: stopped at once, in the middle of a tick", file=sys.stderr)
    hint = recordings.abandoned()
    if hint:
        warn(hint)
    return FAILED


# ---- its result ------------------------------------------------------------------------------------------------------


def result(runner: Runner) -> dict[str, Any]:
    sim = runner.sim
    return {
        "scenario": sim.scenario.name, "seed": sim.seed, "version": __version__, "ticks": sim.tick,
        "sim_s": sim.time_ns / 1e9, "wall_s": round(runner.lap_wall_s, 6), "rtf": round(runner.achieved_rtf, 4),
        "messages": runner.lap_messages, "digest": sim.digest(), "ignored": dict(sim.counters),
        "radio": [_link_facts(link, 1000.0 * sim.clock.dt) for link in (sim.radio.links if sim.radio else ())],
    }  # fmt: skip


def _link_facts(link: Link, tick_ms: float) -> dict[str, Any]:
    counts = {name: getattr(link, name) for name in ("sent", "delivered", "dropped", "overflowed")}
    latency = round(tick_ms * link.latency_sum / link.delivered, 3) if link.delivered else 0.0
    names = {"from": link.sender, "to": link.receiver}
    return {**names, **counts, "queued": len(link.queue), "latency_ms_mean": latency}


def _say_result(runner: Runner, request: RunRequest) -> int:
    """The exit code: FAILED when the mission's expectations were not met."""
    facts = result(runner)
    if request.options.from_state is not None:
        facts["from_state"] = str(request.options.from_state)
    if request.flight is not None:
        facts["mission"] = request.flight.facts()
        request.flight.write_report(request.options.report, runner.sim, facts["wall_s"])
    if request.options.json:
        print_json(facts)
    else:
        tell(summary(facts))
        hints = next_steps.after(request.options)
        if hints:
            tell(hints)
        if request.options.digest:
            print(facts["digest"])
    return run_parts.say_violations(facts["mission"]) if request.flight is not None else GOOD


def summary(facts: dict[str, Any]) -> str:
    """The run in a few lines."""
    pace = f"{facts['rtf']:.2f} × real time" if facts["ticks"] else "tick 0 only"
    lines = [
        f"{facts['scenario']}, seed {facts['seed']}",
        f"  simulated   {facts['sim_s']:.3f} s, {facts['ticks']:,} ticks, {facts['messages']:,} messages",
        f"  wall time   {facts['wall_s']:.3f} s, {pace}",
    ]
    lines += [f"  resumed     from {facts['from_state']}"] if "from_state" in facts else []
    lines += _radio_lines([link for link in facts["radio"] if link["sent"]])
    lines += [f"  ignored     {count} {reason}" for reason, count in facts["ignored"].items()]
    lines += [run_parts.verdict_line(facts["mission"])] if "mission" in facts else []
    return "\n".join(lines)


def _radio_lines(links: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"  radio       {link['from']} → {link['to']}: {link['sent']} sent, {link['delivered']} delivered, "
        f"{link['dropped'] + link['overflowed']} lost, {link['latency_ms_mean']:.0f} ms on average"
        for link in links[:_SHOWN_LINKS]
    ]
    hidden = len(links) - _SHOWN_LINKS
    return lines if hidden <= 0 else [*lines, f"  radio       … and {hidden} more links: --json lists all of them"]
