"""A viewer's rights: what they may not see is as if it were not there, on every page."""

import html
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.inspector import ACTIONS, Viewer, create_inspector
from helix_temporal.models.states import CreateSession, PendingClientToolCall, SessionStatus
from helix_temporal.settings import Settings
from helix_temporal.stores.memory.streams import MemoryStreams
from helix_temporal.views.filters import SessionFilter
from tests.unit._web import streams_alone
from tests.unit.inspector._asking import ORIGIN, asking

SECRET = "xyzzy"
"""Stands in everything of the sessions that the viewer may not see."""


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """Jo's session with a sub-agent's of another tenant, and somebody else's session."""
    made = Backends(Settings())
    assert made.sessions is not None
    for session_id, options in {
        "jo-1": CreateSession(user_id="jo", title="Mine", metadata={"tenant": "a"}),
        f"child-{SECRET}": CreateSession(
            user_id=SECRET, title=SECRET, metadata={"tenant": "b"}, parent_session_id="jo-1"
        ),
        f"ann-{SECRET}": CreateSession(
            user_id=SECRET, title=SECRET, metadata={"tenant": "b"}, tags=(SECRET,)
        ),
    }.items():
        await made.sessions.create_session(session_id, options)
    yield made
    await made.close()


def only_tenant_a(request: Request) -> Viewer:
    """Sees jo's session alone, and may do everything with it."""
    return Viewer(reads=SessionFilter(metadata={"tenant": "a"}), may=ACTIONS, name="viewer")


def make_app(backends: Backends, authorise: Callable[[Request], Viewer] = only_tenant_a) -> Starlette:
    """With actions, whose client has no server to ask: nothing may get that far."""
    return create_inspector(
        backends, authorise=authorise, client=streams_alone(MemoryStreams()), actions=True
    )


def paths_of(session_id: str, method: str) -> list[str]:
    """Every path of one session's that the application has."""
    app = create_inspector(Backends(Settings()), client=streams_alone(MemoryStreams()), actions=True)
    values = {"session_id": session_id, "number": 1, "position": 0}
    return [
        str(app.url_path_for(route.name, **{name: values[name] for name in route.param_convertors}))
        for route in app.routes
        if isinstance(route, Route)
        and "session_id" in route.param_convertors
        and method in (route.methods or ())
    ]


PAGES_OF_JO = [path for path in paths_of("jo-1", "GET") if not path.endswith("/live")]
"""What is live has no end; test_live watches it."""


def without(text: str, session_id: str) -> str:
    """The page without what differs between two requests for ids of two sessions."""
    return re.sub(r'value="[\w-]{20,}"', "", text).replace(session_id, "")


@pytest.mark.parametrize("path", paths_of(f"ann-{SECRET}", "GET") + paths_of(f"child-{SECRET}", "GET"))
async def test_no_page_of_a_hidden_session_is_there(backends: Backends, path: str) -> None:
    """An application filtered its lists, and left single sessions open: so did others before us."""
    async with asking(make_app(backends)) as browser:
        answer = await browser.get(path)
    assert answer.status_code == 404
    assert "tenant" not in answer.text


async def test_a_hidden_session_looks_like_one_that_is_not_there(backends: Backends) -> None:
    """The difference between the two would tell that it exists."""
    async with asking(make_app(backends)) as browser:
        hidden = await browser.get(f"/sessions/ann-{SECRET}")
        absent = await browser.get("/sessions/ann-absent")
    assert without(hidden.text, f"ann-{SECRET}") == without(absent.text, "ann-absent")


@pytest.mark.parametrize("path", paths_of(f"ann-{SECRET}", "POST"))
async def test_nothing_is_done_to_a_hidden_session(backends: Backends, path: str) -> None:
    """Not even with the rights to act on others, and a form that is in order."""
    async with asking(make_app(backends)) as browser:
        await browser.get("/")
        csrf = browser.cookies["helix_inspector_form"]
        form = {"csrf": csrf, "call_id": "c", "run_id": "r", "decision": "approve", "result": "x"}
        answer = await browser.post(path, data=form, headers={"Origin": ORIGIN})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/", "/?user=xyzzy", "/calls", "/waiting", *PAGES_OF_JO],
)
async def test_no_page_mentions_a_hidden_session(backends: Backends, path: str) -> None:
    """Nor that a session which may be seen has such a sub-agent."""
    async with asking(make_app(backends)) as browser:
        answer = await browser.get(path)
    shown = answer.text.replace("user=xyzzy", "").replace('value="xyzzy"', "")
    assert SECRET not in re.sub(r"<input[^>]*>", "", shown)


async def test_schedules_are_for_those_who_see_everything(backends: Backends) -> None:
    """They tell of the whole deployment, which is nothing that one of its users has to see."""
    async with asking(make_app(backends)) as browser:
        assert (await browser.get("/maintenance")).status_code == 404
        assert "Maintenance" not in (await browser.get("/")).text
    async with asking(create_inspector(backends, authorise=lambda request: Viewer())) as browser:
        assert (await browser.get("/maintenance")).status_code == 200
        assert "Maintenance" in (await browser.get("/")).text


async def test_what_may_be_seen_is_shown(backends: Backends) -> None:
    """Refusing all would pass the tests above."""
    async with asking(make_app(backends)) as browser:
        assert "jo-1" in (await browser.get("/")).text
        assert "Mine" in (await browser.get("/sessions/jo-1")).text


async def test_a_viewer_who_may_only_look_cannot_act(backends: Backends) -> None:
    """Although the inspector lets others act."""
    app = make_app(backends, lambda request: Viewer(name="reader"))
    async with asking(app) as browser:
        await browser.get("/")
        form = {"csrf": browser.cookies["helix_inspector_form"], "run_id": "r"}
        answers = [
            await browser.post(path, data=form, headers={"Origin": ORIGIN})
            for path in paths_of("jo-1", "POST")
        ]
    assert [each.status_code for each in answers] == [403, 403, 403]


@pytest.mark.parametrize("path", ["/sessions/jo-1/approve", "/sessions/jo-1/answer"])
async def test_what_was_decided_on_another_run_decides_nothing(backends: Backends, path: str) -> None:
    """Providers' ids of calls come again: a page of yesterday must not approve the refund of today."""
    assert backends.sessions is not None
    state = await backends.sessions.load_state("jo-1")
    assert state is not None
    call = PendingClientToolCall(tool_call_id="call_0", tool_name="refund", kind="approval", run_id="today")
    waits = state.model_copy(update={"pending_client_tool_calls": {"call_0": call}})
    await backends.sessions.save_state("jo-1", waits)
    async with asking(make_app(backends)) as browser:
        await browser.get("/")
        csrf = browser.cookies["helix_inspector_form"]
        form = {
            "csrf": csrf,
            "call_id": "call_0",
            "decision": "approve",
            "result": "x",
            "run_id": "yesterday",
        }
        answer = await browser.post(path, data=form, headers={"Origin": ORIGIN})
    assert answer.headers["location"] == "/sessions/jo-1?said=not-waiting"


async def test_without_actions_there_is_nothing_to_send_a_form_to(backends: Backends) -> None:
    """Read-only is the default, whatever a viewer may elsewhere."""
    app = create_inspector(backends, authorise=only_tenant_a)
    async with asking(app) as browser:
        await browser.get("/")
        form = {"csrf": browser.cookies["helix_inspector_form"], "run_id": "r"}
        answer = await browser.post("/sessions/jo-1/stop", data=form, headers={"Origin": ORIGIN})
    assert answer.status_code == 404


FORMS = [
    {},
    {"csrf": ""},
    {"csrf": "guessed"},
    {"csrf": "x" * 5000},
]


@pytest.mark.parametrize("form", FORMS)
async def test_a_form_needs_the_value_of_its_browser(backends: Backends, form: dict[str, str]) -> None:
    """Beside the origin, which old browsers and odd proxies leave out."""
    async with asking(make_app(backends)) as browser:
        await browser.get("/")
        answer = await browser.post(
            "/sessions/jo-1/stop", data={**form, "run_id": "r"}, headers={"Origin": ORIGIN}
        )
    assert answer.status_code == 403
    assert "Load the page anew" in answer.text  # a link or a login is not what is missing
    assert "printed" not in answer.text


async def test_a_form_gets_through_whichever_server_behind_a_balancer_it_reaches(backends: Backends) -> None:
    """They listen on ports of their own, which the browser knows nothing of."""
    headers = {"Host": "support.example", "Origin": "https://support.example"}
    async with asking(make_app(backends), headers=headers) as browser:
        await browser.get("http://127.0.0.1:8001/")
        form = {"csrf": browser.cookies["helix_inspector_form"], "call_id": "c", "decision": "approve"}
        answer = await browser.post("http://127.0.0.1:8002/sessions/jo-1/approve", data=form)
    assert answer.status_code == 303


async def test_the_value_of_another_browser_is_refused(backends: Backends) -> None:
    """Whoever has a page of their own must not be able to make a form for somebody else."""
    app = make_app(backends)
    async with asking(app) as mine, asking(app) as yours:
        await mine.get("/")
        await yours.get("/")
        form = {"csrf": mine.cookies["helix_inspector_form"], "run_id": "r"}
        answer = await yours.post("/sessions/jo-1/stop", data=form, headers={"Origin": ORIGIN})
    assert answer.status_code == 403


async def test_bodies_that_are_no_forms_are_refused(backends: Backends) -> None:
    """JSON, files, megabytes: each with its own status, before anything is looked up."""
    async with asking(make_app(backends)) as browser:

        async def send(body: bytes, kind: str) -> httpx.Response:
            headers = {"Origin": ORIGIN, "Content-Type": kind}
            return await browser.post("/sessions/jo-1/stop", content=body, headers=headers)

        plain = "application/x-www-form-urlencoded"
        assert (await send(b"{}", "application/json")).status_code == 415
        assert (await send(b"--x", "multipart/form-data; boundary=x")).status_code == 415
        assert (await send(b"a=" + b"x" * 3_000_000, plain)).status_code == 413
        assert (await send(b"\xff\xfe=1", plain)).status_code in {400, 403}
        assert (await send(b"&".join(b"a=1" for _ in range(1000)), plain)).status_code == 400


async def test_nobody_is_let_in_by_an_authorise_that_gives_nothing(backends: Backends) -> None:
    """Another library takes nothing for "allow": whoever forgets a return opens all."""
    async with asking(create_inspector(backends, authorise=lambda request: None)) as browser:
        assert (await browser.get("/")).status_code == 403


async def test_something_else_than_a_viewer_lets_nobody_in(backends: Backends) -> None:
    """``True`` says nothing of what may be seen."""
    async with asking(create_inspector(backends, authorise=lambda request: True)) as browser:  # type: ignore[arg-type,return-value]
        assert (await browser.get("/")).status_code == 403


async def test_an_asynchronous_authorise_is_awaited(backends: Backends) -> None:
    """Rights are often in a database."""

    async def look_up(request: Request) -> Viewer:
        return only_tenant_a(request)

    async with asking(create_inspector(backends, authorise=look_up)) as browser:
        assert (await browser.get("/")).status_code == 200


async def test_a_viewer_of_few_sessions_among_thousands_can_go_on(backends: Backends) -> None:
    """A page looks at some thousands; rights by a function must not end in "No sessions yet"."""
    assert backends.sessions is not None
    for at in range(2_050):
        await backends.sessions.create_session(f"other-{at}", CreateSession(user_id="ann"))
    app = make_app(backends, lambda request: Viewer(reads=lambda session: session.user_id == "jo"))
    async with asking(app) as browser:
        first = (await browser.get("/")).text
        assert "jo-1" not in first
        assert "No sessions yet" not in first
        assert "jo-1" in (await browser.get(next_page_in(first))).text


async def test_waiting_sessions_behind_thousands_of_others_are_found(backends: Backends) -> None:
    """That nobody waits would be believed, also above a link to more."""
    assert backends.sessions is not None
    await backends.sessions.update_status("jo-1", SessionStatus.PAUSED)
    for at in range(2_050):
        options = CreateSession(user_id="ann", status=SessionStatus.PAUSED)
        await backends.sessions.create_session(f"other-{at}", options)
    app = make_app(backends, lambda request: Viewer(reads=lambda session: session.user_id == "jo"))
    async with asking(app) as browser:
        first = (await browser.get("/waiting")).text
        assert "Nobody waits" not in first
        assert "jo-1" in (await browser.get(next_page_in(first))).text


def next_page_in(text: str) -> str:
    """Where a page says that the list goes on."""
    found = re.search(r'rel="next" href="([^"]+)"', text)
    assert found is not None
    return html.unescape(found[1])


async def test_a_stream_is_not_led_to_a_login(backends: Backends) -> None:
    """A page that stayed open till the login ended read that of the login each second, as its stream."""

    def authorise(request: Request) -> Viewer:
        raise HTTPException(303, headers={"Location": "/login"})

    async with asking(create_inspector(backends, authorise=authorise)) as browser:
        page = await browser.get("/sessions/jo-1")
        stream = await browser.get("/sessions/jo-1/live", headers={"Accept": "text/html, text/event-stream"})
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert (stream.status_code, stream.headers.get("location")) == (403, None)


class AsyncAnswer:
    """Would say no of every session, to who awaits it."""

    async def __call__(self, session: object) -> bool:
        """As a filter that must not be async."""
        return False


@pytest.mark.parametrize("reads", [None, {"tenant": "a"}, AsyncAnswer().__call__, AsyncAnswer()])
async def test_rights_that_say_nothing_show_no_session(backends: Backends, reads: Any) -> None:
    """A login that finds no filter, and an async function, must not show everybody everything."""
    app = make_app(backends, lambda request: Viewer(reads=reads))

    async with asking(app) as browser:
        pages = [await browser.get(path) for path in ("/", f"/sessions/ann-{SECRET}")]

    assert [page.status_code for page in pages] == [500, 500]
    assert all(SECRET not in page.text.replace(f"ann-{SECRET}", "") for page in pages)


@pytest.mark.parametrize("may", ["approve", ["approves"]])
def test_actions_that_nobody_knows_are_refused(may: Any) -> None:
    """A misspelt right is an error where it is given, not a form that is missing."""
    with pytest.raises(InvalidConfigError, match=r"Viewer\.may: a set of .*'approve'"):
        Viewer(may=may)


@pytest.mark.parametrize("answer", [True, {"name": "jo"}, Viewer])
async def test_an_answer_that_is_no_viewer_is_refused_and_logged(
    backends: Backends, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Who sees 403 on every page finds the reason in the log."""
    app = make_app(backends, lambda request: answer)

    async with asking(app) as browser:
        page = await browser.get("/")

    assert page.status_code == 403
    assert f"authorise returned {type(answer).__name__} in place of a Viewer" in caplog.text
