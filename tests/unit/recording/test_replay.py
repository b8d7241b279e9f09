"""Replays: the same messages again, or the first that differs; bags of others; partial recordings."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from typer.testing import CliRunner, Result

import microsim.recording.inputs as inputs
from microsim.cli import app
from microsim.errors import UsageError
from microsim.messages import decode, encode, new
from microsim.messages.inputs import stamp_of
from microsim.messages.inputs.drive_commands import take_twist
from microsim.messages.inputs.set_pose import take_pose
from microsim.messages.outbox import Message
from microsim.recording.bag_io import RecordOptions, open_bag
from microsim.recording.bag_model import BagError, information
from microsim.recording.bag_plot import _scenario, plot
from microsim.recording.bag_replay import InputPilot, Replay
from microsim.recording.compare import diff, first_field
from microsim.recording.maintenance import repair
from microsim.recording.mcap import McapWriter
from microsim.recording.mcap_reader import McapReader
from microsim.recording.recorder import Recorder
from microsim.recording.state_file import save_state
from microsim.recording.verify import ReplayVerdict
from microsim.runner import Runner
from microsim.scenario import load_scenario
from microsim.scenario.loading import with_values
from microsim.sensors import SENSORS
from microsim.simulation import Simulation
from tests.recording_support import WORLD, files_of, fly, record


def verify(folder: Path) -> ReplayVerdict:
    with Replay(open_bag(folder)) as again:
        return again.verify()


def rerecord(bag: Path, folder: Path, **options: Any) -> None:
    with Replay(open_bag(bag)) as again:
        recorder = Recorder(folder, again.sim, RecordOptions(**options))
        again.run(recorder.on_messages)
        recorder.close()
        assert not recorder.error


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"storage": "sqlite3"}, {"split_bytes": 50_000}])
def test_a_recorded_replay_is_the_recording(tmp_path: Path, options: dict[str, Any]) -> None:
    record(tmp_path / "one", chunk_bytes=20_000, **options)
    rerecord(tmp_path / "one", tmp_path / "two", chunk_bytes=20_000, **options)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert verify(tmp_path / "one").is_identical
    assert diff(open_bag(tmp_path / "one"), open_bag(tmp_path / "two")).difference is None


def test_a_parameter_changed_on_the_way_is_replayed(tmp_path: Path) -> None:
    sim = Simulation(WORLD, 3)
    world = load_scenario(WORLD)
    rover = world.robots["rover"].model_copy(update={"max_v": 0.5})
    camera = world.robots["drone"].model_copy(update={"camera": None})
    changed = world.model_copy(update={"robots": {"drone": camera, "rover": rover}})
    with Recorder(tmp_path / "bag", sim) as recorder:
        sim.command("rover", v=2.0)
        recorder.on_messages(sim.step(20))
        sim.command("rover", v=1.5)
        sim.reconfigure(changed)
        sim.command("drone", vx=1.0)
        recorder.on_messages(sim.step(40))
        sim.reconfigure(world)
        recorder.on_messages(sim.step(40))
    assert verify(tmp_path / "bag").is_identical
    rerecord(tmp_path / "bag", tmp_path / "again")
    assert files_of(tmp_path / "bag") == files_of(tmp_path / "again")


def test_a_parameter_changed_on_the_way_is_replayed_with_several_folders_of_plug_ins(tmp_path: Path) -> None:
    code = """
from microsim.sensors.sensor import PythonSensor
class Count:
    n = 0
    def __init__(self, context): pass
    def update(self, dt): self.n += 1
    def publish(self): return {"data": float(self.n)}
SENSOR = PythonSensor("NAME", "std_msgs/msg/Float64", Count)
"""
    world = {**WORLD, "plugins": [], "robots": {**WORLD["robots"], "rover": {"sensors": {}}}}
    for name in ("left", "right"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(code.replace("NAME", name))
        world["plugins"].append(str(tmp_path / name))
        world["robots"]["rover"]["sensors"][name] = {"type": name, "hz": 10}
    sim = Simulation(world, 4)
    with Recorder(tmp_path / "bag", sim) as recorder:
        recorder.on_messages(sim.step(30))
        sim.reconfigure(with_values(sim.scenario, {"wind.world_xyz": [1.0, 0.0, 0.0]}))
        recorder.on_messages(sim.step(30))
    (tmp_path / "left").rename(tmp_path / "links")
    (tmp_path / "right").rename(tmp_path / "rechts")
    with Replay(open_bag(tmp_path / "bag"), plugin_folders=[tmp_path / "links", tmp_path / "rechts"]) as again:
        assert again.notes == []
        assert again.verify().is_identical


def test_an_elevation_file_travels_in_the_bag(tmp_path: Path) -> None:
    heights = np.random.default_rng(1).uniform(0, 2, (40, 40))
    np.save(tmp_path / "hills.npy", heights)
    world = {**WORLD, "map": {"size_xy_cells": [40, 40], "elevation": {"file": str(tmp_path / "hills.npy")}}}
    for storage in ("mcap", "sqlite3"):
        record(tmp_path / storage, world=world, storage=storage)
    (tmp_path / "hills.npy").unlink()
    for storage in ("mcap", "sqlite3"):
        assert verify(tmp_path / storage).is_identical
        assert str(tmp_path).encode() not in (tmp_path / storage / "metadata.yaml").read_bytes()
        rerecord(tmp_path / storage, tmp_path / f"{storage}_again", storage=storage)
        assert files_of(tmp_path / storage) == files_of(tmp_path / f"{storage}_again")


def test_the_splats_of_an_actor_travel_in_the_bag_and_their_place_changes_nothing(tmp_path: Path) -> None:
    digests = []
    for place in (tmp_path / "here.splat", tmp_path / "there.splat"):
        place.write_bytes(
            np.array([0, 0, 1, 0.3, 0.3, 0.3], "<f4").tobytes() + bytes([200, 90, 30, 250, 255, 128, 128, 128])
        )
        walker = {"model": "actor", "splats": str(place), "start": {"map_pose": {"x": 5.0, "y": 5.0}}}
        world = {**WORLD, "robots": {**WORLD["robots"], "walker": walker}}
        sim = Simulation(world)
        sim.step(30)
        digests.append(sim.digest())
        record(tmp_path / place.stem, world=world)
        place.unlink()
        assert verify(tmp_path / place.stem).is_identical
    assert digests[0] == digests[1]


def test_a_partial_recording_is_verified_on_what_it_holds(tmp_path: Path) -> None:
    sent = record(tmp_path / "bag", topics=("/drone/odom", "/rover/*"))
    verdict = verify(tmp_path / "bag")
    assert verdict.is_identical
    expected = [each for each in sent if each.topic == "/drone/odom" or each.topic.startswith("/rover/")]
    assert verdict.messages == len(expected)
    assert "only some topics" in str(verdict)
    assert "the digest, which covers all topics, is the recorded one" in str(verdict)


def tamper(folder: Path, change: Any) -> None:
    """Write the bag anew with other messages and good checksums, as somebody with intentions would."""
    path = folder / "microsim_0.mcap"
    old = path.rename(folder / "old")
    reader = McapReader(old)
    writer = McapWriter(path, reader.run_info)
    channels = {}
    for block in reader.blocks():
        channels.update((each.number, each) for each in block.channels)
        change(block, channels)
        writer.write(block)
    writer.close(reader.run_info.end, lambda: information("mcap", [], {}))
    old.unlink()


def test_the_first_difference_is_shown_with_field_and_neighbours(tmp_path: Path) -> None:
    record(tmp_path / "bag", chunk_bytes=10_000)
    original = Path(shutil.copytree(tmp_path / "bag", tmp_path / "original"))

    def move_the_drone(block: Any, channels: Any) -> None:
        for place, number in enumerate(block.numbers):
            if channels[number].topic == "/drone/odom" and block.times[place] == 1_000_000_000:
                message = decode("nav_msgs/msg/Odometry", block.data[place])
                message.pose.pose.position.y += 0.25
                block.data[place] = encode("nav_msgs/msg/Odometry", message)

    tamper(tmp_path / "bag", move_the_drone)
    for found in (verify(tmp_path / "bag").difference, diff(open_bag(tmp_path / "bag"), open_bag(original)).difference):
        assert found is not None
        assert found.first.here is not None
        assert (found.first.here.topic, found.first.here.time_ns) == ("/drone/odom", 1_000_000_000)
        field = found.field()
        assert field is not None
        path, recorded, replayed = field
        assert path == "pose.pose.position.y"
        assert recorded == replayed + 0.25
        text = str(found)
        assert "/drone/odom at 1 s, stamp 1 s" in text
        assert "between /sim/info" in text or "between /tf at 1 s" in text
        assert "and /rover/odom at 1 s" in text
    assert not verify(tmp_path / "bag").is_identical


@pytest.mark.parametrize("kind", ["missing", "added", "swapped", "later"])
def test_messages_that_are_missing_added_or_swapped_are_found(tmp_path: Path, kind: str) -> None:
    record(tmp_path / "bag", ticks=60)
    done = []

    def change(block: Any, channels: Any) -> None:
        places = [i for i, n in enumerate(block.numbers) if channels[n].topic == "/rover/odom"]
        if done or len(places) < 9:
            return
        done.append(place := places[8])
        columns = (block.numbers, block.times, block.data)
        for column in columns:
            if kind == "missing":
                del column[place]
            elif kind == "added":
                column.insert(place, column[place])
            elif kind == "swapped":
                column[place - 1], column[place] = column[place], column[place - 1]
        if kind == "later":
            block.times[place] = block.times[-1]
            for column in columns:
                column.append(column.pop(place))

    tamper(tmp_path / "bag", change)
    assert done
    if kind in ("missing", "added"):
        (tmp_path / "bag" / "metadata.yaml").unlink()  # counts another number
        repair(tmp_path / "bag")
    assert not verify(tmp_path / "bag").is_identical


def test_other_commands_give_another_run(tmp_path: Path) -> None:
    record(tmp_path / "bag", chunk_bytes=10_000)

    def faster(block: Any, channels: Any) -> None:
        for place, number in enumerate(block.numbers):
            if channels[number].topic == "/rover/cmd_vel":
                block.data[place] = block.data[place][:4] + struct.pack("<d", 1.5) + block.data[place][12:]

    tamper(tmp_path / "bag", faster)
    verdict = verify(tmp_path / "bag")
    assert verdict.difference is not None
    assert verdict.difference.first.here is not None
    assert verdict.difference.first.here.topic in ("/rover/odom", "/tf", "/rover/imu/data_raw")


def misplaced(settings: Any, motion: Any, memory: Any, scene: Any, key: int, tick: int, reading: Any) -> None:
    """A GPS's kernel of another version."""
    reading[0], reading[1], reading[2], reading[3] = 1.0, 2.0, 3.0, 4.0


def test_a_run_of_other_code_is_told_from_the_recorded_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "bag")
    other = dataclasses.replace(SENSORS.built_in["gps"], sample=misplaced)
    monkeypatch.setitem(SENSORS.built_in, "gps", other)
    difference = verify(tmp_path / "bag").difference
    assert difference is not None
    field = difference.field()
    assert field is not None
    assert field[0] == "latitude"


def test_a_pilot_gives_the_same_run_in_wall_time(tmp_path: Path) -> None:
    record(tmp_path / "bag")
    with Replay(open_bag(tmp_path / "bag")) as again:
        runner = Runner(again.sim, 100.0)
        runner.steer(lambda sim: InputPilot(again, sim))
        runner.run(again.end_tick)
        assert runner.sim.digest() == again.bag.run_info.end["digest"]


def test_a_replay_from_the_middle_hands_out_what_comes_then(tmp_path: Path) -> None:
    sent = record(tmp_path / "bag")
    got: list[Message] = []
    with Replay(open_bag(tmp_path / "bag")) as again:
        feed = InputPilot(again, again.sim)
        feed.skip_to(60)
        runner = Runner(again.sim, 0.0, feed)
        runner.listen(messages=got.extend)
        runner.run(60 + 1)
    late = [(each.topic, each.cdr) for each in sent if each.stamp_ns >= 1_000_000_000]
    assert [(each.topic, each.cdr) for each in got if each.stamp_ns >= 1_000_000_000] == late


def test_who_joins_a_replay_in_the_middle_still_gets_what_is_latched(tmp_path: Path) -> None:
    sent = record(tmp_path / "bag", ticks=90)
    with Replay(open_bag(tmp_path / "bag")) as again:
        latched = InputPilot(again, again.sim).skip_to(60)
        names = {topic for topic, (_, qos) in again.sim.topics.items() if qos.latched}
    assert {"/tf_static", "/sim/info"} <= names
    latest = {each.topic: each.cdr for each in sent if each.topic in names and each.stamp_ns < 59 * 10**9 // 60}
    assert {each.topic: each.cdr for each in latched} == latest


@pytest.mark.parametrize("sent_ns", [0, 123_456_789, 1_700_000_000 * 10**9 + 7, -5 * 10**9])
def test_inputs_keep_the_stamp_with_which_they_were_sent(tmp_path: Path, sent_ns: int) -> None:
    """Times of the bag are times of arrival; the header of a message is the sender's."""
    sim = Simulation({**WORLD, "stamped_cmd_vel": True}, 3)
    pose, twist = "geometry_msgs/msg/PoseStamped", "geometry_msgs/msg/TwistStamped"

    def stamped(type_name: str) -> Any:
        message = new(type_name)
        if type_name == pose:
            message.pose.orientation.w = 1.0
        message.header.stamp.sec, message.header.stamp.nanosec = divmod(sent_ns, 10**9)
        return message

    with Recorder(tmp_path / "bag", sim):
        sim.step(30)
        assert take_pose(sim, "drone", stamped(pose))
        assert take_twist(sim, "rover", stamped(twist))
        sim.set_pose("rover", 6.0, 6.0)  # without a message: the time of arrival
        sim.step(30)
    stamps = {
        (channel.topic, time): stamp_of(decode(channel.type, data))
        for channel, time, data in open_bag(tmp_path / "bag").entries_of(["/drone/set_pose", "/rover/cmd_vel"])
    }
    assert stamps == {("/drone/set_pose", 500_000_000): sent_ns, ("/rover/cmd_vel", 500_000_000): sent_ns}
    ((channel, _, data),) = open_bag(tmp_path / "bag").entries_of(["/rover/set_pose"])
    assert stamp_of(decode(channel.type, data)) == 500_000_000
    assert verify(tmp_path / "bag").is_identical
    rerecord(tmp_path / "bag", tmp_path / "again")
    assert files_of(tmp_path / "bag") == files_of(tmp_path / "again")


def test_an_exact_pose_keeps_its_stamp_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "quaternion_of", lambda yaw: None)
    sim = Simulation(WORLD, 3)
    with Recorder(tmp_path / "bag", sim):
        sim.step(10)
        sim.set_pose("rover", 6.0, 6.0, yaw=0.3, stamp_ns=77)
        sim.step(10)
    ((channel, _, data),) = open_bag(tmp_path / "bag").entries_of(["/sim/set_pose"])
    assert '"stamp_ns": 77' in decode(channel.type, data).data
    assert verify(tmp_path / "bag").is_identical


# ---- code of plug-ins -----------------------------------------------------------------------------------------------

TRAP = """
from pathlib import Path
from microsim.sensors.sensor import PythonSensor
(Path(__file__).parent / "ran").touch()
class Count:
    def __init__(self, context): self.n = 0
    def update(self, dt): self.n += 1
    def publish(self): return {"data": float(self.n)}
    def save(self): return self.n
    def load(self, data): self.n = data
SENSOR = PythonSensor("count", "std_msgs/msg/Float64", Count)
"""


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A recording and a state of a run with a plug-in, whose code says when it is run."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "count.py").write_text(TRAP)
    rover = {**WORLD["robots"]["rover"], "sensors": {"count": {"type": "count", "hz": 10}}}
    sim = Simulation({**WORLD, "plugins": [str(folder)], "robots": {**WORLD["robots"], "rover": rover}}, 4)
    with Recorder(tmp_path / "bag", sim):
        sim.step(30)
        save_state(tmp_path / "at.state", sim.snapshot())
    os.utime(folder / "count.py", (1, 1))  # is loaded again: modules are kept by file and time
    (folder / "ran").unlink()
    return folder


def runs(path: Path, *arguments: Any) -> Result:
    command = {"bag": ["replay", "--verify"], "at.state": ["run", "--rtf", "0", "--duration", "1", "--from-state"]}
    return CliRunner().invoke(app, [*map(str, (*command[path.name], path, *arguments))])


@pytest.mark.parametrize("name", ["bag", "at.state"])
def test_a_file_runs_no_code_from_a_folder_that_it_names(trap: Path, name: str) -> None:
    path = trap.parent / name
    done = runs(path)
    assert not (trap / "ran").exists()
    assert done.exit_code != 0
    for word in ("'count'", f"from {trap};", f"add --plugins {trap}", str(path)):
        assert word in str(done.exception), done.exception


@pytest.mark.parametrize("name", ["bag", "at.state"])
def test_code_runs_from_a_folder_that_the_user_names(trap: Path, name: str) -> None:
    moved = trap.rename(trap.parent / "elsewhere")
    done = runs(trap.parent / name, "--plugins", moved)
    assert done.exit_code == 0, done.exception
    assert (moved / "ran").exists()


def test_hashes_are_compared_before_code_runs(trap: Path) -> None:
    (trap / "count.py").write_text(TRAP + "# changed\n")
    done = runs(trap.parent / "at.state", "--plugins", trap)
    assert "is not what was saved" in str(done.exception)
    assert not (trap / "ran").exists()
    with Replay(open_bag(trap.parent / "bag"), plugin_folders=[trap]) as again:
        assert again.notes == ["the code of the plug-in count is not the recorded one"]


def test_a_folder_named_without_hashes_is_not_trusted_either(trap: Path) -> None:
    """As a stranger would write it: no hashes, so that nothing seems to be needed."""
    facts = open_bag(trap.parent / "bag").run_info
    with pytest.raises(BagError, match="count"):
        inputs.unpacked(facts.start["scenario"], trap.parent, {}, ())
    assert inputs.changed_plugins(facts.start["scenario"], {}, ()) == []
    assert not (trap / "ran").exists()


def test_a_picture_of_a_recording_runs_no_code(trap: Path) -> None:
    plot(open_bag(trap.parent / "bag"), trap.parent / "bag.png")
    assert _scenario(open_bag(trap.parent / "bag"), trap.parent) is not None  # and still has the map
    assert not (trap / "ran").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scenario.yaml", "plugins: [code]\nrobots: {rover: {model: rover, sensors: {count: {type: count}}}}\n"),
        ("scenario.yaml", "plugins: [code]\nobstacles: [{plugin: count}]\n"),
        ("mission.yaml", "scenario: scenario.yaml\nduration: 1\ndo: []\n"),
        ("sweep.yaml", "scenario: scenario.yaml\nduration: 1\nseeds: 1..2\nmetrics: [count]\n"),
    ],
)
def test_a_check_of_a_file_runs_no_code_from_a_folder_that_it_names(trap: Path, name: str, text: str) -> None:
    (trap.parent / "scenario.yaml").write_text("plugins: [code]\nrobots: {a: {model: count}}\n")
    (trap.parent / name).write_text(text)
    done = CliRunner().invoke(app, ["validate", str(trap.parent / name)])
    assert done.exit_code == 2
    assert f"add --plugins {trap}" in done.output
    assert not (trap / "ran").exists()
    CliRunner().invoke(app, ["validate", str(trap.parent / name), "--plugins", str(trap)])
    assert (trap / "ran").exists()


# ---- bags of others -------------------------------------------------------------------------------------------------


def foreign(folder: Path, storage: StoragePlugin, shift_ns: int = 3_000_000, type_name: str = "Twist") -> None:
    """As `ros2 bag record --use-sim-time` of the command topics would write it."""
    store = get_typestore(Stores.ROS2_JAZZY)
    kind = f"geometry_msgs/msg/{type_name}"
    with Writer(folder, version=9, storage_plugin=storage) as writer:
        connection = writer.add_connection("/rover/cmd_vel", kind, typestore=store)
        chatter = writer.add_connection("/chatter", "std_msgs/msg/String", typestore=store)
        for tick in range(0, 60, 6):
            message = new("geometry_msgs/msg/Twist")
            message.linear.x = tick / 60.0
            if type_name == "TwistStamped":
                message = new(kind, twist=message)
            time = round(tick * 1e9 / 60) + shift_ns
            writer.write(connection, time, encode(kind, message))
            writer.write(chatter, time, encode("std_msgs/msg/String", new("std_msgs/msg/String", data="hi")))


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
@pytest.mark.parametrize("type_name", ["Twist", "TwistStamped"])
def test_a_bag_of_others_is_a_stream_of_commands(tmp_path: Path, storage: StoragePlugin, type_name: str) -> None:
    foreign(tmp_path / "bag", storage, type_name=type_name)
    sim = Simulation(WORLD, 7)
    for tick in range(0, 60, 6):
        sim.step(tick - sim.tick)
        sim.command("rover", v=tick / 60.0)
    with Replay(open_bag(tmp_path / "bag"), load_scenario(WORLD), 7) as again:
        again.run(lambda messages: None)
        sim.step(again.sim.tick - sim.tick)
        assert again.sim.tick == 54
        assert again.sim.digest() == sim.digest()
        assert "assumed: scenario 'small', seed 7" in again.notes[0]
        assert "tick it arrived in" in again.notes[1]
        with pytest.raises(BagError, match="only recordings made by microsim can be verified"):
            again.verify()


def test_a_bag_of_others_needs_a_scenario_and_simulated_time(tmp_path: Path) -> None:
    foreign(tmp_path / "bag", StoragePlugin.MCAP)
    with pytest.raises(UsageError, match="give --scenario"):
        Replay(open_bag(tmp_path / "bag"))
    foreign(tmp_path / "wall", StoragePlugin.MCAP, shift_ns=1_700_000_000 * 10**9)
    with (
        Replay(open_bag(tmp_path / "wall"), load_scenario(WORLD)) as again,
        pytest.raises(BagError, match="recorded in wall time; record with --use-sim-time"),
    ):
        again.run(lambda messages: None)


@pytest.mark.parametrize(
    ("storage", "compression"),
    [
        (StoragePlugin.MCAP, CompressionMode.NONE),
        (StoragePlugin.MCAP, CompressionMode.STORAGE),
        (StoragePlugin.MCAP, CompressionMode.FILE),
        (StoragePlugin.MCAP, CompressionMode.MESSAGE),
        (StoragePlugin.SQLITE3, CompressionMode.NONE),
        (StoragePlugin.SQLITE3, CompressionMode.FILE),
    ],
)
def test_a_bag_of_others_with_a_reset_in_it_is_refused(
    tmp_path: Path, storage: StoragePlugin, compression: CompressionMode
) -> None:
    """Sorted by time, as readers do, two runs would look like one."""
    store, kind = get_typestore(Stores.ROS2_JAZZY), "geometry_msgs/msg/Twist"
    for name, times in {"swapped": (0.0, 1.0, 0.9, 2.0), "reset": (0.0, 1.0, 3.0, 0.05, 1.0, 5.0)}.items():
        writer = Writer(tmp_path / name, version=9, storage_plugin=storage)
        writer.set_compression(compression, CompressionFormat.ZSTD)
        with writer:
            connection = writer.add_connection("/rover/cmd_vel", kind, typestore=store)
            for time in times:
                writer.write(connection, round(time * 1e9), encode(kind, new(kind)))
    with Replay(open_bag(tmp_path / "swapped"), load_scenario(WORLD)) as again:
        again.run(lambda messages: None)
        assert again.sim.tick == 120
    with pytest.raises(BagError, match=r"time jumps back from 3\.000 s to 0\.050 s: the simulation was reset"):
        Replay(open_bag(tmp_path / "reset"), load_scenario(WORLD))


def test_our_bags_have_their_own_scenario(tmp_path: Path) -> None:
    record(tmp_path / "bag", ticks=2)
    with pytest.raises(UsageError, match="leave out --scenario"):
        Replay(open_bag(tmp_path / "bag"), load_scenario(WORLD))


def test_a_bag_of_others_with_nonsense_is_ignored_and_counted(tmp_path: Path) -> None:
    store = get_typestore(Stores.ROS2_JAZZY)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/rover/cmd_vel", "geometry_msgs/msg/Twist", typestore=store)
        writer.write(connection, 0, b"\x00\x01\x00\x00rubbish")
        writer.write(connection, 100_000_000, b"\x00\x01\x00\x00" + struct.pack("<6d", *[float("nan")] * 6))
    with Replay(open_bag(tmp_path / "bag"), load_scenario(WORLD)) as again:
        again.run(lambda messages: None)
        assert again.ignored == 2


# ---- parts ----------------------------------------------------------------------------------------------------------


def test_a_teleport_keeps_every_bit_of_its_yaw() -> None:
    from microsim.engine.exact import wrap_angle

    dice = np.random.default_rng(4)
    yaws = [0.0, -0.0, np.pi, -np.pi, 1.57, 5e-324, -1e-310, 1e-300, np.pi / 2, 1e6, -7.0, *dice.uniform(-9, 9, 5000)]
    for yaw in yaws:
        wrapped = wrap_angle(float(yaw))
        turn = inputs.quaternion_of(wrapped)
        assert turn is not None
        assert struct.pack("<d", inputs.yaw_of(*turn)) == struct.pack("<d", wrapped)
        assert abs(turn[0]) < 1e-2
        assert abs(turn[1] ** 2 + turn[2] ** 2 - 1.0) < 1e-12


def test_fields_are_compared_bit_by_bit() -> None:
    def image(data: bytes, encoding: str = "rgb8") -> bytes:
        message = new("sensor_msgs/msg/Image", encoding=encoding, data=np.frombuffer(data, np.uint8))
        return encode("sensor_msgs/msg/Image", message)

    assert first_field("sensor_msgs/msg/Image", image(b"abc"), image(b"abc")) is None
    assert first_field("sensor_msgs/msg/Image", image(b"abc"), image(b"abX")) == ("data[2]", 99, 88)
    assert first_field("sensor_msgs/msg/Image", image(b"abc"), image(b"ab")) == ("data (length)", 3, 2)
    assert first_field("sensor_msgs/msg/Image", image(b"a"), image(b"a", "bgr8")) == ("encoding", "rgb8", "bgr8")

    def range_of(value: float) -> bytes:
        return encode("sensor_msgs/msg/Range", new("sensor_msgs/msg/Range", range=value))

    assert first_field("sensor_msgs/msg/Range", range_of(0.0), range_of(-0.0)) == ("range", 0.0, -0.0)
    assert first_field("some_msgs/msg/Unknown", b"abcd", b"abXd") == ("(byte 2)", 99, 88)
    tf = [new("geometry_msgs/msg/TransformStamped", child_frame_id=name) for name in ("a", "b")]
    one = encode("tf2_msgs/msg/TFMessage", new("tf2_msgs/msg/TFMessage", transforms=tf))
    tf[1].child_frame_id = "c"
    other = encode("tf2_msgs/msg/TFMessage", new("tf2_msgs/msg/TFMessage", transforms=tf))
    assert first_field("tf2_msgs/msg/TFMessage", one, other) == ("transforms[1].child_frame_id", "b", "c")


def test_every_input_is_taken_at_its_tick_whoever_is_asked_first(tmp_path: Path) -> None:
    """A pilot commands before the recorder has seen the tick's messages; the bag is the same as with commands after."""
    sims = [Simulation(WORLD, 3), Simulation(WORLD, 3)]
    with Recorder(tmp_path / "after", sims[0]) as recorder:
        fly(sims[0], recorder.on_messages)
    with Recorder(tmp_path / "before", sims[1]) as recorder:
        held: list[Message] = []

        def tap_late(messages: list[Message]) -> None:
            recorder.on_messages(held)
            held[:] = messages

        fly(sims[1], tap_late)
        recorder.on_messages(held)
    assert files_of(tmp_path / "after") == files_of(tmp_path / "before")


def test_a_recording_in_a_bundle_is_replayed_where_the_bundle_is_now_if_it_is_the_same(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[3] / "worlds" / "minimal_test", tmp_path / "here")
    world = {"world": str(tmp_path / "here"), "robots": {"rover": {"start": {"map_pose": {"x": 5, "y": 5}}}}}
    sim = Simulation(world, 4)
    with Recorder(tmp_path / "bag", sim) as recorder:
        recorder.on_messages(sim.step(10))
        sim.reconfigure(with_values(sim.scenario, {"wind.world_xyz": [1.0, 0.0, 0.0]}))
        recorder.on_messages(sim.step(10))
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(BagError, match="no world bundle"):
        Replay(open_bag(tmp_path / "bag"))
    plot(open_bag(tmp_path / "bag"), tmp_path / "bag.png")  # without the map
    with Replay(open_bag(tmp_path / "bag"), world=tmp_path / "there") as again:
        assert again.verify().is_identical
    (tmp_path / "there" / "world.yaml").write_text((tmp_path / "there" / "world.yaml").read_text() + "# another\n")
    with pytest.raises(BagError, match="has changed"):
        Replay(open_bag(tmp_path / "bag"), world=tmp_path / "there")
    record(tmp_path / "plain", ticks=1)
    with pytest.raises(BagError, match="leave out --world"):
        Replay(open_bag(tmp_path / "plain"), world=tmp_path / "there")
