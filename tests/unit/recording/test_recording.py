"""Recordings: read back by the independent `mcap` and `rosbags` readers, and the same bytes for the same run."""

from __future__ import annotations

import json
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap.stream_reader import StreamReader
from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from ruamel.yaml import YAML

from microsim.errors import UsageError
from microsim.recording.bag_io import OwnBag, RecordOptions, open_bag
from microsim.recording.bag_model import BagError
from microsim.recording.mcap import combined
from microsim.recording.recorder import Recorder
from microsim.runner import Runner
from microsim.scenario import load_scenario
from microsim.simulation import Simulation
from tests.recording_support import WORLD, files_of, fly, record

STORAGES: list[dict[str, Any]] = [{}, {"compression": "zstd"}, {"storage": "sqlite3"}]
INPUTS = ("/drone/cmd_vel", "/rover/cmd_vel", "/rover/set_pose", "/radio/drone_tx")


def sent_times(messages: list[Any]) -> list[int]:
    """The simulated time at which each message was sent: that of the clock before it."""
    times, now = [], 0
    for message in messages:
        now = message.stamp_ns if message.topic == "/clock" else now
        times.append(now)
    return times


@pytest.mark.parametrize("options", STORAGES)
def test_rosbags_reads_every_message_in_its_place(tmp_path: Path, options: dict[str, Any]) -> None:
    sent = record(tmp_path / "bag", **options)
    with Reader(tmp_path / "bag") as reader:
        found = [(each.topic, each.msgtype, time, bytes(data)) for each, time, data in reader.messages()]
    published = [entry for entry in found if entry[0] not in INPUTS]
    expected = [(m.topic, m.type, time, m.cdr) for m, time in zip(sent, sent_times(sent), strict=True)]
    assert published == expected
    assert len(found) - len(published) == 19  # two commands and a packet, six times, and a pose


def test_the_mcap_library_reads_every_message_with_its_checksums(tmp_path: Path) -> None:
    sent = record(tmp_path / "bag", split_s=Fraction(1))
    found = []
    files = sorted((tmp_path / "bag").glob("*.mcap"))
    assert len(files) == 3
    for path in files:
        with path.open("rb") as stream:
            reader = make_reader(stream, validate_crcs=True)
            for schema, channel, message in reader.iter_messages():
                assert schema is not None
                assert message.publish_time == message.log_time
                found.append((channel.topic, schema.name, message.log_time, message.data))
        with path.open("rb") as stream:
            assert list(StreamReader(stream, validate_crcs=True).records)
    expected = [(m.topic, m.type, time, m.cdr) for m, time in zip(sent, sent_times(sent), strict=True)]
    assert [entry for entry in found if entry[0] not in INPUTS] == expected


def test_types_in_the_bag_suffice_to_decode_it(tmp_path: Path) -> None:
    record(tmp_path / "bag")
    empty = get_typestore(Stores.EMPTY)
    with Reader(tmp_path / "bag") as reader:
        for each in reader.connections:
            empty.register(
                {
                    name: definition
                    for name, definition in get_types_from_msg(each.msgdef.data, each.msgtype).items()
                    if name not in empty.fielddefs
                }
            )
        for each, _, data in reader.messages():
            assert empty.deserialize_cdr(data, each.msgtype) is not None


def test_the_index_finds_each_topic_alone(tmp_path: Path) -> None:
    sent = record(tmp_path / "bag", ticks=600)
    with (tmp_path / "bag" / "microsim_0.mcap").open("rb") as stream:
        reader = make_reader(stream)
        found = [message.data for _, _, message in reader.iter_messages(topics=["/drone/odom"])]
    assert found == [message.cdr for message in sent if message.topic == "/drone/odom"]


def test_the_bag_tells_scenario_seed_version_and_digest(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    with Recorder(tmp_path / "bag", sim) as recorder:
        fly(sim, recorder.on_messages)
    bag = open_bag(tmp_path / "bag")
    facts = {**bag.run_info.start, **bag.run_info.end}
    assert facts["seed"] == "3"
    assert facts["digest"] == sim.digest()
    assert facts["ticks"] == "120"
    assert load_scenario(json.loads(facts["scenario"])) == sim.scenario
    with (tmp_path / "bag" / "microsim_0.mcap").open("rb") as stream:
        told = {each.name: each.metadata for each in make_reader(stream).iter_metadata()}
    assert told["microsim"]["scenario"] == facts["scenario"]
    assert told["microsim.end"]["digest"] == facts["digest"]
    written = (tmp_path / "bag" / "metadata.yaml").read_text()
    custom = YAML(typ="safe", pure=True).load(written)["rosbag2_bagfile_information"]["custom_data"]
    assert custom["microsim.digest"] == facts["digest"]
    assert custom["microsim.scenario"] == facts["scenario"]


@pytest.mark.parametrize("options", [*STORAGES, {"split_s": Fraction(1, 2)}, {"split_bytes": 40_000}])
@pytest.mark.parametrize("portion", [7, 20])
def test_the_same_run_gives_the_same_bytes(tmp_path: Path, options: dict[str, Any], portion: int) -> None:
    """However the run is handed out, and whatever the folder is called."""
    record(tmp_path / "one", chunk_bytes=30_000, **options)
    record(tmp_path / "another", chunk_bytes=30_000, portion=portion, **options)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "another")


def test_nothing_of_this_machine_is_in_the_bag(tmp_path: Path) -> None:
    import platform

    record(tmp_path / "bag")
    for name, content in files_of(tmp_path / "bag").items():
        assert platform.node().encode() not in content or len(platform.node()) < 4, name
        assert str(tmp_path).encode() not in content, name
    assert json.loads((tmp_path / "bag" / "recording.json").read_text())["host"] == platform.node()


def test_chosen_topics_are_recorded_and_inputs_always(tmp_path: Path) -> None:
    record(tmp_path / "bag", topics=("/drone/*",), exclude=("*/camera/*",))
    with Reader(tmp_path / "bag") as reader:
        topics = {each.topic for each in reader.connections}
    assert topics == {"/drone/odom", "/drone/gps/fix", "/drone/imu/data_raw", *INPUTS}


def test_a_choice_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no topic fits '/dorne/\*'; there are: /clock"):
        Recorder(tmp_path / "bag", Simulation(WORLD), RecordOptions(topics=("/dorne/*",)))


def test_files_are_split_by_size(tmp_path: Path) -> None:
    record(tmp_path / "bag", ticks=600, split_bytes=60_000, chunk_bytes=20_000)
    sizes = [path.stat().st_size for path in sorted((tmp_path / "bag").glob("*.mcap"))]
    assert len(sizes) > 3
    assert max(sizes) < 150_000
    with Reader(tmp_path / "bag") as reader:
        assert reader.message_count == sum(1 for _ in reader.messages())


def test_split_files_begin_at_multiples_of_the_time(tmp_path: Path) -> None:
    record(tmp_path / "bag", split_s=Fraction(1, 2))
    starts = []
    for path in sorted((tmp_path / "bag").glob("*.mcap")):
        with path.open("rb") as stream:
            summary = make_reader(stream).get_summary()
            assert summary is not None
            assert summary.statistics is not None
            starts.append(summary.statistics.message_start_time)
    assert starts == [0, 500_000_000, 1_000_000_000, 1_500_000_000, 2_000_000_000]


@pytest.mark.parametrize("physics_hz", [7, 30, 59.94, 60, 1000, 144.3])
def test_the_tick_of_an_input_is_exact_at_any_rate(tmp_path: Path, physics_hz: float) -> None:
    sim = Simulation({**WORLD, "physics_hz": physics_hz})
    taken = []
    with Recorder(tmp_path / "bag", sim, RecordOptions(topics=("/clock",))) as recorder:
        recorder.on_messages(sim.step(0))
        for portion in (0, 1, 3, 17, 0, 50):
            sim.command("rover", v=float(sim.tick))
            taken.append((sim.tick, float(sim.tick)))
            recorder.on_messages(sim.step(portion))
    bag = open_bag(tmp_path / "bag")
    found = [(time, np.frombuffer(data[4:12], "<f8")[0]) for _, time, data in bag.entries_of({"/rover/cmd_vel"})]
    assert found == [(sim.clock.time_ns(tick), value) for tick, value in taken]


def test_inputs_before_the_recorder_are_in_it(tmp_path: Path) -> None:
    sim = Simulation(WORLD)
    sim.command("rover", v=1.0)
    with Recorder(tmp_path / "bag", sim) as recorder:
        recorder.on_messages(sim.step(3))
    assert len(list(open_bag(tmp_path / "bag").entries_of({"/rover/cmd_vel"}))) == 1


def test_after_a_reset_the_next_bag_begins(tmp_path: Path) -> None:
    runner = Runner(Simulation(WORLD, 3), 0.0)
    recorder = Recorder(tmp_path / "bag", runner.sim)
    recorder.attach(runner)
    runner.run(30)
    digest = runner.sim.digest()
    runner.sim.reset(seed=9)
    runner.restart(runner.sim)
    runner.run(10)
    recorder.close()
    first, second = open_bag(tmp_path / "bag"), open_bag(tmp_path / "bag_run2")
    assert (first.run_info.start["seed"], second.run_info.start["seed"]) == ("3", "9")
    assert first.run_info.end["digest"] == digest
    assert second.run_info.end["ticks"] == "10"


def test_a_recorder_hears_every_tick_whoever_takes_the_messages(tmp_path: Path) -> None:
    record(tmp_path / "tapped")
    sim = Simulation(WORLD, 3)
    before = list(sim.listeners)
    with Recorder(tmp_path / "one", sim), Recorder(tmp_path / "other", sim):
        assert len(list(sim.listeners)) == len(before) + 2
        fly(sim, lambda messages: None, portion=7)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other") == files_of(tmp_path / "tapped")
    assert list(sim.listeners) == before


def test_a_reset_before_the_first_step_is_a_run_of_its_own(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    with Recorder(tmp_path / "bag", sim):
        sim.reset(seed=4)
        sim.step(5)
    seeds = [open_bag(tmp_path / name).run_info.start["seed"] for name in ("bag", "bag_run2")]
    assert seeds == ["3", "4"]
    assert open_bag(tmp_path / "bag_run2").run_info.end["digest"] == sim.digest()


def test_the_next_bag_goes_beside_what_is_there_and_all_are_counted(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    (tmp_path / "bag_run2").write_text("in the way")
    with Recorder(tmp_path / "bag", sim) as recorder:
        for _ in range(3):
            sim.command("rover", v=1.0)
            sent = len(sim.step(5))
            sim.reset()
    assert [folder.name for folder in recorder.folders] == ["bag", "bag_run3", "bag_run4", "bag_run5"]
    ends = [open_bag(folder).run_info.end for folder in recorder.folders]
    assert [end["ticks"] for end in ends] == ["5", "5", "5", "0"]
    assert [end["inputs"] for end in ends] == ["1", "1", "1", "0"]
    assert ends[0]["messages"] == str(sent)
    assert (recorder.messages, recorder.inputs) == (sum(int(end["messages"]) for end in ends), 3)


def test_a_next_bag_that_cannot_begin_is_told_of_by_the_run_and_not_by_the_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Simulation(WORLD, 3)
    recorder = Recorder(tmp_path / "bag", sim)
    sim.step(5)
    monkeypatch.setattr(Recorder, "_next_folder", lambda self: tmp_path / "bag" / "metadata.yaml")
    sim.reset()
    with pytest.raises(BagError, match=r"metadata\.yaml is a file"):
        recorder.on_messages(sim.step(5))
    recorder.close()
    assert open_bag(tmp_path / "bag").run_info.end["ticks"] == "5"


def test_chunks_of_a_few_topics_are_not_smaller_than_they_need_be(tmp_path: Path) -> None:
    """What is left out makes portions full, and not chunks."""
    record(tmp_path / "bag", ticks=600, chunk_bytes=20_000, topics=("/clock",))
    with (tmp_path / "bag" / "microsim_0.mcap").open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None
    starts = [chunk.message_start_time for chunk in summary.chunk_indexes]
    sizes = [chunk.uncompressed_size for chunk in summary.chunk_indexes]
    assert 2 < len(starts) < 6
    assert all(10_000 <= size < 20_000 for size in sizes[1:-1])


def test_a_recording_never_overwrites(tmp_path: Path) -> None:
    record(tmp_path / "bag", ticks=2)
    with pytest.raises(BagError, match="not empty"):
        record(tmp_path / "bag", ticks=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(BagError, match="a file"):
        record(tmp_path / "file", ticks=2)


def test_advance_and_restore_end_a_recording_with_a_reason(tmp_path: Path) -> None:
    sim = Simulation(WORLD)
    recorder = Recorder(tmp_path / "bag", sim)
    recorder.on_messages(sim.step(10))
    sim.advance(5)
    recorder.on_messages(sim.step(1))
    recorder.close()
    assert "cannot be recorded" in recorder.error
    bag = open_bag(tmp_path / "bag")
    assert isinstance(bag, OwnBag)
    assert not bag.is_complete
    assert "cannot be recorded" in bag.run_info.end["reason"]


def test_a_recording_begins_at_the_start(tmp_path: Path) -> None:
    sim = Simulation(WORLD)
    sim.step(5)
    with pytest.raises(UsageError, match="begins at tick 0"):
        Recorder(tmp_path / "bag", sim)


@pytest.mark.parametrize(
    "wrong",
    [{"storage": "tape"}, {"compression": "rar"}, {"storage": "sqlite3", "compression": "zstd"}, {"split_bytes": 0}],
)
def test_impossible_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RecordOptions(**wrong)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_of_parts_make_that_of_the_whole(one: bytes, other: bytes) -> None:
    assert combined(zlib.crc32(one), zlib.crc32(other), len(other)) == zlib.crc32(one + other)
