"""Types described as ROS 2 does: the hash of a description is the hash of the type."""

import json
from hashlib import sha256
from typing import Any

import pytest

from microsim import messages as wire
from microsim.messages.descriptions import GET_TYPE_DESCRIPTION, answer_type_description
from microsim.messages.types import definitions, store_with


def asked(type_name: str, type_hash: str = "", with_sources: bool = False) -> Any:
    request = wire.new(f"{GET_TYPE_DESCRIPTION}_Request", type_name=type_name, include_type_sources=with_sources)
    request.type_hash = type_hash or wire.type_hash(type_name)
    response = wire.new(f"{GET_TYPE_DESCRIPTION}_Response")
    answer_type_description(request, response)
    return wire.decode(f"{GET_TYPE_DESCRIPTION}_Response", wire.encode(f"{GET_TYPE_DESCRIPTION}_Response", response))


def as_hashed(individual: Any) -> dict[str, Any]:
    """Without the default values, which do not count."""
    fields = [
        {
            "name": field.name,
            "type": {
                name: getattr(field.type, name)
                for name in ("type_id", "capacity", "string_capacity", "nested_type_name")
            },
        }
        for field in individual.fields
    ]
    return {"type_name": individual.type_name, "fields": fields}


def test_the_hash_of_a_description_is_that_of_the_type() -> None:
    names = sorted(store_with(next(iter(definitions()))).fielddefs)
    assert len(names) > 250
    for name in names:
        if name.startswith("microsim_interfaces/msg/Wide"):
            continue  # what a wstring is on the wire: not a type of ROS 2
        found = asked(name)
        assert found.successful, found.failure_reason
        about = {
            "type_description": as_hashed(found.type_description.type_description),
            "referenced_type_descriptions": [
                as_hashed(each) for each in found.type_description.referenced_type_descriptions
            ],
        }
        assert f"RIHS01_{sha256(json.dumps(about).encode()).hexdigest()}" == wire.type_hash(name)
        assert not found.type_sources


def test_sources_define_the_type_and_all_within_it() -> None:
    sources = {
        each.type_name: each.raw_file_contents
        for each in asked("sensor_msgs/msg/Range", with_sources=True).type_sources
    }
    assert list(sources) == ["sensor_msgs/msg/Range", "builtin_interfaces/msg/Time", "std_msgs/msg/Header"]
    assert "uint8 ULTRASOUND=0\n" in sources["sensor_msgs/msg/Range"]
    assert sources["std_msgs/msg/Header"] == "builtin_interfaces/Time stamp\nstring frame_id\n"


@pytest.mark.parametrize(
    ("name", "its_hash", "reason"),
    [
        ("std_msgs/msg/Strin", "RIHS01_0", "'std_msgs/msg/Strin' is not a type that this node knows"),
        ("std_msgs/msg/String", "RIHS01_0", "std_msgs/msg/String has the type hash RIHS01_df66"),
    ],
)
def test_a_type_that_is_not_known_is_refused_with_the_reason(name: str, its_hash: str, reason: str) -> None:
    found = asked(name, its_hash)
    assert not found.successful
    assert found.failure_reason.startswith(reason)
