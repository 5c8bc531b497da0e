"""The application: a session's events, and what a page sends to it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast, get_args

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from helix_temporal.client import SessionClient, SessionHandle, StreamAfter, StreamUntil
from helix_temporal.errors import HelixError, InvalidRequestError, TooLargeError
from helix_temporal.models.base import dump_json
from helix_temporal.models.ids import validate_id
from helix_temporal.models.streams import RunEnded
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.web.event_stream import EVENTS, EventStream, error_body, event_frames
from helix_temporal.web.statuses import describe_fields, find_status

T = TypeVar("T", bound=BaseModel)

MAX_BODY: Final = 2 * 1024 * 1024
"""Bytes of a request: a message may have one MiB of text."""

Authorise = Callable[[Request, str], Awaitable[bool]]
"""Whether the request may have to do with this session."""


def create_sse_app(
    client: SessionClient,
    *,
    agent: str | None = None,
    authorise: Authorise | None = None,
    keep_alive: float = 15.0,
    max_body: int = MAX_BODY,
    body_timeout: float = 10.0,
    max_streams: int = 1000,
) -> Starlette:
    """An ASGI application over sessions, to be served as it is or mounted in another.

    ==========================================  =====================================================
    ``GET  /sessions/{id}/events``              server-sent events; ``after``, ``until``, ``run_id``
                                                and ``message_id`` as for `SessionClient.stream`, but
                                                ``until`` is ``closed`` unless it is given
    ``GET  /sessions/{id}/messages``            finished turns: ``start``, ``limit``, ``backward``,
                                                ``cursor``
    ``POST /sessions/{id}/messages``            ``{"text", "message_id"?}``: 202 ``{"message_id"}``
    ``GET  /sessions/{id}/pending``             calls that wait for a client or a person
    ``POST /sessions/{id}/tool-results``        ``{"call", "result"?, "error"?, "submission_id"?}``
    ``POST /sessions/{id}/approvals``           ``{"approval_id", "approved", "reason"?,
                                                "submission_id"?}``
    ``POST /sessions/{id}/stop``                ``{"abort"?, "run_id"?}``: ``{"stopping"}``
    ==========================================  =====================================================

    An event's ``id`` is its sequence, its name the type of the chunk, its data the chunk.  A browser that
    connects again says what it saw last (``Last-Event-ID``) and gets what comes after it.  The last event
    is ``end``, or ``error`` with the error's name and facts; whoever connects again after the end of what
    was asked for gets 204, on which a browser leaves off.

    Args:
        client: Talks to the sessions, and reads their streams.
        agent: Whom new sessions belong to; without one only sessions that run can be talked to.
        authorise: Asked for every request; everybody may do everything without one.  403 if it refuses,
            or what it raises (`starlette.exceptions.HTTPException`).
        keep_alive: Seconds of silence after which a comment is sent, so that proxies keep the connection.
        max_body: Bytes that a request may have; 413 for more.
        body_timeout: Seconds in which a request's body must be there; 408 after that.
        max_streams: Streams of events that are open at once; 503 for more, with ``Retry-After``.
    """
    limits = _Limits(keep_alive, max_body, body_timeout, max_streams)
    return Starlette(
        routes=_Endpoints(client, agent, authorise, limits).build_routes(),
        exception_handlers={
            HelixError: _answer_error,
            TimeoutError: _answer_error,
            ValidationError: _answer_validation_error,
        },
    )


@dataclass(frozen=True, slots=True)
class _Limits:
    """As `create_sse_app` says."""

    keep_alive: float
    max_body: int
    body_timeout: float
    max_streams: int


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    message_id: str | None = None


class _CallAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    call: str
    result: JsonValue = None
    error: str | None = None
    submission_id: str | None = None


class _Approval(ToolApproval):
    model_config = ConfigDict(extra="forbid")

    submission_id: str | None = None


class _Stop(BaseModel):
    model_config = ConfigDict(extra="forbid")

    abort: bool = False
    run_id: str | None = None


class _Endpoints:
    def __init__(
        self, client: SessionClient, agent: str | None, authorise: Authorise | None, limits: _Limits
    ) -> None:
        self._client, self._agent = client, agent
        self._authorise, self._limits = authorise, limits
        self._open_streams = 0

    def build_routes(self) -> list[Route]:
        """Where each endpoint is."""
        one = "/sessions/{session_id}"
        return [
            Route(f"{one}/events", self.stream_events, methods=["GET"]),
            Route(f"{one}/messages", self.list_messages, methods=["GET"]),
            Route(f"{one}/messages", self.send_message, methods=["POST"]),
            Route(f"{one}/pending", self.list_pending_calls, methods=["GET"]),
            Route(f"{one}/tool-results", self.answer_call, methods=["POST"]),
            Route(f"{one}/approvals", self.answer_approval, methods=["POST"]),
            Route(f"{one}/stop", self.stop_turn, methods=["POST"]),
        ]

    async def stream_events(self, request: Request) -> Response:
        session, given = await self._authorise_session(request), request.query_params
        until = _check_choice(given.get("until", "closed"), "until", get_args(StreamUntil))
        seen = request.headers.get("last-event-id")
        after = _parse_after(given.get("after")) if seen is None else _parse_after(seen)
        if isinstance(after, int) and seen is not None and await self._is_over(session, after, until):
            return Response(status_code=204)
        if request.method == "HEAD":
            return Response(media_type=EVENTS)  # without the stream, which has no end
        chunks = session.stream(
            after=after,
            until=cast("StreamUntil", until),
            run_id=given.get("run_id"),
            message_id=given.get("message_id"),
        )
        source = event_frames(chunks, keep_alive=self._limits.keep_alive, end=until)
        if self._open_streams >= self._limits.max_streams:
            raise HTTPException(
                503,
                f"{self._open_streams} streams of events are open, which is max_streams; connect again later",
                headers={"Retry-After": "5"},
            )
        self._open_streams += 1
        return EventStream(source, on_end=self._stream_ended)

    def _stream_ended(self) -> None:
        self._open_streams -= 1

    async def list_messages(self, request: Request) -> Response:
        session, given = await self._authorise_session(request), request.query_params
        page = await session.list_messages(
            start=_parse_number(given.get("start", "0"), "start"),
            limit=_parse_number(given.get("limit", "100"), "limit"),
            backward=given.get("backward") in {"1", "true"},
            cursor=given.get("cursor"),
        )
        return _json_response(page.model_dump(mode="json"))

    async def send_message(self, request: Request) -> Response:
        session = await self._authorise_session(request)
        message = await self._read_body(request, _Message)
        message_id = await self._client.send(
            session.session_id, message.text, agent=self._agent, message_id=message.message_id
        )
        return _json_response({"message_id": message_id}, 202)

    async def list_pending_calls(self, request: Request) -> Response:
        session = await self._authorise_session(request)
        waiting = await session.get_pending_calls()
        return _json_response({"pending": [each.model_dump(mode="json") for each in waiting]})

    async def answer_call(self, request: Request) -> Response:
        session = await self._authorise_session(request)
        answer = await self._read_body(request, _CallAnswer)
        reply = await session.submit_tool_result(
            answer.call, answer.result, error=answer.error, submission_id=answer.submission_id
        )
        return _json_response({"status": reply.status})

    async def answer_approval(self, request: Request) -> Response:
        session = await self._authorise_session(request)
        given = await self._read_body(request, _Approval)
        approval = ToolApproval(approval_id=given.approval_id, approved=given.approved, reason=given.reason)
        reply = await session.submit_approval(approval, submission_id=given.submission_id)
        return _json_response({"status": reply.status})

    async def stop_turn(self, request: Request) -> Response:
        session = await self._authorise_session(request)
        asked = await self._read_body(request, _Stop)
        stopping = await session.stop(abort=asked.abort, run_id=asked.run_id)
        return _json_response({"stopping": stopping})

    async def _authorise_session(self, request: Request) -> SessionHandle:
        """The session that the request names, if it may."""
        session_id = validate_id(request.path_params["session_id"], "session_id")
        if self._authorise is not None and not await self._authorise(request, session_id):
            raise HTTPException(403)
        return self._client.session(session_id)

    async def _read_body(self, request: Request, model: type[T]) -> T:
        """The request's body as this model; 408 if it does not arrive."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.body_timeout):
                data = await _read_bytes(request, limits.max_body)
        except TimeoutError:
            raise HTTPException(
                408,
                f"the request's body did not arrive within {limits.body_timeout:g} s",
                headers={"Connection": "close"},
            ) from None
        try:
            return model.model_validate_json(data or b"{}")
        except ValidationError as error:
            raise InvalidRequestError(f"the request's body does not fit: {describe_fields(error)}") from None

    async def _is_over(self, session: SessionHandle, seen: int, until: str) -> bool:
        """Whether the last event that a browser saw was the last of what it asks for."""
        info = await self._client.streams.get_info(session.session_id)
        if info is None or seen > info.last_sequence:
            return False
        if until == "closed":
            return info.status == "ended" and seen == info.last_sequence
        if seen < info.first_sequence:
            return False
        return isinstance((await _chunk_at(session, seen)), RunEnded)


async def _chunk_at(session: SessionHandle, sequence: int) -> Any:
    async with aclosing(session.stream(after=sequence - 1, until="closed")) as chunks:
        return (await anext(chunks)).chunk


def _parse_after(text: str | None) -> StreamAfter | None:
    if text is None or text == "turn":
        return cast("StreamAfter | None", text)
    return _parse_number(text, "after, the sequence of an event,")


def _parse_number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InvalidRequestError(f"{what}: a whole number from 0 on expected")
    return int(text)


def _check_choice(text: str, what: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise InvalidRequestError(f"{what} must be one of {', '.join(choices)}")
    return text


async def _read_bytes(request: Request, limit: int) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > limit:
            raise TooLargeError(f"the request has more than {limit} bytes; send less")
    return bytes(data)


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    """What the request says fits no call of the client, such as a number of messages below 0."""
    assert isinstance(error, ValidationError)
    return await _answer_error(
        request, InvalidRequestError(f"the request does not fit: {describe_fields(error)}")
    )


async def _answer_error(_: Request, error: Exception) -> Response:
    status = find_status(error)
    if isinstance(error, HelixError):
        return _json_response(error_body(error), status)
    return _json_response({"error": type(error).__name__, "message": str(error)}, status)


def _json_response(value: Any, status: int = 200) -> Response:
    return Response(dump_json(value), status, media_type="application/json")
