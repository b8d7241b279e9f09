"""`load_bundle` and `check_bundle`: from a folder to a Bundle, or to every reason why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from microsim.bundle.bundle_files import ENTRY, Folder, name_problem, read_document
from microsim.bundle.bundle_model import (
    Bundle,
    BundleText,
    Gaussians,
    Heightmap,
    MetadataFile,
    ObjectsFile,
    RenderConfig,
    StaticMesh,
    Timebase,
    WorldFile,
)
from microsim.bundle.calibration import CalibrationFile, check_rates, check_tf_static, read_calibration
from microsim.bundle.drivable_geojson import read_drivable
from microsim.bundle.mapped_arrays import check_start, read_gaussians, read_heightmap
from microsim.bundle.rules import BundleFile, BundleReport
from microsim.errors import BundleError, Problem, UsageError, unknown
from microsim.paths import world_folder, world_names

if TYPE_CHECKING:
    from microsim.engine.drivable import DrivableArea

RECOMMENDED_BYTES = 2_000_000_000

_Text = TypeVar("_Text", bound=BundleText)

# what `world.yaml` names: key path, extensions, required
FILES: tuple[tuple[tuple[str, ...], tuple[str, ...], bool], ...] = (
    (("metadata",), (".json",), True),
    (("gaussians", "background"), (".splat.ply", ".ply"), True),
    (("gaussians", "render_config"), (".json",), True),
    (("geometry", "heightmap"), (".bin",), True),
    (("geometry", "heightmap_config"), (".yaml",), True),
    (("geometry", "drivable"), (".geojson",), True),
    (("geometry", "static_mesh"), (".ply", ".obj", ".glb"), False),
    (("geometry", "lanes"), (".geojson",), False),
    (("geometry", "objects"), (".yaml",), False),
    (("sensors", "calibration"), (".yaml",), True),
    (("sensors", "tf_static"), (".json",), True),
    (("sim", "timebase"), (".yaml",), True),
)


def load_bundle(source: str | Path) -> Bundle:
    """The world of that name or in that folder, complete and checked; BundleError lists everything that is wrong."""
    loading = _BundleLoading(find_bundle(source))
    bundle = loading.run()
    if bundle is None:
        raise BundleError(loading.report.problems)
    return bundle


def check_bundle(source: str | Path) -> list[Problem]:
    """All errors and warnings of a bundle; empty if there are none."""
    try:
        loading = _BundleLoading(find_bundle(source))
    except BundleError as error:
        return list(error.problems)
    loading.run()
    return loading.report.problems


def read_sensors(source: str | Path) -> tuple[CalibrationFile, Path | None]:
    """The sensors of a bundle whose other files may have problems, and where its `tf_static.json` belongs."""
    loading = _BundleLoading(find_bundle(source))
    sensors, target = loading.sensors_alone()
    if sensors is None:
        raise BundleError(loading.report.problems)
    return sensors, target


def find_bundle(source: str | Path) -> Path:
    """The folder of a shipped world (`oval`, `worlds/oval`), of a path to a folder, or of a path to a `world.yaml`."""
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
    """Whether this refers to a bundle: a shipped name, a folder, or a `world.yaml` beside files of a bundle."""
    path = Path(source)
    try:
        if source and path.is_dir():
            return True
        if path.name == ENTRY:
            return not path.exists() or (path.parent / "metadata.json").exists() or (path.parent / "geometry").exists()
    except (OSError, ValueError):
        return False
    return source.removeprefix("worlds/") in world_names()


class _BundleLoading:
    """The steps from a folder to a bundle; each adds the problems it finds."""

    def __init__(self, root: Path) -> None:
        self.report = BundleReport()
        self.root = root
        self.folder = Folder(root, self.report)
        self.files: dict[str, BundleFile] = {}

    def run(self) -> Bundle | None:
        """None if there is any error; a bundle is never handed out in part."""
        world = self._world()
        if world is None:
            return None
        written = world.read(WorldFile)
        self._find_files(world)
        metadata = self._read("metadata", MetadataFile)
        timebase = self._read("sim.timebase", Timebase)
        sensors = self._sensors(timebase or Timebase())
        heightmap, drivable, mesh, gaussians = self._heightmap(), self._drivable(), self._mesh(), self._gaussians()
        self._check_lanes()
        objects = self._read("geometry.objects", ObjectsFile)
        self._check_size(world)
        vehicle = None if written is None else written.vehicle
        if written is not None and heightmap is not None:
            check_start(world, None if vehicle is None else vehicle.start, heightmap, mesh)
        if written is None or metadata is None or timebase is None or sensors is None or self.report.error_count:
            return None
        assert heightmap is not None
        assert drivable is not None
        assert gaussians is not None
        place = metadata.origin
        return Bundle(
            name=written.name or self.root.resolve().name,
            root=self.root,
            description=metadata.description,
            origin_wgs84=(place.latitude_deg, place.longitude_deg, place.altitude_m),
            heightmap=heightmap,
            drivable=drivable,
            mesh=mesh,
            gaussians=gaussians,
            cameras=sensors.cameras,
            lidars=sensors.lidars,
            timebase=timebase,
            vehicle=vehicle,
            files={ENTRY: world.file, **{source.name: source.file for source in self.files.values()}},
            warnings=tuple(self.report.problems),
            origin_is_known=metadata.origin_is_known,
            objects=() if objects is None else objects.objects,
        )

    def sensors_alone(self) -> tuple[CalibrationFile | None, Path | None]:
        """None if the entry point or the calibration cannot be read."""
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

    def _world(self) -> BundleFile | None:
        source = BundleFile(self.report, ENTRY, self.root / ENTRY)
        if not source.file.exists():
            source.problem("entry-point", f"no {ENTRY} in {self.root}", (), "a bundle begins with that file")
            return None
        if not source.file.is_file() or not Path(os.path.realpath(source.file)).is_relative_to(self.folder.real_root):
            source.problem("link-inside", f"expected a regular file inside the bundle, found {source.file}")
            return None
        return source if read_document(source) else None

    def _find_files(self, world: BundleFile) -> None:
        assert world.document is not None
        for key, extensions, required in FILES:
            group = world.document.data if len(key) == 1 else world.document.data.get(key[0])
            if group is not None and not isinstance(group, dict):
                continue  # reported already
            name = (group or {}).get(key[-1])
            if name is not None:
                source = self.folder.find(world, key, name, extensions)
                if source is not None:
                    self.files[".".join(key)] = source
            elif required:
                message = f"{ENTRY} names no file under '{'.'.join(key)}'"
                world.problem("required-file", message, key, f"add '{key[-1]}: PATH'")

    def _document(self, key: str, needs_version: bool = True) -> BundleFile | None:
        source = self.files.get(key)
        return source if source is not None and read_document(source, needs_version) else None

    def _read(self, key: str, model: type[_Text]) -> _Text | None:
        source = self._document(key)
        return None if source is None else source.read(model)

    def _sensors(self, timebase: Timebase) -> CalibrationFile | None:
        source = self._document("sensors.calibration")
        derived = self._document("sensors.tf_static")
        if source is None:
            return None
        before = self.report.error_count
        sensors = read_calibration(source)
        if sensors is not None:
            check_rates(source, sensors, timebase.physics_hz)
            if derived is not None and self.report.error_count == before:  # else differences would be reported twice
                check_tf_static(derived, sensors.frames())
        return sensors

    def _heightmap(self) -> Heightmap | None:
        config = self._document("geometry.heightmap_config")
        binary = self.files.get("geometry.heightmap")
        return read_heightmap(config, binary) if config is not None and binary is not None else None

    def _drivable(self) -> DrivableArea | None:
        source = self._document("geometry.drivable", needs_version=False)
        return read_drivable(source) if source is not None else None

    def _mesh(self) -> StaticMesh | None:
        from microsim.bundle.mesh_files import read_mesh

        source = self.files.get("geometry.static_mesh")
        return None if source is None else read_mesh(source)

    def _check_lanes(self) -> None:
        from microsim.bundle.road_map import read_lanes

        source = self.files.get("geometry.lanes")
        if source is None:
            return
        try:
            read_lanes(source.file)
        except UsageError as error:
            source.problem("lanes-format", str(error).removeprefix(f"{source.file}: "))

    def _gaussians(self) -> Gaussians | None:
        render = self._read("gaussians.render_config", RenderConfig)
        source = self.files.get("gaussians.background")
        return None if source is None else read_gaussians(source, render)

    def _check_size(self, world: BundleFile) -> None:
        total = world.file.stat().st_size + sum(source.file.stat().st_size for source in self.files.values())
        if total > RECOMMENDED_BYTES:
            message = f"the bundle has {total / 1e9:.2f} GB, more than the recommended 2 GB"
            world.problem("limit-bundle-size", message, (), "split the world, or reduce the number of Gaussians")
