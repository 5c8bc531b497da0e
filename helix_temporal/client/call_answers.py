"""Answers to tool calls that a client executes, a person answers, or somebody approves."""

import contextlib
from typing import Any

from pydantic import ValidationError
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client._connection import SessionConnection
from helix_temporal.client._messages import create_text, put_aside
from helix_temporal.client._updates import has_ended_pinned
from helix_temporal.errors import (
    InvalidRequestError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from helix_temporal.models.base import JsonObject, canonical_json, check_json
from helix_temporal.models.limits import INLINE_TEXT, MAX_ERROR_TEXT, MAX_TEXT
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import (
    AskStatus,
    ExitReason,
    SessionInput,
    StopRequest,
    StopResult,
    SubmitReply,
)
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.waiting import SubmitInput, is_child_id


class CallAnswers:
    """Gives a session what it waits for.  Each call is answered once, whoever is first.

    Args:
        connection: By which the session is reached.
        session_id: Whose calls they are.
        agent: With which the session is started again; None for the one that it had.
    """

    def __init__(self, connection: SessionConnection, session_id: str, agent: str | None) -> None:
        self._connection, self._updates = connection, connection.updates
        self._session_id, self._agent = session_id, agent

    async def submit_answer(self, fields: dict[str, Any]) -> SubmitReply:
        """Give an answer to the session; one that ended suspended is started again by it.

        Args:
            fields: Of a `SubmitInput`.

        Raises:
            InvalidRequestError: The fields are no answer.
        """
        try:
            request = SubmitInput(**fields)
        except ValidationError as error:
            wrong = ", ".join(
                f"{each['loc'][0]}: {each['msg']}" for each in error.errors(include_input=False)
            )
            raise InvalidRequestError(f"invalid answer to a call: {wrong}; correct these fields") from None
        start = await self._create_start()
        reply: SubmitReply = await self._updates.run_update(
            self._session_id, "submit_tool_result", request, SubmitReply, start
        )
        return await self._with_answer(reply)

    async def stop_suspended(self, request: StopRequest) -> StopResult | None:
        """End the turn of a session that ended while it waited; None if it does not wait.

        Raises:
            InvalidRequestError: It is a sub-agent's: its caller's turn is what waits.
        """
        if not await self._ended_suspended():
            return None
        if is_child_id(self._session_id) and (root := await find_root(self._connection, self._session_id)):
            raise InvalidRequestError(
                f"session {self._session_id!r} is a sub-agent's, and waits for people: answer its calls, or "
                f"stop session {root!r}, whose turn called it"
            )
        start = await self._create_start()
        wanted = request.model_copy(update={"suspended": True})
        result: StopResult = await self._updates.run_update(
            self._session_id, "stop", wanted, StopResult, start
        )
        return result

    async def result_fields(self, result: Any, by: str) -> dict[str, Any]:
        """A result as it travels: inline, or by reference where it is long."""
        check_json(result, "$")
        check_size(len(canonical_json(result)), MAX_TEXT, "result")
        text = result if isinstance(result, str) else canonical_json(result).decode()
        if len(text.encode()) <= INLINE_TEXT:
            return {} if text == "" else {"text": text}
        _, thread_id = await self._find_agent_and_thread()
        return await create_text(self._connection, thread_id, text, f"answer-{by}")

    async def part_fields(self, parts: list[JsonObject], by: str) -> dict[str, Any]:
        """Parts of a message as they travel: inline, or by reference where they are long."""
        check_json(parts, "$")
        size = len(canonical_json(parts))
        check_size(size, MAX_TEXT, "parts")
        if size <= INLINE_TEXT:
            return {"parts": parts}
        _, thread_id = await self._find_agent_and_thread()
        put = PutTextInput(thread_id=thread_id, message_id=f"answer-{by}", parts=parts)
        return await put_aside(self._connection, put)

    async def _with_answer(self, reply: SubmitReply) -> SubmitReply:
        """The reply with the turn's answer, which is in the thread alone where it is long."""
        result = reply.result
        if result is None or result.status is not AskStatus.ANSWERED or result.text is not None:
            return reply
        _, thread_id = await self._find_agent_and_thread()
        whole = await self._connection.reader.complete_answer(thread_id, result)
        return reply.model_copy(update={"result": whole})

    async def _ended_suspended(self) -> bool:
        """Whether the session's turn waits, as far as its last execution, or its state, can tell."""
        handle = self._updates.get_workflow_handle(self._session_id)
        try:
            found = await self._updates.describe_execution(self._session_id)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return await self._is_paused()
        if found.status is WorkflowExecutionStatus.COMPLETED:
            return (await handle.result()).exit_reason is ExitReason.SUSPENDED
        if found.status is WorkflowExecutionStatus.RUNNING:
            return True
        if has_ended_pinned(found):
            return await self._is_paused()
        # One that could not even be opened, or was terminated, may know of nothing.
        with contextlib.suppress(SessionTerminatedError):
            if (await self._updates.get_status(self._session_id)).pending:
                return True
        return await self._is_paused()

    async def _is_paused(self) -> bool:
        state = await self._connection.reader.load_state(self._session_id)
        return state is not None and (
            state.status is SessionStatus.PAUSED
            # A run that failed or was cancelled has set another status, and its turn may wait all the same.
            or bool(state.pending_client_tool_calls or state.suspended_awaiting_children)
        )

    async def _create_start(self) -> SessionInput:
        agent, fields = self._agent, dict[str, Any]()
        if agent is None:
            agent, thread_id = await self._find_agent_and_thread()
            if thread_id != self._session_id:
                fields["thread_id"] = thread_id
        return SessionInput(
            session_id=self._session_id,
            agent=agent,
            mode="continue",
            options=self._connection.options,
            expects_ask=True,
            **fields,
        )

    async def _find_agent_and_thread(self) -> tuple[str, str]:
        """The session's agent and thread: by its last execution, or by its state where that can't tell."""
        if await self._updates.has_ended_pinned(self._session_id):
            state = await self._connection.reader.load_state(self._session_id)
            if state is not None and state.agent_type:
                return state.agent_type, state.messages_thread_id
            start = await self._updates.read_start(self._session_id)
            return start.agent, start.thread
        try:
            info = await self._updates.get_status(self._session_id)
        except (SessionNotFoundError, SessionTerminatedError):
            state = await self._connection.reader.load_state(self._session_id)
            if state is None or not state.agent_type:
                raise
            return state.agent_type, state.messages_thread_id
        return info.agent, info.thread_id


async def open_answers(connection: SessionConnection, session_id: str, agent: str | None) -> CallAnswers:
    """By whom a session's calls are answered: those of a sub-agent at its root, which is their only writer.

    Args:
        connection: By which the session is reached.
        session_id: Whose calls they are.
        agent: With which the session is started again; None for the one that it had.
    """
    root = await find_root(connection, session_id) if is_child_id(session_id) else None
    return CallAnswers(connection, session_id, agent) if root is None else CallAnswers(connection, root, None)


async def find_root(connection: SessionConnection, session_id: str) -> str | None:
    """The session that a person talks to above a sub-agent's; None where nothing says which.

    Raises:
        SessionNotFoundError: Neither Temporal nor the stores know the sub-agent's session.
    """
    if await connection.updates.has_ended_pinned(session_id):
        parent = (await connection.updates.read_start(session_id)).parent
        return None if parent is None else parent.root_session_id
    try:
        return (await connection.updates.get_status(session_id)).root_session_id
    except (SessionNotFoundError, SessionTerminatedError) as error:
        state = await connection.reader.load_state(session_id)
        if state is None and isinstance(error, SessionNotFoundError):
            raise
        return None if state is None else state.root_session_id


def error_fields(text: str) -> dict[str, Any]:
    """What went wrong instead of a result, as it travels.

    Raises:
        TooLargeError: It exceeds 8 KiB.
    """
    check_size(len(text.encode(errors="surrogatepass")), MAX_ERROR_TEXT, "error")
    return {"outcome": "error", "text": text}
