"""Runs of a session that come to an end without a turn that counts."""

from helix_temporal.errors import InvalidRequestError
from helix_temporal.models.runs import RunChange, RunStatus
from helix_temporal.stores.protocols.sessions import SessionStore


async def give_up_run(
    store: SessionStore, session_id: str, run_id: str, status: RunStatus, epoch: int
) -> None:
    """End a run that came to nothing, and drop what its tools staged."""
    await end_run(store, session_id, run_id, status, epoch)
    await store.discard_staging(session_id, run_id, epoch=epoch)


async def end_run(store: SessionStore, session_id: str, run_id: str, status: RunStatus, epoch: int) -> None:
    """End a run, if it has not ended."""
    run = await store.get_run(session_id, run_id)
    if run is not None and run.status.live:
        change = RunChange(status=status, completion_reason=status.value)
        try:
            await store.update_run(session_id, run_id, change, epoch=epoch)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # A step that nobody waits for any more has ended it meanwhile, and its turn counts.
