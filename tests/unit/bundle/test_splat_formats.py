"""Files of Gaussians as other programs write them: what is written is read, and what cannot be read is refused."""

import io
import json
import math
import struct
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from microsim.bundle.mapped_arrays import columns_of
from microsim.bundle.splat_sources import open_splats
from microsim.bundle.zstd import packed
from microsim.errors import UsageError
from microsim.parts.worlds.splat_export import compressed_ply, spz, write_for_others
from tests.support import many


def gaussians(count: int, degree: int, seed: int, reach: float = 20.0) -> Any:
    """Rows as bundles have them: place, log scales, rotation [x, y, z, w], logit, colour, harmonics by channel."""
    rng = np.random.default_rng(seed)
    rows = np.empty((count, len(columns_of(degree))))
    rows[:, 0:3] = rng.uniform(-reach, reach, (count, 3))
    rows[:, 3:6] = rng.uniform(-9.0, 1.0, (count, 3))
    rotation = rng.normal(size=(count, 4))
    rows[:, 6:10] = rotation / np.linalg.norm(rotation, axis=1, keepdims=True)
    rows[:, 10] = rng.uniform(-4.0, 4.0, count)
    rows[:, 11:14] = rng.uniform(-1.5, 1.5, (count, 3))
    rows[:, 14:] = rng.uniform(-0.9, 0.9, (count, rows.shape[1] - 14))
    return rows


def sog(rows: Any, degree: int, seed: int = 0, version: Any = 2) -> bytes:
    """As the published description has it: images of bytes, codebooks, and a palette of harmonics."""
    count, rng = len(rows), np.random.default_rng(seed)
    width = max(math.ceil(math.sqrt(count)), 1)
    height = -(-count // width)

    def image(values: Any) -> bytes:
        pixels = np.zeros((height * width, 4), np.uint8)
        pixels[:, 3] = 255
        pixels[:count, : values.shape[1]] = values
        return webp(pixels.reshape(height, width, 4))

    def webp(pixels: Any) -> bytes:
        out = io.BytesIO()
        Image.fromarray(pixels, "RGBA").save(out, "WEBP", lossless=True, exact=True)
        return out.getvalue()

    def book(values: Any) -> tuple[Any, Any]:
        levels = np.linspace(values.min(initial=0.0), values.max(initial=0.0), 256)
        return levels.tolist(), np.abs(values[..., None] - levels).argmin(axis=-1).astype(np.uint8)

    logs = np.sign(rows[:, 0:3]) * np.log1p(np.abs(rows[:, 0:3]))
    low, high = logs.min(axis=0), logs.max(axis=0)
    whole = np.round((logs - low) / np.maximum(high - low, 1e-12) * 65535).astype(int)
    wxyz = rows[:, [9, 6, 7, 8]]
    largest = np.abs(wxyz).argmax(axis=1)
    wxyz = wxyz * np.sign(np.take_along_axis(wxyz, largest[:, None], 1))
    others = np.array([np.delete(row, at) for row, at in zip(wxyz, largest, strict=True)]).reshape(count, 3)
    quats = np.c_[np.round((others / math.sqrt(2.0) + 0.5) * 255), 252 + largest]
    scales, colours = book(rows[:, 3:6]), book(rows[:, 11:14])
    alphas = np.round(255 / (1 + np.exp(-rows[:, 10])))
    files = {
        "means_l.webp": image(whole & 255), "means_u.webp": image(whole >> 8), "quats.webp": image(quats),
        "scales.webp": image(scales[1]), "sh0.webp": image(np.c_[colours[1], alphas]),
    }  # fmt: skip
    meta: dict[str, Any] = {
        "version": version, "count": count,
        "means": {"mins": low.tolist(), "maxs": high.tolist(), "files": ["means_l.webp", "means_u.webp"]},
        "scales": {"codebook": scales[0], "files": ["scales.webp"]}, "quats": {"files": ["quats.webp"]},
        "sh0": {"codebook": colours[0], "files": ["sh0.webp"]},
    }  # fmt: skip
    if degree:
        coefficients, order = (degree + 1) ** 2 - 1, rng.permutation(count)  # the palette is in another order
        harmonics = book(rows[:, 14:].reshape(count, 3, coefficients).transpose(0, 2, 1))
        palette = np.zeros((-(-count // 64) * 64, coefficients, 4), np.uint8)
        palette[..., 3] = 255
        palette[order, :, :3] = harmonics[1]
        files["shN_centroids.webp"] = webp(palette.reshape(-1, 64 * coefficients, 4))
        files["shN_labels.webp"] = image(np.stack([order & 255, order >> 8], axis=1))
        names = ["shN_centroids.webp", "shN_labels.webp"]
        meta["shN"] = {"count": count, "bands": degree, "codebook": harmonics[0], "files": names}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {**files, "meta.json": json.dumps(meta).encode()}.items():
            archive.writestr(name, data)
    return out.getvalue()


ENCODERS: dict[str, Any] = {"a.spz": spz, "a.compressed.ply": compressed_ply, "a.sog": sog}
# Of place, log scale, share of opacity, colour and harmonics: a step of each format's, and a half of it lost.
STEPS = {
    "a.spz": (2.0**-13, 1 / 32, 1 / 510, 0.0131, 1 / 256),
    "a.compressed.ply": (40 / 1023 / 2, 10 / 1023 / 2, 1 / 510, 3.0 / 255 / 2, 8 / 256 / 2 + 1e-9),
    "a.sog": (21 * 6.1 / 65535, 10 / 255 / 2, 1 / 510, 3.0 / 255 / 2, 1.8 / 255 / 2),
}


@pytest.mark.parametrize("name", ENCODERS)
@settings(max_examples=many(12, 2), deadline=None)
@given(count=st.integers(1, 700), degree=st.integers(0, 3), seed=st.integers(0, 1000))
def test_what_is_written_is_read_within_a_step(
    tmp_path_factory: Any, name: str, count: int, degree: int, seed: int
) -> None:
    rows, file = gaussians(count, degree, seed), tmp_path_factory.mktemp("formats") / name
    file.write_bytes(ENCODERS[name](rows, degree))
    source = open_splats(file)
    assert (source.count, source.degree) == (count, degree)
    found = np.concatenate([part for _, part in source.pieces()])
    place, scale, opacity, colour, harmonic = STEPS[name]
    assert np.abs(found[:, 0:3] - rows[:, 0:3]).max() <= place + 1e-6
    assert np.abs(found[:, 3:6] - rows[:, 3:6]).max() <= scale + 1e-5
    assert np.abs((found[:, 6:10] * rows[:, 6:10]).sum(axis=1)).min() > (0.9999 if name == "a.sog" else 0.99999)
    assert np.abs(1 / (1 + np.exp(-found[:, 10])) - 1 / (1 + np.exp(-rows[:, 10]))).max() <= opacity + 1e-6
    assert np.abs(found[:, 11:14] - rows[:, 11:14]).max() <= colour
    assert np.abs(found[:, 14:] - rows[:, 14:]).max(initial=0.0) <= harmonic + 1e-6
    middle = count // 2
    np.testing.assert_array_equal(source.rows(middle, count), found[middle:])


def test_a_ply_for_trainers_loses_nothing(tmp_path: Path) -> None:
    rows = gaussians(300, 2, 1).astype(np.float32)
    write_for_others(rows, tmp_path / "a.ply", 2)
    np.testing.assert_array_equal(open_splats(tmp_path / "a.ply").rows(0, 300), rows)


@pytest.mark.parametrize("reach", [0.01, 1.0, 500.0, 1e5])
def test_spz_keeps_as_many_bits_of_a_place_as_there_is_room_for(tmp_path: Path, reach: float) -> None:
    rows = gaussians(50, 0, 2, reach)
    (tmp_path / "a.spz").write_bytes(spz(rows, 0))
    off = np.abs(open_splats(tmp_path / "a.spz").rows(0, 50)[:, 0:3] - rows[:, 0:3]).max()
    assert off <= max(2.0**-17, 1.01 * reach / 2**23)


def changed(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


SPZ, SOG, PLY = spz(gaussians(20, 1, 3), 1), sog(gaussians(20, 1, 3), 1), compressed_ply(gaussians(300, 1, 3), 1)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.spz", changed(SPZ, 4, struct.pack("<I", 5)), "expected version 2, 3 or 4 of spz, found 5"),
        ("a.spz", changed(SPZ, 12, b"\x04"), "expected harmonics of degree 0 to 3, found 4"),
        ("a.spz", changed(SPZ, 8, struct.pack("<I", 21)), "stream 0 is cut short"),
        ("a.spz", changed(SPZ, 8, struct.pack("<I", 2**32 - 1)), "expected at most 4,000,000,000 bytes"),
        ("a.spz", changed(SPZ, 32 + 6 * 16, b"not ZSTD"), "stream 0 is not 180 bytes in ZSTD"),
        ("a.spz", SPZ[:60], "or the file is cut short"),
        ("a.spz", SPZ[:-1], "stream 5 is cut short"),
        ("a.sog", sog(gaussians(3, 0, 1), 0, version=3), "expected version 2 of sog, found 3"),
        ("a.sog", b"PK not a ZIP", "not a sog file"),
        ("a.sog", SOG[:-30], "not a sog file"),
        ("a.ply", PLY[:-1], "the file is cut short"),
        ("a.ply", PLY.replace(b"element chunk 2", b"element chunk 3"), "expected 2 chunks for 300 Gaussians, found 3"),
        ("a.ply", PLY.replace(b"packed_scale", b"packed_shape"), "its element 'vertex' has no packed_scale of u4"),
        ("a.ply", PLY.replace(b"float max_z\n", b"float max_q\n"), "its element 'chunk' has no max_z of f4"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_in_a_sentence(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=message):
        open_splats(tmp_path / name)


def test_a_stream_is_unpacked_only_as_far_as_it_says(tmp_path: Path) -> None:
    bomb = packed(bytes(200_000_000))
    data = struct.pack("<4sIIBBBBIIII", b"NGSP", 4, 1, 0, 12, 0, 5, 32, 0, 0, 0)
    data += b"".join(struct.pack("<QQ", len(bomb), size) for size in (9, 1, 3, 3, 4)) + 5 * bomb
    (tmp_path / "a.spz").write_bytes(data)
    found = open_splats(tmp_path / "a.spz")  # what is beyond its end is never unpacked
    assert found.count == 1


@pytest.mark.parametrize(("name", "data"), [("a.spz", SPZ), ("a.sog", SOG), ("a.ply", PLY)], ids=["spz", "sog", "ply"])
@settings(max_examples=many(150, 10), deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=6)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused(tmp_path_factory: Any, name: str, data: bytes, changes: Any) -> None:
    for at, value in changes:
        data = changed(data, at % len(data), value)
    file = tmp_path_factory.mktemp("damaged") / name
    file.write_bytes(data)
    with suppress(UsageError):
        source = open_splats(file)
        for _, rows in source.pieces():
            assert rows.shape[1] == len(columns_of(source.degree))
