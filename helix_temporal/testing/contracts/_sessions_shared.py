"""Several processes on one store."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, TypeVar

from helix_temporal.errors import HeadMovedError, SessionExistsError, StaleStateError
from helix_temporal.models.checkpoints import RunChange, RunStatus
from helix_temporal.models.states import (
    CasOk,
    MergeChanges,
    SessionState,
    SessionStatus,
    ToolResultSubmission,
)
from helix_temporal.models.store_calls import AppendResult
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    OpenSessions,
    SessionFixtures,
    SessionOpener,
    changed,
    checkpoints_of,
    ids_of,
    loaded,
    started,
    step,
    talk,
)
from helix_temporal.testing.contracts._sessions_commit import an_append, suspension

T = TypeVar("T")

PROCESSES = 4
GATE = "the gate"


def run_there(opener: SessionOpener, work: Callable[..., Awaitable[T]], arguments: Sequence[Any]) -> T:
    """In another process: open the store and do the work."""

    async def run() -> T:
        async with opener() as opened:
            return await work(opened, *arguments)

    return asyncio.run(run())


async def together(store: SessionStore, name: str) -> None:
    """Wait until all processes are here."""
    await store.create_session(GATE, if_not_exists=True)
    await store.merge_custom_state(GATE, MergeChanges(values={name: True}))
    while len((await loaded(store, GATE)).custom_state) < PROCESSES:  # noqa: ASYNC110 (other processes)
        await asyncio.sleep(0.002)


async def create_and_set(
    opened: OpenSessions, name: str, session_id: str, rounds: int
) -> tuple[bool, list[int]]:
    """Try to create the session, then to win each round; whether it did, and the rounds that it won."""
    store = opened.sessions
    await together(store, name)
    try:
        await store.create_session(session_id)
        created = True
    except SessionExistsError:
        created = False

    async def writer() -> list[int]:
        won = []
        for version in range(1, rounds + 1):
            outcome = await store.compare_and_set_status(
                session_id, list(SessionStatus), SessionStatus.PAUSED, expected_version=version
            )
            if isinstance(outcome, CasOk):
                assert outcome.new_version == version + 1
                won.append(version)
            else:
                assert outcome.current_version > version
        return won

    won = await asyncio.gather(*(writer() for _ in range(5)))
    return created, [each for one in won for each in one]


async def append_and_count(
    opened: OpenSessions, name: str, session_id: str, rounds: int
) -> list[AppendResult]:
    """Two writers that append messages and count steps."""
    store = opened.sessions
    await together(store, name)

    async def writer(number: int) -> list[AppendResult]:
        results = []
        for n in range(rounds):
            messages = talk(2, f"{name}-{number}-{n}-")
            results.append(await store.append_messages(session_id, messages))
            await store.increment_step_count(session_id, operation_id=f"{name}-{number}-{n}")
        return results

    both = await asyncio.gather(writer(1), writer(2))
    return [each for one in both for each in one]


async def commit_turns(opened: OpenSessions, name: str, session_id: str, rounds: int) -> list[str]:
    """Commit turns, each built on the one before, whoever made that; the checkpoints."""
    store = opened.sessions
    await together(store, name)
    made: list[str] = []
    while len(made) < rounds:
        state = await loaded(store, session_id)
        number = f"{name}-{len(made)}"
        append = await an_append(opened.threads, session_id, *talk(2, f"{number}-"))
        turns = [*state.custom_state.get("turns", []), number]  # type: ignore[misc]
        after = changed(state, step_count=state.step_count + 1, custom_state={"turns": turns})
        try:
            result, _ = await store.save_state_and_promote_staging(
                session_id, after, step(number, run=name), append=append
            )
        except (StaleStateError, HeadMovedError):
            continue
        made.append(result.checkpoint_id)
    return made


async def suspend_and_die(opened: OpenSessions, session_id: str) -> None:
    """Commit a suspension, and be killed as soon as it is acknowledged."""
    store = opened.sessions
    state = await store.create_session(session_id)
    await started(store, session_id, "run-1")
    state = await loaded(store, session_id)
    change = RunChange(status=RunStatus.SUSPENDED_CLIENT_TOOL)
    await store.save_state_and_promote_staging(session_id, suspension(state), step(), run=change)
    os.kill(os.getpid(), signal.SIGKILL)


@cache
def _pool() -> ProcessPoolExecutor:
    # For all classes that bind the contract: starting takes longer than the tests.  Ends with us.
    return ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn"))


class SharedSessionsContract(SessionFixtures):
    """What holds between processes, whatever their tasks queue up for inside."""

    async def everywhere(
        self,
        opener: SessionOpener,
        work: Callable[..., Awaitable[T]],
        *arguments: Any,
    ) -> list[T]:
        """Do the work in all processes at once, each under a name of its own."""
        loop = asyncio.get_running_loop()
        calls = [
            loop.run_in_executor(_pool(), run_there, opener, work, (f"process-{n}", *arguments))
            for n in range(PROCESSES)
        ]
        return await asyncio.gather(*calls)

    async def test_twenty_writers_have_one_winner_a_round(
        self, opener: SessionOpener, store: SessionStore, session_id: str
    ) -> None:
        """Of create and of compare-and-set, from four processes (cases 4 and 21)."""
        rounds = 4 * self.rounds
        outcomes = await self.everywhere(opener, create_and_set, session_id, rounds)
        assert [created for created, _ in outcomes].count(True) == 1
        assert sorted(each for _, won in outcomes for each in won) == list(range(1, rounds + 1))
        assert (await loaded(store, session_id)).version == rounds + 1

    async def test_eight_writers_lose_nothing(
        self, opener: SessionOpener, store: SessionStore, session_id: str
    ) -> None:
        """Messages stand together as they were sent, and every step is counted (cases 16 and 29)."""
        await store.create_session(session_id)
        await store.append_messages(session_id, talk(1))
        outcomes = await self.everywhere(opener, append_and_count, session_id, self.rounds)
        results = [each for one in outcomes for each in one]
        assert sorted(each.first_index for each in results) == list(range(1, 16 * self.rounds, 2))
        found = (await ids_of(store, session_id))[1:]
        assert len(set(found)) == len(found) == 16 * self.rounds
        assert [each[:-1] for each in found[::2]] == [each[:-1] for each in found[1::2]]
        mine = [each for each in found if each.startswith("process-2-1-")]
        expected = [f"process-2-1-{n}-{at}" for n in range(self.rounds) for at in range(2)]
        assert mine == expected
        assert (await loaded(store, session_id)).step_count == 8 * self.rounds

    async def test_turns_of_four_processes_are_one_history(
        self, opener: SessionOpener, store: SessionStore, session_id: str
    ) -> None:
        """Each is built on the one before; none is lost, doubled or half there (cases 49 and 50)."""
        await store.create_session(session_id)
        await store.append_messages(session_id, talk(1))
        outcomes = await self.everywhere(opener, commit_turns, session_id, self.rounds)
        state = await loaded(store, session_id)
        turns = state.custom_state["turns"]
        assert isinstance(turns, list)
        assert sorted(map(str, turns)) == sorted(
            f"process-{n}-{at}" for n in range(PROCESSES) for at in range(self.rounds)
        )
        assert await ids_of(store, session_id) == ["m0"] + [
            f"{turn}-{at}" for turn in turns for at in range(2)
        ]
        assert (state.step_count, state.version) == (len(turns), 1 + len(turns))
        assert sorted(await checkpoints_of(store, session_id)) == sorted(
            each for made in outcomes for each in made
        )

    async def test_a_suspension_survives_its_process(
        self, opener: SessionOpener, store: SessionStore, session_id: str
    ) -> None:
        """Killed right after the commit; any other process can take the answer and go on (case 52)."""
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=run_there, args=(opener, suspend_and_die, (session_id,)))
        process.start()
        await asyncio.to_thread(process.join)
        assert process.exitcode == -signal.SIGKILL
        found = await loaded(store, session_id)
        expected = suspension(SessionState(session_id=session_id))
        fields = {
            "status",
            "pending_client_tool_calls",
            "suspension_context",
            "suspended_step_id",
            "expires_at",
        }
        assert found.model_dump(include=fields) == expected.model_dump(include=fields)
        run = await store.get_current_run(session_id)
        assert run is not None
        assert run.status is RunStatus.SUSPENDED_CLIENT_TOOL
        answer = ToolResultSubmission.model_validate({"tool_call_id": "call-9", "response": {"result": 1}})
        assert (await store.submit_tool_result(session_id, answer)).status == "submitted"
