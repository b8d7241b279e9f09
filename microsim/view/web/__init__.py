"""The web page of a run: `with Viewer(runner) as viewer: print(viewer.address); runner.run()`.

The page lives in a process of its own. This side copies facts thirty times a second, when the other is ready for them,
and takes the wishes of pages between two ticks. Nothing here waits, and nothing here changes a run that nobody drives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from microsim.messages.outbox import Message
from microsim.runner import Runner, Watcher
from microsim.view.web.channel import Channel
from microsim.view.web.collector import Collector
from microsim.view.web.controls import Controls, Stage
from microsim.view.web.extra import ViewerError
from microsim.view.web.interface import FRAME_HZ, PageOptions
from microsim.view.web.timeline import Recorded, Ring, Timeline

__all__ = ["PageOptions", "Recorded", "Stage", "Viewer", "ViewerError"]


class Viewer:
    """Shows a run on a page while inside a `with` block."""

    def __init__(
        self,
        runner: Runner,
        options: PageOptions | None = None,
        stage: Stage | None = None,
        timeline: Timeline | None = None,
        **scene: Any,
    ) -> None:
        self.runner = runner
        self._scene_rest = scene
        self._collector = Collector(runner)
        self._ring = Ring(runner, self._collector) if timeline is None else None
        self._timeline: Timeline | None = timeline or self._ring
        self._controls = Controls(runner, self._collector, stage or Stage(), self._timeline)
        self._collector.past = lambda: self._timeline.span if self._timeline is not None else (0, 0)
        self._channel = Channel(options or PageOptions())
        self.address = self._channel.address
        self._last: tuple[Any, ...] = ()
        runner.taps.append(self._tap)
        runner.watchers.append(Watcher(1.0 / FRAME_HZ, self._look))
        self._others, runner.listen = runner.listen, self._listen if runner.listen is not None else None
        if self._ring is not None:
            runner.longest_chunk = min(runner.longest_chunk, 64)
        self._channel.put(self._collector.scene(**scene))

    def forbid_branches(self) -> None:
        """For runs that are recorded: a recording goes one way only."""
        if self._ring is not None:
            self._ring.can_branch = False

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.put(self._collector.frame())  # the last moment, whenever the one before was shown
        self._channel.close()

    def _tap(self, messages: Sequence[Message]) -> None:
        if self._collector.has_changed_scene():
            self._channel.put(self._collector.scene(**self._scene_rest))
        self._collector.tap(messages)
        if self._collector.driven and self.runner.pilot is not None:
            self._controls.insist()
        if self._ring is not None:
            self._ring.tap(messages)

    def _listen(self, seconds: float) -> None:
        if self._others is not None:
            self._others(seconds)
        if self._collector.driven:
            self._controls.insist()

    def _look(self) -> None:
        self._controls.take(self._channel.take())
        if not self._channel.is_free:
            return
        frame = self._controls.shown or self._collector.frame()
        now = (frame.tick, frame.is_past, frame.is_paused, frame.asked_rtf, frame.next_seed, frame.driven, frame.log)
        if (frame.epoch, now) != self._last:
            self._channel.put(frame)
            self._last = frame.epoch, now
