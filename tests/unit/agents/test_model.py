"""Calling models, streaming or not, and the scripted one."""

from collections.abc import AsyncIterator

import pytest

from helix_temporal.agents import ModelEvent, ModelRequest, ModelResponse, ScriptedModel, TextDelta, complete
from helix_temporal.errors import InvalidMessageError, InvalidRequestError, ModelStreamEndedError
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
    assert await complete(Streams(*events), a_request(SAID), show) == events[-1]
    assert seen == [*events]


async def test_a_stream_that_breaks_off_is_tried_again() -> None:
    """Half an answer is no answer; providers do close connections."""
    with pytest.raises(ModelStreamEndedError) as caught:
        await complete(Streams(TextDelta("he")), a_request(SAID))
    assert caught.value.retryable


async def test_a_stream_is_closed_when_the_step_is_given_up() -> None:
    """Else the provider goes on writing, at our cost."""
    model = Streams(TextDelta("he"), ModelResponse("hello"))

    async def fail(_: ModelEvent) -> None:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        await complete(model, a_request(SAID), fail)
    assert model.closed


async def test_a_model_that_returns_something_else_is_an_error() -> None:
    """A bare string is the usual mistake."""

    class Wrong:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Forget to wrap it."""
            return "hello"  # type: ignore[return-value]

    with pytest.raises(InvalidMessageError, match="returned str, ModelResponse expected"):
        await complete(Wrong(), a_request(SAID))


async def test_a_script_answers_by_the_messages_not_by_the_calls() -> None:
    """A retry in another process gets the same answer."""
    model = ScriptedModel(["one", "two"])
    first = await model.generate(a_request(SAID))
    assert await model.generate(a_request(SAID)) == first
    second = await ScriptedModel(["one", "two"]).generate(a_request(SAID, _stored(first), SAID))
    assert second.content == "two"


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
    with pytest.raises(InvalidRequestError, match="has 0 answers, number 1 was asked for"):
        await ScriptedModel([]).generate(a_request(SAID))


async def test_a_script_may_be_a_function() -> None:
    """Plain or async, giving text or a response."""

    async def later(request: ModelRequest) -> ModelResponse:
        return ModelResponse(request.messages[-1].text + "!")

    assert (await ScriptedModel(lambda request: request.session_id).generate(a_request(SAID))).content == "s"
    assert (await ScriptedModel(later).generate(a_request(SAID))).content == "hi!"


async def test_a_script_that_gives_something_else_is_an_error() -> None:
    """A function that forgot its return."""
    with pytest.raises(InvalidMessageError, match="gave NoneType"):
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
