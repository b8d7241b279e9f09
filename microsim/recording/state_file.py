"""Snapshots as files: complete, checked, and only for the scenario and version they come from.

MICROSIM STATE\\n | one line of JSON | plain data | SHA-256 of everything before it (32 bytes)
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(whole)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise SnapshotError(f"{path}: cannot be written: {error.strerror or error}") from None


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


def resume(path: Path, folder: Path) -> Simulation:
    """A simulation made from the file alone; `folder` takes the files that its scenario needs."""
    state = read_state(path)
    try:
        text, files, plugins = (state.content[key] for key in ("scenario", "files", "plugins"))
        scenario = unpacked(text, folder, files, Path(plugins[0]) if plugins else None)
        sim = Simulation(scenario, int(state.facts["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"{path}: damaged: {error}") from None
    _restore(state, sim)
    return sim


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
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"{state.path}: damaged: {error}") from None
    sim.restore(snapshot)
