"""What the panels around the scene show: a small JSON message for each frame, over a websocket of our own.

Also what the plots show, on the page and in a file: one point for each step of the way.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from microsim.messages import decode
from microsim.parts.view.run_state import LinkState, numbers
from microsim.parts.view.web.interface import KINDS, News, PageFrame, PageScene, SensorLook, Step
from microsim.parts.view.web.page.access import bounded_requests
from microsim.parts.view.web.page.stage import LAYERS, Stage3D
from microsim.runner import Note

_PERIOD_S = 1.0 / 15.0  # between two messages to a page
_PLOT_S = {"live": 130.0, "replay": 600.0}  # simulated time that is kept for the plots
_LOG_LINES = 200
_STEP_S = 0.1  # simulated, between two points of a plot
_MOST_LINKS = 12  # with more of them there is one line for each sender
_MOST_NUMBERS = 120_000  # in a file: half a megabyte
_MOST_BYTES = 4096  # of a message whose numbers can be plotted


class LogLine(NamedTuple):
    """A line of the log."""

    version: int
    number: int  # of the line, for good
    seconds: float
    level: str
    text: str
    times: int


class Panels:
    """`request(page, kind, value)` is called with the requests of pages, from the thread of the server."""

    def __init__(self, request: Callable[[str, str, Any], None]) -> None:
        self._request = request
        self._pages: dict[ServerConnection, asyncio.Event] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._scene: dict[str, Any] = {}
        self._shown: PageScene | None = None
        self._state: dict[str, Any] = {}
        self._images: dict[str, tuple[int, str]] = {}
        self._fields: dict[str, dict[str, Any]] = {}  # topic -> its sensor and the fields that can be plotted
        self._chosen: set[str] = set()  # topics of which a page plots further fields
        self._plot: deque[tuple[int, float, dict[str, Any]]] = deque()  # number, time, point; as they came
        self._slots: set[int] = set()  # of time, for which there is a point
        self._points = 0
        self._plot_epoch = 0  # another number: some were taken back
        self._log: dict[str, LogLine] = {}  # by kind, the latest last
        self._lines = 0
        self._epoch = -1
        self._progress = (0, "")  # number, what the run is busy with
        self._is_watched = False
        self._has_ended = False
        self._ended: set[ServerConnection] = set()  # pages that know it
        self.layers = dict(LAYERS)

    # ---- from the run, in the thread that draws ----------------------------------------------------------------------

    def begin(self, scene: PageScene, stage: Stage3D) -> None:
        with self._lock:
            self._scene = {
                "type": "scene",
                "scenario": scene.scenario,
                "title": scene.title,
                "mode": scene.mode,
                "hz": scene.physics_hz,
                "about": scene.about,
                "choices": {kind: list(names) for kind, names in scene.choices.items()},
                "chosen": scene.chosen,
                "ground": stage.ground,
                "splats": stage.splats,
                "scale": stage.scale,
                "layers": {name: self.layers[name] for name in stage.layers},
                "robots": [
                    {"name": each.name, "model": each.model, "colour": stage.colours[each.name], "limits": each.limits}
                    for each in scene.robots
                ],
                "kinds": sorted({look.layer for look in scene.sensors if look.layer}),
                "cameras": [look.topic for look in scene.sensors if look.layer == "image"],
                "plots": sensor_plots(scene),
            }
            if scene is not self._shown:  # else only robots are drawn larger
                self._shown, self._state = scene, {}
                self._chosen &= {look.topic for look in scene.sensors}  # still plotted when a demo starts again
                for kept in (self._images, self._fields, self._plot, self._slots):
                    kept.clear()
        self._wake()

    def update(self, frame: PageFrame, stage: Stage3D) -> None:
        with self._lock:
            if frame.epoch != self._epoch:
                self._epoch = frame.epoch
                self._take_back(frame.time_ns / 1e9)
            for note in frame.log:
                self._take_note(note)
            for topic, text in stage.sensors.problems.items():
                if topic not in self._log:
                    self._take_note(Note(frame.time_ns / 1e9, "warn", text, topic))
            self._take_fields(frame, stage.scene)
            self._take_images(stage)
            self._state = _state(frame, stage)
            for step in frame.way:
                self._plot_step(step)
        self._wake()

    def _take_back(self, seconds: float) -> None:
        """Later points have not happened; those of a recording will again."""
        if self._scene.get("mode") == "replay":
            return
        kept = [each for each in self._plot if each[1] <= seconds]
        if len(kept) < len(self._plot):
            self._plot, self._plot_epoch = deque(kept), self._plot_epoch + 1

    def _plot_step(self, step: Step) -> None:
        seconds, mode = step.time_ns / 1e9, self._scene.get("mode", "live")
        slot = round(seconds / _STEP_S)
        if slot in self._slots if mode == "replay" else self._plot and seconds - self._plot[-1][1] < _STEP_S - 1e-3:
            return
        self._points += 1
        self._slots.add(slot)
        looks = self._shown.sensors if self._shown is not None else ()
        self._plot.append((self._points, seconds, point(step, looks, self._chosen)))
        if len(self._plot) > _PLOT_S[mode] / _STEP_S:
            self._slots.discard(round(self._plot.popleft()[1] / _STEP_S))

    def _take_note(self, note: Note) -> None:
        """One line for all of a kind: the newest text, how often, at the end."""
        before = self._log.pop(note.kind, None)
        self._lines += 1
        number, count = (self._lines, 0) if before is None else (before.number, before.times)
        self._log[note.kind] = LogLine(self._lines, number, note.seconds, note.level, note.text, count + note.count)
        if len(self._log) > _LOG_LINES:
            del self._log[next(iter(self._log))]

    def _take_images(self, stage: Stage3D) -> None:
        for layer in stage.sensors.layers:
            known = self._images.get(layer.look.topic, (-1, ""))[0]
            if layer.image is not None and known != layer.stamp_ns:
                self._images[layer.look.topic] = layer.stamp_ns, _png(layer.image)

    def _take_fields(self, frame: PageFrame, scene: PageScene) -> None:
        """What can be plotted of a sensor is known from its first message."""
        for look in scene.sensors:
            news = frame.news.get(look.topic)
            if look.topic not in self._fields and news is not None and len(news.cdr) <= _MOST_BYTES:
                self._fields[look.topic] = found = _fields_of(look, news)
                paths = [plot["kind"].partition(":")[2] for plot in found["plots"]]
                for path in set(look.plot) - set(paths):
                    text = f"{look.topic}: {news.type} has no number {path!r} to plot; there are: {', '.join(paths)}"
                    self._take_note(Note(frame.time_ns / 1e9, "warn", text, text))

    def report(self, text: str) -> None:
        with self._lock:
            self._progress = self._progress[0] + 1, text
        self._wake()

    def plot(self, topic: str) -> None:
        """From now on, points have every number of this topic's messages."""
        if topic in self._fields:
            self._chosen.add(topic)

    def end(self, patience_s: float = 1.5) -> None:
        """Tell all pages that the run is over; wait a moment until they know."""
        self._has_ended = True
        self._wake()
        until = time.monotonic() + patience_s
        while not self._ended.issuperset(list(self._pages)) and time.monotonic() < until:
            time.sleep(0.01)  # messages are sent on another thread's loop, which is about to end

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
        if not self._is_watched:
            self._is_watched = True
            self._request(page, "watched", None)
        try:
            async for text in bounded_requests(connection):
                self._receive(page, text)
        finally:
            sender.cancel()
            del self._pages[connection]

    async def _send(self, connection: ServerConnection, news: asyncio.Event) -> None:
        """The newest, as fast as this page takes it."""
        known: dict[str, Any] = {"scene": None, "line": 0, "images": {}, "plot": 0, "fields": 0}
        try:
            while True:
                await news.wait()
                news.clear()
                is_last = self._has_ended  # looked at first: what came before the end is sent before it
                for text in self._unknown_to(known):
                    await connection.send(text)
                if is_last:
                    await connection.send('{"type": "end"}')
                    self._ended.add(connection)
                    await connection.close(1001, "the run has ended")
                    return
                await asyncio.sleep(_PERIOD_S)
        except ConnectionClosed:
            return

    def _unknown_to(self, known: dict[str, Any]) -> list[str]:
        with self._lock:
            found: list[dict[str, Any]] = []
            number, text = self._progress
            if known.get("progress", 0) != number:
                known["progress"] = number
                found.append({"type": "progress", "text": text})
            if self._scene and known["scene"] is not self._scene:
                known.update(scene=self._scene, images={}, epoch=None, fields=0)
                found.append(self._scene)
            if not self._state:
                return [json.dumps(each) for each in found]
            lines = [line[1:] for line in self._log.values() if line.version > known["line"]]
            known["line"] = self._lines
            for topic, (stamp, data) in self._images.items():
                if known["images"].get(topic) != stamp:
                    known["images"][topic] = stamp
                    found.append({"type": "image", "topic": topic, "stamp": stamp / 1e9, "png": data})
            if known["fields"] != len(self._fields):
                known["fields"] = len(self._fields)
                found.append({"type": "fields", "sensors": list(self._fields.values())})
            found.append({**self._state, "log": lines, "layers": self.layers, "plot": self._new_points(known)})
            return [json.dumps(each) for each in found]

    def _new_points(self, known: dict[str, Any]) -> dict[str, Any]:
        """Points since the last time; after some were taken back, all of them."""
        is_whole = known.get("epoch") != self._plot_epoch
        points = [each for number, _, each in self._plot if is_whole or number > known["plot"]]
        known["plot"], known["epoch"] = self._points, self._plot_epoch
        return {"whole": is_whole, "points": points}

    def _receive(self, page: str, text: str | bytes) -> None:
        try:
            message = json.loads(text)
            kind, value = message["kind"], message.get("value")
            if kind in KINDS:
                self._request(page, kind, value)
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
            return  # nothing a page sends may do harm


def _png(image: Any) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def _state(frame: PageFrame, stage: Stage3D) -> dict[str, Any]:
    robots: dict[str, Any] = {}
    for name, robot in frame.robots.items():
        robots[name] = {
            "position": [round(each, 3) for each in robot.position], "yaw": round(math.degrees(robot.rpy[2]), 1),
            "speed": finite(robot.speed), "turn": finite(robot.turn), "height": finite(robot.height),
            "contacts": robot.contacts,
            "touching": list(robot.touching),
        }  # fmt: skip
    for layer in stage.sensors.layers:
        if layer.reading is not None:
            robots[layer.look.robot].setdefault("beam", finite(layer.reading))
    return {
        "type": "state", "tick": frame.tick, "time": frame.time_ns / 1e9, "epoch": frame.epoch, "seed": str(frame.seed),
        "next_seed": str(frame.next_seed), "paused": frame.is_paused, "speed": frame.asked_rtf,
        "rtf": round(frame.rtf, 3), "late_ms": round(frame.lateness_ms, 2),
        "worst_ms": round(frame.worst_lateness_ms, 2), "digest": frame.digest, "driven": frame.driven,
        "pilot": frame.has_pilot, "idle": list(frame.idle), "events": [list(each) for each in frame.events],
        "restart_s": finite(frame.restart_s), "past": list(frame.past), "is_past": frame.is_past, "robots": robots,
        "links": [_link(link) for link in frame.links],
    }  # fmt: skip


def _link(link: LinkState) -> dict[str, Any]:
    counts = {"sent": link.sent, "delivered": link.delivered, "lost": link.lost, "queued": link.queued}
    times = {"latency": round(link.latency_ms, 1), "last": round(link.last_latency_ms, 1)}
    return {"from": link.sender, "to": link.receiver, **counts, **times, "rssi": finite(link.rssi_dbm)}


# ---- plots -----------------------------------------------------------------------------------------------------------


def finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def sensor_plots(scene: PageScene) -> list[dict[str, Any]]:
    """What is plotted of the sensors unless others are chosen."""
    plots = [_plot_of(look, path) for look in scene.sensors for path in look.plot]
    return list({plot["kind"]: plot for plot in plots}.values())


def _plot_of(look: SensorLook, path: str) -> dict[str, Any]:
    words = (f"{look.name} {path}" if path != look.name else path).replace("_", " ")
    return {"kind": f"{look.name}:{path}", "title": words[:1].upper() + words[1:], "unit": look.units.get(path, "")}


def _fields_of(look: SensorLook, news: News) -> dict[str, Any]:
    """Every number of a topic's messages, for the list to choose from; what the sensor measures comes first."""
    paths = [path for path, _ in numbers(decode(news.type, news.cdr))]
    paths.sort(key=lambda path: path not in look.units)
    return {"topic": look.topic, "robot": look.robot, "plots": [_plot_of(look, path) for path in paths]}


def plot_fields(scene: PageScene, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """What can be plotted of these steps."""
    newest = {topic: news for step in steps for topic, news in step.readings.items() if len(news.cdr) <= _MOST_BYTES}
    return [_fields_of(look, newest[look.topic]) for look in scene.sensors if look.topic in newest]


def point(step: Step, sensors: Sequence[SensorLook], chosen: Collection[str] = ()) -> dict[str, Any]:
    """One moment: kind -> name of the line -> value; None where there is nothing to draw.

    `chosen`: topics of which every number is part of it, and not only what is plotted anyway.
    """
    return {
        "t": round(step.time_ns / 1e9, 3),
        "height": {name: finite(each.height) for name, each in step.robots.items()},
        "speed": {name: finite(each.speed) for name, each in step.robots.items()},
        **_radio(step.links),
        **_readings(step, sensors, chosen),
    }


def _readings(step: Step, sensors: Sequence[SensorLook], chosen: Collection[str]) -> dict[str, Any]:
    found: dict[str, dict[str, float | None]] = {}
    for look in sensors:
        news = step.readings.get(look.topic)
        if news is None or len(news.cdr) > _MOST_BYTES:
            continue
        for path, value in numbers(decode(news.type, news.cdr)):
            if path in look.plot or look.topic in chosen:
                shown = float(f"{value:.6g}") if math.isfinite(value) else None
                found.setdefault(f"{look.name}:{path}", {})[look.robot] = shown
    return found


def _radio(links: Sequence[LinkState]) -> dict[str, Any]:
    groups: dict[str, list[LinkState]] = {}
    for link in links:
        if link.sent:
            to = link.receiver if len(links) <= _MOST_LINKS else "all"
            groups.setdefault(f"{link.sender} → {to}", []).append(link)
    delivered = {name: [each for each in group if each.delivered] for name, group in groups.items()}
    strengths = {name: [each.rssi_dbm for each in group if each.rssi_dbm is not None] for name, group in groups.items()}
    return {
        "latency": {
            name: _mean([each.last_latency_ms for each in group]) for name, group in delivered.items() if group
        },
        "lost": {name: sum(each.lost for each in group) for name, group in groups.items()},
        "rssi": {name: _mean(each) for name, each in strengths.items() if each},
    }


def _mean(values: Sequence[float]) -> float:
    return round(math.fsum(values) / len(values), 1)


def columns(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same by columns, which is smaller: kind -> name -> values. Long runs have fewer points."""
    kinds = list(dict.fromkeys(kind for each in points for kind in each if kind != "t"))
    names = {kind: sorted({name for each in points for name in each.get(kind, ())}) for kind in kinds}
    lines = 1 + sum(map(len, names.values()))
    every = max(1, math.ceil(len(points) * lines / _MOST_NUMBERS))
    kept = points[::every]
    return {
        "t": [each["t"] for each in kept],
        **{
            kind: {name: [_short(each.get(kind, {}).get(name)) for each in kept] for name in names[kind]}
            for kind in kinds
            if names[kind]
        },
    }


def _short(value: float | None) -> float | None:
    """More digits than a plot can show are left out."""
    if value is None:
        return None
    rounded = round(value, 2) if abs(value) >= 1.0 else float(f"{value:.2g}")
    return int(rounded) if rounded == int(rounded) else rounded


def as_script(value: Any) -> str:
    """JSON that may be part of a script in a page."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
