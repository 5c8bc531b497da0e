"""What people look at: lists of very many sessions, pages of a long conversation, and a chunk on a page."""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import httpx

from bench._bare_postgres import BarePostgres
from bench._lab import Lab, environment, per
from bench._report import Row, told
from bench.append import EPOCH
from helix_temporal.backends import Backends
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.inspector.server import bind, serving
from helix_temporal.models.checkpoints import NewRun, RunChange, RunRecorded, RunStatus
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.models.streams import RunStarted, StepStarted, TextChunk
from helix_temporal.models.turns import encode_messages
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import OpenThread

_FIRST_PAGE_MS: Final = 200
_CONVERSATION_MS: Final = 300
_LIVE_MS: Final = 100
_LIST_MB: Final = 100
"""What docs/benchmarks.md promises of the row `pages`."""
_TURN: Final = 4
"""Messages a turn: a question, a call, its result, an answer."""


async def pages(lab: Lab) -> list[Row]:
    """All of them; the lists over a PostgreSQL, the conversation in Redis, S3 and PostgreSQL."""
    return [*await _lists(lab), *await _conversation(lab), *await _live(lab)]


@contextlib.asynccontextmanager
async def _page(settings: Settings) -> AsyncIterator[tuple[Backends, httpx.AsyncClient]]:
    """Stores, and a browser's requests to an inspector over them, without a socket."""
    backends = Backends(settings)
    app = create_inspector(backends, authorise=lambda _: Viewer(name="bench"))
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield backends, client
    finally:
        await backends.close()


async def _load(lab: Lab, client: httpx.AsyncClient, path: str) -> list[float]:
    """Milliseconds a page, without its files."""
    found = []
    for _ in range(lab.sizes.list_calls):
        started = time.perf_counter()
        response = await client.get(path)
        found.append(time.perf_counter() - started)
        assert response.status_code == 200, (path, response.status_code)
    return per(found, 1e3)


# ---- lists ------------------------------------------------------------------------------------------


async def _lists(lab: Lab) -> list[Row]:
    settings = await lab.own_with_state()
    count = lab.sizes.listed_sessions
    lab.say(f"pages: {count:,} sessions")
    bare = await BarePostgres.connect(lab.postgres, settings.table_prefix)
    try:
        await bare.fill(count)
    finally:
        await bare.close()
    paths = {"newest": "/", "of a user": "/?user=user-7", "failed": "/?status=failed"}
    rows = []
    async with _page(settings) as (_, client):
        for name, path in paths.items():
            spent = await _load(lab, client, path)
            rows.append(told(f"page of sessions, {name}, of {count:,}", "ms", spent, at_most=_FIRST_PAGE_MS))
    lab.say(f"pages: session list --all of {count:,}")
    listed, seconds, peak = await _list_all(settings)
    assert listed == count, (listed, count)
    what = f"session list --all of {count:,}"
    return [
        *rows,
        told(f"{what}: memory", "MB", [peak], at_most=_LIST_MB),
        told(what, "s", [seconds]),
    ]


async def _list_all(settings: Settings) -> tuple[int, float, float]:
    """Lines, seconds and the most memory of the command, in MB."""
    command = (sys.executable, "-c", _COMMAND, "session", "list", "--all", "--json")
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        started = time.perf_counter()
        with out.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment(settings), stdout=file, stderr=asyncio.subprocess.PIPE
            )
            _, told_last = await process.communicate()
        spent = time.perf_counter() - started
        assert process.returncode == 0, told_last.decode()[-500:]
        with out.open("rb") as file:
            lines = sum(1 for _ in file)
    return lines, spent, int(told_last.split()[-1]) / 1024


_COMMAND: Final = """
import pathlib, re, sys
from helix_temporal.cli import main
try:
    main()
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(re.search("VmHWM:(.*) kB", status)[1], file=sys.stderr)
"""
"""Its own memory: ``ru_maxrss`` is handed on by the process that starts it (getrusage(2))."""


# ---- a long conversation ----------------------------------------------------------------------------


async def _conversation(lab: Lab) -> list[Row]:
    settings = await lab.own_with_state()
    count, session_id = lab.sizes.long_conversation, "long"
    turns = count // _TURN
    async with _page(settings) as (backends, client):
        sessions = backends.sessions
        assert sessions is not None
        lab.say(f"pages: a conversation of {count:,} messages")
        await _write_conversation(lab, backends, sessions, session_id, turns)
        middle, early = turns // 2, max(turns // 1_000, 1)
        base = f"/sessions/{session_id}"
        paths = {
            "newest turns": base,
            "turns before the newest": f"{base}?before={count - 200}",
            "a turn in the middle": f"{base}?turn={middle}",
            "an early turn": f"{base}?turn={early}",
            "a message": f"{base}/messages/{_TURN * middle + 1}",
            "context": f"{base}/context/{_TURN * middle + 3}",
            "timeline": f"{base}/timeline",
            "storage": f"{base}/storage",
            "usage": f"{base}/usage",
        }
        return [
            told(
                f"page of {count:,} messages: {name}",
                "ms",
                await _load(lab, client, path),
                at_most=_CONVERSATION_MS,
            )
            for name, path in paths.items()
        ]


async def _write_conversation(
    lab: Lab, backends: Backends, sessions: SessionStore, session_id: str, turns: int
) -> None:
    """A thread, all of it archived, and a run for each of its turns."""
    messages = [message for number in range(turns) for message in _turn(lab, number)]
    stored = encode_messages(messages)
    opened = await backends.threads.open(OpenThread(session_id, EPOCH, "bench", messages=tuple(stored)))
    await sessions.create_session(session_id, CreateSession(agent_type="agent", user_id="user"))
    for number in range(turns):
        if number % 5_000 == 0:
            lab.say(f"pages: run {number:,} of {turns:,}")
        await _write_run(sessions, session_id, number, stored)
    state = await sessions.load_state(session_id)
    assert state is not None
    await sessions.save_state(session_id, state.model_copy(update={"head": opened.header.head}))


async def _write_run(
    sessions: SessionStore, session_id: str, number: int, stored: Sequence[StoredMessage]
) -> None:
    at = number * _TURN
    head = Head(position=at, last_id=stored[at - 1].id) if at else EMPTY
    started = await sessions.start_run(session_id, NewRun(run_id=f"run-{number}", start_head=head))
    assert isinstance(started, RunRecorded)
    change = RunChange(status=RunStatus.COMPLETED, step_count=2, completion_reason="completed")
    await sessions.update_run(session_id, f"run-{number}", change)


def _turn(lab: Lab, number: int) -> tuple[Message, ...]:
    call = ToolCall(id=f"call-{number}", name="search", arguments={"query": lab.words.text(100)})
    used = Usage(input_tokens=1_000, output_tokens=100)
    return (
        Message(id=f"u-{number}", role="user", content=lab.words.text(500)),
        Message(id=f"c-{number}", role="assistant", tool_calls=(call,), usage=used),
        Message(
            id=f"r-{number}", role="tool", tool_call_id=call.id, name="search", content=lab.words.text(500)
        ),
        Message(id=f"a-{number}", role="assistant", content=lab.words.text(500), usage=used),
    )


# ---- live -------------------------------------------------------------------------------------------


async def _live(lab: Lab) -> list[Row]:
    """From the chunk's write until the bytes of its piece of the page have come over a socket."""
    settings = await lab.own_with_state()
    backends = Backends(settings)
    app = create_inspector(backends, authorise=lambda _: Viewer(name="bench"))
    listening = bind("127.0.0.1", 0)
    address = "http://{}:{}".format(*listening.getsockname()[:2])
    session_id = "live"
    try:
        sessions = backends.sessions
        assert sessions is not None
        await backends.threads.open(OpenThread(session_id, EPOCH, "bench"))
        await sessions.create_session(session_id, CreateSession(agent_type="agent"))
        async with serving(app, listening), httpx.AsyncClient(base_url=address, timeout=30) as client:
            spent = await _follow(lab, backends, client, session_id)
    finally:
        await backends.close()
    slowest = sorted(spent)[int(0.95 * (len(spent) - 1))]
    return [
        told("a chunk on the page after its write", "ms", [statistics.median(spent)], at_most=_LIVE_MS),
        told("a chunk on the page after its write, p95", "ms", [slowest], at_most=_LIVE_MS),
    ]


async def _wait_for(pieces: AsyncIterator[str], mark: str) -> None:
    """Read on until this has come; it may come in two pieces."""
    came = ""
    while mark not in came:
        came += await anext(pieces)


async def _follow(lab: Lab, backends: Backends, client: httpx.AsyncClient, session_id: str) -> list[float]:
    assert backends.streams is not None
    run, answer = f"run-{uuid.uuid4().hex}", uuid.uuid4().hex
    writer = await backends.streams.create_writer(session_id, agent_id=run)
    found: list[float] = []
    async with client.stream("GET", f"/sessions/{session_id}/live?shown=0") as response:
        assert response.status_code == 200
        pieces = response.aiter_text()
        await _wait_for(pieces, "Following")
        await writer.write(RunStarted(turn=1))
        await writer.write(StepStarted(step_id="s", message_id=answer))
        for number in range(lab.sizes.chunks // 5):
            mark = f"mark-{number}-end"
            started = time.perf_counter()
            await writer.write(TextChunk(message_id=answer, delta=f" {mark}"))
            await _wait_for(pieces, mark)
            found.append(1e3 * (time.perf_counter() - started))
            await asyncio.sleep(0.05)
    return found
