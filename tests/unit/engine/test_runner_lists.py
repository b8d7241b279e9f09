"""What joins a run is in lists: any number of sources, gates, overrides, pilots and listeners, in a known order."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import microsim
from microsim.engine.schedule import Command
from microsim.errors import UsageError
from microsim.runner import Runner

EMPTY = {"map": {"size_xy_cells": [40, 40]}, "robots": {"rover": {}}}


class TurnedClock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


def runner_of(rtf: float = 0.0, **changes: Any) -> Runner:
    return Runner(microsim.Simulation({**EMPTY, **changes}, seed=1), rtf, clock=TurnedClock())


def noting(log: list[str], name: str, answer: Any = None) -> Callable[..., Any]:
    def note(*_: object) -> Any:
        log.append(name)
        return answer

    return note


def test_a_tick_asks_sources_gates_and_overrides_and_gives_its_messages_to_pilots_and_then_to_listeners() -> None:
    runner, log = runner_of(), list[str]()
    for name in ("source 1", "source 2"):
        runner.sources.append(noting(log, name))
    for name in ("gate 1", "gate 2"):
        runner.gates.append(noting(log, name, True))
    for name in ("override 1", "override 2"):
        runner.overrides.append(noting(log, name))
    for name in ("listener 1", "listener 2"):
        runner.listen(messages=noting(log, name))
    for name in ("pilot 1", "pilot 2"):
        runner.steer(lambda sim, name=name: noting(log, name))
    runner.run(0)
    first = ["pilot 1", "pilot 2", "listener 1", "listener 2"]
    assert log == first  # tick 0
    log.clear()
    runner.run(1)
    before = ["source 1", "source 2", "gate 1", "gate 2", "override 1", "override 2"]
    assert log[len(first) :] == [*before, *first]


def test_a_tick_begins_when_every_gate_is_open_and_none_is_asked_behind_a_closed_one() -> None:
    runner, asked = runner_of(), list[str]()
    closed = {"left": 3, "right": 2}

    def gate(name: str) -> Callable[[], bool]:
        def is_open() -> bool:
            asked.append(name)
            closed[name] -= 1
            return closed[name] < 0

        return is_open

    runner.gates += [gate("left"), gate("right")]
    runner.run(1)
    assert runner.sim.tick == 1
    assert asked == ["left"] * 4 + ["right"] + ["left", "right"] * 2
    runner.gates.append(lambda: False)
    assert runner.step(5) == 0


def test_several_sources_share_the_wait_and_each_gives_its_inputs() -> None:
    runner, waits = runner_of(1.0), {"a": list[float](), "b": list[float]()}

    def source(name: str, v: float) -> Callable[[float], None]:
        def take(seconds: float) -> None:
            waits[name].append(seconds)
            runner.clock.sleep(seconds)
            if not seconds:
                runner.sim.command("rover", v=v)

        return take

    runner.sources += [source("a", 0.5), source("b", 1.5)]
    taken: list[Any] = []
    runner.listen(inputs=lambda tick, item: taken.append(item.values))
    runner.run(3)
    assert [values[0] for values in taken] == [0.5, 1.5] * 3  # in the order of the sources: the last holds
    assert waits["a"] == waits["b"]
    assert 0.0 < max(waits["a"]) <= 0.025


def test_an_override_has_the_last_word_whatever_commands_and_however_late() -> None:
    """Also over replies that a gate hands over when it opens."""
    runner, taken = runner_of(), list[tuple[int, float]]()
    runner.listen(inputs=lambda tick, item: taken.append((tick, item.values[0])) if isinstance(item, Command) else None)

    def opens() -> bool:
        runner.sim.command("rover", v=0.3)
        return True

    runner.sources.append(lambda seconds: runner.sim.command("rover", v=0.1) and None)
    runner.gates.append(opens)
    runner.steer(lambda sim: lambda messages: sim.command("rover", v=0.2) and None)
    runner.overrides.append(lambda: runner.sim.command("rover", v=2.0) and None)
    runner.run(3)
    by_tick: dict[int, list[float]] = {}
    for tick, v in taken:
        by_tick.setdefault(tick, []).append(v)
    assert by_tick == {0: [0.2, 0.1, 0.3, 2.0], 1: [0.2, 0.1, 0.3, 2.0], 2: [0.2, 0.1, 0.3, 2.0], 3: [0.2]}


def test_an_override_without_anything_to_override_adds_no_input() -> None:
    runner, taken = runner_of(), list[Any]()
    runner.overrides.append(lambda: runner.sim.command("rover", v=2.0) and None)
    runner.listen(inputs=lambda tick, item: taken.append(item))
    runner.run(60)
    assert taken == []


@pytest.mark.parametrize(("periods_s", "longest"), [((), 64), ((0.5,), 30), ((0.5, 0.25, 9.0), 15), ((0.001,), 1)])
def test_ticks_run_at_once_are_no_more_than_every_listener_agrees_to(periods_s: Sequence[float], longest: int) -> None:
    runner, ticks = runner_of(), [0]
    for period in periods_s:
        runner.listen(messages=lambda messages: None, every_s=period)
    runner.listen(messages=lambda messages: ticks.append(runner.sim.tick))
    runner.run(1200)
    assert max(later - sooner for sooner, later in itertools.pairwise(ticks)) == longest


@pytest.mark.parametrize("is_other", [False, True])
def test_a_restart_reaches_every_listener_with_pilots_that_are_already_new(is_other: bool) -> None:
    runner = runner_of()
    made: list[Any] = []
    runner.steer(lambda sim: made.append(sim) or (lambda messages: None))
    runner.steer(lambda sim: None)
    heard: list[tuple[str, int, int]] = []
    for name in ("first", "second"):
        runner.listen(restarts=lambda sim, name=name: heard.append((name, sim.tick, len(made))))
    before = runner.sim
    runner.run(10)
    if is_other:
        runner.load(microsim.load_scenario({**EMPTY, "name": "other"}))
    else:
        runner.reset(5)
    assert heard == [("first", 0, 2), ("second", 0, 2)]
    assert (runner.sim is not before) is is_other
    assert made == [before, runner.sim]
    assert len(runner.pilots) == 1
    assert runner.sim.seed == (runner.sim.scenario.seed if is_other else 5)


def test_a_jump_in_time_is_no_restart() -> None:
    runner = runner_of()
    calls: list[str] = []
    runner.listen(restarts=noting(calls, "restart"), jumps=noting(calls, "jump"))
    pilots = runner.pilots[:]
    runner.run(10)
    snapshot = runner.sim.snapshot()
    runner.run(10)
    runner.sim.restore(snapshot)
    runner.jump()
    assert calls == ["jump"]
    assert runner.pilots == pilots
    runner.run(10)
    assert runner.sim.tick == 20


def test_a_simulation_that_is_refused_changes_nothing() -> None:
    runner = runner_of()
    pilot = noting([], "pilot")
    runner.steer(lambda sim: pilot)
    calls: list[str] = []
    runner.listen(restarts=noting(calls, "restart"))

    def refuse(sim: microsim.Simulation) -> None:
        if sim.scenario.name == "bad":
            raise UsageError("not this one")

    runner.checks.append(refuse)
    runner.run(10)
    before = runner.sim, runner.sim.digest()
    with pytest.raises(UsageError, match="not this one"):
        runner.load(microsim.load_scenario({**EMPTY, "name": "bad"}))
    assert (runner.sim, runner.sim.digest()) == before
    assert (calls, runner.pilots) == ([], [pilot])
    runner.run(10)
    assert runner.sim.tick == 20


def test_what_is_set_for_the_next_start_goes_through_every_change_in_order() -> None:
    runner = runner_of()
    runner.start_changes.append(lambda start: start.model_copy(update={"name": start.name + " a"}))
    runner.start_changes.append(lambda start: start.model_copy(update={"name": start.name + " b"}))
    name = runner.sim.scenario.name
    runner.run(5)
    runner.reset()
    assert runner.sim.scenario.name == f"{name} a b"
    assert runner.sim.tick == 0
