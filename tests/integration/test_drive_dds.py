"""A car over DDS: Ackermann commands in, point clouds and status out, a lap of worlds/oval on the road."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cyclonedds.util import duration

from microsim import messages as wire
from microsim.messages import decode_checked
from microsim.messages.topics import TOPICS, Qos
from microsim.rays import POINT
from tests.integration.conftest import wait_for
from tests.integration.test_node_dds import SET_INT, Stage
from tests.parts.ros2.test_ros2_examples import CAMERAS, example, oval_without

ACKERMANN = TOPICS["ackermann_cmd"].type
ODOMETRY, STATUS, CLOUD = TOPICS["odom"].type, TOPICS["sim_status"].type, TOPICS["points"].type


class Car(Stage):
    """A paused world with a car, stepped from here."""

    def __init__(self, namespace: str, scenario: Path) -> None:
        super().__init__(namespace, str(scenario))
        for topic, kind in (("/ego/odom", ODOMETRY), ("/sim/status", STATUS), ("/ego/lidar_top/points", CLOUD)):
            self.listen(topic, kind, Qos(1000))
        self.pause()

    def drive(self, steering: float, speed: float) -> None:
        message = wire.new(ACKERMANN)
        message.drive.steering_angle, message.drive.speed = steering, speed
        self.send("/ego/ackermann_cmd", ACKERMANN, wire.encode(ACKERMANN, message))
        # DDS keeps no order between topics: without this a request could overtake the command
        self._publishers["/ego/ackermann_cmd"].writer.writer.wait_for_acks(duration(seconds=1))

    def close(self) -> None:
        self.end()

    def step(self, ticks: int) -> None:
        assert self.call("/sim/step", SET_INT, data=ticks).success

    def newest(self, topic: str, kind: str) -> Any:
        wait_for(lambda: self.received[topic], self.controller.poll)
        return decode_checked(kind, self.received[topic][-1])


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "drive.yaml"
    data = oval_without(*CAMERAS)
    data["robots"]["ego"]["sensors"]["lidar_top"] = {"columns": 90, "hz": 5}
    data["robots"]["ego"]["odom"] = {"hz": 20}
    file.write_text(json.dumps(data))
    return file


def test_ackermann_commands_arrive_and_point_clouds_come_back(namespace: str, scenario: Path) -> None:
    with closing(Car(namespace, scenario)) as car:
        for _ in range(50):
            car.drive(0.25, 3.0)
            car.step(20)
            if car.newest("/ego/odom", ODOMETRY).twist.twist.linear.x > 1.0:
                break
        cloud = car.newest("/ego/lidar_top/points", CLOUD)
        assert cloud.header.frame_id == "lidar_top"
        assert cloud.width * cloud.point_step == len(cloud.data) > 0
        points = np.frombuffer(cloud.data.tobytes(), POINT)
        assert np.isfinite(points["x"]).all()
        assert points["ring"].max() < 32
        status = car.newest("/sim/status", STATUS)
        assert {pair.key for pair in status.status[0].values} >= {"is_offroad", "polygon", "priority", "state"}
        car.step(150)  # and no command
        wait_for(lambda: b"emergency_stop" in car.received["/sim/status"][-1], car.controller.poll)


@pytest.mark.slow
def test_a_lap_of_the_oval_over_dds_stays_on_the_road_until_it_is_told_to_leave(namespace: str, scenario: Path) -> None:
    pursuit_file = example("pure_pursuit")
    pursuit = pursuit_file.PurePursuit(pursuit_file.oval(), 9.0)
    with closing(Car(namespace, scenario)) as car:
        car.drive(0.0, 1.0)
        car.step(10)
        for _ in range(1200):
            drive = pursuit.command(pursuit_file.pose_of(car.newest("/ego/odom", ODOMETRY)))
            if pursuit.is_finished:
                break
            car.received["/ego/odom"].clear()
            car.drive(*drive)
            car.step(5)
        assert pursuit.is_finished
        looks = [pursuit_file.is_offroad(decode_checked(STATUS, cdr)) for cdr in car.received["/sim/status"]]
        assert len(looks) > 300
        assert not any(looks)
        for _ in range(12):
            car.drive(-0.3, 5.0)
            car.step(50)
        wait_for(lambda: pursuit_file.is_offroad(car.newest("/sim/status", STATUS)), car.controller.poll)
