"""`call` of the stores: a workflow of one's own keeps a session, a lease and usage."""

import uuid

import pytest
import pytest_asyncio
from temporalio.client import WorkflowHandle
from temporalio.worker import Replayer

from helix_temporal.models.states import SessionStatus
from helix_temporal.plugin import HelixPlugin
from tests.workflows._clerk import Clerk, Filed
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def handle(stand: Stand) -> WorkflowHandle[Clerk, Filed]:
    """A clerk that has filed an order."""
    served = stand.served
    order = f"order-{uuid.uuid4().hex[:8]}"
    started = await served.client.start_workflow(
        Clerk.run, order, id=f"clerk-{order}", task_queue=served.plugin.settings.task_queue
    )
    await started.result()
    return started


@pytest_asyncio.fixture(loop_scope="session")
async def filed(handle: WorkflowHandle[Clerk, Filed]) -> Filed:
    return await handle.result()


async def test_outcomes_arrive_as_what_they_are(filed: Filed) -> None:
    """Both outcomes of a compare-and-set are data; nothing has to be parsed."""
    assert (filed.wrong_status.ok, filed.wrong_status.current_status) == (False, SessionStatus.ACTIVE)
    assert (filed.paused.ok, filed.paused.new_version) == (True, filed.first.version + 1)
    assert filed.run.run.turn == 1


async def test_errors_of_the_store_are_caught_by_class(filed: Filed) -> None:
    """A refused writer decides by ``except``, not by the text of Temporal's wrapping."""
    assert (filed.stale, filed.fenced) == ("StaleStateError", "FencedError")


async def test_a_committed_step_is_in_the_state_and_is_a_checkpoint(filed: Filed) -> None:
    """Staged change, run and checkpoint in one commit, from workflow code."""
    assert filed.last is not None
    assert (filed.last.custom_state, filed.last.step_count) == ({"total": 12}, 1)
    assert filed.last.current_run_id is None
    assert filed.checkpoints == (filed.committed,)


async def test_a_count_and_a_consistent_view_are_one_call_each(filed: Filed) -> None:
    """A workflow that resumes says so, and shows what it has without putting it together itself."""
    assert filed.last is not None
    assert (filed.resumed, filed.last.resume_count) == (1, 1)
    assert filed.snapshot == filed.committed


async def test_a_lease_is_none_where_another_holds_it(filed: Filed) -> None:
    """A workflow waits by a timer and asks again: no error to catch, and none that is retried."""
    assert filed.second_lease is None
    assert filed.released


async def test_usage_of_one_id_is_recorded_once(filed: Filed) -> None:
    """Sums are not doubled by a workflow that says it again."""
    assert (filed.recorded, filed.tokens) == ((True, False), 5)


async def test_its_history_replays(handle: WorkflowHandle[Clerk, Filed]) -> None:
    """Calls of the stores are the same commands in each process, or a restarted worker gets stuck."""
    replayer = Replayer(workflows=[Clerk], plugins=[HelixPlugin()])
    result = await replayer.replay_workflow(await handle.fetch_history(), raise_on_replay_failure=False)
    assert result.replay_failure is None, result.replay_failure
