"""A barometric altimeter: air pressure where it sits, through a slow membrane, with noise.

One constant, `SENSOR`, is all that MicroSim looks for. The digest of a run covers plug-ins too, so this one computes as
the engine does: `exp` and `log` come from `microsim.exact`, noise from the context, time from `update`.
"""

from typing import Any

from pydantic import BaseModel, Field

from microsim import PythonSensor, exact

SEA_LEVEL_PA = 101_325.0


class Options(BaseModel):
    """The keys a scenario may write beside `type`, `hz` and `mount`."""

    sigma_pa: float = Field(3.0, ge=0, description="White noise, 1 sigma [Pa]; 12 Pa are about a metre.")
    lag_s: float = Field(0.5, ge=0, description="Time constant of the membrane; 0: none [s].")
    base_altitude_m: float = Field(0.0, ge=-500, le=9000, description="Altitude of the map's height 0 [m].")


def pressure_at(altitude_m: float) -> float:
    """The international standard atmosphere below 11 km [Pa]."""
    return SEA_LEVEL_PA * exact.exp(5.255877 * exact.log(1.0 - 2.2557694e-5 * altitude_m))


class Altimeter:
    def __init__(self, context: Any) -> None:
        self.context = context
        self.sigma_pa = float(context.options["sigma_pa"])
        self.lag_s = float(context.options["lag_s"])
        self.base_altitude_m = float(context.options["base_altitude_m"])
        self.membrane_pa = self.true_pa()  # what a snapshot keeps

    def true_pa(self) -> float:
        _, _, z = self.context.place
        return pressure_at(self.base_altitude_m + z)

    def update(self, dt: float) -> None:
        share = 1.0 - exact.exp(-dt / self.lag_s) if self.lag_s > 0.0 else 1.0
        self.membrane_pa += (self.true_pa() - self.membrane_pa) * share

    def publish(self) -> dict[str, Any]:
        noise, _ = self.context.normals()
        return {"fluid_pressure": self.membrane_pa + self.sigma_pa * noise, "variance": self.sigma_pa * self.sigma_pa}


SENSOR = PythonSensor(
    name="altimeter",
    message_type="sensor_msgs/msg/FluidPressure",
    create=Altimeter,
    options=Options,
)
