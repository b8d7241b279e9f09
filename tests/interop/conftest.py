from collections.abc import Iterator

import pytest

from tests.interop.driver import Host, Peer, free_domain


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
