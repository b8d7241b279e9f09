"""`microsim replay`: a recording, or a run of a sweep, once more."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from microsim.cli import attachments
from microsim.cli.attachments import NO_VIEWER, ViewerOptions
from microsim.cli.command import Command
from microsim.cli.options import ROS_ARGS, QuietOption, flag, simulated_time
from microsim.cli.precompile import compiling
from microsim.cli.terminal import FAILED, GOOD, Progress, ShareProgress, interrupts_end_the_run, note, print_json, tell
from microsim.errors import UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.recording.bag import ForeignBag, OwnBag
    from microsim.recording.recorder import Recorder
    from microsim.recording.replay import Replay
    from microsim.runner import Runner
    from microsim.simulation import Simulation
    from microsim.sweep.metrics import Value
    from microsim.sweep.tokens import Replayable

_REASONS = 5  # why inputs were ignored, at most


def replay(
    path: Annotated[
        Path | None, typer.Argument(metavar="BAG", help="A recording: its folder, or one of its files.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="TOKEN", help="Instead of a bag: the token of a run, from the result of a sweep."
        ),
    ] = None,
    verify: Annotated[bool, flag("--verify", "Compare every message with the recording.")] = False,
    rtf: Annotated[
        float, typer.Option(min=0.0, max=100_000.0, metavar="X", help="Real-time factor; 0: as fast as possible.")
    ] = 0.0,
    start: Annotated[
        Fraction | None,
        typer.Option("--from", parser=simulated_time, metavar="TIME", help="Publish messages from this time on."),
    ] = None,
    at: Annotated[
        Fraction | None,
        typer.Option("--at", parser=simulated_time, metavar="TIME", help="Stop at this time.", show_default="the end"),
    ] = None,
    save_state: Annotated[
        Path | None, typer.Option("--save-state", metavar="FILE", help="Save the state at the end to a file.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FOLDER", help="Record the replay, with the same options.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario",
            metavar="S",
            help="For bags of other programs: the scenario to run; for a token: where its scenario is now.",
        ),
    ] = None,
    mission: Annotated[
        str | None, typer.Option("--mission", metavar="M", help="For a token: where its mission is now.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="For bags of other programs: the seed.")
    ] = None,
    plugins: Annotated[
        list[Path] | None,
        typer.Option("--plugins", metavar="FOLDER", help="A folder of plug-ins whose code may run; repeatable."),
    ] = None,
    world: Annotated[
        str | None, typer.Option("--world", metavar="BUNDLE", help="Where the scenario's world bundle is now.")
    ] = None,
    transport: Annotated[
        str, typer.Option("--transport", metavar="KIND", help="auto, dds or rclpy: publish the messages on ROS 2 too.")
    ] = "none",
    view_: attachments.ViewOption = False,
    open_: attachments.OpenOption = False,
    view_host: attachments.HostOption = None,
    view_port: attachments.PortOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the run as one HTML page with a time slider, for offline viewing."
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> int:
    """Run a recorded mission again, from its inputs; or the run of a token.

    Exit codes: 0 good, 1 the replay differs, 2 the bag or token cannot be used.

    \b
    Examples:
      microsim replay flight --verify              identical, or where it differs
      microsim replay flight --verify --json       the same for scripts
      microsim replay flight --rtf 1 --transport auto    on ROS 2, in real time
      microsim replay flight --at 12.5s --save-state s.state
      microsim replay flight --open                any moment, in the browser
      microsim replay flight --html flight.html    the same as a file, to send
      microsim replay commands --scenario flat --seed 3    a `ros2 bag`
      microsim replay --token TOKEN --record flight        a run of a sweep
    """
    viewer = ViewerOptions(view_, open_, view_host, view_port)
    options = ReplayOptions(
        rtf=rtf, verify=verify, start=start, at=at, save_state=save_state, record=record, scenario=scenario, seed=seed,
        plugins=plugins or None, world=world, transport=transport, ros_args=tuple(ROS_ARGS), viewer=viewer, html=html,
        json=as_json,
    )  # fmt: skip
    if token is not None:
        options.refuse_with_token(path)
        return replay_token(token, mission, options)
    if path is None:
        raise typer.BadParameter("name a recording, or give --token.", param_hint="BAG")
    if mission is not None:
        raise typer.BadParameter("a recording has its own mission.", param_hint="--mission")
    return replay_bag(path, options)


COMMAND = Command(replay, panel="Recordings", position=210)


class ReplayOptions(NamedTuple):
    rtf: float = 0.0
    verify: bool = False
    start: Fraction | None = None
    at: Fraction | None = None
    save_state: Path | None = None
    record: Path | None = None
    scenario: str | None = None
    seed: int | None = None
    plugins: list[Path] | None = None
    world: str | None = None  # where the bundle is now
    transport: str = "none"
    ros_args: tuple[str, ...] = ()
    viewer: ViewerOptions = NO_VIEWER
    html: Path | None = None
    json: bool = False

    def refuse_with_token(self, bag: Path | None) -> None:
        """A token says which run it is."""
        given = {
            "BAG": bag is not None,
            "--verify": self.verify,
            "--from": self.start is not None,
            "--seed": self.seed is not None,
            "--plugins": self.plugins is not None,
            "--world": self.world is not None,
            "--transport": self.transport != "none",
        }
        unfit = [name for name, is_given in given.items() if is_given]
        if unfit:
            raise UsageError(f"--token says which run it is: leave out {', '.join(unfit)}")

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.transport not in ("none", "auto", "dds", "rclpy"):
            raise UsageError(f"no transport {self.transport!r}; there are: none, auto, dds, rclpy")
        if self.ros_args and self.transport == "none":
            raise UsageError("--ros-args need a transport: add --transport auto")
        given = {
            "--from": self.start is not None,
            "--at": self.at is not None,
            "--save-state": self.save_state is not None,
            "--record": self.record is not None,
            "--html": self.html is not None,
            "--view": self.viewer.is_requested,
            "--verify": self.verify,
            "--rtf": self.rtf != 0.0,
            "--transport": self.transport != "none",
            "--json": self.json,
        }
        for option, why, others in _ALONE:
            unfit = [name for name in others if given[name]]
            if given[option] and unfit:
                raise UsageError(f"{option} {why}: leave out {', '.join(unfit)}")


_ALONE = (
    (
        "--verify",
        "looks at the whole recording, as fast as possible",
        ("--from", "--at", "--save-state", "--record", "--html", "--view", "--rtf", "--transport"),
    ),
    ("--json", "prints the outcome of a replay", ("--html", "--view")),
    ("--view", "shows the recording", ("--html", "--at", "--record", "--save-state", "--transport")),
    ("--html", "shows the whole recording", ("--from", "--at", "--record", "--save-state", "--rtf", "--transport")),
)


# ---- a recording -----------------------------------------------------------------------------------------------------


def replay_bag(path: Path, options: ReplayOptions) -> int:
    """The exit code."""
    from microsim.recording.bag import open_bag
    from microsim.recording.replay import Replay
    from microsim.scenario import load_scenario

    options.check()
    scenario = None if options.scenario is None else load_scenario(options.scenario)
    with ExitStack() as stack:
        again = stack.enter_context(
            Replay(open_bag(path), scenario, options.seed, options.plugins or (), options.world)
        )
        for line in again.notes:
            note(line)
        if options.verify:
            return _verify(again, options.json)
        if options.viewer.is_requested:
            return _show(again, options, stack)
        if options.html is not None:
            return _write_html(again, options.html)
        return _run(again, options, stack)


def _verify(again: Replay, as_json: bool) -> int:
    progress, end = ShareProgress(), again.end_tick
    if end:
        again.on_tick = lambda tick: progress.tell(tick / end)
    try:
        with compiling():
            verdict = again.verify()
    finally:
        progress.end()
    if as_json:
        print_json(verdict.to_dict())
    elif verdict.is_identical:
        tell(str(verdict))
    else:
        print(verdict)
    return GOOD if verdict.is_identical else FAILED


def _show(again: Replay, options: ReplayOptions, stack: ExitStack) -> int:
    """In the web viewer, until Ctrl-C."""
    from microsim.recording.replay import Seeker
    from microsim.runner import Runner
    from microsim.view.web import Recorded, Stage

    with interrupts_end_the_run() as interrupts:
        runner = interrupts.runner = Runner(again.sim, options.rtf or 1.0)
        timeline = Recorded(runner, Seeker(again, again.sim))
        options.viewer.show(runner, stack, Stage(), timeline, mode="replay", title=again.bag.path.name)
        if options.start is not None:
            timeline.seek(again.sim.clock.ticks_in(options.start))
        runner.run()
    return GOOD


def _write_html(again: Replay, path: Path) -> int:
    from microsim.recording.replay import Seeker
    from microsim.view.web.interface import need_extra

    need_extra("a page")
    from microsim.view.web.export import ExportFacts, write_html

    bag = again.bag
    ignored = f"{again.ignored} inputs ignored" if again.ignored else ""
    facts = ExportFacts(
        again.sim.scenario.name, again.sim.seed, bag.path.name, bag.facts.end.get("digest", ""), ignored
    )
    progress = ShareProgress()
    size = write_html(path, again.sim, Seeker(again, again.sim), facts, progress.tell)
    progress.end()
    print(f"{path}: {size / 1e6:.1f} MB, {again.sim.time_ns / 1e9:.1f} s")
    return GOOD


def _last_tick(again: Replay, options: ReplayOptions) -> int:
    """Where to stop. Beyond a recording's end it is unknown what would have been commanded."""
    clock = again.sim.clock
    last = again.last_tick()
    end_s = f"the recording ends at {clock.time_ns(last) / 1e9:.3f} s"
    end = last if options.at is None else clock.ticks_in(options.at)
    if options.start is not None:
        start = clock.ticks_in(options.start)
        if start > last:
            raise UsageError(f"{end_s}, and --from is after that")
        if start > end:
            raise UsageError("--from is after --at")
    if end > last:
        note(f"{end_s}: from there on nothing is commanded")
    return end


def _run(again: Replay, options: ReplayOptions, stack: ExitStack) -> int:
    from microsim.recording.replay import InputPilot

    clock, end = again.sim.clock, _last_tick(again, options)
    with interrupts_end_the_run() as interrupts:
        runner = interrupts.runner = _runner(again, options, stack)
        feed = runner.pilot = runner.pilot or InputPilot(again, runner.sim)
        assert isinstance(feed, InputPilot)
        recorder = _recorder(again, options, runner)
        if options.start is not None:
            latched = feed.skip_to(clock.ticks_in(options.start))
            runner.hand_out(latched if options.transport != "none" else ())  # subscribers may be there already
        _advance(runner, end, max(end - runner.sim.tick, 0))
    if not _is_recorded(recorder):
        return FAILED
    _save_state(runner.sim, options)
    return _say(again, runner.sim, again.bag, options.json)


def _runner(again: Replay, options: ReplayOptions, stack: ExitStack) -> Runner:
    from microsim.runner import Runner

    if options.transport == "none":
        return Runner(again.sim, options.rtf)
    from microsim.recording.replay import InputPilot
    from microsim.ros2.microsim_node import start_node
    from microsim.ros2.transport import Kind, open_transport

    kind: Kind = "dds" if options.transport == "dds" else "rclpy" if options.transport == "rclpy" else "auto"
    transport = open_transport(kind, "microsim", options.ros_args)
    stack.callback(transport.close)
    sim = again.sim
    return start_node(transport, sim.scenario, sim.seed, options.rtf, lambda sim: InputPilot(again, sim), False).runner


def _recorder(again: Replay, options: ReplayOptions, runner: Runner) -> Recorder | None:
    from microsim.recording.bag import OwnBag
    from microsim.recording.recorder import Recorder
    from microsim.recording.verify import recorded_options

    if options.record is None:
        return None
    if options.start is not None:
        raise UsageError("a recording begins at the start: leave out --from")
    same = recorded_options(again.bag) if isinstance(again.bag, OwnBag) else None
    recorder = Recorder(options.record, runner.sim, same)
    recorder.attach(runner)
    return recorder


def _say(again: Replay, sim: Simulation, bag: OwnBag | ForeignBag, as_json: bool) -> int:
    recorded = bag.facts.end.get("digest", "")
    is_other = bool(recorded) and sim.tick == again.end_tick and recorded != sim.digest()
    if as_json:
        facts = {"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "ignored": again.ignored, "digest": sim.digest()}
        print_json({**facts, "recorded_digest": recorded or None, "differs": is_other})
        return FAILED if is_other else GOOD
    ignored = f", {again.ignored} inputs ignored" if again.ignored else ""
    tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s{ignored}, digest {sim.digest()}")
    for reason, count in again.reasons.most_common(_REASONS):
        note(f"ignored {count} times: {reason}")
    if not again.taken and not bag.is_ours:
        note(f"nothing in this bag is an input; taken are: {', '.join(again.input_topics)}")
    if is_other:
        print(f"the recording's digest is {recorded}: --verify shows the first difference")
    return FAILED if is_other else GOOD


# ---- a run of a sweep ------------------------------------------------------------------------------------------------


def replay_token(token: str, mission: str | None, options: ReplayOptions) -> int:
    """Repeat the run of a token and print all its metrics. The exit code."""
    from microsim.sweep.tokens import from_token

    again = from_token(token, options.scenario, mission)
    if again.token.version != __version__:
        note(f"made by microsim {again.token.version}, replayed by {__version__}")
    code, values = _repeated(again, options)
    sim = again.sim
    if options.json:
        print_json({"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "digest": sim.digest(), "metrics": values})
        return code
    width = max(map(len, values))
    for name, value in values.items():
        tell(f"  {name:{width}}  {_shown(value)}")
    tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s, digest {sim.digest()}")
    return code


def _repeated(again: Replayable, options: ReplayOptions) -> tuple[int, dict[str, Value]]:
    from microsim.recording.recorder import Recorder
    from microsim.runner import Runner
    from microsim.sweep.run_one import ticks_of

    measured, sim = again.metric_run(), again.sim
    end = ticks_of(sim, measured.pilot, again.token.duration) if options.at is None else sim.clock.ticks_in(options.at)
    with interrupts_end_the_run() as interrupts:
        runner = interrupts.runner = Runner(sim, options.rtf, measured)
        recorder = None
        if options.record is not None:
            recorder = Recorder(options.record, sim)
            recorder.attach(runner)
        _advance(runner, end, end)
    is_recorded = _is_recorded(recorder)
    if recorder is not None and is_recorded:
        note(f"recorded into {recorder.folder}")
    _save_state(sim, options)
    return GOOD if is_recorded else FAILED, measured.values()


def _shown(value: Value) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


# ---- both ------------------------------------------------------------------------------------------------------------


def _advance(runner: Runner, end: int, ticks: int) -> None:
    progress = Progress(runner, end)
    runner.watchers.append(progress.watcher())
    runner.run(ticks)
    progress.end()


def _is_recorded(recorder: Recorder | None) -> bool:
    """Finish the recording, if there is one; False and the reason on stderr when it could not be written."""
    if recorder is None:
        return True
    recorder.close()
    if recorder.error:
        print(f"microsim: {recorder.error}", file=sys.stderr)
    return not recorder.error


def _save_state(sim: Simulation, options: ReplayOptions) -> None:
    if options.save_state is None:
        return
    import shlex

    from microsim.recording.state_file import save_state

    save_state(options.save_state, sim.snapshot())
    note(f"state of tick {sim.tick:,} in {options.save_state}")
    note(f"go on from there: microsim run --from-state {shlex.quote(str(options.save_state))}")
