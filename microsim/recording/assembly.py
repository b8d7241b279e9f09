"""Chunks from what a run says and takes; they depend on the run alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from microsim.recording.entries import Block, Channel, Packed
from microsim.recording.mcap_records import MESSAGE_HEAD, NUMBER, TIME
from microsim.recording.transcripts import Names, Records


@dataclass(frozen=True)
class Portion:
    """Some whole ticks: the transcript of each, then one for each input that was taken there."""

    transcripts: list[bytes]
    size: int  # [byte] of all
    start_ns: int  # time of the first tick, and
    end_ns: int  # of the one after the last
    names: Names
    channels: list[Channel]  # new ones
    is_border: bool = False  # no chunk goes beyond its end


class Assembly:
    """Makes a block of each portion, or of several when little of them is recorded."""

    def __init__(self, pass_on: Callable[[Block], None], is_packed: bool, enough_bytes: int, longest_ns: int) -> None:
        self.entries = 0  # so far
        self._pass_on = pass_on
        self._block = packed_block if is_packed else listed_block
        self._enough_bytes = enough_bytes
        self._longest_ns = longest_ns
        self._records = Records()
        self._channels: list[Channel] = []
        self._start_ns = 0

    def add(self, portion: Portion) -> None:
        records = self._records
        if not records.count:
            self._start_ns = portion.start_ns
        before = records.count
        records.add(portion.transcripts, portion.names)
        self.entries += records.count - before
        self._channels += portion.channels
        is_long = portion.end_ns - self._start_ns >= self._longest_ns
        if portion.is_border or is_long or records.used >= self._enough_bytes:
            self.finish()

    def finish(self) -> None:
        """Pass on what there is."""
        if self._records.count:
            channels, self._channels = self._channels, []
            self._pass_on(self._block(channels, self._records))
            self._records.clear()


def packed_block(channels: list[Channel], records: Records) -> Block:
    """For an MCAP file."""
    numbers, times = records.table[NUMBER], records.table[TIME]
    used, span = np.flatnonzero(np.bincount(numbers)).tolist(), [int(times[0]), int(times[-1])]
    return Block(channels, used, span, [], records.used, Packed(records.data, records.table))


def listed_block(channels: list[Channel], records: Records) -> Block:
    """For a file that keeps messages one by one."""
    numbers, times, places = records.table.tolist()
    ends = [*places[1:], records.used]
    data = [bytes(records.data[start + MESSAGE_HEAD.size : end]) for start, end in zip(places, ends, strict=True)]
    return Block(channels, numbers, times, data, records.used)
