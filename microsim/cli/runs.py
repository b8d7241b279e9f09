"""A run from the command line: attachments prepare what runs, join it, and it runs to its end and is reported.

`carry_out` is all of `microsim run` and `microsim demo` but their options; `microsim replay` uses `joined` and `ran`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from microsim.attachment import Attachment, Plan, Run
from microsim.cli import terminal
from microsim.cli.command import ROS_ARGS
from microsim.cli.precompile import compiling, precompile_scenario
from microsim.cli.terminal import ExitCode, print_json, tell, warn
from microsim.errors import MicroSimError
from microsim.options import given
from microsim.shipped import Chosen
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.engine.radio import Link
    from microsim.runner import Runner
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation

_SHOWN_LINKS = 10  # of the radio, in the summary
_LONGEST_REHEARSAL = 600  # ticks


class TerminalConsole:
    """The user's terminal."""

    note, warn, tell = staticmethod(terminal.note), staticmethod(terminal.warn), staticmethod(terminal.tell)

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json

    @property
    def is_quiet(self) -> bool:
        return terminal.is_quiet()

    @property
    def is_terminal(self) -> bool:
        return terminal.can_rewrite(sys.stdout)


def plan_of(command: str, options: Any, attachments: Sequence[Attachment], is_json: bool, **known: Any) -> Plan:
    """What the user asks for."""
    names = [name for names in [given(options), *(each.given_names for each in attachments)] for name in names]
    return Plan(
        command, given=tuple(names), ros_args=tuple(ROS_ARGS), attachments=attachments,
        console=TerminalConsole(is_json), **known,
    )  # fmt: skip


def carry_out(plan: Plan, chosen: Chosen, prints_digest: bool = False) -> int:
    """The exit code."""
    with terminal.interrupts_end_the_run() as interrupts:
        runs: list[Run] = []
        try:
            with plan.stack:
                return _carried_out(plan, chosen, interrupts, runs, prints_digest)
        except KeyboardInterrupt:
            return _stopped_at_once(interrupts, runs)


def _carried_out(
    plan: Plan, chosen: Chosen, interrupts: terminal.Interrupts, runs: list[Run], prints_digest: bool
) -> int:
    from microsim.runner import Runner
    from microsim.scenario import load_scenario
    from microsim.simulation import Simulation

    with compiling():
        for each in plan.attachments:
            each.prepare(plan)
        scenario = load_scenario(plan.scenario or "default")
        _precompile(scenario, plan, chosen)
        sim = Simulation(scenario, plan.seed)
        run = Run(Runner(sim, 1.0 if plan.rtf is None else plan.rtf), plan, chosen)
        _steer(run)
    runs.append(run)
    interrupts.runner = run.runner
    with failing(run):
        with joined(run):
            ran(run)
        if not run.error:
            _report(run, prints_digest)
    return ExitCode.FAILED if run.is_failed else ExitCode.GOOD


@contextmanager
def joined(run: Run) -> Iterator[None]:
    """With everything attached, in order."""
    with ExitStack() as stack:
        for each in run.plan.attachments:
            stack.enter_context(each.attach(run))
        if run.logs_warnings:
            run.runner.listen(warnings=lambda text: warn(f"{run.runner.sim_s:.3f} s: {text}"))
        for begin in run.begin:
            begin()
        run.has_begun = True
        yield


def ran(run: Run, ticks: int | None = None) -> None:
    """To its end, with lines of progress where nothing else shows it. What ends it too soon is reported."""
    ticks = run.ticks if ticks is None else ticks
    with failing(run), _progress(run, None if ticks is None else run.sim.tick + ticks):
        run.runner.run(ticks)


@contextmanager
def failing(run: Run) -> Iterator[None]:
    """An error after the start is a failed run, and not a wrong input."""
    try:
        yield
    except (MicroSimError, MemoryError) as error:
        if not run.has_begun:
            raise
        run.error, run.is_failed = str(error), True
        warn(f"the run failed at tick {run.sim.tick}: {str(error) or 'out of memory'}")


@contextmanager
def _progress(run: Run, end: int | None) -> Iterator[None]:
    if run.display == "terminal" or run.ticks == 0:
        yield
        return
    with terminal.RunProgress(run.runner, end).shown():
        yield


def _steer(run: Run) -> None:
    """What is chosen may have a pilot of its own."""
    run.runner.steer(lambda sim: None if run.chosen.pilot is None else run.chosen.pilot(sim))


def _precompile(scenario: Scenario, plan: Plan, chosen: Chosen) -> None:
    """Compile what the first second needs, so that it is not part of the run."""
    from microsim.simulation import Simulation

    def rehearse() -> None:
        with suppress(MicroSimError):  # an error will come again, in the run itself
            rehearsal(Simulation(scenario, plan.seed), plan.attachments, chosen)

    if plan.duration != 0.0:
        names = "".join(f"{each.rehearsal} " for each in plan.attachments if each.rehearsal)
        precompile_scenario(scenario, rehearse, names)


def rehearsal(sim: Simulation, attachments: Sequence[Attachment], chosen: Chosen) -> None:
    """The first second, as fast as possible, seen by no user."""
    from microsim.runner import Runner

    run = Run(Runner(sim, 0.0), Plan("rehearsal", attachments=attachments), chosen)
    _steer(run)
    with ExitStack() as stack:
        for each in attachments:
            stack.enter_context(each.rehearse(run))
        run.runner.run(min(sim.clock.ticks_in(Fraction(1)), _LONGEST_REHEARSAL))


def _stopped_at_once(interrupts: terminal.Interrupts, runs: Sequence[Run]) -> int:
    if interrupts.runner is None:
        print("\nmicrosim: stopped before the first tick", file=sys.stderr)
        return ExitCode.GOOD
    print("\nmicrosim: stopped at once, in the middle of a tick", file=sys.stderr)
    for run in runs:
        for text in run.unfinished:
            warn(text)
    return ExitCode.FAILED


# ---- its result ------------------------------------------------------------------------------------------------------


def result(runner: Runner) -> dict[str, Any]:
    sim = runner.sim
    return {
        "scenario": sim.scenario.name, "seed": sim.seed, "version": __version__, "ticks": sim.tick,
        "sim_s": sim.time_ns / 1e9, "wall_s": round(runner.lap_wall_s, 6), "rtf": round(runner.achieved_rtf, 4),
        "messages": runner.lap_messages, "digest": sim.digest(), "ignored": dict(sim.counters),
        "radio": [_link_figures(link, 1000.0 * sim.clock.dt) for link in (sim.radio.links if sim.radio else ())],
    }  # fmt: skip


def _link_figures(link: Link, tick_ms: float) -> dict[str, Any]:
    counts = {name: getattr(link, name) for name in ("sent", "delivered", "dropped", "overflowed")}
    latency = round(tick_ms * link.latency_sum / link.delivered, 3) if link.delivered else 0.0
    names = {"from": link.sender, "to": link.receiver}
    return {**names, **counts, "queued": len(link.queue), "latency_ms_mean": latency}


def _report(run: Run, prints_digest: bool) -> None:
    figures = result(run.runner)
    if run.console.is_json:
        print_json({**figures, **run.results})
    else:
        tell("\n".join([summary(figures), *run.lines]))
        if run.hints:
            tell("\n".join(["", "What next?", *(f"  # {each.what}\n  {each.command}" for each in run.hints)]))
        if prints_digest:
            print(figures["digest"])
    reported(run)


def reported(run: Run) -> bool:
    """Whether the run failed; why it did although it came to its end is said now."""
    for text in run.failures:
        warn(text)
    run.is_failed = run.is_failed or bool(run.failures)
    return run.is_failed


def summary(figures: dict[str, Any]) -> str:
    """The run in a few lines."""
    pace = f"{figures['rtf']:.2f} × real time" if figures["ticks"] else "tick 0 only"
    lines = [
        f"{figures['scenario']}, seed {figures['seed']}",
        f"  simulated   {figures['sim_s']:.3f} s, {figures['ticks']:,} ticks, {figures['messages']:,} messages",
        f"  wall time   {figures['wall_s']:.3f} s, {pace}",
    ]
    lines += _radio_lines([link for link in figures["radio"] if link["sent"]])
    lines += [f"  ignored     {count} {reason}" for reason, count in figures["ignored"].items()]
    return "\n".join(lines)


def _radio_lines(links: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"  radio       {link['from']} → {link['to']}: {link['sent']} sent, {link['delivered']} delivered, "
        f"{link['dropped'] + link['overflowed']} lost, {link['latency_ms_mean']:.0f} ms on average"
        for link in links[:_SHOWN_LINKS]
    ]
    hidden = len(links) - _SHOWN_LINKS
    return lines if hidden <= 0 else [*lines, f"  radio       … and {hidden} more links: --json lists all of them"]
