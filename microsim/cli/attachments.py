"""What can be attached to a run: a recording, the web viewer, a mission. Each with its options."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from microsim.cli.options import flag, simulated_time, size
from microsim.cli.terminal import FAILED, GOOD, note
from microsim.errors import MicroSimError, MissionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from microsim.missions import Mission, MissionPilot
    from microsim.recording.recorder import Recorder
    from microsim.recording.state_file import History
    from microsim.ros2.microsim_node import MicroSimNode
    from microsim.runner import Pilot, Runner
    from microsim.simulation import Simulation
    from microsim.view.web import Stage, Timeline, Viewer

# ---- a recording -----------------------------------------------------------------------------------------------------


class Storage(str, Enum):
    mcap = "mcap"
    sqlite3 = "sqlite3"


class Compression(str, Enum):
    none = "none"
    zstd = "zstd"


_PANEL = "Recording"
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record", metavar="FOLDER", help="Record everything into a new rosbag2 folder.", rich_help_panel=_PANEL
    ),
]
StorageOption = Annotated[Storage, typer.Option("--storage", help="Storage format.", rich_help_panel=_PANEL)]
CompressOption = Annotated[
    Compression, typer.Option("--compress", help="Compress the chunks of mcap files.", rich_help_panel=_PANEL)
]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topics", metavar="GLOB", help="Record only these, such as '/drone/*'; repeatable.", rich_help_panel=_PANEL
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help="Do not record these; repeatable.", rich_help_panel=_PANEL),
]
SplitSizeOption = Annotated[
    int | None,
    typer.Option(
        "--split-size", parser=size, metavar="SIZE", help="Start a new file at this size.", rich_help_panel=_PANEL
    ),
]
SplitTimeOption = Annotated[
    Fraction | None,
    typer.Option(
        "--split-time",
        parser=simulated_time,
        metavar="TIME",
        help="Start a new file after this much simulated time.",
        rich_help_panel=_PANEL,
    ),
]
HistoryOption = Annotated[
    Fraction | None,
    typer.Option(
        "--history",
        parser=simulated_time,
        metavar="TIME",
        help="Keep a snapshot of every second for this long; written to FOLDER_states at the end.",
        rich_help_panel=_PANEL,
    ),
]


class RecordingOptions(NamedTuple):
    """What to record of a run."""

    folder: Path | None = None
    storage: str = "mcap"
    compression: str = "none"
    topics: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    split_size: int | None = None
    split_time: Fraction | None = None
    history: Fraction | None = None

    @property
    def states(self) -> Path:
        """Where snapshots go."""
        return Path("microsim_states") if self.folder is None else self.folder.with_name(f"{self.folder.name}_states")

    def refuse_alone(self) -> None:
        """Options that say how to record, without --record."""
        options = {
            "--storage": self.storage != NO_RECORDING.storage,
            "--compress": self.compression != NO_RECORDING.compression,
            "--topics": self.topics,
            "--exclude": self.exclude,
            "--split-size": self.split_size is not None,
            "--split-time": self.split_time is not None,
        }
        given = [name for name, is_given in options.items() if is_given]
        if given:
            raise UsageError(f"{given[0]} says how to record, and nothing is recorded: add --record FOLDER")


def _check_room(folder: Path) -> None:
    """Creates the folder now, so that a run does not end without its states; those of two runs must not be mixed."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} already exists, and --history would write into it: move it away")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"states cannot be written to {folder}: {error.strerror or error}") from None


@dataclass
class Recordings:
    """What is being recorded of a run, if anything."""

    states: Path | None = None
    recorder: Recorder | None = None
    history: History | None = None

    def begin(self, options: RecordingOptions, runner: Runner) -> None:
        """Before the first tick is handed out. What is impossible is refused before anything is written."""
        if options.folder is None:
            options.refuse_alone()
        if options.folder is None and options.history is None:
            return
        from microsim.recording.bag_io import RecordOptions
        from microsim.recording.recorder import Recorder
        from microsim.recording.state_file import History

        self.states = options.states
        history = None
        if options.history is not None:
            history = History(float(options.history))
            _check_room(self.states)
        if options.folder is not None:
            files = (options.storage, options.compression, options.topics, options.exclude)
            splits = (options.split_size, options.split_time)
            self.recorder = Recorder(options.folder, runner.sim, RecordOptions(*files, *splits))
            self.recorder.attach(runner)
        if history is not None:
            self.history = history
            history.attach(runner)

    def finish(self) -> int:
        """Write the rest and say so; the exit code."""
        code = GOOD
        if self.recorder is not None:
            self.recorder.close()
            if self.recorder.error:
                typer.echo(f"microsim: {self.recorder.error}", err=True)
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
            typer.echo(f"microsim: {error}", err=True)
            return FAILED
        note(f"{len(states)} states of the last {self.history.span_s:g} s in {self.states}")
        return GOOD

    def abandoned(self) -> str:
        """What to do about a recording that was not finished; empty: there is none."""
        if self.recorder is None:
            return ""
        return f"its recording is not finished: `microsim bag repair {self.recorder.folder}` does that"


NO_RECORDING = RecordingOptions()

# ---- the web viewer --------------------------------------------------------------------------------------------------

ViewOption = Annotated[bool, flag("--view", "Show the run on a web page, served on this machine only.")]
OpenOption = Annotated[bool, flag("--open", "Show it and open it in a browser.")]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--view-host",
        metavar="HOST",
        help="Serve the page on another address, such as 0.0.0.0; it then requires the token in the printed address.",
        show_default="127.0.0.1",
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--view-port",
        min=0,
        max=65535,
        metavar="N",
        help="First port to try; 0: any free port.",
        show_default="8080",
    ),
]


class ViewerOptions(NamedTuple):
    """Any of them asks for the viewer."""

    view: bool = False
    opens: bool = False
    host: str | None = None
    port: int | None = None

    @property
    def is_requested(self) -> bool:
        return self.view or self.opens or self.host is not None or self.port is not None

    def show(
        self, runner: Runner, stack: ExitStack, stage: Stage, timeline: Timeline | None = None, **scene: Any
    ) -> Viewer:
        """Serve the page until the stack unwinds, and print its address."""
        from microsim.view.web import PageOptions, Viewer

        if self.host == "":
            raise UsageError("--view-host needs an address, for example 0.0.0.0")
        options = PageOptions(self.host or "127.0.0.1", 8080 if self.port is None else self.port)
        viewer = stack.enter_context(Viewer(runner, options, stage, timeline, **scene))
        print(f"the page is at {viewer.address}", file=sys.stderr, flush=True)
        if self.opens:
            import webbrowser

            webbrowser.open(viewer.address)
        return viewer


NO_VIEWER = ViewerOptions()


def stage_of(
    runner: Runner, node: MicroSimNode | None, pilot_for: Callable[[Simulation], Pilot | None]
) -> tuple[Stage, tuple[str, ...]]:
    """How the viewer resets this run and loads another scenario, and the names of the scenarios."""
    from microsim.paths import scenario_names
    from microsim.scenario import load_scenario
    from microsim.simulation import Simulation
    from microsim.view.web import Stage

    def restart(sim: Simulation) -> None:
        runner.restart(sim)
        runner.pilot = pilot_for(sim)
        runner.hand_out(sim.step(0))

    def reset(seed: int | None) -> None:
        if node is not None:
            if seed is not None:
                node.sim.set_seed(seed)
            node.reset()
            return
        runner.sim.reset(seed)
        restart(runner.sim)

    def load(name: str) -> None:
        if name not in scenario_names():
            raise UsageError(f"the page can load shipped scenarios only, not {name!r}")
        scenario = load_scenario(name)
        if node is not None:
            node.load(scenario)
        else:
            restart(Simulation(scenario))

    return Stage(reset, load), tuple(scenario_names())


# ---- a mission -------------------------------------------------------------------------------------------------------

_PAUSE_POLL_S = 0.02

MissionOption = Annotated[
    str | None,
    typer.Option(
        "--mission",
        metavar="FILE",
        help="Fly a mission: a shipped one (see `microsim list`) or a file. It ends the run; the run fails if one of "
        "the mission's expectations is not met.",
    ),
]


@dataclass
class Flight:
    """The mission of a run."""

    mission: Mission
    runner: Runner | None = None
    _resume_at: float | None = field(default=None, repr=False)  # wall time at which a pause ends

    def pilot(self, sim: Simulation) -> MissionPilot | None:
        """None if another world, loaded during the run, cannot fly it; at the start that is an error."""
        from microsim.missions import MissionPilot

        try:
            pilot = MissionPilot(sim, self.mission)
        except MissionError as error:
            if self.runner is None:
                raise
            print(f"microsim: the mission cannot be flown here: {error}", file=sys.stderr)
            return None
        pilot.on_pause = self._pause
        return pilot

    def attach(self, runner: Runner) -> None:
        from microsim.runner import Watcher

        self.runner = runner
        runner.watchers.append(Watcher(_PAUSE_POLL_S, self._look))

    def _pause(self, seconds: float) -> None:
        runner = self.runner
        # as fast as possible nobody watches; and who has paused the run already will resume it by hand
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

    def _latest_pilot(self) -> MissionPilot | None:
        from microsim.missions import MissionPilot

        pilot = None if self.runner is None else self.runner.pilot
        return pilot if isinstance(pilot, MissionPilot) else None


def verdict_line(facts: dict[str, Any]) -> str:
    """For the summary."""
    met = facts["expectations"] - facts["undecided"]
    if facts["violations"]:
        return f"  mission     {facts['name']}: FAILED"
    undecided = f", {facts['undecided']} not judged: the run ended too soon" if facts["undecided"] else ""
    return f"  mission     {facts['name']}: {met} of {facts['expectations']} expectations met{undecided}"


def say_violations(facts: dict[str, Any]) -> int:
    """Each on a line; the exit code."""
    for text in facts["violations"]:
        print(f"microsim: {text}", file=sys.stderr)
    return FAILED if facts["violations"] else GOOD
