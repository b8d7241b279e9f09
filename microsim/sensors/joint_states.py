"""Angles and speeds of a robot's joints, by the kernel of its model."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from microsim.documents.values import Hertz
from microsim.messages.encoders import header
from microsim.messages.topics import Qos
from microsim.messages.types import new
from microsim.sensors.sensor import Display, KernelSensor, MessageForm, SensorBlock, SensorContext


class JointStates(SensorBlock):
    """`sensor_msgs/JointState` on `joint_states`."""

    hz: Hertz = Field(30, description="Rate; at most physics_hz [Hz].")


def _joint_state(context: SensorContext) -> Any:
    names = context.robot_settings.engine_model.joints
    zeros = np.zeros(len(names))
    return new(
        "sensor_msgs/msg/JointState",
        header=header(context.base_frame),
        name=list(names),
        position=zeros,
        velocity=zeros.copy(),
    )


SENSOR = KernelSensor(
    "joint_states",
    JointStates,
    title="Joint states",
    about="angles of wheels and steering",
    sample_of=lambda context: context.robot_settings.engine_model.joint_kernel,
    reads="state",
    reading={"position": "rad", "velocity": "rad/s"},
    size=lambda context: len(context.robot_settings.engine_model.joints),
    numbers=lambda context: context.robot_settings.engine_model.joint_numbers(context.robot_settings),
    is_common=False,
    messages=(
        MessageForm(
            "sensor_msgs/msg/JointState",
            "/{robot}/{sensor}",
            Qos(10),
            "angles of wheels and steering",
            _joint_state,
            {"position": "position", "velocity": "velocity"},
        ),
    ),
    display=Display("{age:.2f} s ago", layer="joints"),
    position=20,
)
