"""The clean-up of sessions as its schedule runs it."""

import uuid

import pytest

from helix_temporal.models.maintenance import CleanupInput, CleanUpOldInput, CleanupResult
from helix_temporal.models.states import CreateSession, SessionProperties, SessionStatus, WorkspaceRef
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.workflows import CleanupWorkflow
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATE = CreateSession(expires_at=1)


@pytest.fixture
def store(stand: Stand) -> SessionStore:
    """The session store of the shared worker."""
    found: SessionStore | None = stand.served.plugin.backends.sessions
    assert found is not None
    return found


async def clean_up(stand: Stand, given: CleanupInput | None = None) -> CleanupResult:
    served = stand.served
    return await served.client.execute_workflow(
        CleanupWorkflow.run,
        given or CleanupInput(),
        id=f"cleanup-{uuid.uuid4().hex}",
        task_queue=served.plugin.settings.task_queue,
    )


async def test_a_session_past_its_time_is_ended_and_a_second_run_finds_it_ended(
    stand: Stand, store: SessionStore, sid: str
) -> None:
    """Every hour, for ever: what was done is not done again."""
    await store.create_session(sid, LATE)
    await clean_up(stand)
    ended = await store.load_state(sid)
    await clean_up(stand)
    assert ended is not None
    assert (ended.status, ended.failure_reason) == (SessionStatus.FAILED, "session_expired")
    assert await store.load_state(sid) == ended


async def test_a_session_that_is_alive_again_takes_a_message(
    stand: Stand, store: SessionStore, sid: str
) -> None:
    """Who renews it after the clean-up is served: an ended session is no deleted one."""
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.finish(sid)
    state = await store.load_state(sid)
    assert state is not None
    await store.save_state(sid, state.model_copy(update={"expires_at": 1, "status": SessionStatus.ACTIVE}))
    await clean_up(stand)
    renewed = SessionProperties(expires_at=None)
    result = await stand.sessions.ask(sid, "two", agent="main", properties=renewed)
    assert result.text == "3: two"


async def test_what_is_young_is_not_deleted(stand: Stand, store: SessionStore, sid: str) -> None:
    """The age that was given counts, in milliseconds."""
    await store.create_session(sid)
    result = await clean_up(stand, CleanupInput(old=CleanUpOldInput(max_age_ms=2**40)))
    assert (result.old.scanned, result.old.deleted) == (0, 0)
    assert await store.load_state(sid) is not None


async def test_one_session_that_fails_is_named_and_stops_nobody(
    stand: Stand, store: SessionStore, sid: str
) -> None:
    """Its workspaces are of a provider that is not here; the next session is ended all the same."""
    workspace = WorkspaceRef(provider_id="away", workspace_id="w")
    await store.create_session(sid, LATE.model_copy(update={"workspaces": (workspace,)}))
    await store.create_session(f"{sid}-z", LATE)
    result = await clean_up(stand)
    other = await store.load_state(f"{sid}-z")
    assert [(each.session_id, each.stage) for each in result.expired.errors] == [(sid, "snapshots")]
    assert other is not None
    assert other.status is SessionStatus.FAILED
    await store.delete_session(sid)
