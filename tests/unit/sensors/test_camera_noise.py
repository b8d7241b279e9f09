"""Blur and colour jitter of the camera's image."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.noise import stream_key
from microsim.render.image_noise import ImageNoise, blur_weights

KEY = stream_key(7, "drone/camera/noise")


def picture(height=20, width=24, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def gaussian_blur(image, sigma):
    """In floating point, by definition."""
    reach = math.ceil(5 * sigma)
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    bell /= bell.sum()
    padded = np.pad(image.astype(float), ((reach, reach), (reach, reach), (0, 0)), mode="edge")
    along = sum(w * padded[:, k : k + image.shape[1]] for k, w in enumerate(bell))
    return sum(w * along[k : k + image.shape[0]] for k, w in enumerate(bell))


@pytest.mark.parametrize("sigma", [0.0, 0.1, 0.3, 0.5, 0.8, 1.0, 2.5, 10.0])
def test_weights_sum_to_one_and_follow_the_bell(sigma):
    weights = blur_weights(sigma)
    assert weights[0] + 2 * weights[1:].sum() == 2048
    assert (weights >= 0).all()
    if sigma > 0:
        k = np.arange(-60, 61)
        bell = np.exp(-0.5 * (k / sigma) ** 2)
        wanted = 2048 * bell[60 : 60 + len(weights)] / bell.sum()
        assert abs(weights - wanted).max() <= 2.0


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 3.0])
def test_the_blur_is_a_gaussian_to_within_one_grey_level(sigma):
    image = picture()
    blurred = ImageNoise(24, 20, sigma, 0.0).apply(image, KEY, 0)
    assert abs(blurred - gaussian_blur(image, sigma)).max() <= 1.0


@pytest.mark.parametrize("sigma", [0.3, 0.5, 3.0])
def test_plain_areas_are_blurred_as_all_others(sigma):
    """Beside a picture full of edges, which is blurred everywhere, a few rectangles of one colour."""
    random = np.random.default_rng(4)
    noise, weights = ImageNoise(150, 70, sigma, 0.0), blur_weights(sigma)
    for _ in range(10):
        image = np.full((70, 150, 3), 200, np.uint8)
        for _ in range(3):
            v, u = random.integers(0, 70), random.integers(0, 150)
            image[v : v + random.integers(1, 30), u : u + random.integers(1, 60)] = random.integers(0, 256, 3)
        reach, total = len(weights) - 1, image.astype(np.int64)
        for axis in (1, 0):
            padded = np.pad(total, [(reach, reach) if k == axis else (0, 0) for k in range(3)], mode="edge")
            parts = (np.roll(padded, -k, axis) for k in range(2 * reach + 1))
            total = sum(weights[abs(k - reach)] * part for k, part in enumerate(parts))
            total = total[:, :150] if axis else total[:70]
        assert np.array_equal(noise.apply(image, KEY, 0), (total + (1 << 21)) >> 22)


def test_blurring_one_colour_changes_nothing():
    for level in (0, 1, 77, 254, 255):
        image = np.full((9, 5, 3), level, np.uint8)
        assert (ImageNoise(5, 9, 2.0, 0.0).apply(image, KEY, 3) == level).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 3)])
def test_images_smaller_than_the_blur_are_blurred_too(size):
    width, height = size
    image = picture(height, width)
    blurred = ImageNoise(width, height, 3.0, 0.0).apply(image, KEY, 0)
    assert abs(blurred - gaussian_blur(image, 3.0)).max() <= 1.5


def test_without_noise_the_image_itself_comes_back():
    image = picture()
    assert ImageNoise(24, 20, 0.0, 0.0).apply(image, KEY, 5) is image


def test_the_image_given_is_never_changed_and_the_result_is_new():
    image = picture()
    before = image.copy()
    noise = ImageNoise(24, 20, 0.5, 0.2)
    first, second = noise.apply(image, KEY, 1), noise.apply(image, KEY, 1)
    assert np.array_equal(image, before)
    assert first is not second
    assert np.array_equal(first, second)


def test_jitter_is_one_gain_per_channel_and_frame_within_its_bounds():
    image = np.full((6, 8, 3), 100, np.uint8)
    noise = ImageNoise(8, 6, 0.0, 0.25)
    gains = np.array([noise.apply(image, KEY, tick)[0, 0] for tick in range(400)]) / 100.0
    assert all((noise.apply(image, KEY, tick) == noise.apply(image, KEY, tick)[0, 0]).all() for tick in range(5))
    assert gains.min() >= 0.745
    assert gains.max() <= 1.255
    assert abs(gains.mean(0) - 1.0).max() < 0.03  # uniform: sigma of the mean is 0.0072
    assert abs(gains.std(0) - 0.5 / math.sqrt(12.0)).max() < 0.02
    assert abs(np.corrcoef(gains.T) - np.eye(3)).max() < 0.2


def test_jitter_saturates_at_white():
    image = np.full((2, 2, 3), 250, np.uint8)
    noise = ImageNoise(2, 2, 0.0, 1.0)
    levels = np.array([noise.apply(image, KEY, tick)[0, 0] for tick in range(50)])
    assert levels.max() == 255
    assert levels.min() < 100


@settings(max_examples=20, deadline=None)
@given(tick=st.integers(0, 2**40), other=st.integers(0, 2**40))
def test_jitter_depends_on_key_and_tick_alone(tick, other):
    image = np.full((1, 1, 3), 128, np.uint8)
    noise = ImageNoise(1, 1, 0.0, 0.5)
    first = noise.apply(image, KEY, tick)
    noise.apply(image, KEY, other)
    assert np.array_equal(noise.apply(image, KEY, tick), first)
    assert np.array_equal(ImageNoise(1, 1, 0.0, 0.5).apply(image, KEY, tick), first)
