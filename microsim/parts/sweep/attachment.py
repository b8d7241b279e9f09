"""`microsim replay --token`: a run of a sweep, again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from typing_extensions import TypedDict

from microsim.attachment import Attachment, Plan, Run
from microsim.cli import terminal
from microsim.cli.command import ControllerOption
from microsim.cli.json_schemas import Digest, SimulatedTime, Ticks
from microsim.cli.runs import joined, reported
from microsim.cli.terminal import ExitCode, note, print_json, tell
from microsim.errors import UsageError
from microsim.options import option
from microsim.version import __version__

if TYPE_CHECKING:
    from microsim.cli.commands.replay import ReplayOptions
    from microsim.parts.sweep.metrics import Value
    from microsim.parts.sweep.run_one import Replayable

_NOT_WITH_TOKEN = ("BAG", "--verify", "--from", "--seed", "--world", "--transport", "--view", "--html")


class TokenOptions(NamedTuple):
    token: Annotated[
        str | None, option("--token TOKEN", "Instead of a bag: the token of a run, from the result of a sweep.")
    ] = None
    mission: Annotated[str | None, option("--mission M", "For a token: where its mission is now.")] = None
    controller: ControllerOption = None


class TokenOutput(TypedDict):
    """With --token."""

    ticks: Ticks
    sim_s: SimulatedTime
    digest: Digest
    metrics: Annotated[dict[str, Any], "All metrics of the run."]


class TokenRun(Attachment):
    """The run of a token, in place of a recording's."""

    name, position = "token", 5
    options: ClassVar[Any] = {"replay": TokenOptions}
    json_instead: ClassVar[Any] = {"replay": TokenOutput}

    def instead(self, plan: Plan, options: ReplayOptions) -> int:
        """Repeat the run of a token and print all its metrics."""
        if self.given.token is None:
            raise UsageError(f"{self.given_names[0]} is for --token: a recording has its own")
        from microsim.parts.sweep.run_one import from_token

        unfit = [name for name in plan.given if name in _NOT_WITH_TOKEN]
        if unfit:
            raise UsageError(f"--token already determines the run: leave out {', '.join(unfit)}")
        again = from_token(self.given.token, options.scenario, self.given.mission, self.given.controller or ())
        if again.token.version != __version__:
            note(f"made by microsim {again.token.version}, replayed by {__version__}")
        run, values = _repeated(again, options, plan)
        sim = again.sim
        if options.json:
            result = {"ticks": sim.tick, "sim_s": sim.time_ns / 1e9, "digest": sim.digest(), "metrics": values}
            print_json({**result, **run.results})
            return ExitCode.FAILED if reported(run) else ExitCode.GOOD
        width = max(map(len, values))
        for name, value in values.items():
            tell(f"  {name:{width}}  {_shown(value)}")
        tell(f"replayed {sim.tick:,} ticks, {sim.time_ns / 1e9:.3f} s, digest {sim.digest()}")
        for line in run.lines:
            tell(line)
        return ExitCode.FAILED if reported(run) else ExitCode.GOOD


def _repeated(again: Replayable, options: ReplayOptions, plan: Plan) -> tuple[Run, dict[str, Value]]:
    from microsim.cli.commands.replay import save_state_of
    from microsim.parts.sweep.run_one import ticks_of
    from microsim.runner import Runner

    measured, sim = again.metric_run(), again.sim
    plan.scenario, plan.seed = sim.scenario, sim.seed
    for each in plan.attachments:
        each.prepare(plan)
    end = ticks_of(sim, measured.pilot, again.token.duration) if options.at is None else sim.clock.ticks_in(options.at)
    with terminal.interrupts_end_the_run() as interrupts, plan.stack:
        run = Run(Runner(sim, options.rtf, measured), plan, logs_warnings=False)
        interrupts.runner = run.runner
        with joined(run), terminal.RunProgress(run.runner, end).shown():
            run.runner.run(end)
    save_state_of(sim, options)
    return run, measured.values()


def _shown(value: Value) -> str:
    return "–" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


ATTACHMENT = TokenRun
