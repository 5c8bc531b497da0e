"""What comes of Anthropic's streams: pieces, ends, arguments, usage, and failures that are typed."""

import asyncio
from typing import Any

import anthropic
import pytest

from helix_temporal.adapters.anthropic import AnthropicModel
from helix_temporal.errors import (
    HelixError,
    InvalidConfigError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelStreamEndedError,
    ModelUnavailableError,
)
from helix_temporal.models.agents import ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStarted
from helix_temporal.models.messages import Finish, Usage, why_not_run
from tests.adapters import _anthropic as wire
from tests.adapters._standin import Reply, StandIn, plain
from tests.adapters._talk import WEATHER, answer_of, asking, events_of, goes_on


def refused(status: int, kind: str, **headers: str) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": "we saw k-secret and Grüezi"}}
    return plain(body, status=status, **headers)


async def failure(standin: StandIn, reply: Reply) -> HelixError:
    """The error of a call that is answered so."""
    standin.will(reply)
    with pytest.raises(HelixError) as raised:
        await answer_of(wire.model(standin), asking("Grüezi"))
    return raised.value


async def test_pieces_come_as_they_come(standin: StandIn) -> None:
    """Somebody watches the answer being written."""
    standin.will(wire.says(wire.thinking("Hm.."), wire.text("Look"), wire.use("toolu_1", city="B")))
    *pieces, _ = await events_of(wire.model(standin), asking("go", tools=[WEATHER]))
    assert pieces == [
        ReasoningDelta("Hm"),
        ReasoningDelta(".."),
        TextDelta("Lo"),
        TextDelta("ok"),
        ToolCallStarted("toolu_1", "weather"),
        ToolArgumentsDelta("toolu_1", '{"city'),
        ToolArgumentsDelta("toolu_1", '": "B"}'),
    ]


async def test_usage_counts_what_was_cached_and_thought(standin: StandIn) -> None:
    """Limits and bills of all providers are compared by the same counts."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    ends = wire.ends("end_turn", output_tokens=50, output_tokens_details={"thinking_tokens": 30})
    standin.will(wire.stream(wire.begins(usage), *wire.block_events(0, wire.text("ok")), *ends))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert answer.usage == Usage(
        input_tokens=123,
        output_tokens=50,
        cached_read_tokens=100,
        cached_write_tokens=20,
        reasoning_tokens=30,
    )


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", Finish.STOP),
        ("stop_sequence", Finish.STOP),
        ("max_tokens", Finish.LENGTH),
        ("model_context_window_exceeded", Finish.LENGTH),
        ("refusal", Finish.REFUSAL),
    ],
)
async def test_ends_are_typed(standin: StandIn, stop: str, finish: Finish) -> None:
    """An application asks whether an answer is whole, and not in each provider's words."""
    standin.will(wire.says(wire.text("I"), stop=stop))
    answer = await answer_of(wire.model(standin), asking("go"))
    assert (answer.finish, answer.stop_reason) == (finish, stop)


async def test_a_refusal_without_a_word_is_an_answer(standin: StandIn) -> None:
    """The turn ends with it, and the thread goes on."""
    model = wire.model(standin)
    standin.will(wire.says(stop="refusal"), wire.says(wire.text("ok")))
    answer = await answer_of(model, asking("go"))
    assert (answer.content, answer.finish) == ("", Finish.REFUSAL)
    await goes_on(model, answer)


INVALID = {
    "not JSON": '{"city": "Bern", }',
    "cut": '{"city": "Be',
    "no object": '["Bern"]',
    "not a number": '{"city": NaN}',
    "a number too large": '{"city": 123456789012345678901234567890}',
    "nested too deep": '{"city": ' + "[" * 100 + "]" * 100 + "}",
}


@pytest.mark.parametrize("given", INVALID.values(), ids=INVALID)
async def test_arguments_that_cannot_be_read_are_told_to_the_model(standin: StandIn, given: str) -> None:
    """A model's slip costs a step, never the turn."""
    model = wire.model(standin)
    empty = wire.use("toolu_1")
    call = wire.block_from(0, empty, *wire.pieces_of_input(given))
    standin.will(wire.stream(wire.begins(), *call, *wire.ends("tool_use")), wire.says(wire.text("ok")))
    answer = await answer_of(model, asking("go", tools=[WEATHER]))
    assert "not run" in (why_not_run(answer.tool_calls[0]) or "")
    await goes_on(model, answer)
    (sent,) = standin.bodies[1]["messages"][1]["content"]
    assert isinstance(sent["input"], dict)


async def test_a_call_that_was_cut_before_its_arguments_is_not_run(standin: StandIn) -> None:
    """Without arguments it would look like a call that needs none."""
    standin.will(wire.says(wire.use("toolu_1"), stop="max_tokens"))
    answer = await answer_of(wire.model(standin), asking("go", tools=[WEATHER]))
    assert answer.finish is Finish.LENGTH
    assert "cut at its limit" in (why_not_run(answer.tool_calls[0]) or "")


async def test_arguments_in_pieces_of_no_length_are_none(standin: StandIn) -> None:
    """So a tool without parameters is asked for."""
    standin.will(wire.says(wire.use("toolu_1")))
    (call,) = (await answer_of(wire.model(standin), asking("go", tools=[WEATHER]))).tool_calls
    assert (call.arguments, why_not_run(call)) == ({}, None)


# -- failures


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({"retry_after": "7"}, 7000),
        ({"retry_after_ms": "250.4", "retry_after": "1"}, 250),
        ({"retry_after": "86400"}, 300_000),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 1),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
async def test_a_rate_limit_says_when_to_come_again(
    standin: StandIn, headers: dict[str, str], after: int | None
) -> None:
    """Temporal waits so long, and not at all in the worker."""
    error = await failure(standin, refused(429, "rate_limit_error", **headers))
    assert isinstance(error, ModelRateLimitedError)
    assert error.facts.get("retry_after_ms") == after
    assert len(standin.asked) == 1


FAILURES: list[tuple[int, str, type[HelixError]]] = [
    (400, "invalid_request_error", ModelRequestError),
    (401, "authentication_error", ModelRequestError),
    (403, "permission_error", ModelRequestError),
    (404, "not_found_error", ModelRequestError),
    (413, "request_too_large", ModelRequestError),
    (408, "timeout_error", ModelUnavailableError),
    (500, "api_error", ModelUnavailableError),
    (503, "api_error", ModelUnavailableError),
    (529, "overloaded_error", ModelUnavailableError),
]


@pytest.mark.parametrize(("status", "kind", "expected"), FAILURES)
async def test_failures_are_typed_and_tell_nothing_of_what_was_said(
    standin: StandIn, status: int, kind: str, expected: type[HelixError]
) -> None:
    """A wrong key is not tried for an hour, an overload not given up; histories are read by others."""
    error = await failure(standin, refused(status, kind))
    assert type(error) is expected
    assert str(status) in str(error)
    assert kind in str(error)
    assert "secret" not in str(error)
    assert "Grüezi" not in str(error)
    assert len(standin.asked) == 1


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", ModelUnavailableError),
        ("rate_limit_error", ModelRateLimitedError),
        ("invalid_request_error", ModelRequestError),
        ("something_new", ModelUnavailableError),
    ],
)
async def test_a_failure_within_the_stream_is_the_same_failure(
    standin: StandIn, kind: str, expected: type[HelixError]
) -> None:
    """The status was sent long before."""
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    assert type(await failure(standin, wire.stream(wire.begins(), error))) is expected


CUTS: dict[str, Reply] = {
    "the connection breaks": wire.says(wire.text("Half a wor"), cut=True),
    "the stream just ends": wire.stream(wire.begins(), *wire.block_events(0, wire.text("Half"))),
    "nothing comes at all": Reply((), headers={"content-type": "text/event-stream"}),
    "an event is damaged": Reply((b"event: message_start\ndata: {\n\n",)),
    "the last event is not whole": Reply((b"event: message_stop\ndata: {}",), cut=True),
}


@pytest.mark.parametrize("reply", CUTS.values(), ids=CUTS)
async def test_a_stream_that_is_cut_is_no_answer(standin: StandIn, reply: Reply) -> None:
    """Half an answer in the thread would be taken for a whole one."""
    assert type(await failure(standin, reply)) is ModelStreamEndedError


async def test_nobody_there_is_worth_another_attempt() -> None:
    """Networks fail and come back."""
    client = anthropic.AsyncAnthropic(api_key="k", base_url="http://127.0.0.1:9")
    with pytest.raises(ModelUnavailableError, match="did not answer"):
        await answer_of(AnthropicModel("claude-test", client=client), asking("go"))


async def test_without_a_key_the_call_is_refused_for_good(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's environment must be mended, and the error says so."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", standin.url)
    model = AnthropicModel("claude-test")
    with pytest.raises(InvalidConfigError, match="key"):
        await answer_of(model, asking("go"))
    await model.aclose()


async def test_a_client_is_made_from_the_workers_environment(
    standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is nowhere but there."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-from-env")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", standin.url)
    standin.will(wire.says(wire.text("ok")))
    model = AnthropicModel("claude-test")
    await answer_of(model, asking("go"))
    await model.aclose()
    (asked,) = standin.asked
    assert "k-from-env" in " ".join(asked.headers.values())
    assert b"k-from-env" not in asked.data


async def test_a_call_that_is_given_up_closes_its_connection(standin: StandIn) -> None:
    """A cancelled step must not go on paying for tokens."""
    silent, gone = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        silent.set()
        await gone.wait()

    standin.will(Reply((b"x" * 100_000,) * 100, before=wait))
    call = asyncio.create_task(answer_of(wire.model(standin), asking("go")))
    await silent.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gone.set()


async def test_text_that_no_store_can_hold_is_mended(standin: StandIn) -> None:
    """PostgreSQL takes no U+0000; the turn is not to fail for it."""
    standin.will(wire.says(wire.text("a\x00b")))
    answer: Any = await answer_of(wire.model(standin), asking("go"))
    assert answer.content == "a\ufffdb"
