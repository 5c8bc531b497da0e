"""The pages over real stores: each link leads somewhere, and a page stays small whatever it shows."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from decimal import Decimal

import httpx
import pytest

from helix_temporal.client import SessionStores
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.inspector import create_inspector
from helix_temporal.inspector.pages import calls
from helix_temporal.inspector.pages.errors import choose_words
from helix_temporal.models.checkpoints import RunStatus
from helix_temporal.models.states import SessionStatus
from helix_temporal.models.usage import CustomUsageEntry
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.stores.sessions import RowSessions
from tests._sessions import memory_place
from tests.unit.inspector._asking import holding_link
from tests.unit.views._scene import Scene, Writer, answer, call, result, scene_over, user

AWKWARD = ["order-4711/returns", "..", "a b?c#d&e=f;%2F~2f", "日本語 é", "'\"><b onclick=x>"]
MOST_ROWS = 400


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Empty stores in memory."""
    async with memory_place()() as place:
        yield scene_over(place, MemoryUsage())


@pytest.fixture
async def browser(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the inspector of these stores."""
    async with holding_link(create_inspector(scene.stores)) as opened:
        opened.follow_redirects = True
        yield opened


async def write_session(scene: Scene, session_id: str) -> Writer:
    """Two turns, one with a call that worked and one that failed, and a sub-agent's session."""
    writer = await scene.begin(session_id, user_id="jo", title="", tags=("a&b",), metadata={"k": "=v"})
    await writer.turn(user("u1"), answer("a1"))
    run = await writer.start()
    calls = (call(0, what="left"), call(1, what="right"))
    await writer.append(
        user("u2", "look"),
        answer("a2", "so", *calls),
        result("a2", 0, '{"door": "open"}'),
        result("a2", 1, "it was closed", is_error=True),
        answer("a3", "It is open."),
    )
    await writer.end()
    await writer.record_tool_call("a2", run, at=0)
    await writer.record_tool_call("a2", run, at=1, success=False)
    await scene.begin(f"{session_id}>child", parent_session_id=session_id, title="Child")
    return writer


def links_of(page: httpx.Response) -> set[str]:
    """Where a page leads, without anchors."""
    found = re.findall(r'(?:href|action)="([^"#]+)(?:#[^"]*)?"', page.text)
    return {html.unescape(each) for each in found}


async def crawl(browser: httpx.AsyncClient, *starts: str) -> dict[str, int]:
    """Every page that is reached from these, with its status."""
    seen: dict[str, int] = {}
    todo = list(starts)
    while todo:
        path = todo.pop()
        if path not in seen:
            page = await browser.get(path)
            seen[path] = page.status_code
            todo += links_of(page)
    return seen


@pytest.mark.parametrize("session_id", AWKWARD)
async def test_every_link_leads_to_a_page(scene: Scene, browser: httpx.AsyncClient, session_id: str) -> None:
    """Ids are arbitrary text: one with a slash or dots must not lead somewhere else, or nowhere."""
    await write_session(scene, session_id)
    pages = await crawl(browser, "/", "/?user=jo")
    assert {path: status for path, status in pages.items() if status != 200} == {}
    assert sum("/context/" in path for path in pages) >= 3
    assert sum("/turns/" in path for path in pages) >= 2


async def test_a_session_is_opened_by_its_id(scene: Scene, browser: httpx.AsyncClient) -> None:
    """People have ids from logs and tickets."""
    await write_session(scene, "a/b c")
    page = await browser.get("/open", params={"id": " a/b c "})
    assert page.status_code == 200
    assert "It is open." in page.text


async def test_a_failed_call_is_open_and_others_are_folded(scene: Scene, browser: httpx.AsyncClient) -> None:
    """What somebody has to look at stands out; the rest is a line."""
    await write_session(scene, "s1")
    page = await browser.get("/sessions/s1")
    failed = re.findall(r'<details class="call (\w+)" id="(call-\d+-\d+)"( open)?', page.text)
    assert failed == [("done", "call-3-0", ""), ("failed", "call-3-1", " open")]


@pytest.mark.parametrize("path", ["/sessions/s1", "/calls"])
async def test_attempts_of_a_tool_are_told(scene: Scene, browser: httpx.AsyncClient, path: str) -> None:
    """A call that took three attempts and two seconds read "done, 5 ms"."""
    writer = await scene.begin("s1")
    run = await writer.start()
    await writer.append(user("u1"), answer("a1", "", call(0), call(1)), result("a1", 0), result("a1", 1))
    await writer.record_tool_call("a1", run, at=0, attempts=3)
    await writer.record_tool_call("a1", run, at=1)
    await writer.end()
    page = await browser.get(path)
    assert re.findall(r'num">(\d+ attempts?)</span><span class="num" title="(.*?)">5 ms<', page.text) == [
        ("3 attempts", "Of the last attempt")
    ]
    assert '<span class="num">5 ms<' in page.text


async def test_a_failed_call_leads_to_what_the_model_was_given(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """The question that brings people here, in three clicks from the list of sessions."""
    await write_session(scene, "s1")
    first = await browser.get("/?user=jo")
    failed = next(each for each in links_of(first) if "failed=1" in each)
    assert "user=jo" in failed
    calls = await browser.get(failed)
    assert "it was closed" in calls.text
    assert calls.text.count('class="found"') == 1
    context = await browser.get(next(each for each in links_of(calls) if "/context/" in each))
    assert "What the model was given" in context.text


async def test_calls_of_one_session_are_those_alone(scene: Scene, browser: httpx.AsyncClient) -> None:
    """The link "1 failed" of a session."""
    await write_session(scene, "s1")
    await write_session(scene, "s2")
    page = await browser.get("/calls", params={"session": "s2", "failed": "1"})
    assert page.text.count('class="found"') == 1
    assert 'href="/sessions/s2?turn=2#call-3-1"' in page.text


async def test_a_turn_of_many_messages_is_a_small_page(scene: Scene, browser: httpx.AsyncClient) -> None:
    """A browser shows it at once, and says that there is more."""
    writer = await scene.begin("s1")
    for number in range(30):
        asked = [call(at) for at in range(20)]
        results = [result(f"a{number}", at) for at in range(20)]
        await writer.append(user(f"u{number}"), answer(f"a{number}", "", *asked), *results)
    page = await browser.get("/sessions/s1")
    rows = page.text.count("<article") + page.text.count('<details class="call')
    assert 100 < rows <= MOST_ROWS
    assert "before=" in page.text


async def test_a_long_text_is_cut_and_the_whole_is_a_click_away(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """One message of a megabyte must not be the whole page."""
    writer = await scene.begin("s1")
    await writer.turn(user("u1"), answer("a1", "long " * 100_000 + "end"))
    page = await browser.get("/sessions/s1")
    assert len(page.text) < 50_000
    whole = await browser.get("/sessions/s1/messages/1")
    assert "long end" in whole.text


@pytest.mark.parametrize("depth", [65, 600, 900, 5000, 50_000])
async def test_deep_json_is_a_small_page(scene: Scene, browser: httpx.AsyncClient, depth: int) -> None:
    """Each level of it was a line, each further to the right: a text of 8 kB was a page of 1.6 MB."""
    deep = '{"a":' * depth + "1" + "}" * depth
    writer = await scene.begin("s1")
    await writer.turn(user("u1"), answer("a1", "so", call(0)), result("a1", 0, deep), answer("a2"))
    for path in ("/sessions/s1", "/sessions/s1/turns/1", "/calls?session=s1"):
        page = await browser.get(path)
        assert page.status_code == 200
        assert "{&#34;a&#34;:{&#34;a&#34;:" in page.text
        assert len(page.text) < 40_000 + 30 * depth


async def test_the_newest_page_is_followed_and_older_ones_are_not(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """What comes belongs behind the newest turn, and nowhere else."""
    writer = await scene.begin("s1")
    for number in range(25):
        await writer.turn(user(f"u{number}"), answer(f"a{number}"))
    newest = await browser.get("/sessions/s1")
    older = await browser.get("/sessions/s1?before=10")
    assert "/live?shown=50" in html.unescape(newest.text)
    assert "/live" not in older.text
    assert "Go to the newest turn" in older.text


async def test_an_aborted_attempt_stands_in_its_turn(scene: Scene, browser: httpx.AsyncClient) -> None:
    """It was paid for, and it explains what people saw for a moment."""
    writer = await scene.begin("s1")
    await writer.start()
    await writer.end(RunStatus.ABORTED)
    await writer.turn(user("u1"), answer("a1"))
    page = await browser.get("/sessions/s1")
    assert "Discarded attempt" in page.text
    assert (await browser.get("/sessions/s1/timeline")).text.count("discarded") >= 1


async def test_a_failed_call_of_an_aborted_turn_leads_to_what_is_known_of_it(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """Turns that fail are aborted: these are the calls that people come for."""
    writer = await scene.begin("s1")
    await writer.turn(user("u1"), answer("a1"))
    run = await writer.start()
    await writer.record_tool_call("a2", run, success=False)
    await writer.end(RunStatus.ABORTED)
    calls = await browser.get("/calls", params={"session": "s1", "failed": "1"})
    assert calls.text.count('class="found"') == 1
    pages = await crawl(browser, "/calls?session=s1&failed=1")
    assert {path: status for path, status in pages.items() if status != 200} == {}
    (link,) = re.findall(r'href="([^"]+)#attempt-2"', calls.text)
    page = await browser.get(html.unescape(link))
    assert "Turn 2 is in the thread no more" in page.text
    assert page.text.count('id="attempt-2" open') == 1


async def test_a_turn_that_was_taken_back_is_told_from_each_link_to_it(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """The timeline has all runs, and each leads to something; a number that never was does not."""
    writer = await scene.begin("s1")
    await writer.turn(user("u1"), answer("a1"))
    await writer.turn(user("u2"), answer("a2"))
    await writer.turn(user("u3"), answer("a3"))
    await writer.rewind(2, "a1")
    pages = await crawl(browser, "/sessions/s1/timeline", "/sessions/s1/turns/2", "/sessions/s1/turns/3")
    assert {path: status for path, status in pages.items() if status != 200} == {}
    assert 'id="attempt-3" open' in (await browser.get("/sessions/s1/turns/3")).text
    assert (await browser.get("/sessions/s1/turns/4")).status_code == 404


async def test_what_a_filter_does_not_understand_is_told(scene: Scene, browser: httpx.AsyncClient) -> None:
    """A list that silently shows more than was asked for misleads."""
    await write_session(scene, "s1")
    page = await browser.get("/?status=lost&user=jo")
    assert "is not one of active" in html.unescape(page.text)
    assert "/sessions/s1" in page.text


async def test_without_a_session_store_a_session_is_opened_by_its_id(scene: Scene) -> None:
    """Workers may keep threads alone: then nobody can list sessions, and the first page says so."""
    await (await scene.begin("s1")).turn(user("u1"), answer("a1", "hi there"))
    stores = SessionStores(threads=scene.threads, usage=scene.stores.usage)
    async with holding_link(create_inspector(stores)) as browser:
        first = await browser.get("/")
        assert first.status_code == 200
        assert "name a session by its id" in first.text
        assert "hi there" in (await browser.get("/sessions/s1")).text


@pytest.mark.parametrize(
    ("path", "status"),
    [("?before=x", 400), ("?after=1e3", 400), ("?turn=99", 404), ("/turns/99", 404), ("/messages/99", 404)],
)
async def test_a_place_that_is_not_there_is_told(
    scene: Scene, browser: httpx.AsyncClient, path: str, status: int
) -> None:
    """An old link gives a page that says so, not a trace."""
    await write_session(scene, "s1")
    page = await browser.get(f"/sessions/s1{path}")
    assert page.status_code == status
    assert "All sessions" in page.text


@pytest.mark.parametrize("path", ["/sessions/s", "/sessions/s/usage"])
async def test_what_a_model_does_not_report_is_not_told_as_nothing(
    scene: Scene, browser: httpx.AsyncClient, path: str
) -> None:
    """A model of one's own that reports no usage: beside its answers stood "Model calls 0" and "Tokens 0"."""
    await write_session(scene, "s")
    state = await scene.sessions.load_state("s")
    assert state is not None
    await scene.sessions.save_state("s", state.model_copy(update={"step_count": 3}))
    page = re.sub(r"<[^>]*>", " ", (await browser.get(path)).text)
    assert re.search(r"Model calls\s+–|–\s+model calls", page)
    assert re.search(r"Tokens\s+–|–\s+tokens", page)


async def test_a_session_that_is_not_there_is_told(browser: httpx.AsyncClient) -> None:
    """Deleted while its page was open, or a slip in its id."""
    page = await browser.get("/sessions/gone")
    assert page.status_code == 404
    assert "session &#39;gone&#39; is not there" in page.text
    assert "no worker has begun it yet" in page.text


async def test_a_tag_with_a_comma_is_found_and_another_one_can_be_added(
    scene: Scene, browser: httpx.AsyncClient
) -> None:
    """As by the command; the comma was taken for the end of the tag, and no session matched."""
    await scene.begin("s", tags=("c,d", "e"))
    await scene.begin("other", tags=("c", "d"))
    page = (await browser.get("/?tag=c%2Cd")).text
    assert "/sessions/s" in page
    assert "/sessions/other" not in page
    assert re.findall(r'<input name="tag" value="([^"]*)"', page) == ["c,d", ""]
    page = (await browser.get("/?tag=c%2Cd&tag=e")).text
    assert "/sessions/s" in page
    assert re.search(r'href="/calls\?[^"]*tag=c%2Cd&amp;tag=e', page)
    assert "/sessions/s" not in (await browser.get("/?tag=c%2Cd&tag=f")).text


async def test_an_amount_of_ones_own_is_told_with_its_key(scene: Scene, browser: httpx.AsyncClient) -> None:
    """The name of the tool that recorded it stood below "Unit"."""
    await scene.begin("s")
    fee = CustomUsageEntry(
        id="fee", session_id="s", timestamp=1, metric="fee", key="pay", amount=Decimal("0.02"), unit="USD"
    )
    await scene.stores.usage.record_entry(fee)
    page = (await browser.get("/sessions/s/usage")).text
    assert '<th scope="col">Key</th>' in page
    assert '<td data-label="Key">pay</td>' in page


async def test_a_store_that_hangs_is_not_told_as_no_call(
    scene: Scene, browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores give up after five seconds, and the page after four: "No such call" was a lie."""

    async def hang(store: object, query: object) -> None:
        await asyncio.Event().wait()

    await write_session(scene, "s1")
    monkeypatch.setattr(calls, "SECONDS", 0.1)
    monkeypatch.setattr(RowSessions, "list_sessions", hang)
    page = await browser.get("/calls?failed=1")
    assert page.status_code == 200
    assert "a store does not answer" in page.text
    assert "No such call" not in page.text


async def test_whoever_decides_sees_for_which_session(scene: Scene, browser: httpx.AsyncClient) -> None:
    """Two refunds with one title: the page had no id, and money was approved without knowing for whom."""
    for name in ("order-4711", "order-4712"):
        await scene.begin(name, user_id=f"user-of-{name}", title="Refund", agent_type="cashier")
        await scene.sessions.update_status(name, SessionStatus.PAUSED)
    cards = (await browser.get("/waiting")).text.split('<section class="card"')[1:]
    assert len(cards) == 2
    for name in ("order-4711", "order-4712"):
        (card,) = [each for each in cards if f">{name}</a>" in each]
        assert "Refund</a>" in card
        assert f"user-of-{name}" in card
        assert "agent <strong>cashier" in card


async def test_without_an_archive_nothing_is_behind(scene: Scene, browser: httpx.AsyncClient) -> None:
    """The page said "8 not archived yet" in orange, and had a legend "Archive"."""
    await write_session(scene, "s")
    page = (await browser.get("/sessions/s/storage")).text
    assert "not archived yet" not in page
    assert 'class="hot"' not in page
    assert "swatch hot" not in page
    assert "There is no archive" in page
    assert "Verify now" not in page


@pytest.mark.parametrize("path", ["/?since=soon", "/calls?since=soon"])
async def test_a_date_that_is_none_is_all_that_is_told(browser: httpx.AsyncClient, path: str) -> None:
    """Below the error the page said "No session matches", as if the filter had been understood."""
    page = (await browser.get(path)).text
    assert "since: " in page
    assert "Take something out of the filter" not in page


def test_a_search_whose_time_runs_out_says_how_far_it_came() -> None:
    """Whoever reads it knows whether a narrower filter would help, and that nothing is not none."""
    assert "through 1\u202f200 sessions; older ones" in calls.describe_stop(1200, found=False)
    assert "not through all of one session" in calls.describe_stop(0, found=True)


def test_a_store_that_is_away_is_named() -> None:
    """Whoever is on call reads which, and that nothing is lost."""
    words = choose_words(503, StoreUnavailableError("s3: no answer from the bucket in 5 s"))
    assert "s3" in words.text
    assert "Nothing is lost" in words.advice


def test_an_error_of_ours_says_nothing_on_the_page() -> None:
    """What went wrong inside is for the log: it may have texts of others in it."""
    assert "secret" not in "".join(choose_words(500, ValueError("secret")))
