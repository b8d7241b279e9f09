"""Starts and asks the processes of the interop tests, from pytest's own environment.

    with free_domain() as domain, Peer(domain) as peer:
        peer.subscribe(topic="/clock", type="rosgraph_msgs/msg/Clock")
        peer.wait(topic="/clock", count=60)

Each operation of peer.py (or host.py) is a method with its keyword arguments; its reply is a dictionary.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
INTERFACES = REPOSITORY / ".cache" / "rclpy-interfaces" / "python"  # what interfaces.py builds
START_S = 60.0
GRACE_S = 20.0  # beyond an operation's own timeout: these machines may be busy
CYCLONE_LOOPBACK = """<General><Interfaces><NetworkInterface name='lo'/></Interfaces></General>
<Discovery><Peers><Peer address='127.0.0.1'/></Peers></Discovery>"""


class RemoteError(Exception):
    """The other process could not do it; its words."""


@cache
def rclpy_python() -> str:
    """The Python that has rclpy; skips the test where it cannot be had, unless MICROSIM_NEED_RCLPY is set."""
    setup = subprocess.run([HERE / "setup.sh"], capture_output=True, text=True, check=False)
    if setup.returncode == 0:
        return setup.stdout.splitlines()[-1]
    if setup.returncode == 3 and not os.environ.get("MICROSIM_NEED_RCLPY"):
        pytest.skip(setup.stderr.strip().splitlines()[-1])
    raise RuntimeError(setup.stderr)


def has_built_interfaces() -> bool:
    """Where MICROSIM_NEED_RCLPY is set, as in CI, their absence is an error: no test may be skipped unnoticed."""
    rclpy_python()
    if os.environ.get("MICROSIM_NEED_RCLPY") and not INTERFACES.exists():
        raise RuntimeError(f"the interfaces that PyPI lacks were not built; see {INTERFACES.parent / 'log'}")
    return INTERFACES.exists()


def environment(domain: int, built_interfaces: bool = True, **more: str) -> dict[str, str]:
    """For a ROS 2 process that speaks on the loopback interface only, by whichever middleware.

    `more` wins; an empty text takes a variable away.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ROS_", "RMW_", "FASTDDS_", "FASTRTPS_", "CYCLONEDDS_", "AMENT_", "_ROS_"))
        and name not in ("PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    }
    own = {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",  # of which the files below leave the loopback interface
        "RMW_IMPLEMENTATION": "rmw_fastrtps_cpp",
        "FASTDDS_DEFAULT_PROFILES_FILE": str(HERE / "fastdds_loopback.xml"),
        "CYCLONEDDS_URI": f"<CycloneDDS><Domain>{CYCLONE_LOOPBACK}</Domain></CycloneDDS>",
        "ROS_LOG_DIR": str(Path(tempfile.gettempdir()) / "microsim-ros-logs"),
        "RCUTILS_COLORIZED_OUTPUT": "0",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(REPOSITORY),  # this checkout, whichever is installed
    }
    if built_interfaces and INTERFACES.exists():
        own["PYTHONPATH"] += os.pathsep + str(INTERFACES)
    return {name: value for name, value in (inherited | own | more).items() if value or name not in more}


def interrupted(process: subprocess.Popen[Any]) -> int:
    """Its exit code, after Ctrl-C where it still runs."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


class Remote:
    """A process that answers one JSON line with one JSON line."""

    def __init__(self, command: Sequence[str | Path], env: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            self.greeting = self.request("hello", reply_within=START_S)
        except BaseException:
            self.close()
            raise

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")  # it has ended

    def request(self, operation: str, reply_within: float | None = None, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._replies.get(timeout=reply_within or arguments.get("timeout", 30.0) + GRACE_S)
        except (OSError, queue.Empty):
            line = ""
        if not line:
            raise RemoteError(f"{operation}: no reply (status {self._process.poll()})\n{self.printed()}")
        reply: dict[str, Any] = json.loads(line)
        if not reply.pop("ok"):
            raise RemoteError(reply["error"])
        return reply

    def __getattr__(self, operation: str) -> Callable[..., dict[str, Any]]:
        if operation.startswith("_"):
            raise AttributeError(operation)
        return lambda **arguments: self.request(operation, **arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    def printed(self) -> str:
        """What it has written to the terminal so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def wait_printed(self, text: str, timeout: float = 30.0) -> None:
        end = time.monotonic() + timeout
        while text not in self.printed():
            if time.monotonic() > end:
                raise RemoteError(f"{text!r} was not printed within {timeout} s, but\n{self.printed()}")
            time.sleep(0.02)  # there is no event for a line in a file

    def kill(self) -> None:
        """End it without a farewell."""
        self._process.kill()
        self._process.wait()

    def close(self) -> int:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            status = self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.returncode
        return status

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Peer(Remote):
    """A stranger on real rclpy: peer.py."""

    def __init__(self, domain: int, *ros_args: str, built_interfaces: bool = True, **more: str) -> None:
        arguments = ["--ros-args", *ros_args] if ros_args else []
        super().__init__([rclpy_python(), HERE / "peer.py", *arguments], environment(domain, built_interfaces, **more))

    def bytes_on(self, topic: str, count: int = 1, timeout: float = 30.0) -> list[bytes]:
        """The first messages on a topic it has subscribed to, as they came."""
        self.wait(topic=topic, count=count, timeout=timeout)
        return [base64.b64decode(raw) for raw in self.collect(topic=topic, raw=True)["raw"]]


def connect(peer: Peer, host: Host, topic: str, type_name: str, cdr: bytes, **qos: Any) -> None:
    """Publish from the peer until it arrives at the host; from then on nothing reliable is lost.

    Fast DDS believes itself connected before a subscriber knows it. To Cyclone DDS what was sent meanwhile is history,
    which it acknowledges and does not deliver.
    """
    for _ in range(40):
        peer.publish(topic=topic, type=type_name, raw=encoded(cdr), qos=qos)
        with contextlib.suppress(RemoteError):
            host.wait(topic=topic, timeout=0.25)
            return
    raise RemoteError(f"nothing arrives on {topic}")


class Host(Remote):
    """One of our transports under test: host.py, in pytest's environment or, for rclpy, in that which has it."""

    def __init__(
        self,
        domain: int,
        transport: str,
        *ros_args: str,
        node: str = "microsim",
        built_interfaces: bool = True,
        **more: str,
    ) -> None:
        python = rclpy_python() if transport == "rclpy" else sys.executable
        env = environment(domain, built_interfaces and transport == "rclpy", **more)
        super().__init__([python, HERE / "host.py", transport, node, *ros_args], env)


def encoded(cdr: bytes) -> str:
    return base64.b64encode(cdr).decode()


def acquaint(host: Host, peer: Peer) -> None:
    """Until each knows all of the other: a call at their very first meeting may be lost between two middlewares."""
    host.serve(service="/acquaintance", type="std_srvs/srv/Empty", response={})
    for _ in range(10):
        try:
            peer.call(service="/acquaintance", type="std_srvs/srv/Empty", timeout=2.0)
        except RemoteError:
            continue
        return
    raise RuntimeError("no answer at all")
