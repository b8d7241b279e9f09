"""Quality of service and USER_DATA, as rmw_cyclonedds_cpp announces them."""

from __future__ import annotations

from typing import Any

from cyclonedds.qos import Policy
from cyclonedds.qos import Qos as DdsQos
from cyclonedds.util import duration

from microsim import messages as wire
from microsim.messages.topics import Qos

BLOCKING_S = 0.1  # longest time a reliable writer waits for a slow reader; rmw waits for ever


def quality(qos: Qos, user_data: str, lifespan_s: float | None = None, ignore_local: bool = False) -> DdsQos:
    history = Policy.History.KeepLast(qos.depth)
    reliable = Policy.Reliability.Reliable(duration(seconds=BLOCKING_S))
    policies: list[Any] = [
        history,
        reliable if qos.reliable else Policy.Reliability.BestEffort,
        Policy.Durability.TransientLocal if qos.latched else Policy.Durability.Volatile,
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.Liveliness.Automatic(duration(infinite=True)),
        Policy.Userdata(data=user_data.encode()),
    ]
    if qos.latched:
        policies.append(Policy.DurabilityService(0, history, -1, -1, -1))
    if lifespan_s is not None:
        policies.append(Policy.Lifespan(duration(seconds=lifespan_s)))
    if ignore_local:
        policies.append(Policy.IgnoreLocal.Participant)
    return DdsQos(*policies)


def type_hash_data(type_name: str) -> str:
    return f"typehash={wire.type_hash(type_name)};"


def user_data_of(endpoint: Any) -> dict[str, str]:
    """key=value; pairs that an endpoint announces."""
    policy = endpoint.qos[Policy.Userdata] if endpoint is not None and endpoint.qos is not None else None
    if policy is None:
        return {}
    pairs = (pair.partition("=") for pair in bytes(policy.data).decode("latin1").split(";"))
    return {key: value for key, sign, value in pairs if sign}


def dds_type(type_name: str) -> str:
    """geometry_msgs/msg/Twist -> geometry_msgs::msg::dds_::Twist_"""
    package, kind, name = type_name.split("/")
    return f"{package}::{kind}::dds_::{name}_"
