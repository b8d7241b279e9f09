"""Tables: with colours on a terminal; else a row a line, however long, for grep."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], column: int, styles: Sequence[str]) -> None:
    """`styles` colour the cells of one column, a row each."""
    if not sys.stdout.isatty():
        widths = [max(map(len, cells)) for cells in zip(titles, *rows, strict=True)]
        for row in (titles, *rows):
            print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*row[:column], Text(row[column], style), *row[column + 1 :])
    Console(highlight=False).print(table)
