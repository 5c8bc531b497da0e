"""Tools: functions that a model may ask for, and tools that a client or a person answers."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, Protocol, overload

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from helix_temporal.agents.checks import call_function, check_count, check_name, check_seconds, to_seconds
from helix_temporal.errors import InvalidConfigError, InvalidMessageError, InvalidRequestError
from helix_temporal.models.agents import ToolFacts, ToolSpec
from helix_temporal.models.base import JsonObject, check_json, copy_json, dump_json, only_set
from helix_temporal.models.messages import Usage
from helix_temporal.models.states import TracingContext

_SECTION = re.compile(r"^(Args|Arguments|Attributes|Example|Examples|Note|Raises|Returns|Yields):\s*$")
_ARGUMENT = re.compile(r"^(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SHOWN_ERRORS = 10


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool's function takes.

    Attributes:
        description: The docstring up to its first section.
        schema: JSON schema of the arguments.
        context: Name of the parameter that takes the context, if there is one.
    """

    description: str
    schema: dict[str, JsonValue]
    context: str | None
    _arguments: type[BaseModel]
    _names: Mapping[str, str]

    def bind_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the call, converted to the annotated types; defaults stay out.

        Raises:
            ValidationError: They don't fit; see `explain_invalid_arguments`.
        """
        parsed = self._arguments.model_validate(dict(arguments))
        return {self._names[field]: getattr(parsed, field) for field in parsed.model_fields_set}


def explain_invalid_arguments(error: ValidationError) -> str:
    """Which arguments are wrong and why, without their values; for the model to read and mend."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(str(part) for part in item['loc']) or '(all)'}: {item['msg']}" for item in found]
    if len(lines) > _SHOWN_ERRORS:
        lines = [*lines[:_SHOWN_ERRORS], f"and {len(lines) - _SHOWN_ERRORS} more"]
    return "invalid arguments: " + "; ".join(lines)


def read_signature(function: Callable[..., Any], context_type: type) -> Signature:
    """Read a function's parameters and docstring.

    Raises:
        InvalidConfigError: A parameter has no annotation, one that can't be resolved or has no JSON
            schema, or is variadic or positional-only; the message names it.
    """
    where = getattr(function, "__qualname__", repr(function))
    description, told = _parse_docstring(inspect.getdoc(function) or "")
    context: str | None = None
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = _resolve_hint(function, parameter, where)
        if _is_context(hint, context_type):
            context = parameter.name
            continue
        # Numbered fields with aliases: a parameter may be called `copy`, `json` or `_x`.
        field = f"p{len(fields)}"
        names[field] = parameter.name
        default = ... if parameter.default is parameter.empty else parameter.default
        annotation = (
            Annotated[hint, Field(description=told[parameter.name])] if parameter.name in told else hint
        )
        fields[field] = (annotation, Field(default=default, alias=parameter.name))
        _check_type(annotation, fields[field][1], parameter.name, where)
    arguments = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    return Signature(description, _arguments_schema(arguments), context, arguments, names)


def _resolve_hint(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    name = parameter.name
    if parameter.kind not in _NAMED:
        raise InvalidConfigError(
            f"tool {where}: parameter {name!r} is {parameter.kind.description}; make it a named one"
        )
    if parameter.annotation is parameter.empty:
        raise InvalidConfigError(f"tool {where}: parameter {name!r} has no annotation; its schema needs one")
    if isinstance(parameter.default, FieldInfo):
        raise InvalidConfigError(
            f"tool {where}: parameter {name!r}: write Annotated[type, Field(...)] = default"
        )
    namespace = getattr(inspect.unwrap(function), "__globals__", {})
    # One at a time, so that the error can name the parameter.
    alone = types.SimpleNamespace(__annotations__={name: parameter.annotation})
    try:
        return typing.get_type_hints(alone, globalns=namespace, include_extras=True)[name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidConfigError(
            f"tool {where}: the annotation of parameter {name!r} can't be resolved ({error}); "
            "import its type at module level, not under TYPE_CHECKING"
        ) from error


def _is_context(hint: Any, context_type: type) -> bool:
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint is context_type or context_type in typing.get_args(hint)


def _check_type(annotation: Any, field: Any, name: str, where: str) -> None:
    try:
        create_model("Argument", p0=(annotation, field)).model_json_schema()
    except (PydanticUserError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidConfigError(
            f"tool {where}: parameter {name!r} has a type without JSON schema: {reason}"
        ) from error


def _arguments_schema(arguments: type[BaseModel]) -> dict[str, JsonValue]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return schema


def _parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and what an ``Args:`` section says of each parameter."""
    above: list[str] = []
    told: dict[str, str] = {}
    section, current, indent = "", "", ""
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading:
            section, current, indent = heading[1], "", ""
        elif not section:
            above.append(line)
        elif section in {"Args", "Arguments"}:
            argument = _ARGUMENT.match(line)
            if argument and (not indent or argument[1] == indent):
                indent, current, told[argument[2]] = argument[1], argument[2], argument[3].strip()
            elif current and line.strip():
                told[current] = f"{told[current]} {line.strip()}".strip()
    return "\n".join(above).strip(), told


DEFAULT_ATTEMPTS: Final = 3


class Emit(Protocol):
    """Tells those who watch; see `ToolContext.emit`."""

    def __call__(self, event_name: str, data: Any = None, key: str | None = None, /) -> None:
        """Tell them.

        Raises:
            InvalidMessageError: JSON can't hold ``data``.
        """
        ...


def _nobody_watches(event_name: str, data: Any = None, key: str | None = None, /) -> None:
    """Where there is no stream."""


class RecordMetric(Protocol):
    """See `ToolContext.record`."""

    def __call__(self, name: str, value: int | Decimal, unit: str | None = None, /) -> None:
        """Count ``value`` of something; no float, whose sums are not exact.

        Raises:
            InvalidRequestError: The value is no whole or decimal number.
        """
        ...


def _nobody_counts(_name: str, _value: int | Decimal, _unit: str | None = None, /) -> None:
    """Nowhere is what tools use recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Which call of which session a tool serves.

    Attributes:
        turn: Number of the turn in the session, from 1.
        call_id: The provider's id of the call, unique within one answer at best.
        key: The same for every attempt of this call, different for any other call: pass it on as the
            idempotency key of whatever the tool changes.
        metadata: The session's.
        attempt: 1 for the first attempt.
        tracing_context: The session's, which its caller has set; None if nobody has.
        emit: Tells those who watch the session's stream: ``emit("progress", {"percent": 40})``.  Waits for
            nothing, and may be called from a plain function's thread.  A further attempt tells it again;
            with a third argument, a key, what was told under it in this call is told once.
        record: Counts something of the tool's own: ``record("pages", 3)``, ``record("fee", Decimal("0.02"),
            "USD")``.  It is in the session's usage once the tool has ended, once however often it was
            attempted, and summed up over sub-agents: ``recorded.custom["pages"]["name of the tool"]``.
    """

    session_id: str
    thread_id: str
    agent: str
    turn: int
    call_id: str
    key: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    attempt: int = 1
    emit: Emit = field(default=_nobody_watches, repr=False, compare=False)
    record: RecordMetric = field(default=_nobody_counts, repr=False, compare=False)
    tracing_context: TracingContext | None = None


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What becomes of a tool call.

    Attributes:
        content: What the model is told: what the tool would return without an outcome, or parts of a
            message, objects that each have a ``type``.
        is_error: The tool failed, and ``content`` says how.
        rewind: Take back the turn's steps and ask the model again.
        wait: End the turn here; somebody will send a message later.
        usage: What the tool itself used of models.
        state: Changes of the session's custom state: each value, also a list, replaces the one under its
            key.  They are staged under the call's key, so that attempts do not add up, and become part
            of the state with the turn, in the order of the calls.
    """

    content: Any = ""
    is_error: bool = False
    rewind: bool = False
    wait: bool = False
    usage: Usage | None = None
    state: JsonObject | None = None


class ToolHandler(Protocol):
    """What runs when a tool is called."""

    def __call__(self, arguments: Mapping[str, Any], context: ToolContext, /) -> Any:
        """Give a result, or a coroutine of one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool: what the model is told of it, what runs, and how long it may take.

    Usually made by `tool`; built directly where the schema comes from elsewhere, then ``handler``
    gets the arguments unchecked.

    Attributes:
        parameters: JSON schema of the arguments, an object.
        timeout: Seconds that one attempt may take; None for the worker's default.
        heartbeat: Seconds after which a silent attempt counts as lost; None for the worker's default.
        attempts: Attempts before its failure is given to the model.
        deadline: Seconds that all attempts together may take; None for no such limit.
        approval: Each call waits until somebody has approved it.
        answer_within: Seconds that somebody has for that; None for no deadline.
        hide_errors: Of an exception that it raises, the model is told the type alone, not the text.

    Raises:
        InvalidConfigError: The name or a number is outside what is allowed.
    """

    name: str
    handler: ToolHandler = field(repr=False)
    description: str = ""
    parameters: dict[str, JsonValue] = field(default_factory=lambda: {"type": "object", "properties": {}})
    timeout: float | None = None
    heartbeat: float | None = None
    attempts: int = DEFAULT_ATTEMPTS
    deadline: float | None = None
    approval: bool = False
    answer_within: float | None = None
    hide_errors: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "tool")
        check_count(self.attempts, f"tool {self.name!r}: attempts")
        for what, seconds in (
            ("timeout", self.timeout),
            ("heartbeat", self.heartbeat),
            ("deadline", self.deadline),
            ("answer_within", self.answer_within),
        ):
            if seconds is not None:
                check_seconds(seconds, f"tool {self.name!r}: {what}")

    async def call_handler(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Run it once, a plain function in a thread.

        Arguments that don't fit give an error outcome that names them.  What the function itself
        raises passes through: whether to try again is the caller's to decide.

        Raises:
            InvalidMessageError: The result is nothing that JSON can hold; the tool must be mended.
        """
        return _to_outcome(await call_function(self.handler, arguments, context), self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function itself, for its own tests."""
        function = self.handler.function if isinstance(self.handler, _FunctionHandler) else self.handler
        return function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def build_facts(self, agent: str) -> ToolFacts:
        """What the workflow must know to run it."""
        return ToolFacts(
            name=self.name,
            activity=f"helix.tools.{agent}.{self.name}",
            start_to_close=self.timeout,
            heartbeat=self.heartbeat,
            max_attempts=self.attempts,
            schedule_to_close=self.deadline,
            **self.waiting_fields(),
        )

    def waiting_fields(self) -> dict[str, Any]:
        """What the workflow must know of who has to agree; histories stay small."""
        within = only_set(answer_within=self.answer_within)
        return {"approval": True, **within} if self.approval else within


@dataclass(frozen=True, slots=True)
class _FunctionHandler:
    """Checks the arguments, then calls a function with them by name."""

    function: Callable[..., Any]
    signature: Signature

    async def __call__(self, arguments: Mapping[str, Any], context: ToolContext, /) -> Any:
        try:
            bound = self.signature.bind_arguments(arguments)
        except ValidationError as error:
            return ToolOutcome(explain_invalid_arguments(error), is_error=True)
        if self.signature.context is not None:
            bound[self.signature.context] = context
        return await call_function(self.function, **bound)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | timedelta | None = None,
    heartbeat: float | timedelta | None = None,
    attempts: int = DEFAULT_ATTEMPTS,
    deadline: float | timedelta | None = None,
    approval: bool = False,
    answer_within: float | timedelta | None = None,
    hide_errors: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | timedelta | None = None,
    heartbeat: float | timedelta | None = None,
    attempts: int = DEFAULT_ATTEMPTS,
    deadline: float | timedelta | None = None,
    approval: bool = False,
    answer_within: float | timedelta | None = None,
    hide_errors: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool, as ``@tool`` or ``@tool(timeout=20)``.

    The schema comes from the annotations, the description from the docstring, and what its ``Args:``
    section says of a parameter goes into the schema.  A parameter annotated `ToolContext` gets the
    context and is not shown to the model.  The function may be async or plain (it then runs in a
    thread) and return text, JSON, a pydantic model or a `ToolOutcome`.  Times are seconds or
    timedeltas; see `Tool`.

    Raises:
        InvalidConfigError: A parameter has no usable type, or an option is outside what is allowed.
    """

    def make(function: Callable[..., Any]) -> Tool:
        signature = read_signature(function, ToolContext)
        return Tool(
            name=name if name is not None else getattr(function, "__name__", ""),
            handler=_FunctionHandler(function, signature),
            description=description if description is not None else signature.description,
            parameters=signature.schema,
            timeout=to_seconds(timeout),
            heartbeat=to_seconds(heartbeat),
            attempts=attempts,
            deadline=to_seconds(deadline),
            approval=approval,
            answer_within=to_seconds(answer_within),
            hide_errors=hide_errors,
        )

    return make if function is None else make(function)


def _to_outcome(result: Any, name: str) -> ToolOutcome:
    if not isinstance(result, ToolOutcome):
        return ToolOutcome(_to_text(result, name))
    _check_usage(result, name)
    to_content = _to_json if _are_parts(result.content) else _to_text
    return replace(result, content=to_content(result.content, name), state=_copy_state(result, name))


def _to_text(result: Any, name: str) -> str:
    """What a tool gave, as the model reads it: text as it is, all else as JSON."""
    value = _to_json(result, name)
    return value if isinstance(result, str) else dump_json(value).decode()


def _to_json(result: Any, name: str) -> Any:
    try:
        value = result if isinstance(result, str) else to_jsonable_python(result)
    except (PydanticSerializationError, RecursionError, ValueError) as error:
        raise InvalidMessageError(
            f"tool {name!r} returned {type(result).__name__}, which JSON can't hold: {str(error)[:200]}"
        ) from error
    check_json(value, f"tool {name!r}: $")
    return value


def _are_parts(content: Any) -> bool:
    """Whether these are parts of a message: other objects no adapter would show the model."""
    return isinstance(content, list) and content != [] and all(map(_is_part, content))


def _is_part(each: Any) -> bool:
    return isinstance(each, dict) and isinstance(each.get("type"), str)


def _check_usage(outcome: ToolOutcome, name: str) -> None:
    usage: object = outcome.usage
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidMessageError(f"tool {name!r}: usage: Usage expected, got {type(usage).__name__}")


def _copy_state(outcome: ToolOutcome, name: str) -> JsonObject | None:
    """The changes of the state as JSON has them: tuples are lists.

    Raises:
        InvalidMessageError: They are no dictionary, or no JSON.
    """
    state: object = outcome.state
    if state is None:
        return None
    where = f"tool {name!r}: state"
    if not isinstance(state, Mapping):
        raise InvalidMessageError(f"{where}: a dictionary expected, got {type(state).__name__}")
    changes: JsonObject = copy_json(state, where)
    return changes


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

    def build_facts(self, agent: str) -> ToolFacts:
        """What the workflow must know of it."""
        name = f"helix.tools.{agent}.{self.name}"
        within = only_set(answer_within=self.answer_within)
        return ToolFacts(name=self.name, activity=name, kind="client", **within)


@overload
def client_tool(
    function: Callable[..., Any], /, *, description: str = "", answer_within: float | timedelta | None = None
) -> Tool: ...
@overload
def client_tool(
    *, description: str = "", answer_within: float | timedelta | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...
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
    what: str | Callable[..., Any] | None = None,
    /,
    *,
    description: str = "",
    parameters: Mapping[str, JsonValue] | type[BaseModel] | None = None,
    answer_within: float | timedelta | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """A tool that runs where the client is: the call is handed out, and its result submitted.

    Given a function, as ``@client_tool`` or ``@client_tool(answer_within=60)``, its signature and docstring
    say what the model is told, and its body never runs.

    Args:
        what: The tool's name, or the function.
        description: What the model is told of it; of a function instead of its docstring.
        parameters: JSON schema of the arguments, or a pydantic model of them; a function has its own.  They
            are handed to the client as the model gave them, unchecked.
        answer_within: Seconds, or a timedelta, until a call without an answer counts as failed; None for
            never.

    Raises:
        InvalidConfigError: The name, the schema or the time is outside what is allowed; or ``parameters``
            are given beside a function.
    """
    within = to_seconds(answer_within)
    if not isinstance(what, str):
        if parameters is not None:
            raise InvalidConfigError("parameters: the function's own are used; give a name instead of it")
        make = partial(_client_tool_of, description=description, answer_within=within)
        return make if what is None else make(what)
    given: dict[str, Any] = {}
    if isinstance(parameters, type):
        given["parameters"] = parameters.model_json_schema()
    elif parameters is not None:
        given["parameters"] = dict(parameters)
    if given and given["parameters"].get("type") != "object":
        raise InvalidConfigError(f"tool {what!r}: parameters must be the JSON schema of an object")
    return ClientTool(
        name=what, handler=_refuse_to_run, description=description, answer_within=within, **given
    )


def _client_tool_of(function: Callable[..., Any], *, description: str, answer_within: float | None) -> Tool:
    signature = read_signature(function, ToolContext)
    return ClientTool(
        name=getattr(function, "__name__", ""),
        handler=_refuse_to_run,
        description=description or signature.description,
        parameters=signature.schema,
        answer_within=answer_within,
    )


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


def _refuse_to_run(arguments: Mapping[str, Any], context: ToolContext, /) -> Any:  # noqa: ARG001
    raise InvalidRequestError(
        f"call {context.call_id!r}: this tool runs at the client; give its result with submit_tool_result"
    )
