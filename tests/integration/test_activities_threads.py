"""Activities ``helix.threads.*``: a second attempt gives the first answer and changes nothing."""

import base64
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import ThreadActivities
from helix_temporal.backends import Backends
from helix_temporal.models.messages import Message, decode_message
from helix_temporal.models.steps import ReopenHeads
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.models.threads import (
    AppendMessagesInput,
    DeleteThreadInput,
    FlushThreadInput,
    ForkThreadInput,
    OpenThreadInput,
    OpenThreadResult,
    ReadBodyInput,
    ReadMessagesInput,
    ReplaceMessagesInput,
    SaveStateInput,
    ThreadEpochInput,
    ThreadInput,
)
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ReadPage

R = TypeVar("R")
T = "t-1"


class Caller:
    """Runs activities as Temporal does: each call is scheduled later than the one before it."""

    def __init__(self, backends: Backends) -> None:
        self.backends = backends
        self.threads = ThreadActivities(backends.threads, max_payload=64 * 1024, beat_every=0.05)
        self._scheduled = datetime.now(UTC)
        self.beats: list[tuple[Any, ...]] = []

    async def once(self, function: Callable[[Any], Awaitable[R]], request: Any, attempts: int = 1) -> list[R]:
        """So many attempts of one activity; the answer of each."""
        self._scheduled += timedelta(milliseconds=5)
        found = []
        for attempt in range(1, attempts + 1):
            environment = ActivityEnvironment()
            environment.info = dataclasses.replace(
                environment.info,
                attempt=attempt,
                scheduled_time=self._scheduled,
                # A standalone activity: there is no workflow whose id could tell calls apart.
                workflow_id=None,
                workflow_run_id=None,
                activity_id=f"a-{self._scheduled.timestamp()}",
            )
            environment.on_heartbeat = lambda *details: self.beats.append(details)
            found.append(await environment.run(function, request))
        return found

    async def __call__(self, function: Callable[[Any], Awaitable[R]], request: Any) -> R:
        """The answer of one attempt."""
        return (await self.once(function, request))[0]

    async def twice(self, function: Callable[[Any], Awaitable[R]], request: Any) -> tuple[R, R]:
        """The answers of two attempts."""
        first, second = await self.once(function, request, attempts=2)
        return first, second

    async def open(self, thread_id: str = T, **fields: Any) -> OpenThreadResult:
        """Take the epoch."""
        return await self(self.threads.open, OpenThreadInput(thread_id=thread_id, owner="me", **fields))

    async def turn(self, opened: OpenThreadResult, text: str, head: Head | None = None) -> Head:
        """One finished turn."""
        step = _append(opened, text, head)
        return (await self(self.threads.append, step)).head

    async def image(self, thread_id: str = T) -> Any:
        """All that can be seen of a thread."""
        page = await self.backends.threads.read(ReadPage(thread_id, limit=1000, committed_only=False))
        facts = await self.backends.threads.read_facts(thread_id)
        return page.messages, dataclasses.replace(facts, hot=True, archived=0)


def _append(opened: OpenThreadResult, text: str, head: Head | None = None) -> AppendMessagesInput:
    messages = (
        Message(id=f"{text[:20]}-q", role="user", content=text),
        Message(id=f"{text[:20]}-a", role="assistant", content=text.upper()),
    )
    return AppendMessagesInput(thread_id=T, epoch=opened.epoch, head=head or opened.head, messages=messages)


@pytest.fixture
async def call(settings: Settings) -> AsyncIterator[Caller]:
    backends = Backends(settings)
    yield Caller(backends)
    await backends.close()


async def test_open_that_creates(call: Caller) -> None:
    """The second attempt says "created" too, or its workflow would not know that it has."""
    first, second = await call.twice(call.threads.open, OpenThreadInput(thread_id=T, create="new"))
    assert first == second
    assert first.created


async def test_open_that_continues_and_cuts(call: Caller) -> None:
    """What was cut is said by both attempts."""
    opened = await call.open()
    step = _append(opened, "one")
    await call(call.threads.append, step.model_copy(update={"commits": False}))
    first, second = await call.twice(call.threads.open, OpenThreadInput(thread_id=T))
    assert first == second
    assert (first.created, first.cut, first.head) == (False, 2, EMPTY)


async def test_open_that_rewinds(call: Caller) -> None:
    """A second cut at the same place is none."""
    opened = await call.open()
    head = await call.turn(opened, "one")
    await call.turn(opened, "two", head)
    first, second = await call.twice(call.threads.open, OpenThreadInput(thread_id=T, rewind_to=head))
    assert first == second
    assert first.head == head


async def test_open_again_after_a_crash(call: Caller) -> None:
    """A re-open keeps what its owner knows."""
    opened = await call.open()
    head = await call.turn(opened, "one")
    again = OpenThreadInput(thread_id=T, owner="me", reopen=ReopenHeads(head=head, turn_start=head))
    first, second = await call.twice(call.threads.open, again)
    assert first == second
    assert first.head == head


async def test_append(call: Caller) -> None:
    """The second attempt finds the first one's messages there."""
    opened = await call.open()
    first, second = await call.twice(call.threads.append, _append(opened, "one"))
    assert (first.head, first.committed) == (second.head, second.committed)
    assert (first.repeated, second.repeated) == (False, True)
    assert len((await call.image())[0]) == 2


async def test_a_late_append_after_the_thread_has_grown(call: Caller) -> None:
    """A zombie's answer is that of its own step, and nothing moves."""
    opened = await call.open()
    step = _append(opened, "one")
    first = await call(call.threads.append, step)
    await call.turn(opened, "two", first.head)
    before = await call.image()
    late = await call(call.threads.append, step)
    assert (late.head, late.repeated) == (first.head, True)
    assert await call.image() == before


async def test_an_append_of_nothing(call: Caller) -> None:
    """It changes nothing and is no error."""
    opened = await call.open()
    empty = AppendMessagesInput(thread_id=T, epoch=opened.epoch, head=opened.head, messages=())
    first, second = await call.twice(call.threads.append, empty)
    assert first == second


async def test_replace(call: Caller) -> None:
    """All messages are others, once."""
    opened = await call.open()
    await call.turn(opened, "one")
    summary = (
        Message(id="s", role="user", content="so far"),
        Message(id="t", role="assistant", content="ok"),
    )
    request = ReplaceMessagesInput(thread_id=T, messages=summary)
    first, second = await call.twice(call.threads.replace, request)
    assert first == second
    assert [message.id for message in (await call.image())[0]] == ["s", "t"]


async def test_read_and_describe(call: Caller) -> None:
    """Reads are reads."""
    opened = await call.open()
    await call.turn(opened, "one")
    before = await call.image()
    first, second = await call.twice(call.threads.read, ReadMessagesInput(thread_id=T))
    assert first == second
    assert [message.text for message in first.messages] == ["one", "ONE"]
    described = await call.twice(call.threads.describe, ThreadInput(thread_id=T))
    assert described[0] == described[1]
    assert await call.image() == before


async def test_a_message_that_is_too_large_for_a_page_is_read_in_parts(call: Caller) -> None:
    """Temporal carries two megabytes at most; a thread carries more."""
    opened = await call.open()
    text = "é" * 100_000
    await call.turn(opened, text)
    page = await call(call.threads.read, ReadMessagesInput(thread_id=T))
    assert [large.position for large in page.large] == [0]
    assert [message.text for message in page.messages] == [""]
    body = b""
    large = page.large[0]
    while len(body) < large.size:
        part = ReadBodyInput(thread_id=T, position=large.position, id=large.id, offset=len(body))
        first, second = await call.twice(call.threads.read_body, part)
        assert first == second
        body += base64.b64decode(first.data)
    assert decode_message(StoredMessage("", large.id, body)).text == text


async def test_fork(call: Caller) -> None:
    """One copy, whatever became of the source meanwhile."""
    opened = await call.open()
    head = await call.turn(opened, "one")
    request = ForkThreadInput(source_id=T, target_id="t-2", owner="me")
    first, second = await call.twice(call.threads.fork, request)
    assert first == second
    await call.turn(opened, "two", head)
    assert len((await call.image("t-2"))[0]) == 2


async def test_save_and_load_state(call: Caller) -> None:
    """The version goes up once, and a lost answer is found again."""
    opened = await call.open()
    request = SaveStateInput(
        thread_id=T, epoch=opened.epoch, state={"a": 1}, expected_version=opened.slice_version
    )
    first, second = await call.twice(call.threads.save_state, request)
    assert first == second
    loaded = await call.twice(call.threads.load_state, ThreadInput(thread_id=T))
    assert loaded[0] == loaded[1]
    assert (loaded[0].state, loaded[0].version) == ({"a": 1}, first.version)


async def test_flush(call: Caller) -> None:
    """What is archived is archived; the second attempt writes nothing."""
    opened = await call.open()
    await call.turn(opened, "one")
    first, second = await call.twice(call.threads.flush, FlushThreadInput(thread_id=T, epoch=opened.epoch))
    assert (first.status, first.head, first.committed) == (second.status, second.head, second.committed)
    assert (first.status, first.puts, second.puts) == ("archived", 1, 0)


async def test_evict_and_hydrate(call: Caller) -> None:
    """Gone twice is gone; hot twice is hot."""
    opened = await call.open()
    await call.turn(opened, "one")
    await call(call.threads.flush, FlushThreadInput(thread_id=T, epoch=opened.epoch))
    before = await call.image()
    own = ThreadEpochInput(thread_id=T, epoch=opened.epoch)
    first, second = await call.twice(call.threads.evict, own)
    assert (first.outcome, second.outcome) == ("dropped", "absent")
    hot = await call.twice(call.threads.hydrate, own)
    assert hot[0] == hot[1]
    assert hot[0].hot
    assert await call.image() == before


async def test_delete(call: Caller) -> None:
    """A second delete of the same thread is the first one."""
    await call.turn(await call.open(), "one")
    first, second = await call.twice(call.threads.delete, DeleteThreadInput(thread_id=T))
    assert first == second
    with pytest.raises(ApplicationError, match="deleted"):
        await call(call.threads.describe, ThreadInput(thread_id=T))


@pytest.mark.parametrize("operation", ["append", "save_state", "flush"])
async def test_an_older_epoch_is_refused_for_good_and_changes_nothing(call: Caller, operation: str) -> None:
    """One writer: not retried, since it will never be right again."""
    old = await call.open()
    await call.turn(old, "one")
    await call.open()
    before = await call.image()
    requests: dict[str, Any] = {
        "append": _append(old, "two", before[1].head),
        "save_state": SaveStateInput(thread_id=T, epoch=old.epoch, state={}, expected_version=0),
        "flush": FlushThreadInput(thread_id=T, epoch=old.epoch),
    }
    with pytest.raises(ApplicationError) as caught:
        await call(getattr(call.threads, operation), requests[operation])
    assert (caught.value.type, caught.value.non_retryable) == ("FencedError", True)
    assert await call.image() == before


async def test_an_older_epoch_evicts_nothing(call: Caller) -> None:
    """It is told that a newer one is there, and that is no error: the thread is looked after."""
    old = await call.open()
    await call.turn(old, "one")
    await call.open()
    result = await call(call.threads.evict, ThreadEpochInput(thread_id=T, epoch=old.epoch))
    assert result.outcome == "newer"
    assert (await call.backends.threads.read_facts(T)).hot


@pytest.mark.parametrize(
    ("name", "request_", "kind"),
    [
        ("describe", ThreadInput(thread_id="nobody"), "ThreadNotFoundError"),
        ("read", ReadMessagesInput(thread_id="nobody"), "ThreadNotFoundError"),
        ("open", OpenThreadInput(thread_id="nobody", create="never"), "ThreadNotFoundError"),
        ("read", ReadMessagesInput(thread_id=T, limit=0), "InvalidRequestError"),
        ("read", ReadMessagesInput(thread_id=T, start=-1), "InvalidRequestError"),
        ("fork", ForkThreadInput(source_id=T, target_id=T), "ThreadExistsError"),
        ("open", OpenThreadInput(thread_id=T, create="new"), "ThreadExistsError"),
        ("open", OpenThreadInput(thread_id=T, rewind_to=Head(position=1, last_id="x")), "HeadMovedError"),
    ],
)
async def test_bad_requests_are_typed_and_not_retried(
    call: Caller, name: str, request_: Any, kind: str
) -> None:
    """A permanent failure is known within seconds, by its name."""
    await call.turn(await call.open(), "one")
    with pytest.raises(ApplicationError) as caught:
        await call(getattr(call.threads, name), request_)
    assert (caught.value.type, caught.value.non_retryable) == (kind, True)


async def test_a_transform_that_is_not_there_is_looked_for_at_other_workers(call: Caller) -> None:
    """While a new version is rolled out another worker may have it; nothing is forked meanwhile."""
    await call.turn(await call.open(), "one")
    with pytest.raises(ApplicationError, match="transform 'none' is not known") as caught:
        await call(call.threads.fork, ForkThreadInput(source_id=T, target_id="x", transform="none"))
    assert (caught.value.type, caught.value.non_retryable) == ("NotServedError", False)
    with pytest.raises(ApplicationError) as missing:
        await call(call.threads.describe, ThreadInput(thread_id="x"))
    assert missing.value.type == "ThreadNotFoundError"


async def test_a_batch_that_is_too_large_is_refused_by_name(call: Caller) -> None:
    """Before a store sees it."""
    opened = await call.open()
    large = _append(opened, "x" * (1024 * 1024 + 1))
    with pytest.raises(ApplicationError, match="message") as caught:
        await call(call.threads.append, large)
    assert caught.value.type == "TooLargeError"
    assert (await call.image())[0] == ()
