"""The delay line, beside a list in plain Python."""

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from microsim.engine.delay_line import (
    DelayLine,
    Latency,
    delay_at,
    most_under_way,
    next_leaving,
    pop_due,
    sampled_at,
)
from microsim.engine.delay_line import push as push_into
from microsim.engine.jitter import next_deviation
from microsim.engine.noise import uniforms
from microsim.engine.timekeeper import Trigger
from tests.support import many

ROOT = Path(__file__).resolve().parents[3]
HZ = 60.0
LATENCIES = st.builds(
    Latency,
    st.sampled_from([0.0, 5.0, 80.0, 700.0]),
    st.sampled_from([0.0, 30.0, 300.0]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.just(HZ),
)


class ListOfOneWorld:
    """What a line is meant to do, with nothing but lists."""

    def __init__(self, latency: Latency, key: int) -> None:
        self.latency, self.key = latency, key
        self.before: tuple[float, float] = (0.0, -math.inf)  # deviation, tick
        self.under_way: list[tuple[int, int]] = []  # leaves, sampled at

    def delay_at(self, tick: int) -> int:
        mean, jitter, loss = self.latency.mean_ms, self.latency.jitter_ms, self.latency.drop_probability
        if loss > 0.0 and uniforms(self.key, tick, 1)[0] < loss:
            return -1
        if jitter > 0.0:
            deviation, at = self.before
            elapsed = (tick - at) * 1000.0 / (HZ * jitter)
            self.before = next_deviation(self.key, tick, deviation, elapsed), float(tick)
            mean += jitter * self.before[0]
        return int(max(mean, 0.0) * HZ / 1000.0 + 0.5)

    def push(self, tick: int, delay: int) -> None:
        self.under_way.append((max([tick + delay, *(leaves for leaves, _ in self.under_way)]), tick))

    def pop_due(self, tick: int) -> int:
        """When it was sampled; -1: nothing leaves."""
        if self.under_way and self.under_way[0][0] <= tick:
            return self.under_way.pop(0)[1]
        return -1

    def save(self) -> Any:
        return self.before, list(self.under_way)

    def load(self, saved: Any) -> None:
        self.before, self.under_way = saved[0], list(saved[1])


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["sample", "wait", "clear", "save", "load", "more room"]), st.integers(0, 2), st.integers(0, 40)
    ),
    max_size=60,
)


@settings(max_examples=many(400, 40), deadline=None)
@given(LATENCIES, st.integers(1, 6), ACTIONS, st.integers(0, 2**62))
def test_a_line_of_many_worlds_does_what_a_list_for_each_does(
    latency: Latency, capacity: int, actions: list[tuple[str, int, int]], key: int
) -> None:
    """Worlds have ticks of their own; what leaves has what was put beside it, through wrap-around, growth and saves.

    What was saved is loaded by a line with more or less room.
    """
    keys = np.array([key, key + 1, 7], np.int64)
    line = DelayLine(latency, keys, capacity, ticks_seen=((2,), np.int64))
    lists = [ListOfOneWorld(latency, int(each)) for each in keys]
    now, saved = [0, 1000, 5], None
    for action, world, number in actions:
        mine = lists[world]
        if action == "sample":
            now[world] += 1 + number % 9
            delay = delay_at(line.address, world, now[world])
            assert delay == mine.delay_at(now[world])
            if delay >= 0:
                place = line.push(world, now[world], delay)
                mine.push(now[world], delay)
                line.kept["ticks_seen"][world, place] = now[world], -now[world]
        elif action == "wait":
            now[world] += number
            while (expected := mine.pop_due(now[world])) >= 0:
                place = pop_due(line.address, world, now[world])
                assert sampled_at(line.address, world, place) == expected
                assert line.kept["ticks_seen"][world, place].tolist() == [expected, -expected]
            assert pop_due(line.address, world, now[world]) == -1
        elif action == "clear":
            line.clear([world])
            mine.load(((0.0, -math.inf), []))
        elif action == "save":
            saved = line.save([0, 2]), [lists[w].save() for w in (0, 2)], [now[w] for w in (0, 2)]
        elif action == "load" and saved is not None:
            other = DelayLine(latency, keys, 1 + number % 6, ticks_seen=((2,), np.int64))
            other.load([1], line.save([1]))
            other.load([0, 2], saved[0])
            line = other
            for w, each, tick in zip((0, 2), *saved[1:], strict=True):
                lists[w].load(each)
                now[w] = tick
        elif action == "more room":
            line.make_room(number)
        for w in range(3):
            assert line.times(w) == lists[w].under_way
            assert line.count(w) == len(lists[w].under_way)
            assert next_leaving(line.address, w) == (lists[w].under_way[0][0] if lists[w].under_way else -1)


def history() -> str:
    """What a line does in a thousand ticks, as a digest."""
    dice, latency = np.random.default_rng(4), Latency(80.0, 60.0, 0.2, HZ)
    line, found = DelayLine(latency, dice.integers(0, 2**62, 3), 2), hashlib.sha256()
    for tick in range(1000):
        for world in range(3):
            delay = delay_at(line.address, world, tick)
            if delay >= 0 and dice.random() < 0.3:
                line.push(world, tick, delay)
            found.update(b"%d %d" % (next_leaving(line.address, world), pop_due(line.address, world, tick)))
        found.update(line.queues.tobytes() + line.entries.tobytes())
    return found.hexdigest()


def test_compiled_and_uncompiled_lines_are_the_same() -> None:
    code = "from tests.unit.engine.test_delay_line import history; print(history())"
    flags = {**os.environ, "NUMBA_DISABLE_JIT": "0" if numba.config.DISABLE_JIT else "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, env=flags
    )
    assert done.stdout.strip() == history(), done.stderr


def test_a_full_line_stays_as_it_is() -> None:
    line = DelayLine(Latency(80.0, 0.0, 0.0, HZ), np.array([1, 2]), 2)
    assert [push_into(line.address, 1, tick, 9) for tick in (0, 1, 2)] == [0, 1, -1]
    assert line.times(1) == [(9, 0), (10, 1)]
    assert line.times(0) == []


@settings(max_examples=many(100, 10), deadline=None)
@given(
    LATENCIES.filter(lambda latency: latency.drop_probability < 1.0),
    st.sampled_from([1, 7, 30, 60]),
    st.integers(0, 2**62),
)
def test_no_pipeline_has_more_under_way_than_it_can(latency: Latency, rate: int, key: int) -> None:
    """So compiled code and GPUs, which cannot get more room, never meet a full line."""
    trigger = Trigger(rate, HZ)
    line = DelayLine(latency, np.array([key]), most_under_way(latency, trigger))
    tick, most = 0, 0
    for _ in range(many(2000, 200)):
        delay = delay_at(line.address, 0, tick)
        if delay >= 0:
            assert push_into(line.address, 0, tick, delay) >= 0
        most = max(most, line.count())
        while pop_due(line.address, 0, tick) >= 0:
            pass
        tick = trigger.after(tick)
    assert most <= line.capacity


def test_what_was_saved_can_be_loaded_by_a_line_with_less_room() -> None:
    wide, narrow = (DelayLine(Latency(900.0, 0.0, 0.0, HZ), np.array([1]), capacity) for capacity in (40, 2))
    for tick in range(30):
        wide.push(0, tick, 54)
    narrow.load([0], wide.save([0]))
    assert narrow.times() == wide.times()
