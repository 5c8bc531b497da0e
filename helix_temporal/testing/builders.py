"""Messages, steps and headers for tests: every argument has a default that is valid."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import uuid4

from helix_temporal.models.messages import Message
from helix_temporal.models.stored_messages import EMPTY, Head, Kind, StoredMessage, head_after, size_of
from helix_temporal.stores.protocols.hot import Archived, HotHeader, HotTier, Rebase, StepAppend

EPOCH = 1_800_000_000_000_000
"""A plausible epoch: microseconds since 1970, beyond what a double with few digits prints exactly."""


def an_id() -> str:
    """A fresh id, 36 characters."""
    return str(uuid4())


def a_message(
    text: str | bytes = "hello", *, kind: str = Kind.USER, message_id: str | None = None
) -> StoredMessage:
    """A user's message, opaque bytes to the store."""
    body = text.encode() if isinstance(text, str) else text
    return StoredMessage(kind, an_id() if message_id is None else message_id, body)


def user_message(message_id: str, text: str, **metadata: str) -> Message:
    """A user's message of plain text."""
    return Message(id=message_id, role="user", content=text, metadata=dict(metadata))


def an_answer(text: str | bytes = "hi there", *, message_id: str | None = None) -> StoredMessage:
    """A model's answer that asks for no tool."""
    return a_message(text, kind=Kind.ANSWER, message_id=message_id)


def messages(count: int, *, size: int = 5, prefix: str = "m") -> tuple[StoredMessage, ...]:
    """``count`` messages with ids ``m0``, ``m1`` … and bodies of ``size`` bytes."""
    return tuple(a_message(b"%0*d" % (size, n), message_id=f"{prefix}{n}") for n in range(count))


def a_header(thread_id: str, messages: Sequence[StoredMessage] = (), *, base: Head = EMPTY) -> HotHeader:
    """The header of a thread that holds exactly ``messages`` after ``base``, nothing of it archived."""
    return HotHeader(
        thread_id=thread_id,
        epoch=EPOCH,
        owner="run-1",
        head=head_after(base, messages),
        base=base,
        size=size_of(messages),
    )


def a_step(
    thread_id: str,
    head: Head = EMPTY,
    *,
    inputs: Iterable[StoredMessage] | None = None,
    answer: StoredMessage | None = None,
    epoch: int = EPOCH,
) -> StepAppend:
    """A user's message and its answer at ``head``; a plain append where only ``inputs`` are given."""
    if inputs is None and answer is None:
        inputs, answer = (a_message(),), an_answer()
    return StepAppend(thread_id, epoch, head, tuple(inputs or ()), answer)


def all_of(header: HotHeader) -> Archived:
    """The archive that holds everything the header tells of."""
    return Archived(header.head, header.committed, header.slice_version, header.size)


async def opened(store: HotTier, thread_id: str, header: HotHeader | None = None) -> HotHeader:
    """Create an empty thread under `EPOCH`, or the one that ``header`` describes."""
    header = header or a_header(thread_id)
    made = await store.rebase(Rebase(None, header, keep=header.base.position))
    assert made is not None, f"{thread_id!r} was hot before"
    return made


async def grown(store: HotTier, thread_id: str, *steps: Sequence[StoredMessage]) -> HotHeader:
    """Create a thread under `EPOCH` and append each of ``steps`` plainly."""
    header = await opened(store, thread_id)
    for messages in steps:
        appended = await store.append(a_step(thread_id, header.head, inputs=messages))
        assert appended is not None
        header = appended.header
    return header


async def archived(store: HotTier, header: HotHeader) -> HotHeader:
    """Let the hot thread know that all of it is archived, by way of a rebase to itself."""
    known = replace(header, archived=header.head.position, archived_size=header.size)
    made = await store.rebase(Rebase((header.epoch, header.head), known, keep=header.head.position))
    assert made is not None
    return made
