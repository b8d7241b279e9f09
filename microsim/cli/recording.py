"""Options and commands about recordings. Only options and help texts are here, as in the rest of the command line."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from microsim.cli import view
from microsim.cli.quiet import QuietOption, note, tell
from microsim.cli.values import flag, simulated_time, size
from microsim.errors import MicroSimError, UsageError

if TYPE_CHECKING:
    from microsim.recording.recorder import Recorder
    from microsim.recording.state_file import History
    from microsim.runner import Runner


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
StorageOption = Annotated[Storage, typer.Option("--storage", help="Kind of files.", rich_help_panel=_PANEL)]
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
    typer.Option("--exclude", metavar="GLOB", help="Leave these out; repeatable.", rich_help_panel=_PANEL),
]
SplitSizeOption = Annotated[
    int | None,
    typer.Option("--split-size", parser=size, metavar="SIZE", help="A new file at this size.", rich_help_panel=_PANEL),
]
SplitTimeOption = Annotated[
    Fraction | None,
    typer.Option(
        "--split-time",
        parser=simulated_time,
        metavar="TIME",
        help="A new file at each such time.",
        rich_help_panel=_PANEL,
    ),
]
HistoryOption = Annotated[
    Fraction | None,
    typer.Option(
        "--history",
        parser=simulated_time,
        metavar="TIME",
        help="Keep a snapshot of each of the last seconds; written to FOLDER_states at the end.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Wishes:
    """What `microsim run` was asked to record."""

    folder: Path | None = None
    storage: str = "mcap"
    compression: str = "none"
    topics: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    split_size: int | None = None
    split_time: Fraction | None = None
    history: Fraction | None = None

    def attach(self, runner: Runner) -> Recordings:
        """Begin, before the first tick is handed out. What cannot be is refused before anything is written."""
        if self.folder is None:
            self._refuse_options()
        if self.folder is None and self.history is None:
            return Recordings(None, None, None)
        from microsim.recording.bag import RecordOptions
        from microsim.recording.recorder import Recorder
        from microsim.recording.state_file import History

        recorder, history = None, None
        if self.history is not None:
            history = History(float(self.history))
            _check_room(self.states)
        if self.folder is not None:
            choice = (self.storage, self.compression, self.topics, self.exclude, self.split_size, self.split_time)
            recorder = Recorder(self.folder, runner.sim, RecordOptions(*choice))
            recorder.attach(runner)
        if history is not None:
            history.attach(runner)
        return Recordings(self.states, recorder, history)

    @property
    def states(self) -> Path:
        """Where snapshots go."""
        return Path("microsim_states") if self.folder is None else self.folder.with_name(f"{self.folder.name}_states")

    def _refuse_options(self) -> None:
        options = {
            "--storage": self.storage != NOTHING.storage,
            "--compress": self.compression != NOTHING.compression,
            "--topics": self.topics,
            "--exclude": self.exclude,
            "--split-size": self.split_size is not None,
            "--split-time": self.split_time is not None,
        }
        given = [name for name, is_given in options.items() if is_given]
        if given:
            raise UsageError(f"{given[0]} says how to record, and nothing is recorded: add --record FOLDER")


def _check_room(folder: Path) -> None:
    """States of two runs must not get mixed up."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} is there already, and --history would write into it: move it away")
    except OSError as error:
        raise UsageError(f"states cannot be written to {folder}: {error.strerror or error}") from None


@dataclass(frozen=True)
class Recordings:
    """What is being recorded of a run, if anything."""

    states: Path | None
    recorder: Recorder | None
    history: History | None

    def finish(self) -> int:
        """Write the rest and say so; gives the exit code."""
        code = 0
        if self.recorder is not None:
            self.recorder.close()
            if self.recorder.error:
                typer.echo(f"microsim: {self.recorder.error}", err=True)
                code = 1
            else:
                counts = f"{self.recorder.messages:,} messages, {self.recorder.inputs:,} inputs"
                note(f"recorded {counts} into {', '.join(map(str, self.recorder.folders))}")
        return self._save_states() or code

    def _save_states(self) -> int:
        if self.history is None or self.states is None:
            return 0
        try:
            states = self.history.save(self.states)
        except MicroSimError as error:
            typer.echo(f"microsim: {error}", err=True)
            return 1
        note(f"{len(states)} states of the last {self.history.span_s:g} s in {self.states}")
        return 0

    def abandoned(self) -> str:
        """What to do about a recording that nobody can finish any more; empty: there is none."""
        if self.recorder is None:
            return ""
        return f"its recording is not finished: `microsim bag repair {self.recorder.folder}` does that"


NOTHING = Wishes()

# ---- commands -------------------------------------------------------------------------------------------------------

BagArgument = Annotated[Path, typer.Argument(metavar="BAG", help="A recording: its folder, or one of its files.")]
bag = typer.Typer(no_args_is_help=True, help="Look into recordings, and mend them.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(replay)
    app.command()(diff)
    app.command()(plot)
    app.add_typer(bag, name="bag")


def replay(
    path: Annotated[
        Path | None, typer.Argument(metavar="BAG", help="A recording: its folder, or one of its files.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="TOKEN", help="In place of a bag: the token of a run, from a sweep's result."),
    ] = None,
    verify: Annotated[bool, flag("--verify", "Compare every message with the recording.")] = False,
    rtf: Annotated[
        float, typer.Option(min=0.0, max=100_000.0, metavar="X", help="Real-time factor; 0: as fast as possible.")
    ] = 0.0,
    start: Annotated[
        Fraction | None,
        typer.Option("--from", parser=simulated_time, metavar="TIME", help="Hand out messages from here on."),
    ] = None,
    at: Annotated[
        Fraction | None,
        typer.Option("--at", parser=simulated_time, metavar="TIME", help="Stop here.", show_default="the end"),
    ] = None,
    save_state: Annotated[
        Path | None, typer.Option("--save-state", metavar="FILE", help="Save the state reached as a file.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FOLDER", help="Record the replay, with the same options.")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            "--scenario", metavar="S", help="For bags of others: the scenario to run; for a token: where it is now."
        ),
    ] = None,
    mission: Annotated[
        str | None, typer.Option("--mission", metavar="M", help="For a token: where its mission is now.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="For bags of others: the seed.")] = None,
    plugins: Annotated[
        list[Path] | None,
        typer.Option("--plugins", metavar="FOLDER", help="A folder of plug-ins whose code may run; repeatable."),
    ] = None,
    world: Annotated[
        str | None, typer.Option("--world", metavar="BUNDLE", help="Where the scenario's world bundle is now.")
    ] = None,
    transport: Annotated[
        str, typer.Option("--transport", metavar="KIND", help="auto, dds or rclpy: hand out messages on ROS 2 too.")
    ] = "none",
    view_: view.ViewOption = False,
    open_: view.OpenOption = False,
    view_host: view.HostOption = None,
    view_port: view.PortOption = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the run as one page with a time slider, to look at offline."
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
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
    from microsim.cli import ROS_ARGS
    from microsim.cli import replay as work

    if token is not None:
        from microsim.cli import token as by_token

        others = {
            "BAG": path,
            "--verify": verify,
            "--from": start,
            "--seed": seed,
            "--plugins": plugins,
            "--world": world,
            "--transport": transport if transport != "none" else None,
        }
        wish = by_token.Wishes(token, scenario, mission, rtf, at, save_state, record, as_json)
        unfit = [name for name, value in others.items() if value is not None and value is not False and value != []]
        raise typer.Exit(by_token.replay(wish, unfit))
    if path is None:
        raise typer.BadParameter("name a recording, or give --token.", param_hint="BAG")
    if mission is not None:
        raise typer.BadParameter("a recording has its own mission.", param_hint="--mission")
    choice = (path, verify, rtf, start, at, save_state, record, scenario, seed, plugins or None, transport)
    page = view.ViewWishes(view_, open_, view_host, view_port)
    wishes = work.Wishes(*choice, tuple(ROS_ARGS), page, html, as_json, world)
    raise typer.Exit(work.replay(wishes))


def diff(
    one: Annotated[Path, typer.Argument(metavar="A", help="A recording.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    as_json: Annotated[bool, flag("--json", "Print what was found as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare two recordings, message by message.

    Exit codes: 0 identical, 1 different, 2 a bag cannot be read.

    \b
    Examples:
      microsim diff flight flight2            identical, or the first difference
      microsim diff yesterday/flight today/flight --json
    """
    from microsim.recording.bag import open_bag
    from microsim.recording.compare import diff as compare

    found = compare(open_bag(one), open_bag(other))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), ensure_ascii=False))
    elif found.is_identical:
        tell(str(found))
    else:
        typer.echo(str(found))
    raise typer.Exit(0 if found.is_identical else 1)


def plot(
    path: BagArgument,
    output: Annotated[
        Path | None, typer.Option("--out", "-o", "--output", metavar="FILE", help="PNG, SVG or PDF; default: BAG.png.")
    ] = None,
) -> None:
    """Draw a recording: trajectory on the map, altitude, speeds, ranges, radio.

    \b
    Examples:
      microsim plot flight                       writes flight.png
      microsim plot flight -o flight.svg
    """
    from microsim.recording.bag import open_bag
    from microsim.recording.bag_plot import plot as draw

    target = output or path.with_name(f"{path.name}.png")
    draw(open_bag(path), target)
    typer.echo(f"{target}")


@bag.command()
def info(path: BagArgument, as_json: Annotated[bool, flag("--json", "Print one line of JSON.")] = False) -> None:
    """What a recording holds, and whether it is whole. Exit code 1 when it is damaged.

    \b
    Examples:
      microsim bag info flight
      microsim bag info flight --json
    """
    from microsim.cli import replay as work

    raise typer.Exit(work.info(path, as_json))


@bag.command()
def repair(path: Annotated[Path, typer.Argument(metavar="BAG", help="The folder of a recording.")]) -> None:
    """Finish a recording that was cut off: what can be read is kept.

    A file that has to change stays beside its new form as `….damaged`.

    \b
    Examples:
      microsim bag repair flight
    """
    from microsim.recording.maintenance import repair as mend

    done = mend(path)
    for damage in done.damaged:
        typer.echo(f"written anew: {damage}")
    state = "finished" if done.damaged else "was whole"
    typer.echo(f"{path} {state}: {done.messages:,} messages, up to {done.last_ns / 1e9:.3f} s")
