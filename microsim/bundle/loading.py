"""`load_bundle` and `check_bundle`: from a folder to a Bundle, or to every reason why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microsim.bundle.calibration import Sensors, check_rates, frames, read_calibration
from microsim.bundle.drivable import read_drivable
from microsim.bundle.fields import Fields
from microsim.bundle.files import ENTRY, Folder, name_problem, read_document
from microsim.bundle.gaussians import read_gaussians, read_render_config
from microsim.bundle.heightmap import read_heightmap
from microsim.bundle.models import Bundle, Gaussians, Heightmap, Mesh, Timebase
from microsim.bundle.report import Report, Source
from microsim.bundle.settings import read_metadata, read_timebase, read_vehicle
from microsim.bundle.tf_static import check_tf_static
from microsim.errors import BundleError, Problem, unknown
from microsim.paths import world_folder, world_names

if TYPE_CHECKING:
    from microsim.engine.drivable import DrivableArea

RECOMMENDED_BYTES = 2 * 1024**3

# what `world.yaml` names: key path, extensions, required
FILES: tuple[tuple[tuple[str, ...], tuple[str, ...], bool], ...] = (
    (("metadata",), (".json",), True),
    (("gaussians", "background"), (".splat.ply", ".ply"), True),
    (("gaussians", "render_config"), (".json",), True),
    (("geometry", "heightmap"), (".bin",), True),
    (("geometry", "heightmap_config"), (".yaml",), True),
    (("geometry", "drivable"), (".geojson",), True),
    (("geometry", "static_mesh"), (".ply", ".obj", ".glb"), False),
    (("sensors", "calibration"), (".yaml",), True),
    (("sensors", "tf_static"), (".json",), True),
    (("sim", "timebase"), (".yaml",), True),
)


def load_bundle(source: str | Path) -> Bundle:
    """The world of that name or in that folder, complete and checked; BundleError lists all that is wrong."""
    loading = _Loading(find_bundle(source))
    bundle = loading.run()
    if bundle is None:
        raise BundleError(loading.report.problems)
    return bundle


def check_bundle(source: str | Path) -> list[Problem]:
    """Everything that is wrong with a bundle, and what is worth a warning; empty when all is well."""
    try:
        loading = _Loading(find_bundle(source))
    except BundleError as error:
        return list(error.problems)
    loading.run()
    return loading.report.problems


def read_sensors(source: str | Path) -> tuple[Sensors, Path | None]:
    """The sensors of a bundle whose other files may have problems, and where its `tf_static.json` belongs."""
    loading = _Loading(find_bundle(source))
    sensors, target = loading.sensors_alone()
    if sensors is None:
        raise BundleError(loading.report.problems)
    return sensors, target


def find_bundle(source: str | Path) -> Path:
    """The folder that a shipped world's name (`oval`, `worlds/oval`), a folder or its `world.yaml` stands for."""
    text = str(source)
    path = Path(text)
    try:
        if text and path.is_dir():
            return path
        if text and path.name == ENTRY and path.parent.is_dir():
            return path.parent
    except (OSError, ValueError):
        raise BundleError(Problem(f"not a path: {text[:100]!r}", rule="entry-point")) from None
    name = text.removeprefix("worlds/")
    if name in world_names():
        return world_folder(name)
    raise BundleError(Problem(unknown("no world bundle", repr(text[:100]), name, world_names()), rule="entry-point"))


def is_bundle(source: str) -> bool:
    """Whether this is meant to be a bundle: a shipped name, a folder, or a `world.yaml` with what bundles have."""
    path = Path(source)
    try:
        if source and path.is_dir():
            return True
        if path.name == ENTRY:
            return not path.exists() or (path.parent / "metadata.json").exists() or (path.parent / "geometry").exists()
    except (OSError, ValueError):
        return False
    return source.removeprefix("worlds/") in world_names()


class _Loading:
    """The steps from a folder to a bundle; each adds the problems it finds."""

    def __init__(self, root: Path) -> None:
        self.report = Report()
        self.root = root
        self.folder = Folder(root, self.report)
        self.sources: dict[str, Source] = {}

    def run(self) -> Bundle | None:
        """None when there is any error; a bundle is never handed out in part."""
        world = self._world()
        if world is None or world.document is None:
            return None
        fields = Fields(world, world.document.data)
        fields.known.append("version")
        name = fields.text("name", self.root.resolve().name, most=100)
        vehicle, start = read_vehicle(fields.block("vehicle", required=False))
        self._find_files(world, fields)
        fields.done()
        origin, description = self._metadata()
        timebase = self._timebase()
        cameras, lidars = self._sensors(timebase)
        heightmap, drivable, mesh, gaussians = self._heightmap(), self._drivable(), self._mesh(), self._gaussians()
        self._check_size(world)
        if self.report.error_count:
            return None
        assert heightmap is not None
        assert drivable is not None
        assert gaussians is not None
        files = {ENTRY: world.file, **{source.name: source.file for source in self.sources.values()}}
        return Bundle(
            name, self.root, description, origin, heightmap, drivable, mesh, gaussians, cameras, lidars, timebase,
            vehicle, start, files, tuple(self.report.problems),
        )  # fmt: skip

    def sensors_alone(self) -> tuple[Sensors | None, Path | None]:
        """None when the entry point or the calibration cannot be read."""
        world = self._world()
        if world is None or world.document is None:
            return None, None
        block = world.document.data.get("sensors")
        names = block if isinstance(block, dict) else {}
        found = self.folder.find(world, ("sensors", "calibration"), names.get("calibration"), (".yaml",))
        sensors = read_calibration(found) if found is not None and read_document(found) else None
        target = names.get("tf_static")
        wrong = not isinstance(target, str) or not target.endswith(".json") or name_problem(target) is not None
        return (None if self.report.error_count else sensors), None if wrong else self.root / str(target)

    def _world(self) -> Source | None:
        source = Source(self.report, ENTRY, self.root / ENTRY)
        if not source.file.exists():
            source.problem("entry-point", f"no {ENTRY} in {self.root}", (), "a bundle begins with that file")
            return None
        if not source.file.is_file() or not Path(os.path.realpath(source.file)).is_relative_to(self.folder.real_root):
            source.problem("link-inside", f"expected a regular file inside the bundle, found {source.file}")
            return None
        return source if read_document(source) else None

    def _find_files(self, world: Source, fields: Fields) -> None:
        groups: dict[str, Fields] = {"": fields}
        for key, extensions, required in FILES:
            group = "" if len(key) == 1 else key[0]
            if group not in groups:
                groups[group] = fields.block(group, required=False) or Fields(world, {}, (group,))
            block = groups[group]
            name: Any = block.take(key[-1], None)
            if name is not None:
                source = self.folder.find(world, key, name, extensions)
                if source is not None:
                    self.sources[".".join(key)] = source
            elif required and block.is_mapping:
                message = f"{ENTRY} names no file under '{'.'.join(key)}'"
                world.problem("required-file", message, key, f"add '{key[-1]}: PATH'")
        for group, block in groups.items():
            if group:
                block.done()

    def _document(self, key: str, needs_version: bool = True) -> Source | None:
        source = self.sources.get(key)
        return source if source is not None and read_document(source, needs_version) else None

    def _metadata(self) -> tuple[tuple[float, float, float], str]:
        source = self._document("metadata")
        return read_metadata(source) if source is not None else ((0.0, 0.0, 0.0), "")

    def _timebase(self) -> Timebase:
        source = self._document("sim.timebase")
        return read_timebase(source) if source is not None else Timebase()

    def _sensors(self, timebase: Timebase) -> Sensors:
        source = self._document("sensors.calibration")
        derived = self._document("sensors.tf_static")
        if source is None:
            return {}, {}
        before = self.report.error_count
        sensors = read_calibration(source)
        check_rates(source, sensors, timebase.physics_hz)
        if derived is not None and self.report.error_count == before:  # else every difference would be told twice
            check_tf_static(derived, frames(sensors))
        return sensors

    def _heightmap(self) -> Heightmap | None:
        config = self._document("geometry.heightmap_config")
        binary = self.sources.get("geometry.heightmap")
        return read_heightmap(config, binary) if config is not None and binary is not None else None

    def _drivable(self) -> DrivableArea | None:
        source = self._document("geometry.drivable", needs_version=False)
        return read_drivable(source) if source is not None else None

    def _mesh(self) -> Mesh | None:
        source = self.sources.get("geometry.static_mesh")
        if source is None:
            return None
        from microsim.bundle.mesh import read_mesh

        return read_mesh(source)

    def _gaussians(self) -> Gaussians | None:
        config = self._document("gaussians.render_config")
        source = self.sources.get("gaussians.background")
        if config is None or source is None:
            return None
        return read_gaussians(source, read_render_config(config))

    def _check_size(self, world: Source) -> None:
        total = world.file.stat().st_size + sum(source.file.stat().st_size for source in self.sources.values())
        if total > RECOMMENDED_BYTES:
            message = f"the bundle has {total / 1024**3:.2f} GB, more than the recommended 2 GB"
            world.problem("limit-bundle-size", message, (), "split the world, or thin out the Gaussians")
