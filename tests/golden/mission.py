"""The scripted missions whose digests are golden: commands, teleports, radio, bad input, by the public API alone."""

import microsim

# Every type of sensor, hills, gusts, drift, distortion, jitter and a third robot; quick to run without a compiler.
SHORT = {
    "name": "short",
    "seed": -7,
    "physics_hz": 50,
    "map": {
        "cell_size_m": 0.5,
        "size_xy_cells": [40, 30],
        "origin_wgs84": [-36.8, 174.7, 20.0],
        "elevation": {"generate": "hills", "seed": 3, "amplitude_m": 1.5, "wavelength_m": 9.0},
        "surface_types": {
            "default": 0,
            "patches": [{"type": "circle", "class": "water", "center": [9, 6], "radius": 3}],
        },
    },
    "obstacles": [
        {"type": "box", "center": [12, 7.5, 0], "size": [1.5, 3, 1]},
        {"type": "cylinder", "center": [6, 11, 0], "radius": 1.2, "height": 2},
    ],
    "features": [
        {"type": "triangle", "class": "hazard", "center": [8, 5], "side": 2, "height": 0.7},
        {"type": "rectangle", "class": "target", "center": [6, 4], "size": [1, 2], "yaw": 0.4},
        {"type": "billboard", "class": "target", "center": [9, 8], "size": [1, 1.5]},
    ],
    "robots": {
        "drone": {
            "start": {"map_pose": {"x": 7.0, "y": 6.0, "z": 6.0, "yaw": 0.3}},
            "camera": {
                "hz": 4,
                "resolution": {"width": 24, "height": 24},
                "distortion": {"model": "plumb_bob", "D": [0.05, -0.01, 0.001, 0.002, 0.0]},
                "noise": {"blur_sigma_px": 0.5, "color_jitter": 0.1},
                "latency_ms": {"mean": 60, "jitter": 40, "drop_probability": 0.1},
            },
            "odom": {"hz": 20, "drift": {}},
        },
        "rover": {
            "start": {"map_pose": {"x": 9.3, "y": 7.1, "yaw": 0.1}},
            "range": {"hz": 12, "dropout_probability": 0.2},
            "scan": {"hz": 10, "beams": 90, "dropout_probability": 0.05},
        },
        "scout": {"model": "rover", "start": {"map_pose": {"x": 3.0, "y": 3.0, "yaw": 2.0}}, "sensors": {}},
    },
    "radio": {"bitrate_bps": 20000, "half_duplex": True, "reordering": True, "rssi": {}},
    "wind": {"world_xyz": [0.3, -0.2, 0.05], "gust_sigma": 0.6, "gust_tau_s": 0.8},
    "frames": {"per_robot_odom": True, "tf_hz": 30},
}

# The car, a LiDAR on every kind of robot, faults and status; as quick.
SHORT_DRIVE = {
    "name": "short drive",
    "seed": 5,
    "physics_hz": 40,
    "map": {
        "cell_size_m": 0.5,
        "size_xy_cells": [50, 40],
        "elevation": {"generate": "hills", "seed": 8, "amplitude_m": 1.0, "wavelength_m": 12.0},
    },
    "obstacles": [
        {"type": "box", "center": [16, 10, 0], "size": [1.5, 3, 1]},
        {"type": "cylinder", "center": [8, 15, 0], "radius": 1.2, "height": 2},
    ],
    "robots": {
        "ego": {
            "start": {"map_pose": {"x": 8.0, "y": 9.0, "yaw": 0.2}},
            "camera": {"hz": 5, "resolution": {"width": 16, "height": 12}, "latency_ms": {"drop_probability": 0.1}},
            "lidar": {"hz": 8, "rings": 4, "columns": 24, "dropout_probability": 0.1},
            "cmd_timeout_s": 0.5,
        },
        "drone": {
            "start": {"map_pose": {"x": 12.0, "y": 9.0, "z": 3.0}},
            "camera": None,
            "lidar": {"hz": 4, "rings": 3, "columns": 16, "lowest": -1.2, "highest": -0.3},
        },
    },
    "faults": [
        "ego/camera:fail@0.5s-1s",
        "ego/lidar:fail@1s-1.2s",
        "drone/gps:jump(9,0,0)@0.2s-1s",
        "radio:blackout@0s-1s",
    ],
}

SCENARIOS = ("default", "flat", "obstacles_arena", "showcase", "maze")

# Every mission that is shipped is flown in each of these.
FLOWN_IN = ("default", "flat", "obstacles_arena")
MISSIONS = ("hover", "patrol", "obstacle_stop", "radio_ping", "team_task")


def fly(sim: microsim.Simulation, seconds: int) -> None:
    """`seconds` of commands held, changed and repeated, teleports, packets both ways, and input that is ignored."""
    ticks = round(float(sim.scenario.physics_hz))
    for second in range(seconds):
        sim.command(
            "drone", vx=2.0 - 0.4 * second, vy=0.3 * second, vz=0.5 - 0.25 * second, yaw_rate=0.7 - 0.2 * second
        )
        sim.command("rover", v=1.5 - 0.2 * second, omega=0.8 - 0.35 * second)
        sim.radio_send("drone", b"target" + bytes([second]) * second)
        sim.step(ticks // 4)
        sim.command("rover", v=float("nan"), omega=1.0)
        sim.radio_send("rover", b"")
        for _ in range(3):
            sim.radio_send("rover", b"position" * 4)
        sim.step(ticks - ticks // 4)
        if second == seconds // 2:
            state = sim.state("rover")
            sim.set_pose("drone", x=12.5, y=8.25, z=9.0, yaw=-2.5)
            sim.set_pose("rover", x=state.x, y=state.y, yaw=3.0)
            sim.set_pose("rover", x=-1.0, y=2.0)
            sim.command("drone", vx=1e300, vz=-3.0)
            sim.step(3)


def run_mission(name: str = "default") -> str:
    """The digest of about ten simulated seconds in a scenario that is shipped."""
    sim = microsim.Simulation(microsim.load_scenario(name), seed=7)
    fly(sim, 10)
    return sim.digest()


def run_short_mission() -> str:
    """The digest of three simulated seconds with everything that has noise: quick without a compiler or emulated."""
    sim = microsim.Simulation(microsim.load_scenario(SHORT))
    fly(sim, 3)
    return sim.digest()


def drive(sim: microsim.Simulation, seconds: int) -> None:
    """`seconds` of commands of every form, with pauses in which they time out."""
    ticks = round(float(sim.scenario.physics_hz))
    for second in range(seconds):
        sim.command("ego", steering=0.3 - 0.2 * second, speed=4.0)
        sim.step(ticks // 4)
        sim.command_twist("ego", (3.0, 0.0, 0.0), -0.4)
        sim.step(ticks // 4)
        sim.command("ego", steering=-0.1, throttle=0.6, brake=0.1 * second)
        sim.step(ticks - 2 * (ticks // 4))
    sim.step(ticks)


def run_short_drive() -> str:
    sim = microsim.Simulation(microsim.load_scenario(SHORT_DRIVE))
    sim.command("drone", vx=1.0, yaw_rate=0.3)
    sim.radio_send("drone", b"lost in the dark")
    drive(sim, 2)
    return sim.digest()


def run_bundle_drive() -> str:
    """The digest of a car and a drone in worlds/minimal_test, with the bundle's camera and LiDAR."""
    sim = microsim.Simulation(microsim.load_scenario({"world": "minimal_test", "robots": {"ego": {}, "drone": {}}}))
    drive(sim, 3)
    return sim.digest()


def fly_shipped(mission: str, scenario: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a shipped mission, and what was not as it expects."""
    from microsim.parts.missions import fly_mission

    outcome = fly_mission(mission, scenario)
    return outcome.sim.digest(), outcome.violations


def all_digests() -> dict[str, str]:
    """Name in digests.json -> digest."""
    others = {f"mission_{name}": run_mission(name) for name in SCENARIOS[1:]}
    flown = {f"{mission}_in_{name}": fly_shipped(mission, name)[0] for mission in MISSIONS for name in FLOWN_IN}
    driven = {"short_drive": run_short_drive(), "bundle_drive": run_bundle_drive()}
    return {"mission": run_mission(), "short_mission": run_short_mission(), **others, **flown, **driven}
