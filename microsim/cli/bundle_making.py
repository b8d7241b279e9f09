"""New world bundles: from a scenario, an image, a shipped world, or captured Gaussians."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.cli.terminal import ShareProgress
from microsim.errors import UsageError, show

if TYPE_CHECKING:
    from microsim.bundle import Bundle
    from microsim.bundle.bundle_writing import BundleContent
    from microsim.bundle.generate.splat_import import Imported, SplatOptions
    from microsim.bundle.generate.surfaces import Colour, Solids
    from microsim.scenario import Box, Cylinder

_ROUND_SIDES = 16
_UNDER_M = 1.0  # solids reach so far into the ground, which may slope


def refuse_existing(folder: Path) -> None:
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder")
    if not folder.name:
        raise UsageError(f"expected the name of a new folder, found {str(folder)!r}")


# ---- from a scenario -------------------------------------------------------------------------------------------------


def from_scenario(name: str, source: str) -> BundleContent:
    """Its terrain as heights, its obstacles as a mesh and as Gaussians; not its robots and sensors."""
    import numpy as np

    from microsim.bundle.generate.surfaces import MadeGround, Solids, around, plain_world
    from microsim.engine.world import PALETTE
    from microsim.scenario import Box, load_scenario
    from microsim.scenario.terrain import elevation, surface

    scenario = load_scenario(source)
    if getattr(scenario, "world", None) is not None:
        raise UsageError(f"{source} already takes place in a world bundle; copy that one")
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


# ---- from an image, from a shipped world -----------------------------------------------------------------------------


def from_image(name: str, file: Path, resolution: float, low: float, high: float) -> BundleContent:
    import numpy as np

    from microsim.bundle.generate.surfaces import MadeGround, Solids, plain_world
    from microsim.bundle.mapped_arrays import read_image_heights

    heights = read_image_heights(file, low, high).astype(np.float64)
    rows, columns = heights.shape
    ground = MadeGround(heights, resolution, -0.5 * columns * resolution, -0.5 * rows * resolution)
    return plain_world(name, f"Made from the image {file.name}.", ground, Solids())


# ---- from captured Gaussians -----------------------------------------------------------------------------------------


def import_splat(splat: Path, folder: Path, like: str | None, choices: SplatOptions, resolution: float) -> Imported:
    """Write a bundle with the Gaussians of a file; all else is from the bundle `like`, or estimated."""
    import tempfile

    from microsim.bundle import load_bundle
    from microsim.bundle.bundle_writing import write_bundle
    from microsim.bundle.generate.splat_import import import_splat as read_splat

    model = load_bundle(like) if like is not None else None
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".importing_", dir=folder.parent) as beside:
        target = Path(beside) / "background.splat.ply"
        imported = read_splat(splat, target, choices, ShareProgress("importing").count)
        part = Path(beside) / "bundle"
        if model is None:
            write_bundle(part, _estimated_world(folder.name, splat, imported, resolution))
        else:
            _copy(model, part, folder.name)
        _put_gaussians(part, target, imported.sh_degree)
        load_bundle(part)
        part.rename(folder)
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


def import_choices(
    *, axes: str, crop: str | None, keep: int | None, sh_degree: int | None, yaw_deg: float, scale: float,
    translate: str, w_first: bool,
) -> SplatOptions:  # fmt: skip
    """The options of `microsim bundle import-splat`, checked."""
    from microsim.bundle.generate.splat_import import SplatOptions

    box = _numbers(crop, (4, 6), "--crop") if crop is not None else ()
    if any(low >= high for low, high in zip(box[::2], box[1::2], strict=True)):
        raise UsageError(f"--crop: expected each first number below its second, found {crop}")
    x, y, z = _numbers(translate, (3,), "--translate")
    yaw = yaw_deg * math.pi / 180.0
    if not math.isfinite(yaw):
        raise UsageError(f"--yaw-deg: expected an angle, found {yaw_deg}")
    return SplatOptions(
        axes=axes, yaw=yaw, scale=scale, translate=(x, y, z), crop=box, keep=keep, sh_degree=sh_degree, w_first=w_first
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


def _estimated_world(name: str, splat: Path, imported: Imported, resolution: float) -> BundleContent:
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
    import shutil

    from microsim.bundle.bundle_files import ENTRY
    from microsim.documents.yaml_text import read_yaml, to_yaml

    for target, file in model.files.items():
        place = folder / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    world = folder / ENTRY
    data = read_yaml(world.read_text(encoding="utf-8"), str(world)).data
    data["name"] = name
    world.write_text(to_yaml(data, one_line=False), encoding="utf-8")
