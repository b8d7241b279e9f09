from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.driver import Host, Peer
from tests.ros_domains import free_domain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder, and no other, needs rclpy."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture
def domain() -> Iterator[int]:
    with free_domain() as domain:
        yield domain


@pytest.fixture
def peer(domain: int) -> Iterator[Peer]:
    with Peer(domain) as peer:
        yield peer


@pytest.fixture(scope="module", params=["rclpy", "dds"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Host, Peer]]:
    """Each of our transports, and a stranger on real rclpy; shared by a module, so use names of your own."""
    with free_domain() as domain, Peer(domain) as peer, Host(domain, request.param) as host:
        yield host, peer


@pytest.fixture(scope="module")
def peer_only() -> Iterator[Peer]:
    with free_domain() as domain, Peer(domain) as peer:
        yield peer
