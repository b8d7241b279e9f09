"""How plots look, in one place: colours, style, and files with the same bytes for the same figure."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError, install_hint, os_errors

INK, PALE, GRID = "#1f2937", "#6b7280", "#e5e7eb"
COLOURS = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#be185d")
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "svg.hashsalt": "microsim",
    "axes.edgecolor": "#d1d5db",
    "axes.labelcolor": PALE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8,
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
    date = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}[path.suffix.lower()]
    with os_errors(f"{path}: cannot be written", PlotError):
        figure.savefig(path, metadata={date: None})
