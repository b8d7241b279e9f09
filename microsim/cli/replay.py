"""`microsim replay` and `microsim bag info`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.cli.progress import LineProgress, Progress
from microsim.cli.run import Interrupts
from microsim.cli.view import NO_VIEW, ViewWishes
from microsim.errors import UsageError

if TYPE_CHECKING:
    from microsim.recording.bag import ForeignBag, OwnBag
    from microsim.recording.recorder import Recorder
    from microsim.recording.replay import Replay
    from microsim.runner import Runner
    from microsim.simulation import Simulation


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
    plugins: Path | None
    transport: str
    ros_args: tuple[str, ...] = ()
    view: ViewWishes = NO_VIEW
    html: Path | None = None


def replay(wishes: Wishes) -> int:
    """The exit code."""
    from microsim.recording.bag import open_bag
    from microsim.recording.replay import Replay
    from microsim.scenario import load_scenario

    _check(wishes)
    scenario = None if wishes.scenario is None else load_scenario(wishes.scenario)
    with ExitStack() as stack:
        again = stack.enter_context(Replay(open_bag(wishes.path), scenario, wishes.seed, wishes.plugins))
        for line in again.told:
            print(line, file=sys.stderr)
        if wishes.verify:
            verdict = again.verify()
            print(verdict)
            return 0 if verdict.is_identical else 1
        if wishes.view.is_wanted:
            return _show(again, wishes, stack)
        if wishes.html is not None:
            return _write_html(again, wishes.html)
        return _run(again, wishes, stack)


def _show(again: Replay, wishes: Wishes, stack: ExitStack) -> int:
    """On the page, until Ctrl-C."""
    from microsim.recording.seeking import Seeker
    from microsim.runner import Runner
    from microsim.viewer import Recorded, Stage

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
    from microsim.viewer.export import Facts, write_html

    bag = again.bag
    ignored = f"{again.ignored} inputs ignored" if again.ignored else ""
    facts = Facts(again.sim.scenario.name, again.sim.seed, bag.path.name, bag.facts.end.get("digest", ""), ignored)
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
    others = (wishes.rtf, wishes.start, wishes.at, wishes.save_state, wishes.record, wishes.html)
    if wishes.view.is_wanted and (wishes.html or wishes.at or wishes.record or wishes.save_state or wishes.verify):
        raise UsageError("--view shows the recording: leave out --html, --at, --record, --save-state and --verify")
    if (wishes.view.is_wanted or wishes.html) and wishes.transport != "none":
        raise UsageError("--view and --html do without ROS 2: leave out --transport")
    if wishes.verify and (any(others) or wishes.transport != "none"):
        raise UsageError("--verify looks at the whole recording, as fast as possible: leave out the other options")


def _run(again: Replay, wishes: Wishes, stack: ExitStack) -> int:
    from microsim.recording.feed import Feed

    clock = again.sim.clock
    end = again.last_tick() if wishes.at is None else clock.ticks_in(wishes.at)
    with Interrupts() as interrupts:
        runner = interrupts.runner = _runner(again, wishes, stack)
        feed = runner.pilot = runner.pilot or Feed(again, runner.sim)
        assert isinstance(feed, Feed)
        recorder = _recorder(again, wishes, runner)
        if wishes.start is not None:
            feed.skip_to(min(clock.ticks_in(wishes.start), end))
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
        print(f"state of tick {runner.sim.tick:,} in {wishes.save_state}", file=sys.stderr)
    return _say(again, runner.sim, again.bag)


def _runner(again: Replay, wishes: Wishes, stack: ExitStack) -> Runner:
    from microsim.runner import Runner

    if wishes.transport == "none":
        return Runner(again.sim, wishes.rtf)
    from microsim.node.start import start_node
    from microsim.recording.feed import Feed
    from microsim.transport.choose import Kind, open_transport

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


def _say(again: Replay, sim: Simulation, bag: OwnBag | ForeignBag) -> int:
    ignored = f", {again.ignored} inputs ignored" if again.ignored else ""
    print(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s{ignored}, digest {sim.digest()}")
    recorded = bag.facts.end.get("digest", "")
    if recorded and sim.tick == again.end_tick and recorded != sim.digest():
        print(f"recorded was the digest {recorded}: --verify shows the first difference")
        return 1
    return 0


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
    for topic, (kind, count) in found.topics.items():
        rate = f"{count / found.duration_s:8.2f} Hz" if found.duration_s and count > 1 else " " * 11
        print(f"  {topic:{width}}  {count:>9,}  {rate}  {kind}")
    if found.problem:
        print(f"damaged: {found.problem}")
    return 1 if found.problem else 0
