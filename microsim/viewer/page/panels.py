"""What the panels around the scene are told: a small JSON message for each frame, over a websocket of our own."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from microsim.viewer.interface import Frame, Scene, Step
from microsim.viewer.page.scene import LAYERS, Stage3D
from microsim.viewer.page.sensors import CameraView, Fixes, RangeBeam
from microsim.wire import decode

_PERIOD_S = 1.0 / 15.0  # of what panels are told
_PLOT_S, _PLOT_STEP_S = 60.0, 0.1  # simulated: window of the plots, and between their points
_LOG_LINES = 200


class Panels:
    """`wish(page, kind, value)` is called with what pages want, from the thread of the server."""

    def __init__(self, wish: Callable[[str, str, Any], None]) -> None:
        self._wish = wish
        self._pages: dict[ServerConnection, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._scene: dict[str, Any] = {}
        self._state: dict[str, Any] = {}
        self._images: dict[str, tuple[int, str]] = {}
        self._plot: deque[tuple[float, dict[str, Any]]] = deque(maxlen=round(_PLOT_S / _PLOT_STEP_S) + 1)
        self._log: deque[tuple[int, float, str, str]] = deque(maxlen=_LOG_LINES)
        self._lines = 0
        self._epoch = -1
        self.layers = {name: is_shown for name, (is_shown, _) in LAYERS.items()}

    # ---- from the run, in the thread that draws ----------------------------------------------------------------------

    def begin(self, scene: Scene, stage: Stage3D) -> None:
        with self._lock:
            self._scene = {
                "type": "scene",
                "scenario": scene.scenario,
                "title": scene.title,
                "mode": scene.mode,
                "hz": scene.physics_hz,
                "scenarios": list(scene.scenarios),
                "scale": stage.scale,
                "layers": {name: self.layers[name] for name in stage.layers},
                "robots": [
                    {"name": each.name, "model": each.model, "colour": stage.colours[each.name], "limits": each.limits}
                    for each in scene.robots
                ],
                "cameras": [look.topic for look in scene.sensors if look.kind == "camera"],
            }
            self._images.clear()
            self._plot.clear()
            self._state = {}
        self._wake()

    def tell(self, frame: Frame, stage: Stage3D) -> None:
        with self._lock:
            if frame.epoch != self._epoch or frame.is_past:
                self._epoch = frame.epoch
                while self._plot and self._plot[-1][0] > frame.time_ns / 1e9:
                    self._plot.pop()
            for seconds, level, text in frame.log:
                self._lines += 1
                self._log.append((self._lines, seconds, level, text))
            self._take_images(stage)
            self._state = _state(frame, stage)
            for step in frame.way:
                if not self._plot or step.time_ns / 1e9 - self._plot[-1][0] > _PLOT_STEP_S - 1e-3:
                    self._plot.append((step.time_ns / 1e9, _point(step)))
        self._wake()

    def _take_images(self, stage: Stage3D) -> None:
        for topic, sensor in stage.sensors.items():
            known = self._images.get(topic, (-1, ""))[0]
            if isinstance(sensor, CameraView) and sensor.image is not None and known != sensor.stamp_ns:
                self._images[topic] = sensor.stamp_ns, _png(sensor.image)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for news in self._pages.values():
            news.set()

    # ---- a page, in the thread of the server -------------------------------------------------------------------------

    async def serve(self, page: str, connection: ServerConnection) -> None:
        self._loop = asyncio.get_running_loop()
        news = self._pages[connection] = asyncio.Event()
        news.set()
        sender = asyncio.create_task(self._send(connection, news))
        try:
            async for text in connection:
                self._hear(page, text)
        except ConnectionClosed:
            pass
        finally:
            sender.cancel()
            del self._pages[connection]

    async def _send(self, connection: ServerConnection, news: asyncio.Event) -> None:
        """The newest, as fast as this page takes it."""
        known: dict[str, Any] = {"scene": None, "line": 0, "images": {}, "plot": -1.0}
        try:
            while True:
                await news.wait()
                news.clear()
                for text in self._unknown_to(known):
                    await connection.send(text)
                await asyncio.sleep(_PERIOD_S)
        except ConnectionClosed:
            return

    def _unknown_to(self, known: dict[str, Any]) -> list[str]:
        with self._lock:
            found: list[dict[str, Any]] = []
            if self._scene and known["scene"] is not self._scene:
                known.update(scene=self._scene, images={}, plot=-1.0)
                found.append(self._scene)
            if not self._state:
                return [json.dumps(each) for each in found]
            lines = [line for line in self._log if line[0] > known["line"]]
            known["line"] = self._lines
            for topic, (stamp, data) in self._images.items():
                if known["images"].get(topic) != stamp:
                    known["images"][topic] = stamp
                    found.append({"type": "image", "topic": topic, "stamp": stamp / 1e9, "png": data})
            found.append({**self._state, "log": lines, "layers": self.layers, "plot": self._new_points(known)})
            return [json.dumps(each) for each in found]

    def _new_points(self, known: dict[str, Any]) -> dict[str, Any]:
        """Points since the last time; after a jump, all of them."""
        last = self._plot[-1][0] if self._plot else -1.0
        is_whole = known["plot"] < 0.0 or last < known["plot"] or known.get("epoch") != self._epoch
        points = [point for seconds, point in self._plot if is_whole or seconds > known["plot"]]
        known["plot"], known["epoch"] = last, self._epoch
        return {"whole": is_whole, "points": points}

    def _hear(self, page: str, text: str | bytes) -> None:
        try:
            message = json.loads(text)
            kind, value = str(message["kind"]), message.get("value")
            self._wish(page, kind, value)
        except (ValueError, KeyError, TypeError, AttributeError, OSError):
            return  # nothing a page sends may harm


def _png(image: Any) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _state(frame: Frame, stage: Stage3D) -> dict[str, Any]:
    robots: dict[str, Any] = {}
    for name, robot in frame.robots.items():
        robots[name] = {
            "position": [round(each, 3) for each in robot.position],
            "yaw": round(math.degrees(robot.rpy[2]), 1),
            "speed": _finite(robot.speed),
            "turn": _finite(robot.turn),
            "height": _finite(robot.height),
            "contacts": robot.contacts,
        }
    for sensor in stage.sensors.values():
        if isinstance(sensor, (RangeBeam, Fixes)):
            robots[sensor.look.robot].update(sensor.facts)
    return {
        "type": "state",
        "tick": frame.tick,
        "time": frame.time_ns / 1e9,
        "epoch": frame.epoch,
        "seed": str(frame.seed),
        "next_seed": str(frame.next_seed),
        "paused": frame.is_paused,
        "speed": frame.asked_rtf,
        "rtf": round(frame.rtf, 3),
        "late_ms": round(frame.lateness_ms, 2),
        "worst_ms": round(frame.worst_lateness_ms, 2),
        "digest": frame.digest,
        "driven": frame.driven,
        "pilot": frame.has_pilot,
        "past": list(frame.past),
        "is_past": frame.is_past,
        "robots": robots,
        "links": [
            {
                "from": link.sender,
                "to": link.receiver,
                "sent": link.sent,
                "delivered": link.delivered,
                "lost": link.lost,
                "latency": round(link.latency_ms, 1),
                "last": round(link.last_latency_ms, 1),
                "queued": link.queued,
                "rssi": _finite(link.rssi_dbm),
            }
            for link in frame.links
        ],
    }


def _point(step: Step) -> dict[str, Any]:
    """One moment for the plots."""
    ranges = {name: _finite(float(decode(news.type, news.cdr).range)) for name, news in step.ranges.items()}
    names = {(link.sender, link.receiver): f"{link.sender} → {link.receiver}" for link in step.links}
    return {
        "t": round(step.time_ns / 1e9, 3),
        "height": {name: _finite(each.height) for name, each in step.robots.items()},
        "speed": {name: _finite(each.speed) for name, each in step.robots.items()},
        "range": ranges,
        "latency": {
            names[link.sender, link.receiver]: round(link.last_latency_ms, 1) for link in step.links if link.delivered
        },
        "lost": {names[link.sender, link.receiver]: link.lost for link in step.links if link.sent},
    }
