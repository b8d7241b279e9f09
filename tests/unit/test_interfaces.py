"""The interface package: valid for colcon, of this version, and the same service as the dds transport serves."""

from __future__ import annotations

from pathlib import Path

from catkin_pkg.package import parse_package

from microsim.messages import fields_of
from microsim.version import __version__

FOLDER = Path(__file__).resolve().parents[2] / "interfaces" / "microsim_interfaces"


def test_the_package_is_valid_and_of_this_version() -> None:
    package = parse_package(str(FOLDER / "package.xml"))
    package.validate()
    assert package.name == FOLDER.name
    assert package.version == __version__
    assert package.get_build_type() == "ament_cmake"
    assert [group.name for group in package.member_of_groups] == ["rosidl_interface_packages"]


def test_every_service_file_is_generated_and_listed_once() -> None:
    listed = (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8")
    for path in FOLDER.glob("srv/*.srv"):
        assert listed.count(f'"srv/{path.name}"') == 1


def test_the_service_is_that_of_the_dds_transport() -> None:
    lines = [line.split("#")[0].split() for line in (FOLDER / "srv" / "SetInt32.srv").read_text().splitlines()]
    written = [" ".join(words) for words in lines if words]
    cut = written.index("---")
    for part, fields in (("Request", written[:cut]), ("Response", written[cut + 1 :])):
        served = fields_of(f"example_interfaces/srv/SetInt32_{part}")
        assert [field.split()[1] for field in fields] == [name for name, _ in served]
