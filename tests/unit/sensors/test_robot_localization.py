"""The example for robot_localization: its parameters name topics and frames that its scenario has."""

from pathlib import Path

from microsim import Simulation, load_scenario
from microsim.documents.yaml_text import read_yaml
from tests.support import decoded

ROOT = Path(__file__).resolve().parents[3]

FOLDER = ROOT / "examples" / "robot_localization"


def test_the_filters_listen_to_topics_that_are_sent_and_publish_the_frames_that_are_not():
    scenario = load_scenario(FOLDER / "scenario.yaml")
    sim = Simulation(scenario)
    data = read_yaml((FOLDER / "filters.yaml").read_text(), "filters.yaml").data
    filters = {name: each["ros__parameters"] for name, each in data.items()}
    for name in ("ekf_odom", "ekf_map"):
        topics = [filters[name][key] for key in ("odom0", "imu0")]
        assert set(topics) <= set(sim.topics)
        assert all(len(filters[name][f"{key}_config"]) == 15 for key in ("odom0", "imu0"))
        covariances = ("process_noise_covariance", "initial_estimate_covariance")  # the service /reset needs both
        assert all(len(filters[name][key]) == 15 for key in covariances)
    messages = sim.step(60)
    odometry = decoded(messages, "/rover/odom")[-1]
    assert odometry.header.frame_id == filters["ekf_odom"]["world_frame"] == filters["ekf_odom"]["odom_frame"]
    assert odometry.child_frame_id == filters["ekf_map"]["base_link_frame"]
    assert decoded(messages, "/tf")[-1].transforms == []
    assert tuple(filters["navsat_transform"]["datum"][:2]) == scenario.map.origin_wgs84[:2]
