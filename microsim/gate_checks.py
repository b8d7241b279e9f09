"""What gates of lockstep name, checked against what a simulation sends and takes."""

from __future__ import annotations

from microsim.errors import UsageError, unknown
from microsim.messages.inputs import INPUTS
from microsim.messages.types import fields_of
from microsim.simulation import Simulation


def check_gates(sim: Simulation) -> None:
    """Refuse gates that could never open."""
    kinds = INPUTS.all(sim.scenario.plugins)
    taken = {
        kind.of(robot): kind.type_for(sim) for robot in sim.robots for kind in kinds if kind.is_taken_by(sim, robot)
    }
    for index, gate in enumerate(sim.scenario.lockstep):
        where = f"lockstep[{index}]"
        if gate.after is not None and gate.after not in sim.topics:
            message = f"{where}.after: this run does not send"
            raise UsageError(unknown(message, gate.after, gate.after, sorted(sim.topics)))
        if gate.expect is None:
            continue
        if gate.expect not in taken:
            message = f"{where}.expect: this run does not take"
            raise UsageError(unknown(message, gate.expect, gate.expect, sorted(taken)))
        if gate.match == "stamp" and "header" not in dict(fields_of(taken[gate.expect])):
            hint = "; set `stamped_cmd_vel: true`, or leave out `match`" if "cmd_vel" in gate.expect else ""
            raise UsageError(f"{where}.match: {gate.expect} is a {taken[gate.expect]}, which has no stamp{hint}")
