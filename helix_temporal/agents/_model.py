"""What a model must do, and the one way to call it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol, runtime_checkable

from helix_temporal.errors import InvalidMessageError, ModelStreamEndedError
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse

OnEvent = Callable[[ModelEvent], Awaitable[None]]


@runtime_checkable
class Model(Protocol):
    """A model that answers in one piece.

    An exception is a failed attempt: the step is tried again, and nothing of it is in the thread.
    Raise a permanent `HelixError` (such as `InvalidRequestError`) for what no repetition can mend.
    """

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer the request."""
        ...


@runtime_checkable
class StreamingModel(Protocol):
    """A model that answers piece by piece; failures as in `Model`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield what comes as it comes, and the whole response last."""
        ...


async def complete(
    model: Model | StreamingModel, request: ModelRequest, on_event: OnEvent | None = None
) -> ModelResponse:
    """The model's response; a model that can do both streams.

    ``on_event`` gets each piece of a stream, the response among them, before the next one is asked for.

    Raises:
        ModelStreamEndedError: The stream ended without a response; another attempt may do better.
        InvalidMessageError: The model gave something that is no response.
    """
    if isinstance(model, StreamingModel):
        return await _drain(model.stream(request), on_event)
    response = await model.generate(request)
    if not isinstance(response, ModelResponse):
        raise InvalidMessageError(f"the model returned {type(response).__name__}, ModelResponse expected")
    return response


async def _drain(stream: AsyncIterator[ModelEvent], on_event: OnEvent | None) -> ModelResponse:
    response: ModelResponse | None = None
    async with AsyncExitStack() as stack:
        close = getattr(stream, "aclose", None)
        if close is not None:
            # A cancelled step must not leave the provider's connection to the garbage collector.
            stack.push_async_callback(close)
        async for event in stream:
            if isinstance(event, ModelResponse):
                response = event
            if on_event is not None:
                await on_event(event)
    if response is None:
        raise ModelStreamEndedError("the model's stream ended without a ModelResponse as its last item")
    return response
