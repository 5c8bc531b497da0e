"""The state goes back to a checkpoint: because somebody asked for it, or because its thread did."""

from helix_temporal.activities._tidying import asked_for
from helix_temporal.errors import CheckpointNotFoundError
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.sessions import SessionStore


async def went_back(
    store: SessionStore, request: OpenSessionInput, header: HotHeader, kept: SliceState
) -> bool:
    """Go back to the checkpoint that was asked for, by this open or by one that cut the thread and died.

    Returns:
        Whether there is such a checkpoint.

    Raises:
        CheckpointNotFoundError: The one that this open names was removed meanwhile.
    """
    asked = asked_for(kept, header)
    checkpoint_id = request.checkpoint or (asked.checkpoint if asked is not None else None)
    if checkpoint_id is None:
        return False
    first = header.epoch if asked is None else asked.epoch
    try:
        await go_back(store, request.session_id, checkpoint_id, header.epoch, first=first)
    except CheckpointNotFoundError:
        if request.checkpoint is not None:
            raise
        return False
    return True


async def go_back(
    store: SessionStore, session_id: str, checkpoint_id: str, epoch: int, *, first: int | None = None
) -> None:
    """Restore a checkpoint, once for the open of epoch ``first`` (this one) and those that finish it."""
    await store.restore_checkpoint(
        session_id, checkpoint_id, epoch=epoch, operation_id=f"back/{first or epoch}"
    )
