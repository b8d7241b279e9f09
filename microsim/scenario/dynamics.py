"""Mass, drag and command timeout of a rover: the constants of its dynamics, for scenarios and for `sim_rover`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from microsim.documents.values import Finite, Model, Switch

Mass = Annotated[Finite, Field(ge=1e-3, le=1e6)]
Inertia = Annotated[Finite, Field(ge=1e-6, le=1e9)]
Drag = Annotated[Finite, Field(ge=0, le=1e6)]
Force = Annotated[Finite, Field(ge=0, le=1e6)]
ResponseTime = Annotated[Finite, Field(ge=1e-4, le=1e4)]
Timeout = Annotated[Finite, Field(ge=0, le=1e6)]


class Dynamics(Model):
    """A rover's response to commands: force towards the commanded speed, drag, and what becomes of an old command."""

    use_dynamics: Switch = Field(True, description="false: the commanded speed at once, without force and drag.")
    mass: Mass = Field(5.0, description="Mass [kg].")
    inertia: Inertia = Field(0.5, description="Inertia about the vertical [kg m²].")
    response_time: ResponseTime = Field(0.3, description="Time constant towards the commanded speed [s].")
    linear_drag: Drag = Field(2.0, description="Drag per speed [N s/m].")
    angular_drag: Drag = Field(1.0, description="Drag per turning rate [N m s/rad].")
    max_force: Force = Field(20.0, description="Greatest net force; over the mass it limits acceleration [N].")
    max_torque: Force = Field(5.0, description="Greatest net torque; over the inertia it limits turning [N m].")
    command_timeout: Timeout = Field(
        0.5, description="A command not followed by another for so long counts as 0; 0: it never runs out [s]."
    )

    def too_quick(self, rate_hz: float) -> str:
        """Why speeds would never settle at so few ticks a second; empty when they do."""
        if not self.use_dynamics:
            return ""
        quickest = 1.0 / self.response_time + max(self.linear_drag / self.mass, self.angular_drag / self.inertia)
        if quickest <= 2.0 * rate_hz:
            return ""
        return (
            f"at {rate_hz:g} Hz speeds would swing for ever: 1/response_time plus drag over mass (or inertia) is "
            f"{quickest:.4g} 1/s, and may be twice the rate; lengthen response_time, lessen drag, or raise the rate"
        )
