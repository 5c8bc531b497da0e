"""Which checkpoints of a session's state its thread still reaches, and going back to one."""

from helix_temporal.errors import CheckpointNotFoundError
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.sessions import ForkFrom
from helix_temporal.models.states import SessionState
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.session.projection import BEFORE_FIRST_TURN
from helix_temporal.session.record import SessionRecord, find_request_behind
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadStore
from helix_temporal.stores.threads.hot_only import made_as


async def restore_requested_checkpoint(
    store: SessionStore, request: OpenSessionInput, header: HotHeader, record: SessionRecord
) -> bool:
    """Go back to the checkpoint that was asked for, by this open or by one that cut the thread and died.

    Returns:
        Whether there is such a checkpoint.

    Raises:
        CheckpointNotFoundError: The one that this open names was removed meanwhile.
    """
    asked = find_request_behind(record, header)
    checkpoint_id = request.checkpoint or (asked.checkpoint if asked is not None else None)
    if checkpoint_id is None:
        return False
    first = header.epoch if asked is None else asked.epoch
    try:
        await restore_checkpoint_once(store, request.session_id, checkpoint_id, header.epoch, first=first)
    except CheckpointNotFoundError:
        if request.checkpoint is not None:
            raise
        return False
    return True


async def restore_checkpoint_once(
    store: SessionStore, session_id: str, checkpoint_id: str, epoch: int, *, first: int | None = None
) -> None:
    """Restore a checkpoint, once for the open of epoch ``first`` (this one) and those that finish it."""
    await store.restore_checkpoint(
        session_id, checkpoint_id, epoch=epoch, operation_id=f"back/{first or epoch}"
    )


async def latest_reachable_checkpoint(
    store: SessionStore, threads: ThreadStore, session_id: str, header: HotHeader
) -> CheckpointMeta | None:
    """The newest checkpoint whose head is among the thread's finished turns."""
    cursor = None
    while True:
        page = await store.list_checkpoints(session_id, limit=MAX_LIMIT, cursor=cursor)
        for each in page.items:
            reached = each.superseded_by is None and each.head.position <= header.committed
            if reached and await has_head(threads, header.thread_id, each.head, epoch=header.epoch):
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
    found = await latest_reachable_checkpoint(store, threads, origin.thread_id, header)
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


async def has_head(threads: ThreadStore, thread_id: str, head: Head, *, epoch: int | None = None) -> bool:
    """Whether the thread has the head's message at its place; ``epoch`` as in `ReadPage`."""
    if head.position == 0:
        return True
    page = await threads.read(ReadPage.of_message(thread_id, head.position - 1, epoch=epoch))
    return bool(page.messages) and page.messages[0].id == head.last_id


async def find_committed_head(threads: ThreadStore, thread: HotHeader | ThreadFacts) -> Head:
    """Where the finished turns of a thread end."""
    committed = thread.committed
    if thread.head.position == committed:
        return thread.head
    if committed == 0:
        return EMPTY
    page = await threads.read(ReadPage.of_message(thread.thread_id, committed - 1, epoch=thread.epoch))
    return Head(position=committed, last_id=page.messages[0].id) if page.messages else EMPTY
