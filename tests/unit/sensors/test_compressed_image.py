"""`image_raw/compressed`, as image_transport's plug-in publishes it."""

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import microsim
from microsim.render.png_encoder import png_of
from tests.support import bare, decoded, scenario

TOPIC = "/drone/camera/image_raw"
CAMERA = {"hz": 10, "resolution": {"width": 24, "height": 16}, "latency_ms": {"mean": 0, "jitter": 0}}


def run(**camera):
    drone = bare(camera={**CAMERA, **camera}, start={"map_pose": {"x": 10.0, "y": 10.0, "z": 9.0}})
    features = [{"type": "circle", "class": "target", "center": [11, 10], "radius": 2}]
    return microsim.Simulation(scenario(robots={"drone": drone}, features=features))


def pixels(data):
    return np.asarray(Image.open(BytesIO(bytes(data))).convert("RGB"))


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_every_image_is_sent_compressed_with_its_stamp_and_format(kind):
    messages = run(compressed=kind).step(60)
    raw, compressed = decoded(messages, TOPIC), decoded(messages, f"{TOPIC}/compressed")
    assert len(raw) == len(compressed) > 3
    for image, packed in zip(raw, compressed, strict=True):
        assert packed.header == image.header
        assert packed.format == f"rgb8; {kind} compressed bgr8"
        seen, sent = pixels(packed.data), image.data.reshape(16, 24, 3)
        if kind == "png":
            assert (seen == sent).all()
        else:
            assert np.abs(seen.astype(int) - sent).mean() < 12
        assert len(packed.data) < len(image.data)


def test_it_is_off_unless_asked_for_and_leaves_all_other_bytes_alone():
    plain, packed = run().step(60), run(compressed="png").step(60)
    assert f"{TOPIC}/compressed" not in {message.topic for message in plain}
    kept = [message for message in packed if message.topic not in (f"{TOPIC}/compressed", "/sim/info")]
    assert [each.cdr for each in kept] == [each.cdr for each in plain if each.topic != "/sim/info"]
    assert "compressed" not in run().scenario.model_dump()["robots"]["drone"]["camera"]


def test_the_bytes_of_a_png_are_the_same_everywhere():
    image = np.zeros((3, 5, 3), np.uint8)
    image[1, 2:] = (200, 100, 50)
    head = "89504e470d0a1a0a0000000d4948445200000005000000030802000000d45452af"
    body = "00000014494441547801636060c0864ea4184110940f47005814041bdfb0e9d7"
    assert png_of(image).hex() == f"{head}{body}0000000049454e44ae426082"


@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 256), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_a_png_decodes_to_its_image(height, width, colours, repeats, seed):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, colours, (height, -(-width // repeats), 3)).astype(np.uint8)
    image = np.repeat(image, repeats, axis=1)[:, :width]
    assert (pixels(png_of(image)) == image).all()


def test_matches_reach_across_rows_as_long_as_deflate_allows():
    for width in (10_000, 10_922, 10_923, 12_000):  # 32,768 bytes are a row of 10,922 pixels
        row = np.random.default_rng(width).integers(0, 256, (1, width, 3)).astype(np.uint8)
        image = np.repeat(row, 2, axis=0)
        found = png_of(image)
        assert (pixels(found) == image).all()
        assert (len(found) < 1.2 * row.size) == (3 * width + 1 <= 32768)
