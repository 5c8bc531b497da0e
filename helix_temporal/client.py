"""SessionClient: what an application calls."""

import base64
import uuid
from collections.abc import Mapping
from typing import Any, Final

from temporalio.client import (
    Client,
)
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal import errors
from helix_temporal._handle import SessionHandle
from helix_temporal._policies import call_policy
from helix_temporal._updates import Updates, root_error, typed
from helix_temporal.models._json import check_text
from helix_temporal.models.ids import workflow_id
from helix_temporal.models.messages import Message, check_size, from_record
from helix_temporal.models.records import Head, Record
from helix_temporal.models.sessions import (
    AskResult,
    AskStatus,
    CallPolicy,
    ForkFrom,
    Mode,
    RewindRequest,
    RewindResult,
    SendResult,
    SessionInfo,
    SessionInput,
    SessionOptions,
    SessionResult,
    StopRequest,
    StopResult,
    UserMessage,
)
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.threads import (
    DeleteThreadInput,
    DescribeThreadResult,
    ForkThreadInput,
    ReadBodyInput,
    ReadMessagesInput,
    ReadMessagesResult,
    ThreadInput,
)
from helix_temporal.settings import Settings, Timeouts
from helix_temporal.workflows import ThreadReply, ThreadRequest, ThreadWorkflow

INLINE_TEXT_BYTES: Final = 8 * 1024
"""Longer texts are put aside first, so that the session's history stays small."""


class SessionClient:
    """Talks to sessions: starts them when they are not running, and repeats until they answered.

    Args:
        client: Connected with `HelixPlugin`.
        task_queue: Where the session workers listen.
        options: For executions that this client starts.
        search_attributes: Keys of a session's metadata that become search attributes of its workflow;
            they must be registered with the server.
        policy: Time-outs and retries of reads, forks and long texts; by default those of the settings that
            the client's `HelixPlugin` was given.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = "helix",
        options: SessionOptions | None = None,
        search_attributes: Mapping[str, SearchAttributeKey[str]] | None = None,
        policy: CallPolicy | None = None,
    ) -> None:
        self._client, self._task_queue = client, task_queue
        self._policy = policy or _policy_of(client)
        self._options = options or SessionOptions()
        self._updates = Updates(client, task_queue, search_attributes or {})

    def session(self, session_id: str, *, agent: str | None = None) -> SessionHandle:
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
            SessionNotFoundError: The session does not run, and no agent is named to start it with.
            InvalidRequestError, InvalidMessageError, TooLargeError: The message is refused as it is:
                empty, with a lone surrogate or U+0000, over 1 MiB.
            InvalidIdError: The session's or the message's id is refused.
        """
        message_id = message_id or uuid.uuid4().hex
        message = UserMessage(id=message_id, **await self._text(thread_id or session_id, text, message_id))
        start = self._input(
            session_id, agent, metadata=metadata, mode=mode, thread_id=thread_id, fork_from=fork_from
        )
        result: AskResult = await self._updates.until(session_id, "ask", message, AskResult, start, timeout)
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
        await self._updates.until(session_id, "send_message", message, SendResult, start, timeout)
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
        return await self._with_large(session_id, reply.read)

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
        """Stop the turn under way, after its step or at once; false if none was.

        Raises:
            TimeoutError: No worker took it up within a minute.
        """
        request = StopRequest(mode="abort" if abort else "interrupt")
        found = await self._updates.if_running(session_id, "stop", request, StopResult)
        return found is not None and found.stopping

    async def close(self, session_id: str) -> None:
        """Let the session finish what waits, archive and end; nothing if it is not running.

        Raises:
            TimeoutError: No worker took it up within a minute; it is in the session's history all the
                same, and takes effect once one does.
        """
        await self._updates.if_running(session_id, "close", None, None)

    async def rewind(
        self, session_id: str, to: Head, *, agent: str | None = None, timeout: float = 60.0
    ) -> Head:
        """Cut the thread at an earlier head of a finished turn.

        Raises:
            InvalidRequestError, HeadMovedError: ``to`` is not such a head.
        """
        request = RewindRequest(to=to)
        start = self._input(session_id, agent, mode="continue")
        result: RewindResult = await self._updates.until(
            session_id, "rewind", request, RewindResult, start, timeout
        )
        if result.error is not None:
            raise typed(result.error.split(":", 1)[0], result.error)
        return result.head

    async def status(self, session_id: str) -> SessionInfo:
        """What the session is doing, or did last.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
        """
        try:
            found: SessionInfo = await self._updates.handle(session_id).query(
                "status", result_type=SessionInfo
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise errors.SessionNotFoundError(f"session {session_id!r} has no run") from error
            raise
        return found

    async def result(self, session_id: str) -> SessionResult:
        """Wait until the present run ends, and how it ended."""
        found: SessionResult = await self._updates.handle(session_id).result()
        return found

    # -- how

    def _input(self, session_id: str, agent: str | None, **fields: Any) -> SessionInput | None:
        if agent is None:
            return None
        given = {name: value for name, value in fields.items() if value}
        return SessionInput(
            session_id=session_id, agent=agent, options=self._options, expects_ask=True, **given
        )

    async def _text(self, thread_id: str, text: str, message_id: str) -> dict[str, Any]:
        check_text(text, "text")
        if len(text.encode()) <= INLINE_TEXT_BYTES:
            return {"text": text}
        check_size(len(text.encode()), 1024 * 1024, "text")
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
        try:
            return await self._client.execute_workflow(
                ThreadWorkflow.run,
                request if self._policy is None else request.model_copy(update={"policy": self._policy}),
                id=f"helix-thread/{uuid.uuid4().hex}",
                task_queue=self._task_queue,
            )
        except Exception as error:
            raise root_error(error) from error


def _policy_of(client: Client) -> CallPolicy | None:
    """What the settings of the client's plugin say, None where they say nothing of their own."""
    for plugin in client.config(active_config=True)["plugins"]:
        settings = getattr(plugin, "settings", None)
        if isinstance(settings, Settings) and settings.timeouts != Timeouts():
            return call_policy(settings)
    return None


__all__ = ["SessionClient", "SessionHandle", "workflow_id"]
