"""Applies edits to a world and writes the result as a new bundle, complete and valid, or not at all."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from microsim.bundle.bundle_loading import load_bundle
from microsim.bundle.bundle_model import Bundle, Heightmap, NamedObject, StartPose
from microsim.bundle.bundle_writing import (
    VERSION,
    changed_entry,
    complete_or_absent,
    copy_bundle,
    geojson_bytes,
    heightmap_yaml,
    mesh_ply,
    yaml_bytes,
)
from microsim.bundle.drivable_geojson import Ring, rings_of
from microsim.bundle.road_map import lanes_text, moved_lanes, read_lanes
from microsim.bundle.similarity import Similarity
from microsim.bundle.splat_import import drawable, write_splats
from microsim.bundle.splat_sources import open_splats
from microsim.documents.yaml_text import to_yaml
from microsim.errors import BundleError, Problem, UsageError
from microsim.parts.worlds.edits import (
    BACK_FILE,
    CropEdit,
    ListEdit,
    PolygonEdit,
    WorldEdits,
    cropped_cells,
    cut_outs,
    edit_problems,
    inside_box,
    scenario_of,
)
from microsim.paths import world_folder, world_names

Floats: TypeAlias = npt.NDArray[np.float64]
Progress: TypeAlias = Callable[[int, int], None]
_Thing = TypeVar("_Thing")
_Edit = TypeVar("_Edit", bound=ListEdit)

OBJECTS_FILE = "geometry/objects.yaml"
MESH_FILE = "geometry/static_mesh.ply"
_STEPS = 12  # of the search for a height
_NEAR_CELLS = 4.0  # a search that does not come nearer has left the map; at a wall it stops between bottom and top
_LARGE_M = 3.0  # a standard deviation: no solid thing is drawn by one such Gaussian


def write_edited(bundle: Bundle, edits: WorldEdits, folder: Path, progress: Progress | None = None) -> Bundle:
    """The edited world in a new folder; BundleError lists each problem with the path of the edit that causes it."""
    if folder.exists():
        raise UsageError(f"{folder} already exists; choose another folder")
    _write(bundle, edits, folder, folder.name, progress)
    return load_bundle(folder)


def replace_edited(bundle: Bundle, edits: WorldEdits, folder: Path, progress: Progress | None = None) -> Bundle:
    """The edited world in place of `folder`, which stays as it is until the new one is complete and valid."""
    refuse_shipped(folder)
    target = folder.resolve()
    new, old = (target.with_name(f".{target.name}.{word}") for word in ("new", "old"))
    for leftover in (new, old):
        if leftover.exists():
            raise UsageError(f"{leftover} exists, from an edit that was interrupted; move it away")
    name = bundle.name if target == bundle.root.resolve() else target.name
    _write(bundle, edits, new, name, progress)
    target.rename(old)
    new.rename(target)
    for file in sorted(old.rglob("*")):  # what `world.yaml` does not name belongs to the user
        place, named = target / file.relative_to(old), file.relative_to(old).as_posix() in bundle.files
        if (file.is_file() or file.is_symlink()) and not named and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            file.rename(place)
    shutil.rmtree(old)
    return load_bundle(folder)


def refuse_shipped(folder: Path) -> None:
    if any(folder.resolve() == world_folder(name).resolve() for name in world_names()):
        raise UsageError(f"{folder} is a shipped world, which is not changed; choose a new folder with --output FOLDER")


def _write(bundle: Bundle, edits: WorldEdits, folder: Path, name: str, progress: Progress | None) -> None:
    problems = edit_problems(bundle, edits)
    if problems:
        raise BundleError(problems)
    with complete_or_absent(folder) as part:
        copy_bundle(bundle, part, name)
        _Editing(bundle, edits, part).run(progress)
        try:
            load_bundle(part)
        except BundleError as error:
            raise BundleError([_of_edit(each) for each in error.problems if not each.is_warning]) from None


def _of_edit(problem: Problem) -> Problem:
    """A problem of the result, at the edit that causes it."""
    path = "start" if problem.path.startswith("vehicle.start") else ""
    return Problem(problem.message, path, rule=problem.rule, remedy=problem.remedy)


class _Editing:
    """The steps; each rewrites the files it changes in a copy of the bundle."""

    def __init__(self, bundle: Bundle, edits: WorldEdits, part: Path) -> None:
        self.bundle, self.edits, self.part = bundle, edits, part
        self.frame, self.crop = edits.frame, edits.crop
        self.ground = bundle.heightmap
        self.data: dict[str, Any] = {}  # of `world.yaml`

    def run(self, progress: Progress | None) -> None:
        with changed_entry(self.part) as self.data:
            self._run(progress)

    def _run(self, progress: Progress | None) -> None:
        if self.edits.moves_everything or self.crop is not None:
            self._heightmap()
        if self.edits.moves_everything or self.crop is not None or self.edits.cut_out:
            self._gaussians(progress)
            self._mesh()
        if self.edits.moves_everything or self.crop is not None or self.edits.drivable:
            self._drivable()
        if self.edits.moves_everything:
            self._lanes()
        self._start()
        self._objects()

    def _place(self, *key: str) -> Path:
        """Of the file that `world.yaml` names."""
        group, name = key
        return self.part / str(self.data[group][name])

    def _moved(self, points: Floats) -> Floats:
        """(n, 2) on the ground, in the new frame."""
        if self.edits.level is None:
            return points * self.frame.scale
        z = np.nan_to_num(self.bundle.heightmap.heights(*points.T), nan=0.0)
        return self.frame.points(np.column_stack([points, z]))[:, :2]

    def _moved_yaw(self, yaw: float) -> float:
        x, y, _ = (self.frame.rotation @ np.array([math.cos(yaw), math.sin(yaw), 0.0])).tolist()
        return math.atan2(y, x)

    def _gaussians(self, progress: Progress | None) -> None:
        name = self.data["gaussians"]["background"]
        table = open_splats(self.bundle.files[name], w_first=False)
        chosen, degree = drawable(table, self.frame), self.bundle.gaussians.sh_degree
        cuts = cut_outs(self.edits.cut_out, self.frame, self.ground)
        for cut in cuts:
            own = chosen & inside_box(cut.box, self.bundle.gaussians.column("x", 3))
            write_splats(table, self.part / cut.file, self.frame.then(cut.frame), own, degree, w_first=True)
            chosen &= ~own
        if cuts:
            (self.part / BACK_FILE).write_text(to_yaml(scenario_of(cuts, "..")), encoding="utf-8")
        if self.crop is not None:
            chosen &= kept_gaussians(self.bundle, self.crop)
        write_splats(table, self.part / name, self.frame, chosen, degree, progress)

    def _heightmap(self) -> None:
        grid = self.bundle.heightmap
        if self.crop is not None:
            rows, columns = cropped_cells(self.bundle, self.crop)
            west, south = (grid.west + columns.start * grid.resolution_m, grid.south + rows.start * grid.resolution_m)
            grid = Heightmap(grid.values[rows, columns], grid.resolution_m, west, south)
        grid = self.ground = moved_heights(grid, self.frame)
        self._place("geometry", "heightmap").write_bytes(grid.values.astype("<f4").tobytes())
        self._place("geometry", "heightmap_config").write_bytes(heightmap_yaml(grid))

    def _mesh(self) -> None:
        mesh = self.bundle.mesh
        if mesh is None:
            return
        triangles = mesh.triangles
        if self.crop is not None:
            triangles = triangles[inside(self.crop, mesh.vertices[triangles].mean(axis=1))]
        for box in self.edits.cut_out:
            triangles = triangles[~inside_box(box, mesh.vertices[triangles].mean(axis=1))]
        self._place("geometry", "static_mesh").unlink()
        del self.data["geometry"]["static_mesh"]
        if len(triangles):
            used, corners = np.unique(triangles, return_inverse=True)
            vertices = self.frame.points(mesh.vertices[used]).astype(np.float32)
            (self.part / MESH_FILE).write_bytes(mesh_ply(vertices, corners.reshape(-1, 3).astype(np.int32)))
            self.data["geometry"]["static_mesh"] = MESH_FILE

    def _drivable(self) -> None:
        kept = edited_polygons(self.bundle, self.edits)
        if self.crop is not None:
            kept = [(rings, priority) for each, priority in kept for rings in clipped(each, self.crop)]
        moved = [([_rounded(self._moved(ring)) for ring in rings], _whole(priority)) for rings, priority in kept]
        self._place("geometry", "drivable").write_bytes(geojson_bytes(moved))

    def _lanes(self) -> None:
        name = self.data["geometry"].get("lanes")
        if name is not None:
            moved = moved_lanes(read_lanes(self.bundle.files[name]), self.frame.points)
            (self.part / name).write_text(lanes_text(moved), encoding="utf-8")

    def _start(self) -> None:
        start = self.edits.start or self.bundle.start
        if start is None or (self.edits.start is None and not self.edits.moves_everything):
            return
        x, y = self._moved(np.array([[start.x, start.y]]))[0].round(4).tolist()
        pose = StartPose(x=x, y=y, yaw=round(self._moved_yaw(start.yaw), 6))
        self.data["vehicle"] = {**(self.data.get("vehicle") or {}), "start": pose.model_dump()}

    def _objects(self) -> None:
        kept = edited_objects(self.bundle, self.edits)
        if self.crop is not None:
            kept = [each for each in kept if inside(self.crop, np.array([each.center]))[0]]
        name = self.data["geometry"].get("objects", OBJECTS_FILE)
        (self.part / name).unlink(missing_ok=True)
        self.data["geometry"].pop("objects", None)
        if kept:
            self.data["geometry"]["objects"] = name
            moved = [self._moved_object(each).model_dump() for each in kept]
            (self.part / name).write_bytes(yaml_bytes({"version": VERSION, "objects": moved}))

    def _moved_object(self, each: NamedObject) -> NamedObject:
        if not self.edits.moves_everything:
            return each
        center = self.frame.points([each.center])[0].round(4).tolist()
        size = [round(self.frame.scale * side, 4) for side in each.size]
        return NamedObject.model_validate(
            {"name": each.name, "center": center, "size": size, "yaw": round(self._moved_yaw(each.yaw), 6)}
        )


def edited_polygons(bundle: Bundle, edits: WorldEdits) -> list[tuple[list[Ring], float]]:
    """Rings and priorities, in the frame of the world before."""
    area = bundle.drivable
    before = list(zip(rings_of(area), area.priority.tolist(), strict=True))

    def after(edit: PolygonEdit) -> tuple[list[Ring], float]:
        old = 0.0 if edit.number is None else before[edit.number][1]
        return edit.rings, old if edit.priority is None else edit.priority

    return _edited_list(before, edits.drivable, after)


def edited_objects(bundle: Bundle, edits: WorldEdits) -> list[NamedObject]:
    """In the frame of the world before."""
    return _edited_list(bundle.objects, edits.objects, lambda edit: edit.box)


def _edited_list(before: Sequence[_Thing], edits: Sequence[_Edit], after: Callable[[_Edit], _Thing]) -> list[_Thing]:
    things: list[_Thing | None] = list(before)
    for edit in edits:
        thing = None if edit.is_gone else after(edit)
        if edit.number is None:
            things.append(thing)
        else:
            things[edit.number] = thing
    return [each for each in things if each is not None]


def _rounded(ring: Ring) -> Ring:
    return np.asarray(ring.round(6) + 0.0)  # without negative zeros


def _whole(priority: float) -> Any:
    return int(priority) if priority == int(priority) else priority


# ---- crop ------------------------------------------------------------------------------------------------------------


def inside(crop: CropEdit, points: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of many points (n, 3) are in the box."""
    found = np.ones(len(points), np.bool_)
    for axis, span in enumerate((crop.x, crop.y, crop.z)):
        if span is not None:
            found &= (points[:, axis] >= span[0]) & (points[:, axis] <= span[1])
    return found


def kept_gaussians(bundle: Bundle, crop: CropEdit) -> npt.NDArray[np.bool_]:
    """Those in the box, and the background if it is to be kept."""
    kept = inside(crop, bundle.gaussians.column("x", 3))
    return kept | background(bundle) if crop.keep_background else kept


def background(bundle: Bundle) -> npt.NDArray[np.bool_]:
    """Gaussians outside the map, high above it or very large: the sky and what is far away."""
    grid, (width, height) = bundle.heightmap, bundle.heightmap.size_m
    x, y, z = bundle.gaussians.column("x", 3).T
    top = float(np.nanmax(grid.values)) if not np.isnan(grid.values).all() else 0.0
    outside = (x < grid.west) | (x > grid.west + width) | (y < grid.south) | (y > grid.south + height)
    large = bundle.gaussians.column("scale_0", 3).max(axis=1, initial=-math.inf) > math.log(_LARGE_M)
    found: npt.NDArray[np.bool_] = outside | (z > top + max(15.0, 0.3 * max(width, height))) | large
    return found


def clipped(rings: list[Ring], crop: CropEdit) -> list[list[Ring]]:
    """The parts of a polygon that are in the box."""
    import shapely
    from shapely.geometry.polygon import orient

    box = shapely.box(crop.x[0], crop.y[0], crop.x[1], crop.y[1])
    parts = shapely.get_parts(shapely.intersection(shapely.Polygon(rings[0], rings[1:]), box))
    whole = [orient(part) for part in parts if part.geom_type == "Polygon" and part.area > 1e-6]
    return [[np.array(ring.coords) for ring in (part.exterior, *part.interiors)] for part in whole]


# ---- heights in another frame ----------------------------------------------------------------------------------------


def moved_heights(grid: Heightmap, frame: Similarity) -> Heightmap:
    """The same ground after the move, with cells of the same size on it."""
    cell, scale = grid.resolution_m * frame.scale, frame.scale
    if (frame.rotation == np.eye(3)).all():
        return Heightmap(grid.values * np.float32(scale), cell, grid.west * scale, grid.south * scale)
    low, high, level = _reach(grid, frame)
    west, south = (math.floor(low[axis] / cell) * cell for axis in (0, 1))
    columns, rows = (max(1, math.ceil((high[axis] - (west, south)[axis]) / cell)) for axis in (0, 1))
    values = np.empty((rows, columns), np.float32)
    x = west + (np.arange(columns) + 0.5) * cell
    for row in range(rows):
        values[row] = _heights_along(grid, frame, x, np.full(columns, south + (row + 0.5) * cell), level)
    return Heightmap(values, cell, west, south)


def _reach(grid: Heightmap, frame: Similarity) -> tuple[Floats, Floats, float]:
    """Of the ground after the move: its lowest and highest x and y, and its mean height."""
    rows, columns = grid.values.shape
    x = grid.west + (np.arange(columns) + 0.5) * grid.resolution_m
    low, high, total, count = np.full(2, np.inf), np.full(2, -np.inf), 0.0, 0
    for row in range(rows):
        there = ~np.isnan(grid.values[row])
        y = np.full(columns, grid.south + (row + 0.5) * grid.resolution_m)
        points = frame.points(np.column_stack([x, y, grid.values[row]])[there])
        low = np.minimum(low, points[:, :2].min(axis=0, initial=np.inf))
        high = np.maximum(high, points[:, :2].max(axis=0, initial=-np.inf))
        total, count = total + float(points[:, 2].sum()), count + len(points)
    half = 0.5 * grid.resolution_m * frame.scale
    return (low - half, high + half, total / count) if count else (np.zeros(2), np.ones(2), 0.0)


def _heights_along(grid: Heightmap, frame: Similarity, x: Floats, y: Floats, level: float) -> Floats:
    """New heights at new places. The old ground is a function of the old x and y, so the new height is searched for.

    Each step is Newton's for ground that is level after the move, which it finds at once; other ground is approached
    as long as it is less steep than 2. Beyond the map its edges continue, so that a search may pass there.
    """
    width, height = grid.size_m
    edge = 1e-6 * grid.resolution_m
    z, best, error = np.full(len(x), level), np.full(len(x), np.nan), np.full(len(x), np.inf)
    for _ in range(_STEPS):
        old = (np.column_stack([x, y, z]) - np.array(frame.move)) @ frame.rotation / frame.scale
        u = np.clip(old[:, 0], grid.west + edge, grid.west + width - edge)
        v = np.clip(old[:, 1], grid.south + edge, grid.south + height - edge)
        miss = (grid.heights(u, v) - old[:, 2]) * frame.scale
        better = (np.abs(miss) < error) & (u == old[:, 0]) & (v == old[:, 1])
        best[better], error[better] = z[better], np.abs(miss[better])
        z = z + np.nan_to_num(miss, nan=0.0) * frame.rotation[2, 2]
    return np.where(error <= _NEAR_CELLS * grid.resolution_m * frame.scale, best, np.nan)
