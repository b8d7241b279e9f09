"""Measurements to messages: one function for each kind, which makes an encoder `(stamp_ns, values…) -> bytes`.

Everything that stays the same from message to message is encoded when the encoder is made.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from microsim.engine.components import FixedMount
from microsim.engine.geometry import quaternion_from_rpy
from microsim.engine.timekeeper import NS_PER_S
from microsim.messages import Template, encode, fields_of, new

Encoder: TypeAlias = Callable[..., bytes]

HARDWARE_ID = "microsim"
_DIAGNOSTIC_HEAD = struct.Struct("<4siIIB3xI")  # encapsulation, stamp, an empty frame_id, number of statuses
_COUNT = struct.Struct("<I")


def header(frame_id: str) -> Any:
    return new("std_msgs/msg/Header", frame_id=frame_id)


def clock_message() -> Any:
    return new("rosgraph_msgs/msg/Clock")


def clock() -> Encoder:
    template = Template("rosgraph_msgs/msg/Clock", new("rosgraph_msgs/msg/Clock"), ("clock.sec", 2))
    return lambda stamp_ns: template.encode(divmod(stamp_ns, NS_PER_S))


def _transform(parent: str, child: str) -> Any:
    return new("geometry_msgs/msg/TransformStamped", header=header(parent), child_frame_id=child)


def transforms_message(pairs: Sequence[tuple[str, str]]) -> Any:
    """(parent, child) frames, all at the origin."""
    message = new("tf2_msgs/msg/TFMessage", transforms=[_transform(*pair) for pair in pairs])
    for each in message.transforms:
        each.transform.rotation.w = 1.0
    return message


def static_transforms(mounts: Sequence[tuple[str, str, FixedMount]]) -> bytes:
    """(parent, child, mount) of every sensor, stamped 0."""
    message = new("tf2_msgs/msg/TFMessage", transforms=[_transform(parent, child) for parent, child, _ in mounts])
    for item, (_, _, mount) in zip(message.transforms, mounts, strict=True):
        translation, rotation = item.transform.translation, item.transform.rotation
        translation.x, translation.y, translation.z = mount.xyz
        rotation.x, rotation.y, rotation.z, rotation.w = quaternion_from_rpy(*mount.rpy)
    return encode("tf2_msgs/msg/TFMessage", message)


def radio_payload(payload: bytes) -> bytes:
    message = new("std_msgs/msg/ByteMultiArray", data=np.frombuffer(payload, np.uint8))
    return encode("std_msgs/msg/ByteMultiArray", message)


def text(value: str) -> bytes:
    return encode("std_msgs/msg/String", new("std_msgs/msg/String", data=value))


def diagnostics(stamp_ns: int, entries: Mapping[str, tuple[int, str, Mapping[str, str]]]) -> bytes:
    """A DiagnosticArray: name of each status -> level, message, its keys and values."""
    rows = tuple((name, level, text, *values.items()) for name, (level, text, values) in entries.items())
    return _DIAGNOSTIC_HEAD.pack(b"\0\1\0\0", *divmod(stamp_ns, NS_PER_S), 1, 0, len(entries)) + _statuses(rows)


@lru_cache(64)  # between two messages often nothing changes
def _statuses(rows: tuple[tuple[Any, ...], ...]) -> bytes:
    """Written as CDR here: from objects, as the library does it, takes ten times as long, and these are sent often."""
    out = bytearray()
    for name, level, message, *values in rows:
        out.append(level)
        out += bytes(-len(out) % 4)
        out += _text(name) + _text(message) + _text(HARDWARE_ID) + _COUNT.pack(len(values))
        for key, value in values:
            out += _text(key)
            out += _padded(value)
        if values:  # the next entry begins with a byte, which needs no padding before it
            del out[len(out) - _padding(value) :]
    return bytes(out) + bytes(-len(out) % 4)


def _padded(text: str) -> bytes:
    """With the padding that a number after it needs."""
    data = text.encode() + b"\0"
    return _COUNT.pack(len(data)) + data + bytes(_padding(text))


_text = lru_cache(512)(_padded)  # of names, which come again and again


def _padding(text: str) -> int:
    return -(len(text.encode()) + 1) % 4


def from_fields(type_name: str, frame: str) -> Encoder:
    """values: the message's fields as a dict; a header is filled in unless given."""
    has_header = any(name == "header" for name, _ in fields_of(type_name))

    def build(stamp_ns: int, fields: dict[str, Any]) -> bytes:
        message = new(type_name, **fields)
        if has_header and "header" not in fields:
            message.header = header(frame)
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, NS_PER_S)
        return encode(type_name, message)

    return build
