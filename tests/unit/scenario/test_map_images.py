"""Scenarios in maps of map_server: the cells, what is published of them, what robots and rays meet, bad files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import microsim
from microsim.batch import BatchSimulation
from microsim.engine.world import OBSTACLE, PALETTE
from microsim.errors import ScenarioError
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_replay import Replay
from microsim.recording.recorder import Recorder
from microsim.scenario import map_images, world_models
from microsim.scenario.map_images import MapCells, MapImage, cells_of, upright, walls_of
from microsim.scenario.scene import build_world
from tests.support import bare, decoded, many, scenario

RULES: dict[str, Any] = {
    "mode": "trinary",
    "resolution": 0.5,
    "origin": [0.0, 0.0, 0.0],
    "negate": 0,
    "occupied_thresh": 0.65,
    "free_thresh": 0.196,
}
WHITE, GREY, BLACK = 254, 205, 0


def write_map(folder: Path, pixels: Any, image: str = "map.pgm", **changes: Any) -> Path:
    """A map as map_saver writes it; pixels by rows from the north."""
    Image.fromarray(np.asarray(pixels)).save(folder / image)
    rules = {"image": image, **RULES, **changes}
    (folder / "map.yaml").write_text("".join(f"{key}: {value}\n" for key, value in rules.items()))
    return folder / "map.yaml"


def floor_plan(seed: int, rows: int = 24, columns: int = 30) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Walls, unknown places and a free middle."""
    dice = np.random.default_rng(seed)
    pixels = dice.choice(np.array([WHITE, GREY, BLACK], np.uint8), (rows, columns), p=[0.8, 0.1, 0.1])
    pixels[rows // 2 - 2 : rows // 2 + 2, columns // 2 - 2 : columns // 2 + 2] = WHITE
    return pixels


def in_map(file: Path, **rover: Any) -> dict[str, Any]:
    topics = {"occupancy_hz": 1, "markers_hz": 0}
    return scenario(map={"image": str(file)}, world_topics=topics, robots={"rover": bare(**rover)})


def at(x: float, y: float, yaw: float = 0.0) -> dict[str, Any]:
    return {"map_pose": {"x": x, "y": y, "yaw": yaw}}


# ---- the reader, against one written here from map_server's rules ----------------------------------------------------


def read_as_map_server(file: Path, rules: dict[str, Any]) -> np.ndarray[Any, Any]:
    """nav2_map_server, map_io.cpp, loadMapFromFile: pixel by pixel, with Pillow. Row 0 of the result is the south."""
    image = Image.open(file)
    if image.mode in ("I", "I;16"):
        channels, top, alpha = [np.asarray(image, np.float64)] * 3, 65535.0, None
    else:
        top = 255.0
        has_alpha = image.mode in ("LA", "RGBA")
        bands = [np.asarray(band, np.float64) for band in image.convert("RGBA").split()]
        channels, alpha = bands[:3], bands[3] if has_alpha else None
    if rules["mode"] == "trinary" and alpha is not None:
        channels = [*channels, alpha]
    found = np.empty(channels[0].shape, np.int8)
    for place in np.ndindex(found.shape):
        shade = sum(channel[place] for channel in channels) / len(channels) / top
        occ = shade if rules["negate"] else 1.0 - shade
        if rules["mode"] == "raw":
            value = math.floor(shade * 255.0 + 0.5)
            cell = value if value <= 100 else -1
        elif rules["mode"] == "scale" and alpha is not None and alpha[place] != top:
            cell = -1
        elif rules["occupied_thresh"] < occ:
            cell = 100
        elif occ < rules["free_thresh"]:
            cell = 0
        elif rules["mode"] == "scale":
            low, high = rules["free_thresh"], rules["occupied_thresh"]
            cell = int(np.rint((occ - low) / (high - low) * 100.0))
        else:
            cell = -1
        found[place] = cell
    return found[::-1]


@settings(max_examples=many(80), deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["L", "LA", "RGB", "RGBA", "I;16", "1"]),
    st.sampled_from(["trinary", "scale", "raw"]),
    st.sampled_from([0, 1]),
    st.sampled_from([(0.65, 0.196), (0.65, 0.25), (0.5, 0.49), (1.0, 0.0)]),
)
def test_the_cells_are_those_of_map_server(tmp_path_factory, seed, kind, mode, negate, thresholds):
    folder = tmp_path_factory.mktemp("map")
    dice = np.random.default_rng(seed)
    rows, columns = dice.integers(1, 8, 2)
    count = {"LA": 2, "RGB": 3, "RGBA": 4}.get(kind, 1)
    values = dice.choice([0, 1, 89, 100, 101, 128, 205, 254, 255], (rows, columns, count)).astype(np.uint8)
    if kind == "I;16":
        image = Image.fromarray(dice.integers(0, 65536, (rows, columns)).astype(np.uint16))
    else:
        image = Image.fromarray(values[:, :, 0] if count == 1 else values).convert(kind)
    name = "map.pgm" if kind == "L" and seed % 2 else "map.png"
    image.save(folder / name)
    rules = {"mode": mode, "negate": negate, "occupied_thresh": thresholds[0], "free_thresh": thresholds[1]}
    described = MapImage(image=str(folder / name), resolution=0.5, origin=(0.0, 0.0, 0.0), **rules)
    found = cells_of(described, 1000)
    np.testing.assert_array_equal(found.values, read_as_map_server(folder / name, rules))


def test_a_palette_with_transparency_is_read_by_its_colours(tmp_path):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), mode="P")
    image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(tmp_path / "map.png", transparency=1)
    described = MapImage(image=str(tmp_path / "map.png"), **{**RULES, "mode": "scale"})
    assert cells_of(described, 10).values.tolist() == [[100, -1]]


# ---- what a simulation makes of it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["trinary", "scale", "raw"])
def test_the_occupancy_topic_is_map_servers_message(tmp_path, mode):
    pixels = np.random.default_rng(3).integers(0, 256, (24, 30)).astype(np.uint8)
    pixels[10:14, 13:17] = 200 if mode == "raw" else WHITE
    file = write_map(tmp_path, pixels, mode=mode, resolution=0.05, origin=[-1.25, 2.5, 0])
    sim = microsim.Simulation(in_map(file, start=at(-1.25 + 0.75, 2.5 + 0.6)))
    (message,) = decoded(sim.step(0), "/world/occupancy")
    expected = read_as_map_server(tmp_path / "map.pgm", {**RULES, "mode": mode})
    assert message.data.astype(np.int8).tobytes() == expected.astype(np.int8).tobytes()
    assert (message.info.width, message.info.height) == (30, 24)
    assert np.float32(message.info.resolution) == np.float32(0.05)
    place, turn = message.info.origin.position, message.info.origin.orientation
    assert (place.x, place.y, place.z) == (-1.25, 2.5, 0.0)
    assert (turn.x, turn.y, turn.z, turn.w) == (0.0, 0.0, 0.0, 1.0)


def test_obstacles_of_the_scenario_stand_in_the_map(tmp_path):
    file = write_map(tmp_path, np.full((10, 10), GREY, np.uint8))
    data = {
        **in_map(file, start=at(1, 1)),
        "obstacles": [{"type": "box", "center": [3.25, 3.25, 0], "size": [1, 1, 1]}],
    }
    sim = microsim.Simulation(data)
    (message,) = decoded(sim.step(0), "/world/occupancy")
    found = message.data.reshape(10, 10)
    assert set(found[5:8, 5:8].reshape(-1).tolist()) == {100}
    assert (found == -1).sum() == 91  # unknown cells stay so, and are free


@settings(max_examples=many(12), deadline=None)
@given(st.integers(0, 10_000), st.floats(-math.pi, math.pi))
def test_a_rover_never_enters_a_wall_and_its_beams_end_at_the_nearest(tmp_path_factory, seed, yaw):
    folder, pixels = tmp_path_factory.mktemp("map"), floor_plan(seed)
    file = write_map(folder, pixels, origin=[-7.5, -6.0, 0])
    scan = {"hz": 10, "sigma_m": 0, "beams": 16, "mount": {"xyz": [0, 0, 0]}, "max_m": 30.0}
    sim = microsim.Simulation({**in_map(file, start=at(0.13, 0.07, yaw), scan=scan), "physics_hz": 10})
    walls = pixels[::-1] == BLACK
    message = decoded(sim.step(0), "/rover/scan")[0]
    for beam, measured in enumerate(message.ranges):
        angle = yaw + message.angle_min + beam * message.angle_increment
        beside = [nearest_wall(walls, 0.13, 0.07, angle + aside) for aside in (0.0, -5e-4, 5e-4)]  # it may graze one
        assert any(measured == pytest.approx(distance, abs=2e-3) for distance in beside)
    sim.command("rover", v=1.0)
    for _ in range(30):
        sim.step(5)
        state = sim.state("rover")
        column, row = math.floor((state.x + 7.5) / 0.5), math.floor((state.y + 6.0) / 0.5)
        assert not walls[row, column]


def nearest_wall(walls: Any, x: float, y: float, angle: float) -> float:
    """By small steps along the beam; inf where it leaves the map."""
    along = np.arange(0.0, 25.0, 0.001)
    column = np.floor((x + math.cos(angle) * along + 7.5) / 0.5).astype(int)
    row = np.floor((y + math.sin(angle) * along + 6.0) / 0.5).astype(int)
    rows, columns = walls.shape
    inside = (column >= 0) & (row >= 0) & (column < columns) & (row < rows)
    hits = inside & walls[row.clip(0, rows - 1), column.clip(0, columns - 1)]
    return float(along[hits.argmax()]) if hits.any() else math.inf


def test_a_camera_and_a_contact_meet_the_walls(tmp_path):
    pixels = np.full((20, 20), WHITE, np.uint8)
    pixels[:, 15] = BLACK  # a wall from x 7.5 to 8
    file = write_map(tmp_path, pixels)
    camera = {"hz": 10, "resolution": {"width": 16, "height": 16}, "noise": {"blur_sigma_px": 0, "color_jitter": 0}}
    camera |= {"latency_ms": {"mean": 0, "jitter": 0}, "mount": {"xyz": [0, 0, 0.5]}}
    sim = microsim.Simulation({**in_map(file, start=at(6.5, 5.0), camera=camera), "physics_hz": 10})
    image = decoded(sim.step(0), "/rover/camera/image_raw")[0]
    assert image.data.reshape(16, 16, 3)[8, 8].tolist() == PALETTE[OBSTACLE].tolist()
    sim.command("rover", v=1.0)
    sim.step(40)
    assert sim.state("rover").x < 7.5
    assert sim.state("rover").contacts == 1


def test_every_world_of_a_batch_is_the_single_run_in_the_map(tmp_path):
    file = write_map(tmp_path, floor_plan(5), origin=[-7.5, -6.0, 0])
    data = in_map(file, start=at(0.1, 0.1, 0.4), scan={"hz": 20, "beams": 8})
    batch = BatchSimulation(data, seeds=[1, 2, 3])
    batch.commands("rover")[:] = np.array([0.8, 0.3])[:, None]
    batch.step(200)
    for world, seed in enumerate((1, 2, 3)):
        sim = microsim.Simulation(data, seed=seed)
        sim.command_values("rover", dict(zip(batch.inputs("rover"), (0.8, 0.3), strict=True)))
        sim.step(200)
        single, together = sim.state("rover"), batch.state("rover")
        assert (single.x, single.y, single.yaw) == tuple(together[key][world] for key in ("x", "y", "yaw"))


def test_a_snapshot_and_a_recording_continue_in_the_map(tmp_path):
    file = write_map(tmp_path, floor_plan(7), origin=[-7.5, -6.0, 0])
    sim = microsim.Simulation(in_map(file, start=at(0.1, 0.1)))
    with Recorder(tmp_path / "bag", sim, RecordOptions()) as recorder:
        recorder.on_messages(sim.step(20))
        kept = sim.snapshot()
        recorder.on_messages(sim.step(40))
    digest = sim.digest()
    sim.restore(kept)
    sim.step(40)
    assert sim.digest() == digest
    for each in (file, tmp_path / "map.pgm"):
        each.unlink()  # the recording has the image
    with Replay(open_bag(tmp_path / "bag")) as replay:
        assert replay.verify().is_identical


# ---- turned maps -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(-5, 5), st.floats(-0.0009, 0.0009))
def test_quarter_turns_are_exact(seed, quarters, slip):
    values = np.random.default_rng(seed).integers(-1, 101, (3, 5)).astype(np.int8)
    found = upright(values, 0.5, (1.0, 2.0, quarters * math.pi / 2 + slip), 100)
    for row, column in np.ndindex(values.shape):
        along, across = (column + 0.5) * 0.5, (row + 0.5) * 0.5
        sine, cosine = round(math.sin(quarters * math.pi / 2)), round(math.cos(quarters * math.pi / 2))
        x, y = 1.0 + cosine * along - sine * across, 2.0 + sine * along + cosine * across
        place = math.floor((y - found.south) / 0.5), math.floor((x - found.west) / 0.5)
        assert found.values[place] == values[row, column]
    assert found.values.size == values.size


@settings(max_examples=many(40))
@given(st.integers(0, 1000), st.floats(0.01, 1.5), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_turned_map_has_no_gap_in_a_wall_and_is_unknown_beyond_its_edge(seed, yaw, u, v):
    values = np.random.default_rng(seed).choice(np.array([-1, 0, 100], np.int8), (4, 6))
    found = upright(values, 0.5, (1.0, 2.0, yaw), 1000)
    for row, column in zip(*np.nonzero(values == 100), strict=True):
        along, across = (column + u) * 0.5, (row + v) * 0.5
        x = 1.0 + math.cos(yaw) * along - math.sin(yaw) * across
        y = 2.0 + math.sin(yaw) * along + math.cos(yaw) * across
        assert found.values[math.floor((y - found.south) / 0.5), math.floor((x - found.west) / 0.5)] == 100
    empty = upright(np.zeros((4, 6), np.int8), 0.5, (1.0, 2.0, yaw), 1000)
    assert set(np.unique(empty.values).tolist()) <= {-1, 0}
    assert (empty.values == 0).sum() == pytest.approx(24, abs=8)


def test_the_surface_of_walls_encloses_exactly_their_cells():
    cells = MapCells((np.random.default_rng(1).random((7, 9)) < 0.4).astype(np.int8) * np.int8(100), 0.5, -1.0, 2.0)
    mesh = walls_of(cells, 1.0, 2.0)
    assert mesh is not None
    a, b, c = (mesh.vertices[mesh.triangles[:, corner]] for corner in range(3))
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2.0
    solid = np.pad(cells.values == 100, 1)
    edges = sum(int((np.diff(solid.astype(int), axis=axis) != 0).sum()) for axis in (0, 1))
    assert areas.sum() == pytest.approx((cells.values == 100).sum() * 0.25 + edges * 0.5 * 2.0)
    assert walls_of(MapCells(np.zeros((3, 3), np.int8), 0.5, 0.0, 0.0), 0.0, 1.0) is None


# ---- what cannot be used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"occupied_thresh": 0.1},
            r"map\.yaml:7:14: free_thresh: expected a value below occupied_thresh, which is 0\.1",
        ),
        ({"mode": "quad"}, r"map\.yaml:2:7: mode: expected 'trinary'"),
        ({"resolution": ".nan"}, r"map\.yaml:3:13: resolution: "),
        ({"resolution": 5000.0}, r"map\.yaml:3:13: resolution: expected 0\.001 to 1000 m, found 5000"),
        ({"origin": [0, 0, ".inf"]}, r"map\.yaml:4:"),
        ({"image": "mop.pgm"}, r"map\.yaml:1:8: image: .*no such file; did you mean 'map\.pgm'"),
    ],
)
def test_a_wrong_map_file_is_refused_with_its_line(tmp_path, changes, said):
    write_map(tmp_path, np.full((20, 20), WHITE, np.uint8))
    rules = {"image": "map.pgm", **RULES, **changes}
    text = "".join(f"{key}: {value}\n" for key, value in rules.items()).replace("'", "")
    (tmp_path / "map.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=said) as refusal:
        microsim.load_scenario(in_map(tmp_path / "map.yaml", start=at(1, 1)))
    assert len(refusal.value.problems) == 1


def test_the_place_in_the_scenario_is_named_where_that_is_what_is_wrong(tmp_path):
    write_map(tmp_path, np.full((20, 20), WHITE, np.uint8))
    start = "robots: {rover: {start: {map_pose: {x: 1, y: 1}}}}\n"
    for block, said in (
        ("{image: mop.yaml}", r"my\.yaml:1:14: map\.image: no such file: 'mop\.yaml'"),
        ("{image: map.yaml, cell_size_m: 1}", r"my\.yaml:1:\d+: map\.cell_size_m: follows from the image"),
        ("{image: map.yaml, elevation: {generate: hills}}", r"map\.elevation: the walls of an `image` stand on flat"),
        ("{wall_height_m: 3}", r"map\.wall_height_m: wall_height_m belongs to a map with an `image`"),
        ("{image: {image: map.pgm}}", r"map\.image\.\w+: missing key"),
    ):
        (tmp_path / "my.yaml").write_text(f"map: {block}\n{start}")
        with pytest.raises(ScenarioError, match=said):
            microsim.load_scenario(tmp_path / "my.yaml")
    (tmp_path / "my.yaml").write_text(f"map: {{image: map.yaml}}\n{start}")
    loaded = microsim.load_scenario(tmp_path / "my.yaml")
    assert microsim.load_scenario(loaded.to_dict()) == loaded
    assert build_world(loaded).extent_m == (0.0, 0.0, 10.0, 10.0)


def test_large_and_noisy_images_are_refused_before_they_take_memory(tmp_path, monkeypatch):
    file = write_map(tmp_path, np.full((4, 4), WHITE, np.uint8))
    (tmp_path / "map.pgm").write_bytes(b"P5 100000 100000 255\n")
    with pytest.raises(ScenarioError, match=f"expected 1 to {world_models.MAX_CELLS:,} pixels, found far more"):
        microsim.load_scenario(in_map(file, start=at(1, 1)))
    monkeypatch.setattr(map_images, "MAX_FACES", 10)
    write_map(tmp_path, floor_plan(1))
    with pytest.raises(ScenarioError, match=r"walls of at most 10 faces, found \d+; is it a photograph"):
        microsim.load_scenario(in_map(file, start=at(7, 6)))


@settings(max_examples=many(60), deadline=None)
@given(st.data())
def test_a_damaged_image_is_one_sentence(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("map")
    name = data.draw(st.sampled_from(["map.png", "map.pgm"]))
    file = write_map(folder, floor_plan(2), image=name)
    raw = bytearray((folder / name).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=6)):
        raw[place] = data.draw(st.integers(0, 255))
    (folder / name).write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    refusal = None
    try:
        map_images.read_map_file(file, 10_000)
    except ScenarioError as error:
        refusal = error
    if refusal is not None:
        assert len(refusal.problems) == 1
        assert "\n" not in str(refusal)
        assert str(refusal).startswith(f"{file}:1:8: image: ")


def test_a_million_cells_load(tmp_path):
    pixels = np.full((1000, 1000), WHITE, np.uint8)
    pixels[::50, :400] = pixels[:400, ::50] = BLACK
    file = write_map(tmp_path, pixels, resolution=0.05)
    loaded = microsim.load_scenario(in_map(file, start=at(45.0, 2.0)))
    assert int(build_world(loaded).occupied.sum()) == int((pixels == BLACK).sum())
