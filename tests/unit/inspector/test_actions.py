"""What is sent by the forms: refused, answered or told to have come to nothing, each in its own words."""

import json
import logging
from collections.abc import AsyncIterator, Mapping
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from temporalio.client import Client

from helix_temporal.client import SessionClient
from helix_temporal.errors import (
    AgentNotServedError,
    SessionNotFoundError,
    TooLargeError,
    UnknownEncodingError,
)
from helix_temporal.inspector import create_inspector
from helix_temporal.inspector.actions import OUTCOMES, find_call_that_waited, name_error, read_result
from helix_temporal.models.states import PendingClientToolCall, SessionStatus
from helix_temporal.models.waiting import DENIED, INTERRUPTED, NO_ANSWER, WENT_ON
from helix_temporal.stores.memory.usage import MemoryUsage
from helix_temporal.views.models import SessionView
from helix_temporal.views.sessions import SessionViews
from tests._sessions import memory_place
from tests.unit.inspector._asking import ORIGIN, holding_link
from tests.unit.views._scene import Scene, answer, call, result, scene_over, user

WAITING = PendingClientToolCall(tool_call_id="call_0_a1", tool_name="look", kind="approval", run_id="run-1")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A session whose first run waits for leave to run a tool."""
    async with memory_place()() as place:
        scene = scene_over(place, MemoryUsage())
        writer = await scene.begin("s1")
        await writer.start()
        await writer.append(user("u1"), answer("a1", "", call()), commits=False)
        state = await scene.sessions.load_state("s1")
        assert state is not None
        waits = state.model_copy(update={"pending_client_tool_calls": {WAITING.tool_call_id: WAITING}})
        await scene.sessions.save_state("s1", waits)
        yield scene


@pytest.fixture
async def browser(scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on an inspector that may act, and whose Temporal does not answer."""
    temporal = await Client.connect("127.0.0.1:1", lazy=True)
    client = SessionClient(temporal, stores=scene.stores)
    async with holding_link(create_inspector(scene.stores, client=client, actions=True)) as opened:
        await opened.get("/")
        yield opened


async def send(
    browser: httpx.AsyncClient, action: str, form: Mapping[str, str], session_id: str = "s1"
) -> httpx.Response:
    """Send a form as the page does."""
    csrf = browser.cookies["helix_inspector_form_8377"]
    return await browser.post(
        f"/sessions/{session_id}/{action}", data={"csrf": csrf, **form}, headers={"Origin": ORIGIN}
    )


def said(answer: httpx.Response) -> str:
    """The outcome that the page is told."""
    assert answer.status_code == 303, answer.text
    return parse_qs(urlsplit(answer.headers["location"]).query)["said"][0]


async def test_whoever_decides_sees_all_arguments(scene: Scene, browser: httpx.AsyncClient) -> None:
    """The page of all that waits said "options: [2]", beside the field for the answer."""
    waits = WAITING.model_copy(update={"kind": "client", "input": {"options": ["crimson", "azure"]}})
    state = await scene.sessions.load_state("s1")
    assert state is not None
    pending = {waits.tool_call_id: waits}
    await scene.sessions.save_state("s1", state.model_copy(update={"pending_client_tool_calls": pending}))
    await scene.sessions.update_status("s1", SessionStatus.PAUSED)
    page = (await browser.get("/waiting")).text
    assert "crimson" in page
    assert "azure" in page


async def test_an_approval_of_another_run_is_told_before_it_is_sent(browser: httpx.AsyncClient) -> None:
    """A page of yesterday decides on yesterday's call; today's, whose id is the same, is another."""
    form = {"call_id": WAITING.tool_call_id, "decision": "approve"}
    assert said(await send(browser, "approve", {**form, "run_id": "run-0"})) == "not-waiting"
    assert said(await send(browser, "approve", {**form, "run_id": "run-1"})) == "temporal-away"


async def test_a_result_for_a_call_of_another_run_is_told_before_it_is_sent(
    browser: httpx.AsyncClient,
) -> None:
    """As for approvals."""
    form = {"call_id": WAITING.tool_call_id, "result": "x"}
    assert said(await send(browser, "answer", {**form, "run_id": "run-0"})) == "not-waiting"
    assert said(await send(browser, "answer", {**form, "run_id": "run-1"})) == "temporal-away"


async def test_what_an_action_came_to_nothing_by_is_in_the_log(
    browser: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The page says that the log has it; whoever looks there finds who, what, whose and why."""
    caplog.set_level(logging.WARNING, logger="helix_temporal.inspector.actions")
    assert said(await send(browser, "stop", {"run_id": "run-1"})) == "temporal-away"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "stop of session 's1' by viewer 'local'" in record.getMessage()
    assert "client connect" in record.getMessage()


DEEP = "[" * 100_000
CALL = WAITING.tool_call_id
BAD_FORMS = {
    "a reason that is too long": (
        "approve",
        {"call_id": CALL, "decision": "deny", "reason": "x" * 9_000},
    ),
    "a call that is too long": ("approve", {"call_id": "x" * 600, "decision": "approve"}),
    "a result that is nested too deeply": ("answer", {"call_id": CALL, "result": DEEP}),
    "a result that no thread can hold": ("answer", {"call_id": CALL, "result": '{"a": NaN}'}),
    "a result with half a character": ("answer", {"call_id": CALL, "result": '"\\ud800"'}),
    "a result nested deeper than messages": (
        "answer",
        {"call_id": CALL, "result": DEEP[:200] + "]" * 200},
    ),
    "a mode that is none": ("stop", {"run_id": "r", "mode": "pause"}),
    "a call that is missing": ("approve", {"decision": "approve"}),
    "a decision that is none": ("approve", {"call_id": CALL, "decision": "maybe"}),
}


@pytest.mark.parametrize(("action", "form"), BAD_FORMS.values(), ids=BAD_FORMS)
async def test_a_form_that_fits_nothing_is_refused(
    browser: httpx.AsyncClient, action: str, form: dict[str, str]
) -> None:
    """With what is wrong, without what was given, and not as a failure of ours."""
    refused = await send(browser, action, form)
    assert refused.status_code == 400
    assert "This address asks for something" in refused.text
    assert "xxxx" not in refused.text


def test_what_is_not_there_is_told_as_what_was_asked_for() -> None:
    """Whoever stops a turn knows of no call; whoever approves one knows of no turn."""
    gone = SessionNotFoundError("session 's1' has no workflow")
    assert name_error(gone, "stop") == "not-running"
    assert name_error(gone, "approve") == name_error(gone, "answer") == "not-waiting"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (TooLargeError("too large"), "too-large"),
        (TimeoutError(), "no-worker"),
        (AgentNotServedError("nobody"), "refused"),
        (UnknownEncodingError("binary/x"), "no-codec-stop"),
    ],
)
def test_each_error_has_words_on_the_page(error: Exception, name: str) -> None:
    """They are ours alone: an error's own text may quote somebody else's."""
    assert name_error(error, "stop") == name
    assert name in OUTCOMES


def test_an_answer_that_was_not_sent_for_lack_of_a_codec_changed_nothing() -> None:
    """The session is read before it is answered; a stop is sent first, and only its reply is unread."""
    lacks = UnknownEncodingError("binary/x")
    assert name_error(lacks, "approve") == name_error(lacks, "answer") == "no-codec"
    assert "Nothing was changed" in OUTCOMES["no-codec"].text
    assert "create_inspector(client=" in OUTCOMES["no-codec"].text
    assert "Nothing was changed" not in OUTCOMES["no-codec-stop"].text


RESULTS = [
    ("plain", "plain"),
    ("12", "12"),
    ('{"a": 1}', {"a": 1}),
    (" [1]", [1]),
    ('"quoted"', "quoted"),
    ("{not json", "{not json"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "result"), RESULTS)
def test_a_result_is_json_where_it_looks_like_it(text: str, result: object) -> None:
    """People type text; a tool that gives objects gets an object."""
    assert json.dumps(read_result(text)) == json.dumps(result)


ENDS = {
    f"{DENIED} No.": "already-denied",
    NO_ANSWER: "expired",
    INTERRUPTED: "unanswered",
    WENT_ON: "unanswered",
    "The shop is away.": "already",
}


@pytest.mark.parametrize("action", ["approve", "answer"])
@pytest.mark.parametrize(("text", "name"), ENDS.items(), ids=ENDS.values())
async def test_a_call_whose_turn_is_over_is_not_sent(
    scene: Scene, browser: httpx.AsyncClient, action: str, text: str, name: str
) -> None:
    """It would start a session that has ended; and nobody answered a call that was interrupted.

    The Temporal of this inspector does not answer: what is sent comes to nothing.
    """
    writer = await scene.begin("s2")
    await writer.turn(user("u1"), answer("a1", "", call()), result("a1", 0, text, is_error=True))
    form = {"call_id": "call_0_a1", "decision": "approve", "result": "x", "run_id": "run-1"}
    assert said(await send(browser, action, form, "s2")) == name


async def test_a_call_of_which_no_store_tells_is_not_said_to_be_over(
    browser: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session store its thread tells what waits: while that is away, the session did not go on."""
    read_session = SessionViews.get_session

    async def read_in_part(views: SessionViews, session_id: str) -> SessionView:
        found = await read_session(views, session_id)
        return found.model_copy(update={"waiting": (), "problem": "redis: no answer"})

    monkeypatch.setattr(SessionViews, "get_session", read_in_part)
    form = {"call_id": "call_0_gone", "decision": "approve", "run_id": "run-1"}
    assert said(await send(browser, "approve", form)) == "store-away"


async def test_a_call_of_which_nothing_is_left_is_not_sent(browser: httpx.AsyncClient) -> None:
    """Its turn was aborted, and is not in the thread."""
    form = {"call_id": "call_0_gone", "decision": "approve", "run_id": "run-1"}
    assert said(await send(browser, "approve", form)) == "not-waiting"


async def test_calls_with_the_same_id_are_told_apart(scene: Scene) -> None:
    """Some providers give all calls of an answer one id: whoever denied the first did not deny the second."""
    writer = await scene.begin("s2")
    asked = answer("a2", "", call(), call().model_copy(update={"name": "wipe"}), call(1))
    denied = result("a2", 0, f"{DENIED} Not today", is_error=True)
    await writer.turn(user("u2"), asked, denied, result("a2", 1, "wiped"), result("a2", 2))
    turns = (await scene.views.read_turns("s2")).turns
    names = ("call_0_a2", "call_0_a2_1", "call_1_a2", "call_9_a2")
    found = [find_call_that_waited(turns, each) for each in names]
    assert [(each.at, each.status) if each else None for each in found] == [
        (0, "denied"),
        (1, "done"),
        (2, "done"),
        None,
    ]
