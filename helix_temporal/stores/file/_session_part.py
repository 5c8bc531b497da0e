"""A session as a part of a document, and back: pure.

The part's header holds what lists and sweeps ask for.  Its body is the state's bytes, one line of JSON
that names the records in order, and the records' bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from pydantic import ValidationError

from helix_temporal.errors import StoreCorruptError
from helix_temporal.models.base import dumps
from helix_temporal.models.states import SessionState
from helix_temporal.stores.file._format import Facts, Part, Parts
from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    SessionRecord,
    SessionRow,
)
from helix_temporal.stores.sessions.operations import NOTHING, HeldSession

SESSION: Final = "session"
"""Name of the part."""

_LISTED: Final = frozenset(
    {
        "session_id",
        "agent_type",
        "user_id",
        "status",
        "version",
        "step_count",
        "tags",
        "parent_session_id",
        "expires_at",
        "cleanup_pending",
        "created_at",
        "updated_at",
    }
)


@dataclass(frozen=True, slots=True)
class ListedRow(SessionRow):
    """A session as a list knows it: the fields that can be asked for, and no bytes."""

    due: int | None = None

    @property
    def due_at(self) -> int | None:
        """See `SessionRow.due_at`."""
        return self.due


def session_part(held: HeldSession) -> Part:
    """The part that holds this session; it keeps nothing of the caller's state but what it stores."""
    state = held.row.body if held.row else b""
    records = held.records.values()
    index = dumps([(each.kind.value, each.key, each.group, each.order, len(each.body)) for each in records])
    operations = [each.order for each in records if each.kind is RecordKind.OPERATION]
    row = None if held.row is None else _listed(held.row)
    facts = {
        "revision": held.revision,
        "max_epoch": held.max_epoch,
        "row": row,
        "state_size": len(state),
        "index_size": len(index),
        "oldest_operation": min(operations, default=None),
    }
    body = b"".join((state, index, *(each.body for each in records)))
    return Part(facts, body, replace(held, row=_row(row, state)))


def session_in(parts: Parts, session_id: str) -> HeldSession:
    """The session of a document; nothing ever written if there is none.

    Raises:
        StoreCorruptError: The part's checksum holds, yet it is no session.
    """
    if (part := parts.get(SESSION)) is None:
        return NOTHING
    if not isinstance(part.value, HeldSession):
        try:
            part.value = _decode(part)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(session_id, error) from error
    return part.value


def listed_row(facts: Facts, session_id: str) -> ListedRow | None:
    """What a list knows of a session by its part's header, None if it was deleted.

    Raises:
        StoreCorruptError: The header is not one of ours.
    """
    try:
        return _row(facts["row"], b"")
    except (KeyError, TypeError, ValidationError) as error:
        raise damaged(session_id, error) from error


def damaged(session_id: str, error: Exception) -> StoreCorruptError:
    """The error for a document that is whole and makes no sense."""
    return StoreCorruptError(
        f"session {session_id!r}: its document is whole but holds no session "
        f"({type(error).__name__}); restore it from a backup or move it away",
        session_id=session_id,
    )


def _listed(row: SessionRow) -> dict[str, Any]:
    state = row.state
    shown = state.model_dump(mode="json", include=set(_LISTED))
    # Filters compare text values only.
    metadata = {key: value for key, value in state.metadata.items() if isinstance(value, str)}
    return {**shown, "metadata": metadata, "due_at": row.due_at}


def _row(shown: Mapping[str, Any] | None, body: bytes) -> ListedRow | None:
    if shown is None:
        return None
    fields = dict(shown)
    due = fields.pop("due_at")
    return ListedRow(SessionState.model_validate(fields), body, due)


def _decode(part: Part) -> HeldSession:
    facts, body = part.header, part.body
    start = facts["state_size"]
    at = start + facts["index_size"]
    records: dict[RecordKey, SessionRecord] = {}
    for kind, key, group, order, size in orjson.loads(body[start:at]):
        record = SessionRecord(RecordKind(kind), key, body[at : at + size], group, order)
        records[record.name] = record
        at += size
    row = _row(facts["row"], body[:start])
    return HeldSession(facts["revision"], facts["max_epoch"], row, records)
