"""How a session's end is stored, while a step that nobody waits for may still be running."""

from helix_temporal.activities.session_sync import SessionSync
from helix_temporal.models.checkpoints import NewRun, Run, RunChange, RunStatus
from helix_temporal.models.states import CreateSession, SessionStatus
from helix_temporal.models.steps import SaveValuesInput
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.sessions.store import RowSessions
from helix_temporal.stores.threads.hot_only import HotThreads

EPOCH = 1_800_000_000_000_000


async def test_a_run_that_ends_by_itself_meanwhile_stays_as_it_ended() -> None:
    """A cancel that comes just as the turn is committed must not fail to save the session."""
    backend = MemoryBackend()
    store = RowSessions(backend.sessions)
    await store.create_session("s", CreateSession())
    await store.start_run("s", NewRun(run_id="run-1"))

    class Overtaken(RowSessions):
        async def update_run(
            self,
            session_id: str,
            run_id: str,
            change: RunChange,
            *,
            epoch: int | None = None,
            operation_id: str | None = None,
        ) -> Run:
            """The step's commit comes first."""
            done = RunChange(status=RunStatus.COMPLETED, completion_reason="completed")
            await store.update_run(session_id, run_id, done)
            return await super().update_run(
                session_id, run_id, change, epoch=epoch, operation_id=operation_id
            )

    keeper = SessionSync(Overtaken(backend.sessions), HotThreads(backend.threads))
    await keeper.save_end(
        SaveValuesInput(thread_id="s", epoch=EPOCH, session_id="s", status="interrupted", ends_run=True)
    )
    run, state = await store.get_run("s", "run-1"), await store.load_state("s")
    assert run is not None
    assert state is not None
    assert (run.status, state.status) == (RunStatus.COMPLETED, SessionStatus.INTERRUPTED)
