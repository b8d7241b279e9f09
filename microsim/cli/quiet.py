"""`--quiet`: only what was asked for, and what went wrong. For scripts and continuous integration."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

_WISH = {"quiet": False}  # of this call


def is_quiet() -> bool:
    return _WISH["quiet"]


def _be(quiet: bool) -> bool:
    _WISH["quiet"] = quiet
    return quiet


def note(text: str) -> None:
    """On stderr, unless nobody wants to know."""
    if not is_quiet():
        with suppress(OSError):  # nobody listens any more; the work goes on
            print(text, file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """On stdout: how it went, when it went well."""
    if not is_quiet():
        print(text)


QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        callback=_be,
        help="Say nothing when all is well: no progress, no summary; only --json, --digest and errors.",
    ),
]
