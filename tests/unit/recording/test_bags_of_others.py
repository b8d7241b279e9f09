"""Bags that others wrote, as streams of commands: what can be taken is, the rest is told of, no code of theirs runs."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from typer.testing import CliRunner

from microsim.cli import app
from microsim.messages import encode, new
from microsim.recording.bag_io import open_bag
from microsim.recording.bag_model import BagError
from microsim.recording.bag_replay import Replay
from microsim.scenario import load_scenario
from tests.recording_support import WORLD

S = 10**9
TWIST, STRING = "geometry_msgs/msg/Twist", "std_msgs/msg/String"
ODOMETRY, RANGE = "nav_msgs/msg/Odometry", "sensor_msgs/msg/Range"
STORE = get_typestore(Stores.ROS2_JAZZY)


def twist(speed: float) -> bytes:
    message = new(TWIST)
    message.linear.x = speed
    return encode(TWIST, message)


def write(
    folder: Path,
    entries: Sequence[tuple[str, str, int, bytes]],
    storage: StoragePlugin = StoragePlugin.MCAP,
) -> Path:
    with Writer(folder, version=9, storage_plugin=storage) as writer:
        known: dict[tuple[str, str], Any] = {}
        for topic, kind, time, data in entries:
            if (topic, kind) not in known:
                known[topic, kind] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(known[topic, kind], time, data)
    return folder


def replayed(folder: Path) -> Replay:
    with Replay(open_bag(folder), load_scenario(WORLD)) as again:
        again.run(lambda messages: None)
        return again


def test_a_message_of_another_type_on_a_command_topic_is_ignored_and_told_of(tmp_path: Path) -> None:
    vector = encode("geometry_msgs/msg/Vector3", new("geometry_msgs/msg/Vector3"))
    entries = [("/rover/cmd_vel", "geometry_msgs/msg/Vector3", 0, vector), ("/rover/cmd_vel", TWIST, S, twist(1.0))]
    again = replayed(write(tmp_path / "bag", entries))
    assert (again.taken, again.ignored) == (1, 1)
    expected = "/rover/cmd_vel: expected geometry_msgs/msg/Twist or geometry_msgs/msg/TwistStamped, found"
    assert list(again.reasons) == [f"{expected} geometry_msgs/msg/Vector3"]


def test_a_stranger_s_bag_neither_changes_the_scenario_nor_runs_code(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    world = {**WORLD, "plugins": [str(tmp_path / "code")]}
    world["robots"] = {**WORLD["robots"], "rover": {"sensors": {"x": {"type": "evil"}}}}
    change = encode(STRING, new(STRING, data=json.dumps({"scenario": world})))
    pose = encode(STRING, new(STRING, data=json.dumps({"robot": "drone", "x": 3, "y": 3, "z": 3, "yaw": 0})))
    entries = [("/sim/reconfigure", STRING, 0, change), ("/sim/set_pose", STRING, 0, pose), ("/x", STRING, S, change)]
    again = replayed(write(tmp_path / "bag", entries))
    assert again.sim.scenario == load_scenario(WORLD)
    assert again.sim.state("drone").x == 10.0
    assert not (tmp_path / "ran").exists()


def test_commands_that_a_recorder_swapped_are_taken_in_the_order_of_time(tmp_path: Path) -> None:
    """By a little, as recorders may: a long way back is a reset of the clock, and refused."""
    early, late = 2 * S - S // 3, 2 * S
    speeds = {0: 1.0, early: 0.5, late: 0.0}
    runs = []
    for order in ((0, early, late), (0, late, early)):
        folder = tmp_path / "".join(map(str, order))
        runs.append(replayed(write(folder, [("/rover/cmd_vel", TWIST, t, twist(speeds[t])) for t in order])))
    assert runs[0].sim.tick == runs[1].sim.tick == 120
    assert runs[0].sim.digest() == runs[1].sim.digest()


def test_one_file_is_read_by_itself_not_with_the_folder_it_lies_in(tmp_path: Path) -> None:
    folder = write(tmp_path / "bag", [("/rover/cmd_vel", TWIST, S, twist(1.0))])
    other = next(write(tmp_path / "other", [("/rover/cmd_vel", TWIST, 2 * S, twist(0.5))]).glob("*.mcap"))
    other.rename(folder / "lone.mcap")
    assert replayed(folder / "lone.mcap").sim.tick == 120
    (folder / "lone.mcap").rename(tmp_path / "lone.mcap")  # and without any metadata.yaml
    assert replayed(tmp_path / "lone.mcap").sim.tick == 120


@pytest.mark.parametrize("value", ["'soon'", "1.5"])
def test_a_time_that_is_none_is_refused_in_words(tmp_path: Path, value: str) -> None:
    folder = write(tmp_path / "bag", [("/rover/cmd_vel", TWIST, S, twist(1.0))], StoragePlugin.SQLITE3)
    with sqlite3.connect(next(folder.glob("*.db3"))) as database:
        database.execute(f"UPDATE messages SET timestamp = {value}")
    with pytest.raises(BagError, match=r"is not a time|cannot be read as a bag"):
        replayed(folder)


def test_messages_that_cannot_be_read_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    folder = write(tmp_path / "bag", [("/rover/cmd_vel", TWIST, t * S, twist(1.0)) for t in range(3)])
    description = folder / "metadata.yaml"
    description.write_text(description.read_text().replace("name: /rover/cmd_vel", "name: /rover/cmd_vol"))
    with pytest.raises(BagError, match="says 3 messages, but 0 can be read"):
        replayed(folder)


def test_the_user_is_told_why_commands_were_ignored_and_when_there_were_none(tmp_path: Path) -> None:
    big_endian = bytes(STORE.serialize_cdr(STORE.deserialize_cdr(twist(1.0), TWIST), TWIST, little_endian=False))
    write(tmp_path / "bag", [("/rover/cmd_vel", TWIST, t * S, big_endian) for t in range(3)])
    write(tmp_path / "else", [("/ns/rover/cmd_vel", TWIST, 0, twist(1.0))])
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "bag"), "--scenario", "flat"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "3 inputs ignored" in done.output
    assert "ignored 3 times: /rover/cmd_vel: not a geometry_msgs/msg/Twist" in done.output
    assert "big-endian" in done.output
    done = CliRunner().invoke(app, ["replay", str(tmp_path / "else"), "--scenario", "flat"], catch_exceptions=False)
    assert "this bag has no input for the run; its input topics are: /drone/cmd_vel" in done.output


# ---- pictures of them -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [math.nan, math.inf, 1e308])
def test_places_that_are_none_are_left_out_of_a_picture(tmp_path: Path, place: float) -> None:
    from microsim.plotting import PlotError
    from microsim.recording.bag_plot import plot

    def odometry(x: float) -> bytes:
        message = new(ODOMETRY)
        message.pose.pose.position.x = message.twist.twist.linear.x = x
        return encode(ODOMETRY, message)

    def distance(value: float) -> bytes:
        return encode(RANGE, new(RANGE, range=min(value, 3e38), max_range=min(value, 3e38)))

    ranges = [("/rover/range/front", RANGE, t * S, distance(place)) for t in range(2)]
    places = [("/rover/odom", ODOMETRY, t * S, odometry(x)) for t, x in enumerate((1.0, place, 2.0))]
    plot(open_bag(write(tmp_path / "some", places + ranges)), tmp_path / "some.png")
    assert (tmp_path / "some.png").stat().st_size > 10_000
    with pytest.raises(PlotError, match="no odometry in it to draw"):
        plot(open_bag(write(tmp_path / "none", places[1:2] + ranges)), tmp_path / "none.png")
