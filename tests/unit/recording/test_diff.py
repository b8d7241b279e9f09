"""`microsim diff`: two bags are called identical only when nothing that is known of them speaks against it."""

from __future__ import annotations

from pathlib import Path

from microsim.recording.bag_io import open_bag
from microsim.recording.compare import BagComparison, diff
from microsim.recording.recorder import Recorder
from microsim.scenario import load_scenario
from microsim.simulation import Simulation
from tests.recording_support import WORLD, record


def compared(one: Path, other: Path) -> BagComparison:
    return diff(open_bag(one), open_bag(other))


def test_runs_of_different_seeds_are_different_though_what_was_recorded_is_the_same(tmp_path: Path) -> None:
    record(tmp_path / "a", ticks=30, seed=1, topics=("/clock",))
    record(tmp_path / "b", ticks=30, seed=2, topics=("/clock",))
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.difference is None
    assert not found.is_identical
    assert found.summary() == (
        "different seeds (1 and 2); the messages in both are the same, but the digests of all messages differ"
    )


def test_the_first_sentence_says_what_differs(tmp_path: Path) -> None:
    record(tmp_path / "a", ticks=5)
    record(tmp_path / "b", ticks=5, seed=9)
    bigger = load_scenario(WORLD).to_dict() | {"physics_hz": 120}
    with Recorder(tmp_path / "c", sim := Simulation(bigger, 9)) as recorder:
        recorder.on_messages(sim.step(5))
    first = str(compared(tmp_path / "a", tmp_path / "b")).splitlines()[0]
    assert first == "different seeds (3 and 9); the first message that differs is /sim/info at 0 s"
    first = str(compared(tmp_path / "b", tmp_path / "c")).splitlines()[0]
    assert first.startswith("different scenario settings (physics_hz: 60 and 120); the first message that differs is ")


def test_bags_without_a_common_topic_are_compared_by_their_digests(tmp_path: Path) -> None:
    record(tmp_path / "a", ticks=5, topics=("/drone/odom",))
    record(tmp_path / "b", ticks=5, topics=("/rover/odom",))
    record(tmp_path / "c", ticks=5, topics=("/rover/odom",), seed=9)
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.is_identical
    assert str(found).startswith("identical in the topics of both: ")
    assert "the digest, which covers all topics, is the same" in found.notes
    assert not compared(tmp_path / "a", tmp_path / "c").is_identical


def test_a_command_that_only_one_run_took_is_a_difference_though_no_message_shows_it(tmp_path: Path) -> None:
    for name in "ab":
        sim = Simulation(WORLD, 3)
        with Recorder(tmp_path / name, sim) as recorder:
            recorder.on_messages(sim.step(10))
            if name == "b":
                sim.command("drone", vx=1.0)  # after the last tick
    found = compared(tmp_path / "a", tmp_path / "b")
    assert not found.is_identical
    assert str(found).startswith("different, although version, scenario and seed are the same; ")
    assert "has nothing on /drone/cmd_vel" in str(found)


def test_the_same_run_is_identical_also_when_some_topics_were_left_out(tmp_path: Path) -> None:
    record(tmp_path / "a", ticks=30)
    record(tmp_path / "b", ticks=30, exclude=("/tf",))
    assert str(compared(tmp_path / "a", tmp_path / "a")).startswith("identical: ")
    found = compared(tmp_path / "a", tmp_path / "b")
    assert found.is_identical
    assert str(found).startswith("identical in the topics of both: ")
