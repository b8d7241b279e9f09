"""Whatever `validate` accepts, `run` starts, and what it refuses a run refuses: worlds with holes, faults, sensors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from microsim.cli import app
from microsim.errors import MicroSimError
from microsim.scenario import load_scenario
from microsim.simulation import Simulation
from tests.bundle_support import change, small_bundle


def is_valid(source: Path) -> bool:
    done = CliRunner().invoke(app, ["validate", str(source), "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)[0]
    assert report["ok"] == (done.exit_code == 0)
    assert report["ok"] or any(each["message"] and not each["is_warning"] for each in report["problems"])
    return bool(report["ok"])


def starts(source: Any) -> bool:
    try:
        Simulation(load_scenario(source))
    except MicroSimError:
        return False
    return True


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without cameras, whose pictures take their time."""
    folder = small_bundle(tmp_path_factory.mktemp("worlds") / "whole")
    change(folder / "sensors/calibration.yaml", lambda data: data.update(cameras=type(data["cameras"])()))
    return folder


HOLES = st.tuples(*[st.integers(0, 127)] * 2, *[st.integers(0, 40)] * 2)  # row, column, height, width
STARTS = st.none() | st.fixed_dictionaries({"x": st.integers(-34, 34), "y": st.integers(-34, 34)})


@settings(max_examples=10)
@given(holes=st.lists(HOLES, max_size=3), start=STARTS, origin=st.booleans())
@example(holes=[(60, 60, 8, 8)], start=None, origin=False)  # a kitchen: no ground at the default start
@example(holes=[], start=None, origin=True)
def test_a_world_that_is_valid_can_be_run(
    holes: list[tuple[int, int, int, int]], start: dict[str, int] | None, origin: bool, world: Path
) -> None:
    folder = world.with_name("made")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(world, folder)
    heights = np.fromfile(world / "geometry/heightmap.bin", "<f4").reshape(128, 128)
    for row, column, height, width in holes:
        heights[row : row + height, column : column + width] = np.nan
    heights.tofile(folder / "geometry/heightmap.bin")
    change(folder / "world.yaml", lambda data: data.pop("vehicle", None))
    if start is not None:
        change(folder / "world.yaml", lambda data: data.update(vehicle={"start": start}))
    if not origin:
        change(folder / "metadata.json", lambda data: data.update(origin_is_known=False))
    assert is_valid(folder) == starts({"world": str(folder)})


@pytest.mark.parametrize(
    "text",
    [
        "faults: ['/rover/cmd_vel:loss(1)']",
        "faults: ['/rover/cmd_vell:loss(1)']",
        "faults: ['gps:fail@1s-2s']",
        "lockstep: [{after: /rover/odom, expect: /rover/cmd_vel}]",
        "lockstep: [{after: /rover/odomm, expect: /rover/cmd_vel}]",
        "robots: {rover: {gps: {hz: 61}}}",
        "robots: {rover: {start: {map_pose: {x: -1, y: 3}}}}",
    ],
)
def test_a_scenario_that_is_valid_can_be_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    is_run = starts(tmp_path / "my.yaml")
    if "odomm" in text:  # gates are checked where a run waits at them
        is_run = False
    assert is_valid(tmp_path / "my.yaml") == is_run
