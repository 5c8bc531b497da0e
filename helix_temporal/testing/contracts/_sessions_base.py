"""What the parts of the session store's contract share."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from itertools import cycle
from typing import Any, ClassVar, NamedTuple, TypeVar

import pytest

from helix_temporal.errors import StaleStateError
from helix_temporal.models.checkpoints import JsonPatchOp, NewRun, RunRecorded, StagedChange, StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession, SessionState
from helix_temporal.stores.protocols.hot import HotTier
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.builders import an_id

T = TypeVar("T")

MANY = 32
"""Tasks at once, where a case says concurrent."""


class OpenSessions(NamedTuple):
    """A session store, and the hot threads that lie with it."""

    sessions: SessionStore
    threads: HotTier


SessionOpener = Callable[[], AbstractAsyncContextManager[OpenSessions]]
"""Opens the same store, as often as one likes; picklable where other processes can open it, too."""


Crowd = Iterator[SessionStore]
"""The same store, opened several times, in turn: tasks of one may queue up inside it."""


class SessionFixtures:
    """Fixtures; a backend overrides the first.

    Attributes:
        rounds: Rounds of the races; a campaign has more.
    """

    rounds: ClassVar[int] = 5

    @pytest.fixture
    def opener(self) -> SessionOpener:
        """How to open a store of this test's own, empty at first."""
        raise NotImplementedError("bind the contract: override the fixture `opener`")

    @pytest.fixture
    async def opened(self, opener: SessionOpener) -> AsyncIterator[OpenSessions]:
        """The store and its threads."""
        async with opener() as opened:
            yield opened

    @pytest.fixture
    async def store(self, opened: OpenSessions) -> SessionStore:
        """The store."""
        return opened.sessions

    @pytest.fixture
    async def crowd(self, opener: SessionOpener) -> AsyncIterator[Crowd]:
        """The store, opened four times."""
        async with AsyncExitStack() as stack:
            stores = [(await stack.enter_async_context(opener())).sessions for _ in range(4)]
            yield cycle(stores)

    @pytest.fixture
    def session_id(self) -> str:
        """An id of this test's own."""
        return f"session-{an_id()}"

    @pytest.fixture
    async def state(self, store: SessionStore, session_id: str) -> SessionState:
        """A session that was just created."""
        return await store.create_session(session_id, CreateSession(agent_type="clerk"))


async def loaded(store: SessionStore, session_id: str) -> SessionState:
    """The state of a session that is there."""
    state = await store.load_state(session_id)
    assert state is not None, f"{session_id!r} is not there"
    return state


def changed(state: SessionState, **fields: Any) -> SessionState:
    """The state with other values in some fields."""
    return state.model_copy(update=fields, deep=True)


def said(text: str = "hello", *, message_id: str | None = None) -> Message:
    """A user's message."""
    return Message(id=message_id or an_id(), role="user", content=text)


def talk(count: int, prefix: str = "m") -> list[Message]:
    """``count`` messages with ids ``m0``, ``m1`` …, user and assistant in turn."""
    return [
        Message(id=f"{prefix}{at}", role="assistant" if at % 2 else "user", content=f"text {at}")
        for at in range(count)
    ]


def patch(op: str, path: str, value: Any = None, *, source: str | None = None) -> JsonPatchOp:
    """One operation of a patch."""
    return JsonPatchOp.model_validate({"op": op, "path": path, "value": value, "from": source})


def staged(call: str, *patches: JsonPatchOp, at: int = 0, **merges: Any) -> StagedChange:
    """What one tool call wants to change."""
    return StagedChange(tool_call_id=call, patches=patches, merge_changes=merges, timestamp=at)


def step(step_id: str = "step-1", *, run: str | None = "run-1", count: int = 1, **more: Any) -> StepCommit:
    """A step to commit."""
    return StepCommit(step_id=step_id, run_id=run, step_count=count, **more)


async def messages_of(store: SessionStore, session_id: str) -> list[Message]:
    """All messages, page by page."""
    found: list[Message] = []
    while True:
        page = await store.get_messages(session_id, offset=len(found), limit=200)
        found += page.messages
        if not page.has_more:
            return found


async def ids_of(store: SessionStore, session_id: str) -> list[str]:
    """The ids of all messages."""
    return [message.id for message in await messages_of(store, session_id)]


async def commits(store: SessionStore, session_id: str, count: int, *, first: int = 1) -> list[str]:
    """Commit ``count`` steps that each write ``n`` into the custom state; their checkpoints."""
    made = []
    for number in range(first, first + count):
        state = await loaded(store, session_id)
        after = changed(state, step_count=number, custom_state={**state.custom_state, "n": number})
        result, _ = await store.save_state_and_promote_staging(
            session_id, after, step(f"step-{number}", count=number)
        )
        made.append(result.checkpoint_id)
    return made


async def started(store: SessionStore, session_id: str, run_id: str, **more: Any) -> RunRecorded:
    """Start a run that may start."""
    outcome = await store.start_run(session_id, NewRun(run_id=run_id), **more)
    assert isinstance(outcome, RunRecorded), outcome
    return outcome


async def checkpoints_of(store: SessionStore, session_id: str) -> list[str]:
    """Ids of all checkpoints, in the order of their commits."""
    found: list[str] = []
    cursor = None
    while True:
        page = await store.list_checkpoints(session_id, limit=200, cursor=cursor, order="asc")
        found += [each.id for each in page.items]
        if (cursor := page.next_cursor) is None:
            return found


async def image(store: SessionStore, session_id: str) -> tuple[object, ...]:
    """Everything that can be read of a session, to see that nothing changed."""
    return (
        await store.load_state(session_id),
        await messages_of(store, session_id),
        [await store.get_checkpoint(session_id, each) for each in await checkpoints_of(store, session_id)],
        await store.list_staged(session_id),
        (await store.list_runs(session_id, limit=200)).items,
        await store.list_sub_session_refs(session_id),
    )


async def at_once(calls: Iterable[Awaitable[T]]) -> list[T | BaseException]:
    """Run all of them at the same time; what each gave or raised."""
    return await asyncio.gather(*calls, return_exceptions=True)


def of_type(outcomes: Sequence[object], wanted: type[T]) -> list[T]:
    """Those outcomes that are of a kind."""
    return [each for each in outcomes if isinstance(each, wanted)]


async def save_until_it_fits(
    store: SessionStore, session_id: str, change: Callable[[SessionState], SessionState]
) -> None:
    """Read, change and save, and again whenever somebody was faster."""
    while True:
        try:
            await store.save_state(session_id, change(await loaded(store, session_id)))
        except StaleStateError:
            await asyncio.sleep(0)
        else:
            return
