"""The index behind each chunk of an MCAP file: for every channel, when its messages are and where in the chunk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from microsim.engine.compiled import threaded_kernel
from microsim.recording.checksums import crc32_of
from microsim.recording.entries import Integers, Piece
from microsim.recording.mcap_records import MESSAGE_INDEX, NUMBER, PLACE, RECORD_HEAD, TIME, Bytes, put_number

_HEAD = RECORD_HEAD + 6  # bytes: channel (2), bytes of the entries (4)
_ENTRY = 16  # time (8), place (8)
_ROW = 10  # channel (2), where its index begins in the file (8)


@dataclass(frozen=True)
class MessageIndex:
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
    crc = _fill(table, counts, shift, start, records, channels)
    return MessageIndex(
        records.data, int(crc), channels.tobytes(), dict(zip(used.tolist(), counts[used].tolist(), strict=True))
    )


@threaded_kernel
def _fill(table: Integers, counts: Integers, shift: int, start: int, records: Bytes, channels: Bytes) -> int:
    """Gives the checksum of the records."""
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
    return crc32_of(records)
