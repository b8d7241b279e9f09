"""Programs that generate worlds.

A file `world_<template>.py` with a function `make_world(name) -> BundleContent` is all that
`microsim bundle new --template <template>` needs.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from microsim.errors import UsageError, unknown

if TYPE_CHECKING:
    from microsim.bundle.bundle_writing import BundleContent

_PREFIX = "world_"


def templates() -> list[str]:
    """Names of the worlds that can be generated, found without importing any of them."""
    files = Path(__file__).parent.glob(f"{_PREFIX}*.py")
    return sorted(file.stem.removeprefix(_PREFIX) for file in files)


def generate_world(template: str, name: str) -> BundleContent:
    """The content of a new bundle of that name."""
    if template not in templates():
        raise UsageError(unknown("no world generator", repr(template), template, templates()))
    content: BundleContent = importlib.import_module(f"{__name__}.{_PREFIX}{template}").make_world(name)
    return content
