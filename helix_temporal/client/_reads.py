"""What a client reads of sessions, by short workflows or by stores that it is given; no session is woken."""

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from helix_temporal._arguments import typed_arguments
from helix_temporal.activities import ThreadActivities
from helix_temporal.activities.payloads import unpack_page
from helix_temporal.activities.reads import SessionReads
from helix_temporal.activities.stores import CheckpointActivities
from helix_temporal.activities.usage import UsageActivities
from helix_temporal.client._diagnosis import Diagnosis, check_namespace
from helix_temporal.client._updates import is_bounded, root_error
from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidCursorError,
    InvalidRequestError,
    NoWorkerError,
    ThreadNotFoundError,
)
from helix_temporal.models.checkpoints import CheckpointMeta, Run
from helix_temporal.models.deployments import Deployment, memo_of
from helix_temporal.models.handles import (
    ChildInfo,
    FindTurnInput,
    FindTurnResult,
    HistoryPage,
    ListChildrenInput,
    ListTurnsInput,
    SessionUsage,
    ShowSessionInput,
    TurnInfo,
)
from helix_temporal.models.ids import short_workflow_prefix
from helix_temporal.models.messages import Message, from_record
from helix_temporal.models.records import Record
from helix_temporal.models.sessions import AskResult, CallPolicy
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    ListCheckpointsInput,
    Page,
    SessionQuery,
    SessionSummary,
)
from helix_temporal.models.threads import (
    DescribeThreadResult,
    ReadBodyInput,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.models.usage import UsageEntry, UsageQuery
from helix_temporal.stores.paging import MAX_LIMIT as MAX_LIMIT_OF_PAGE
from helix_temporal.stores.paging import MAX_LIMIT as PAGE_LIMIT
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.stores.protocols.usage import UsageStore
from helix_temporal.workflows import (
    LookReply,
    LookRequest,
    LookWorkflow,
    ThreadReply,
    ThreadRequest,
    ThreadWorkflow,
)

R = TypeVar("R")

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a thread that is read whole, so much at a time."""
_UNBOUNDED: Final = 2**62
"""Nothing passes through Temporal, which would limit its size."""


class ReadableStores(Protocol):
    """Where the workers have sessions: a `helix_temporal.backends.Backends`, or `SessionStores`."""

    @property
    def threads(self) -> ThreadStore:
        """Messages, and the slice."""
        ...

    @property
    def usage(self) -> UsageStore:
        """What sessions used."""
        ...

    @property
    def sessions(self) -> SessionStore | None:
        """States and checkpoints; None where the workers have no session store."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStores:
    """Stores from anywhere, as a `SessionClient` reads them.

    They must be those of the workers, with the same prefixes; whoever made them closes them.

    Attributes:
        threads: A hot tier alone, as `HotThreads`, or over the archive, as `TieredThreads`.
        usage: What sessions used.
        sessions: States and checkpoints; None where the workers have no session store.
    """

    threads: ThreadStore
    usage: UsageStore
    sessions: SessionStore | None = None


class DirectReads:
    """Answers as the short workflows do, by the same code."""

    def __init__(self, stores: ReadableStores) -> None:
        self._store = stores.threads
        self._threads = ThreadActivities(stores.threads, max_payload=_UNBOUNDED)
        self._sessions = SessionReads(stores.threads, stores.usage, stores.sessions, max_payload=_UNBOUNDED)
        self._usage = UsageActivities(stores.usage, max_payload=_UNBOUNDED)
        self._checkpoints = CheckpointActivities(stores.sessions) if stores.sessions is not None else None

    async def thread(self, request: ThreadRequest) -> ThreadReply | None:
        """What a thread is asked; None where it is no read.

        Raises:
            HelixError: As the workflow does.
        """
        if request.read is not None:
            return ThreadReply(read=await _typed(self._threads.read(request.read)))
        if request.describe is not None:
            return ThreadReply(described=await _typed(self._threads.describe(request.describe)))
        return None

    async def messages(self, thread_id: str) -> list[Message]:
        """All messages of the finished turns.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        found: list[Message] = []
        after: int | None = 0
        while after is not None:
            wanted = ReadPage(thread_id, after, limit=PAGE_LIMIT, max_bytes=PAGE_BYTES, whole=False)
            page = await self._store.read(wanted)
            # In a thread: other tasks of the application go on.
            found += await asyncio.to_thread(_messages, page.records)
            after = page.after
        return found

    async def look(self, request: LookRequest) -> LookReply | None:
        """What a session is asked; None where only a worker, which serves the agents, can tell.

        Raises:
            HelixError: As the workflow does.
        """
        if request.show is not None:
            return LookReply(show=await _typed(self._sessions.show(request.show)))
        if request.usage is not None:
            return LookReply(usage=await _typed(self._sessions.usage(request.usage)))
        if request.turns is not None:
            return LookReply(turns=await _typed(self._sessions.turns(request.turns)))
        if request.find_turn is not None:
            return LookReply(find_turn=await _typed(self._sessions.find_turn(request.find_turn)))
        if request.sessions is not None:
            return LookReply(sessions=await _typed(self._sessions.find(request.sessions)))
        if request.entries is not None:
            return LookReply(entries=await _typed(self._usage.query(request.entries)))
        if request.checkpoints is not None:
            return LookReply(checkpoints=await self._listed(request.checkpoints))
        return None

    async def _listed(self, request: ListCheckpointsInput) -> Page[CheckpointMeta]:
        return (
            Page(items=(), total=0)
            if self._checkpoints is None
            else await _typed(self._checkpoints.list(request))
        )


def _messages(records: Sequence[Record]) -> list[Message]:
    return [from_record(each) for each in records]


async def _typed(answer: Awaitable[R]) -> R:
    try:
        return await answer
    except ApplicationError as error:
        # As which a typed error leaves an activity.
        raise root_error(error) from None


_DIGITS: Final = 18
_WORKFLOW_PAGE_BYTES: Final = 768 * 1024
"""Of a thread that is read whole by workflows: compressed, about as much as one result takes."""
_AT_ONCE: Final = 4
_TERMINATION: Final = timedelta(seconds=2)
MAX_NEWEST: Final = 500
"""Turns that one page of the newest may have."""


class SessionReader:
    """Reads threads and states, wherever they are.

    Args:
        policy: Time-outs and retries; None for those that a worker has without settings.
        stores: Read here, rather than by workflows.
        deployment: Whose the sessions are.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        policy: CallPolicy | None,
        stores: ReadableStores | None = None,
        deployment: Deployment = Deployment(),  # noqa: B008 (frozen)
    ) -> None:
        self._client, self._task_queue, self._policy = client, task_queue, policy
        self._deployment = deployment
        self._diagnosis = Diagnosis(client, task_queue)
        self._direct = None if stores is None else DirectReads(stores)

    @typed_arguments
    async def history(
        self,
        session_id: str,
        *,
        start: int = 0,
        stop: int | None = None,
        limit: int = 100,
        backward: bool = False,
        max_bytes: int = 200 * 1024,
        cursor: str | None = None,
    ) -> HistoryPage:
        """One page of a thread's finished turns, oldest first, wherever they are; wakes no session.

        Args:
            session_id: Whose.
            start: From this position on.
            stop: Up to before this position; None for the end.
            limit: At most so many messages, fewer where they exceed ``max_bytes``.
            backward: The newest of the range rather than the oldest; the next page is what is before it.
            max_bytes: At most so much content.
            cursor: ``next_cursor`` of the page before, asked for with the same ``backward``.

        Raises:
            ThreadNotFoundError: There is no such thread.
            InvalidRequestError: The range or limit is out of bounds.
            InvalidCursorError: The cursor is none that `history` gave.
        """
        if cursor is not None and backward:
            stop = _position(cursor)
        elif cursor is not None:
            start = _position(cursor)
        read = await self._history(
            session_id, start=start, stop=stop, limit=limit, backward=backward, max_bytes=max_bytes
        )
        next_at = read.before if backward else read.after
        return HistoryPage(
            items=read.messages,
            next_cursor=None if next_at is None else str(next_at),
            has_more=next_at is not None,
            total=read.committed,
            first=read.first,
            head=read.head,
        )

    async def _history(self, session_id: str, **fields: Any) -> ReadMessagesResult:
        reply = await self._thread(
            ThreadRequest(do="read", read=ReadMessagesInput(thread_id=session_id, **fields))
        )
        assert reply.read is not None
        return await self._with_large(session_id, reply.read)

    @typed_arguments
    async def messages(self, session_id: str) -> list[Message]:
        """All messages of the finished turns, by large pages: 4 MiB from stores, one payload by workflow.

        Raises:
            ThreadNotFoundError: There is no such thread.
        """
        if self._direct is not None:
            return await self._direct.messages(session_id)
        first, page = await self._packed(session_id, 0, None)
        if page.after is None:
            return first
        slots, step = asyncio.Semaphore(_AT_ONCE), len(first)

        async def part(start: int) -> list[Message]:
            async with slots:
                return await self._range(session_id, start, min(start + step, page.committed))

        parts = await asyncio.gather(*(part(start) for start in range(page.after, page.committed, step)))
        return [*first, *(message for each in parts for message in each)]

    async def _range(self, session_id: str, start: int, stop: int) -> list[Message]:
        found: list[Message] = []
        after: int | None = start
        while after is not None and after < stop:
            messages, page = await self._packed(session_id, after, stop)
            found += messages
            after = page.after if messages else None
        return found

    async def _packed(
        self, session_id: str, start: int, stop: int | None
    ) -> tuple[list[Message], ReadMessagesResult]:
        read = ReadMessagesInput(
            thread_id=session_id,
            start=start,
            stop=stop,
            limit=MAX_LIMIT_OF_PAGE,
            max_bytes=_WORKFLOW_PAGE_BYTES,
            whole=False,
            packed=True,
        )
        reply = await self._thread(ThreadRequest(do="read", read=read))
        assert reply.read is not None
        page = await self._with_large(session_id, reply.read)
        # In a thread: other tasks of the application go on.
        return await asyncio.to_thread(unpack_page, page), page

    @typed_arguments
    async def describe(self, session_id: str) -> DescribeThreadResult:
        """Where a thread stands."""
        describe = ThreadInput(thread_id=session_id)
        reply = await self._thread(ThreadRequest(do="describe", describe=describe))
        assert reply.described is not None
        return reply.described

    @typed_arguments
    async def state(self, session_id: str) -> SessionState | None:
        """The session's state, None if there is no such session.

        Without a session store it is what the thread's slice says: the application's values, the agent,
        how many steps; its ``version`` is then that of the slice.

        Raises:
            TooLargeError: It exceeds what may pass through a workflow; stores that are given have no limit.
        """
        reply = await self._look(LookRequest(show=ShowSessionInput(session_id=session_id)))
        return _given(reply.show).state

    @typed_arguments
    async def run(self, session_id: str, run_id: str) -> Run | None:
        """One turn's run, as the session store has it: how far it is, and where its stream begins.

        None where there is no such run, or no session store.

        Args:
            session_id: Whose.
            run_id: As in `SessionInfo`, and in each chunk of the stream.
        """
        wanted = ShowSessionInput(session_id=session_id, run_id=run_id)
        return _given((await self._look(LookRequest(show=wanted))).show).run

    @typed_arguments
    async def usage(self, session_id: str) -> SessionUsage:
        """What the session used: by its thread, and what was recorded of it and all its descendants.

        It reads every message of the thread, so it takes about as long as a whole read.

        Raises:
            SessionNotFoundError: It has neither a thread nor usage.
        """
        reply = await self._look(LookRequest(usage=ShowSessionInput(session_id=session_id)))
        return _given(reply.usage)

    @typed_arguments
    async def turns(
        self,
        session_id: str,
        *,
        start: int = 0,
        limit: int | None = None,
        newest: int | None = None,
        cursor: str | None = None,
    ) -> Page[TurnInfo]:
        """Finished turns, oldest first, with the heads between which they stand; ``total`` is None.

        Args:
            session_id: Whose.
            start: Position at which the first one begins; their numbers are counted from there.
            limit: At most so many; None for all.
            newest: Instead: so many of the newest, up to 500, numbered from -1 back.
            cursor: ``next_cursor`` of the page before; numbers go on.

        Raises:
            ThreadNotFoundError: There is no such thread.
            InvalidRequestError: No turn begins at ``start``, or ``newest`` is not 1 to 500.
            InvalidCursorError: The cursor is none that `turns` gave.
        """
        if newest is not None and not 1 <= newest <= MAX_NEWEST:
            raise InvalidRequestError(f"newest {newest}: 1 to {MAX_NEWEST} expected")
        number = 1
        if cursor is not None:
            place, _, begins = cursor.partition("/")
            start, number = _position(place), _position(begins)
        found: list[TurnInfo] = []
        after: int | None = start
        while after is not None and (limit is None or len(found) < limit):
            wanted = ListTurnsInput(
                thread_id=session_id,
                start=after,
                number=number + len(found),
                limit=100 if limit is None else min(limit - len(found), 100),
                newest=newest,
            )
            page = _given((await self._look(LookRequest(turns=wanted))).turns)
            found += page.turns
            after = page.after
        more = None if after is None else f"{after}/{number + len(found)}"
        return Page(items=tuple(found), next_cursor=more, has_more=more is not None)

    @typed_arguments
    async def find_turn(self, session_id: str, message_id: str) -> FindTurnResult:
        """The finished turn that a user's message is in.

        Raises:
            InvalidRequestError: There is none.
        """
        wanted = FindTurnInput(thread_id=session_id, message_id=message_id)
        return _given((await self._look(LookRequest(find_turn=wanted))).find_turn)

    @typed_arguments
    async def checkpoints(
        self, session_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[CheckpointMeta]:
        """Checkpoints of the session, newest first; workers without a session store know of none.

        Raises:
            InvalidCursorError: See there.
        """
        wanted = ListCheckpointsInput(session_id=session_id, limit=limit, cursor=cursor)
        return _given((await self._look(LookRequest(checkpoints=wanted))).checkpoints)

    @typed_arguments
    async def checkpoint(self, session_id: str, checkpoint_id: str) -> CheckpointMeta:
        """One checkpoint of the session.

        Raises:
            CheckpointNotFoundError: It has none of that id.
        """
        cursor: str | None = None
        while True:
            page = await self.checkpoints(session_id, limit=MAX_LIMIT, cursor=cursor)
            for each in page.items:
                if each.id == checkpoint_id:
                    return each
            cursor = page.next_cursor
            if cursor is None:
                raise CheckpointNotFoundError(f"session {session_id!r} has no checkpoint {checkpoint_id!r}")

    @typed_arguments
    async def list_sessions(self, query: SessionQuery | None = None, **filters: Any) -> Page[SessionSummary]:
        """A page of sessions that match, by the session store's index; ``next_cursor`` leads on.

        Args:
            query: Which; its ``cursor`` is the ``next_cursor`` of the page before.
            filters: Instead, or over it: fields of a `SessionQuery` (``user_id``, ``tags``, ``status``, …).

        Raises:
            InvalidCursorError: See there.
            InvalidRequestError: The workers have no session store.
        """
        wanted = (query or SessionQuery()).model_copy(update=SessionQuery(**filters).named())
        return _given((await self._look(LookRequest(sessions=wanted))).sessions)

    @typed_arguments
    async def query_usage(self, query: UsageQuery | None = None, **filters: Any) -> Page[UsageEntry]:
        """A page of usage entries of all sessions that match, by time; ``next_cursor`` leads on.

        Args:
            query: Which; its ``cursor`` is the ``next_cursor`` of the page before.
            filters: Instead, or over it: fields of a `UsageQuery` (``kinds``, ``session_id``, ``since``, …).

        Raises:
            InvalidCursorError: See there.
        """
        named = UsageQuery(**filters)
        update = {name: getattr(named, name) for name in named.model_fields_set}
        wanted = (query or UsageQuery()).model_copy(update=update)
        return _given((await self._look(LookRequest(entries=wanted))).entries)

    @typed_arguments
    async def children(
        self, session_id: str, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[ChildInfo]:
        """Sessions of the sub-agents that this session called, newest first; wakes none of them.

        With a session store they are its references, whose number is the page's ``total``.  Without one, or
        where it has lost the session, they are the calls that are in the thread, by the tools that the agent
        has now: those of turns that were cut are not there, and ``total`` is None.

        Args:
            session_id: Whose.
            limit: At most so many of one page, 1 to 200; without a session store the calls of one answer
                stay together, and a page may also have fewer, as it looks at 2,000 messages.
            cursor: ``next_cursor`` of the page before.

        Raises:
            SessionNotFoundError: It has neither a state nor a thread.
            InvalidCursorError: See there.
            InvalidRequestError: ``limit`` is not 1 to 200; or the calls are looked for in the thread, and the
                workers do not serve its agent.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequestError(f"limit {limit}: 1 to {MAX_LIMIT} expected")
        return await self._children(ListChildrenInput(session_id=session_id, limit=limit, cursor=cursor))

    # -- how

    async def _children(self, wanted: ListChildrenInput) -> Page[ChildInfo]:
        return _given((await self._look(LookRequest(children=wanted))).children)

    async def _described(self, thread_id: str) -> DescribeThreadResult | None:
        try:
            return await self.describe(thread_id)
        except ThreadNotFoundError:
            return None

    async def _with_text(self, thread_id: str, result: AskResult) -> AskResult:
        assert result.answer is not None
        at = result.answer.position
        page = await self._history(thread_id, start=at, stop=at + 1, limit=1, max_bytes=1024 * 1024)
        text = page.messages[0].text if page.messages and page.messages[0].id == result.answer.id else None
        return result.model_copy(update={"text": text})

    async def _with_large(self, thread_id: str, page: ReadMessagesResult) -> ReadMessagesResult:
        """The page with the messages that did not fit into one result."""
        messages = list(page.messages)
        for large in page.large:
            body = b""
            while len(body) < large.size:
                read = ReadBodyInput(
                    thread_id=thread_id, position=large.position, id=large.id, offset=len(body)
                )
                reply = await self._thread(ThreadRequest(do="read_body", read_body=read))
                assert reply.body is not None
                body += base64.b64decode(reply.body.data)
            messages[large.position - page.first] = from_record(Record("", large.id, body))
        return page.model_copy(update={"messages": tuple(messages), "large": ()})

    async def _thread(self, request: ThreadRequest) -> ThreadReply:
        direct = None if self._direct is None else await self._direct.thread(request)
        if direct is not None:
            return direct
        reply: ThreadReply = await self._short(ThreadWorkflow.run, request, "thread")
        return reply

    async def _look(self, request: LookRequest) -> LookReply:
        direct = None if self._direct is None else await self._direct.look(request)
        if direct is not None:
            return direct
        reply: LookReply = await self._short(LookWorkflow.run, request, "look")
        return reply

    async def _short(self, run: Any, request: Any, name: str) -> Any:
        prefix = short_workflow_prefix(name, request.about, self._deployment.name)
        workflow_id = f"{prefix}{uuid.uuid4().hex}"
        try:
            started = await self._client.start_workflow(
                run,
                request if self._policy is None else request.model_copy(update={"policy": self._policy}),
                id=workflow_id,
                task_queue=self._task_queue,
                memo=memo_of(self._deployment),
            )
            async with self._diagnosis.logged(workflow_id):
                return await (_awaited(started) if is_bounded() else self._served(started))
        except RPCError as error:
            check_namespace(self._client, error)
            raise
        except Exception as error:
            raise root_error(error) from error

    async def _served(self, started: WorkflowHandle[Any, Any]) -> Any:
        """The result of a short workflow, while there are workers for it.

        Raises:
            NoWorkerError: None polls its task queue; it is terminated.
        """
        result = asyncio.ensure_future(started.result())
        unserved = asyncio.ensure_future(self._diagnosis.unserved(started.id))
        try:
            await asyncio.wait((result, unserved), return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return await result
            await started.terminate("no worker polls its task queue")
            raise NoWorkerError(f"{started.id}: {await unserved}")
        finally:
            result.cancel()
            unserved.cancel()


async def _awaited(started: WorkflowHandle[Any, Any]) -> Any:
    """The result of a short workflow, which is terminated once nobody waits for it any more."""
    try:
        return await started.result()
    except asyncio.CancelledError:
        # Otherwise those of all calls that timed out would run once a worker comes.
        with contextlib.suppress(RPCError):
            await started.terminate("nobody waits for it any more", rpc_timeout=_TERMINATION)
        raise


def _position(cursor: str) -> int:
    """What a cursor says.

    Raises:
        InvalidCursorError: It is no number.
    """
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS):
        raise InvalidCursorError("the cursor is not one that this list gave; begin without one")
    return int(cursor)


def _given(found: R | None) -> R:
    assert found is not None
    return found
