"""Every message a run sends: decodable, re-encodable to the same bytes, and saying what the simulation knows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import microsim
from microsim.engine.world import PALETTE
from microsim.messages import decode, encode, encoders, new
from microsim.messages.topics import table
from microsim.sensors import SENSORS
from microsim.sensors._camera_messages import ON_REQUEST
from tests.golden.mission import SHORT
from tests.support import COMPILED, bare, decoded, on_topic, scenario, stamp_ns


@pytest.fixture(scope="module")
def busy():
    """A run in which every topic is sent, and its messages."""
    car = {
        "start": {"map_pose": {"x": 5.0, "y": 7.0}},
        "lidar": {"columns": 24},
        "localisation": {},
        "pose2D": {},
        "ahrs": {},
        "autoware": {},
        "detections": {},
    }
    sim = microsim.Simulation({**SHORT, "robots": {**SHORT["robots"], "ego": car}})
    sim.command("drone", vx=1.0, yaw_rate=0.5)
    sim.command("rover", v=1.0, omega=0.2)
    messages = []
    for _ in range(15):
        sim.radio_send("drone", b"ping")
        sim.radio_send("rover", b"")
        messages += sim.step(10)
    return sim, messages


def test_every_message_decodes_and_encodes_to_the_same_bytes(busy):
    for message in busy[1]:
        assert encode(message.type, message.message) == message.cdr, message


SPLAT = {
    "resolution": {"width": 16, "height": 12},
    "compressed": "png",
    "render": {"type": "splat", **dict.fromkeys(ON_REQUEST, True)},
}


def forms():
    return [
        pytest.param(sensor, form, id=f"{sensor.name}-{form.kind or form.type}")
        for sensor in SENSORS.built_in.values()
        for form in sensor.messages
    ]


def carrying(sensor):
    """A run with that sensor twice: under its own name, and where it may be, under another with other settings."""
    small = {"camera": SPLAT, "lidar": {"columns": 24}, "scan": {"beams": 7}}.get(sensor.name, {})
    car = bare(**{"joint_states": None, "cmd_timeout_s": None, sensor.name: {"hz": 10, **small}})
    car["sensors"] = {"camera_front": None, "lidar_top": None}  # of the bundle
    if sensor.is_common:
        has_mount = "mount" in sensor.settings.model_fields
        mount = {"mount": {"xyz": [0.5, 0.1, 1.0], "rpy": [0.1, 0.2, 0.3]}} if has_mount else {}
        car["sensors"]["other"] = {"type": sensor.name, "hz": 20, **small, **mount}
    sim = microsim.Simulation({"world": "worlds/minimal_test", "robots": {"ego": car}}, seed=3)
    sim.command("ego", speed=3.0, steering=0.3)
    return sim


@pytest.mark.skipif(not COMPILED, reason="100,000 splats as plain Python take hours")
@pytest.mark.parametrize(("sensor", "form"), forms())
def test_a_prepared_message_has_the_bytes_of_real_encoding_whatever_the_form(sensor, form):
    """Its numbers are written into a message encoded once: that must give what encoding the whole message gives."""
    sim = carrying(sensor)
    messages = sim.step(40)
    for name in (sensor.name, "other")[: 1 + sensor.is_common]:
        sent = on_topic(messages, sensor.topic(form, "ego", name))
        assert len(sent) >= 4
        assert len({message.cdr for message in sent}) == len(sent)  # stamps differ at least
        for message in sent:
            assert message.type == form.type
            assert encode(form.type, message.message) == message.cdr
            if hasattr(message.message, "header"):
                assert stamp_ns(message.message.header) == message.stamp_ns


def test_drift_changes_the_covariance_and_nothing_about_the_encoding():
    drift = {"position_per_m": 0.1, "yaw_per_rad": 0.1}
    robots = {"rover": bare(odom={"hz": 30, "drift": drift})}
    sim = microsim.Simulation(scenario(robots=robots, frames={"per_robot_odom": True}, map={"size_xy_cells": [60, 60]}))
    sim.command("rover", v=1.5, omega=0.5)
    sent = on_topic(sim.step(90), "/rover/odom")
    diagonals = {tuple(np.diag(message.message.pose.covariance.reshape(6, 6)).tolist()) for message in sent}
    assert len(diagonals) > 30
    for message in sent:
        covariance = message.message.pose.covariance.reshape(6, 6)
        assert (covariance == covariance.T).all()
        assert float(np.linalg.eigvalsh(covariance).min()) > -1e-12
        assert encode(message.type, message.message) == message.cdr


def test_every_header_carries_the_stamp_of_its_message(busy):
    for message in busy[1]:
        content = message.message
        if hasattr(content, "header"):
            assert stamp_ns(content.header) == message.stamp_ns, message


def test_every_kind_of_topic_is_sent_with_the_type_of_the_table(busy):
    sim, messages = busy
    types = {message.topic: message.type for message in messages}
    elsewhere = ("diagnostics", "compressed", *ON_REQUEST)  # by the node, and by cameras on request
    for topic in table():
        if topic.direction == "out" and topic.kind not in elsewhere:
            names = [name for name in types if matches(topic, name, sim)]
            assert names, topic
            assert {types[name] for name in names} == {topic.type}, topic


def matches(topic, name, sim):
    return any(topic.of(robot, topic.sensor) == name for robot in (*sim.robots, ""))


def test_the_clock_is_sent_first_in_every_tick_and_tells_the_tick(busy):
    sim, messages = busy
    clocks = [index for index, message in enumerate(messages) if message.topic == "/clock"]
    assert len(clocks) == sim.tick + 1
    assert clocks[0] == 0
    for tick, index in enumerate(clocks):
        clock = messages[index].message.clock
        assert clock.sec * 1_000_000_000 + clock.nanosec == sim.clock.time_ns(tick) == messages[index].stamp_ns


def test_within_a_tick_messages_keep_the_order_of_the_table():
    sim = microsim.Simulation("default")
    order = [topic.of("x", topic.kind) for topic in table()]
    kinds = [
        "/" + "/".join(part if part not in sim.robots else "x" for part in m.topic[1:].split("/")) for m in sim.step(0)
    ]
    assert kinds[0] == "/clock"
    assert kinds[1:3] == ["/tf", "/tf_static"]
    ranks = [order.index(kind) for kind in kinds if kind in order]
    assert ranks == sorted(ranks)


def test_the_image_is_the_camera_with_noise_off(busy):
    quiet = {
        **SHORT,
        "robots": {
            "drone": {
                "start": SHORT["robots"]["drone"]["start"],
                "camera": {
                    "resolution": {"width": 20, "height": 16},
                    "noise": {"blur_sigma_px": 0, "color_jitter": 0},
                    "latency_ms": {"mean": 0, "jitter": 0, "drop_probability": 0},
                },
            }
        },
    }
    sim = microsim.Simulation(quiet)
    image = decoded(sim.step(0), "/drone/camera/image_raw")[0]
    assert (image.width, image.height, image.step, image.encoding, image.is_bigendian) == (20, 16, 60, "rgb8", 0)
    pixels = image.data.reshape(16, 20, 3)
    assert (pixels == sim.render("drone")).all()
    assert {tuple(colour) for colour in pixels.reshape(-1, 3)} <= {tuple(colour) for colour in PALETTE}
    assert image.header.frame_id == "drone/camera_link"


def test_camera_info_tells_the_intrinsics(busy):
    sim, messages = busy
    info = decoded(messages, "/drone/camera/camera_info")[0]
    pinhole = sim.scenario.robots["drone"].camera.intrinsics
    assert (info.width, info.height, info.distortion_model) == (24, 24, "plumb_bob")
    assert info.k.tolist() == [pinhole.fx, 0, pinhole.cx, 0, pinhole.fy, pinhole.cy, 0, 0, 1]
    assert info.p.tolist() == [pinhole.fx, 0, pinhole.cx, 0, 0, pinhole.fy, pinhole.cy, 0, 0, 0, 1, 0]
    assert info.d.tolist() == [0.05, -0.01, 0.001, 0.002, 0.0]
    assert info.r.reshape(3, 3).tolist() == np.eye(3).tolist()
    assert info.header.frame_id == "drone/camera_link"


def test_a_field_of_view_gives_the_focal_length():
    camera = {"resolution": {"width": 200, "height": 100}, "intrinsics": {"fov_deg": 90}}
    sim = microsim.Simulation(
        {"robots": {"drone": {"camera": {**camera, "latency_ms": {"mean": 0, "jitter": 0}}}}}, seed=1
    )
    info = decoded(sim.step(60), "/drone/camera/camera_info")[0]
    assert info.k.tolist() == pytest.approx([100, 0, 100, 0, 100, 50, 0, 0, 1])


def test_sim_info_is_json_with_version_scenario_seed_and_rates(busy):
    sim, messages = busy
    info = json.loads(decoded(messages, "/sim/info")[0].data)
    assert info["version"] == microsim.__version__
    assert (info["scenario"], info["seed"], info["physics_hz"]) == ("short", -7, 50)
    assert info["rates_hz"]["/rover/range/front"] == 12
    assert info["rates_hz"]["/clock"] == 50
    assert set(info["robots"]) == set(sim.robots)
    assert info["radio"]["drop_probability"] == 0.03


def test_the_occupancy_grid_is_the_occupied_cells(busy):
    sim, messages = busy
    grid = decoded(messages, "/world/occupancy")[0]
    assert (grid.info.width, grid.info.height) == (40, 30)
    assert grid.info.resolution == 0.5
    assert (grid.data.reshape(30, 40) == 100 * sim.world.occupied).all()
    assert grid.header.frame_id == "map"


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff" * 7, bytes(range(256))])
def test_a_radio_payload_survives(payload):
    assert bytes(decode("std_msgs/msg/ByteMultiArray", encoders.radio_payload(payload)).data) == payload


def test_text_survives_with_any_letters():
    assert decode("std_msgs/msg/String", encoders.text("σ ≥ 0 ✓")).data == "σ ≥ 0 ✓"


def test_a_message_prints_itself_shortly(busy):
    message = on_topic(busy[1], "/clock")[1]
    assert repr(message) == "Message(/clock, rosgraph_msgs/msg/Clock, 0.020000000 s, 12 bytes)"


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
_ENTRY = st.tuples(st.integers(0, 3), _TEXT, st.dictionaries(_TEXT, _TEXT, max_size=4))


@given(st.integers(0, 2**31 * 10**9 - 1), st.dictionaries(_TEXT, _ENTRY, max_size=4))
def test_diagnostics_are_the_bytes_that_the_library_would_write(stamp, entries):
    statuses = [
        new(
            "diagnostic_msgs/msg/DiagnosticStatus",
            name=name,
            level=level,
            message=text,
            hardware_id="microsim",
            values=[new("diagnostic_msgs/msg/KeyValue", key=key, value=value) for key, value in values.items()],
        )
        for name, (level, text, values) in entries.items()
    ]
    whole = new("diagnostic_msgs/msg/DiagnosticArray", header=encoders.header(""), status=statuses)
    whole.header.stamp.sec, whole.header.stamp.nanosec = divmod(stamp, 10**9)
    assert encoders.diagnostics(stamp, entries) == encode("diagnostic_msgs/msg/DiagnosticArray", whole)
