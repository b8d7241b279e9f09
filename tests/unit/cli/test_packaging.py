"""What pip and colcon read agrees with itself and with what is in the tree."""

import os
import re
import runpy
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import pytest
import setuptools
from catkin_pkg.changelog import Changelog, populate_changelog_from_rst
from catkin_pkg.package import Package, parse_package
from ruamel.yaml import YAML
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import DISTRIBUTION, MissingExtraError, install_hint
from microsim.messages.topics import table
from microsim.version import __version__

ROOT = Path(__file__).resolve().parents[3]
DATA_FOLDERS = ("launch", "rviz", "layouts", "urdf", "scenarios", "missions", "worlds", "examples/demos")


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What setup.py hands to setuptools."""
    handed: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", lambda **keywords: handed.update(keywords))
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    return handed


@pytest.fixture(scope="module")
def package() -> Package:
    return parse_package(str(ROOT / "package.xml"))


def test_package_xml_is_valid_and_names_a_python_package_for_ament(package: Package) -> None:
    package.validate()
    assert package.package_format == 3
    assert package.get_build_type() == "ament_python"


def test_setup_py_and_package_xml_tell_the_same(package: Package, metadata: dict[str, Any]) -> None:
    assert package.name == "microsim"  # the ament package and the import; on PyPI that name is an unrelated project's
    assert metadata["name"] == DISTRIBUTION == "microsim-ros2"
    assert package.version == metadata["version"] == __version__
    assert package.description.rstrip(".") == metadata["description"]
    assert package.licenses == [metadata["license"]]
    assert [person.name for person in package.maintainers] == [metadata["maintainer"]]


def test_the_installed_version_is_that_of_the_tree() -> None:
    assert installed_version(DISTRIBUTION) == __version__


def test_who_cites_it_cites_this_version() -> None:
    cited = YAML(typ="safe").load(ROOT / "CITATION.cff")
    assert cited["version"] == __version__
    assert cited["license"] == "Apache-2.0"


def test_every_dependency_has_a_lower_bound(metadata: dict[str, Any]) -> None:
    extras = metadata["extras_require"].values()
    wanted = {each.partition(";")[0] for group in (metadata["install_requires"], *extras) for each in group}
    built_elsewhere = {"vmas", "torch", "mujoco"}  # of benchmarks/peers, in environments of their own
    assert {each for each in wanted if not re.search("[=>]=", each)} <= built_elsewhere


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_bloom_reads_the_changelog_once_a_release_has_dated_it() -> None:
    text = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    title, heading = f"{__version__} (2027-01-31)", "Forthcoming\n-----------"
    assert heading in text
    dated = text.replace(heading, f"{title}\n{'-' * len(title)}")
    changelog = populate_changelog_from_rst(Changelog("microsim"), dated)
    assert [version for version, *_ in changelog.foreach_version()] == [__version__]


# what pip installs -> the key of rosdep; None: there is none, see package.xml
ROSDEP = {
    "pillow": "python3-pil",
    "rosbags": "python3-rosbags-pip",
    "typing_extensions": "python3-typing-extensions",
    "backports.zstd": None,
    "cyclonedds": None,
}


def test_rosdep_installs_what_pip_does(package: Package, metadata: dict[str, Any]) -> None:
    names = [re.split(r"[ ;<>=]", each)[0] for each in metadata["install_requires"]]
    keys = {ROSDEP.get(name, f"python3-{name}") for name in names} - {None}
    declared = {each.name for each in package.exec_depends}
    assert keys == {name for name in declared if name.startswith("python3-")}


def test_rosdep_installs_every_package_of_messages_and_services(package: Package) -> None:
    used = {row.type.split("/")[0] for row in table()}
    used |= {folder.name for folder in (ROOT / "microsim" / "messages" / "definitions").iterdir()}
    others = {"action_msgs", "rcl_interfaces", "microsim_interfaces"}  # rclpy brings two; ours is optional
    assert used - others <= {each.name for each in package.exec_depends}


def test_colcon_runs_tests_that_exist_and_need_only_what_rosdep_installs(package: Package) -> None:
    files = (ROOT / "tests" / "quick.txt").read_text(encoding="utf-8").split()
    assert len(files) > 10
    assert all((ROOT / file).is_file() for file in files)
    assert {each.name for each in package.test_depends} == {"python3-pytest", "python3-hypothesis"}
    installed = {"microsim", "tests", "pytest", "hypothesis", "numpy", "numba", "pydantic", "rosbags", "ruamel"}
    imported = {
        (file, name.split(".")[0])
        for file in files
        for name in re.findall(r"^ *(?:import|from) ([\w.]+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert {each for each in imported if each[1] not in installed | sys.stdlib_module_names} == set()


def test_every_data_file_is_installed_under_its_own_folder(metadata: dict[str, Any]) -> None:
    installed = {f"{target}/{Path(file).name}" for target, files in metadata["data_files"] for file in files}
    wanted = {
        f"share/microsim/{path.relative_to(ROOT)}"
        for folder in DATA_FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }
    assert installed - wanted == {
        "share/ament_index/resource_index/packages/microsim",
        "share/microsim/package.xml",
    }
    assert wanted <= installed


def test_every_module_is_in_a_package_that_is_installed(metadata: dict[str, Any]) -> None:
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "microsim").rglob("*.py")}
    assert folders == set(metadata["packages"])


def test_pyproject_holds_no_project_table_which_would_hide_setup_py_from_colcon() -> None:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith("[project")]


def test_help_does_not_pay_for_numba() -> None:
    code = "import sys, microsim.cli; print(sorted({'numba', 'numpy', 'rosbags', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- what to install when an extra is missing ----------------------------------------------------------------------


def hint(folder: Path, **environment: str) -> str:
    """What a copy of the package in this folder says that the extra `view` needs."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from microsim.errors import install_hint as h; print(h('view'))"
    )
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "AMENT_PREFIX_PATH")}
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={**clean, **environment}, check=True)
    return done.stdout.strip()


@pytest.fixture
def installed(tmp_path: Path, metadata: dict[str, Any]) -> Path:
    """A folder as `site-packages`, with the package and what pip and colcon write beside it."""
    (tmp_path / "microsim").mkdir()
    for name in ("__init__.py", "version.py", "errors.py"):
        (tmp_path / "microsim" / name).write_text((ROOT / "microsim" / name).read_text(encoding="utf-8"))
    facts = tmp_path / "microsim_ros2-0.1.0.dist-info"
    facts.mkdir()
    lines = [f"Requires-Dist: {each}; extra == 'view'" for each in metadata["extras_require"]["view"]]
    lines += ["Requires-Dist: matplotlib; extra == 'plot'"]
    head = ["Metadata-Version: 2.1", f"Name: {metadata['name']}", "Version: 0.1.0"]
    (facts / "METADATA").write_text("\n".join([*head, *lines, ""]))
    return tmp_path


def test_a_missing_extra_of_a_checkout_is_installed_from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hint(ROOT) == f"pip install -e '{ROOT}[view]'"
    monkeypatch.chdir(ROOT)
    assert install_hint("plot") == "pip install -e '.[plot]'"


def test_a_missing_extra_of_an_installed_package_is_installed_by_its_name(installed: Path) -> None:
    assert hint(installed) == "pip install 'microsim-ros2[view]'"


def test_in_a_ros_2_workspace_the_libraries_themselves_are_installed(installed: Path) -> None:
    marker = installed / "share" / "ament_index" / "resource_index" / "packages" / "microsim"
    marker.parent.mkdir(parents=True)
    marker.touch()
    told = hint(installed, AMENT_PREFIX_PATH=f"/opt/ros/jazzy:{installed}")
    assert told == "pip install 'viser>=1.1,<1.2' 'yourdfpy>=0.0.56' 'xacrodoc>=1.0'"
    (installed / "microsim_ros2-0.1.0.dist-info" / "METADATA").unlink()
    assert (
        hint(installed, AMENT_PREFIX_PATH=str(installed)) == "pip install the packages of the extra 'view' in setup.py"
    )


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("microsim.parts.agents.commands.mcp", "mcp", ["mcp", "."]),
        ("microsim.parts.foxglove.transport", "foxglove", ["run", "--transport", "none", "--foxglove", "0"]),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    module: str, extra: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint(extra))):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_no_message_names_the_unrelated_project_on_pypi() -> None:
    files = [*(ROOT / "microsim").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    found = [
        file for file in files if re.search(r"pip install '?microsim\b(?!-ros2)", file.read_text(encoding="utf-8"))
    ]
    assert found == []
