"""Pure: what a fork takes of a session."""

from helix_temporal.errors import SessionExistsError
from helix_temporal.models.records import Head
from helix_temporal.models.states import ForkOrigin, SessionState
from helix_temporal.stores.protocols.session_records import Wanted
from helix_temporal.stores.sessions import _checkpoints, _orders
from helix_temporal.stores.sessions._decisions import Decision, Seen
from helix_temporal.stores.sessions._orders import ThreadOrder


def wanted(at_checkpoint: str | None, *, thread: bool) -> Wanted:
    """What a fork looks at in its source."""
    keys = _checkpoints.keys(at_checkpoint) if at_checkpoint is not None else ()
    return Wanted(keys=(*keys, *_orders.KEYS), thread=thread)


def found_again(
    target: Seen, source_id: str, at_checkpoint: str | None, at_message: int | None
) -> Decision[SessionState] | None:
    """The answer where the new id is taken: by this very fork, made before.

    Raises:
        SessionExistsError: By another session.
    """
    state = target.state
    if state is None:
        return None
    origin = state.forked_from
    same = (
        origin is not None
        and (origin.session_id, origin.checkpoint_id) == (source_id, at_checkpoint)
        and at_message in {None, origin.head.position}
    )
    if not same:
        raise SessionExistsError(
            f"session {target.session_id!r} exists, and is not this fork of {source_id!r}; choose another id",
            session_id=target.session_id,
        )
    return Decision(state)


def fork(
    target: Seen, source: SessionState, head: Head, at_checkpoint: str | None, thread_epoch: int
) -> Decision[SessionState]:
    """See `SessionStore.fork_session`; ``source`` is the state of now or of the checkpoint."""
    state = SessionState(
        session_id=target.session_id,
        agent_type=source.agent_type,
        user_id=source.user_id,
        mode=source.mode,
        step_count=source.step_count,
        head=head,
        custom_state=source.custom_state,
        tags=source.tags,
        metadata=source.metadata,
        forked_from=ForkOrigin(
            session_id=source.session_id, checkpoint_id=at_checkpoint, head=head, at=target.now
        ),
        created_at=target.now,
        updated_at=target.now,
    )
    if head.position == 0:
        return Decision(state, state)
    epoch = _orders.next_epoch(target.now, thread_epoch)
    order = ThreadOrder(epoch=epoch, head=head, source=source.session_id)
    return Decision(state, state, puts=(_orders.record_of(order),))
