"""Damaged inputs of every kind: each is accepted, or refused with one of MicroSim's own errors.

Anything else that is raised, a warning of NumPy included, counts as a traceback; more than `PATIENCE_S` as a hang.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.soak.mutants import changed, damaged, misspelled

Try = Callable[[random.Random], None]

PATIENCE_S = 30
# How many of a million: what is quick to read is tried more often.
SHARES = {
    "CDR": 520_000, "tokens": 150_000, "states": 100_000, "scenarios": 60_000, "missions": 60_000, "PLY": 40_000,
    "meshes": 25_000, "bundles": 25_000, "bags": 20_000,
}  # fmt: skip


class HangError(BaseException):
    """Not an Exception, so that nothing catches it by accident."""


def try_many(kind: str, count: int, seed: int, folder: Path) -> tuple[int, int, list[str], int]:
    """(accepted, refused, tracebacks, hangs) of so many inputs of a kind."""
    from microsim.errors import MicroSimError

    attempt = TARGETS[kind](folder)
    accepted = refused = hangs = 0
    tracebacks = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        for number in range(count):
            try:
                with _time_limit():
                    attempt(random.Random(f"{seed}:{kind}:{number}"))
                accepted += 1
            except MicroSimError:
                refused += 1
            except HangError:
                hangs += 1
                tracebacks.append(f"{kind} {seed}:{number}: no answer within {PATIENCE_S} s")
            except Exception as error:
                tracebacks.append(f"{kind} {seed}:{number}: {type(error).__name__}: {str(error)[:200]}")
    return accepted, refused, tracebacks, hangs


def try_one(kind: str, number: str, folder: Path) -> None:
    """An input that a soak reported, by the seed and number that it printed: with its traceback."""
    seed, _, which = number.partition(":")
    TARGETS[kind](folder)(random.Random(f"{seed}:{kind}:{which}"))


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _scenarios(folder: Path) -> Try:
    from microsim.documents.yaml_text import read_yaml
    from microsim.paths import scenario_file, scenario_names
    from microsim.scenario import load_scenario

    texts = {name: scenario_file(name).read_text(encoding="utf-8") for name in scenario_names()}
    trees = {name: read_yaml(text, name).data for name, text in texts.items()}

    def attempt(dice: random.Random) -> None:
        name = dice.choice(sorted(texts))
        if dice.random() < 0.6:
            load_scenario(changed(dice, trees[name]))
        else:
            file = folder / "scenario.yaml"
            file.write_text(misspelled(dice, texts[name]), encoding="utf-8")
            load_scenario(file)

    return attempt


def _missions(folder: Path) -> Try:
    from microsim.documents.yaml_text import read_yaml
    from microsim.parts.missions.mission_file import load_mission
    from microsim.paths import data_folder

    files = sorted((data_folder() / "missions").glob("*.yaml"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    trees = [read_yaml(text, "mission.yaml").data for text in texts]

    def attempt(dice: random.Random) -> None:
        index = dice.randrange(len(texts))
        if dice.random() < 0.6:
            load_mission(changed(dice, trees[index]))
        else:
            file = folder / "mission.yaml"
            file.write_text(misspelled(dice, texts[index]), encoding="utf-8")
            load_mission(file)

    return attempt


def _bundle_files(folder: Path, names: tuple[str, ...]) -> Try:
    """A bundle in which one file is damaged."""
    from microsim.bundle import load_bundle
    from microsim.documents.yaml_text import read_yaml, to_yaml
    from tests.bundle_support import small_bundle
    from tests.unit.bundle.test_bundle_meshes import cube_glb, cube_obj

    bundle = small_bundle(folder / "bundle")
    (bundle / "geometry/static_mesh.glb").write_bytes(cube_glb())
    (bundle / "geometry/static_mesh.obj").write_bytes(cube_obj())
    world = (bundle / "world.yaml").read_text()

    def contents(dice: random.Random, name: str) -> bytes:
        raw = (bundle / name).read_bytes()
        if dice.random() < 0.6 and name.endswith(".yaml"):
            return to_yaml(changed(dice, read_yaml(raw.decode(), name).data)).encode("utf-8", "surrogateescape")
        if dice.random() < 0.6 and name.endswith("json"):
            return json.dumps(changed(dice, json.loads(raw))).encode("utf-8", "surrogateescape")
        return damaged(dice, raw)

    def attempt(dice: random.Random) -> None:
        name = dice.choice(names)
        before = (bundle / name).read_bytes()
        try:
            if name.endswith((".glb", ".obj")):
                (bundle / "world.yaml").write_text(world.replace("geometry/static_mesh.ply", name))
            (bundle / name).write_bytes(contents(dice, name))
            load_bundle(bundle)
        finally:
            (bundle / name).write_bytes(before)
            (bundle / "world.yaml").write_text(world)

    return attempt


BUNDLE_TEXTS = (
    "world.yaml", "metadata.json", "gaussians/render_config.json", "geometry/heightmap.yaml", "geometry/heightmap.bin",
    "geometry/drivable.geojson", "sensors/calibration.yaml", "sensors/tf_static.json", "sim/timebase.yaml",
)  # fmt: skip
MESHES = ("geometry/static_mesh.ply", "geometry/static_mesh.glb", "geometry/static_mesh.obj")


def _splats(folder: Path) -> Try:
    from microsim.bundle.splat_import import SplatOptions, import_splat
    from tests.parts.worlds.test_bundle_commands import usual_ply

    good = [usual_ply(20, 1, form)[0] for form in ("binary_little_endian", "ascii")]

    def attempt(dice: random.Random) -> None:
        (folder / "bad.ply").write_bytes(damaged(dice, dice.choice(good)))
        import_splat(folder / "bad.ply", folder / "good.ply", SplatOptions(axes="y-down", keep=10))

    return attempt


def _bags(folder: Path) -> Try:
    from microsim.recording.bag_io import open_bag
    from microsim.recording.maintenance import look, repair
    from tests.recording_support import record

    for storage in ("mcap", "sqlite3"):
        record(folder / storage, ticks=30, storage=storage)

    def attempt(dice: random.Random) -> None:
        source, copy = folder / dice.choice(("mcap", "sqlite3")), folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        file = dice.choice(sorted(path for path in copy.iterdir() if path.is_file()))
        file.write_bytes(damaged(dice, file.read_bytes()))
        what = dice.randrange(3)
        if what == 0:
            look(copy)
        elif what == 1:
            repair(copy)
        for _ in open_bag(copy).blocks():
            pass

    return attempt


def _states(folder: Path) -> Try:
    import microsim
    from microsim.recording.state_file import from_bytes, read_state, save_state, to_bytes
    from tests.recording_support import WORLD

    sim = microsim.Simulation(WORLD, seed=3)
    sim.radio_send("drone", b"on its way")
    sim.step(30)
    save_state(folder / "good.state", sim.snapshot())
    good, content = (folder / "good.state").read_bytes(), to_bytes(sim.snapshot().state)

    def attempt(dice: random.Random) -> None:
        if dice.random() < 0.5:
            from_bytes(damaged(dice, content))  # as behind a checksum that fits
        else:
            (folder / "bad.state").write_bytes(damaged(dice, good))
            read_state(folder / "bad.state")

    return attempt


def _tokens(folder: Path) -> Try:
    from microsim.parts.sweep.run_one import Token, TokenSource, _checksum, read_token

    good = str(Token(TokenSource("default", "0" * 12), TokenSource("patrol", "1" * 12), 7, 3.5, {"wind.gust_sigma": 1}))
    body = good.rpartition(":check=")[0]

    def attempt(dice: random.Random) -> None:
        text = damaged(dice, body.encode()).decode("utf-8", "replace")
        read_token(f"{text}:check={_checksum(text)}" if dice.random() < 0.8 else misspelled(dice, good))

    return attempt


def _cdr(folder: Path) -> Try:
    """Messages that nodes send to us, and all that we send."""
    import microsim
    from microsim.messages import decode_checked, encode, new
    from tests.recording_support import WORLD

    sim = microsim.Simulation(WORLD, seed=3)
    sim.radio_send("drone", b"ping")
    found = {message.type: message.cdr for message in sim.step(30)}
    for name in ("geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped", "geometry_msgs/msg/PoseStamped",
                 "geometry_msgs/msg/PoseWithCovarianceStamped", "ackermann_msgs/msg/AckermannDriveStamped",
                 "std_msgs/msg/ByteMultiArray", "rcl_interfaces/srv/SetParameters_Request"):  # fmt: skip
        found[name] = encode(name, new(name))
    items = sorted(found.items())

    def attempt(dice: random.Random) -> None:
        name, cdr = dice.choice(items)
        decode_checked(name, damaged(dice, cdr))

    return attempt


TARGETS: dict[str, Callable[[Path], Try]] = {
    "CDR": _cdr,
    "tokens": _tokens,
    "states": _states,
    "scenarios": _scenarios,
    "missions": _missions,
    "PLY": _splats,
    "meshes": lambda folder: _bundle_files(folder, MESHES),
    "bundles": lambda folder: _bundle_files(folder, BUNDLE_TEXTS),
    "bags": _bags,
}
