"""A user's message on its way: its text put aside where it is long, the run that it starts, its answer."""

import uuid
from typing import Any, Final

from helix_temporal.activities import SessionActivities
from helix_temporal.agents.checks import NAME
from helix_temporal.client._connection import SessionConnection
from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidRequestError,
    SessionExpiredError,
    TooLargeError,
    error_of_text,
)
from helix_temporal.models.base import check_text, dump_json, only_set
from helix_temporal.models.ids import validate_id
from helix_temporal.models.limits import INLINE_TEXT, MAX_PAYLOAD, MAX_TEXT
from helix_temporal.models.messages import check_size
from helix_temporal.models.sessions import AskResult, AskStatus, SessionInput, UserMessage
from helix_temporal.models.states import SessionProperties, other_thread_text
from helix_temporal.models.steps import PutTextInput
from helix_temporal.models.waiting import check_own_id, is_child_id
from helix_temporal.telemetry.emitter import current_traceparent

_RAISED: Final = tuple(f"{each.__name__}: " for each in (SessionExpiredError, IdempotencyConflictError))
"""Failures of a message that are its sender's: raised rather than told."""


async def check_session_id(connection: SessionConnection, *ids: str | None, begins: bool = False) -> None:
    """Refuse ids under which only a sub-agent's session begins; whatever is there goes on.

    Raises:
        InvalidIdError: There is no thread of such an id, or ``begins`` wants a new one.
    """
    for each in ids:
        if each is None or not is_child_id(validate_id(each)):
            continue
        if begins or not await connection.reader.has_thread(each):
            check_own_id(each)


def create_start(
    connection: SessionConnection, session_id: str, agent: str | None, **fields: Any
) -> SessionInput | None:
    """What a session's run is started with where none is there; None without an agent to start it with.

    Args:
        connection: Whose options the run has.
        session_id: Which.
        agent: Its name.
        fields: Of a `SessionInput`; those that are empty are left out.

    Raises:
        InvalidRequestError: ``agent`` is no name.
    """
    if agent is None:
        return None
    if not NAME.fullmatch(agent):
        raise InvalidRequestError(f"agent name {agent[:80]!r}: 1-64 of A-Z a-z 0-9 _ - expected")
    given = {name: value for name, value in fields.items() if value}
    return SessionInput(
        session_id=session_id, agent=agent, options=connection.options, expects_ask=True, **given
    )


async def create_message(
    connection: SessionConnection,
    session_id: str,
    text: str,
    *,
    message_id: str | None = None,
    agent: str | None = None,
    thread_id: str | None = None,
    properties: SessionProperties | None = None,
) -> UserMessage:
    """A message, ready to be sent.

    Raises:
        InvalidMessageError: The text cannot be stored.
        TooLargeError: It exceeds 1 MiB.
    """
    message_id = message_id or uuid.uuid4().hex
    content = await create_text(connection, thread_id or session_id, text, message_id)
    caller = current_traceparent()
    named = only_set(properties=properties, agent=agent, thread_id=thread_id, traceparent=caller)
    return UserMessage(id=message_id, **content, **named)


async def create_text(
    connection: SessionConnection, thread_id: str, text: str, message_id: str
) -> dict[str, Any]:
    """The fields of a message that have its text: inline, or by reference where it is long.

    Raises:
        InvalidMessageError: It cannot be stored.
        TooLargeError: It exceeds 1 MiB.
    """
    check_text(text, "text")
    size = len(text.encode())
    if size <= INLINE_TEXT:
        return {"text": text}
    check_size(size, MAX_TEXT, "text")
    return await put_aside(connection, PutTextInput(thread_id=thread_id, message_id=message_id, text=text))


async def put_aside(connection: SessionConnection, put: PutTextInput) -> dict[str, Any]:
    """Store what is too long to travel; the field that refers to it.

    Raises:
        TooLargeError: As JSON it is larger than a payload may be, as a megabyte of control characters is.
    """
    what = "text, as JSON" if put.parts is None else "parts, as JSON"
    check_size(len(dump_json(put.text if put.parts is None else put.parts)), MAX_PAYLOAD, what)
    return {"ref": (await connection.reader.change(SessionActivities.put_text, put)).ref}


async def ask_message(
    connection: SessionConnection,
    session_id: str,
    message: UserMessage,
    start: SessionInput | None,
) -> AskResult:
    """Send a message and wait for its answer, of any length.

    Raises:
        HelixError: The message failed by what its sender gave.
    """
    result: AskResult = await connection.updates.run_update(session_id, "ask", message, AskResult, start)
    too_large = f"{TooLargeError.__name__}: message {message.id!r}:"
    other_thread = f"{InvalidRequestError.__name__}: {other_thread_text(session_id)}"
    if result.status is AskStatus.FAILED and (result.error or "").startswith(
        (*_RAISED, too_large, other_thread)
    ):
        raise error_of_text(result.error or "")
    if result.status is AskStatus.ANSWERED and result.text is None and result.answer is not None:
        thread_id = result.thread_id or message.thread_id or session_id
        return await connection.reader.complete_answer(thread_id, result)
    return result
