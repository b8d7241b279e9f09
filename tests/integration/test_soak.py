"""`make soak` in small: damaged inputs of every kind, garbage for the page, kills while recording."""

import random
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from microsim.errors import MicroSimError
from tests.soak.__main__ import table
from tests.soak.hard_runs import Result, kills, viewer_frames
from tests.soak.mutated_inputs import SHARES, TARGETS, try_many


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_damaged_inputs_are_accepted_or_refused_in_our_own_words(kind: str, tmp_path: Path) -> None:
    accepted, refused, tracebacks, hangs = try_many(kind, 40, 7, tmp_path)
    assert tracebacks == []
    assert hangs == 0
    assert accepted + refused == 40
    assert refused > 4, "the damage is too slight to try anything"


def test_a_signalling_nan_in_a_splat_is_no_warning(tmp_path: Path) -> None:
    attempt = TARGETS["PLY"](tmp_path)
    with warnings.catch_warnings(), suppress(MicroSimError):
        warnings.simplefilter("error")  # which is how it failed
        attempt(random.Random("1000006:PLY:68"))
    assert (tmp_path / "bad.ply").stat().st_size > 0


def test_the_kinds_make_up_a_million() -> None:
    assert set(SHARES) == set(TARGETS)
    assert sum(SHARES.values()) == 1_000_000


def test_parts_that_did_not_run_keep_their_last_result() -> None:
    before = table([Result("kills", "3"), Result("full disk", "1")], 1.0)
    after = table([Result("kills", "5", lost=2), Result("subscribers", "50")], 1.0, before)
    rows = [line.split(" | ")[:5] for line in after.splitlines()[4:]]
    assert [row[:2] for row in rows] == [["| kills", "5"], ["| full disk", "1"], ["| subscribers", "50"]]
    assert rows[0][4] == "2"


def test_garbage_from_a_browser_leaves_the_page_alive() -> None:
    assert viewer_frames(300).is_good


def test_a_killed_recording_is_repaired_to_the_beginning_of_the_run(tmp_path: Path) -> None:
    result = kills(3, tmp_path)
    assert result.is_good, result.notes
