"""Pure: references to sub-sessions."""

from collections.abc import Sequence

from helix_temporal.errors import RemoteClientToolUnsupportedError, SessionNotFoundError
from helix_temporal.models.states import SessionStatus, SubSessionRef
from helix_temporal.stores.protocols.session_records import RecordKey, RecordKind, SessionRecord, Wanted
from helix_temporal.stores.sessions._codec import decode, encode
from helix_temporal.stores.sessions._decisions import Decision, Seen


def wanted(names: Sequence[str]) -> Wanted:
    """What adding or changing these children looks at."""
    keys = tuple(RecordKey(RecordKind.REF, name) for name in names)
    return Wanted(keys=keys, newest=(RecordKind.REF,))


def add(seen: Seen, refs: Sequence[SubSessionRef]) -> Decision[None]:
    """See `RunStore.add_sub_session_refs`: new ones after all others, known ones in their old place."""
    _ = seen.present
    place = max((each.order for each in seen.view.all(RecordKind.REF)), default=0)
    puts: dict[str, SessionRecord] = {}
    for ref in refs:
        before = seen.view.find(RecordKind.REF, ref.sub_session_id) or puts.get(ref.sub_session_id)
        if before is None:
            place += 1
        since = decode(SubSessionRef, before.body, "child").created_at if before else seen.now
        stamped = ref.model_copy(
            update={"created_at": ref.created_at or since, "updated_at": ref.updated_at or seen.now}
        )
        puts[ref.sub_session_id] = _record(stamped, before.order if before else place)
    return Decision(None, puts=tuple(puts.values()))


def set_status(seen: Seen, name: str, status: SessionStatus) -> Decision[SubSessionRef]:
    """See `RunStore.update_sub_session_ref`."""
    _ = seen.present
    before = seen.view.find(RecordKind.REF, name)
    if before is None:
        raise SessionNotFoundError(
            f"session {seen.session_id!r} has no sub-session {name!r}", session_id=seen.session_id, child=name
        )
    ref = ref_of(before)
    if ref.status is status:
        return Decision(ref)
    after = ref.model_copy(update={"status": status, "updated_at": max(seen.now, ref.updated_at)})
    return Decision(after, puts=(_record(after, before.order),))


def remove(seen: Seen, name: str) -> Decision[bool]:
    """See `RunStore.remove_sub_session_ref`."""
    _ = seen.present
    if seen.view.find(RecordKind.REF, name) is None:
        return Decision(False)
    return Decision(True, removes=(RecordKey(RecordKind.REF, name),))


def check_here(seen: Seen, name: str) -> None:
    """Refuse what can't be handed to a child that runs elsewhere.

    Raises:
        RemoteClientToolUnsupportedError: The child is such a one.
    """
    found = seen.view.find(RecordKind.REF, name)
    remote = None if found is None else ref_of(found).remote
    if remote is not None:
        raise RemoteClientToolUnsupportedError(
            f"session {seen.session_id!r}: sub-session {name!r} runs elsewhere, at {remote.endpoint_id!r}; "
            "its calls are answered there, or must be of tools that it executes itself",
            session_id=seen.session_id,
            child=name,
        )


def ref_of(record: SessionRecord) -> SubSessionRef:
    """A child as it was added."""
    return decode(SubSessionRef, record.body, "child")


def _record(ref: SubSessionRef, order: int) -> SessionRecord:
    return SessionRecord(RecordKind.REF, ref.sub_session_id, encode(ref, "child"), order=order)
