"""The command `microsim sweep`: options and help texts only, as in the rest of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from microsim.cli.quiet import QuietOption
from microsim.cli.values import flag


def register(app: typer.Typer) -> None:
    app.command()(sweep)


def _names(texts: list[str] | None) -> tuple[str, ...] | None:
    """`a,b` and `a` `b` alike."""
    return tuple(name for text in texts for name in text.split(",") if name) if texts else None


def sweep(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO|FILE", help="A scenario, shipped or a file; or a sweep file with all of it."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="A..B", help="Seeds: 0..9999, both ends counting, or 1,2,5..8.")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V", help="Values for a key of the scenario; every combination is flown."),
    ] = None,
    mission: Annotated[
        str | None, typer.Option(metavar="FILE", help="What is flown: a shipped mission or a file.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(metavar="S", help="Simulated seconds of each run.", show_default="the mission's")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B", help="What is taken of each run.", show_default="passed, collisions, path_length: what fits"
        ),
    ] = None,
    asserts: Annotated[
        list[str] | None,
        typer.Option(
            "--assert", metavar="EXPR", help="What must hold: 'collisions == 0', 'mean(path_length) < 60'; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Result: .csv or .parquet; with --find, the mission: .yaml.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the result: .png, .svg or .pdf (needs the extra `plot`).")
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Search for a run such as 'collisions > 0'; write its smallest mission."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="J", help="Processes at a time.", show_default="one a processor core"),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Fly on a Ray cluster: HOST:PORT, auto, or local (needs the extra `ray`)."
        ),
    ] = None,
    resume: Annotated[bool, flag("--resume", "Go on with what the journal beside --out holds.")] = False,
    overwrite: Annotated[bool, flag("--overwrite", "Begin anew, over an old result or journal.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Longest time for one run, on the wall clock.")
    ] = 600.0,
    shrink_runs: Annotated[
        int, typer.Option("--shrink-runs", min=0, metavar="N", help="With --find: flights to make it small.")
    ] = 2000,
    as_json: Annotated[bool, flag("--json", "Print the outcome as one line of JSON.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Fly a mission with many seeds and settings; a row of numbers for each run.

    Workers are processes of this machine, or of a Ray cluster; the result is the
    same, byte for byte. Each row ends with a token: `microsim replay --token
    TOKEN` flies that very run again. --resume goes on after a kill.

    Exit codes: 0 good; 1 an assertion does not hold, a run failed, it was
    stopped, or --find found something; 2 the input is wrong.

    \b
    Examples:
      microsim sweep flat --mission patrol --seeds 0..99
      microsim sweep default --mission patrol --seeds 0..9999 \\
          --vary drone.cmd_time_constant=0.1,0.15,0.2 \\
          --metrics collisions,path_length --out results.csv --plot results.png
      microsim sweep nightly.yaml                  all of it in a file
      microsim sweep nightly.yaml --resume         go on after a kill
      microsim sweep nightly.yaml --ray 10.0.0.5:6379    on a cluster
      microsim sweep maze --mission patrol --seeds 0..999 \\
          --find "collisions > 0" --out smallest.yaml
    """
    from microsim.cli import _output
    from microsim.cli import sweep as command

    plain = {
        "seeds": seeds,
        "mission": mission,
        "duration": duration,
        "metrics": _names(metrics),
        "assert": tuple(asserts) if asserts else None,
    }
    wishes = command.Options(
        source=source,
        given={key: value for key, value in plain.items() if value is not None},
        vary=tuple(vary or ()),
        out=out,
        plot=plot,
        find=find,
        jobs=jobs,
        ray=ray,
        resume=resume,
        overwrite=overwrite,
        timeout_s=timeout,
        shrink_runs=shrink_runs,
        json=as_json,
    )
    with _output():
        code = command.sweep(wishes)
    raise typer.Exit(code)
