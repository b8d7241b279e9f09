"""What all tests share: ROS 2 stays on this machine; hypothesis has no stopwatch, since a first call may compile.

Hypothesis draws the same examples in every run, so that a failure belongs to the change that caused it. New examples:
`make test ARGS=--hypothesis-profile=explore`; what that finds is written into the test as an `@example`.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.ros_domains import own_domain

os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"  # before any participant, and for every process we start
os.environ["ROS_DOMAIN_ID"] = own_domain("tests")  # runs side by side do not meet

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("microsim", settings.get_profile("explore"), derandomize=True)
settings.load_profile("microsim")

ROOT = Path(__file__).resolve().parents[1]


ENVIRONMENTS = ("gpu", "interop", "learning")  # folders whose tests all have the marker of that name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What would be deselected is not imported: libraries of other environments take seconds.

    `colcon test` runs everything that pytest finds, and names the package in its report: it gets the quick tests.
    """
    if collection_path.parent == ROOT / "tests" and collection_path.name in ENVIRONMENTS:
        return f"not {collection_path.name}" in config.getoption("markexpr") or None
    if config.getoption("junitprefix", None) != "microsim" or collection_path.suffix != ".py":
        return None
    return collection_path.relative_to(ROOT).as_posix() not in (ROOT / "tests" / "quick.txt").read_text().split()
