"""A thread as a part of a document, and back: pure.

The header's fields are the part's header, but for the slice, whose bytes come first in the body; after
them the packed records.
"""

from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from helix_temporal.errors import ArchiveCorruptError, StoreCorruptError, UnsupportedFormatError
from helix_temporal.models.records import pack, unpack
from helix_temporal.models.states import is_past
from helix_temporal.stores.file._format import Facts, Part, Parts
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.threads.operations import HeldThread

THREAD: Final = "thread"
"""Name of the part."""

_HEADER: Final = TypeAdapter(HotHeader)
_FIELDS: Final = frozenset(HotHeader.__dataclass_fields__)


def thread_part(thread: HeldThread) -> Part:
    """The part that holds this thread."""
    header = {name: _plain(getattr(thread.header, name)) for name in _FIELDS - {"slice"}}
    facts = {"header": header, "slice_size": len(thread.header.slice), "expires_at": thread.expires_at}
    return Part(facts, thread.header.slice + pack(thread.records), thread)


def thread_in(parts: Parts, now: float) -> HeldThread | None:
    """The thread of a document, None if there is none or it has expired.

    Raises:
        StoreCorruptError: The part's checksum holds, yet it is no thread.
        UnsupportedFormatError: It has fields that this version does not know.
    """
    if (part := parts.get(THREAD)) is None or expired(part.header, now):
        return None
    if not isinstance(part.value, HeldThread):
        part.value = _decode(part)
    return part.value


def expired(facts: Facts, now: float) -> bool:
    """Whether a thread with this part's header counts as gone."""
    return is_past(facts.get("expires_at"), now)


def _plain(value: Any) -> Any:
    return value.model_dump() if hasattr(value, "model_dump") else value


def _decode(part: Part) -> HeldThread:
    facts = part.header
    if unknown := set(facts.get("header", ())) - _FIELDS:
        raise UnsupportedFormatError(
            f"a thread's file has fields {sorted(unknown)} that this version does not know; "
            "upgrade helix_temporal"
        )
    try:
        size = facts["slice_size"]
        header = _HEADER.validate_python({**facts["header"], "slice": part.body[:size]})
        records = tuple(unpack(part.body[size:]))
    except (KeyError, TypeError, ValidationError, ArchiveCorruptError) as error:
        raise StoreCorruptError(
            f"a thread's file is whole but holds no thread ({type(error).__name__}); move it away"
        ) from error
    return HeldThread(header, records, facts.get("expires_at"))
