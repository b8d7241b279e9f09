"""What the commands about world bundles do."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from microsim.bundle import Bundle, load_bundle
from microsim.bundle.bundle_files import ENTRY
from microsim.bundle.bundle_writing import BundleContent, json_bytes, write_bundle
from microsim.cli.rehearsal import compiling
from microsim.documents.yaml_text import read_yaml, to_yaml
from microsim.errors import UsageError, show

if TYPE_CHECKING:
    from microsim.bundle.generate.splat_import import Imported, SplatOptions

_PATIENCE_S = 2.0


def new(
    folder: Path, scenario: str | None, heightmap: Path | None, template: str | None, resolution: float, low: float,
    high: float,
) -> None:  # fmt: skip
    if sum(choice is not None for choice in (scenario, heightmap, template)) > 1:
        raise UsageError("expected one of --scenario, --heightmap and --template, found several")
    _refuse_existing(folder)
    with compiling():  # the dice are kernels
        if scenario is not None:
            from microsim.cli.bundle_scenario import from_scenario

            content = from_scenario(folder.name, scenario)
        elif heightmap is not None:
            content = _from_image(folder.name, heightmap, resolution, low, high)
        else:
            from microsim.bundle.generate import generate_world

            content = generate_world(template or "minimal", folder.name)
    write_bundle(folder, content)
    _finish(folder)


def _refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder")
    if not folder.name:
        raise UsageError(f"expected the name of a new folder, found {str(folder)!r}")


def _finish(folder: Path) -> None:
    """Every bundle that is written is loaded once: what we make must be what we take."""
    bundle = load_bundle(folder)
    for warning in bundle.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"made {folder}: {_short(bundle)}")


def _short(bundle: Bundle) -> str:
    width, height = bundle.heightmap.size_m
    counts = f"{bundle.gaussians.count:,} Gaussians, drivable polygons: {bundle.drivable.count}"
    return f"{width:g} m x {height:g} m, {counts}"


def _from_image(name: str, file: Path, resolution: float, low: float, high: float) -> BundleContent:
    import numpy as np

    from microsim.bundle.generate.plain_world import plain_world
    from microsim.bundle.generate.surfaces import MadeGround, Solids
    from microsim.bundle.heightmap import read_image_heights

    heights = read_image_heights(file, low, high).astype(np.float64)
    rows, columns = heights.shape
    ground = MadeGround(heights, resolution, -0.5 * columns * resolution, -0.5 * rows * resolution)
    return plain_world(name, f"Made from the image {file.name}.", ground, Solids())


def info(source: str, as_json: bool) -> None:
    bundle = load_bundle(source)
    facts = _facts(bundle)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _words(value))
    Console(highlight=False, soft_wrap=True).print(table)
    for warning in bundle.warnings:
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


def tf(source: str, output: Path | None) -> None:
    from microsim.bundle.bundle_loading import read_sensors

    sensors, target = read_sensors(source)
    text = json_bytes(sensors.tf_static())
    if output is not None and str(output) == "-":
        sys.stdout.write(text.decode())
        return
    target = output or target
    if target is None:
        raise UsageError(f"{source}: world.yaml names no file under 'sensors.tf_static'; name one there, or use -o")
    if target.is_file() and target.read_bytes() == text:
        typer.echo(f"{target} is as the calibration has it")
        return
    try:
        target.write_bytes(text)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}") from None
    typer.echo(f"wrote {target}")


def import_splat(splat: Path, folder: Path, like: str | None, options: Mapping[str, Any], resolution: float) -> None:
    from microsim.bundle.generate.splat_import import import_splat as work

    _refuse_existing(folder)
    wishes = _wishes(options)
    model = load_bundle(like) if like is not None else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".importing_", dir=folder.parent) as beside:
        target = Path(beside) / "background.splat.ply"
        imported = work(splat, target, wishes, _progress("importing"))
        part = Path(beside) / "bundle"
        if model is None:
            write_bundle(part, _guessed_world(folder.name, splat, imported, resolution))
        else:
            _copy(model, part, folder.name)
        _put_gaussians(part, target, imported.sh_degree)
        load_bundle(part)
        part.rename(folder)
    typer.echo(f"took {imported.kept:,} of {imported.found:,} Gaussians, sh_degree {imported.sh_degree}")
    _finish(folder)


def _put_gaussians(folder: Path, splat: Path, sh_degree: int) -> None:
    """In place of those that `world.yaml` names."""
    world = folder / ENTRY
    named = read_yaml(world.read_text(encoding="utf-8"), str(world)).data["gaussians"]
    splat.replace(folder / named["background"])
    config = folder / named["render_config"]
    config.write_bytes(json_bytes({**json.loads(config.read_text(encoding="utf-8")), "sh_degree": sh_degree}))


def _wishes(options: Mapping[str, Any]) -> SplatOptions:
    import math

    from microsim.bundle.generate.splat_import import SplatOptions

    crop = _numbers(options["crop"], (4, 6), "--crop") if options["crop"] is not None else ()
    if any(low >= high for low, high in zip(crop[::2], crop[1::2], strict=True)):
        raise UsageError(f"--crop: expected each first number below its second, found {options['crop']}")
    x, y, z = _numbers(options["translate"], (3,), "--translate")
    yaw = options["yaw_deg"] * math.pi / 180.0
    if not math.isfinite(yaw):
        raise UsageError(f"--yaw-deg: expected an angle, found {options['yaw_deg']}")
    return SplatOptions(
        axes=options["axes"], yaw=yaw, scale=options["scale"], translate=(x, y, z), crop=crop, keep=options["keep"],
        sh_degree=options["sh_degree"], w_first=options["w_first"],
    )  # fmt: skip


def _numbers(text: str, counts: tuple[int, ...], option: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in counts or not all(abs(number) <= 1e7 for number in numbers):
        expected = " or ".join(map(str, counts))
        raise UsageError(f"{option}: expected {expected} numbers with commas between, found {show(text)}")
    return numbers


def _guessed_world(name: str, splat: Path, imported: Imported, resolution: float) -> BundleContent:
    import numpy as np

    from microsim.bundle.generate import generate_world
    from microsim.bundle.generate.splat_import import guessed_ground

    content = generate_world("minimal", name)
    heights, content.west, content.south = guessed_ground(imported, resolution)
    content.heights, content.resolution_m = heights.astype(np.float32), resolution
    content.description = f"Gaussians of {splat.name}; heights guessed from them; nothing drivable yet."
    content.polygons, content.vehicle = [], None
    return content


def _copy(model: Bundle, folder: Path, name: str) -> None:
    """Every file of a bundle, under its new name."""
    for target, file in model.files.items():
        place = folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    world = folder / ENTRY
    data = read_yaml(world.read_text(encoding="utf-8"), str(world)).data
    data["name"] = name
    world.write_text(to_yaml(data, one_line=False), encoding="utf-8")


def pack(source: str, file: Path | None) -> None:
    from microsim.bundle.bundle_writing import pack as work

    bundle = load_bundle(source)
    target = file or Path(f"{bundle.root.resolve().name}.zip")
    size = work(bundle.root, target, _progress("packing"))
    typer.echo(f"wrote {target}: {len(bundle.files)} files, {size:,} bytes")


def unpack(file: Path, folder: Path | None, max_size: int | None) -> None:
    from microsim.bundle.bundle_writing import MAX_UNPACKED_BYTES
    from microsim.bundle.bundle_writing import unpack as work

    target = folder or Path(file.name.removesuffix(".zip"))
    if not file.is_file():
        raise UsageError(f"no such file: {file}")
    work(file, target, MAX_UNPACKED_BYTES if max_size is None else max_size, _progress("unpacking"))
    _finish(target)


def _progress(what: str) -> Callable[[int, int], None]:
    """Says how far it is on stderr, once it has taken two seconds, and then once a second."""
    started = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - started > _PATIENCE_S and now - told > 1.0:
            told = now
            typer.echo(f"{what}: {100.0 * done / max(total, 1):.0f} %", err=True)

    return tell
