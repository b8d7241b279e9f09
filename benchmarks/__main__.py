"""`python -m benchmarks [NAME …]`: measure, print a table, write benchmarks/results/NAME.json."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

import microsim
from benchmarks.harness import Result, use_one_core

NAMES = (
    "engine",
    "camera",
    "splat",
    "startup",
    "ros2",
    "live",
    "recording",
    "bundle",
    "nodes",
    "sweep",
    "viewer",
    "batch",
    "gpu_batch",
    "driving",
    "learning",
)
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names or NAMES
    use_one_core()
    measured: list[Result] = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr)
        results = import_module(f"benchmarks.{name}").measure()
        _write(name, results)
        measured += results
    Console().print(_table(measured))
    return 0 if all(result.good for result in measured) else 1


def _write(name: str, results: list[Result]) -> None:
    RESULTS.mkdir(exist_ok=True)
    facts = {"version": microsim.__version__, "python": platform.python_version(), "machine": platform.machine()}
    rows = [{**asdict(result), "good": result.good} for result in results]
    (RESULTS / f"{name}.json").write_text(json.dumps({**facts, "results": rows}, indent=2) + "\n")


def _table(results: list[Result]) -> Table:
    table = Table(title="best of several rounds; CPU time on one core where nothing else is said", title_justify="left")
    for heading in ("what", "measured", "must be", "goal", "beside"):
        table.add_column(heading, justify="right" if heading in ("measured", "must be", "goal") else "left")
    for result in results:
        sign = "≤" if result.at_most else "≥"
        style = "" if result.floor is None else "green" if result.good else "bold red"
        table.add_row(
            result.name,
            f"[{style}]{_number(result.value)} {result.unit}[/]" if style else f"{_number(result.value)} {result.unit}",
            f"{sign} {_number(result.floor)}" if result.floor is not None else "",
            _number(result.goal) if result.goal is not None else "",
            result.peer,
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
