"""The quick way to prove a replay: record it again, onto a file that only compares.

What the second recording would write must be, byte for byte, what the first one wrote. When it is not, this says so and
no more; the slow way then finds out why.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from microsim.recording.bag import OwnBag
from microsim.recording.bag_writer import BagWriter, RecordOptions
from microsim.recording.entries import BagError, Facts
from microsim.recording.metadata import NAME
from microsim.recording.recorder import Recorder
from microsim.simulation import Simulation


class OtherBytesError(OSError):
    """The second recording is not the first."""


class ComparingFile:
    """Takes what is written and compares it with what is there."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)

    def write_parts(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            if self._file.read(len(part)) != part:
                raise OtherBytesError

    def close(self) -> None:
        if not self._file.closed:
            with self._file:
                if self._file.read(1):
                    raise OtherBytesError


class ComparingBag(BagWriter):
    """Every file of the folder is compared, `metadata.yaml` too."""

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

    def _writer_to(self, folder: Path, facts: Facts) -> BagWriter:
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
    """SQLite writes where it likes, and compressing again takes longer than taking apart."""
    return (
        bag.path.is_dir() and bag.storage == "mcap" and bag.is_complete and recorded_options(bag).compression == "none"
    )
