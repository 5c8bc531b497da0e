"""What a viewer can do: approve or deny, answer a call, stop a turn.

Every form says what it was decided on: the call, or the run.  The session itself compares, so a page that
was left open cannot act on a session that went on.  What became of it is told on the conversation's page, in
words of ours alone: the address only has its name, and nobody can put other words there by a link.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl

from pydantic import JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from temporalio.service import RPCError

from helix_temporal.client import SessionClient, SubmitReply
from helix_temporal.errors import (
    HelixError,
    InvalidRequestError,
    NotFoundError,
    NoWorkerError,
    SessionExpiredError,
    SessionTerminatedError,
    StoreUnavailableError,
    TooLargeError,
    UnknownEncodingError,
)
from helix_temporal.inspector.access import Action
from helix_temporal.inspector.defences import check_form
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.models.waiting import INTERRUPTED, WENT_ON, ToolApproval, find_waiting_call
from helix_temporal.views.models import CallStatus, ConversationCall, ConversationTurn, SessionView
from helix_temporal.web.statuses import BAD_REQUEST_ERRORS, describe_fields

logger = logging.getLogger(__name__)

MAX_FORM: Final = 2 * 1024 * 1024
"""Bytes of a form: an answer may have one MiB, and each byte of it three in a form."""
_BODY_SECONDS: Final = 10.0
_ACTION_SECONDS: Final = 30.0
"""So long somebody waits for the page; what the session has been told by then takes effect all the same."""

Tone = Literal["good", "wait", "bad"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action, as the page tells it."""

    text: str
    tone: Tone


_NO_CODEC: Final = (
    "The session's payloads are encoded, and this inspector's Temporal client lacks the workers' codec. "
    "The program helix-temporal inspect takes none: mount create_inspector(client=SessionClient(…)) with a "
    "client that has the workers' data converter."
)
# Until then the session alone knows of the answer: the stores learn it with the step.
_AS_IT_WAS: Final = "While other calls of its step wait, this page may show the call as it was."
OUTCOMES: Final[Mapping[str, Outcome]] = {
    # Of what was done, not of what goes on: a followed page shows it for as long as it is open.
    "approved": Outcome(f"You approved the call, so that its tool is run. {_AS_IT_WAS}", "good"),
    "denied": Outcome(f"You denied the call; the model is told so. {_AS_IT_WAS}", "good"),
    "answered": Outcome(f"You sent the result. {_AS_IT_WAS}", "good"),
    "stopping": Outcome("You had the turn stop after the step that ran then.", "good"),
    "aborting": Outcome("You stopped the turn; it leaves nothing in the thread.", "good"),
    "already": Outcome(
        "Somebody answered this call before you. The turn below shows how; nothing was changed.", "wait"
    ),
    "unanswered": Outcome(
        "The turn ended before anybody answered this call: it was stopped, or went on without. "
        "Nothing was changed.",
        "wait",
    ),
    "already-denied": Outcome("Somebody denied this call before you; nothing was changed.", "wait"),
    "expired": Outcome("The call's deadline has passed; nothing was changed.", "wait"),
    "not-waiting": Outcome(
        "This call does not wait any more: the session went on. Nothing was changed.", "wait"
    ),
    "not-running": Outcome(
        "This turn does not run any more: the session went on. Nothing was changed.", "wait"
    ),
    "no-worker": Outcome(
        "No worker took it up. Nothing has been confirmed: see whether the session's workers run, or start "
        "one (helix-temporal worker), and look again in a minute.",
        "bad",
    ),
    "temporal-away": Outcome(
        "Temporal does not answer. Nothing has been confirmed; look again in a minute.", "bad"
    ),
    "store-away": Outcome("A store is away. Nothing has been confirmed; look again in a minute.", "bad"),
    "over": Outcome("The session has expired or was terminated; nothing was changed.", "bad"),
    "no-codec": Outcome(f"{_NO_CODEC} Nothing was changed.", "bad"),
    "no-codec-stop": Outcome(f"{_NO_CODEC} Whether the turn stops is not known.", "bad"),
    "refused": Outcome("The session refused it; nothing was changed. The server's log says why.", "bad"),
    "too-large": Outcome("The result is too large: at most 1 MiB; nothing was changed.", "bad"),
}

_FIRST: Final[Mapping[CallStatus, str]] = {
    "denied": "already-denied",
    "expired": "expired",
    "unanswered": "unanswered",
}
"""By a call's status: what became of it before."""
_TURNS: Final = 3
"""A session remembers calls of its newest turns alone."""

_ERRORS: Final = (
    (TooLargeError, "too-large"),
    ((NoWorkerError, TimeoutError), "no-worker"),
    (StoreUnavailableError, "store-away"),
    (RPCError, "temporal-away"),
    ((SessionExpiredError, SessionTerminatedError), "over"),
    (HelixError, "refused"),
)

Form = Mapping[str, str]


def find_outcome(name: str | None) -> Outcome | None:
    """What the name in an address says, None for no name of ours."""
    return OUTCOMES.get(name or "")


class SessionActions:
    """The endpoints behind the forms.

    Args:
        client: Talks to the sessions.
    """

    def __init__(self, client: SessionClient) -> None:
        self._client = client

    async def approve(self, request: Request, page: PageRequest) -> Response:
        """``call_id``, ``run_id``, ``decision`` (``approve`` or ``deny``), ``reason``."""
        return await self._act(request, page, "approve", self._approve)

    async def answer(self, request: Request, page: PageRequest) -> Response:
        """``call_id``, ``run_id``, and ``result`` (text or JSON)."""
        return await self._act(request, page, "answer", self._answer)

    async def stop(self, request: Request, page: PageRequest) -> Response:
        """``run_id``, ``mode`` (``interrupt`` or ``abort``)."""
        return await self._act(request, page, "stop", self._stop)

    async def _act(
        self,
        request: Request,
        page: PageRequest,
        action: Action,
        act: Callable[[PageRequest, SessionView, Form], Awaitable[str]],
    ) -> Response:
        if not page.may(action):
            raise HTTPException(403)
        form = await read_form(request)
        check_form(request, form.get("csrf"))
        # Only what the viewer may see, they may act on: others are not found.
        session = await page.views.get_session(request.path_params["session_id"])
        try:
            async with asyncio.timeout(_ACTION_SECONDS):
                name = await act(page, session, form)
        except BAD_REQUEST_ERRORS:
            raise
        except ValidationError as error:
            raise InvalidRequestError(f"the form does not fit: {describe_fields(error)}") from None
        except (HelixError, RPCError, TimeoutError) as error:
            name = self._name_failure(page, session, action, error)
        except RuntimeError as error:
            # Of a client that connects when it is asked first.
            if "client connect" not in str(error):
                raise
            name = self._name_failure(page, session, action, error)
        there = page.link("conversation", {"said": name}, session_id=session.overview.session_id)
        return RedirectResponse(there, 303)

    def _name_failure(self, page: PageRequest, session: SessionView, action: Action, error: Exception) -> str:
        """Which outcome an error is; the page tells what follows from it, the log what it was."""
        name = name_error(error, action)
        logger.warning(
            "%s of session %r by viewer %r: %s (%s: %s)",
            action,
            session.overview.session_id,
            page.viewer.name,
            name,
            type(error).__name__,
            error,
        )
        return name

    async def _approve(self, page: PageRequest, session: SessionView, form: Form) -> str:
        call_id, decision = _require(form, "call_id"), _require(form, "decision")
        if decision not in {"approve", "deny"}:
            raise InvalidRequestError("decision: approve or deny expected")
        approval = ToolApproval(
            approval_id=call_id, approved=decision == "approve", reason=form.get("reason") or None
        )
        refused = await self._refuse_decision(page, session, call_id, form.get("run_id"))
        if refused is not None:
            return refused
        handle = self._client.session(session.overview.session_id)
        reply = await handle.submit_approval(approval)
        if reply.status != "submitted":
            return await self._name_reply(page, session, call_id, reply)
        return "approved" if approval.approved else "denied"

    async def _answer(self, page: PageRequest, session: SessionView, form: Form) -> str:
        call_id = _require(form, "call_id")
        refused = await self._refuse_decision(page, session, call_id, form.get("run_id"))
        if refused is not None:
            return refused
        handle = self._client.session(session.overview.session_id)
        reply = await handle.submit_tool_result(call_id, read_result(form.get("result", "")))
        return (
            "answered"
            if reply.status == "submitted"
            else await self._name_reply(page, session, call_id, reply)
        )

    async def _stop(self, page: PageRequest, session: SessionView, form: Form) -> str:  # noqa: ARG002
        run_id, mode = _require(form, "run_id"), form.get("mode", "interrupt")
        if mode not in {"interrupt", "abort"}:
            raise InvalidRequestError("mode: interrupt or abort expected")
        handle = self._client.session(session.overview.session_id)
        stopping = await handle.stop(abort=mode == "abort", run_id=run_id)
        if not stopping:
            return "not-running"
        return "aborting" if mode == "abort" else "stopping"

    async def _name_reply(
        self, page: PageRequest, session: SessionView, call_id: str, reply: SubmitReply
    ) -> str:
        if reply.status == "already_completed":
            return await self._tell_end(page, session, call_id, unknown="already")
        return "expired" if reply.status == "expired" else "not-waiting"

    async def _refuse_decision(
        self, page: PageRequest, session: SessionView, call_id: str, run_id: str | None
    ) -> str | None:
        """The outcome where nothing is sent, as the call of the page does not wait any more."""
        if decided_on_another(session, call_id, run_id):
            return "not-waiting"
        if is_waiting(session, call_id):
            return None
        return "store-away" if session.problem else await self._tell_end(page, session, call_id)

    async def _tell_end(
        self, page: PageRequest, session: SessionView, call_id: str, unknown: str = "not-waiting"
    ) -> str:
        """What became of a call that does not wait any more, by its result in the thread."""
        newest = await page.views.read_turns(session.overview.session_id, limit=_TURNS)
        call = find_call_that_waited(newest.turns, call_id)
        return unknown if call is None else name_end(call)


def find_call_that_waited(turns: Iterable[ConversationTurn], call_id: str) -> ConversationCall | None:
    """The call that waited under this id."""
    messages = (message for turn in turns for message in turn.messages)
    calls = ((message, call) for message in messages for call in message.calls)
    for message, call in calls:
        if find_waiting_call({call_id: call}, message.message_id, call.call_id, call.at) is not None:
            return call
    return None


def name_end(call: ConversationCall) -> str:
    """Which outcome it is that a call does not wait any more."""
    if call.status == "failed" and (call.error or "").startswith((INTERRUPTED, WENT_ON)):
        return "unanswered"
    return _FIRST.get(call.status, "already")


def is_waiting(session: SessionView, call_id: str) -> bool:
    """Whether the stores say that the call waits; an answer to another one would start an ended session."""
    return any(each.call_id == call_id for each in session.waiting)


def decided_on_another(session: SessionView, call_id: str, run_id: str | None) -> bool:
    """Whether the call waits in another run than that of the page it was decided on."""
    return any(
        each.call_id == call_id and run_id and each.run_id not in {None, run_id} for each in session.waiting
    )


def read_result(text: str) -> JsonValue:
    """A result as typed: JSON if it is an object, a list or a quoted text, else the text itself.

    Raises:
        InvalidRequestError: It is nested deeper than it can be read.
    """
    if text.lstrip()[:1] in {"{", "[", '"'}:
        try:
            found: JsonValue = json.loads(text)
        except ValueError:
            return text
        except RecursionError:
            raise InvalidRequestError("result: nested too deeply to be read; send it flatter") from None
        return found
    return text


def name_error(error: Exception, action: Action) -> str:
    """Which outcome an error is: what is not there any more is the turn of a stop, and else the call."""
    if isinstance(error, NotFoundError):
        return "not-running" if action == "stop" else "not-waiting"
    if isinstance(error, UnknownEncodingError):
        # What is answered is read first; a stop is sent first, and only its reply is unread.
        return "no-codec-stop" if action == "stop" else "no-codec"
    return next((name for kinds, name in _ERRORS if isinstance(error, kinds)), "temporal-away")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, the last of each name.

    Raises:
        HTTPException: 408, 413, 415: it is late, too large, or no form.
    """
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415)
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            data = await _read_body(request)
    except TimeoutError:
        raise HTTPException(408, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400) from None
    try:
        return dict(parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=20, errors="strict"))
    except ValueError:
        raise HTTPException(400) from None


async def _read_body(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_FORM:
            raise HTTPException(413)
    return bytes(data)


def _require(form: Form, name: str) -> str:
    if not form.get(name):
        raise InvalidRequestError(f"{name}: missing; send the form of the page as it is")
    return form[name]
