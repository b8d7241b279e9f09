"""Transforms between frames, from /tf and /tf_static."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from microsim.errors import UsageError, did_you_mean
from microsim.parts.live_tools.client.reasons import listed

if TYPE_CHECKING:
    from microsim.parts.live_tools.client.client_node import ClientNode

TF_TYPE = "tf2_msgs/msg/TFMessage"
KEPT_NS = 10 * 10**9
BACK_NS = 10**9  # a stamp that is so much older is of a run that began again
MOST_FRAMES, MOST_KEPT = 10_000, 10_000
STATIC = -1  # in place of a time

Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]  # x, y, z, w


class Transform(NamedTuple):
    """Where the origin and axes of `source` are in `target`: x_target = rotation · x_source + translation."""

    target: str
    source: str
    time_ns: int  # STATIC: at any time
    translation: Vector  # [m]
    rotation: Quaternion

    @property
    def yaw(self) -> float:
        """[rad], about z."""
        x, y, z, w = self.rotation
        return math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))

    @property
    def rpy(self) -> Vector:
        """Roll, pitch and yaw [rad]."""
        x, y, z, w = self.rotation
        roll = math.atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y))
        return roll, math.asin(max(-1.0, min(1.0, 2.0 * (w * y - z * x)))), self.yaw

    def apply(self, point: Vector) -> Vector:
        """A point of `source` in `target`."""
        turned, moved = rotated(self.rotation, point), self.translation
        return turned[0] + moved[0], turned[1] + moved[1], turned[2] + moved[2]


def product(a: Quaternion, b: Quaternion) -> Quaternion:
    ax, ay, az, aw = a
    bx, by, bz, bw = b
    return (
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    )


def rotated(rotation: Quaternion, vector: Vector) -> Vector:
    x, y, z, w = rotation
    turned = product(product(rotation, (*vector, 0.0)), (-x, -y, -z, w))
    return turned[0], turned[1], turned[2]


def combined(outer: Transform, inner: Transform) -> Transform:
    """From `inner.source` into `outer.target`."""
    times = [each.time_ns for each in (outer, inner) if each.time_ns != STATIC]
    rotation = product(outer.rotation, inner.rotation)
    return Transform(outer.target, inner.source, min(times, default=STATIC), outer.apply(inner.translation), rotation)


def inverse(transform: Transform) -> Transform:
    x, y, z, w = transform.rotation
    back = (-x, -y, -z, w)
    moved = rotated(back, transform.translation)
    return Transform(transform.source, transform.target, transform.time_ns, (-moved[0], -moved[1], -moved[2]), back)


def between(a: Transform, b: Transform, time_ns: int) -> Transform:
    """Interpolated: straight, and on the shorter arc."""
    share = (time_ns - a.time_ns) / (b.time_ns - a.time_ns) if b.time_ns > a.time_ns else 1.0
    moved = tuple(p + share * (q - p) for p, q in zip(a.translation, b.translation, strict=True))
    dot = sum(p * q for p, q in zip(a.rotation, b.rotation, strict=True))
    sign, dot = (-1.0, -dot) if dot < 0.0 else (1.0, dot)
    angle = math.acos(min(dot, 1.0))
    first, second = 1.0 - share, sign * share
    if angle > 1e-6:
        first, second = math.sin(first * angle) / math.sin(angle), sign * math.sin(share * angle) / math.sin(angle)
    turned = [first * p + second * q for p, q in zip(a.rotation, b.rotation, strict=True)]
    size = math.sqrt(sum(each * each for each in turned)) or 1.0
    x, y, z, w = (each / size for each in turned)
    return Transform(a.target, a.source, time_ns, (moved[0], moved[1], moved[2]), (x, y, z, w))


class FrameHistory:
    """A frame's transform into its parent, for the last ten seconds."""

    def __init__(self) -> None:
        self.entries: list[Transform] = []

    @property
    def is_static(self) -> bool:
        return self.entries[-1].time_ns == STATIC

    @property
    def parent(self) -> str:
        return self.entries[-1].target

    def take(self, entry: Transform) -> None:
        entries = self.entries
        if entries and (entry.time_ns < entries[-1].time_ns - BACK_NS or entry.target != self.parent or self.is_static):
            entries.clear()
        place = bisect_left(entries, entry.time_ns, key=lambda each: each.time_ns)
        is_again = place < len(entries) and entries[place].time_ns == entry.time_ns
        entries[place : place + is_again] = [entry]
        while len(entries) > MOST_KEPT or entries[0].time_ns < entries[-1].time_ns - KEPT_NS:
            entries.pop(0)

    def at(self, time_ns: int | None) -> Transform | None:
        """None: outside of what is known."""
        entries = self.entries
        if self.is_static or time_ns is None:
            return entries[-1]
        if not entries[0].time_ns <= time_ns <= entries[-1].time_ns:
            return None
        place = bisect_left(entries, time_ns, key=lambda each: each.time_ns)
        after = entries[place]
        return after if after.time_ns == time_ns else between(entries[place - 1], after, time_ns)


class TransformBuffer:
    def __init__(self, node: ClientNode) -> None:
        self._node = node
        self.frames: dict[str, FrameHistory] = {}  # by the child's name
        node.subscribe("/tf", lambda message: self.take(message, is_static=False), type=TF_TYPE, depth=1000)
        node.subscribe("/tf_static", lambda message: self.take(message, is_static=True), type=TF_TYPE, depth=1000)

    def take(self, message: Any, is_static: bool) -> None:
        for each in message.transforms:
            child, stamp = each.child_frame_id.lstrip("/"), each.header.stamp
            moved, turned = each.transform.translation, each.transform.rotation
            size = math.sqrt(turned.x**2 + turned.y**2 + turned.z**2 + turned.w**2)
            if not child or len(self.frames) > MOST_FRAMES or not 0.0 < size < math.inf:
                continue
            rotation = (turned.x / size, turned.y / size, turned.z / size, turned.w / size)
            time_ns = STATIC if is_static else stamp.sec * 10**9 + stamp.nanosec
            place = Transform(each.header.frame_id.lstrip("/"), child, time_ns, (moved.x, moved.y, moved.z), rotation)
            self.frames.setdefault(child, FrameHistory()).take(place)

    def names(self) -> list[str]:
        return sorted({*self.frames, *(each.parent for each in self.frames.values())})

    def parents(self) -> Mapping[str, tuple[str, bool]]:
        """Child -> parent, and whether the transform is static."""
        return self._node.do(lambda: {name: (each.parent, each.is_static) for name, each in self.frames.items()})

    def lookup(self, target: str, source: str, time_ns: int | None = None, timeout: float = 1.0) -> Transform:
        """From `source` into `target`; UsageError says which frame is missing or not connected."""
        target, source = target.lstrip("/"), source.lstrip("/")
        found = self._node.wait_until(lambda: self._try(target, source, time_ns), timeout)
        if found is None:
            raise UsageError(self._node.do(lambda: self._problem(target, source, time_ns)))
        return found

    def _try(self, target: str, source: str, time_ns: int | None) -> Transform | None:
        ups = self._chain(source), self._chain(target)
        common = next((name for name in ups[0] if name in ups[1]), None)
        if common is None or {target, source} - {*self.names()}:
            return None
        path = [name for up in ups for name in up[: up.index(common)]]
        moment = self._common_time(path) if time_ns is None else time_ns
        up, down = (self._climb(up[: up.index(common)], moment) for up in ups)
        return None if up is None or down is None else self._joined(target, source, up, down)

    def _joined(self, target: str, source: str, up: list[Transform], down: list[Transform]) -> Transform:
        whole = Transform(source, source, STATIC, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))
        for step in up:
            whole = combined(step, whole)
        for step in reversed(down):
            whole = combined(inverse(step), whole)
        return whole._replace(target=target)

    def _chain(self, frame: str) -> list[str]:
        """A frame and those above it."""
        chain = [frame]
        while (history := self.frames.get(chain[-1])) is not None and history.parent not in chain:
            chain.append(history.parent)
        return chain

    def _common_time(self, path: list[str]) -> int | None:
        """The latest time at which all moving frames of a path are known."""
        times = [self.frames[name].entries[-1].time_ns for name in path if not self.frames[name].is_static]
        return min(times, default=None)

    def _climb(self, path: list[str], time_ns: int | None) -> list[Transform] | None:
        steps = [self.frames[name].at(time_ns) for name in path]
        found = [step for step in steps if step is not None]
        return found if len(found) == len(steps) else None

    def _problem(self, target: str, source: str, time_ns: int | None) -> str:
        names = self.names()
        for frame in (source, target):
            if frame not in names:
                guess = did_you_mean(frame, names)
                return f"no frame {frame!r}{guess}{' ' if guess else '; '}{listed(names)}"
        if not {*self._chain(source)} & {*self._chain(target)}:
            return f"frames {source!r} and {target!r} are not connected: they are in different trees"
        return f"no transform from {source!r} to {target!r} at {time_ns} ns: outside the last ten seconds"
