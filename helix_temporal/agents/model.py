"""What a model must do, the one way to call it, and a model that answers by script."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

from helix_temporal.agents.checks import is_async
from helix_temporal.errors import (
    InvalidConfigError,
    InvalidMessageError,
    InvalidRequestError,
    ModelStreamEndedError,
)
from helix_temporal.models.agents import ModelEvent, ModelRequest, ModelResponse
from helix_temporal.models.messages import Message

OnEvent = Callable[[ModelEvent], Awaitable[None]]


@runtime_checkable
class Model(Protocol):
    """A model that answers in one piece.

    An exception is a failed attempt: the step is tried again, and nothing of it is in the thread.  A bug
    (`TypeError`, `KeyError`, `ValueError` and the like) is permanent at the third attempt.
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


async def call_model(
    model: Model | StreamingModel, request: ModelRequest, on_event: OnEvent | None = None
) -> ModelResponse:
    """The model's response; a model that can do both streams.

    ``on_event`` gets each piece of a stream, the response among them, before the next one is asked for.

    Raises:
        ModelStreamEndedError: The stream ended without a response; permanent at the third attempt.
        InvalidMessageError: The model gave something that is no response, or no event of a stream.
    """
    if isinstance(model, StreamingModel):
        return await _drain_stream(_open_stream(model, request), on_event, type(model).__name__)
    answer: Any = model.generate(request)
    response = await answer if inspect.isawaitable(answer) else answer
    if answer is response or not isinstance(response, ModelResponse):
        raise InvalidMessageError(
            f"{type(model).__name__}.generate returned {type(response).__name__}, ModelResponse expected"
            f"{'; write it as async def' if answer is response else ''}"
        )
    return response


def _open_stream(model: StreamingModel, request: ModelRequest) -> AsyncIterator[ModelEvent]:
    """The model's stream.

    Raises:
        InvalidMessageError: It gave something else.
    """
    stream: Any = model.stream(request)
    if not hasattr(stream, "__aiter__"):
        if inspect.iscoroutine(stream):
            stream.close()
        raise InvalidMessageError(
            f"{type(model).__name__}.stream returned {type(stream).__name__}; write it as async def "
            "with yield"
        )
    found: AsyncIterator[ModelEvent] = stream
    return found


def check_model(model: object, where: str) -> None:
    """Refuse what is no model, before a session finds out.

    Args:
        model: An instance with ``generate`` or ``stream``.
        where: Whose model it is, for the message.

    Raises:
        InvalidConfigError: The message says what was found and what to write.
    """
    if isinstance(model, type):
        raise InvalidConfigError(
            f"{where}: the model is the class {model.__name__}; give an instance: {model.__name__}(...)"
        )
    if isinstance(model, str):
        raise InvalidConfigError(
            f"{where}: the model is a text; give an object that asks it: a model of helix_temporal.adapters "
            "(Anthropic, OpenAI, Google, LangChain), or one of your own with a generate method"
        )
    kind = type(model).__name__
    generate, stream = getattr(model, "generate", None), getattr(model, "stream", None)
    if not callable(generate) and not callable(stream):
        raise InvalidConfigError(
            f"{where}: the model needs a generate or a stream method, and {kind} has neither; write "
            "async def generate(self, request: ModelRequest) -> ModelResponse, or "
            "async def stream(self, request: ModelRequest) that yields events"
        )
    if callable(generate) and _is_generator(generate):
        raise InvalidConfigError(
            f"{where}: {kind}.generate yields; return one ModelResponse, or name it stream"
        )
    if callable(generate) and _is_plain(generate):
        raise InvalidConfigError(f"{where}: {kind}.generate is not async; write async def generate")
    if callable(stream) and (_is_async(stream) or inspect.isgeneratorfunction(inspect.unwrap(stream))):
        raise InvalidConfigError(
            f"{where}: {kind}.stream is no async generator; write async def stream, and yield each event"
        )


def _is_generator(function: Callable[..., object]) -> bool:
    bare = inspect.unwrap(function)
    return inspect.isasyncgenfunction(bare) or inspect.isgeneratorfunction(bare)


def _is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(inspect.unwrap(function))


def _is_plain(function: Callable[..., object]) -> bool:
    """A function that gives its result at once, as far as it can be seen: one may hand on a coroutine."""
    bare = inspect.unwrap(function)
    if not (inspect.isfunction(bare) or inspect.ismethod(bare)) or inspect.iscoroutinefunction(bare):
        return False
    said = str(getattr(bare, "__annotations__", {}).get("return", ""))
    return not any(kind in said for kind in ("Awaitable", "Coroutine", "Future", "Task"))


async def _drain_stream(
    stream: AsyncIterator[ModelEvent], on_event: OnEvent | None, model: str
) -> ModelResponse:
    response: ModelResponse | None = None
    async with AsyncExitStack() as stack:
        close = getattr(stream, "aclose", None)
        if close is not None:
            # A cancelled step must not leave the provider's connection to the garbage collector.
            stack.push_async_callback(close)
        async for event in stream:
            if not isinstance(event, ModelEvent):
                raise InvalidMessageError(
                    f"{model}.stream yielded {type(event).__name__}, TextDelta or another ModelEvent expected"
                )
            if isinstance(event, ModelResponse):
                response = event
            if on_event is not None:
                await on_event(event)
    if response is None:
        # An adapter tells a stream that broke off; one that ends like this was written so.
        raise ModelStreamEndedError(
            "the model's stream ended without a ModelResponse; yield one as its last item", attempts=3
        )
    return response


STEP: Final = "scripted"
"""Where a scripted answer notes its number, in ``provider``."""

Script = Sequence[ModelResponse | str] | Callable[[ModelRequest], Any]


class ScriptedModel:
    """Answers from a list, or by a function of the request.

    Which answer of the list is due follows from the messages it is given and from nothing else, so a
    retry, another process and a replay get the same one: each answer carries its number in
    ``provider``, and the newest answer in the context tells the next.

    Args:
        script: Responses (or texts), or a function, async or plain, of the request that gives one.
        delay: Seconds that an answer takes.
        on_call: Told of every call before it is answered, retries included; what it raises fails the
            call.

    Raises:
        InvalidConfigError: The script is empty, or neither a list nor a function.
    """

    def __init__(
        self, script: Script, *, delay: float = 0.0, on_call: Callable[[ModelRequest], None] | None = None
    ) -> None:
        _check_script(script)
        self._script = script
        self._delay = delay
        self._on_call = on_call
        self.calls = 0
        """Calls of this object in this process, for tests that count what is paid for."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Answer as the script says.

        Raises:
            InvalidRequestError: The script has no answer for this place.
        """
        self.calls += 1
        if self._on_call is not None:
            self._on_call(request)
        if self._delay:
            await asyncio.sleep(self._delay)
        if callable(self._script):
            answer = self._script(request)
            return _to_response(await answer if is_async(self._script) else answer)
        return self._next_response(self._script, request)

    def _next_response(self, script: Sequence[ModelResponse | str], request: ModelRequest) -> ModelResponse:
        number = _next_number(request.messages)
        if number >= len(script):
            raise InvalidRequestError(
                f"the script has {len(script)} answers, and number {number + 1} is needed; add it"
            )
        response = _to_response(script[number])
        return replace(response, provider={**response.provider, STEP: number})


def _check_script(script: object) -> None:
    if callable(script):
        return
    # A text is a sequence, too: of answers of one letter each.
    if not isinstance(script, Sequence) or isinstance(script, str | bytes):
        raise InvalidConfigError(
            f"the script: a list of answers, or a function, expected, got {type(script).__name__}"
        )
    if not script:
        raise InvalidConfigError("the script is empty: give at least one answer, or a function")


def _next_number(messages: Sequence[Message]) -> int:
    answers = [message for message in messages if message.role == "assistant"]
    number = answers[-1].provider.get(STEP) if answers else -1
    # Answers that were not ours (a thread imported from elsewhere) count one each.
    return number + 1 if isinstance(number, int) else len(answers)


def _to_response(answer: object) -> ModelResponse:
    if isinstance(answer, ModelResponse):
        return answer
    if isinstance(answer, str):
        return ModelResponse(content=answer)
    raise InvalidMessageError(f"the script returned {type(answer).__name__}, ModelResponse or text expected")
