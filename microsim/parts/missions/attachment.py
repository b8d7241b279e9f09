"""Who drives the robots: a mission, or the simple pilot of `--autopilot`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from typing_extensions import NotRequired, TypedDict

from microsim.attachment import Attachment, Hint, NoOptions, Plan, Run, shell_command
from microsim.errors import MissionError, UsageError
from microsim.options import flag, given, option
from microsim.parts.missions.ci_reports import CiCase, ReportOptions

if TYPE_CHECKING:
    from microsim.parts.missions.mission_file import Mission
    from microsim.parts.missions.pilot import MissionPilot
    from microsim.runner import Pilot, Runner
    from microsim.simulation import Simulation

_MISSION = (
    "Run a mission: a shipped one (see `microsim list`) or a file. It ends the run; the run fails if one of the "
    "mission's expectations is not met."
)
_NEEDS_START = (
    "a mission begins at time 0, and its pilot's plans are not part of a state: leave out --mission, or run it "
    "from the start"
)
_PAUSE_POLL_S = 0.02


class MissionOptions(NamedTuple):
    mission: Annotated[str | None, option("--mission FILE", _MISSION)] = None
    report: ReportOptions = ReportOptions()


class MissionOutput(TypedDict):
    name: str
    expectations: Annotated[int, "How many the mission has."]
    violations: Annotated[list[str], "A sentence for everything that was not as expected."]
    undecided: Annotated[int, "Expectations that could not be judged, because the run ended too soon."]


class MissionResult(TypedDict):
    mission: NotRequired[Annotated[MissionOutput, "With --mission: its result."]]


class MissionAttachment(Attachment):
    """The mission of a run; scenario, seed, duration and gates are the mission's unless others were given."""

    name, options, commands, position = "mission", MissionOptions, ("run",), 10
    json: ClassVar[Any] = {"run": MissionResult, "demo": MissionResult}  # demo has the output of run
    mission: Mission

    def prepare(self, plan: Plan) -> None:
        report = self.given.report
        if self.given.mission is None:
            raise UsageError(f"{given(report)[0]} reports on a mission: add --mission FILE")
        if "--from-state" in plan.given:
            raise UsageError(_NEEDS_START)
        report.check()
        if "--autopilot" in plan.given:
            raise UsageError("--mission and --autopilot both steer the robots; leave one of them out")
        from microsim.parts.missions.mission_file import load_mission

        mission = self.mission = load_mission(self.given.mission)
        plan.scenario = mission.scenario if plan.scenario is None else plan.scenario
        plan.seed = mission.seed if plan.seed is None else plan.seed
        plan.duration = mission.duration if plan.duration is None else plan.duration
        if mission.lockstep and "--lockstep" not in plan.given:
            plan.use_gates(mission.lockstep)

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        mission_run = MissionRun(self.mission, run)
        run.title = self.mission.name
        yield
        if not run.error:
            self._judge(mission_run, run)

    @contextmanager
    def rehearse(self, run: Run) -> Iterator[None]:
        MissionRun(self.mission, run)
        yield

    def _judge(self, mission_run: MissionRun, run: Run) -> None:
        verdict = run.results["mission"] = mission_run.verdict()
        mission_run.write_report(self.given.report, round(run.runner.lap_wall_s, 6))
        run.lines.append(verdict_line(verdict))
        run.failures += verdict["violations"]


class MissionRun:
    """A mission in a run. A pause of it is wall time."""

    def __init__(self, mission: Mission, run: Run) -> None:
        from microsim.runner import Watcher

        self.mission, self.run = mission, run
        self._resume_at: float | None = None  # wall time at which a pause ends
        self._has_begun = False
        run.runner.steer(self._pilot)
        self._has_begun = True
        run.runner.watchers.append(Watcher(_PAUSE_POLL_S, self._look))

    @property
    def runner(self) -> Runner:
        return self.run.runner

    def _pilot(self, sim: Simulation) -> MissionPilot | None:
        """None if another world, loaded during the run, cannot run it; at the start that is an error."""
        from microsim.parts.missions.pilot import MissionPilot

        try:
            pilot = MissionPilot(sim, self.mission)
        except MissionError as error:
            if not self._has_begun:
                raise
            self.run.console.warn(f"the mission cannot be run in this scenario: {error}")
            return None
        pilot.on_pause = self._pause
        return pilot

    def _pause(self, seconds: float) -> None:
        runner = self.runner
        # no pause as fast as possible; a run that the user has paused is resumed by the user
        if runner.rtf and not runner.paused:
            self._resume_at = runner.clock.now() + seconds
            runner.pause(True)

    def _look(self) -> None:
        if self._resume_at is not None and self.runner.clock.now() >= self._resume_at:
            self._resume_at = None
            self.runner.pause(False)

    def verdict(self) -> dict[str, Any]:
        """For the result of the run."""
        pilot = self._latest_pilot()
        found = {"name": self.mission.name, "expectations": len(self.mission.expect)}
        if pilot is None:
            return {**found, "violations": [], "undecided": len(self.mission.expect)}
        return {**found, "violations": pilot.violations(), "undecided": pilot.undecided()}

    def write_report(self, report: ReportOptions, seconds: float) -> None:
        pilot, sim = self._latest_pilot(), self.run.sim
        group, open_ = f"{self.mission.name} in {sim.scenario.name}, seed {sim.seed}", "the run ended too soon"
        cases = [
            CiCase(group, each.name, each.problem, open_ if each.is_open else "")
            for each in (pilot.verdicts() if pilot is not None else ())
        ]
        report.write(
            f"microsim run --mission {self.mission.name}", cases or [CiCase(group, "reaches its end")], seconds
        )

    def _latest_pilot(self) -> MissionPilot | None:
        from microsim.parts.missions.pilot import MissionPilot

        return next((pilot for pilot in self.runner.pilots if isinstance(pilot, MissionPilot)), None)


def verdict_line(verdict: dict[str, Any]) -> str:
    """For the summary."""
    met = verdict["expectations"] - verdict["undecided"]
    if verdict["violations"]:
        return f"  mission     {verdict['name']}: FAILED"
    rest = f", {verdict['undecided']} not judged: the run ended too soon" if verdict["undecided"] else ""
    return f"  mission     {verdict['name']}: {met} of {verdict['expectations']} expectations met{rest}"


# ---- --autopilot -----------------------------------------------------------------------------------------------------

PilotOption = Annotated[
    bool, flag("--autopilot", "Let a simple pilot fly the drone and drive the rover.", former=("--demo",))
]


class PilotOptions(NamedTuple):
    autopilot: PilotOption = False


class SimplePilot(Attachment):
    """The pilot of `--autopilot`; in a demo it moves the robots of scenarios and worlds that the page loads."""

    name, position = "pilot", 11
    options: ClassVar[Any] = {"run": PilotOptions, "demo": NoOptions}

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        self._steer(run)
        if run.plan.command == "demo":
            yield
            return
        in_checkout = Path("Makefile").is_file() and Path("microsim", "cli").is_dir()
        browser = "make demo" if in_checkout else shell_command("demo", "oval", "--open")
        run.hints.append(Hint("watch and drive in the browser", browser))
        yield
        if "--record" not in run.plan.given:
            folder = next(name for number in count(1) if not Path(name := f"flight{number}").exists())
            again = (*run.plan.again, "--autopilot", "--rtf", "0", "--duration", "60", "--record", folder)
            run.hints.append(Hint("record a minute, as fast as possible", shell_command(*again)))
        run.hints.append(Hint("list other worlds, missions and robots", shell_command("list")))

    @contextmanager
    def rehearse(self, run: Run) -> Iterator[None]:
        self._steer(run)
        yield

    def _steer(self, run: Run) -> None:
        from microsim.parts.missions.demo_pilot import DemoPilot

        def pilot(sim: Simulation) -> Pilot | None:
            return None if run.chosen.pilot is not None else DemoPilot(sim)  # a demo has its own

        run.runner.steer(pilot)


ATTACHMENT = (MissionAttachment, SimplePilot)
