"""The digests of the scripted missions never change unawares."""

import json
from pathlib import Path

import pytest

from tests.golden import mission
from tests.support import COMPILED

DIGESTS = json.loads((Path(mission.__file__).parent / "digests.json").read_text(encoding="utf-8"))
UPDATE = "if this was meant, run `python tests/golden/update.py` and say why in CHANGELOG.md, under Digests"


def test_the_short_mission_has_its_golden_digest():
    assert mission.run_short_mission() == DIGESTS["short_mission"], UPDATE


def test_the_short_drive_has_its_golden_digest():
    assert mission.run_short_drive() == DIGESTS["short_drive"], UPDATE


@pytest.mark.skipif(not COMPILED, reason="minutes without the compiler; the short drive covers it")
def test_a_drive_in_a_world_bundle_has_its_golden_digest():
    assert mission.run_bundle_drive() == DIGESTS["bundle_drive"], UPDATE


@pytest.mark.skipif(not COMPILED, reason="minutes without the compiler; the short mission covers it")
@pytest.mark.parametrize("name", mission.SCENARIOS)
def test_a_mission_in_a_shipped_scenario_has_its_golden_digest(name):
    key = "mission" if name == "default" else f"mission_{name}"
    assert mission.run_mission(name) == DIGESTS[key], UPDATE


def test_every_shipped_scenario_has_a_mission():
    from microsim.paths import scenario_names

    assert set(mission.SCENARIOS) == set(scenario_names())


@pytest.mark.skipif(not COMPILED, reason="minutes without the compiler; the short mission covers it")
@pytest.mark.parametrize("scenario", mission.FLOWN_IN)
@pytest.mark.parametrize("name", mission.MISSIONS)
def test_a_shipped_mission_meets_its_expectations_and_has_its_golden_digest(name, scenario):
    digest, violations = mission.fly_shipped(name, scenario)
    assert not violations
    assert digest == DIGESTS[f"{name}_in_{scenario}"], UPDATE


def test_every_shipped_mission_has_golden_digests():
    from microsim.paths import mission_names

    assert set(mission.MISSIONS) == set(mission_names())
