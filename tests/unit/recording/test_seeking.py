"""Going back and forth in a recording never changes what is found there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.parts.missions.demo_pilot import DemoPilot
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_replay import Replay, ReplayTimeline
from microsim.recording.recorder import Recorder
from microsim.runner import Runner
from tests.support import scenario

TICKS = 400
WORLD = scenario(
    robots={"drone": {"start": {"map_pose": {"x": 5, "y": 5, "z": 3}}}, "rover": {}}, wind={"gust_sigma": 0.5}
)


class Changing(DemoPilot):
    """Also changes a setting on the way, and puts a robot elsewhere."""

    def __call__(self, messages: Any) -> None:
        super().__call__(messages)
        if self.sim.tick == 150:
            data = self.sim.scenario.to_dict()
            data["robots"]["rover"]["max_v"] = 0.5
            self.sim.reconfigure(microsim.load_scenario(data))
        if self.sim.tick == 260:
            self.sim.set_pose("rover", 9.0, 9.0, yaw=1.0)


@pytest.fixture(scope="module")
def flight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ReplayTimeline, Any, dict[int, str]]]:
    folder: Path = tmp_path_factory.mktemp("seek") / "bag"
    sim = microsim.Simulation(WORLD)
    found: dict[int, str] = {}
    runner = Runner(sim, 0.0, Changing(sim))
    runner.listen(messages=lambda messages: found.__setitem__(sim.tick, sim.digest()))
    with Recorder(folder, sim) as recorder:
        recorder.attach(runner)
        runner.run(TICKS)
    with Replay(open_bag(folder)) as again:
        yield ReplayTimeline(again, again.sim), again.sim, found


@given(ticks=st.lists(st.integers(-5, TICKS + 20), min_size=1, max_size=8))
@settings(max_examples=25)
def test_any_way_to_a_tick_leads_to_the_recorded_one(
    flight: tuple[ReplayTimeline, Any, dict[int, str]], ticks: list[int]
) -> None:
    seeker, sim, digests = flight
    for tick in ticks:
        seeker.move(tick, lambda messages: None)
        assert sim.tick == min(max(tick, 0), TICKS)
        assert sim.digest() == digests[sim.tick]
        assert seeker.room == TICKS - sim.tick
