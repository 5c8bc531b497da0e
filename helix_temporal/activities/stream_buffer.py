"""Chunks of one attempt on their way to a stream: in order, in few writes, and behind the work's back."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Self

from helix_temporal.errors import FencedError, HelixError, InvalidIdError, InvalidMessageError, TooLargeError
from helix_temporal.models.streams import ChunkBase
from helix_temporal.stores.protocols.streams import StreamWriter
from helix_temporal.telemetry import metrics

PAUSE: Final = 0.025
"""Seconds between writes of pieces: slow streams are written as they come, of fast ones many at once."""
PATIENCE: Final = 2.0
"""Seconds that one write may take behind the work's back before the attempt goes on without a stream."""
GRACE: Final = 0.5
"""Seconds that the work waits, at its end, for what is still to be written."""
_LITTLE: Final = 0.1
_FOR: Final = 5.0
"""So little does it wait, for so long, once a store has let it wait in vain."""
BEAT: Final = 10.0
"""Seconds of silence after which readers are told that the producer is alive."""
_PIECE: Final = 16 * 1024
"""Characters of one chunk of text: stores bound chunks in bytes."""
_AT_ONCE: Final = 1000
"""Chunks of one write; stores take no more."""
_ITS_OWN: Final = (InvalidMessageError, InvalidIdError, TooLargeError)
"""Errors that are one chunk's or its key's, and not the stream's."""

log = logging.getLogger(__name__)

OpenWriter = Callable[[], Awaitable[StreamWriter]]


class Keyed(NamedTuple):
    """A chunk and its dedup key: under one key a chunk is written once, whoever writes it."""

    chunk: ChunkBase
    key: str | None = None


class Grace:
    """How long to wait for a store, by what was met last; all outlets to one store share it."""

    def __init__(self) -> None:
        self._little_until = 0.0

    @property
    def seconds(self) -> float:
        """To wait now."""
        return _LITTLE if time.monotonic() < self._little_until else GRACE

    def note_timeout(self, seconds: float) -> None:
        """The store did not answer within ``seconds``.

        Of a store that takes longer than the little time does a wait that short tell nothing: it would be
        given up for as long as it is written to.
        """
        if seconds >= GRACE:
            self._little_until = time.monotonic() + _FOR


class _Joined:
    """Pieces of text that become one chunk."""

    def __init__(self, kind: type[ChunkBase], field: str, fields: dict[str, Any]) -> None:
        self.of = (kind, field, fields)
        self.parts: list[str] = []
        self.size = 0

    def add_text(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)

    def build_chunk(self) -> ChunkBase:
        kind, field, fields = self.of
        # A provider may cut a surrogate pair in two; what JSON cannot hold would cost the whole write.
        text = "".join(self.parts)
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return kind(**{field: text}, **fields)


class BufferedStreamWriter:
    """Writes what it is given from a task of its own, so that the work never waits for a stream.

    A failure of the stream switches it off, and is logged: what is shown is not what counts.  Only a
    `FencedError` is kept, in ``fenced``: whoever writes is a left-over attempt and must stop.

    Use it as a context manager: nothing of it runs on after that.

    Args:
        open_writer: None for no stream at all.
        what: Names it in the log.
        grace: How long `write_last` and `wait_briefly` wait.

    Attributes:
        fenced: Set where somebody wrote under a higher fence.
        reached: The highest sequence that it has got.
    """

    def __init__(self, open_writer: OpenWriter | None, what: str = "", grace: Grace | None = None) -> None:
        self._open, self._what, self._grace = open_writer, what, grace or Grace()
        self._off = open_writer is None
        self._writer: StreamWriter | None = None
        self._waiting: list[Keyed | _Joined] = []
        self._flush_now, self._has_output, self._drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._task: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._watched: dict[str, asyncio.Future[int | None]] = {}
        self.fenced: FencedError | None = None
        self.reached = 0

    async def __aenter__(self) -> Self:
        # The writer starts even without output: its beats tell readers that the work is alive.
        if not self._off:
            self._later = asyncio.get_running_loop().call_later(BEAT, self._start_writer_task)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, whatever is left."""
        self._off = True
        self._tell_of_nothing()
        if self._later is not None:
            self._later.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def put(self, *items: Keyed) -> None:
        """Write chunks, as soon as what came before is written."""
        if not self._off:
            self._waiting.extend(items)
            self._flush_now.set()
            self._wake_writer()

    def watch_key(self, key: str) -> "asyncio.Future[int | None]":
        """A future for the sequence of the chunk that is put under a key, or of the first one under it.

        It is None where that cannot be told.
        """
        place = asyncio.get_running_loop().create_future()
        if self._off:
            place.set_result(None)
        else:
            self._watched[key] = place
        return place

    async def wait_briefly(self, place: "asyncio.Future[int | None]") -> int | None:
        """Wait for what `watch_key` gave, but not for long."""
        seconds = self._grace.seconds
        done, _ = await asyncio.wait([place], timeout=seconds)
        if not done:
            self._grace.note_timeout(seconds)
        return place.result() if done else None

    def put_piece(
        self, kind: type[ChunkBase], field: str, text: str, *, at_once: bool = False, **fields: Any
    ) -> None:
        """Write a piece of text; those that come while others are being written are joined."""
        if self._off:
            return
        for start in range(0, len(text), _PIECE):
            self._get_joined_piece((kind, field, fields)).add_text(text[start : start + _PIECE])
        if at_once:
            self._flush_now.set()
        self._wake_writer()

    async def write_last(self, *last: Keyed, again: Sequence[Keyed] = ()) -> None:
        """Write ``last`` and wait for it, but not for long.

        If there were failures, that is tried once more, together with ``again``, which was put before.

        Raises:
            FencedError: Somebody wrote under a higher fence.
        """
        self.put(*last)
        last, seconds = (*again, *last), self._grace.seconds
        try:
            async with asyncio.timeout(seconds):
                await self._drained.wait()
                if self._off and self._open is not None and self.fenced is None and last:
                    await self._write_chunks(await self._open(), last)
        except TimeoutError as error:
            self._grace.note_timeout(seconds)
            self._switch_off(error)
        except Exception as error:  # noqa: BLE001 (a store from elsewhere has its own)
            self._switch_off(error)
        if self.fenced is not None:
            raise self.fenced

    # -- the task

    def _get_joined_piece(self, of: tuple[type[ChunkBase], str, dict[str, Any]]) -> _Joined:
        newest = self._waiting[-1] if self._waiting else None
        if not (isinstance(newest, _Joined) and newest.of == of and newest.size < _PIECE):
            newest = _Joined(*of)
            self._waiting.append(newest)
        return newest

    def _wake_writer(self) -> None:
        self._drained.clear()
        self._has_output.set()
        self._start_writer_task()

    def _start_writer_task(self) -> None:
        if self._task is None and not self._off:
            self._task = asyncio.create_task(self._run_writer())

    async def _run_writer(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                assert self._open is not None
                writer = await self._open()
            while True:
                await self._write_next_batch(writer)
        except Exception as error:  # noqa: BLE001 (whatever a stream does, the work goes on)
            self._switch_off(error)
        finally:
            self._drained.set()

    async def _write_next_batch(self, writer: StreamWriter) -> None:
        try:
            async with asyncio.timeout(BEAT):
                await self._has_output.wait()
        except TimeoutError:
            async with asyncio.timeout(PATIENCE):
                await writer.beat()
            return
        began = time.monotonic()
        batch, self._waiting = self._waiting[:_AT_ONCE], self._waiting[_AT_ONCE:]
        if not self._waiting:
            self._has_output.clear()
            self._flush_now.clear()
        items = [each if isinstance(each, Keyed) else Keyed(each.build_chunk()) for each in batch]
        async with asyncio.timeout(PATIENCE):
            await self._write_chunks(writer, items)
        if not self._waiting:
            self._drained.set()
        await self._pause_between_writes(began + PAUSE - time.monotonic())

    async def _pause_between_writes(self, seconds: float) -> None:
        if seconds > 0 and not self._flush_now.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._flush_now.wait()
            except TimeoutError:
                return

    async def _write_chunks(self, writer: StreamWriter, items: Sequence[Keyed]) -> None:
        items = _drop_repeated_keys(items)
        keys = [each.key for each in items]
        try:
            written = await writer.write_many([each.chunk for each in items], dedup_keys=keys)
            metrics.STREAM_CHUNKS.add(len(items))
            for key, sequence in zip(keys, written, strict=True):
                self._record_sequences(key, sequence)
        except _ITS_OWN:
            # One that cannot be written must not take the others along.
            for each in items:
                try:
                    pieces = await writer.write_split(each.chunk, dedup_key=each.key)
                    metrics.STREAM_CHUNKS.add(len(pieces))
                    self._record_sequences(each.key, *pieces)
                except _ITS_OWN as error:
                    log.warning("stream of %s: a %s was left out: %s", self._what, each.chunk.type, error)
                    metrics.STREAM_DROPPED.add()
                    self._tell_place(each.key, None)

    def _record_sequences(self, key: str | None, *sequences: int) -> None:
        self.reached = max(self.reached, *sequences)
        self._tell_place(key, sequences[0])

    def _tell_place(self, key: str | None, sequence: int | None) -> None:
        place = None if key is None else self._watched.pop(key, None)
        if place is not None and not place.done():
            place.set_result(sequence)

    def _tell_of_nothing(self) -> None:
        for key in [*self._watched]:
            self._tell_place(key, None)

    def _switch_off(self, error: Exception) -> None:
        if isinstance(error, FencedError):
            self.fenced = error
        elif not self._off:
            log.warning("stream of %s is off: %s", self._what, said_of(error))
            # At least the write that failed, and what waited behind it.
            metrics.STREAM_DROPPED.add(1 + len(self._waiting))
        self._off = True
        self._waiting.clear()
        self._tell_of_nothing()


def said_of(error: Exception) -> str:
    """What a log may tell of it: the text of a foreign error may hold what must not be there."""
    if isinstance(error, TimeoutError):
        return "the stream's store did not take in time what was to be shown; the turn goes on unseen"
    return f"{type(error).__name__}: {error}" if isinstance(error, HelixError) else type(error).__name__


def _drop_repeated_keys(items: Sequence[Keyed]) -> list[Keyed]:
    """Without repeats of a key: stores refuse a write with one."""
    first = {each.key: at for at, each in reversed([*enumerate(items)])}
    return [each for at, each in enumerate(items) if each.key is None or first[each.key] == at]
