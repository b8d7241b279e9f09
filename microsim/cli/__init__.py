"""The command line. Only options and help texts are here; what a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from microsim.cli import bundles, demos, from_state, missions, nodes, recording, sweeps, view, worlds
from microsim.cli.quiet import QuietOption
from microsim.cli.values import flag, real_time_factor, seconds, seed_value
from microsim.errors import BundleError, MapError, MicroSimError, MissionError, ScenarioError, SweepError
from microsim.version import __version__

GOOD, FAILED, WRONG_INPUT = 0, 1, 2

ROS_ARGS: list[str] = []  # of this call: `--ros-args …` is not ours to parse


class TransportChoice(str, Enum):
    auto = "auto"
    dds = "dds"
    rclpy = "rclpy"
    none = "none"


def split_ros_args(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the rest, everything from `--ros-args` up to `--` or the end), as every ROS 2 node takes them."""
    rest: list[str] = []
    ros: list[str] = []
    inside = False
    for argument in arguments:
        if argument == "--ros-args":
            inside = True
        elif argument == "--" and inside:
            inside = False
        else:
            (ros if inside else rest).append(argument)
    return rest, ["--ros-args", *ros] if ros else []


def _is_ros2_run() -> bool:
    """Started from where `ros2 run` finds executables."""
    return Path(sys.argv[0]).parent.parts[-2:] == ("lib", "microsim")


app = typer.Typer(
    name="microsim",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="MicroSim: a deterministic robot simulator that speaks ROS 2. The same scenario, seed and commands give the "
    "same messages, byte for byte, on every machine.",
    epilog="First time here? Try: microsim run --demo",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"microsim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO", help="A shipped scenario (see `microsim list`) or a file.", show_default="default"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(parser=seed_value, metavar="N", help="Seed of all noise; default: the scenario's.")
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            parser=seconds,
            metavar="TIME",
            help="Simulated time: 60, 2min, 500ms; default: until Ctrl-C. 0: only tick 0.",
        ),
    ] = None,
    rtf: Annotated[
        float | None,
        typer.Option(
            parser=real_time_factor,
            metavar="X",
            help="Real-time factor: 1 real time, 5 five times as fast, 0 as fast as possible.",
            show_default="1",
        ),
    ] = None,
    transport: Annotated[
        TransportChoice | None,
        typer.Option(
            help="ROS 2 through rclpy, through our own dds, or none. auto: rclpy where it imports, else dds. "
            "As fast as possible (--rtf 0) there is none unless asked for.",
            show_default="auto",
        ),
    ] = None,
    headless: Annotated[bool, flag("--headless", "No dashboard; progress on one line.")] = False,
    digest: Annotated[bool, flag("--digest", "Print the SHA-256 over every message, alone on the last line.")] = False,
    telemetry: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a CSV row each second: real-time factor, tick time, lateness, radio."),
    ] = None,
    as_json: Annotated[
        bool, flag("--json", "Print the result as one line of JSON, and nothing else on stdout.")
    ] = False,
    quiet: QuietOption = False,
    demo: Annotated[bool, flag("--demo", "Let a small pilot fly the drone and drive the rover.")] = False,
    world: worlds.WorldOption = None,
    robots: worlds.RobotsOption = None,
    inject: worlds.InjectOption = None,
    render: worlds.RenderOption = worlds.RenderChoice.auto,
    view_: view.ViewOption = False,
    open_: view.OpenOption = False,
    view_host: view.HostOption = None,
    view_port: view.PortOption = None,
    mission: missions.MissionOption = None,
    from_state_: from_state.FromStateOption = None,
    plugins: from_state.PluginsOption = None,
    record: recording.RecordOption = None,
    storage: recording.StorageOption = recording.Storage.mcap,
    compress: recording.CompressOption = recording.Compression.none,
    topics: recording.TopicsOption = None,
    exclude: recording.ExcludeOption = None,
    split_size: recording.SplitSizeOption = None,
    split_time: recording.SplitTimeOption = None,
    history: recording.HistoryOption = None,
) -> None:
    """Run a scenario, shown live in the terminal.

    Ctrl-C ends the run with a summary. Exit codes: 0 good, 1 the run or what its
    mission expects failed, 2 the input is wrong.

    \b
    Examples:
      microsim run --demo                          watch something happen
      microsim run --demo --open                   watch and drive in the browser
      microsim run maze --seed 3 --rtf 5           five times as fast as real time
      microsim run my_world.yaml --duration 2min --rtf 0 --headless --digest
      microsim run --world oval --robots ego,drone    drive and fly in a bundle
      microsim run --world oval --inject camera_front:fail@3s-5s
      microsim run --duration 10 --rtf 0 --json    for scripts
      microsim run --demo --duration 60 --rtf 0 --record flight
      microsim run flat --mission patrol --rtf 0 --quiet    a test: its exit code
      microsim run --from-state five.state         go on from a saved state
      microsim run flat --ros-args -p rover.max_v:=1.0 -r __ns:=/left
    """
    from microsim.cli.run import Options
    from microsim.cli.run import run as run_scenario

    worlds.draw_with(render)
    chosen = None if transport is None else transport.value
    ros_args = tuple(ROS_ARGS)
    choice = (storage.value, compress.value, tuple(topics or ()), tuple(exclude or ()), split_size, split_time, history)
    wishes = recording.Wishes(record, *choice)
    with _output():
        options = Options(
            worlds.assembled(scenario, world, robots, inject or ()),
            seed,
            duration,
            rtf,
            headless,
            digest,
            telemetry,
            as_json,
            demo,
            chosen,
            ros_args,
            wishes,
            mission,
            view.ViewWishes(view_, open_, view_host, view_port),
            from_state=from_state_,
            plugin_folders=tuple(plugins or ()),
        )
        if from_state_ is not None:
            from_state.check_alone(options, world is not None or robots is not None or bool(inject))
        code = run_scenario(options)
    raise typer.Exit(code)


@app.command()
def validate(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Scenarios, missions, sweeps, world bundles."),
    ],
    as_json: Annotated[bool, flag("--json", "Print one line of JSON.")] = False,
) -> None:
    """Check scenarios, missions, sweeps and world bundles and list everything that is wrong with them.

    Exit code 2 when any of them is bad. What is merely worth a warning changes
    nothing about that.

    \b
    Examples:
      microsim validate my_world.yaml
      microsim validate scenarios/*.yaml missions/*.yaml --json
      microsim validate worlds/oval my_bundle/
    """
    from microsim.cli.scenarios import validate as validate_files

    with _output():
        code = validate_files(files, as_json)
    raise typer.Exit(code)


@app.command()
def schema() -> None:
    """Print the JSON schema of scenarios, for editors.

    In VS Code, with the YAML extension: save it and name it in the first line of
    a scenario. Keys are then completed, explained and checked while you type.

    \b
    Examples:
      microsim schema > microsim.schema.json
      # yaml-language-server: $schema=./microsim.schema.json     (in line 1)
    """
    from microsim.cli.scenarios import print_schema

    with _output():
        print_schema()


@app.command(name="list")
def list_(as_json: Annotated[bool, flag("--json", "Print one line of JSON.")] = False) -> None:
    """List scenarios, missions, robot models, sensors, generators and metrics.

    \b
    Examples:
      microsim list
      microsim list --json
    """
    from microsim.cli.scenarios import print_list

    with _output():
        print_list(as_json)


recording.register(app)
missions.register(app)
demos.register(app)
nodes.register(app, ROS_ARGS)
bundles.register(app)
sweeps.register(app)


def sim_rover() -> NoReturn:
    """The `sim_rover` command, as `ros2 run microsim sim_rover` starts it."""
    main("sim-rover")


def robot_simulator() -> NoReturn:
    """The `robot_simulator` command, as `ros2 run microsim robot_simulator` starts it."""
    main("robot-simulator")


def main(*command: str) -> NoReturn:
    """The `microsim` command; with a command of its own, what is in front of what the user wrote."""
    _open_closed_streams()
    try:
        arguments, ROS_ARGS[:] = split_ros_args([*command, *sys.argv[1:]])
        if not arguments and (ROS_ARGS or _is_ros2_run()):
            arguments = ["run", "--headless"]  # what `ros2 run microsim microsim` and launch files start
        with _output():
            app(arguments, prog_name="microsim")
    except MicroSimError as error:
        typer.echo(_explained(error), err=True)
        sys.exit(WRONG_INPUT)
    raise AssertionError("typer always exits")


@contextmanager
def _output() -> Iterator[None]:
    """Writes out what was printed, here, where a closed pipe or a full disk can still be met."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has gone; that is theirs to decide
        _forget_stdout()
        sys.exit(GOOD)
    except OSError as error:
        _forget_stdout()
        what = "the output cannot be written" if error.filename is None else str(error.filename)
        typer.echo(f"microsim: {what}: {error.strerror or error}", err=True)
        sys.exit(FAILED)


def _forget_stdout() -> None:
    """What is still in its buffer would be tried again, and complained about, at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """`2>&-` leaves no stream at all; then words for people go nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - stays open until the end


def _explained(error: MicroSimError) -> str:
    problems = error.problems if isinstance(error, ScenarioError) else ()
    if len(problems) < 2:
        return f"microsim: {error}"
    kinds = {MissionError: "mission", MapError: "file", BundleError: "bundle", SweepError: "sweep"}
    what = next((name for kind, name in kinds.items() if isinstance(error, kind)), "scenario")
    return "\n".join([f"microsim: the {what} has {len(problems)} problems:", *(f"  {each}" for each in problems)])
