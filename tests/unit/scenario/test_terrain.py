"""Ground heights and surface classes."""

import hashlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.errors import ScenarioError
from microsim.scenario import load_scenario
from microsim.scenario.loading import with_values
from microsim.scenario.scene import elevation, surface
from tests.support import many


def heights(**grid: Any) -> np.ndarray:
    return elevation(load_scenario({"map": grid, "robots": {}}))


def classes(patches: list[dict[str, Any]], **grid: Any) -> np.ndarray:
    surface_types = {"default": 0, "patches": patches}
    return surface(load_scenario({"map": {**grid, "surface_types": surface_types}, "robots": {}}))


def hills(size: tuple[int, int] = (64, 48), **options: Any) -> np.ndarray:
    return heights(size_xy_cells=size, elevation={"generate": "hills", **options})


def test_flat_ground_has_one_height() -> None:
    made = heights(size_xy_cells=[3, 2], elevation={"generate": "flat", "height_m": 1.5})
    assert made.dtype == np.float64
    assert made.tolist() == [[1.5] * 3] * 2


def test_rows_are_y_and_columns_are_x(tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.arange(6).reshape(2, 3))
    made = heights(size_xy_cells=[3, 2], elevation={"file": str(tmp_path / "h.npy")})
    assert made.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", ">i2", "u1", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_layout_of_numbers_is_read(kind: str, order: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.array([[0, 1, 2], [3, 4, 5]], kind, order=order))
    made = heights(size_xy_cells=[3, 2], elevation={"file": str(tmp_path / "h.npy")})
    assert made.dtype == np.float64
    assert made.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_table_is_read_row_by_row_from_the_south(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("\ufeff0, 1.5,2\r\n3,4,-5e-1\n\n", encoding="utf-8")
    made = heights(size_xy_cells=[3, 2], elevation={"file": str(tmp_path / "h.csv")})
    assert made.tolist() == [[0, 1.5, 2], [3, 4, -0.5]]


@pytest.mark.parametrize("name", ["h.npy", "h.csv"])
def test_level_ground_from_a_file_fits_a_map_of_any_size(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.full((4, 5), 2.5, np.float32))
    (tmp_path / "h.csv").write_text("2.5,2.5\n2.5,2.5\n")
    made = heights(size_xy_cells=[3, 7], elevation={"file": str(tmp_path / name)})
    assert (made.dtype, made.shape) == (np.float64, (7, 3))
    assert (made == 2.5).all()


def test_the_size_of_the_default_world_can_be_changed() -> None:
    """Its ground is that of the requirements' file: level."""
    larger = with_values(load_scenario("default"), {"map.size_xy_cells": [300, 250]})
    assert elevation(larger).shape == (250, 300)


def test_a_file_that_changed_since_it_was_loaded_is_still_checked(tmp_path: Path) -> None:
    np.save(tmp_path / "h.npy", np.zeros((2, 3)))
    grid = {"size_xy_cells": [3, 2], "elevation": {"file": str(tmp_path / "h.npy")}}
    scenario = load_scenario({"map": grid, "robots": {}})
    np.save(tmp_path / "h.npy", np.eye(5))
    with pytest.raises(ScenarioError):
        elevation(scenario)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.floats(0.001, 1000), st.floats(0.01, 1000))
def test_hills_span_exactly_their_amplitude(seed: int, amplitude: float, wavelength: float) -> None:
    made = hills((17, 9), seed=seed, amplitude_m=amplitude, wavelength_m=wavelength)
    assert made.shape == (9, 17)
    assert (made.min(), made.max()) == (-amplitude, amplitude)


EXTREME_M = st.sampled_from([5e-324, 1e-300, 1e-17, 1e-3, 1e-3 - 1e-18, 0.5, 40.0, 1e6, 1e7]) | st.floats(0.0, 1e7)


@settings(deadline=None, max_examples=many(300))
@given(
    st.integers(-(2**63), 2**63 - 1), EXTREME_M, EXTREME_M, st.sampled_from([0.001, 1.0, 40.0, 1000.0]),
    st.sampled_from([(1, 1), (300, 1), (1, 300), (40, 30), (100_000, 1)]),
)  # fmt: skip
def test_hills_are_refused_or_made_without_leaving_the_range_of_numbers(
    seed: int, amplitude: float, wavelength: float, cell: float, size: tuple[int, int]
) -> None:
    """An integer out of range is another one on x86 than on ARM; NumPy reports every such step."""
    options = {"generate": "hills", "seed": seed, "amplitude_m": amplitude, "wavelength_m": wavelength}
    grid = {"cell_size_m": cell, "size_xy_cells": size, "elevation": options}
    if wavelength < 0.001 * cell:
        with pytest.raises(ScenarioError, match="wavelength_m"):
            heights(**grid)
        return
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        made = heights(**grid)
    assert np.abs(made).max() <= amplitude


@settings(deadline=None, max_examples=many(200))
@given(st.lists(st.tuples(*[st.sampled_from([0.0, 5e-324, 1e-320, 0.5, 2.5, -1e7, 1e7])] * 2), min_size=3, max_size=6))
def test_patches_of_any_extent_stay_within_the_range_of_numbers(points: list[tuple[float, float]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes([{"type": "polygon", "class": 1, "points": points}], size_xy_cells=[4, 4])


def test_hills_of_a_single_cell_or_no_amplitude_are_level() -> None:
    assert hills((1, 1)).tolist() == [[0.0]]
    assert not hills((5, 5), amplitude_m=0).any()


def test_hills_are_smooth() -> None:
    made = hills((200, 200), amplitude_m=4, wavelength_m=40)
    assert np.abs(np.diff(made, axis=0)).max() < 1.5
    assert np.abs(np.diff(made, axis=1)).max() < 1.5
    assert made.std() > 0.5


def test_hills_follow_the_seed_of_the_scenario_unless_they_have_their_own() -> None:
    def of(seed: int, own: int | None) -> bytes:
        grid = {"size_xy_cells": [20, 20], "elevation": {"generate": "hills", "seed": own}}
        return elevation(load_scenario({"seed": seed, "map": grid, "robots": {}})).tobytes()

    assert of(1, None) == of(2, 1) != of(2, None) == of(5, 2)


def test_hills_are_the_same_however_many_rows_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from microsim.scenario import scene

    whole = hills((30, 70))
    monkeypatch.setattr(scene, "_ROWS_AT_ONCE", 7)
    assert hills((30, 70)).tobytes() == whole.tobytes()


def test_hills_are_the_same_bits_on_every_machine() -> None:
    made = hills((64, 48), seed=12345, amplitude_m=4.0, wavelength_m=40.0).astype("<f8")
    assert (
        hashlib.sha256(made.tobytes()).hexdigest() == "650d49bbba02f0b8368be0d3b1b0fce899e1523dd5fe697ca83cecf5e0d1f78a"
    )


def test_a_cell_has_the_class_of_the_last_patch_over_its_middle() -> None:
    made = classes(
        [
            {"type": "rectangle", "class": "water", "center": [2, 1], "size": [2, 2]},
            {"type": "circle", "class": "target", "center": [2.5, 1.5], "radius": 0.2},
        ],
        size_xy_cells=[4, 3],
    )
    assert made.dtype == np.uint8
    assert made.tolist() == [[0, 4, 4, 0], [0, 4, 3, 0], [0, 0, 0, 0]]


def test_a_patch_may_be_turned() -> None:
    made = classes(
        [{"type": "rectangle", "class": 4, "center": [2.5, 2.5], "size": [4.2, 0.5], "yaw": 1.5707963267948966}],
        size_xy_cells=[5, 5],
    )
    assert made.tolist() == [[0, 0, 4, 0, 0]] * 5


def test_a_polygon_covers_what_is_inside_it() -> None:
    notched = [[0, 0], [4, 0], [4, 4], [2, 2.2], [0, 4]]
    made = classes([{"type": "polygon", "class": 2, "points": notched}], size_xy_cells=[5, 4])
    assert made.tolist() == [[2, 2, 2, 2, 0], [2, 2, 2, 2, 0], [2, 2, 2, 2, 0], [2, 0, 0, 2, 0]]


corner = st.tuples(st.floats(-2, 12), st.floats(-2, 12))


@settings(deadline=None)
@given(st.lists(corner, min_size=3, max_size=6))
def test_a_polygon_agrees_with_a_walk_around_each_cell(points: list[tuple[float, float]]) -> None:
    made = classes([{"type": "polygon", "class": 1, "points": points}], size_xy_cells=[10, 10])
    for row in range(10):
        for column in range(10):
            assert made[row, column] == crossings(points, column + 0.5, row + 0.5) % 2


def crossings(points: list[tuple[float, float]], x: float, y: float) -> int:
    """How often a ray from (x, y) to the east meets the outline."""
    count = 0
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        count += (y0 > y) != (y1 > y) and x < x0 + (y - y0) * ((x1 - x0) / (y1 - y0))
    return count


MEMORY = """
import sys
import microsim
from benchmarks.harness import peak_mb
def peak(heights, cells):
    start = {"map_pose": {"x": 50, "y": 50, "z": 40}}
    camera = {"hz": 2, "latency_ms": {"mean": 0, "jitter": 0}, "resolution": {"width": 8, "height": 6}}
    size = {"size_xy_cells": [cells, cells], "elevation": {"file": heights}}
    sim = microsim.Simulation({"map": size, "robots": {name: {"model": "drone", "start": start, "camera": camera}
                                                       for name in ("a", "b")}})
    sim.step(1)
    return peak_mb()
print(peak(sys.argv[1], 100), peak(sys.argv[2], 1500))
"""


def test_a_large_map_takes_few_bytes_a_cell_however_many_cameras_see_it(tmp_path: Path) -> None:
    """It took 74."""
    files = [str(tmp_path / f"{cells}.npy") for cells in (100, 1500)]
    for file, cells in zip(files, (100, 1500), strict=True):
        np.save(file, np.add.outer(np.arange(cells), np.arange(cells) % 7).astype(np.float32) / 100)
    done = subprocess.run([sys.executable, "-c", MEMORY, *files], check=True, capture_output=True, text=True)
    small, large = map(float, done.stdout.split())
    assert 4 < (large - small) * 1e6 / 1500**2 < 40
