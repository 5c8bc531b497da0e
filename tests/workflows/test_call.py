"""`call`: any activity of the pack from a workflow of one's own."""

import gc
import inspect
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.activities import SessionActivities, SessionReads, TakeBacks, ThreadActivities
from helix_temporal.activities._runtime import limits_of
from helix_temporal.backends import Backends
from helix_temporal.devstack import Valkey
from helix_temporal.models.sessions import CallPolicy
from helix_temporal.settings import Settings
from helix_temporal.testing import HelixEnv, helix_env
from helix_temporal.workflows.calls import TemporalCalls, call_options
from tests.workflows import _callers as callers

WORKFLOWS = [
    callers.ArchivesAtTheEnd,
    callers.AsksNobody,
    callers.CallsOtherStores,
    callers.CatchesErrors,
    callers.CommitsMessages,
    callers.IsCancelledAtItsEnd,
]
ACTIVITIES = Backends(Settings()).make_activities([])
POLICY = CallPolicy(store_start_to_close=7, model_start_to_close=70, heartbeat=3)


@pytest.fixture
async def env() -> AsyncIterator[HelixEnv]:
    async with helix_env(workflows=WORKFLOWS) as env:
        yield env


async def run(env: HelixEnv, workflow: Callable[..., Any], *args: object) -> Any:
    return await env.client.execute_workflow(
        workflow, args=args, id=uuid.uuid4().hex, task_queue=env.task_queue
    )


async def test_errors_are_caught_by_their_class(env: HelixEnv) -> None:
    """A workflow decides by ``except``, not by the text in Temporal's wrapping."""
    met = await run(env, callers.CatchesErrors.run, "t")
    assert met[0].startswith("ThreadNotFoundError: thread 'nowhere'")
    assert met[1] == "HeadMovedError"


async def test_all_stores_are_called_the_same_way(env: HelixEnv) -> None:
    """One function to learn, whatever the store."""
    assert await run(env, callers.CallsOtherStores.run, "s") == ("s", 0)


async def test_a_step_is_committed_with_its_messages(env: HelixEnv) -> None:
    """State, checkpoint and messages in one call, and once: nobody has to know how a store keeps them."""
    assert await run(env, callers.CommitsMessages.run, "order-7") == [2, 2, 3]
    texts = [message.text for message in await env.get_messages("order-7")]
    assert texts == ["hello", "hi", "and now?"]


async def test_a_queue_without_workers_is_told_in_words(env: HelixEnv) -> None:
    """The commonest mistake: a workflow whose own workers have no plugin."""
    told = await run(env, callers.AsksNobody.run, "nobody-listens", 1.0)
    assert told.startswith("helix.threads.describe: no result in time; no attempt has ended")
    assert "HelixPlugin" in told


async def test_a_store_that_is_away_is_named_by_the_last_failure(own_valkey: Valkey, tmp_path: Path) -> None:
    """Its time-outs are over, and what it was that did not answer is known."""
    settings = Settings(redis_url=own_valkey.url, cold_directory=tmp_path, task_queue="away")
    async with helix_env(workflows=WORKFLOWS, settings=settings) as env:
        own_valkey.stop(kill=True)
        told = await run(env, callers.AsksNobody.run, "away", 2.0)
    assert "Redis" in told


@pytest.mark.parametrize(("shielded", "outcome"), [(True, "archived"), (False, "cancelled")])
async def test_a_shielded_call_ends_although_the_workflow_is_cancelled(
    env: HelixEnv, shielded: bool, outcome: str
) -> None:
    """A cancel that comes during the clean-up must not leave the thread unarchived."""
    assert await run(env, callers.IsCancelledAtItsEnd.run, "t", shielded) == outcome


async def test_a_run_that_its_worker_has_dropped_ends_in_silence() -> None:
    """Python runs its ``finally`` when it collects it: nothing may be started then, by whichever workflow."""
    async with helix_env(workflows=WORKFLOWS) as env:
        await env.client.start_workflow(
            callers.ArchivesAtTheEnd.run, "t", id="left", task_queue=env.task_queue
        )
        while not (await env.backends.hot.read_header("t")):
            await env.skip(1)
    gc.collect()  # warnings are errors here


BEATING = ("heartbeat_with_progress(", "heartbeat_in_background(", "self._open_thread(")


def test_activities_that_heartbeat_are_marked_as_such() -> None:
    """Unmarked, a lost worker is noticed late; marked without heartbeats, a slow store is a lost worker."""
    wrong = []
    for method in ACTIVITIES:
        source = inspect.getsource(inspect.unwrap(method))
        beats = any(each in source for each in BEATING)
        if beats != (limits_of(method) != "store"):
            wrong.append(method.__qualname__)
    assert wrong == []


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (SessionActivities.run_step, TemporalCalls(POLICY).model_options()),
        (SessionActivities.end_turn, TemporalCalls(POLICY).model_options()),
        (SessionActivities.load_answer, TemporalCalls(POLICY).store_options()),
        (SessionActivities.open, TemporalCalls(POLICY).store_options(beats=True)),
        (SessionReads.show, TemporalCalls(POLICY).store_options()),
        (SessionReads.turns, TemporalCalls(POLICY).store_options(beats=True)),
        (TakeBacks.plan_take_back, TemporalCalls(POLICY).store_options(beats=True)),
        (ThreadActivities.fork, TemporalCalls(POLICY).model_options()),
        (ThreadActivities.delete, TemporalCalls(POLICY).model_options()),
        (ThreadActivities.read, TemporalCalls(POLICY).store_options(beats=True)),
        (ThreadActivities.describe, TemporalCalls(POLICY).store_options()),
    ],
)
def test_an_activity_has_the_time_outs_of_the_session_workflow(method: Any, options: Any) -> None:
    """What the pack's own workflows found to be right holds for those of others."""
    assert call_options(method, POLICY) == options
