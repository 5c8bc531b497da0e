"""Both ways in which a client has a worker do something, as fixtures: on servers with and without them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
from temporalio.client import (
    ActivityHandle,
    Client,
    Interceptor,
    OutboundInterceptor,
    StartActivityInput,
    StartWorkflowInput,
    WorkflowHandle,
)
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client import SessionClient, workflow_id
from helix_temporal.models.sessions import AskStatus
from helix_temporal.models.states import SessionProperties
from tests.workflows.conftest import Stand

WAYS = ("activity", "workflow")
"""By a standalone activity; by a short workflow, on a server that lacks them."""


Call = Callable[[SessionClient, str], Awaitable[Any]]
Expected = Callable[[Any], bool]

WORD = "Rumpelstilzchen"
LONG = f"{WORD} " * 2000

CALLS: dict[str, tuple[Call, Expected]] = {
    "describe_thread": (lambda s, i: s.session(i).describe_thread(), lambda r: r.committed == 2),
    "find_turn": (lambda s, i: s.session(i).find_turn("m"), lambda r: r.end.position == 2),
    "fork": (lambda s, i: s.session(i).fork(f"{i}-2"), lambda r: r.position == 2),
    "get_messages": (lambda s, i: s.session(i).get_messages(), lambda r: r[0].text == "hello"),
    "get_state": (lambda s, i: s.session(i).get_state(), lambda r: r.session_id),
    "get_usage": (lambda s, i: s.session(i).get_usage(), lambda r: r is not None),
    "list_checkpoints": (lambda s, i: s.session(i).list_checkpoints(), lambda r: r.items is not None),
    "list_children": (lambda s, i: s.session(i).list_children(), lambda r: r.items == ()),
    "list_messages": (lambda s, i: s.session(i).list_messages(), lambda r: len(r.items) == 2),
    "list_turns": (lambda s, i: s.session(i).list_turns(), lambda r: len(r.items) == 1),
    "set_properties": (
        lambda s, i: s.session(i).set_properties(SessionProperties(user_id="u")),
        lambda r: r is None,
    ),
    "list_sessions": (lambda s, _: s.list_sessions(), lambda r: len(r.items) > 0),
    "query_usage": (lambda s, _: s.query_usage(), lambda r: r.items is not None),
    "a long message": (lambda s, i: s.ask(i, LONG), lambda r: r.status is AskStatus.ANSWERED),
    "delete": (lambda s, i: s.session(i).delete(), lambda r: r.removed["thread"] == 1),
}


def client_of(stand: Stand, *interceptors: Any) -> SessionClient:
    """A client of the stand's worker."""
    client = listened_to(stand.served.client, *interceptors)
    return SessionClient(client, task_queue=stand.served.plugin.settings.task_queue)


@pytest.fixture(params=WAYS)
def stand(request: pytest.FixtureRequest, stand: Stand) -> Stand:
    """The shared worker of either server."""
    return stand if request.param == "activity" else request.getfixturevalue("older_stand")


@pytest.fixture(params=WAYS)
def address(request: pytest.FixtureRequest) -> str:
    """Of either server."""
    names = {"activity": "temporal_address", "workflow": "older_temporal_address"}
    found: str = request.getfixturevalue(names[request.param])
    return found


class Starts(Interceptor):
    """Remembers what a client started, and may see it before its caller waits for it."""

    def __init__(
        self,
        on_start: Callable[[ActivityHandle[Any] | WorkflowHandle[Any, Any]], Awaitable[None]] | None = None,
    ) -> None:
        self.activities: list[str] = []
        self.refused: list[RPCStatusCode] = []
        self.workflows: list[str] = []
        self._on_start = on_start

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """Listen to starts."""
        return _Listening(next, self)

    async def see(self, handle: ActivityHandle[Any] | WorkflowHandle[Any, Any]) -> None:
        """Something was started."""
        if self._on_start is not None:
            await self._on_start(handle)


class _Listening(OutboundInterceptor):
    def __init__(self, outer: OutboundInterceptor, owner: Starts) -> None:
        super().__init__(outer)
        self._owner = owner

    async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:  # noqa: A002
        try:
            handle = await self.next.start_activity(input)
        except RPCError as error:
            self._owner.refused.append(error.status)
            raise
        self._owner.activities.append(handle.id)
        await self._owner.see(handle)
        return handle

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        handle = await self.next.start_workflow(input)
        self._owner.workflows.append(handle.id)
        await self._owner.see(handle)
        return handle


def listened_to(client: Client, *interceptors: Interceptor) -> Client:
    """The same client with further interceptors."""
    config = client.config()
    config["interceptors"] = [*config["interceptors"], *interceptors]
    return Client(**config)


async def give_up(call: Coroutine[Any, Any, Any], started: Sequence[object]) -> None:
    """Cancel a call of a client once it has started something, as who has waited long enough."""
    calling = asyncio.create_task(call)
    async with asyncio.timeout(20):
        while not started:  # noqa: ASYNC110 (an interceptor, or a proxy, tells)
            await asyncio.sleep(0.05)
    await asyncio.wait([calling], timeout=0.3)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def left_unserved(sessions: SessionClient, session_id: str) -> None:
    """Ask on a task queue that nobody serves until the session's run is there, and give up."""
    asking = asyncio.create_task(sessions.ask(session_id, "hello", agent="main", timeout=60))
    handle = sessions._connection.client.get_workflow_handle(workflow_id(session_id))
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RPCError):
                await handle.describe()
                break
            await asyncio.sleep(0.05)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def activity_exists(client: Client, activity_id: str) -> bool:
    """Whether the server knows a standalone activity of this id."""
    try:
        await client.get_activity_handle(activity_id).describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def activity_is_gone(client: Client, activity_id: str) -> bool:
    """Whether the server forgets it: a busy one is still at it when it has answered."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while True:
                if not await activity_exists(client, activity_id):
                    return True
                await asyncio.sleep(0.1)
    return False
