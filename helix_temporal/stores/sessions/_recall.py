"""What a store knows of a session that it has just written, so that the next commit need not look first.

The revision is the judge, as it is after a look: a commit that is decided on this happens only if nobody
has written the session since.  Whatever else comes of it (a refusal, nothing to write) is decided again
on a look.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.stores.protocols.session_records import RecordKind, SessionRow, Wanted
from helix_temporal.stores.sessions._decisions import Decision, Seen

MAX_BYTES: Final = 64 * 1024
"""Of one session's state and records; larger ones are looked at."""
_SESSIONS: Final = 256


@dataclass(frozen=True, slots=True)
class _Known:
    seen: Seen
    covers: Wanted
    at: float


class Recall:
    """The newest sessions that were written, each until it is wanted once."""

    def __init__(self, limit: int = _SESSIONS) -> None:
        self._limit = limit
        self._known: dict[str, _Known] = {}

    def keep(
        self, seen: Seen, covers: Wanted, decision: Decision[Any], row: SessionRow, revision: int, fence: int
    ) -> None:
        """Remember a session after a commit that was decided on ``seen``, which ``covers`` was asked for."""
        if decision.removes or decision.clears or decision.deletes:
            return
        records = {each.name: each for each in (*seen.view.records, *decision.puts)}
        if len(row.body) + sum(len(each.body) for each in records.values()) > MAX_BYTES:
            return
        view = replace(
            seen.view,
            revision=revision,
            max_epoch=fence,
            state=row.body,
            records=tuple(records.values()),
            thread=None,
        )
        known = _Known(Seen(seen.session_id, view, row.state), covers, time.monotonic())
        self._known[seen.session_id] = known
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]

    def take(self, session_id: str, wanted: Wanted) -> Seen | None:
        """The session as it was written, if all that is wanted is known; it is forgotten then."""
        known = self._known.pop(session_id, None)
        if known is None or not _covered(wanted, known.covers):
            return None
        passed = int((time.monotonic() - known.at) * 1000)
        return replace(known.seen, view=replace(known.seen.view, now=known.seen.view.now + passed))


def _covered(wanted: Wanted, covers: Wanted) -> bool:
    keys, groups = set(covers.keys), set(covers.groups)
    return (
        not wanted.thread
        and all(name in keys or (name.kind, name.group) in groups for name in wanted.keys)
        and groups.issuperset(wanted.groups)
        and set(covers.newest).issuperset(wanted.newest)
    )


def ahead(wanted: Wanted, step_id: str) -> Wanted:
    """The same with what a commit of the step will want."""
    groups = ((RecordKind.STEP, step_id), (RecordKind.STAGED, step_id))
    return replace(wanted, groups=(*wanted.groups, *groups), newest=(*wanted.newest, RecordKind.CHECKPOINT))
