"""SessionHandle: all that can be asked of one session."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._arguments import typed_arguments, typed_call
from helix_temporal.activities import SessionActivities, SessionReads, ThreadActivities
from helix_temporal.client._connection import SessionConnection
from helix_temporal.client._messages import (
    ask_message,
    check_session_id,
    create_message,
    create_start,
    create_text,
)
from helix_temporal.client._reads import cursor_position
from helix_temporal.client._streams import LiveAsk, StreamAfter, StreamFollower, StreamUntil
from helix_temporal.client._updates import PASSING, missing_session_error
from helix_temporal.client.call_answers import CallAnswers, error_fields, open_answers
from helix_temporal.client.deletion import SessionDeletion
from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidRequestError,
    NoWorkerError,
    SessionNotFoundError,
    SessionTerminatedError,
    ThreadExistsError,
    error_of_text,
)
from helix_temporal.models.base import JsonObject, only_set
from helix_temporal.models.checkpoints import CheckpointMeta, Run
from helix_temporal.models.handles import (
    ChildInfo,
    DeleteResult,
    FindTurnInput,
    FindTurnResult,
    ListChildrenInput,
    ListTurnsInput,
    MessagePage,
    SessionUsage,
    ShowSessionInput,
    TakeBackRequest,
    TakeBackResult,
    TurnInfo,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Message
from helix_temporal.models.sessions import (
    AskResult,
    ForkFrom,
    Mode,
    SessionInfo,
    SessionResult,
    SetPropertiesInput,
    StopRequest,
    StopResult,
    SubmitReply,
    UserMessage,
)
from helix_temporal.models.states import SessionProperties, SessionState
from helix_temporal.models.store_calls import DEFAULT_LIMIT, MAX_LIMIT, ListCheckpointsInput, Page
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.threads import DescribeThreadResult, ForkThreadInput
from helix_temporal.models.waiting import RESUME, PendingCall, ToolApproval

MAX_NEWEST: Final = 500
"""Turns that one page of the newest may have."""
_TURNS_AT_ONCE: Final = 100
_LEAST_VERSION: Final = 10**12
"""Versions of a `SessionInfo` are times in µs; those of states count from 1."""
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class SendOptions(TypedDict, total=False):
    """What `SessionHandle.send` takes besides the text."""

    message_id: str | None
    timeout: float
    metadata: Mapping[str, str] | None
    properties: SessionProperties | None


class AskOptions(SendOptions, total=False):
    """What `SessionHandle.ask` takes besides the text."""

    mode: Mode
    thread_id: str | None
    fork_from: ForkFrom | None


class StreamOptions(TypedDict, total=False):
    """What `SessionHandle.stream` takes."""

    after: StreamAfter | None
    run_id: str | None
    message_id: str | None
    until: StreamUntil


class SessionHandle:
    """One session: a `SessionClient` makes it, `SessionClient.session`; it need not be closed.

    A session is there from its first ask, or from the fork that makes it, until it is deleted.  Of one that
    is not there:

    * What reads it, answers its calls, sets its properties or takes its turns back raises
      `SessionNotFoundError`.  Of a session that is there, a list may be empty, and a run that `get_run` does
      not find is None.
    * `ask`, `stream_ask` and `send` start it, with an agent; `stream` and `wait_for_change` wait for it.
    * `stop` is false, and `close` and `delete` do nothing.

    `get_status`, `get_pending_calls` and `result` ask the session's newest execution, which Temporal keeps
    for the time of the namespace's retention; the other reads are of its stores.

    Every method may raise, besides what it names itself: `InvalidIdError` and `InvalidRequestError` for
    arguments that do not fit, `ForeignDeploymentError` for a session of another deployment,
    `InvalidConfigError` for a namespace that the server does not have, and
    ``temporalio.service.RPCError`` where the server does not answer.  Where no worker answers, methods with
    a ``timeout``, `stop` and `close` raise ``TimeoutError``, all others `NoWorkerError`; both say what is
    known of it.

    Attributes:
        session_id: Whose.
        agent: With which the session is started where it does not run; None to talk only to one that runs,
            and to start one that ended suspended with the agent that it had.
    """

    def __init__(self, connection: SessionConnection, session_id: str, agent: str | None) -> None:
        self._connection = connection
        self._updates, self._reader = connection.updates, connection.reader
        self.session_id: Final = session_id
        self.agent: Final = agent

    # -- talk

    @typed_arguments
    async def ask(
        self,
        text: str,
        *,
        message_id: str | None = None,
        timeout: float = 600.0,
        metadata: Mapping[str, str] | None = None,
        mode: Mode = "auto",
        thread_id: str | None = None,
        fork_from: ForkFrom | None = None,
        properties: SessionProperties | None = None,
    ) -> AskResult:
        """Send a message and wait for the answer.

        The message counts once however often it is sent under one ``message_id``: another text under that
        id is not compared, and gets the answer to the first.  The handle's ``agent`` is needed whenever the
        session may have to be started.  The result is never ``moved``.

        ``properties`` (when the session expires, its user, tags, workspaces, trace) are set before the
        message is taken; a session that has expired is renewed by naming ``expires_at``, a time or None.

        Raises:
            SessionExpiredError: The session is past its ``expires_at``, and is not renewed.
            TimeoutError: No answer within ``timeout`` seconds; the message may be answered later, ask
                again with the same id to get it.
            StoreUnavailableError: A store, such as the archive, has kept the session from being opened for
                15 seconds; the message may be answered later, as above; its id is in ``facts``.
            SessionTerminatedError: The session's run was terminated or timed out while we waited.
            SessionNotFoundError: The session does not run, and no agent is named to start it with.
            AgentMismatchError: The session runs with another agent.
            InvalidRequestError: ``thread_id`` is not the session's thread: it has one, that of its first
                message, and whoever names none means that.
            InvalidRequestError, InvalidMessageError, TooLargeError: The message is refused as it is:
                empty, with a lone surrogate or U+0000, over 1 MiB or what the workers allow.
            IdempotencyConflictError: ``message_id`` is that of an answer, or of a tool's result.
            InvalidIdError: An id is refused; also that of a sub-agent's session which is not there.
        """
        connection, session_id, agent = self._connection, self.session_id, self.agent
        async with self._updates.with_deadline(session_id, "ask", timeout):
            if agent is not None:
                await check_session_id(connection, session_id, thread_id, begins=mode in {"new", "fork"})
            message = await create_message(
                connection,
                session_id,
                text,
                message_id=message_id,
                agent=agent,
                thread_id=thread_id,
                properties=properties,
            )
            start = create_start(
                connection,
                session_id,
                agent,
                metadata=metadata,
                mode=mode,
                thread_id=thread_id,
                fork_from=fork_from,
                properties=properties,
            )
            return await ask_message(connection, session_id, message, start)

    @typed_arguments
    async def send(
        self,
        text: str,
        *,
        message_id: str | None = None,
        timeout: float = 60.0,
        metadata: Mapping[str, str] | None = None,
        properties: SessionProperties | None = None,
    ) -> str:
        """Leave a message without waiting for its answer; returns its id.

        The message is in the session's history then, not yet in its thread.  Where the session has to be
        started, this returns once it is open; what keeps it from opening is raised, as a
        `SessionExpiredError`.  Otherwise raises as `ask`.
        """
        connection, session_id, agent = self._connection, self.session_id, self.agent
        async with self._updates.with_deadline(session_id, "send", timeout):
            if agent is not None:
                await check_session_id(connection, session_id)
            message = await create_message(
                connection, session_id, text, message_id=message_id, agent=agent, properties=properties
            )
            start = create_start(connection, session_id, agent, metadata=metadata, properties=properties)
            await self._updates.run_update(session_id, "send_message", message, None, start)
            return message.id

    @typed_call
    def stream(
        self,
        *,
        after: StreamAfter | None = None,
        run_id: str | None = None,
        message_id: str | None = None,
        until: StreamUntil = "turn",
    ) -> AsyncGenerator[StoredChunk]:
        """What the session's stream shows: what is kept, then what comes; over lost connections.

        Errors are raised while it is iterated over.

        A session that nobody has talked to yet is waited for, with a warning in the log after ten seconds.
        Read on with ``after``, the sequence of the last chunk that was seen.  A stream shows; what counts is
        in the thread: an answer that was seen in part only is read with `list_messages`.

        Args:
            after: Only what comes after this sequence; ``"turn"``: from the beginning of the newest turn.
            run_id: Only this turn, by the name of its run.
            message_id: Only the turn that answers this message.
            until: ``"turn"`` ends with the turn (of those that are not chosen by name: the first that ends);
                ``"closed"`` with the stream, which no turn ends.

        Raises:
            StreamTruncatedError: What comes next is not kept any more, or the stream was lost and has begun
                anew; ``facts`` has ``first_available``.
            StreamAbandonedError: A turn is under way, and nothing was heard of it for too long.
            StreamFailedError, StreamNotFoundError: The stream was ended by a failure, or deleted, meanwhile.
            StoreUnavailableError: The store does not answer for half a minute.
            InvalidConfigError: No stream store is known.
        """
        workflow_id = self._updates.get_workflow_handle(self.session_id).id
        begun: Callable[[], Awaitable[int | None]] | None = None
        if run_id is not None:
            begun = partial(self._find_start_of_run, run_id)
        elif message_id is not None:
            begun = partial(self._find_start_of_answer, message_id)
        follow = StreamFollower(
            self._connection.streams,
            self.session_id,
            after=after,
            run_id=run_id,
            message_id=message_id,
            until=until,
            begun=begun,
            missing=lambda: self._connection.diagnosis.warn_of_wait(workflow_id, "stream"),
        )
        return follow.follow_chunks()

    async def _find_start_of_run(self, run_id: str) -> int:
        """Where a turn begins; 0 where that is not known."""
        try:
            run = await self.get_run(run_id)
        except SessionNotFoundError:
            return 0
        return 0 if run is None else run.start_sequence

    async def _find_start_of_answer(self, message_id: str) -> int | None:
        """0 where the turn that answers a message has ended; None where it may be still to come."""
        try:
            await self.find_turn(message_id)
        except (SessionNotFoundError, InvalidRequestError):
            return None
        return 0

    @typed_call
    def stream_ask(self, text: str, *, after: int | None = None, **options: Unpack[AskOptions]) -> LiveAsk:
        """As `ask`, with the turn to be watched: iterate over its chunks, then take its ``result()``.

        Args:
            text: As for `ask`.
            after: For a message that was sent before under this ``message_id``: where to look for its turn,
                0 for all that is kept.
            options: As for `ask`.
        """
        message_id = options["message_id"] = options.get("message_id") or uuid.uuid4().hex

        async def ask() -> AskResult:
            return await self.ask(text, **options)

        return LiveAsk(self._connection.streams, self.session_id, message_id, ask, after=after)

    @typed_arguments
    async def stop(self, *, abort: bool = False, run_id: str | None = None) -> bool:
        """Stop the turn under way, after its step or at once; false if none was.

        A session that ended while its turn waits for people is started, and the turn ends as if it had
        stayed; any other that has ended stays as it is.

        Args:
            abort: At once and without a trace of the turn, rather than after its present step.
            run_id: Only if it is this run (`SessionInfo.run_id`); false if it is not under way any more.

        Raises:
            InvalidRequestError: It is a sub-agent's session that waits for people: stop its root.
            TimeoutError: No worker took it up within a minute.
        """
        fields = only_set(run_id=run_id)
        request = StopRequest(mode="abort" if abort else "interrupt", **fields)
        async with self._updates.with_deadline(self.session_id, "stop"):
            found = await self._updates.update_if_running(self.session_id, "stop", request, StopResult)
            if found is None:
                answers = CallAnswers(self._connection, self.session_id, self.agent)
                found = await answers.stop_suspended(request)
        return found is not None and found.stopping

    @typed_arguments
    async def close(self) -> None:
        """Let the session finish what waits, archive and end; nothing if it is not running.

        Raises:
            TimeoutError: No worker took it up within a minute; it is in the session's history all the
                same, and takes effect once one does.
        """
        async with self._updates.with_deadline(self.session_id, "close"):
            await self._updates.update_if_running(self.session_id, "close", None, None)

    @typed_arguments
    async def result(self) -> SessionResult:
        """Wait until the present run ends, and how it ended.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            SessionFailedError: It failed, for example by a bug in a model: the message has the failure's type
                and text, ``facts`` its ``type``, and ``__cause__`` is the SDK's error.
            SessionTerminatedError: It was terminated, or timed out.
            SessionInterruptedError: It was cancelled.
        """
        return await self._updates.get_result(self.session_id)

    @typed_arguments
    async def set_properties(self, properties: SessionProperties) -> None:
        """Set properties of a session that exists, running or not: those that are named.

        Naming ``expires_at`` renews a session that has expired; its turn that waits may be answered again.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidRequestError: The workers have no session store.
            NoWorkerError: Nothing is stored, as no worker answers.
            TimeoutError: They are stored, and the session, which runs, did not take them within a minute.
        """
        request = SetPropertiesInput(session_id=self.session_id, properties=properties)
        # The store first: an execution that begins meanwhile finds them there, one that runs is told.
        await self._reader.change(SessionActivities.set_properties, request)
        async with self._updates.with_deadline(self.session_id, "set_properties"):
            await self._updates.update_if_running(self.session_id, "set_properties", properties, None)

    # -- answer calls

    @typed_arguments
    async def get_pending_calls(self) -> tuple[PendingCall, ...]:
        """What the session waits for now, all of it and with all arguments; also after it ended suspended.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            NoWorkerError, SessionTerminatedError, TimeoutError: As `get_status`.
        """
        info = await self._updates.get_status(self.session_id)
        threads = [each.route[-1] if each.route else info.thread_id for each in info.pending]
        calls = zip(threads, info.pending, strict=True)
        return tuple([await self._reader.complete_call(thread, call) for thread, call in calls])

    @typed_arguments
    async def submit_tool_result(
        self,
        call: str | PendingCall,
        result: Any = None,
        *,
        error: str | None = None,
        parts: Sequence[JsonObject] | None = None,
        wait: bool = False,
        timeout: float = 600.0,
        submission_id: str | None = None,
    ) -> SubmitReply:
        """Answer a pending call; a session that ended suspended is started again by it.

        Args:
            call: The pending call, or its id.
            result: What the model is told: text, or anything that JSON can hold.
            error: Instead of a result: what went wrong, at most 8 KiB.
            parts: Instead of a result: parts of a message (`helix_temporal.models.messages`).
            wait: If it counts, come back when the turn is over, or waits for something else; ``result`` says
                which, with the whole answer.
            timeout: Seconds.
            submission_id: Under which this answer may be given again: it counts once, and is told so.

        Returns:
            ``status``: ``submitted``; ``already_completed``, with the time of the first answer;
            ``expired``; or ``not_pending``.  A session remembers its newest 32 answered calls.

        Raises:
            InvalidRequestError: The call waits for an approval: `submit_approval` gives it; or more than one
                of ``result``, ``error`` and ``parts`` is given.
            InvalidMessageError: The result, or its parts, are nothing that JSON can hold.
            TimeoutError: Not taken, or with ``wait`` no end of the turn, within ``timeout`` seconds.
            TooLargeError: The result, or its parts, exceed 1 MiB as JSON, or the error 8 KiB.
            SessionNotFoundError: The session is not there.
            SessionExpiredError: The session is past its ``expires_at``.
            SessionTerminatedError: Its run was terminated meanwhile.
        """
        if sum(each is not None for each in (result, error, parts)) > 1:
            raise InvalidRequestError("more than one of result, error and parts is given; give one of them")
        async with self._updates.with_deadline(self.session_id, "submit_tool_result", timeout):
            answers = await open_answers(self._connection, self.session_id, self.agent)
            by = submission_id or uuid.uuid4().hex
            fields: dict[str, Any] = {}
            if error is not None:
                fields = error_fields(error)
            elif parts is not None:
                fields = await answers.part_fields(list(parts), by)
            elif result is not None:
                fields = await answers.result_fields(result, by)
            return await answers.submit_answer({"by": by, **fields, **_call_fields(call, wait=wait)})

    @typed_arguments
    async def submit_approval(
        self,
        approval: ToolApproval,
        *,
        wait: bool = False,
        timeout: float = 600.0,
        submission_id: str | None = None,
    ) -> SubmitReply:
        """Let a tool run, or not; ``approval_id`` is the pending call's id.

        Otherwise as `submit_tool_result`.

        Raises:
            InvalidRequestError: The call waits for a result: `submit_tool_result` gives it.
            TimeoutError, SessionNotFoundError, SessionExpiredError, SessionTerminatedError: As
                `submit_tool_result`.
        """
        fields: dict[str, Any] = {"by": submission_id or uuid.uuid4().hex, "outcome": "approved"}
        if not approval.approved:
            fields |= {"outcome": "denied", "text": approval.reason or ""}
        fields |= _call_fields(approval.approval_id, wait=wait)
        async with self._updates.with_deadline(self.session_id, "submit_approval", timeout):
            answers = await open_answers(self._connection, self.session_id, self.agent)
            return await answers.submit_answer(fields)

    @typed_arguments
    async def resume(self, *, timeout: float = 60.0) -> None:
        """Start a session that ended suspended: calls whose deadline has passed are given up, and answers
        that were given to the session store are taken.  If it is just ending suspended, it is started once it
        has ended.  If it runs on, nothing happens: it does not look into the session store.

        Raises:
            TimeoutError: No worker took it up in time, or its execution did not end.
            SessionNotFoundError: The session is not there.
        """
        async with self._updates.with_deadline(self.session_id, "resume", timeout):
            answers = await open_answers(self._connection, self.session_id, self.agent)
            await answers.submit_answer({"call": RESUME})

    # -- look

    @typed_arguments
    async def get_status(self) -> SessionInfo:
        """What the session is doing, or did last.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            NoWorkerError: No worker polls the session's task queue, or those that do fail each query; the
                message says which.
            SessionTerminatedError: It was terminated with events that no worker has run.
            TimeoutError: The server answered no query: it lost them, or cannot be reached.
        """
        info = await self._updates.get_status(self.session_id)
        if info.exit_reason is not None:
            return info
        failing = await self._connection.diagnosis.find_failing_calls(
            self._updates.get_workflow_handle(self.session_id).id
        )
        return info.model_copy(update={"failing": (*info.failing, *failing)}) if failing else info

    @typed_arguments
    async def wait_for_change(self, version: int = 0, *, timeout: float = 60.0) -> SessionInfo:
        """Wait until something happens in a session, in this execution or in a later one.

        Asks again and again, which leaves nothing in the session's history, and wakes no session.

        Args:
            version: Of the `SessionInfo` that is known (`get_status`); 0 for whatever there is.
            timeout: Seconds.

        Raises:
            TimeoutError: Nothing happened; where it never ran, or no worker answers, the text says so.
            InvalidRequestError: ``version`` is that of a stored state, which counts something else.
        """
        if 0 < version < _LEAST_VERSION:
            raise InvalidRequestError(
                f"version {version} is that of a stored state; give the version of a SessionInfo, as "
                "get_status has it"
            )
        pause = _PAUSE
        async with self._updates.with_deadline(self.session_id, "wait_for_change", timeout):
            while True:
                info = await self._find_status()
                if info is not None and info.version > version:
                    return info
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def _find_status(self) -> SessionInfo | None:
        """What the session tells, None where it does not."""
        try:
            return await self._updates.query_status(self.session_id)
        except (NoWorkerError, SessionTerminatedError):
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND or error.status in PASSING:
                return None
            raise

    @typed_arguments
    async def get_state(self) -> SessionState:
        """The session's state.

        Without a session store it is what the thread's slice says: the application's values, the agent,
        how many steps; its ``version`` is then that of the slice.

        Raises:
            SessionNotFoundError: It is not there.
            TooLargeError: It exceeds what may pass through a workflow; stores that are given have no limit.
        """
        state = await self._reader.load_state(self.session_id)
        if state is None:
            raise missing_session_error(self.session_id)
        return state

    @typed_arguments
    async def get_run(self, run_id: str) -> Run | None:
        """One turn's run, as the session store has it: how far it is, and where its stream begins.

        None where the session has no such run, or its workers no session store.

        Args:
            run_id: As in `SessionInfo`, and in each chunk of the stream.

        Raises:
            SessionNotFoundError: The session is not there.
        """
        wanted = ShowSessionInput(session_id=self.session_id, run_id=run_id)
        run = (await self._reader.look_up(SessionReads.show, wanted)).run
        if run is None:
            await self._reader.check_session_exists(self.session_id)
        return run

    @typed_arguments
    async def get_usage(self) -> SessionUsage:
        """What the session used: by its thread, and what was recorded of it and all its descendants.

        It reads every message of the thread, so it takes about as long as a whole read.

        Raises:
            SessionNotFoundError: The session is not there: it has neither a thread nor usage.
        """
        wanted = ShowSessionInput(session_id=self.session_id)
        return await self._reader.look_up(SessionReads.usage, wanted)

    @typed_arguments
    async def describe_thread(self) -> DescribeThreadResult:
        """Where the thread stands.

        Raises:
            SessionNotFoundError: The session is not there.
        """
        return await self._reader.describe_thread(self.session_id)

    @typed_arguments
    async def list_messages(
        self,
        *,
        start: int = 0,
        stop: int | None = None,
        limit: int = 100,
        backward: bool = False,
        max_bytes: int = 200 * 1024,
        cursor: str | None = None,
    ) -> MessagePage:
        """One page of a thread's finished turns, oldest first, wherever they are; wakes no session.

        Args:
            start: From this position on.
            stop: Up to before this position; None for the end.
            limit: At most so many messages, fewer where they exceed ``max_bytes``.
            backward: The newest of the range rather than the oldest; the next page is what is before it.
            max_bytes: At most so much content.
            cursor: ``next_cursor`` of the page before, asked for with the same ``backward``.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidRequestError: The range or limit is out of bounds.
            InvalidCursorError: The cursor is none that `list_messages` gave.
        """
        if cursor is not None and backward:
            stop = cursor_position(cursor)
        elif cursor is not None:
            start = cursor_position(cursor)
        read = await self._reader.read_page(
            self.session_id, start=start, stop=stop, limit=limit, backward=backward, max_bytes=max_bytes
        )
        next_at = read.before if backward else read.after
        return MessagePage(
            items=read.messages,
            next_cursor=None if next_at is None else str(next_at),
            has_more=next_at is not None,
            total=read.committed,
            first=read.first,
            head=read.head,
        )

    @typed_arguments
    async def get_messages(self) -> list[Message]:
        """All messages of the finished turns, by large pages: 4 MiB from stores, one payload by workflow.

        Raises:
            SessionNotFoundError: The session is not there.
        """
        return await self._reader.read_messages(self.session_id)

    @typed_arguments
    async def list_turns(
        self,
        *,
        start: int = 0,
        limit: int | None = None,
        newest: int | None = None,
        cursor: str | None = None,
    ) -> Page[TurnInfo]:
        """Finished turns, oldest first, with the heads between which they stand; ``total`` is None.

        Args:
            start: Position at which the first one begins; their numbers are counted from there.
            limit: At most so many; None for all.
            newest: Instead: so many of the newest, up to 500, numbered from -1 back.
            cursor: ``next_cursor`` of the page before; numbers go on.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidRequestError: No turn begins at ``start``, ``newest`` is not 1 to 500, or ``limit``
                is below 1.
            InvalidCursorError: The cursor is none that `list_turns` gave.
        """
        if newest is not None and not 1 <= newest <= MAX_NEWEST:
            raise InvalidRequestError(f"newest {newest}: 1 to {MAX_NEWEST} expected")
        if limit is not None and limit < 1:
            raise InvalidRequestError(f"limit {limit}: 1 or more expected")
        number = 1
        if cursor is not None:
            place, _, begins = cursor.partition("/")
            start, number = cursor_position(place), cursor_position(begins)
        found: list[TurnInfo] = []
        after: int | None = start
        while after is not None and (limit is None or len(found) < limit):
            wanted = ListTurnsInput(
                thread_id=self.session_id,
                start=after,
                number=number + len(found),
                limit=_TURNS_AT_ONCE if limit is None else min(limit - len(found), _TURNS_AT_ONCE),
                newest=newest,
            )
            page = await self._reader.look_up(SessionReads.turns, wanted)
            found += page.turns
            after = page.after
        more = None if after is None else f"{after}/{number + len(found)}"
        return Page(items=tuple(found), next_cursor=more, has_more=more is not None)

    @typed_arguments
    async def find_turn(self, message_id: str) -> FindTurnResult:
        """The finished turn that a user's message is in.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidRequestError: No finished turn has the message.
        """
        wanted = FindTurnInput(thread_id=self.session_id, message_id=message_id)
        return await self._reader.look_up(SessionReads.find_turn, wanted)

    @typed_arguments
    async def list_checkpoints(self, *, limit: int = 50, cursor: str | None = None) -> Page[CheckpointMeta]:
        """Checkpoints of the session, newest first; workers without a session store know of none.

        Args:
            limit: At most so many of one page, 1 to 200.
            cursor: ``next_cursor`` of the page before.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidCursorError: The cursor is none that `list_checkpoints` gave.
            InvalidRequestError: ``limit`` is not 1 to 200.
        """
        wanted = ListCheckpointsInput(session_id=self.session_id, limit=limit, cursor=cursor)
        page = await self._reader.look_up(SessionReads.checkpoints, wanted)
        if not page.items and cursor is None:
            await self._reader.check_session_exists(self.session_id)
        return page

    @typed_arguments
    async def get_checkpoint(self, checkpoint_id: str) -> CheckpointMeta:
        """One checkpoint of the session.

        Raises:
            SessionNotFoundError: The session is not there.
            CheckpointNotFoundError: It has none of that id.
        """
        cursor: str | None = None
        while True:
            page = await self.list_checkpoints(limit=MAX_LIMIT, cursor=cursor)
            for each in page.items:
                if each.id == checkpoint_id:
                    return each
            cursor = page.next_cursor
            if cursor is None:
                raise CheckpointNotFoundError(
                    f"session {self.session_id!r} has no checkpoint {checkpoint_id!r}; "
                    "list_checkpoints has those that exist"
                )

    @typed_arguments
    async def list_children(
        self, *, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[ChildInfo]:
        """Sessions of the sub-agents that this session called, newest first; wakes none of them.

        With a session store they are its references, whose number is the page's ``total``.  Without one, or
        where it has lost the session, they are the calls that are in the thread, by the tools that the agent
        has now: those of turns that were cut are not there, and ``total`` is None.

        Args:
            limit: At most so many of one page, 1 to 200; without a session store the calls of one answer
                stay together, and a page may also have fewer, as it looks at 2,000 messages.
            cursor: ``next_cursor`` of the page before.

        Raises:
            SessionNotFoundError: The session is not there.
            InvalidCursorError: The cursor is none that `list_children` gave.
            InvalidRequestError: ``limit`` is not 1 to 200; or the calls are looked for in the thread, and the
                workers do not serve its agent.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise InvalidRequestError(f"limit {limit}: 1 to {MAX_LIMIT} expected")
        wanted = ListChildrenInput(session_id=self.session_id, limit=limit, cursor=cursor)
        return await self._reader.list_children(wanted)

    # -- take back

    @typed_arguments
    async def rewind(self, to: Head, *, timeout: float = 60.0, operation_id: str | None = None) -> Head:
        """Cut the thread at an earlier head of a finished turn; its state goes back with it.

        Where a turn runs, it is waited for.

        Args:
            to: As `list_turns` and `list_messages` tell.
            timeout: Seconds.
            operation_id: The request counts once under it; a thread remembers its newest 8.

        Raises:
            InvalidRequestError: ``to`` is not the end of a finished turn.
            HeadMovedError: The thread does not hold ``to``; or turns of it were lost, as is found only now:
                see what stands, and ask again.
            SessionNotFoundError: The session is not there; or it does not run, and no agent is named to start
                it with.
            TimeoutError: No answer within ``timeout`` seconds; repeat it with the same ``operation_id``.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, to=to)
        async with self._updates.with_deadline(self.session_id, "rewind", timeout):
            return (await self._take_back(request)).head

    @typed_arguments
    async def rewind_to_turn(
        self, turns: int, *, timeout: float = 60.0, operation_id: str | None = None
    ) -> Head:
        """Keep the first ``turns`` finished turns; below 0: take back so many of the newest.

        A turn that waits for people is the newest one.  Otherwise as `rewind`.  Where turns were lost and
        nobody was told yet, a number below 0 is refused once: other turns are the newest than were meant.

        Raises:
            InvalidRequestError: There are not so many.
            HeadMovedError, SessionNotFoundError, TimeoutError: As `rewind`.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, turns=turns)
        async with self._updates.with_deadline(self.session_id, "rewind_to_turn", timeout):
            return (await self._take_back(request)).head

    @typed_arguments
    async def restore_checkpoint(
        self, checkpoint_id: str, *, timeout: float = 60.0, operation_id: str | None = None
    ) -> Head:
        """Go back to a checkpoint: the thread to its head, and the state to what it holds.

        Otherwise as `rewind`.

        Raises:
            CheckpointNotFoundError: The session has none of that id.
            HeadMovedError: The thread does not hold its head: a turn before it was taken back.
            InvalidRequestError: The workers have no session store.
            SessionNotFoundError, TimeoutError: As `rewind`.
        """
        request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, checkpoint=checkpoint_id)
        async with self._updates.with_deadline(self.session_id, "restore_checkpoint", timeout):
            return (await self._take_back(request)).head

    @typed_arguments
    async def regenerate(self, *, timeout: float = 600.0, operation_id: str | None = None) -> AskResult:
        """Take the newest turn back and ask its messages anew, under new ids; the result is as `ask`'s.

        A turn that waits for people is the newest one: its questions and approvals are gone with it.

        Raises:
            InvalidRequestError: There is no turn, or no user said anything in it; or it was carried
                out under this id, and turns were taken back since.
            HeadMovedError: The newest turn was lost, as nobody was told yet.
            SessionNotFoundError, TimeoutError: As `rewind`.
        """
        async with self._updates.with_deadline(self.session_id, "regenerate", timeout):
            request = TakeBackRequest(id=operation_id or uuid.uuid4().hex, turns=-1, again=True)
            taken = await self._take_back(request)
            if not taken.messages:
                raise InvalidRequestError(
                    f"session {self.session_id!r}: regeneration {request.id!r} was carried out before, and "
                    "its turn was taken back since; use another operation_id"
                )
            start = create_start(self._connection, self.session_id, self.agent)
            message = taken.messages[-1]
            if self.agent is not None:
                message = message.model_copy(update={"agent": self.agent})
            return await ask_message(self._connection, self.session_id, message, start)

    async def _take_back(self, request: TakeBackRequest) -> TakeBackResult:
        start = create_start(self._connection, self.session_id, self.agent, mode="continue")
        result: TakeBackResult = await self._updates.run_update(
            self.session_id, "take_back", request, TakeBackResult, start
        )
        if result.error is not None:
            raise error_of_text(result.error)
        return result

    # -- copy and delete

    @typed_arguments
    async def edit(
        self, message_id: str, text: str, new_session_id: str, *, timeout: float = 600.0
    ) -> AskResult:
        """Ask something else where a past message of the user's stands, in a new session.

        ``new_session_id`` becomes a fork that ends before the message's turn, with the state of that time
        where a checkpoint has it; the original stays as it is.  The same edit again gives the same answer.

        Raises:
            InvalidRequestError: No finished turn has such a message of the user's.
            SessionNotFoundError: The session is not there, or no agent is named to start the new one with.
            TimeoutError: No answer within ``timeout`` seconds; the same edit gets it later.
            ThreadExistsError: ``new_session_id`` is there, and is not what this edit makes.
            InvalidIdError: ``new_session_id`` is one that only a sub-agent's session may have.
        """
        connection = self._connection
        async with self._updates.with_deadline(new_session_id, "edit", timeout):
            turn = await self.find_turn(message_id)
            edited = hashlib.sha256(f"{message_id}\0{text}".encode(errors="surrogatepass")).hexdigest()[:32]
            there = await self._reader.has_thread(new_session_id)
            await check_session_id(connection, new_session_id, begins=not there)
            if there and not await self._is_edit(new_session_id, turn, edited):
                raise ThreadExistsError(
                    f"thread {new_session_id!r} exists and is not this edit; choose another id"
                )
            fork_from = ForkFrom(thread_id=self.session_id, at=turn.start.position)
            origin = {} if there else {"mode": "fork", "fork_from": fork_from}
            start = create_start(connection, new_session_id, self.agent, **origin)
            message = UserMessage(id=edited, **await create_text(connection, new_session_id, text, edited))
            return await ask_message(connection, new_session_id, message, start)

    async def _is_edit(self, new_session_id: str, turn: FindTurnResult, edited: str) -> bool:
        """Whether a thread begins as the fork does, and has nothing else where the new text belongs."""
        at, last = turn.start.position, turn.start.last_id
        before = None if at == 0 else await self._find_id_at(new_session_id, at - 1)
        there = await self._find_id_at(new_session_id, at)
        return (at == 0 or before == last) and there in {None, edited}

    async def _find_id_at(self, thread_id: str, position: int) -> str | None:
        """Of the message at a position, also of a turn that has not ended; None if none is there."""
        one = {"limit": 1, "committed_only": False, "whole": False}
        page = await self._reader.read_page(thread_id, start=position, stop=position + 1, **one)
        return page.messages[0].id if page.messages else None

    @typed_arguments
    async def fork(
        self,
        new_session_id: str,
        *,
        at: int | None = None,
        at_checkpoint: str | None = None,
        transform: str | None = None,
    ) -> Head:
        """Copy finished turns into a new thread; talk to it under its own id.

        Its session begins with the state of that place, where a checkpoint has it.

        Args:
            new_session_id: The new thread.
            at: Up to this position; None for all.
            at_checkpoint: Up to where the thread was at this checkpoint.
            transform: What is done to the messages, by the name under which the workers know it.

        Raises:
            SessionNotFoundError: The session is not there.
            ThreadExistsError: The target is there.
            NotServedError: No worker has the transform.
            ApplicationCodeError: It failed.
            InvalidRequestError: ``at`` is not the end of a finished turn's step, or both are given.
            CheckpointNotFoundError: The session has none of that id.
            InvalidIdError: ``new_session_id`` is one that only a sub-agent's session may have.
        """
        await check_session_id(self._connection, new_session_id, begins=True)
        if at_checkpoint is not None:
            if at is not None:
                raise InvalidRequestError("at and at_checkpoint are both given; give one of them")
            at = (await self.get_checkpoint(at_checkpoint)).head.position
        fork = ForkThreadInput(
            source_id=self.session_id,
            target_id=new_session_id,
            at=at,
            transform=transform,
            owner=uuid.uuid4().hex,
        )
        return (await self._reader.change(ThreadActivities.fork, fork)).head

    @typed_arguments
    async def delete(
        self,
        *,
        keep_usage: bool = False,
        grace: float = 10.0,
        settle: float = 0.0,
        timeout: float = 300.0,
    ) -> DeleteResult:
        """Remove a session with its sub-agents' sessions from every store, and from the server's histories.

        What runs is cancelled, and terminated if it has not ended within ``grace`` seconds; those who
        wait for it are told.  May be repeated, also for a session that was never there, or for a thread that
        no session has used.  The next ask begins anew.

        Args:
            keep_usage: Leave what was recorded of its use, for invoices.
            grace: Seconds.
            settle: Wait so many seconds until the server has deleted the executions: it accepts a deletion
                at once, and carries it out some seconds to a minute later.
            timeout: Seconds for all of it.

        Returns:
            What was removed, and what is left and why: the deletion is ``complete`` where nothing is.

        Raises:
            TimeoutError: It did not come to its end within ``timeout`` seconds; repeat it.
        """
        validate_id(self.session_id, "session_id")
        deletion = SessionDeletion(self._connection, self.session_id, keep_usage=keep_usage)
        async with self._updates.with_deadline(self.session_id, "delete", timeout):
            return await deletion.delete_session(grace, settle)


def _call_fields(call: str | PendingCall, *, wait: bool) -> dict[str, Any]:
    """The fields of a submission that say which call it answers, and whether its sender waits."""
    fields = {"call": call.id if isinstance(call, PendingCall) else call}
    return fields | ({"wait": True} if wait else {})
