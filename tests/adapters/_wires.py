"""How each provider fails on the wire: what the shared tests of failures answer with, adapter by adapter."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from helix_temporal.adapters.anthropic import AnthropicModel
from helix_temporal.adapters.google import GoogleModel
from helix_temporal.adapters.openai_chat import OpenAIChatModel
from helix_temporal.adapters.openai_responses import OpenAIResponsesModel
from helix_temporal.agents import StreamingModel
from helix_temporal.errors import (
    HelixError,
    ModelRateLimitedError,
    ModelRequestError,
    ModelUnavailableError,
)
from tests.adapters import _anthropic, _google, _langchain, _openai
from tests.adapters._standin import Reply, StandIn, events, plain

Made = Callable[[StandIn], AbstractAsyncContextManager[StreamingModel]]

SAID = "we saw a secret and Grüezi"
"""What providers quote of requests in their errors."""


def _never(_: Any = None) -> Any:
    raise AssertionError("no test of this wire asks for it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One adapter and its provider.

    Attributes:
        made: The adapter on the vendor's client, which talks to the stand-in.
        refused: An answer with this status and the provider's word for it.
        text: An answer of text alone.
        limits: Headers, or what else says it, of a limit of rate: a reply, and when to come again.
        cuts: Streams that are no whole answer.
        within: Failures that are told after the status said OK.
        malformed: Arguments of a call that can't be read.
        calls: An answer that asks for the weather with such arguments.
        again: The call as the second request's body has it, and what it must be.
        alone: The adapter without a client; ``key`` and ``address`` are variables that tell it both.
        others: Variables that would tell it a key, too.
    """

    made: Made
    refused: Callable[..., Reply]
    text: Reply
    limits: Mapping[str, tuple[Reply, int | None]]
    cuts: Mapping[str, Reply]
    within: Mapping[str, tuple[Reply, type[HelixError]]]
    malformed: Mapping[str, str] = field(default_factory=dict)
    calls: Callable[[str], Reply] = _never
    again: tuple[Callable[[Any], Any], Callable[[str], Any]] = (_never, _never)
    alone: Callable[[], Any] = _never
    key: str = ""
    address: str = ""
    others: tuple[str, ...] = ()


def _with(client_of: Callable[[StandIn], Any], adapter: Callable[[Any], StreamingModel]) -> Made:
    """Makes an adapter on a client that is closed at the end."""

    @asynccontextmanager
    async def made(standin: StandIn) -> AsyncIterator[StreamingModel]:
        async with client_of(standin) as client:
            yield adapter(client)

    return made


def _alone(adapter: Callable[[StandIn], StreamingModel]) -> Made:
    """Makes an adapter that has its client in it."""
    return lambda standin: nullcontext(adapter(standin))


# -- OpenAI


def _openai_refused(status: int, code: str | None = "some_code", **headers: str) -> Reply:
    return plain({"error": {"code": code, "message": SAID}}, status=status, **headers)


def _openai_limits() -> dict[str, tuple[Reply, int | None]]:
    return {
        "milliseconds": (_openai_refused(429, retry_after_ms="1500"), 1500),
        "seconds": (_openai_refused(429, retry_after="2"), 2000),
    }


def _chat_calls(arguments: str) -> Reply:
    return _openai.chat(*_openai.call_chunks(0, "call_A", "weather", arguments), _openai.chunk("tool_calls"))


def _chat_error(error: Any) -> Reply:
    return events(_openai.chunk(content="Good "), {"error": error})


CHAT = Wire(
    made=_with(_openai.client_of, lambda client: OpenAIChatModel("gpt-5", client)),
    refused=_openai_refused,
    text=_openai.chat_text("ok"),
    limits=_openai_limits(),
    cuts={
        "nothing comes": _openai.chat(cut=True),
        "the connection breaks": _openai.chat(_openai.chunk(content="Good "), cut=True),
        "the stream just ends": _openai.chat(_openai.chunk(content="Good ")),
    },
    within={
        "slow": (_chat_error({"code": "rate_limit_exceeded", "message": "slow"}), ModelRateLimitedError),
        "slow, by number": (_chat_error({"code": 429, "message": "slow"}), ModelRateLimitedError),
        "server": (_chat_error({"type": "server_error", "message": "oops"}), ModelUnavailableError),
        "prompt": (_chat_error({"code": "invalid_prompt", "message": "oops"}), ModelRequestError),
        "text": (_chat_error("overloaded"), ModelUnavailableError),
    },
    malformed={
        "cut": '{"city": "Par',
        "no object": "[1]",
        "not a number": '{"x": NaN}',
        "a number too large": '{"x": 1e999}',
        "half a character": '{"x": "\\ud800"}',
    },
    calls=_chat_calls,
    again=(lambda body: body["messages"][1]["tool_calls"][0]["function"]["arguments"], str),
    alone=lambda: OpenAIChatModel("gpt-5"),
    key="OPENAI_API_KEY",
    address="OPENAI_BASE_URL",
)


def _responses_error(event: dict[str, Any]) -> Reply:
    return events((event["type"], event))


def _responses_failed(error: Any) -> Reply:
    return _responses_error({"type": "response.failed", "response": {"error": error}})


def _item(arguments: str) -> dict[str, Any]:
    return _openai.call_item("call_A", "weather", arguments)


def _responses_calls(arguments: str) -> Reply:
    reason = {"reason": "max_output_tokens"}
    return _openai.responses(_item(arguments), status="incomplete", incomplete_details=reason)


_HELLO = _openai.response_events(_openai.text_item("Hello"))

RESPONSES = Wire(
    made=_with(_openai.client_of, lambda client: OpenAIResponsesModel("gpt-5", client)),
    refused=_openai_refused,
    text=_openai.responses(_openai.text_item("ok")),
    limits=_openai_limits(),
    cuts={
        f"{seen} events, {how}": events(*_HELLO[:seen], cut=cut)
        for seen in (1, 3, 5)
        for how, cut in (("the connection breaks", True), ("the stream just ends", False))
    },
    within={
        "slow": (
            _responses_error({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}),
            ModelRateLimitedError,
        ),
        "no code": (
            _responses_error({"type": "error", "code": None, "message": "oops"}),
            ModelUnavailableError,
        ),
        "server": (_responses_failed({"code": "server_error"}), ModelUnavailableError),
        "prompt": (_responses_failed({"code": "invalid_prompt"}), ModelRequestError),
        "no error": (_responses_failed(None), ModelUnavailableError),
    },
    malformed={"cut": '{"city": "Par', "no object": "[1]", "not a number": '{"x": NaN}', "none": ""},
    calls=_responses_calls,
    again=(lambda body: body["input"][1], _item),
    alone=lambda: OpenAIResponsesModel("gpt-5"),
    key="OPENAI_API_KEY",
    address="OPENAI_BASE_URL",
)


# -- Google


def _google_refused(status: int, code: str | None = "SOME_CODE", details: Any = (), **headers: str) -> Reply:
    error = {"code": status, "status": code, "message": SAID, "details": list(details)}
    return plain({"error": error}, status=status, **headers)


def _google_limit(delay: str) -> Reply:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    return _google_refused(429, "RESOURCE_EXHAUSTED", [{"@type": "x"}, info])


_GOOD = _google.piece({"text": "Good "})

GOOGLE = Wire(
    made=_with(_google.client_of, lambda client: GoogleModel("gemini-3", client)),
    refused=_google_refused,
    text=_google.gemini_text("ok"),
    limits={
        "parts of seconds": (_google_limit("36.5s"), 36500),
        "seconds": (_google_limit("2s"), 2000),
        "nonsense": (_google_limit("nonsense"), None),
    },
    cuts={
        "nothing comes": _google.gemini(),
        "the connection breaks": _google.gemini(_GOOD, cut=True),
        "the stream just ends": _google.gemini(_GOOD),
        "an event is damaged": events(_GOOD, '{"secret": '),
    },
    within={
        "slow": (
            events(_GOOD, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "slow"}}),
            ModelRateLimitedError,
        ),
        "the connection breaks before a word": (_google.gemini(cut=True), ModelUnavailableError),
    },
    alone=lambda: GoogleModel("gemini-3"),
    key="GEMINI_API_KEY",
    address="GOOGLE_GEMINI_BASE_URL",
    others=("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
)


# -- Anthropic


def _anthropic_refused(status: int, code: str | None = "some_code", **headers: str) -> Reply:
    return plain({"type": "error", "error": {"type": code, "message": SAID}}, status=status, **headers)


def _anthropic_error(kind: str) -> Reply:
    error = {"type": "error", "error": {"type": kind, "message": "no"}}
    return _anthropic.stream(_anthropic.begins(), error)


def _anthropic_calls(arguments: str) -> Reply:
    pieces = _anthropic.pieces_of_input(arguments)
    call = _anthropic.block_from(0, _anthropic.use("toolu_1"), *pieces)
    return _anthropic.stream(_anthropic.begins(), *call, *_anthropic.ends("tool_use"))


_HALF = _anthropic.stream(_anthropic.begins(), *_anthropic.block_events(0, _anthropic.text("Half")))

ANTHROPIC = Wire(
    made=_alone(_anthropic.model),
    refused=_anthropic_refused,
    text=_anthropic.says(_anthropic.text("ok")),
    limits={
        "seconds": (_anthropic_refused(429, retry_after="7"), 7000),
        "milliseconds": (_anthropic_refused(429, retry_after_ms="250.4", retry_after="1"), 250),
        "a day": (_anthropic_refused(429, retry_after="86400"), 300_000),
        "a date": (_anthropic_refused(429, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"), 1),
        "nonsense": (_anthropic_refused(429, retry_after="soon"), None),
        "nothing": (_anthropic_refused(429), None),
    },
    cuts={
        "the connection breaks": _anthropic.says(_anthropic.text("Half a wor"), cut=True),
        "the stream just ends": _HALF,
        "nothing comes": Reply((), headers={"content-type": "text/event-stream"}),
        "an event is damaged": Reply((b"event: message_start\ndata: {\n\n",)),
        "the last event is not whole": Reply((b"event: message_stop\ndata: {}",), cut=True),
    },
    within={
        "overloaded": (_anthropic_error("overloaded_error"), ModelUnavailableError),
        "slow": (_anthropic_error("rate_limit_error"), ModelRateLimitedError),
        "prompt": (_anthropic_error("invalid_request_error"), ModelRequestError),
        "unknown": (_anthropic_error("something_new"), ModelUnavailableError),
    },
    malformed={
        "not JSON": '{"city": "Bern", }',
        "cut": '{"city": "Be',
        "no object": '["Bern"]',
        "not a number": '{"city": NaN}',
        "a number too large": '{"city": 123456789012345678901234567890}',
        "nested too deep": '{"city": ' + "[" * 100 + "]" * 100 + "}",
    },
    calls=_anthropic_calls,
    # What it wrote itself goes back as it came, where it is an object.
    again=(lambda body: type(body["messages"][1]["content"][0]["input"]), lambda _: dict),
    alone=lambda: AnthropicModel("claude-test"),
    key="ANTHROPIC_API_KEY",
    address="ANTHROPIC_BASE_URL",
    others=("ANTHROPIC_AUTH_TOKEN",),
)


# -- LangChain


def _langchain_refused(status: int, code: str | None = "some_code", **headers: str) -> Reply:
    error = {"type": code, "code": code, "message": SAID}
    return plain({"type": "error", "error": error}, status=status, **headers)


def _broken(whole: Reply) -> Reply:
    return Reply(whole.chunks[:4], 200, whole.headers, cut=True)


LANGCHAIN_CLAUDE = Wire(
    made=_alone(_langchain.claude),
    refused=_langchain_refused,
    text=ANTHROPIC.text,
    limits={"seconds": (_langchain_refused(429, retry_after="3"), 3000)},
    cuts={
        "the connection breaks": _broken(_anthropic.says(_anthropic.text("Half a wor"))),
        "the stream just ends": _HALF,
    },
    within={},
)

LANGCHAIN_GPT = Wire(
    made=_alone(_langchain.gpt),
    refused=_langchain_refused,
    text=_langchain.says("ok"),
    limits={"seconds": (_langchain_refused(429, retry_after="3"), 3000)},
    cuts={
        "the connection breaks": _broken(_langchain.says("Half")),
        "the stream just ends": _langchain.says("Half", stop="nothing"),
    },
    within={},
    malformed={"cut": '{"city": "Be', "no object": '["Bern"]', "not JSON": "Bern"},
    calls=lambda arguments: _langchain.says(
        "",
        {"id": "call_0", "name": "weather", "arguments": arguments},
        {"id": "call_1", "name": "weather", "arguments": '{"city": "Bern"}'},
    ),
    again=(
        lambda body: [
            (call["id"], json.loads(call["function"]["arguments"]))
            for call in body["messages"][1]["tool_calls"]
        ],
        lambda given: [("call_0", {"INVALID_JSON": given}), ("call_1", {"city": "Bern"})],
    ),
)

WIRES = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "google": GOOGLE,
    "anthropic": ANTHROPIC,
    "langchain-claude": LANGCHAIN_CLAUDE,
    "langchain-gpt": LANGCHAIN_GPT,
}
