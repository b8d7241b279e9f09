"""Snapshots as files: complete, checked, and only for the scenario and version they come from.

MICROSIM STATE\\n | one line of JSON | plain data | SHA-256 of everything before it (32 bytes)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microsim.recording.entries import BagError
from microsim.recording.plain_data import SnapshotError, from_bytes, to_bytes
from microsim.recording.scenarios import packed, plugin_hashes, unpacked
from microsim.scenario import Scenario
from microsim.simulation import Simulation, Snapshot
from microsim.version import __version__

MAGIC = b"MICROSIM STATE\n"
FORMAT = 1
SUFFIX = ".state"


@dataclass(frozen=True)
class StateFile:
    """A file that was read and found whole."""

    path: Path
    facts: dict[str, Any]  # format, version, scenario's name and hash, seed, tick, time
    content: dict[str, Any]


def fingerprint(scenario: Scenario) -> str:
    """SHA-256 of all that a scenario says, with its files by content, wherever they lie."""
    data, files = packed(scenario)
    data["plugins"] = plugin_hashes(scenario)
    names = sorted(files)  # have the hash of the content in them
    return hashlib.sha256(json.dumps([data, names], sort_keys=True).encode()).hexdigest()


def save_state(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot; the file is there whole or not at all."""
    data, files = packed(snapshot.scenario)
    tick = int(snapshot.memory[0])
    facts = {
        "format": FORMAT,
        "version": __version__,
        "scenario": snapshot.scenario.name,
        "fingerprint": fingerprint(snapshot.scenario),
        "seed": snapshot.seed,
        "tick": tick,
        "time_s": tick / float(snapshot.scenario.physics_hz),
    }
    content = {
        "scenario": json.dumps(data),
        "plugins": list(snapshot.scenario.plugins),
        "files": files,
        "next_seed": snapshot.next_seed,
        "memory": snapshot.memory,
        "digest": snapshot.digest,
        "unsent": snapshot.unsent,
        "counters": dict(snapshot.counters),
    }
    blob = MAGIC + json.dumps(facts, sort_keys=True).encode() + b"\n" + to_bytes(content)
    whole = blob + hashlib.sha256(blob).digest()
    _write_whole(path, whole)


def _write_whole(path: Path, content: bytes) -> None:
    """There whole or not at all; a device or a folder of that name is left alone, a link is followed."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise SnapshotError(f"{path}: cannot be written: it is no ordinary file")
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{os.getpid()}.state")
        try:
            fresh.write_bytes(content)
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise SnapshotError(f"{path}: cannot be written: {reason}") from None


def read_state(path: Path) -> StateFile:
    """A snapshot's file, checked against damage and version."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not whole.startswith(MAGIC):
        raise SnapshotError(f"{path}: not a snapshot of MicroSim")
    blob, checksum = whole[:-32], whole[-32:]
    head, newline, body = blob[len(MAGIC) :].partition(b"\n")
    try:
        facts = json.loads(head)
        form, version = facts["format"], facts["version"]
    except (ValueError, KeyError, TypeError):
        raise SnapshotError(f"{path}: damaged: its first line cannot be read") from None
    if form != FORMAT or version != __version__:
        made_by = f"made by microsim {version} in format {form}"
        raise SnapshotError(f"{path}: {made_by}; this is {__version__}, format {FORMAT}: states do not pass versions")
    if hashlib.sha256(blob).digest() != checksum or not newline:
        raise SnapshotError(f"{path}: damaged: its checksum is wrong")
    try:
        return StateFile(path, facts, dict(from_bytes(body)))
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None


def load_state(path: Path, sim: Simulation) -> None:
    """Let a simulation of the same scenario go on from there."""
    state = read_state(path)
    if state.facts.get("fingerprint") != fingerprint(sim.scenario):
        raise SnapshotError(
            f"{path}: of scenario {state.facts.get('scenario')!r}, which is not what {sim.scenario.name!r} is now"
        )
    _restore(state, sim)


def resume(path: Path, folder: Path, plugins: Sequence[Path] | None = None) -> Simulation:
    """A simulation made from the file alone; `folder` takes the files that its scenario needs.

    `plugins`: where its plug-ins are now, in place of the folders that it names.
    """
    sim = Simulation(*scenario_of(path, folder, plugins))
    _restore(read_state(path), sim)
    return sim


def scenario_of(path: Path, folder: Path, plugins: Sequence[Path] | None = None) -> tuple[Scenario, int]:
    """What ran, and its seed; arguments as of `resume`."""
    state = read_state(path)
    try:
        text, files, seed = state.content["scenario"], state.content["files"], int(state.facts["seed"])
        scenario = unpacked(text, folder, files, state.content["plugins"] if plugins is None else plugins)
        if state.facts["fingerprint"] != fingerprint(scenario):
            raise SnapshotError(f"{path}: its scenario or the code of a plug-in is another than when it was saved")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotError(f"{path}: damaged: {error}") from None
    except BagError as error:
        raise SnapshotError(f"{path}: {error}") from None
    return scenario, seed


def _restore(state: StateFile, sim: Simulation) -> None:
    content = state.content
    try:
        snapshot = Snapshot(
            sim.scenario,
            int(state.facts["seed"]),
            content["next_seed"],
            content["memory"],
            content["digest"],
            tuple(content["unsent"]),
            content["counters"],
        )
        sim.restore(snapshot)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SnapshotError(f"{state.path}: damaged: {error}") from None
