"""Activities ``helix.threads.*``: every operation on threads, idempotent, over the protocol alone."""

import asyncio
import base64
from collections.abc import Mapping, Sequence

import orjson
from temporalio import activity

from helix_temporal.activities._runtime import (
    application_code,
    as_reopen,
    default_owner,
    heartbeat_with_progress,
    limited_as,
    raise_application_errors,
    scheduled_epoch,
)
from helix_temporal.activities.payloads import pack_page
from helix_temporal.errors import HeadMovedError, NotServedError, TooLargeError
from helix_temporal.models.base import canonical_json
from helix_temporal.models.messages import Message, check_size, decode_message, encode_message
from helix_temporal.models.stored_messages import EMPTY, Kind, StoredMessage
from helix_temporal.models.threads import (
    AppendMessagesInput,
    AppendMessagesResult,
    DeleteThreadInput,
    DescribeThreadResult,
    Done,
    EvictThreadResult,
    FlushThreadInput,
    FlushThreadResult,
    ForkThreadInput,
    HydrateThreadResult,
    LargeMessage,
    LoadStateResult,
    OpenThreadInput,
    OpenThreadResult,
    ReadBodyInput,
    ReadBodyResult,
    ReadMessagesInput,
    ReadMessagesResult,
    ReplaceMessagesInput,
    SaveStateInput,
    SaveStateResult,
    ThreadEpochInput,
    ThreadInput,
)
from helix_temporal.models.turns import encode_messages
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.streams import StreamStore
from helix_temporal.stores.protocols.threads import (
    Create,
    FlushThread,
    ForkedThread,
    ForkThread,
    OpenedThread,
    OpenThread,
    ReadPage,
    ThreadFacts,
    ThreadPage,
    ThreadStore,
    Transform,
)

MAX_BATCH = 10_000
_STUB_BYTES = 1024


class ThreadActivities:
    """Threads for workflows that manage their own, and for the programs behind them.

    Args:
        transforms: What a fork may do to its messages, by name.
        max_payload: Bytes that a result may have; larger messages are read in parts.
        max_message: Bytes of one message that came through a workflow.
        max_batch: Messages of one append.
        beat_every: Seconds between background heartbeats.
        roll_out: Seconds for which other workers are tried when a transform is missing here.
    """

    def __init__(
        self,
        threads: ThreadStore,
        *,
        transforms: Mapping[str, Transform] | None = None,
        max_payload: int = 1024 * 1024,
        max_message: int = 1024 * 1024,
        max_batch: int = MAX_BATCH,
        beat_every: float = 1.0,
        streams: StreamStore | None = None,
        roll_out: float = 600.0,
    ) -> None:
        self._threads, self._transforms, self._streams = threads, dict(transforms or {}), streams
        self._max_payload, self._max_message, self._beat_every = max_payload, max_message, beat_every
        self._max_batch, self._retry_for_ms = max_batch, int(roll_out * 1000)

    @activity.defn(name="helix.threads.open")
    @raise_application_errors
    @limited_as("heartbeat")
    async def open(self, request: OpenThreadInput) -> OpenThreadResult:
        """Take the epoch: create, continue, rewind or re-open."""
        return await self._open_thread(
            OpenThread(
                request.thread_id,
                scheduled_epoch(),
                request.owner or default_owner(),
                create=Create(request.create),
                reopen=as_reopen(request.reopen),
                rewind_to=request.rewind_to,
                adapter=request.adapter,
            )
        )

    @activity.defn(name="helix.threads.replace")
    @raise_application_errors
    @limited_as("heartbeat")
    async def replace(self, request: ReplaceMessagesInput) -> OpenThreadResult:
        """Replace all messages in one swap; takes a new epoch."""
        return await self._open_thread(
            OpenThread(
                request.thread_id,
                scheduled_epoch(),
                request.owner or default_owner(),
                create=Create.NEVER,
                rewind_to=EMPTY,
                messages=self._build_messages(request.messages),
            )
        )

    async def _open_thread(self, request: OpenThread) -> OpenThreadResult:
        async with heartbeat_with_progress(self._beat_every) as progress:
            opened: OpenedThread = await self._threads.open(request, progress)
        return OpenThreadResult(
            epoch=request.epoch,
            head=opened.at,
            committed=opened.header.committed,
            slice_version=opened.header.slice_version,
            created=opened.created,
            cut=opened.cut,
        )

    @activity.defn(name="helix.threads.append")
    @raise_application_errors
    async def append(self, request: AppendMessagesInput) -> AppendMessagesResult:
        """Add one step's messages exactly at the head; a repeat finds them there."""
        messages = self._build_messages(request.messages)
        if not messages:
            facts = await self._threads.read_facts(request.thread_id)
            return AppendMessagesResult(head=facts.head, committed=facts.committed, repeated=True)
        step = StepAppend(request.thread_id, request.epoch, request.head, messages, commits=request.commits)
        appended = await self._threads.append(step)
        await self._threads.confirm_step(step, appended)
        return AppendMessagesResult(
            head=appended.head, committed=appended.header.committed, repeated=appended.repeated
        )

    def _build_messages(self, messages: Sequence) -> tuple[StoredMessage, ...]:  # type: ignore[type-arg]
        if len(messages) > self._max_batch:
            raise TooLargeError(f"messages: {len(messages)} > {self._max_batch}")
        stored = encode_messages(messages)
        for message in stored:
            check_size(len(message.body), self._max_message, f"message {message.id!r}")
        return stored

    @activity.defn(name="helix.threads.read")
    @raise_application_errors
    @limited_as("heartbeat")
    async def read(self, request: ReadMessagesInput) -> ReadMessagesResult:
        """One page; never makes a thread hot.  What does not fit comes without its content."""
        async with heartbeat_with_progress(self._beat_every):
            page = await self._threads.read(
                ReadPage(
                    request.thread_id,
                    request.start,
                    request.stop,
                    request.limit,
                    request.max_bytes,
                    request.backward,
                    request.committed_only,
                    request.whole,
                )
            )
        if request.packed:
            packed = await asyncio.to_thread(pack_page, page, self._max_payload)
            if packed is not None:
                return packed
        large = too_large(page, self._max_payload)
        places = {each.position - page.first for each in large}
        messages = tuple(
            _strip_message(message) if at in places else decode_message(message)
            for at, message in enumerate(page.messages)
        )
        result = ReadMessagesResult(
            first=page.first,
            messages=messages,
            before=page.before,
            after=page.after,
            head=page.head,
            committed=page.committed,
        )
        return result.model_copy(update={"large": large}) if large else result

    @activity.defn(name="helix.threads.read_body")
    @raise_application_errors
    @limited_as("heartbeat")
    async def read_body(self, request: ReadBodyInput) -> ReadBodyResult:
        """A part of one message, for those that are too large for a page."""
        at = request.position
        async with heartbeat_with_progress(self._beat_every):
            page = await self._threads.read(ReadPage.of_message(request.thread_id, at))
        if not page.messages or page.messages[0].id != request.id:
            raise HeadMovedError(
                f"thread {request.thread_id!r}: message {request.id!r} is not at {at} any more; read again"
            )
        body = page.messages[0].body
        part = body[request.offset : request.offset + self._max_payload // 4 * 3]
        return ReadBodyResult(data=base64.b64encode(part).decode(), size=len(body))

    @activity.defn(name="helix.threads.describe")
    @raise_application_errors
    async def describe(self, request: ThreadInput) -> DescribeThreadResult:
        """Where a thread stands, without its messages."""
        return _describe_thread(await self._threads.read_facts(request.thread_id))

    @activity.defn(name="helix.threads.fork")
    @raise_application_errors
    @limited_as("model")
    async def fork(self, request: ForkThreadInput) -> DescribeThreadResult:
        """Copy finished turns into a new thread, through a registered transform if one is named."""
        transform = None
        if request.transform is not None:
            transform = self._transforms.get(request.transform)
            if transform is None:
                names = ", ".join(sorted(self._transforms)) or "none"
                raise NotServedError(
                    f"transform {request.transform!r} is not known to the worker that was asked; "
                    f"it knows: {names}",
                    retry_for_ms=self._retry_for_ms,
                )
            transform = _wrap_transform(transform, request.transform)
        fork = ForkThread(
            request.source_id,
            request.target_id,
            scheduled_epoch(),
            request.owner or default_owner(),
            at=request.at,
            slice=None if transform is None else await self._without_summary(request.source_id),
        )
        async with heartbeat_with_progress(self._beat_every) as progress:
            return _describe_fork(await self._threads.fork(fork, transform, progress))

    async def _without_summary(self, thread_id: str) -> bytes:
        """The slice for changed messages: what was said of them as they were must not go along."""
        data = (await self._threads.read_facts(thread_id)).slice
        if not data:
            return data
        told = {"summary", "taken_back"}
        return canonical_json({name: each for name, each in orjson.loads(data).items() if name not in told})

    @activity.defn(name="helix.threads.load_state")
    @raise_application_errors
    async def load_state(self, request: ThreadInput) -> LoadStateResult:
        """The slice as JSON, and its version."""
        facts = await self._threads.read_facts(request.thread_id)
        check_size(len(facts.slice), self._max_payload, "state")
        return LoadStateResult(state=orjson.loads(facts.slice or b"{}"), version=facts.slice_version)

    @activity.defn(name="helix.threads.save_state")
    @raise_application_errors
    async def save_state(self, request: SaveStateInput) -> SaveStateResult:
        """Replace the slice; the version must be the present one."""
        version = await self._threads.save_slice(
            request.thread_id, request.epoch, canonical_json(request.state), request.expected_version
        )
        return SaveStateResult(version=version)

    @activity.defn(name="helix.threads.flush")
    @raise_application_errors
    @limited_as("heartbeat")
    async def flush(self, request: FlushThreadInput) -> FlushThreadResult:
        """Archive what is hot; a repeat finds it archived."""
        async with heartbeat_with_progress(self._beat_every) as progress:
            flush = FlushThread(
                request.thread_id,
                request.epoch,
                closes=request.closes,
                ends=request.ends,
                slice_version=request.slice_version,
                known_head=request.head,
            )
            receipt = await self._threads.flush(flush, progress)
        return FlushThreadResult(
            status=receipt.status.value,
            head=receipt.head or EMPTY,
            committed=receipt.committed,
            version=receipt.version,
            puts=receipt.puts,
            gets=receipt.gets,
            uploaded=receipt.uploaded,
            pending_bytes=receipt.pending_bytes,
            reason=receipt.reason,
        )

    @activity.defn(name="helix.threads.evict")
    @raise_application_errors
    async def evict(self, request: ThreadEpochInput) -> EvictThreadResult:
        """Drop the hot thread if all of it is archived."""
        return EvictThreadResult(outcome=str(await self._threads.evict(request.thread_id, request.epoch)))

    @activity.defn(name="helix.threads.hydrate")
    @raise_application_errors
    @limited_as("heartbeat")
    async def hydrate(self, request: ThreadEpochInput) -> HydrateThreadResult:
        """Make a cold thread hot; a hot one is left alone."""
        async with heartbeat_with_progress(self._beat_every) as progress:
            header = await self._threads.hydrate(request.thread_id, request.epoch, progress)
        return HydrateThreadResult(hot=header is not None, head=header.head if header else EMPTY)

    @activity.defn(name="helix.threads.delete")
    @raise_application_errors
    @limited_as("model")
    async def delete(self, request: DeleteThreadInput) -> Done:
        """Remove the thread, and what was shown of it; no late attempt brings it back."""
        async with heartbeat_with_progress(self._beat_every):
            await self._threads.delete(request.thread_id, scheduled_epoch())
            if self._streams is not None:
                await self._streams.delete_stream(request.thread_id)
        return Done()


def too_large(page: ThreadPage, limit: int) -> tuple[LargeMessage, ...]:
    """Which messages of a page must stay behind so that the others fit; the largest ones.

    Raises:
        TooLargeError: There are too many of them all the same.
    """
    sizes = sorted(((len(message.body), at) for at, message in enumerate(page.messages)), reverse=True)
    total, behind = sum(size for size, _ in sizes), []
    for size, at in sizes:
        if total <= limit or size <= _STUB_BYTES:
            break
        behind.append(LargeMessage(position=page.first + at, id=page.messages[at].id, size=size))
        total -= size - _STUB_BYTES
    check_size(total, limit, "messages of this page (ask for a smaller one)")
    return tuple(sorted(behind, key=lambda each: each.position))


def _strip_message(message: StoredMessage) -> Message:
    """The message without what makes it large."""
    return decode_message(message).model_copy(
        update={"content": "", "tool_calls": (), "given": None, "provider": {}, "metadata": {}}
    )


def _describe_fork(forked: ForkedThread) -> DescribeThreadResult:
    return DescribeThreadResult(
        thread_id=forked.thread_id,
        head=forked.head,
        committed=forked.head.position,
        epoch=forked.epoch,
        owner=forked.owner,
        closed=False,
        hot=forked.hot,
        archived=forked.archived,
        slice_version=forked.slice_version,
        adapter=forked.adapter,
        size=forked.size,
    )


def _describe_thread(facts: ThreadFacts) -> DescribeThreadResult:
    return DescribeThreadResult(
        thread_id=facts.thread_id,
        head=facts.head,
        committed=facts.committed,
        epoch=facts.epoch,
        owner=facts.owner,
        closed=facts.closed,
        hot=facts.hot,
        archived=facts.archived,
        slice_version=facts.slice_version,
        adapter=facts.adapter,
        size=facts.size,
    )


def _wrap_transform(transform: Transform, name: str) -> Transform:
    """The transform, whose exceptions say that they are its own."""

    async def transformed(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        with application_code(f"transform {name!r}"):
            changed = tuple(await transform(messages))
        return tuple(map(_without_given, changed))

    return transformed


def _without_given(message: StoredMessage) -> StoredMessage:
    """The message without what its model was given: a summary in it tells of messages as they were."""
    if message.kind not in Kind.ANSWERS or b'"given"' not in message.body:
        return message
    answer = decode_message(message).model_copy(update={"given": None})
    return encode_message(answer)._replace(kind=message.kind)
