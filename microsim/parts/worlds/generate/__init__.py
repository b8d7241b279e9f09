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


def world_templates() -> list[str]:
    """Worlds that can be generated: each is a file `world_<name>.py`, found without importing it."""
    return sorted(file.stem.removeprefix("world_") for file in Path(__file__).parent.glob("world_*.py"))


def generate_world(template: str, name: str) -> BundleContent:
    """The content of a new bundle of that name."""
    if template not in world_templates():
        raise UsageError(unknown("no world generator", repr(template), template, world_templates()))
    content: BundleContent = importlib.import_module(f"{__name__}.world_{template}").make_world(name)
    return content
