"""The records that an MCAP file is made of (https://mcap.dev/spec)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined

Bytes: TypeAlias = npt.NDArray[np.uint8]

MAGIC = b"\x89MCAP0\r\n"
(HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX, ATTACHMENT, ATTACHMENT_INDEX) = range(
    1, 11
)
(STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END) = range(11, 16)

START, END = "microsim", "microsim.end"  # names of our metadata records

RECORD_HEAD = 9  # bytes: opcode, length of the rest (8)
MESSAGE_HEAD = struct.Struct("<BQHIQQ")  # opcode, length, channel, sequence, log time, publish time
NUMBER, TIME, PLACE = range(3)  # rows of a table of messages: channel, log time [ns], where it begins in the chunk


def record(opcode: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def mapping(values: Mapping[str, str]) -> bytes:
    body = b"".join(text(part) for pair in values.items() for part in pair)
    return struct.pack("<I", len(body)) + body


@inlined
def number_at(source: Bytes, at: int, size: int) -> int:
    """For kernels: a little-endian number of so many bytes."""
    value = 0
    for place in range(size):
        value |= np.int64(source[at + place]) << (8 * place)
    return value


@inlined
def put_number(target: Bytes, at: int, size: int, value: int) -> None:
    """For kernels, as `number_at`."""
    for place in range(size):
        target[at + place] = (value >> (8 * place)) & 0xFF
