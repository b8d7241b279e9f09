"""Runs that are long, killed, out of disk space, or watched by many; and a page that is sent garbage."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.mutants import damaged

ROOT = Path(__file__).resolve().parents[2]
NEVER_S = 600.0
KILLED_TICKS = 300
SLOWED = 0.98  # a real-time factor below it


@dataclass
class Result:
    name: str
    tried: str
    tracebacks: int = 0
    hangs: int = 0
    lost: int = 0  # messages
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not (self.tracebacks or self.hangs or self.lost)


def latencies(count: int) -> Result:
    """Radio packets at each rate: order, mean, spread and correlation are those of the closed forms."""
    from tests.latency_laws import RATES, violations

    result = Result("latencies of radio packets", f"{count:,} at each of {len(RATES)} rates")
    for rate in RATES:
        try:
            result.notes += violations(rate, count)
        except AssertionError:
            result.notes.append(f"{rate} packets/s: not in order")
    result.tracebacks = len(result.notes)
    return result


def long_run(hours: float) -> Result:
    """Simulated time in one run: every tick there, memory bounded, a fork ends with the same digest."""
    import resource

    import microsim

    def memory_mb() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    sim, hour = microsim.Simulation("default", seed=5), 3600 * 60
    ticks = int(hours * hour)
    sim.command("drone", vx=0.5, yaw_rate=0.2)
    sim.command("rover", v=0.4, omega=0.1)
    clocks, before, other = 0, 0.0, None
    for done in range(0, ticks, 600):
        if done == ticks // 2 // 600 * 600:
            other = sim.fork()
        step = min(600, ticks - done)
        clocks += sum(message.topic == "/clock" for message in sim.step(step))
        before = before or (memory_mb() if done > 10 * 600 else 0.0)
    assert other is not None
    while other.tick < ticks:
        other.step(min(600, ticks - other.tick))
    grown = memory_mb() - before
    result = Result("simulated time", f"{hours:g} h, {ticks:,} ticks", lost=ticks + 1 - clocks)
    result.notes.append(f"memory grew by {grown:.1f} MB")
    if other.digest() != sim.digest() or grown > 50.0:
        result.tracebacks += 1
        result.notes.append("a fork ended with another digest, or memory grew")
    return result


# ---- recordings that are cut off -------------------------------------------------------------------------------------


def kills(count: int, folder: Path) -> Result:
    """SIGKILL while recording: after `repair`, a recording holds the run's messages from the first on, no hole."""
    from microsim.recording.maintenance import repair

    result = Result("kills while recording", f"{count:,}")
    size = {storage: _size(_whole(folder / storage, storage)) for storage in STORAGES}
    reference = list(_recorded(folder / STORAGES[0]))
    dice, recovered = random.Random(1), 0
    for number in range(count):
        bag = folder / f"killed_{number}"
        storage, share = dice.choice(STORAGES), dice.random()
        child = os.fork()
        if child == 0:
            _record_and_end(bag, storage)
        _kill_at(child, bag, share * size[storage])
        try:
            if bag.exists() and any(bag.iterdir()):
                repair(bag)
                found = list(_recorded(bag))
                result.lost += found != reference[: len(found)]
                recovered += len(found)
        except Exception as error:
            from microsim.errors import MicroSimError

            if not isinstance(error, MicroSimError):
                result.tracebacks += 1
                result.notes.append(
                    f"kill {number} ({storage}) after {share:.1%} of the bytes: {type(error).__name__}: {error}"
                )
        shutil.rmtree(bag, ignore_errors=True)
    result.notes.append(f"{recovered:,} messages recovered")
    result.lost += recovered == 0
    return result


STORAGES = ("mcap", "sqlite3")


def _whole(folder: Path, storage: str) -> Path:
    from tests.recording_support import record

    record(folder, ticks=KILLED_TICKS, storage=storage, chunk_bytes=20_000)
    return folder


def _record_and_end(folder: Path, storage: str) -> None:
    try:
        _whole(folder, storage)
    finally:
        os._exit(0)


def _size(folder: Path) -> int:
    """Bytes on disk; files may come and go meanwhile."""
    total = 0
    for name in os.listdir(folder) if folder.is_dir() else ():  # noqa: PTH208 - names only, since a file may vanish
        with suppress(FileNotFoundError):
            total += (folder / name).stat().st_size
    return total


def _kill_at(child: int, folder: Path, least: float) -> None:
    """Kill a recording process once it has written so much, however long that takes; or it ends before."""
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if _size(folder) >= least:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.001)  # there is no event for the size of a file


def _recorded(folder: Path) -> Iterator[tuple[str, int, bytes]]:
    from microsim.recording.bag_io import open_bag
    from microsim.recording.compare import recorded_entries

    for entry in recorded_entries(open_bag(folder), lambda topic: True):
        yield entry.topic, entry.time_ns, entry.cdr


FULL_DISK = """
import json, subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1]); folder.mkdir(exist_ok=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], check=True)
command = [sys.executable, "-m", "microsim", "run", "default", "--rtf", "0", "--duration", "2h", "--headless",
           "--quiet", "--record", str(folder / "bag")]
done = subprocess.run(command, capture_output=True, text=True, timeout=300)
(folder / "bag" / "recording.json").unlink(missing_ok=True)
from microsim.recording.maintenance import look
found = look(folder / "bag")
print(json.dumps({"code": done.returncode, "said": done.stderr[-600:], "messages": found.messages,
                  "duration_s": found.duration_s}))
"""


def full_disk(folder: Path) -> Result:
    """A disk of 2 MB: the run ends with a message that names the reason, and what was recorded can be read."""
    result = Result("full disk", "1 (a file system of 2 MB)")
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", FULL_DISK, str(folder / "full")]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=NEVER_S,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    except subprocess.TimeoutExpired:
        result.hangs += 1
        return result
    if done.returncode:
        result.tracebacks += 1
        result.notes.append(done.stderr[-500:])
        return result
    found = json.loads(done.stdout.splitlines()[-1])
    result.notes.append(f"exit code {found['code']}, {found['messages']:,} messages, {found['duration_s']:.1f} s kept")
    if "Traceback" in found["said"] or "No space left" not in found["said"]:
        result.tracebacks += 1
        result.notes.append(found["said"])
    stopped = f"the recording stopped at {found['duration_s']:.3f} s: "
    result.lost += found["messages"] == 0 or found["said"].count(stopped) != 1
    return result


# ---- subscribers -----------------------------------------------------------------------------------------------------

READERS = """
import json, struct, sys, threading
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.dds import DdsTransport
nodes, heard = [], []
for index in range(int(sys.argv[1])):
    node, ticks = DdsTransport(f"reader_{sys.argv[2]}_{index}", []), []
    node.subscribe("/clock", "rosgraph_msgs/msg/Clock", Qos(depth=1000),
                   lambda cdr, ticks=ticks: ticks.append(struct.unpack_from("<iI", cdr, 4)))
    nodes.append(node); heard.append(ticks)
print("ready", flush=True)
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
while not is_over.is_set():
    for node in nodes:
        node.poll(0.002)
for _ in range(200):
    for node in nodes:
        node.poll(0.001)
print(json.dumps([[round(s * 60 + ns * 60e-9) for s, ns in ticks] for ticks in heard]), flush=True)
"""


def subscribers(live: int, hung: int, seconds: int) -> Result:
    """Readers of /clock, some of them stopped: the others receive every tick, and the run keeps its speed."""
    result = Result("subscribers", f"{live + hung}, {hung} of them hung, {seconds} s in real time")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "ROS_DOMAIN_ID": "77",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }

    def start(count: int, name: str) -> Any:
        command = [sys.executable, "-c", READERS, str(count), name]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )

    readers = [start(15, f"live{k}") for k in range(live // 15)]
    stopped = [start(1, f"hung{k}") for k in range(hung)]
    for process in (*readers, *stopped):
        assert process.stdout.readline() == "ready\n"
    command = [
        sys.executable,
        "-m",
        "microsim",
        "run",
        "flat",
        "--transport",
        "dds",
        "--headless",
        "--json",
        "--duration",
    ]
    run = subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        answer, _ = run.communicate(timeout=20.0 * seconds + 60.0)
    except subprocess.TimeoutExpired:
        run.kill()
        result.hangs += 1
        answer = "{}"
    for process in readers:
        heard, _ = process.communicate("", timeout=NEVER_S)
        for ticks in json.loads(heard.splitlines()[-1]):
            if not ticks:
                result.lost += seconds * 60
                continue
            result.lost += ticks[-1] - ticks[0] + 1 - len(set(ticks)) + (seconds * 60 - ticks[-1])
    for process in stopped:
        process.send_signal(signal.SIGCONT)
        process.communicate("", timeout=NEVER_S)
    factor = json.loads(answer.splitlines()[-1]).get("rtf") if answer.strip() else None
    result.notes.append(f"real-time factor {factor}")
    result.hangs += factor is None or factor < SLOWED
    return result


# ---- the page --------------------------------------------------------------------------------------------------------


class _Complaints(logging.Handler):
    """What would be printed in the run's terminal."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage())


def viewer_frames(count: int) -> Result:
    """Garbage on both of the page's WebSockets: afterwards a control still arrives."""
    from multiprocessing import Pipe

    import viser
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    from microsim.parts.view.web.interface import PageOptions
    from microsim.parts.view.web.page import ViewerPage
    from tests.browser_support import front_door, open_panels
    from tests.parts.view.test_page_server import heard

    complaints = _Complaints()
    logging.getLogger("websockets").addHandler(complaints)
    ours, theirs = Pipe()
    page, dice, sent, connections = ViewerPage(theirs, PageOptions(port=0)), random.Random(2), 0, 0
    site = page.address.split("/")[2]
    result = Result("viewer frames", "")
    while sent < count:
        if dice.random() < 0.5:
            version = Subprotocol(f"viser-v{viser.__version__}")
            place = front_door(page.address)[1]
            opened = connect(
                f"ws://{site}{place}",
                origin=f"http://{site}",
                subprotocols=[version],
                open_timeout=30,
                close_timeout=0.2,  # once cut off, there is nothing to wait for
            )
        else:
            opened = open_panels(page.address)
        try:
            with opened as wire:
                connections += 1
                for _ in range(dice.randint(1, 400)):
                    wire.send(_frame(dice))
                    sent += 1
        except ConnectionClosed:
            pass  # who sends garbage may be cut off
        while ours.poll(0):
            ours.recv()
    with open_panels(page.address) as good:
        good.send('{"kind": "branch"}')
        result.hangs += not any(control.kind == "branch" for control in heard(ours))
    page.server.stop()
    result.tried = f"{sent:,} in {connections:,} connections"
    result.tracebacks, result.notes = len(complaints.texts), complaints.texts[:5]
    return result


def _frame(dice: random.Random) -> bytes | str:
    match dice.randrange(4):
        case 0:
            return dice.randbytes(dice.randint(0, 64))
        case 1:
            return json.dumps({"kind": dice.choice(NAMES), "value": dice.choice(VALUES), "x": 1})
        case 2:
            return json.dumps(dice.choice(VALUES))
        case _:
            return damaged(dice, b'{"kind": "drive", "value": ["rover", 1.0, 0.5]}').decode("utf-8", "replace")


NAMES = ["branch", "drive", "pause", "seek", "speed", "reset", "x", ""]
VALUES: list[Any] = [None, 1, -1, 1e308, "x" * 50, [], {}, [[1, 2], {"a": None}], {"position": [0, 0]}, True, [1e308]]
