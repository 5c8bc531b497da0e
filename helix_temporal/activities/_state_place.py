"""Where a session's state may stand: heads and checkpoints that its thread still holds."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.queries import MAX_LIMIT
from helix_temporal.models.records import EMPTY, Head
from helix_temporal.models.sessions import ForkFrom
from helix_temporal.models.states import SessionState
from helix_temporal.stores._forks import made_as
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore

BEFORE_FIRST_TURN: Final[Mapping[str, Any]] = MappingProxyType(
    {"custom_state": {}, "output": None, "error": None, "step_count": 0}
)
"""What a state says that turns change, where the thread has none."""


async def held_checkpoint(
    store: SessionStore, threads: ThreadStore, session_id: str, header: HotHeader
) -> CheckpointMeta | None:
    """The newest checkpoint whose head is among the thread's finished turns."""
    cursor = None
    while True:
        page = await store.list_checkpoints(session_id, limit=MAX_LIMIT, cursor=cursor)
        for each in page.items:
            reached = each.superseded_by is None and each.head.position <= header.committed
            if reached and await holds(threads, header.thread_id, each.head):
                return each
        if page.next_cursor is None:
            return None
        cursor = page.next_cursor


async def state_at(
    store: SessionStore, threads: ThreadStore, origin: ForkFrom, header: HotHeader
) -> SessionState | None:
    """The state of a session that is forked as it was where the fork, ``header``, ends.

    It is that of the newest checkpoint that the fork holds, the present one where no checkpoint tells,
    and at the beginning one that no turn has changed.
    """
    present = await store.load_state(origin.thread_id)
    if present is None or origin.at is None or origin.at >= present.head.position:
        return present
    if origin.at == 0:
        return present.model_copy(update=BEFORE_FIRST_TURN)
    found = await held_checkpoint(store, threads, origin.thread_id, header)
    if found is None:
        return present
    checkpoint = await store.get_checkpoint(origin.thread_id, found.id)
    return present if checkpoint is None else checkpoint.state


async def forked_state(store: SessionStore, threads: ThreadStore, header: HotHeader) -> SessionState | None:
    """The state for a thread that was forked before there was a session, unless it has gone on since."""
    made = made_as(header.origin)
    if made is None or made.head != header.head:
        return None
    origin = ForkFrom(thread_id=made.source_id, at=made.head.position)
    return await state_at(store, threads, origin, header)


async def holds(threads: ThreadStore, thread_id: str, head: Head) -> bool:
    """Whether the thread has the head's message at its place."""
    if head.position == 0:
        return True
    at = head.position - 1
    page = await threads.read(
        ReadPage(thread_id, at, head.position, limit=1, committed_only=False, whole=False)
    )
    return bool(page.records) and page.records[0].id == head.last_id


async def finished(threads: ThreadStore, thread_id: str, head: Head, committed: int) -> Head:
    """Where the finished turns of a thread end, which stands at ``head``."""
    if head.position == committed:
        return head
    if committed == 0:
        return EMPTY
    page = await threads.read(
        ReadPage(thread_id, committed - 1, committed, limit=1, committed_only=False, whole=False)
    )
    return Head(position=committed, last_id=page.records[0].id) if page.records else EMPTY
