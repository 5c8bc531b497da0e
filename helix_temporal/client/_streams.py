"""Following a session's stream over lost connections; an ask that is watched while it runs."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, Literal, Self

from helix_temporal._futures import discard_error
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    StoreUnavailableError,
    StreamAbandonedError,
    StreamDroppedError,
    StreamNotFoundError,
    StreamTruncatedError,
)
from helix_temporal.models.sessions import AskResult
from helix_temporal.models.streams import (
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    StoredChunk,
    StreamResync,
    Suspended,
)
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.protocols.streams import ResumableReader, StreamStore
from helix_temporal.stores.streams.turns import find_newest_turn, find_turn_of_message, read_kept_chunks

StreamUntil = Literal["turn", "closed"]
"""``turn``: up to the end of one turn; ``closed``: until the stream is ended, which no turn does."""

StreamAfter = int | Literal["turn"]
"""A sequence; or ``turn``: where the newest turn that has begun begins."""

_PAUSES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25)
"""Seconds between looks for a stream that nobody has written to yet; the last one again and again."""
_MISSING: Final = 10.0
"""Seconds after which a warning says that a stream has not begun."""
_TRIES: Final = 120
"""Looks at a store that does not answer."""


class StreamFollower:
    """What to read of a session's stream.

    Args:
        store: Where the streams are.
        session_id: Whose.
        after: Read from after this place; None for all that is kept.
        run_id: Only this turn.
        message_id: Only the turn that answers this message of the user's.
        until: Where to end.
        expected: Whether somebody still works on what is waited for, although the stream is silent.
        begun: After which sequence the turn's chunks come, 0 where that is not known, None where the turn may
            be still to come; asked where what came first is not kept any more.
        missing: Called once, of a stream that has not begun after ten seconds.
    """

    def __init__(
        self,
        store: StreamStore,
        session_id: str,
        *,
        after: StreamAfter | None = None,
        run_id: str | None = None,
        message_id: str | None = None,
        until: StreamUntil = "turn",
        expected: Callable[[], bool] = lambda: False,
        begun: Callable[[], Awaitable[int | None]] | None = None,
        missing: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._store, self._session_id = store, session_id
        self._place = after
        self._turn = _FollowedTurn(run_id, message_id, until)
        self._expected, self._begun = expected, begun
        self._over = False
        self._missing = missing
        self._warning: asyncio.Task[None] | None = None

    async def follow_chunks(self) -> AsyncGenerator[StoredChunk]:
        """The chunks, each once and in order; connections that are lost are made again.

        Raises:
            StreamTruncatedError: The place to go on from is not kept any more, or the stream was lost and
                has begun anew; ``facts`` has ``first_available``.
            StreamFailedError: The stream was ended by a failure.
            StreamAbandonedError: A turn is under way, and nothing was heard of it for too long.
            StreamNotFoundError: The stream was deleted while a turn was under way.
            StoreUnavailableError: The store does not answer.
        """
        pauses, began = _Pauses(), time.monotonic()
        self._place = await self._find_start_in_time(pauses)
        try:
            while not self._over:
                reader = await self._open_reader(pauses)
                if reader is not None:
                    self._missing = None
                    async with contextlib.aclosing(self._read_connection(reader, pauses)) as read:
                        async for stored in read:
                            yield stored
                elif self._missing is not None and time.monotonic() - began >= _MISSING:
                    # In a task of its own: it takes seconds, and the stream may begin any moment.
                    self._warning = asyncio.create_task(self._missing())
                    self._missing = None
                if not self._over:
                    await pauses.wait_longer()
        finally:
            if self._warning is not None:
                self._warning.cancel()

    async def _read_connection(
        self, reader: ResumableReader, pauses: "_Pauses"
    ) -> AsyncGenerator[StoredChunk]:
        """What one connection gives."""
        turn = self._turn
        try:
            async with contextlib.aclosing(reader):
                async for stored in reader:
                    self._place = stored.sequence
                    pauses.reset_pauses()
                    if turn.take_chunk(stored):
                        yield stored
                    if turn.over:
                        break
        except (StreamDroppedError, StreamAbandonedError, StreamNotFoundError) as error:
            self._check_more_is_expected(error)
        else:
            # One that is paused goes on some time, and with it the turn.
            self._over = turn.over or reader.status == "ended" or turn.until == "closed"

    def _check_more_is_expected(self, error: HelixError) -> None:
        """Raise the error of a connection where nothing more is to be expected."""
        if isinstance(error, StreamDroppedError):
            return
        waits = self._expected() or not self._turn.open
        if isinstance(error, StreamNotFoundError):
            # Deleted, or expired; what comes now begins anew.
            self._place, self._over = None, self._turn.until == "closed"
        if not waits:
            raise error

    async def _find_start_in_time(self, pauses: "_Pauses") -> int | None:
        while True:
            try:
                return await self._find_start()
            except StoreUnavailableError:
                if pauses.count_failure():
                    raise
            await pauses.wait_longer()

    async def _find_start(self) -> int | None:
        place = self._place
        if isinstance(place, str):
            return await find_newest_turn(self._store, self._session_id)
        if place is None:
            return await self._find_first_sequence()
        if place and self._turn.unknown_message is not None:
            # A place within the turn: the chunk that says which run answers the message stands before it.
            async with contextlib.aclosing(read_kept_chunks(self._store, self._session_id, place)) as earlier:
                async for stored in earlier:
                    self._turn.take_chunk(stored)
            self._over = self._turn.over
        return place

    async def _find_first_sequence(self) -> int | None:
        """Where all that is kept begins, and of one turn, where that began: it may be gone."""
        info = await self._store.get_info(self._session_id)
        if info is None or info.first_sequence == 1:
            return None
        kept = info.first_sequence - 1
        if not self._turn.chosen:
            return kept
        if (message_id := self._turn.unknown_message) is not None:
            place = await find_turn_of_message(self._store, self._session_id, message_id)
            if place is not None:
                return place
        if self._begun is None:
            return None
        begun = await self._begun()
        return kept if begun is None else begun

    async def _open_reader(self, pauses: "_Pauses") -> ResumableReader | None:
        assert not isinstance(self._place, str)
        try:
            reader = await self._store.create_resumable_reader(self._session_id, after_sequence=self._place)
        except StoreUnavailableError:
            if pauses.count_failure():
                raise
            return None
        if reader is not None and self._place is not None and self._place > reader.info.last_sequence:
            first = reader.info.first_sequence
            await reader.aclose()
            raise StreamTruncatedError(
                f"session {self._session_id!r}: the stream ends before {self._place}, as it was lost and "
                f"began again; read from {first} on",
                first_available=first,
            )
        return reader


class _Pauses:
    """How long to wait before the next look."""

    def __init__(self) -> None:
        self._looks = self._failures = 0

    def reset_pauses(self) -> None:
        """Begin with the shortest pause again, as something came."""
        self._looks = self._failures = 0

    def count_failure(self) -> bool:
        """Count a look that was not answered; whether that makes too many."""
        self._failures += 1
        return self._failures >= _TRIES

    async def wait_longer(self) -> None:
        """Wait, the longer the more often nothing came."""
        await asyncio.sleep(_PAUSES[min(self._looks, len(_PAUSES) - 1)])
        self._looks += 1


class _FollowedTurn:
    """Which chunks belong to what is followed, and whether it is over."""

    def __init__(self, run_id: str | None, message_id: str | None, until: StreamUntil) -> None:
        self._run_id, self._message_id, self.until = run_id, message_id, until
        self.chosen = run_id is not None or message_id is not None
        self.open = self.over = False

    @property
    def unknown_message(self) -> str | None:
        """By which it is chosen, while its run has not been told of yet."""
        return None if self._run_id is not None else self._message_id

    def take_chunk(self, stored: StoredChunk) -> bool:
        """Whether the chunk is to be shown."""
        # Most chunks are pieces of text: only those that say where turns begin and end are decoded.
        if not any(name in stored.body for name in _MARKS):
            return not self.chosen or self._is_ours(stored.run_id)
        chunk = stored.chunk
        if isinstance(chunk, RunStarted):
            return self._begins_turn(stored.run_id, chunk)
        ours = not self.chosen or self._is_ours(stored.run_id)
        if isinstance(chunk, RunEnded) and ours:
            self.open, self.over = False, self.until == "turn"
        elif isinstance(chunk, Suspended | RunPaused) and ours:
            self.open = False  # silence is what is to be expected
        elif isinstance(chunk, RunResumed) and ours:
            self.open = True
        return ours or isinstance(chunk, StreamResync)

    def _begins_turn(self, run_id: str, chunk: RunStarted) -> bool:
        if self._message_id is not None and self._message_id in chunk.message_ids:
            self._run_id = run_id
        ours = self._is_ours(run_id)
        if self.open and self.chosen and not ours:
            # Ours came to no end of its own: its workflow was terminated.
            self.over = self.until == "turn"
            return False
        self.open = self.open or ours or not self.chosen
        return ours or not self.chosen

    def _is_ours(self, run_id: str) -> bool:
        """A turn that had to be run again is another run with the same beginning of its name."""
        return self._run_id is not None and run_id.partition(".")[0] == self._run_id.partition(".")[0]


_MARKS: Final = (b'"run_', b'"suspended"', b'"stream_resync"')


def stream_store_of(plugins: Iterable[Any]) -> StreamStore:
    """The stream store that the settings of a client's `HelixPlugin` name.

    Raises:
        InvalidConfigError: There is none, or it would be in the memory of another process.
    """
    for plugin in plugins:
        elsewhere = vars(plugin).get("_backends") is None
        streams: StreamStore | None = getattr(getattr(plugin, "backends", None), "streams", None)
        if streams is None:
            continue
        if elsewhere and isinstance(streams, MemoryStreams):
            raise InvalidConfigError(
                "the streams are in the memory of the worker's process, and no worker runs in this one: use "
                "a store that both reach, or give SessionClient one (streams=…)"
            )
        return streams
    raise InvalidConfigError(
        "no stream store is known: give SessionClient one (streams=…), or connect with a HelixPlugin whose "
        "settings name one"
    )


_GRACE: Final = 1.0
"""Seconds that the end of a turn may come after its answer."""


class LiveAsk:
    """An ask whose turn is watched: iterate over its chunks, then take its `result`.

    As a context manager it stops waiting at the end of the block; the message is sent all the same.

    Args:
        store: Where the streams are.
        session_id: Whose turn it is.
        message_id: The message that is sent.
        ask: Sends it and waits for the answer.
        after: Where to look for the turn; None for whatever comes from now on.
    """

    def __init__(
        self,
        store: StreamStore,
        session_id: str,
        message_id: str,
        ask: Callable[[], Coroutine[Any, Any, AskResult]],
        *,
        after: int | None = None,
    ) -> None:
        self._store, self._session_id, self.message_id = store, session_id, message_id
        self._ask, self._after = ask, after
        self._task: asyncio.Task[AskResult] | None = None
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._task, self._pump) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def result(self) -> AskResult:
        """What became of the ask; raises what `SessionHandle.ask` raises."""
        return await asyncio.shield(self._start_ask())

    async def __aiter__(self) -> AsyncGenerator[StoredChunk]:
        """The turn's chunks, each once, to its end.

        Raises what `SessionHandle.ask` and `SessionHandle.stream` raise.
        """
        queue: asyncio.Queue[StoredChunk | None] = asyncio.Queue()
        # Before the message is sent: nothing of its turn may be missed.
        after = await self._find_end() if self._after is None else self._after
        asked = self._start_ask()
        follow = StreamFollower(
            self._store,
            self._session_id,
            after=after,
            message_id=self.message_id,
            expected=lambda: not asked.done(),
            begun=_look_at_all_kept,
        )
        self._pump = pump = asyncio.create_task(_pass_chunks_on(follow.follow_chunks(), asked, queue))
        try:
            while (stored := await queue.get()) is not None:
                yield stored
            await asyncio.wait([pump])
            if not asked.done() and pump.exception() is not None:
                await pump  # the answer may be long in coming: `result` waits for it
            await asyncio.wait([asked])
            if asked.exception() is not None:
                await asked
            await pump
        finally:
            pump.cancel()

    async def _find_end(self) -> int | None:
        try:
            info = await self._store.get_info(self._session_id)
        except StoreUnavailableError:
            return None  # it is asked all the same: a stream only shows, and its turn is found by the message
        return None if info is None else info.last_sequence

    def _start_ask(self) -> "asyncio.Task[AskResult]":
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
            # Whoever leaves early does not want to know.
            self._task.add_done_callback(discard_error)
        return self._task


async def _look_at_all_kept() -> None:
    """As `begun` of a `StreamFollower`: the turn was asked for just now, so it may be still to come."""


async def _pass_chunks_on(
    source: AsyncGenerator[StoredChunk],
    asked: "asyncio.Task[Any]",
    queue: "asyncio.Queue[StoredChunk | None]",
) -> None:
    """Pass chunks on until the turn has ended, or its answer has come and nothing more is heard."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as limit:

            def end_soon(_: object) -> None:
                with contextlib.suppress(RuntimeError):  # it has ended in the same moment
                    limit.reschedule(loop.time() + _GRACE)

            asked.add_done_callback(end_soon)
            try:
                async with contextlib.aclosing(source):
                    async for stored in source:
                        queue.put_nowait(stored)
            finally:
                asked.remove_done_callback(end_soon)
    except TimeoutError:
        # The result is there: nobody waits for the rest of the stream.
        return
    finally:
        queue.put_nowait(None)
