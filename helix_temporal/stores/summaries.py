"""What SQL stores keep of a session for lists beside its state: bytes with a checksum, as the state."""

import logging
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from helix_temporal.errors import HelixError
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import SessionQuery, SessionSummary
from helix_temporal.stores.checksums import verify_checksum, with_checksum

logger = logging.getLogger(__name__)


def encode_summary(state: SessionState) -> bytes:
    """A session's summary as it is stored."""
    return with_checksum(SessionSummary.bytes_of(state), state.session_id, "summary")


def decode_summaries(rows: Sequence[Any], query: SessionQuery, place: str) -> tuple[SessionSummary, ...]:
    """What a list shows; a damaged session is named in the log, and keeps no other from the list.

    A row has ``session_id``, ``shown`` (the summary, or the state that it is part of) and ``whole``:
    whether that is the state.
    """
    found: list[SessionSummary] = []
    for row in rows:
        session_id, what = row["session_id"], "state" if row["whole"] else "summary"
        where = f"the {what} of session {session_id!r} in {place}"
        try:
            body = verify_checksum(row["shown"], where, session_id, what)
            found.append(SessionSummary.of_bytes(body, query.include))
        except (HelixError, ValidationError) as error:
            logger.warning("session %r is left out of a list: %s", session_id, error)
    return tuple(found)
