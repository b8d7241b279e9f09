"""Whether Cyclone DDS has handed over all that has arrived at this process: its threads sleep, its sockets are empty.

What a node on this machine has sent is in a socket of ours when its call returns: loopback has no delay. So after a
node has reported, by whatever path, that it sent something, nothing of it is missing when these threads have nothing
left to do. Linux only; elsewhere they get a moment.
"""

from __future__ import annotations

import os
import select
import socket
import time
from pathlib import Path

TASKS, FILES = Path("/proc/self/task"), Path("/proc/self/fd")
NAMES = ("recv", "dq.")  # of the threads, in the order in which a message passes them
MOMENT_S = 0.01  # where threads cannot be looked at
PAUSE_S = 0.0002  # between two looks


class ReceivingThreads:
    """Of all participants of this process: they share them."""

    def __init__(self) -> None:
        self._states = [task / "stat" for name in NAMES for task in _tasks(name)]
        self._sockets = select.poll() if self._states else None
        if self._sockets is not None:
            for number in _datagram_sockets():
                self._sockets.register(number, select.POLLIN)

    def wait(self, timeout_s: float) -> bool:
        """Until they have nothing to do; False: not within that time."""
        if self._sockets is None:
            time.sleep(min(timeout_s, MOMENT_S))
            return True
        end = time.monotonic() + timeout_s
        while not (self._are_idle() and self._are_idle()):  # twice: one may have waited for a lock for a moment
            if time.monotonic() > end:
                return False
            time.sleep(PAUSE_S)
        return True

    def _are_idle(self) -> bool:
        assert self._sockets is not None
        if any(event & select.POLLIN for _, event in self._sockets.poll(0)):
            return False
        return all(_sleeps(each) for each in self._states)


def _tasks(name: str) -> list[Path]:
    try:
        return [each for each in sorted(TASKS.iterdir()) if (each / "comm").read_text().startswith(name)]
    except OSError:  # not Linux
        return []


def _sleeps(stat: Path) -> bool:
    try:
        return stat.read_bytes().rpartition(b")")[2].split(maxsplit=1)[0] == b"S"
    except OSError:  # it has ended
        return True


def _datagram_sockets() -> list[int]:
    found = []
    for each in FILES.iterdir():
        try:
            if str(each.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(each.name))) as copy:
                    if copy.type == socket.SOCK_DGRAM:
                        found.append(int(each.name))
        except OSError:  # closed meanwhile
            continue
    return found
