"""MCAP files (https://mcap.dev/spec): written so that what is on the disk can always be read.

Each block becomes one chunk, which reaches the file by a single write together with its index: a killed run loses what
was not written yet, and no more. Nothing but the run decides the bytes.
"""

from __future__ import annotations

import os
import struct
from binascii import crc32
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from microsim.recording.checksums import combined
from microsim.recording.entries import Block, Channel, Facts, Integers, Packed, Piece, definition
from microsim.recording.mcap_records import (
    ATTACHMENT,
    ATTACHMENT_INDEX,
    CHANNEL,
    CHUNK,
    CHUNK_INDEX,
    DATA_END,
    END,
    FOOTER,
    HEADER,
    MAGIC,
    MESSAGE,
    MESSAGE_HEAD,
    METADATA,
    METADATA_INDEX,
    RECORD_HEAD,
    SCHEMA,
    START,
    STATISTICS,
    SUMMARY_OFFSET,
    mapping,
    record,
    text,
)
from microsim.recording.message_index import message_index
from microsim.version import __version__

_MOST_PARTS = 500  # that the system takes at once, and some to spare
_HEADS = np.dtype(
    [("opcode", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("log", "<u8"), ("publish", "<u8")]
)


def compressor(name: str) -> Callable[[bytes], bytes]:
    if not name:
        return lambda data: data
    from microsim.recording.compression import zstd

    compress: Callable[[bytes], bytes] = zstd().compress
    return compress


class McapWriter:
    """One file. `create` opens it: tests hand in disks that are slow, full or broken."""

    suffix = ".mcap"

    def __init__(
        self, path: Path, facts: Facts, compression: str = "", create: Callable[[Path], BinaryIO] | None = None
    ) -> None:
        self._file: Any = create(path) if create else path.open("xb", buffering=0)
        self.size = 0
        self._compression = compression
        self._compress = compressor(compression)
        self._checked: list[tuple[int, int]] = []  # checksum and length of each part so far
        self._types: dict[str, int] = {}
        self._channels: list[Channel] = []
        self._counts: dict[int, int] = {}
        self._chunks: list[bytes] = []
        self._metadata: list[bytes] = []
        self._attachments: list[bytes] = []
        self._times: list[int] = []  # first and last of each chunk
        self._put(MAGIC + record(HEADER, text("ros2"), text(f"microsim {__version__}")))
        self._put_metadata(START, facts.start)
        for name, content in facts.files.items():
            self._put_attachment(name, content)

    def write(self, block: Block) -> None:
        """Append a chunk with its index."""
        for channel in block.channels:
            self._channels.append(channel)
            self._counts[channel.number] = 0
        head = b"".join(self._declaration(channel) for channel in block.channels)
        self._put_chunk(head, block)

    def close(self, end: Mapping[str, str], rosbag2: Callable[[], str]) -> None:
        """Finish the file; `rosbag2` gives the metadata that rosbag2 keeps inside each file."""
        if end:
            self._put_metadata(END, end)
        self._put_metadata("rosbag2", {"serialized_metadata": rosbag2()})
        self._put(record(DATA_END, struct.pack("<I", self._data_crc())))
        self._put_summary()
        self._file.close()

    def abandon(self) -> None:
        """Leave the file as it is."""
        with suppress(OSError):
            self._file.close()

    @property
    def counts(self) -> dict[Channel, int]:
        return {channel: self._counts[channel.number] for channel in self._channels}

    @property
    def times(self) -> tuple[int, int]:
        """[ns] of the first and of the last message."""
        return min(self._times, default=0), max(self._times, default=0)

    # ---- what a writer that only compares has from elsewhere ---------------------------------------------------------

    def _chunk_crc(self, payload: Sequence[Piece]) -> int:
        """Of the chunk that is put next."""
        return reduce(lambda before, part: crc32(part, before), payload, 0)

    def _data_crc(self) -> int:
        """Of everything so far."""
        return reduce(lambda before, part: combined(before, *part), self._checked, 0)

    def _compressed(self, records: bytes) -> bytes:
        """What is put in place of these, in the chunk that is put next."""
        return self._compress(records)

    # ---- records -----------------------------------------------------------------------------------------------------

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
        head = bytes(16) + text(name) + text(kind)  # both times 0: it was there when the run began
        body = head + struct.pack("<Q", len(content)) + content
        data = record(ATTACHMENT, body, struct.pack("<I", crc32(body)))
        start = self._put(data)
        place = struct.pack("<QQQQQ", start, len(data), 0, 0, len(content))
        self._attachments.append(record(ATTACHMENT_INDEX, place, text(name), text(kind)))

    def _declaration(self, channel: Channel) -> bytes:
        """The channel, and before it its type where that is new."""
        known = channel.type in self._types
        number = self._types.setdefault(channel.type, len(self._types) + 1)
        return (b"" if known else _schema(number, channel.type)) + _channel(channel, number)

    def _put_chunk(self, declarations: bytes, block: Block) -> None:
        chunk = block.packed or _packed(block)
        payload: list[Piece] = [declarations, chunk.records]
        size, name = sum(map(len, payload)), text(self._compression)
        crc = self._chunk_crc(payload)
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
        for number, count in index.counts.items():
            self._counts[number] += count
        if block.times:
            self._times += (first, last)

    def _put_summary(self) -> None:
        groups = {
            SCHEMA: [_schema(number, name) for name, number in self._types.items()],
            CHANNEL: [_channel(channel, self._types[channel.type]) for channel in self._channels],
            CHUNK_INDEX: self._chunks,
            ATTACHMENT_INDEX: self._attachments,
            METADATA_INDEX: self._metadata,
            STATISTICS: [self._statistics()],
        }
        summary, offsets = b"", b""
        for opcode, records in groups.items():
            body = b"".join(records)
            if body:
                place = struct.pack("<BQQ", opcode, self.size + len(summary), len(body))
                offsets += record(SUMMARY_OFFSET, place)
                summary += body
        before_crc = struct.pack("<BQQQ", FOOTER, 20, self.size, self.size + len(summary))
        checked = summary + offsets + before_crc
        write_all(self._file, (checked + struct.pack("<I", crc32(checked)) + MAGIC,))

    def _statistics(self) -> bytes:
        counts = b"".join(struct.pack("<HQ", *pair) for pair in sorted(self._counts.items()))
        totals = (sum(self._counts.values()), len(self._types), len(self._channels), len(self._attachments))
        head = struct.pack("<QHIIII", *totals, len(self._metadata), len(self._chunks))
        return record(STATISTICS, head, struct.pack("<QQI", *self.times, len(counts)), counts)


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
    definition_text, _ = definition(type_name)
    return record(SCHEMA, struct.pack("<H", number), text(type_name), text("ros2msg"), text(definition_text))


def _channel(channel: Channel, schema: int) -> bytes:
    notes = {"offered_qos_profiles": channel.qos, "topic_type_hash": definition(channel.type)[1]}
    ids = struct.pack("<HH", channel.number, schema)
    return record(CHANNEL, ids, text(channel.topic), text("cdr"), mapping(notes))


def _packed(block: Block) -> Packed:
    lengths = np.fromiter(map(len, block.data), np.int64, len(block.data))
    numbers, times = np.array(block.numbers, np.int64), np.array(block.times, np.int64)
    sizes = lengths + MESSAGE_HEAD.size
    table = np.stack((numbers, times, np.cumsum(sizes) - sizes))
    return Packed(_records(numbers, times, lengths, block.data), table)


def _records(numbers: Integers, times: Integers, lengths: Integers, data: list[bytes]) -> bytes:
    """Messages as records, one after another."""
    count, size = len(data), MESSAGE_HEAD.size
    heads = np.zeros(count, _HEADS)
    heads["opcode"], heads["length"], heads["channel"] = MESSAGE, lengths + size - RECORD_HEAD, numbers
    heads["log"] = heads["publish"] = times
    raw = heads.tobytes()
    parts = [b""] * (2 * count)
    parts[::2] = [raw[start : start + size] for start in range(0, len(raw), size)]
    parts[1::2] = data
    return b"".join(parts)
