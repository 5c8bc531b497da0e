"""Answers to tool calls that a client executes, a person answers, or somebody approves."""

import contextlib
import uuid
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._arguments import typed_arguments
from helix_temporal.client._taking_back import INLINE_TEXT_BYTES, TakingBack
from helix_temporal.client._updates import CONTROL_SECONDS
from helix_temporal.errors import (
    InvalidRequestError,
    SessionNotFoundError,
    SessionTerminatedError,
    error_of_text,
)
from helix_temporal.models.base import JsonObject, canonical, check_json
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import (
    AskStatus,
    ExitReason,
    SessionInput,
    StopRequest,
    StopResult,
    SubmitReply,
)
from helix_temporal.models.states import MAX_CALL_RESULT, MAX_ERROR_TEXT, SessionStatus
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.threads import ReadMessagesInput
from helix_temporal.models.waiting import RESUME, PendingCall, SubmitInput, ToolApproval, is_child_id
from helix_temporal.workflows import ThreadRequest


class Answering(TakingBack):
    """Gives sessions what they wait for.  Each call is answered once, whoever is first."""

    @typed_arguments
    async def pending(self, session_id: str) -> tuple[PendingCall, ...]:
        """What the session waits for now, with all arguments; also after it ended suspended.

        Raises:
            SessionNotFoundError: It never ran, or its history is gone.
        """
        info = await self._updates.status(session_id)
        threads = [each.route[-1] if each.route else info.thread_id for each in info.pending]
        return tuple(
            [await self._whole(thread, each) for thread, each in zip(threads, info.pending, strict=True)]
        )

    @typed_arguments
    async def submit_tool_result(
        self,
        session_id: str,
        call: str | PendingCall,
        result: Any = None,
        *,
        error: str | None = None,
        parts: Sequence[JsonObject] | None = None,
        agent: str | None = None,
        wait: bool = False,
        timeout: float = 600.0,
        submission_id: str | None = None,
    ) -> SubmitReply:
        """Answer a pending call; a session that ended suspended is started again by it.

        Args:
            session_id: Whose call it is.
            call: The pending call, or its id.
            result: What the model is told: text, or anything that JSON can hold.
            error: Instead of a result: what went wrong, at most 8 KiB.
            parts: Instead of a result: parts of a message (`helix_temporal.models.messages`).
            agent: With which the session is started again; by default the one that it had.
            wait: If it counts, come back when the turn is over, or waits for something else; ``result`` says
                which, with the whole answer.
            timeout: Seconds.
            submission_id: Under which this answer may be given again: it counts once, and is told so.

        Returns:
            ``status``: ``submitted``; ``already_completed``, with the time of the first answer;
            ``expired``; or ``not_pending``.  A session remembers its newest 32 answered calls.

        Raises:
            InvalidRequestError: The call waits for an approval: `submit_approval` gives it.
            TimeoutError: Not taken, or with ``wait`` no end of the turn, within ``timeout`` seconds.
            TooLargeError: The result, or its parts, exceed 1 MiB as JSON, or the error 8 KiB.
            SessionNotFoundError: The session never ran.
            SessionTerminatedError: Its run was terminated meanwhile.
        """
        if sum(each is not None for each in (result, error, parts)) > 1:
            raise InvalidRequestError("one of result, error and parts expected")
        async with self._updates.within(session_id, "submit_tool_result", timeout):
            session_id = await self._woken_from(session_id, agent)
            fields: dict[str, Any] = {"by": submission_id or uuid.uuid4().hex}
            if error is not None:
                fields |= _as_error(error)
            elif parts is not None:
                fields |= await self._parts(session_id, list(parts), fields["by"])
            elif result is not None:
                fields |= await self._result(session_id, result, fields["by"])
            return await self._submit(session_id, call, fields, agent, wait=wait, timeout=timeout)

    @typed_arguments
    async def submit_approval(
        self,
        session_id: str,
        approval: ToolApproval,
        *,
        agent: str | None = None,
        wait: bool = False,
        timeout: float = 600.0,
        submission_id: str | None = None,
    ) -> SubmitReply:
        """Let a tool run, or not; ``approval_id`` is the pending call's id.

        Otherwise as `submit_tool_result`.

        Raises:
            InvalidRequestError: The call waits for a result: `submit_tool_result` gives it.
        """
        fields: dict[str, Any] = {"by": submission_id or uuid.uuid4().hex, "outcome": "approved"}
        if not approval.approved:
            fields |= {"outcome": "denied", "text": approval.reason or ""}
        async with self._updates.within(session_id, "submit_tool_result", timeout):
            session_id = await self._woken_from(session_id, agent)
            return await self._submit(
                session_id, approval.approval_id, fields, agent, wait=wait, timeout=timeout
            )

    @typed_arguments
    async def resume(self, session_id: str, *, agent: str | None = None, timeout: float = 60.0) -> None:
        """Start a session that ended suspended: calls whose deadline has passed are given up, and answers
        that were given to the session store are taken.  One that is about to end so is started once it has.
        Nothing if it runs, and stays: such a session does not look into the session store.

        Raises:
            TimeoutError: No worker took it up in time, or its execution did not end.
            SessionNotFoundError: The session never ran.
        """
        async with self._updates.within(session_id, "submit_tool_result", timeout):
            session_id = await self._woken_from(session_id, agent)
            await self._submit(session_id, RESUME, {}, agent, wait=False, timeout=timeout)

    async def _woken_from(self, session_id: str, agent: str | None) -> str:
        """Who is started again: a sub-agent that ended while it waits is called by those above it."""
        if agent is not None or not is_child_id(session_id):
            return session_id
        try:
            info = await self._updates.status(session_id)
        except SessionTerminatedError:
            return session_id
        asleep = info.exit_reason is ExitReason.SUSPENDED
        return info.root_session_id or session_id if asleep else session_id

    async def _submit(
        self,
        session_id: str,
        call: str | PendingCall,
        fields: dict[str, Any],
        agent: str | None,
        *,
        wait: bool,
        timeout: float,
    ) -> SubmitReply:
        if isinstance(call, PendingCall):
            fields |= {"call": call.id} | ({"route": call.route} if call.route else {})
        else:
            fields["call"] = call
        if wait:
            fields["wait"] = True
        try:
            request = SubmitInput(**fields)
        except ValidationError as error:
            wrong = ", ".join(
                f"{each['loc'][0]}: {each['msg']}" for each in error.errors(include_input=False)
            )
            raise InvalidRequestError(f"this answers no call: {wrong}") from None
        start = await self._start_again(session_id, agent)
        reply: SubmitReply = await self._updates.until(
            session_id, "submit_tool_result", request, SubmitReply, start, timeout
        )
        if reply.submission is None and reply.result is not None and reply.result.error is not None:
            raise error_of_text(reply.result.error)
        return await self._with_answer(session_id, reply)

    async def _with_answer(self, session_id: str, reply: SubmitReply) -> SubmitReply:
        """The reply with the turn's answer, which is in the thread alone where it is long."""
        result = reply.result
        if result is None or result.status is not AskStatus.ANSWERED or result.text is not None:
            return reply
        _, thread_id = await self._known(session_id)
        return reply.model_copy(update={"result": await self._with_text(thread_id, result)})

    async def _stop_suspended(
        self, session_id: str, request: StopRequest, agent: str | None
    ) -> StopResult | None:
        """End the turn of a session that ended while it waited; None if it does not wait."""
        if not await self._ended_suspended(session_id):
            return None
        start = await self._start_again(session_id, agent)
        wanted = request.model_copy(update={"suspended": True})
        result: StopResult = await self._updates.until(
            session_id, "stop", wanted, StopResult, start, CONTROL_SECONDS
        )
        if result.error is not None:
            raise error_of_text(result.error)
        return result

    async def _ended_suspended(self, session_id: str) -> bool:
        """Whether the session's turn waits, as far as its last execution, or its state, can tell."""
        handle = self._updates.handle(session_id)
        try:
            status = (await self._updates.describe(session_id)).status
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._is_paused(session_id)
        if status is WorkflowExecutionStatus.COMPLETED:
            return (await handle.result()).exit_reason is ExitReason.SUSPENDED
        if status is WorkflowExecutionStatus.RUNNING:
            return True
        # One that could not even be opened, or was terminated, may know of nothing.
        with contextlib.suppress(SessionTerminatedError):
            if (await self._updates.status(session_id)).pending:
                return True
        return await self._is_paused(session_id)

    async def _is_paused(self, session_id: str) -> bool:
        state = await self.state(session_id)
        return state is not None and state.status is SessionStatus.PAUSED

    async def _start_again(self, session_id: str, agent: str | None) -> SessionInput:
        fields: dict[str, Any] = {}
        if agent is None:
            agent, thread_id = await self._known(session_id)
            if thread_id != session_id:
                fields["thread_id"] = thread_id
        return SessionInput(
            session_id=session_id,
            agent=agent,
            mode="continue",
            options=self._options,
            expects_ask=True,
            **fields,
        )

    async def _known(self, session_id: str) -> tuple[str, str]:
        """The session's agent and thread: by its last execution, or by its state where that can't tell."""
        try:
            info = await self._updates.status(session_id)
        except (SessionNotFoundError, SessionTerminatedError):
            state = await self.state(session_id)
            if state is None or not state.agent_type:
                raise
            return state.agent_type, state.thread_id or session_id
        return info.agent, info.thread_id

    async def _result(self, session_id: str, result: Any, by: str) -> dict[str, Any]:
        check_json(result, "$")
        size = len(canonical(result))
        check_size(size, MAX_CALL_RESULT, "result")
        text = result if isinstance(result, str) else canonical(result).decode()
        if len(text.encode()) <= INLINE_TEXT_BYTES:
            return {} if text == "" else {"text": text}
        _, thread_id = await self._known(session_id)
        return await self._text(thread_id, text, f"answer-{by}")

    async def _parts(self, session_id: str, parts: list[JsonObject], by: str) -> dict[str, Any]:
        check_json(parts, "$")
        size = len(canonical(parts))
        check_size(size, MAX_CALL_RESULT, "parts")
        if size <= INLINE_TEXT_BYTES:
            return {"parts": parts}
        _, thread_id = await self._known(session_id)
        return await self._aside(PutTextInput(thread_id=thread_id, message_id=f"answer-{by}", parts=parts))

    async def _whole(self, thread_id: str, call: PendingCall) -> PendingCall:
        """The call with its arguments, which are in the thread where they are large."""
        if call.arguments is not None:
            return call
        read = ReadMessagesInput(
            thread_id=thread_id,
            start=call.position,
            stop=call.position + 1,
            limit=1,
            committed_only=False,
            whole=False,
        )
        reply = await self._thread(ThreadRequest(do="read", read=read))
        assert reply.read is not None
        messages = (await self._with_large(thread_id, reply.read)).messages
        if not messages or len(messages[0].tool_calls) <= call.at:
            return call
        return call.model_copy(update={"arguments": messages[0].tool_calls[call.at].arguments})


def _as_error(text: str) -> dict[str, Any]:
    """What went wrong instead of a result, as it travels.

    Raises:
        TooLargeError: It exceeds 8 KiB.
    """
    check_size(len(text.encode(errors="surrogatepass")), MAX_ERROR_TEXT, "error")
    return {"outcome": "error", "text": text}
