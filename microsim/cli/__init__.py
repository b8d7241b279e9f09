"""The command line. Commands are in `commands/`, a file each; here is what they have in common."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer

from microsim.cli.command import ROS_ARGS, Commands
from microsim.cli.terminal import ExitCode, guarded_output, prepare_streams
from microsim.errors import (
    BundleError,
    MapError,
    MicroSimError,
    MissionError,
    ScenarioError,
    SweepError,
    UntrustedError,
)
from microsim.version import __version__

app = typer.Typer(
    name="microsim", cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]}, epilog="New here? Try: microsim demo oval --open",
    help="MicroSim: a deterministic robot simulator that speaks ROS 2. The same scenario, seed and commands give the "
    "same messages, byte for byte, on every machine.",
)  # fmt: skip


def _version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"microsim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def sim_rover() -> NoReturn:
    """The `sim_rover` command, as `ros2 run microsim sim_rover` starts it."""
    main("sim-rover")


def robot_simulator() -> NoReturn:
    """The `robot_simulator` command, as `ros2 run microsim robot_simulator` starts it."""
    main("robot-simulator")


def main(*command: str) -> NoReturn:
    """The `microsim` command; `command` is put before what the user typed."""
    prepare_streams()
    try:
        arguments, ROS_ARGS[:] = split_ros_args([*command, *sys.argv[1:]])
        if not arguments and (ROS_ARGS or _is_ros2_run()):
            arguments = ["run", "--headless"]  # what `ros2 run microsim microsim` and launch files start
        _simplify_help()  # errors show the usage too
        if not arguments or {"-h", "--help"} & {*arguments}:
            _import_help()
        with guarded_output():
            app(arguments, prog_name="microsim")
    except MicroSimError as error:
        typer.echo(_explained(error), err=True)
        if isinstance(error, UntrustedError) and arguments:
            options = [word for folder in error.folders for word in ("--plugins", folder)]
            typer.echo(f"  {shlex.join(['microsim', arguments[0], *options, *arguments[1:], *ROS_ARGS])}", err=True)
        sys.exit(ExitCode.WRONG_INPUT)
    except Exception as error:  # what a plug-in raised where nothing else expected it
        from microsim.plugin_errors import error_in_plugin

        found = error_in_plugin(error)
        if found is None:
            raise
        typer.echo(f"microsim: {found}", err=True)
        sys.exit(ExitCode.WRONG_INPUT)
    raise AssertionError("typer always exits")


def _import_help() -> None:
    """Without Markdown and tracebacks of rich: half of what typer's help imports, and not used here.

    A third of the time of `--help`, since typer imports them with the module (github.com/fastapi/typer/pull/1128 made
    only that module late). `test_foreign_internals` notices when this can go.
    """
    unused = [name for name in ("rich.markdown", "rich.traceback") if name not in sys.modules]
    for name in unused:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
    import_module("typer.rich_utils")
    for name in unused:
        del sys.modules[name]


def _simplify_help() -> None:
    """`BAG`, `[default: 1]` and flags without a type; newer versions of typer write `{BAG}`, `(1)` and `<bool>`."""
    core: Any = import_module("typer.core")
    named, default = (
        getattr(core.TyperArgument, "_usage_display_name", None),
        getattr(core, "_get_default_string", None),
    )
    typed = getattr(core.TyperOption, "display_type_rich", None)
    if named is None or default is None or typed is None:
        return
    core.TyperArgument._usage_display_name = lambda self: named(self).replace("{", "").replace("}", "")
    core.TyperArgument.display_type_rich = lambda self, ctx: None
    core.TyperOption.display_type_rich = lambda self, ctx: None if self.is_flag else typed(self, ctx)
    core._get_default_string = lambda obj, **more: (
        obj.show_default if isinstance(obj.show_default, str) else default(obj, **more)
    )


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


def _explained(error: MicroSimError) -> str:
    problems = error.problems if isinstance(error, ScenarioError) else ()
    if len(problems) < 2:
        return f"microsim: {error}"
    kinds = {MissionError: "mission", MapError: "file", BundleError: "bundle", SweepError: "sweep"}
    what = next((name for kind, name in kinds.items() if isinstance(error, kind)), "scenario")
    return "\n".join([f"microsim: the {what} has {len(problems)} problems:", *(f"  {each}" for each in problems)])
