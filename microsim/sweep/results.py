"""The result file: rows in the order of the plan, whoever flew them and when; no clock, host or folder in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError, UsageError, install_hint
from microsim.sweep.journal import Outcome
from microsim.sweep.metric import Value
from microsim.sweep.plan import Plan

KINDS = (".csv", ".parquet")
_ROWS_A_GROUP = 100_000


class ResultError(MicroSimError):
    """A result cannot be written."""


def check_target(out: Path) -> None:
    """Refuses what could not be written in the end, before hours are spent."""
    if out.suffix not in KINDS:
        raise UsageError(f"{out}: expected a name that ends with {' or '.join(KINDS)}")
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}")
    if out.suffix == ".parquet":
        pyarrow("pyarrow.parquet")


def rows_of(plan: Plan, outcomes: Iterable[Outcome]) -> list[dict[str, Value]]:
    ordered = sorted(outcomes, key=lambda outcome: outcome.run)
    return [plan.row(outcome.run, outcome.values, outcome.error) for outcome in ordered]


def write(out: Path, plan: Plan, rows: Sequence[dict[str, Value]]) -> None:
    """All at once: a reader sees the old file or the new one, never half of it."""
    content = _csv(plan, rows) if out.suffix == ".csv" else _parquet(plan, rows)
    temporary = out.with_name(f".{out.name}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(out)
    except OSError as error:
        raise ResultError(f"{out} cannot be written: {error.strerror or error}") from None


def _csv(plan: Plan, rows: Sequence[dict[str, Value]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plan.columns)
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _cell(value: Value) -> str:
    """Numbers in the shortest form that reads back to the same bits; empty: no value."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _parquet(plan: Plan, rows: Sequence[dict[str, Value]]) -> bytes:
    """Not compressed: what a compressor makes of the same rows depends on its version."""
    arrow, parquet = pyarrow("pyarrow"), pyarrow("pyarrow.parquet")
    types = {float: arrow.float64(), int: arrow.int64(), bool: arrow.bool_(), str: arrow.string()}
    schema = arrow.schema([(name, types[kind]) for name, kind in plan.columns.items()])
    columns = [arrow.array([row[name] for row in rows], types[kind]) for name, kind in plan.columns.items()]
    stream = io.BytesIO()
    parquet.write_table(
        arrow.Table.from_arrays(columns, schema=schema),
        stream,
        compression="none",
        use_dictionary=False,
        row_group_size=_ROWS_A_GROUP,
    )
    return stream.getvalue()


def pyarrow(name: str) -> Any:
    """The one place where pyarrow is imported: it is an extra."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"parquet files need pyarrow: {install_hint('sweep')}, or write a .csv file") from None
