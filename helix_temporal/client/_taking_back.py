"""Turns that are taken back: rewind, restore, regenerate, and a past message that is edited in a fork."""

import hashlib
import uuid
from typing import Any, Final

from temporalio.client import Client

from helix_temporal._arguments import typed_arguments
from helix_temporal.agents.checks import NAME
from helix_temporal.client._reads import ReadableStores, SessionReader
from helix_temporal.client._updates import Updates
from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidRequestError,
    SessionExpiredError,
    ThreadExistsError,
    TooLargeError,
    error_of_text,
)
from helix_temporal.models.base import check_text
from helix_temporal.models.deployments import Deployment
from helix_temporal.models.handles import FindTurnResult, TakeBackRequest, TakeBackResult
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import check_size
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    CallPolicy,
    ForkFrom,
    SessionInput,
    SessionOptions,
    UserMessage,
)
from helix_temporal.models.states import has_thread
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.waiting import check_own_id, is_child_id
from helix_temporal.workflows import ThreadRequest

INLINE_TEXT_BYTES: Final = 8 * 1024
"""Longer texts are put aside first, so that the session's history stays small."""
_RAISED: Final = tuple(f"{each.__name__}: " for each in (SessionExpiredError, IdempotencyConflictError))
"""Failures of a message that are its sender's: raised rather than told."""


class TakingBack(SessionReader):
    """Takes finished turns back, between turns: where one runs, it is waited for.

    A request counts once under its ``operation_id``; give one if you may have to repeat it.  A thread
    remembers its newest 8 requests.
    """

    def __init__(
        self,
        client: Client,
        task_queue: str,
        policy: CallPolicy | None,
        updates: Updates,
        options: SessionOptions,
        stores: ReadableStores | None = None,
        deployment: Deployment = Deployment(),  # noqa: B008 (frozen)
    ) -> None:
        super().__init__(client, task_queue, policy, stores, deployment)
        self._updates, self._options = updates, options

    @typed_arguments
    async def rewind(
        self,
        session_id: str,
        to: Head,
        *,
        agent: str | None = None,
        timeout: float = 60.0,
        operation_id: str | None = None,
    ) -> Head:
        """Cut the thread at an earlier head of a finished turn; its state goes back with it.

        Raises:
            InvalidRequestError: ``to`` is not the end of a finished turn.
            HeadMovedError: The thread does not hold ``to``; or turns of it were lost, as is found only now:
                see what stands, and ask again.
            SessionNotFoundError: The session does not run, and no agent is named to start it with.
            TimeoutError: No answer within ``timeout`` seconds; repeat it with the same ``operation_id``.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, to=to)
        return (await self._taken_back(session_id, request, agent, timeout)).head

    @typed_arguments
    async def rewind_to_turn(
        self,
        session_id: str,
        turns: int,
        *,
        agent: str | None = None,
        timeout: float = 60.0,
        operation_id: str | None = None,
    ) -> Head:
        """Keep the first ``turns`` finished turns; below 0: take back so many of the newest.

        Raises:
            InvalidRequestError: There are not so many.
            HeadMovedError, SessionNotFoundError, TimeoutError: As `rewind`.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, turns=turns)
        return (await self._taken_back(session_id, request, agent, timeout)).head

    @typed_arguments
    async def restore(
        self,
        session_id: str,
        checkpoint_id: str,
        *,
        agent: str | None = None,
        timeout: float = 60.0,
        operation_id: str | None = None,
    ) -> Head:
        """Go back to a checkpoint: the thread to its head, and the state to what it holds.

        Raises:
            CheckpointNotFoundError: The session has none of that id.
            HeadMovedError: The thread does not hold its head: a turn before it was taken back.
            InvalidRequestError: The workers have no session store.
            SessionNotFoundError, TimeoutError: As `rewind`.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, checkpoint=checkpoint_id)
        return (await self._taken_back(session_id, request, agent, timeout)).head

    @typed_arguments
    async def regenerate(
        self,
        session_id: str,
        *,
        agent: str | None = None,
        timeout: float = 600.0,
        operation_id: str | None = None,
    ) -> AskResult:
        """Take the newest turn back and ask its messages anew, under new ids; the result is as `ask`'s.

        Raises:
            InvalidRequestError: There is no finished turn, or no user said anything in it; or it was carried
                out under this id, and turns were taken back since.
            SessionNotFoundError, TimeoutError: As `rewind`.
        """
        async with self._updates.within(session_id, "regenerate", timeout):
            request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, turns=-1, again=True)
            taken = await self._taken_back(session_id, request, agent, timeout)
            if not taken.messages:
                raise InvalidRequestError(
                    f"session {session_id!r}: regeneration {request.id!r} was carried out, and turns were "
                    "taken back since; ask for another one"
                )
            start = self._input(session_id, agent)
            message = taken.messages[-1]
            if agent is not None:
                message = message.model_copy(update={"agent": agent})
            return await self._asked(session_id, message, start, timeout)

    @typed_arguments
    async def edit(
        self,
        session_id: str,
        message_id: str,
        text: str,
        target_id: str,
        *,
        agent: str,
        timeout: float = 600.0,
    ) -> AskResult:
        """Ask something else where a past message of the user's stands, in a new session.

        ``target_id`` becomes a fork that ends before the message's turn, with the state of that time
        where a checkpoint has it; the original stays as it is.  The same edit again gives the same answer.

        Raises:
            InvalidRequestError: No finished turn has such a message of the user's.
            ThreadExistsError: ``target_id`` is there, and is not what this edit makes.
            InvalidIdError: ``target_id`` is one that only a sub-agent's session may have.
        """
        async with self._updates.within(target_id, "ask", timeout):
            turn = await self.find_turn(session_id, message_id)
            edited = hashlib.sha256(f"{message_id}\0{text}".encode(errors="surrogatepass")).hexdigest()[:32]
            there = await self._described(target_id) is not None
            await self._check_own(target_id, begins=not there)
            if there and not await self._is_edit(target_id, turn, edited):
                raise ThreadExistsError(
                    f"thread {target_id!r} exists and is not this edit; choose another id"
                )
            origin = {"mode": "fork", "fork_from": ForkFrom(thread_id=session_id, at=turn.start.position)}
            start = self._input(target_id, agent, **({} if there else origin))
            message = UserMessage(id=edited, **await self._text(target_id, text, edited))
            return await self._asked(target_id, message, start, timeout)

    async def _is_edit(self, target_id: str, turn: FindTurnResult, edited: str) -> bool:
        """Whether a thread begins as the fork does, and has nothing else where the new text belongs."""
        at, last = turn.start.position, turn.start.last_id
        page = await self._history(target_id, start=max(at - 1, 0), limit=2)
        found = {page.first + number: message.id for number, message in enumerate(page.messages)}
        return (at == 0 or found.get(at - 1) == last) and found.get(at, edited) == edited

    # -- how

    async def _taken_back(
        self, session_id: str, request: TakeBackRequest, agent: str | None, timeout: float
    ) -> TakeBackResult:
        start = self._input(session_id, agent, mode="continue")
        result: TakeBackResult = await self._updates.until(
            session_id, "take_back", request, TakeBackResult, start, timeout
        )
        if result.error is not None:
            raise error_of_text(result.error)
        return result

    async def _asked(
        self, session_id: str, message: UserMessage, start: SessionInput | None, timeout: float
    ) -> AskResult:
        result: AskResult = await self._updates.until(session_id, "ask", message, AskResult, start, timeout)
        too_large = f"{TooLargeError.__name__}: message {message.id!r}:"
        other_thread = f"{InvalidRequestError.__name__}: {has_thread(session_id)}"
        raised = (*_RAISED, too_large, other_thread)
        if result.status is AskStatus.FAILED and (result.error or "").startswith(raised):
            raise error_of_text(result.error or "")
        if result.status is AskStatus.ANSWERED and result.text is None and result.answer is not None:
            return await self._with_text(result.thread_id or message.thread_id or session_id, result)
        return result

    async def _check_own(self, *ids: str | None, begins: bool = False) -> None:
        """Refuse ids under which only a sub-agent's session begins; whatever is there goes on.

        Raises:
            InvalidIdError: There is no thread of such an id, or ``begins`` wants a new one.
        """
        for each in ids:
            if each is None or not is_child_id(validate_id(each)):
                continue
            if begins or await self._described(each) is None:
                check_own_id(each)

    def _input(self, session_id: str, agent: str | None, **fields: Any) -> SessionInput | None:
        if agent is None:
            return None
        _check_agent(agent)
        given = {name: value for name, value in fields.items() if value}
        return SessionInput(
            session_id=session_id, agent=agent, options=self._options, expects_ask=True, **given
        )

    async def _text(self, thread_id: str, text: str, message_id: str) -> dict[str, Any]:
        check_text(text, "text")
        if len(text.encode()) <= INLINE_TEXT_BYTES:
            return {"text": text}
        check_size(len(text.encode()), 1024 * 1024, "text")
        return await self._aside(PutTextInput(thread_id=thread_id, message_id=message_id, text=text))

    async def _aside(self, put: PutTextInput) -> dict[str, Any]:
        """Put aside what is too long to travel, and name it."""
        reply = await self._thread(ThreadRequest(do="put_text", put_text=put))
        assert reply.put_text is not None
        return {"ref": reply.put_text.ref}


def _check_agent(agent: str) -> None:
    if not NAME.fullmatch(agent):
        raise InvalidRequestError(f"agent: its name expected (1-64 of A-Z a-z 0-9 _ -), got {agent[:80]!r}")
