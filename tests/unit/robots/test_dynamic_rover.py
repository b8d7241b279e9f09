"""The rover with mass and drag against closed forms and an integrator written here; it stops where a rover stops."""

import math
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import microsim
from microsim.batch import BatchSimulation
from microsim.parts.missions import fly_mission
from microsim.parts.ros2.node_parameters import ScenarioParameters
from microsim.robots import rover
from microsim.robots.rover import Dynamics
from microsim.scenario import json_schema
from tests.support import COMPILED, bare, many, scenario

M, INERTIA, C, C_TURN, T, A_MAX, ALPHA_MAX = 5.0, 0.5, 2.0, 1.0, 0.3, 4.0, 10.0
NEVER = {"command_timeout": 0}


def world(hz: float = 60, cells: int = 60, obstacles: Any = (), yaw: float = 0.0, **robot: Any) -> dict[str, Any]:
    start = {"map_pose": {"x": 30.0, "y": 30.0, "yaw": yaw}}
    return scenario(
        physics_hz=hz,
        map={"size_xy_cells": [cells, cells]},
        obstacles=list(obstacles),
        robots={"rover": bare(start=start, max_v=50.0, max_omega=50.0, **robot)},
    )


def driving(hz: float = 60, dynamics: Any = NEVER, **more: Any) -> microsim.Simulation:
    return microsim.Simulation(world(hz, dynamics=dynamics, **more))


def test_the_defaults_are_the_constants_of_the_document():
    assert Dynamics().model_dump() == {
        "use_dynamics": True,
        "mass": 5.0,
        "inertia": 0.5,
        "response_time": 0.3,
        "linear_drag": 2.0,
        "angular_drag": 1.0,
        "max_force": 20.0,
        "max_torque": 5.0,
        "command_timeout": 0.5,
    }


# ---- closed forms


@pytest.mark.parametrize("hz", [20, 60, 1000])
@pytest.mark.parametrize(
    "dynamics", [{}, {"mass": 20.0}, {"response_time": 1.0, "linear_drag": 7.0}, {"linear_drag": 0.0}]
)
def test_terminal_velocity_is_target_times_m_over_m_plus_c_t(hz: int, dynamics: dict[str, float]):
    sim = driving(hz, {**NEVER, **dynamics})
    sim.command("rover", v=1.5)
    sim.advance(15 * hz)
    mass, drag, response = (
        dynamics.get(key, value) for key, value in (("mass", M), ("linear_drag", C), ("response_time", T))
    )
    assert sim.state("rover").v == pytest.approx(1.5 * mass / (mass + drag * response), rel=1e-9)


def test_terminal_turning_rate_is_target_times_i_over_i_plus_c_t():
    sim = driving()
    sim.command("rover", omega=0.8)
    sim.advance(900)
    assert sim.state("rover").omega == pytest.approx(0.8 * INERTIA / (INERTIA + C_TURN * T), rel=1e-12)


@pytest.mark.parametrize("hz", [20, 60, 1000])
@pytest.mark.parametrize("sign", [1, -1])
def test_acceleration_is_clamped_at_4_and_10(hz: int, sign: int):
    """A far target: as long as the clamp holds, speed grows by exactly a_max a second."""
    sim = driving(hz)
    sim.command("rover", v=sign * 40.0, omega=sign * 40.0)
    for tick in range(1, hz // 4):
        sim.advance()
        assert sim.state("rover").v == pytest.approx(sign * A_MAX * tick / hz, rel=1e-12)
        assert sim.state("rover").omega == pytest.approx(sign * ALPHA_MAX * tick / hz, rel=1e-12)


def test_force_and_torque_over_mass_and_inertia_are_the_clamp():
    sim = driving(dynamics={**NEVER, "mass": 10.0, "max_force": 5.0, "inertia": 2.0, "max_torque": 1.0})
    sim.command("rover", v=10.0, omega=10.0)
    sim.advance()
    assert sim.state("rover").v == pytest.approx(0.5 / 60)
    assert sim.state("rover").omega == pytest.approx(0.5 / 60)


def test_after_the_timeout_the_rover_coasts_by_its_response_and_drag():
    """Target 0: v falls by the factor 1 − dt (1/T + c/m) a tick, once the command has acted for its 30 ticks."""
    sim = driving(dynamics={})
    sim.command("rover", v=0.9, omega=0.4)
    sim.advance(30)
    v, omega = sim.state("rover").v, sim.state("rover").omega
    for tick in range(1, 60):
        sim.advance()
        state = sim.state("rover")
        assert state.v == pytest.approx(v * (1 - (1 / T + C / M) / 60) ** tick, rel=1e-11)
        assert state.omega == pytest.approx(omega * (1 - (1 / T + C_TURN / INERTIA) / 60) ** tick, rel=1e-11)


def test_without_a_response_only_drag_is_left_and_it_decays_with_m_over_c():
    """A response time of hours is coasting by drag alone: e-folding after m / c = 2.5 s."""
    sim = driving(1000, {**NEVER, "response_time": 1e4})
    fleet, column = sim._schedule.worlds.home["rover"]
    fleet.state[fleet.model.row("v"), column] = 1.0
    sim.advance(2500)
    assert sim.state("rover").v == pytest.approx(math.exp(-1.0), rel=1e-3)


@pytest.mark.parametrize("hz", [10, 50, 60, 333, 1000])
def test_a_command_acts_for_half_a_second(hz: int):
    sim = driving(hz, {"use_dynamics": False})
    sim.command("rover", v=1.0)
    sim.advance(3 * hz)
    ticks = math.floor(0.5 * hz + 0.5)
    assert sim.state("rover").x - 30.0 == pytest.approx(ticks / hz, rel=1e-12)


def test_commands_often_enough_keep_it_going():
    sim = driving(dynamics={"use_dynamics": False})
    for _ in range(20):
        sim.command("rover", v=1.0)
        sim.advance(30)
    assert sim.state("rover").x - 30.0 == pytest.approx(10.0, rel=1e-12)


# ---- kinematics


def test_in_kinematic_mode_speed_is_the_command_at_once_and_stops_at_once():
    sim = driving(dynamics={"use_dynamics": False})
    sim.command("rover", v=1.25, omega=-0.5)
    sim.advance()
    assert (sim.state("rover").v, sim.state("rover").omega) == (1.25, -0.5)
    sim.command("rover")
    sim.advance()
    assert (sim.state("rover").v, sim.state("rover").omega) == (0.0, 0.0)


def test_midpoint_chords_of_a_turn_lie_on_the_circle_of_the_right_centre():
    """Corners of chords of v dt along yaw + ω dt/2 lie on a circle that touches the start; Euler's cuts it."""
    v, omega, hz = 1.0, 0.5, 20
    sim = driving(hz, {**NEVER, "use_dynamics": False})
    sim.command("rover", v=v, omega=omega)
    radius = 0.5 * v / hz / math.sin(0.5 * omega / hz)
    for _ in range(200):
        sim.advance()
        state = sim.state("rover")
        assert math.hypot(state.x - 30.0, state.y - 30.0 - radius) == pytest.approx(radius, rel=1e-11)


def test_midpoint_integration_of_a_turn_is_of_second_order():
    def miss(hz: int) -> float:
        sim = driving(hz, {**NEVER, "use_dynamics": False})
        sim.command("rover", v=2.0, omega=1.0)
        sim.advance(3 * hz)
        x, y = 30.0 + 2.0 * math.sin(3.0), 30.0 + 2.0 * (1.0 - math.cos(3.0))
        return math.hypot(sim.state("rover").x - x, sim.state("rover").y - y)

    assert miss(20) / miss(40) == pytest.approx(4.0, rel=1e-2)
    assert miss(40) / miss(80) == pytest.approx(4.0, rel=1e-2)


@pytest.mark.parametrize(("yaw", "omega"), [(3.1, 1.0), (-3.1, -1.0), (math.pi, 1e-3), (-math.pi, -1e-3)])
def test_yaw_wraps_at_plus_and_minus_pi(yaw: float, omega: float):
    sim = driving(dynamics={**NEVER, "use_dynamics": False}, yaw=yaw)
    sim.command("rover", omega=omega)
    for tick in range(1, 120):
        sim.advance()
        state = sim.state("rover")
        assert -math.pi <= state.yaw <= math.pi
        assert abs(math.remainder(state.yaw - (yaw + omega * tick / 60), 2 * math.pi)) < 1e-12


# ---- an integrator of its own


def integrated(commands: list[tuple[float, float, int]], hz: float, use_dynamics: bool) -> list[tuple[float, ...]]:
    """The document's formulas, line by line, in plain Python with the C library's functions."""
    dt, x, y, theta, v, w = 1.0 / hz, 30.0, 30.0, 0.0, 0.0, 0.0
    states = []
    for v_target, w_target, ticks in commands:
        for tick in range(ticks):
            timed_out = tick >= math.floor(0.5 / dt + 0.5)
            vt, wt = (0.0, 0.0) if timed_out else (v_target, w_target)
            if use_dynamics:
                f_command = M * (vt - v) / T
                f_drag = -C * v
                a = max(-A_MAX, min(A_MAX, (f_command + f_drag) / M))
                v = v + a * dt
                tau_command = INERTIA * (wt - w) / T
                tau_drag = -C_TURN * w
                alpha = max(-ALPHA_MAX, min(ALPHA_MAX, (tau_command + tau_drag) / INERTIA))
                w = w + alpha * dt
            else:
                v, w = vt, wt
            theta_mid = theta + 0.5 * w * dt
            theta = math.remainder(theta + w * dt, 2 * math.pi)
            x, y = x + v * math.cos(theta_mid) * dt, y + v * math.sin(theta_mid) * dt
            states.append((x, y, theta, v, w))
    return states


COMMANDS = st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.integers(1, 60)), min_size=1, max_size=4)


@settings(max_examples=many(40), deadline=None)
@given(COMMANDS, st.sampled_from([20, 50, 60]), st.booleans())
def test_the_model_is_the_documents_formulas(commands: Any, hz: int, use_dynamics: bool):
    sim = driving(hz, {"use_dynamics": use_dynamics})
    found = []
    for v, omega, ticks in commands:
        sim.command("rover", v=v, omega=omega)
        for _ in range(ticks):
            sim.advance()
            found.append(tuple(getattr(sim.state("rover"), name) for name in ("x", "y", "yaw", "v", "omega")))
    expected = np.array(integrated(commands, hz, use_dynamics))
    difference = np.array(found) - expected
    difference[:, 2] = [math.remainder(angle, 2 * math.pi) for angle in difference[:, 2]]
    assert np.abs(difference).max() < 1e-10


# ---- in a world


def test_it_stops_at_an_occupied_cell_like_any_rover_and_drives_away_again():
    wall = {"type": "box", "center": [33.5, 30.5, 0], "size": [0.5, 0.5, 1]}
    sim = driving(obstacles=[wall])
    sim.command("rover", v=2.0)
    sim.advance(600)
    stopped = sim.state("rover")
    assert 33.0 - 2 * rover.CONTACT_GAP_M < stopped.x < 33.0
    assert stopped.v == 0.0
    assert stopped.contacts > 0
    sim.command("rover", v=-1.0)
    sim.advance(60)
    assert sim.state("rover").x < stopped.x - 0.2


@settings(max_examples=many(30), deadline=None)
@given(st.floats(-4, 4), st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.integers(1, 20)), max_size=5))
def test_it_never_enters_an_occupied_cell_nor_leaves_the_map(yaw: float, legs: Any):
    ring = [
        {"type": "box", "center": [c + 0.5, r + 0.5, 0], "size": [0.5, 0.5, 1]}
        for c in range(27, 34)
        for r in range(27, 34)
        if c in (27, 33) or r in (27, 33)
    ]
    quick = {"max_force": 1e5, "response_time": 0.05, "command_timeout": 0}
    sim = driving(20, quick, yaw=yaw, obstacles=ring)
    for v, omega, ticks in legs:
        sim.command("rover", v=50.0 * v, omega=10.0 * omega)
        for _ in range(ticks):
            sim.advance()
            state = sim.state("rover")
            assert not sim.world.is_occupied(state.x, state.y)
            assert 27.0 < state.x < 34.0
            assert 27.0 < state.y < 34.0


def test_it_stands_on_the_ground():
    hills = {"size_xy_cells": [60, 60], "elevation": {"generate": "hills", "seed": 4}}
    sim = microsim.Simulation({**world(dynamics=NEVER), "map": hills})
    sim.command("rover", v=2.0, omega=0.3)
    for _ in range(100):
        sim.advance()
        state = sim.state("rover")
        assert state.z == sim.world.ground(state.x, state.y)


def test_rovers_with_and_without_dynamics_drive_in_one_world():
    both = scenario(
        robots={
            "plain": bare(model="rover", start={"map_pose": {"x": 3, "y": 3, "yaw": 0}}),
            "heavy": bare(model="rover", start={"map_pose": {"x": 3, "y": 6, "yaw": 0}}, dynamics={"mass": 50.0}),
            "other": bare(model="rover", start={"map_pose": {"x": 3, "y": 9, "yaw": 0}}),
        }
    )
    sim = microsim.Simulation(both)
    for robot in sim.robots:
        sim.command(robot, v=1.0)
    sim.step(30)
    assert sim.state("plain").x == sim.state("other").x > sim.state("heavy").x > 3.0
    assert [sim.model(robot).name for robot in sim.robots] == ["rover", "dynamic_rover", "rover"]


def test_many_ticks_at_once_are_as_many_single_ones():
    single, at_once = driving(dynamics={}), driving(dynamics={})
    for sim in (single, at_once):
        sim.command("rover", v=1.0, omega=0.7)
    for _ in range(100):
        single.advance()
    at_once.advance(100)
    assert single.rows("rover") == at_once.rows("rover")


# ---- in a scenario


def test_without_dynamics_nothing_is_written_out_and_the_digest_is_as_ever():
    plain, null = scenario(robots={"rover": {}}), scenario(robots={"rover": {"dynamics": None}})
    assert "dynamics" not in microsim.load_scenario(plain).to_dict()["robots"]["rover"]
    assert microsim.load_scenario(plain) == microsim.load_scenario(null)
    assert microsim.load_scenario({**plain, "robots": {"rover": {"dynamics": False}}}) == microsim.load_scenario(plain)


def test_dynamics_written_out_are_read_back():
    read = microsim.load_scenario(scenario(robots={"rover": {"dynamics": {"mass": 7}}}))
    assert read.to_dict()["robots"]["rover"]["dynamics"]["mass"] == 7.0
    assert microsim.load_scenario(read.to_dict()) == read
    defaults = microsim.load_scenario(scenario(robots={"rover": {"dynamics": True}}))
    assert defaults.robots["rover"].dynamics == Dynamics()


@pytest.mark.parametrize("dynamics", [True, False, None, {}, {"mass": 3}])
def test_the_schema_takes_what_a_scenario_takes(dynamics: Any):
    jsonschema.validate(scenario(robots={"rover": {"dynamics": dynamics}}), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(scenario(robots={"rover": {"dynamics": {"mass": -1}}}), json_schema())


@pytest.mark.parametrize(
    ("dynamics", "message"),
    [
        ({"mass": 0}, r"mass: expected a value of at least 0\.001, found 0"),
        ({"mas": 5}, "unknown key 'mas'; did you mean 'mass'"),
        ({"response_time": float("nan")}, "finite"),
        ({"response_time": 0.001}, "at 60 Hz speeds would swing for ever"),
        ({"angular_drag": 100.0}, "lengthen response_time, lessen drag, or raise the rate"),
        (3, "expected a mapping"),
    ],
)
def test_bad_dynamics_are_refused_with_the_reason(dynamics: Any, message: str):
    with pytest.raises(microsim.ScenarioError, match=message):
        microsim.load_scenario(scenario(robots={"rover": {"dynamics": dynamics}}))


def test_dynamics_may_change_during_a_run_but_not_come_and_go():
    sim = driving()
    sim.command("rover", v=1.0)
    sim.step(300)
    heavier = world(dynamics={**NEVER, "linear_drag": 20.0})
    sim.reconfigure(microsim.load_scenario(heavier))
    sim.step(600)
    assert sim.state("rover").v == pytest.approx(M / (M + 20.0 * T), rel=1e-9)
    with pytest.raises(microsim.UsageError, match="a robot's model cannot change"):
        sim.reconfigure(microsim.load_scenario(world()))


def test_a_snapshot_carries_everything():
    sim = driving(dynamics={})
    sim.command("rover", v=1.0, omega=0.5)
    sim.step(20)
    twin = sim.fork()
    sim.step(60)
    twin.step(60)
    assert twin.rows("rover") == sim.rows("rover")
    assert twin.digest() == sim.digest()


def test_dynamics_are_parameters_of_the_node_where_a_rover_has_them():
    settings = ScenarioParameters(microsim.load_scenario(world(dynamics={})))
    declared = {parameter.name: parameter for parameter in settings.declarations()}
    assert declared["rover.dynamics.mass"].value == 5.0
    assert declared["rover.dynamics.mass"].minimum == 1e-3
    assert settings.change({"rover.dynamics.mass": 8}) == ""
    assert settings.scenario.robots["rover"].dynamics.mass == 8.0
    assert "at least 0.001" in settings.change({"rover.dynamics.mass": 0.0})
    plain = ScenarioParameters(microsim.load_scenario(world()))
    assert not [parameter.name for parameter in plain.declarations() if "dynamics" in parameter.name]


def test_many_worlds_at_once_are_the_single_ones_bit_for_bit():
    """Commands are handed in with every step, and run out within the longer ones."""
    wall = {"type": "box", "center": [31.5, 30.5, 0], "size": [0.5, 3.5, 1]}
    single_world = world(dynamics={"mass": 7.0}, obstacles=[wall])
    batch, singles = BatchSimulation(single_world, n=20), [microsim.Simulation(single_world, seed=s) for s in range(20)]
    speeds = np.linspace(-2.0, 4.0, 20)
    for ticks in (20, 50, 7, 90, 33):
        batch.commands("rover")[:] = speeds, 0.1 * speeds
        batch.step(ticks)
        for sim, v in zip(singles, speeds.tolist(), strict=True):
            sim.command("rover", v=v, omega=0.1 * v)
            sim.advance(ticks)
        speeds = np.roll(speeds, 3)
    assert batch.rows("rover").T.tolist() == [sim.rows("rover") for sim in singles]
    assert sum(sim.state("rover").contacts for sim in singles) > 0


@pytest.mark.skipif(not COMPILED, reason="minutes without the compiler")
@pytest.mark.parametrize("name", ["patrol", "team_task"])
def test_a_rover_with_dynamics_flies_the_shipped_missions_that_command_it_often_enough(name: str):
    document = microsim.load_scenario("flat").to_dict()
    document["robots"]["rover"]["dynamics"] = {}
    assert fly_mission(name, microsim.load_scenario(document)).violations == ()
