"""Options and commands about world bundles. Only options and help texts are here, as elsewhere."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from microsim.cli.values import flag, size
from microsim.paths import world_templates

bundle = typer.Typer(no_args_is_help=True, help="Make, look into and pack world bundles.")

BundleArgument = Annotated[str, typer.Argument(metavar="BUNDLE", help="A folder, or the name of a shipped world.")]
JsonOption = Annotated[bool, flag("--json", "Print one line of JSON.")]


Template = Enum("Template", {name: name for name in world_templates()}, type=str)  # type: ignore[misc]


class Axes(str, Enum):
    z_up = "z-up"
    y_up = "y-up"
    y_down = "y-down"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(bundle, name="bundle")


@bundle.command()
def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new bundle; its last part becomes its name.")],
    scenario: Annotated[
        str | None, typer.Option("--scenario", metavar="NAME", help="Take relief and obstacles of a scenario.")
    ] = None,
    heightmap: Annotated[
        Path | None, typer.Option("--heightmap", metavar="IMAGE", help="Take heights from a grey PNG; north is up.")
    ] = None,
    template: Annotated[
        Template | None, typer.Option(help="Make one of the shipped worlds anew.", show_default="minimal")
    ] = None,
    resolution: Annotated[
        float, typer.Option(min=0.001, max=1000.0, metavar="M", help="Of the image: metres per pixel.")
    ] = 0.5,
    low: Annotated[float, typer.Option(min=-1e5, max=1e5, metavar="M", help="Of the image: height of black.")] = 0.0,
    high: Annotated[float, typer.Option(min=-1e5, max=1e5, metavar="M", help="Of the image: height of white.")] = 10.0,
) -> None:
    """Make a bundle from a scenario, from the image of a heightmap, or from nothing.

    It has a camera and a LiDAR, Gaussians that show the ground and what stands on
    it, and is ready to be changed by hand. After a change of
    sensors/calibration.yaml: microsim bundle tf FOLDER.

    \b
    Examples:
      microsim bundle new my_world
      microsim bundle new my_arena --scenario obstacles_arena
      microsim bundle new my_hills --heightmap hills.png --low 0 --high 12
      microsim bundle new my_oval --template oval
    """
    from microsim.cli import bundle_work

    bundle_work.new(folder, scenario, heightmap, template.value if template else None, resolution, low, high)


@bundle.command()
def info(source: BundleArgument, as_json: JsonOption = False) -> None:
    """What a bundle holds. Exit code 2 when it cannot be loaded.

    \b
    Examples:
      microsim bundle info oval
      microsim bundle info my_world --json
    """
    from microsim.cli import bundle_work

    bundle_work.info(source, as_json)


@bundle.command()
def tf(
    source: BundleArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there and leave the bundle alone; -: to stdout."),
    ] = None,
) -> None:
    """Derive tf_static.json from calibration.yaml, which is right where the two differ.

    \b
    Examples:
      microsim bundle tf my_world         rewrites my_world/sensors/tf_static.json
      microsim bundle tf oval -o -
    """
    from microsim.cli import bundle_work

    bundle_work.tf(source, output)


@bundle.command("import-splat")
def import_splat(
    splat: Annotated[Path, typer.Argument(metavar="PLY", help="Gaussians as the usual training programs write them.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new bundle.")],
    like: Annotated[
        str | None,
        typer.Option("--like", metavar="BUNDLE", help="Take everything but the Gaussians from this bundle."),
    ] = None,
    crop: Annotated[
        str | None,
        typer.Option(
            "--crop", metavar="X0,X1,Y0,Y1[,Z0,Z1]", help="Keep what is inside this box of the map, in metres."
        ),
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, metavar="N", help="Keep at most N Gaussians, chosen at random.")
    ] = None,
    sh_degree: Annotated[
        int | None, typer.Option("--sh-degree", min=0, max=3, metavar="D", help="Drop colours finer than this degree.")
    ] = None,
    axes: Annotated[
        Axes, typer.Option(help="Axes of the file; y-down: x right, z forward, as from COLMAP; y-up: as glTF.")
    ] = Axes.z_up,
    yaw_deg: Annotated[float, typer.Option(metavar="DEG", help="Then turn it about the vertical.")] = 0.0,
    scale: Annotated[float, typer.Option(min=1e-6, max=1e6, metavar="X", help="Then make it X times as large.")] = 1.0,
    translate: Annotated[str, typer.Option(metavar="X,Y,Z", help="Then move it, in metres.")] = "0,0,0",
    xyzw: Annotated[bool, flag("--xyzw", "Rotations are x, y, z, w already; usual is w first.")] = False,
    resolution: Annotated[
        float, typer.Option(min=0.01, max=100.0, metavar="M", help="Of the heightmap that is guessed from it.")
    ] = 0.5,
) -> None:
    """Make a bundle of a captured scene: the usual PLY with w first and normals becomes what bundles hold.

    Rotations are normalised, properties put in order, what is not finite is left
    out. Without --like, heights are guessed (the lower tenth of what is seen in
    each cell) and nothing is drivable yet: draw geometry/drivable.geojson.

    \b
    Examples:
      microsim bundle import-splat cloud.ply my_street --axes y-down --scale 1.7
      microsim bundle import-splat scan.ply my_yard --crop=-40,40,-30,30
      microsim bundle import-splat better.ply my_oval --like oval
    """
    from microsim.cli import bundle_work

    wishes = {
        "crop": crop, "keep": keep, "sh_degree": sh_degree, "axes": axes.value, "yaw_deg": yaw_deg, "scale": scale,
        "translate": translate, "w_first": not xyzw,
    }  # fmt: skip
    bundle_work.import_splat(splat, folder, like, wishes, resolution)


@bundle.command()
def pack(
    source: BundleArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The archive; default: NAME.zip here.", show_default=False)
    ] = None,
) -> None:
    """Put a bundle into one file, the same bytes for the same content: a ZIP without compression.

    Only what world.yaml names goes into it, links as what they lead to; a bundle
    with problems is refused.

    \b
    Examples:
      microsim bundle pack my_world
      microsim bundle pack oval /tmp/oval.zip
    """
    from microsim.cli import bundle_work

    bundle_work.pack(source, file)


@bundle.command()
def unpack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `pack` wrote.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="Default: the archive's name here.", show_default=False)
    ] = None,
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", parser=size, metavar="SIZE", help="Refuse more than this.", show_default="4GB"),
    ] = None,
) -> None:
    """Take a bundle out of its file, into a new folder, which appears only when all of it is there and valid.

    \b
    Examples:
      microsim bundle unpack my_world.zip
      microsim bundle unpack oval.zip /tmp/oval --max-size 1GB
    """
    from microsim.cli import bundle_work

    bundle_work.unpack(file, folder, max_size)
