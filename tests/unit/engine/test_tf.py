"""The tree of frames: complete, one parent each, static where fixed, true where moving."""

import math

import numpy as np
import pytest

import microsim
from tests.support import decoded, on_topic, stamp_ns

TINY = {"resolution": {"width": 4, "height": 4}}


def crowd(**frames):
    """Three robots with every kind of sensor."""
    return microsim.Simulation(
        {
            "frames": frames,
            "robots": {
                "drone": {
                    "camera": TINY,
                    "sensors": {
                        "nose": {**TINY, "type": "camera", "mount": {"xyz": [0.2, 0, 0], "rpy": [0.1, 0.2, 0.3]}}
                    },
                },
                "rover": {
                    "scan": {},
                    "sensors": {"left": {"type": "range", "mount": {"xyz": [0, 0.2, 0.1], "rpy": [0, 0, 1.57]}}},
                },
                "second": {
                    "model": "drone",
                    "camera": TINY,
                    "start": {"map_pose": {"x": 30, "y": 30, "z": 5, "yaw": -2}},
                },
            },
        }
    )


def transforms(messages, topic):
    return [transform for message in decoded(messages, topic) for transform in message.transforms]


def tree(sim):
    messages = sim.step(0)
    return transforms(messages, "/tf") + transforms(messages, "/tf_static")


@pytest.mark.parametrize("per_robot", [False, True])
def test_every_frame_has_one_parent_and_a_way_to_map(per_robot):
    sim = crowd(per_robot_odom=per_robot)
    parents = {}
    for transform in tree(sim):
        assert transform.child_frame_id not in parents, "a second parent"
        parents[transform.child_frame_id] = transform.header.frame_id
    for frame in parents:
        seen = [frame]
        while seen[-1] != "map":
            seen.append(parents[seen[-1]])
            assert len(seen) <= 5
    odom = {"drone/odom", "rover/odom", "second/odom"} if per_robot else {"odom"}
    sensors = {
        *("drone/gps_link", "drone/imu_link", "drone/camera_link", "drone/nose_link"),
        *("rover/gps_link", "rover/imu_link", "rover/range_link", "rover/scan_link", "rover/left_link"),
        *("second/gps_link", "second/imu_link", "second/camera_link"),
    }
    assert set(parents) == odom | {"drone/base_link", "rover/base_link", "second/base_link"} | sensors


def test_every_frame_a_message_names_is_in_the_tree():
    sim = crowd()
    known = {"map", "odom"} | {transform.child_frame_id for transform in tree(sim)}
    for message in sim.step(60):
        header = getattr(message.message, "header", None)
        if header is not None and message.topic != "/radio/metrics":
            assert header.frame_id in known, message.topic


def test_static_transforms_are_the_mounts():
    sim = crowd()
    static = {transform.child_frame_id: transform for transform in transforms(sim.step(0), "/tf_static")}
    count = 0
    for name, robot in sim.scenario.robots.items():
        for sensor, block in robot.all_sensors().items():
            if not hasattr(block, "mount"):
                continue
            count += 1
            transform = static[f"{name}/{sensor}_link"]
            t, q = transform.transform.translation, transform.transform.rotation
            assert transform.header.frame_id == f"{name}/base_link"
            assert (t.x, t.y, t.z) == tuple(block.mount.xyz)
            assert matrix(q) == pytest.approx(expected(*block.mount.rpy), abs=1e-12)
    assert count == len(static)


def matrix(q):
    x, y, z, w = q.x, q.y, q.z, q.w
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def expected(roll, pitch, yaw):
    def about(axis, angle):
        i, j = [(1, 2), (2, 0), (0, 1)][axis]
        rotation = np.eye(3)
        rotation[i, i] = rotation[j, j] = math.cos(angle)
        rotation[i, j], rotation[j, i] = -math.sin(angle), math.sin(angle)
        return rotation

    return about(2, yaw) @ about(1, pitch) @ about(0, roll)


def test_the_default_camera_looks_down_with_the_top_of_the_image_ahead():
    static = {t.child_frame_id: t.transform for t in transforms(microsim.Simulation("default").step(0), "/tf_static")}
    rotation = matrix(static["drone/camera_link"].rotation)
    assert rotation[:, 2] == pytest.approx([0, 0, -1], abs=1e-12)  # z, along the view: down
    assert rotation[:, 1] == pytest.approx([-1, 0, 0], abs=1e-12)  # y, down in the image: backward
    t = static["drone/camera_link"].translation
    assert (t.x, t.y, t.z) == (0.10, 0.0, -0.05)


def test_quaternions_are_normalised_and_poses_true_at_every_tick():
    sim = crowd()
    sim.command("drone", vx=3, yaw_rate=1.5)
    sim.command("second", vy=2, vz=1, yaw_rate=-1.5)
    sim.command("rover", v=2, omega=-1.2)
    sim.step(0)
    for _ in range(300):
        frames = {t.child_frame_id: t for t in transforms(sim.step(), "/tf")}
        assert frames["odom"].transform.rotation.w == 1.0
        for robot in sim.robots:
            state, transform = sim.state(robot), frames[f"{robot}/base_link"].transform
            t, q = transform.translation, transform.rotation
            assert q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w == pytest.approx(1.0, abs=1e-14)
            assert (t.x, t.y, t.z) == (state.x, state.y, state.z)
            assert abs(math.remainder(2 * math.atan2(q.z, q.w) - state.yaw, 2 * math.pi)) < 1e-13


def test_transforms_move_continuously():
    sim = crowd()
    sim.command("drone", vx=5, vy=5, vz=3)
    places = []
    for message in decoded(sim.step(300), "/tf"):
        t = next(t.transform.translation for t in message.transforms if t.child_frame_id == "drone/base_link")
        places.append((t.x, t.y, t.z))
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert steps.max() <= math.sqrt(59) / 60 + 1e-9


def test_tf_is_sent_at_its_rate_with_the_stamp_of_its_tick():
    sim = crowd(tf_hz=20)
    messages = on_topic(sim.step(60), "/tf")
    assert [message.stamp_ns for message in messages] == [k * 50_000_000 for k in range(21)]
    for message in messages:
        assert {stamp_ns(t.header) for t in message.message.transforms} == {message.stamp_ns}


def test_static_transforms_are_sent_once_unless_left_to_others():
    sim = crowd()
    assert len(on_topic(sim.step(200), "/tf_static")) == 1
    sim.reset()
    assert len(on_topic(sim.step(1), "/tf_static")) == 1
    assert on_topic(crowd(publish_static_tf=False).step(10), "/tf_static") == []
