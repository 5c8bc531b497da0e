"""Streams above the backends: writers, readers and changes of status, here and once.

A backend brings five atomic operations (`_append_batch`, `_read_view`, `_change_status`, `_drop_stream`,
`_wait_for_news`); what they decide is in `rules`.
"""

import asyncio
import math
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from helix_temporal._retries import retry_pause
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StoreUnavailableError,
    StreamClosedError,
)
from helix_temporal.models.base import check_json, dump_json, only_set
from helix_temporal.models.ids import validate_id
from helix_temporal.models.states import ErrorInfo
from helix_temporal.models.streams import (
    ChunkBase,
    EndStatus,
    StepDiscarded,
    StoredChunk,
    StreamInfo,
    StreamLimits,
    StreamResync,
    to_bytes,
)
from helix_temporal.stores.streams import rules
from helix_temporal.stores.streams import rules as changes
from helix_temporal.stores.streams.reader import LONGEST_WAIT, PAGE, Feed, News, StreamReading
from helix_temporal.stores.streams.rules import Batch, Refused, StatusChange, View, Written
from helix_temporal.stores.streams.writer import Writing

T = TypeVar("T", ChunkBase, StoredChunk)

_TRIES: Final = 50
"""Of a change whose stream was changed by somebody else meanwhile."""

_REMEMBERED: Final = 4096
"""So many streams that were written to, the newest, are known with how far they were."""

_MOST: Final = 2**53


class Streams(ABC):
    """`StreamStore` over the operations of one backend.

    Raises:
        InvalidConfigError: A limit is out of range.
    """

    def __init__(self, limits: StreamLimits) -> None:
        _check_limits(limits)
        self.limits = limits
        self._reached: dict[str, tuple[str, int]] = {}
        self._feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Feed]] = WeakKeyDictionary()

    # -- what a backend brings

    @abstractmethod
    async def _append_batch(self, batch: Batch) -> Written | Refused:
        """`StreamLog.append_batch` on the stored stream, atomically, by the store's clock."""

    @abstractmethod
    async def _read_view(self, stream_id: str, after: int, limit: int) -> View | None:
        """Head, clock and up to ``limit`` chunks after a sequence, in one instant; None if there is none."""

    @abstractmethod
    async def _change_status(self, change: StatusChange) -> int | None:
        """`StreamLog.change_status` on the stored stream, atomically; wakes those who wait for news."""

    @abstractmethod
    async def _drop_stream(self, stream_id: str) -> bool:
        """Remove all of it; whether there was something."""

    @abstractmethod
    async def _wait_for_news(self, view: View, after: int, seconds: float) -> News:
        """Wait until there is a chunk after a sequence, or a change since the view; at most so long."""

    # -- writers

    async def create_writer(
        self,
        stream_id: str,
        *,
        agent_id: str,
        agent_type: str | None = None,
        run_id: str | None = None,
        step_id: str | None = None,
        attempt: int = 1,
        fence: int | None = None,
        resume: bool = False,
        reached: int = 0,
    ) -> Writing:
        """See `StreamStore.create_writer`."""
        validate_id(stream_id, "stream id")
        if attempt < 1 or (attempt > 1 and step_id is None):
            raise InvalidRequestError(f"attempt {attempt} of step {step_id!r}: from 1, and above 1 of a step")
        stamp = {"agent_id": agent_id} | only_set(agent_type=agent_type)
        writer = Writing(
            lambda batch: self._append_or_restore(batch, reached),
            uuid.uuid4().hex,
            stream_id,
            stamp,
            run_id=agent_id if run_id is None else run_id,
            fence=_check_fence(fence),
            max_bytes=self.limits.max_chunk_bytes,
        )
        void = None if attempt == 1 else StepDiscarded(step_id=step_id or "", attempt=attempt - 1)
        try:
            await writer.open(void)
        except StreamClosedError as error:
            if not resume or error.facts.get("status") != "paused":
                raise
            await self.resume_stream(stream_id, fence=fence)
            await writer.open(void)
        return writer

    async def _append_or_restore(self, batch: Batch, reached: int) -> Written | Refused:
        """Append; where the stream ends before a place that it had reached, reset it first.

        What was reached is what the writer was told, and what this process has seen of the same stream.
        """
        # Read before the append, since answers of other writers may overtake its own.
        made, seen = self._reached.get(batch.stream_id, ("", 0))
        answer = await self._append_batch(batch)
        if isinstance(answer, Refused):
            return answer
        reached_before = max(reached, seen) if made == answer.made else reached
        if answer.last < reached_before:
            await self.reset_stream(
                batch.stream_id,
                reason="restored",
                fence=batch.fence,
                operation_id=f"restored/{reached_before}",
            )
            answer = await self._append_batch(replace(batch, made=answer.made, create=False))
        if isinstance(answer, Written):
            self._remember_sequence(batch.stream_id, answer)
        return answer

    def _remember_sequence(self, stream_id: str, written: Written) -> None:
        made, last = self._reached.pop(stream_id, ("", 0))
        highest = max(last, written.last) if made == written.made else written.last
        self._reached[stream_id] = (written.made, highest)
        if len(self._reached) > _REMEMBERED:
            del self._reached[next(iter(self._reached))]

    # -- readers

    async def create_reader(self, stream_id: str) -> StreamReading[ChunkBase] | None:
        """See `StreamStore.create_reader`."""
        return await self._open_reader(stream_id, 0, lambda stored: stored.chunk, None)

    async def create_resumable_reader(
        self,
        stream_id: str,
        *,
        from_sequence: int | None = None,
        after_sequence: int | None = None,
        run_id: str | None = None,
        patient: bool = False,
    ) -> StreamReading[StoredChunk] | None:
        """See `StreamStore.create_resumable_reader`."""
        if from_sequence is not None and after_sequence is not None:
            raise InvalidRequestError("from_sequence and after_sequence are both given; give one of them")
        after = after_sequence or 0 if from_sequence is None else from_sequence - 1
        if not 0 <= after < _MOST:
            raise InvalidRequestError(f"sequence {after + 1}: they count from 1")
        return await self._open_reader(stream_id, after, lambda stored: stored, run_id, patient=patient)

    async def _open_reader(
        self,
        stream_id: str,
        after: int,
        shown: Callable[[StoredChunk], T],
        run_id: str | None,
        *,
        patient: bool = False,
    ) -> StreamReading[T] | None:
        view = await self._read_view(validate_id(stream_id, "stream id"), after, PAGE)
        if view is None:
            return None
        return StreamReading(
            self,
            view,
            after,
            self._get_feed,
            shown,
            run_id=run_id,
            abandoned_after=math.inf if patient else self.limits.abandoned_after,
        )

    def _get_feed(self, view: View) -> Feed:
        stream_id = view.head.stream_id
        # Who waits on one loop can't be woken from another.
        feeds = self._feeds.setdefault(asyncio.get_running_loop(), {})
        feed = feeds.get(stream_id)
        if feed is None or not feed.running:
            for ended in [key for key, each in feeds.items() if not each.running]:
                del feeds[ended]
            # Looked at often enough to notice in time that a producer is silent.
            seconds = min(LONGEST_WAIT, max(0.05, self.limits.abandoned_after / 4))
            feed = feeds[stream_id] = Feed(self, view, seconds)
        return feed

    # -- changes of status

    async def end_stream(
        self,
        stream_id: str,
        *,
        status: EndStatus,
        output: object = None,
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> None:
        """See `StreamStore.end_stream`."""
        changes.check_end_status(status)
        check_json(output)
        size = len(dump_json(output))
        large = size > self.limits.max_chunk_bytes
        kept, left_out = (None, size) if large else (output, None)

        def rule(view: View) -> StatusChange | None:
            return changes.decide_end(view.head, status, kept, left_out, view.now)

        await self._change_by_rule(stream_id, rule, fence, operation_id)

    async def fail_stream(
        self,
        stream_id: str,
        error: ErrorInfo | str,
        *,
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> None:
        """See `StreamStore.fail_stream`."""
        given = error if isinstance(error, ErrorInfo) else ErrorInfo(message=error)
        # Never refused for its size: readers must learn that it is over.
        most = max(16, self.limits.max_chunk_bytes // 12)
        what = ErrorInfo(type=given.type[:256], message=given.message[:most])
        await self._change_by_rule(
            stream_id, lambda view: changes.decide_failure(view.head, what, view.now), fence, operation_id
        )

    async def pause_stream(
        self, stream_id: str, *, fence: int | None = None, operation_id: str | None = None
    ) -> None:
        """See `StreamStore.pause_stream`."""
        await self._change_by_rule(
            stream_id, lambda view: changes.decide_pause(view.head), fence, operation_id
        )

    async def resume_stream(
        self, stream_id: str, *, fence: int | None = None, operation_id: str | None = None
    ) -> None:
        """See `StreamStore.resume_stream`."""
        await self._change_by_rule(
            stream_id, lambda view: changes.decide_resume(view.head), fence, operation_id
        )

    async def reset_stream(
        self,
        stream_id: str,
        *,
        reason: str = "reset",
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> int:
        """See `StreamStore.reset_stream`."""

        def rule(view: View) -> StatusChange:
            chunk = StreamResync(reason=reason, position=view.head.last, timestamp=view.now)
            return changes.decide_reset(view.head, to_bytes(chunk, {}), view.now)

        return await self._change_by_rule(stream_id, rule, fence, operation_id)

    async def _change_by_rule(
        self,
        stream_id: str,
        rule: Callable[[View], StatusChange | None],
        fence: int | None,
        operation_id: str | None,
    ) -> int:
        """Look, decide, change; again where somebody was faster."""
        validate_id(stream_id, "stream id")
        _check_fence(fence)
        if operation_id is not None:
            validate_id(operation_id, "operation id")
        for attempt in range(_TRIES):
            view = await self._read_view(stream_id, 0, 0)
            if view is None:
                raise rules.stream_not_found_error(stream_id)
            highest = changes.check_fence(view.head, fence)
            if changes.is_operation_done(view.head, operation_id):
                return view.head.facts.resync_at
            change = rule(view)
            if change is None:
                return view.head.last
            last = await self._change_status(changes.with_fence_and_operation(change, highest, operation_id))
            if last is not None:
                return last
            await asyncio.sleep(retry_pause(attempt, first=0.002, longest=0.05))
        raise StoreUnavailableError(f"stream {stream_id!r} is written to all the time; repeat the call later")

    # -- the rest

    async def get_info(self, stream_id: str) -> StreamInfo | None:
        """See `StreamStore.get_info`."""
        view = await self._read_view(validate_id(stream_id, "stream id"), 0, 0)
        return None if view is None else view.head.info

    async def delete_stream(self, stream_id: str) -> bool:
        """See `StreamStore.delete_stream`."""
        return await self._drop_stream(validate_id(stream_id, "stream id"))

    async def close(self) -> None:
        """See `StreamStore.close`; readers on other event loops go on."""
        for feed in self._feeds.pop(asyncio.get_running_loop(), {}).values():
            await feed.close()


def _check_fence(fence: int | None) -> int | None:
    if fence is not None and not 0 <= fence < _MOST:
        raise InvalidRequestError(f"fence {fence}: from 0 to 2^53 expected")
    return fence


def _check_limits(limits: StreamLimits) -> None:
    if limits.ttl is not None and not 0.001 <= limits.ttl <= 400 * 24 * 3600:
        raise InvalidConfigError(f"stream_ttl: {limits.ttl} s, a millisecond to 400 days expected")
    if limits.max_chunks < 0:
        raise InvalidConfigError(f"stream_max_chunks: {limits.max_chunks}, 0 or more expected")
    if not 256 <= limits.max_chunk_bytes <= 64 * 1024 * 1024:
        raise InvalidConfigError(
            f"stream_max_chunk_bytes: {limits.max_chunk_bytes}, 256 bytes to 64 MiB expected"
        )
    if limits.abandoned_after <= 0:
        raise InvalidConfigError(f"streams: abandoned_after is {limits.abandoned_after} s, more expected")
