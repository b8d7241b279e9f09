"""What pip and colcon read agrees with itself and with what is in the tree."""

import runpy
import subprocess
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import pytest
import setuptools
from catkin_pkg.package import Package, parse_package

from microsim.version import __version__

ROOT = Path(__file__).resolve().parents[2]
DATA_FOLDERS = ("launch", "rviz", "urdf", "scenarios", "missions", "worlds", "examples/demos")


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
    assert package.name == metadata["name"] == "microsim"
    assert package.version == metadata["version"] == __version__
    assert package.description.rstrip(".") == metadata["description"]
    assert package.licenses == [metadata["license"]]
    assert [person.name for person in package.maintainers] == [metadata["maintainer"]]


def test_the_installed_version_is_that_of_the_tree() -> None:
    assert installed_version("microsim") == __version__


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


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
