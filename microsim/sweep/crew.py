"""Who flies: workers that are given runs and give results, or are lost. Processes of this machine are in `processes`,
those of a Ray cluster in `cluster`; `fly_all` gives each run to somebody until it is done.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from microsim.errors import MicroSimError
from microsim.sweep.flying import Failure
from microsim.sweep.journal import Outcome
from microsim.sweep.metric import Value
from microsim.sweep.plan import Plan

ATTEMPTS = 3  # at a run that a worker did not survive
_MOST_AT_ONCE = 32  # runs handed to a worker
POLL_S = 0.2

Task: TypeAlias = tuple[int, int, int]  # run, combination, seed


class CrewError(MicroSimError):
    """Nobody can fly: workers do not start, the cluster is not there."""


@dataclass(frozen=True)
class Done:
    run: int
    result: Sequence[Value] | Failure


@dataclass(frozen=True)
class Lost:
    """A worker is gone, and another has taken its place."""

    suspects: Sequence[int]  # runs of which one was under way
    others: Sequence[int]  # runs it had not begun
    why: str


class Crew(Protocol):
    size: int

    def has_room(self) -> bool:
        """Whether a worker has little left to do."""

    def give(self, tasks: Sequence[Task]) -> None:
        """To that worker."""

    def wait(self, seconds: float) -> Iterable[Done | Lost]:
        """What has happened, at the latest after so long."""

    def dismiss(self) -> None:
        """At once, whatever they are doing."""


def fly_all(plan: Plan, runs: Iterable[int], crew: Crew, tell: Callable[[str], None]) -> Iterator[Outcome]:
    """The outcome of every run, as they come. `tell` hears of workers that were lost."""
    return _Flights(plan, runs, crew, tell).outcomes()


class _Flights:
    def __init__(self, plan: Plan, runs: Iterable[int], crew: Crew, tell: Callable[[str], None]) -> None:
        self.plan, self.crew, self.tell = plan, crew, tell
        self.waiting = deque(runs)
        self.alone: deque[int] = deque()  # one of them may have ended a worker: each is given by itself
        self.attempts: Counter[int] = Counter()
        self.under_way = 0

    def outcomes(self) -> Iterator[Outcome]:
        while self.waiting or self.alone or self.under_way:
            self._hand_out()
            for event in self.crew.wait(POLL_S):
                yield from self._take(event)

    def _hand_out(self) -> None:
        while (self.waiting or self.alone) and self.crew.has_room():
            runs = self._next()
            self.crew.give([(run, *self.plan.place(run)) for run in runs])
            self.under_way += len(runs)

    def _next(self) -> list[int]:
        """Many at first, few towards the end, so that all workers end together."""
        if not self.waiting:
            return [self.alone.popleft()]
        count = max(1, min(_MOST_AT_ONCE, len(self.waiting) // (4 * self.crew.size)))
        return [self.waiting.popleft() for _ in range(count)]

    def _take(self, event: Done | Lost) -> Iterator[Outcome]:
        if isinstance(event, Lost):
            yield from self._again(event)
            return
        self.under_way -= 1
        result = event.result
        if not isinstance(result, Failure):
            yield Outcome(event.run, result)
        elif result.is_final:
            yield Outcome(event.run, [], result.error)
        else:
            yield from self._tried(event.run, result.error)

    def _again(self, lost: Lost) -> Iterator[Outcome]:
        self.under_way -= len(lost.suspects) + len(lost.others)
        self.waiting.extendleft(reversed(lost.others))
        self.tell(f"a worker was lost and is replaced: {lost.why}")
        if len(lost.suspects) > 1:
            self.alone.extend(lost.suspects)
        for run in lost.suspects if len(lost.suspects) == 1 else ():
            yield from self._tried(run, "a worker died in this run")

    def _tried(self, run: int, error: str) -> Iterator[Outcome]:
        self.attempts[run] += 1
        if self.attempts[run] < ATTEMPTS:
            self.alone.append(run)
        else:
            yield Outcome(run, [], f"{error} ({ATTEMPTS} attempts)")
