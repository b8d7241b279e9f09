"""Exposure, vignetting, dusk and rain: closed forms, the same bytes for the same seed, the same in a batch."""

import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import microsim
from microsim.batch import BatchSimulation
from microsim.errors import ScenarioError
from microsim.render.appearance import ImageAppearance
from tests.support import bare, decoded, scenario
from tests.unit.batch.batch_reference import Singles, assert_equal

SIZE = (40, 30)
NONE: dict[str, Any] = {"exposure_ev": 0.0, "vignetting": 0.0, "dusk": 0.0, "rain": 0.0}
RAMP = np.broadcast_to((np.arange(1200, dtype=np.uint16) % 256).astype(np.uint8).reshape(30, 40, 1), (30, 40, 3)).copy()
CAMERA = {"hz": 10, "resolution": {"width": 40, "height": 30}, "latency_ms": {"mean": 0, "jitter": 0}}
DRONE = {"start": {"map_pose": {"x": 10.0, "y": 10.0, "z": 9.0}}}


def changed(image: Any = RAMP, key: int = 5, tick: int = 7, **numbers: float) -> Any:
    return ImageAppearance(SIZE, (19.5, 14.5), **{**NONE, **numbers}).apply(image, key, tick).astype(int)


def run(appearance: Any = None, seed: int = 3, **others: Any) -> microsim.Simulation:
    drone = bare(camera={**CAMERA, "appearance": appearance}, **DRONE)
    features = [{"type": "circle", "class": "target", "center": [11, 10], "radius": 2}]
    return microsim.Simulation(scenario(robots={"drone": drone}, features=features, **others), seed)


def image_of(sim: microsim.Simulation) -> Any:
    found = decoded(sim.step(0), "/drone/camera/image_raw")[0]
    return np.frombuffer(bytes(found.data), np.uint8)


def test_nothing_changes_nothing_and_a_stop_doubles_the_levels() -> None:
    np.testing.assert_array_equal(changed(), RAMP)
    np.testing.assert_array_equal(changed(exposure_ev=1.0), np.minimum(2 * RAMP.astype(int), 255))
    np.testing.assert_array_equal(changed(exposure_ev=-2.0), (RAMP.astype(int) + 2) // 4)


def test_the_lens_loses_light_with_the_square_of_the_distance_from_its_centre() -> None:
    found = changed(np.full_like(RAMP, 200), vignetting=0.4)
    v, u = np.mgrid[0:30, 0:40]
    square = ((u - 19.5) ** 2 + (v - 14.5) ** 2) / (19.5**2 + 14.5**2)
    np.testing.assert_allclose(found, np.repeat(200.0 * (1.0 - 0.4 * square)[..., None], 3, axis=2), atol=0.52)
    assert found[0, 0, 0] == 120


def test_dusk_is_darker_and_bluer_the_later_it_is() -> None:
    grey = np.full_like(RAMP, 120)
    hours = [changed(grey, dusk=dusk)[0, 0] for dusk in (0.0, 0.3, 0.6, 1.0)]
    assert all((later < earlier).all() for earlier, later in pairwise(hours))
    assert all(blue > red for red, _, blue in hours[1:])


def test_rain_falls_elsewhere_with_every_tick_and_seed_and_nowhere_without_it() -> None:
    dark = np.full_like(RAMP, 30)
    veil = changed(dark, rain=0.001)  # too little for a streak
    assert len({tuple(colour) for colour in veil.reshape(-1, 3).tolist()}) == 1
    frames = [changed(dark, rain=1.0, key=key, tick=tick) for key, tick in ((5, 7), (5, 8), (6, 7), (5, 7))]
    np.testing.assert_array_equal(frames[0], frames[3])
    assert not np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[0], frames[2])
    wet = (frames[0] != np.median(frames[0], axis=(0, 1))).any(axis=2)
    assert 0.02 < wet.mean() < 0.6


def test_the_bytes_are_the_same_everywhere() -> None:
    """Compiled or not, on any processor: whole numbers only."""
    image = ImageAppearance(SIZE, (19.0, 14.0), exposure_ev=0.4, vignetting=0.3, dusk=0.6, rain=0.7).apply(RAMP, -9, 4)
    assert hashlib.sha256(image.tobytes()).hexdigest()[:16] == "63050180c843d793"


def test_it_changes_images_and_no_other_byte() -> None:
    plain, wet = run().step(20), run({"rain": 0.8, "dusk": 0.5}).step(20)
    others = [[m.cdr for m in sent if m.topic not in ("/drone/camera/image_raw", "/sim/info")] for sent in (plain, wet)]
    assert others[0] == others[1]
    assert [m.cdr for m in plain] != [m.cdr for m in wet]
    assert "appearance" not in run().scenario.model_dump()["robots"]["drone"]["camera"]


def test_what_render_gives_is_what_is_sent_before_blur() -> None:
    drone = bare(camera={**CAMERA, "noise": {"blur_sigma_px": 0}, "appearance": {"rain": 1.0}}, **DRONE)
    sim = microsim.Simulation(scenario(robots={"drone": drone}), 4)
    np.testing.assert_array_equal(sim.render("drone", "camera").reshape(-1), image_of(sim))


def test_the_seed_may_draw_them_and_a_batch_sees_what_single_worlds_see() -> None:
    values = {f"robots.drone.camera.appearance.{key}": [0.2, 0.9] for key in ("rain", "dusk", "exposure_ev")}
    drone = bare(camera={**CAMERA, "appearance": {}}, **DRONE)
    source = scenario(robots={"drone": drone}, randomize={"values": values})
    assert (image_of(microsim.Simulation(source, 1)) != image_of(microsim.Simulation(source, 2))).any()
    seeds = np.arange(3)
    batch, singles = BatchSimulation(source, 3, seeds=seeds), Singles(source, seeds)
    for _ in range(2):
        batch.step(7)
        singles.step(7)
        assert_equal(batch, singles)


@pytest.mark.parametrize(
    ("appearance", "told"),
    [({"rain": 1.5}, "appearance.rain"), ({"exposure_ev": 11}, "exposure_ev"), ({"fog": 1}, "unknown key 'fog'")],
)
def test_what_cannot_be_is_refused_with_its_place(appearance: Any, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        run(appearance)
