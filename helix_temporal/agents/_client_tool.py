"""Tools that a client executes, or a person answers: the session waits for what is submitted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, overload

from pydantic import BaseModel, JsonValue

from helix_temporal.agents._checks import in_seconds
from helix_temporal.agents._signature import read_signature
from helix_temporal.agents._tool import Tool, ToolContext
from helix_temporal.errors import InvalidConfigError, InvalidRequestError
from helix_temporal.models.agents import ToolFacts

_ASK_USER: Final = "Ask the user, and wait for the answer. Use it only where you cannot go on without it."
_QUESTION: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {
        "question": {"type": "string", "description": "What the user is asked."},
        "options": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Answers to choose from, if there are such.",
        },
    },
    "required": ["question"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True)
class ClientTool(Tool):
    """A tool whose result somebody submits; made by `client_tool`."""

    def facts(self, agent: str) -> ToolFacts:
        """What the workflow must know of it."""
        name = f"helix.tools.{agent}.{self.name}"
        within: dict[str, Any] = {} if self.answer_within is None else {"answer_within": self.answer_within}
        return ToolFacts(name=self.name, activity=name, kind="client", **within)


@overload
def client_tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def client_tool(
    name: str,
    /,
    *,
    description: str = "",
    parameters: Mapping[str, JsonValue] | type[BaseModel] | None = None,
    answer_within: float | timedelta | None = None,
) -> Tool: ...
def client_tool(
    what: str | Callable[..., Any],
    /,
    *,
    description: str = "",
    parameters: Mapping[str, JsonValue] | type[BaseModel] | None = None,
    answer_within: float | timedelta | None = None,
) -> Tool:
    """A tool that runs where the client is: the call is handed out, and its result submitted.

    Given a function, as ``@client_tool``, its signature and docstring say what the model is told, and
    its body never runs.

    Args:
        what: The tool's name, or the function.
        description: What the model is told of it.
        parameters: JSON schema of the arguments, or a pydantic model of them.  They are handed to the client
            as the model gave them, unchecked.
        answer_within: Seconds, or a timedelta, until a call without an answer counts as failed; None for
            never.

    Raises:
        InvalidConfigError: The name, the schema or the time is outside what is allowed.
    """
    within = in_seconds(answer_within)
    if not isinstance(what, str):
        signature = read_signature(what, ToolContext)
        return ClientTool(
            name=getattr(what, "__name__", ""),
            handler=_elsewhere,
            description=signature.description,
            parameters=signature.schema,
        )
    given: dict[str, Any] = {}
    if isinstance(parameters, type):
        given["parameters"] = parameters.model_json_schema()
    elif parameters is not None:
        given["parameters"] = dict(parameters)
    if given and given["parameters"].get("type") != "object":
        raise InvalidConfigError(f"tool {what!r}: parameters must be the schema of an object")
    return ClientTool(name=what, handler=_elsewhere, description=description, answer_within=within, **given)


def ask_user(
    *,
    name: str = "ask_user",
    description: str = _ASK_USER,
    answer_within: float | timedelta | None = None,
) -> Tool:
    """A tool by which the model asks the user a ``question``, with ``options`` to choose from or without.

    What is submitted for its call is the answer.

    Raises:
        InvalidConfigError: The name or the time is outside what is allowed.
    """
    return client_tool(name, description=description, parameters=_QUESTION, answer_within=answer_within)


def _elsewhere(arguments: Mapping[str, Any], context: ToolContext, /) -> Any:  # noqa: ARG001
    raise InvalidRequestError(f"call {context.call_id!r}: this tool runs where the client is, not here")
