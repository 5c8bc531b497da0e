"""Forks and deletions: a session with its thread."""

import logging
from typing import Final

from helix_temporal.errors import (
    InvalidRequestError,
    SessionExistsError,
    StoreCorruptError,
    StoreUnavailableError,
    ThreadBehindStateError,
    UnsupportedFormatError,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import ForkOrigin, SessionState
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.waiting import is_child_id
from helix_temporal.session.projection import inherited_by_fork
from helix_temporal.stores.protocols.session_rows import WantedRows
from helix_temporal.stores.protocols.sessions import AnyVersion
from helix_temporal.stores.record_packs import delete_unnamed_packs
from helix_temporal.stores.sessions import checkpoints, threads
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_count, checked_version
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession
from helix_temporal.stores.sessions.life import check_version
from helix_temporal.stores.sessions.runs import list_sub_session_refs
from helix_temporal.stores.sessions.threads import ThreadOrder


def wanted_for_fork(at_checkpoint: str | None, *, thread: bool) -> WantedRows:
    """What a fork looks at in its source."""
    keys = checkpoints.checkpoint_keys(at_checkpoint) if at_checkpoint is not None else ()
    return WantedRows(keys=(*keys, *threads.KEYS), thread=thread)


def find_same_fork(
    target: SeenSession, source_id: str, at_checkpoint: str | None, at_message: int | None
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


def decide_fork(
    target: SeenSession, source: SessionState, head: Head, at_checkpoint: str | None, thread_epoch: int
) -> Decision[SessionState]:
    """See `SessionStore.fork_session`; ``source`` is the state of now or of the checkpoint."""
    state = SessionState(
        session_id=target.session_id,
        agent_type=source.agent_type,
        **inherited_by_fork(source),
        metadata=source.metadata,
        mode=source.mode,
        step_count=source.step_count,
        head=head,
        forked_from=ForkOrigin(
            session_id=source.session_id, checkpoint_id=at_checkpoint, head=head, at=target.now
        ),
        created_at=target.now,
        updated_at=target.now,
    )
    if head.position == 0:
        return Decision(state, state)
    epoch = threads.next_epoch(target.now, thread_epoch)
    order = ThreadOrder(epoch=epoch, head=head, source=source.session_id)
    return Decision(state, state, puts=(threads.row_of(order),))


logger = logging.getLogger(__name__)

_FORKS: Final = 5
"""How often a fork is begun anew because its source was cut meanwhile."""


async def delete_session(
    store: SessionStoreBase, session_id: str, *, expected_version: int | None = None, epoch: int | None = None
) -> bool:
    """See `SessionStore.delete_session`.

    Sessions of sub-agents go first, from below, then the state with all rows, then the thread, the
    stream and what was archived of its records; after a crash in between a repeat of this call removes
    what is left.  A damaged one of a sub-agent stays and is named in the log; the others go.
    """
    expected = checked_version(expected_version)
    await _delete_sub_agents(store, session_id, expected, {session_id})
    return await _delete_one(store, session_id, expected, epoch)


async def _delete_sub_agents(
    store: SessionStoreBase, session_id: str, expected: int | AnyVersion | None, above: set[str]
) -> None:
    state = (await store.view_session(session_id)).state
    if state is None:
        return
    check_version(state, expected)
    for ref in await list_sub_session_refs(store, session_id):
        name = ref.sub_session_id
        try:
            if ref.remote or name in above or not await _belongs_to(store, name, session_id):
                continue
            await _delete_sub_agents(store, name, None, above | {name})
            await _delete_one(store, name, None, None, fenced=False)
        except (StoreCorruptError, UnsupportedFormatError) as error:
            logger.warning("session %r is not deleted with the one above it: %s", name, error)


async def _belongs_to(store: SessionStoreBase, child: str, parent: str) -> bool:
    """Whether a session that a parent refers to is its sub-agent's; what else it refers to is its own."""
    state = (await store.view_session(child)).state
    return is_child_id(child) if state is None else state.parent_session_id == parent


async def _delete_one(
    store: SessionStoreBase,
    session_id: str,
    expected: int | AnyVersion | None,
    epoch: int | None,
    *,
    fenced: bool = True,
) -> bool:
    call = Call("delete_session", session_id, epoch=epoch, fenced=fenced)
    thread_epoch: list[int | None] = []

    async def decide(seen: SeenSession) -> Decision[bool]:
        # Of a session that the store never knew, or has lost, the archive may have the thread.
        looks = store.threads.here and (seen.view.revision or store.threads.carries_outlines)
        there = await store.threads.find_standing(seen) if looks else None
        thread_epoch[:] = [there.epoch if there else None]
        if seen.state is None:
            return Decision(there is not None and not seen.view.revision)
        check_version(seen.state, expected)
        return Decision(True, deletes=True)

    deleted = await store.make_change(call, store.with_thread, decide, bool)
    if thread_epoch[0] is not None:
        await store.threads.delete(session_id, thread_epoch[0])
    if store.streams is not None:
        await store.streams.delete_stream(session_id)
    if store.packs is not None:
        await delete_unnamed_packs(store.loop.rows, store.packs, session_id)
    return deleted


async def fork_session(
    store: SessionStoreBase,
    session_id: str,
    new_session_id: str,
    *,
    at_checkpoint: str | None = None,
    at_message: int | None = None,
    operation_id: str | None = None,
) -> SessionState:
    """See `SessionStore.fork_session`.

    The new session is made with an order for its thread, which is then forked; a crash between the
    two is finished by a repeat of this call, or by the next one that comes to the new session's
    messages.
    """
    validate_id(session_id, "session id")
    if at_checkpoint is not None and at_message is not None:
        raise InvalidRequestError("fork: at a checkpoint or at a message, not at both")
    if at_message is not None:
        checked_count(at_message, "at_message")
    content = (session_id, at_checkpoint, at_message)
    call = Call("fork_session", new_session_id, content, None, operation_id, fenced=False)

    async def decide(target: SeenSession) -> Decision[SessionState] | None:
        again = find_same_fork(target, session_id, at_checkpoint, at_message)
        if again is not None:
            return again
        source = await store.view_session(
            session_id, wanted_for_fork(at_checkpoint, thread=store.threads.together)
        )
        while source.state is not None and await store.threads.carry_out_seen(source):
            source = await store.view_session(
                session_id, wanted_for_fork(at_checkpoint, thread=store.threads.together)
            )
        state = source.present
        if at_checkpoint is not None:
            state = checkpoints.require_checkpoint(source, at_checkpoint).state
        head = await _fork_head(store, source, state, at_checkpoint, at_message)
        before = target.view.thread.epoch if target.view.thread else 0
        return decide_fork(target, state, head, at_checkpoint, before)

    for _ in range(_FORKS):
        forked = await store.make_change(call, store.with_thread, decide, SessionState)
        if await _fork_thread(store, forked):
            return forked
    raise StoreUnavailableError(f"session {session_id!r}: cut {_FORKS} times while it was forked")


async def _fork_thread(store: SessionStoreBase, forked: SessionState) -> bool:
    """Fork the thread for a session that was made; False, and no session, if the source was cut since."""
    if not store.threads.here:
        return True

    async def decide(seen: SeenSession) -> Decision[bool]:
        # Somebody else may have made the same fork meanwhile, of what is left: that one stays.
        return Decision(False, deletes=seen.state == forked)

    try:
        await store.threads.carry_out_pending(forked.session_id)
    except ThreadBehindStateError:
        call = Call("delete_session", forked.session_id, fenced=False)
        return await store.make_change(call, store.with_thread, decide, bool)
    return True


async def _fork_head(
    store: SessionStoreBase,
    source: SeenSession,
    state: SessionState,
    at_checkpoint: str | None,
    at_message: int | None,
) -> Head:
    """Up to where the fork has the source's messages.

    Messages that were appended without a commit of the state are taken, too, where state and thread
    are seen in one instant; elsewhere only of a session whose state has no head at all, as a commit
    may be under way.
    """
    if not store.threads.here:
        return state.head
    there = await store.threads.find_standing(source)
    if at_message is not None:
        return await store.threads.find_head(source.session_id, at_message, there.committed if there else 0)
    seen_whole = at_checkpoint is None and (store.threads.together or state.head.position == 0)
    if seen_whole and there is not None and there.committed > state.head.position:
        return await store.threads.find_head(source.session_id, there.committed, there.committed)
    await store.threads.check_head(source.session_id, there, state.head)
    return state.head
