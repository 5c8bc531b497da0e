"""What a caller gives to a method: checked by the method's annotations, refused by errors of the pack."""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from helix_temporal.errors import InvalidIdError, InvalidRequestError
from helix_temporal.models.base import describe_unknown

P = ParamSpec("P")
R = TypeVar("R")

_WORDS: Final[Mapping[Any, str]] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "True or False",
    Mapping: "a dictionary",
    Sequence: "a list",
}


def typed_arguments(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Let a method refuse arguments that it, or its models, do not take by the pack's own error.

    The message names the argument, what is expected and the type that was given, never its value.
    """
    check = _check_of(method)

    @functools.wraps(method)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        try:
            return await method(*args, **kwargs)
        except ValidationError as error:
            raise InvalidRequestError(
                "; ".join(map(_describe_problem, error.errors(include_url=False)))
            ) from None

    return checked


def typed_call(method: Callable[P, R]) -> Callable[P, R]:
    """As `typed_arguments`, for a method that is no coroutine."""
    check = _check_of(method)

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args, kwargs)
        return method(*args, **kwargs)

    return checked


def _check_of(method: Callable[..., Any]) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
    signature = inspect.signature(method)

    @functools.cache
    def hints() -> dict[str, Any]:
        # At the first call: a hint may name a class that is defined below the method.
        found = get_type_hints(method)
        one_each = (each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD)
        return {each.name: found[each.name] for each in one_each if each.name in found}

    @functools.cache
    def keywords() -> list[str] | None:
        return _list_keywords(method, signature)

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        known = keywords()
        unknown = () if known is None else [name for name in kwargs if name not in known]
        if known and unknown:
            raise InvalidRequestError(describe_unknown(unknown, known, f"argument of {method.__name__}"))
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            # Without the name, which Python's own error has.
            raise TypeError(f"{method.__name__}(): {error}") from None
        for name, hint in hints().items():
            if name in given:
                _check_argument(name, given[name], hint)

    return check


def _list_keywords(method: Callable[..., Any], signature: inspect.Signature) -> list[str] | None:
    """Names of the arguments that a method takes by name; None if it takes any."""
    found: list[str] = []
    for each in signature.parameters.values():
        if each.kind is not each.VAR_KEYWORD:
            found.append(each.name)
            continue
        options = get_type_hints(method)[each.name]
        if get_origin(options) is not Unpack:
            return None
        found += get_type_hints(get_args(options)[0])
    return [name for name in found if name != "self"]


def _check_argument(name: str, value: object, hint: Any) -> None:
    """Refuse what is none of the classes and words that a hint names; of lists and mappings not their items.

    Raises:
        InvalidIdError: The argument is an id.
        InvalidRequestError: It is any other, or a time-out that is not above 0.
    """
    kinds = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    if any(_is_of(value, kind) for kind in kinds):
        _check_timeout(name, value)
        return
    wanted = " or ".join(_describe_type(kind) for kind in kinds if kind is not NoneType)
    refusal = InvalidIdError if name.endswith("_id") else InvalidRequestError
    raise refusal(f"{name}: {wanted} expected, got {type(value).__name__}")


def _check_timeout(name: str, value: object) -> None:
    """Refuse a time-out in which nothing can happen, also NaN, which compares with nothing.

    Raises:
        InvalidRequestError: It is one.
    """
    if name == "timeout" and isinstance(value, int | float) and not value > 0:
        raise InvalidRequestError(f"{name}: a number of seconds above 0 expected, got {value}")


def _is_of(value: object, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    kind = get_origin(kind) or kind
    if kind in {int, float}:
        return not isinstance(value, bool) and isinstance(value, int if kind is int else int | float)
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    return isinstance(value, kind)


def _describe_type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    kind = get_origin(kind) or kind
    return _WORDS.get(kind) or str(kind.__name__)


def _describe_problem(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}, got {type(problem['input']).__name__}"
