"""Sessions to write to files, and stores to make them in."""

import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from helix_temporal.backends import Backends
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import CreateSession, SubSessionRef
from helix_temporal.models.usage import SubAgentUsageEntry, TokenCounts, TokenUsageEntry
from helix_temporal.session_files import Exported, Imported, export_session, import_session
from helix_temporal.settings import Settings


@asynccontextmanager
async def open_memory(**settings: Any) -> AsyncIterator[Backends]:
    """Stores in this process's memory."""
    backends = Backends(Settings(**settings))
    try:
        yield backends
    finally:
        await backends.close()


@asynccontextmanager
async def open_sqlite(directory: Path, **settings: Any) -> AsyncIterator[Backends]:
    """Stores in a file."""
    async with open_memory(data_directory=directory, **settings) as backends:
        yield backends


async def make_turn(
    stores: Backends, session_id: str, number: int, messages: Sequence[Message] | None = None
) -> None:
    """A turn that has ended: a run, its messages, and what they used."""
    run_id = f"run-{number}"
    head = (await stores.sessions.get_message_count(session_id)) or 0
    assert head >= 0
    await stores.sessions.start_run(session_id, NewRun(run_id=run_id))
    await stores.sessions.append_messages(session_id, messages or make_messages(number))
    await stores.sessions.update_run(
        session_id, run_id, RunChange(status=RunStatus.COMPLETED, step_count=2, completion_reason="completed")
    )
    await stores.usage.record_entry(
        TokenUsageEntry(
            id=f"call-{number}",
            session_id=session_id,
            timestamp=1_700_000_000_000 + number,
            run_id=run_id,
            model="scripted",
            tokens=TokenCounts(prompt=10, completion=number),
            cost_usd=Decimal("0.0012"),
            duration_ms=12,
        )
    )


def make_messages(number: int) -> list[Message]:
    """A question, a tool call, its result, and the answer."""
    call = ToolCall(id=f"c{number}", name="find_order", arguments={"id": number, "note": "rüf\u202etest"})
    return [
        Message(
            id=f"u{number}", role="user", content=f"Where is order {number}?", metadata={"k": [1, 2.5, None]}
        ),
        Message(id=f"a{number}", role="assistant", content="Let me look.", tool_calls=(call,)),
        Message(
            id=f"t{number}",
            role="tool",
            content=f"order {number}: sent",
            tool_call_id=call.id,
            name=call.name,
        ),
        Message(id=f"e{number}", role="assistant", content=f"Order {number} was sent."),
    ]


async def make_session(stores: Backends, session_id: str = "s", *, turns: int = 2) -> None:
    """A session with all that a file keeps of one."""
    await stores.sessions.create_session(
        session_id,
        CreateSession(
            agent_type="support",
            user_id="ann@example.com",
            title="Where is my order?",
            custom_state={"seen": ["ann@example.com"], "count": 3},
            tags=("vip", "eu"),
            metadata={"plan": "gold", "mail": "ann@example.com"},
            mode="persistent",
        ),
    )
    for number in range(1, turns + 1):
        await make_turn(stores, session_id, number)


async def make_tree(stores: Backends, session_id: str = "s") -> tuple[str, str]:
    """A session with a sub-agent's, and one of that: the ids of both."""
    await make_session(stores, session_id)
    child, grandchild = f"{session_id}>search>c1", f"{session_id}>search>c1>read"
    await _make_child(stores, session_id, child)
    await _make_child(stores, child, grandchild)
    return child, grandchild


async def _make_child(stores: Backends, parent: str, child: str) -> None:
    options = CreateSession(
        agent_type="searcher", parent_session_id=parent, root_session_id=parent.split(">", maxsplit=1)[0]
    )
    await stores.sessions.create_session(child, options)
    await stores.sessions.append_messages(child, make_messages(1))
    ref = SubSessionRef(sub_session_id=child, agent_type="searcher", tool="search", parent_tool_call_id="c1")
    await stores.sessions.add_sub_session_refs(parent, [ref])
    entry = SubAgentUsageEntry(id=f"sub-{child}", session_id=parent, timestamp=5, sub_session_id=child)
    await stores.usage.record_entry(entry)


async def export_bytes(stores: Backends, session_id: str = "s", **options: Any) -> bytes:
    """The file of a session."""
    return (await export_whole(stores, session_id, **options))[0]


async def export_whole(stores: Backends, session_id: str = "s", **options: Any) -> tuple[bytes, Exported]:
    """The file of a session, and what is told of it."""
    output = io.BytesIO()
    exported = await export_session(stores, session_id, output, **options)
    return output.getvalue(), exported


async def import_bytes(stores: Backends, data: bytes, **options: Any) -> Imported:
    """What becomes of a file."""
    return await import_session(stores, io.BytesIO(data), **options)


async def list_texts(stores: Backends, session_id: str = "s") -> list[str]:
    """The texts of a session's first messages."""
    return [each.text for each in (await stores.sessions.get_messages(session_id, limit=200)).messages]
