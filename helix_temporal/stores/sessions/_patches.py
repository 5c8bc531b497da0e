"""Pure: applies the changes of tool calls to a custom state; RFC 6902 by a library, within limits.

A patch comes from a tool, and so from anybody: copies may not grow the state without end, nor nest it
deeper than JSON may be, and an index may not be longer than any list.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException

from helix_temporal.errors import HelixError, InvalidMessageError, PatchConflictError, TooLargeError
from helix_temporal.models._json import MAX_DEPTH, JsonObject, check_json, dumps
from helix_temporal.models.checkpoints import JsonPatchOp, StagedChange

MAX_OPERATIONS: Final = 10_000
MAX_PATH: Final = 4096
MAX_MOVED: Final = 64 * 1024 * 1024
"""Bytes of JSON that the operations of one change may copy or move, all together."""

_INDEX_DIGITS: Final = 18


def apply_change(state: JsonObject, change: StagedChange) -> JsonObject:
    """The custom state after one tool call's change; ``state`` itself may be changed.

    Raises:
        PatchConflictError: An operation can't be applied; facts say whose and which.
        TooLargeError: It copies too much.
    """
    if not change.patches:
        return _merged(state, change.merge_changes)
    moved, document = 0, state
    for index, operation in enumerate(change.patches):
        try:
            moved += _size_moved(document, operation)
            if moved > MAX_MOVED:
                raise TooLargeError(f"patch of {change.tool_call_id!r}: copies over {MAX_MOVED} bytes")
            document = _applied(document, operation)
        except _REFUSALS as error:
            raise _conflict(change, index, operation, type(error).__name__) from None
    return document


_REFUSALS: Final = (JsonPatchException, JsonPointerException, InvalidMessageError, ValueError, TypeError)


def apply_all(
    state: JsonObject, changes: Sequence[StagedChange], *, warn: bool = False
) -> tuple[JsonObject, tuple[str, ...]]:
    """The custom state after all changes, in order, and what could not be applied; ``state`` stays.

    With ``warn`` a change that can't be applied is left out as a whole.

    Raises:
        PatchConflictError: One can't be applied, without ``warn``.
        TooLargeError: One copies too much.
    """
    document, warnings = deepcopy(state), []
    for change in changes:
        try:
            after = apply_change(deepcopy(document) if warn else document, change)
            _check_result(after, change, thorough=warn or change is changes[-1])
        except PatchConflictError as error:
            if not warn:
                raise
            warnings.append(str(error))
        else:
            document = after
    return document, tuple(warnings)


def _check_result(document: object, change: StagedChange, *, thorough: bool) -> None:
    last = len(change.patches) - 1
    if not isinstance(document, dict):
        raise _conflict(change, last, None, "the custom state must stay an object")
    try:
        if thorough:
            check_json(document)
    except HelixError:
        raise _conflict(change, last, None, f"nested over {MAX_DEPTH} levels") from None


def _applied(document: Any, operation: JsonPatchOp) -> Any:
    for path in (operation.path, operation.from_ or ""):
        _check_path(path)
    return JsonPatch([operation.as_rfc6902()]).apply(document, in_place=True)


def _check_path(path: str) -> None:
    if len(path) > MAX_PATH:
        raise JsonPointerException("path too long")
    parts = JsonPointer(path).parts
    if len(parts) > MAX_DEPTH:
        raise JsonPointerException("path too deep")
    # int() refuses what has more than 4,300 digits, and so many no list has.
    if any(len(part) > _INDEX_DIGITS and part.isdigit() for part in parts):
        raise JsonPointerException("index too long")


def _size_moved(document: Any, operation: JsonPatchOp) -> int:
    if operation.op not in {"copy", "move"}:
        return 0
    source = operation.from_
    if source is None:
        raise JsonPointerException("from is missing")
    _check_path(source)
    value = JsonPointer(source).resolve(document)
    check_json(value)
    return len(dumps(value))


def _merged(state: JsonObject, changes: JsonObject) -> JsonObject:
    after = dict(state)
    for key, value in changes.items():
        there = after.get(key)
        both = isinstance(there, list) and isinstance(value, list)
        after[key] = [*there, *value] if both else value  # type: ignore[misc]
    return after


def _conflict(
    change: StagedChange, index: int, operation: JsonPatchOp | None, why: str
) -> PatchConflictError:
    # The library's own words quote values of the state.
    what = "" if operation is None else f" ({operation.op} {operation.path[:100]!r})"
    return PatchConflictError(
        f"tool call {change.tool_call_id!r}: operation {index}{what} can't be applied: {why}; "
        "nothing of the call was applied",
        tool_call_id=change.tool_call_id,
        operation=index,
    )
