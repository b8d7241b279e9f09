"""Random sequences of parameters, set by a stranger on real rclpy, on each transport: compared with the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.interop.driver import Peer
from tests.interop.test_node import TRANSPORTS, Node, _ready
from tests.parameter_model import START, WORLD, Parameters, operations
from tests.ros_domains import free_domain

NODE, RESET = "/microsim", {"service": "/sim/reset", "type": "std_srvs/srv/Empty"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_any_sequence_of_sets_and_resets_does_what_the_model_says(transport: str, tmp_path: Path) -> None:
    world = tmp_path / "world.yaml"
    world.write_text(yaml.safe_dump({**WORLD, "name": "sequences"}))
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport, str(world)) as node:
        _ready(peer, node, ["/clock", "/rover/odom"])
        for seed in range(5):
            model = Parameters()
            peer.call(**RESET)
            assert peer.set_parameters(node=NODE, values=dict(START), atomically=True)["results"][0]["successful"]
            peer.call(**RESET)
            for changes in operations(seed, 12):
                if changes is None:
                    peer.call(**RESET)
                    model.reset()
                else:
                    (result,) = peer.set_parameters(node=NODE, values=dict(changes), atomically=True)["results"]
                    assert result["successful"] == model.set(changes), (changes, result)
                shown = peer.get_parameters(node=NODE, names=list(START))["values"]
                assert {name: shown[name] for name in START} == model.shown, changes
        assert node.process.poll() is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_sets_one_after_the_other_do_not_end_the_run(transport: str) -> None:
    with free_domain() as domain, Peer(domain) as peer, Node(domain, transport) as node:
        _ready(peer, node, ["/clock", "/rover/odom"])
        for name, value in (("physics_hz", 100.0), ("drone.max_vx", 2.0)):
            (result,) = peer.set_parameters(node=NODE, values={name: value})["results"]
            assert result == {"successful": True, "reason": ""}
        peer.call(**RESET)
        assert peer.get_parameters(node=NODE, names=["physics_hz"])["values"] == {"physics_hz": 100.0}
        assert node.process.poll() is None
