"""Turns with messages of about a megabyte through every door: nothing may be lost, or stand there twice.

Such messages fill what a page reads at once: by themselves, or together.
"""

import json
import re
from collections.abc import Callable, Sequence

import httpx
import pytest

from helix_temporal.backends import Backends
from helix_temporal.models.checkpoints import NewRun, RunChange, RunStatus
from helix_temporal.models.messages import Message
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import Head
from helix_temporal.views import SessionViews
from helix_temporal.views.models import ConversationPage, ConversationTurn
from tests.unit.cli._stores import call, fill, variables_of
from tests.unit.inspector._asking import walk_links
from tests.unit.inspector._following import following
from tests.unit.views import _scene
from tests.unit.views._scene import answer, result, user

pytestmark = pytest.mark.timeout(120)


def large_turn(number: int, *sizes: int, question: int = 0) -> list[Message]:
    """A turn with a call for each of these sizes of results, in one step."""
    asked = user(f"u{number}", f"question {number} {'q' * question}")
    last = answer(f"b{number}", f"answer {number}")
    if not sizes:
        return [asked, last]
    calls = [_scene.call(at) for at in range(len(sizes))]
    asks = answer(f"a{number}", f"asks {number}", *calls)
    results = [result(f"a{number}", at, f"seen {number}-{at} {'x' * size}") for at, size in enumerate(sizes)]
    return [asked, asks, *results, last]


def beside_small_turns(*large: list[Message]) -> list[list[Message]]:
    """Large turns between small ones."""
    return [large_turn(1, 10), *large, large_turn(len(large) + 2, 10), large_turn(len(large) + 3)]


TURNS = {
    "result-300k": beside_small_turns(large_turn(2, 300_000)),
    "result-1100k": beside_small_turns(large_turn(2, 1_100_000)),
    "two-turns-1100k": beside_small_turns(large_turn(2, 1_100_000), large_turn(3, 1_100_000)),
    "three-500k": beside_small_turns(large_turn(2, 500_000, 500_000, 500_000)),
    "ten-1100k": beside_small_turns(large_turn(2, *[1_100_000] * 10)),
    "question-1900k": beside_small_turns(large_turn(2, question=1_900_000)),
    "question-and-result": beside_small_turns(large_turn(2, 1_900_000, question=1_900_000)),
    "newest-is-large": [large_turn(1), large_turn(2, 1_100_000)],
    "first-is-large": [large_turn(1, 1_100_000, question=1_100_000), large_turn(2)],
}
SESSIONS = tuple(TURNS)
PLACES = [(name, at) for name, turns in TURNS.items() for at in range(sum(map(len, turns)))]


async def write_sessions(backends: Backends) -> None:
    """All of them, with a run for each turn."""
    for name, turns in TURNS.items():
        await backends.sessions.create_session(name, CreateSession())
        start = Head(position=0, last_id="")
        for number, said in enumerate(turns, 1):
            await backends.sessions.start_run(name, NewRun(run_id=f"r{number}", start_head=start))
            for message in said:
                await backends.sessions.append_messages(name, [message])
            change = RunChange(status=RunStatus.COMPLETED, step_count=1)
            await backends.sessions.update_run(name, f"r{number}", change)
            start = Head(position=start.position + len(said), last_id=said[-1].id)


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the sessions are."""
    found = variables_of(tmp_path_factory.mktemp("large"))
    fill(found, write_sessions)
    return found


NAMES = re.compile(r"\b(?:question|asks|answer) \d+\b|\bseen \d+-\d+\b")


def named_in(text: str) -> list[str]:
    """What is said on a page or in a file, in order, by the names at its beginning."""
    return NAMES.findall(text)


def all_names(turns: Sequence[Sequence[Message]]) -> list[str]:
    """What is said in turns."""
    return [name for turn in turns for message in turn for name in named_in(message.text[:40])]


def shown_in(turns: Sequence[ConversationTurn]) -> list[str]:
    """What is shown of turns: results with their calls."""
    return [
        name
        for turn in turns
        for message in turn.messages
        for text in (message.text, *(str(each.result) for each in message.calls))
        for name in named_in(text[:40])
    ]


async def walk_forward(views: SessionViews, session_id: str) -> list[ConversationPage]:
    """All pages, oldest first."""
    pages = [await views.read_turns(session_id, after=0)]
    while pages[-1].after is not None:
        pages.append(await views.read_turns(session_id, after=pages[-1].after))
    return pages


async def walk_back(views: SessionViews, session_id: str) -> list[ConversationPage]:
    """All pages, oldest first, found from the newest one on."""
    pages = [await views.read_turns(session_id)]
    while pages[0].before is not None:
        pages.insert(0, await views.read_turns(session_id, before=pages[0].before))
    return pages


@pytest.mark.parametrize("walk", [walk_forward, walk_back])
@pytest.mark.parametrize("session_id", SESSIONS)
async def test_pages_have_all_turns_and_each_message_once(
    stores: Backends, session_id: str, walk: Callable[..., object]
) -> None:
    """A page that ends early looks like the conversation's end."""
    pages = await walk(SessionViews(stores), session_id)  # type: ignore[misc]
    turns = [turn for page in pages for turn in page.turns]
    assert shown_in(turns) == all_names(TURNS[session_id])
    assert pages[-1].turns[-1].stop == pages[-1].head
    assert {page.problem for page in pages} == {None}
    assert [turn.number for turn in turns if turn.part_of_turn.begins] == [
        *range(1, len(TURNS[session_id]) + 1)
    ]


@pytest.mark.parametrize("session_id", SESSIONS[:-2])
async def test_the_newest_page_has_whole_turns(stores: Backends, session_id: str) -> None:
    """An answer without its question and call says nothing; only what bursts a page is shown in parts."""
    newest = (await SessionViews(stores).read_turns(session_id, limit=4)).turns[-1]
    assert (newest.part_of_turn.begins, newest.part_of_turn.ends) == (True, True)


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_each_turn_is_read_whole(stores: Backends, session_id: str) -> None:
    """By its number, as a link leads to it."""
    views = SessionViews(stores)
    shown = []
    for number in range(1, len(TURNS[session_id]) + 1):
        turns = [turn async for page in views.iterate_turn(session_id, number) for turn in page.turns]
        assert {turn.number for turn in turns} == {number}
        shown += shown_in(turns)
    assert shown == all_names(TURNS[session_id])


@pytest.mark.parametrize(("session_id", "position"), PLACES)
async def test_each_message_is_read_whole(stores: Backends, session_id: str, position: int) -> None:
    """At its position, with the number of its own turn."""
    numbered = [(number, message) for number, turn in enumerate(TURNS[session_id], 1) for message in turn]
    found = await SessionViews(stores).read_message(session_id, position)
    assert (found.turn, found.message.message_id) == (numbered[position][0], numbered[position][1].id)
    assert found.message.text == numbered[position][1].text


@pytest.mark.parametrize("session_id", ["result-1100k", "three-500k", "question-1900k"])
async def test_the_page_has_all_turns(browser: httpx.AsyncClient, session_id: str) -> None:
    """From the newest back; and there is a page for each message and turn."""
    pages = await walk_links(browser, f"/sessions/{session_id}", "prev")
    assert [each for page in reversed(pages) for each in named_in(page) if each.startswith("answer")] == [
        f"answer {number}" for number in range(1, len(TURNS[session_id]) + 1)
    ]
    assert "This turn began before message" not in "".join(pages)
    paths = [f"messages/{at}" for at in range(6)] + ["turns/1", "turns/2", "turns/3", "turns/4"]
    answers = [await browser.get(f"/sessions/{session_id}/{path}") for path in paths]
    assert {each.status_code for each in answers} == {200}


@pytest.mark.parametrize("session_id", SESSIONS)
def test_the_command_prints_all_turns(variables: dict[str, str], session_id: str) -> None:
    """Who pipes it into a file must not get half a conversation with status 0."""
    printed = call(variables, "session", "messages", session_id)
    assert printed.exit_code == 0, printed.output
    assert named_in(printed.stdout) == all_names(TURNS[session_id])
    lines = call(variables, "session", "messages", session_id, "--json").stdout.splitlines()
    last = json.loads(lines[-1])
    assert last["part_of_turn"]["ends"] is True
    assert last["messages"][-1]["text"] == f"answer {len(TURNS[session_id])}"


@pytest.mark.parametrize("session_id", ["result-1100k", "three-500k", "ten-1100k"])
def test_the_command_prints_each_turn(variables: dict[str, str], session_id: str) -> None:
    """Also the small one before the large one."""
    for number in range(1, len(TURNS[session_id]) + 1):
        printed = call(variables, "session", "messages", session_id, "--turn", str(number))
        assert printed.exit_code == 0, printed.output
        assert named_in(printed.stdout) == all_names(TURNS[session_id][number - 1 : number])


async def test_a_live_page_is_sent_the_whole_turn() -> None:
    """With its question and its call, as it grows by a large result, and when it has ended."""
    said = large_turn(2, 1_100_000)
    async with following(*large_turn(1)) as followed:
        await followed.writer.start()
        await followed.writer.append(*said[:-1], commits=False)
        assert named_in(await followed.read_thread())[:2] == ["question 2", "asks 2"]
        await followed.writer.append(said[-1])
        await followed.writer.end()
        ended = await followed.read_thread()
    assert [*dict.fromkeys(named_in(ended))] == ["question 2", "asks 2", "seen 2-0", "answer 2"]
