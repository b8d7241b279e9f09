"""IMU: turn rate and specific force (gravity included, as an accelerometer feels it) in body axes, with white noise."""

from dataclasses import dataclass

from microsim.sim.components import GRAVITY
from microsim.sim.motion import ACCEL_FORWARD, ACCEL_LEFT, ACCEL_UP, TURN, Motion
from microsim.sim.noise import six_normals


@dataclass(frozen=True)
class Imu:
    gyro_sigma: float  # [rad/s]
    accel_sigma: float  # [m/s^2]
    key: int

    def sample(self, motion: Motion, tick: int) -> tuple[float, float, float, float, float, float]:
        """(turn rate x, y, z [rad/s], acceleration x, y, z [m/s^2])."""
        a, b, c, d, e, f = six_normals(self.key, tick)
        gyro, accel = self.gyro_sigma, self.accel_sigma
        return (
            gyro * a,
            gyro * b,
            motion[TURN] + gyro * c,
            motion[ACCEL_FORWARD] + accel * d,
            motion[ACCEL_LEFT] + accel * e,
            motion[ACCEL_UP] + GRAVITY + accel * f,
        )
