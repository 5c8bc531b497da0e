"""A conversation by turns: what stands where, and how much of a large one a page reads."""

from typing import Any

import pytest

from helix_temporal.errors import InvalidRequestError, NotFoundError
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.messages import Message
from helix_temporal.models.stored_messages import Kind, StoredMessage
from helix_temporal.models.turns import encode_messages
from helix_temporal.models.waiting import DENIED
from helix_temporal.stores.protocols.session_rows import RowPage
from helix_temporal.views.models import ConversationPage
from helix_temporal.views.sessions import SessionViews
from helix_temporal.views.thread_parts import MAX_MESSAGES
from tests.unit.views._scene import Scene, Writer, answer, call, places, result, texts, user

MOST_ROWS = 400


def count_rows(page: ConversationPage) -> int:
    """Rows that a page draws: messages and their calls."""
    return sum(len(turn.messages) + sum(len(each.calls) for each in turn.messages) for turn in page.turns)


async def walk_back(views: SessionViews, session_id: str = "s1") -> list[ConversationPage]:
    """All pages, newest first."""
    pages = [await views.read_turns(session_id)]
    while pages[-1].before is not None:
        pages.append(await views.read_turns(session_id, before=pages[-1].before))
    return pages


async def walk_forward(views: SessionViews, session_id: str = "s1") -> list[ConversationPage]:
    """All pages, oldest first."""
    pages = [await views.read_turns(session_id, after=0)]
    while pages[-1].after is not None:
        pages.append(await views.read_turns(session_id, after=pages[-1].after))
    return pages


async def test_turns_have_their_messages_calls_and_runs(scene: Scene) -> None:
    """The page is read as a conversation: a call stands with its result, the run with its turn."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    run = await writer.start()
    await writer.append(
        user("u2", "look"),
        answer("a2", "so", call(0, what="left"), call(1, what="right")),
        result("a2", 1, "a wall", is_error=True),
        result("a2", 0, "a door"),
        answer("a3", "a door"),
    )
    await writer.record_model_call("a2", run)
    await writer.record_tool_call("a2", run, at=0)
    await writer.end()
    page = await scene.views.read_turns("s1")
    assert places(page) == [(1, 0, 2), (2, 2, 7)]
    turn = page.turns[1]
    assert texts(turn) == ["look", "so", "a door"]
    left, right = turn.messages[1].calls
    assert (left.name, left.arguments, left.status, left.result) == (
        "look",
        {"what": "left"},
        "done",
        "a door",
    )
    assert (left.position, left.result_position, left.duration_ms) == (3, 5, 5)
    assert (right.at, right.status, right.error, right.result_position) == (1, "failed", "a wall", 4)
    assert (turn.tool_calls, turn.failed_calls, turn.unfinished) == (2, 1, False)
    assert [each.step for each in turn.messages] == [None, 1, 2]
    (attempt,) = turn.attempts
    assert (attempt.run_id, attempt.status, attempt.kept) == ("run-2", RunStatus.COMPLETED, True)
    assert [each.model for each in attempt.model_calls] == ["m-1"]
    assert (turn.tokens.input, turn.tokens.output) == (10, 2)


async def test_the_same_call_id_in_two_turns_is_two_calls(scene: Scene) -> None:
    """Providers number their calls anew in every answer: a result goes to the call of its own turn."""
    writer = await scene.begin()
    for at in (1, 2):
        await writer.turn(
            user(f"u{at}"), answer(f"a{at}", "", call()), result(f"a{at}", 0, f"r{at}"), answer(f"b{at}")
        )
    page = await scene.views.read_turns("s1")
    assert [turn.messages[1].calls[0].result for turn in page.turns] == ["r1", "r2"]


async def test_a_turn_under_way_is_unfinished_and_its_calls_run(scene: Scene) -> None:
    """Who looks while it works sees what it works on."""
    writer = await scene.begin()
    await writer.start()
    await writer.append(user("u1"), answer("a1", "", call()), commits=False)
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.unfinished
    assert turn.messages[1].calls[0].status == "running"
    await writer.end(RunStatus.FAILED)
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.messages[1].calls[0].status == "unanswered"


async def test_a_run_that_has_stored_nothing_yet_is_not_lost(scene: Scene) -> None:
    """It is under way: who follows the session would read that it was thrown away."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    await writer.start()
    page = await scene.views.read_turns("s1")
    assert (places(page), page.lost) == ([(1, 0, 2)], ())
    with pytest.raises(NotFoundError, match=r"turn 2 .* is under way, and none of its messages"):
        await scene.views.read_turn("s1", 2)
    await writer.end(RunStatus.FAILED)
    assert [each.turn for each in (await scene.views.read_turns("s1")).lost] == [2]


async def test_an_answer_whose_step_was_tried_again_is_told(scene: Scene) -> None:
    """Its tokens were paid; else the sums are those of a conversation that nobody sees."""
    writer = await scene.begin()
    run = await writer.turn(user("u1"), answer("a1"))
    await writer.record_model_call("a1", run)
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert (turn.discarded_answers, turn.tokens.total) == (0, 12)
    await writer.record_model_call("a1-before", run)
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert (turn.discarded_answers, turn.tokens.total) == (1, 24)
    (listed,) = (await scene.views.list_runs("s1")).runs
    assert len(listed.model_calls) == 2


async def test_a_call_that_somebody_denied_has_not_failed(scene: Scene) -> None:
    """A person decided: nothing went wrong that an operator should look at."""
    writer = await scene.begin()
    denied, failed = result("a1", 0, f"{DENIED}: too much", is_error=True), result("a1", 1, is_error=True)
    await writer.turn(user("u1"), answer("a1", "", call(0), call(1)), denied, failed, answer("b1"))
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert [each.status for each in turn.messages[1].calls] == ["denied", "failed"]
    assert (turn.tool_calls, turn.failed_calls) == (2, 1)


async def test_attempts_that_were_thrown_away_stand_at_their_place(scene: Scene) -> None:
    """A turn that was made again says so, with what became of the first attempt."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    await writer.turn(user("u2"), answer("a2"))
    await writer.rewind(2, "a1")
    await writer.start()
    await writer.end(RunStatus.ABORTED)
    await writer.turn(user("u3"), answer("a3"))
    page = await scene.views.read_turns("s1")
    assert places(page) == [(1, 0, 2), (4, 2, 4)]
    assert [(each.turn, each.kept) for each in page.turns[1].attempts] == [(2, False), (3, False), (4, True)]
    assert page.lost == ()


async def replace_turns(scene: Scene) -> None:
    """Three turns, of which the last two were taken back; the fourth was said in their place."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    await writer.turn(user("u2"), answer("a2"))
    await writer.turn(user("u3"), answer("a3"))
    await writer.rewind(2, "a1")
    await writer.turn(user("u4"), answer("a4"))


async def test_attempts_whose_place_is_gone_are_told_as_lost(scene: Scene) -> None:
    """Their tokens were paid: nobody should have to guess where they went."""
    await replace_turns(scene)
    page = await scene.views.read_turns("s1")
    assert places(page) == [(1, 0, 2), (4, 2, 4)]
    assert [each.turn for each in page.turns[1].attempts] == [2, 4]
    assert [(each.turn, each.start, each.kept) for each in page.lost] == [(3, 4, False)]


async def test_pages_meet_without_gap_or_overlap(scene: Scene) -> None:
    """Backward and forward, every turn is on exactly one page."""
    writer = await scene.begin()
    for at in range(45):
        await writer.turn(user(f"u{at}", f"ask {at}"), answer(f"a{at}"))
    expected = [(at + 1, 2 * at, 2 * at + 2) for at in range(45)]
    back = await walk_back(scene.views)
    assert [place for page in reversed(back) for place in places(page)] == expected
    forward = await walk_forward(scene.views)
    assert [place for page in forward for place in places(page)] == expected
    assert (back[0].after, back[-1].before, len(back)) == (None, None, 3)
    first = await scene.views.read_turns("s1", after=10, limit=2)
    assert (places(first), first.before, first.after) == ([(6, 10, 12), (7, 12, 14)], 10, 14)


async def test_an_empty_session_has_an_empty_page(scene: Scene) -> None:
    """It was begun and nobody spoke yet: that is no error."""
    await scene.sessions.create_session("s1")
    page = await scene.views.read_turns("s1")
    assert (page.turns, page.before, page.after, page.head, page.problem) == ((), None, None, 0, None)


@pytest.mark.parametrize(
    "wrong", [{"before": 1, "after": 1}, {"before": -1}, {"after": -5}, {"limit": 0}, {"limit": 21}]
)
async def test_pages_that_cannot_be_are_refused(scene: Scene, wrong: dict[str, int]) -> None:
    """An address that somebody has typed: an answer that says what is wrong."""
    await scene.begin()
    with pytest.raises(InvalidRequestError):
        await scene.views.read_turns("s1", **wrong)


async def test_places_beyond_the_end_have_no_turns(scene: Scene) -> None:
    """A link to a turn that was cut since leads to an empty page."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    page = await scene.views.read_turns("s1", after=99)
    assert (page.turns, page.head, page.before, page.after) == ((), 2, 2, None)


# ---- large ones


async def write_long_session(scene: Scene, *, turns: int, messages: int) -> Writer:
    """A session of so many turns, each of so many messages."""
    writer = await scene.begin()
    for number in range(turns):
        said = [user(f"u{number}", f"ask {number}")]
        said += [answer(f"a{number}-{at}") for at in range(messages - 1)]
        await writer.turn(*said)
    return writer


async def test_no_page_of_a_long_thread_reads_more_than_its_part(memory_scene: Scene) -> None:
    """Of 10⁵ messages a page reads a few hundred, wherever it is."""
    await write_long_session(memory_scene, turns=1_000, messages=100)
    threads = memory_scene.threads
    for wanted in ({}, {"before": 50_000}, {"after": 50_000}, {"after": 0}, {"before": 30}):
        threads.messages_read = 0
        page = await memory_scene.views.read_turns("s1", **wanted)
        assert page.head == 100_000
        assert 0 < sum(len(turn.messages) for turn in page.turns) <= MAX_MESSAGES
        assert count_rows(page) <= MOST_ROWS
        assert threads.messages_read <= 2 * MAX_MESSAGES
    threads.messages_read = 0
    assert await memory_scene.views.find_turn("s1", 500) == 49_900
    assert threads.messages_read <= 2
    page = await memory_scene.views.read_turns("s1", after=49_900, limit=1)
    assert places(page) == [(500, 49_900, 50_000)]


async def test_runs_are_found_without_reading_all(
    memory_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in the middle of thousands of turns reads the runs of its own turns, and a few to find them."""
    await write_long_session(memory_scene, turns=2_000, messages=2)
    asked = list[int]()
    whole = memory_scene.sessions.loop.rows.read_page

    async def read_page(*args: Any, **options: Any) -> RowPage:
        page = await whole(*args, **options)
        asked.append(len(page.rows))
        return page

    monkeypatch.setattr(memory_scene.sessions.loop.rows, "read_page", read_page)
    page = await memory_scene.views.read_turns("s1", before=2_000)
    assert [each.number for each in page.turns] == list(range(981, 1_001))
    assert sum(asked) < 800


@pytest.mark.parametrize("place", [2, 30, 300])
async def test_pages_have_the_right_numbers_after_many_turns_were_taken_back(
    memory_scene: Scene, place: int
) -> None:
    """Old runs began at the same places; those whose messages stand there are shown."""
    writer = await memory_scene.begin()
    for at in range(400):
        await writer.turn(user(f"u{at}"), answer(f"a{at}"))
    await writer.rewind(place, f"a{place // 2 - 1}")
    for at in range(400, 700):
        await writer.turn(user(f"u{at}"), answer(f"a{at}"))
    kept = [*range(1, place // 2 + 1), *range(401, 701)]
    pages = await walk_back(memory_scene.views)
    assert [turn.number for page in reversed(pages) for turn in page.turns] == kept
    forward = await walk_forward(memory_scene.views)
    assert [turn.number for page in forward for turn in page.turns] == kept


async def test_a_turn_longer_than_a_page_is_shown_in_parts(scene: Scene) -> None:
    """An agent that works through the night: its turn is read part by part, none of it twice."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    said = [user("u2")]
    for at in range(400):
        said += [answer(f"b{at}", "", call()), result(f"b{at}", 0, f"r{at}")]
    await writer.turn(*said, answer("end"))
    pages = await walk_back(scene.views)
    assert len(pages) > 2
    assert max(count_rows(page) for page in pages) <= MOST_ROWS
    calls = [
        each.result
        for page in reversed(pages)
        for turn in page.turns
        for message in turn.messages
        for each in message.calls
    ]
    assert calls == [f"r{at}" for at in range(400)]
    assert {turn.number for page in pages for turn in page.turns} == {1, 2}
    forward = await walk_forward(scene.views)
    assert [each.position for page in forward for turn in page.turns for each in turn.messages] == [
        each.position for page in reversed(pages) for turn in page.turns for each in turn.messages
    ]


async def test_a_message_with_thousands_of_calls_does_not_burst_a_page(scene: Scene) -> None:
    """The page says how many it leaves out."""
    writer = await scene.begin()
    calls = [call(at, n=str(at)) for at in range(128)]
    said = [user("u1")]
    for number in range(6):
        said.append(answer(f"a{number}", "", *calls))
        said += [result(f"a{number}", at) for at in range(128)]
    await writer.turn(*said, answer("end"))
    pages = await walk_back(scene.views)
    assert max(count_rows(page) for page in pages) <= MOST_ROWS
    shown = [each for page in pages for turn in page.turns for each in turn.messages]
    assert sum(len(each.calls) + each.calls_left_out for each in shown) == 6 * 128
    whole = await scene.views.read_message("s1", 1)
    assert (len(whole.message.calls), whole.message.calls_left_out) == (128, 0)


async def test_long_texts_are_cut_and_read_whole_by_themselves(scene: Scene) -> None:
    """A message of a megabyte does not come with every page; whoever wants it opens it."""
    writer = await scene.begin()
    await writer.turn(
        user("u1", "x" * 900_000),
        answer("a1", "y" * 5_000, call(what="z" * 9_000)),
        result("a1", 0, "r" * 6_000),
        answer("a2"),
    )
    (turn,) = (await scene.views.read_turns("s1")).turns
    said, asked, _ = turn.messages
    assert (len(said.text), said.cut) == (4_000, 896_000)
    assert (len(asked.text), asked.cut) == (4_000, 1_000)
    assert asked.calls[0].cut >= 7_000
    whole = await scene.views.read_message("s1", 1)
    assert (whole.turn, whole.message.cut, len(whole.message.text)) == (1, 0, 5_000)
    assert whole.message.calls[0].arguments == {"what": "z" * 9_000}
    assert whole.message.calls[0].result == "r" * 6_000
    first = await scene.views.read_message("s1", 0)
    assert len(first.message.text) == 900_000
    (turn,) = (await scene.views.read_turn("s1", 1)).turns
    assert (len(turn.messages[0].text), len(turn.messages[1].text)) == (900_000, 5_000)


async def test_a_message_that_is_not_there_is_said_to_be_missing(scene: Scene) -> None:
    """A link from before the session was rewound."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    with pytest.raises(NotFoundError, match="it ends at 2"):
        await scene.views.read_message("s1", 2)


async def test_one_damaged_message_leaves_the_others_readable(scene: Scene) -> None:
    """What is damaged is told at its place; the conversation around it is there."""
    writer = await scene.begin()
    good = encode_messages([user("u1"), answer("a1")])
    bad = StoredMessage(Kind.ANSWER, "a2", b"\xff{ no message")
    await writer.append_stored((*good, *encode_messages([user("u2")]), bad))
    await writer.turn(user("u3"), answer("a3"))
    page = await scene.views.read_turns("s1")
    damaged = page.turns[1].messages[1]
    assert (damaged.position, damaged.role, damaged.text, damaged.size) == (3, "assistant", "", 13)
    assert damaged.damage is not None
    assert [each.damage for turn in page.turns for each in turn.messages].count(None) == 5
    assert texts(page.turns[2]) == ["hello", "hi"]
    assert (await scene.views.read_message("s1", 3)).message.damage == damaged.damage


# ---- numbers


async def test_turns_are_found_by_the_numbers_of_their_runs(scene: Scene) -> None:
    """A link to a turn stays right while others are taken back around it."""
    await replace_turns(scene)
    views = scene.views
    assert [await views.find_turn("s1", number) for number in (1, 2, 4)] == [0, 2, 2]
    (turn,) = (await views.read_turn("s1", 2)).turns
    assert (turn.number, texts(turn)) == (4, ["hello", "hi"])
    with pytest.raises(NotFoundError, match="in the thread no more"):
        await views.find_turn("s1", 3)
    with pytest.raises(NotFoundError, match="its newest is 4"):
        await views.find_turn("s1", 5)
    with pytest.raises(InvalidRequestError, match="from 1"):
        await views.read_turn("s1", 0)


async def test_turns_without_runs_are_counted(scene: Scene) -> None:
    """An imported conversation has no runs; its turns are numbered all the same."""
    writer = await scene.begin()
    await writer.append(*(each for at in range(1_500) for each in (user(f"u{at}"), answer(f"a{at}"))))
    views = scene.views
    assert [await views.find_turn("s1", number) for number in (1, 2, 1_001, 1_500)] == [0, 2, 2_000, 2_998]
    assert places(await views.read_turn("s1", 1_001)) == [(1_001, 2_000, 2_002)]
    assert places(await views.read_turns("s1", after=0, limit=2)) == [(1, 0, 2), (2, 2, 4)]
    with pytest.raises(NotFoundError, match="there are 1500"):
        await views.find_turn("s1", 1_501)


async def test_images_are_named_without_their_bytes(scene: Scene) -> None:
    """A page of a conversation with photographs stays small."""
    writer = await scene.begin()
    image: Any = {"type": "image", "media_type": "image/png", "data": "QUJD" * 1_000}
    said = Message(id="u1", role="user", content=[{"type": "text", "text": "see"}, image])
    await writer.turn(said, answer("a1"))
    (turn,) = (await scene.views.read_turns("s1")).turns
    assert turn.messages[0].text == "see"
    assert turn.messages[0].parts == ({"type": "image", "media_type": "image/png", "bytes": 3_000},)
    assert (await scene.views.read_message("s1", 0)).message.parts == (image,)


async def test_what_is_large_beside_the_text_is_cut_as_well(scene: Scene) -> None:
    """A picture as an address that holds its bytes, or metadata of an application that keeps all there."""
    writer = await scene.begin()
    address = "data:image/png;base64," + "QUJD" * 10_000
    image: Any = {"type": "image", "media_type": "image/png", "url": address}
    metadata: Any = {"trace": "t" * 50_000}
    await writer.turn(Message(id="u1", role="user", content=[image], metadata=metadata), answer("a1"))
    (turn,) = (await scene.views.read_turns("s1")).turns
    said = turn.messages[0]
    assert len(said.model_dump_json()) < 12_000
    assert said.cut > 80_000
    whole = (await scene.views.read_message("s1", 0)).message
    assert (whole.parts, whole.metadata, whole.cut) == ((image,), metadata, 0)


async def test_of_a_long_session_a_page_reads_the_usage_of_its_own_messages(scene: Scene) -> None:
    """Of 10⁵ model calls it takes those that it shows, and the attempts that were aborted at its place."""
    writer = await scene.begin()
    for at in range(3):
        run = await writer.start()
        asked = (user(f"u{at}"), answer(f"a{at}", "", call()), result(f"a{at}"), answer(f"b{at}"))
        await writer.append(*asked)
        await writer.record_model_call(f"a{at}", run)
        await writer.record_tool_call(f"a{at}", run)
        await writer.record_model_call("elsewhere", run)
        await writer.end()
    run = await writer.start()
    await writer.record_model_call("thrown away", run)
    await writer.end(RunStatus.ABORTED)
    state = await scene.views.load_state("s1")
    await scene.sessions.save_state("s1", state.model_copy(update={"step_count": 100_000}))
    page = await scene.views.read_turns("s1", after=4, limit=2)
    assert [turn.tokens.input for turn in page.turns] == [10, 10]
    assert [turn.messages[1].calls[0].duration_ms for turn in page.turns] == [5, 5]
    (aborted,) = page.lost
    assert [each.tokens.input for each in aborted.model_calls] == [10]
    assert page.problem is None


async def test_of_a_turn_that_is_tried_for_ever_the_newest_attempts_are_shown(memory_scene: Scene) -> None:
    """An application that asks again in a loop does not burst the page."""
    writer = await memory_scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    for _ in range(250):
        await writer.start()
        await writer.end(RunStatus.ABORTED)
    page = await memory_scene.views.read_turns("s1")
    assert [each.turn for each in page.lost] == list(range(232, 252))
    await writer.turn(user("u2"), answer("a2"))
    page = await memory_scene.views.read_turns("s1")
    assert places(page) == [(1, 0, 2), (252, 2, 4)]
    assert [each.turn for each in page.turns[1].attempts] == list(range(233, 253))
    assert page.lost == ()
