"""The interface package: valid for colcon, of this version, and the same service as the dds transport serves."""

from __future__ import annotations

import re
from pathlib import Path

from catkin_pkg.package import parse_package

from microsim.messages.types import DEFINITIONS
from microsim.version import __version__

FOLDER = Path(__file__).resolve().parents[3] / "interfaces" / "microsim_interfaces"


def test_the_package_is_valid_and_of_this_version() -> None:
    package = parse_package(str(FOLDER / "package.xml"))
    package.validate()
    assert package.name == FOLDER.name
    assert package.version == __version__
    assert package.get_build_type() == "ament_cmake"
    assert [group.name for group in package.member_of_groups] == ["rosidl_interface_packages"]


def test_every_service_file_is_generated_and_listed_once() -> None:
    listed = re.findall(r'"(\w+/\w+\.\w+)"', (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8"))
    files = [path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.*")]
    assert listed == files == ["srv/SetInt32.srv"]


def test_the_service_is_that_of_the_dds_transport() -> None:
    """Also its type hash: the files may differ in comments alone."""

    def lines(path: Path) -> list[list[str]]:
        words = (line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines())
        return [each for each in words if each]

    ours = lines(FOLDER / "srv" / "SetInt32.srv")
    assert ours == [["int32", "data"], ["---"], ["bool", "success"], ["string", "message"]]
    for package in ("microsim_interfaces", "example_interfaces"):
        assert lines(DEFINITIONS / package / "srv" / "SetInt32.srv") == ours
