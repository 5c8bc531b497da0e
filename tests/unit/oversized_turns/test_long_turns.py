"""A turn of 400 messages through every door: it is longer than a page, and nothing of it may be lost."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from helix_temporal.backends import Backends
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.errors import InvalidRequestError, NotFoundError
from helix_temporal.inspector.live import NEW_TURNS, ReloadError
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.views import SessionViews
from tests._sessions import memory_place
from tests.unit.cli._stores import add_session, call, fill, json_of, variables_of
from tests.unit.inspector._asking import walk_links
from tests.unit.inspector._following import Followed, following
from tests.unit.oversized_turns._long_turns import MESSAGES, STEPS, long_turn, position_of, write_long_session
from tests.unit.views._scene import answer, scene_over, user

pytestmark = pytest.mark.timeout(120)

SESSIONS = ("with-runs", "without-runs")
"""The numbers of turns are those of runs, or they are counted."""


async def write_sessions(backends: Backends) -> None:
    """Three long turns each."""
    for name in SESSIONS:
        await write_long_session(backends, name, turns=3, runs=name == "with-runs")


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Where the sessions are."""
    found = variables_of(tmp_path_factory.mktemp("long"))
    fill(found, write_sessions)
    return found


def said_on(text: str) -> list[str]:
    """What the model says on a page or in a file, in order."""
    return re.findall(r"\b\d: step \d+\b", text)


def all_said(turn: int) -> list[str]:
    """What the model says in a turn."""
    return [f"{turn}: step {step}" for step in range(1, STEPS + 1)]


# ---- the read layer ---------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", SESSIONS)
@pytest.mark.parametrize(
    ("turn", "step", "found"),
    [
        (1, None, (1, 200)),
        (1, 1, (1, 1)),
        (1, 10, (1, 10)),
        (2, 150, (2, 150)),
        (2, 200, (2, 200)),
        (3, 120, (3, 120)),
        (None, None, (3, 200)),
        (None, 10, (3, 10)),
    ],
)
async def test_a_step_is_found_by_its_number(
    stores: Backends, session_id: str, turn: int | None, step: int | None, found: tuple[int, int]
) -> None:
    """The context of another step would be read as that of the one that was asked for."""
    views = SessionViews(stores)
    position = await views.find_answer(session_id, turn, step)
    assert position == position_of(*found)
    message = (await views.read_message(session_id, position)).message
    assert (message.text, message.step) == (f"{found[0]}: step {found[1]}", found[1])
    context = await views.get_context(session_id, position)
    assert (context.answer, context.step) == (position, found[1])


async def test_a_context_tells_its_turn(stores: Backends) -> None:
    """Also in the middle of a turn, far from where its run began."""
    context = await SessionViews(stores).get_context("with-runs", position_of(2, 170))
    assert (context.turn, context.step) == (2, 170)


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_a_step_that_is_not_there_is_refused_with_those_that_are(
    stores: Backends, session_id: str
) -> None:
    """Nobody is shown the newest step instead."""
    with pytest.raises(NotFoundError, match="turn 2 has no step 201; it has steps 1 to 200"):
        await SessionViews(stores).find_answer(session_id, 2, 201)


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_the_parts_of_a_turn_are_the_turn(stores: Backends, session_id: str) -> None:
    """Each part says which it is; together they are all messages, with their steps, and no other turn's."""
    pages = [page async for page in SessionViews(stores).iterate_turn(session_id, 2)]
    turns = [turn for page in pages for turn in page.turns]
    messages = [message for turn in turns for message in turn.messages]
    assert len(turns) == len(pages) > 1
    assert [message.text for message in messages] == ["question 2", *all_said(2)]
    assert [message.step for message in messages] == [None, *range(1, STEPS + 1)]
    calls = [call for message in messages for call in message.calls]
    assert [each.result for each in calls] == [f"seen 2-{step}" for step in range(1, STEPS)]
    assert {turn.number for turn in turns} == {2}
    assert [turn.part_of_turn.begins for turn in turns] == [True, *[False] * (len(turns) - 1)]
    assert [turn.part_of_turn.ends for turn in turns] == [*[False] * (len(turns) - 1), True]
    first_steps = [turn.part_of_turn.first_step for turn in turns]
    assert first_steps == [next(m.step for m in turn.messages if m.step is not None) for turn in turns]
    assert (pages[0].before, pages[-1].after) == (None, None)
    earlier = await SessionViews(stores).read_turn(session_id, 2, before=pages[-1].before)
    assert earlier.turns[-1].stop == pages[-1].turns[0].start


async def test_a_part_of_another_turn_is_refused(stores: Backends) -> None:
    """A link that was cut off must not show what another turn said under this one's number."""
    views = SessionViews(stores)
    with pytest.raises(InvalidRequestError, match=r"turn 1 .* has no part"):
        await views.read_turn("with-runs", 1, after=position_of(2, 50))
    with pytest.raises(InvalidRequestError, match=r"turn 2 .* has no part"):
        await views.read_turn("with-runs", 2, before=MESSAGES)


async def test_a_call_that_is_found_has_its_step() -> None:
    """The search leads from a failed call to what the model was given in its step."""
    async with memory_place()() as place:
        scene = scene_over(place, MemoryUsage())
        writer = await scene.begin("s")
        run = await writer.turn(*long_turn(1))
        await writer.record_tool_call("a1-150", run)
        found = [each async for each in scene.views.find_session_calls("s")]
        assert [(each.step, each.message_position) for each in found] == [(150, position_of(1, 150))]


# ---- the inspector ----------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_the_page_of_a_turn_leads_through_all_of_it(
    browser: httpx.AsyncClient, session_id: str
) -> None:
    """The rest of a long turn is what went wrong in it."""
    pages = await walk_links(browser, f"/sessions/{session_id}/turns/2", "next")
    assert [said for page in pages for said in said_on(page)] == all_said(2)
    assert len(pages) > 1
    assert "Later messages of this turn" in pages[0]
    back = await browser.get(re.findall(r'rel="prev" href="([^"]+)"', pages[-1])[0])
    assert said_on(back.text)
    assert set(said_on(back.text)) < set(all_said(2))


@pytest.mark.parametrize("session_id", SESSIONS)
async def test_the_conversation_leads_through_all_turns(browser: httpx.AsyncClient, session_id: str) -> None:
    """Page by page, from the newest back; no page leaves messages out in its middle."""
    pages = await walk_links(browser, f"/sessions/{session_id}", "prev")
    said = [each for page in reversed(pages) for each in said_on(page)]
    assert said == [*all_said(1), *all_said(2), *all_said(3)]


async def test_a_part_on_a_page_says_that_it_is_one(browser: httpx.AsyncClient) -> None:
    """Who reads it must not take its first message for the question."""
    page = await browser.get("/sessions/with-runs")
    assert "This turn began before message" in page.text
    assert 'href="/sessions/with-runs/turns/3"' in page.text


async def test_the_page_of_a_context_names_its_step(browser: httpx.AsyncClient) -> None:
    """The same number as on the command line."""
    page = await browser.get(f"/sessions/with-runs/context/{position_of(2, 170)}")
    assert "turn 2, step 170, before message" in page.text


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    """A first turn, and half of a long one; the page was loaded when the long one began."""
    async with following(user("u0"), answer("a0")) as found:
        await found.writer.start()
        await found.writer.append(*long_turn(2)[:302], commits=False)
        yield found


async def test_a_long_turn_is_followed_while_it_grows(followed: Followed) -> None:
    """A page that must be loaded anew at each step cannot be read; it shows the newest part of the turn."""
    html = await followed.read_thread()
    assert said_on(html)[-1] == "2: step 151"
    assert "This turn began before message" in html
    assert "live-ended" not in html
    await followed.writer.append(*long_turn(2)[302:304], commits=False)
    assert said_on(await followed.read_thread())[-1] == "2: step 152"


async def test_a_long_turn_that_has_ended_is_added_once(followed: Followed) -> None:
    """Else it stood on the page twice, or not at all; a later turn is under way then."""
    await followed.writer.append(*long_turn(2)[302:])
    await followed.writer.end()
    await followed.writer.start()
    await followed.writer.append(user("u3", "a third question"), commits=False)
    html = await followed.read_thread()
    under_way, ended = html.split("live-ended")
    assert "a third question" in under_way
    assert said_on(under_way) == []
    assert said_on(ended)[-1] == "2: step 200"
    assert "a third question" not in ended
    assert said_on(await followed.read_thread()) == []


async def test_a_page_far_behind_is_loaded_anew(followed: Followed) -> None:
    """A laptop that slept over a dozen turns is not sent all of them."""
    await followed.writer.append(*long_turn(2)[302:])
    await followed.writer.end()
    for number in range(3, 3 + NEW_TURNS):
        await followed.writer.turn(user(f"u{number}"), answer(f"a{number}"))
    with pytest.raises(ReloadError):
        await followed.read_thread()


# ---- the command line -------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", SESSIONS)
def test_the_command_prints_all_of_a_turn(variables: dict[str, str], session_id: str) -> None:
    """Each part with whole texts."""
    printed = call(variables, "session", "messages", session_id, "--turn", "2")
    assert printed.exit_code == 0, printed.output
    assert said_on(printed.stdout) == all_said(2)
    parts = call(variables, "session", "messages", session_id, "--turn", "2", "--json").stdout.splitlines()
    steps = [m["step"] for part in parts for m in json.loads(part)["messages"] if m["role"] == "assistant"]
    assert steps == list(range(1, STEPS + 1))


def test_texts_are_whole_in_every_part(tmp_path: Path) -> None:
    """What is cut in a later part would be taken for all that was said."""
    variables = variables_of(tmp_path)
    said = long_turn(1)
    said[-1] = said[-1].model_copy(update={"content": "long " * 2_000 + "end"})

    async def write(backends: Backends) -> None:
        await add_session(backends, "s", *said)

    fill(variables, write)
    printed = call(variables, "session", "messages", "s", "--turn", "1").stdout
    assert "long end" in printed
    assert "more characters" not in printed


@pytest.mark.parametrize("session_id", SESSIONS)
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--turn", "1"], (1, 200)),
        (["--step", "10"], (3, 10)),
        (["--turn", "2", "--step", "150"], (2, 150)),
    ],
)
def test_the_command_prints_the_context_of_the_step_that_was_asked_for(
    variables: dict[str, str], session_id: str, options: list[str], found: tuple[int, int]
) -> None:
    """Not of the step with this number in some part of the turn."""
    context = json_of(call(variables, "session", "context", session_id, *options, "--json"))
    assert (context["answer"], context["step"]) == (position_of(*found), found[1])


def test_the_command_says_which_steps_there_are(variables: dict[str, str]) -> None:
    """Of the whole turn."""
    refused = call(variables, "session", "context", "with-runs", "--turn", "1", "--step", "201")
    assert refused.exit_code == ExitStatus.NOT_FOUND
    assert "it has steps 1 to 200" in refused.output


@pytest.mark.parametrize("session_id", SESSIONS)
def test_the_tail_is_turns_and_not_parts(variables: dict[str, str], session_id: str) -> None:
    """Who asks for the last turn sees what was asked in it."""
    printed = call(variables, "session", "messages", session_id, "--tail", "1").stdout
    assert "question 3" in printed
    assert said_on(printed) == all_said(3)
    assert "question 2" not in printed


@pytest.mark.parametrize("session_id", SESSIONS)
def test_a_list_has_a_row_for_each_turn(variables: dict[str, str], session_id: str) -> None:
    """A turn in parts is one turn: its messages and calls are counted together."""
    turns = json_of(call(variables, "session", "turns", session_id, "--json"))["turns"]
    assert [(each["start"], each["stop"]) for each in turns] == [
        (0, MESSAGES),
        (MESSAGES, 2 * MESSAGES),
        (2 * MESSAGES, 3 * MESSAGES),
    ]
    assert [each["text"] for each in turns] == ["question 1", "question 2", "question 3"]
    assert [each["tool_calls"] for each in turns] == [STEPS - 1] * 3
    listed = json_of(call(variables, "session", "turns", session_id, "--limit", "1", "--json"))
    assert [each["text"] for each in listed["turns"]] == ["question 3"]
    assert listed["before"] == 2 * MESSAGES


def test_a_transcript_has_all_of_a_turn(variables: dict[str, str], tmp_path: Path) -> None:
    """It is the file that people keep."""
    file = tmp_path / "s.md"
    written = call(variables, "session", "export", "with-runs", "--format", "md", "--output", str(file))
    assert written.exit_code == 0, written.output
    assert said_on(file.read_text()) == [*all_said(1), *all_said(2), *all_said(3)]
