"""The scan: each beam is a ray of its own, at its own angle, with its own noise."""

import math

import numpy as np
import pytest

import microsim
from microsim.engine.calls import Scene
from microsim.engine.components import FixedMount
from microsim.engine.geometry import clearance_of, distance_to_occupied
from microsim.engine.motion import COS_YAW, PLACE_X, PLACE_Y, SENSOR_FIELDS, SIN_YAW
from microsim.sensors import scan as scan_module
from microsim.sensors.scan import cast
from tests.support import Probe, bare, decoded, many, on_topic, scenario

ROOM = [
    {"type": "box", "center": [10, 5.5, 0], "size": [10, 1, 1]},
    {"type": "box", "center": [10, 14.5, 0], "size": [10, 1, 1]},
    {"type": "box", "center": [5.5, 10, 0], "size": [1, 10, 1]},
    {"type": "box", "center": [14.5, 10, 0], "size": [1, 10, 1]},
]  # free from 6 to 14 along x and y


def scanning(x=10.0, y=10.0, yaw=0.0, obstacles=ROOM, physics_hz=10, seed=1, **scan):
    scan = {"hz": physics_hz, "sigma_m": 0, "mount": {"xyz": [0, 0, 0]}, **scan}
    start = {"map_pose": {"x": x, "y": y, "yaw": yaw}}
    return microsim.Simulation(
        scenario(
            seed=seed,
            physics_hz=physics_hz,
            obstacles=list(obstacles),
            robots={"rover": bare(scan=scan, start=start)},
        )
    )


def scans(sim, ticks=0):
    return decoded(sim.step(ticks), "/rover/scan")


def to_square(angle, half=4.0):
    return half / max(abs(math.cos(angle)), abs(math.sin(angle)))


@pytest.mark.parametrize("yaw", [0.0, 0.3, math.pi / 2, -3.0])
def test_in_the_middle_of_a_square_room_the_walls_are_where_they_are(yaw):
    message = scans(scanning(yaw=yaw))[0]
    angles = [message.angle_min + i * message.angle_increment for i in range(len(message.ranges))]
    assert message.ranges == pytest.approx([to_square(angle + yaw) for angle in angles], rel=1e-5)


def test_a_full_turn_does_not_repeat_its_first_beam():
    message = scans(scanning(beams=360))[0]
    assert message.angle_increment == pytest.approx(2 * math.pi / 360)
    assert message.angle_min == pytest.approx(-math.pi)
    assert message.angle_max == pytest.approx(math.pi - 2 * math.pi / 360)
    assert len(message.ranges) == 360


def test_a_part_of_a_turn_has_a_beam_at_both_ends():
    message = scans(scanning(beams=91, angle_min=-math.pi / 4, angle_max=math.pi / 4))[0]
    assert message.angle_increment == pytest.approx(math.pi / 2 / 90)
    assert message.angle_max == pytest.approx(math.pi / 4)
    assert message.ranges[0] == pytest.approx(4.0 * math.sqrt(2), rel=1e-6)
    assert message.ranges[45] == pytest.approx(4.0)


def test_a_single_beam_is_a_scan():
    message = scans(scanning(beams=1, angle_min=0.0, angle_max=1.0))[0]
    assert message.ranges == pytest.approx([4.0])


def test_the_mount_turns_and_moves_every_beam():
    turned = scans(scanning(mount={"xyz": [1.0, 0, 0], "rpy": [0, 0, math.pi / 2]}, beams=4))[0]
    # beams at -pi, -pi/2, 0, pi/2 of a scanner one metre ahead that looks left
    assert turned.ranges == pytest.approx([4.0, 3.0, 4.0, 5.0])


def test_every_beam_is_the_ray_that_a_range_sensor_would_cast():
    sim = scanning(x=8.3, y=11.1, yaw=0.7, beams=360, max_m=7.0)
    message, world = scans(sim)[0], sim.world
    for index, seen in enumerate(message.ranges):
        angle = -math.pi + index * 2 * math.pi / 360 + 0.7
        ray = distance_to_occupied(world.clearance, 1.0, 8.3, 11.1, math.cos(angle), math.sin(angle), 7.0, False)
        assert seen == pytest.approx(ray, rel=1e-5) or (seen == ray == math.inf)


@pytest.mark.parametrize(("beams", "cell", "reach"), [(61, 0.3, 30.0), (16, 1.0, 4.0), (1, 0.1, 9.0)])
def test_beams_side_by_side_are_single_rays_bit_for_bit(beams, cell, reach):
    random = np.random.default_rng(beams)
    clearance = clearance_of((random.random((40, 50)) < 0.06).astype(np.uint8))
    angles = np.concatenate([[0.0], random.uniform(-4, 4, beams - 1)])  # the first one along an axis
    table = np.concatenate([np.cos(angles), np.sin(angles)])
    scene = Scene(np.zeros((1, 1)), clearance, clearance, clearance, cell, -1.0, 2.0, 0.1, np.zeros(12), table)
    for _ in range(40):
        motion = np.zeros(SENSOR_FIELDS)
        x, y = random.uniform(-3, 53) * cell, random.uniform(-3, 43) * cell
        motion[PLACE_X], motion[PLACE_Y] = x - 1.0, y + 2.0
        turn = float(random.choice([0.0, random.uniform(-3, 3)]))
        motion[SIN_YAW], motion[COS_YAW] = sine, cosine = math.sin(turn), math.cos(turn)
        x, y, distances = motion[PLACE_X] + 1.0, motion[PLACE_Y] - 2.0, np.empty(beams)
        cast(motion, scene, reach, distances)
        for ahead, aside, found in zip(table[:beams], table[beams:], distances, strict=True):
            dx, dy = cosine * ahead - sine * aside, sine * ahead + cosine * aside
            ray = distance_to_occupied(clearance, cell, x, y, dx, dy, reach, False)
            assert found == ray
            assert math.copysign(1.0, found) == math.copysign(1.0, ray)


def test_out_of_reach_is_plus_and_too_near_minus_infinity():
    far = scans(scanning(max_m=4.5))[0].ranges
    assert np.isposinf(far).any()
    assert far[np.isfinite(far)].max() <= 4.5
    near = scans(scanning(min_m=4.5, max_m=20.0))[0].ranges
    assert np.isneginf(near).any()
    assert near[np.isfinite(near)].min() >= 4.5


def test_noise_has_its_sigma_on_every_beam_and_beams_are_independent():
    seen = np.array([message.ranges for message in scans(scanning(sigma_m=0.02, beams=8), many(2000))])
    n = len(seen)
    assert seen.std(axis=0) == pytest.approx([0.02] * 8, rel=4.5 / math.sqrt(2 * n))
    assert np.abs(np.corrcoef(seen.T) - np.eye(8)).max() < 4.5 / math.sqrt(n)


def test_dropouts_are_nan_at_their_rate_on_each_beam_alone():
    seen = np.array([message.ranges for message in scans(scanning(dropout_probability=0.2, beams=50), many(400))])
    lost = np.isnan(seen)
    assert lost.mean() == pytest.approx(0.2, abs=4 * 0.4 / math.sqrt(lost.size))
    assert abs(np.corrcoef(lost[:, 0], lost[:, 1])[0, 1]) < 4.5 / math.sqrt(len(seen))


def test_a_nan_is_the_same_nan_everywhere():
    """The sign and payload bits of a NaN differ between processors when arithmetic made it."""
    message = on_topic(scanning(dropout_probability=1.0, beams=3).step(0), "/rover/scan")[0]
    assert message.cdr.count(bytes.fromhex("0000c07f")) == 3


def test_more_beams_leave_the_noise_of_the_first_alone():
    few = scans(scanning(sigma_m=0.02, beams=10, angle_min=0.0, angle_max=0.9))[0].ranges
    more = scans(scanning(sigma_m=0.02, beams=20, angle_min=0.0, angle_max=1.9))[0].ranges
    assert (few == more[:10]).all()


def test_inside_a_wall_every_beam_is_too_near():
    thin = [{"type": "box", "center": [10.5, 10, 0], "size": [1, 9, 1]}]
    ranges = scans(scanning(x=9.9, obstacles=thin, mount={"xyz": [1.5, 0, 0]}))[0].ranges
    assert np.isneginf(ranges).all()


def test_beam_angles_are_wrapped_before_they_are_used():
    table = Probe(scan_module.SENSOR, {"beams": 7}, mount=FixedMount(rpy=(0.0, 0.0, 1e4))).table
    assert np.hypot(*table.reshape(2, 7)) == pytest.approx(np.ones(7))
    expected = [-math.pi + i * 2 * math.pi / 7 + math.remainder(1e4, 2 * math.pi) for i in range(7)]
    assert table == pytest.approx([*np.cos(expected), *np.sin(expected)], abs=1e-9)


def test_the_message_tells_what_the_scanner_is():
    message = scans(scanning(max_m=15.0, min_m=0.3))[0]
    assert message.header.frame_id == "rover/scan_link"
    assert (message.range_min, message.range_max) == pytest.approx((0.3, 15.0))
    assert message.scan_time == pytest.approx(0.1)
