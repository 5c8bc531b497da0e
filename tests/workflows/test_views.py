"""What people are shown of a session that a workflow ran: the truth, and no read leaves a trace."""

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
import redis.asyncio

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ToolOutcome, agent_tool, tool
from helix_temporal.backends import Backends
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.client import workflow_id
from helix_temporal.devstack import S3Endpoint
from helix_temporal.errors import ModelRequestError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.messages import ToolCall, Usage
from helix_temporal.models.sessions import AskStatus, SessionOptions
from helix_temporal.models.streams import RunEnded, RunStarted, StoredChunk, TextChunk, ToolEnd
from helix_temporal.models.waiting import ToolApproval
from helix_temporal.settings import Settings
from helix_temporal.testing.serving import Served, session_worker
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.models import ConversationTurn
from helix_temporal.views.sessions import SessionViews
from tests.workflows.conftest import make_settings

pytestmark = pytest.mark.asyncio(loop_scope="session")

CALLS: dict[str, tuple[ToolCall, ...]] = {
    "count": (
        ToolCall(id="c0", name="count", arguments={"what": "ducks"}),
        ToolCall(id="c1", name="broken", arguments={"what": "pump"}),
    ),
    "several": (
        ToolCall(id="c0", name="wipe", arguments={"what": "disk"}),
        ToolCall(id="c1", name="broken", arguments={"what": "pump"}),
        ToolCall(id="c2", name="count", arguments={"what": "ducks"}),
        ToolCall(id="c3", name="wipe", arguments={"what": "tape"}),
    ),
    "wipe": (ToolCall(id="c0", name="wipe", arguments={"what": "disk"}),),
    "help and wipe": (
        ToolCall(id="c0", name="helper", arguments={"task": "dig"}),
        ToolCall(id="c1", name="wipe", arguments={"what": "disk"}),
    ),
    "help": (ToolCall(id="c0", name="helper", arguments={"task": "dig"}),),
}
"""What the model calls when a user says this."""


class Model:
    """Calls tools when it is told to, and repeats what it is told."""

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """An answer, always at the same price."""
        last, used = request.messages[-1], Usage(input_tokens=10, output_tokens=3)
        if last.text == "fail":
            raise ModelRequestError("no such model")
        calls = CALLS.get(last.text, ()) if last.role == "user" else ()
        return ModelResponse("" if calls else f"re: {last.text}", tool_calls=calls, usage=used)


@tool
def count(what: str) -> ToolOutcome:
    """Count something."""
    return ToolOutcome(f"3 {what}", state={"counted": what})


@tool(attempts=1)
def broken(what: str) -> str:
    """Fail."""
    raise ValueError(f"no {what}")


@tool(approval=True)
def wipe(what: str) -> str:
    """Wipe something."""
    return f"wiped {what}"


def agents() -> list[Agent]:
    """One with tools, and its sub-agent."""
    helper = Agent(name="helper", model=Model())
    asks = agent_tool("helper", agent=helper, description="Helps")
    return [Agent(name="main", model=Model(), tools=[count, broken, wipe, asks]), helper]


@dataclass(frozen=True)
class Lived:
    """A session that was talked to, and stores of another process to read it."""

    served: Served
    settings: Settings
    stores: Backends
    session_id: str

    @property
    def views(self) -> SessionViews:
        """Over these stores."""
        return SessionViews(self.stores)

    async def ask(self, text: str) -> AskStatus:
        """One turn."""
        handle = self.served.sessions.session(self.session_id, agent="main")
        return (await handle.ask(text)).status


@pytest_asyncio.fixture(loop_scope="session")
async def lived(temporal_address: str, redis_url: str, s3: S3Endpoint) -> AsyncIterator[Lived]:
    """Threads, states, usage and streams in Redis over S3; three turns: words, tools, a sub-agent."""
    settings = make_settings(temporal_address, redis_url, s3, f"t{uuid.uuid4().hex[:12]}")
    stores, session_id = Backends(settings), f"s-{uuid.uuid4().hex[:8]}"
    options = SessionOptions(idle_timeout=60)
    async with session_worker(settings, agents(), options=options, drain=1.0) as served:
        lived = Lived(served, settings, stores, session_id)
        assert [await lived.ask(text) for text in ("hello", "count", "help")] == [AskStatus.ANSWERED] * 3
        await until_stream_has_end(lived)
        yield lived
        await served.sessions.session(session_id).close()
    await stores.close()


async def until_stream_has_end(lived: Lived) -> None:
    """Wait for the end of the newest turn in the stream: it is written behind its answer."""
    streams, stream_id = lived.stores.streams, lived.session_id
    assert streams is not None
    async with asyncio.timeout(30):
        while True:
            info = await streams.get_info(stream_id)
            assert info is not None
            reader = await streams.create_resumable_reader(stream_id, after_sequence=info.last_sequence - 1)
            assert reader is not None
            async with contextlib.aclosing(reader):
                async for newest in reader:
                    if isinstance(newest.chunk, RunEnded):
                        return
                    break
            await asyncio.sleep(0.05)


def said(turn: ConversationTurn) -> list[str]:
    """The texts of a turn."""
    return [each.text for each in turn.messages]


async def test_turns_tools_and_sub_agents_are_shown_as_they_were(lived: Lived) -> None:
    """The page is the conversation, not spans: each call with its arguments, result and error."""
    page = await lived.views.read_turns(lived.session_id)
    words, tools, helped = page.turns
    assert [(each.number, each.unfinished) for each in page.turns] == [(1, False), (2, False), (3, False)]
    assert said(words) == ["hello", "re: hello"]
    counted, failed = tools.messages[1].calls
    assert (counted.status, counted.arguments, counted.result) == ("done", {"what": "ducks"}, "3 ducks")
    assert failed.status == "failed"
    assert "ValueError: no pump" in (failed.error or "")
    assert (tools.tool_calls, tools.failed_calls, tools.tokens.input) == (2, 1, 20)
    (asked,) = helped.messages[1].calls
    assert asked.sub_session_id is not None
    child = await lived.views.read_turns(asked.sub_session_id)
    assert [said(each) for each in child.turns] == [["dig", "re: dig"]]
    sums = await lived.views.get_usage(lived.session_id, descendants=True)
    assert (sums.tokens.input, sums.model_calls, sums.failed_tool_calls) == (60, 6, 1)
    tree = await lived.views.get_tree(lived.session_id)
    assert [each.overview.session_id for each in tree.children] == [asked.sub_session_id]
    (found,) = [each async for each in lived.views.find_calls(failed=True)]
    assert (found.turn, found.call.name, found.call.arguments) == (2, "broken", {"what": "pump"})


async def test_an_approval_that_waits_is_shown_until_it_is_given(lived: Lived) -> None:
    """Whoever looks sees who waits for whom, and what for; then that it was done."""
    views, session_id = lived.views, lived.session_id
    assert await lived.ask("wipe") is AskStatus.SUSPENDED
    found = await views.get_session(session_id)
    (waiting,) = found.waiting
    assert (waiting.tool, waiting.kind, waiting.arguments, waiting.turn) == (
        "wipe",
        "approval",
        {"what": "disk"},
        4,
    )
    assert found.live_run is not None
    assert found.live_run.status is RunStatus.SUSPENDED_CLIENT_TOOL
    listed = await views.list_sessions(SessionFilter(need="waiting"))
    assert [each.session_id for each in listed.sessions] == [session_id]
    turn = (await views.read_turns(session_id)).turns[-1]
    (call,) = turn.messages[1].calls
    assert (turn.unfinished, call.status, call.waiting) == (True, "waiting", waiting)
    handle = lived.served.sessions.session(session_id)
    approval = ToolApproval(approval_id=waiting.call_id, approved=True)
    await handle.submit_approval(approval, wait=True)
    turn = (await views.read_turns(session_id)).turns[-1]
    (call,) = turn.messages[1].calls
    assert (turn.unfinished, call.status, call.result) == (False, "done", "wiped disk")
    assert (await views.list_sessions(SessionFilter(need="waiting"))).sessions == ()


async def test_a_call_that_was_denied_says_so(lived: Lived) -> None:
    """It did not fail: somebody said no."""
    await lived.ask("wipe")
    (waiting,) = (await lived.views.get_session(lived.session_id)).waiting
    denial = ToolApproval(approval_id=waiting.call_id, approved=False, reason="not today")
    await lived.served.sessions.session(lived.session_id).submit_approval(denial, wait=True)
    turn = (await lived.views.read_turns(lived.session_id)).turns[-1]
    (call,) = turn.messages[1].calls
    assert call.status == "denied"
    assert "not today" in str(call.result)
    assert (turn.tool_calls, turn.failed_calls) == (1, 0)
    sums = await lived.views.get_usage(lived.session_id)
    assert (sums.failed_tool_calls, sums.by_tool["wipe"].failed, sums.by_tool["wipe"].calls) == (1, 0, 1)
    failed = [each.call.name async for each in lived.views.find_calls(failed=True)]
    assert failed == ["broken"]


async def test_calls_that_ended_while_others_wait_say_how(lived: Lived) -> None:
    """A person may take days: till then nobody must take a failed tool for one that runs."""
    views, session_id = lived.views, lived.session_id
    assert await lived.ask("several") is AskStatus.SUSPENDED
    assert await read_statuses(lived, ("waiting", "failed", "done", "waiting"))
    failed = [each async for each in views.find_calls(failed=True)]
    told = [(each.turn, each.call.name, each.call.result_due) for each in failed]
    assert told == [(2, "broken", False), (4, "broken", True)]
    place = await views.find_live_place(session_id)
    async with contextlib.aclosing(views.follow_session(session_id, place)) as chunks:
        ends = [await anext(each async for each in chunks if isinstance(each.chunk, ToolEnd)) for _ in "12"]
    told_ends = {each.chunk.tool_call_id for each in ends if isinstance(each.chunk, ToolEnd)}
    assert told_ends == {"c1", "c2"}
    error = "The tool failed: tool 'broken': ValueError: no pump"
    assert [each.call.error async for each in views.find_calls(failed=True)] == [error, error]
    shown = (await views.read_turns(session_id)).turns[-1].messages[1].calls
    assert [each.error for each in shown] == [None, error, None, None]
    disk, tape = (await views.get_session(session_id)).waiting
    handle = lived.served.sessions.session(session_id)
    await handle.submit_approval(ToolApproval(approval_id=disk.call_id, approved=False))
    await handle.submit_approval(ToolApproval(approval_id=tape.call_id, approved=True), wait=True)
    assert await read_statuses(lived, ("denied", "failed", "done", "done"))
    sums = await views.get_usage(session_id)
    assert (sums.by_tool["broken"].calls, sums.by_tool["count"].calls, sums.by_tool["wipe"].calls) == (
        2,
        2,
        2,
    )


async def test_a_sub_agent_that_ended_while_an_approval_waits_is_done(lived: Lived) -> None:
    """Its own session says so; it was "running" for as long as nobody approved."""
    assert await lived.ask("help and wipe") is AskStatus.SUSPENDED
    assert await read_statuses(lived, ("done", "waiting"))
    (wait,) = (await lived.views.get_session(lived.session_id)).waiting
    handle = lived.served.sessions.session(lived.session_id)
    await handle.submit_approval(ToolApproval(approval_id=wait.call_id, approved=True), wait=True)
    assert await read_statuses(lived, ("done", "done"))


async def read_statuses(lived: Lived, wanted: tuple[str, ...]) -> bool:
    """Whether the calls of the newest turn are shown so, after a moment."""
    found: tuple[str, ...] = ()
    for _ in range(200):
        turn = (await lived.views.read_turns(lived.session_id)).turns[-1]
        found = tuple(each.status for each in turn.messages[1].calls)
        if found == wanted:
            return True
        await asyncio.sleep(0.1)
    raise AssertionError(f"{wanted} expected, found {found}")


async def test_turns_that_were_taken_back_are_told_where_they_stood(lived: Lived) -> None:
    """Attempts that were thrown away cost tokens as well; their numbers lead to what stands there now."""
    views, session_id = lived.views, lived.session_id
    handle = lived.served.sessions.session(session_id, agent="main")
    await handle.rewind_to_turn(1)
    page = await views.read_turns(session_id)
    assert [said(turn) for turn in page.turns] == [["hello", "re: hello"]]
    assert [(each.turn, each.kept) for each in page.lost] == [(2, False), (3, False)]
    assert await lived.ask("again") is AskStatus.ANSWERED
    page = await views.read_turns(session_id)
    assert [turn.number for turn in page.turns] == [1, 4]
    assert [(each.turn, each.kept) for each in page.turns[1].attempts] == [(2, False), (4, True)]
    assert [each.turn for each in page.lost] == [3]
    assert await views.find_turn(session_id, 2) == await views.find_turn(session_id, 4) == 2
    assert (await views.get_session(session_id)).turns == 4
    (failed,) = [each async for each in views.find_calls(failed=True)]
    assert (failed.turn, failed.call.name, failed.call.arguments) == (2, "broken", None)


async def test_a_state_is_compared_with_what_it_was(lived: Lived) -> None:
    """Which step wrote it is seen by the checkpoints: the tool's change is in that of its turn."""
    views, session_id = lived.views, lived.session_id
    checkpoints = (await views.list_checkpoints(session_id)).checkpoints[::-1]
    assert (await views.get_state(session_id)).values == {"counted": "ducks"}
    first = checkpoints[0]
    assert (await views.get_state(session_id, first.checkpoint_id)).values == {}
    compared = await views.compare_states(session_id, first.checkpoint_id)
    assert [(each.path, each.change, each.after) for each in compared.differences] == [
        ("/counted", "added", "ducks")
    ]
    (wrote,) = {each.run_id for each in checkpoints if each.tool_calls}
    runs = {each.run_id: each for each in (await views.list_runs(session_id)).runs}
    assert runs[wrote or ""].turn == 2


async def test_runs_are_told_with_their_executions_and_model_calls(lived: Lived) -> None:
    """From a run that went wrong one goes to Temporal's page, and sees what it cost."""
    handle = lived.served.sessions.session(lived.session_id, agent="main")
    await handle.rewind_to_turn(2)
    page = await lived.views.list_runs(lived.session_id)
    assert [(each.turn, each.kept) for each in page.runs] == [(3, False), (2, True), (1, True)]
    assert [len(each.model_calls) for each in page.runs] == [2, 2, 1]
    assert {each.workflow_id for each in page.runs} == {workflow_id(lived.session_id)}
    assert all(each.workflow_run_id and each.ended_at for each in page.runs)


async def test_a_place_tells_of_the_archive(lived: Lived) -> None:
    """Redis may go: all of the session is in S3."""
    place = await lived.views.get_place(lived.session_id)
    assert (place.messages, place.archived, place.unarchived) == (11, 11, 0)
    assert (place.segments[0].first, place.segments[-1].stop) == (0, 11)
    assert place.problem is None
    audit = await lived.views.verify_thread(lived.session_id)
    assert audit is not None
    assert (audit.problems, audit.unarchived) == ((), 0)


async def test_a_turn_is_followed_while_it_runs(lived: Lived) -> None:
    """Whoever opened the page before it began sees it from its first chunk on, and the next one."""
    async with contextlib.aclosing(lived.views.follow_session(lived.session_id)) as chunks:
        following = asyncio.ensure_future(read_until_ended(chunks))
        await lived.ask("one")
        first = await following
        following = asyncio.ensure_future(read_until_ended(chunks))
        await lived.ask("two")
        second = await following
    assert [each.chunk.type for each in (first[0], second[0])] == ["run_started"] * 2
    assert [text_of(each) for each in (first, second)] == ["re: one", "re: two"]
    assert second[0].sequence == first[-1].sequence + 1


async def test_whoever_comes_in_the_middle_of_a_turn_sees_it_from_its_begin(lived: Lived) -> None:
    """It waits for somebody; what it said so far is shown live as it stands, and then what follows."""
    views, session_id = lived.views, lived.session_id
    await lived.ask("wipe")
    place = await views.find_live_place(session_id)
    (waiting,) = (await views.get_session(session_id)).waiting
    async with contextlib.aclosing(views.follow_session(session_id, place)) as chunks:
        following = asyncio.ensure_future(read_until_ended(chunks))
        approval = ToolApproval(approval_id=waiting.call_id, approved=True)
        await lived.served.sessions.session(session_id).submit_approval(approval, wait=True)
        found = await following
    assert isinstance(found[0].chunk, RunStarted)
    assert found[0].chunk.turn == 4
    assert text_of(found) == "re: wiped disk"


async def test_following_ends_with_the_session(lived: Lived) -> None:
    """It was deleted while a page showed it."""
    views = lived.views
    following = asyncio.ensure_future(anext(views.follow_session(lived.session_id), None))
    handle = lived.served.sessions.session(lived.session_id)
    await handle.delete()
    assert await following is None


async def read_until_ended(chunks: AsyncGenerator[StoredChunk]) -> list[StoredChunk]:
    """All chunks up to the end of a turn."""
    found = [await anext(chunks)]
    while not isinstance(found[-1].chunk, RunEnded):
        found.append(await anext(chunks))
    return found


def text_of(chunks: Sequence[StoredChunk]) -> str:
    """All text of the model's."""
    return "".join(each.chunk.delta for each in chunks if isinstance(each.chunk, TextChunk))


async def test_no_read_changes_a_byte(lived: Lived) -> None:
    """Neither a value nor its expiry, in Redis or in S3."""
    handle = lived.served.sessions.session(lived.session_id)
    await handle.close()
    await handle.result()  # nobody but the reader is at work from here on
    before = await take_image(lived)
    await read_everything(lived)
    assert await take_image(lived) == before


async def read_everything(lived: Lived) -> None:
    """All that can be shown of all sessions."""
    views = lived.views
    names = [each.session_id async for each in views.iterate_sessions()]
    assert len(names) == 2
    for name in names:
        await views.list_sessions(SessionFilter(need="behind"))
        await views.get_session(name)
        await views.get_usage(name, descendants=True)
        await views.read_turns(name)
        await views.read_turns(name, after=0)
        await views.read_turn(name, 1)
        await views.read_message(name, 0)
        await views.get_state(name)
        await views.list_checkpoints(name)
        await views.list_runs(name)
        await views.get_tree(name)
        await views.get_place(name)
        await views.verify_thread(name)
        await views.find_live_place(name)
        await views.get_context(name, 1)
    assert len([each async for each in views.find_calls()]) == 3


async def take_image(lived: Lived) -> dict[str, Any]:
    """Each key and object of the worker's, with its value and when it expires."""
    settings = lived.settings
    image: dict[str, Any] = {}
    assert settings.redis_url is not None
    client = redis.asyncio.Redis.from_url(settings.redis_url)
    async with client:
        async for key in client.scan_iter(match=f"{settings.redis_prefix}*", count=1_000):
            image[key.decode()] = (await client.dump(key), await client.pexpiretime(key))
    assert settings.s3_bucket is not None
    assert settings.s3_access_key is not None
    assert settings.s3_secret_key is not None
    blobs = S3Blobs(
        settings.s3_bucket,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key.get_secret_value(),
        secret_key=settings.s3_secret_key.get_secret_value(),
    )
    async for info in blobs.list(settings.s3_prefix):
        blob = await blobs.get(info.key)
        assert blob is not None
        image[info.key] = (hashlib.sha256(blob.data).hexdigest(), blob.etag)
    await blobs.close()
    assert len(image) > 10
    return image


async def test_a_message_whose_model_call_failed_is_shown(lived: Lived) -> None:
    """The error alone does not say what brought it about, and nothing of the turn is in the thread."""
    assert await lived.ask("fail") is AskStatus.FAILED
    page = await lived.views.read_turns(lived.session_id)
    assert [(each.turn, each.asked) for each in page.lost] == [(4, ("fail",))]
