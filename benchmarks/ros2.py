"""The ROS 2 node over DDS on loopback: its cost at real time, its answers, its start."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Result, cpu_seconds, peak_mb

SECONDS = 10.0
SET_INT, SET_BOOL = "example_interfaces/srv/SetInt32", "example_interfaces/srv/SetBool"


def measure() -> list[Result]:
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))  # two processes talk to each other here
    return [*_with_subscribers(), *_nobody_listening(), *_first_clock(), *_lockstep(), *_bag(), *_without_gates()]


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "microsim", "run", "--headless", "--transport", "dds", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _cpu_of(process: int) -> float:
    """Seconds of CPU time it has used so far."""
    with open(f"/proc/{process}/stat") as stat:  # noqa: PTH123
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _with_subscribers() -> list[Result]:
    from microsim.messages.topics import Qos
    from microsim.parts.ros2.transport.dds import DdsTransport
    from microsim.simulation import Simulation

    node, listener = _start(), DdsTransport("listener")
    try:
        counts: dict[str, int] = {}
        for topic, (type_name, qos) in Simulation("default").topics.items():

            def count(cdr: bytes, topic: str = topic) -> None:
                counts[topic] = counts.get(topic, 0) + 1

            listener.subscribe(topic, type_name, Qos(100, qos.reliable, qos.latched), count)
        while counts.get("/clock", 0) < 120:
            listener.poll(0.1)
        before, start = _cpu_of(node.pid), time.monotonic()
        while time.monotonic() - start < SECONDS:
            listener.poll(0.1)
        share = (_cpu_of(node.pid) - before) / (time.monotonic() - start)
        round_trip = _round_trips(listener)
    finally:
        node.send_signal(signal.SIGINT)
        node.wait()
        listener.close()
    return [
        Result("node at real time, a subscriber on every topic", 100.0 * share, "% of a core", 25, at_most=True),
        Result("/sim/step of one tick and back, median", 1000.0 * round_trip, "ms", 2, at_most=True),
    ]


def _round_trips(listener: Any, rounds: int = 500) -> float:
    listener.call("/sim/pause", SET_BOOL, {"data": True})
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        listener.call("/sim/step", SET_INT, {"data": 1})
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _nobody_listening() -> list[Result]:
    """What publishing adds to a tick when no one has subscribed."""
    from microsim.parts.ros2.microsim_node import start_node
    from microsim.parts.ros2.transport.dds import DdsTransport
    from microsim.simulation import Simulation

    bare = Simulation("default")
    bare.step(60)
    alone = cpu_seconds(lambda: bare.step(600))
    transport = DdsTransport("microsim")
    node = start_node(transport, "default", rtf=0.0)
    node.runner.pause(True)
    messages = bare.step(600)
    publishing = cpu_seconds(lambda: node.publish(messages))
    transport.close()
    return [
        Result(
            "publishing without subscribers, compared with the tick", 100.0 * publishing / alone, "%", 5, at_most=True
        )
    ]


def _first_clock() -> list[Result]:
    from microsim.messages.topics import Qos
    from microsim.parts.ros2.transport.dds import DdsTransport

    best, peak = float("inf"), 0.0
    for _ in range(5):
        listener, got = DdsTransport("listener"), []
        listener.subscribe("/clock", "rosgraph_msgs/msg/Clock", Qos(10), got.append)
        start = time.perf_counter()
        node = _start()
        while not got:
            listener.poll(0.05)
        best = min(best, time.perf_counter() - start)
        peak = max(peak, peak_mb(node.pid))
        node.send_signal(signal.SIGINT)
        node.wait()
        listener.close()
    return [
        Result("start of the process to the first /clock received", best, "s", 2, at_most=True),
        Result("memory of the node", peak, "MB", 300, at_most=True),
    ]


def _lockstep() -> list[Result]:
    """Ticks with a gate each, and a node here that replies at once."""
    from microsim import messages as wire
    from microsim.messages.topics import Qos
    from microsim.parts.ros2.transport.dds import DdsTransport

    node, twist = DdsTransport("replier"), "geometry_msgs/msg/Twist"
    command = wire.encode(twist, wire.new(twist))
    replies = node.publisher("/rover/cmd_vel", twist, Qos(10))
    node.subscribe("/clock", "rosgraph_msgs/msg/Clock", Qos(10), lambda cdr: replies.publish(command))
    gate = ["--lockstep", "after: /clock, expect: /rover/cmd_vel"]
    run = [
        sys.executable,
        "-m",
        "microsim",
        "run",
        "flat",
        "--robots",
        "rover",
        "--duration",
        "600",
        "--transport",
        "dds",
    ]
    try:
        with subprocess.Popen([*run, *gate, "--json", "--quiet"], stdout=subprocess.PIPE) as process:
            while process.poll() is None:
                node.poll(0.05)
            facts = json.loads(process.communicate()[0])
    finally:
        node.close()
    return [Result("ROS 2: lockstep, a gate in each tick", facts["ticks"] / facts["wall_s"], "ticks/s", floor=2000.0)]


def _bag(count: int = 10_000) -> list[Result]:
    """The messages of a bag, into a node here that replies to each at once."""
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    from microsim import messages as wire
    from microsim.messages.topics import Qos
    from microsim.parts.ros2.transport.dds import DdsTransport

    kind, node = "sensor_msgs/msg/Range", DdsTransport("replier")
    message = wire.encode(kind, wire.new(kind))
    replies = node.publisher("/answer", kind, Qos(10))
    node.subscribe("/range", kind, Qos(10), replies.publish)
    with tempfile.TemporaryDirectory() as folder:
        with Writer(Path(folder) / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            channel = writer.add_connection("/range", kind, typestore=get_typestore(Stores.ROS2_JAZZY))
            for number in range(count):
                writer.write(channel, number * 1_000_000, message)
        play = ["replay", f"{folder}/bag", "--transport", "dds", "--lockstep", "after: /range, expect: /answer"]
        command = [sys.executable, "-m", "microsim", *play, "--json", "--quiet"]
        try:
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                while process.poll() is None:
                    node.poll(0.05)
                facts = json.loads(process.communicate()[0])
        finally:
            node.close()
    rate = facts["messages"] / facts["wall_s"]
    return [Result("ROS 2: messages of a bag into a node that replies to each", rate, "messages/s", floor=2000.0)]


def _without_gates() -> list[Result]:
    """Ticks of a node without gates, beside a runner that does not look for any; by turns, as machines are noisy."""
    from microsim.parts.ros2.microsim_node import start_node
    from microsim.parts.ros2.transport.memory import MemoryTransport
    from microsim.runner import Runner

    class Ungated(Runner):
        def _advance(self, count: int, before: float) -> None:
            for source in self.sources:
                source(0.0)
            count = 0 if self.paused or self.is_stopping else 1
            messages = self.sim.step(count)
            self.advanced_s += count * self.pacer.tick_s
            took = self.clock.now() - before
            if self.listeners.want_timing:
                self.listeners.timing(took, self.lateness_s)
            self.publish(messages)

    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(20):
        node = start_node(MemoryTransport("microsim"), "flat", rtf=0.0)
        node.runner.__class__ = Runner if turn % 2 else Ungated
        start = time.process_time()
        node.runner.run(3000)
        seconds[bool(turn % 2)].append(time.process_time() - start)
    ratio = 100.0 * min(seconds[True]) / min(seconds[False])
    return [Result("ROS 2: ticks without gates, beside a runner without the check", ratio, "%", 105, at_most=True)]
