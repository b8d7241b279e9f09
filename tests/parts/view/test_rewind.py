"""Looking back at a live run: any tick of the last minutes, exactly, and the run is none the wiser."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import microsim
from microsim.messages.outbox import Message
from microsim.parts.view.web.controls import EVERY_S, SPAN_S, RewindBuffer
from microsim.parts.view.web.interface import FrameCollector
from microsim.recording.recorder import Recorder
from microsim.runner import Runner

WORLD = {
    "name": "playground",
    "seed": 5,
    "map": {"size_xy_cells": [30, 30]},
    "obstacles": [{"type": "box", "center": [22, 10, 0], "size": [2, 4, 2]}],
    "radio": {"drop_probability": 0.2},
    "robots": {
        "drone": {
            "start": {"map_pose": {"x": 10, "y": 10, "z": 5}},
            "camera": {"hz": 5, "resolution": {"width": 16, "height": 16}},
        },
        "rover": {"start": {"map_pose": {"x": 8, "y": 10, "yaw": 0}}},
    },
}
TICKS = 100


class Wanderer:
    """A pilot with a memory, which talks too: packets that are sent twice would be seen."""

    def __init__(self, sim: microsim.Simulation) -> None:
        self.sim, self.heard, self.dice = sim, 0, random.Random(3)

    def __call__(self, messages: Sequence[Message]) -> None:
        self.heard += len(messages)
        if self.dice.random() < 0.3:
            self.sim.command("drone", vx=self.dice.uniform(-2, 2), vz=0.01 * self.heard % 1.0)
        if self.dice.random() < 0.2:
            self.sim.radio_send("rover", bytes([self.heard % 256]))


class Uncopied(Wanderer):
    def __deepcopy__(self, memo: object) -> object:
        raise TypeError("not I")


class Live:
    """A run with a ring, driven by a pilot and by somebody outside."""

    def __init__(self, pilot: type[Wanderer] | None = Wanderer, faults: Sequence[str] = ()) -> None:
        self.sim = microsim.Simulation({**WORLD, "faults": list(faults)})
        self.runner = Runner(self.sim, 0.0, None if pilot is None else pilot(self.sim))
        self.collector = FrameCollector(self.runner)
        self.collector.scene()
        self.rewind = RewindBuffer(self.runner, self.collector)
        self.digests: dict[int, str] = {}
        self.places: dict[int, list[float]] = {}
        self.runner.listen(messages=self.rewind.on_messages)
        self.runner.listen(messages=self._remember)
        self.runner.publish(self.sim.step(0))

    def _remember(self, messages: Sequence[Message]) -> None:
        self.digests[self.sim.tick] = self.sim.digest()
        self.places[self.sim.tick] = self.sim.rows("rover")[:3]

    def go_on(self, ticks: int) -> None:
        for _ in range(ticks):
            if self.sim.tick % 7 == 3:
                self.sim.command("rover", v=1.0 - 0.02 * self.sim.tick, omega=0.4)
            if self.sim.tick == 41:
                self.sim.set_pose("rover", 12.0, 6.0)
            self.runner.step(1)


@pytest.mark.parametrize("pilot", [Wanderer, None])
def test_every_tick_that_is_looked_at_is_the_one_that_was(pilot: type[Wanderer] | None) -> None:
    live = Live(pilot)
    live.go_on(TICKS)
    newest = live.sim.tick, live.sim.digest()
    for tick in [*range(TICKS), 99, 3, 50]:
        frame = live.rewind.seek(tick)
        assert frame is not None
        assert (frame.tick, frame.digest, frame.is_past) == (tick, live.digests[tick], True)
        assert list(frame.robots["rover"].position) == live.places[tick]
        stamps = [news.stamp_ns for news in frame.news.values()]
        assert max(stamps) <= frame.time_ns
        assert (live.sim.tick, live.sim.digest()) == newest
    assert live.rewind.seek(TICKS) is None
    live.go_on(20)
    unseen = Live(pilot)
    unseen.go_on(TICKS + 20)
    assert live.digests == unseen.digests


def test_the_newest_image_of_then_is_shown() -> None:
    live = Live()
    live.go_on(TICKS)
    frame = live.rewind.seek(50)  # images of 5 Hz are taken every 12 ticks, and arrive a little later
    assert frame is not None
    assert 0.6 <= frame.news["/drone/camera/image_raw"].stamp_ns / 1e9 <= 0.8


@pytest.mark.parametrize("at", [0, 15, 37, 44, 45, 99])
def test_a_branch_goes_on_as_then_from_any_tick(at: int) -> None:
    live = Live()
    live.go_on(TICKS)
    whole = dict(live.digests)
    live.rewind.seek(at)
    assert live.rewind.branch() == f"branched at tick {at}, {at / 60:.2f} s"
    assert (live.sim.tick, live.sim.digest()) == (at, whole[at])
    live.go_on(TICKS - at)  # the pilot from where it was; outside, the same is done again
    assert live.digests == whole
    frame = live.rewind.seek(at + (TICKS - at) // 2)  # and all of it can be looked at once more
    assert frame is not None
    assert frame.digest == whole[frame.tick]


def test_a_command_that_was_lost_is_lost_in_the_past_too() -> None:
    live = Live(None, ["/rover/cmd_vel:loss(1)@0s-5s"])
    live.sim.command("rover", v=1.0)
    live.runner.step(60)
    frame = live.rewind.seek(50)
    assert frame is not None
    assert frame.robots["rover"].position[0] == live.places[0][0]
    live.rewind.branch()
    live.runner.step(10)
    assert live.sim.state("rover").x == live.places[0][0]


def some_faults(seed: int) -> list[str]:
    """One to four faults on what the robots take and send, at any time."""
    dice = random.Random(seed)
    topics = [
        "/rover/cmd_vel",
        "/drone/cmd_vel",
        "/rover/set_pose",
        "/radio/rover_tx",
        "/rover/odom",
        "/drone/imu/data_raw",
    ]
    kinds = ["loss({p})", "delay({s})", "duplication({p})", "reordering({p})"]
    faults = []
    for _ in range(dice.randint(1, 4)):
        first = dice.uniform(0.0, 1.2)
        kind = dice.choice(kinds).format(p=dice.choice([0.3, 0.7, 1]), s=round(dice.uniform(0.02, 0.6), 2))
        faults.append(f"{dice.choice(topics)}:{kind}@{first:.2f}s-{first + dice.uniform(0.1, 1.2):.2f}s")
    return faults


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(each, marks=pytest.mark.slow) for each in range(12, 200))])
def test_with_any_message_faults_every_tick_looked_at_is_the_one_that_was_and_a_branch_goes_on_as_then(
    seed: int,
) -> None:
    faults, ticks = some_faults(seed), 90
    live = Live(Wanderer, faults)
    live.go_on(ticks)
    whole, newest = dict(live.digests), (live.sim.tick, live.sim.digest())
    dice = random.Random(seed)
    for tick in dice.sample(range(ticks), 12):
        frame = live.rewind.seek(tick)
        assert frame is not None
        assert (frame.tick, frame.digest) == (tick, whole[tick]), faults
        assert list(frame.robots["rover"].position) == live.places[tick]
        assert (live.sim.tick, live.sim.digest()) == newest
    at = dice.randrange(1, ticks)
    live.rewind.seek(at)
    live.rewind.branch()
    assert live.sim.digest() == whole[at], faults
    live.go_on(ticks - at)
    assert live.digests == whole, faults


def test_inputs_enter_a_run_only_through_its_message_faults() -> None:
    sim = microsim.Simulation({**WORLD, "faults": ["/rover/cmd_vel:loss(1)@0s-5s"]})
    sim.command("rover", v=1.0)
    assert sim.waiting == ()
    sim.command("drone", vx=1.0)
    assert isinstance(sim.waiting, tuple)  # to look at: an input cannot be put there
    with sim.deaf():
        sim.command("drone", vx=2.0)
    assert len(sim.waiting) == 1


def test_a_branch_forgets_what_came_after_it() -> None:
    live = Live(None)
    live.go_on(TICKS)
    live.rewind.seek(43)
    live.rewind.branch()
    assert live.rewind.span == (0, 43)
    live.sim.command("rover", v=-1.0)
    live.runner.step(20)
    for tick in (30, 42, 43, 44, 50):
        frame = live.rewind.seek(tick)
        assert frame is not None
        assert frame.digest == live.digests[tick]


def test_a_pilot_that_cannot_be_copied_is_reported() -> None:
    live = Live(Uncopied)
    live.go_on(40)
    live.rewind.seek(20)
    assert "its pilot cannot be copied" in live.rewind.branch()
    assert not live.runner.pilots


def test_a_reset_or_other_settings_leave_nothing_to_look_back_at() -> None:
    live = Live(None)
    live.go_on(5)
    live.runner.reset(77)
    live.go_on(3)
    frame = live.rewind.seek(1)
    assert frame is not None
    assert (frame.seed, frame.digest) == (77, live.digests[1])
    live.sim.reconfigure(live.sim.scenario.model_copy(update={"wind": live.sim.scenario.wind}))
    assert live.rewind.seek(1) is None


def test_a_recording_hears_every_input_once_and_none_of_the_past(tmp_path: Path) -> None:
    live = Live(None)
    sim = microsim.Simulation(WORLD)
    runner = live.runner
    runner.restart(sim)
    live.sim = sim
    with Recorder(tmp_path / "bag", sim) as recorder:
        recorder.attach(runner)
        live.collector.scene()
        *others, newest = runner.listeners
        runner.listeners._all = (newest, *others)  # as it is in a run: the recorder before the page
        runner.publish(sim.step(0))
        live.go_on(30)
        taken = recorder.inputs
        assert taken == 4
        live.rewind.seek(17)
        assert recorder.inputs == taken
        sim.reset()
        runner.publish(sim.step(0))
        live.go_on(10)
        assert recorder.inputs == taken + 1
    assert not recorder.error


def test_the_past_is_bounded() -> None:
    live = Live(None)
    ticks = round(60 * (SPAN_S + 5))
    live.runner.step(ticks)
    first, last = live.rewind.span
    assert last == ticks
    assert SPAN_S <= (last - first) / 60 <= SPAN_S + 2 * EVERY_S
