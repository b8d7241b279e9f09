"""The two ends of a reliable stream: samples of one writer, for one reader."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_AHEAD = 4096  # numbers beyond the first missing one that are remembered
_MOST_BYTES = 16 * 2**20  # of a sample in fragments


class Arrivals:
    """Of a remote writer. Each sample is taken once, in any order: requests need none."""

    def __init__(self) -> None:
        self.next = 1  # all before it have arrived or never will
        self.acknowledgements = 0
        self._later: set[int] = set()
        self._pieces: dict[int, tuple[bytearray, set[int]]] = {}  # sample -> bytes, fragments that are there

    def take(self, number: int) -> bool:
        """Whether it is new."""
        if number < self.next or number in self._later or number > self.next + _MOST_AHEAD:
            return False
        self._settle((number,))
        return True

    def take_piece(self, number: int, first: int, size: int, total: int, data: bytes) -> bytes | None:
        """A fragment; the whole sample with the last of them."""
        count = -(-total // size) if size else 0
        if number < self.next or number in self._later or total > _MOST_BYTES or not 1 <= first <= count:
            return None
        if number not in self._pieces and len(self._pieces) >= 4:  # an older one will be sent again as a whole
            self._pieces.pop(min(self._pieces))
        whole, there = self._pieces.setdefault(number, (bytearray(total), set()))
        if len(whole) != total:
            return None
        start = (first - 1) * size
        data = data[: total - start]
        whole[start : start + len(data)] = data
        there.update(range(first, first + -(-len(data) // size)))
        if len(there) < count or not self.take(number):
            return None
        del self._pieces[number]
        return bytes(whole)

    def hear(self, first: int, last: int) -> list[int]:
        """A heartbeat: what is still missing."""
        if first > self.next:
            self._later = {number for number in self._later if number >= first}
            self.next = first
            self._settle(())
        return [number for number in range(self.next, min(last, self.next + 255) + 1) if number not in self._later]

    def skip(self, start: int, base: int, listed: Iterable[int]) -> None:
        """A gap."""
        if start <= self.next < base:
            self.next = base
        self._settle(number for number in listed if self.next <= number <= self.next + _MOST_AHEAD)

    def _settle(self, numbers: Iterable[int]) -> None:
        self._later.update(numbers)
        while self.next in self._later:
            self._later.remove(self.next)
            self.next += 1


class Deliveries:
    """For a remote reader: what it has not acknowledged yet. Numbers are counted for each reader alone."""

    FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 3.0

    def __init__(self, limit: int = 1000) -> None:
        self.last = 0
        self.waiting: dict[int, bytes] = {}  # submessages by number
        self.heartbeats = 0
        self.due_s = 0.0  # when to remind the reader
        self._pause_s = self.FIRST_PAUSE_S
        self._limit = limit

    @property
    def first(self) -> int:
        return min(self.waiting, default=self.last + 1)

    def add(self, now: float) -> int:
        """The number of the next one, which is to be put into `waiting`."""
        self.last += 1
        if len(self.waiting) >= self._limit:
            del self.waiting[min(self.waiting)]
        self._pause_s = self.FIRST_PAUSE_S
        self.due_s = now + self._pause_s
        return self.last

    def acknowledge(self, base: int, missing: Iterable[int], now: float) -> list[bytes]:
        """Forget what has arrived; gives what must be sent again."""
        for number in [number for number in self.waiting if number < base]:
            del self.waiting[number]
        self._pause_s = self.FIRST_PAUSE_S
        self.due_s = now + self._pause_s
        return [self.waiting[number] for number in missing if number in self.waiting]

    def is_due(self, now: float) -> bool:
        """Time to ask what has arrived; less and less often."""
        if not self.waiting or now < self.due_s:
            return False
        self._pause_s = min(2.0 * self._pause_s, self.LONGEST_PAUSE_S)
        self.due_s = now + self._pause_s
        return True
