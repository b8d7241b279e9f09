"""IMU: turn rate and specific force (gravity included, as an accelerometer feels it) in its own axes, with white noise.

It is turned as it is mounted, but measures as if it sat at base_link: the lever arm is left out.
"""

from dataclasses import dataclass

from microsim.sim.components import GRAVITY
from microsim.sim.geometry import Vector
from microsim.sim.motion import ACCEL_FORWARD, ACCEL_LEFT, ACCEL_UP, AXES, PITCHING, ROLLING, TURN, Motion, is_level
from microsim.sim.noise import six_normals


@dataclass(frozen=True)
class Imu:
    gyro_sigma: float  # [rad/s]
    accel_sigma: float  # [m/s^2]
    key: int
    axes: tuple[Vector, Vector, Vector] | None = None  # rotation of the IMU in base_link; None: the same axes

    def sample(self, motion: Motion, tick: int) -> tuple[float, float, float, float, float, float]:
        """(turn rate x, y, z [rad/s], acceleration x, y, z [m/s^2])."""
        a, b, c, d, e, f = six_normals(self.key, tick)
        gyro, accel = self.gyro_sigma, self.accel_sigma
        turn = (motion[ROLLING], motion[PITCHING], motion[TURN])
        force = (motion[ACCEL_FORWARD], motion[ACCEL_LEFT], motion[ACCEL_UP] + GRAVITY)
        if not is_level(motion):
            down = motion[AXES + 6 : AXES + 9]
            force = (
                motion[ACCEL_FORWARD] + GRAVITY * down[0],
                motion[ACCEL_LEFT] + GRAVITY * down[1],
                motion[ACCEL_UP] + GRAVITY * down[2],
            )
        if self.axes is not None:
            turn, force = _into(self.axes, turn), _into(self.axes, force)
        return (
            turn[0] + gyro * a,
            turn[1] + gyro * b,
            turn[2] + gyro * c,
            force[0] + accel * d,
            force[1] + accel * e,
            force[2] + accel * f,
        )


def _into(axes: tuple[Vector, Vector, Vector], vector: Vector) -> Vector:
    """A vector of base_link in the rotated frame: times the transposed matrix."""
    (a, b, c), (d, e, f), (g, h, i) = axes
    x, y, z = vector
    return a * x + d * y + g * z, b * x + e * y + h * z, c * x + f * y + i * z
