"""Pure: checkpoints found, gone back to, and pruned."""

from collections.abc import Iterable, Sequence

from helix_temporal.errors import CheckpointNotFoundError
from helix_temporal.models.checkpoints import Checkpoint, CheckpointMeta
from helix_temporal.models.records import Head
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.session_records import RecordKey, RecordKind, SessionRecord
from helix_temporal.stores.sessions import _orders
from helix_temporal.stores.sessions._codec import decode
from helix_temporal.stores.sessions._commit import record_of, state_record_of
from helix_temporal.stores.sessions._decisions import Decision, Seen, next_version
from helix_temporal.stores.sessions._loop import encode_state
from helix_temporal.stores.sessions._orders import ThreadOrder


def keys(checkpoint_id: str) -> tuple[RecordKey, RecordKey]:
    """The records of one checkpoint."""
    return (
        RecordKey(RecordKind.CHECKPOINT, checkpoint_id),
        RecordKey(RecordKind.CHECKPOINT_STATE, checkpoint_id),
    )


def meta_of(record: SessionRecord) -> CheckpointMeta:
    """A checkpoint without its state."""
    return decode(CheckpointMeta, record.body, "checkpoint")


def find(seen: Seen, checkpoint_id: str) -> Checkpoint | None:
    """A checkpoint that was wanted."""
    meta = seen.view.find(RecordKind.CHECKPOINT, checkpoint_id)
    state = seen.view.find(RecordKind.CHECKPOINT_STATE, checkpoint_id)
    if meta is None or state is None:
        return None
    return Checkpoint(
        **dict(meta_of(meta)), state=decode(SessionState, state.body, f"checkpoint {checkpoint_id!r}")
    )


def required(seen: Seen, checkpoint_id: str) -> Checkpoint:
    """A checkpoint that must be there.

    Raises:
        CheckpointNotFoundError: It is not.
    """
    found = find(seen, checkpoint_id)
    if found is None:
        raise CheckpointNotFoundError(
            f"session {seen.session_id!r} has no checkpoint {checkpoint_id!r}",
            session_id=seen.session_id,
            checkpoint_id=checkpoint_id,
        )
    return found


def moved(checkpoint: Checkpoint, head: Head) -> tuple[SessionRecord, SessionRecord]:
    """A checkpoint whose messages end elsewhere than it was told."""
    state = checkpoint.state.model_copy(update={"head": head})
    meta = checkpoint.meta().model_copy(update={"head": head})
    return record_of(meta), state_record_of(meta, encode_state(state))


def restore(
    seen: Seen, checkpoint: Checkpoint, later: Iterable[CheckpointMeta], order: ThreadOrder | None
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
    puts = [record_of(meta) for meta in marked]
    if order is not None:
        puts.append(_orders.record_of(order))
    return Decision(after, after, puts=tuple(puts))


def to_prune(state: SessionState, metas: Sequence[CheckpointMeta], keep_last: int) -> list[CheckpointMeta]:
    """Which of all checkpoints, oldest first, are not among the newest and not needed for a resumption."""
    old = metas[: max(len(metas) - keep_last, 0)]
    return [meta for meta in old if not _needed(state, meta)]


def _needed(state: SessionState, meta: CheckpointMeta) -> bool:
    if meta.step_id is None:
        return False
    context = state.suspension_context
    if context is not None and meta.step_id == context.step_id:
        return context.run_id in {None, meta.run_id}
    return meta.step_id == state.suspended_step_id


def prune(metas: Sequence[CheckpointMeta]) -> Decision[int]:
    """Remove these."""
    return Decision(len(metas), removes=tuple(key for meta in metas for key in keys(meta.id)))
