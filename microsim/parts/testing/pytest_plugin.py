"""The pytest plug-in: the `sim` fixture, missions as tests, and artefacts of tests that fail.

@pytest.mark.microsim("obstacles_arena", seed=3)
def test_the_rover_keeps_its_distance(sim): ...
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from microsim.errors import MicroSimError

if TYPE_CHECKING:
    from microsim.parts.testing.sim_under_test import SimUnderTest

_RUN: pytest.StashKey[SimUnderTest] = pytest.StashKey()
_ARGUMENTS = ("scenario", "seed", "controllers")
_MARK = (
    "microsim(scenario, seed=None, controllers=()): the scenario of the fixture `sim`: a name, a file beside the test, "
    "or a dict; controllers: files beside the test, such as `rover=controller.py`"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("microsim", "simulated robots")
    group.addoption("--update-digests", action="store_true", help="store the digests of this run as the expected ones")
    about = "folder for recording, plot and page of tests that fail (default: %(default)s)"
    group.addoption("--microsim-artefacts", metavar="FOLDER", default="microsim-artefacts", help=about)
    missions = "YAML files with these names are missions, each a test; patterns of a name or of a path"
    parser.addini("microsim_missions", missions, type="args", default=["test_*.yaml", "test_*.yml"])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARK)


# ---- the fixture -----------------------------------------------------------------------------------------------------


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[SimUnderTest]:
    """A simulation that records itself; `@pytest.mark.microsim` names its scenario and seed."""
    mark = request.node.get_closest_marker("microsim")
    try:
        run = _started(request.node, *_chosen(mark, request.node.path))
    except MicroSimError as error:
        pytest.fail(f"the fixture `sim` cannot start: {error}", pytrace=False)
    yield run
    _end(request.node)


def _chosen(mark: pytest.Mark | None, test: Path) -> tuple[Any, int | None]:
    """Scenario and seed of a marker."""
    from microsim.errors import UsageError, unknown
    from microsim.scenario import load_scenario
    from microsim.scenario.files import beside

    if mark is None:
        return None, None
    for name in mark.kwargs:
        if name not in _ARGUMENTS:
            raise UsageError(unknown("@pytest.mark.microsim has no argument", repr(name), name, _ARGUMENTS))
    if len(mark.args) > 1:
        raise UsageError(f"@pytest.mark.microsim takes one scenario, found {len(mark.args)}; the seed is `seed=N`")
    scenario = mark.args[0] if mark.args else mark.kwargs.get("scenario")
    controllers = mark.kwargs.get("controllers", ())
    if controllers:
        texts = [controllers] if isinstance(controllers, str) else controllers
        parts = [text.rpartition("=") for text in texts]
        files = [f"{robot}{found}{test.parent / file}" for robot, found, file in parts]
        source = "default" if scenario is None else beside(scenario, test) if isinstance(scenario, str) else scenario
        scenario = load_scenario(source, controllers=files)
    return scenario, mark.kwargs.get("seed")


def _started(item: pytest.Item, scenario: Any, seed: int | None) -> SimUnderTest:
    from microsim.parts.testing.sim_under_test import GoldenDigests, SimUnderTest
    from microsim.scenario.files import beside

    if isinstance(scenario, str):
        scenario = beside(scenario, item.path)
    folder = Path(tempfile.mkdtemp(prefix="microsim-test-"))
    update = bool(item.config.getoption("--update-digests"))
    digests = GoldenDigests(item.path.parent / "digests", f"{item.path.stem}-{_file_name(item.name)}", update)
    try:
        run = SimUnderTest("default" if scenario is None else scenario, seed, folder, digests)
    except BaseException:  # Ctrl-C too: no folder may stay behind
        shutil.rmtree(folder, ignore_errors=True)
        raise
    item.stash[_RUN] = run
    return run


def _end(item: pytest.Item) -> None:
    run = item.stash.get(_RUN, None)
    if run is not None:
        del item.stash[_RUN]
        try:
            run.close()
        finally:
            shutil.rmtree(run.folder, ignore_errors=True)


def _file_name(text: str) -> str:
    """Letters, digits, `_`, `.` and `-` stay."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_")[:120]


# ---- missions --------------------------------------------------------------------------------------------------------


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    patterns = parent.config.getini("microsim_missions")
    names = (file_path.name, str(file_path), _relative(file_path, parent.config.rootpath))
    if not any(fnmatch(name, pattern) for name in names for pattern in patterns):
        return None
    from microsim.scenario.files import has_key_of

    is_mission = has_key_of(file_path, ("do", "expect"))  # other YAML may be called test_*, too
    return MissionTests.from_parent(parent, path=file_path) if is_mission else None


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


class MissionTests(pytest.File):
    """A mission's file."""

    def collect(self) -> Iterator[MissionTest]:
        yield MissionTest.from_parent(self, name="mission")


class MissionTest(pytest.Item):
    """A mission that runs as a test; its expectations must be met."""

    def runtest(self) -> None:
        from microsim.parts.missions import load_mission

        mission = load_mission(self.path)
        _started(self, mission.scenario, mission.seed).fly(mission)

    def teardown(self) -> None:
        _end(self)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the mission expects is in its file: a traceback of ours says nothing about it."""
        if isinstance(excinfo.value, (AssertionError, MicroSimError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"mission {self.path.stem}"


# ---- what is left of a test that fails -------------------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)  # the older form: pytest 7 loads this plug-in too
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    report = (yield).get_result()
    run = item.stash.get(_RUN, None)
    if report.when == "call" and report.failed and run is not None:
        folder = Path(item.config.getoption("--microsim-artefacts")).absolute() / _file_name(item.nodeid)
        report.sections.append(("microsim", "\n".join(run.save_artefacts(folder, report.longreprtext))))
