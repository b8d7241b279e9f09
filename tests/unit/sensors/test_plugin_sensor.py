"""Sensors that others write: the altimeter of examples/, by folder and by entry point, and what a bad one gets."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import microsim
from microsim.sensors import SENSORS
from tests.support import bare, decoded, on_topic, scenario

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "altimeter"
DRONE = {"start": {"map_pose": {"x": 5, "y": 5, "z": 8}}}


def altimeter(**options):
    return scenario(
        plugins=[str(EXAMPLE)], robots={"drone": bare(**DRONE, sensors={"baro": {"type": "altimeter", **options}})}
    )


def pressures(sim, ticks):
    return np.array([message.fluid_pressure for message in decoded(sim.step(ticks), "/drone/baro")])


def test_the_example_measures_the_pressure_of_the_standard_atmosphere():
    sim = microsim.Simulation(altimeter(sigma_pa=0, base_altitude_m=992))
    assert pressures(sim, 0) == pytest.approx([89_874.6], abs=1.0)  # the standard atmosphere at 1000 m


def test_the_example_lags_behind_a_climb():
    quick, slow = (microsim.Simulation(altimeter(sigma_pa=0, lag_s=lag, hz=60)) for lag in (0, 2.0))
    for sim in (quick, slow):
        sim.command("drone", vz=3.0)
    fast, late = pressures(quick, 60), pressures(slow, 60)
    assert (np.diff(fast[2:]) < 0).all()
    assert (late[2:] > fast[2:]).all()


def test_the_example_has_noise_of_its_own():
    noise = np.diff(pressures(microsim.Simulation(altimeter(sigma_pa=5, hz=60)), 600)) / np.sqrt(2)
    assert noise.std() == pytest.approx(5.0, rel=0.1)


def test_it_is_sent_at_its_rate_in_its_own_frame():
    messages = microsim.Simulation(altimeter(hz=12, mount={"xyz": [0, 0, 0.05]})).step(60)
    ticks = [round(message.stamp_ns * 60 / 1e9) for message in on_topic(messages, "/drone/baro")]
    assert ticks == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60]
    assert decoded(messages, "/drone/baro")[0].header.frame_id == "drone/baro_link"
    frames = [transform.child_frame_id for transform in decoded(messages, "/tf_static")[0].transforms]
    assert frames == ["drone/baro_link"]


def test_it_knows_where_it_is_mounted():
    high, low = (microsim.Simulation(altimeter(sigma_pa=0, mount={"xyz": [0, 0, z]})) for z in (2.0, -2.0))
    assert (pressures(low, 0) - pressures(high, 0)) / 12.0 == pytest.approx([4.0], abs=0.1)


@pytest.mark.parametrize("way", ["folder", "entry point"])
def test_the_shipped_scenarios_find_it_by_folder_and_by_entry_point(way, tmp_path, monkeypatch):
    """The package's own metadata, as pip would install it."""
    file = EXAMPLE / ("altimeter_by_folder.yaml" if way == "folder" else "altimeter.yaml")
    if way == "entry point":
        package = tmp_path / "package"
        shutil.copytree(EXAMPLE, package)
        command = [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info"]
        subprocess.run(command, cwd=package, check=True, capture_output=True)
        monkeypatch.syspath_prepend(str(package))
    sim = microsim.Simulation(file)
    assert len(on_topic(sim.step(60), "/drone/baro")) == 21


def test_without_the_package_the_scenario_says_what_is_missing():
    with pytest.raises(microsim.ScenarioError, match="unknown sensor type 'altimeter'"):
        microsim.load_scenario(EXAMPLE / "altimeter.yaml")


def test_another_sensor_of_the_same_type_has_other_noise():
    two = scenario(
        plugins=[str(EXAMPLE)],
        robots={"drone": bare(**DRONE, sensors={name: {"type": "altimeter", "hz": 60} for name in ("one", "two")})},
    )
    messages = microsim.Simulation(two).step(20)
    one, other = ([m.fluid_pressure for m in decoded(messages, f"/drone/{name}")] for name in ("one", "two"))
    assert len(set(one) & set(other)) == 0


# ---- snapshots


@pytest.mark.parametrize("way", ["restore", "fork", "another simulation"])
def test_a_plugins_state_and_its_view_of_the_world_survive_time_travel(way):
    sim = microsim.Simulation(altimeter(lag_s=1.0, hz=60))
    sim.command("drone", vz=2.0)
    sim.step(37)
    snap, twin = sim.snapshot(), sim.fork()
    straight = [message.cdr for message in sim.step(60)]
    if way == "restore":
        sim.restore(snap)
        twin = sim
    elif way == "another simulation":
        twin = microsim.Simulation(altimeter(lag_s=1.0, hz=60))
        twin.restore(snap)
        sim.set_pose("drone", x=1.0, y=1.0, z=500.0)
        sim.step(5)  # what the first one does is nothing to the other
    assert [message.cdr for message in twin.step(60)] == straight


def test_one_snapshot_can_be_restored_many_times():
    sim = microsim.Simulation(altimeter(lag_s=1.0, hz=60))
    sim.command("drone", vz=2.0)
    sim.step(10)
    snap = sim.snapshot()
    runs = []
    for _ in range(3):
        sim.restore(snap)
        runs.append([message.cdr for message in sim.step(20)])
    assert runs[0] == runs[1] == runs[2]


# ---- errors


@pytest.fixture
def plugin(tmp_path):
    """Writes a plug-in from the body of its class and gives a scenario with it."""

    def write(
        body="", publish="{'temperature': 1.0}", message_type="sensor_msgs/msg/Temperature", create="Probe", **more
    ):
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        suffix = f", frame_suffix={more['frame_suffix']!r}" if more else ""
        source = f"""
from microsim.sensors.sensor import PythonSensor

class Probe:
    def __init__(self, context):
        self.mine = context
        self.ticks = 0
    def update(self, dt):
        self.ticks += 1
    def publish(self):
        return {publish}
{lines}

SENSOR = PythonSensor("probe", {message_type!r}, {create}{suffix})
"""
        folder = tmp_path / "plugins"
        folder.mkdir(exist_ok=True)
        (folder / "probe.py").write_text(source, encoding="utf-8")
        return scenario(plugins=[str(folder)], robots={"drone": bare(**DRONE, sensors={"nose": {"type": "probe"}})})

    return write


def complaint(settings, ticks=20):
    with pytest.raises(microsim.PluginError) as caught:
        microsim.Simulation(settings).step(ticks)
    return str(caught.value)


def test_an_error_in_create_names_the_sensor(plugin):
    settings = plugin(create="lambda context: 1 / 0")
    assert complaint(settings).endswith(
        "probe.py:14: sensor drone/nose failed at tick 0: ZeroDivisionError: division by zero"
    )


def test_an_error_in_update_names_the_sensor_and_the_tick(plugin):
    settings = plugin(
        "def update(self, dt):\n    self.ticks += 1\n    if self.ticks == 7: raise RuntimeError('worn out')"
    )
    assert complaint(settings).endswith("probe.py:14: sensor drone/nose failed at tick 7: RuntimeError: worn out")


def test_an_error_in_publish_names_the_sensor_and_the_tick(plugin):
    settings = plugin(publish="{'temperature': [][self.ticks]}")
    assert "probe.py:11: sensor drone/nose failed at tick 0: IndexError" in complaint(settings)


@pytest.mark.parametrize(
    ("publish", "part"),
    [
        ("{'temprature': 1.0}", "no field temprature; there are: header, temperature, variance"),
        ("{'temperature': 'warm'}", "failed at tick 0"),
        ("{'temperature': None}", "failed at tick 0"),
        ("{'temperature': [1.0]}", "failed at tick 0"),
        ("{'header': 5}", "failed at tick 0"),
        ("[1.0]", "failed at tick 0"),
        ("42", "failed at tick 0"),
        ("'text'", "failed at tick 0"),
        ("{1: 2}", "failed at tick 0"),
    ],
)
def test_fields_that_do_not_fit_the_message_are_the_sensors_fault(plugin, publish, part):
    text = complaint(plugin(publish=publish))
    assert "drone/nose" in text
    assert part in text


def test_a_missing_method_is_the_sensors_fault(plugin):
    assert "drone/nose failed at tick 0" in complaint(plugin(create="lambda context: object()"))


def test_an_unknown_message_type_is_refused_before_the_run(plugin):
    text = complaint(plugin(message_type="sensor_msgs/msg/Thermometer"), ticks=0)
    assert text.endswith("probe.py:14: sensor drone/nose: there is no message type 'sensor_msgs/msg/Thermometer'")


def test_a_sensor_that_cannot_be_copied_says_so_when_a_snapshot_is_taken(plugin):
    sim = microsim.Simulation(plugin("def update(self, dt):\n    self.stream = (n for n in range(3))"))
    sim.step(3)
    with pytest.raises(microsim.PluginError, match="drone/nose failed at tick 3"):
        sim.snapshot()


def test_a_sensor_may_have_nothing_to_say(plugin):
    sim = microsim.Simulation(plugin(publish="None if self.ticks < 10 else {'temperature': 1.0}"))
    assert [m.stamp_ns for m in on_topic(sim.step(20), "/drone/nose")] == [200_000_000, 300_000_000]


def test_update_is_called_on_every_tick_and_publish_when_due(plugin):
    sim = microsim.Simulation(plugin(publish="{'temperature': float(self.ticks)}"))
    assert [m.temperature for m in decoded(sim.step(30), "/drone/nose")] == [0.0, 6.0, 12.0, 18.0, 24.0, 30.0]


def test_a_plugin_may_name_its_frame(plugin):
    messages = microsim.Simulation(plugin(frame_suffix="_probe")).step(0)
    assert decoded(messages, "/drone/nose")[0].header.frame_id == "drone/nose_probe"
    assert decoded(messages, "/tf_static")[0].transforms[0].child_frame_id == "drone/nose_probe"


def test_a_plugin_that_holds_parts_of_the_context_follows_its_own_simulation_after_a_fork(plugin):
    """It may keep the worlds, the motions or a method: the twin's are put in their place."""
    settings = plugin(
        "def update(self, dt):\n"
        "    if not hasattr(self, 'parts'):\n"
        "        self.parts = [self.mine.worlds, self.mine.worlds.motions, self.mine.normals]",
        publish="{'temperature': self.parts[1]['drone'][2] if self.mine.tick else 0.0}",
    )
    sim = microsim.Simulation(settings)
    sim.step(6)
    twin = sim.fork()
    sim.set_pose("drone", x=5.0, y=5.0, z=100.0)
    sim.step(30)
    assert decoded(twin.step(6), "/drone/nose")[-1].temperature == 8.0
    assert decoded(sim.step(6), "/drone/nose")[-1].temperature == 100.0


def test_the_altimeter_is_not_loaded_unless_it_is_named():
    microsim.Simulation(scenario(plugins=[str(EXAMPLE)]))
    assert SENSORS.find("altimeter") is None
