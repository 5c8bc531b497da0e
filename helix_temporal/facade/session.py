"""A session: its turns run in this process, or a session workflow runs them."""

import asyncio
import logging
import secrets
import string
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from helix_temporal._failures import describe_failure
from helix_temporal._futures import finish_before_cancel
from helix_temporal._retries import repeat_unanswered
from helix_temporal.activities._runtime import is_cancellation
from helix_temporal.activities.step_facts import TurnAnswers
from helix_temporal.agents import Agent
from helix_temporal.client import SessionHandle
from helix_temporal.errors import (
    HelixError,
    IdempotencyConflictError,
    InvalidRequestError,
    SessionNotFoundError,
)
from helix_temporal.facade.local_turns import refused_message_error, run_before_user_message, run_turn
from helix_temporal.models.base import storable_text, wall_clock_ms
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
from helix_temporal.models.sessions import AskStatus, ExitReason, UserMessage
from helix_temporal.models.states import SessionProperties, refuse_past
from helix_temporal.models.turns import encode_messages
from helix_temporal.stores.protocols.locks import LockManager
from helix_temporal.stores.protocols.storage import SessionStorage

_logger = logging.getLogger(__name__)


def session_not_found_error(session_id: str) -> SessionNotFoundError:
    """The error for a session that was never created, or was deleted."""
    return SessionNotFoundError(
        f"Session not found: {session_id!r} was never created here, or was deleted; check its id and its "
        "storage, or create it"
    )


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """The turn of a message that was sent before: the message's id is its name.

    Attributes:
        message: The user's, as it is stored.
        finished: The turn has come to its end.
        answer: What it ended with; None if it ended without one.
    """

    message: Message
    finished: bool
    answer: Message | None = None


def find_begun_turn(stored: StoredSession, message_id: str) -> BegunTurn | None:
    """The turn that a message of this id began, finished or not; None if there is none.

    Raises:
        IdempotencyConflictError: The id belongs to a message that is no user's.
    """
    for message in stored.messages:
        if message.id == message_id:
            found = TurnAnswers([message_id])
            found.follow(0, encode_messages(stored.messages))
            at = found.answers.get(message_id)
            return BegunTurn(
                message, finished=True, answer=None if at is None else stored.messages[at.position]
            )
    if stored.unfinished is not None and stored.unfinished.messages[0].id == message_id:
        return BegunTurn(stored.unfinished.messages[0], finished=False)
    return None


def check_same_text(begun: Message, sent: UserMessage) -> None:
    """Refuse another text under the id of a message that was sent before.

    Raises:
        IdempotencyConflictError: The texts differ.
    """
    if begun.text != sent.text:
        raise IdempotencyConflictError(
            f"message id {sent.id!r} was sent before with other text; send the same text for its answer, "
            "and a new one under an id of its own",
            message_id=sent.id,
        )


_LETTERS: Final = string.ascii_letters + string.digits


def generate_session_id() -> str:
    """``sess_`` and 16 random letters and digits."""
    return "sess_" + "".join(secrets.choice(_LETTERS) for _ in range(16))


def generate_message_id() -> str:
    """``msg_`` and 20 random letters and digits."""
    return "msg_" + "".join(secrets.choice(_LETTERS) for _ in range(20))


class Engine(Protocol):
    """What answers a message of a session."""

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """Run one turn and tell what happens; what it stores is stored when it returns."""
        ...

    async def load_session(self) -> StoredSession:
        """The session as it is now."""
        ...

    async def get_state(self) -> dict[str, Any]:
        """What tools have made of its state."""
        ...

    async def get_usage(self) -> Usage:
        """What its model calls used."""
        ...


class LocalEngine:
    """Runs turns in this process, each under a lease, and stores the session after each.

    Of the agent's hooks ``before_user_message`` is run, once a turn; the others are the workflow's.
    """

    def __init__(
        self, agent: Agent, storage: SessionStorage, session_id: str, locks: LockManager | None
    ) -> None:
        self._agent, self._storage, self._session_id, self._locks = agent, storage, session_id, locks

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer_message`; a message that was sent before has no second turn.

        If its turn is finished, it gets the answer that it got; if the turn was cut off, it goes on behind
        the last step that was stored, unless another message was answered meanwhile.

        Raises:
            IdempotencyConflictError: The message has the id of an answer or of a tool's result, or that of
                another text; the latter is not found where the agent has a ``before_user_message``.
            LeaseLostError: Another process took the session over; what was not being stored is not.
            SessionNotFoundError: It was deleted meanwhile.
            SessionExpiredError: It is past its time; `resume_session` renews it.
            InvalidRequestError: The hook refuses the message.
        """
        async with hold_lease(self._locks, self._session_id):
            result = await self._answer_under_lease(message, emit)
        emit(result)

    async def _answer_under_lease(self, message: UserMessage, emit: Any) -> ResultEvent:
        # Somebody else may have had a turn since ours.
        found = await self.load_session()
        begun = find_begun_turn(found, message.id)
        # A hook may have changed the text that is stored.
        if begun is not None and self._agent.hooks.before_user_message is None:
            check_same_text(begun.message, message)
        if begun is not None and begun.finished:
            ended = ExitReason.INTERRUPTED if begun.answer is None else ExitReason.COMPLETED
            emit(StopEvent(stop_reason=ended.value))
            return ResultEvent(text=None if begun.answer is None else begun.answer.text)
        refuse_past(found.id, found.properties.expires_at, wall_clock_ms())
        if begun is None:
            message = await run_before_user_message(self._agent, found, message)
            found = found.model_copy(update={"unfinished": None})
        else:
            message = message.model_copy(update={"text": begun.message.text})
        result, after = await run_turn(self._agent, found, message, emit, self._save)
        changes = {
            "usage": found.usage + result.usage,
            "updated_at": max(wall_clock_ms(), found.updated_at + 1),
        }
        await self._save(after.model_copy(update=changes))
        text = None if result.answer is None else after.messages[result.answer.position].text
        return ResultEvent(text=text, usage=result.usage)

    async def _save(self, session: StoredSession) -> None:
        # Not finished, a cancelled write would go on after the lease was given back, over the next holder's
        # turn.  Not repeated, its answer would be asked, and paid, for again.
        await repeat_unanswered(lambda: finish_before_cancel(self._storage.save(session)))

    async def load_session(self) -> StoredSession:
        """See `Engine.load_session`.

        Raises:
            SessionNotFoundError: It was deleted meanwhile.
        """
        found = await self._storage.load(self._session_id)
        if found is None:
            raise session_not_found_error(self._session_id)
        return found

    async def get_state(self) -> dict[str, Any]:
        """See `Engine.get_state`."""
        return dict((await self.load_session()).state)

    async def get_usage(self) -> Usage:
        """See `Engine.get_usage`."""
        return (await self.load_session()).usage


@asynccontextmanager
async def hold_lease(locks: LockManager | None, session_id: str) -> AsyncIterator[None]:
    """Be the only one who writes the session, where its storage has locks."""
    async with AsyncExitStack() as stack:
        if locks is not None:
            await stack.enter_async_context(locks.hold(f"session/{session_id}"))
        yield


class WorkflowEngine:
    """Lets the session workflow run the turns; what it stores is on its workers."""

    def __init__(
        self,
        session: SessionHandle,
        properties: SessionProperties | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._session = session
        self._properties, self._metadata = properties, metadata

    async def answer_message(self, message: UserMessage, emit: Any) -> None:
        """See `Engine.answer_message`."""
        result = await self._session.ask(
            message.text,
            message_id=message.id,
            properties=self._properties,
            metadata=self._metadata,
        )
        self._properties = None
        if result.status is AskStatus.REFUSED:
            raise refused_message_error(result.error)
        emit(MessageEvent(message=Message(id=message.id, role="user", content=message.text)))
        if result.status is AskStatus.FAILED:
            raise InvalidRequestError(result.error or "the turn failed")
        if result.text:
            emit(TextEvent(text=result.text))
        emit(StopEvent(stop_reason=(result.exit_reason or result.status).value))
        emit(ResultEvent(text=result.text))

    async def load_session(self) -> StoredSession:
        """See `Engine.load_session`: read through the workflow's workers."""
        messages = await self._session.get_messages()
        return StoredSession(id=self._session.session_id, messages=tuple(messages))

    async def get_state(self) -> dict[str, Any]:
        """See `Engine.get_state`: what the session store says."""
        return dict((await self._session.get_state()).custom_state)

    async def get_usage(self) -> Usage:
        """See `Engine.get_usage`: what the thread says of its model calls."""
        return (await self._session.get_usage()).tokens


class Session:
    """One conversation: `send` a message, then `receive` what happens until its answer is there.

    Made by `create_session`, `resume_session` and `fork_session`.

    Attributes:
        id: The session's.
        agent_name: Of the agent that answers.
    """

    def __init__(self, session_id: str, engine: Engine, agent_name: str) -> None:
        self.id, self.agent_name = session_id, agent_name
        self._engine = engine
        self._pending: UserMessage | None = None
        self._receiving = False
        self._closed = self._deleted = False
        self._running: asyncio.Task[None] | None = None

    async def send(self, text: str, *, message_id: str | None = None) -> str:
        """Take a message; its turn runs while `receive` is read.  Returns the message's id.

        Args:
            text: What the user says.
            message_id: Names the turn: sent again under it, in whatever process, the message gets the first
                answer, or goes on with its turn if that was cut off.  A random one if it is left out.

        Raises:
            InvalidRequestError: The session is closed, a turn is under way, or ``text`` is empty.
        """
        self._check_open()
        if self._receiving or self._pending is not None:
            raise InvalidRequestError("a message is being answered; receive its answer first")
        if not text:
            raise InvalidRequestError("text is empty; give at least one character")
        self._pending = UserMessage(id=message_id or generate_message_id(), text=text)
        return self._pending.id

    async def receive(self) -> AsyncGenerator[SessionEvent, None]:
        """What happens in the turn, to its result; a turn that fails ends with an `ErrorEvent`.

        Leaving the loop early cancels the turn, and nothing of it is in the session unless its end was being
        stored; the same message, sent again, goes on with it.  After a ``break`` Python ends the loop in its
        own time; `contextlib.aclosing` ends it there.

        Raises:
            InvalidRequestError: The session is closed, or nothing was sent.
        """
        self._check_open()
        if self._pending is None:
            raise InvalidRequestError("no message was sent; call send first")
        message, self._pending, self._receiving = self._pending, None, True
        events: asyncio.Queue[SessionEvent | None] = asyncio.Queue()
        turn = self._running = asyncio.create_task(self._run_pending_turn(message, events))
        try:
            while (event := await events.get()) is not None:
                yield event
            await turn
        finally:
            self._receiving, self._running = False, None
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    async def get_messages(self) -> list[Message]:
        """All messages of finished turns, whoever had them.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return [*(await self._engine.load_session()).messages]

    async def get_state(self) -> dict[str, Any]:
        """What tools have made of the session's state (`ToolOutcome.state`), up to the newest finished turn.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return await self._engine.get_state()

    async def get_usage(self) -> Usage:
        """What model calls used, over all turns.

        Raises:
            SessionNotFoundError: The session was deleted, or a ``client``'s has had no message yet.
        """
        return await self._engine.get_usage()

    async def close(self) -> None:
        """Use it no more; every finished turn is stored already."""
        self._closed, self._pending = True, None

    async def end_deleted(self) -> None:
        """The session is being deleted: its turn ends, and whoever receives it is told."""
        await self.close()
        self._deleted = True
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _run_pending_turn(
        self, message: UserMessage, events: "asyncio.Queue[SessionEvent | None]"
    ) -> None:
        try:
            await self._engine.answer_message(message, events.put_nowait)
        except HelixError as error:
            events.put_nowait(_error_event(error))
        except (Exception, asyncio.CancelledError) as error:
            if not is_cancellation(error):
                _logger.warning("a turn of session %r failed", self.id, exc_info=error)
                events.put_nowait(
                    ErrorEvent(error_type=type(error).__name__, message=describe_failure(error))
                )
            elif self._deleted:
                events.put_nowait(_error_event(session_not_found_error(self.id)))
            else:
                raise
        finally:
            events.put_nowait(None)

    @property
    def closed(self) -> bool:
        """Whether it was closed; another one for the same session is made by `resume_session`."""
        return self._closed

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequestError(f"session {self.id!r} is closed; resume_session opens it again")


def _error_event(error: HelixError) -> ErrorEvent:
    return ErrorEvent(error_type=type(error).__name__, message=storable_text(str(error)))
