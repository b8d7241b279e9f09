"""`microsim replay` and `microsim bag info`."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.cli.progress import LineProgress, Progress
from microsim.cli.quiet import note, tell
from microsim.cli.rehearsal import compiling
from microsim.cli.run import Interrupts
from microsim.cli.view import NO_VIEW, ViewWishes
from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.recording.bag import ForeignBag, OwnBag
    from microsim.recording.recorder import Recorder
    from microsim.recording.replay import Replay
    from microsim.runner import Runner
    from microsim.simulation import Simulation


_REASONS = 5  # why inputs were ignored, at most


@dataclass(frozen=True)
class Wishes:
    path: Path
    verify: bool
    rtf: float
    start: Fraction | None
    at: Fraction | None
    save_state: Path | None
    record: Path | None
    scenario: str | None
    seed: int | None
    plugins: list[Path] | None
    transport: str
    ros_args: tuple[str, ...] = ()
    view: ViewWishes = NO_VIEW
    html: Path | None = None
    json: bool = False
    world: str | None = None  # where the bundle is now


def replay(wishes: Wishes) -> int:
    """The exit code."""
    from microsim.recording.bag import open_bag
    from microsim.recording.replay import Replay
    from microsim.scenario import load_scenario

    _check(wishes)
    scenario = None if wishes.scenario is None else load_scenario(wishes.scenario)
    with ExitStack() as stack:
        again = stack.enter_context(Replay(open_bag(wishes.path), scenario, wishes.seed, wishes.plugins, wishes.world))
        for line in again.told:
            note(line)
        if wishes.verify:
            return _verify(again, wishes.json)
        if wishes.view.is_wanted:
            return _show(again, wishes, stack)
        if wishes.html is not None:
            return _write_html(again, wishes.html)
        return _run(again, wishes, stack)


def _verify(again: Replay, as_json: bool) -> int:
    progress, end = LineProgress(), again.end_tick
    if end:
        again.on_tick = lambda tick: progress.tell(tick / end)
    try:
        with compiling():
            verdict = again.verify()
    finally:
        progress.end()
    if as_json:
        print(json.dumps(verdict.to_dict(), ensure_ascii=False))
    elif verdict.is_identical:
        tell(str(verdict))
    else:
        print(verdict)
    return 0 if verdict.is_identical else 1


def _show(again: Replay, wishes: Wishes, stack: ExitStack) -> int:
    """On the page, until Ctrl-C."""
    from microsim.recording.seeking import Seeker
    from microsim.runner import Runner
    from microsim.view.web import Recorded, Stage

    with Interrupts() as interrupts:
        runner = interrupts.runner = Runner(again.sim, wishes.rtf or 1.0)
        timeline = Recorded(runner, Seeker(again, again.sim))
        wishes.view.show(runner, stack, Stage(), timeline, mode="replay", title=again.bag.path.name)
        if wishes.start is not None:
            timeline.seek(again.sim.clock.ticks_in(wishes.start))
        runner.run()
    return 0


def _write_html(again: Replay, path: Path) -> int:
    from microsim.recording.seeking import Seeker
    from microsim.view.web.interface import need_extra

    need_extra("a page")
    from microsim.view.web.export import ExportFacts, write_html

    bag = again.bag
    ignored = f"{again.ignored} inputs ignored" if again.ignored else ""
    facts = ExportFacts(again.sim.scenario.name, again.sim.seed, bag.path.name, bag.facts.end.get("digest", ""), ignored)
    progress = LineProgress()
    size = write_html(path, again.sim, Seeker(again, again.sim), facts, progress.tell)
    progress.end()
    print(f"{path}: {size / 1e6:.1f} MB, {again.sim.time_ns / 1e9:.1f} s")
    return 0


def _check(wishes: Wishes) -> None:
    if wishes.transport not in ("none", "auto", "dds", "rclpy"):
        raise UsageError(f"no transport {wishes.transport!r}; there are: none, auto, dds, rclpy")
    if wishes.ros_args and wishes.transport == "none":
        raise UsageError("--ros-args need a transport: add --transport auto")
    given = {
        "--from": wishes.start is not None,
        "--at": wishes.at is not None,
        "--save-state": wishes.save_state is not None,
        "--record": wishes.record is not None,
        "--html": wishes.html is not None,
        "--view": wishes.view.is_wanted,
        "--verify": wishes.verify,
        "--rtf": wishes.rtf != 0.0,
        "--transport": wishes.transport != "none",
        "--json": wishes.json,
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
    ("--json", "tells the outcome of a replay", ("--html", "--view")),
    ("--view", "shows the recording", ("--html", "--at", "--record", "--save-state", "--transport")),
    ("--html", "shows the whole recording", ("--from", "--at", "--record", "--save-state", "--rtf", "--transport")),
)


def _last_tick(again: Replay, wishes: Wishes) -> int:
    """Where to stop. Beyond a recording's end nobody knows what would have been commanded."""
    clock = again.sim.clock
    last = again.last_tick()
    end_s = f"the recording ends at {clock.time_ns(last) / 1e9:.3f} s"
    end = last if wishes.at is None else clock.ticks_in(wishes.at)
    if wishes.start is not None:
        start = clock.ticks_in(wishes.start)
        if start > last:
            raise UsageError(f"{end_s}, and --from is after that")
        if start > end:
            raise UsageError("--from is after --at")
    if end > last:
        note(f"{end_s}: from there on nothing is commanded")
    return end


def _run(again: Replay, wishes: Wishes, stack: ExitStack) -> int:
    from microsim.recording.feed import Feed

    clock, end = again.sim.clock, _last_tick(again, wishes)
    with Interrupts() as interrupts:
        runner = interrupts.runner = _runner(again, wishes, stack)
        feed = runner.pilot = runner.pilot or Feed(again, runner.sim)
        assert isinstance(feed, Feed)
        recorder = _recorder(again, wishes, runner)
        if wishes.start is not None:
            latched = feed.skip_to(clock.ticks_in(wishes.start))
            runner.hand_out(latched if wishes.transport != "none" else ())  # whom it is for may be there already
        progress = Progress(runner, end)
        runner.watchers.append(progress.watcher())
        runner.run(max(end - runner.sim.tick, 0))
        progress.end()
    if recorder is not None:
        recorder.close()
        if recorder.error:
            print(f"microsim: {recorder.error}", file=sys.stderr)
            return 1
    if wishes.save_state is not None:
        from microsim.recording.state_file import save_state

        save_state(wishes.save_state, runner.sim.snapshot())
        note(f"state of tick {runner.sim.tick:,} in {wishes.save_state}")
        note(f"go on from there: microsim run --from-state {shlex.quote(str(wishes.save_state))}")
    return _say(again, runner.sim, again.bag, wishes.json)


def _runner(again: Replay, wishes: Wishes, stack: ExitStack) -> Runner:
    from microsim.runner import Runner

    if wishes.transport == "none":
        return Runner(again.sim, wishes.rtf)
    from microsim.recording.feed import Feed
    from microsim.ros2.start import start_node
    from microsim.ros2.transport.choose import Kind, open_transport

    kind: Kind = "dds" if wishes.transport == "dds" else "rclpy" if wishes.transport == "rclpy" else "auto"
    transport = open_transport(kind, "microsim", wishes.ros_args)
    stack.callback(transport.close)
    sim = again.sim
    return start_node(transport, sim.scenario, sim.seed, wishes.rtf, lambda sim: Feed(again, sim), False).runner


def _recorder(again: Replay, wishes: Wishes, runner: Runner) -> Recorder | None:
    from microsim.recording.bag import OwnBag
    from microsim.recording.recorder import Recorder
    from microsim.recording.rerecording import recorded_options

    if wishes.record is None:
        return None
    if wishes.start is not None:
        raise UsageError("a recording begins at the start: leave out --from")
    options = recorded_options(again.bag) if isinstance(again.bag, OwnBag) else None
    recorder = Recorder(wishes.record, runner.sim, options)
    recorder.attach(runner)
    return recorder


def _say(again: Replay, sim: Simulation, bag: OwnBag | ForeignBag, as_json: bool) -> int:
    recorded = bag.facts.end.get("digest", "")
    is_other = bool(recorded) and sim.tick == again.end_tick and recorded != sim.digest()
    if as_json:
        facts = {"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "ignored": again.ignored, "digest": sim.digest()}
        print(json.dumps({**facts, "recorded_digest": recorded or None, "differs": is_other}))
        return 1 if is_other else 0
    ignored = f", {again.ignored} inputs ignored" if again.ignored else ""
    tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s{ignored}, digest {sim.digest()}")
    for reason, count in again.reasons.most_common(_REASONS):
        note(f"ignored {count} times: {reason}")
    if not again.taken and not bag.is_ours:
        note(f"nothing in this bag is an input; taken are: {', '.join(again.input_topics)}")
    if is_other:
        print(f"recorded was the digest {recorded}: --verify shows the first difference")
    return 1 if is_other else 0


def info(path: Path, as_json: bool) -> int:
    """0 when the bag is whole, 1 otherwise."""
    from microsim.recording.info import look

    found = look(path)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
        return 1 if found.problem else 0
    facts = found.facts
    print(f"{found.path}  {found.bytes / 1e6:,.1f} MB, {found.duration_s:,.3f} s, {found.messages:,} messages")
    if "seed" in facts:
        made_by = f"  made by     microsim {facts.get('version')}, seed {facts['seed']}"
        print(made_by, f"  ticks       {facts.get('ticks', 'unknown')}", sep="\n")
        print(f"  digest      {facts.get('digest') or 'unknown'}")
        if facts.get("complete") != "true":
            print(f"  cut off     {facts.get('reason', 'not finished')}")
    width = max(map(len, found.topics), default=0)
    for topic, traffic in found.topics.items():
        rate = f"{traffic.rate_hz:8.2f} Hz" if traffic.rate_hz else " " * 11
        print(f"  {topic:{width}}  {traffic.messages:>9,}  {rate}  {traffic.type}")
    if found.problem:
        print(f"damaged: {found.problem}")
    return 1 if found.problem else 0
