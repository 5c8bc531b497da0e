"""Conversations whose archive is away or damaged: what is hot is shown, and the rest is told."""

import random
from dataclasses import dataclass, replace

import pytest

from helix_temporal.client import SessionStores
from helix_temporal.coldtier import KeepHot
from helix_temporal.models.checkpoints import NewRun, RunChange, RunRecorded, RunStatus
from helix_temporal.models.ids import make_result_id
from helix_temporal.models.messages import GivenContext, Usage
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.models.turns import encode_messages
from helix_temporal.models.usage import ToolUsageEntry
from helix_temporal.stores.memory.sessions import MemorySessions
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.faults import BlobFault
from helix_temporal.views.calls import SearchProblems
from helix_temporal.views.filters import SessionFilter
from helix_temporal.views.sessions import SessionViews
from tests.unit.coldtier._tiers import Tiers
from tests.unit.views._scene import answer, call, result, texts, user

LITTLE = KeepHot(archived_bytes=2_000, messages=8)
TURNS = 40


def ask_of(turn: int) -> str:
    """What the user says in a turn: nothing that becomes small by compression."""
    return f"ask {turn} {random.Random(turn).randbytes(1_000).hex()}"


@dataclass
class Archived:
    """A session of which most is in the archive only."""

    tiers: Tiers
    author: Author
    stores: SessionStores

    @property
    def views(self) -> SessionViews:
        """Of another process, which remembers nothing of the archive."""
        threads = self.tiers.worker(keep_hot=LITTLE)
        return SessionViews(replace(self.stores, threads=threads))

    async def damage(self) -> None:
        """Overwrite every segment."""
        keys = [key async for key in self.tiers.bucket.list(self.tiers.threads.layout.thread_prefix("t"))]
        manifest = self.tiers.threads.layout.manifest_key("t")
        for each in keys:
            if each.key != manifest:
                await self.tiers.bucket.put(each.key, b"not what was written")


@pytest.fixture
async def archived() -> Archived:
    """Forty turns, of which the newest few are hot."""
    tiers = Tiers()
    threads = tiers.worker(keep_hot=LITTLE)
    sessions = RowSessions(MemorySessions(), threads)
    await sessions.create_session("t")
    author = Author(threads, "t")
    await author.open()
    for at in range(TURNS):
        said, told = encode_messages([user(f"u{at}", ask_of(at)), answer(f"a{at}", f"told {at}")])
        # As a step looks at its thread: what is archived is dropped from the hot part by and by.
        await threads.step_view("t", author.epoch, author.head, after=2, limit=4, max_bytes=10**6, ids=8)
        step = author.step(said, answer=told)
        await threads.archive_step(step, await author.append(step))
    return Archived(tiers, author, SessionStores(threads=threads, usage=MemoryUsage(), sessions=sessions))


async def test_a_conversation_is_read_through_hot_and_archived_messages(archived: Archived) -> None:
    """Where a message lies is nothing that a reader notices."""
    page = await archived.views.read_turns("t", after=0)
    found = [text for turn in page.turns for text in texts(turn)]
    assert found[::2] == [ask_of(at) for at in range(20)]
    assert page.problem is None
    header = await archived.tiers.hot.read_header("t")
    assert header is not None
    assert header.base.position > 40


async def test_while_the_archive_is_away_what_is_hot_is_shown(archived: Archived) -> None:
    """S3 is down, and somebody looks: the newest turns are there, with the reason why there are no more."""
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    header = await archived.tiers.hot.read_header("t")
    assert header is not None
    page = await archived.views.read_turns("t")
    assert page.turns[-1].stop == 2 * TURNS
    assert page.turns[0].start >= header.base.position
    assert page.problem is not None
    assert "not all can be read" in page.problem
    found = await archived.views.get_session("t")
    assert found.messages == 2 * TURNS
    assert found.place is not None
    assert found.place.problem is not None


async def test_a_damaged_archive_leaves_what_is_hot_readable(archived: Archived) -> None:
    """What is damaged is named; the rest of the conversation is there."""
    await archived.damage()
    newest = await archived.views.read_turns("t", limit=2)
    assert [texts(turn)[1] for turn in newest.turns] == ["told 38", "told 39"]
    oldest = await archived.views.read_turns("t", after=0)
    assert oldest.problem is not None
    assert "ArchiveCorruptError" in oldest.problem


async def test_a_context_of_which_the_archive_has_a_part_says_what_is_missing(archived: Archived) -> None:
    """The tokens of what cannot be read have their place, too, so that the sum is the provider's."""
    told = GivenContext(first=0, stop=2 * TURNS + 1)
    given = {"given": told, "usage": Usage(input_tokens=90_000)}
    said = answer("last", "so").model_copy(update=given)
    last = encode_messages([user("u-last", "well?"), said])
    await archived.author.append(archived.author.step(last[0], answer=last[1]))
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    header = await archived.tiers.hot.read_header("t")
    assert header is not None
    context = await archived.views.get_context("t", 2 * TURNS + 1)
    unread = [part for part in context.parts if "cannot be read" in part.text]
    assert [part.text.split()[0] for part in unread] == [str(header.base.position)]
    assert context.parts[-1].text == "well?"
    assert sum(part.tokens for part in context.parts) == 90_000
    assert "not all can be read" in context.notes[0]


async def test_sessions_of_which_the_archive_has_not_all_are_behind(archived: Archived) -> None:
    """The list of what an operator has to look at."""
    behind = SessionFilter(need="behind")
    assert (await archived.views.list_sessions(behind)).sessions == ()
    said, told = encode_messages([user("u-new"), answer("a-new")])
    await archived.author.append(archived.author.step(said, answer=told))
    assert [each.session_id for each in (await archived.views.list_sessions(behind)).sessions] == ["t"]
    place = (await archived.views.get_session("t")).place
    assert place is not None
    assert (place.archived, place.unarchived) == (2 * TURNS, 2)


async def test_what_is_behind_is_known_while_the_archive_is_away(archived: Archived) -> None:
    """That is when somebody asks for it."""
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    behind = SessionFilter(need="behind")
    said, told = encode_messages([user("u-new"), answer("a-new")])
    await archived.author.append(archived.author.step(said, answer=told))
    assert [each.session_id async for each in archived.views.iterate_sessions(behind)] == ["t"]


async def test_a_session_that_is_cold_is_read(archived: Archived) -> None:
    """Long after its last turn, without making it hot again."""
    await archived.author.go_cold()
    views = archived.views
    page = await views.read_turns("t", limit=3)
    assert [turn.start for turn in page.turns] == [74, 76, 78]
    assert page.turns[0].messages[0].role == "user"
    place = (await views.get_session("t")).place
    assert place is not None
    assert (place.hot, place.messages, place.unarchived) == (False, 2 * TURNS, 0)
    assert await archived.tiers.hot.read_header("t") is None
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    page = await archived.views.read_turns("t")
    assert page.turns == ()
    assert page.problem is not None


async def record_calls(archived: Archived) -> None:
    """Runs of two turns: the first was aborted, the second has a call that failed; then nobody uses it."""
    sessions, start = archived.stores.sessions, archived.author.head
    assert sessions is not None
    await sessions.start_run("t", NewRun(run_id="r1", start_head=start))
    await sessions.update_run("t", "r1", RunChange(status=RunStatus.ABORTED))
    recorded = await sessions.start_run("t", NewRun(run_id="r2", start_head=start))
    assert isinstance(recorded, RunRecorded)
    said, asked, failed = encode_messages(
        [user("u-new"), answer("a-new", "", call()), result("a-new", 0, "closed", is_error=True)]
    )
    await archived.author.append(archived.author.step(said, asked, failed, answer=answer_stored("b-new")))
    await sessions.update_run("t", "r2", RunChange(status=RunStatus.COMPLETED))
    entry = ToolUsageEntry(
        id=f"tool/{make_result_id('a-new', 0)}",
        session_id="t",
        timestamp=recorded.run.started_at,
        run_id="r2",
        step_count=1,
        tool_name="look",
        success=False,
    )
    await archived.stores.usage.record_entry(entry)
    await archived.author.go_cold()


def answer_stored(message_id: str) -> StoredMessage:
    """A model's answer as it is stored."""
    return encode_messages([answer(message_id)])[0]


async def test_nothing_is_called_lost_because_it_could_not_be_read(archived: Archived) -> None:
    """An operator in an outage must not be told that finished turns are gone; what was aborted is."""
    await record_calls(archived)
    page = await archived.views.read_turns("t", limit=1)
    assert ([each.turn for each in page.turns[0].attempts], page.lost, page.problem) == ([1, 2], (), None)
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    page = await archived.views.read_turns("t")
    assert page.problem is not None
    assert (page.turns, [each.run_id for each in page.lost]) == ((), ["r1"])


async def test_calls_that_could_not_be_read_are_not_called_gone(archived: Archived) -> None:
    """They are told by usage, each with the reason why no more is known; the search says so as a whole."""
    await record_calls(archived)
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    problems = SearchProblems()
    (found,) = [each async for each in archived.views.find_calls(failed=True, problems=problems)]
    assert (found.call.name, found.in_thread) == ("look", False)
    assert "not all can be read" in (found.problem or "")
    assert "1 session" in (problems.describe() or "")


async def test_a_search_without_usage_tells_what_it_could_not_read(archived: Archived) -> None:
    """No hits would look like no failures."""
    await archived.author.go_cold()
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    problems = SearchProblems()
    assert [each async for each in archived.views.find_calls(problems=problems)] == []
    assert "session 't': not all can be read" in (problems.describe() or "")


async def test_a_search_that_could_read_all_has_no_problem(archived: Archived) -> None:
    """Of the same calls."""
    await record_calls(archived)
    problems = SearchProblems()
    (found,) = [each async for each in archived.views.find_calls(failed=True, problems=problems)]
    assert (found.in_thread, found.problem, found.call.error) == (True, None, "closed")
    assert problems.describe() is None
