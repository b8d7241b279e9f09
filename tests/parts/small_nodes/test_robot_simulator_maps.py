"""Maps: map_server's YAML and PGM by its own rules, occupancy grids, scenarios; and what is wrong with bad ones."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim import messages as wire
from microsim.errors import MapError, ScenarioError, UsageError
from microsim.parts.small_nodes.robot_maps import (
    heading,
    read_map,
    world_of_cells,
    world_of_message,
    world_of_scenario,
)
from microsim.scenario.map_images import MapImage, Pixels, occupancy, read_pixels
from tests.support import many

GOOD = {
    "image": "map.pgm",
    "mode": "trinary",
    "resolution": 0.5,
    "origin": [0.0, 0.0, 0.0],
    "negate": 0,
    "occupied_thresh": 0.65,
    "free_thresh": 0.196,
}


def write_map(folder: Path, rows: list[list[int]], depth: int = 255, **changes: object) -> Path:
    text = "".join(f"{key}: {value}\n" for key, value in {**GOOD, **changes}.items() if value is not None)
    (folder / "map.yaml").write_text(text)
    body = " ".join(str(value) for row in rows for value in row)
    (folder / "map.pgm").write_text(f"P2\n# made by a test\n{len(rows[0])} {len(rows)}\n{depth}\n{body}\n")
    return folder / "map.yaml"


def by_the_rules(pixel: int, depth: int, negate: bool, mode: str, occupied: float, free: float) -> int:
    """map_server's own words, one pixel at a time."""
    shade = pixel / depth
    occ = shade if negate else 1.0 - shade
    if mode == "raw":
        value = math.floor(shade * 255.0 + 0.5)
        return value if 0 <= value <= 100 else -1
    if occupied < occ:
        return 100
    if occ < free:
        return 0
    return -1 if mode == "trinary" else round((occ - free) / (occupied - free) * 100.0)


@settings(max_examples=many(60))
@given(
    st.integers(0, 2**32),
    st.booleans(),
    st.sampled_from(["trinary", "scale", "raw"]),
    st.sampled_from([(0.65, 0.196), (0.5, 0.49), (1.0, 0.0), (0.9, 0.1)]),
    st.sampled_from([255, 100, 1, 65535]),
)
def test_every_shade_means_what_map_server_says(seed, negate, mode, thresholds, depth):
    dice = random.Random(seed)
    rows, columns = dice.randrange(1, 6), dice.randrange(1, 6)
    pixels = np.array([[dice.randrange(depth + 1) for _ in range(columns)] for _ in range(rows)], np.uint16)
    occupied, free = thresholds
    described = MapImage(**{**GOOD, "negate": negate, "mode": mode, "occupied_thresh": occupied, "free_thresh": free})
    found = occupancy(Pixels(pixels.astype(np.uint32), 1, depth, None), described)
    for row in range(rows):
        for column in range(columns):
            expected = by_the_rules(int(pixels[row, column]), depth, negate, mode, occupied, free)
            assert found[rows - 1 - row, column] == expected  # the image's last row is the map's first


def test_a_map_lies_where_its_origin_says_with_its_last_row_in_the_south(tmp_path):
    #   ground plan: # is black
    #   . #
    #   # .
    #   . .
    white, black = 254, 0
    file = write_map(tmp_path, [[white, black], [black, white], [white, white]], origin=[10.0, -4.0, 0.0])
    grid = read_map(file)
    assert grid.occupied.tolist() == [[0, 0], [1, 0], [0, 1]]
    assert grid.is_occupied(10.25, -3.25)
    assert grid.is_occupied(10.75, -2.75)
    assert not grid.is_occupied(10.75, -3.25)
    assert not grid.is_occupied(9.9, -3.25)


def test_an_origin_with_yaw_turns_the_map_about_its_corner(tmp_path):
    file = write_map(tmp_path, [[0, 254, 254]], origin=[1.0, 2.0, math.pi / 2])
    grid = read_map(file)  # occupied: 0 to 0.5 m along the map's x, which points north
    assert grid.is_occupied(1.0 - 0.25, 2.0 + 0.25)
    assert not grid.is_occupied(2.25, 2.25)
    assert not grid.is_occupied(0.75, 3.75)


@settings(max_examples=many(50))
@given(
    st.tuples(st.floats(-20, 20), st.floats(-20, 20), st.floats(-3.1, 3.1)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.floats(0.01, 0.99),
    st.floats(0.01, 0.99),
)
def test_a_point_of_a_turned_cell_is_found_in_it(origin, row, column, u, v):
    occupied = np.zeros((4, 4), np.uint8)
    occupied[row, column] = 1
    grid = world_of_cells(occupied, 0.5, origin)
    along, across = (column + u) * 0.5, (row + v) * 0.5
    x, y, yaw = origin
    assert grid.is_occupied(
        x + math.cos(yaw) * along - math.sin(yaw) * across, y + math.sin(yaw) * along + math.cos(yaw) * across
    )
    # the engine's grid is not turned: at most 3 by 3 cells of the same size cover the cell, and none is farther away
    assert 1 <= int(grid.occupied.sum()) <= 9
    center = x + 0.5 * (math.cos(yaw) * (column + 0.5) - math.sin(yaw) * (row + 0.5))
    assert not grid.is_occupied(center + 1.25, y + 0.5 * (math.sin(yaw) * (column + 0.5) + math.cos(yaw) * (row + 0.5)))


def test_unknown_cells_are_no_obstacles_and_the_threshold_is_the_callers(tmp_path):
    shades = [[0, 128, 254]]
    assert read_map(write_map(tmp_path, shades)).occupied.tolist() == [[1, 0, 0]]
    scaled = write_map(tmp_path, shades, mode="scale", occupied_thresh=1.0, free_thresh=0.0)
    assert read_map(scaled, threshold=65).occupied.tolist() == [[1, 0, 0]]
    assert read_map(scaled, threshold=40).occupied.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(("depth", "kind"), [(255, np.uint8), (65535, np.dtype(">u2")), (1, np.uint8)])
def test_binary_images_are_read_as_text_ones(tmp_path, depth, kind):
    pixels = np.array([[0, depth, depth // 2], [depth, 0, depth // 3]])
    header = f"P5 # a comment\n3 #another\n2\n{depth}\n".encode()
    (tmp_path / "binary.pgm").write_bytes(header + pixels.astype(kind).tobytes())
    text = f"P2 3 2 {depth}\n" + "\n".join(" ".join(map(str, row)) for row in pixels.tolist()) + "# end"
    (tmp_path / "text.pgm").write_text(text)
    for name in ("binary.pgm", "text.pgm"):
        read = read_pixels(tmp_path / name, pixels.size)
        found, white = read.colour, read.white
        assert white == (65535 if depth > 255 else 255)
        assert np.abs(found / white - pixels / depth).max() <= 0.5 / white


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resolution": 0.0}, r"map\.yaml:3:13: resolution: expected a value above 0, found 0\.0"),
        ({"resolution": "fine"}, r"map\.yaml:3:13: resolution: expected a number, found 'fine'"),
        ({"origin": [0.0, 0.0]}, r"map\.yaml:4:9: origin: expected \[x, y, yaw\], found 2 values"),
        ({"negate": 2}, r"map\.yaml:5:9: negate: expected 0, 1, true or false, found 2"),
        ({"mode": "trinery"}, r"map\.yaml:2:7: mode: expected 'trinary'.*did you mean 'trinary'"),
        ({"free_thresh": 0.7}, r"map\.yaml:7:14: free_thresh: expected a value below occupied_thresh, which is 0\.65"),
        (
            {"image": "mop.pgm"},
            r"map\.yaml:1:8: image: .*mop\.pgm: cannot be read: no such file; did you mean 'map\.pgm'",
        ),
        ({"resolution": None, "resolutoin": 0.5}, r"resolutoin.*did you mean 'resolution'"),
        ({"origin": None}, r"missing key 'origin'"),
        ({"resolution": ".nan"}, r"resolution: "),
    ],
)
def test_a_bad_map_is_refused_with_its_place(tmp_path, changes, said):
    file = write_map(tmp_path, [[0, 254]], **changes)
    with pytest.raises(MapError, match=said):
        read_map(file)


def test_every_mistake_is_told_at_once_and_keys_of_other_tools_are_let_be(tmp_path):
    with pytest.raises(MapError) as refusal:
        read_map(write_map(tmp_path, [[0]], resolution=-1.0, negate="maybe", occupied_thresh=3.0))
    assert len(refusal.value.problems) == 3
    assert read_map(write_map(tmp_path, [[0]], elevation_image="hills.pgm")).occupied.tolist() == [[1]]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "expected a PGM or PNG image"),
        (b"GIF89a", "convert other formats to one of them"),
        (b"\x89PNG\r\n", "expected a PGM or PNG image"),
        (b"P5 2", "not a readable PGM or PNG image"),
        (b"P5 two 2 255\n", "not a readable PGM or PNG image"),
        (b"P5 2 2 255\n\0\0\0", "not a readable PGM or PNG image"),
        (b"P5 0 2 255\n", "expected a PGM or PNG image"),
        (b"P5 9999999999 9999999999 255\n", "not a readable PGM or PNG image|expected 1 to"),
        (b"P5 100000 100000 255\n", "not a readable PGM or PNG image|expected 1 to"),
        (b"P5 1 1 0\n\0", "not a readable PGM or PNG image"),
        (b"P5 1 1 70000\n\0\0", "not a readable PGM or PNG image"),
        (b"P2 2 1 255\n1 x", "not a readable PGM or PNG image"),
        (b"P2 2 1 255\n1", "not a readable PGM or PNG image"),
        (b"P2 1 1 10\n11", "not a readable PGM or PNG image"),
    ],
)
def test_a_bad_image_is_refused_with_what_is_wrong(tmp_path, raw, said):
    file = write_map(tmp_path, [[0]])
    (tmp_path / "map.pgm").write_bytes(raw)
    with pytest.raises(MapError, match=said) as refusal:
        read_map(file)
    assert str(refusal.value).startswith(f"{file}:1:8: image: ")


@settings(max_examples=many(80))
@given(st.binary(max_size=60), st.sampled_from([b"P5", b"P2", b""]))
def test_no_image_ends_in_anything_but_pixels_or_a_map_error(tmp_path_factory, raw, start):
    file = tmp_path_factory.getbasetemp() / "fuzz.pgm"
    file.write_bytes(start + b" 2 2 9 " + raw if start else raw)
    try:
        read = read_pixels(file, 4)
    except MapError:
        return
    assert read.colour.shape == (2, 2)
    assert int(read.colour.max()) <= read.white


def test_a_map_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MapError, match="no such file"):
        read_map(tmp_path / "nothing.yaml")


def occupancy_message(values, rows, columns, resolution=0.05, origin=(0.0, 0.0, 0.0)):
    message = wire.new("nav_msgs/msg/OccupancyGrid", data=np.array(values, np.int8))
    message.info.resolution, message.info.width, message.info.height = np.float32(resolution), columns, rows
    message.info.origin.position.x, message.info.origin.position.y = origin[:2]
    message.info.origin.orientation.z = math.sin(origin[2] / 2)
    message.info.origin.orientation.w = math.cos(origin[2] / 2)
    return message


def test_an_occupancy_grid_is_read_row_by_row_from_its_origin():
    grid = world_of_message(occupancy_message([0, 100, -1, 64, 65, 99], 2, 3, origin=(1.0, 2.0, 0.5)))
    assert grid.cell_m == 0.05  # not float32's neighbour of it
    for row, column, is_wall in ((0, 0, False), (0, 1, True), (1, 1, True), (1, 2, True)):
        u, v = 0.05 * (column + 0.5), 0.05 * (row + 0.5)
        x, y = 1.0 + math.cos(0.5) * u - math.sin(0.5) * v, 2.0 + math.sin(0.5) * u + math.cos(0.5) * v
        assert grid.is_occupied(x, y) or not is_wall
    straight = world_of_message(occupancy_message([0, 100, -1, 64, 65, 99], 2, 3, origin=(1.0, 2.0, 0.0)))
    assert straight.occupied.tolist() == [[0, 1, 0], [0, 1, 1]]
    assert (straight.west, straight.south) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (occupancy_message([0, 0, 0], 2, 2), "2 by 2 cells comes with 3 values"),
        (occupancy_message([], 0, 0), "0 by 0"),
        (occupancy_message([0], 1, 1, resolution=0.0), "0 m wide"),
        (occupancy_message([0], 1, 1, resolution=math.nan), "nan m wide"),
        (occupancy_message([0], 1, 1, origin=(math.inf, 0.0, 0.0)), "origin"),
    ],
)
def test_a_senseless_occupancy_grid_is_refused(message, said):
    with pytest.raises(UsageError, match=said):
        world_of_message(message)


def test_a_scenarios_obstacles_are_a_map():
    grid = world_of_scenario("obstacles_arena")
    world = microsim.Simulation("obstacles_arena").world
    assert np.array_equal(grid.occupied, world.occupied)
    rows, columns = np.nonzero(grid.occupied)
    x, y = (columns[0] + 0.5) * grid.cell_m, (rows[0] + 0.5) * grid.cell_m
    assert grid.is_occupied(x, y)
    with pytest.raises(ScenarioError, match="did you mean 'obstacles_arena'"):
        world_of_scenario("obstacle_arena")


def test_an_orientation_that_was_not_filled_in_looks_along_x():
    assert heading(SimpleNamespace(x=0.0, y=0.0, z=0.0, w=0.0)) == 0.0
    assert heading(SimpleNamespace(x=0.0, y=0.0, z=1.0, w=0.0)) == pytest.approx(math.pi)
    assert math.isnan(heading(SimpleNamespace(x=0.0, y=math.nan, z=1.0, w=0.0)))
