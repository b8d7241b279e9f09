"""MCAP files (https://mcap.dev/spec): their records, and a writer whose files can be read however the run ends.

Each block becomes one chunk, which reaches the file in a single write together with its index: a killed run loses only
what was not written yet. The bytes depend on nothing but the run.
"""

from __future__ import annotations

import os
import struct
import sys
from binascii import crc32
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, reduce
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from microsim.engine.compiled import inlined, kernel, threaded_kernel
from microsim.recording.bag_model import (
    BagChannel,
    BagError,
    Block,
    FileWriter,
    Integers,
    Packed,
    Piece,
    RunInfo,
    definition,
)
from microsim.version import __version__

Bytes: TypeAlias = npt.NDArray[np.uint8]

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, CHUNK_INDEX = range(1, 9)
ATTACHMENT, ATTACHMENT_INDEX, STATISTICS, METADATA, METADATA_INDEX, SUMMARY_OFFSET, DATA_END = range(9, 16)
KINDS = (
    *("", "header", "footer", "schema", "channel", "message", "chunk", "message index", "chunk index", "attachment"),
    *("attachment index", "statistics", "metadata", "metadata index", "summary offset", "end of the data"),
)

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


LARGEST = 2**31  # [byte] a chunk that claims more is damaged


@cache
def zstd() -> Any:
    from importlib import import_module

    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def decompress(data: bytes, name: str, size: int) -> bytes:
    """`size` bytes; BagError when they are not what comes out."""
    if size > LARGEST:
        raise BagError(f"a chunk of {size:,} bytes")
    if name == "zstd":
        library = zstd()
        try:
            data = library.ZstdDecompressor().decompress(data, max_length=size + 1)
        except (library.ZstdError, EOFError, ValueError) as error:
            raise BagError(f"a chunk cannot be decompressed: {error}") from None
    elif name:
        raise BagError(f"unknown compression {name!r}")
    if len(data) != size:
        raise BagError("a chunk that has not the size it claims")
    return data


_POLYNOMIAL = 0xEDB88320  # reflected: the highest bit stands for x**0
_ONE = 1 << 31
_ALL = 0xFFFFFFFF


@kernel
def combined(first: int, second: int, length: int) -> int:
    """The checksum of two parts side by side, of which the second has `length` bytes."""
    power, bits, left = _ONE, _ONE >> 1, 8 * length  # x ** (8 * length), by squaring x
    while left:
        if left & 1:
            power = _times(bits, power)
        bits = _times(bits, bits)
        left >>= 1
    return _times(power, first) ^ second


@kernel
def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo CRC-32's."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & _ALL
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


_HEAD = RECORD_HEAD + 6  # bytes: channel (2), bytes of the entries (4)
_ENTRY = 16  # time (8), place (8)
_ROW = 10  # channel (2), where its index begins in the file (8)


class MessageIndex(NamedTuple):
    records: Piece  # one for each channel
    crc: int  # of these
    channels: bytes  # where the record of each channel begins in the file
    counts: dict[int, int]  # messages by channel


def message_index(table: Integers, shift: int, start: int) -> MessageIndex:
    """Of the messages in the table, which are moved by `shift` in the chunk; the index begins there in the file."""
    counts = np.bincount(table[NUMBER])
    used = np.flatnonzero(counts)
    records = np.empty(_ENTRY * table.shape[1] + _HEAD * len(used), np.uint8)
    channels = np.empty(_ROW * len(used), np.uint8)
    _fill(table, counts, shift, start, records, channels)
    by_channel = dict(zip(used.tolist(), counts[used].tolist(), strict=True))
    return MessageIndex(records.data, crc32(records.data), channels.tobytes(), by_channel)


@threaded_kernel
def _fill(table: Integers, counts: Integers, shift: int, start: int, records: Bytes, channels: Bytes) -> None:
    ends = np.empty(len(counts), np.int64)  # where each channel's next entry goes
    at = row = 0
    for number in range(len(counts)):
        if counts[number]:
            put_number(channels, row, 2, number)
            put_number(channels, row + 2, 8, start + at)
            row += _ROW
            size = _ENTRY * counts[number]
            records[at] = MESSAGE_INDEX
            put_number(records, at + 1, 8, _HEAD - RECORD_HEAD + size)
            put_number(records, at + 9, 2, number)
            put_number(records, at + 11, 4, size)
            ends[number] = at + _HEAD
            at += _HEAD + size
    for message in range(table.shape[1]):
        number = table[NUMBER, message]
        put_number(records, ends[number], 8, table[TIME, message])
        put_number(records, ends[number] + 8, 8, table[PLACE, message] + shift)
        ends[number] += _ENTRY


_MOST_PARTS = 500  # that the system takes at once, and some to spare
_HEADS = np.dtype(
    [("opcode", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("log", "<u8"), ("publish", "<u8")]
)


class McapWriter(FileWriter):
    """`create` opens it: tests hand in disks that are slow, full or broken."""

    suffix = ".mcap"

    def __init__(
        self, path: Path, run_info: RunInfo, compression: str = "", create: Callable[[Path], Any] | None = None
    ) -> None:
        super().__init__()
        self._file: Any = create(path) if create else path.open("xb", buffering=0)
        self._compression = compression
        self._checked: list[tuple[int, int]] = []  # checksum and length of each part so far
        self._types: dict[str, int] = {}
        self._chunks: list[bytes] = []
        self._metadata: list[bytes] = []
        self._attachments: list[bytes] = []
        self._put(MAGIC + record(HEADER, text("ros2"), text(f"microsim {run_info.start.get('version', __version__)}")))
        self._put_metadata(START, run_info.start)
        for name, content in run_info.files.items():
            self._put_attachment(name, content)

    def write(self, block: Block) -> None:
        self._know(block.channels)
        self._put_chunk(b"".join(self._declaration(channel) for channel in block.channels), block)

    def close(self, end: Mapping[str, str], rosbag2: Callable[[], str]) -> None:
        if end:
            self._put_metadata(END, end)
        self._put_metadata("rosbag2", {"serialized_metadata": rosbag2()})
        crc = reduce(lambda before, part: combined(before, *part), self._checked, 0)
        self._put(record(DATA_END, struct.pack("<I", crc)))
        self._write(self._summary())
        self._file.close()

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _compressed(self, records: bytes) -> bytes:
        return bytes(zstd().compress(records))

    def _put(self, data: bytes) -> int:
        """Append; gives where it begins."""
        self._checked.append((crc32(data), len(data)))
        return self._write(data)

    def _write(self, *parts: Piece) -> int:
        start = self.size
        write_all(self._file, parts)
        self.size += sum(map(len, parts))
        return start

    def _put_metadata(self, name: str, values: Mapping[str, str]) -> None:
        data = record(METADATA, text(name), mapping(dict(sorted(values.items()))))
        start = self._put(data)
        self._metadata.append(record(METADATA_INDEX, struct.pack("<QQ", start, len(data)), text(name)))

    def _put_attachment(self, name: str, content: bytes) -> None:
        kind = "application/octet-stream"
        body = (
            bytes(16) + text(name) + text(kind) + struct.pack("<Q", len(content)) + content
        )  # times 0: from the start
        data = record(ATTACHMENT, body, struct.pack("<I", crc32(body)))
        start = self._put(data)
        place = struct.pack("<QQQQQ", start, len(data), 0, 0, len(content))
        self._attachments.append(record(ATTACHMENT_INDEX, place, text(name), text(kind)))

    def _declaration(self, channel: BagChannel) -> bytes:
        """The channel, and before it its type where that is new."""
        is_known = channel.type in self._types
        number = self._types.setdefault(channel.type, len(self._types) + 1)
        return (b"" if is_known else _schema(number, channel.type)) + _channel(channel, number)

    def _put_chunk(self, declarations: bytes, block: Block) -> None:
        chunk = block.packed or _packed(block)
        payload: list[Piece] = [declarations, chunk.records]
        size, name = sum(map(len, payload)), text(self._compression)
        crc = reduce(lambda before, part: crc32(part, before), payload, 0)
        if self._compression:
            payload = [self._compressed(b"".join(payload))]
        length = sum(map(len, payload))
        first, last = (block.times[0], block.times[-1]) if block.times else (0, 0)
        head = struct.pack("<BQQQQI", CHUNK, 36 + len(name) + length, first, last, size, crc)
        head += name + struct.pack("<Q", length)
        index = message_index(chunk.table, len(declarations), self.size + len(head) + length)
        start, index_size = self._write(head, *payload, index.records), len(index.records)
        payload_crc = crc32(payload[0]) if self._compression else crc
        self._checked += ((crc32(head), len(head)), (payload_crc, length), (index.crc, index_size))
        place = struct.pack("<QQQQI", first, last, start, len(head) + length, len(index.channels))
        sizes = struct.pack("<QQ", length, size)
        self._chunks.append(record(CHUNK_INDEX, place, index.channels, struct.pack("<Q", index_size), name, sizes))
        self._count(index.counts, block)

    def _summary(self) -> bytes:
        pairs = sorted((channel.number, count) for channel, count in self.counts.items())
        counts = b"".join(struct.pack("<HQ", *pair) for pair in pairs)
        lists = self._attachments, self._metadata, self._chunks
        sizes = len(self._types), len(self._channels), *map(len, lists)
        totals = struct.pack("<QHIIII", sum(self.counts.values()), *sizes)
        groups = {
            SCHEMA: [_schema(number, name) for name, number in self._types.items()],
            CHANNEL: [_channel(channel, self._types[channel.type]) for channel in self.counts],
            CHUNK_INDEX: self._chunks,
            ATTACHMENT_INDEX: self._attachments,
            METADATA_INDEX: self._metadata,
            STATISTICS: [record(STATISTICS, totals, struct.pack("<QQI", *self.times, len(counts)), counts)],
        }
        summary, offsets = b"", b""
        for opcode, body in ((opcode, b"".join(records)) for opcode, records in groups.items() if records):
            offsets += record(SUMMARY_OFFSET, struct.pack("<BQQ", opcode, self.size + len(summary), len(body)))
            summary += body
        before_crc = struct.pack("<BQQQ", FOOTER, 20, self.size, self.size + len(summary))
        checked = summary + offsets + before_crc
        return checked + struct.pack("<I", crc32(checked)) + MAGIC


def write_all(file: Any, parts: Sequence[Piece]) -> None:
    """All parts, in one call of the system where it can be; a file may take less than it is given."""
    if hasattr(file, "write_parts"):
        file.write_parts(parts)
        return
    if isinstance(file, FileIO) and hasattr(os, "writev") and 1 < len(parts) <= _MOST_PARTS:
        taken = os.writev(file.fileno(), parts)
        if taken == sum(map(len, parts)):
            return
        parts = (b"".join(parts)[taken:],)
    rest = memoryview(b"".join(parts))
    while rest:
        taken = file.write(rest)
        rest = rest[len(rest) if taken is None else taken :]


def _schema(number: int, type_name: str) -> bytes:
    return record(SCHEMA, struct.pack("<H", number), *map(text, (type_name, "ros2msg", definition(type_name)[0])))


def _channel(channel: BagChannel, schema: int) -> bytes:
    notes = {"offered_qos_profiles": channel.qos, "topic_type_hash": definition(channel.type)[1]}
    ids = struct.pack("<HH", channel.number, schema)
    return record(CHANNEL, ids, text(channel.topic), text("cdr"), mapping(notes))


def _packed(block: Block) -> Packed:
    lengths, size = np.fromiter(map(len, block.data), np.int64, len(block.data)), MESSAGE_HEAD.size
    numbers, times, sizes = np.array(block.numbers, np.int64), np.array(block.times, np.int64), lengths + size
    heads = np.zeros(len(lengths), _HEADS)
    heads["opcode"], heads["length"], heads["channel"] = MESSAGE, sizes - RECORD_HEAD, numbers
    heads["log"] = heads["publish"] = times
    raw = heads.tobytes()
    parts = [b""] * (2 * len(lengths))
    parts[::2] = [raw[start : start + size] for start in range(0, len(raw), size)]
    parts[1::2] = block.data
    return Packed(b"".join(parts), np.stack((numbers, times, np.cumsum(sizes) - sizes)))
