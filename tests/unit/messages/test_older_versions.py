"""simulation_interfaces 1.x, as in ROS 2 Jazzy, beside 2.x: each client gets the layout that it announces."""

from __future__ import annotations

from typing import Any

import pytest
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from microsim import messages as wire
from microsim.messages.types import DEFINITIONS

RESPONSE = "simulation_interfaces/srv/GetSpawnables_Response"
JAZZY = "string uri\nstring description\nBounds spawn_bounds\n"


@pytest.fixture(scope="module")
def jazzy() -> Typestore:
    """As rosbags reads the definitions of 1.x, apart from our own code."""
    store = get_typestore(Stores.ROS2_JAZZY)
    folder = DEFINITIONS / "simulation_interfaces" / "msg"
    for name in ("Bounds", "Result"):
        text = (folder / f"{name}.msg").read_text()
        store.register(get_types_from_msg(text, f"simulation_interfaces/msg/{name}"))
    store.register(get_types_from_msg(JAZZY, "simulation_interfaces/msg/Spawnable"))
    text = "simulation_interfaces/Result result\nsimulation_interfaces/Spawnable[] spawnables\n"
    response = get_types_from_msg(text, "simulation_interfaces/msg/GetSpawnables_Response")
    store.register({RESPONSE: response["simulation_interfaces/msg/GetSpawnables_Response"]})
    return store


def response(count: int) -> bytes:
    found = [
        {
            "entity_resource": {"uri": f"robot{number}", "resource_string": "x" * number},
            "description": "d" * (7 * number),
            "spawn_bounds": {"type": 1, "points": [{"x": 1.5 + number}, {"y": -2.0}]},
        }
        for number in range(count)
    ]
    return wire.encode(RESPONSE, wire.from_mapping(RESPONSE, {"spawnables": found, "result": {"result": 1}}))


@pytest.mark.parametrize("count", range(6))
@pytest.mark.parametrize("announces", [True, False])
def test_a_client_of_the_first_version_reads_what_was_sent(jazzy: Typestore, count: int, announces: bool) -> None:
    its_hash = jazzy.hash_rihs01(RESPONSE) if announces else ""  # up to Humble there are none
    cdr = wire.for_reader(RESPONSE, response(count), its_hash)
    assert cdr is not None
    read: Any = jazzy.deserialize_cdr(cdr, RESPONSE)
    assert [each.uri for each in read.spawnables] == [f"robot{number}" for number in range(count)]
    assert [each.description for each in read.spawnables] == ["d" * (7 * number) for number in range(count)]
    assert [each.spawn_bounds.points[0].x for each in read.spawnables] == [1.5 + number for number in range(count)]
    assert read.result.result == 1


def test_a_client_of_the_same_version_gets_the_same_bytes_and_one_of_another_none() -> None:
    cdr = response(3)
    assert wire.for_reader(RESPONSE, cdr, wire.type_hash(RESPONSE)) is cdr
    assert wire.for_reader(RESPONSE, cdr, "RIHS01_" + 64 * "0") is None
    assert wire.has_older_version(RESPONSE)
    assert not wire.has_older_version("std_srvs/srv/SetBool_Response")
