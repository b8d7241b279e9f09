"""`microsim run`: a scenario, live in the terminal, on ROS 2, in the browser, or as a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from microsim.cli import attachments, starting_point
from microsim.cli.attachments import NO_RECORDING, NO_VIEWER, Flight, RecordingOptions, Recordings, ViewerOptions
from microsim.cli.command import Command
from microsim.cli.options import (
    ROS_ARGS,
    PilotOption,
    QuietOption,
    ResultJsonOption,
    flag,
    real_time_factor,
    seconds,
    seed_value,
)
from microsim.cli.precompile import compiling, parts_of, precompile
from microsim.cli.terminal import (
    FAILED,
    GOOD,
    Interrupts,
    Progress,
    can_rewrite,
    interrupts_end_the_run,
    is_quiet,
    print_json,
    tell,
)
from microsim.errors import MicroSimError, UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode
    from microsim.ros2.transport import Transport
    from microsim.runner import Pilot, Runner, Telemetry
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation

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


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO", help="A shipped scenario (see `microsim list`) or a file.", show_default="default"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=seed_value, metavar="N", help="Seed of all noise; default: the scenario's.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            help="Simulated time: 60, 2min, 500ms; default: until Ctrl-C. 0: only tick 0.",
        ),
    ] = None,
    rtf: Annotated[
        float | None,
        typer.Option(
            parser=real_time_factor,
            metavar="X",
            help="Real-time factor: 1 real time, 5 five times as fast, 0 as fast as possible.",
            show_default="1",
        ),
    ] = None,
    transport: Annotated[
        TransportChoice | None,
        typer.Option(
            help="Connect to ROS 2 through rclpy, through our own dds, or not at all (none). auto: rclpy if it can be "
            "imported, else dds. Default with --rtf 0: none.",
            show_default="auto",
        ),
    ] = None,
    headless: Annotated[bool, flag("--headless", "No dashboard; progress on one line.")] = False,
    digest: Annotated[bool, flag("--digest", "Print the SHA-256 over every message, alone on the last line.")] = False,
    telemetry: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a CSV row each second: real-time factor, tick time, lag, radio."),
    ] = None,
    as_json: ResultJsonOption = False,
    quiet: QuietOption = False,
    demo: PilotOption = False,
    world: starting_point.WorldOption = None,
    robots: starting_point.RobotsOption = None,
    inject: starting_point.InjectOption = None,
    render: Annotated[
        RenderChoice,
        typer.Option("--render", help="What renders splats; auto: a GPU if there is one. The images are identical."),
    ] = RenderChoice.auto,
    view_: attachments.ViewOption = False,
    open_: attachments.OpenOption = False,
    view_host: attachments.HostOption = None,
    view_port: attachments.PortOption = None,
    mission: attachments.MissionOption = None,
    from_state: starting_point.FromStateOption = None,
    record: attachments.RecordOption = None,
    storage: attachments.StorageOption = attachments.Storage.mcap,
    compress: attachments.CompressOption = attachments.Compression.none,
    topics: attachments.TopicsOption = None,
    exclude: attachments.ExcludeOption = None,
    split_size: attachments.SplitSizeOption = None,
    split_time: attachments.SplitTimeOption = None,
    history: attachments.HistoryOption = None,
) -> int:
    """Run a scenario, shown live in the terminal.

    Ctrl-C ends the run with a summary. Exit codes: 0 good, 1 the run failed or
    its mission's expectations were not met, 2 the input is wrong.

    \b
    Examples:
      microsim run --demo                          watch something happen
      microsim run --demo --open                   watch and drive in the browser
      microsim run maze --seed 3 --rtf 5           five times as fast as real time
      microsim run my_world.yaml --duration 2min --rtf 0 --headless --digest
      microsim run --world oval --robots ego,drone    drive and fly in a bundle
      microsim run --world oval --inject camera_front:fail@3s-5s
      microsim run --duration 10 --rtf 0 --json    for scripts
      microsim run --demo --duration 60 --rtf 0 --record flight
      microsim run flat --mission patrol --rtf 0 --quiet    a test: its exit code
      microsim run --from-state five.state         resume from a saved state
      microsim run flat --ros-args -p rover.max_v:=1.0 -r __ns:=/left
    """
    _render_with(render)
    if from_state is not None:
        starting_point.check_state_options({
            "--world, --robots, --inject": world is not None or robots is not None or bool(inject),
            "SCENARIO": scenario is not None, "--seed": seed is not None,
            "--mission": mission is not None, "--record": record is not None,
        })  # fmt: skip
    topics_given, excluded = tuple(topics or ()), tuple(exclude or ())
    options = RunOptions(
        scenario=starting_point.assembled(scenario, world, robots, inject or ()),
        seed=seed, duration=duration, rtf=rtf, headless=headless, digest=digest, telemetry=telemetry, json=as_json,
        demo=demo, transport=None if transport is None else transport.value, ros_args=tuple(ROS_ARGS), mission=mission,
        recording=RecordingOptions(
            record, storage.value, compress.value, topics_given, excluded, split_size, split_time, history
        ),
        viewer=ViewerOptions(view_, open_, view_host, view_port), from_state=from_state,
    )  # fmt: skip
    return run_scenario(options)


COMMAND = Command(run, panel="Run", position=110)


def _render_with(choice: RenderChoice) -> None:
    from microsim.render.render_options import wish

    wish.choice = choice.value
    wish.say = lambda text: typer.echo(f"microsim: {text}", err=True)


# ---- the work, also of `microsim demo` -------------------------------------------------------------------------------


class RunOptions(NamedTuple):
    scenario: Scenario | str | None
    seed: int | None = None
    duration: float | None = None
    rtf: float | None = None
    headless: bool = False
    digest: bool = False
    telemetry: Path | None = None
    json: bool = False
    demo: bool = False
    transport: str | None = None
    ros_args: tuple[str, ...] = ()
    recording: RecordingOptions = NO_RECORDING
    mission: str | None = None
    viewer: ViewerOptions = NO_VIEWER
    flight: Flight | None = None  # the mission, loaded
    pilot: Callable[[Simulation], Pilot | None] | None = None  # of a demo
    from_state: Path | None = None


def run_scenario(options: RunOptions) -> int:
    """The exit code."""
    with interrupts_end_the_run() as interrupts:
        recordings = Recordings()
        try:
            return _run(_with_mission(options), interrupts, recordings)
        except KeyboardInterrupt:
            return _stopped_at_once(interrupts, recordings)


def _run(options: RunOptions, interrupts: Interrupts, recordings: Recordings) -> int:
    with ExitStack() as stack:
        if options.from_state is not None:
            scenario, seed = starting_point.scenario_of_state(options.from_state, stack)
            options = options._replace(scenario=scenario, seed=seed)
        with compiling():
            runner, node = _prepared(options, stack)
        if options.from_state is not None:
            starting_point.resume(options.from_state, runner)
        interrupts.runner = runner
        telemetry = _telemetry(options)  # after the scenario is loaded: a bad one must not cost an old file
        if telemetry is not None:
            telemetry.attach(runner)
        recordings.begin(options.recording, runner)
        if options.flight is not None:
            options.flight.attach(runner)
        if options.viewer.is_requested:
            _show_page(runner, node, options, stack)
        ticks = None if options.duration is None else runner.sim.clock.ticks_in(Fraction(str(options.duration)))
        try:
            _drive(runner, ticks, options, telemetry)
        except (MicroSimError, MemoryError) as error:
            tick = runner.sim.tick
            print(f"microsim: the run failed at tick {tick}: {str(error) or 'out of memory'}", file=sys.stderr)
            recordings.finish()
            return FAILED
    code = recordings.finish()
    return _say_result(runner, options) or code


def _with_mission(options: RunOptions) -> RunOptions:
    """With the mission loaded; scenario, seed and duration are the mission's unless they were given."""
    if options.mission is None:
        return options
    if options.demo:
        raise UsageError("--mission and --demo both steer the robots; leave one of them out")
    from microsim.missions import load_mission

    mission = load_mission(options.mission)
    return options._replace(
        flight=Flight(mission),
        scenario=mission.scenario if options.scenario is None else options.scenario,
        seed=mission.seed if options.seed is None else options.seed,
        duration=mission.duration if options.duration is None else options.duration,
    )


# ---- before the first tick -------------------------------------------------------------------------------------------


def _prepared(options: RunOptions, stack: ExitStack) -> tuple[Runner, MicroSimNode | None]:
    """A runner, with a ROS 2 node if one is requested; `stack` closes what it opened."""
    from microsim.scenario import load_scenario

    transport = _transport(options)
    if transport is None:
        from microsim.simulation import Simulation

        scenario = load_scenario(options.scenario or "default")
        _precompile(scenario, options)
        sim = Simulation(scenario, options.seed)
        runner = _runner(sim, options)
        runner.on_warning = lambda text: print(f"microsim: {runner.sim_s:.3f} s: {text}", file=sys.stderr)
        return runner, None
    stack.callback(transport.close)
    from microsim.ros2.microsim_node import start_node

    _precompile(load_scenario(options.scenario or str(transport.overrides.get("scenario", "default"))), options)
    node = start_node(transport, options.scenario, options.seed, options.rtf, lambda sim: _pilot(sim, options))
    return node.runner, node


def _transport(options: RunOptions) -> Transport | None:
    """By default none as fast as possible (a stray command would spoil a digest), nor for tick 0 only."""
    is_off = options.transport is None and 0.0 in (options.rtf, options.duration) and not options.ros_args
    if options.transport == "none" or is_off:
        if options.ros_args:
            raise UsageError("--ros-args make no sense with --transport none")
        return None
    from microsim.ros2.transport import Kind, open_transport

    kind: Kind = "dds" if options.transport == "dds" else "rclpy" if options.transport == "rclpy" else "auto"
    try:
        return open_transport(kind, "microsim", options.ros_args)
    except MicroSimError as error:
        if options.transport is not None or options.ros_args:
            raise
        print(f"microsim: running without ROS 2: {error}", file=sys.stderr)
        return None


def _precompile(scenario: Scenario, options: RunOptions) -> None:
    """Compile what the first second needs, so that it is not part of the run."""
    from microsim.simulation import Simulation

    def first_second() -> None:
        with suppress(MicroSimError):  # an error will come again, in the run itself
            runner = _runner(Simulation(scenario, options.seed), options)
            runner.set_rtf(0.0)
            runner.run(min(runner.sim.clock.ticks_in(Fraction(1)), 600))

    if options.duration != 0.0:
        precompile(parts_of(scenario), first_second)


def _runner(sim: Simulation, options: RunOptions) -> Runner:
    from microsim.runner import Runner

    return Runner(sim, 1.0 if options.rtf is None else options.rtf, _pilot(sim, options))


def _pilot(sim: Simulation, options: RunOptions) -> Pilot | None:
    if options.flight is not None:
        return options.flight.pilot(sim)
    if options.pilot is not None:
        return options.pilot(sim)
    if not options.demo:
        return None
    from microsim.missions.demo_pilot import DemoPilot

    return DemoPilot(sim)


def _telemetry(options: RunOptions) -> Telemetry | None:
    from microsim.runner import Telemetry

    path, scenario = options.telemetry, options.scenario
    if path is None:
        return None
    if isinstance(scenario, str) and scenario and path.exists() and Path(scenario).exists() and path.samefile(scenario):
        raise UsageError(f"telemetry would overwrite the scenario {path}; give another file to --telemetry")
    return Telemetry(path)


def _show_page(runner: Runner, node: MicroSimNode | None, options: RunOptions, stack: ExitStack) -> None:
    stage, scenarios = attachments.stage_of(runner, node, lambda sim: _pilot(sim, options))
    title = options.flight.mission.name if options.flight is not None else ""
    viewer = options.viewer.show(runner, stack, stage, scenarios=scenarios, title=title)
    if options.recording.folder is not None:
        viewer.forbid_branches()


# ---- while it runs ---------------------------------------------------------------------------------------------------


def _drive(runner: Runner, ticks: int | None, options: RunOptions, telemetry: Telemetry | None) -> None:
    with ExitStack() as stack:
        if telemetry is not None:
            stack.callback(telemetry.close)
        stack.enter_context(_shown(runner, ticks and runner.sim.tick + ticks, options))
        runner.run(ticks)


@contextmanager
def _shown(runner: Runner, end: int | None, options: RunOptions) -> Iterator[None]:
    """With the dashboard if there is a terminal for it, else with lines of progress."""
    has_dashboard = not (options.headless or options.json or is_quiet() or options.viewer.is_requested)
    if end == 0:
        yield
    elif has_dashboard and can_rewrite(sys.stdout):
        from microsim.view.dashboard import Dashboard

        with Dashboard(runner, end) as dashboard:
            yield
        if dashboard.error is not None:
            print(
                f"microsim: the dashboard stopped: {dashboard.error!r}; use --headless to go without", file=sys.stderr
            )
    else:
        progress = Progress(runner, end)
        runner.watchers.append(progress.watcher())
        try:
            yield
        finally:
            progress.end()


def _stopped_at_once(interrupts: Interrupts, recordings: Recordings) -> int:
    if interrupts.runner is None:
        print("\nmicrosim: stopped before the first tick", file=sys.stderr)
        return GOOD
    print("\nmicrosim: stopped at once, in the middle of a tick", file=sys.stderr)
    hint = recordings.abandoned()
    if hint:
        print(f"microsim: {hint}", file=sys.stderr)
    return FAILED


# ---- its result ------------------------------------------------------------------------------------------------------


def result(runner: Runner) -> dict[str, Any]:
    sim = runner.sim
    tick_ms = 1000.0 * sim.clock.dt
    links = sim.radio.links if sim.radio else []
    return {
        "scenario": sim.scenario.name,
        "seed": sim.seed,
        "version": __version__,
        "ticks": sim.tick,
        "sim_s": sim.time_ns / 1e9,
        "wall_s": round(runner.wall_s, 6),
        "rtf": round(runner.achieved_rtf, 4),
        "messages": runner.messages,
        "digest": sim.digest(),
        "ignored": dict(sim.counters),
        "radio": [
            {
                "from": link.sender,
                "to": link.receiver,
                "sent": link.sent,
                "delivered": link.delivered,
                "dropped": link.dropped,
                "overflowed": link.overflowed,
                "queued": len(link.queue),
                "latency_ms_mean": round(tick_ms * link.latency_sum / link.delivered, 3) if link.delivered else 0.0,
            }
            for link in links
        ],
    }


def _say_result(runner: Runner, options: RunOptions) -> int:
    """The exit code: FAILED when the mission's expectations were not met."""
    facts = result(runner)
    if options.from_state is not None:
        facts["from_state"] = str(options.from_state)
    if options.flight is not None:
        facts["mission"] = options.flight.facts()
    if options.json:
        print_json(facts)
    else:
        tell(summary(facts))
        if options.demo:
            tell(HINTS)
        if options.digest:
            print(facts["digest"])
    return attachments.say_violations(facts["mission"]) if options.flight is not None else GOOD


HINTS = """
What next?
  another world    microsim run showcase --demo        (all of them: microsim list)
  in Python        import microsim; sim = microsim.Simulation("default", seed=7); messages = sim.step(60)
  documentation    make docs, then open docs/_build/html/index.html"""


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
    lines += [attachments.verdict_line(facts["mission"])] if "mission" in facts else []
    return "\n".join(lines)


def _radio_lines(links: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"  radio       {link['from']} → {link['to']}: {link['sent']} sent, {link['delivered']} delivered, "
        f"{link['dropped'] + link['overflowed']} lost, {link['latency_ms_mean']:.0f} ms on average"
        for link in links[:_SHOWN_LINKS]
    ]
    hidden = len(links) - _SHOWN_LINKS
    return lines if hidden <= 0 else [*lines, f"  radio       … and {hidden} more links: --json lists all of them"]
