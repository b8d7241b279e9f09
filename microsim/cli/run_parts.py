"""What a run starts from, and what is attached to it: a recording, the web viewer, a mission."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from microsim.cli.ci_reports import CiCase, ReportOptions
from microsim.cli.command import flag, given, option, simulated_time, size
from microsim.cli.terminal import FAILED, GOOD, note, warn
from microsim.errors import MicroSimError, MissionError, UsageError, os_errors

if TYPE_CHECKING:
    from microsim.missions import Mission, MissionPilot
    from microsim.recording.recorder import Recorder
    from microsim.recording.state_file import History
    from microsim.ros2.transport import Transport
    from microsim.runner import Pilot, Runner
    from microsim.scenario import Scenario
    from microsim.simulation import Simulation
    from microsim.view.web import Stage, Timeline, Viewer

# ---- a scenario ------------------------------------------------------------------------------------------------------


def assembled(
    scenario: str | None, world: str | None, robots: str | None, faults: Sequence[str]
) -> Scenario | str | None:
    """The scenario as it is, or with another world, robots and faults."""
    if world is None and robots is None and not faults:
        return scenario
    from microsim.scenario import load_scenario

    if world is not None and scenario is not None:
        raise UsageError("give a scenario or --world, not both; a scenario can name its world: `world: PATH`")
    data: dict[str, Any] = {"world": world} if world is not None else load_scenario(scenario or "default").to_dict()
    if robots is not None:
        data["robots"] = _robots(robots, data.get("robots", {}))
    if faults:
        data["faults"] = [*data.get("faults", ()), *faults]
    return load_scenario(data)


def with_gates(scenario: Scenario | str | None, gates: Sequence[Any], ros_args: Sequence[str] = ()) -> Scenario:
    """The scenario with other gates of lockstep."""
    from microsim.scenario import load_scenario

    if scenario is None and any("scenario:=" in each for each in ros_args):
        raise UsageError("with --lockstep, give the scenario as an argument, not in --ros-args")
    plain = [gate if isinstance(gate, dict) else gate.model_dump(mode="json", exclude_unset=True) for gate in gates]
    return load_scenario({**load_scenario(scenario or "default").to_dict(), "lockstep": plain})


def _robots(text: str, known: dict[str, Any]) -> dict[str, Any]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise UsageError("expected names of robots after --robots, such as ego,drone")
    found: dict[str, Any] = {}
    for part in names:
        name, _, model = part.partition("=")
        if name in found:
            raise UsageError(f"--robots names {name!r} twice")
        found[name] = {"model": model} if model else known.get(name, {})
    return found


# ---- a saved state ---------------------------------------------------------------------------------------------------


def scenario_of_state(file: Path, stack: ExitStack, plugins: Sequence[Path]) -> tuple[Scenario, int]:
    """The scenario and seed of a saved state; files that the scenario needs exist until `stack` is closed."""
    import tempfile

    from microsim.recording.state_file import scenario_of

    if file.is_dir():
        hint = f"microsim replay {file} --at TIME --save-state FILE"
        raise UsageError(f"{file} is a folder; a state of a recording is made by `{hint}`")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="microsim-")))
    return scenario_of(file, folder, plugins)


def resume(file: Path, runner: Runner) -> None:
    """Put the run into a saved state. Listeners receive once what was latched since the start."""
    from microsim.recording.state_file import load_state

    sim = runner.sim
    latched = [message for message in sim.step(0) if sim.topics[message.topic][1].latched]
    load_state(file, sim)
    runner.listeners.message(latched)


# ---- a recording -----------------------------------------------------------------------------------------------------


class Storage(str, Enum):
    mcap = "mcap"
    sqlite3 = "sqlite3"


class Compression(str, Enum):
    none = "none"
    zstd = "zstd"


_PANEL = "Recording"
_HISTORY = "Keep a snapshot of every second for this long; written to FOLDER_states at the end."
RecordOption = Annotated[Path | None, option("--record FOLDER", "Record everything into a new rosbag2 folder.", _PANEL)]


class RecordingOptions(NamedTuple):
    """What to record of a run."""

    record: RecordOption = None
    storage: Annotated[Storage, option("--storage", "Storage format.", _PANEL)] = Storage.mcap
    compress: Annotated[Compression, option("--compress", "Compress the chunks of mcap files.", _PANEL)] = (
        Compression.none
    )
    topics: Annotated[
        list[str] | None, option("--topics GLOB", "Record only these, such as '/drone/*'; repeatable.", _PANEL)
    ] = None
    exclude: Annotated[list[str] | None, option("--exclude GLOB", "Do not record these; repeatable.", _PANEL)] = None
    split_size: Annotated[
        int | None, option("--split-size SIZE", "Start a new file at this size.", _PANEL, parser=size)
    ] = None
    split_time: Annotated[
        Fraction | None,
        option("--split-time TIME", "Start a new file after this much simulated time.", _PANEL, parser=simulated_time),
    ] = None
    history: Annotated[Fraction | None, option("--history TIME", _HISTORY, _PANEL, parser=simulated_time)] = None

    @property
    def states(self) -> Path:
        """Where snapshots go."""
        return Path("microsim_states") if self.record is None else self.record.with_name(f"{self.record.name}_states")

    def refuse_alone(self) -> None:
        """Options of a recording, without --record."""
        how = [name for name in given(self) if name not in ("--record", "--history")]
        if how:
            raise UsageError(f"{how[0]} is an option of recordings: add --record FOLDER")


def _check_room(folder: Path) -> None:
    """Creates the folder now, so that a run does not end without its states; those of two runs must not be mixed."""
    with os_errors(f"states cannot be written to {folder}"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} already exists, and --history would write into it: move it away")
        folder.mkdir(parents=True, exist_ok=True)


@dataclass
class Recordings:
    """What is being recorded of a run, if anything."""

    states: Path | None = None
    recorder: Recorder | None = None
    history: History | None = None

    def begin(self, options: RecordingOptions, runner: Runner) -> None:
        """Before the first tick is handed out. What is impossible is refused before anything is written."""
        if options.record is None:
            options.refuse_alone()
            if options.history is None:
                return
        from microsim.recording.bag_io import RecordOptions
        from microsim.recording.recorder import Recorder
        from microsim.recording.state_file import History

        self.states = options.states
        history = None
        if options.history is not None:
            history = History(float(options.history))
            _check_room(self.states)
        if options.record is not None:
            files = (options.storage.value, options.compress.value, tuple(options.topics or ()))
            splits = (options.split_size, options.split_time)
            what = RecordOptions(*files, tuple(options.exclude or ()), *splits)
            self.recorder = Recorder(options.record, runner.sim, what)
            self.recorder.attach(runner)
        if history is not None:
            self.history = history
            history.attach(runner)

    def finish(self, reported: str = "") -> int:
        """Write the rest and say so, unless it was reported already; the exit code."""
        code = GOOD
        if self.recorder is not None:
            self.recorder.close()
            if self.recorder.error:
                if self.recorder.error != reported:
                    warn(self.recorder.error)
                code = FAILED
            else:
                counts = f"{self.recorder.messages:,} messages, {self.recorder.inputs:,} inputs"
                note(f"recorded {counts} into {', '.join(map(str, self.recorder.folders))}")
        return self._save_states() or code

    def _save_states(self) -> int:
        if self.history is None or self.states is None:
            return GOOD
        try:
            states = self.history.save(self.states)
        except MicroSimError as error:
            warn(error)
            return FAILED
        note(f"{len(states)} states of the last {self.history.span_s:g} s in {self.states}")
        return GOOD

    def abandoned(self) -> str:
        """What to do about a recording that was not finished; empty: there is none."""
        if self.recorder is None:
            return ""
        from microsim.recording.bag_model import repairs

        return f"its recording is not finished: {repairs(self.recorder.folder)} does that"


# ---- the web viewer --------------------------------------------------------------------------------------------------

_HOST = "Serve the page on another address, such as 0.0.0.0; it then requires the token in the printed address."
_PORT = "First port to try; 0: any free port."
OpenOption = Annotated[bool, flag("--open", "Show it and open it in a browser.")]
HostOption = Annotated[str | None, option("--view-host HOST", _HOST, show_default="127.0.0.1")]
PortOption = Annotated[int | None, option("--view-port N", _PORT, min=0, max=65535, show_default="8080")]


class ViewerOptions(NamedTuple):
    """Any of them asks for the viewer."""

    view: Annotated[bool, flag("--view", "Show the run on a web page, served on this machine only.")] = False
    open: OpenOption = False
    view_host: HostOption = None
    view_port: PortOption = None

    @property
    def is_requested(self) -> bool:
        return self != ViewerOptions()

    def show(
        self, runner: Runner, stack: ExitStack, stage: Stage, timeline: Timeline | None = None, **scene: Any
    ) -> Viewer:
        """Serve the page until the stack unwinds, and print its address."""
        from microsim.view.web import PageOptions, Viewer

        if self.view_host == "":
            raise UsageError("--view-host needs an address, for example 0.0.0.0")
        options = PageOptions(self.view_host or "127.0.0.1", 8080 if self.view_port is None else self.view_port)
        viewer = stack.enter_context(Viewer(runner, options, stage, timeline, **scene))
        print(f"the page is at {viewer.address}", file=sys.stderr, flush=True)
        if self.open:
            import webbrowser

            webbrowser.open(viewer.address)
        return viewer


# ---- Foxglove --------------------------------------------------------------------------------------------------------

_FOXGLOVE = "Serve the run to Foxglove on this port of this machine, 8765 if none is given."
_FOXGLOVE_HOST = "Serve it on another address, such as 0.0.0.0: everyone who reaches it can drive."


class FoxgloveOptions(NamedTuple):
    foxglove: Annotated[int | None, option("--foxglove [PORT]", _FOXGLOVE, min=0, max=65535)] = None
    foxglove_host: Annotated[str | None, option("--foxglove-host HOST", _FOXGLOVE_HOST, show_default="127.0.0.1")] = (
        None
    )

    def joined(self, transport: Transport | None, ros_args: Sequence[str], stack: ExitStack) -> Transport | None:
        """The transport, with Foxglove if that is requested; `stack` closes it."""
        if transport is not None:
            stack.callback(transport.close)
        if self.foxglove is None:
            if self.foxglove_host is not None:
                raise UsageError("--foxglove-host needs --foxglove")
            return transport
        from microsim.foxglove import FoxgloveTransport, JoinedTransports

        host = self.foxglove_host or "127.0.0.1"
        quiet = [] if transport is None else ["--disable-stdout-logs"]
        arguments = ["--ros-args", *(each for each in ros_args if each != "--ros-args"), *quiet]
        live = FoxgloveTransport(host, self.foxglove, arguments)
        stack.callback(live.close)
        print(f"Foxglove: open a connection to ws://{host}:{live.server.port}", file=sys.stderr, flush=True)
        return live if transport is None else JoinedTransports(transport, live)


@dataclass
class Programme:
    """What runs: a demo with its own pilot, or a scenario or world. A page can choose another."""

    chosen: str = ""  # "kind:name"; "": what the command line names
    title: str = ""
    about: str = ""
    pilot: Callable[[Simulation], Pilot | None] | None = None  # None: as the options say
    has_default_pilot: bool = False  # scenarios and worlds chosen on a page are driven by the pilot of `--demo`

    @classmethod
    def of(cls, scenario: str | None, world: str | None, has_default_pilot: bool) -> Programme:
        """What `microsim run` names."""
        from microsim.paths import scenario_names, world_names

        name, kind, known = (
            (world, "world", world_names()) if world else (scenario or "default", "scenario", scenario_names())
        )
        about = _about(kind, name) if name in known else ""
        return cls(f"{kind}:{name}", "" if not about else name, about, has_default_pilot=has_default_pilot)

    def choose(self, choice: str) -> Scenario:
        """Another demo, scenario or world that is shipped."""
        from microsim import paths
        from microsim.cli.commands.demo import load_demo
        from microsim.missions.demo_pilot import DemoPilot
        from microsim.scenario import load_scenario

        kind, _, name = choice.partition(":")
        if name not in self.choices().get(kind, ()):
            raise UsageError(f"the page can load only shipped demos, scenarios and worlds, not {choice!r}")
        if kind == "demo":
            demo = load_demo(name)
            scenario, self.pilot, self.about = load_scenario(demo.scenario), demo.pilot, demo.about
        else:
            scenario = load_scenario({"world": name} if kind == "world" else paths.scenario_file(name))
            self.pilot, self.about = DemoPilot if self.has_default_pilot else None, _about(kind, name)
        self.chosen, self.title = choice, name
        return scenario

    @staticmethod
    def choices() -> dict[str, tuple[str, ...]]:
        from microsim.paths import demo_names, scenario_names, world_names

        return {"demo": tuple(demo_names()), "scenario": tuple(scenario_names()), "world": tuple(world_names())}

    def facts(self) -> dict[str, Any]:
        """For the page."""
        return {"choices": self.choices(), "chosen": self.chosen, "title": self.title, "about": self.about}


def _about(kind: str, name: str) -> str:
    from microsim.cli.commands.list import first_comment, world_about
    from microsim.paths import scenario_file

    return world_about(name) if kind == "world" else first_comment(scenario_file(name))


def stage_of(runner: Runner, programme: Programme) -> Stage:
    """How the viewer resets this run and loads another demo, scenario or world."""
    from microsim.engine.compiled import watched
    from microsim.view.web import Stage

    def load(choice: str, report: Callable[[str], None]) -> None:
        compiled = itertools.count(1)
        scenario = programme.choose(choice)

        def begun() -> None:
            report(f"Loading {programme.title}: compiling kernel {next(compiled)}, on this machine for the first time")

        report(f"Loading {programme.title}: building the world")
        with watched(begun, lambda: None):
            runner.load(scenario)

    return Stage(runner.reset, load, programme.facts, loops=True)


# ---- a mission -------------------------------------------------------------------------------------------------------

_PAUSE_POLL_S = 0.02


@dataclass
class Flight:
    """The mission of a run."""

    mission: Mission
    runner: Runner | None = None
    _resume_at: float | None = field(default=None, repr=False)  # wall time at which a pause ends

    def pilot(self, sim: Simulation) -> MissionPilot | None:
        """None if another world, loaded during the run, cannot run it; at the start that is an error."""
        from microsim.missions import MissionPilot

        try:
            pilot = MissionPilot(sim, self.mission)
        except MissionError as error:
            if self.runner is None:
                raise
            warn(f"the mission cannot be run in this scenario: {error}")
            return None
        pilot.on_pause = self._pause
        return pilot

    def attach(self, runner: Runner) -> None:
        from microsim.runner import Watcher

        self.runner = runner
        runner.watchers.append(Watcher(_PAUSE_POLL_S, self._look))

    def _pause(self, seconds: float) -> None:
        runner = self.runner
        # no pause as fast as possible; a run that the user has paused is resumed by the user
        if runner is not None and runner.rtf and not runner.paused:
            self._resume_at = runner.clock.now() + seconds
            runner.pause(True)

    def _look(self) -> None:
        runner = self.runner
        if runner is not None and self._resume_at is not None and runner.clock.now() >= self._resume_at:
            self._resume_at = None
            runner.pause(False)

    def facts(self) -> dict[str, Any]:
        """For the result of the run."""
        pilot = self._latest_pilot()
        found = {"name": self.mission.name, "expectations": len(self.mission.expect)}
        if pilot is None:
            return {**found, "violations": [], "undecided": len(self.mission.expect)}
        return {**found, "violations": pilot.violations(), "undecided": pilot.undecided()}

    def write_report(self, report: ReportOptions, sim: Simulation, seconds: float) -> None:
        pilot = self._latest_pilot()
        group, open_ = f"{self.mission.name} in {sim.scenario.name}, seed {sim.seed}", "the run ended too soon"
        cases = [
            CiCase(group, each.name, each.problem, open_ if each.is_open else "")
            for each in (pilot.verdicts() if pilot is not None else ())
        ]
        report.write(
            f"microsim run --mission {self.mission.name}", cases or [CiCase(group, "reaches its end")], seconds
        )

    def _latest_pilot(self) -> MissionPilot | None:
        from microsim.missions import MissionPilot

        pilots = () if self.runner is None else self.runner.pilots
        return next((pilot for pilot in pilots if isinstance(pilot, MissionPilot)), None)


def verdict_line(facts: dict[str, Any]) -> str:
    """For the summary."""
    met = facts["expectations"] - facts["undecided"]
    if facts["violations"]:
        return f"  mission     {facts['name']}: FAILED"
    rest = f", {facts['undecided']} not judged: the run ended too soon" if facts["undecided"] else ""
    return f"  mission     {facts['name']}: {met} of {facts['expectations']} expectations met{rest}"


def say_violations(facts: dict[str, Any]) -> int:
    """Each on a line; the exit code."""
    for text in facts["violations"]:
        warn(text)
    return FAILED if facts["violations"] else GOOD
