"""`--controller`: code in a file that commands a robot."""

from __future__ import annotations

from typing import NamedTuple

from microsim.attachment import Attachment, Plan
from microsim.cli.command import ControllerOption
from microsim.errors import UsageError


class ControllerOptions(NamedTuple):
    controller: ControllerOption = None


class ControllerAttachment(Attachment):
    """The scenario of the run, with these controllers. They are part of it: forks, states and recordings know them."""

    name, options, commands, position = "controller", ControllerOptions, ("run",), 12  # after a mission's scenario

    def prepare(self, plan: Plan) -> None:
        from microsim.scenario import load_scenario

        if "--from-state" in plan.given:
            raise UsageError("a state continues with the controllers that it was saved with: leave out --controller")
        plan.scenario = load_scenario(plan.scenario or "default", controllers=self.given.controller)


ATTACHMENT = ControllerAttachment
