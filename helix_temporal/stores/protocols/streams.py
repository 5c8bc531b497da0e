"""Streams: chunks in order, written while a run works, read live and again.

A stream shows what happens; it decides nothing.  What counts is in thread and state: a stream may be lost,
trimmed or deleted, and nothing of them is.
"""

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Protocol, Self

from helix_temporal.models.states import ErrorInfo
from helix_temporal.models.streams import ChunkBase, EndStatus, StoredChunk, StreamInfo, StreamStatus


class StreamWriter(Protocol):
    """Writes to one stream, for one attempt of a run.

    Raises (every write):
        StreamClosedError: The stream is paused or has ended; ``facts`` has its ``status``.
        FencedError: Somebody wrote under a higher fence: this writer must stop.
        StreamNotFoundError: It was deleted or has expired; another may have its id now.
        TooLargeError: A chunk is larger than the store takes; no sequence was used.
        InvalidMessageError: A chunk cannot be written as JSON.
        StoreUnavailableError: No answer: it may be written or not.  With a ``dedup_key``, repeat it.
    """

    @property
    def stream_id(self) -> str:
        """Where it writes."""
        ...

    async def write(self, chunk: ChunkBase, *, dedup_key: str | None = None) -> int:
        """Append a chunk; its sequence.

        Args:
            chunk: What it does not say of agent and time is filled in.
            dedup_key: Unique within the stream: a chunk that comes again under it is not written again,
                and the first one's sequence returned, also when the stream has ended meanwhile.  A reset
                forgets it.
        """
        ...

    async def write_many(
        self, chunks: Sequence[ChunkBase], *, dedup_keys: Sequence[str | None] | None = None
    ) -> list[int]:
        """Append chunks, one after the other with no other writer's between; all or none."""
        ...

    async def write_split(self, chunk: ChunkBase, *, dedup_key: str | None = None) -> list[int]:
        """As `write`; text, reasoning or arguments that are too large are written in several pieces."""
        ...

    async def beat(self) -> None:
        """Tell that the producer is alive; writes no chunk."""
        ...

    async def close(self) -> None:
        """End the writer, not the stream; later writes are `StreamClosedError`."""
        ...

    async def __aenter__(self) -> Self:
        """Nothing happens."""
        ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close the writer."""
        ...


class StreamReader(Protocol):
    """Chunks in order: what is stored, then what comes, until the stream is paused or has ended.

    Raises (while iterating):
        StreamFailedError: It failed; all that was written came before.  ``facts`` has the ``reason``.
        StreamTruncatedError: The next chunk was trimmed; ``facts`` has ``first_available``.
        StreamAbandonedError: It is active, and its producer has been silent for too long.
        StreamDroppedError: The connection was lost; read on with ``after_sequence=last_sequence``.
        StreamNotFoundError: It was deleted or has expired.
    """

    @property
    def status(self) -> StreamStatus:
        """What the reader knows of the stream; after a normal end ``paused`` or ``ended``."""
        ...

    @property
    def info(self) -> StreamInfo:
        """The same, whole."""
        ...

    def __aiter__(self) -> AsyncIterator[ChunkBase]:
        """The chunks; an iterator goes on where the last one stopped."""
        ...

    async def aclose(self) -> None:
        """Stop reading; waiting iterations end."""
        ...


class ResumableReader(Protocol):
    """As `StreamReader`, with the place of each chunk, from any place on."""

    @property
    def status(self) -> StreamStatus:
        """As `StreamReader.status`."""
        ...

    @property
    def info(self) -> StreamInfo:
        """As `StreamReader.info`."""
        ...

    @property
    def last_sequence(self) -> int:
        """Of the last chunk that was passed, also one that the filter left out."""
        ...

    def __aiter__(self) -> AsyncIterator[StoredChunk]:
        """The chunks; an iterator goes on where the last one stopped."""
        ...

    async def aclose(self) -> None:
        """As `StreamReader.aclose`."""
        ...


class StreamStore(Protocol):
    """Streams by their ids.

    A fence is the session's epoch: whoever names a lower one than was named before is refused, with
    nothing changed; who names none is not.  Ids of operations make repeats safe: one that was done already
    does nothing, whatever happened since.

    All methods raise `StoreUnavailableError` if the store does not answer, `InvalidIdError` and
    `InvalidRequestError` for arguments out of range.
    """

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
    ) -> StreamWriter:
        """A writer; the stream is made if there is none.

        Args:
            stream_id: What it writes to.
            agent_id: The run's id, for chunks that name none.
            agent_type: The agent's name, for chunks that name none.
            run_id: What readers can choose chunks by; ``agent_id`` by default.
            step_id: Of the step that the writer tells of.
            attempt: Of that step: above 1, ``step_discarded`` is written first, and once.
            fence: The session's epoch.
            resume: Make a paused stream active again.
            reached: A sequence that the stream is known to have had.  One that ends before it was lost, or
                restored from an older copy, and would give out numbers again that somebody may have read:
                it is reset, with reason ``restored``, before the next chunk is written.

        Raises:
            StreamClosedError: It has ended, or is paused and ``resume`` is not set.
            FencedError: Somebody wrote under a higher fence.
        """
        ...

    async def create_reader(self, stream_id: str) -> StreamReader | None:
        """Everything from the start on; None if there is no such stream."""
        ...

    async def create_resumable_reader(
        self,
        stream_id: str,
        *,
        from_sequence: int | None = None,
        after_sequence: int | None = None,
        run_id: str | None = None,
        patient: bool = False,
    ) -> ResumableReader | None:
        """Chunks from a sequence on, that one included or not; from the start without either.

        Past the end it waits while the stream is active.  Before a ``stream_resync`` it begins with that.

        Args:
            stream_id: What is read.
            from_sequence: Begin with this one.
            after_sequence: Begin with the one after this.
            run_id: Only what writers of this run wrote.
            patient: Wait on however long the producer is silent, as that of an idle session is.

        Raises:
            InvalidRequestError: Both places are given.
        """
        ...

    async def end_stream(
        self,
        stream_id: str,
        *,
        status: EndStatus,
        output: object = None,
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> None:
        """End it; nothing if it ended the same way before.  An output that is too large is left out.

        Raises:
            StreamClosedError: It ended another way.
            StreamNotFoundError: There is none.
            FencedError: Somebody wrote under a higher fence.
        """
        ...

    async def fail_stream(
        self,
        stream_id: str,
        error: ErrorInfo | str,
        *,
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> None:
        """End it by a failure; raises as `end_stream`."""
        ...

    async def pause_stream(
        self, stream_id: str, *, fence: int | None = None, operation_id: str | None = None
    ) -> None:
        """Close it for now: readers end normally, writes are refused; nothing if it is paused.

        Raises:
            StreamClosedError: It has ended.
            StreamNotFoundError, FencedError: As for `end_stream`.
        """
        ...

    async def resume_stream(
        self, stream_id: str, *, fence: int | None = None, operation_id: str | None = None
    ) -> None:
        """Make a paused stream active again; raises as `pause_stream`."""
        ...

    async def reset_stream(
        self,
        stream_id: str,
        *,
        reason: str = "reset",
        fence: int | None = None,
        operation_id: str | None = None,
    ) -> int:
        """Drop all chunks and dedup keys, and write ``stream_resync``; its sequence.

        That is the last one's and one more, or the store's clock in milliseconds, whichever is higher;
        counting goes on from there.  Whoever has read up to any lower sequence comes to it next, also where
        the stream was restored from an older copy and ended before that.

        The stream is active afterwards, whatever it was.  Raises `StreamNotFoundError`, `FencedError`.
        """
        ...

    async def get_info(self, stream_id: str) -> StreamInfo | None:
        """The stream as it stands, None if there is none."""
        ...

    async def delete_stream(self, stream_id: str) -> bool:
        """Remove it with all chunks; whether there was one."""
        ...

    async def close(self) -> None:
        """Give back what readers of this process hold; the next use, also a reader's, opens it again."""
        ...
