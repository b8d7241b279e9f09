"""Just enough PNG for the golden images: 8-bit RGB, rows unfiltered."""

import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_png(path: Path, image: npt.NDArray[np.uint8]) -> None:
    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    path.write_bytes(_SIGNATURE + chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def read_png(path: Path) -> npt.NDArray[np.uint8]:
    """Reads what `write_png` wrote."""
    content = path.read_bytes()
    assert content.startswith(_SIGNATURE), path
    chunks = {}
    at = len(_SIGNATURE)
    while at < len(content):
        (size,) = struct.unpack_from(">I", content, at)
        chunks[content[at + 4 : at + 8]] = content[at + 8 : at + 8 + size]
        at += 12 + size
    width, height = struct.unpack_from(">II", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any(), "filtered rows"
    return rows[:, 1:].reshape(height, width, 3)
