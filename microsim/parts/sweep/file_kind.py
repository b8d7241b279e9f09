"""Sweeps, for `microsim validate`."""

from __future__ import annotations

from collections.abc import Sequence

from microsim.errors import Problem
from microsim.file_kinds import FileKind


def _is_sweep(source: str) -> bool:
    from microsim.parts.sweep.plan import is_sweep

    return is_sweep(source)


def _check(source: str) -> Sequence[Problem]:
    from microsim.parts.sweep.plan import load_sweep, make_plan

    make_plan(load_sweep(source))
    return ()


FILE_KIND = FileKind(
    "sweep", 40, names=lambda: (), is_one=_is_sweep, check=_check
)  # fmt: skip
