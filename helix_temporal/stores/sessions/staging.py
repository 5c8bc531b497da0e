"""Staged changes of a custom state, and JSON Patch within limits."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Final, Literal

from jsonpatch import JsonPatch, JsonPatchException
from jsonpointer import JsonPointer, JsonPointerException
from pydantic import Field

from helix_temporal.errors import (
    HelixError,
    InvalidMessageError,
    InvalidRequestError,
    PatchConflictError,
    StepClosedError,
    TooLargeError,
)
from helix_temporal.models.base import MAX_DEPTH, JsonObject, check_json, dump_json
from helix_temporal.models.checkpoints import (
    CommitResult,
    JsonPatchOp,
    PromoteResult,
    StagedChange,
    StagedRow,
)
from helix_temporal.models.ids import validate_id
from helix_temporal.models.limits import MAX_PATCH_MOVED, MAX_PATCH_OPERATIONS, MAX_PATCH_PATH
from helix_temporal.models.states import StoredModel
from helix_temporal.stores.protocols.session_rows import RowKind, SessionRow, WantedRows
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.checks import checked_version, revalidate_model
from helix_temporal.stores.sessions.decisions import (
    Call,
    Decision,
    SeenSession,
    decode_model,
    digest_parts,
    encode_model,
)
from helix_temporal.stores.sessions.life import check_version

_INDEX_DIGITS: Final = 18


def apply_change(state: JsonObject, change: StagedChange) -> JsonObject:
    """The custom state after one tool call's change; ``state`` itself may be changed.

    Raises:
        PatchConflictError: An operation can't be applied; facts say whose and which.
        TooLargeError: It copies too much.
    """
    if not change.patches:
        if change.replaces_lists:
            return {**state, **change.merge_changes}
        return _merge_values(state, change.merge_changes)
    moved, document = 0, state
    for index, operation in enumerate(change.patches):
        try:
            moved += _size_moved(document, operation)
            if moved > MAX_PATCH_MOVED:
                raise TooLargeError(f"patch of {change.tool_call_id!r}: copies over {MAX_PATCH_MOVED} bytes")
            document = _apply_operation(document, operation)
        except _REFUSALS as error:
            raise _patch_conflict_error(change, index, operation, type(error).__name__) from None
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
        raise _patch_conflict_error(change, last, None, "the custom state must stay an object")
    try:
        if thorough:
            check_json(document)
    except HelixError:
        raise _patch_conflict_error(change, last, None, f"nested over {MAX_DEPTH} levels") from None


def _apply_operation(document: Any, operation: JsonPatchOp) -> Any:
    for path in (operation.path, operation.from_ or ""):
        _check_path(path)
    return JsonPatch([operation.as_rfc6902()]).apply(document, in_place=True)


def _check_path(path: str) -> None:
    if len(path) > MAX_PATCH_PATH:
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
    return len(dump_json(value))


def _merge_values(state: JsonObject, changes: JsonObject) -> JsonObject:
    after = dict(state)
    for key, value in changes.items():
        there = after.get(key)
        both = isinstance(there, list) and isinstance(value, list)
        after[key] = [*there, *value] if both else value  # type: ignore[misc]
    return after


def _patch_conflict_error(
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


PROMOTED: Final = "promoted"
"""Key of the row of a step that `promote_staging` closed."""


class ClosedStep(StoredModel):
    """A step that takes no more changes.

    Attributes:
        request: Digest of the commit that closed it.
        result: Its answer.
        changes: Digests of the promoted changes by tool call.
    """

    request: str = ""
    result: CommitResult | None = None
    changes: dict[str, str] = Field(default_factory=dict)


def wanted_staging(step_id: str) -> WantedRows:
    """What a change of a step's staging looks at."""
    return WantedRows(groups=((RowKind.STEP, step_id), (RowKind.STAGED, step_id)))


def decide_staging(seen: SeenSession, step_id: str, change: StagedChange) -> Decision[None]:
    """See `CheckpointStore.stage_changes`."""
    _ = seen.present
    made = digest_parts(change)
    closed = [
        decode_model(ClosedStep, each.body, "closed step")
        for each in seen.view.list_rows(RowKind.STEP, step_id)
    ]
    if any(each.changes.get(change.tool_call_id) == made for each in closed):
        return Decision(None)
    if closed:
        raise StepClosedError(
            f"session {seen.session_id!r}: step {step_id!r} is closed; nothing more can be staged for it",
            session_id=seen.session_id,
            step_id=step_id,
        )
    if len(change.patches) > MAX_PATCH_OPERATIONS:
        raise TooLargeError(f"patch: {len(change.patches)} > {MAX_PATCH_OPERATIONS} operations")
    body = encode_model(change, "staged change")
    row = SessionRow(RowKind.STAGED, change.tool_call_id, body, step_id, change.timestamp)
    return Decision(None, puts=(row,))


def staged_changes(seen: SeenSession, step_id: str) -> list[StagedChange]:
    """The changes of a step, in the order in which they are applied."""
    return [staged_row_of(row).change for row in seen.view.list_rows(RowKind.STAGED, step_id)]


def staged_row_of(row: SessionRow) -> StagedRow:
    """A staged change as it was given."""
    change = decode_model(StagedChange, row.body, "staged change")
    return StagedRow(step_id=row.group, change=change)


def decide_discard(seen: SeenSession, step_id: str) -> Decision[int]:
    """See `CheckpointStore.discard_staging`."""
    _ = seen.present
    return Decision(len(seen.view.list_rows(RowKind.STAGED, step_id)), clears=groups_to_clear(seen, step_id))


def groups_to_clear(seen: SeenSession, step_id: str) -> tuple[tuple[RowKind, str], ...]:
    """What goes when nothing more of a step is kept aside."""
    return ((RowKind.STAGED, step_id),) if seen.view.list_rows(RowKind.STAGED, step_id) else ()


def decide_promotion(
    seen: SeenSession,
    step_id: str,
    expected_version: int | None,
    on_conflict: Literal["error", "warn"],
    results: Sequence[str] | None,
) -> Decision[PromoteResult]:
    """See `CheckpointStore.promote_staging`."""
    stored = seen.present
    check_version(stored, expected_version)
    changes = select_by_results(staged_changes(seen, step_id), results)
    if not changes:
        return Decision(
            PromoteResult(promoted=0, new_version=stored.version), clears=groups_to_clear(seen, step_id)
        )
    custom, warnings = apply_all(stored.custom_state, changes, warn=on_conflict == "warn")
    after = seen.next_state(custom_state=custom)
    result = PromoteResult(
        promoted=len(changes) - len(warnings), new_version=after.version, warnings=warnings
    )
    before = seen.view.find_row(RowKind.STEP, PROMOTED, step_id)
    digests = decode_model(ClosedStep, before.body, "closed step").changes if before else {}
    closed = ClosedStep(changes={**digests, **digests_by_call(changes)})
    return Decision(
        result,
        after,
        puts=(closed_step_row(closed, PROMOTED, step_id),),
        clears=groups_to_clear(seen, step_id),
    )


def select_by_results(changes: Sequence[StagedChange], results: Sequence[str] | None) -> list[StagedChange]:
    """Without those that came with a result which is none of ``results``."""
    return [each for each in changes if results is None or each.result is None or each.result in results]


def apply_staged_changes(
    seen: SeenSession, step_id: str, custom_state: JsonObject, results: Sequence[str] | None
) -> tuple[JsonObject, list[StagedChange]]:
    """A custom state with a step's staged changes in it, and which these were."""
    changes = select_by_results(staged_changes(seen, step_id), results)
    if not changes:
        return custom_state, []
    return apply_all(custom_state, changes)[0], changes


def digests_by_call(changes: Sequence[StagedChange]) -> dict[str, str]:
    """What was promoted, to know it again."""
    return {change.tool_call_id: digest_parts(change) for change in changes}


def closed_step_row(closed: ClosedStep, key: str, step_id: str) -> SessionRow:
    """The row that closes a step."""
    return SessionRow(RowKind.STEP, key, encode_model(closed, "closed step"), step_id)


_MANY: Final = 1_000


async def stage_changes(
    store: SessionStoreBase, session_id: str, step_id: str, change: StagedChange, *, epoch: int | None = None
) -> None:
    """See `CheckpointStore.stage_changes`."""
    step_id, change = validate_id(step_id, "step id"), revalidate_model(change, StagedChange)
    call = Call("stage_changes", session_id, epoch=epoch)
    wanted = wanted_staging(step_id)
    await store.make_change(call, wanted, lambda seen: decide_staging(seen, step_id, change), type(None))


async def list_staged(
    store: SessionStoreBase, session_id: str, step_id: str | None = None
) -> list[StagedRow]:
    """See `CheckpointStore.list_staged`."""
    if step_id is not None:
        seen = await store.view_session(session_id, wanted_staging(validate_id(step_id, "step id")))
        return [staged_row_of(each) for each in seen.view.list_rows(RowKind.STAGED, step_id)]
    session_id = validate_id(session_id, "session id")
    rows: dict[tuple[str, str], StagedRow] = {}
    limit, after = _MANY, None
    while True:
        page = await store.loop.rows.read_page(
            session_id, RowKind.STAGED, limit=limit, after=after, count=False
        )
        rows |= {(each.group, each.key): staged_row_of(each) for each in page.rows}
        if len(page.rows) < limit:
            return sorted(rows.values(), key=_order_of_row)
        # Calls of two steps may have one name and one time: a page begins with all of a time.
        last = page.rows[-1].order
        if page.rows[0].order < last:
            after = (last, "")
        else:
            limit *= 2


async def discard_staging(
    store: SessionStoreBase, session_id: str, step_id: str, *, epoch: int | None = None
) -> int:
    """See `CheckpointStore.discard_staging`."""
    step_id = validate_id(step_id, "step id")
    call = Call("discard_staging", session_id, epoch=epoch)
    return await store.make_change(
        call, wanted_staging(step_id), lambda seen: decide_discard(seen, step_id), int
    )


async def promote_staging(
    store: SessionStoreBase,
    session_id: str,
    step_id: str,
    *,
    results: Sequence[str] | None = None,
    expected_version: int | None = None,
    on_conflict: Literal["error", "warn"] = "error",
    epoch: int | None = None,
    operation_id: str | None = None,
) -> PromoteResult:
    """See `CheckpointStore.promote_staging`."""
    step_id, expected = validate_id(step_id, "step id"), checked_version(expected_version)
    if on_conflict not in {"error", "warn"}:
        raise InvalidRequestError("on_conflict: error or warn expected")
    content = (step_id, expected, on_conflict, results)
    call = Call("promote_staging", session_id, content, epoch, operation_id)
    return await store.make_change(
        call,
        wanted_staging(step_id),
        lambda seen: decide_promotion(seen, step_id, expected, on_conflict, results),
        PromoteResult,
    )


def _order_of_row(row: StagedRow) -> tuple[int, str, str]:
    """As changes are applied; those of two steps that nothing else tells apart by their steps."""
    return row.change.timestamp, row.change.tool_call_id, row.step_id
