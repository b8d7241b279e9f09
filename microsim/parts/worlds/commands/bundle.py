"""`microsim bundle`: making, inspecting and packing world bundles."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typing_extensions import TypedDict

from microsim.cli.command import Command, JsonOption, PluginsOption, with_options
from microsim.cli.precompile import compiling
from microsim.cli.terminal import ShareProgress, print_json
from microsim.errors import UsageError, os_errors
from microsim.options import argument, flag, option, size
from microsim.parts.worlds.bundle_sources import (
    BundleArgument,
    describe_bundle,
    export_roads,
    from_capture,
    from_roads,
    numbers_of,
    refuse_existing,
    route,
)
from microsim.parts.worlds.edit_options import edit
from microsim.parts.worlds.generate import world_templates

if TYPE_CHECKING:
    from microsim.bundle import Bundle
    from microsim.bundle.bundle_model import NamedObject
    from microsim.bundle.bundle_writing import BundleContent
    from microsim.bundle.splat_import import Imported, SplatOptions
    from microsim.parts.worlds.generate.surfaces import Colour, Solids
    from microsim.scenario import Box, Cylinder

bundle = typer.Typer(no_args_is_help=True, help="Make, inspect and pack world bundles.")
bundle.command("from-capture")(with_options(from_capture))
bundle.command()(with_options(edit))
bundle.command("from-roads")(with_options(from_roads))
bundle.command()(with_options(route))
bundle.command("export-roads")(with_options(export_roads))


class BundleOutput(TypedDict):
    name: str
    description: str
    folder: str
    bytes: Annotated[int, "Of all its files."]
    origin_wgs84: Annotated[list[float], "Latitude, longitude [deg], altitude [m]; empty: not known."]
    heights: Annotated[str, "Size of the height map, and its lowest and highest point, as text."]
    cells_without_ground: int
    west_south_east_north_m: Annotated[list[float], "Its edges in the map frame [m]."]
    drivable_polygons: int
    drivable_area_m2: float
    gaussians: int
    sh_degree: Annotated[int, "Of the splats' colours."]
    triangles: int
    objects: Annotated[dict[str, str], "Objects with a name: size and place, as text."]
    cameras: Annotated[dict[str, str], "By name, as text."]
    lidars: Annotated[dict[str, str], "By name, as text."]
    physics_hz: float
    warnings: list[str]


COMMAND = Command(bundle, panel="Scenarios and worlds", position=440, json={"info": BundleOutput})


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
    plugins: PluginsOption = None


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
    refuse_existing(folder)
    from microsim.bundle.bundle_writing import write_bundle
    from microsim.parts.worlds.generate import generate_world

    with compiling():
        if options.scenario is not None:
            content = _from_scenario(folder.name, options.scenario)
        elif options.heightmap is not None:
            heights = (options.resolution, options.low, options.high)
            content = _from_image(folder.name, options.heightmap, *heights)
        else:
            content = generate_world(options.template.value if options.template else "minimal", folder.name)
    write_bundle(folder, content)
    describe_bundle(folder)


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
    summary = _summary(found)
    if as_json:
        print_json(summary)
        return
    table = Table.grid(padding=(0, 2))
    for name, value in summary.items():
        words = "not known" if name == "origin_wgs84" and not value else _words(value)
        table.add_row(name.replace("_", " "), words)
    Console(highlight=False, soft_wrap=True).print(table)
    for warning in found.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_words(item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(_words(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _summary(bundle: Bundle) -> dict[str, Any]:
    import numpy as np

    from microsim.bundle.drivable_geojson import covered_area_m2

    ground, heights = bundle.heightmap, bundle.heightmap.values
    (width, height), (rows, columns) = ground.size_m, heights.shape
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
        "origin_wgs84": list(bundle.origin_wgs84) if bundle.origin_is_known else [],
        "heights": f"{columns} x {rows} of {ground.resolution_m:g} m, from {lowest:.2f} m to {highest:.2f} m",
        "cells_without_ground": missing,
        "west_south_east_north_m": [ground.west, ground.south, ground.west + width, ground.south + height],
        "drivable_polygons": bundle.drivable.count,
        "drivable_area_m2": round(covered_area_m2(bundle.drivable), 1),
        "gaussians": bundle.gaussians.count,
        "sh_degree": bundle.gaussians.sh_degree,
        "triangles": len(bundle.mesh.triangles) if bundle.mesh is not None else 0,
        "objects": {each.name: _box_words(each) for each in bundle.objects},
        "cameras": cameras,
        "lidars": lidars,
        "physics_hz": bundle.timebase.physics_hz,
        "warnings": [str(warning) for warning in bundle.warnings],
    }


def _box_words(each: NamedObject) -> str:
    x, y, z = each.center
    return f"{' x '.join(f'{side:g}' for side in each.size)} m at x {x:g}, y {y:g}, z {z:g}"


@bundle.command()
def tf(
    source: BundleArgument,
    output: Annotated[
        Path | None, option("--output -o FILE", "Write it there and leave the bundle unchanged; -: to stdout.")
    ] = None,
) -> None:
    """Derive tf_static.json from calibration.yaml, which takes precedence where they differ.

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
    with os_errors(f"{target} cannot be written"):
        target.write_bytes(text)
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
    xyzw: Annotated[bool, flag("--xyzw", "Rotations are stored as x, y, z, w instead of w, x, y, z.")] = False
    resolution: Annotated[
        float, option("--resolution M", "Cell size of the estimated heightmap.", min=0.01, max=100.0)
    ] = 0.5


@bundle.command("import-splat")
@with_options
def import_splat(options: ImportOptions) -> None:
    """Make a bundle from a captured scene: a PLY of Gaussians as training programs write it.

    Rotations are normalised, properties are put in order, and Gaussians that are
    not finite are left out. Without --like, heights are estimated (the lowest
    tenth in each cell) and nothing is drivable yet: draw it with
    `microsim bundle edit FOLDER`.

    \b
    Examples:
      microsim bundle import-splat cloud.ply my_street --axes y-down --scale 1.7
      microsim bundle import-splat scan.ply my_yard --crop=-40,40,-30,30
      microsim bundle import-splat better.ply my_oval --like oval
    """
    refuse_existing(options.folder)
    imported = _import(options)
    print(f"took {imported.kept:,} of {imported.found:,} Gaussians, sh_degree {imported.sh_degree}")
    describe_bundle(options.folder)


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


@bundle.command("export-splats")
def export_splats(
    source: BundleArgument,
    file: Annotated[Path, argument("FILE", "NAME.spz, NAME.compressed.ply or NAME.ply.")],
) -> None:
    """Write a bundle's Gaussians for other viewers, in the map frame.

    `.spz` is version 4; `.compressed.ply` is that of SuperSplat and PlayCanvas;
    `.ply` is what trainers write, without loss.

    \b
    Examples:
      microsim bundle export-splats street street.spz
      microsim bundle export-splats my_world my_world.compressed.ply
    """
    from microsim.bundle import load_bundle
    from microsim.parts.worlds.splat_export import write_for_others

    found = load_bundle(source).gaussians
    with os_errors(f"{file} cannot be written"):
        written = write_for_others(found.values, file, found.sh_degree)
    print(f"wrote {file}: {found.count:,} Gaussians, {written:,} bytes")


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
    describe_bundle(target)


# ---- making one ------------------------------------------------------------------------------------------------------

_ROUND_SIDES = 16
_UNDER_M = 1.0  # solids reach so far into the ground, which may slope


def _from_scenario(name: str, source: str) -> BundleContent:
    """Its terrain as heights, its obstacles as a mesh and as Gaussians; not its robots and sensors."""
    import numpy as np

    from microsim.engine.world import PALETTE
    from microsim.parts.worlds.generate.surfaces import MadeGround, Solids, around, plain_world
    from microsim.scenario import Box, load_scenario
    from microsim.scenario.scene import elevation, surface

    scenario = load_scenario(source)
    if getattr(scenario, "world", None) is not None:
        raise UsageError(f"{source} already uses a world bundle; copy that bundle")
    if scenario.map.image is not None:
        raise UsageError(
            f"{source} has a map with an image, whose walls a bundle cannot hold: use the scenario itself, "
            "or make the bundle from one whose walls are obstacles"
        )
    ground = MadeGround(elevation(scenario), scenario.map.cell_size_m, 0.0, 0.0)
    solids, footprints = Solids(), []
    for obstacle in scenario.obstacles:
        x, y, z = obstacle.center
        base = float(ground.height(np.array([x]), np.array([y]))[0]) + z
        corners = _corners(obstacle)
        footprints.append(corners)
        top = base + (obstacle.size[2] if isinstance(obstacle, Box) else obstacle.height)
        bottom = base - _UNDER_M if z <= 0.0 else base
        _stand(solids, obstacle, corners, bottom, top)
    colours = PALETTE[surface(scenario)].astype(np.float64) / 255.0
    drivable = around(ground, footprints) if footprints else None
    about = f"Made from the scenario {scenario.name}."
    return plain_world(name, about, ground, solids, colours, drivable, scenario.map.origin_wgs84)


def _corners(obstacle: Box | Cylinder) -> list[tuple[float, float]]:
    from microsim.engine.exact import TWO_PI, sincos
    from microsim.scenario import Box

    x, y, _ = obstacle.center
    if isinstance(obstacle, Box):
        half_x, half_y = 0.5 * obstacle.size[0], 0.5 * obstacle.size[1]
        return [(x - half_x, y - half_y), (x + half_x, y - half_y), (x + half_x, y + half_y), (x - half_x, y + half_y)]
    turns = [sincos(TWO_PI * index / _ROUND_SIDES) for index in range(_ROUND_SIDES)]
    return [(x + obstacle.radius * cos, y + obstacle.radius * sin) for sin, cos in turns]


def _stand(
    solids: Solids, obstacle: Box | Cylinder, corners: list[tuple[float, float]], bottom: float, top: float
) -> None:
    from microsim.engine.world import PALETTE
    from microsim.scenario import Box

    red, green, blue = (PALETTE[obstacle.class_id].astype("float64") / 255.0).tolist()
    colour: Colour = (red, green, blue)
    if isinstance(obstacle, Box):
        solids.prism(corners, bottom, top, colour)
        return
    x, y, _ = obstacle.center
    radius, height = obstacle.radius, top - bottom
    solids.barrel((x, y, bottom), (radius, radius, 0.0), (0.0, height, height), (colour, colour), _ROUND_SIDES)


def _from_image(name: str, file: Path, resolution: float, low: float, high: float) -> BundleContent:
    import numpy as np

    from microsim.bundle.mapped_arrays import read_image_heights
    from microsim.parts.worlds.generate.surfaces import MadeGround, Solids, plain_world

    heights = read_image_heights(file, low, high).astype(np.float64)
    rows, columns = heights.shape
    ground = MadeGround(heights, resolution, -0.5 * columns * resolution, -0.5 * rows * resolution)
    return plain_world(name, f"Made from the image {file.name}.", ground, Solids())


def _import(options: ImportOptions) -> Imported:
    """Write a bundle with the Gaussians of a file; all else is from the bundle `like`, or estimated."""
    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_writing import complete_or_absent, copy_bundle, write_bundle
    from microsim.bundle.splat_import import import_splat as read_splat

    choices, splat, folder = _choices(options), options.splat, options.folder
    model = None if options.like is None else load_bundle(options.like)
    with complete_or_absent(folder) as part:
        target = part.with_name("background.splat.ply")
        imported = read_splat(splat, target, choices, ShareProgress("importing").count)
        if model is None:
            write_bundle(part, _estimated_world(folder.name, splat, imported, options.resolution))
        else:
            copy_bundle(model, part, folder.name)
        _put_gaussians(part, target, imported.sh_degree)
        load_bundle(part)
    return imported


def _put_gaussians(folder: Path, splat: Path, sh_degree: int) -> None:
    """In place of those that `world.yaml` names."""
    from microsim.bundle.bundle_files import ENTRY
    from microsim.bundle.bundle_writing import json_bytes
    from microsim.documents.yaml_text import read_yaml

    world = folder / ENTRY
    named = read_yaml(world.read_text(encoding="utf-8"), str(world)).data["gaussians"]
    splat.replace(folder / named["background"])
    config = folder / named["render_config"]
    config.write_bytes(json_bytes({**json.loads(config.read_text(encoding="utf-8")), "sh_degree": sh_degree}))


def _choices(options: ImportOptions) -> SplatOptions:
    from microsim.bundle.splat_import import SplatOptions

    box = () if options.crop is None else numbers_of(options.crop, (4, 6), "--crop")
    if any(low >= high for low, high in zip(box[::2], box[1::2], strict=True)):
        raise UsageError(f"--crop: expected each first number below its second, found {options.crop}")
    x, y, z = numbers_of(options.translate, (3,), "--translate")
    yaw = options.yaw_deg * math.pi / 180.0
    if not math.isfinite(yaw):
        raise UsageError(f"--yaw-deg: expected an angle, found {options.yaw_deg}")
    return SplatOptions(
        axes=options.axes.value, yaw=yaw, scale=options.scale, translate=(x, y, z), crop=box, keep=options.keep,
        sh_degree=options.sh_degree, w_first=not options.xyzw,
    )  # fmt: skip


def _estimated_world(name: str, splat: Path, imported: Imported, resolution: float) -> BundleContent:
    import numpy as np

    from microsim.bundle.splat_import import guessed_ground
    from microsim.parts.worlds.generate import generate_world

    content = generate_world("minimal", name)
    heights, content.west, content.south = guessed_ground(imported, resolution)
    content.heights, content.resolution_m = heights.astype(np.float32), resolution
    content.description = f"Gaussians of {splat.name}; heights guessed from them; nothing drivable yet."
    content.polygons, content.vehicle = [], None
    return content
