"""The commands of the small nodes: what each of them is run with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from microsim.node.small_node import SmallNode
    from microsim.transport import Transport
    from microsim.transport.choose import Kind


def run_node(
    name: str,
    make: Callable[[Transport], SmallNode],
    kind: Kind = "auto",
    ros_args: tuple[str, ...] = (),
    duration: float | None = None,
    digest: bool = False,
) -> int:
    """Run the node that `make` puts on a transport, until its time is over or Ctrl-C; the exit code."""
    from microsim.cli.run import Interrupts
    from microsim.transport.choose import open_transport

    with Interrupts() as interrupts:
        try:
            transport = open_transport(kind, name, ros_args)
            try:
                node = interrupts.runner = make(transport)
                node.run(None if duration is None else node.ticks.ticks_in(Fraction(str(duration))))
            finally:
                transport.close()
        except KeyboardInterrupt:
            return 0
    for reason, count in node.ignored.items():
        print(f"{name}: ignored {count} {reason}", file=sys.stderr)
    if digest:
        print(node.core.outbox.digest.hex())
    return 0
