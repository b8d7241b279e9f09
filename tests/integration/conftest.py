"""Nodes in processes of their own, on the loopback interface and a domain that is this run's alone."""

from __future__ import annotations

import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import forked_python
from tests.ros_domains import own_domain

ROOT = Path(__file__).resolve().parents[2]
PEER = Path(__file__).parent / "dds_peer.py"
PATIENCE_S = 90.0  # on a busy machine; nobody waits longer than it takes
LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface address='127.0.0.1'/></Interfaces></General></Domain>"
    "</CycloneDDS>"
)


@pytest.fixture(scope="session", autouse=True)
def ros_environment() -> Iterator[dict[str, str]]:
    """A domain of this process, and discovery on this machine only."""
    settings = {
        "ROS_DOMAIN_ID": own_domain("integration"),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "CYCLONEDDS_URI": LOOPBACK,
    }
    before = {name: os.environ.get(name) for name in (*settings, "ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS")}
    for name in before:
        os.environ.pop(name, None)
    os.environ.update(settings)
    yield settings
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture
def namespace() -> str:
    """Of this test alone, so that nothing of another run on the same domain is heard."""
    return f"/t{random.SystemRandom().randrange(10**9)}"


class Remote:
    """A node in another process: `remote.do("publish", topic="/t", ...)`."""

    def __init__(self, name: str, *ros_args: str, is_forked: bool = True, **environment: str) -> None:
        arguments = ["--ros-args", *ros_args] if ros_args else []
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        python = forked_python(variables) if is_forked else [sys.executable]
        self.process = subprocess.Popen(
            [*python, str(PEER), name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        self._is_up = False
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)

    def send(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def has_answered(self) -> bool:
        return self._lines.qsize() > (0 if self._is_up else 1)

    def receive(self) -> Any:
        if not self._is_up:
            self._is_up = True
            self.receive()  # its name
        answer = json.loads(self._lines.get(timeout=PATIENCE_S))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["answer"]

    def do(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.receive()

    def end(self) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


@pytest.fixture
def remote(namespace: str) -> Iterator[Callable[..., Remote]]:
    """Makes nodes in other processes, in the test's namespace unless told otherwise."""
    made: list[Remote] = []

    def make(name: str = "peer", *ros_args: str, is_forked: bool = True, **environment: str) -> Remote:
        in_namespace = ros_args or ("-r", f"__ns:={namespace}")
        made.append(Remote(name, *in_namespace, is_forked=is_forked, **environment))
        return made[-1]

    yield make
    for process in made:
        process.end()


def wait_for(condition: Callable[[], object], poll: Callable[[float], None] | None = None) -> None:
    """Until it is true, polling meanwhile; fails after a long while."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        if poll is None:
            time.sleep(0.01)
        else:
            poll(0.01)
