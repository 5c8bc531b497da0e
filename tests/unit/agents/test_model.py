"""Calling models, streaming or not, and the scripted one."""

import functools
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from helix_temporal.agents import (
    Agent,
    Finish,
    ModelEvent,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    TextDelta,
    call_model,
)
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidMessageError,
    InvalidRequestError,
    ModelStreamEndedError,
)
from helix_temporal.models import streams
from helix_temporal.models.messages import Message
from tests.unit.agents._play import a_request

SAID = Message(id="u", role="user", content="hi")


class Streams:
    def __init__(self, *events: ModelEvent) -> None:
        self._events = events
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Play the events."""
        try:
            for event in self._events:
                yield event
        finally:
            self.closed = True


def _stored(response: ModelResponse, message_id: str = "a") -> Message:
    return Message(id=message_id, role="assistant", content=response.content, provider=response.provider)


async def test_a_stream_gives_its_pieces_and_then_the_response() -> None:
    """Users read while the model writes."""
    seen: list[ModelEvent] = []

    async def show(event: ModelEvent) -> None:
        seen.append(event)

    events = (TextDelta("he"), TextDelta("llo"), ModelResponse("hello"))
    assert await call_model(Streams(*events), a_request(SAID), show) == events[-1]
    assert seen == [*events]


async def test_a_stream_that_breaks_off_is_tried_again() -> None:
    """Half an answer is no answer; providers do close connections."""
    with pytest.raises(ModelStreamEndedError) as caught:
        await call_model(Streams(TextDelta("he")), a_request(SAID))
    assert caught.value.retryable


async def test_a_stream_is_closed_when_the_step_is_given_up() -> None:
    """Else the provider goes on writing, at our cost."""
    model = Streams(TextDelta("he"), ModelResponse("hello"))

    async def fail(_: ModelEvent) -> None:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        await call_model(model, a_request(SAID), fail)
    assert model.closed


async def test_a_model_that_returns_something_else_is_an_error() -> None:
    """A bare string is the usual mistake."""

    class Wrong:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Forget to wrap it."""
            return "hello"  # type: ignore[return-value]

    with pytest.raises(InvalidMessageError, match="returned str, ModelResponse expected"):
        await call_model(Wrong(), a_request(SAID))


@pytest.mark.parametrize(
    "event", ["hello", None, streams.TextChunk(delta="hello")], ids=["str", "None", "chunk"]
)
async def test_a_stream_that_yields_something_else_is_an_error(event: Any) -> None:
    """Nobody saw it: it was passed over, and users waited for the whole answer."""
    seen: list[ModelEvent] = []

    async def show(event: ModelEvent) -> None:
        seen.append(event)

    model = Streams(TextDelta("oh, "), event, ModelResponse("oh, hello"))
    with pytest.raises(
        InvalidMessageError, match=r"Streams.stream yielded \w+, TextDelta or another ModelEvent"
    ):
        await call_model(model, a_request(SAID), show)
    assert seen == [TextDelta("oh, ")]
    assert model.closed


async def test_a_script_answers_by_the_messages_not_by_the_calls() -> None:
    """A retry in another process gets the same answer."""
    model = ScriptedModel(["one", "two"])
    first = await model.generate(a_request(SAID))
    assert await model.generate(a_request(SAID)) == first
    second = await ScriptedModel(["one", "two"]).generate(a_request(SAID, _stored(first), SAID))
    assert second.content == "two"


async def test_a_script_answers_with_all_that_stands_in_it() -> None:
    """An answer that was cut, or refused, is one from a list as from a function."""
    answer = ModelResponse("cut", stop_reason="max_tokens", finish=Finish.LENGTH)
    response = await ScriptedModel([answer]).generate(a_request(SAID))
    assert response == replace(answer, provider=response.provider)


async def test_a_script_keeps_its_place_when_the_context_is_cut() -> None:
    """Long threads reach the model in part."""
    third = _stored(ModelResponse("three", provider={"scripted": 2}))
    response = await ScriptedModel(["one", "two", "three", "four"]).generate(a_request(third, SAID))
    assert response.content == "four"


async def test_a_script_counts_answers_that_were_not_its_own() -> None:
    """Threads may have been imported."""
    response = await ScriptedModel(["one", "two"]).generate(
        a_request(SAID, _stored(ModelResponse("else")), SAID)
    )
    assert response.content == "two"


async def test_a_script_that_is_over_fails_for_good() -> None:
    """A test that asks too much must not be retried for minutes."""
    with pytest.raises(InvalidRequestError, match="has 1 answers, and number 2 is needed"):
        await ScriptedModel(["one"]).generate(a_request(SAID, _stored(ModelResponse("one")), SAID))


def test_a_script_without_answers_is_refused() -> None:
    """It could answer nothing."""
    with pytest.raises(InvalidConfigError, match="the script is empty"):
        ScriptedModel([])


@pytest.mark.parametrize("script", ["hello", b"hello", ModelResponse("hello"), iter(["hello"]), None])
def test_a_script_that_is_no_list_is_refused(script: Any) -> None:
    """A text was a list of answers of one letter each."""
    with pytest.raises(InvalidConfigError, match="a list of answers, or a function, expected, got"):
        ScriptedModel(script)


async def test_a_script_may_be_a_function() -> None:
    """Plain or async, giving text or a response."""

    async def later(request: ModelRequest) -> ModelResponse:
        return ModelResponse(request.messages[-1].text + "!")

    assert (await ScriptedModel(lambda request: request.session_id).generate(a_request(SAID))).content == "s"
    assert (await ScriptedModel(later).generate(a_request(SAID))).content == "hi!"


async def test_a_script_that_gives_something_else_is_an_error() -> None:
    """A function that forgot its return."""
    with pytest.raises(InvalidMessageError, match="returned NoneType"):
        await ScriptedModel(lambda _: None).generate(a_request(SAID))


async def test_each_call_is_counted_and_told_before_it_is_answered() -> None:
    """Tests count what a provider would have charged for, failed calls too."""
    told: list[ModelRequest] = []

    def refuse(request: ModelRequest) -> None:
        told.append(request)
        raise TimeoutError

    model = ScriptedModel(["one"], on_call=refuse)
    with pytest.raises(TimeoutError):
        await model.generate(a_request(SAID))
    assert (model.calls, len(told)) == (1, 1)


class _Generates:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse("fine")


class _Plain:
    def generate(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse("no coroutine")


class _Yields:
    async def generate(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield ModelResponse("no stream")


class _Returns:
    async def stream(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse("no generator")


class _PlainStream:
    def stream(self, request: ModelRequest) -> Iterator[ModelEvent]:
        yield ModelResponse("no async generator")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (_Generates, r"the model is the class _Generates; give an instance: _Generates\(\.\.\.\)"),
        (_Plain(), "_Plain.generate is not async; write async def generate"),
        (_Yields(), "_Yields.generate yields; return one ModelResponse, or name it stream"),
        (_Returns(), "_Returns.stream is no async generator; write async def stream, and yield"),
        (_PlainStream(), "_PlainStream.stream is no async generator"),
        (object(), "the model needs a generate or a stream method, and object has neither; write async def"),
        ("gpt", r"the model is a text; give an object that asks it: a model of helix_temporal\.adapters"),
    ],
)
def test_an_object_that_is_no_model_is_refused_when_the_agent_is_made(model: Any, said: str) -> None:
    """With what to write, and not half an hour after the first ask."""
    with pytest.raises(InvalidConfigError, match=said):
        Agent(name="a", model=model)


def test_a_function_that_hands_on_a_coroutine_is_a_model() -> None:
    """Decorators make such."""

    class Wrapped:
        def generate(self, request: ModelRequest) -> Coroutine[Any, Any, ModelResponse]:
            return _Generates().generate(request)

    model: Any = Wrapped()
    assert Agent(name="a", model=model).model is model


async def test_a_plain_generate_behind_a_decorator_says_what_to_write() -> None:
    """Where it can't be seen before."""

    class Lambda:
        generate = staticmethod(functools.partial(lambda _: ModelResponse("no coroutine")))

    with pytest.raises(InvalidMessageError, match=r"Lambda.generate returned Model.*; write it as async def"):
        await call_model(Lambda(), a_request(SAID))  # type: ignore[arg-type]  # that is the mistake
