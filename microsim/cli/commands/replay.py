"""`microsim replay`: a recording, or a run of a sweep, once more."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer
from typing_extensions import TypedDict

from microsim.cli import terminal
from microsim.cli.command import (
    ROS_ARGS,
    Command,
    PluginsOption,
    QuietOption,
    argument,
    flag,
    given,
    option,
    simulated_time,
)
from microsim.cli.json_schemas import ComparisonOutput, Digest, SimulatedTime, Ticks
from microsim.cli.precompile import compiling
from microsim.cli.run_parts import ViewerOptions
from microsim.cli.terminal import FAILED, GOOD, note, print_json, tell, warn
from microsim.errors import UsageError
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.recording.bag_io import ForeignBag, OwnBag
    from microsim.recording.bag_replay import Replay
    from microsim.recording.recorder import Recorder
    from microsim.runner import Runner
    from microsim.simulation import Simulation
    from microsim.sweep.metrics import Value
    from microsim.sweep.run_one import Replayable

_REASONS = 5  # why inputs were ignored, at most


class ReplayOptions(NamedTuple):
    path: Annotated[Path | None, argument("BAG", "A recording: its folder, or one of its files.")] = None
    token: Annotated[
        str | None, option("--token TOKEN", "Instead of a bag: the token of a run, from the result of a sweep.")
    ] = None
    verify: Annotated[bool, flag("--verify", "Compare every message with the recording.")] = False
    rtf: Annotated[float, option("--rtf X", "Real-time factor; 0: as fast as possible.", min=0.0, max=100_000.0)] = 0.0
    start: Annotated[
        Fraction | None, option("--from TIME", "Publish messages from this time on.", parser=simulated_time)
    ] = None
    at: Annotated[
        Fraction | None, option("--at TIME", "Stop at this time.", parser=simulated_time, show_default="the end")
    ] = None
    save_state: Annotated[Path | None, option("--save-state FILE", "Save the state at the end to a file.")] = None
    record: Annotated[Path | None, option("--record FOLDER", "Record the replay, with the same options.")] = None
    scenario: Annotated[
        str | None,
        option(
            "--scenario S", "For bags of other programs: the scenario to run; for a token: where its scenario is now."
        ),
    ] = None
    mission: Annotated[str | None, option("--mission M", "For a token: where its mission is now.")] = None
    seed: Annotated[int | None, option("--seed N", "For bags of other programs: the seed.")] = None
    plugins: PluginsOption = None
    world: Annotated[str | None, option("--world BUNDLE", "Where the scenario's world bundle is now.")] = None
    transport: Annotated[str, option("--transport KIND", "auto, dds or rclpy: publish the messages on ROS 2 too.")] = (
        "none"
    )
    viewer: ViewerOptions = ViewerOptions()
    html: Annotated[
        Path | None, option("--html FILE", "Write the run as one HTML page with a time slider, for offline viewing.")
    ] = None
    json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False
    quiet: QuietOption = False

    def refuse_with_token(self) -> None:
        """A token determines the run."""
        unfit = [name for name in given(self) if name in _NOT_WITH_TOKEN]
        if unfit:
            raise UsageError(f"--token already determines the run: leave out {', '.join(unfit)}")

    def check(self) -> None:
        """Refuse options that do not go together."""
        if self.transport not in ("none", "auto", "dds", "rclpy"):
            raise UsageError(f"no transport {self.transport!r}; there are: none, auto, dds, rclpy")
        if ROS_ARGS and self.transport == "none":
            raise UsageError("--ros-args need a transport: add --transport auto")
        found = [*given(self._replace(viewer=ViewerOptions())), *(["--view"] if self.viewer.is_requested else [])]
        for name, why, others in _ALONE:
            unfit = [other for other in others if other in found]
            if name in found and unfit:
                raise UsageError(f"{name} {why}: leave out {', '.join(unfit)}")


_NOT_WITH_TOKEN = ("BAG", "--verify", "--from", "--seed", "--plugins", "--world", "--transport")
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


def replay(options: ReplayOptions) -> int:
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
    if options.token is not None:
        options.refuse_with_token()
        return replay_token(options.token, options)
    if options.path is None:
        raise typer.BadParameter("name a recording, or give --token.", param_hint="BAG")
    if options.mission is not None:
        raise typer.BadParameter("a recording has its own mission.", param_hint="--mission")
    return replay_bag(options.path, options)


class ReplayOutput(TypedDict):
    ticks: Ticks
    sim_s: SimulatedTime
    ignored: Annotated[int, "Inputs that the simulation did not take."]
    digest: Digest
    recorded_digest: Annotated[str | None, "null: the recording has none."]
    differs: Annotated[bool, "Whether the digests differ."]


class VerifyOutput(ComparisonOutput):
    """With --verify."""

    ticks: Ticks
    digest: Digest
    is_cut: Annotated[bool, "Whether the recording was cut off, and compared up to there."]


class TokenOutput(TypedDict):
    """With --token."""

    ticks: Ticks
    sim_s: SimulatedTime
    digest: Digest
    metrics: Annotated[dict[str, Any], "All metrics of the run."]


COMMAND = Command(replay, panel="Recordings", position=210, json=VerifyOutput | ReplayOutput | TokenOutput)


# ---- a recording -----------------------------------------------------------------------------------------------------


def replay_bag(path: Path, options: ReplayOptions) -> int:
    """The exit code."""
    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_replay import Replay
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
    progress, end = terminal.ShareProgress(), again.end_tick
    if end:
        again.on_tick = lambda tick: progress.tell(tick / end)
    try:
        with compiling():
            verdict = again.verify()
    finally:
        progress.end()
    return terminal.say_comparison(verdict, as_json)


def _show(again: Replay, options: ReplayOptions, stack: ExitStack) -> int:
    """In the web viewer, until Ctrl-C."""
    from microsim.recording.bag_replay import Seeker
    from microsim.runner import Runner
    from microsim.view.web import Recorded, Stage

    with terminal.interrupts_end_the_run() as interrupts:
        runner = interrupts.runner = Runner(again.sim, options.rtf or 1.0)
        timeline = Recorded(runner, Seeker(again, again.sim))
        timeline.wait_for_page()
        options.viewer.show(runner, stack, Stage(), timeline, mode="replay", title=again.bag.path.name)
        if options.start is not None:
            timeline.seek(again.sim.clock.ticks_in(options.start))
        runner.run()
    return GOOD


def _write_html(again: Replay, path: Path) -> int:
    from microsim.artefacts import write_page

    progress = terminal.ShareProgress()
    size = write_page(again, path, progress.tell)
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
        note(f"{end_s}: after that, robots get no commands")
    return end


def _run(again: Replay, options: ReplayOptions, stack: ExitStack) -> int:
    from microsim.recording.bag_replay import InputPilot

    clock, end = again.sim.clock, _last_tick(again, options)
    with terminal.interrupts_end_the_run() as interrupts:
        runner = interrupts.runner = _runner(again, options, stack)
        runner.steer(lambda sim: InputPilot(again, sim))
        feed = runner.pilots[-1]
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
    from microsim.ros2.microsim_node import start_node
    from microsim.ros2.transport import Kind, open_transport

    transport = open_transport(cast("Kind", options.transport), "microsim", ROS_ARGS)
    stack.callback(transport.close)
    sim = again.sim
    return start_node(transport, sim.scenario, sim.seed, options.rtf, takes_inputs=False).runner


def _recorder(again: Replay, options: ReplayOptions, runner: Runner) -> Recorder | None:
    from microsim.recording.bag_io import OwnBag
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
        note(f"this bag has no input for the run; its input topics are: {', '.join(again.input_topics)}")
    if is_other:
        print(f"the recording's digest is {recorded}: --verify shows the first difference")
    return FAILED if is_other else GOOD


# ---- a run of a sweep ------------------------------------------------------------------------------------------------


def replay_token(token: str, options: ReplayOptions) -> int:
    """Repeat the run of a token and print all its metrics. The exit code."""
    from microsim.sweep.run_one import from_token

    again = from_token(token, options.scenario, options.mission)
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
    with terminal.interrupts_end_the_run() as interrupts:
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
    with terminal.RunProgress(runner, end).shown():
        runner.run(ticks)


def _is_recorded(recorder: Recorder | None) -> bool:
    """Finish the recording, if there is one; False and the reason on stderr when it could not be written."""
    if recorder is None:
        return True
    recorder.close()
    if recorder.error:
        warn(recorder.error)
    return not recorder.error


def _save_state(sim: Simulation, options: ReplayOptions) -> None:
    if options.save_state is None:
        return
    import shlex

    from microsim.recording.state_file import save_state

    save_state(options.save_state, sim.snapshot())
    note(f"state of tick {sim.tick:,} in {options.save_state}")
    note(f"resume from there: microsim run --from-state {shlex.quote(str(options.save_state))}")
