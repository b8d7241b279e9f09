"""The network interfaces of this machine."""

from __future__ import annotations

import socket
import struct
import sys

LOOPBACK = "127.0.0.1"
_GET_FLAGS, _GET_ADDRESS = 0x8913, 0x8915  # SIOCGIFFLAGS, SIOCGIFADDR of Linux
_UP = 0x1


def ipv4_addresses() -> dict[str, str]:
    """IPv4 address of each interface that is up, by its name. Elsewhere than on Linux: those known without asking."""
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
            except OSError:  # it has no address, or has just gone
                continue
            if flags & _UP:
                found[name] = address
    return found


def _main_address() -> str:
    """That of the interface towards other machines; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("239.255.0.1", 1))
        except OSError:
            return ""
        return str(any_socket.getsockname()[0])
