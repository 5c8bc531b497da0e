"""A session as it happens: the chunks of its stream, from the turn under way on."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Final

from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    StreamDroppedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models.states import SessionState
from helix_temporal.models.streams import (
    StepStarted,
    StoredChunk,
    SubAgentEnd,
    SubAgentStart,
    ToolEnd,
    to_bytes,
)
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.streams.turns import find_newest_turn
from helix_temporal.views.access import ViewedSessions

_PAUSES: Final = (0.02, 0.05, 0.1, 0.1, 0.25)
"""Seconds between looks for a stream that is not there, or whose store does not answer."""
_PATIENCE: Final = 30.0
"""Seconds for which a store may be away: one that refuses at once is asked hundreds of times meanwhile."""
_BEGIN: Final = b'"run_started"'
_ERRORS_WITHIN: Final = 2.0
"""Seconds that a page waits for errors that the stream alone tells."""
_STEP: Final = b'"step_started"'
_TOOL_END: Final = b'"tool_end"'
_SUB_AGENT: Final = b'"subagent_'
"""Chunks are looked for by their bytes first: most are pieces of text, which nobody has to parse for this."""


def require_stream_store(viewed: ViewedSessions) -> StreamStore:
    """Where sessions are shown live.

    Raises:
        InvalidConfigError: Nowhere.
    """
    if viewed.streams is None:
        raise InvalidConfigError(
            "no stream store is known: HELIX_STREAM_STORE is 'none', or the given stores have none; read "
            "what is stored instead"
        )
    return viewed.streams


async def find_live_place(viewed: ViewedSessions, session_id: str) -> int:
    """The sequence behind which the turn under way begins, or the newest one of an idle session.

    Raises:
        SessionNotFoundError: See `ViewedSessions.load_state`.
        InvalidConfigError: See `require_stream_store`.
    """
    store = require_stream_store(viewed)
    await viewed.load_state(session_id)
    info = await store.get_info(session_id)
    if info is None:
        return 0
    # Looked at after the stream: a turn that begins between the two is shown from its begin.
    state = await viewed.load_state(session_id)
    if state.current_run_id is None:
        return info.last_sequence
    begun = await _find_begin(viewed, store, state, state.current_run_id)
    return min(max(begun, info.first_sequence - 1), info.last_sequence)


async def read_call_errors(viewed: ViewedSessions, session_id: str) -> dict[str, str]:
    """Why calls of the newest step have failed, by the provider's ids; nothing where no stream tells.

    Before the next step has their results no other store knows: usage, which outlives them, quotes none.
    """
    errors: dict[str, str] = {}
    if viewed.streams is None:
        return errors
    try:
        place = await find_live_place(viewed, session_id)
        info = await viewed.streams.get_info(session_id)
        if info is None or info.last_sequence <= place:
            return errors
        stream = _read_stream(viewed.streams, session_id, place)
        async with asyncio.timeout(_ERRORS_WITHIN), contextlib.aclosing(stream) as chunks:
            async for stored in chunks:
                _note_error(errors, stored)
                if stored.sequence >= info.last_sequence:
                    break
    except (HelixError, TimeoutError):
        return {}
    return errors


def _note_error(errors: dict[str, str], stored: StoredChunk) -> None:
    if _STEP in stored.body and isinstance(stored.chunk, StepStarted):
        errors.clear()  # providers' ids come again in later steps
    elif _TOOL_END in stored.body and isinstance(chunk := stored.chunk, ToolEnd):
        errors.pop(chunk.tool_call_id, None)
        if not chunk.success and chunk.error:
            errors[chunk.tool_call_id] = chunk.error


async def _find_begin(viewed: ViewedSessions, store: StreamStore, state: SessionState, run_id: str) -> int:
    """Behind which sequence a run begins; where nobody noted that, its chunks are looked for."""
    if viewed.sessions is not None:
        run = await viewed.sessions.get_run(state.session_id, run_id)
        if run is not None and (run.start_sequence or run.turn == 1):
            return run.start_sequence
    return await find_newest_turn(store, state.session_id) or 0


async def follow_session(
    viewed: ViewedSessions, session_id: str, after: int | None
) -> AsyncGenerator[StoredChunk]:
    """Chunks, each once and in order, also of turns that begin later, until the session is deleted.

    A session that is begun under the same id later is another one: its chunks don't come.

    Connections that are lost are made again; a stream that is not there is waited for.  Whether the viewer
    may still see the session is looked at when a turn begins.  ``sub_session_id`` is empty of a sub-agent's
    session that the viewer may not see.

    Args:
        viewed: What the viewer may see.
        session_id: Whose.
        after: Only what comes behind this sequence; None: from `find_live_place` on.

    Raises:
        SessionNotFoundError: It was not there to begin with, or may not be seen (any more).
        StreamTruncatedError: What comes next is not kept any more, or the stream was lost and has begun
            anew: load the session anew.
        StreamFailedError: The stream was ended by a failure.
        StoreUnavailableError: The store does not answer for half a minute.
        InvalidConfigError: See `require_stream_store`.
    """
    store = require_stream_store(viewed)
    created_at = (await viewed.load_state(session_id)).created_at
    place = await find_live_place(viewed, session_id) if after is None else after
    outage, looks = Outage(), 0
    while True:
        try:
            async with contextlib.aclosing(_read_stream(store, session_id, place)) as chunks:
                async for stored in chunks:
                    if _BEGIN in stored.body and await _is_another(viewed, session_id, created_at):
                        return
                    outage.end()
                    place, looks = stored.sequence, 0
                    yield await _hide_sub_session(viewed, stored)
            if looks % len(_PAUSES) == 0 and await _is_gone(viewed, session_id, created_at):
                return
            outage.end()
        except StreamNotFoundError:
            # Deleted, or expired: what comes now begins anew.
            place = 0
            outage.end()
        except (StreamDroppedError, StoreUnavailableError):
            if outage.add_failure():
                raise
        await asyncio.sleep(_PAUSES[min(looks, len(_PAUSES) - 1)])
        looks += 1


class Outage:
    """A store that does not answer: failures that follow each other.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._failed = float("-inf")

    def add_failure(self) -> bool:
        """Whether the store has been away for too long."""
        now = self._clock()
        if now - self._failed > _PATIENCE:
            # Between the two it answered, and had nothing to tell.
            self._began = now
        self._failed = now
        return now - self._began >= _PATIENCE

    def end(self) -> None:
        """The store has answered."""
        self._failed = float("-inf")


async def _is_gone(viewed: ViewedSessions, session_id: str, created_at: int) -> bool:
    """Whether the session was deleted; another one may have its id."""
    state = await viewed.find_state(session_id)
    return state is None or _is_other_begin(state.created_at, created_at)


async def _is_another(viewed: ViewedSessions, session_id: str, created_at: int) -> bool:
    """Whether another session has the id of the one that was deleted.

    Raises:
        SessionNotFoundError: It is not there, or may not be seen any more.
    """
    return _is_other_begin((await viewed.load_state(session_id)).created_at, created_at)


def _is_other_begin(created_at: int, before: int) -> bool:
    """Whether these are begins of two sessions; of one that has no row yet none is known."""
    return 0 not in {created_at, before} and created_at != before


async def _hide_sub_session(viewed: ViewedSessions, stored: StoredChunk) -> StoredChunk:
    """A chunk without the id of a sub-agent's session that the viewer may not see."""
    if viewed.admits_all or _SUB_AGENT not in stored.body:
        return stored
    chunk = stored.chunk
    if not isinstance(chunk, SubAgentStart | SubAgentEnd):
        return stored
    if await viewed.hide_unseen_id(chunk.sub_session_id) is not None:
        return stored
    return replace(stored, body=to_bytes(chunk.model_copy(update={"sub_session_id": ""}), {}))


async def _read_stream(store: StreamStore, session_id: str, place: int) -> AsyncGenerator[StoredChunk]:
    """What comes behind a sequence; waits for more as the store does, and ends with the stream."""
    reader = await store.create_resumable_reader(session_id, after_sequence=place, patient=True)
    if reader is None:
        return
    async with contextlib.aclosing(reader):
        if place > reader.info.last_sequence:
            first = reader.info.first_sequence
            raise StreamTruncatedError(
                f"session {session_id!r}: the stream ends before {place}, as it was lost and began again; "
                f"load the session anew, and read from {first} on",
                first_available=first,
            )
        async for stored in reader:
            yield stored
