"""The camera against a second, slow renderer, pixel by pixel; and against itself without its short cuts."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from microsim.engine.world import PALETTE, Shape, World
from microsim.render.palette_camera import CameraModel, Renderer
from tests.unit.sensors.camera_reference import looking, reference

PINHOLE = CameraModel(48, 36, 34.0, 34.0, 23.7, 17.6)
DISTORTED = CameraModel(48, 36, 34.0, 36.0, 23.7, 17.6, (-0.2, 0.05, 0.01, -0.01, 0.002))
FISHEYE = CameraModel(48, 36, 22.0, 21.0, 23.7, 17.6, (-0.02, 0.01, -0.004, 0.001), is_fisheye=True)
ALLOWED = 0.002  # of the pixels, and only on the border of two classes, where the last bit decides


def arena(amplitude: float, seed: int = 5, count: int = 24, size: int = 40) -> World:
    """Every kind of shape, painted, standing and raised, on smooth hills of the given height."""
    random = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(size) + 0.5, np.arange(size) + 0.5)
    elevation = amplitude * (np.sin(x / 3.1) * np.cos(y / 4.3) + 0.3 * random.normal(size=(size, size)))
    shapes = []
    for k in range(count):
        kind = ("rectangle", "circle", "triangle", "billboard")[k % 4]
        px, py = random.uniform(2, size - 2, 2)
        corners = tuple((px + r * math.cos(t), py + r * math.sin(t)) for r, t in ((2, 0.1), (1, 2.0), (1.5, 4.4)))
        center = tuple(np.mean(corners, 0)) if kind == "triangle" else (px, py)
        shapes.append(
            Shape(
                kind,
                1 + k % 4,
                center,
                size=tuple(random.uniform(1, 4, 2)),
                radius=float(random.uniform(0.5, 2)),
                vertices=corners,
                yaw=None if k % 8 == 3 else float(random.uniform(-3, 3)),
                base_m=0.8 if k % 5 == 1 else 0.0,
                height_m=float(random.uniform(0.5, 4)) if k % 3 else 0.0,
            )
        )
    surface = random.integers(0, 5, (size, size)).astype(np.uint8)
    obstacles = tuple(s for k, s in enumerate(shapes) if s.kind in ("rectangle", "circle") and k % 3 == 1)
    return World(1.0, elevation, surface, obstacles, tuple(s for s in shapes if s not in obstacles))


VIEWS = {
    "down": ((20.3, 18.9, 14.0), looking(0.7, math.pi / 2)),
    "ahead": ((5.2, 6.1, 4.0), looking(0.8, 0.25)),
    "steep": ((30.0, 9.0, 12.0), looking(2.2, 0.9, 0.4)),
    "level": ((20.0, 20.0, 5.5), looking(-2.5, 0.0)),
    "up": ((20.0, 20.0, 5.5), looking(1.0, -0.5)),
    "outside": ((-15.0, 50.0, 9.0), looking(-0.7, 0.3)),
    "rolled": ((12.0, 25.0, 8.0), looking(-1.0, 0.5, 2.0)),
}


def assert_same_but_for_edges(classes, wanted):
    wrong = np.argwhere(classes != wanted)
    assert len(wrong) <= ALLOWED * classes.size, f"{len(wrong)} pixels differ"
    for v, u in wrong:
        around = wanted[max(v - 1, 0) : v + 2, max(u - 1, 0) : u + 2]
        assert (around != wanted[v, u]).any(), f"pixel {u}, {v} differs inside an area"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("model", [PINHOLE, DISTORTED, FISHEYE], ids=["pinhole", "distorted", "fisheye"])
@pytest.mark.parametrize("amplitude", [0.0, 1.5], ids=["flat", "relief"])
def test_every_pixel_agrees_with_the_reference(amplitude, model, view):
    world = arena(amplitude)
    position, rotation = VIEWS[view]
    classes = Renderer(world, model).classes(position, rotation)
    assert_same_but_for_edges(classes, reference(world, model, position, rotation))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    amplitude=st.sampled_from([0.0, 0.4, 3.0]),
    x=st.floats(-10.0, 30.0),
    y=st.floats(-10.0, 30.0),
    above=st.floats(0.3, 20.0),
    yaw=st.floats(-3.1, 3.1),
    pitch=st.floats(-0.6, 1.6),
)
@example(seed=631, amplitude=3.0, x=28.0, y=2.21875, above=2.0, yaw=2.5, pitch=0.18427932154994442)  # grazes a crest
def test_any_scene_from_any_place_agrees_with_the_reference(seed, amplitude, x, y, above, yaw, pitch):
    world = arena(amplitude, seed, count=8, size=16)
    model = CameraModel(24, 20, 20.0, 20.0, 11.3, 9.8)
    position = (x, y, world.ground(x, y) + above)
    classes = Renderer(world, model).classes(position, looking(yaw, pitch)).copy()
    wanted = reference(world, model, position, looking(yaw, pitch))
    assert not (wrong := np.argwhere(classes != wanted)).size, wrong


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("amplitude", [0.0, 1.5], ids=["flat", "relief"])
def test_testing_every_shape_and_patch_on_every_pixel_changes_no_bit(amplitude, view):
    model = CameraModel(13, 11, 10.0, 10.0, 6.2, 5.3, DISTORTED.distortion)
    world = arena(amplitude, size=8, count=12)
    x, y, z = VIEWS[view][0]
    pose = ((x / 5.0, y / 5.0, z), VIEWS[view][1])
    quick, thorough = Renderer(world, model), Renderer(world, model)
    see_everything(thorough)
    assert np.array_equal(quick.classes(*pose), thorough.classes(*pose))
    assert np.array_equal(quick.depths(*pose), thorough.depths(*pose))


def see_everything(renderer: Renderer) -> None:
    """Make the spans of columns and rows in which a thing can be seen the whole screen."""
    columns, rows = renderer._screen.columns, renderer._screen.rows
    columns[0], columns[1] = 0, renderer.model.width
    rows[0], rows[1] = 0, renderer.model.height


def test_relief_has_no_cracks():
    """Straight above rugged ground, along the lattice and between its lines, no pixel looks through."""
    random = np.random.default_rng(1)
    world = World(0.5, random.normal(size=(24, 24)), np.ones((24, 24), np.uint8), (), ())
    renderer = Renderer(world, CameraModel(25, 25, 48.0, 48.0, 12.0, 12.0))
    down = ((0.0, -1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, -1.0))
    for x, y in ((6.0, 6.0), (6.25, 6.25), (5.9, 6.1), (6.25, 5.0)):
        for z in (3.25, 12.0, 27.0):  # 12.0: one pixel is a quarter metre, so that rays meet the nodes exactly
            assert (renderer.classes((x, y, world.ground(x, y) + z), down) == 1).all()


@pytest.mark.parametrize("model", [PINHOLE, DISTORTED, FISHEYE, CameraModel(150, 61, 90.0, 90.0, 75.0, 30.0)])
def test_tiles_that_are_filled_at_once_have_the_class_of_all_their_pixels(model):
    """Depths make the camera look at every pixel."""
    random = np.random.default_rng(8)
    surface = np.zeros((40, 40), np.uint8)
    surface[10:22, 5:19], surface[20, 30] = 2, 3
    few = arena(0.0).features[:3]
    camera = Renderer(World(1.0, np.zeros((40, 40)), surface, (), few), model)
    for _ in range(60):
        place = (*random.uniform(-5.0, 45.0, 2), random.uniform(0.2, 25.0))
        turn = looking(random.uniform(-3, 3), random.uniform(-0.5, 1.6), random.uniform(-3, 3))
        image = camera.render(place, turn)
        assert np.array_equal(image, PALETTE[camera.classes(place, turn)])
