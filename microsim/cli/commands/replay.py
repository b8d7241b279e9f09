"""`microsim replay`: a recording, or a run of a sweep, once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.attachment import Attachment, Plan, Run
from microsim.cli import terminal
from microsim.cli.command import Command, PluginsOption, QuietOption
from microsim.cli.json_schemas import ComparisonOutput, Digest, SimulatedTime, Ticks
from microsim.cli.precompile import compiling
from microsim.cli.runs import joined, plan_of, reported
from microsim.cli.terminal import ExitCode, note, print_json, tell
from microsim.errors import UsageError
from microsim.options import argument, flag, option, simulated_time

if TYPE_CHECKING:
    from microsim.recording.bag_io import ForeignBag, OwnBag
    from microsim.recording.bag_replay import Replay
    from microsim.simulation import Simulation

_REASONS = 5  # why inputs were ignored, at most


class ReplayOptions(NamedTuple):
    path: Annotated[Path | None, argument("BAG", "A recording: its folder, or one of its files.")] = None
    verify: Annotated[bool, flag("--verify", "Compare every message with the recording.")] = False
    rtf: Annotated[float, option("--rtf X", "Real-time factor; 0: as fast as possible.", min=0.0, max=100_000.0)] = 0.0
    start: Annotated[
        Fraction | None, option("--from TIME", "Publish messages from this time on.", parser=simulated_time)
    ] = None
    at: Annotated[
        Fraction | None, option("--at TIME", "Stop at this time.", parser=simulated_time, show_default="the end")
    ] = None
    save_state: Annotated[Path | None, option("--save-state FILE", "Save the state at the end to a file.")] = None
    scenario: Annotated[
        str | None,
        option(
            "--scenario S", "For bags of other programs: the scenario to run; for a token: where its scenario is now."
        ),
    ] = None
    seed: Annotated[int | None, option("--seed N", "For bags of other programs: the seed.")] = None
    plugins: PluginsOption = None
    world: Annotated[str | None, option("--world BUNDLE", "Where the scenario's world bundle is now.")] = None
    json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False
    quiet: QuietOption = False


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


def replay(options: ReplayOptions, attachments: Sequence[Attachment] = ()) -> int:
    """Run a recording again from its inputs, or the run of a token.

    Exit codes: 0 success, 1 the replay differs, 2 the input cannot be used.

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
      microsim replay drive --lockstep 'settle: {node: /slam}'    into your nodes
    """
    with ExitStack() as stack:
        plan = plan_of(
            "replay", options, attachments, options.json, rtf=options.rtf, bag=options.path, takes_inputs=False,
            stack=stack,
        )  # fmt: skip
        _check(plan)
        for each in attachments:
            code = each.instead(plan, options)
            if code is not None:
                return code
        with opened(options) as again:
            if options.verify:
                return _verify(again, options.json)
            return _run(again, options, plan)


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


COMMAND = Command(replay, panel="Recordings", position=310, is_joined=True, json=VerifyOutput | ReplayOutput)


# ---- a recording -----------------------------------------------------------------------------------------------------


@contextmanager
def opened(options: ReplayOptions) -> Iterator[Replay]:
    """The recording that the options name, with its notes."""
    from microsim.recording.bag_io import open_bag
    from microsim.recording.bag_replay import Replay
    from microsim.scenario import load_scenario

    if options.path is None:
        raise typer.BadParameter("name a recording, or give --token.", param_hint="BAG")
    scenario = None if options.scenario is None else load_scenario(options.scenario)
    with Replay(open_bag(options.path), scenario, options.seed, options.plugins or (), options.world) as again:
        for line in again.notes:
            note(line)
        yield again


def _check(plan: Plan) -> None:
    """Refuse options that do not go together."""
    for name, why, others in _ALONE:
        unfit = [other for other in others if other in plan.given]
        if name in plan.given and unfit:
            raise UsageError(f"{name} {why}: leave out {', '.join(unfit)}")


def _verify(again: Replay, as_json: bool) -> int:
    progress, end = terminal.ShareProgress(), again.end_tick
    if end:
        again.on_tick = lambda tick: progress.tell(tick / end)
    try:
        with compiling():
            verdict = again.verify()
    finally:
        progress.end()
    return terminal.print_comparison(verdict, as_json)


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


def _run(again: Replay, options: ReplayOptions, plan: Plan) -> int:
    """To its end; what moves in time runs until Ctrl-C."""
    from microsim.recording.bag_replay import InputPilot

    clock = again.sim.clock
    with terminal.interrupts_end_the_run() as interrupts:
        run = _prepared(again, options, plan)
        interrupts.runner = run.runner
        if plan.moves_in_time:
            with joined(run):
                run.runner.run()
            return ExitCode.GOOD
        end = _last_tick(again, options)
        with joined(run):
            if options.start is not None:
                feed = run.runner.pilots[0]
                assert isinstance(feed, InputPilot)
                run.runner.publish(feed.skip_to(clock.ticks_in(options.start)))  # subscribers may be there already
            with terminal.RunProgress(run.runner, end).shown():
                run.runner.run(max(end - run.sim.tick, 0))
    if run.is_failed:
        return ExitCode.FAILED
    save_state_of(run.sim, options)
    return ExitCode.FAILED if _say(again, run, again.bag) or reported(run) else ExitCode.GOOD


def _prepared(again: Replay, options: ReplayOptions, plan: Plan) -> Run:
    from microsim.recording.bag_replay import InputPilot, ReplayTimeline
    from microsim.runner import Runner
    from microsim.simulation import Simulation

    sim = again.sim
    plan.scenario, plan.seed = sim.scenario, sim.seed
    plan.first_tick = 0 if options.start is None else sim.clock.ticks_in(options.start)
    for each in plan.attachments:
        each.prepare(plan)
    if plan.scenario != sim.scenario:  # parameters were set
        sim = Simulation(plan.scenario, plan.seed)
    rtf = options.rtf or 1.0 if plan.moves_in_time else options.rtf
    run = Run(Runner(sim, rtf), plan, title=again.bag.path.name, logs_warnings=False)
    if plan.moves_in_time:
        run.timeline = ReplayTimeline(again, sim)
    else:
        run.runner.steer(lambda sim: InputPilot(again, sim))
    return run


def _say(again: Replay, run: Run, bag: OwnBag | ForeignBag) -> bool:
    """Whether it differs from what was recorded."""
    sim = run.sim
    recorded = bag.run_info.end.get("digest", "")
    is_other = bool(recorded) and sim.tick == again.end_tick and recorded != sim.digest()
    if run.console.is_json:
        result = {"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "ignored": again.ignored, "digest": sim.digest()}
        print_json({**result, "recorded_digest": recorded or None, "differs": is_other, **run.results})
        return is_other
    ignored = f", {again.ignored} inputs ignored" if again.ignored else ""
    tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s{ignored}, digest {sim.digest()}")
    for line in run.lines:
        tell(line)
    for reason, count in again.reasons.most_common(_REASONS):
        note(f"ignored {count} times: {reason}")
    if not again.taken and not bag.is_ours:
        note(f"this bag has no input for the run; its input topics are: {', '.join(again.input_topics)}")
    if is_other:
        print(f"the recording's digest is {recorded}: --verify shows the first difference")
    return is_other


def save_state_of(sim: Simulation, options: ReplayOptions) -> None:
    if options.save_state is None:
        return
    import shlex

    from microsim.recording.state_file import save_state

    save_state(options.save_state, sim.snapshot())
    note(f"state of tick {sim.tick:,} in {options.save_state}")
    note(f"resume from there: microsim run --from-state {shlex.quote(str(options.save_state))}")
