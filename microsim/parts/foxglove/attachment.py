"""The run in Foxglove: one more transport for the node of the run."""

from __future__ import annotations

import sys
from typing import Annotated, NamedTuple

from microsim.attachment import Attachment, Plan
from microsim.errors import UsageError
from microsim.options import option
from microsim.parts.ros2.attachment import Network

_FOXGLOVE = "Serve the run to Foxglove on this port of this machine, 8765 if none is given."
_HOST = "Serve it on another address, such as 0.0.0.0: everyone who reaches it can drive."


class FoxgloveOptions(NamedTuple):
    foxglove: Annotated[int | None, option("--foxglove [PORT]", _FOXGLOVE, without_value="8765", min=0, max=65535)] = (
        None
    )
    foxglove_host: Annotated[str | None, option("--foxglove-host HOST", _HOST, show_default="127.0.0.1")] = None


class Foxglove(Attachment):
    name, options, commands, position = "foxglove", FoxgloveOptions, ("run",), 21  # of those between network and node

    def prepare(self, plan: Plan) -> None:
        if self.given.foxglove is None:
            raise UsageError("--foxglove-host needs --foxglove")
        from microsim.parts.foxglove.transport import FoxgloveTransport

        network = plan.find(Network)
        assert network is not None  # it joins the same command
        host = self.given.foxglove_host or "127.0.0.1"
        quiet = ["--disable-stdout-logs"] if network.transports else []
        arguments = ["--ros-args", *(each for each in plan.ros_args if each != "--ros-args"), *quiet]

        def opened(port: int) -> None:
            print(f"Foxglove: open a connection to ws://{host}:{port}", file=sys.stderr, flush=True)

        network.join(FoxgloveTransport(host, self.given.foxglove, arguments, opened), plan)


ATTACHMENT = Foxglove
