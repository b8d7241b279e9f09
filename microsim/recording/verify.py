"""Whether a replay gives the recording again."""

from __future__ import annotations

import json
import mmap
import struct
import threading
from binascii import crc32
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from microsim.recording.bag import BagWriter, OwnBag, RecordOptions
from microsim.recording.bag_model import NAME, BagError, Piece, RunFacts
from microsim.recording.chunk_assembly import are_same
from microsim.recording.mcap import McapWriter, decompress, text
from microsim.recording.recorder import Recorder
from microsim.simulation import Simulation

_PIECE = 2**22  # bytes that are checked in one go
_FOOTER_AND_MAGIC = 28  # bytes from where the footer tells of the summary's place to the end
_DATA_END_SIZE = 13  # bytes of the record that closes the data section
_CRC_IN_CHUNK = 33  # bytes from the start of a chunk to its checksum


class OtherBytesError(OSError):
    """The second recording is not the first."""


class DataCheck(threading.Thread):
    """Computes the checksum of a file's data section, beside whatever else goes on: zlib leaves Python free."""

    def __init__(self, content: mmap.mmap) -> None:
        super().__init__(name="microsim-checksum", daemon=True)
        self.crc = 0
        self._content = content
        self.start()

    def run(self) -> None:
        view, end = memoryview(self._content), self._data_end()
        for start in range(0, end, _PIECE):
            piece = view[start : min(start + _PIECE, end)]
            self.crc = crc32(piece, self.crc)
            piece.release()
        view.release()

    def _data_end(self) -> int:
        """From the footer; anything will do for a file without one, since that is not the same anyway."""
        content = self._content
        (summary,) = struct.unpack_from("<Q", content, max(len(content) - _FOOTER_AND_MAGIC, 0))
        return max(min(int(summary), len(content)) - _DATA_END_SIZE, 0)


class ComparingFile:
    """Takes what is written and compares it with what is there."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # given back with the object
        self._bytes = np.frombuffer(self.content, np.uint8)
        self._check = DataCheck(self.content)
        self._at = 0

    def write_parts(self, parts: Sequence[Piece]) -> None:
        for part in parts:
            there = self._bytes[self._at : self._at + len(part)]
            if len(there) != len(part) or not are_same(there, np.frombuffer(part, np.uint8)):
                raise OtherBytesError
            self._at += len(part)

    def number(self, place: int) -> int:
        """32 bits that stand there; 0 beyond the end."""
        raw = self.content[place : place + 4]
        return int.from_bytes(raw, "little") if len(raw) == 4 else 0

    def checksum(self) -> int:
        """Of the data section."""
        self._check.join()
        return self._check.crc

    def close(self) -> None:
        self._check.join()
        if self._at != len(self._bytes):
            raise OtherBytesError


class ComparingWriter(McapWriter):
    """Takes the chunks' checksums as they stand in the file; that of the whole, which covers them, is computed."""

    _file: ComparingFile

    def _chunk_crc(self, payload: Sequence[Piece]) -> int:
        return self._file.number(self.size + _CRC_IN_CHUNK)

    def _data_crc(self) -> int:
        return self._file.checksum()

    def _compressed(self, records: bytes) -> bytes:
        """What stands there, if these come out of it: compressing takes longer, and versions of zstd differ."""
        place = self.size + _CRC_IN_CHUNK + 4 + len(text(self._compression))
        length = self._file.number(place)
        found = self._file.content[place + 8 : place + 8 + length]
        try:
            if decompress(found, self._compression, len(records)) == records:
                return found
        except BagError:
            pass
        raise OtherBytesError


class ComparingBag(BagWriter):
    """Every file of the folder is compared, `metadata.yaml` too."""

    def _kind(self) -> type[McapWriter]:
        return ComparingWriter

    def _prepare(self) -> None:
        pass

    def _describe(self, text: str) -> None:
        if (self.folder / NAME).read_bytes() != text.encode():
            raise OtherBytesError


class Rerecorder(Recorder):
    """Records onto a bag that is there, and writes nothing."""

    def __init__(self, bag: OwnBag, sim: Simulation) -> None:
        self._bag = bag
        super().__init__(bag.path, sim, recorded_options(bag))

    def _writer_to(self, folder: Path, facts: RunFacts) -> BagWriter:
        return ComparingBag(folder, facts, self.options, ComparingFile)

    def _side_file(self, folder: Path) -> None:
        return None


def recorded_options(bag: OwnBag) -> RecordOptions:
    """With which options the bag was recorded."""
    try:
        start = bag.facts.start
        return RecordOptions.from_dict(json.loads(start["options"]), json.loads(start["topics"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BagError(f"{bag.path}: damaged: how it was recorded cannot be read: {error}") from None


def can_compare(bag: OwnBag) -> bool:
    """SQLite writes where it likes."""
    return bag.path.is_dir() and bag.storage == "mcap" and bag.is_complete
