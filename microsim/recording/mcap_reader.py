"""Reads MCAP files that MicroSim wrote; every byte is covered by a checksum, and every checksum is checked."""

from __future__ import annotations

import struct
from binascii import crc32
from collections.abc import Container, Iterator
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from microsim.errors import os_errors
from microsim.recording import mcap
from microsim.recording.bag_model import BagChannel, BagError, Block, FileReader
from microsim.recording.mcap import decompress

Channels: TypeAlias = dict[int, BagChannel]

_HEAD = struct.Struct("<BQ")
_CHUNK_HEAD = struct.Struct("<QQQI")


class Cursor:
    """Takes values off the front of a record's bytes."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.body):
            raise BagError("a record that ends too soon")
        part = self.body[self.position : end]
        self.position = end
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        try:
            return self.take(self.number(4)).decode()
        except UnicodeDecodeError:
            raise BagError("text that is not UTF-8") from None

    def records(self) -> Iterator[tuple[int, Cursor]]:
        """Opcode and body of each record up to the end."""
        while self.position < len(self.body):
            yield self.number(1), Cursor(self.take(self.number(8)))

    def mapping(self) -> dict[str, str]:
        inner = Cursor(self.take(self.number(4)))
        found = {}
        while inner.position < len(inner.body):
            key = inner.text()
            found[key] = inner.text()
        return found


class McapReader(FileReader):
    def __init__(self, path: Path, tolerant: bool = False) -> None:
        super().__init__(path, tolerant)
        self._summary = b""
        with self._noting():
            self._read_head()
        if not tolerant:
            with self._noting("finishes it"), _opened(self.path) as file:
                self.run_info = replace(self.run_info, end=self._read_end(file))

    def _blocks(self) -> Iterator[Block]:
        channels: dict[int, BagChannel] = {}
        types: dict[int, str] = {}
        for opcode, body in self.records(check=True):
            if opcode == mcap.CHUNK:
                yield _block(_chunk_records(body), channels, types)
            elif opcode == mcap.METADATA and self.tolerant:
                name, values = _metadata(body)
                self.run_info = replace(self.run_info, end=values) if name == mcap.END else self.run_info

    def entries_of(self, topics: Container[str]) -> Iterator[tuple[BagChannel, int, bytes]]:
        with self._noting(), _opened(self.path) as file:
            channels, chunks = _index(self._summary, topics)
            for chunk in chunks:
                yield from _indexed(file, chunk, channels)

    def records(self, check: bool = False) -> Iterator[tuple[int, bytes]]:
        """The records of the data section."""
        with _opened(self.path) as file:
            size = self.path.stat().st_size
            if file.read(len(mcap.MAGIC)) != mcap.MAGIC:
                raise BagError("not an MCAP file")
            crc, position = crc32(mcap.MAGIC), len(mcap.MAGIC)
            while True:
                head = file.read(_HEAD.size)
                opcode, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, size)
                if length > size - position - _HEAD.size:
                    raise BagError(f"cut off or damaged at byte {position:,}")
                if not mcap.HEADER <= opcode <= mcap.DATA_END:
                    raise BagError(f"damaged at byte {position:,}: there is no record {opcode}")
                body = file.read(length)
                if len(body) < length:
                    raise BagError(f"cut off at byte {position:,}")
                if opcode == mcap.DATA_END:
                    if check and crc != Cursor(body).number(4):
                        raise BagError("damaged: its checksum is wrong")
                    return
                if check:
                    crc = crc32(body, crc32(head, crc))
                position += _HEAD.size + length
                yield opcode, body

    def _read_head(self) -> None:
        for opcode, body in self.records():
            if opcode == mcap.CHUNK:
                cursor = Cursor(body)
                cursor.take(_CHUNK_HEAD.size)
                self.compression = cursor.text()
            if opcode in (mcap.CHUNK, mcap.MESSAGE):
                break
            if opcode == mcap.METADATA:
                name, values = _metadata(body)
                self.run_info = replace(self.run_info, start=values) if name == mcap.START else self.run_info
            elif opcode == mcap.ATTACHMENT:
                name, content = _attachment(body)
                self.run_info = replace(self.run_info, files={**self.run_info.files, name: content})

    def _read_end(self, file: BinaryIO) -> dict[str, str]:
        """Check the end of the file; gives the information that is there."""
        size = self.path.stat().st_size
        tail = len(mcap.MAGIC) + 29
        if size < len(mcap.MAGIC) + tail:
            raise BagError("not finished")
        file.seek(size - tail)
        footer = file.read(tail)
        opcode, length, start, _, crc = struct.unpack_from("<BQQQI", footer)
        if footer[-len(mcap.MAGIC) :] != mcap.MAGIC or (opcode, length) != (mcap.FOOTER, 20):
            raise BagError("not finished: the run was cut off while it was recorded")
        if start > size - tail:
            raise BagError("its end is damaged")
        file.seek(start)
        summary = file.read(size - tail - start)
        if crc and crc32(footer[:25], crc32(summary)) != crc:
            raise BagError("its end is damaged: the checksum is wrong")
        self._summary = summary
        indices = [body for opcode, body in Cursor(summary).records() if opcode == mcap.METADATA_INDEX]
        for offset, length, name in ((body.number(8), body.number(8), body.text()) for body in indices):
            if name == mcap.END:
                file.seek(offset)
                return _metadata(file.read(length)[_HEAD.size :])[1]
        return {}


class _ChunkPlace(NamedTuple):
    start: int
    length: int
    index_places: dict[int, int]  # by channel: where its message index begins


def _index(summary: bytes, topics: Container[str]) -> tuple[Channels, list[_ChunkPlace]]:
    """The channels of these topics, and the chunks in which they have messages."""
    types: dict[int, str] = {}
    block, channels, chunks = Block(), dict[int, BagChannel](), list[_ChunkPlace]()
    for opcode, body in Cursor(summary).records():
        if opcode in (mcap.SCHEMA, mcap.CHANNEL):
            _declare(opcode, body, block, channels, types)
        elif opcode == mcap.CHUNK_INDEX:
            body.take(16)
            start, length = body.number(8), body.number(8)
            table = body.take(body.number(4))
            chunks.append(_ChunkPlace(start, length, dict(struct.iter_unpack("<HQ", table))))
    wanted = {number: channel for number, channel in channels.items() if channel.topic in topics}
    return wanted, [chunk for chunk in chunks if not wanted.keys().isdisjoint(chunk.index_places)]


def _indexed(file: BinaryIO, chunk: _ChunkPlace, channels: Channels) -> Iterator[tuple[BagChannel, int, bytes]]:
    file.seek(chunk.start)
    records = _chunk_records(file.read(chunk.length)[_HEAD.size :])
    places: list[int] = []
    for number in channels.keys() & chunk.index_places.keys():
        file.seek(chunk.index_places[number])
        head = file.read(_HEAD.size)
        body = Cursor(file.read(int.from_bytes(head[1:], "little")) if len(head) == _HEAD.size else b"")
        body.take(2)
        places += [offset for _, offset in struct.iter_unpack("<QQ", body.take(body.number(4)))]
    for place in sorted(places):
        if place + mcap.MESSAGE_HEAD.size > len(records):
            raise BagError("an index that points nowhere")
        opcode, length, number, _, time, _ = mcap.MESSAGE_HEAD.unpack_from(records, place)
        if opcode != mcap.MESSAGE or number not in channels:
            raise BagError("an index that points to something else")
        yield channels[number], time, records[place + mcap.MESSAGE_HEAD.size : place + 9 + length]


def _opened(path: Path) -> BinaryIO:
    with os_errors("cannot be read", BagError):
        return path.open("rb")


def _metadata(body: bytes) -> tuple[str, dict[str, str]]:
    cursor = Cursor(body)
    return cursor.text(), cursor.mapping()


def _attachment(body: bytes) -> tuple[str, bytes]:
    cursor = Cursor(body)
    cursor.take(16)
    name, _, content = cursor.text(), cursor.text(), cursor.take(cursor.number(8))
    if cursor.number(4) != crc32(body[:-4]):
        raise BagError(f"the file {name} in it is damaged")
    return name, content


def _chunk_records(body: bytes) -> bytes:
    cursor = Cursor(body)
    _, _, size, crc = _CHUNK_HEAD.unpack(cursor.take(_CHUNK_HEAD.size))
    compression = cursor.text()
    records = decompress(cursor.take(cursor.number(8)), compression, size)
    if crc and crc32(records) != crc:
        raise BagError("a chunk is damaged: its checksum is wrong")
    return records


def _block(records: bytes, channels: Channels, types: dict[int, str]) -> Block:
    block = Block(size=len(records))
    unpack, head, end, position = mcap.MESSAGE_HEAD.unpack_from, mcap.MESSAGE_HEAD.size, len(records), 0
    numbers, times, data = block.numbers, block.times, block.data
    while position < end:
        if records[position] == mcap.MESSAGE and position + head <= end:
            _, length, number, _, time, _ = unpack(records, position)
            stop = position + 9 + length
            if stop > end or number not in channels:
                raise BagError("an impossible message")
            numbers.append(number)
            times.append(time)
            data.append(records[position + head : stop])
            position = stop
        else:
            cursor = Cursor(records[position : position + 9])
            opcode, length = cursor.number(1), cursor.number(8)
            _declare(opcode, Cursor(records[position + 9 : position + 9 + length]), block, channels, types)
            position += 9 + length
    return block


def _declare(opcode: int, body: Cursor, block: Block, channels: Channels, types: dict[int, str]) -> None:
    number = body.number(2)
    if opcode == mcap.SCHEMA:
        types[number] = body.text()
    elif opcode == mcap.CHANNEL:
        schema, topic, _ = body.number(2), body.text(), body.text()
        if schema not in types:
            raise BagError(f"{topic} has no type")
        channel = BagChannel(number, topic, types[schema], body.mapping().get("offered_qos_profiles", ""))
        if number not in channels:
            block.channels.append(channel)
        channels[number] = channel


def described_pairs(content: mmap, start: int, records: bytes) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What is in each of the file's records that begin there, and in each of these."""
    while len(records) >= _HEAD.size:
        size = _HEAD.size + _HEAD.unpack_from(records)[1]
        if start + _HEAD.size > len(content):
            raise BagError("cut off")
        there = _HEAD.size + _HEAD.unpack_from(content, start)[1]
        yield described(content[start : start + there]), described(records[:size])
        records, start = records[size:], start + there


def described(records: bytes) -> dict[str, Any]:
    """Everything in a row of records, each value under a name that says where it is."""
    found: dict[str, Any] = {}
    for count, (opcode, cursor) in enumerate(Cursor(records).records(), 1):
        kind, body = mcap.KINDS[opcode] if opcode < len(mcap.KINDS) else f"record {opcode}", cursor.body
        if opcode == mcap.CHUNK:
            found |= {f"chunk, {name}": value for name, value in described(_chunk_records(body)).items()}
            found["chunk, times and sizes"] = body[: _CHUNK_HEAD.size]
        elif opcode == mcap.METADATA:
            name, values = _metadata(body)
            found |= {f"metadata {name}, {key}": value for key, value in values.items()}
        elif opcode in (mcap.SCHEMA, mcap.CHANNEL):
            found |= _described_declaration(kind, cursor)
        elif opcode == mcap.MESSAGE:
            found[f"message {count} on channel {int.from_bytes(body[:2], 'little')}"] = body
        else:
            found[kind] = body
    return found


def _described_declaration(kind: str, body: Cursor) -> dict[str, Any]:
    number = body.number(2)
    if kind == "schema":
        name, encoding, text = body.text(), body.text(), body.text()
        return {f"schema {number}, type": name, f"schema {number}, encoding": encoding, f"definition of {name}": text}
    values = {"schema": body.number(2), "topic": body.text(), "encoding": body.text(), **body.mapping()}
    return {f"channel {number} ({values['topic']}), {key}": value for key, value in values.items()}
