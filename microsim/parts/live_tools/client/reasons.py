"""Why nothing arrives: no publisher, another type or quality of service, another domain, another network."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from microsim.errors import did_you_mean
from microsim.messages.topics import Qos
from microsim.messages.types import type_hash
from microsim.parts.ros2.transport.dds_domain import domain_id, interfaces, uses_multicast
from microsim.parts.ros2.transport.graph_view import INFINITE_NS, GraphEndpoint, GraphView, is_hidden

SHOWN = 20  # names that an error lists
_SOCKETS = Path("/proc/net/udp")
_FIRST_PORT, _PORTS_OF_A_DOMAIN, _UNICAST = 7400, 250, range(10, 75, 2)


def listed(names: Iterable[str]) -> str:
    """`there are: …`, shortened; hidden names last."""
    found = sorted(names, key=lambda name: (is_hidden(name), name))
    more = f", … ({len(found) - SHOWN:,} more)" if len(found) > SHOWN else ""
    return "there are: " + (", ".join(found[:SHOWN]) + more if found else "none")


def not_found(what: str, name: str, names: Iterable[str], view: GraphView) -> str:
    """`no topic '/rover/odm'; did you mean '/rover/odom'? there are: …`, or why there is nothing at all."""
    names = list(names)
    if not view.others():
        return f"no {what} {name!r}: {'; '.join(nobody_there())}"
    guess = did_you_mean(name, names)
    return f"no {what} {name!r}{guess}{' ' if guess else '; '}{listed(names)}"


def nobody_there(environment: Mapping[str, str] = os.environ) -> list[str]:
    """No other node was discovered: what may be the reason."""
    domain, here = domain_id(environment), interfaces(environment)
    elsewhere = sorted(participants_on_this_machine().keys() - {domain})
    found = [f"no ROS 2 node was found in domain {domain}"]
    if elsewhere:
        several = ", ".join(map(str, elsewhere))
        found.append(f"on this machine there are nodes in domain {several}; set ROS_DOMAIN_ID={elsewhere[0]}")
    if not here:
        found.append("ROS_AUTOMATIC_DISCOVERY_RANGE=OFF allows no discovery")
    elif not uses_multicast(environment):
        limit = "ROS_LOCALHOST_ONLY=1" if environment.get("ROS_LOCALHOST_ONLY") == "1" else "LOCALHOST"
        limit = limit if "=" in limit else f"ROS_AUTOMATIC_DISCOVERY_RANGE={limit}"
        found.append(f"{limit} limits discovery to this machine")
    elif not elsewhere:
        found.append(f"nodes on other machines must be on the network of {', '.join(here)}, which must pass multicast")
    if environment.get("RMW_IMPLEMENTATION", "").startswith("rmw_zenoh"):
        found.append("nodes on rmw_zenoh_cpp use another protocol and cannot be reached")
    return found


def participants_on_this_machine() -> Counter[int]:
    """Domain -> participants that have bound their ports here; known on Linux only."""
    try:
        lines = _SOCKETS.read_text(encoding="ascii").splitlines()[1:]
        ports = {int(line.split()[1].rpartition(":")[2], 16) - _FIRST_PORT for line in lines}
    except (OSError, ValueError, IndexError):
        return Counter()
    return Counter(port // _PORTS_OF_A_DOMAIN for port in ports if port >= 0 and port % _PORTS_OF_A_DOMAIN in _UNICAST)


def why_silent(view: GraphView, topic: str, type_name: str, qos: Qos | None) -> list[str]:
    """Why a subscription gets nothing; `qos`: what the user demands."""
    if not view.others():
        return nobody_there()
    writers = [each for each in view.on(topic, is_writer=True) if each.guid[:12] != view.own]
    if not writers:
        readers = [each for each in view.on(topic, is_writer=False) if each.guid[:12] != view.own]
        publishing = view.topics_with(is_writer=True) - {topic}
        listeners = f" ({len(readers)} subscribed)" if readers else ""
        return [f"no publisher on {topic}{listeners}{did_you_mean(topic, sorted(publishing))}"]
    same = [each for each in writers if each.type == type_name]
    if not same:
        return [
            f"{_who(view, writers)} publishes {', '.join(sorted({each.type for each in writers}))}, not {type_name}"
        ]
    refusing = {reason for each in same if (reason := _mismatch(each, qos))}
    if refusing and all(_mismatch(each, qos) for each in same):
        return [f"{_who(view, same)} {' and '.join(sorted(refusing))}"]
    if others := [each for each in same if each.type_hash and each.type_hash != type_hash(type_name)]:
        return [f"{_who(view, others)} uses another definition of {type_name}; name its folder with --types"]
    paused = "; is the simulation paused?" if view.at("rq/sim/pauseRequest", is_writer=False) else ""
    return [f"{_who(view, same)} is connected and has sent nothing since{paused}"]


def why_no_subscriber(view: GraphView, topic: str, type_name: str, qos: Qos) -> list[str]:
    """Why no subscriber receives what is published."""
    if not view.others():
        return nobody_there()
    readers = [each for each in view.on(topic, is_writer=False) if each.guid[:12] != view.own]
    if not readers:
        listening = view.topics_with(is_writer=False) - {topic}
        return [f"no subscriber on {topic}{did_you_mean(topic, sorted(listening))}"]
    same = [each for each in readers if each.type == type_name]
    if not same:
        return [f"{_who(view, readers)} expects {', '.join(sorted({each.type for each in readers}))}, not {type_name}"]
    strict = [each for each in same if each.qos.reliable > qos.reliable or each.qos.latched > qos.latched]
    if len(strict) == len(same):
        demanded = "reliable" if strict[0].qos.reliable > qos.reliable else "transient_local"
        return [f"{_who(view, strict)} demands {demanded} messages"]
    return []


def _mismatch(writer: GraphEndpoint, qos: Qos | None) -> str:
    if writer.partitions not in ((), ("",)):
        return f"is in the partition {', '.join(writer.partitions)}"
    if qos is None:
        return ""
    if qos.reliable and not writer.qos.reliable:
        return "is best effort, and reliable was demanded: use --qos-reliability best_effort"
    if qos.latched and not writer.qos.latched:
        return "is volatile, and transient_local was demanded: use --qos-durability volatile"
    return ""


def _who(view: GraphView, endpoints: Iterable[GraphEndpoint]) -> str:
    """The nodes of endpoints."""
    return ", ".join(sorted({view.owner(each) or f"a participant of {each.rmw}" for each in endpoints}))


def quality_text(endpoint: GraphEndpoint) -> str:
    qos = endpoint.qos
    parts = ["reliable" if qos.reliable else "best_effort", "transient_local" if qos.latched else "volatile"]
    if endpoint.deadline_ns < INFINITE_NS:
        parts.append(f"deadline {endpoint.deadline_ns / 1e9:g} s")
    return ", ".join(parts)
