"""The DDS domain: what environment variables of ROS 2 say about it, participants, their threads. Quick to import."""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path

from cyclonedds.core import DDSException
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.qos import Policy
from cyclonedds.qos import Qos as DdsQos

from microsim.errors import UsageError, did_you_mean, there_are
from microsim.parts.ros2.transport.cdr_endpoints import print_errors_only

LARGEST_ID = 232
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")

LOOPBACK = "127.0.0.1"

_PRECONDITION_NOT_MET = -4
_GET_FLAGS, _GET_ADDRESS, _UP = 0x8913, 0x8915, 0x1  # SIOCGIFFLAGS, SIOCGIFADDR, IFF_UP of Linux

# Large datagrams: 640×480 images are four times as fast. High watermarks: a writer that keeps the last few messages
# needs no throttling, and a reader that hangs must not slow the tick. Early heartbeats: readers answer them with an
# acknowledgement, for which stepping waits (by default they come every 100 ms).
_TUNING = (
    "<General><MaxMessageSize>65500B</MaxMessageSize><FragmentSize>60000B</FragmentSize></General>"
    "<Internal><Watermarks><WhcAdaptive>false</WhcAdaptive><WhcHigh>1GB</WhcHigh><WhcHighInit>1GB</WhcHighInit>"
    "</Watermarks><HeartbeatInterval min='2ms' minsched='5ms'>5ms</HeartbeatInterval></Internal>"
)

# By default Cyclone DDS uses one interface and receives nothing from the others. Fast DDS limited to this machine uses
# the loopback interface; Cyclone DDS limited to this machine may use any. So both are used.
_LOOPBACK_TOO = (
    '<General><Interfaces><NetworkInterface autodetermine="true"/><NetworkInterface address="127.0.0.1"/>'
    "</Interfaces></General>"
)
_INTERFACE = re.compile(r"""<NetworkInterface\s[^>]*?(?:name|address)\s*=\s*["']([^"']+)["']""")

_CAUSES = "too many nodes may run here, or CYCLONEDDS_URI names a network interface that does not exist"
_domains: dict[int, Domain] = {}  # for the life of the process: without the object its configuration is gone


def domain_id(environment: Mapping[str, str] = os.environ) -> int:
    text = environment.get("ROS_DOMAIN_ID", "").strip() or "0"
    if not text.isascii() or not text.isdigit() or int(text) > LARGEST_ID:
        raise UsageError(f"ROS_DOMAIN_ID is {text!r}, not a number from 0 to {LARGEST_ID}")
    return int(text)


def configuration(environment: Mapping[str, str] = os.environ) -> str:
    """As rmw_cyclonedds_cpp makes it; CYCLONEDDS_URI comes last and takes precedence."""
    uri = environment.get("CYCLONEDDS_URI", "")
    # a user's interfaces would be added to ours, and none may be named twice; elsewhere than on Linux they are unknown
    is_local = _reach(environment)[0] == "LOCALHOST" and not uri and sys.platform == "linux"
    has_network = is_local and any(not address.startswith("127.") for address in ipv4_addresses().values())
    interfaces = _LOOPBACK_TOO if has_network else ""
    text = f"<CycloneDDS><Domain>{_TUNING}{interfaces}{_discovery(environment)}</Domain></CycloneDDS>"
    return f"{text},{uri}" if uri else text


def _discovery(environment: Mapping[str, str]) -> str:
    reach, peers = _reach(environment)
    if reach == "SYSTEM_DEFAULT":
        return ""
    multicast = "" if reach == "SUBNET" else "<General><AllowMulticast>false</AllowMulticast></General>"
    if reach == "OFF":
        tag = f"<ParticipantIndex>none</ParticipantIndex><Tag>ros_discovery_off_{os.getpid()}</Tag>"
        return f"{multicast}<Discovery>{tag}</Discovery>"
    if reach == "LOCALHOST":
        peers = ["localhost", *peers]
    addresses = "".join(f'<Peer address="{escape(peer)}"/>' for peer in peers)
    index = "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32</MaxAutoParticipantIndex>"
    return f"{multicast}<Discovery>{index}{f'<Peers>{addresses}</Peers>' if peers else ''}</Discovery>"


def uses_multicast(environment: Mapping[str, str] = os.environ) -> bool:
    return _reach(environment)[0] in ("SUBNET", "SYSTEM_DEFAULT")


def interfaces(environment: Mapping[str, str] = os.environ) -> list[str]:
    """IPv4 addresses where peers may be; empty where discovery is off."""
    there, reach = ipv4_addresses(), _reach(environment)[0]
    if reach == "OFF":
        return []
    if chosen := _INTERFACE.findall(environment.get("CYCLONEDDS_URI", "")):
        return [address for name, address in there.items() if name in chosen or address in chosen]
    if reach == "LOCALHOST":
        return [LOOPBACK]
    return [address for address in there.values() if not address.startswith("127.")] or [LOOPBACK]


def _reach(environment: Mapping[str, str]) -> tuple[str, list[str]]:
    """Range of discovery and further peers; ROS_LOCALHOST_ONLY=1, though deprecated, overrules both."""
    if environment.get("ROS_LOCALHOST_ONLY") == "1":
        return "LOCALHOST", []
    reach = environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "").upper() or "SUBNET"
    if reach not in RANGES:
        hint = did_you_mean(reach, RANGES)
        raise UsageError(f"ROS_AUTOMATIC_DISCOVERY_RANGE is {reach!r}{hint}; {there_are(RANGES)}")
    return reach, [peer for peer in environment.get("ROS_STATIC_PEERS", "").split(";") if peer]


def open_domain(number: int) -> None:
    """Once per process and domain; the first call decides the configuration."""
    if number in _domains:
        return
    text = configuration()
    print_errors_only()
    try:
        _domains[number] = Domain(number, text)
    except (DDSException, UnicodeEncodeError) as error:
        if getattr(error, "code", None) == _PRECONDITION_NOT_MET:  # opened by other code in this process
            return
        blame = f"; CYCLONEDDS_URI is {os.environ['CYCLONEDDS_URI']}" if os.environ.get("CYCLONEDDS_URI") else ""
        raise UsageError(f"Cyclone DDS refuses its configuration: {error}{blame}") from error


def ipv4_addresses() -> dict[str, str]:
    """IPv4 address of each interface that is up, by its name. Other systems than Linux: loopback and the main one."""
    if sys.platform != "linux":
        return {"": LOOPBACK, **({"default": main} if (main := _main_address()) else {})}
    from fcntl import ioctl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            asked = struct.pack("16s24x", name.encode()[:15])
            try:
                (flags,) = struct.unpack_from("<H", ioctl(any_socket, _GET_FLAGS, asked), 16)
                address = socket.inet_ntoa(ioctl(any_socket, _GET_ADDRESS, asked)[20:24])
            except OSError:  # it has no address, or has just disappeared
                continue
            if flags & _UP:
                found[name] = address
    return found


def _main_address() -> str:
    """The address of the interface towards other machines; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("239.255.0.1", 1))
        except OSError:
            return ""
        return str(any_socket.getsockname()[0])


def new_scout() -> DomainParticipant:
    """A participant that is only there to be found by others, before the one of a node.

    When Fast DDS finds a participant that has not found it yet, the two exchange their endpoints a second later: it
    offers them too early, and ignores the first request. The second participant finds it known.
    """
    number = domain_id()
    open_domain(number)
    try:
        return DomainParticipant(number)
    except DDSException as error:
        raise UsageError(f"cannot create a DDS participant on domain {number}: {error}; {_CAUSES}") from error


def new_participant(number: int, enclave: str) -> DomainParticipant:
    try:
        return DomainParticipant(number, DdsQos(Policy.Userdata(data=f"enclave={enclave};".encode())))
    except DDSException as error:
        raise UsageError(f"cannot create a DDS participant on domain {number}: {error}; {_CAUSES}") from error


# ---- whether all that has arrived was handed over ------------------------------------------------------------------

TASKS, FILES = Path("/proc/self/task"), Path("/proc/self/fd")
NAMES = ("recv", "dq.")  # of the threads, in the order in which a message passes them
MOMENT_S = 0.01  # where threads cannot be looked at
PAUSE_S = 0.0002  # between two looks


class ReceivingThreads:
    """Whether Cyclone DDS has handed over all that has arrived: its threads sleep, its sockets are empty.

    What a node on this machine has sent is in a socket of ours when its call returns: loopback has no delay. So after
    a node has reported, by whatever path, that it sent something, nothing of it is missing when these threads have
    nothing left to do. All participants of a process share them. Linux only; elsewhere they get a moment.
    """

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
