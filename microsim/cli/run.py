"""`microsim run`."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from microsim.cli.from_state import go_on, with_scenario
from microsim.cli.missions import Flight, boarded, say_violations, verdict_line
from microsim.cli.progress import Progress
from microsim.cli.quiet import is_quiet, tell
from microsim.cli.recording import NOTHING, Recordings, Wishes
from microsim.cli.rehearsal import compiling, parts_of, rehearse_once
from microsim.cli.view import NO_VIEW, ViewWishes, stage_of
from microsim.errors import MicroSimError, UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.ros2.microsim_node import MicroSimNode
    from microsim.ros2.transport import Transport
    from microsim.runner import Pilot, Runner, Telemetry
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation


@dataclass(frozen=True)
class Options:
    scenario: Scenario | str | None
    seed: int | None
    duration: float | None
    rtf: float | None
    headless: bool
    digest: bool
    telemetry: Path | None
    json: bool
    demo: bool
    transport: str | None = None
    ros_args: tuple[str, ...] = ()
    recording: Wishes = NOTHING
    mission: str | None = None
    view: ViewWishes = NO_VIEW
    flight: Flight | None = None  # the mission, loaded
    pilot: Callable[[Simulation], Pilot | None] | None = None  # of a demo
    from_state: Path | None = None
    plugin_folders: tuple[Path, ...] = ()  # whose code a saved state may run


def run(options: Options) -> int:
    """The exit code."""
    with Interrupts() as interrupts:
        try:
            return _run(boarded(options), interrupts)
        except KeyboardInterrupt:
            return _stopped_at_once(interrupts)


def _run(options: Options, interrupts: Interrupts) -> int:
    with ExitStack() as stack:
        options = with_scenario(options, stack)
        with compiling():
            runner, node = _prepared(options, stack)
        if options.from_state is not None:
            go_on(options.from_state, runner)
        interrupts.runner = runner
        telemetry = _telemetry(options)  # a bad scenario must not cost an old file
        if telemetry is not None:
            telemetry.attach(runner)
        recordings = interrupts.recordings = options.recording.attach(runner)
        if options.flight is not None:
            options.flight.attach(runner)
        if options.view.is_wanted:
            _show_page(runner, node, options, stack)
        ticks = None if options.duration is None else runner.sim.clock.ticks_in(Fraction(str(options.duration)))
        try:
            _drive(runner, ticks, options, telemetry)
        except (MicroSimError, MemoryError) as error:
            tick = runner.sim.tick
            print(f"microsim: the run failed at tick {tick}: {str(error) or 'out of memory'}", file=sys.stderr)
            recordings.finish()
            return 1
    code = recordings.finish()
    return _say_result(runner, options) or code


def _show_page(runner: Runner, node: MicroSimNode | None, options: Options, stack: ExitStack) -> None:
    stage, scenarios = stage_of(runner, node, lambda sim: _pilot(sim, options))
    title = options.flight.mission.name if options.flight is not None else ""
    viewer = options.view.show(runner, stack, stage, scenarios=scenarios, title=title)
    if options.recording.folder is not None:
        viewer.forbid_branches()


def _prepared(options: Options, stack: ExitStack) -> tuple[Runner, MicroSimNode | None]:
    """A runner, on ROS 2 if that is wanted; `stack` closes what it opened."""
    from microsim.scenario import load_scenario

    transport = _transport(options)
    if transport is None:
        from microsim.simulation import Simulation

        scenario = load_scenario(options.scenario or "default")
        _rehearse(scenario, options)
        sim = Simulation(scenario, options.seed)
        runner = _runner(sim, options)
        runner.on_warning = lambda text: print(f"microsim: {runner.sim_s:.3f} s: {text}", file=sys.stderr)
        return runner, None
    stack.callback(transport.close)
    from microsim.ros2.start import start_node

    _rehearse(load_scenario(options.scenario or str(transport.overrides.get("scenario", "default"))), options)
    node = start_node(transport, options.scenario, options.seed, options.rtf, lambda sim: _pilot(sim, options))
    return node.runner, node


def _transport(options: Options) -> Transport | None:
    """As asked for. Unasked, none as fast as possible (a stray command would spoil a digest), nor for tick 0 only."""
    unasked = options.transport is None and 0.0 in (options.rtf, options.duration) and not options.ros_args
    if options.transport == "none" or unasked:
        if options.ros_args:
            raise UsageError("--ros-args make no sense with --transport none")
        return None
    from microsim.ros2.transport.choose import Kind, open_transport

    kind: Kind = "dds" if options.transport == "dds" else "rclpy" if options.transport == "rclpy" else "auto"
    try:
        return open_transport(kind, "microsim", options.ros_args)
    except MicroSimError as error:
        if options.transport is not None or options.ros_args:
            raise
        print(f"microsim: running without ROS 2: {error}", file=sys.stderr)
        return None


def _stopped_at_once(interrupts: Interrupts) -> int:
    if interrupts.runner is None:
        print("\nmicrosim: stopped before the first tick", file=sys.stderr)
        return 0
    print("\nmicrosim: stopped at once, in the middle of a tick", file=sys.stderr)
    hint = interrupts.recordings.abandoned() if interrupts.recordings is not None else ""
    if hint:
        print(f"microsim: {hint}", file=sys.stderr)
    return 1


def _drive(runner: Runner, ticks: int | None, options: Options, telemetry: Telemetry | None) -> None:
    with ExitStack() as stack:
        if telemetry is not None:
            stack.callback(telemetry.close)
        stack.enter_context(_shown(runner, ticks and runner.sim.tick + ticks, options))
        runner.run(ticks)


@contextmanager
def _shown(runner: Runner, end: int | None, options: Options) -> Iterator[None]:
    """With the dashboard where there is a terminal for it, else with lines of progress."""
    if end == 0:
        yield
    elif options.headless or options.json or is_quiet() or options.view.is_wanted or not _is_terminal():
        progress = Progress(runner, end)
        runner.watchers.append(progress.watcher())
        try:
            yield
        finally:
            progress.end()
    else:
        from microsim.view.dashboard import Dashboard

        with Dashboard(runner, end) as dashboard:
            yield
        if dashboard.error is not None:
            print(f"microsim: the dashboard stopped: {dashboard.error!r}; --headless does without", file=sys.stderr)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _telemetry(options: Options) -> Telemetry | None:
    from microsim.runner import Telemetry

    path = options.telemetry
    if path is None:
        return None
    written = Path(options.scenario if isinstance(options.scenario, str) else "")
    if (
        isinstance(options.scenario, str)
        and options.scenario
        and path.exists()
        and written.exists()
        and path.samefile(written)
    ):
        raise UsageError(f"telemetry would overwrite the scenario {path}; give another file to --telemetry")
    return Telemetry(path)


def _rehearse(scenario: Scenario, options: Options) -> None:
    """Compile what the first second needs, so that it is not part of the run."""
    from microsim.simulation import Simulation

    def rehearsal() -> None:
        with suppress(MicroSimError):  # an error will come again, in the run itself
            runner = _runner(Simulation(scenario, options.seed), options)
            runner.set_rtf(0.0)
            runner.run(min(runner.sim.clock.ticks_in(Fraction(1)), 600))

    if options.duration != 0.0:
        rehearse_once(parts_of(scenario), rehearsal)


def _runner(sim: Simulation, options: Options) -> Runner:
    from microsim.runner import Runner

    return Runner(sim, 1.0 if options.rtf is None else options.rtf, _pilot(sim, options))


def _pilot(sim: Simulation, options: Options) -> Pilot | None:
    if options.flight is not None:
        return options.flight.pilot(sim)
    if options.pilot is not None:
        return options.pilot(sim)
    if not options.demo:
        return None
    from microsim.missions.demo_pilot import Demo

    return Demo(sim)


class Stoppable(Protocol):
    is_stopping: bool

    def stop(self) -> None: ...


class Interrupts:
    """Ctrl-C, SIGTERM and SIGHUP (a closed terminal) end the run after the tick under way; a second one at once."""

    def __init__(self) -> None:
        self.runner: Stoppable | None = None
        self.recordings: Recordings | None = None  # of a run that may be stopped at once
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            numbers.append(signal.SIGHUP)
        for number in numbers:
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if number not in (signal.SIGINT, signal.SIGTERM):
            _leave_terminal()
        if self.runner is None or self.runner.is_stopping:
            raise KeyboardInterrupt
        self.runner.stop()


def _leave_terminal() -> None:
    """After it was closed, whatever is still printed to it would fail, and keep the recording from being finished."""
    with Path(os.devnull).open("wb") as nothing:
        for descriptor in (1, 2):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):
                os.dup2(nothing.fileno(), descriptor)


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


def _say_result(runner: Runner, options: Options) -> int:
    """1 when the mission failed."""
    facts = result(runner)
    if options.from_state is not None:
        facts["from_state"] = str(options.from_state)
    if options.flight is not None:
        facts["mission"] = options.flight.facts()
    if options.json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        tell(summary(facts))
        if options.demo:
            tell(HINTS)
        if options.digest:
            print(facts["digest"])
    return say_violations(facts["mission"]) if options.flight is not None else 0


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
    lines += [f"  went on     from {facts['from_state']}"] if "from_state" in facts else []
    lines += [
        f"  radio       {link['from']} → {link['to']}: {link['sent']} sent, {link['delivered']} delivered, "
        f"{link['dropped'] + link['overflowed']} lost, {link['latency_ms_mean']:.0f} ms on average"
        for link in facts["radio"]
        if link["sent"]
    ][:10]
    lines += [f"  ignored     {count} {reason}" for reason, count in facts["ignored"].items()]
    lines += [verdict_line(facts["mission"])] if "mission" in facts else []
    return "\n".join(lines)
