"""Pages and cursors: places in an order, and edges that never part a tool call from its results."""

import base64
import binascii
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from helix_temporal.errors import InvalidCursorError, InvalidMessageError, InvalidRequestError
from helix_temporal.models.base import check_text, dump_json
from helix_temporal.models.foreign_rows import is_foreign
from helix_temporal.models.stored_messages import Head, Kind, StoredMessage, size_of
from helix_temporal.models.turns import is_step_border
from helix_temporal.stores.protocols.hot import PageRange
from helix_temporal.stores.protocols.threads import ReadPage, ThreadPage

MAX_MESSAGES: Final = 10_000
MAX_PAGE_BYTES: Final = 64 * 1024 * 1024
_EXTRA: Final = 32
"""Messages read at a time while looking for the other half of a tool call.

A message of ours tells by its kind whether there may be one.  Next to a foreign row it is always looked for:
one that is neither may stand between a call and its result.
"""

Stretch = tuple[int, tuple[StoredMessage, ...]]
"""Messages that follow each other, and the position of the first."""
Fetch = Callable[[int, int, int, int, bool], Awaitable[Stretch]]
"""Reads a stretch: start, stop, number of messages, bytes, and whether from its end."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The positions a page may show."""

    start: int
    stop: int
    end: int
    """One past the last position that this reader may see."""

    @staticmethod
    def of(request: ReadPage, head: int, committed: int) -> "Bounds":
        """What is asked, within what is there."""
        end = committed if request.committed_only else head
        stop = end if request.stop is None else min(request.stop, end)
        return Bounds(min(request.start, stop), stop, end)


def check_page(request: ReadPage) -> None:
    """Refuse ranges and limits that make no sense.

    Raises:
        InvalidRequestError: Which one, and what is allowed.
    """
    if request.start < 0 or (request.stop is not None and request.stop < request.start):
        raise InvalidRequestError(
            f"range {request.start}–{request.stop}: start must be at least 0 and not above stop"
        )
    if not 1 <= request.limit <= MAX_MESSAGES:
        raise InvalidRequestError(f"limit {request.limit}: from 1 to {MAX_MESSAGES} allowed")
    if not 1 <= request.max_bytes <= MAX_PAGE_BYTES:
        raise InvalidRequestError(f"max_bytes {request.max_bytes}: from 1 to {MAX_PAGE_BYTES} allowed")


def trim_page(
    first: int, messages: Sequence[StoredMessage], wanted: PageRange
) -> tuple[int, tuple[StoredMessage, ...]]:
    """The messages that fit the limits, from the asked side, at least one."""
    size = count = 0
    for message in reversed(messages) if wanted.backward else messages:
        size += size_of((message,))
        if count == wanted.limit or (count and size > wanted.max_bytes):
            break
        count += 1
    if wanted.backward:
        return first + len(messages) - count, tuple(messages[len(messages) - count :])
    return first, tuple(messages[:count])


async def finish_page(
    request: ReadPage,
    bounds: Bounds,
    fetch: Fetch,
    head: Head,
    committed: int,
    found: Stretch | None = None,
) -> ThreadPage:
    """Read a page and, unless told otherwise, whole steps at both ends of what it gives.

    ``found`` is the page without that, if it has been read.
    """
    first, messages = found or await fetch(
        bounds.start, bounds.stop, request.limit, request.max_bytes, request.backward
    )
    if request.whole and messages:
        if request.backward:
            first, messages = await _extend_back(first, messages, fetch)
        else:
            messages = await _extend_on(first, messages, bounds.end, fetch)
    last = first + len(messages)
    return ThreadPage(
        first=first,
        messages=messages,
        before=first if first > 0 and messages else None,
        after=last if last < bounds.end and messages else None,
        head=head,
        committed=committed,
    )


async def _extend_back(
    first: int, messages: tuple[StoredMessage, ...], fetch: Fetch
) -> tuple[int, tuple[StoredMessage, ...]]:
    while first > 0 and (messages[0].kind == Kind.RESULT or is_foreign(messages[0])):
        start = max(0, first - _EXTRA)
        _, more = await fetch(start, first, _EXTRA, MAX_PAGE_BYTES, True)
        kinds = [message.kind for message in (*more, messages[0])]
        cut = next((at for at in range(len(more), 0, -1) if is_step_border(kinds[at - 1], kinds[at])), 0)
        first, messages = first - (len(more) - cut), (*more[cut:], *messages)
        if cut or not more:
            break
    return first, messages


async def _extend_on(
    first: int, messages: tuple[StoredMessage, ...], end: int, fetch: Fetch
) -> tuple[StoredMessage, ...]:
    while first + len(messages) < end and (
        messages[-1].kind in {Kind.CALLS, Kind.RESULT} or is_foreign(messages[-1])
    ):
        at = first + len(messages)
        _, more = await fetch(at, min(end, at + _EXTRA), _EXTRA, MAX_PAGE_BYTES, False)
        kinds = [message.kind for message in (messages[-1], *more)]
        borders = (at for at in range(len(more)) if is_step_border(kinds[at], kinds[at + 1]))
        rest = next(borders, len(more))
        messages = (*messages, *more[:rest])
        if rest < len(more) or not more:
            break
    return messages


_MOST: Final = 4096
_NO_CURSOR: Final = (
    "cursor: not one that this store gave out; pass next_cursor of the page before, unchanged and with the"
    " same filter, or begin without a cursor"
)


def encode_cursor(scope: str, order: int, key: str) -> str:
    """A cursor that goes on beyond (order, key) of a list; ``scope`` names the list and its order."""
    return base64.urlsafe_b64encode(dump_json([scope, order, key])).decode().rstrip("=")


def decode_cursor(scope: str, cursor: str) -> tuple[int, str]:
    """Where to go on.

    Raises:
        InvalidCursorError: It is no cursor, or one of another list or order.
    """
    if len(cursor) > _MOST:
        raise InvalidCursorError(_NO_CURSOR)
    try:
        found = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        raise InvalidCursorError(_NO_CURSOR) from None
    match found:
        case [str() as made_for, int() as order, str() as key] if not isinstance(order, bool):
            if made_for != scope:
                raise InvalidCursorError("cursor: it belongs to another list or order; start that one anew")
            if not -(2**63) <= order < 2**63:
                raise InvalidCursorError(_NO_CURSOR)
            with contextlib.suppress(InvalidMessageError):
                check_text(key, "cursor")
                return order, key
    raise InvalidCursorError(_NO_CURSOR)
