"""SessionClient: what an application calls."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from temporalio.client import (
    Client,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._arguments import typed_arguments, typed_call
from helix_temporal._deployments import (
    asking_for,
    settings_of,
    speaking_for,
)
from helix_temporal._policies import call_policy
from helix_temporal.agents.checks import check_type
from helix_temporal.client._deletion import SessionDeleter
from helix_temporal.client._handle import SessionHandle
from helix_temporal.client._reads import ReadableStores
from helix_temporal.client._streams import After, Follow, LiveAsk, Until, store_of
from helix_temporal.client._updates import PASSING, Updates
from helix_temporal.errors import (
    InvalidRequestError,
    NoWorkerError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from helix_temporal.models.base import only_set
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import (
    AskResult,
    CallPolicy,
    ForkFrom,
    Mode,
    SendResult,
    SessionInfo,
    SessionOptions,
    SessionResult,
    SetPropertiesInput,
    StopRequest,
    StopResult,
    UserMessage,
)
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.streams import StoredChunk
from helix_temporal.models.threads import (
    ForkThreadInput,
)
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.workflows import ThreadRequest

_LEAST_VERSION: Final = 10**12
"""Versions of a `SessionInfo` are times in µs; those of states count from 1."""
_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class SessionClient(SessionDeleter):
    """Talks to sessions: starts them when they are not running, and repeats until they answered.

    Args:
        client: Connected with `HelixPlugin`.
        task_queue: Where the session workers listen; by default as the settings of the client's `HelixPlugin`
            say.  The deployment's name and stores are those of these settings; whoever names no stores is of
            the deployment that listens on ``task_queue``.
        options: For executions that this client starts: those that are named count,
            and the session remembers them; the others are as it remembers them from before.
        search_attributes: Keys of a session's metadata that become search attributes of its workflow;
            they must be registered with the server.
        policy: Time-outs and retries of reads, forks and long texts; by default those of the settings that
            the client's `HelixPlugin` was given.
        streams: Where sessions are shown live; by default where the settings of the client's `HelixPlugin`
            have it.  Whoever gives one closes it; the plugin's is closed with ``plugin.backends``.
        stores: Where the workers have sessions, if this process reaches it: `history`, `messages`,
            `describe`, `state`, `run`, `usage`, `turns`, `find_turn` and `checkpoints` then read there, of
            any size, rather than by a short workflow each; what is passing is not tried again.  A
            `SessionStores`, or a `helix_temporal.backends.Backends`; whoever gives it closes it.

    Raises:
        InvalidConfigError: ``client``, ``options`` or ``policy`` is something else.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str | None = None,
        options: SessionOptions | None = None,
        search_attributes: Mapping[str, SearchAttributeKey[str]] | None = None,
        policy: CallPolicy | None = None,
        streams: StreamStore | None = None,
        stores: ReadableStores | None = None,
    ) -> None:
        check_type(client, Client, "client")
        if options is not None:
            check_type(options, SessionOptions, "options")
        if policy is not None:
            check_type(policy, CallPolicy, "policy")
        self._streams = streams
        settings = settings_of(client) or Settings()
        deployment = asking_for(settings, task_queue)
        client, task_queue = speaking_for(client, deployment), task_queue or settings.task_queue
        also = settings.also_known_as
        updates = Updates(client, task_queue, search_attributes or {}, deployment, also)
        super().__init__(
            client,
            task_queue,
            policy or _policy_of(settings),
            updates,
            options or SessionOptions(),
            stores,
            deployment,
        )

    @typed_call
    def session(self, session_id: str, *, agent: str | None = None) -> SessionHandle:
        """A handle on one session."""
        return SessionHandle(self, session_id, agent)

    @typed_arguments
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
        properties: SessionProperties | None = None,
    ) -> AskResult:
        """Send a message and wait for the answer.

        The message counts once however often it is sent under one ``message_id``: another text under that
        id is not compared, and gets the answer to the first.  ``agent`` is needed whenever the session may
        have to be started.  The result is never ``moved``.

        ``properties`` (when the session expires, its user, tags, workspaces, trace) are set before the
        message is taken; a session that has expired is renewed by naming ``expires_at``, a time or None.

        Raises:
            SessionExpiredError: The session is past its ``expires_at``, and is not renewed.
            TimeoutError: No answer within ``timeout`` seconds; the message may be answered later, ask
                again with the same id to get it.
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
        async with self._updates.within(session_id, "ask", timeout):
            if agent is not None:
                await self._check_own(session_id, thread_id, begins=mode in {"new", "fork"})
            message = await self._message(session_id, text, message_id, properties, agent, thread_id)
            start = self._input(
                session_id,
                agent,
                metadata=metadata,
                mode=mode,
                thread_id=thread_id,
                fork_from=fork_from,
                properties=properties,
            )
            return await self._asked(session_id, message, start, timeout)

    @typed_call
    def stream(
        self,
        session_id: str,
        *,
        after: After | None = None,
        run_id: str | None = None,
        message_id: str | None = None,
        until: Until = "turn",
    ) -> AsyncGenerator[StoredChunk]:
        """What the session's stream shows: what is kept, then what comes; over lost connections.

        Read on with ``after``, the sequence of the last chunk that was seen.  A stream shows; what counts is
        in the thread: an answer that was seen in part only is read with `history`.

        Args:
            session_id: Whose; one that nobody has talked to yet is waited for, with a warning in the log
                after ten seconds.
            after: Only what comes after this sequence; ``"turn"``: from the beginning of the newest turn.
            run_id: Only this turn, by the name of its run.
            message_id: Only the turn that answers this message.
            until: ``"turn"`` ends with the turn (of those that are not chosen by name: the first that ends);
                ``"closed"`` with the stream, which no turn ends.

        Raises (while iterating):
            StreamTruncatedError: What comes next is not kept any more, or the stream was lost and has begun
                anew; ``facts`` has ``first_available``.
            StreamAbandonedError: A turn is under way, and nothing was heard of it for too long.
            StreamFailedError, StreamNotFoundError: The stream was ended by a failure, or deleted, meanwhile.
            StoreUnavailableError: The store does not answer for half a minute.
            InvalidConfigError: No stream store is known.
        """
        follow = Follow(
            self.streams,
            session_id,
            after=after,
            run_id=run_id,
            message_id=message_id,
            until=until,
            begun=None if run_id is None else lambda: self._begun(session_id, run_id),
            missing=lambda: self._diagnosis.told_once(self._updates.handle(session_id).id, "stream"),
        )
        return follow.chunks()

    async def _begun(self, session_id: str, run_id: str) -> int:
        run = await self.run(session_id, run_id)
        return 0 if run is None else run.start_sequence

    @typed_call
    def stream_ask(
        self,
        session_id: str,
        text: str,
        *,
        message_id: str | None = None,
        after: int | None = None,
        **options: Any,
    ) -> LiveAsk:
        """As `ask`, with the turn to be watched: iterate over its chunks, then take its ``result()``.

        Args:
            session_id: As for `ask`.
            text: As for `ask`.
            message_id: As for `ask`.
            after: For a message that was sent before under this ``message_id``: where to look for its turn,
                0 for all that is kept.
            options: As for `ask`.
        """
        message_id = message_id or uuid.uuid4().hex

        async def ask() -> AskResult:
            return await self.ask(session_id, text, message_id=message_id, **options)

        return LiveAsk(self.streams, session_id, message_id, ask, after=after)

    @property
    def streams(self) -> StreamStore:
        """Where sessions are shown live.

        Raises:
            InvalidConfigError: No stream store is known.
        """
        if self._streams is None:
            self._streams = store_of(self._client.config(active_config=True)["plugins"])
        return self._streams

    @typed_arguments
    async def send(
        self,
        session_id: str,
        text: str,
        *,
        agent: str | None = None,
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
        async with self._updates.within(session_id, "send_message", timeout):
            if agent is not None:
                await self._check_own(session_id)
            message = await self._message(session_id, text, message_id, properties, agent)
            start = self._input(session_id, agent, metadata=metadata, properties=properties)
            await self._updates.until(session_id, "send_message", message, SendResult, start, timeout)
            return message.id

    async def _message(
        self,
        session_id: str,
        text: str,
        message_id: str | None,
        properties: SessionProperties | None,
        agent: str | None,
        thread_id: str | None = None,
    ) -> UserMessage:
        message_id = message_id or uuid.uuid4().hex
        content = await self._text(thread_id or session_id, text, message_id)
        named = only_set(properties=properties, agent=agent, thread_id=thread_id)
        return UserMessage(id=message_id, **content, **named)

    @typed_arguments
    async def set_properties(self, session_id: str, properties: SessionProperties) -> None:
        """Set properties of a session that exists, running or not: those that are named.

        Naming ``expires_at`` renews a session that has expired; its turn that waits may be answered again.

        Raises:
            SessionNotFoundError: There is no such session.
            InvalidRequestError: The workers have no session store.
            TimeoutError: They are stored, and the session, which runs, did not take them within a minute.
        """
        request = SetPropertiesInput(session_id=session_id, properties=properties)
        # The store first: an execution that begins meanwhile finds them there, one that runs is told.
        await self._thread(ThreadRequest(do="set_properties", properties=request))
        await self._updates.if_running(session_id, "set_properties", properties, bool)

    @typed_arguments
    async def fork(
        self,
        session_id: str,
        target_id: str,
        *,
        at: int | None = None,
        at_checkpoint: str | None = None,
        transform: str | None = None,
    ) -> Head:
        """Copy finished turns into a new thread; talk to it under its own id.

        Its session begins with the state of that place, where a checkpoint has it.

        Args:
            session_id: Whose turns.
            target_id: The new thread.
            at: Up to this position; None for all.
            at_checkpoint: Up to where the thread was at this checkpoint.
            transform: What is done to the messages, by the name under which the workers know it.

        Raises:
            ThreadExistsError: The target is there.
            InvalidRequestError: ``at`` is not the end of a finished turn's step, or both are given.
            CheckpointNotFoundError: The session has none of that id.
            InvalidIdError: ``target_id`` is one that only a sub-agent's session may have.
        """
        await self._check_own(target_id, begins=True)
        if at_checkpoint is not None:
            if at is not None:
                raise InvalidRequestError("at and at_checkpoint are both given; a fork ends in one place")
            at = (await self.checkpoint(session_id, at_checkpoint)).head.position
        fork = ForkThreadInput(
            source_id=session_id, target_id=target_id, at=at, transform=transform, owner=uuid.uuid4().hex
        )
        reply = await self._thread(ThreadRequest(do="fork", fork=fork))
        assert reply.described is not None
        return reply.described.head

    @typed_arguments
    async def stop(
        self,
        session_id: str,
        *,
        abort: bool = False,
        run_id: str | None = None,
        agent: str | None = None,
    ) -> bool:
        """Stop the turn under way, after its step or at once; false if none was.

        A session that ended while its turn waits for people is started, and the turn ends as if it had
        stayed; any other that has ended stays as it is.

        Args:
            session_id: Whose.
            abort: At once and without a trace of the turn, rather than after its present step.
            run_id: Only if it is this run (`SessionInfo.run_id`); false if it is not under way any more.
            agent: With which the session is started again; by default the one that it had.

        Raises:
            TimeoutError: No worker took it up within a minute.
        """
        fields = only_set(run_id=run_id)
        request = StopRequest(mode="abort" if abort else "interrupt", **fields)
        found = await self._updates.if_running(session_id, "stop", request, StopResult)
        if found is None:
            found = await self._stop_suspended(session_id, request, agent)
        return found is not None and found.stopping

    @typed_arguments
    async def close(self, session_id: str) -> None:
        """Let the session finish what waits, archive and end; nothing if it is not running.

        Raises:
            TimeoutError: No worker took it up within a minute; it is in the session's history all the
                same, and takes effect once one does.
        """
        await self._updates.if_running(session_id, "close", None, None)

    @typed_arguments
    async def status(self, session_id: str) -> SessionInfo:
        """What the session is doing, or did last.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            NoWorkerError: No worker answers; the message says of which task queue and namespace.
            SessionTerminatedError: It was terminated with events that no worker has run.
            TimeoutError: The server lost each query, or can't be reached.
        """
        info = await self._updates.status(session_id)
        if info.exit_reason is not None:
            return info
        failing = await self._diagnosis.failing(self._updates.handle(session_id).id)
        return info.model_copy(update={"failing": (*info.failing, *failing)}) if failing else info

    @typed_arguments
    async def wait_for_change(
        self, session_id: str, version: int = 0, *, timeout: float = 60.0
    ) -> SessionInfo:
        """Wait until something happens in a session, in this execution or in a later one.

        Asks again and again, which leaves nothing in the session's history, and wakes no session.

        Args:
            session_id: Whose.
            version: Of the `SessionInfo` that is known (`status`); 0 for whatever there is.
            timeout: Seconds.

        Raises:
            TimeoutError: Nothing happened; also where it never ran, or no worker answers.
            InvalidRequestError: ``version`` is that of a stored state, which counts something else.
        """
        if 0 < version < _LEAST_VERSION:
            raise InvalidRequestError(f"version {version}: that of a SessionInfo expected, as status() gives")
        deadline, pause = time.monotonic() + timeout, _PAUSE
        while (left := deadline - time.monotonic()) > 0:
            info = await self._seen(session_id, left)
            if info is not None and info.version > version:
                return info
            await asyncio.sleep(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        raise TimeoutError(f"session {session_id!r}: nothing happened within {timeout} s")

    async def _seen(self, session_id: str, left: float) -> SessionInfo | None:
        try:
            return await self._updates.look(session_id, left)
        except (NoWorkerError, SessionTerminatedError):
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND or error.status in PASSING:
                return None
            raise

    @typed_arguments
    async def result(self, session_id: str) -> SessionResult:
        """Wait until the present run ends, and how it ended.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
            ForeignDeploymentError: It was started by another deployment.
            temporalio.client.WorkflowFailureError: It was terminated.
        """
        try:
            await self._updates.describe(session_id)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise SessionNotFoundError(f"session {session_id!r} has no run") from error
            raise
        return await self._updates.handle(session_id).result()


def _policy_of(settings: Settings) -> CallPolicy | None:
    """What the settings of the client's plugin say, None where they say nothing of their own."""
    return None if settings.timeouts == Timeouts() else call_policy(settings)
