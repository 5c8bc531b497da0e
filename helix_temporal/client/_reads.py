"""What a client reads of sessions, at workers or from stores that it is given; no session is woken."""

import asyncio
import base64
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from helix_temporal.activities import ChildActivities, SessionReads, ThreadActivities, UsageActivities
from helix_temporal.activities.payloads import unpack_page
from helix_temporal.client._diagnosis import Diagnosis
from helix_temporal.client._short_calls import ShortCalls
from helix_temporal.client._updates import missing_session_error, root_error
from helix_temporal.errors import (
    InvalidCursorError,
    SessionNotFoundError,
    ThreadNotFoundError,
    TooLargeError,
)
from helix_temporal.models.deployments import Deployment
from helix_temporal.models.handles import ChildInfo, ListChildrenInput, ShowSessionInput
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.sessions import AskResult, CallPolicy
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import Page
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.threads import (
    DescribeThreadResult,
    ReadBodyInput,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.models.waiting import PendingCall
from helix_temporal.stores.paging import MAX_MESSAGES as PAGE_LIMIT
from helix_temporal.stores.protocols.readable import ReadableStores
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.workflows import (
    LookRequest,
    ThreadRequest,
)

R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 — the input of an activity

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of a thread that is read whole, so much at a time."""
_ANY_SIZE: Final = 2**62
"""Nothing passes through Temporal, which would limit its size."""


class DirectReads:
    """Answers as workers do, by the same code."""

    def __init__(self, stores: ReadableStores) -> None:
        self._store = stores.threads
        sessions = stores.sessions if stores.keeps_sessions else None
        self._owners = (
            ThreadActivities(stores.threads, max_payload=_ANY_SIZE),
            SessionReads(stores.threads, stores.usage, sessions, max_payload=_ANY_SIZE),
            UsageActivities(stores.usage, max_payload=_ANY_SIZE),
        )

    async def read_messages(self, thread_id: str) -> list[Message]:
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
            found += await asyncio.to_thread(_parse_messages, page.messages)
            after = page.after
        return found

    def can_look_up(self, activity: Callable[..., object]) -> bool:
        """Whether these stores are enough; only workers, which serve the agents, can tell some things."""
        return self._find_owner(activity) is not None

    async def look_up(self, activity: Callable[[Any, I], Awaitable[R]], wanted: I) -> R:
        """What the activity gives at a worker.

        Raises:
            HelixError: As at a worker.
        """

        async def read() -> R:
            return await activity(self._find_owner(activity), wanted)

        try:
            # Out of the activity that may ask: its heartbeats and attempts are not for us to use.
            return await asyncio.create_task(read(), context=contextvars.Context())
        except ApplicationError as error:
            # As which a typed error leaves an activity.
            raise root_error(error) from None

    def _find_owner(self, activity: Callable[..., object]) -> object | None:
        return next((each for each in self._owners if activity in vars(type(each)).values()), None)


def _parse_messages(messages: Sequence[StoredMessage]) -> list[Message]:
    return [decode_message(each) for each in messages]


_DIGITS: Final = 18
_PACKED_PAGE_BYTES: Final = 768 * 1024
"""Of a thread that is read whole at workers: compressed, about as much as one result takes."""
_AT_ONCE: Final = 4


class SessionReader:
    """Reads threads and states, wherever they are.

    Args:
        policy: Time-outs and retries; None for those that a worker has without settings.
        deployment: Whose the sessions are.
        stores: Read here, rather than at workers.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        policy: CallPolicy | None,
        deployment: Deployment,
        diagnosis: Diagnosis,
        stores: ReadableStores | None,
    ) -> None:
        self._calls = ShortCalls(client, task_queue, policy, deployment, diagnosis)
        self._direct = None if stores is None else DirectReads(stores)

    async def look_up(self, activity: Callable[[Any, I], Awaitable[R]], wanted: I) -> R:
        """What a session, a thread, or all sessions are asked.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        request = LookRequest.of(activity, wanted)
        with _missing_as_session(request.about):
            if self._direct is not None and self._direct.can_look_up(activity):
                return await self._direct.look_up(activity, wanted)
            return cast("R", await self._calls.run(request))

    async def change(self, activity: Callable[[Any, I], Awaitable[R]], wanted: I) -> R:
        """What is done to a session or thread by a worker.

        Raises:
            SessionNotFoundError: There is no such session.
        """
        request = ThreadRequest.of(activity, wanted)
        with _missing_as_session(request.about):
            return cast("R", await self._calls.run(request))

    async def describe_thread(self, thread_id: str) -> DescribeThreadResult:
        """Where a thread stands.

        Raises:
            SessionNotFoundError: There is no such thread.
        """
        return await self.look_up(ThreadActivities.describe, ThreadInput(thread_id=thread_id))

    async def has_thread(self, thread_id: str) -> bool:
        """Whether there is a thread of this id."""
        try:
            await self.describe_thread(thread_id)
        except SessionNotFoundError:
            return False
        return True

    async def load_state(self, session_id: str) -> SessionState | None:
        """A session's state, None if it has neither a state nor a thread."""
        return (await self.look_up(SessionReads.show, ShowSessionInput(session_id=session_id))).state

    async def check_session_exists(self, session_id: str) -> None:
        """Refuse a session that is not there.

        Raises:
            SessionNotFoundError: It has neither a state nor a thread.
        """
        with contextlib.suppress(TooLargeError):  # too large to travel, but there
            if await self.load_state(session_id) is None:
                raise missing_session_error(session_id)

    async def list_children(self, wanted: ListChildrenInput) -> Page[ChildInfo]:
        """A page of the sub-agents' sessions that a session called."""
        return await self.look_up(ChildActivities.children, wanted)

    async def read_page(self, thread_id: str, **fields: Any) -> ReadMessagesResult:
        """Messages of a thread, the large ones with them.

        Args:
            thread_id: Which.
            fields: Of a `ReadMessagesInput`.
        """
        read = ReadMessagesInput(thread_id=thread_id, **fields)
        page = await self.look_up(ThreadActivities.read, read)
        return await self._with_large(thread_id, page)

    async def read_messages(self, thread_id: str) -> list[Message]:
        """All messages of the finished turns, by large pages: 4 MiB from stores, one payload at a worker.

        Raises:
            SessionNotFoundError: There is no such thread.
        """
        if self._direct is not None:
            with _missing_as_session(thread_id):
                return await self._direct.read_messages(thread_id)
        first, page = await self._read_packed(thread_id, 0, None)
        if page.after is None:
            return first
        slots, step = asyncio.Semaphore(_AT_ONCE), len(first)

        async def read_part(start: int) -> list[Message]:
            async with slots:
                return await self._read_range(thread_id, start, min(start + step, page.committed))

        starts = range(page.after, page.committed, step)
        reads = [asyncio.create_task(read_part(start)) for start in starts]
        try:
            parts = await asyncio.gather(*reads)
        finally:
            for each in reads:
                each.cancel()  # the others, where one has failed
        return [*first, *(message for each in parts for message in each)]

    async def _read_range(self, thread_id: str, start: int, stop: int) -> list[Message]:
        found: list[Message] = []
        after: int | None = start
        while after is not None and after < stop:
            messages, page = await self._read_packed(thread_id, after, stop)
            found += messages
            after = page.after if messages else None
        return found

    async def _read_packed(
        self, thread_id: str, start: int, stop: int | None
    ) -> tuple[list[Message], ReadMessagesResult]:
        page = await self.read_page(
            thread_id,
            start=start,
            stop=stop,
            limit=PAGE_LIMIT,
            max_bytes=_PACKED_PAGE_BYTES,
            whole=False,
            packed=True,
        )
        # In a thread: other tasks of the application go on.
        return await asyncio.to_thread(unpack_page, page), page

    async def complete_answer(self, thread_id: str, result: AskResult) -> AskResult:
        """The result with its answer's text, which is in the thread alone where it is long."""
        assert result.answer is not None
        at = result.answer.position
        page = await self.read_page(thread_id, start=at, stop=at + 1, limit=1, max_bytes=1024 * 1024)
        text = page.messages[0].text if page.messages and page.messages[0].id == result.answer.id else None
        return result.model_copy(update={"text": text})

    async def complete_call(self, thread_id: str, call: PendingCall) -> PendingCall:
        """The call with its arguments, which are in the thread alone where they are large."""
        if call.arguments is not None:
            return call
        at = call.position
        page = await self.read_page(
            thread_id, start=at, stop=at + 1, limit=1, committed_only=False, whole=False
        )
        if not page.messages or len(page.messages[0].tool_calls) <= call.at:
            return call
        return call.model_copy(update={"arguments": page.messages[0].tool_calls[call.at].arguments})

    async def _with_large(self, thread_id: str, page: ReadMessagesResult) -> ReadMessagesResult:
        """The page with the messages that did not fit into one result."""
        messages = list(page.messages)
        for large in page.large:
            body = b""
            while len(body) < large.size:
                read = ReadBodyInput(
                    thread_id=thread_id, position=large.position, id=large.id, offset=len(body)
                )
                body += base64.b64decode((await self.look_up(ThreadActivities.read_body, read)).data)
            messages[large.position - page.first] = decode_message(StoredMessage("", large.id, body))
        return page.model_copy(update={"messages": tuple(messages), "large": ()})


@contextlib.contextmanager
def _missing_as_session(session_id: str) -> Iterator[None]:
    """A thread that is not there is, to whoever reads a session by its id, a session that is not there."""
    try:
        yield
    except ThreadNotFoundError as error:
        raise missing_session_error(session_id) from error


def cursor_position(cursor: str) -> int:
    """What a cursor says.

    Raises:
        InvalidCursorError: It is no number.
    """
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= _DIGITS):
        raise InvalidCursorError("the cursor is not one that this list gave; begin without one")
    return int(cursor)
