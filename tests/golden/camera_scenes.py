"""The scenes of the camera's golden images.

python -m tests.golden.camera_scenes            draw them anew into tests/golden/images: look at them afterwards
python -m tests.golden.camera_scenes --hashes   print the sha256 of each, for comparing processes
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from microsim.engine import exact
from microsim.engine.geometry import matrix_from_rpy
from microsim.engine.noise import stream_key
from microsim.engine.world import GROUND, HAZARD, OBSTACLE, TARGET, WATER, Shape, World
from microsim.render.image_noise import ImageNoise
from microsim.render.palette_camera import CameraModel, Renderer
from tests.golden.png import write_png

Image = npt.NDArray[np.uint8]

FOLDER = Path(__file__).parent / "images"
DOWN = matrix_from_rpy(exact.PI, 0.0, -0.5 * exact.PI)
MODEL = CameraModel(96, 96, 90.0, 90.0, 48.0, 48.0)
BARREL = CameraModel(96, 96, 70.0, 70.0, 48.0, 48.0, (-0.3, 0.05, 0.005, -0.005, 0.0))
KEY = stream_key(12345, "drone/camera/noise")


def ahead(pitch: float) -> tuple[tuple[float, float, float], ...]:
    """Looking to the east, `pitch` radians below the horizon."""
    return matrix_from_rpy(-0.5 * exact.PI - pitch, 0.0, -0.5 * exact.PI)


def flat(*features: Shape, obstacles: tuple[Shape, ...] = ()) -> World:
    return World(1.0, np.zeros((20, 20)), np.full((20, 20), GROUND, np.uint8), obstacles, features)


def occlusion() -> Image:
    """PRD 11.4.4: a 2 m box over a patch of water, seen from 10 m above and a little beside it."""
    patch = Shape("rectangle", WATER, (10.0, 10.0), (6.0, 4.0))
    box = Shape("rectangle", OBSTACLE, (11.0, 9.5), (2.0, 2.0), height_m=2.0)
    return Renderer(flat(patch, obstacles=(box,)), MODEL).render((9.47, 10.03, 10.0), DOWN)


def distortion() -> Image:
    """A chessboard through a barrel lens."""
    squares = [
        Shape("rectangle", HAZARD if (i + j) % 2 else TARGET, (4.0 + i, 4.0 + j), (1.0, 1.0))
        for i in range(12)
        for j in range(12)
    ]
    return Renderer(flat(*squares), BARREL).render((9.5, 9.5, 8.0), DOWN)


def orientation() -> Image:
    """Above the middle, heading east: an arrow to the east points up, a circle to the south lies on the right."""
    arrow = Shape("triangle", HAZARD, (12.0, 10.0), vertices=((11.0, 9.0), (14.0, 10.0), (11.0, 11.0)))
    circle = Shape("circle", TARGET, (10.0, 7.0), radius=1.0)
    return Renderer(flat(arrow, circle), MODEL).render((10.02, 9.97, 10.0), DOWN)


def all_classes() -> Image:
    """Every class and every kind of solid over hills, from a low flight."""
    return Renderer(_hills(), MODEL).render((1.0, 10.0, 7.0), ahead(0.5))


def _hills() -> World:
    heights = [[exact.sin(0.7 * i) * exact.cos(0.5 * j) for i in range(24)] for j in range(20)]
    surface = np.full((20, 24), GROUND, np.uint8)
    surface[2:7, 4:11] = WATER
    features = (
        Shape("circle", HAZARD, (7.0, 11.0), radius=1.2),
        Shape("rectangle", TARGET, (8.0, 14.0), (1.5, 3.0), yaw=0.5, height_m=1.0),
        Shape("triangle", HAZARD, (12.0, 8.0), vertices=((11.0, 6.5), (13.5, 8.0), (11.5, 9.5)), height_m=2.5),
        Shape("billboard", TARGET, (14.0, 12.5), (3.0, 2.0), yaw=None, base_m=1.0),
        Shape("billboard", WATER, (10.0, 16.5), (3.0, 2.0), yaw=0.9),
    )
    obstacles = (
        Shape("circle", OBSTACLE, (10.0, 11.0), radius=0.8, height_m=3.0),
        Shape("rectangle", OBSTACLE, (16.0, 5.0), (2.0, 4.0), height_m=2.0),
    )
    return World(1.0, np.array(heights), surface, obstacles, features)


def noisy() -> Image:
    """The same with blur and colour jitter."""
    return ImageNoise(96, 96, 0.8, 0.2).apply(all_classes(), KEY, 40)


SCENES = {scene.__name__: scene for scene in (occlusion, distortion, orientation, all_classes, noisy)}


def main() -> None:
    images = {name: scene() for name, scene in SCENES.items()}
    if "--hashes" in sys.argv:
        print(json.dumps({name: hashlib.sha256(image.tobytes()).hexdigest() for name, image in images.items()}))
        return
    FOLDER.mkdir(exist_ok=True)
    for name, image in images.items():
        write_png(FOLDER / f"{name}.png", image)


if __name__ == "__main__":
    main()
