"""The controller of docs/lockstep.md, on real rclpy, closes the loop over both of our transports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop.driver import REPOSITORY, environment, rclpy_python

GATE = "after: /rover/range/front, expect: /rover/cmd_vel"
DAWDLING = """
import random, runpy, time, rclpy
from rclpy.node import Node
made = Node.create_subscription
def dawdling(self, kind, topic, callback, *rest, **more):
    def later(message):
        time.sleep({longest} * random.random())
        callback(message)
    return made(self, kind, topic, later, *rest, **more)
Node.create_subscription = dawdling
runpy.run_path("examples/lockstep/controller.py", run_name="__main__")
"""


@contextmanager
def controller(domain: int, longest_s: float) -> Iterator[None]:
    command = [rclpy_python(), "-c", DAWDLING.format(longest=longest_s)]
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment(domain)) as process:
        try:
            yield
        finally:
            process.kill()


def run(domain: int, transport: str, *more: str) -> str:
    python = rclpy_python() if transport == "rclpy" else sys.executable
    fixed = ["--duration", "2", "--json", "--quiet", "--transport", transport, "--robots", "rover"]
    command = [python, "-m", "microsim", "run", "flat", *fixed, *more]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(domain), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["digest"])


@pytest.mark.parametrize("transport", ["dds", "rclpy"])
def test_a_real_rclpy_controller_gives_one_digest_whatever_its_delays(domain: int, transport: str) -> None:
    digests = set()
    for longest_s, rtf in ((0.0, ()), (0.05, ()), (0.05, ("--rtf", "1"))):
        with controller(domain, longest_s):
            digests.add(run(domain, transport, "--lockstep", GATE, *rtf))
    assert len(digests) == 1
