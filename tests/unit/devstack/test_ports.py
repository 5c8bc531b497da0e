"""Ports for local servers: free, distinct, and the asked-for ones or none."""

import socket
from collections.abc import Iterator

import pytest

from helix_temporal.devstack import Ports, PortTakenError
from helix_temporal.devstack.programs import free_port, is_free, require_port


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_no_port_is_given_twice() -> None:
    """SeaweedFS alone takes ten; servers that start side by side must not collide."""
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == 200


def test_a_port_in_use_is_not_free(taken: int) -> None:
    """A look must see what listens on the loopback."""
    assert not is_free(taken)


def test_a_preferred_port_that_is_in_use_is_replaced(taken: int) -> None:
    """A second stack on the machine starts as well."""
    assert free_port(taken) != taken


def test_a_required_port_that_is_in_use_is_an_error(taken: int) -> None:
    """Who asks for a port counts on it."""
    with pytest.raises(PortTakenError, match=f"port {taken} for redis is in use"):
        require_port(taken, "redis")


def test_required_ports_win_over_preferred_ones() -> None:
    """Options of the command line replace the defaults one by one."""
    mine, preferred = free_port(), free_port()
    # Both are handed out; a preferred one that is given already counts as in use.
    settled = Ports(redis=mine).choose_ports(Ports(redis=preferred, s3=preferred))
    assert settled.redis == mine
    assert settled.s3 not in {None, mine, preferred}
