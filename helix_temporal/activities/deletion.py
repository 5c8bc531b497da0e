"""The activity ``helix.sessions.erase``: one session goes from every store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from temporalio import activity

from helix_temporal.activities._runtime import (
    heartbeat_with_progress,
    limited_as,
    raise_application_errors,
    scheduled_epoch,
)
from helix_temporal.activities.payloads import Payloads
from helix_temporal.activities.state_changes import save_change
from helix_temporal.errors import (
    ArchiveCorruptError,
    FencedError,
    SessionNotFoundError,
    StoreCorruptError,
    ThreadNotFoundError,
    UnsupportedFormatError,
)
from helix_temporal.models.handles import EraseSessionInput, EraseSessionResult, LeftBehind
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.protocols.threads import ThreadStore
from helix_temporal.stores.protocols.usage import UsageStore

_IN_USE = "somebody has opened it since the deletion began; delete it again once it has ended"
_UNREADABLE: Final = (StoreCorruptError, ArchiveCorruptError, UnsupportedFormatError)
"""Damage, and what a newer version wrote, whose workers serve the same queue while it is rolled out."""


@contextmanager
def _unless_unreadable(left: list[LeftBehind], what: str, where: str) -> Iterator[None]:
    """What cannot be read stays and is named: the rest of it, and all others, can still be deleted."""
    try:
        yield
    except _UNREADABLE as error:
        activity.logger.warning("session %r: its %s is not deleted: %s", where, what, error)
        if all((each.what, each.where) != (what, where) for each in left):
            left.append(LeftBehind(what=what, where=where, why=f"{error}; then delete it again"))


class DeletionActivities:
    """Removes sessions.  Tombstones stay, so that late attempts of its activities bring nothing back.

    Args:
        streams: None where sessions are not shown live.
        sessions: None where there is no session store.
        beat_every: Seconds between background heartbeats.
    """

    def __init__(
        self,
        threads: ThreadStore,
        payloads: Payloads,
        usage: UsageStore,
        streams: StreamStore | None,
        sessions: SessionStore | None = None,
        *,
        beat_every: float = 1.0,
    ) -> None:
        self._threads, self._payloads, self._usage = threads, payloads, usage
        self._streams, self._sessions, self._beat_every = streams, sessions, beat_every

    @activity.defn(name="helix.sessions.erase")
    @raise_application_errors
    @limited_as("model")
    async def erase(self, request: EraseSessionInput) -> EraseSessionResult:
        """Remove the session from all stores; a repeat finds nothing.

        The state goes after the thread: who repeats it still finds the thread's name there.  What cannot be
        read stays, and is named in the result.
        """
        epoch = scheduled_epoch()
        removed: list[str] = []
        left: list[LeftBehind] = []
        async with heartbeat_with_progress(self._beat_every):
            state = None
            with _unless_unreadable(left, "state", request.session_id):
                if self._sessions is not None:
                    state = await self._sessions.load_state(request.session_id)
            own = None if state is None else state.thread_id
            for thread_id in dict.fromkeys(
                each for each in (request.thread_id, own, request.session_id) if each is not None
            ):
                with _unless_unreadable(left, "thread", thread_id):
                    await self._erase_thread(thread_id, epoch, removed, left)
            with _unless_unreadable(left, "stream", request.session_id):
                if self._streams is not None and await self._streams.delete_stream(request.session_id):
                    removed.append("stream")
            with _unless_unreadable(left, "usage", request.session_id):
                if not request.keep_usage and await self._usage.delete(request.session_id):
                    removed.append("usage")
            await self._erase_state(request.session_id, state, epoch, removed, left)
        return EraseSessionResult(removed=tuple(removed), left=tuple(left))

    async def _erase_thread(
        self, thread_id: str, epoch: int, removed: list[str], left: list[LeftBehind]
    ) -> None:
        there = await self._has_thread(thread_id)
        try:
            # Also one that is not there: a deletion that died on its way may have left something.
            await self._threads.delete(thread_id, epoch)
        except FencedError:
            left.append(LeftBehind(what="thread", where=thread_id, why=_IN_USE))
            return
        if there:
            removed.append("thread")
        await self._payloads.drop_all(thread_id)

    async def _has_thread(self, thread_id: str) -> bool:
        try:
            await self._threads.read_facts(thread_id)
        except ThreadNotFoundError:
            return False
        except _UNREADABLE:
            return True
        return True

    async def _erase_state(
        self,
        session_id: str,
        state: SessionState | None,
        epoch: int,
        removed: list[str],
        left: list[LeftBehind],
    ) -> None:
        if self._sessions is None:
            return
        above = () if state is None else (state.parent_session_id, state.root_session_id)
        for each in above:
            if each is not None:
                with _unless_unreadable(left, "state", each):
                    await self._forget_child(self._sessions, each, session_id)
        try:
            with _unless_unreadable(left, "state", session_id):
                if await self._sessions.delete_session(session_id, epoch=epoch):
                    removed.append("state")
        except FencedError:
            left.append(LeftBehind(what="state", where=session_id, why=_IN_USE))

    async def _forget_child(self, store: SessionStore, above: str, child: str) -> None:
        """Take away what a session above says of this one."""
        try:
            await store.remove_sub_session_ref(above, child)
        except SessionNotFoundError:
            return

        def without(state: SessionState) -> dict[str, object]:
            waits = state.suspended_awaiting_children
            owned = state.client_tool_call_ownership
            return {
                "suspended_awaiting_children": tuple(each for each in waits if each.sub_session_id != child),
                "client_tool_call_ownership": {
                    call: owner for call, owner in owned.items() if owner != child
                },
            }

        await save_change(store, above, None, without, "a sub-agent's session was deleted")
