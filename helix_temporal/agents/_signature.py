"""From a function's signature to a JSON schema, and from a model's arguments to a call."""

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo

from helix_temporal.errors import InvalidConfigError

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

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the call, converted to the annotated types; defaults stay out.

        Raises:
            ValidationError: They don't fit; see `explain`.
        """
        parsed = self._arguments.model_validate(dict(arguments))
        return {self._names[field]: getattr(parsed, field) for field in parsed.model_fields_set}


def explain(error: ValidationError) -> str:
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
    description, told = _docstring(inspect.getdoc(function) or "")
    context: str | None = None
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = _hint(function, parameter, where)
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
    return Signature(description, _schema(arguments), context, arguments, names)


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    name = parameter.name
    if parameter.kind not in _NAMED:
        raise InvalidConfigError(f"tool {where}: parameter {name!r} is {parameter.kind.description}; name it")
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


def _schema(arguments: type[BaseModel]) -> dict[str, JsonValue]:
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for part in schema.get("properties", {}).values():
        part.pop("title", None)
    return schema


def _docstring(text: str) -> tuple[str, dict[str, str]]:
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
