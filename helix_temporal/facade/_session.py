"""A session in this process, or one that a session workflow runs."""

import asyncio
import secrets
import string
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol, Self

from helix_temporal.agents import Agent
from helix_temporal.client import SessionClient
from helix_temporal.errors import HelixError, InvalidRequestError, SessionNotFoundError
from helix_temporal.facade._local import run_turn
from helix_temporal.models.facade import (
    ErrorEvent,
    MessageEvent,
    ResultEvent,
    SessionEvent,
    StopEvent,
    StoredSession,
    TextEvent,
)
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.sessions import AskStatus, UserMessage
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.storage import SessionStorage

_LETTERS: Final = string.ascii_letters + string.digits
_DONE: Final = None


def generate_session_id() -> str:
    """``sess_`` and 16 random letters and digits."""
    return "sess_" + "".join(secrets.choice(_LETTERS) for _ in range(16))


def generate_message_id() -> str:
    """``msg_`` and 20 random letters and digits."""
    return "msg_" + "".join(secrets.choice(_LETTERS) for _ in range(20))


class Engine(Protocol):
    """What answers a message of a session."""

    async def answer(self, message: UserMessage, emit: Any) -> None:
        """Run one turn and tell what happens; what it stores is stored when it returns."""
        ...

    async def stored(self) -> StoredSession:
        """The session as it is now."""
        ...


class LocalEngine:
    """Runs turns in this process, each under a lease, and stores the session after each."""

    def __init__(
        self, agent: Agent, storage: SessionStorage, session: StoredSession, locks: LockManager | None
    ) -> None:
        self._agent, self._storage, self._session, self._locks = agent, storage, session, locks

    async def answer(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer`.

        Raises:
            LeaseLostError: Another process took the session over; nothing was stored.
            SessionNotFoundError: It was deleted meanwhile.
        """
        async with AsyncExitStack() as stack:
            if self._locks is not None:
                await stack.enter_async_context(self._locks.hold(f"session/{self._session.id}"))
            # Somebody else may have had a turn since ours.
            found = await self._storage.load(self._session.id)
            if found is None:
                raise SessionNotFoundError(f"Session not found: {self._session.id!r} was deleted")
            result, messages = await run_turn(self._agent, found, message, emit)
            self._session = found.model_copy(
                update={
                    "messages": messages,
                    "usage": found.usage + result.usage,
                    "updated_at": max(now(), found.updated_at + 1),
                }
            )
            await self._storage.save(self._session)
        emit(ResultEvent(text=messages[-1].text if messages else None, usage=result.usage))

    async def stored(self) -> StoredSession:
        """See `Engine.stored`."""
        return self._session


class WorkflowEngine:
    """Lets the session workflow run the turns; what it stores is on its workers."""

    def __init__(self, client: SessionClient, session_id: str, agent: str) -> None:
        self._client, self._session_id, self._agent = client, session_id, agent
        self._usage = Usage()

    async def answer(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer`."""
        emit(MessageEvent(message=Message(id=message.id, role="user", content=message.text)))
        result = await self._client.ask(
            self._session_id, message.text, agent=self._agent, message_id=message.id
        )
        if result.status is AskStatus.FAILED:
            raise InvalidRequestError(result.error or "the turn failed")
        if result.text:
            emit(TextEvent(text=result.text))
        emit(StopEvent(stop_reason=(result.exit_reason or result.status).value))
        emit(ResultEvent(text=result.text))

    async def stored(self) -> StoredSession:
        """See `Engine.stored`: read through the workflow's workers."""
        messages: list[Message] = []
        while True:
            page = await self._client.history(self._session_id, start=len(messages), limit=200)
            messages += page.messages
            if not page.messages or page.after is None:
                return StoredSession(id=self._session_id, messages=tuple(messages))


class Session:
    """One conversation: `send` a message, then `receive` what happens until its answer is there.

    Made by `create_session`, `resume_session` and `fork_session`.

    Attributes:
        id: The session's.
    """

    def __init__(self, session_id: str, engine: Engine) -> None:
        self.id = session_id
        self._engine = engine
        self._pending: UserMessage | None = None
        self._receiving = False
        self._closed = False

    async def send(self, text: str, *, message_id: str | None = None) -> str:
        """Take a message; its turn runs while `receive` is read.  Returns the message's id.

        Raises:
            InvalidRequestError: The session is closed, a turn is under way, or ``text`` is empty.
        """
        self._check_open()
        if self._receiving or self._pending is not None:
            raise InvalidRequestError("a message is being answered; receive its answer first")
        if not text:
            raise InvalidRequestError("text is empty")
        self._pending = UserMessage(id=message_id or generate_message_id(), text=text)
        return self._pending.id

    async def receive(self) -> AsyncIterator[SessionEvent]:
        """What happens in the turn, to its result; a turn that fails ends with an `ErrorEvent`.

        Leaving the loop early cancels the turn; nothing of it is stored then.

        Raises:
            InvalidRequestError: The session is closed, or nothing was sent.
        """
        self._check_open()
        if self._pending is None:
            raise InvalidRequestError("nothing was sent that could be answered")
        message, self._pending, self._receiving = self._pending, None, True
        events: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        turn = asyncio.create_task(self._turn(message, events))
        try:
            while (event := await events.get()) is not _DONE:
                yield event
            await turn
        finally:
            self._receiving = False
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    async def get_messages(self) -> tuple[Message, ...]:
        """All messages of finished turns."""
        return (await self._engine.stored()).messages

    async def get_usage(self) -> Usage:
        """What model calls used, over all turns."""
        return (await self._engine.stored()).usage

    async def close(self) -> None:
        """Use it no more; every finished turn is stored already."""
        self._closed, self._pending = True, None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _turn(self, message: UserMessage, events: "asyncio.Queue[SessionEvent | None]") -> None:
        try:
            await self._engine.answer(message, events.put_nowait)
        except HelixError as error:
            events.put_nowait(ErrorEvent(error_type=type(error).__name__, message=str(error)))
        finally:
            events.put_nowait(_DONE)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"session {self.id!r} is closed")


def now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)
