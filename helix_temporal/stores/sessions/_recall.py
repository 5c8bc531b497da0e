"""What a store knows of a session that it has just written, so that the next commit need not look first.

The revision is the judge, as it is after a look: a commit that is decided on this happens only if nobody
has written the session since.  Whatever else comes of it (a refusal, nothing to write) is decided again
on a look.
"""

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from helix_temporal.models.records import Head
from helix_temporal.stores.protocols.session_records import RecordKind, SessionRecord, SessionRow, Wanted
from helix_temporal.stores.sessions._decisions import Decision, Seen

MAX_BYTES: Final = 64 * 1024
"""Of one session's state and records; larger ones are looked at."""
_SESSIONS: Final = 256
_NEW_FOR: Final = 60.0
"""Seconds for which what is not known may be taken for new: the store's clock is the one of the last look."""

_NOTHING: Final = Wanted()


@dataclass(frozen=True, slots=True)
class Recalled:
    """A session as it was written.

    Attributes:
        covers: What was asked for when it was seen; all of that is known.
        unless: Keys and groups that are not known, and taken for not there: the commit must not happen
            where one is.
    """

    seen: Seen
    covers: Wanted
    unless: Wanted


class Recall:
    """The newest sessions that were written, each until it is wanted once."""

    def __init__(self, limit: int = _SESSIONS) -> None:
        self._limit = limit
        self._known: dict[str, tuple[Recalled, float]] = {}

    def keep(
        self, seen: Seen, covers: Wanted, decision: Decision[Any], row: SessionRow, revision: int, fence: int
    ) -> None:
        """Remember a session after a commit that was decided on ``seen``, which ``covers`` was asked for."""
        taken = {name.kind for name in decision.removes} | {kind for kind, _ in decision.clears}
        if decision.deletes or taken & set(covers.newest):
            # Of a kind of which some are gone, nobody here knows the newest one.
            return
        records = _covered_by(covers, _after(seen, decision))
        if len(row.body) + sum(len(each.body) for each in records) > MAX_BYTES:
            return
        view = replace(
            seen.view, revision=revision, max_epoch=fence, state=row.body, records=records, thread=None
        )
        recalled = Recalled(Seen(seen.session_id, view, row.state), covers, _NOTHING)
        self._known[seen.session_id] = recalled, time.monotonic()
        if len(self._known) > self._limit:
            del self._known[next(iter(self._known))]

    def take(self, session_id: str, wanted: Wanted, new_at: Head | None = None) -> Recalled | None:
        """The session as it was written, if all that is wanted is known; it is forgotten then.

        With ``new_at`` what is not known may pass for new, where the session was left at that head of its
        thread: whoever comes from there comes after this process's own commit.
        """
        recalled, at = self._known.pop(session_id, (None, 0.0))
        unknown = None if recalled is None else _unknown(wanted, recalled.covers)
        if recalled is None or unknown is None:
            return None
        passed, seen, covers = time.monotonic() - at, recalled.seen, recalled.covers
        if unknown != _NOTHING:
            if seen.present.head != new_at or passed > _NEW_FOR:
                return None
            covers = wanted
        view = replace(seen.view, now=seen.view.now + int(passed * 1000))
        return Recalled(replace(seen, view=view), covers, unknown)


def _after(seen: Seen, decision: Decision[Any]) -> list[SessionRecord]:
    removed, cleared = set(decision.removes), set(decision.clears)
    left = [
        each
        for each in seen.view.records
        if each.name not in removed and (each.kind, each.group) not in cleared
    ]
    return list({each.name: each for each in (*left, *decision.puts)}.values())


def _covered_by(covers: Wanted, records: list[SessionRecord]) -> tuple[SessionRecord, ...]:
    keys, groups = set(covers.keys), set(covers.groups)
    found = [each for each in records if each.name in keys or (each.kind, each.group) in groups]
    for kind in covers.newest:
        of_kind = [each for each in records if each.kind is kind]
        found += sorted(of_kind, key=lambda each: (each.order, each.key))[-1:]
    return tuple({each.name: each for each in found}.values())


def _unknown(wanted: Wanted, covers: Wanted) -> Wanted | None:
    """Keys and groups that are wanted and not covered; None if something else is."""
    if wanted.thread or not set(covers.newest).issuperset(wanted.newest):
        return None
    keys, groups = set(covers.keys), set(covers.groups)
    return Wanted(
        keys=tuple(
            name for name in wanted.keys if name not in keys and (name.kind, name.group) not in groups
        ),
        groups=tuple(each for each in wanted.groups if each not in groups),
    )


def ahead(wanted: Wanted, step_id: str) -> Wanted:
    """The same with what a commit of the step will want."""
    groups = ((RecordKind.STEP, step_id), (RecordKind.STAGED, step_id))
    return replace(wanted, groups=(*wanted.groups, *groups), newest=(*wanted.newest, RecordKind.CHECKPOINT))
