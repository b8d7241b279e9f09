"""`load_scenario`: from a name, a file or a dict to a Scenario that can be run, or to every reason why not."""

from __future__ import annotations

import copy
import math
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from microsim.documents.values import Model, show
from microsim.documents.yaml_text import Path as KeyPath
from microsim.documents.yaml_text import dotted
from microsim.errors import BundleError, Problem, ScenarioError, UntrustedError, UsageError, unknown
from microsim.paths import portable
from microsim.registry import is_trusted
from microsim.robots.robot import Robot
from microsim.scenario.bundles import (
    WorldBundle,
    bundle_problems,
    changed_message,
    hash_of_splats,
    is_world,
    load_world,
    map_update,
    with_bundle,
)
from microsim.scenario.controllers import written_controllers
from microsim.scenario.fault_models import check_chaos
from microsim.scenario.files import (
    Places,
    find_scenario,
    in_order,
    locate,
    read_file,
    read_text,
    search_folders,
    warn_of_angles,
)
from microsim.scenario.map_images import MapCells, MapImage, cells_of, described_in, occupancies_of, walls_of
from microsim.scenario.models import MAX_NAME, Scenario
from microsim.scenario.plugins import Generated, insert, laid_out, prepare
from microsim.scenario.randomised import check_randomize
from microsim.scenario.scene import build_world, elevation, obstacle_shape, read_elevation
from microsim.scenario.world_models import (
    FOLLOWS_FROM_IMAGE,
    LEAST_CELL_M,
    MAX_CELLS,
    MOST_CELL_M,
    Box,
    Cylinder,
    ElevationFile,
    HillsElevation,
    Map,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from microsim.bundle import Bundle


def load_scenario(
    source: str | Path | Mapping[str, Any] | Scenario,
    starts: Collection[str] | None = None,
    controllers: str | Sequence[str] = (),
) -> Scenario:
    """The scenario of that name, path or content, complete and checked; ScenarioError lists all that is wrong.

    `starts`: robots whose starts must be free (None: all). In a run robots have left theirs. `controllers`: files that
    command robots, beside those that it names: `controller.py`, or `ROBOT=controller.py`.
    """
    return _with_controllers(_loaded(source, starts), [controllers] if isinstance(controllers, str) else controllers)


def _loaded(source: str | Path | Mapping[str, Any] | Scenario, starts: Collection[str] | None) -> Scenario:
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if is_world(source):
            return _Loading({"world": str(source)}, None, Places()).run(starts)
        file = find_scenario(source)
        data, places = read_file(file)
        return _Loading(data, file, places).run(starts)
    if isinstance(source, Mapping):
        return _Loading(_plain(source), None, Places()).run(starts)
    raise ScenarioError(Problem(f"expected the name of a scenario, a path or a dict, found {type(source).__name__}"))


def _with_controllers(scenario: Scenario, texts: Sequence[str]) -> Scenario:
    if not texts:
        return scenario
    written = written_controllers(texts, scenario.robots)
    data = {**scenario.to_dict(), "controllers": {**scenario.controllers, **written}}
    return reloaded(data, scenario, starts=None)


def reloaded(data: Mapping[str, Any], before: Scenario, starts: Collection[str] | None = ()) -> Scenario:
    """What became of a scenario's data; what is generated stays that of the run. `starts`: as in `load_scenario`."""
    return _Loading(_plain(data), None, Places(), before._world_seed).run(starts)


def follows_seed(scenario: Scenario) -> bool:
    """Whether another seed has another world."""
    return has_wild_hills(scenario) or (scenario.layout is not None and scenario.layout.follows_seed)


def has_wild_hills(scenario: Scenario) -> bool:
    """Whether there are hills without a seed of their own."""
    hills = scenario.map.elevation
    return scenario.world is None and isinstance(hills, HillsElevation) and hills.seed is None


def at_seed(scenario: Scenario, seed: int) -> Scenario:
    """The scenario in the world that a run with this seed has; ScenarioError where a robot cannot start in it."""
    if seed == scenario.world_seed or not follows_seed(scenario):
        return scenario
    layout = scenario.layout
    made = scenario.with_world_seed(seed, scenario._layout)
    if layout is not None and layout.follows_seed:
        made = laid_out(made, layout.written, seed)
    found = starts_in(made)
    problems = [Problem(f"seed {seed}: {message}", dotted(path)) for message, path in found]
    if problems:
        raise ScenarioError(problems)
    return made


def _name_of(file: Path) -> str:
    """Of a scenario that does not name itself: that of its file, in text that can be sent."""
    return file.resolve().stem.encode(errors="replace").decode()[:MAX_NAME]


def _plain(value: Any, path: KeyPath = ()) -> Any:
    """Nested mappings and sequences as dicts and lists, NumPy's numbers and arrays as Python's."""
    if len(path) > 50:
        raise ScenarioError(Problem("nested too deeply; expected at most 50 levels", dotted(path[:5]) + "…"))
    if isinstance(value, Model):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ScenarioError(Problem(f"expected text as a key, found {show(key)}", dotted(path)))
        return {str(key): _plain(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist") and type(value).__module__.startswith("numpy"):
        return _plain(value.tolist(), path)
    return value


class _Loading:
    """The steps from data to a scenario; each adds the problems it finds."""

    def __init__(self, data: Any, file: Path | None, places: Places, world_seed: int | None = None) -> None:
        self.data = data
        self.world_seed = world_seed
        self.file = file
        self.places = places
        self.folders = search_folders(file)
        self.problems: list[Problem] = []
        self.bundle: Bundle | None = None
        self.world: WorldBundle | None = None

    def run(self, starts: Collection[str] | None) -> Scenario:
        self.top_level()
        self.controller_files()
        plugin_folders = self.plugin_folders()
        data, generated, found = prepare(self.named(self.with_image(self.in_world(self.data))), plugin_folders)
        self.problems += [self.places.problem(*each) for each in found]
        scenario = self.validated(data, plugin_folders, generated)
        self.stop_if_wrong()
        assert scenario is not None
        warn_of_angles(scenario, self.places, generated.original)
        scenario = insert(scenario.with_world_seed(self.world_seed), generated)
        self.starts(scenario, starts)
        self.problems += [self.places.problem(*found) for found in (*check_randomize(scenario), *check_chaos(scenario))]
        self.stop_if_wrong()
        return scenario

    def stop_if_wrong(self) -> None:
        if self.problems:
            raise ScenarioError(in_order(self.problems))

    def top_level(self) -> None:
        if not isinstance(self.data, Mapping):
            keys = ", ".join(Scenario.key_names())
            message = f"expected a mapping with any of the keys {keys}, found {show(self.data)}"
            raise ScenarioError(self.places.problem(message, ()))

    def plugin_folders(self) -> tuple[str, ...]:
        """The folders under `plugins:`, made absolute; what is not a list of text is left to the model."""
        names = self.data.get("plugins", ())
        if not isinstance(names, (list, tuple)):
            return ()
        found: list[str] = []
        untrusted: dict[tuple[str, str | int], Path] = {}
        for index, name in enumerate(names):
            if not isinstance(name, str) or not name:
                continue
            folder = locate(name, self.folders)
            if folder is None or not folder.is_dir():
                self.problems.append(self.places.problem(f"no such folder: {show(name)}", ("plugins", index)))
            else:
                found.append(portable(folder))
                if not is_trusted(folder):
                    untrusted["plugins", index] = folder
        self.refuse(untrusted)
        return tuple(found)

    def controller_files(self) -> None:
        """The files under `controllers:`, made absolute; what is not a mapping is left to the model."""
        written = self.data.get("controllers")
        if not isinstance(written, Mapping) or not written:
            return
        blocks: dict[str, Any] = {}
        untrusted: dict[str, Path] = {}
        for name, block in written.items():
            own: Any = {"file": block} if isinstance(block, str) else block
            file = own.get("file") if isinstance(own, Mapping) else None
            blocks[name] = own
            if not isinstance(file, str) or not file:
                continue  # the model says what is wrong
            path = locate(file, self.folders)
            if path is None or not path.is_file():
                self.problems.append(self.places.problem(f"no such file: {show(file)}", ("controllers", name)))
                del blocks[name]
                continue
            blocks[name] = {**own, "file": portable(path)}
            if not is_trusted(path.parent):
                untrusted[name] = path.parent
        self.data = {**self.data, "controllers": blocks}
        self.refuse({("controllers", name): folder for name, folder in untrusted.items()}, "controllers")

    def refuse(self, untrusted: Mapping[tuple[str, str | int], Path], what: str = "plug-ins") -> None:
        """Without its plug-ins, nothing else can be said of the scenario."""
        shown = {place: os.path.relpath(folder) for place, folder in untrusted.items()}
        shown = {place: text if not text.startswith("..") else str(untrusted[place]) for place, text in shown.items()}
        problems = [
            self.places.problem(
                f"{what} are code, and run only from folders that you name; if you trust this one, add "
                f"--plugins {shlex.quote(text)}",
                place,
            )
            for place, text in shown.items()
        ]
        if problems:
            error = UntrustedError(problems)
            error.folders = tuple(shown.values())
            raise error

    def validated(
        self, data: Mapping[str, Any], plugin_folders: tuple[str, ...], generated: Generated
    ) -> Scenario | None:
        try:
            context = {"plugins": plugin_folders, "read": self.read, "splats": self.splats}
            scenario = Scenario.model_validate(data, context=context)
        except ValidationError as error:
            self.problems += self.places.problems(error, self.data, generated.original)
            self.elevation_alone()
            return None
        if self.bundle is not None:
            grid = scenario.map.model_copy(update=map_update(self.bundle))
            return scenario.model_copy(update={"map": grid, "world": self.world, "plugins": plugin_folders})
        grid = self.with_elevation(scenario.map)
        return scenario.model_copy(update={"map": grid, "plugins": plugin_folders})

    def read(self, name: str) -> str:
        """The text of a file that the scenario names."""
        return read_text(self.located(name))

    def splats(self, name: str) -> tuple[str, str]:
        """Path and hash of a file of Gaussians that the scenario names."""
        path = self.located(name)
        return portable(path), hash_of_splats(path)

    def located(self, name: str) -> Path:
        path = locate(name, self.folders)
        if path is None:
            raise ValueError(f"no such file: {show(name)}; looked in {', '.join(str(each) for each in self.folders)}")
        return path

    def in_world(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data completed by the world bundle it names, if it names one."""
        written = data.get("world")
        path = written.get("path") if isinstance(written, Mapping) else written
        if not isinstance(path, str):
            return data  # none, or the model will say what is wrong
        expected = written.get("sha256") if isinstance(written, Mapping) else None
        try:
            self.bundle, found, portable_path = load_world(path, self.folders)
        except BundleError as error:
            self.problems += [self.places.problem(message, ("world",)) for message in bundle_problems(error)]
            return {key: value for key, value in data.items() if key != "world"}
        if expected is not None and expected != found:
            self.problems.append(self.places.problem(changed_message(path, found, str(expected)), ("world",)))
        if "map" in data and expected is None:
            self.problems.append(
                self.places.problem("a world bundle brings its own map: leave one of them out", ("map",))
            )
        self.world = WorldBundle(path=portable_path, sha256=found)
        return with_bundle(data, self.bundle)

    def with_image(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data completed by the map of map_server that it names, if it names one."""
        grid = data.get("map")
        written = grid.get("image") if isinstance(grid, Mapping) else None
        if not isinstance(grid, Mapping) or not isinstance(written, (str, Mapping, MapImage)):
            return data  # none, or the model will say what is wrong
        beside = [key for key in FOLLOWS_FROM_IMAGE if key in grid]
        for key in beside:
            message = "follows from the image of the map: leave this key out"
            self.problems.append(self.places.problem(message, ("map", key), at_key=True))
        rest = {key: value for key, value in grid.items() if key not in beside}
        try:
            image, cells = self.map_image(written)
        except ScenarioError as error:
            found = [each if each.file else replace(each, **self.at_image()) for each in error.problems]
            self.problems += found
            return {**data, "map": {key: value for key, value in rest.items() if key not in ("image", "wall_height_m")}}
        except ValidationError:
            return {**data, "map": rest}  # the model will say the same, with its place
        follows = (cells.cell_m, cells.values.shape[::-1], (cells.west, cells.south))
        return {**data, "map": {**rest, "image": image, **dict(zip(FOLLOWS_FROM_IMAGE, follows, strict=True))}}

    def map_image(self, written: str | Mapping[str, Any] | MapImage) -> tuple[MapImage, MapCells]:
        """A map by its file or its keys, and its cells."""
        places = Places()
        if isinstance(written, str):
            try:
                image, places = described_in(self.located(written))
            except ValueError as error:
                raise ScenarioError(Problem(str(error))) from None
            occupancies_of(image, MAX_CELLS, places)  # what is wrong with it has its place in that file
        else:
            image = written if isinstance(written, MapImage) else MapImage.model_validate(written)
            path = locate(image.image, self.folders)
            image = image.model_copy(update={"image": image.image if path is None else portable(path)})
        if not LEAST_CELL_M <= image.resolution <= MOST_CELL_M:
            message = f"expected {LEAST_CELL_M:g} to {MOST_CELL_M:g} m, found {image.resolution:g}"
            raise ScenarioError(places.problem(message, ("resolution",)))
        cells = cells_of(image, MAX_CELLS)
        walls_of(cells, 0.0, 1.0)  # which has its limits
        return image, cells

    def at_image(self) -> dict[str, Any]:
        place = self.places.problem("", ("map", "image"))
        return {"path": place.path, "file": place.file, "line": place.line, "column": place.column}

    def named(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the name of the file, if neither the data nor the world that they name has one."""
        return data if self.file is None else {"name": _name_of(self.file), **data}

    def elevation_alone(self) -> None:
        """Something else is wrong; report problems of the elevation file together with it."""
        with suppress(ValidationError):
            self.with_elevation(Map.model_validate(self.data.get("map", {})))

    def with_elevation(self, grid: Map) -> Map:
        if not isinstance(grid.elevation, ElevationFile):
            return grid
        name = grid.elevation.file
        path = locate(name, self.folders)
        if path is None:
            tried = ", ".join(str(folder) for folder in self.folders)
            self.elevation_problem(f"no such file: {show(name)}; looked in {tried}")
            return grid
        nx, ny = grid.size_xy_cells
        try:
            read_elevation(path, (ny, nx))
        except ScenarioError as error:
            self.elevation_problem(str(error))
        return grid.model_copy(update={"elevation": ElevationFile(file=portable(path))})

    def elevation_problem(self, message: str) -> None:
        self.problems.append(self.places.problem(message, ("map", "elevation", "file")))

    def starts(self, scenario: Scenario, robots: Collection[str] | None) -> None:
        found = starts_in(scenario)
        self.problems += [self.places.problem(*each) for each in found if robots is None or each[1][1] in robots]


# ---- what only shows when the world is laid out: starts outside the map, in the ground, inside an obstacle

Found = tuple[str, KeyPath]  # message, where


def starts_in(scenario: Scenario) -> Iterator[Found]:
    """A problem for every robot that cannot start at its place."""
    if scenario.world is None and scenario.map.image is None:
        return check_starts(scenario, elevation(scenario))
    return check_placed_starts(scenario)


def check_starts(scenario: Scenario, heights: npt.NDArray[np.float64]) -> Iterator[Found]:
    """On a map that begins at 0 and has ground everywhere, which is quicker to check than to build."""
    occupied = occupancy(scenario)
    for name, robot in scenario.robots.items():
        message = _outside(scenario, robot) or (
            _in_solid(scenario, robot, heights)
            if robot.start.map_pose.z is not None
            else _in_cell(scenario, robot, occupied)
        )
        if message:
            yield message + _by_default(robot), ("robots", name, "start", "map_pose")


def check_placed_starts(scenario: Scenario) -> Iterator[Found]:
    """The same in a world bundle, or a map with an image, which may begin anywhere and have holes."""
    world = build_world(scenario)
    west, south, east, north = world.extent_m
    for name, robot in scenario.robots.items():
        pose, message = robot.start.map_pose, ""
        if not world.is_inside(pose.x, pose.y):
            message = f"is outside the map, which is x from {west:g} to {east:g} and y from {south:g} to {north:g}"
        elif pose.z is None and math.isnan(world.ground(pose.x, pose.y)):
            message = "is where there is no ground"
        elif pose.z is None and not world.has_footing(pose.x, pose.y):
            message = "is in a cell that is occupied, or beside one without ground"
        elif pose.z is not None and pose.z < world.ground(pose.x, pose.y):
            message = f"is below the ground; z: {_rounded_up(world.ground(pose.x, pose.y) + 0.1)} would do"
        if message:
            yield f"the start {_at(robot)} {message}" + _by_default(robot), ("robots", name, "start", "map_pose")


def occupancy(scenario: Scenario) -> npt.NDArray[np.uint8]:
    """1 for every cell that an obstacle overlaps, shape (ny, nx)."""
    import numpy as np

    from microsim.engine.world import mark_occupied

    nx, ny = scenario.map.size_xy_cells
    occupied = np.zeros((ny, nx), np.uint8)
    mark_occupied(occupied, scenario.map.cell_size_m, map(obstacle_shape, scenario.obstacles))
    return occupied


def _by_default(robot: Robot) -> str:
    pose = robot.start.map_pose
    written = {"x", "y", "z"} & pose.model_fields_set
    return (
        "" if written else f" (this start is the default of a {robot.model}; write start: {{map_pose: {{x: …, y: …}}}})"
    )


def _at(robot: Robot) -> str:
    pose = robot.start.map_pose
    place = f"x {pose.x:g}, y {pose.y:g}"
    return place if pose.z is None else f"{place}, z {pose.z:g}"


def _outside(scenario: Scenario, robot: Robot) -> str:
    (width, height), (nx, ny), cell = scenario.map.size_xy_m, scenario.map.size_xy_cells, scenario.map.cell_size_m
    pose = robot.start.map_pose
    if pose.x >= 0 and pose.y >= 0 and pose.x / cell < nx and pose.y / cell < ny:  # nx * cell may round up
        return ""
    return f"the start {_at(robot)} is outside the map, which is x from 0 to {width:g} and y from 0 to {height:g}"


def _in_cell(scenario: Scenario, robot: Robot, occupied: npt.NDArray[np.uint8]) -> str:
    pose, cell = robot.start.map_pose, scenario.map.cell_size_m
    column, row = math.floor(pose.x / cell), math.floor(pose.y / cell)
    if not occupied[row, column]:
        return ""
    owners = (
        index for index, each in enumerate(scenario.obstacles) if _covers_cell(each, column * cell, row * cell, cell)
    )
    index = next(owners, None)
    which = f"obstacles[{index}], a {scenario.obstacles[index].type}" if index is not None else "an obstacle"
    return f"the start {_at(robot)} is in a cell that is occupied by {which}"


def _covers_cell(obstacle: Box | Cylinder, x: float, y: float, cell: float) -> bool:
    """Whether it overlaps the cell with its corner at x, y; a cell of 0 is that point."""
    from microsim.engine.world import footprint, overlaps_cell

    is_disc, half_x, half_y = footprint(obstacle_shape(obstacle))
    from_x, from_y = obstacle.center[0] - x, obstacle.center[1] - y
    return bool(overlaps_cell(0, 0, cell, from_x, from_y, half_x, half_y, is_disc))


def _in_solid(scenario: Scenario, robot: Robot, heights: npt.NDArray[np.float64]) -> str:
    pose, cell = robot.start.map_pose, scenario.map.cell_size_m
    assert pose.z is not None
    clearance: float = getattr(robot, "ground_clearance_m", 0.0)
    lowest = ground(heights, cell, pose.x, pose.y) + clearance
    if pose.z < lowest:
        return (
            f"the start {_at(robot)} is below the ground plus a clearance of {clearance:g} m; "
            f"z: {_rounded_up(lowest)} would do"
        )
    for index, obstacle in enumerate(scenario.obstacles):
        base = ground(heights, cell, *obstacle.center[:2]) + obstacle.center[2]
        top = base + (obstacle.size[2] if isinstance(obstacle, Box) else obstacle.height)
        if base <= pose.z <= top and _covers_cell(obstacle, pose.x, pose.y, 0.0):
            above = _rounded_up(max(top, lowest) + 0.01)
            return f"the start {_at(robot)} is inside obstacles[{index}], a {obstacle.type}; z: {above} would do"
    return ""


def ground(heights: npt.NDArray[np.float64], cell: float, x: float, y: float) -> float:
    from microsim.engine.geometry import ground_height

    plain: Any = getattr(ground_height, "py_func", ground_height)  # a handful of points is not worth compiling for
    return float(plain(heights, cell, x, y))


def _rounded_up(value: float) -> str:
    return f"{math.ceil(value * 100) / 100:g}"


# ---- other values for keys, named by their path: `wind.gust_sigma`, `obstacles.0.size`


class SettingError(UsageError):
    """A key path that leads nowhere."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def with_values(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with other values; SettingError names a path that does not exist, ScenarioError what is wrong."""
    if not changes:
        return scenario
    document = {"chaos": None, **scenario.to_dict()}  # which is not written where there is none
    for path, value in changes.items():
        _write(document, path, copy.deepcopy(value))
    return reloaded(document, scenario, starts=None)


def full_path(scenario: Scenario, path: str) -> str:
    """`drone.max_vx` is short for `robots.drone.max_vx` where the scenario has a robot `drone`."""
    first = path.partition(".")[0]
    is_short = first in scenario.robots and first not in Scenario.key_names()
    return f"robots.{path}" if is_short else path


def _write(document: Any, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        place = _place(document, key, path)
        if document[place] is None:  # a sensor that is absent can be described
            document[place] = {}
        document = document[place]
    if isinstance(document, dict) and not document:
        document[last] = value
    else:
        document[_place(document, last, path)] = value


def _place(document: Any, key: str, path: str) -> str | int:
    """The key, or the index in a list, under which a part of the path stands."""
    if isinstance(document, list):
        if key.isdecimal() and int(key) < len(document):
            return int(key)
        raise SettingError(
            f"the scenario has no {path!r}: expected an index below {len(document)}, found {key!r}", path
        )
    if not isinstance(document, dict) or key not in document:
        names = document if isinstance(document, dict) else ()
        raise SettingError(unknown("the scenario has no", repr(path), key, names), path)
    return key
