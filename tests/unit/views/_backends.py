"""Sessions written through real stores, as a session workflow writes them, for views to read."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from helix_temporal import Backends, Settings
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus, StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession, MergeChanges, StateChange, SubSessionRef
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.usage import TokenCounts, TokenUsageEntry

PLACES = ("memory", "sqlite")


@asynccontextmanager
async def open_stores(place: str, directory: Path, **options: Any) -> AsyncIterator[Backends]:
    """Stores in memory or in a directory."""
    where = {} if place == "memory" else {"data_directory": directory / "data"}
    stores = Backends(Settings(**where, **options))
    try:
        yield stores
    finally:
        await stores.close()


async def create(stores: Backends, session_id: str, **options: Any) -> None:
    """A session with options of `CreateSession`."""
    await stores.sessions.create_session(session_id, CreateSession(**options))


async def run_turn(
    stores: Backends,
    session_id: str,
    run_id: str,
    *texts: str,
    status: RunStatus = RunStatus.COMPLETED,
    merge: dict[str, Any] | None = None,
) -> str:
    """A turn with these messages, of the user and the model in turn; the id of its checkpoint."""
    before = await stores.sessions.get_messages(session_id, limit=1, order="desc")
    last = before.messages[-1].id if before.messages else ""
    start = Head(position=before.total, last_id=last)
    await stores.sessions.start_run(session_id, NewRun(run_id=run_id, start_head=start, workflow_id="w"))
    roles: tuple[Any, ...] = ("user", "assistant")
    messages = [
        Message(id=f"{run_id}-{number}", role=roles[number % 2], content=text)
        for number, text in enumerate(texts)
    ]
    committed, _ = await stores.sessions.save_state_and_promote_staging(
        session_id,
        StateChange(merge=MergeChanges(values=merge or {}), steps=1),
        StepCommit(step_id=f"{run_id}-step", run_id=run_id, step_count=1),
        messages=messages,
        run=RunChange(status=status, step_count=1),
    )
    return committed.checkpoint_id


async def use_tokens(stores: Backends, session_id: str, run_id: str, tokens: int, at: int) -> None:
    """A model call that used so many tokens of input."""
    await stores.usage.record_entry(
        TokenUsageEntry(
            id=f"step/{run_id}",
            session_id=session_id,
            run_id=run_id,
            timestamp=at,
            step_count=1,
            model="m",
            tokens=TokenCounts(prompt=tokens),
            duration_ms=10,
        )
    )


async def add_child(stores: Backends, parent: str, child: str, **options: Any) -> None:
    """A sub-agent's session, which its caller refers to."""
    await create(stores, child, parent_session_id=parent, **options)
    await refer_to(stores, parent, child)


async def refer_to(stores: Backends, parent: str, *children: str) -> None:
    """References to sub-agents' sessions."""
    await stores.sessions.add_sub_session_refs(
        parent, [SubSessionRef(sub_session_id=each, agent_type="helper") for each in children]
    )


async def read_refusal(reading: Awaitable[object]) -> str:
    """What a viewer is told who may not see a session, or names one that is not there."""
    with pytest.raises(SessionNotFoundError) as caught:
        await reading
    return str(caught.value)
