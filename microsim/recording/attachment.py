"""What a run leaves on the disk, and where it may start from: recordings, snapshots, telemetry, saved states."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from typing_extensions import NotRequired, TypedDict

from microsim.attachment import Attachment, Hint, Plan, Run, shell_command
from microsim.errors import MicroSimError, UsageError, os_errors
from microsim.options import given, option, simulated_time, size
from microsim.paths import with_name_of_its_own

if TYPE_CHECKING:
    from microsim.recording.recorder import Recorder
    from microsim.recording.state_file import History
    from microsim.runner import Runner

_PANEL = "Recording"
_HISTORY = "Keep a snapshot of every second for this long; written to FOLDER_states at the end."
_NEEDS_START = (
    "a recording begins at time 0, so that it can be replayed on its own: leave out --record, or record from "
    "the start; `microsim replay BAG --at TIME --save-state FILE` then gives any moment of it"
)


class Storage(str, Enum):
    mcap = "mcap"
    sqlite3 = "sqlite3"


class Compression(str, Enum):
    none = "none"
    zstd = "zstd"


RecordOption = Annotated[Path | None, option("--record FOLDER", "Record everything into a new rosbag2 folder.", _PANEL)]


class RecordingOptions(NamedTuple):
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


class DemoRecordingOptions(NamedTuple):
    record: RecordOption = None


class Recording(Attachment):
    """A recording of the run, and snapshots of its end."""

    name, position = "recording", 40
    options: ClassVar[Any] = {"run": RecordingOptions, "demo": DemoRecordingOptions}

    def __init__(self, given: Any = None) -> None:
        super().__init__(given)
        self._wishes = self.given if isinstance(self.given, RecordingOptions) else RecordingOptions(*self.given)
        self.rehearsal = "recorded" if self._wishes.record is not None else ""

    def prepare(self, plan: Plan) -> None:
        if self._wishes.record is not None:
            if "--from-state" in plan.given:
                raise UsageError(_NEEDS_START)
            return
        how = [name for name in given(self._wishes) if name != "--history"]
        if how:
            raise UsageError(f"{how[0]} is an option of recordings: add --record FOLDER")

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        """What is impossible is refused before anything is written."""
        folder = self._wishes.record
        history = self._history()
        recorder = None if folder is None else self._recorder(run, folder)
        if history is not None:
            history.attach(run.runner)
        yield
        if recorder is not None and _finish(recorder, run):
            counts = f"{recorder.messages:,} messages, {recorder.inputs:,} inputs"
            run.console.note(f"recorded {counts} into {', '.join(map(str, recorder.folders))}")
        if history is not None:
            _save(history, self._states, run)

    @contextmanager
    def rehearse(self, run: Run) -> Iterator[None]:
        """The thread that writes compiles too: its queue could overflow meanwhile."""
        if self._wishes.record is None:
            yield
            return
        from microsim.recording.recorder import Recorder

        with tempfile.TemporaryDirectory(prefix="microsim-") as folder, Recorder(Path(folder) / "bag", run.sim):
            yield

    @property
    def _states(self) -> Path:
        """Where snapshots go."""
        if self._wishes.record is None:
            return Path("microsim_states")
        folder = with_name_of_its_own(self._wishes.record)
        if not folder.name:
            raise UsageError(f"--record: expected the name of a folder, found {folder}")
        return folder.with_name(f"{folder.name}_states")

    def _history(self) -> History | None:
        if self._wishes.history is None:
            return None
        from microsim.recording.state_file import History

        history = History(float(self._wishes.history))
        _check_room(self._states)
        return history

    def _recorder(self, run: Run, folder: Path) -> Recorder:
        from microsim.recording.bag_io import RecordOptions
        from microsim.recording.recorder import Recorder

        given = self._wishes
        what = RecordOptions(
            given.storage.value, given.compress.value, tuple(given.topics or ()), tuple(given.exclude or ()),
            given.split_size, given.split_time,
        )  # fmt: skip
        recorder = Recorder(folder, run.sim, what)
        _begin(recorder, run)
        run.can_branch = False  # a recording has one past, and ends
        run.hints += [
            Hint("watch the recording in the browser", shell_command("replay", str(folder), "--open")),
            Hint("plot it", shell_command("plot", str(folder))),
            Hint("list its topics", shell_command("bag", "info", str(folder))),
        ]
        return recorder


class ReplayRecordingOptions(NamedTuple):
    record: Annotated[Path | None, option("--record FOLDER", "Record the replay, with the same options.")] = None


class ReplayRecording(Attachment):
    """A recording of a replay."""

    name, options, commands, position = "recording of a replay", ReplayRecordingOptions, ("replay",), 40

    def prepare(self, plan: Plan) -> None:
        if "--from" in plan.given:
            raise UsageError("a recording begins at the start: leave out --from")

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        from microsim.recording.bag_io import OwnBag, open_bag
        from microsim.recording.recorder import Recorder
        from microsim.recording.verify import recorded_options

        bag = None if run.plan.bag is None else open_bag(run.plan.bag)
        recorder = Recorder(self.given.record, run.sim, recorded_options(bag) if isinstance(bag, OwnBag) else None)
        _begin(recorder, run)
        yield
        if _finish(recorder, run) and bag is None:
            run.console.note(f"recorded into {recorder.folder}")


def _begin(recorder: Recorder, run: Run) -> None:
    from microsim.recording.bag_model import repairs

    recorder.attach(run.runner)
    run.unfinished.append(f"its recording is not finished: {repairs(recorder.folder)} does that")


def _finish(recorder: Recorder, run: Run) -> bool:
    """Write the rest; False: it could not be written, and that was reported."""
    recorder.close()
    run.unfinished.clear()
    if recorder.error:
        if recorder.error != run.error:
            run.console.warn(recorder.error)
        run.is_failed = True
    return not recorder.error


def _check_room(folder: Path) -> None:
    """Creates the folder now, so that a run does not end without its states; those of two runs must not be mixed."""
    with os_errors(f"states cannot be written to {folder}"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} already exists, and --history would write into it: move it away")
        folder.mkdir(parents=True, exist_ok=True)


def _save(history: History, folder: Path, run: Run) -> None:
    try:
        states = history.save(folder)
    except MicroSimError as error:
        run.console.warn(error)
        run.is_failed = True
    else:
        run.console.note(f"{len(states)} states of the last {history.span_s:g} s in {folder}")


# ---- telemetry -------------------------------------------------------------------------------------------------------

_TELEMETRY = "Write a CSV row each second: real-time factor, tick time, lag, radio."


class TelemetryOptions(NamedTuple):
    telemetry: Annotated[Path | None, option("--telemetry FILE", _TELEMETRY)] = None


class TelemetryFile(Attachment):
    """The pace of the run as CSV."""

    name, options, commands, position = "telemetry", TelemetryOptions, ("run",), 15

    def prepare(self, plan: Plan) -> None:
        path, scenario = self.given.telemetry, plan.scenario
        is_file = isinstance(scenario, str) and scenario and Path(scenario).exists()
        if is_file and path.exists() and path.samefile(str(scenario)):
            raise UsageError(f"telemetry would overwrite the scenario {path}; give another file to --telemetry")

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        from microsim.recording.telemetry import Telemetry

        with closing(Telemetry(self.given.telemetry)) as telemetry:
            telemetry.attach(run.runner)
            yield


# ---- a saved state ---------------------------------------------------------------------------------------------------


class StateOptions(NamedTuple):
    from_state: Annotated[
        Path | None,
        option(
            "--from-state FILE",
            "Resume from a saved state, with its scenario and seed, as if the run had never stopped.",
        ),
    ] = None


class StateOutput(TypedDict):
    from_state: NotRequired[Annotated[str, "With --from-state: the file."]]


class SavedState(Attachment):
    """The run starts where another was saved."""

    name, options, commands, position = "saved state", StateOptions, ("run",), 0
    json: ClassVar[Any] = {"run": StateOutput, "demo": StateOutput}  # demo has the output of run

    def prepare(self, plan: Plan) -> None:
        file = self.given.from_state
        for name in plan.given:
            if name in ("SCENARIO", "--seed", "--world", "--robots", "--inject", "--lockstep"):
                raise UsageError(f"--from-state uses the scenario and seed of the file: leave out {name}")
        if file.is_dir():
            hint = f"microsim replay {file} --at TIME --save-state FILE"
            raise UsageError(f"{file} is a folder; a state of a recording is made by `{hint}`")
        from microsim.recording.state_file import read_state, scenario_of

        folder = Path(plan.stack.enter_context(tempfile.TemporaryDirectory(prefix="microsim-")))
        plan.scenario, plan.seed = scenario_of(file, folder, plan.plugins)
        plan.first_tick = int(read_state(file).run_info["tick"])

    @contextmanager
    def attach(self, run: Run) -> Iterator[None]:
        file = self.given.from_state
        run.begin.append(lambda: resume(file, run.runner))
        run.results["from_state"] = str(file)
        run.lines.append(f"  resumed     from {file}")
        yield


def resume(file: Path, runner: Runner) -> None:
    """Put the run into a saved state. Listeners receive once what is latched there."""
    from microsim.recording.state_file import load_state
    from microsim.simulation import Simulation

    sim = runner.sim
    load_state(file, sim)
    runner.make_pilots()
    runner.jump()
    start = Simulation(sim.scenario, sim.seed)
    runner.listeners.message([each for each in start.step(0) if start.topics[each.topic][1].latched])


ATTACHMENT = (SavedState, TelemetryFile, Recording, ReplayRecording)
