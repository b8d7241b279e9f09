"""The bytes do not depend on the processor family."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COMPARE = HERE / "compare.py"


def compare(native: dict[str, str], emulated: dict[str, str], machine: str = "aarch64") -> int:
    lines = [
        json.dumps({"machine": name, "digests": digests}) for name, digests in (("x86_64", native), (machine, emulated))
    ]
    return subprocess.run([sys.executable, str(COMPARE), *lines], check=False, capture_output=True).returncode


@pytest.mark.aarch64
def test_an_emulated_arm64_processor_gives_the_golden_digest() -> None:
    subprocess.run([str(HERE / "check.sh")], check=True)


def test_equal_digests_pass() -> None:
    assert compare({"probe": "1"}, {"probe": "1"}) == 0


@pytest.mark.parametrize("emulated", [{"probe": "2"}, {}, {"probe": "1", "more": "3"}])
def test_a_digest_that_differs_or_is_missing_fails(emulated: dict[str, str]) -> None:
    assert compare({"probe": "1"}, emulated) == 1


def test_equal_digests_that_differ_from_the_golden_one_fail() -> None:
    assert compare({"mission": "not the golden one"}, {"mission": "not the golden one"}) == 1


def test_a_run_that_was_not_on_arm64_proves_nothing() -> None:
    assert compare({"probe": "1"}, {"probe": "1"}, machine="x86_64") == 1
