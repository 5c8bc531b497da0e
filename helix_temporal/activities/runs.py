"""Runs of turns in the session store: begun, under way, ended."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal._futures import discard_error
from helix_temporal.activities.state_changes import TRIES, recreate_state
from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.models.checkpoints import NewRun, Run, RunChange, RunRecorded, RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.steps import RunStepInput
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.telemetry import metrics

ANY_STATUS: Final = frozenset(SessionStatus)
"""A run may begin whatever the session's status."""


Place = Callable[[], Awaitable[int]]
"""Tells after which sequence of the session's stream a turn's chunks come."""


Told = Callable[[Run], None]
"""Is told of a run that has ended and came to nothing."""


def tell_nobody(_run: Run) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class CutRun:
    """A run that comes to no end of its own.

    Attributes:
        status: How it ends.
        epoch: Of the open that ends it.
        agent: Its turn is counted as one of this agent; None where whoever ends the turn counts it.
        tell: Is given the run if it is ended here, and had not ended before.
    """

    session_id: str
    run_id: str
    status: RunStatus
    epoch: int
    agent: str | None
    tell: Told = tell_nobody


async def unknown_place() -> int:
    """Nobody knows: all that is kept may be the turn's."""
    return 0


async def begin_run(
    store: SessionStore,
    request: RunStepInput,
    run: NewRun,
    record: SessionRecord,
    tell: Told = tell_nobody,
) -> None:
    """Record the run of a turn; one that was left behind by an earlier turn has ended, as is told.

    ``record`` is the thread's slice: a state that its store has lost is made from it.

    Raises:
        FencedError: A newer open has the session.
    """
    session_id, epoch = request.session_id, request.epoch
    for _ in range(TRIES):
        try:
            started = await store.start_run(session_id, run, expect_status=ANY_STATUS, epoch=epoch)
        except SessionNotFoundError:
            if request.values is not None:
                # What tools of the turn before changed is not in the slice yet; the workflow was told of it.
                record = record.model_copy(update={"values": request.values})
            await recreate_state(store, session_id, epoch, record, request.head)
            continue
        if isinstance(started, RunRecorded) or started.current_run_id is None:
            return
        left = started.current_run_id
        goes_on = left.partition(".")[0] == run.run_id.partition(".")[0]  # the same turn, under a new name
        agent = None if goes_on else request.agent
        await give_up_run(store, CutRun(session_id, left, RunStatus.SUPERSEDED, epoch, agent, tell))


async def run_under_way(store: SessionStore, session_id: str, named_run: str | None) -> str | None:
    """A session's run that has not ended; None for one that waits for people, which may go on.

    It is ``named_run`` if that was never recorded.
    """
    state = await store.load_state(session_id)
    if state is None or state.suspension_context is not None:
        return None
    if state.current_run_id is None and named_run is not None:
        return named_run if await store.get_run(session_id, named_run) is None else None
    return state.current_run_id


@contextlib.asynccontextmanager
async def run_alongside(act: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do this while what is within goes on; both have ended at the end.

    A failure within is told rather than this one's, which then is given the time that it takes; a
    cancellation ends both.
    """
    task = asyncio.create_task(act)
    try:
        yield
    except Exception:
        await asyncio.wait([task])
        raise
    except BaseException:
        task.cancel()
        await asyncio.wait([task])
        raise
    else:
        await task
    finally:
        if task.done():
            discard_error(task)


async def give_up_run(store: SessionStore, cut: CutRun) -> None:
    """End a run that came to nothing, and drop what its tools staged; otherwise as `end_run`."""
    await end_run(store, cut)
    await store.discard_staging(cut.session_id, cut.run_id, epoch=cut.epoch)


async def end_run(store: SessionStore, cut: CutRun) -> None:
    """End a run, if it has not ended."""
    run = await store.get_run(cut.session_id, cut.run_id)
    if run is not None and run.status.live:
        change = RunChange(status=cut.status, completion_reason=cut.status.value)
        try:
            ended = await store.update_run(cut.session_id, cut.run_id, change, epoch=cut.epoch)
        except InvalidRequestError as error:
            if "run_id" not in error.facts:
                raise
            # A step that nobody waits for any more has ended it meanwhile, and its turn counts.
        else:
            if cut.agent is not None:
                metrics.record_turn(cut.agent, cut.status.value, run.started_at)
            cut.tell(ended)
