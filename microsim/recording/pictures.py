"""How our pictures look, and the one place where Matplotlib is imported, an extra for those who want pictures."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError, install_hint

INK, PALE, GRID = "#1f2937", "#6b7280", "#e5e7eb"
COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#be185d")
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#d1d5db",
    "axes.labelcolor": PALE,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "microsim",
}
KINDS = (".png", ".svg", ".pdf")


class PlotError(MicroSimError):
    """A picture cannot be made."""


def check_name(path: Path) -> None:
    if path.suffix.lower() not in KINDS:
        raise PlotError(f"{path}: expected a name that ends with {', '.join(KINDS)}")


def matplotlib(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise PlotError(f"pictures need Matplotlib: {install_hint('plot')}") from None


def save(figure: Any, path: Path) -> None:
    """Without a date: the same figure gives the same file."""
    kind = path.suffix.lower()[1:]
    notes = {"Software": None} if kind == "png" else {"Date": None} if kind == "svg" else {"CreationDate": None}
    try:
        figure.savefig(path, metadata=notes)
    except OSError as error:
        raise PlotError(f"{path}: cannot be written: {error.strerror or error}") from None
