"""Gaussians that are a robot's own: files that a scenario names, checked with it, and read when they are drawn."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from microsim.errors import Problem, ScenarioError, UsageError
from microsim.robots.robot import Robot
from microsim.scenario.files import located
from microsim.sensors.sensor import OwnSplats

MOST_GAUSSIANS = 1_000_000


def hash_of_splats(path: Path) -> str:
    """SHA-256 of a file of Gaussians; ValueError says what is wrong with it."""
    try:
        facts = path.stat()
        return _checked(path, facts.st_size, facts.st_mtime_ns)
    except UsageError as error:
        raise ValueError(str(error)) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None


@lru_cache(64)  # scenarios are checked over and over
def _checked(path: Path, size: int, changed_ns: int) -> str:
    from microsim.bundle.capture.similarity import UNCHANGED
    from microsim.bundle.capture.splat_import import drawable
    from microsim.bundle.capture.splat_sources import SPLAT_SUFFIXES, open_splats

    if path.suffix not in SPLAT_SUFFIXES:
        raise UsageError(f"{path}: expected a file {', '.join(SPLAT_SUFFIXES[:-1])} or {SPLAT_SUFFIXES[-1]}")
    splats = open_splats(path)
    if splats.count > MOST_GAUSSIANS:
        raise UsageError(f"{path}: expected at most {MOST_GAUSSIANS:,} Gaussians, found {splats.count:,}")
    if not drawable(splats, UNCHANGED).any():
        raise UsageError(f"{path}: none of its {splats.count:,} Gaussians can be drawn")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def own_splats(robot: Robot) -> OwnSplats | None:
    """Of a robot of a finished scenario."""
    named = robot.own_splats
    if named is None:
        return None
    (x, y, _), _ = robot.body()
    return OwnSplats(named.sha256, lambda: _rows(located(named.file), named.sha256), (x, y, 0.0), named.shadow)


def _rows(path: Path, expected: str | None) -> tuple[npt.NDArray[np.float32], int]:
    """As `render.splat.activation` takes them, with the degree of their harmonics."""
    from microsim.bundle.capture.splat_sources import open_splats

    try:
        found = hash_of_splats(path)
    except ValueError as error:
        raise ScenarioError(Problem(str(error))) from None
    if found != expected:
        raise ScenarioError(Problem(f"{path} has changed since the scenario was read"))
    splats = open_splats(path)
    with np.errstate(over="ignore", invalid="ignore"):  # what cannot be drawn is left out when it is activated
        return np.concatenate([rows.astype(np.float32) for _, rows in splats.pieces()]), splats.degree
