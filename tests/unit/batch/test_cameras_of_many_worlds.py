"""Plain cameras as a GPU draws them, against the CPU's images. `test_devices` runs the same in numba's simulator."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.batch import BatchSimulation, camera_columns, device_choice
from microsim.batch.camera_columns import CameraColumns
from microsim.batch.host_loops import HostLoops
from microsim.batch.sensor_columns import InstrumentColumns
from tests.support import bare, many
from tests.unit.batch.camera_scenarios import ThreadsOnCpu, random_source
from tests.unit.batch.device_scenarios import assert_same, drive
from tests.unit.batch.test_batch import scenario


def pair(source: Any, n: int) -> list[BatchSimulation]:
    return [BatchSimulation(source, n, device=loops) for loops in (HostLoops(), ThreadsOnCpu())]


@settings(max_examples=many(30, 2), deadline=None)
@given(n=st.integers(1, 5), dice=st.integers(0, 2**32))
def test_threads_of_a_gpu_draw_the_cpus_images(n: int, dice: int) -> None:
    random = np.random.default_rng(dice)
    batches = pair(random_source(random, many(40, 6)), n)
    for _ in range(4):
        if random.random() < 0.4:
            mask = random.random(n) < 0.5
            for batch in batches:
                batch.reset(mask, seeds=np.arange(mask.sum()) + 50)
        drive(batches, random, int(random.integers(0, 25)))
        assert_same(batches)
