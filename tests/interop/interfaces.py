"""Builds the interface packages that PyPI lacks, with ROS 2's own generators, for the tests only.

    .cache/rclpy-venv/bin/python tests/interop/interfaces.py

Needs a C and C++ compiler and Python's headers (Debian: apt install g++ python3-dev). What a colcon workspace would
install as a dozen libraries becomes one extension module for each package, in .cache/rclpy-interfaces/python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from microsim.messages.types import DEFINITIONS

PREFIX = Path(sys.prefix)
REPOSITORY = Path(__file__).resolve().parents[2]
BUILT = REPOSITORY / ".cache" / "rclpy-interfaces"
AUTOWARE = ("autoware_control_msgs", "autoware_vehicle_msgs")
TYPE_SUPPORT = "rosidl_typesupport_c"
DEPENDENCIES = (
    "action_msgs",
    "builtin_interfaces",
    "geometry_msgs",
    "service_msgs",
    "std_msgs",
    "unique_identifier_msgs",
)
LIBRARIES = ("rosidl_generator_c", "rosidl_generator_py", "rosidl_typesupport_c", "rosidl_typesupport_fastrtps_c")
RUNTIME = (
    *("rosidl_runtime_c", "rosidl_typesupport_c", "rosidl_typesupport_fastrtps_c", "rosidl_typesupport_fastrtps_cpp"),
    *("fastcdr", "rmw", "rcutils"),
)


def sources() -> dict[str, dict[str, str]]:
    """package -> path of a .msg, .srv or .action file -> its text."""
    texts = {"tf2_msgs": {"msg/TFMessage.msg": "geometry_msgs/TransformStamped[] transforms\n"}}
    for package in ("simulation_interfaces", "ackermann_msgs", "vision_msgs", *AUTOWARE):
        folder = DEFINITIONS / package
        texts[package] = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.glob("*/*")}
    standard = DEFINITIONS / "example_interfaces" / "srv" / "SetBool.srv"  # upstream has no SetInt32
    texts["example_interfaces"] = {"srv/SetBool.srv": standard.read_text()}
    ours = REPOSITORY / "interfaces" / "microsim_interfaces" / "srv" / "SetInt32.srv"
    texts["microsim_interfaces"] = {"srv/SetInt32.srv": ours.read_text()}
    return texts


class Package:
    """One interface package on its way from text to an extension module."""

    def __init__(self, name: str, texts: dict[str, str]) -> None:
        self.name = name
        self.files = list(texts)
        self.source = BUILT / "source" / name
        self.generated = BUILT / "generated" / name  # doubles as include folder: files are named PACKAGE/msg/...
        self.python = BUILT / "python" / name
        for file, text in texts.items():
            path = self.source / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def generate(self) -> None:
        from rosidl_adapter import convert_to_idl
        from rosidl_generator_c import generate_c
        from rosidl_generator_py.generate_py_impl import generate_py
        from rosidl_generator_type_description import generate_type_hash
        from rosidl_typesupport_c import generate_c as generate_type_support
        from rosidl_typesupport_fastrtps_c import generate_typesupport_fastrtps_c

        for file in self.files:
            convert_to_idl(self.source, self.name, Path(file), self.source)
        generate_type_hash(self._arguments("rosidl_generator_type_description", self.source))
        generate_c(self._arguments("rosidl_generator_c"))
        generate_type_support(self._arguments("rosidl_typesupport_c"), ["rosidl_typesupport_fastrtps_c"])
        generate_typesupport_fastrtps_c(self._arguments("rosidl_typesupport_fastrtps_c"))
        generate_py(self._arguments("rosidl_generator_py"), [TYPE_SUPPORT])
        self._visibility_headers()

    def _arguments(self, generator: str, output: Path | None = None) -> str:
        output = output or self.generated / self.name
        idl = [str(Path(file).with_suffix(".idl")) for file in self.files]
        share = PREFIX / "share"
        path = self.source / f"{generator}.arguments.json"
        path.write_text(
            json.dumps(
                {
                    "package_name": self.name,
                    "output_dir": str(output),
                    "template_dir": str(share / generator / "resource"),
                    "idl_tuples": [f"{self.source}:{file}" for file in idl],
                    "ros_interface_dependencies": [],
                    "target_dependencies": [],
                    "include_paths": [f"{name}:{share / name}" for name in DEPENDENCIES],
                    "type_description_tuples": [
                        f"{file}:{self.source / Path(file).with_suffix('.json')}" for file in idl
                    ],
                }
            )
        )
        return str(path)

    def _visibility_headers(self) -> None:
        for generator in ("rosidl_generator_c", "rosidl_typesupport_c", "rosidl_typesupport_fastrtps_c"):
            for template in (PREFIX / "share" / generator / "resource").glob("*visibility_control.h.in"):
                text = template.read_text().replace("@PROJECT_NAME@", self.name)
                text = text.replace("@PROJECT_NAME_UPPER@", self.name.upper())
                (self.generated / self.name / "msg").mkdir(exist_ok=True)
                (self.generated / self.name / "msg" / template.name.removesuffix(".in")).write_text(text)

    def compile(self, pool: ThreadPoolExecutor) -> None:
        units = [*self.generated.rglob("*.c"), *self.generated.rglob("*.cpp")]
        objects = list(pool.map(self._object, units))
        self.python.mkdir(parents=True, exist_ok=True)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        libraries = [f"-l{package}__{library}" for package in DEPENDENCIES for library in LIBRARIES]
        libraries += [f"-L{PREFIX / 'lib'}", f"-Wl,-rpath,{PREFIX / 'lib'}", *(f"-l{name}" for name in RUNTIME)]
        run("g++", "-shared", "-o", self.python / f"{self.name}_s__{TYPE_SUPPORT}{suffix}", *objects, *libraries)
        shutil.copytree(self.generated / self.name, self.python, dirs_exist_ok=True, ignore=all_but_python)
        (self.python / "__init__.py").write_text("")

    def _object(self, unit: Path) -> Path:
        folders = [self.generated, sysconfig.get_path("include"), numpy_headers(), PREFIX / "include"]
        folders += [folder for folder in (PREFIX / "include").iterdir() if not folder.name.startswith("python")]
        made = unit.with_suffix(unit.suffix + ".o")
        compiler = ["gcc", "-std=c11"] if unit.suffix == ".c" else ["g++", "-std=c++17"]
        includes = [f"-I{folder}" for folder in folders]
        package = f'-DROS_PACKAGE_NAME="{self.name}"'
        run(*compiler, "-O0", "-w", "-fPIC", package, *includes, "-c", unit, "-o", made)
        return made


def numpy_headers() -> str:
    import numpy as np

    return np.get_include()


def all_but_python(folder: str, names: Iterable[str]) -> set[str]:
    return {name for name in names if not (name.endswith(".py") or (Path(folder) / name).is_dir())} | {"detail"}


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def main() -> int:
    if shutil.which("gcc") is None or shutil.which("g++") is None:
        print("no C++ compiler, so no tf2_msgs for the interop tests (Debian: apt install g++ python3-dev)")
        return 1
    os.environ["AMENT_PREFIX_PATH"] = str(PREFIX)
    packages = [Package(name, texts) for name, texts in sources().items()]
    for package in packages:
        package.generate()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for package in packages:
            package.compile(pool)
    shutil.rmtree(BUILT / "generated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
