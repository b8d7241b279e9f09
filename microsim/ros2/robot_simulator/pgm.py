"""Grey images in PGM: P5 (bytes) and P2 (text), 8 or 16 bits. Sizes are bounded, nothing is trusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from microsim.errors import MapError, Problem

MAX_PIXELS = 100_000_000
_MAX_BYTES = 6 * MAX_PIXELS + 10_000  # text of five digits and a blank for each pixel


def read_pgm(file: Path) -> tuple[npt.NDArray[np.uint16], int]:
    """Pixels (rows, columns), first row at the top, and the value of white; OSError where there is no file to read."""
    if not file.is_file():
        raise FileNotFoundError(2, "no such file")
    with file.open("rb") as stream:
        raw = stream.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES:
        raise _refusal(file, f"expected at most {_MAX_BYTES:,} bytes, found more")
    kind = raw[:2]
    if kind not in (b"P5", b"P2"):
        raise _refusal(file, f"expected a grey PGM image (P5 or P2), found {_kind(raw)}; convert it to PGM")
    (columns, rows, depth), start = _header(file, raw)
    if not 0 < columns * rows <= MAX_PIXELS or columns < 0:
        raise _refusal(file, f"expected 1 to {MAX_PIXELS:,} pixels, found {columns} by {rows}")
    if not 0 < depth < 65536:
        raise _refusal(file, f"expected a greatest value from 1 to 65535, found {depth}")
    pixels = (
        _text(file, raw[start:], columns * rows) if kind == b"P2" else _binary(file, raw, start, columns * rows, depth)
    )
    if pixels.max() > depth:
        raise _refusal(file, f"expected values up to {depth}, as its header says, found {int(pixels.max())}")
    return pixels.reshape(rows, columns), depth


def _header(file: Path, raw: bytes) -> tuple[list[int], int]:
    """Width, height and greatest value, and where the pixels begin: one white space after them."""
    numbers: list[int] = []
    at = 2
    while len(numbers) < 3:
        while at < len(raw) and raw[at : at + 1].isspace():
            at += 1
        if raw[at : at + 1] == b"#":
            while at < len(raw) and raw[at : at + 1] not in (b"\n", b"\r"):
                at += 1
            continue
        end = at
        while end < len(raw) and raw[end : end + 1].isdigit() and end - at < 10:
            end += 1
        if end == at:
            what = ("width", "height", "greatest value")[len(numbers)]
            raise _refusal(file, f"expected the image's {what} in its header, found {_shown(raw[at : at + 10])}")
        numbers.append(int(raw[at:end]))
        at = end
    return numbers, at + 1


def _binary(file: Path, raw: bytes, start: int, count: int, depth: int) -> npt.NDArray[np.uint16]:
    size = 1 if depth < 256 else 2
    if len(raw) - start < count * size:
        raise _refusal(file, f"expected {count * size} bytes of pixels, as its header says, found {len(raw) - start}")
    return np.frombuffer(raw, np.uint8 if size == 1 else np.dtype(">u2"), count, start).astype(np.uint16)


def _text(file: Path, body: bytes, count: int) -> npt.NDArray[np.uint16]:
    words = b"\n".join(line.partition(b"#")[0] for line in body.splitlines()).split()
    if len(words) < count:
        raise _refusal(file, f"expected {count} pixels, as its header says, found {len(words)}")
    strange = next((word for word in words[:count] if not word.isdigit() or len(word) > 5 or int(word) > 65535), None)
    if strange is not None:
        raise _refusal(file, f"expected a pixel's value, found {_shown(strange[:10])}")
    return np.array(words[:count], np.uint32).astype(np.uint16)


def _kind(raw: bytes) -> str:
    known = {
        b"\x89PNG": "a PNG image",
        b"P6": "a colour image (P6)",
        b"P3": "a colour image (P3)",
        b"BM": "a BMP image",
    }
    return next((name for start, name in known.items() if raw.startswith(start)), _shown(raw[:10]))


def _shown(raw: bytes) -> str:
    return repr(raw.decode("latin1")) if raw else "its end"


def _refusal(file: Path, message: str) -> MapError:
    return MapError(Problem(f"{file}: {message}"))
