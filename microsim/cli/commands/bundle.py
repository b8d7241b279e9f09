"""`microsim bundle`: making, inspecting and packing world bundles."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from microsim.cli import bundle_making
from microsim.cli.command import Command, JsonOption, argument, flag, option, size, with_options
from microsim.cli.terminal import ShareProgress, compiling, print_json
from microsim.errors import UsageError
from microsim.paths import world_templates

if TYPE_CHECKING:
    from microsim.bundle import Bundle

bundle = typer.Typer(no_args_is_help=True, help="Make, inspect and pack world bundles.")
COMMAND = Command(bundle, panel="Scenarios and worlds", position=340)

BundleArgument = Annotated[str, argument("BUNDLE", "A folder, or the name of a shipped world.")]


Template = Enum("Template", {name: name for name in world_templates()}, type=str)  # type: ignore[misc]


class Axes(str, Enum):
    z_up = "z-up"
    y_up = "y-up"
    y_down = "y-down"


class NewOptions(NamedTuple):
    folder: Annotated[Path, argument("FOLDER", "The new bundle; its last part becomes its name.")]
    scenario: Annotated[str | None, option("--scenario NAME", "Take terrain and obstacles from a scenario.")] = None
    heightmap: Annotated[Path | None, option("--heightmap IMAGE", "Take heights from a grey PNG; north is up.")] = None
    template: Annotated[
        Template | None, option("--template", "Start from one of the shipped worlds.", show_default="minimal")
    ] = None
    resolution: Annotated[
        float, option("--resolution M", "With --heightmap: metres per pixel.", min=0.001, max=1000.0)
    ] = 0.5
    low: Annotated[float, option("--low M", "With --heightmap: height of black.", min=-1e5, max=1e5)] = 0.0
    high: Annotated[float, option("--high M", "With --heightmap: height of white.", min=-1e5, max=1e5)] = 10.0


@bundle.command()
@with_options
def new(options: NewOptions) -> None:
    """Make a bundle from a scenario, from a heightmap image, or from scratch.

    It has a camera and a LiDAR, and Gaussians that show the ground and what is on
    it. Edit the files by hand as you like; after a change of
    sensors/calibration.yaml, run: microsim bundle tf FOLDER.

    \b
    Examples:
      microsim bundle new my_world
      microsim bundle new my_arena --scenario obstacles_arena
      microsim bundle new my_hills --heightmap hills.png --low 0 --high 12
      microsim bundle new my_oval --template oval
    """
    folder = options.folder
    if sum(choice is not None for choice in (options.scenario, options.heightmap, options.template)) > 1:
        raise UsageError("expected one of --scenario, --heightmap and --template, found several")
    bundle_making.refuse_existing(folder)
    from microsim.bundle.bundle_writing import write_bundle
    from microsim.bundle.generate import generate_world

    with compiling():
        if options.scenario is not None:
            content = bundle_making.from_scenario(folder.name, options.scenario)
        elif options.heightmap is not None:
            heights = (options.resolution, options.low, options.high)
            content = bundle_making.from_image(folder.name, options.heightmap, *heights)
        else:
            content = generate_world(options.template.value if options.template else "minimal", folder.name)
    write_bundle(folder, content)
    _finish(folder)


@bundle.command()
def info(source: BundleArgument, as_json: JsonOption = False) -> None:
    """Show what a bundle contains. Exit code 2 when it cannot be loaded.

    \b
    Examples:
      microsim bundle info oval
      microsim bundle info my_world --json
    """
    from rich.console import Console
    from rich.table import Table

    from microsim.bundle import load_bundle

    found = load_bundle(source)
    facts = _facts(found)
    if as_json:
        print_json(facts)
        return
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    Console(highlight=False, soft_wrap=True).print(table)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_words(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _facts(bundle: Bundle) -> dict[str, Any]:
    import numpy as np

    from microsim.bundle.drivable_geojson import covered_area_m2

    heights = bundle.heightmap.values
    rows, columns = heights.shape
    missing = sum(int(np.isnan(row).sum()) for row in heights)
    has_ground = missing < heights.size
    lowest, highest = (float(np.nanmin(heights)), float(np.nanmax(heights))) if has_ground else (0.0, 0.0)
    cameras = {
        name: f"{each.width} x {each.height}, {each.rate_hz:g} Hz, {each.convention}"
        for name, each in bundle.cameras.items()
    }
    lidars = {
        name: f"{len(each.elevations)} beams x {each.columns}, {each.rate_hz:g} Hz, up to {each.range_max_m:g} m"
        for name, each in bundle.lidars.items()
    }
    return {
        "name": bundle.name,
        "description": bundle.description,
        "folder": str(bundle.root),
        "bytes": sum(file.stat().st_size for file in bundle.files.values()),
        "origin_wgs84": list(bundle.origin_wgs84),
        "heights": f"{columns} x {rows} of {bundle.heightmap.resolution_m:g} m, from {lowest:.2f} m to {highest:.2f} m",
        "cells_without_ground": missing,
        "west_south_east_north_m": _bounds(bundle),
        "drivable_polygons": bundle.drivable.count,
        "drivable_area_m2": round(covered_area_m2(bundle.drivable), 1),
        "gaussians": bundle.gaussians.count,
        "sh_degree": bundle.gaussians.sh_degree,
        "triangles": len(bundle.mesh.triangles) if bundle.mesh is not None else 0,
        "cameras": cameras,
        "lidars": lidars,
        "physics_hz": bundle.timebase.physics_hz,
        "warnings": [str(warning) for warning in bundle.warnings],
    }


def _bounds(bundle: Bundle) -> list[float]:
    ground = bundle.heightmap
    width, height = ground.size_m
    return [ground.west, ground.south, ground.west + width, ground.south + height]


@bundle.command()
def tf(
    source: BundleArgument,
    output: Annotated[
        Path | None, option("--output -o FILE", "Write it there and leave the bundle unchanged; -: to stdout.")
    ] = None,
) -> None:
    """Derive tf_static.json from calibration.yaml, which counts where the two differ.

    \b
    Examples:
      microsim bundle tf my_world         rewrites my_world/sensors/tf_static.json
      microsim bundle tf oval -o -
    """
    from microsim.bundle.bundle_loading import read_sensors
    from microsim.bundle.bundle_writing import json_bytes

    sensors, target = read_sensors(source)
    text = json_bytes(sensors.tf_static())
    if output is not None and str(output) == "-":
        sys.stdout.write(text.decode())
        return
    target = output or target
    if target is None:
        raise UsageError(f"{source}: world.yaml names no file under 'sensors.tf_static'; name one there, or use -o")
    if target.is_file() and target.read_bytes() == text:
        print(f"{target} is as the calibration has it")
        return
    try:
        target.write_bytes(text)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from None
    print(f"wrote {target}")


class ImportOptions(NamedTuple):
    splat: Annotated[Path, argument("PLY", "Gaussians as the usual training programs write them.")]
    folder: Annotated[Path, argument("FOLDER", "The new bundle.")]
    like: Annotated[str | None, option("--like BUNDLE", "Take everything but the Gaussians from this bundle.")] = None
    crop: Annotated[
        str | None, option("--crop X0,X1,Y0,Y1[,Z0,Z1]", "Keep what is inside this box of the map, in metres.")
    ] = None
    keep: Annotated[int | None, option("--keep N", "Keep at most N Gaussians, chosen at random.", min=1)] = None
    sh_degree: Annotated[int | None, option("--sh-degree D", "Drop colours finer than this degree.", min=0, max=3)] = (
        None
    )
    axes: Annotated[
        Axes, option("--axes", "Axes of the file; y-down: x right, z forward, as from COLMAP; y-up: as glTF.")
    ] = Axes.z_up
    yaw_deg: Annotated[float, option("--yaw-deg DEG", "Then rotate it about the vertical axis.")] = 0.0
    scale: Annotated[float, option("--scale X", "Then scale it by X.", min=1e-6, max=1e6)] = 1.0
    translate: Annotated[str, option("--translate X,Y,Z", "Then move it, in metres.")] = "0,0,0"
    xyzw: Annotated[bool, flag("--xyzw", "Rotations are stored as x, y, z, w; usual is w first.")] = False
    resolution: Annotated[
        float, option("--resolution M", "Cell size of the estimated heightmap.", min=0.01, max=100.0)
    ] = 0.5


@bundle.command("import-splat")
@with_options
def import_splat(options: ImportOptions) -> None:
    """Make a bundle from a captured scene: a PLY of Gaussians as training programs write it.

    Rotations are normalised, properties are put in order, and Gaussians that are
    not finite are left out. Without --like, heights are estimated (the lowest
    tenth in each cell) and nothing is drivable yet: draw
    geometry/drivable.geojson.

    \b
    Examples:
      microsim bundle import-splat cloud.ply my_street --axes y-down --scale 1.7
      microsim bundle import-splat scan.ply my_yard --crop=-40,40,-30,30
      microsim bundle import-splat better.ply my_oval --like oval
    """
    bundle_making.refuse_existing(options.folder)
    imported = bundle_making.import_splat(options)
    print(f"took {imported.kept:,} of {imported.found:,} Gaussians, sh_degree {imported.sh_degree}")
    _finish(options.folder)


@bundle.command()
def pack(
    source: BundleArgument,
    file: Annotated[Path | None, argument("[FILE]", "The archive; default: NAME.zip here.", show_default=False)] = None,
) -> None:
    """Pack a bundle into one file: a ZIP without compression, the same bytes for the same content.

    Only files that world.yaml names are packed; links are packed as the files
    they point to. A bundle with problems is refused.

    \b
    Examples:
      microsim bundle pack my_world
      microsim bundle pack oval /tmp/oval.zip
    """
    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_writing import pack as write_archive

    found = load_bundle(source)
    target = file or Path(f"{found.root.resolve().name}.zip")
    written = write_archive(found.root, target, ShareProgress("packing").count)
    print(f"wrote {target}: {len(found.files)} files, {written:,} bytes")


@bundle.command()
def unpack(
    file: Annotated[Path, argument("FILE", "An archive that `pack` wrote.")],
    folder: Annotated[
        Path | None, argument("[FOLDER]", "Default: the archive's name here.", show_default=False)
    ] = None,
    max_size: Annotated[
        int | None,
        option("--max-size SIZE", "Refuse archives that unpack to more than this.", parser=size, show_default="4GB"),
    ] = None,
) -> None:
    """Unpack a bundle into a new folder, which appears only once it is complete and valid.

    \b
    Examples:
      microsim bundle unpack my_world.zip
      microsim bundle unpack oval.zip /tmp/oval --max-size 1GB
    """
    from microsim.bundle.bundle_writing import MAX_UNPACKED_BYTES
    from microsim.bundle.bundle_writing import unpack as read_archive

    target = folder or Path(file.name.removesuffix(".zip"))
    if not file.is_file():
        raise UsageError(f"no such file: {file}")
    read_archive(file, target, MAX_UNPACKED_BYTES if max_size is None else max_size, ShareProgress("unpacking").count)
    _finish(target)


def _finish(folder: Path) -> None:
    """Every bundle that is written is loaded once: what we make must be valid."""
    from microsim.bundle import load_bundle

    made = load_bundle(folder)
    for warning in made.warnings:
        typer.echo(f"warning: {warning}", err=True)
    width, height = made.heightmap.size_m
    counts = f"{made.gaussians.count:,} Gaussians, drivable polygons: {made.drivable.count}"
    print(f"made {folder}: {width:g} m x {height:g} m, {counts}")
