"""Radio packets as pulses between robots: what arrives runs all the way, what is lost goes out half-way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from microsim.view.web.interface import Frame

_PULSE_S = 0.7  # the real 80 ms could not be seen
_MOST = 24
_MOST_LINES = 15  # between robots: those of six
_ARRIVING, _LOST = (0, 214, 143), (255, 59, 48)


@dataclass
class Pulse:
    sender: str
    receiver: str
    is_lost: bool
    began_s: float


class Packets:
    def __init__(
        self, server: Any, scale: float, clock: Callable[[Frame], float] = lambda frame: time.monotonic()
    ) -> None:
        self._clock = clock
        self._pulses: list[Pulse] = []
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        self._line = server.scene.add_line_segments(
            "/radio/line",
            np.zeros((1, 2, 3), np.float32),
            colors=(0, 180, 130),
            thickness=1.0,
            thickness_units="screen",
        )
        self._cloud = server.scene.add_point_cloud(
            "/radio/packets",
            np.zeros((1, 3), np.float32),
            colors=_ARRIVING,
            point_size=0.2 * min(max(scale, 1.0), 2.5),
            point_shape="circle",
            precision="float32",
            visible=False,
        )

    def hear(self, frame: Frame, is_new: bool) -> None:
        now = self._clock(frame)
        for link in frame.links:
            key = link.sender, link.receiver
            delivered, lost = self._counts.get(key, (link.delivered, link.lost))
            self._counts[key] = link.delivered, link.lost
            if is_new or frame.is_past:
                continue
            for _ in range(min(link.delivered - delivered, 4)):
                self._pulses.append(Pulse(link.sender, link.receiver, False, now))
            for _ in range(min(link.lost - lost, 4)):
                self._pulses.append(Pulse(link.sender, link.receiver, True, now))
        del self._pulses[:-_MOST]

    def draw(self, frame: Frame) -> None:
        now = self._clock(frame)
        self._pulses = [pulse for pulse in self._pulses if now - pulse.began_s < _PULSE_S]
        robots = frame.robots
        pairs = {tuple(sorted((link.sender, link.receiver))) for link in frame.links if link.sent}
        if len(pairs) > _MOST_LINES:  # then only where something is on its way
            pairs = {tuple(sorted((pulse.sender, pulse.receiver))) for pulse in self._pulses}
        ends = [[robots[a].position, robots[b].position] for a, b in sorted(pairs) if a in robots and b in robots]
        if ends:
            self._line.points = np.array(ends, np.float32) + np.array([0, 0, 0.2], np.float32)
        self._line.visible = bool(ends)
        self._cloud.visible = bool(self._pulses)
        if not self._pulses:
            return
        points, colours = [], []
        for pulse in self._pulses:
            way = (now - pulse.began_s) / _PULSE_S * (0.5 if pulse.is_lost else 1.0)
            start, end = np.array(robots[pulse.sender].position), np.array(robots[pulse.receiver].position)
            points.append(start + way * (end - start) + (0, 0, 0.2))
            colours.append(_LOST if pulse.is_lost else _ARRIVING)
        self._cloud.points = np.array(points, np.float32)
        self._cloud.colors = np.array(colours, np.uint8)
