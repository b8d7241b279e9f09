"""Missions in a process of another environment: `python -m microsim.check.child`, started by `microsim check`.

A line of JSON in for each mission, a line of JSON out. Keeps the digest after every tick in a file, so that the first
tick that differs is known.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from microsim.errors import MicroSimError
from microsim.messages.outbox import Message

DIGEST_BYTES = 32


def fly(order: dict[str, Any]) -> dict[str, Any]:
    """Fly scenario, mission, seed at rtf for short_s; write `chain`, and the messages of `tick` to `dump`."""
    from microsim.missions import MissionPilot, load_mission
    from microsim.runner import Runner
    from microsim.simulation import Simulation

    mission = load_mission(order["mission"])
    seed = order["seed"] if order["seed"] is not None else mission.seed
    sim = Simulation(order["scenario"], seed)
    pilot = MissionPilot(sim, mission)
    ticks = pilot.end
    if order["short_s"] is not None:
        ticks = min(ticks, sim.clock.ticks_in(Fraction(str(order["short_s"]))))
    if order.get("dump") is not None:
        ticks = min(ticks, order["tick"])
    with Path(order["chain"]).open("wb") as chain:

        def keep(messages: Sequence[Message]) -> None:
            chain.write(bytes.fromhex(sim.digest()))
            if order.get("dump") is not None and sim.tick == order["tick"]:
                dump(messages, runner.messages - len(messages), Path(order["dump"]))

        runner = Runner(sim, order["rtf"], pilot, taps=[keep])
        runner.run(ticks)
    return {"digest": sim.digest(), "ticks": sim.tick, "seed": sim.seed, "violations": pilot.violations()}


def dump(messages: Sequence[Message], before: int, file: Path) -> None:
    """The messages of one tick, and how many there were before it."""
    rows = [[each.topic, each.type, each.stamp_ns, each.cdr.hex()] for each in messages]
    file.write_text(json.dumps({"before": before, "messages": rows}), encoding="utf-8")


def main() -> None:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what a plug-in prints is no answer
        for line in sys.stdin:
            try:
                answer = fly(json.loads(line))
            except MicroSimError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
