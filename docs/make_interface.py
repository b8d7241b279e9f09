"""Writes docs/lookup/interface.md from the tables of topics, services and parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from microsim.messages.topics import SERVICES, Qos, Topic, table
from microsim.parts.ros2.node_parameters import ScenarioParameters
from microsim.parts.ros2.sim_services import SERVICE_NAMES
from microsim.scenario import load_scenario

FILE = Path(__file__).parent / "lookup/interface.md"
HEAD = """# ROS 2 interface

Look up everything that the node `microsim` offers. A test keeps this page current: it is generated from the code
(`python docs/make_interface.py`). `<robot>` stands for a robot's name, such as `drone` or `rover`. All names are
relative to the node's namespace.

```sh
microsim run --headless                             # starts the node
ros2 node info /microsim                            # or, without ROS 2: microsim node info /microsim
```
"""
SERVICE_NOTE = """
No distribution of ROS 2 has `example_interfaces/srv/SetInt32`. The `dds` transport therefore serves `/sim/set_seed` and
`/sim/step` under two types, this one and `microsim_interfaces/srv/SetInt32` (in `interfaces/`), and `/sim/pause` also
as `std_srvs/srv/SetBool`. The `rclpy` transport serves the types that are installed.

These need no additional package:

| To | Use |
| --- | --- |
| step | `/sim/step_once` (`std_srvs/srv/Trigger`) advances by the parameter `ticks_per_step` |
| set the seed | `ros2 param set /microsim seed N`, then `/sim/reset` |
| pause | `/sim/pause`, or `/set_simulation_state` below |
"""
STANDARD_NOTE = """
The standard `simulation_interfaces` (1.x and 2.x), as in other simulators. `get_simulator_features` lists the supported
features.
"""
PARAMETER_NOTE = """
These are the parameters of the scenario `default`; other scenarios have the same parameters for their own
robots. An integer is accepted for a double and converted. Invalid values are refused with the reason.
"""


def page() -> str:
    parts = [HEAD]
    for direction, title in (("out", "Published"), ("in", "Subscribed")):
        rows = [_topic_row(topic) for topic in table() if topic.direction == direction]
        parts.append(f"## {title}\n\n" + _table(("Topic", "Type", "QoS", "Rate", "Meaning"), rows))
    services = [(f"`{each.name}`", f"`{each.type}`", each.about) for each in SERVICES]
    parts.append("## Services\n\n" + _table(("Service", "Type", "Meaning"), services) + SERVICE_NOTE)
    standard = [(f"`/{name}`", f"`{type_name}`") for name, type_name in SERVICE_NAMES.items()]
    parts.append("## Standard services\n" + STANDARD_NOTE + "\n" + _table(("Service", "Type"), standard))
    parts.append(
        "## Parameters\n" + PARAMETER_NOTE + "\n" + _table(("Name", "Default", "Limits", "Meaning"), _parameters())
    )
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _topic_row(topic: Topic) -> tuple[str, ...]:
    name = topic.of("<robot>", topic.sensor)
    return f"`{name}`", f"`{topic.type}`", _qos(topic.qos), topic.rate.replace("*", "\\*"), topic.about


def _qos(qos: Qos) -> str:
    words = ["reliable" if qos.reliable else "best effort", f"keep last {qos.depth}"]
    return ", ".join([*words, "transient local"] if qos.latched else words)


def _parameters() -> list[tuple[str, ...]]:
    rows = [
        ("`scenario`", "`default`", "", "Name of the scenario that runs; read-only, given at the start."),
        ("`seed`", "`12345`", "64 bits", "Seed of all noise. Takes effect at the next reset."),
        ("`real_time_factor`", "`1.0`", "0 … 100000", "Simulated seconds per second; 0: as fast as possible."),
        ("`use_sim_time`", "`true`", "", "Read-only: the simulator is the clock."),
        ("`stamped_cmd_vel`", "`false`", "", "Read-only, given at the start: commands are `TwistStamped`."),
        ("`ticks_per_step`", "`1`", "1 … 1000000", "Ticks that one call of `/sim/step_once` advances."),
        (
            "`step_waits_for`",
            "",
            "",
            "Topics with commands, separated by spaces: a step waits for a message on each. Empty: for none.",
        ),
    ]
    for each in ScenarioParameters(load_scenario("default")).declarations():
        rows.append((f"`{each.name}`", f"`{_shown(each.value)}`", _limits(each), each.description))
    return rows


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(parameter: Any) -> str:
    if parameter.minimum is None and parameter.maximum is None:
        return ""
    low = "" if parameter.minimum is None else f"{parameter.minimum:g}"
    high = "" if parameter.maximum is None else f"{parameter.maximum:g}"
    return f"{low} … {high}"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
    print(f"wrote {FILE}", file=sys.stderr)
