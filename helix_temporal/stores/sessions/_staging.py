"""Pure: staged changes, and what closes a step."""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import Field

from helix_temporal.errors import StepClosedError, TooLargeError
from helix_temporal.models._json import JsonObject
from helix_temporal.models.checkpoints import CommitResult, PromoteResult, StagedChange, StagedRow
from helix_temporal.models.states import StoredModel
from helix_temporal.stores.protocols.session_records import RecordKind, SessionRecord, Wanted
from helix_temporal.stores.sessions._codec import decode, digest, encode
from helix_temporal.stores.sessions._decisions import Decision, Seen
from helix_temporal.stores.sessions._life import check_version
from helix_temporal.stores.sessions._patches import MAX_OPERATIONS, apply_all

PROMOTED: Final = "promoted"
"""Key of the record of a step that `promote_staging` closed."""


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


def wanted(step_id: str) -> Wanted:
    """What a change of a step's staging looks at."""
    return Wanted(groups=((RecordKind.STEP, step_id), (RecordKind.STAGED, step_id)))


def stage(seen: Seen, step_id: str, change: StagedChange) -> Decision[None]:
    """See `CheckpointStore.stage_changes`."""
    _ = seen.present
    made = digest(change)
    closed = [
        decode(ClosedStep, each.body, "closed step") for each in seen.view.all(RecordKind.STEP, step_id)
    ]
    if any(each.changes.get(change.tool_call_id) == made for each in closed):
        return Decision(None)
    if closed:
        raise StepClosedError(
            f"session {seen.session_id!r}: step {step_id!r} is closed; nothing more can be staged for it",
            session_id=seen.session_id,
            step_id=step_id,
        )
    if len(change.patches) > MAX_OPERATIONS:
        raise TooLargeError(f"patch: {len(change.patches)} > {MAX_OPERATIONS} operations")
    body = encode(change, "staged change")
    record = SessionRecord(RecordKind.STAGED, change.tool_call_id, body, step_id, change.timestamp)
    return Decision(None, puts=(record,))


def staged(seen: Seen, step_id: str) -> list[StagedChange]:
    """The changes of a step, in the order in which they are applied."""
    return [row_of(record).change for record in seen.view.all(RecordKind.STAGED, step_id)]


def row_of(record: SessionRecord) -> StagedRow:
    """A staged change as it was given."""
    change = decode(StagedChange, record.body, "staged change")
    return StagedRow(step_id=record.group, change=change)


def discard(seen: Seen, step_id: str) -> Decision[int]:
    """See `CheckpointStore.discard_staging`."""
    _ = seen.present
    return Decision(len(seen.view.all(RecordKind.STAGED, step_id)), clears=cleared(seen, step_id))


def cleared(seen: Seen, step_id: str) -> tuple[tuple[RecordKind, str], ...]:
    """What goes when nothing more of a step is kept aside."""
    return ((RecordKind.STAGED, step_id),) if seen.view.all(RecordKind.STAGED, step_id) else ()


def promote(
    seen: Seen,
    step_id: str,
    expected_version: int | None,
    on_conflict: Literal["error", "warn"],
    results: Sequence[str] | None,
) -> Decision[PromoteResult]:
    """See `CheckpointStore.promote_staging`."""
    stored = seen.present
    check_version(stored, expected_version)
    changes = counting(staged(seen, step_id), results)
    if not changes:
        return Decision(PromoteResult(promoted=0, new_version=stored.version), clears=cleared(seen, step_id))
    custom, warnings = apply_all(stored.custom_state, changes, warn=on_conflict == "warn")
    after = seen.bumped(custom_state=custom)
    result = PromoteResult(
        promoted=len(changes) - len(warnings), new_version=after.version, warnings=warnings
    )
    before = seen.view.find(RecordKind.STEP, PROMOTED, step_id)
    known = decode(ClosedStep, before.body, "closed step").changes if before else {}
    closed = ClosedStep(changes={**known, **digests(changes)})
    return Decision(
        result,
        after,
        puts=(closing(closed, PROMOTED, step_id),),
        clears=cleared(seen, step_id),
    )


def counting(changes: Sequence[StagedChange], results: Sequence[str] | None) -> list[StagedChange]:
    """Without those that came with a result which is none of ``results``."""
    return [each for each in changes if results is None or each.result is None or each.result in results]


def folded(
    seen: Seen, step_id: str, custom_state: JsonObject, results: Sequence[str] | None
) -> tuple[JsonObject, list[StagedChange]]:
    """A custom state with a step's staged changes in it, and which these were."""
    changes = counting(staged(seen, step_id), results)
    if not changes:
        return custom_state, []
    return apply_all(custom_state, changes)[0], changes


def digests(changes: Sequence[StagedChange]) -> dict[str, str]:
    """What was promoted, to know it again."""
    return {change.tool_call_id: digest(change) for change in changes}


def closing(closed: ClosedStep, key: str, step_id: str) -> SessionRecord:
    """The record that closes a step."""
    return SessionRecord(RecordKind.STEP, key, encode(closed, "closed step"), step_id)
