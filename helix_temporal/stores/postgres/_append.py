"""One step into a thread, alone or inside somebody's transaction."""

from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.records import Head, head_after, size_of
from helix_temporal.stores import _decide
from helix_temporal.stores.postgres._protocol import TRIES, PostgresExecutor
from helix_temporal.stores.postgres._queries import Queries
from helix_temporal.stores.postgres._rows import columns, header_of, records_of, slice_value
from helix_temporal.stores.protocols.hot import Appended, Archived, StepAppend


async def append_step(on: PostgresExecutor, queries: Queries, step: StepAppend) -> Appended | None:
    """`HotTier.append` on a connection or in a transaction: None if there is no record of the thread.

    One statement where the thread stands at the step's head; a second and third only to say why not.
    """
    _decide.check_step(step)
    for _ in range(TRIES):
        moved = await try_append(on, queries, step)
        if moved is not None:
            return moved
        row = await on.fetchrow(
            queries["thread_at"], step.thread_id, step.head.position, max(len(step.records), 1)
        )
        if row is None:
            return None
        header = header_of(step.thread_id, row)
        if (error := _decide.refusal(header, step.epoch)) is not None:
            raise error
        if row["id_before"] != step.head.last_id:
            raise _decide.head_moved(header, step.head)
        stored = records_of(row, step.thread_id, step.head.position)
        if stored and not _decide.same_step(step, stored):
            raise _decide.conflict(step, header, stored)
        if stored:
            stands = Appended(stored, head_after(step.head, stored), True, header)
            settled = await _settle(on, queries, step, stands)
            if settled is not None:
                return settled
        elif step.slice is not None and header.slice_version != step.slice_version:
            raise _decide.stale_slice(header, step.slice_version)
        # Neither refused nor there: it changed between the two looks.
    raise StoreUnavailableError(f"thread {step.thread_id!r}: it keeps changing; repeat the call")


async def try_append(on: PostgresExecutor, queries: Queries, step: StepAppend) -> Appended | None:
    """Add the step if the thread stands exactly at its head, in one statement; None if it does not."""
    records = step.records
    end = head_after(step.head, records)
    row = await on.fetchrow(queries["thread_append"], *append_values(step, end))
    if row is None:
        return None
    return Appended(records, end, False, header_of(step.thread_id, row))


def append_values(step: StepAppend, end: Head) -> tuple[object, ...]:
    """The arguments of ``_thread_append.sql``, for statements that include it."""
    records = step.records
    archived, archived_size = _hint(step.archived, end.position)
    return (
        step.thread_id,
        step.epoch,
        step.head.position,
        step.head.last_id,
        end.position,
        end.last_id,
        *columns(step.head.position, records),
        size_of(records),
        _decide.ends_turn(step, records),
        None if step.slice is None else slice_value(step.slice, step.slice_version + 1),
        step.slice_version,
        archived,
        archived_size,
    )


async def _settle(
    on: PostgresExecutor, queries: Queries, step: StepAppend, stands: Appended
) -> Appended | None:
    """What still takes effect of a step that stands: None if it was cut meanwhile."""
    header = stands.header
    commits = _decide.ends_turn(step, stands.records)
    archived, archived_size = _hint(step.archived, header.head.position)
    if archived <= header.archived and not (commits and stands.head.position > header.committed):
        return stands
    row = await on.fetchrow(
        queries["thread_settle"],
        step.thread_id,
        step.epoch,
        stands.head.position,
        stands.head.last_id,
        commits,
        archived,
        archived_size,
    )
    if row is None:
        return None
    return Appended(stands.records, stands.head, True, header_of(step.thread_id, row))


def _hint(archived: Archived | None, head: int) -> tuple[int, int]:
    """Position and size that the archive has, where they say something of a thread that ends at ``head``."""
    if archived is None or archived.head.position > head:
        return -1, 0
    return archived.head.position, archived.size
