"""A session that may be seen, amid others that may not: no view of it tells their ids."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helix_temporal import Backends
from helix_temporal.models.states import CreateSession, SubSessionRef, SuspendedChildWait
from helix_temporal.models.streams import RunEnded, RunStarted, SubAgentEnd, SubAgentStart
from helix_temporal.models.usage import SubAgentUsageEntry
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import View
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores
from tests.unit.views._scene import Scene, answer, call, result, user

HIDDEN = "xyzzy"
"""In the id of every session that ann may not see."""
RELATED = ("parent", "root", "source", "done", "waits")


@pytest.fixture
async def ann(scene: Scene) -> Scene:
    """Ann's session, which other sessions began and copied, and whose sub-agents have worked, and work."""
    for name in RELATED:
        await scene.sessions.create_session(f"{HIDDEN}-{name}", CreateSession(user_id="bob"))
    writer = await scene.begin(
        "s1",
        user_id="ann",
        parent_session_id=f"{HIDDEN}-parent",
        root_session_id=f"{HIDDEN}-root",
        forked_from={"session_id": f"{HIDDEN}-source", "at": 1},
    )
    # Two calls in one message, so that their ids are two.
    for at, name in enumerate(("done", "waits")):
        ref = SubSessionRef(
            sub_session_id=f"{HIDDEN}-{name}", agent_type="helper", parent_tool_call_id=f"call_{at}"
        )
        await scene.sessions.add_sub_session_refs("s1", [ref])
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0, "ask"), call(1, "ask")), result("a1"))
    entry = SubAgentUsageEntry(
        id="child/a1.0",
        session_id="s1",
        timestamp=run.started_at,
        run_id=run.run_id,
        sub_session_id=f"{HIDDEN}-done",
        success=False,
    )
    await scene.stores.usage.record_entry(entry)
    state = await scene.sessions.load_state("s1")
    assert state is not None
    waits = SuspendedChildWait(sub_session_id=f"{HIDDEN}-waits", tool_call_id="call_1", agent_type="ask")
    await scene.sessions.save_state("s1", state.model_copy(update={"suspended_awaiting_children": (waits,)}))
    return scene


async def gather(found: AsyncIterator[Any]) -> list[Any]:
    """All of them."""
    return [each async for each in found]


READS: dict[str, Any] = {
    "session": lambda views: views.get_session("s1"),
    "list": lambda views: views.list_sessions(),
    "all": lambda views: gather(views.iterate_sessions()),
    "turns": lambda views: views.read_turns("s1"),
    "turn": lambda views: views.read_turn("s1", 1),
    "message": lambda views: views.read_message("s1", 1),
    "calls": lambda views: gather(views.find_calls()),
    "calls of the session": lambda views: gather(views.find_session_calls("s1")),
    "tree": lambda views: views.get_tree("s1"),
    "usage": lambda views: views.get_usage("s1", descendants=True),
    "runs": lambda views: views.list_runs("s1"),
    "place": lambda views: views.get_place("s1"),
}
TELLING = ("session", "list", "all", "turns", "turn", "message", "calls", "calls of the session", "tree")
"""Reads that tell ids of other sessions to whoever may see these."""


async def read_text(views: SessionViews, read: str) -> str:
    """All that a read tells, as JSON."""
    found = await READS[read](views)
    return "".join(each.model_dump_json() for each in ([found] if isinstance(found, View) else found))


@pytest.mark.parametrize("read", READS)
async def test_no_read_tells_the_id_of_a_session_that_may_not_be_seen(ann: Scene, read: str) -> None:
    """Ids are often made of users' names, and open the door for guesses."""
    views = SessionViews(ann.stores, admits=SessionFilter(user_id="ann"))
    assert HIDDEN not in await read_text(views, read)


@pytest.mark.parametrize("read", TELLING)
async def test_who_may_see_them_is_told(ann: Scene, read: str) -> None:
    """Otherwise the test above would hold of views that tell nothing."""
    assert HIDDEN in await read_text(SessionViews(ann.stores), read)


async def test_what_a_session_waits_for_is_told_without_the_session(ann: Scene) -> None:
    """Ann learns that a sub-agent is asked, and not which session works for it."""
    views = SessionViews(ann.stores, admits=SessionFilter(user_id="ann"))
    (waiting,) = (await views.get_session("s1")).waiting
    assert (waiting.kind, waiting.call_id, waiting.sub_session_id) == ("sub_agent", "call_1", None)


@pytest.mark.parametrize("wanted", [f"{HIDDEN}-parent", "nowhere"])
async def test_sub_agents_of_a_hidden_session_are_not_listed_as_its_own(ann: Scene, wanted: str) -> None:
    """Or whoever guesses an id learns by an answer that the session is there."""
    views = SessionViews(ann.stores, admits=SessionFilter(user_id="ann"))
    below = SessionFilter(parent_session_id=wanted)
    assert (await views.list_sessions(below)).sessions == ()
    assert await gather(views.iterate_sessions(below)) == []
    assert await gather(views.find_calls(below)) == []


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """Ann's session, in which sub-agents of her and of another user work."""
    async with open_stores(request.param, tmp_path) as made:
        await create(made, "s1", user_id="ann")
        await create(made, "own", user_id="ann")
        await create(made, HIDDEN, user_id="bob")
        assert made.streams is not None
        writer = await made.streams.create_writer("s1", agent_id="r1")
        chunks = [
            each
            for name in ("own", HIDDEN)
            for each in (
                SubAgentStart(sub_session_id=name, sub_agent_type="helper", tool_call_id=f"call-{name[:3]}"),
                SubAgentEnd(sub_session_id=name, sub_agent_type="helper", result="sunny"),
            )
        ]
        await writer.write_many([RunStarted(turn=1), *chunks, RunEnded(status="completed")])
        yield made


async def test_the_stream_does_not_tell_them_either(stores: Backends) -> None:
    """A page that is open while they work shows what the page of the finished turn hides."""
    views = SessionViews(stores, admits=SessionFilter(user_id="ann"))
    async with contextlib.aclosing(views.follow_session("s1", 0)) as chunks:
        found = [await anext(chunks) for _ in range(6)]
    assert [each.sequence for each in found] == [1, 2, 3, 4, 5, 6]
    assert HIDDEN.encode() not in b"".join(each.body for each in found)
    told = [each.chunk for each in found[1:5]]
    assert [getattr(each, "sub_session_id", None) for each in told] == ["own", "own", "", ""]
    assert getattr(told[3], "result", None) == "sunny"
