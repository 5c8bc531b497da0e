"""Probes of a worker: whether it lives, whether it has started, and whether it is ready for work.

A store that is away makes a worker not ready, never dead: a restart heals nothing, and loses its cache.
"""

import asyncio
import errno
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue, TaskQueueVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from helix_temporal.client._worker_versions import describe_idle_version, is_given_work
from helix_temporal.errors import InvalidConfigError
from helix_temporal.outages import ANSWER_WITHIN, FindUnanswered
from helix_temporal.slots import ActivitySlots

logger = logging.getLogger(__name__)

ASKED_EVERY: Final = 5.0
"""Seconds for which their answers count, however often probes come."""
POLLED_WITHIN: Final = 150.0
"""Seconds since the last poll of a worker that polls: a poll without work ends after one minute."""
NOTICED_AFTER: Final = 5.0
"""Seconds after a worker's start: by then its version is known to Temporal, and made current by a script."""
_LARGEST_REQUEST: Final = 8192
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_KINDS: Final = (TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
_REFUSED: Final = frozenset(
    {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.RESOURCE_EXHAUSTED}
)
"""Answers of a Temporal that is there, and does not say who polls: not to this key, never, or not now."""


async def find_none(_within: float) -> Mapping[str, str]:
    """No store that could be away."""
    return {}


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe is told: well if there is nothing that is wrong.

    Attributes:
        unknown: What could not be found out, and why; nothing is known to be wrong there.
        degraded: What is away, and leaves the worker something to do.
        busy: What keeps a worker that is well from taking more work.
        notes: What is well, and still a reason why it has nothing to do.
    """

    wrong: Mapping[str, str]
    unknown: Mapping[str, str] = field(default_factory=dict)
    degraded: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """Whether the answer is 200."""
        return not self.wrong


@dataclass(frozen=True, slots=True)
class Polls:
    """When a worker polled its task queue, as far as Temporal says.

    Attributes:
        identity: The worker's.
        task_queue: Its task queue.
        times: Of its polls, for tasks of any kind.
    """

    identity: str
    task_queue: str
    times: tuple[datetime, ...] = ()

    def with_pollers(self, pollers: Iterable[PollerInfo]) -> "Polls":
        """With what Temporal says of the pollers of one kind of tasks."""
        found = (each.last_access_time.ToDatetime(UTC) for each in pollers if each.identity == self.identity)
        return replace(self, times=(*self.times, *found))

    def find_wrong(self, now: datetime, *, slots_taken: bool = False) -> str:
        """Why it does not seem to poll; empty if it does, for whichever kind of tasks.

        Args:
            now: By a clock like Temporal's.
            slots_taken: It runs as many activities as it may, and so does not poll for more.
        """
        if slots_taken:
            return ""
        if not self.times:
            return f"sees nobody called {self.identity!r} poll {self.task_queue!r}"
        age = (now - max(self.times)).total_seconds()
        return f"was last polled {age:.0f} s ago" if age > POLLED_WITHIN else ""


class _Refused(NamedTuple):
    """Temporal is there, and does not say who polls."""

    why: str


@dataclass(frozen=True, slots=True)
class Serving:
    """A worker whose servers have been there, and what can be asked about it.

    Attributes:
        worker: The worker.
        client: Its client, which asks Temporal who polls.
        find_unanswered: Asks the stores without which it can do nothing.
        find_degraded: Asks those without which it can do less.
        slots: Counts its activities; by default nobody does.
    """

    worker: Worker
    client: Client
    find_unanswered: FindUnanswered
    find_degraded: FindUnanswered = find_none
    slots: ActivitySlots = field(default_factory=lambda: ActivitySlots(None))

    def build_notes(self, routes: TaskQueueVersioningInfo) -> Mapping[str, str]:
        """What is to be said of its version, by what Temporal says of the task queue."""
        version = self._version
        if version is None or is_given_work(version.deployment_name, version.build_id, routes):
            return {}
        return {"version": describe_idle_version(version.deployment_name, version.build_id)}

    async def warn_if_idle(self) -> None:
        """Warn once if the worker's version is given no work, as one that nobody has made current."""
        if self._version is None:
            return
        await asyncio.sleep(NOTICED_AFTER)
        with suppress(RPCError):
            found = await _describe_queue(self, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
            if not isinstance(found, _Refused) and (notes := self.build_notes(found.versioning_info)):
                logger.warning("this worker serves %s", notes["version"])

    @property
    def _version(self) -> WorkerDeploymentVersion | None:
        config = self.worker.config().get("deployment_config")
        return config.version if config is not None and config.use_worker_versioning else None


class WorkerHealth:
    """What a worker says of itself, from before it has a connection to Temporal on.

    Attributes:
        away: What it waits for before it serves, and what that said.
    """

    def __init__(self) -> None:
        self.away: dict[str, str] = {}
        self._serving: Serving | None = None
        self._stops = False
        self._asked_at = float("-inf")
        self._asked = Probed({})
        self._asking = asyncio.Lock()

    def start(self, serving: Serving) -> None:
        """Its servers passed their check: from now on it serves."""
        self._serving = serving

    def stop(self) -> None:
        """From now on it drains, and is not ready."""
        self._stops = True

    async def probe_live(self) -> Probed:
        """That this is answered says that the event loop turns."""
        serving = self._serving
        ended = serving is not None and not self._stops and serving.worker.is_shutdown
        return Probed({"worker": "has ended, and the process has not"} if ended else {})

    async def probe_started(self) -> Probed:
        """Temporal and the stores passed their check."""
        if self._serving is not None:
            return Probed({})
        return Probed(dict(self.away) or {"worker": "has not started: its stores are being checked"})

    async def probe_ready(self) -> Probed:
        """It has started, does not drain, polls its task queue, and its stores answer."""
        if self._stops:
            return Probed({"worker": "drains: it takes no new work"})
        if self._serving is None:
            return await self.probe_started()
        serving = self._serving
        return replace(await self._ask(serving), busy=serving.slots.describe())

    async def _ask(self, serving: Serving) -> Probed:
        async with self._asking:
            if time.monotonic() - self._asked_at > ASKED_EVERY:
                stores, degraded, temporal = await asyncio.gather(
                    serving.find_unanswered(ANSWER_WITHIN),
                    serving.find_degraded(ANSWER_WITHIN),
                    self._ask_temporal(serving),
                )
                found = Probed({**stores, **temporal.wrong}, temporal.unknown, degraded, notes=temporal.notes)
                self._note_unknown(temporal.unknown)
                self._asked, self._asked_at = found, time.monotonic()
            return self._asked

    def _note_unknown(self, unknown: Mapping[str, str]) -> None:
        if unknown and not self._asked.unknown:
            what = ", ".join(f"{name} {why}" for name, why in unknown.items())
            logger.warning("the probe of readiness leaves something out: %s", what)

    async def _ask_temporal(self, serving: Serving) -> Probed:
        """Whether Temporal says that this worker polls."""
        identity = serving.worker.config().get("identity") or serving.client.identity
        polls, wrong = Polls(identity, serving.worker.task_queue), ""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                for kind in _KINDS:
                    found = await _describe_queue(serving, kind)
                    if isinstance(found, _Refused):
                        return Probed({}, {"temporal": found.why})
                    polls = polls.with_pollers(found.pollers)
                    taken = serving.slots.are_all_taken
                    wrong = polls.find_wrong(datetime.now(UTC), slots_taken=taken)
                    if not wrong:
                        return Probed({}, notes=serving.build_notes(found.versioning_info))
        except RPCError as error:
            wrong = f"does not answer ({error.status.name})"
        except TimeoutError:
            wrong = f"did not answer within {ANSWER_WITHIN:.0f} s"
        return Probed({"temporal": wrong})


async def _describe_queue(
    serving: Serving, kind: TaskQueueType.ValueType
) -> DescribeTaskQueueResponse | _Refused:
    request = DescribeTaskQueueRequest(
        namespace=serving.client.namespace,
        task_queue=TaskQueue(name=serving.worker.task_queue),
        task_queue_type=kind,
    )
    try:
        return await serving.client.workflow_service.describe_task_queue(request)
    except RPCError as error:
        if error.status not in _REFUSED:
            raise
        return _Refused(f"does not say who polls ({error.status.name})")


class HealthServer:
    """Answers ``GET /livez``, ``/startupz`` and ``/readyz`` with 200 or 503, and what is wrong as JSON.

    Args:
        health: Of whom.
        host: The address that it listens on; None for all, of IPv4 and of IPv6.
        port: Its port.
    """

    def __init__(self, health: WorkerHealth, host: str | None, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._probes: Mapping[str, Callable[[], Awaitable[Probed]]] = {
            "/livez": health.probe_live,
            "/startupz": health.probe_started,
            "/readyz": health.probe_ready,
        }

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            InvalidConfigError: The port can't be had.
        """
        try:
            self._server = await self._listen(self._host)
        except OSError as error:
            where = f"port {self._port}" if self._host is None else f"{self._host}:{self._port}"
            raise InvalidConfigError(f"health_port: cannot listen on {where}: {error.strerror}") from error
        return self

    async def _listen(self, host: str | None) -> asyncio.Server:
        try:
            return await asyncio.start_server(self._serve, host, self._port, limit=_LARGEST_REQUEST)
        except OSError as error:
            if host is not None or error.errno not in _NO_IPV6:
                raise
            # The name service knows of IPv6, and the machine has it switched off.
            return await self._listen("0.0.0.0")  # noqa: S104 (probes come from other hosts)

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
        return _response(status, {"ok": probed.is_well, **asdict(probed)})


def _response(status: str, body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
        "cache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data
