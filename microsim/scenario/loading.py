"""`load_scenario`: from a name, a file or a dict to a Scenario that can be run, or to every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from microsim.documents.values import Model, show
from microsim.documents.yaml_text import Path as KeyPath
from microsim.documents.yaml_text import dotted, read_yaml
from microsim.errors import BundleError, Problem, ScenarioError
from microsim.scenario.bundles import (
    WorldBundle,
    bundle_problems,
    changed_message,
    is_world,
    load_world,
    map_update,
    with_bundle,
)
from microsim.scenario.checks import check_bundle_starts, check_starts
from microsim.scenario.fault_models import check_chaos
from microsim.scenario.files import Places, find_scenario, in_order, locate, portable, read_text, search_folders
from microsim.scenario.models import Scenario
from microsim.scenario.plugins import Generated, insert, prepare
from microsim.scenario.randomize import check_randomize
from microsim.scenario.splat_files import hash_of_splats
from microsim.scenario.terrain import elevation, read_elevation
from microsim.scenario.world_models import ElevationFile, Map

if TYPE_CHECKING:
    from microsim.bundle import Bundle


def load_scenario(source: str | Path | Mapping[str, Any] | Scenario) -> Scenario:
    """The scenario of that name, path or content, complete and checked; ScenarioError lists all that is wrong."""
    if isinstance(source, Scenario):
        return source
    if isinstance(source, (str, Path)):
        if is_world(source):
            return _Loading({"world": str(source)}, None, Places()).run()
        file = find_scenario(source)
        document = read_yaml(read_text(file), str(file))
        return _Loading(document.data, file, Places(str(file), document)).run()
    if isinstance(source, Mapping):
        return _Loading(_plain(source), None, Places()).run()
    raise ScenarioError(Problem(f"expected the name of a scenario, a path or a dict, found {type(source).__name__}"))


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

    def __init__(self, data: Any, file: Path | None, places: Places) -> None:
        self.data = data
        self.file = file
        self.places = places
        self.folders = search_folders(file)
        self.problems: list[Problem] = []
        self.bundle: Bundle | None = None
        self.world: WorldBundle | None = None

    def run(self) -> Scenario:
        self.top_level()
        plugin_folders = self.plugin_folders()
        data, generated, found = prepare(self.in_world(self.data), plugin_folders)
        self.problems += [self.places.problem(*each) for each in found]
        scenario = self.validated(data, plugin_folders, generated)
        self.stop_if_wrong()
        assert scenario is not None
        scenario = insert(scenario, generated)
        self.starts(scenario)
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
        found = []
        for index, name in enumerate(names):
            if not isinstance(name, str) or not name:
                continue
            folder = locate(name, self.folders)
            if folder is None or not folder.is_dir():
                self.problems.append(self.places.problem(f"no such folder: {show(name)}", ("plugins", index)))
            else:
                found.append(portable(folder))
        return tuple(found)

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

    def starts(self, scenario: Scenario) -> None:
        found = check_starts(scenario, elevation(scenario)) if self.bundle is None else check_bundle_starts(scenario)
        self.problems += [self.places.problem(*each) for each in found]
