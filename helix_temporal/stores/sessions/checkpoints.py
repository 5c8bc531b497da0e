"""Checkpoints: found, gone back to, and pruned."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from helix_temporal.errors import (
    CheckpointNotFoundError,
    InvalidRequestError,
    StoreUnavailableError,
    ThreadBehindStateError,
)
from helix_temporal.models.checkpoints import Checkpoint, CheckpointMeta
from helix_temporal.models.messages import decode_message
from helix_temporal.models.states import SessionState
from helix_temporal.models.store_calls import DEFAULT_LIMIT, Page, SessionSnapshot
from helix_temporal.models.stored_messages import Head, StoredMessage, head_after
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionRow,
    WantedRows,
)
from helix_temporal.stores.sessions import threads
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_count, checked_text, checked_version
from helix_temporal.stores.sessions.decisions import (
    Call,
    Decision,
    SeenSession,
    checkpoint_row,
    checkpoint_state_row,
    decode_model,
    next_version,
)
from helix_temporal.stores.sessions.life import check_version
from helix_temporal.stores.sessions.loop import encode_state
from helix_temporal.stores.sessions.messages import get_message_count
from helix_temporal.stores.sessions.threads import ThreadOrder


def checkpoint_keys(checkpoint_id: str) -> tuple[RowKey, RowKey]:
    """The rows of one checkpoint."""
    return (
        RowKey(RowKind.CHECKPOINT, checkpoint_id),
        RowKey(RowKind.CHECKPOINT_STATE, checkpoint_id),
    )


def checkpoint_meta_of(row: SessionRow) -> CheckpointMeta:
    """A checkpoint without its state."""
    return decode_model(CheckpointMeta, row.body, "checkpoint")


def find_checkpoint(seen: SeenSession, checkpoint_id: str) -> Checkpoint | None:
    """A checkpoint that was wanted."""
    meta = seen.view.find_row(RowKind.CHECKPOINT, checkpoint_id)
    state = seen.view.find_row(RowKind.CHECKPOINT_STATE, checkpoint_id)
    if meta is None or state is None:
        return None
    return Checkpoint(
        **dict(checkpoint_meta_of(meta)),
        state=decode_model(SessionState, state.body, f"checkpoint {checkpoint_id!r}"),
    )


def require_checkpoint(seen: SeenSession, checkpoint_id: str) -> Checkpoint:
    """A checkpoint that must be there.

    Raises:
        CheckpointNotFoundError: It is not.
    """
    found = find_checkpoint(seen, checkpoint_id)
    if found is None:
        raise CheckpointNotFoundError(
            f"session {seen.session_id!r} has no checkpoint {checkpoint_id!r}",
            session_id=seen.session_id,
            checkpoint_id=checkpoint_id,
        )
    return found


def rows_with_head(checkpoint: Checkpoint, head: Head) -> tuple[SessionRow, SessionRow]:
    """A checkpoint whose messages end elsewhere than it was told."""
    state = checkpoint.state.model_copy(update={"head": head})
    meta = checkpoint.meta().model_copy(update={"head": head})
    return checkpoint_row(meta), checkpoint_state_row(meta, encode_state(state))


def decide_restore(
    seen: SeenSession, checkpoint: Checkpoint, later: Iterable[CheckpointMeta], order: ThreadOrder | None
) -> Decision[SessionState]:
    """See `CheckpointStore.restore_checkpoint`.

    What counts the session's life, rather than says what is in it, does not go back.
    """
    stored = seen.present
    after = next_version(
        checkpoint.state,
        stored,
        seen.now,
        mode=stored.mode or checkpoint.state.mode,
        resume_count=stored.resume_count,
        current_run_id=stored.current_run_id,
        expires_at=stored.expires_at,
        cleanup_pending=stored.cleanup_pending,
    )
    marked = [
        meta.model_copy(update={"superseded_by": checkpoint.id})
        for meta in later
        if meta.superseded_by is None
    ]
    if checkpoint.superseded_by is not None:
        marked.append(checkpoint.meta().model_copy(update={"superseded_by": None}))
    puts = [checkpoint_row(meta) for meta in marked]
    if order is not None:
        puts.append(threads.row_of(order))
    return Decision(after, after, puts=tuple(puts))


def select_to_prune(
    state: SessionState, metas: Sequence[CheckpointMeta], keep_last: int
) -> list[CheckpointMeta]:
    """Which of all checkpoints, oldest first, are not among the newest and not needed for a resumption."""
    old = metas[: max(len(metas) - keep_last, 0)]
    return [meta for meta in old if not _is_needed(state, meta)]


def _is_needed(state: SessionState, meta: CheckpointMeta) -> bool:
    if meta.step_id is None:
        return False
    context = state.suspension_context
    if context is not None and meta.step_id == context.step_id:
        return context.run_id in {None, meta.run_id}
    return meta.step_id == state.suspended_step_id


def decide_prune(metas: Sequence[CheckpointMeta]) -> Decision[int]:
    """Remove these."""
    return Decision(len(metas), removes=tuple(key for meta in metas for key in checkpoint_keys(meta.id)))


_MANY: Final = 500
_MAX_ID: Final = 1024
_TRIES: Final = 20


async def get_checkpoint(store: SessionStoreBase, session_id: str, checkpoint_id: str) -> Checkpoint | None:
    """See `CheckpointStore.get_checkpoint`."""
    checkpoint_id = checked_text(checkpoint_id, "checkpoint id", _MAX_ID)
    seen = await store.view_session(session_id, WantedRows(keys=checkpoint_keys(checkpoint_id)))
    return find_checkpoint(seen, checkpoint_id)


async def get_latest_checkpoint(
    store: SessionStoreBase, session_id: str, *, run_id: str | None = None
) -> Checkpoint | None:
    """See `CheckpointStore.get_latest_checkpoint`."""
    meta = await _find_newest_meta(store, session_id, run_id=run_id)
    return None if meta is None else await get_checkpoint(store, session_id, meta.id)


async def list_checkpoints(
    store: SessionStoreBase,
    session_id: str,
    *,
    limit: int = DEFAULT_LIMIT,
    cursor: str | None = None,
    order: Literal["asc", "desc"] = "desc",
) -> Page[CheckpointMeta]:
    """See `CheckpointStore.list_checkpoints`."""
    if order not in {"asc", "desc"}:
        raise InvalidRequestError("order: asc or desc expected")
    return await store.read_page(
        session_id,
        RowKind.CHECKPOINT,
        checkpoint_meta_of,
        limit=limit,
        cursor=cursor,
        descending=order == "desc",
    )


async def restore_checkpoint(
    store: SessionStoreBase,
    session_id: str,
    checkpoint_id: str,
    *,
    expected_version: int | None = None,
    epoch: int | None = None,
    operation_id: str | None = None,
) -> SessionState:
    """See `CheckpointStore.restore_checkpoint`.

    The state decides, with an order for the thread, which is then cut; a crash between the two is
    finished by a repeat of this call, or by the next one that comes to the messages.  A caller that
    has the thread open under its ``epoch`` cuts it itself: the order would shut it out.
    """
    expected = checked_version(expected_version)
    checkpoint_id = checked_text(checkpoint_id, "checkpoint id", _MAX_ID)
    call = Call("restore_checkpoint", session_id, (checkpoint_id, expected), epoch, operation_id)
    wanted = WantedRows(keys=(*checkpoint_keys(checkpoint_id), *threads.KEYS), thread=store.threads.together)

    async def decide(seen: SeenSession) -> Decision[SessionState] | None:
        state = seen.present
        checkpoint = require_checkpoint(seen, checkpoint_id)
        if await store.threads.carry_out_seen(seen):
            return None
        check_version(state, expected)
        try:
            order = await _order_to_cut(store, seen, checkpoint.head, epoch)
        except ThreadBehindStateError:
            # Another restore may have cut the thread since the look: what counts then is the version.
            if not (await store.view_session(session_id)).view.is_same_as(seen.view):
                return None
            raise
        later = await _list_metas(store, session_id, after=(checkpoint.seq, checkpoint.id))
        return decide_restore(seen, checkpoint, later, order)

    restored = await store.make_change(call, wanted, decide, SessionState)
    if store.threads.here:
        await store.threads.carry_out_pending(session_id)
    return restored


async def prune_checkpoints(
    store: SessionStoreBase, session_id: str, *, keep_last: int, epoch: int | None = None
) -> int:
    """See `CheckpointStore.prune_checkpoints`; ``keep_last`` is 1 or more."""
    if checked_count(keep_last, "keep_last") == 0:
        raise InvalidRequestError("keep_last: 1 or more expected; delete the session instead")
    call = Call("prune_checkpoints", session_id, epoch=epoch)

    async def decide(seen: SeenSession) -> Decision[int]:
        state = seen.present
        old = select_to_prune(state, await _list_metas(store, session_id), keep_last)
        return decide_prune(old[:_MANY])

    total = gone = await store.make_change(call, WantedRows(), decide, int)
    while gone == _MANY:
        gone = await store.make_change(call, WantedRows(), decide, int)
        total += gone
    return total


async def build_snapshot(store: SessionStoreBase, session_id: str) -> SessionSnapshot | None:
    """See `CheckpointStore.build_snapshot`.

    Without a checkpoint of which the thread holds all messages it is the present state, with the
    messages that are there.
    """
    for _ in range(_TRIES):
        count = await get_message_count(store, session_id)
        seen = await store.view_session(session_id)
        if seen.state is None:
            return None
        meta = await _find_newest_meta(store, session_id, live=True)
        checkpoint = None if meta is None else await get_checkpoint(store, session_id, meta.id)
        if checkpoint is not None:
            messages = await _read_up_to(store, session_id, checkpoint.head)
            if messages is not None:
                return _snapshot_of(checkpoint.state, checkpoint, messages)
        messages = await store.threads.read(session_id, 0, count)
        again = await store.view_session(session_id)
        if again.view.is_same_as(seen.view) and again.state is not None:
            return _snapshot_of(again.state, None, messages)
    raise StoreUnavailableError(f"session {session_id!r}: it changed during {_TRIES} attempts to read it")


async def _order_to_cut(
    store: SessionStoreBase, seen: SeenSession, head: Head, epoch: int | None
) -> ThreadOrder | None:
    if not store.threads.here:
        return None
    there = await store.threads.find_standing(seen)
    await store.threads.check_head(seen.session_id, there, head)
    if there is None or there.epoch == epoch:
        return None
    return threads.order_to_cut(there, head, seen.now)


async def _read_up_to(store: SessionStoreBase, session_id: str, head: Head) -> list[StoredMessage] | None:
    """All messages up to a head; None if the thread does not hold it."""
    messages = await store.threads.read(session_id, 0, head.position)
    last = messages[-1].id if messages else ""
    return messages if (len(messages), last) == (head.position, head.last_id) else None


async def _list_metas(
    store: SessionStoreBase, session_id: str, after: tuple[int, str] | None = None
) -> list[CheckpointMeta]:
    """All checkpoints beyond a place; consistent if the session's revision has not moved."""
    metas: list[CheckpointMeta] = []
    while True:
        page = await store.loop.rows.read_page(
            session_id, RowKind.CHECKPOINT, limit=_MANY, after=after, count=False
        )
        metas += [checkpoint_meta_of(each) for each in page.rows]
        if len(page.rows) < _MANY:
            return metas
        after = (page.rows[-1].order, page.rows[-1].key)


async def _find_newest_meta(
    store: SessionStoreBase, session_id: str, *, run_id: str | None = None, live: bool = False
) -> CheckpointMeta | None:
    """The checkpoint committed last: of a run, or not superseded, if that is asked."""
    seen = await store.view_session(session_id, WantedRows(newest=(RowKind.CHECKPOINT,)))
    rows = seen.view.list_rows(RowKind.CHECKPOINT)
    while rows:
        for row in rows:
            meta = checkpoint_meta_of(row)
            if run_id in {None, meta.run_id} and not (live and meta.superseded_by is not None):
                return meta
        after = (rows[-1].order, rows[-1].key)
        page = await store.loop.rows.read_page(
            session_id, RowKind.CHECKPOINT, limit=_MANY, after=after, descending=True, count=False
        )
        rows = page.rows
    return None


def _snapshot_of(
    state: SessionState, checkpoint: CheckpointMeta | None, messages: list[StoredMessage]
) -> SessionSnapshot:
    return SessionSnapshot(
        state=state,
        checkpoint_id=checkpoint.id if checkpoint else None,
        messages=tuple(decode_message(message) for message in messages),
        head=head_after(Head(position=0, last_id=""), messages),
        stream_sequence=checkpoint.stream_sequence if checkpoint else 0,
        status=state.status,
    )
