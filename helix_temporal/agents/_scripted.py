"""A model that answers by script: for tests, examples and the demo."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from helix_temporal.agents._calling import is_async
from helix_temporal.errors import InvalidConfigError, InvalidMessageError, InvalidRequestError
from helix_temporal.models.agents import ModelRequest, ModelResponse
from helix_temporal.models.messages import Message

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
            return _response(await answer if is_async(self._script) else answer)
        return self._scripted(self._script, request)

    def _scripted(self, script: Sequence[ModelResponse | str], request: ModelRequest) -> ModelResponse:
        number = _next_number(request.messages)
        if number >= len(script):
            raise InvalidRequestError(
                f"the script has {len(script)} answers, number {number + 1} was asked for"
            )
        response = _response(script[number])
        return ModelResponse(
            content=response.content,
            tool_calls=response.tool_calls,
            usage=response.usage,
            provider={**response.provider, STEP: number},
            stop_reason=response.stop_reason,
        )


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


def _response(answer: object) -> ModelResponse:
    if isinstance(answer, ModelResponse):
        return answer
    if isinstance(answer, str):
        return ModelResponse(content=answer)
    raise InvalidMessageError(f"the script gave {type(answer).__name__}, ModelResponse or text expected")
