"""Chunks on their way to a stream: whatever is put, the rest gets there and the work goes on."""

import asyncio
import logging
from typing import Any

import pytest

from helix_temporal.activities import stream_buffer
from helix_temporal.activities.stream_buffer import GRACE, BufferedStreamWriter, Grace, Keyed
from helix_temporal.activities.usage import UsageLog
from helix_temporal.models.messages import ChildEnd
from helix_temporal.models.steps import EndTurnInput, StepInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.streams import Custom
from helix_temporal.models.usage import UsageEntry
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.streams.writer import MOST_CHUNKS, Writing


def news(number: int, key: str | None = None) -> Keyed:
    return Keyed(Custom(event_name="news", data=number), key)


async def told(*items: Keyed) -> list[Any]:
    """What the stream holds after these were put at once."""
    streams = MemoryStreams()

    async def opens() -> Writing:
        return await streams.create_writer("s", agent_id="r")

    async with BufferedStreamWriter(opens, "test") as writer:
        writer.put(*items)
        await writer.write_last(news(-1))
    return [getattr(chunk, "data", None) for chunk in streams.get_chunks_sync("s")]


async def test_what_is_told_twice_at_once_under_one_key_is_told_once() -> None:
    """A store refuses a batch with a key twice; the tool's other news must not go with it."""
    assert await told(news(0), news(1, "k"), news(2, "k"), news(3)) == [0, 1, 3, -1]


async def test_a_step_that_has_nothing_more_to_tell_keeps_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is left to write may be nothing; the stream is no worse for it."""
    streams = MemoryStreams()

    async def opens() -> Writing:
        return await streams.create_writer("s", agent_id="r")

    with caplog.at_level(logging.WARNING):
        async with BufferedStreamWriter(opens, "test") as writer:
            writer.put(news(0))
            await writer.write_last()
            writer.put()
            await writer.write_last()
            assert writer.reached == 1
    assert caplog.text == ""


class SlowStreams(MemoryStreams):
    """A store whose writers open as late as is said."""

    pause = 0.0

    async def create_writer(self, *args: Any, **options: Any) -> Writing:
        """The same, later."""
        await asyncio.sleep(self.pause)
        return await super().create_writer(*args, **options)


async def test_one_slow_write_does_not_turn_streams_off_for_as_long_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Little patience is had with the store for a while; that it is never so quick is not its fault."""
    monkeypatch.setattr(stream_buffer, "_FOR", 1.0)
    streams, grace = SlowStreams(), Grace()

    async def is_shown(number: int) -> bool:
        async def opens() -> Writing:
            return await streams.create_writer("s", agent_id="r")

        async with BufferedStreamWriter(opens, "test", grace=grace) as writer:
            await writer.write_last(news(number))
        return any(getattr(chunk, "data", None) == number for chunk in streams.get_chunks_sync("s"))

    streams.pause = 2 * stream_buffer.GRACE
    assert not await is_shown(0)
    assert "did not take in time what was to be shown" in caplog.text
    streams.pause = 2 * stream_buffer._LITTLE
    for number in range(1, 40):
        if await is_shown(number):
            return
    pytest.fail("nothing was shown any more")


async def test_more_than_one_write_holds_is_written_in_several() -> None:
    """A tool that tells much in a loop is shown whole."""
    many = 2 * MOST_CHUNKS + 1
    assert await told(*map(news, range(many))) == [*range(many), -1]


async def test_a_key_that_no_store_takes_costs_its_own_chunk_alone(caplog: pytest.LogCaptureFixture) -> None:
    """An application's mistake is a line in the log."""
    with caplog.at_level(logging.WARNING):
        assert await told(news(0), news(1, "k" * 1000), news(2)) == [0, 2, -1]
    assert "left out" in caplog.text


async def test_a_chunk_that_no_store_takes_leaves_the_places_of_the_others_known() -> None:
    """A run is found by where its first chunk is: that was waited for in vain, and stored as 0."""
    streams, grace = MemoryStreams(), Grace()

    async def opens() -> Writing:
        return await streams.create_writer("s", agent_id="r")

    async with BufferedStreamWriter(opens, "test", grace) as writer:
        first, unfit = writer.watch_key("first"), writer.watch_key("k" * 1000)
        writer.put(news(0, "first"), news(1, "k" * 1000), news(2))
        assert await writer.wait_briefly(first) == 1
        assert await writer.wait_briefly(unfit) is None
        await writer.write_last()
        assert writer.reached == 2
    assert grace.seconds == GRACE


async def test_a_store_with_errors_of_its_own_costs_no_step(caplog: pytest.LogCaptureFixture) -> None:
    """A stream store from elsewhere need not know our errors; the tool has done its work."""

    async def fails() -> Writing:
        raise ConnectionResetError("by peer")

    with caplog.at_level(logging.WARNING):
        async with BufferedStreamWriter(fails, "test") as writer:
            await writer.write_last(news(0))
    assert "ConnectionResetError" in caplog.text


async def test_a_usage_store_with_errors_of_its_own_costs_no_turn(caplog: pytest.LogCaptureFixture) -> None:
    """What a sub-agent used is recorded beside the turn; the turn ends without."""

    class Fails(MemoryUsage):
        async def record_entry(self, entry: UsageEntry) -> Any:
            raise ConnectionResetError("by peer")

    child = ChildEnd(session_id="c", agent="b", status="completed")
    result = StepInput(id="r.0", text="ok", call="c1", name="ask", child=child)
    ends = EndTurnInput(session_id="s", epoch=1, head=EMPTY, inputs=(result,))
    with caplog.at_level(logging.WARNING):
        await UsageLog(Fails()).record_results(ends, SessionRecord())
    assert "is not recorded, and tried again: ConnectionResetError" in caplog.text
