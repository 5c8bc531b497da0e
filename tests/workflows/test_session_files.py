"""Sessions that workflows run, in files: exported while they are open, imported, and gone on with."""

import io

import pytest

from helix_temporal.session_files import export_session, import_session
from tests.unit.session_files._scenes import export_bytes, import_bytes, open_memory
from tests.workflows.conftest import Crew, Stand

pytestmark = [pytest.mark.asyncio(loop_scope="session")]


async def _export(stand: Stand, session_id: str, *, children: bool = False) -> bytes:
    output = io.BytesIO()
    await export_session(stand.served.plugin.backends, session_id, output, children=children)
    return output.getvalue()


async def _import(stand: Stand, data: bytes, new_id: str) -> None:
    await import_session(stand.served.plugin.backends, io.BytesIO(data), new_id=new_id)


async def test_a_copy_goes_on_where_the_session_was(stand: Stand, sid: str) -> None:
    """The workflow that opens it finds a thread and a state like its own, and counts turns on."""
    copy = f"{sid}-copy"
    await stand.sessions.ask(sid, "one", agent="main")
    await stand.sessions.ask(sid, "two", agent="main")
    await _import(stand, await _export(stand, sid), copy)
    assert await stand.texts(copy) == await stand.texts(sid)
    answer = await stand.sessions.ask(copy, "three", agent="main")
    assert (await stand.texts(copy))[-2:] == ["three", answer.text]
    assert len(await stand.texts(copy)) == 6
    runs = await stand.served.plugin.backends.sessions.list_runs(copy)
    assert [run.turn for run in runs.items] == [3, 2, 1]
    assert len(await stand.texts(sid)) == 4
    for name in (sid, copy):
        await stand.finish(name)


async def test_a_session_is_exported_while_it_is_open(stand: Stand, sid: str) -> None:
    """Its workflow waits for the next message; the file is that of the session when it has ended."""
    await stand.sessions.ask(sid, "one", agent="main")
    data = await _export(stand, sid)
    async with open_memory() as target:
        await import_bytes(target, data)
        assert await export_bytes(target, sid) == data
    await stand.sessions.ask(sid, "two", agent="main")
    assert len(await stand.texts(sid)) == 4
    await stand.finish(sid)


async def test_a_tree_of_agents_goes_on(crew: Crew, sid: str) -> None:
    """The sub-agents' conversations are copied with that of the agent that called them."""
    copy = f"{sid}-copy"
    await crew.sessions.ask(sid, "one", agent="continue")
    data = await _export(crew, sid, children=True)
    await _import(crew, data, copy)
    child, copied = await crew.child(sid), await crew.child(copy)
    assert copied == child.replace(sid, copy, 1)
    assert await crew.texts(copied) == await crew.texts(child)
    await crew.sessions.ask(copy, "two", agent="continue")
    assert await crew.texts(copied) == ["one", "1: one", "two", "3: two"]
    assert await crew.texts(child) == ["one", "1: one"]
    for name in (sid, copy):
        await crew.finish(name)
