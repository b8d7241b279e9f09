"""Snapshots as files: complete, checked, and only for the scenario and version they come from.

MICROSIM STATE\\n | one line of JSON | plain data | SHA-256 of everything before it (32 bytes)
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from microsim.engine.contact_tables import Contact
from microsim.engine.radio import Link, Packet
from microsim.engine.schedule import Command, Teleport, Transmission
from microsim.errors import MicroSimError, UsageError, os_errors
from microsim.messages.outbox import Message
from microsim.recording.bag_model import BagError
from microsim.recording.inputs import (
    changed_plugins,
    made_by_generators,
    packed,
    places_of_files,
    plugin_hashes,
    unpacked,
    without_places,
)
from microsim.runner import Runner
from microsim.scenario import Scenario
from microsim.scenario.live_changes import first_difference
from microsim.sensors.plugin import PluginState
from microsim.sensors.sensor import SensorContext
from microsim.simulation import Simulation, Snapshot
from microsim.timeline import Timeline
from microsim.version import __version__

MAGIC = b"MICROSIM STATE\n"
FORMAT = 6
SUFFIX = ".state"


@dataclass(frozen=True)
class StateFile:
    """A file that was read and found whole."""

    path: Path
    run_info: dict[str, Any]  # format, version, name and hash of the scenario at the start, seed, tick, time
    content: dict[str, Any]


def fingerprint(scenario: Scenario) -> str:
    """SHA-256 of a scenario, with its files and plug-ins by content, wherever they are."""
    data, files = packed(scenario)  # names of files have the hash of the content in them
    data = {**without_places(data), "plugins": plugin_hashes(scenario, only_replayed=True)}
    made = made_by_generators(scenario)
    return hashlib.sha256(json.dumps([data, sorted(files), *made], sort_keys=True).encode()).hexdigest()


def save_state(path: Path | str, snapshot: Snapshot) -> None:
    """Write a snapshot; the file is there whole or not at all."""
    first, now = snapshot.initial_scenario, snapshot.scenario
    (first_data, first_files), (data, files) = packed(first), packed(now)
    tick = int(snapshot.state[0])
    run_info = {
        "format": FORMAT,
        "version": __version__,
        "scenario": first.name,
        "seed": snapshot.seed,
        "fingerprint": fingerprint(first),
        "tick": tick,
        "time_s": tick / float(first.physics_hz),
    }
    hashes = {name: each for some in (first, now) for name, each in plugin_hashes(some, only_replayed=True).items()}
    content = {
        "initial_scenario": json.dumps(first_data),
        "scenario": json.dumps(data),
        "fingerprint": fingerprint(now),
        "plugin_hashes": hashes if {*first.plugins, *now.plugins, *now.controllers} else {},
        "files": {**first_files, **files},
        "next_seed": snapshot.next_seed,
        "state": snapshot.state,
        "digest": snapshot.digest,
        "unsent": snapshot.unsent,
        "counters": dict(snapshot.counters),
        "messages_sent": snapshot.messages_sent,
        "opening": snapshot.opening if tick == 0 else b"",  # for recordings, which begin at tick 0
        "noise_seed": snapshot.noise_seed,
    }
    blob = MAGIC + json.dumps(run_info, sort_keys=True).encode() + b"\n" + to_bytes(content)
    _write_whole(Path(path), blob + hashlib.sha256(blob).digest())


def _write_whole(path: Path, content: bytes) -> None:
    """There whole or not at all; a device or a folder of that name is left alone, a link is followed."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            raise SnapshotError(f"{path}: cannot be written: it is not an ordinary file")
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
    with os_errors(f"{path}: cannot be read", SnapshotError):
        whole = path.read_bytes()
    if not whole.startswith(MAGIC):
        raise SnapshotError(f"{path}: not a snapshot of MicroSim")
    blob, checksum = whole[:-32], whole[-32:]
    head, newline, body = blob[len(MAGIC) :].partition(b"\n")
    try:
        run_info = json.loads(head)
        form, version = run_info["format"], run_info["version"]
    except (ValueError, KeyError, TypeError):
        raise SnapshotError(f"{path}: damaged: its first line cannot be read") from None
    if form != FORMAT or version != __version__:
        made_by = f"made by microsim {version} in format {form}"
        need = f"this is {__version__}, format {FORMAT}: a state can be loaded only by the version that saved it"
        raise SnapshotError(f"{path}: {made_by}; {need}")
    if hashlib.sha256(blob).digest() != checksum or not newline:
        raise SnapshotError(f"{path}: damaged: its checksum is wrong")
    try:
        return StateFile(path, run_info, dict(from_bytes(body)))
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None


def load_state(path: Path | str, sim: Simulation) -> None:
    """Let a simulation that began with the same scenario resume from there, with its seed, entities and settings."""
    state, first = read_state(Path(path)), sim.initial_scenario
    if state.run_info.get("fingerprint") != fingerprint(first):
        raise SnapshotError(f"{path}: saved in a run that began with another scenario: {_difference(state, first)}")
    known = places_of_files(first)
    _restore(state, sim, folder_until_exit() if state.content["files"].keys() - known else Path(), known)


def resume(path: Path, folder: Path, plugin_folders: Sequence[Path] = ()) -> Simulation:
    """A simulation made from the file alone; `folder` takes the files that its scenario needs.

    `plugin_folders`: where its plug-ins are. Code from nowhere else is run, and only if it is the saved one.
    """
    sim = Simulation(*scenario_of(path, folder, plugin_folders))
    _restore(read_state(path), sim, folder, places_of_files(sim.initial_scenario))
    return sim


def scenario_of(path: Path, folder: Path, plugin_folders: Sequence[Path] = ()) -> tuple[Scenario, int]:
    """What the run began with, and its seed; arguments as of `resume`."""
    state = read_state(path)
    with _as_damage(state):
        content, hashes = state.content, state.content["plugin_hashes"]
        texts = content["initial_scenario"], content["scenario"]
        if hashes and any(changed_plugins(text, hashes, plugin_folders) for text in texts):
            raise SnapshotError(f"{path}: {_CHANGED}")
        scenario = unpacked(texts[0], folder, content["files"], plugin_folders, keeps_controllers=True)
        if state.run_info["fingerprint"] != fingerprint(scenario):
            raise SnapshotError(f"{path}: {_CHANGED}")
        return scenario, int(state.run_info["seed"])


_CHANGED = "its scenario or the code of a plug-in is not what was saved"


def _restore(state: StateFile, sim: Simulation, folder: Path, known: Mapping[str, str]) -> None:
    """Put a simulation that began with the same scenario there. An error changes nothing."""
    content, first, before = state.content, sim.initial_scenario, sim.snapshot()
    with _as_damage(state):
        now = first
        if content["scenario"] != content["initial_scenario"]:
            files, plugins = content["files"], first.plugins
            how: dict[str, Any] = {"known": known, "starts": (), "keeps_controllers": True}
            now = unpacked(content["scenario"], folder, files, plugins, **how)
        if content["fingerprint"] != fingerprint(now):
            raise SnapshotError(f"{state.path}: {_CHANGED}")
        names = ("next_seed", "state", "digest", "unsent", "counters", "messages_sent", "opening", "noise_seed")
        history = {name: content[name] for name in names}
        try:
            sim.restore(Snapshot(first, now, int(state.run_info["seed"]), **history))
        except BaseException:  # Ctrl-C too
            sim.restore(before)
            raise


def _difference(state: StateFile, here: Scenario) -> str:
    with _as_damage(state):
        found = first_difference(json.loads(state.content["initial_scenario"]), packed(here)[0])
    return found or "the code of its plug-ins has changed"


@contextmanager
def _as_damage(state: StateFile) -> Iterator[None]:
    """What a file with a good checksum cannot cause, unless it was made to."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise SnapshotError(f"{state.path}: damaged: {error}") from None
    except BagError as error:
        raise SnapshotError(f"{state.path}: {error}") from None


@cache
def folder_until_exit() -> Path:
    """For files of entities that were spawned, which a simulation may read again at any time."""
    folder = TemporaryDirectory(prefix="microsim-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


class SnapshotError(MicroSimError):
    """A snapshot cannot be written to or read from a file."""


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Command, Contact, Teleport, Transmission, Link, Packet, Message, PluginState)
}
_ARRAYS = frozenset("biufc?")  # kinds of NumPy types that are numbers
_DEEPEST = 50


def to_bytes(value: Any) -> bytes:
    out = bytearray()
    _write(out, value)
    return bytes(out)


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` was given; SnapshotError on anything else."""
    stream = BytesIO(data)
    try:
        value = _read(stream)
    except (struct.error, IndexError, ValueError, TypeError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise SnapshotError(f"damaged: {type(error).__name__}: {error}") from None
    if rest := stream.read():
        raise SnapshotError(f"damaged: {len(rest)} bytes are left over")
    return value


def _write(out: bytearray, value: Any) -> None:
    kind = type(value)
    if value is None or kind is bool:
        out += b"N" if value is None else b"T" if value else b"F"
    elif kind in _SIMPLE:
        code, raw = _SIMPLE[kind](value)
        out += code + struct.pack("<I", len(raw)) + raw
    elif kind is tuple and value and isinstance(value[0], SensorContext):
        _write(out, _plugin_state(*value))
    elif kind in (list, tuple):
        _write_all(out, b"l" if kind is list else b"t", value)
    elif kind is dict:
        _write_all(out, b"d", [part for pair in value.items() for part in pair])
    elif isinstance(value, (np.ndarray, np.generic)):
        _write_array(out, value)
    elif _KINDS.get(kind.__name__) is kind:
        _write_all(out, b"k", [kind.__name__, *_parts(value)])
    else:
        raise SnapshotError(f"a {kind.__module__}.{kind.__qualname__} cannot be written to a file")


_SIMPLE: dict[type, Callable[[Any], tuple[bytes, bytes]]] = {
    int: lambda value: (b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)),
    float: lambda value: (b"f", struct.pack("<d", value)),
    str: lambda value: (b"s", value.encode()),
    bytes: lambda value: (b"b", value),
}


def _write_all(out: bytearray, code: bytes, values: Any) -> None:
    out += code + struct.pack("<I", len(values))
    for value in values:
        _write(out, value)


def _write_array(out: bytearray, value: Any) -> None:
    if value.dtype.kind not in _ARRAYS:
        raise SnapshotError(f"an array of {value.dtype} cannot be written to a file")
    little, shape = value.dtype.newbyteorder("<"), value.shape if isinstance(value, np.ndarray) else None
    _write_all(out, b"a", [little.str, shape, np.ascontiguousarray(value).astype(little, copy=False).tobytes()])


def _parts(value: Any) -> list[Any]:
    if isinstance(value, tuple):  # named
        return list(value)
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return [value.topic, value.type, value.stamp_ns, value.cdr]


def _plugin_state(context: SensorContext, sensor: Any) -> PluginState:
    who = f"the sensor {context.robot}/{context.sensor}"
    if not (callable(getattr(sensor, "save", None)) and callable(getattr(sensor, "load", None))):
        need = "`save()`, which returns plain data, and `load(data)`, which takes it back"
        were = hasattr(sensor, "memory") and hasattr(sensor, "recall")
        renamed = " (`memory` and `recall` are now called `save` and `load`)" if were else ""
        raise SnapshotError(f"{who} is a plug-in: to be saved it needs {need}{renamed}")
    try:
        return PluginState(sensor.save())
    except Exception as error:  # a plug-in's code can raise anything
        raise SnapshotError(f"{who}: save() failed: {type(error).__name__}: {error}") from error


def _read(stream: BytesIO, depth: int = 0) -> Any:
    code = _take(stream, 1)
    if code in _CONSTANTS:
        return _CONSTANTS[code]
    (count,) = struct.unpack("<I", _take(stream, 4))
    if code in _READ:
        return _READ[code](_take(stream, count))
    if depth == _DEEPEST:
        raise ValueError("nested too deeply")
    values = [_read(stream, depth + 1) for _ in range(count)]
    if code == b"l":
        return values
    if code == b"t":
        return tuple(values)
    if code == b"d":
        return dict(zip(values[::2], values[1::2], strict=True))
    if code == b"a":
        return _array(*values)
    if code == b"k":
        return _KINDS[values[0]](*values[1:])
    raise ValueError(f"unknown code {code!r}")


def _take(stream: BytesIO, size: int) -> bytes:
    part = stream.read(size)
    if len(part) < size:
        raise ValueError("it ends too soon")
    return part


_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_READ: dict[bytes, Callable[[bytes], Any]] = {
    b"i": lambda raw: int.from_bytes(raw, "little", signed=True),
    b"f": lambda raw: struct.unpack("<d", raw)[0],
    b"s": lambda raw: raw.decode(),
    b"b": bytes,
}


def _array(kind: str, shape: tuple[int, ...] | None, raw: bytes) -> Any:
    dtype = np.dtype(kind)
    if dtype.kind not in _ARRAYS:
        raise ValueError(f"an array of {kind}")
    flat = np.frombuffer(raw, dtype)
    return flat[0] if shape is None else flat.reshape(shape).copy()


class History:
    """Keeps a snapshot for every `every_s` simulated seconds of the last `span_s`, and one older."""

    def __init__(self, span_s: float, every_s: float = 1.0) -> None:
        if not (0.0 < every_s <= span_s <= 86_400.0):
            raise UsageError(f"a history spans from {every_s:g} s to a day; found {span_s:g} s")
        self.span_s, self.every_s = span_s, every_s
        self._past: Timeline[None] = Timeline()

    def attach(self, runner: Runner) -> None:
        """Look after each portion of ticks, and let portions be no longer than the interval."""
        runner.listen(
            messages=lambda messages: self.look(runner.sim),
            restarts=lambda sim: self._past.clear(),
            every_s=self.every_s,
        )

    def look(self, sim: Simulation) -> None:
        """Take a snapshot if it is time for one."""
        newest = self._past.newest
        if newest is not None and sim.tick < newest:  # gone back in time, with or without a runner
            self._past.clear()
        if self._past.is_due(sim.tick, max(1, round(self.every_s / sim.clock.dt))):
            self._past.keep(sim, None)
            self._past.drop_before(sim.tick - round(self.span_s / sim.clock.dt))

    @property
    def ticks(self) -> list[int]:
        """At which there is a snapshot, oldest first."""
        return self._past.ticks

    def at(self, tick: int) -> Snapshot:
        """The latest snapshot not after this tick."""
        found = self._past.before(tick)
        if found is None:
            kept = f"it goes back to tick {self.ticks[0]}" if self.ticks else "it is empty"
            raise UsageError(f"the history contains nothing before tick {tick}: {kept}")
        return found.snapshot

    def save(self, folder: Path) -> list[Path]:
        """Every snapshot as a file, named by its tick."""
        paths = {folder / f"tick_{each.tick:09d}{SUFFIX}": each.snapshot for each in self._past.moments}
        for path, snapshot in paths.items():
            save_state(path, snapshot)
        return list(paths)
