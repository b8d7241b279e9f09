"""Programs that generate worlds.

A file `world_<template>.py` with a function `make_world(name) -> BundleContent` is all that
`microsim bundle new --template <template>` needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from microsim.errors import UsageError, unknown
from microsim.paths import world_templates

if TYPE_CHECKING:
    from microsim.bundle.bundle_writing import BundleContent


def generate_world(template: str, name: str) -> BundleContent:
    """The content of a new bundle of that name."""
    if template not in world_templates():
        raise UsageError(unknown("no world generator", repr(template), template, world_templates()))
    content: BundleContent = importlib.import_module(f"{__name__}.world_{template}").make_world(name)
    return content
