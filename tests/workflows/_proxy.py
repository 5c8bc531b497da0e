"""Something between a client and a real server, as a proxy with rules of its own: it refuses, or cuts off."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, cast

from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

Fault = Callable[[Any], Awaitable[RPCStatusCode | None]]
"""What a request is answered with; None lets it pass."""


class Proxy(ServiceClient):
    """Passes requests on to the server, except those that it has faults for.

    Attributes:
        asked: Names of all requests, as they came.
    """

    def __init__(self, service: ServiceClient) -> None:
        super().__init__(service.config)
        self._service = service
        self._faults: dict[str, list[Fault]] = defaultdict(list)
        self._losses: dict[str, list[Fault]] = defaultdict(list)
        self.asked: list[str] = []

    @property
    def worker_service_client(self) -> Any:
        """Workers pass it by."""
        return self._service.worker_service_client

    def refuse(self, rpc: str, status: RPCStatusCode, *, times: int = 1_000_000, pause: float = 0.0) -> None:
        """Answer the next so many of these requests with a status, each after so many seconds."""
        left = times

        async def refusal(_: Any) -> RPCStatusCode | None:
            nonlocal left
            if left == 0:
                return None
            left -= 1
            await asyncio.sleep(pause)
            return status

        self.intercept(rpc, refusal)

    def intercept(self, rpc: str, fault: Fault) -> None:
        """Ask ``fault`` what to do with each of these requests."""
        self._faults[rpc].append(fault)

    def lose(self, rpc: str, loss: Fault) -> None:
        """Ask ``loss`` what becomes of each of these answers: the server has done what it was asked."""
        self._losses[rpc].append(loss)

    async def _rpc_call(self, rpc: str, req: Any, *given: Any, **options: Any) -> Any:
        self.asked.append(rpc)
        for fault in self._faults[rpc]:
            if (status := await fault(req)) is not None:
                raise RPCError(f"the proxy refuses {rpc}", status, b"")
        answer = await self._service._rpc_call(rpc, req, *given, **options)
        for loss in self._losses[rpc]:
            if (status := await loss(req)) is not None:
                raise RPCError(f"the proxy loses the answer to {rpc}", status, b"")
        return answer

    def update_rpc_metadata(self, metadata: Any) -> None:
        self._service.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        self._service.update_api_key(api_key)


class ProxyPlugin(SimplePlugin):
    """Connects by a proxy; behind other plugins, which then meet its faults.

    Args:
        prepare: Gets the proxy before anybody asks it.
    """

    def __init__(self, prepare: Callable[[Proxy], None]) -> None:
        super().__init__("tests.proxy")
        self._prepare = prepare

    async def connect_service_client(
        self,
        config: ConnectConfig,
        next: Callable[[ConnectConfig], Awaitable[ServiceClient]],  # noqa: A002 (the name in the SDK)
    ) -> ServiceClient:
        proxy = Proxy(await super().connect_service_client(config, next))
        self._prepare(proxy)
        return proxy


def through_proxy(client: Client) -> tuple[Client, Proxy]:
    """The same client behind a proxy of its own."""
    config = client.config()
    proxy = Proxy(config["service_client"])
    config["service_client"] = proxy
    return Client(**cast("Any", config)), proxy
