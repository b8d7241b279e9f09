"""Records: a row has names, and the same bytes wherever it is read."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.compiled import kernel
from microsim.engine.records import (
    FLOAT,
    GRID,
    INT,
    RANGE,
    SPAN,
    VEC3,
    address_of,
    address_of_record,
    float_grid_in,
    floats_in,
    grid_of,
    record,
    record_at,
    records_at,
    records_in,
    span_of,
)
from tests.forked_python import forked_python

ROOT = Path(__file__).resolve().parents[3]

PART = record(due=INT, gain=FLOAT, mount=VEC3, numbers=SPAN, table=GRID, rows=RANGE)
WHOLE = record(parts=SPAN, total=FLOAT, wheres=INT)

_parts_at, _parts_in, _whole_at, _part_at = records_at(PART), records_in(PART), record_at(WHOLE), record_at(PART)
_floats_in, _float_grid_in, _address_of_record = floats_in, float_grid_in, address_of_record


@kernel
def change(part: Any, tick: int) -> float:
    """Of a record that another kernel hands on."""
    part.due, part.gain = part.due + tick, 0.5 * part.gain
    part.mount[1] += part.gain
    numbers, table = _floats_in(part.numbers), _float_grid_in(part.table)
    for k in range(part.rows.first, part.rows.end):
        numbers[k] += part.mount[1]
    table[1, 2] = part.due
    return numbers.sum()


@kernel
def change_all(address: int, tick: int) -> None:
    whole = _whole_at(address)
    parts = _parts_in(whole.parts)
    for k in range(parts.shape[0]):
        whole.total += change(parts[k], tick)
        whole.wheres += _address_of_record(parts[k]) - whole.parts.address
        whole.total += _parts_at(whole.parts.address, k + 1)[k].gain
        whole.total += _part_at(_address_of_record(parts[k])).gain


class Table:
    """Some parts, and what their addresses point to."""

    def __init__(self, seed: int, count: int) -> None:
        dice = np.random.default_rng(seed)
        self.numbers, self.grids = dice.normal(size=(count, 5)), dice.normal(size=(count, 2, 3))
        self.parts, self.whole = np.zeros(count, PART), np.zeros(1, WHOLE)
        for k, part in enumerate(self.parts):
            part.gain, part.mount[:] = dice.normal(), dice.normal(size=3)
            part.numbers, part.table, part.rows = span_of(self.numbers[k]), grid_of(self.grids[k]), (1, 1 + k % 4)
        self.whole[0].parts = address_of(self.parts), count

    def bytes(self) -> list[bytes]:
        """Without addresses, which differ from table to table."""
        for part in self.parts:
            part.numbers.address = part.table.address = 0
        self.whole[0].parts.address = 0
        return [each.tobytes() for each in (self.numbers, self.grids, self.parts, self.whole)]


def changed(seed: int, count: int, function: Any = change_all) -> list[bytes]:
    table = Table(seed, count)
    for tick in range(5):
        function(address_of(table.whole), tick)
    return table.bytes()


def digest() -> str:
    return hashlib.sha256(b"".join(b"".join(changed(seed, seed)) for seed in range(9))).hexdigest()


def test_rows_have_the_same_bytes_compiled_and_as_plain_python() -> None:
    code = "from tests.unit.engine.test_records import digest; print(digest())"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == digest()


def test_a_kernel_for_a_kind_of_rows_has_the_same_name_in_every_process() -> None:
    """By a number of the record's type, forms that two processes compiled could be taken for each other."""
    code = """
from numba import njit, types
from numba.np.numpy_support import from_dtype
from microsim.engine.records import FLOAT, INT, record
others = [from_dtype(record(**{f"field_{k}": INT})) for k in range(COUNT)]
read = njit(lambda row: row.gain)
for dtype in [record(a=INT, gain=FLOAT), record(gain=FLOAT)][::ORDER]:
    read.compile((from_dtype(dtype),))
print(*sorted(each.fndesc.mangled_name.partition("Record")[2] for each in read.overloads.values()))
"""

    def names(count: int, order: int) -> str:
        program = code.replace("COUNT", str(count)).replace("ORDER", str(order))
        run = [*forked_python(), "-c", program]
        return subprocess.run(run, capture_output=True, text=True, cwd=ROOT, check=True).stdout

    first = names(0, 1)
    assert first == names(7, -1)
    assert len(set(first.split())) == 2


def test_a_row_written_by_a_kernel_is_read_by_name_in_python() -> None:
    table = Table(3, 4)
    gains = [float(part.gain) for part in table.parts]
    change_all(address_of(table.whole), 7)
    assert [int(part.due) for part in table.parts] == [7] * 4
    assert [float(part.gain) for part in table.parts] == [0.5 * gain for gain in gains]
    assert int(table.whole[0].wheres) == PART.itemsize * (0 + 1 + 2 + 3)
    assert table.grids[:, 1, 2].tolist() == [7.0] * 4


@pytest.mark.parametrize("name", ["size", "shape", "data", "copy", "T"])
def test_a_field_cannot_have_a_name_that_numpy_reads_otherwise(name: str) -> None:
    """Uncompiled kernels read 1 as the size of every message, and wrote past its end."""
    with pytest.raises(AssertionError, match=name):
        record(**{name: INT})


KINDS = st.sampled_from([INT, FLOAT, VEC3, SPAN, GRID, RANGE])


@settings(max_examples=50)
@given(st.lists(KINDS, min_size=1, max_size=12))
def test_every_field_begins_at_a_multiple_of_8_bytes_and_none_overlap(kinds: list[Any]) -> None:
    dtype = record(**{f"field_{k}": kind for k, kind in enumerate(kinds)})
    assert dtype.fields is not None
    ends = 0
    for kind, offset, *_ in dtype.fields.values():
        assert offset == ends
        ends = offset + kind.itemsize
    assert dtype.itemsize == ends
    assert dtype.itemsize % 8 == 0
