"""A conversation that is followed in a browser while it goes on, and acted on from there."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from helix_temporal.agents import ModelRequest, ModelResponse
from helix_temporal.inspector import live, live_looks
from helix_temporal.models.agents import TextDelta
from helix_temporal.models.messages import Message, ToolCall
from helix_temporal.models.states import CreateSession, SessionStatus
from helix_temporal.testing.environment import HelixEnv
from helix_temporal.views import silence
from tests._browser import browser
from tests.integration._inspected import (
    Inspector,
    inspector_behind_proxy,
    inspector_over,
    opened_at,
    served_desk,
    session_path,
)
from tests.unit._web import until
from tests.workflows._desk import Desk, Gate

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def desk() -> Desk:
    """What agents say."""
    return Desk()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(desk: Desk) -> AsyncIterator[HelixEnv]:
    """A worker with stores in memory."""
    async with served_desk(desk) as env:
        yield env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inspector(env: HelixEnv) -> AsyncIterator[Inspector]:
    """An inspector that may act."""
    async with inspector_over(env.backends, client=env.sessions, actions=True) as inspector:
        yield inspector


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """A browser."""
    async with browser() as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: Browser, inspector: Inspector) -> AsyncIterator[Page]:
    """A window into which the printed link was opened; nothing it did was stopped by the policy."""
    async with opened_at(chromium, inspector) as (page, seen):
        yield page
        assert inspector.reports == []
        assert seen.foreign == []
        assert [each for each in seen.complaints if "Failed to load resource" not in each] == []


async def follow(page: Page, inspector: Inspector, session_id: str) -> None:
    """Open a conversation, and wait until it is followed."""
    await page.goto(inspector.address + session_path(inspector.app, session_id))
    await expect(page.locator("#live-status")).to_contain_text("Following")


def speaking(gate: Gate, *pieces: str) -> Callable[[ModelRequest], AsyncIterator[Any]]:
    """Says the first piece, and the others when the gate is opened."""

    async def speak(request: ModelRequest) -> AsyncIterator[Any]:
        yield TextDelta(pieces[0])
        await gate.passing()
        for piece in pieces[1:]:
            yield TextDelta(piece)
        yield ModelResponse("".join(pieces))

    return speak


def saying(text: str) -> Callable[[ModelRequest], AsyncIterator[Any]]:
    """Says it at once."""
    gate = Gate()
    gate.opened.set()
    return speaking(gate, text)


async def begin_session(env: HelixEnv, desk: Desk, session_id: str, turns: int = 1) -> None:
    """A session with so many turns that have ended; the next ones are answered alike."""
    desk.streams[session_id] = saying("Hello.")
    for number in range(1, turns + 1):
        await env.sessions.ask(session_id, f"m{number}", agent="streaming")


async def test_a_turn_is_followed_from_its_first_word_to_the_thread(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """What is written stands on the page at once, and in the end it is what is stored."""
    gate = Gate()
    await begin_session(env, desk, "s1")
    await follow(page, inspector, "s1")
    desk.streams["s1"] = speaking(gate, "Light <b>shines</b>", " at\r\n night", ".")
    asking = asyncio.create_task(env.sessions.ask("s1", "second", agent="streaming"))
    await expect(page.locator("#live-text")).to_have_text("Light <b>shines</b>")
    await expect(page.locator("#session-status")).to_have_text("running")
    await expect(page.locator("#live h2")).to_have_text("Turn 2")
    await expect(page.locator("#live .message.user")).to_have_text("second")
    gate.opened.set()
    await asking
    await expect(page.locator("#live-ended .turn")).to_have_count(1)
    await expect(page.locator("#live-ended")).to_contain_text("second")
    await expect(page.locator("#live-ended")).to_contain_text("shines")
    await expect(page.locator("#live-turn .turn")).to_have_count(0)
    await expect(page.locator("#live-text")).to_have_count(0)
    await expect(page.locator("#live-question .turn")).to_have_count(0)
    await expect(page.locator(".turn")).to_have_count(2)


async def test_a_page_that_stays_open_is_what_a_new_one_would_be(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """Somebody leaves it on a screen for a day: numbers of turns, sums and status must not stay behind."""
    await begin_session(env, desk, "open")
    await follow(page, inspector, "open")
    for number in range(2, 7):
        await env.sessions.ask("open", f"m{number}", agent="streaming")
    await expect(page.locator("#live-ended .turn")).to_have_count(5)
    await expect(page.locator("#session-status")).to_have_text("active")
    await expect(page.locator("#sums dd").first).to_have_text("6")
    again = await page.context.new_page()
    await follow(again, inspector, "open")
    for selector in (".turn", "#sums", "#about dd:not(:has(time))", "#session-status", "#live-status"):
        await expect(page.locator(selector)).to_have_text(await again.locator(selector).all_text_contents())
    await expect(page.locator("main")).not_to_contain_text("running")


async def test_counts_beside_a_conversation_go_on(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """Sub-agents that came since, and turns to go to; what is being typed meanwhile stays."""
    await begin_session(env, desk, "counts", turns=4)
    await follow(page, inspector, "counts")
    await expect(page.locator("#tree-count")).to_have_text("")
    await page.locator("#go-turn").fill("3")
    assert env.backends.sessions is not None
    await env.backends.sessions.create_session("counts>a", CreateSession(parent_session_id="counts"))
    await env.sessions.ask("counts", "m5", agent="streaming")
    await expect(page.locator("#tree-count")).to_have_text("1")
    await expect(page.locator("#go-turn")).to_have_attribute("placeholder", "1–5")
    await expect(page.locator("#go-turn")).to_have_value("3")


async def test_a_silent_turn_is_told(
    env: HelixEnv,
    desk: Desk,
    page: Page,
    inspector: Inspector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker was killed, or a model hangs: a blinking cursor would look like progress."""
    monkeypatch.setattr(silence, "SILENCE", 1)
    gate = Gate()
    desk.streams["silent"] = speaking(gate, "Half", " and half.")
    asking = asyncio.create_task(env.sessions.ask("silent", "go", agent="streaming"))
    await gate.reached.wait()
    await page.goto(inspector.address + session_path(inspector.app, "silent"))
    await expect(page.locator("#live-text")).to_have_text("Half")
    # Told at 1, 2, 4 and 8 seconds and so on, as screen readers read each; between them it is counted.
    told = re.compile(r"nothing has come for more than (1|2|4|8|16) s")
    await expect(page.locator("#live-status")).to_contain_text(told)
    counted = page.locator("#live-status [data-seconds]")
    await expect(counted).to_have_text(re.compile(r"^(?!(1|2|4|8|16|32) s$)\d+ s$"))
    gate.opened.set()
    await asking
    await expect(page.locator("#live-status")).to_contain_text("nothing runs now")


async def test_the_word_that_there_are_no_turns_goes_with_the_first_one(
    env: HelixEnv, page: Page, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood above the turn that it said was not there."""
    monkeypatch.setattr(live_looks, "WHILE_IDLE", 0.3)
    await env.backends.sessions.create_session("empty", CreateSession())
    await follow(page, inspector, "empty")
    await expect(page.get_by_text("No turns yet")).to_be_visible()
    said = [Message(id="u1", role="user", content="hi"), Message(id="a1", role="assistant", content="Hello.")]
    await env.backends.sessions.append_messages("empty", said)
    await expect(page.locator("#live-ended")).to_contain_text("Hello.")
    await expect(page.get_by_text("No turns yet")).to_be_hidden()


async def test_a_page_opened_in_the_middle_shows_what_was_said(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """Somebody sends the link while the model speaks."""
    gate = Gate()
    desk.streams["s2"] = speaking(gate, "Said before.", " Said after.")
    asking = asyncio.create_task(env.sessions.ask("s2", "go", agent="streaming"))
    await gate.reached.wait()
    await follow(page, inspector, "s2")
    await expect(page.locator("#live-text")).to_have_text("Said before.")
    gate.opened.set()
    await asking
    await expect(page.locator("#live-ended")).to_contain_text("Said before. Said after.")


async def test_lost_connections_lose_and_double_nothing(env: HelixEnv, desk: Desk, chromium: Browser) -> None:
    """A train in a tunnel: two turns end meanwhile, and a third goes on."""
    await begin_session(env, desk, "s3")
    async with (
        inspector_behind_proxy(env.backends) as (inspector, proxy),
        opened_at(chromium, inspector) as (page, _),
    ):
        await follow(page, inspector, "s3")
        proxy.refuse()
        for number in (2, 3):
            await env.sessions.ask("s3", f"m{number}", agent="streaming")
        gate = Gate()
        desk.streams["s3"] = speaking(gate, "third begins", " and ends")
        asking = asyncio.create_task(env.sessions.ask("s3", "m4", agent="streaming"))
        await gate.reached.wait()
        proxy.refuse(False)
        await expect(page.locator("#live-text")).to_have_text("third begins")
        gate.opened.set()
        await asking
        await expect(page.locator("#live-ended .turn")).to_have_count(3)
        await expect(page.locator(".turn h2")).to_have_text(["Turn 1", "Turn 2", "Turn 3", "Turn 4"])


UNSEEN = """
Object.defineProperty(Document.prototype, "hidden", { get: () => !window.seen });
window.show = (seen) => { window.seen = seen; document.dispatchEvent(new Event("visibilitychange")); };
"""
"""A tab in the background, until somebody looks at it."""


async def test_pages_opened_in_the_background_take_no_connection(
    env: HelixEnv, desk: Desk, chromium: Browser, inspector: Inspector
) -> None:
    """Eight sessions opened from the list: a browser has six connections, and the seventh page hung."""
    await begin_session(env, desk, "many")
    # The pages of tests before this one are closed; the server hears of it a moment later.
    await until(lambda: inspector.app.state.live.count == 0)
    async with opened_at(chromium, inspector) as (page, _):
        await page.context.add_init_script(UNSEEN)
        address = inspector.address + session_path(inspector.app, "many")
        pages = [await page.context.new_page() for _ in range(8)]
        for each in pages:
            await each.goto(address)
        assert inspector.app.state.live.count == 0
        for each in pages:
            await each.evaluate("show(true)")
            await expect(each.locator("#live-status")).to_contain_text("Following")
            assert inspector.app.state.live.count == 1
            await each.evaluate("show(false)")
            await until(lambda: inspector.app.state.live.count == 0)


async def test_an_address_with_a_broken_anchor_is_followed(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """A link that a chat has cut: what cannot be decoded stopped all scripts of the page."""
    await begin_session(env, desk, "anchor")
    await page.goto(f"{inspector.address}{session_path(inspector.app, 'anchor')}#turn-%E0")
    await expect(page.locator("#live-status")).to_contain_text("Following")


async def test_a_server_that_is_away_is_told_until_it_is_back(
    env: HelixEnv, desk: Desk, chromium: Browser
) -> None:
    """The inspector was ended: a page that says "Following" for an hour is believed."""
    await begin_session(env, desk, "away")
    async with (
        inspector_behind_proxy(env.backends) as (inspector, proxy),
        opened_at(chromium, inspector) as (page, _),
    ):
        await follow(page, inspector, "away")
        proxy.refuse()
        await expect(page.locator("#live-status")).to_contain_text("no answer")
        proxy.refuse(False)
        await expect(page.locator("#live-status")).to_contain_text("Following")


async def test_a_server_that_was_started_anew_says_where_the_link_is(
    env: HelixEnv, desk: Desk, chromium: Browser
) -> None:
    """It has another token, which only its terminal shows: no patience of the page helps."""
    await begin_session(env, desk, "anew")
    async with (
        inspector_over(env.backends) as inspector,
        opened_at(chromium, inspector) as (page, _),
    ):
        await follow(page, inspector, "anew")
        inspector.app.state.access.token, before = "another", inspector.app.state.access.token
        inspector.app.state.live.close()
        await expect(page.locator("#live-status")).to_contain_text("open the link that it printed")
        inspector.app.state.access.token = before
        await expect(page.locator("#live-status")).to_contain_text("Following")


async def test_a_page_that_was_refused_its_stream_gets_it_later(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many pages as a viewer may follow were open: the next one stayed silent for ever."""
    await begin_session(env, desk, "full")
    monkeypatch.setattr(live, "MAX_STREAMS", 0)
    await page.goto(inspector.address + session_path(inspector.app, "full"))
    await expect(page.locator("#live-status")).to_contain_text("too many pages")
    monkeypatch.undo()
    await expect(page.locator("#live-status")).to_contain_text("Following")


async def test_a_deleted_session_is_told(env: HelixEnv, desk: Desk, page: Page, inspector: Inspector) -> None:
    """Instead of a page that waits for ever."""
    await begin_session(env, desk, "s4")
    await follow(page, inspector, "s4")
    await env.sessions.session("s4").delete()
    await expect(page.locator("#live-status")).to_contain_text("deleted")


def asks_for(name: str) -> Callable[[ModelRequest], Any]:
    """Asks for the tool when a user has spoken, and tells what it gave."""

    def script(request: ModelRequest) -> Any:
        if request.messages[-1].role == "user":
            return ModelResponse(tool_calls=(ToolCall(id="c1", name=name, arguments={"what": "disk"}),))
        return f"it gave: {request.messages[-1].text}"

    return script


async def wait_for_call(env: HelixEnv, desk: Desk, session_id: str, name: str) -> None:
    """A turn that waits for somebody."""
    desk.scripts[session_id] = asks_for(name)
    result = await env.sessions.ask(session_id, "go", agent="people")
    assert result.status == "suspended"


async def test_an_approval_is_given_on_the_page(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """Whoever reads what the agent wants to do decides there and then, and sees what comes of it."""
    await wait_for_call(env, desk, "s5", "wipe")
    await follow(page, inspector, "s5")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".notice")).to_contain_text("You approved")
    await expect(page.locator("main")).to_contain_text("it gave: wiped disk")
    await page.reload()
    await expect(page.locator("main")).to_contain_text("it gave: wiped disk")
    await expect(page.locator(".notice")).to_have_count(0)  # it is no news any more


async def test_an_approval_that_comes_live_can_be_denied(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """The form is sent into a page that is open already."""
    await env.sessions.ask("s6", "hello", agent="people")
    await follow(page, inspector, "s6")
    await wait_for_call(env, desk, "s6", "wipe")
    await expect(page.locator("#session-status")).to_contain_text("wait")
    await expect(page.locator(".waits")).to_have_count(1)
    await expect(page.locator(".live-calls")).to_have_count(0)  # the call stands in its turn
    await page.get_by_label("Reason").fill("Not today")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".notice")).to_contain_text("You denied")
    await expect(page.locator("main")).to_contain_text("Not today")


@pytest.mark.parametrize("shown_on", ["conversation", "waiting"])
async def test_enter_in_the_reason_decides_nothing(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector, shown_on: str
) -> None:
    """Who writes why they deny, and presses Enter, must not have approved by it."""
    session_id = f"enter-{shown_on}"
    await wait_for_call(env, desk, session_id, "wipe")
    conversation = session_path(inspector.app, session_id)
    await page.goto(inspector.address + {"conversation": conversation, "waiting": "/waiting"}[shown_on])
    box = page.locator(".waits").filter(has=page.locator(f'form[action^="{conversation}"]'))
    sent: list[str] = []
    page.on("request", lambda each: sent.append(each.method))
    await box.get_by_label("Reason").fill("Not today")
    await box.get_by_label("Reason").press("Enter")
    await box.get_by_role("button", name="Deny").click()
    await expect(page.locator(".notice")).to_contain_text("You denied")
    assert sent.count("POST") == 1
    await expect(page.locator("main")).not_to_contain_text("wiped disk")


async def test_the_second_of_two_tabs_is_told_what_the_first_did(
    env: HelixEnv, desk: Desk, chromium: Browser, inspector: Inspector
) -> None:
    """Two people, one approval: it counts once, and nobody believes that theirs did."""
    await wait_for_call(env, desk, "s7", "wipe")
    address = inspector.address + session_path(inspector.app, "s7")
    async with opened_at(chromium, inspector, java_script_enabled=False) as (first, _):
        second = await first.context.new_page()
        await first.goto(address)
        await second.goto(address)
        await first.get_by_role("button", name="Deny").click()
        await expect(first.locator(".notice")).to_contain_text("You denied")
        await second.get_by_role("button", name="Approve").click()
        await expect(second.locator(".notice")).to_contain_text("denied this call before you")
        await expect(second.locator("main")).not_to_contain_text("wiped disk")


async def test_a_decision_that_is_under_way_says_so(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """Without a worker the answer takes half a minute: a silent button is pressed again."""
    await wait_for_call(env, desk, "slow", "wipe")
    await follow(page, inspector, "slow")
    # Without an answer the browser stays where it is.
    await page.route("**/approve", lambda route: route.fulfill(status=204))
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator(".sent").first).to_contain_text("Waiting for the session")


async def test_a_decision_is_sent_once(env: HelixEnv, desk: Desk, page: Page, inspector: Inspector) -> None:
    """A double click, and another button meanwhile: they were told that somebody was faster."""
    await wait_for_call(env, desk, "twice", "wipe")
    await follow(page, inspector, "twice")
    sent: list[str] = []

    async def note(route: Any) -> None:
        sent.append(route.request.post_data)
        await route.fulfill(status=204)

    await page.route("**/approve", note)
    await page.get_by_role("button", name="Approve").dblclick()
    await page.get_by_role("button", name="Deny").click()
    await expect(page.locator(".sent").first).to_contain_text("Waiting for the session")
    assert len(sent) == 1
    assert "decision=approve" in sent[0]


async def test_a_reason_that_is_being_typed_stays(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from the stores meanwhile must not draw the form anew under somebody's hands."""
    monkeypatch.setattr(live_looks, "AFTER_CHANGE", tuple(each / 2 for each in range(1, 60)))
    await wait_for_call(env, desk, "typing", "wipe")
    await follow(page, inspector, "typing")
    await page.get_by_label("Reason").fill("Not to")
    assert env.backends.sessions is not None
    state = await env.backends.sessions.load_state("typing")
    assert state is not None
    await env.backends.sessions.save_state("typing", state.model_copy(update={"title": "Another title"}))
    await expect(page.locator("h1")).to_have_text("Another title")
    await expect(page.get_by_label("Reason")).to_have_value("Not to")


async def test_a_clients_call_is_answered_on_the_page(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """The client is away, and somebody knows what it would have said."""
    await wait_for_call(env, desk, "s8", "locate")
    await follow(page, inspector, "s8")
    await page.get_by_label("Result").fill('{"city": "Kiel"}')
    await page.get_by_label("Result").press("Enter")  # begins a line, and sends nothing
    await page.get_by_role("button", name="Send result").click()
    await expect(page.locator(".notice")).to_contain_text("sent")
    await expect(page.locator("main")).to_contain_text("Kiel")


async def test_a_turn_is_stopped_from_the_page(
    env: HelixEnv, desk: Desk, page: Page, inspector: Inspector
) -> None:
    """An agent that runs away is stopped by whoever sees it."""
    gate = Gate()
    desk.scripts["s9"] = gate.then()
    asking = asyncio.create_task(env.sessions.ask("s9", "go", agent="main"))
    await gate.reached.wait()
    watching = await page.context.new_page()
    await follow(watching, inspector, "s9")
    await follow(page, inspector, "s9")
    await page.get_by_text("Abort…").click()  # asks first
    await page.get_by_role("button", name="Abort this turn").click()
    await expect(page.locator(".notice")).to_contain_text("stopped")
    await expect(watching.locator("#live-lost")).to_contain_text("Discarded attempt")
    await expect(watching.locator("#live-status")).to_contain_text("nothing runs now")
    await asyncio.wait([asking])
    gate.opened.set()


async def test_a_page_of_a_turn_before_stops_nothing(
    env: HelixEnv, desk: Desk, chromium: Browser, inspector: Inspector
) -> None:
    """A tab of yesterday must not stop today's turn."""
    gate = Gate()
    desk.scripts["s10"] = gate.then()
    asking = asyncio.create_task(env.sessions.ask("s10", "go", agent="main"))
    await gate.reached.wait()
    async with opened_at(chromium, inspector, java_script_enabled=False) as (page, _):
        await page.goto(inspector.address + session_path(inspector.app, "s10"))
        gate.opened.set()
        await asking
        again = Gate()
        desk.scripts["s10"] = again.then()
        asking = asyncio.create_task(env.sessions.ask("s10", "again", agent="main"))
        await again.reached.wait()
        await page.get_by_text("Abort…").click()
        await page.get_by_role("button", name="Abort this turn").click()
        await expect(page.locator(".notice")).to_contain_text("does not run any more")
        again.opened.set()
        assert (await asking).status == "answered"


async def test_a_stop_of_a_session_that_no_workflow_runs_speaks_of_its_turn(
    env: HelixEnv, inspector: Inspector
) -> None:
    """Its row says that a turn waits, and nothing can start it; no call was asked about."""
    assert env.backends.sessions is not None
    await env.backends.sessions.create_session("s11", CreateSession(user_id="jo"))
    await env.backends.sessions.update_status("s11", SessionStatus.PAUSED)
    async with httpx.AsyncClient(follow_redirects=True, timeout=None) as browser:
        await browser.get(inspector.link)
        (csrf,) = [value for name, value in browser.cookies.items() if "form" in name]
        done = await browser.post(
            f"{inspector.address}{session_path(inspector.app, 's11')}/stop",
            data={"csrf": csrf, "run_id": "r1"},
            headers={"Origin": inspector.address},
        )
    assert "This turn does not run any more" in done.text
