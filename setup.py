"""All package metadata, read alike by pip and by colcon (ament_python).

A [project] table in pyproject.toml would hide the data files below from colcon, so there is none.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_packages, setup

NAME = "microsim"  # of the Python package, the ament package and the command
DISTRIBUTION = "microsim-ros2"  # for pip: "microsim" on PyPI is an unrelated project
ROOT = Path(__file__).resolve().parent
DATA_FOLDERS = ("launch", "rviz", "layouts", "urdf", "scenarios", "missions", "worlds", "examples/demos")

# viser checks no Origin and draws another page in its next minor version: access.py and page.css in
# parts/view/web/page/ are made for this one
VIEW = ["viser>=1.1,<1.2", "yourdfpy>=0.0.56", "xacrodoc>=1.0"]

FOXGLOVE = ["foxglove-sdk>=0.16"]

MCP = ["mcp>=2,<3"]

CAPTURE = ["scipy>=1.11.4", "scikit-image>=0.22", "fast-simplification>=0.1.9"]  # `microsim bundle from-capture`

ROADS = [
    "lanelet2>=1.2; platform_system == 'Linux' and platform_machine == 'x86_64'",
    "scipy>=1.11.4",
]  # `bundle from-roads`

RL = ["gymnasium>=1.0", "pettingzoo>=1.24"]

TRAIN = [*RL, "torch>=2.4"]  # `microsim policy train`; onnx only where a policy is exported

TEST = [
    *RL,
    *CAPTURE,
    *ROADS,
    *VIEW,
    *MCP,
    *FOXGLOVE,
    "websockets>=14",
    "playwright>=1.48",
    "pytest>=8.2",
    "pytest-cov>=5",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    *("nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6.29"),  # run docs/notebooks
    "hypothesis>=6.110",
    "matplotlib>=3.8",
    "mcap>=1.2",
    "pymap3d>=3.1",
    "mpmath>=1.3",
    "jsonschema>=4.22",
    "catkin_pkg>=1.0",
    "setuptools>=64",
    "embreex>=4.4; platform_machine == 'x86_64'",  # a second opinion on rays
    "pyarrow>=17",
    "ray>=2.40",
    # compile the code of GPUs, to look at it; they need no GPU
    *(
        f"{name}; platform_system == 'Linux' and platform_machine == 'x86_64'"
        for name in ("numba-cuda>=0.30", "nvidia-nvvm>=13")
    ),
]

# where there are wheels; elsewhere ROS 2 must be installed, and rclpy is used
CYCLONE_DDS = "cyclonedds>=11.0,<12; " + " or ".join(
    f"(platform_system == '{system}' and platform_machine == '{machine}' and implementation_name == 'cpython')"
    for system, machine in (("Linux", "x86_64"), ("Darwin", "arm64"), ("Windows", "AMD64"))
)


def version() -> str:
    """Read without importing the package, whose dependencies may not be installed yet."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / NAME / "version.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, "microsim/version.py holds no __version__"
    return found[1]


def data_files() -> Iterator[tuple[str, list[str]]]:
    """Every data folder as it stands, sub-folders kept, under share/microsim; paths relative as setuptools wants."""
    yield "share/ament_index/resource_index/packages", [f"resource/{NAME}"]
    yield f"share/{NAME}", ["package.xml"]
    for folder in DATA_FOLDERS:
        for path, folders, names in os.walk(ROOT / folder):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            relative = Path(path).relative_to(ROOT).as_posix()
            files = [f"{relative}/{name}" for name in sorted(names) if not name.startswith(".")]
            if files:
                yield f"share/{NAME}/{relative}", files


def long_description() -> str:
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.is_file() else ""


setup(
    name=DISTRIBUTION,
    version=version(),
    description="Deterministic robot simulator: the same bytes everywhere, with and without ROS 2",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="The MicroSim developers",
    maintainer="The MicroSim developers",
    license="Apache-2.0",
    keywords=["robotics", "simulation", "ROS 2", "deterministic"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
        "Typing :: Typed",
    ],
    python_requires=">=3.10,<3.14",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        NAME: ["py.typed"],
        f"{NAME}.messages": ["definitions/*/*/*"],
        f"{NAME}.parts.view.web.page": ["*.css", "*.js"],
        f"{NAME}.render": ["*.cu"],
        f"{NAME}.parts.learning": ["policies/*.npz"],
    },
    data_files=list(data_files()),
    zip_safe=False,  # compiled kernels are recognised by their code, and worlds are mapped into memory
    install_requires=[
        "numpy>=1.26",
        "numba>=0.60",
        "rosbags>=0.11,<0.12",
        "backports.zstd>=1.0; python_version < '3.14'",
        CYCLONE_DDS,
        "pydantic>=2.11",
        "ruamel.yaml>=0.18",
        "shapely>=2.0",
        "pillow>=10.1",
        "typing_extensions>=4.12",
        "typer>=0.15",
        "rich>=13.7,<15",
    ],
    extras_require={
        "test": TEST,
        "dev": [*TEST, "mypy>=1.15", "ruff>=0.11", "import-linter>=2.1", "pre-commit>=4"],
        "plot": ["matplotlib>=3.8"],
        "rl": RL,
        "train": TRAIN,
        "onnx": ["onnx>=1.16"],
        "capture": CAPTURE,
        "roads": ROADS,
        "view": VIEW,
        "mcp": MCP,
        "foxglove": FOXGLOVE,
        "gpu": [f"{name}; platform_system != 'Darwin'" for name in ("cupy-cuda12x>=13", "numba-cuda[cu12]>=0.30")],
        "sweep": ["pyarrow>=17"],  # parquet; .csv needs nothing
        "ray": ["ray>=2.40"],
        "docs": ["sphinx>=7.3", "furo>=2024.8.6", "myst-parser>=4"],
        "bench": ["ir-sim==2.12.*", "mujoco"],
        "bench-torch": ["vmas", "gsplat==1.5.3", "torch"],  # in its own environment: benchmarks/peers/torch_setup.sh
    },
    entry_points={
        "console_scripts": [
            f"microsim = {NAME}.cli:main",
            f"robot_simulator = {NAME}.cli:robot_simulator",
            f"sim_rover = {NAME}.cli:sim_rover",
        ],
        "pytest11": [f"{NAME} = {NAME}.parts.testing.pytest_plugin"],  # test suites get it by installing the package
    },
)
