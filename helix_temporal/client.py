"""SessionClient: what an application calls."""

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal import errors
from helix_temporal.errors import (
    HelixError,
    InvalidRequestError,
    SessionTerminatedError,
)
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.models.messages import Message, check_size
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    ForkFrom,
    Mode,
    PutTextInput,
    RewindRequest,
    RewindResult,
    SendResult,
    SessionInput,
    SessionOptions,
    SessionResult,
    SessionStatus,
    StopRequest,
    StopResult,
    UserMessage,
)
from helix_temporal.models.threads import (
    DeleteThreadInput,
    DescribeThreadResult,
    ForkThreadInput,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.workflows import SessionWorkflow, ThreadReply, ThreadRequest, ThreadWorkflow

MAX_IN_FLIGHT: Final = 8
"""Asks held at once for one session: the server allows ten updates in flight a run."""
INLINE_TEXT_BYTES: Final = 8 * 1024
"""Longer texts are put aside first, so that the session's history stays small."""

_PASSING: Final = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.ABORTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
    }
)
_ENDED_UNDER_US: Final = "AcceptedUpdateCompletedWorkflow"
_CLOSED_HARD: Final = frozenset({WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT})


def workflow_id(session_id: str) -> str:
    """The workflow id of a session: one live execution a session."""
    return f"helix-session/{encode_id(validate_id(session_id, 'session_id'))}"


class _Again(Exception):  # noqa: N818 (control flow, not an error)
    """Ask again, with the same message id; ``ended`` if the run may have ended under us."""

    def __init__(self, why: str, *, ended: bool = False, gone: bool = False) -> None:
        super().__init__(why)
        self.ended, self.gone = ended, gone


class SessionClient:
    """Talks to sessions: starts them when they are not running, and repeats until they answered.

    Args:
        client: Connected with `HelixPlugin`.
        task_queue: Where the session workers listen.
        options: For executions that this client starts.
    """

    def __init__(
        self, client: Client, *, task_queue: str = "helix", options: SessionOptions | None = None
    ) -> None:
        self._client, self._task_queue = client, task_queue
        self._options = options or SessionOptions()
        self._slots: dict[str, _Slots] = {}

    def session(self, session_id: str, *, agent: str | None = None) -> "SessionHandle":
        """A handle on one session."""
        return SessionHandle(self, session_id, agent)

    async def ask(
        self,
        session_id: str,
        text: str,
        *,
        agent: str | None = None,
        message_id: str | None = None,
        timeout: float = 600.0,
        metadata: Mapping[str, str] | None = None,
        mode: Mode = "auto",
        thread_id: str | None = None,
        fork_from: ForkFrom | None = None,
    ) -> AskResult:
        """Send a message and wait for the answer.

        The message counts once however often it is sent under one ``message_id``.  ``agent`` is needed
        whenever the session may have to be started.  The result is never ``moved``.

        Raises:
            TimeoutError: No answer within ``timeout`` seconds; the message may be answered later, ask
                again with the same id to get it.
            SessionTerminatedError: The session's run was terminated or timed out while we waited.
            InvalidRequestError: The message is refused as it is, or no agent is named to start with.
        """
        message_id = message_id or uuid.uuid4().hex
        message = UserMessage(id=message_id, **await self._text(thread_id or session_id, text, message_id))
        start = self._input(
            session_id, agent, metadata=metadata, mode=mode, thread_id=thread_id, fork_from=fork_from
        )
        result: AskResult = await self._until(session_id, "ask", message, AskResult, start, timeout)
        if result.status is AskStatus.ANSWERED and result.text is None and result.answer is not None:
            return await self._with_text(thread_id or session_id, result)
        return result

    async def send(
        self,
        session_id: str,
        text: str,
        *,
        agent: str | None = None,
        message_id: str | None = None,
        timeout: float = 60.0,
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Leave a message without waiting for its answer; returns its id.

        The message is in the session's history then, not yet in its thread.  Raises as `ask`.
        """
        message_id = message_id or uuid.uuid4().hex
        message = UserMessage(id=message_id, **await self._text(session_id, text, message_id))
        start = self._input(session_id, agent, metadata=metadata)
        await self._until(session_id, "send_message", message, SendResult, start, timeout)
        return message_id

    async def history(
        self,
        session_id: str,
        *,
        start: int = 0,
        stop: int | None = None,
        limit: int = 100,
        backward: bool = False,
        max_bytes: int = 200 * 1024,
    ) -> ReadMessagesResult:
        """One page of a thread's finished turns, wherever they are; wakes no session.

        Raises:
            ThreadNotFoundError: There is no such thread.
            InvalidRequestError: The range or limit is out of bounds.
        """
        read = ReadMessagesInput(
            thread_id=session_id, start=start, stop=stop, limit=limit, backward=backward, max_bytes=max_bytes
        )
        reply = await self._thread(ThreadRequest(do="read", read=read))
        assert reply.read is not None
        return reply.read

    async def messages(self, session_id: str) -> list[Message]:
        """All messages of the finished turns, page by page."""
        found: list[Message] = []
        after: int | None = 0
        while after is not None:
            page = await self.history(session_id, start=after, limit=500)
            found += page.messages
            after = page.after
        return found

    async def describe(self, session_id: str) -> DescribeThreadResult:
        """Where a thread stands."""
        describe = ThreadInput(thread_id=session_id)
        reply = await self._thread(ThreadRequest(do="describe", describe=describe))
        assert reply.described is not None
        return reply.described

    async def fork(
        self, session_id: str, target_id: str, *, at: int | None = None, transform: str | None = None
    ) -> Head:
        """Copy finished turns into a new thread; talk to it under its own id.

        Raises:
            ThreadExistsError: The target is there.
            InvalidRequestError: ``at`` is not the end of a finished turn's step.
        """
        fork = ForkThreadInput(
            source_id=session_id, target_id=target_id, at=at, transform=transform, owner=uuid.uuid4().hex
        )
        reply = await self._thread(ThreadRequest(do="fork", fork=fork))
        assert reply.described is not None
        return reply.described.head

    async def delete(self, session_id: str) -> None:
        """Remove a thread for good."""
        await self._thread(ThreadRequest(do="delete", delete=DeleteThreadInput(thread_id=session_id)))

    async def stop(self, session_id: str, *, abort: bool = False) -> bool:
        """Stop the turn under way, after its step or at once; false if none was."""
        request = StopRequest(mode="abort" if abort else "interrupt")
        found = await self._if_running(session_id, "stop", request, StopResult)
        return found is not None and found.stopping

    async def close(self, session_id: str) -> None:
        """Let the session finish what waits, archive and end; nothing if it is not running."""
        await self._if_running(session_id, "close", None, None)

    async def rewind(
        self, session_id: str, to: Head, *, agent: str | None = None, timeout: float = 60.0
    ) -> Head:
        """Cut the thread at an earlier head of a finished turn.

        Raises:
            InvalidRequestError, HeadMovedError: ``to`` is not such a head.
        """
        request = RewindRequest(to=to)
        start = self._input(session_id, agent, mode="continue")
        result: RewindResult = await self._until(session_id, "rewind", request, RewindResult, start, timeout)
        if result.error is not None:
            raise _typed(result.error.split(":", 1)[0], result.error)
        return result.head

    async def status(self, session_id: str) -> SessionStatus:
        """What the session is doing, or did last.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
        """
        try:
            found: SessionStatus = await self._handle(session_id).query("status", result_type=SessionStatus)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise errors.SessionNotFoundError(f"session {session_id!r} has no run") from error
            raise
        return found

    async def result(self, session_id: str) -> SessionResult:
        """Wait until the present run ends, and how it ended."""
        found: SessionResult = await self._handle(session_id).result()
        return found

    # -- how

    def _handle(self, session_id: str) -> WorkflowHandle[Any, SessionResult]:
        return self._client.get_workflow_handle(workflow_id(session_id), result_type=SessionResult)

    def _input(self, session_id: str, agent: str | None, **fields: Any) -> SessionInput | None:
        if agent is None:
            return None
        given = {name: value for name, value in fields.items() if value}
        return SessionInput(
            session_id=session_id, agent=agent, options=self._options, expects_ask=True, **given
        )

    async def _text(self, thread_id: str, text: str, message_id: str) -> dict[str, Any]:
        if len(text.encode(errors="surrogatepass")) <= INLINE_TEXT_BYTES:
            return {"text": text}
        check_size(len(text.encode(errors="surrogatepass")), 1024 * 1024, "text")
        put = PutTextInput(thread_id=thread_id, message_id=message_id, text=text)
        reply = await self._thread(ThreadRequest(do="put_text", put_text=put))
        assert reply.put_text is not None
        return {"ref": reply.put_text.ref}

    async def _with_text(self, thread_id: str, result: AskResult) -> AskResult:
        assert result.answer is not None
        at = result.answer.position
        page = await self.history(thread_id, start=at, stop=at + 1, limit=1, max_bytes=1024 * 1024)
        text = page.messages[0].text if page.messages and page.messages[0].id == result.answer.id else None
        return result.model_copy(update={"text": text})

    async def _until(
        self,
        session_id: str,
        update: str,
        argument: Any,
        result_type: type[Any],
        start: SessionInput | None,
        timeout: float,
    ) -> Any:
        """Repeat one update under the same id until it has a final result or time is up."""
        deadline = time.monotonic() + timeout
        began = time.time()
        async with self._slots.setdefault(session_id, _Slots(self._slots, session_id)):
            for attempt in range(1_000_000):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"session {session_id!r}: no result of {update!r} within {timeout} s")
                try:
                    result = await self._once(session_id, update, argument, result_type, start, left)
                except _Again as again:
                    if again.ended:
                        await self._check_alive(session_id, began)
                    if again.gone and start is None:
                        raise errors.SessionNotFoundError(
                            f"session {session_id!r} is not running; name the agent to start it with"
                        ) from again
                else:
                    if not _moved(result):
                        return result
                await asyncio.sleep(min(random.uniform(0.5, 1.0) * 0.05 * 2 ** min(attempt, 5), max(left, 0)))  # noqa: S311
        raise AssertionError("unreachable")  # pragma: no cover

    async def _once(
        self,
        session_id: str,
        update: str,
        argument: Any,
        result_type: type[Any],
        start: SessionInput | None,
        left: float,
    ) -> Any:
        """A plain update first: it costs less, and a run is there more often than not."""
        options: dict[str, Any] = {"result_type": result_type, "rpc_timeout": timedelta(seconds=left)}
        if isinstance(argument, UserMessage):
            options["id"] = f"{update}/{argument.id}"
        try:
            async with asyncio.timeout(left):
                try:
                    return await self._handle(session_id).execute_update(update, argument, **options)
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND or start is None:
                        raise
                return await self._with_start(session_id, update, argument, start, options)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise _Again("no answer in time") from error
        except WorkflowUpdateFailedError as error:
            raise _failed(error) from error
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise _Again("not running", ended=True, gone=True) from error
            if error.status in _PASSING:
                raise _Again(error.status.name) from error
            raise

    async def _with_start(
        self, session_id: str, update: str, argument: Any, start: SessionInput, options: dict[str, Any]
    ) -> Any:
        operation = WithStartWorkflowOperation(
            SessionWorkflow.run,
            start,
            id=workflow_id(session_id),
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
        try:
            return await self._client.execute_update_with_start_workflow(
                update, argument, start_workflow_operation=operation, **options
            )
        finally:
            # Its future holds the start's outcome; unread, it is reported as never retrieved.
            await asyncio.gather(operation.workflow_handle(), return_exceptions=True)

    async def _check_alive(self, session_id: str, since: float) -> None:
        """A run that ended under us may be followed by another; one that was terminated is not.

        Raises:
            SessionTerminatedError: It was terminated, or timed out, after we began to wait.
        """
        try:
            described = await self._handle(session_id).describe()
        except RPCError as error:
            if error.status in {RPCStatusCode.NOT_FOUND, *_PASSING}:
                return
            raise
        closed = described.close_time.timestamp() if described.close_time else 0.0
        if described.status is not None and described.status in _CLOSED_HARD and closed >= since:
            raise SessionTerminatedError(
                f"session {session_id!r}: its run was {described.status.name.lower()} while we waited; "
                "ask again with the same message id"
            )

    async def _if_running(
        self, session_id: str, update: str, argument: Any, result_type: type[Any] | None
    ) -> Any:
        options: dict[str, Any] = {"result_type": result_type} if result_type else {}
        try:
            if argument is None:
                return await self._handle(session_id).execute_update(update, **options)
            return await self._handle(session_id).execute_update(update, argument, **options)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        except WorkflowUpdateFailedError as error:
            if _type_of(error) == _ENDED_UNDER_US:
                return None
            raise

    async def _thread(self, request: ThreadRequest) -> ThreadReply:
        try:
            return await self._client.execute_workflow(
                ThreadWorkflow.run,
                request,
                id=f"helix-thread/{uuid.uuid4().hex}",
                task_queue=self._task_queue,
            )
        except Exception as error:
            raise _root(error) from error


class SessionHandle:
    """One session of a `SessionClient`."""

    def __init__(self, client: SessionClient, session_id: str, agent: str | None) -> None:
        self.client, self.session_id, self.agent = client, session_id, agent

    async def ask(self, text: str, **options: Any) -> AskResult:
        """As `SessionClient.ask`."""
        return await self.client.ask(self.session_id, text, agent=self.agent, **options)

    async def send(self, text: str, **options: Any) -> str:
        """As `SessionClient.send`."""
        return await self.client.send(self.session_id, text, agent=self.agent, **options)

    async def history(self, **options: Any) -> ReadMessagesResult:
        """As `SessionClient.history`."""
        return await self.client.history(self.session_id, **options)

    async def fork(self, target_id: str, **options: Any) -> Head:
        """As `SessionClient.fork`."""
        return await self.client.fork(self.session_id, target_id, **options)

    async def interrupt(self) -> bool:
        """Stop the turn after its present step."""
        return await self.client.stop(self.session_id)

    async def abort(self) -> bool:
        """Stop the turn at once, without a trace of it."""
        return await self.client.stop(self.session_id, abort=True)

    async def result(self) -> SessionResult:
        """As `SessionClient.result`."""
        return await self.client.result(self.session_id)

    async def close(self) -> None:
        """As `SessionClient.close`."""
        await self.client.close(self.session_id)


class _Slots:
    """At most so many asks of this client for one session; forgets itself when nobody asks."""

    def __init__(self, every: "dict[str, _Slots]", session_id: str) -> None:
        self._every, self._session_id, self._users = every, session_id, 0
        self._semaphore = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def __aenter__(self) -> None:
        self._users += 1
        try:
            await self._semaphore.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._semaphore.release()
        self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._every.pop(self._session_id, None)


def _moved(result: object) -> bool:
    if isinstance(result, AskResult):
        return result.status is AskStatus.MOVED
    if isinstance(result, SendResult):
        return not result.accepted
    return isinstance(result, RewindResult) and not result.done and result.error is None


def _type_of(error: WorkflowUpdateFailedError) -> str | None:
    return error.cause.type if isinstance(error.cause, ApplicationError) else None


def _failed(error: WorkflowUpdateFailedError) -> Exception:
    if _type_of(error) == _ENDED_UNDER_US:
        return _Again("its run ended", ended=True)
    if isinstance(error.cause, ApplicationError) and error.cause.type:
        return _typed(error.cause.type, error.cause.message)
    return error


def _typed(kind: str, message: str) -> Exception:
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, HelixError):
        return found(message)
    return InvalidRequestError(message)


def _root(error: BaseException) -> BaseException:
    """The typed error at the bottom of what Temporal wrapped, or the error itself."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type and hasattr(errors, cause.type):
            return _typed(cause.type, cause.message)
        cause = getattr(cause, "cause", None) or cause.__cause__
    return error
