"""Where probes are answered on a machine without IPv6."""

import asyncio
import errno
from typing import Any

import pytest

from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import InvalidConfigError
from helix_temporal.health import HealthServer, WorkerHealth


def make_server(host: str | None = None) -> HealthServer:
    """Of a worker that is none."""
    return HealthServer(WorkerHealth(), host, free_port())


async def test_ipv4_is_served_where_ipv6_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name service still tells of it, and the bind fails."""
    start, hosts = asyncio.start_server, list[str | None]()

    async def start_without_ipv6(serve: Any, host: str | None, port: int, **options: Any) -> asyncio.Server:
        hosts.append(host)
        if host is None:
            raise OSError(errno.EADDRNOTAVAIL, "cannot assign requested address")
        return await start(serve, host, port, **options)

    monkeypatch.setattr(asyncio, "start_server", start_without_ipv6)
    async with make_server():
        assert hosts == [None, "0.0.0.0"]


async def test_any_other_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting."""

    async def refuse(*_arguments: Any, **_options: Any) -> asyncio.Server:
        raise OSError(errno.EADDRINUSE, "address already in use")

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(InvalidConfigError, match=r"health_port: cannot listen on port \d+: address already"):
        async with make_server():
            pass
