"""Probes of a worker: whether it lives, whether it has started, and whether it is ready for work.

A store that is away makes a worker not ready, never dead: a restart heals nothing, and loses its cache.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from helix_temporal.errors import InvalidConfigError

ANSWER_WITHIN: Final = 2.0
"""Seconds in which a store, and Temporal, must answer to be there."""
ASKED_EVERY: Final = 5.0
"""Seconds for which their answers count, however often probes come."""
POLLED_WITHIN: Final = 150.0
"""Seconds since the last poll of a worker that polls: a poll without work ends after one minute."""
_LARGEST_REQUEST: Final = 8192

FindUnanswered = Callable[[float], Awaitable[Mapping[str, str]]]
"""Which stores do not answer within so many seconds, and what they say."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe is told: well if there is nothing that is wrong."""

    wrong: Mapping[str, str]

    @property
    def is_well(self) -> bool:
        """Whether the answer is 200."""
        return not self.wrong


class WorkerHealth:
    """What a worker says of itself.

    Args:
        worker: The worker; it has started once it runs.
        client: Its client, which asks Temporal who polls.
        find_unanswered: Asks the stores.
    """

    def __init__(self, worker: Worker, client: Client, find_unanswered: FindUnanswered) -> None:
        self._worker, self._client, self._find_unanswered = worker, client, find_unanswered
        self._has_started = self._stops = False
        self._asked_at = float("-inf")
        self._asked: Mapping[str, str] = {}
        self._asking = asyncio.Lock()

    def start(self) -> None:
        """The stores passed their check: from now on it serves."""
        self._has_started = True

    def stop(self) -> None:
        """From now on it drains, and is not ready."""
        self._stops = True

    async def probe_live(self) -> Probed:
        """That this is answered says that the event loop turns."""
        ended = self._has_started and not self._stops and self._worker.is_shutdown
        return Probed({"worker": "has ended, and the process has not"} if ended else {})

    async def probe_started(self) -> Probed:
        """The stores passed their check."""
        return Probed(
            {} if self._has_started else {"worker": "has not started: its stores are being checked"}
        )

    async def probe_ready(self) -> Probed:
        """It has started, does not drain, polls its task queue, and its stores answer."""
        if self._stops:
            return Probed({"worker": "drains: it takes no new work"})
        started = await self.probe_started()
        return started if not started.is_well else Probed(await self._ask())

    async def _ask(self) -> Mapping[str, str]:
        async with self._asking:
            if time.monotonic() - self._asked_at > ASKED_EVERY:
                stores, temporal = await asyncio.gather(
                    self._find_unanswered(ANSWER_WITHIN), self._ask_temporal()
                )
                self._asked, self._asked_at = {**stores, **temporal}, time.monotonic()
            return self._asked

    async def _ask_temporal(self) -> Mapping[str, str]:
        """Whether Temporal says that this worker polls."""
        kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=self._worker.task_queue),
            task_queue_type=kind,
        )
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                found = await self._client.workflow_service.describe_task_queue(request)
        except (RPCError, TimeoutError) as error:
            return {"temporal": f"does not answer ({type(error).__name__})"}
        identity = self._worker.config().get("identity") or self._client.identity
        polled = [
            each.last_access_time.ToDatetime(UTC) for each in found.pollers if each.identity == identity
        ]
        if not polled:
            return {"temporal": f"sees nobody called {identity!r} poll {self._worker.task_queue!r}"}
        age = (datetime.now(UTC) - max(polled)).total_seconds()
        if age > POLLED_WITHIN:
            return {"temporal": f"was last polled {age:.0f} s ago"}
        return {}


class HealthServer:
    """Answers ``GET /livez``, ``/startupz`` and ``/readyz`` with 200 or 503, and what is wrong as JSON.

    Args:
        health: Of whom.
        host: The address that it listens on.
        port: Its port; 0 for any.
    """

    def __init__(self, health: WorkerHealth, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._probes: Mapping[str, Callable[[], Awaitable[Probed]]] = {
            "/livez": health.probe_live,
            "/startupz": health.probe_started,
            "/readyz": health.probe_ready,
        }

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            InvalidConfigError: The port can't be had.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=_LARGEST_REQUEST
            )
        except OSError as error:
            raise InvalidConfigError(
                f"health_port: cannot listen on {self._host}:{self._port}: {error.strerror}"
            ) from error
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN * 3):
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, *_ = head.decode("latin-1").split(" ", 2)
                writer.write(await self._answer(method, target.partition("?")[0]))
                await writer.drain()
        writer.close()

    async def _answer(self, method: str, path: str) -> bytes:
        if path not in self._probes:
            return _response("404 Not Found", {"probes": sorted(self._probes)})
        if method != "GET":
            return _response("405 Method Not Allowed", {"method": "GET expected"})
        probed = await self._probes[path]()
        status = "200 OK" if probed.is_well else "503 Service Unavailable"
        return _response(status, {"ok": probed.is_well, "wrong": dict(probed.wrong)})


def _response(status: str, body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
        "cache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data
