"""The live tools on loopback: what they cost, how exact they are, and how they cope with many topics."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time

from benchmarks.harness import ROOT, Result
from benchmarks.ros2 import _cpu_of

SECONDS = 8.0

# KIND RATE: publishes, polls, and prints the rate of each second that it really kept
_PUBLISHER = """
import sys, time
import numpy as np
from microsim import messages as wire
from microsim.messages.topics import Qos
from microsim.parts.ros2.transport.dds import DdsTransport

kind, rate = sys.argv[1], float(sys.argv[2])
node = DdsTransport("source")
if kind == "many":
    for number in range(int(rate)):
        node.publisher(f"/many/topic_{number}", "std_msgs/msg/String", Qos(1))
    print("ready", flush=True)
    while True:
        node.poll(1.0)
if kind == "image":
    data = np.zeros(640 * 480 * 3, np.uint8)
    type_name, values = "sensor_msgs/msg/Image", dict(height=480, width=640, encoding="rgb8", step=1920, data=data)
else:
    type_name, values = "std_msgs/msg/Header", {}
publisher = node.publisher("/bench", type_name, Qos(10))
cdr = wire.encode(type_name, wire.new(type_name, **values))
node.poll(0.0)
print("ready", flush=True)
start, count = time.monotonic(), 0
while True:
    publisher.publish(cdr)
    count += 1
    if count % 50 == 0:
        node.poll(0.0)
    time.sleep(max(0.0, start + count / rate - time.monotonic()))
"""


def measure() -> list[Result]:
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # several processes talk to each other here
    return [*_listing(), *_echo(), *_hz(), *_many()]


class _Source:
    def __init__(self, kind: str, rate: float) -> None:
        command = [sys.executable, "-c", _PUBLISHER, kind, str(rate)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "microsim", *arguments]


def _run(*arguments: str) -> tuple[float, float, str]:
    """Wall time, CPU time and output."""
    before, start = _children_s(), time.perf_counter()
    done = subprocess.run(_command(*arguments), check=True, capture_output=True, text=True, cwd=ROOT)
    return time.perf_counter() - start, _children_s() - before, done.stdout


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _listing() -> list[Result]:
    with _Source("header", 10.0):
        runs = [_run("topic", "list") for _ in range(5)]
    assert all("/bench" in text for _, _, text in runs)
    wall_s, cpu_s = min(run[0] for run in runs), min(run[1] for run in runs)
    return [
        Result("microsim topic list from a cold start, wall time", wall_s, "s", 1.5, at_most=True),
        Result("the same, CPU time", cpu_s, "s"),
    ]


def _echo() -> list[Result]:
    """Images of 640×480 at 30 Hz."""
    results = []
    with _Source("image", 30.0):
        for name, options in (("", ()), (" --json, complete", ("--json",))):
            reader = subprocess.Popen(_command("topic", "echo", "/bench", *options), stdout=subprocess.PIPE, cwd=ROOT)
            assert reader.stdout is not None
            reader.stdout.readline()  # it has begun
            before, start, images = _cpu_of(reader.pid), time.monotonic(), 0
            while time.monotonic() - start < SECONDS:
                images += os.read(reader.stdout.fileno(), 1 << 20).count(b"header")
            of_one = (_cpu_of(reader.pid) - before) / images  # a busy machine may lose some
            reader.kill()
            reader.wait()
            title = f"microsim topic echo{name}: a 640×480 image at 30 Hz"
            results.append(Result(title, 100.0 * 30.0 * of_one, "% of a core", 50, at_most=True))
    return results


def _hz() -> list[Result]:
    with _Source("header", 1000.0):
        command = _command("topic", "hz", "/bench", "--json")
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert reader.stdout is not None
        reports = [json.loads(reader.stdout.readline()) for _ in range(int(SECONDS))]
        reader.kill()
        reader.wait()
    error = 100.0 * abs(reports[-1]["hz"] / 1000.0 - 1.0)
    return [Result("microsim topic hz on a topic of 1,000 Hz: error", error, "%", 1, at_most=True)]


def _many() -> list[Result]:
    with _Source("many", 10_000.0):
        runs = [_run("topic", "list", "-c") for _ in range(3)]
    assert all(int(text) >= 10_000 for _, _, text in runs), runs
    wall_s, cpu_s = min(run[0] for run in runs), min(run[1] for run in runs)
    return [
        Result("microsim topic list with 10,000 topics, wall time", wall_s, "s", 5, at_most=True),
        Result("the same, CPU time", cpu_s, "s"),
    ]
