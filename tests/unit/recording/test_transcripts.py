"""From transcripts to MCAP records: beside a second, plain implementation."""

from __future__ import annotations

import _hashlib
import struct
import zlib
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microsim.engine import digest_chain as digest_chain_module
from microsim.engine.compiled import plain
from microsim.engine.digest_chain import digest_chain
from microsim.messages.outbox import DIGEST_BYTES, Ends, Outbox, messages_in, name_in_transcript
from microsim.recording import chunk_assembly as transcripts
from microsim.recording.chunk_assembly import ChannelNames, Records
from microsim.recording.mcap import NUMBER, PLACE, TIME, message_index
from tests.support import COMPILED

CLOCK = ("/clock", "rosgraph_msgs/msg/Clock")
TOPICS = [CLOCK, ("/a", "b/c"), ("/a", "b/d"), ("/robot/" + "x" * 300, "p/msg/T"), ("/ü/π", "p/msg/U"), ("/out", "p/T")]
NUMBERS = {name_in_transcript(*topic): number for number, topic in enumerate(TOPICS, 1)}
NUMBERS[name_in_transcript(*TOPICS[-1])] = 0  # not to be recorded

messages = st.lists(st.tuples(st.integers(1, len(TOPICS) - 1), st.binary(max_size=300)), max_size=6)
ticks = st.lists(messages, min_size=1, max_size=6)


def said(run: list[list[tuple[int, bytes]]]) -> list[bytes]:
    """What an outbox says in these ticks, each a nanosecond after the other."""
    outbox = Outbox()
    senders = [outbox.sender(*topic) for topic in TOPICS]
    result = []
    for tick, sent in enumerate(run):
        senders[0](tick, b"clock")
        for topic, data in sent:
            senders[topic](-5, data)  # when something was measured is not when it was sent
        result.append(outbox.close_tick().data)
    return result


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=9), st.integers(0, 2**32))
def test_digests_of_many_ticks_at_once_are_a_chain_of_sha256(contents: list[bytes], seed: int) -> None:
    outbox = Outbox(digest_chain)
    outbox.digest = first = sha256(str(seed).encode()).digest()
    ends: Ends = np.cumsum([DIGEST_BYTES + len(each) for each in contents])
    expected, digest = [], first
    for content, end in zip(contents, ends.tolist(), strict=True):
        outbox.buffer[end - len(content) : end] = np.frombuffer(content, np.uint8)
        expected.append(digest + content)
        digest = sha256(expected[-1]).digest()
    assert list(outbox.close_ticks(ends).each()) == expected
    assert outbox.digest == digest


@pytest.mark.skipif(
    not COMPILED or not hasattr(_hashlib, "__file__"), reason="nothing is compiled, or OpenSSL built in"
)
def test_the_sha256_of_pythons_own_openssl_is_found() -> None:
    assert digest_chain() is not None


def test_functions_that_give_other_digests_than_hashlib_are_not_used() -> None:
    def forgetful(buffer: int, ends: Ends) -> None:
        """Leaves what is there."""

    assert not digest_chain_module._is_right(forgetful)


def plainly(run: list[list[tuple[int, bytes]]]) -> list[tuple[int, int, bytes]]:
    """BagChannel, time and record of each message."""
    rows = [(number, tick, data) for tick, sent in enumerate(run) for number, data in [(0, b"clock"), *sent]]
    kept = [(NUMBERS[name_in_transcript(*TOPICS[number])], tick, data) for number, tick, data in rows]
    return [
        (number, tick, struct.pack("<BQHIQQ", 5, 22 + len(data), number, 0, tick, tick) + data)
        for number, tick, data in kept
        if number
    ]


@given(ticks, st.integers(0, 6))
def test_records_are_those_of_the_plain_way_in_any_portions(run: list[list[tuple[int, bytes]]], cut: int) -> None:
    records, names, all_said = Records(), ChannelNames(NUMBERS, name_in_transcript(*CLOCK)), said(run)
    for portion in (all_said[:cut], all_said[cut:]):
        if portion:
            records.add(portion, names)
    expected = plainly(run)
    assert bytes(records.data) == b"".join(record for *_, record in expected)
    assert records.table[NUMBER].tolist() == [number for number, *_ in expected]
    assert records.table[TIME].tolist() == [time for _, time, _ in expected]
    places = np.cumsum([0, *(len(record) for *_, record in expected)])[:-1]
    assert records.table[PLACE].tolist() == places.tolist()


@given(ticks)
def test_the_digest_is_the_checksum_of_the_transcript(run: list[list[tuple[int, bytes]]]) -> None:
    digest = bytes(DIGEST_BYTES)
    for transcript in said(run):
        assert transcript.startswith(digest)
        digest = sha256(transcript).digest()


def test_the_kernel_has_the_bits_of_its_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    run = [[(1, b"abc"), (4, bytes(range(256)))], [], [(3, b""), (2, b"\xff" * 9)]]
    records, names = Records(), ChannelNames(NUMBERS, name_in_transcript(*CLOCK))
    monkeypatch.setattr(transcripts, "_transcribe", plain(transcripts._transcribe))
    records.add(said(run), names)
    assert bytes(records.data) == b"".join(record for *_, record in plainly(run))


def test_a_name_that_nobody_told_of_is_an_error() -> None:
    names = ChannelNames({name_in_transcript(*CLOCK): 1}, name_in_transcript(*CLOCK))
    with pytest.raises(RuntimeError, match="not announced to the recorder"):
        Records().add(said([[(1, b"x")]]), names)


def test_names_that_collide_get_another_table() -> None:
    """With the first factor, 31, these two have the same hash."""
    first, second = b"/Aa\0a/b\0", b"/BB\0a/b\0"
    names = ChannelNames({first: 1, second: 2, b"/clock\0c/d\0": 3}, b"/clock\0c/d\0")
    assert names.factor > 31
    found = [names.numbers[names.hashes == names._hash(name)].tolist() for name in (first, second)]
    assert found == [[1], [2]]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2**62), st.integers(0, 2**40)), max_size=20))
def test_the_index_lists_each_channel_in_order(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    index = message_index(table, 100, 1000)
    expected, places, at = b"", b"", 1000
    for number in sorted({number for number, *_ in rows}):
        entries = b"".join(struct.pack("<QQ", time, place + 100) for other, time, place in rows if other == number)
        places += struct.pack("<HQ", number, at + len(expected))
        expected += struct.pack("<BQHI", 7, 6 + len(entries), number, len(entries)) + entries
    assert bytes(index.records) == expected
    assert index.channels == places
    assert index.crc == zlib.crc32(expected)
    assert sum(index.counts.values()) == len(rows)


@pytest.mark.parametrize("size", [100, 200_000])
def test_transcripts_stay_as_they_were_when_the_outbox_goes_on(size: int) -> None:
    """Large ones are not copied: the outbox continues in another buffer."""
    outbox, kept = Outbox(), []
    send = outbox.sender("/a", "std_msgs/msg/String")
    for tick in range(4):
        send(tick, bytes([tick]) * size)
        kept.append(outbox.close_tick())
    for tick, some in enumerate(kept):
        assert [message.cdr for each in some.each() for message in messages_in(each)] == [bytes([tick]) * size]
        assert some.data == b"".join(some.each())
