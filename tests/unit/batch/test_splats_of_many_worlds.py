"""Splat cameras of a batch: all worlds that are due in one call, and the bytes of single worlds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.render.splat.picture import CpuRenderer, Shot
from microsim.sensors import _splat_camera as splat_cameras
from tests.unit.sensors.test_splat_cameras import images, scenario

CAMERA = "ego/camera_front"
BOX = {"type": "box", "center": [-9.0, 0.0, 0.0], "size": [1.0, 2.0, 2.0]}
MOVED = {"obstacles": [BOX], "randomize": {"obstacles": {"shift_m": 3, "keep_probability": 0.7}}}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call drew."""
    counts: list[int] = []
    original = CpuRenderer.pictures

    def pictures(self: CpuRenderer, shots: Sequence[Shot]) -> Any:
        counts.append(len(shots))
        return original(self, shots)

    monkeypatch.setattr(CpuRenderer, "pictures", pictures)
    return counts


def test_all_worlds_that_are_due_are_drawn_in_one_call(drawn: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    batch = BatchSimulation(scenario(), 5)
    drawn.clear()
    batch.step(40)
    assert drawn == [5]
    together = batch.readings[CAMERA].copy()
    size = batch.scenario.robots["ego"].all_sensors()["camera_front"].resolution
    monkeypatch.setattr(splat_cameras, "MOST_PIXELS", 2 * size.width * size.height)
    batch.reset()
    drawn.clear()
    batch.step(40)
    assert drawn == [2, 2, 1]
    np.testing.assert_array_equal(batch.readings[CAMERA], together)


@pytest.mark.parametrize("render", [{}, {"depth": True, "segmentation": True}], ids=["image", "labels"])
def test_worlds_with_obstacles_of_their_own_share_what_draws_them(render: dict[str, bool], drawn: list[int]) -> None:
    source = scenario({"render": {"type": "splat", **render}}, **MOVED)
    batch = BatchSimulation(source, seeds=[3, 4, 5])
    batch.commands("ego")[1] = 5.0, -2.0, 1.0
    drawn.clear()
    batch.step(40)
    assert drawn == ([1, 1, 1] if render else [3])
    readings = batch.readings[CAMERA]
    for world, speed in enumerate((5.0, -2.0, 1.0)):
        single = microsim.Simulation(source, 3 + world)
        single.command("ego", speed=speed)
        sent = single.step(40)
        np.testing.assert_array_equal(readings[world][..., :3], images(sent)[-1])
        if render:
            np.testing.assert_array_equal(readings[world][..., 7:], images(sent, "segmentation")[-1])
