"""A tool that failed for good: who looks learns it then, not with the next step, which may be days away."""

from typing import Any

import pytest
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities import Payloads, ToolRunner, _runtime
from helix_temporal.activities.live import Streaming
from helix_temporal.activities.usage import UsageLog
from helix_temporal.agents import Tool, tool
from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.steps import EndTurnInput, StepInput, ToolInput
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.models.streams import ToolEnd
from helix_temporal.models.usage import ToolUsageEntry, UsageEntry
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.memory import MemoryPayloads, MemoryThreads
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.threads.hot_only import HotThreads

REQUEST = ToolInput(
    session_id="s",
    thread_id="s",
    agent="a",
    tool="carrier",
    call=ToolCall(id="c1", name="carrier"),
    key="s/m1/0",
    turn=1,
    position=2,
    run_id="r1",
    epoch=5,
    step=1,
)


def carrier(error: BaseException, **options: Any) -> Tool:
    """A tool that fails by this error."""

    @tool(**options)
    def carrier() -> str:
        """Ask the carrier."""
        raise error

    return carrier


class Place:
    """A runner of tools over stores of its own."""

    def __init__(self, usage: MemoryUsage | None = None) -> None:
        self.usage, self.streams = usage or MemoryUsage(), MemoryStreams()
        self.streaming, self.used = Streaming(self.streams), UsageLog(self.usage)
        self.runner = ToolRunner(
            HotThreads(MemoryThreads()),
            Payloads(MemoryPayloads()),
            streams=self.streaming,
            used=self.used,
        )

    async def fail(self, failing: Tool, number: int, **options: Any) -> Exception:
        """The error of one attempt."""
        with pytest.raises((HelixError, ApplicationError)) as raised:
            await self.runner.run(failing, REQUEST, number=number, **options)
        return raised.value

    def told(self) -> list[tuple[str, bool, str | None]]:
        """The ends of tools in the stream."""
        ends = [each for each in self.streams.get_chunks_sync("s") if isinstance(each, ToolEnd)]
        return [(each.tool_call_id, each.success, each.error) for each in ends]

    async def attempts(self) -> list[int]:
        """How often the calls were tried that usage knows."""
        return [
            each.attempts for each in await self.usage.get_entries("s") if isinstance(each, ToolUsageEntry)
        ]

    async def recorded(self) -> list[tuple[str, bool, str]]:
        """The calls that usage knows."""
        entries = await self.usage.get_entries("s")
        return [
            (each.id, each.success, each.tool_call_id) for each in entries if isinstance(each, ToolUsageEntry)
        ]


FAILED = [("tool/m1.0", False, "c1")]


async def test_the_last_attempt_that_fails_is_recorded_and_told() -> None:
    """The error is the one that the model is told later, and that Temporal gets."""
    place = Place()
    failing = carrier(OSError("no route"), attempts=2)
    await place.fail(failing, 1)
    assert (place.told(), await place.recorded()) == ([], [])
    error = await place.fail(failing, 2)
    assert str(error) == "OSError: tool 'carrier': OSError: no route"
    assert place.told() == [("c1", False, "The tool failed: tool 'carrier': OSError: no route")]
    assert await place.recorded() == FAILED
    assert await place.attempts() == [2]


@pytest.mark.parametrize(
    "error",
    [
        ApplicationError("no", type="Refused", non_retryable=True),
        StoreUnavailableError("no"),
    ],
    ids=["of Temporal", "of ours"],
)
async def test_an_error_that_says_so_is_the_last(error: Exception) -> None:
    """No attempt follows one that is not retryable; one follows a store that is away."""
    place = Place()
    await place.fail(carrier(error), 1)
    is_last = isinstance(error, ApplicationError)
    assert await place.recorded() == (FAILED if is_last else [])
    assert len(place.told()) == is_last


async def test_a_bug_is_told_at_the_attempt_at_which_it_is_given_up() -> None:
    """Code with a bug is tried three times, however many attempts the tool has."""
    place = Place()
    failing = carrier(KeyError("x"), attempts=9)
    await place.fail(failing, 2)
    assert await place.recorded() == []
    await place.fail(failing, 3)
    assert await place.recorded() == FAILED


async def test_what_errors_say_may_be_hidden_from_the_stream_as_from_the_model() -> None:
    """An exception's text may hold what no user should read."""
    place = Place()
    await place.fail(carrier(OSError("secret"), attempts=1), 1, hides=True)
    assert place.told() == [("c1", False, "The tool failed: tool 'carrier': OSError")]


async def test_the_next_step_tells_and_counts_it_no_second_time() -> None:
    """It has the result under the same name, with the same words."""
    place = Place()
    await place.fail(carrier(OSError("no route"), attempts=1), 1)
    (before,) = await place.usage.get_entries("s")
    text = "The tool failed: tool 'carrier': OSError: no route"
    given = StepInput(id="m1.0", text=text, call="c1", name="carrier", is_error=True, unfinished=True)
    ends = EndTurnInput(session_id="s", epoch=5, head=EMPTY, inputs=(given,), run_id="r1")
    message = Message(id="m1.0", role="tool", content=text, tool_call_id="c1", name="carrier", is_error=True)
    await place.used.record_results(ends, SessionRecord(agent="a"))
    await place.streaming.tell_turn_ended(ends, [message], EMPTY, 0)
    assert place.told() == [("c1", False, text)]
    assert await place.usage.get_entries("s") == [before]


async def test_a_call_that_runs_again_and_works_is_told_as_done() -> None:
    """A reset to before its failure runs it again, under the same name: whoever follows learns the result."""
    place = Place()
    await place.fail(carrier(OSError("no route"), attempts=1), 1)

    @tool(name="carrier")
    def works() -> str:
        """Ask the carrier."""
        return "here"

    for _ in range(2):
        await place.runner.run(works, REQUEST, number=1)
    assert [(call, success) for call, success, _ in place.told()] == [("c1", False), ("c1", True)]


class Broken(MemoryUsage):
    """Takes nothing."""

    async def record_entry(self, entry: UsageEntry) -> Any:
        """Fail."""
        raise RuntimeError("full")


async def test_the_error_is_the_tools_whatever_stores_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shown, and what is counted, is not what counts."""
    place = Place(Broken())

    async def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("full")

    monkeypatch.setattr(place.streams, "create_writer", fails)
    error = await place.fail(carrier(OSError("no route"), attempts=1), 1)
    assert "no route" in str(error)


@pytest.mark.parametrize(("policy", "most"), [(RetryPolicy(maximum_attempts=5), 5), (RetryPolicy(), None)])
def test_the_policy_of_the_activity_says_how_often(policy: RetryPolicy, most: int | None) -> None:
    """A session keeps the attempts that its tool had when it was opened."""
    info = ActivityEnvironment.default_info()
    environment = ActivityEnvironment()
    if not hasattr(info, "retry_policy"):
        pytest.skip("this SDK does not tell the policy")
    environment.info = info.__class__(**{**info.__dict__, "retry_policy": policy})
    assert environment.run(_runtime.find_most_attempts, 2) == most
    assert _runtime.find_most_attempts(2) == 2
