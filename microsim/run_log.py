"""What a run has to say beside its messages: warnings and events, counted where they repeat.

Viewers and logs read them from time to time; the run never waits, old ones are dropped, and no message depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["info", "warn", "error"]

MOST = 200  # kinds that wait to be taken; the oldest go first
LONGEST = 300  # characters of a text


@dataclass(frozen=True)
class Note:
    """`count` times, the last one at `seconds` of simulated time."""

    seconds: float
    level: Level
    text: str
    kind: str  # notes of one kind are one line, with the newest text
    count: int = 1


class Notes:
    """Notes since they were last taken, one of a kind, in the order of their last time."""

    def __init__(self) -> None:
        self._waiting: dict[str, Note] = {}
        self._lost = 0

    def add(self, note: Note) -> None:
        before = self._waiting.pop(note.kind, None)
        count = note.count + (0 if before is None else before.count)
        text = note.text if len(note.text) <= LONGEST else note.text[: LONGEST - 1] + "…"
        self._waiting[note.kind] = Note(note.seconds, note.level, text, note.kind, count)
        if len(self._waiting) > MOST:
            self._lost += self._waiting.pop(next(iter(self._waiting))).count

    def take(self) -> tuple[Note, ...]:
        found = tuple(self._waiting.values())
        if self._lost:
            words = "notes of other kinds were thrown away: there were too many"
            found = (Note(found[0].seconds, "warn", words, "lost notes", self._lost), *found)
        self._waiting, self._lost = {}, 0
        return found
