"""What keeps other people and other pages out of the inspector."""

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.inspector.defences import HEADERS, POLICY
from helix_temporal.inspector.server import bind, link_to
from helix_temporal.settings import Settings
from tests.unit.inspector._asking import asking, holding_link

# Files, a page, a page that is not there, a session that is not there, one that is no id at all.
PATHS = ["/static/x/htmx.min.js", "/", "/no-such-page", "/sessions/nobody", "/sessions/~zz"]


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """Stores in this process, with nothing in them."""
    made = Backends(Settings())
    yield made
    await made.close()


@pytest.fixture
def app(backends: Backends) -> Starlette:
    """As the command serves it."""
    return create_inspector(backends)


def let_all_in(request: Request) -> Viewer:
    """An application's rights, where everybody may look."""
    return Viewer()


def check_headers(answer: httpx.Response) -> None:
    """The headers that every answer has."""
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy == dict(POLICY)
    assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "cache-control" in answer.headers


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_has_the_headers(app: Starlette, path: str) -> None:
    """A page of errors shows text of other people as well; one without the policy would be the way in."""
    async with holding_link(app) as browser:
        check_headers(await browser.get(path))


@pytest.mark.parametrize("path", PATHS)
async def test_refusals_have_the_headers(app: Starlette, path: str) -> None:
    """Who is refused can be somebody's browser in somebody else's frame."""
    async with asking(app) as stranger:
        check_headers(await stranger.get(path, headers={"Host": "evil.example"}))
        check_headers(await stranger.post(path))


def test_nothing_is_run_or_fetched_that_is_not_the_inspectors_own() -> None:
    """Loosening the policy is a decision, and needs this line changed."""
    assert POLICY == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
        "img-src": "'self' data:",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }


async def test_an_error_of_ours_is_a_page_without_its_text(backends: Backends) -> None:
    """A traceback or a value in an answer would tell what the viewer may not see."""

    def fail(request: Request) -> Viewer:
        raise RuntimeError("secret-connection-string")

    async with asking(create_inspector(backends, authorise=fail)) as browser:
        answer = await browser.get("/")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    check_headers(answer)


@pytest.mark.parametrize("path", ["/", "/no-such-page", "/sessions/nobody", "/sessions/nobody/live"])
async def test_without_the_token_nothing_is_shown(app: Starlette, path: str) -> None:
    """Other users of the machine reach the port, too; the answer does not tell what is there."""
    async with asking(app) as stranger:
        answer = await stranger.get(path)
    assert answer.status_code in {403, 404}
    assert "nobody" not in answer.text


@pytest.mark.parametrize("token", ["", "x", "\u00e9", "x" * 10_000])
async def test_another_token_is_refused(app: Starlette, token: str) -> None:
    """A guess, an empty one, or text that is not ASCII is refused in the same way."""
    async with asking(app) as stranger:
        answer = await stranger.get("/", params={"token": token})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        cookie = f"helix_inspector_token_8377={token}".encode("latin-1")
        assert (await stranger.get("/", headers={b"cookie": cookie})).status_code == 403


async def test_a_wrong_link_does_not_lock_out_who_has_the_cookie(app: Starlette) -> None:
    """A bookmark with the token of yesterday's inspector, opened in a browser that has today's."""
    async with holding_link(app) as browser:
        answer = await browser.get("/?user=jo&token=of-yesterday")
        assert (answer.status_code, answer.headers["location"]) == (303, "/?user=jo")
        assert (await browser.get("/")).status_code == 200


async def test_the_link_leaves_a_cookie_and_leads_to_the_page_without_the_token(app: Starlette) -> None:
    """The token stays out of the history, of bookmarks and of what is copied from the address bar."""
    async with asking(app) as browser:
        answer = await browser.get(f"/?user=jo&token={app.state.access.token}&tag=a&tag=b")
        assert answer.status_code == 303
        assert answer.headers["location"] == "/?user=jo&tag=a&tag=b"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "path=/" in cookie
        assert (await browser.get("/")).status_code == 200


async def test_the_link_leads_nowhere_else(app: Starlette) -> None:
    """``//evil.example`` as a path is another host to a browser."""
    async with asking(app) as browser:
        answer = await browser.get(f"http://127.0.0.1:8377//evil.example/?token={app.state.access.token}")
    assert not answer.headers.get("location", "/").startswith("//")


async def test_a_cookie_of_another_port_is_not_ours(app: Starlette) -> None:
    """Browsers send cookies to all ports of a host; two inspectors must not throw each other's away."""
    async with asking(app, base="http://127.0.0.1:8378") as browser:
        cookie = f"helix_inspector_token_8377={app.state.access.token}"
        assert (await browser.get("/", headers={"Cookie": cookie})).status_code == 403


async def test_the_token_counts_on_this_machine_alone(app: Starlette) -> None:
    """Mounted by mistake in an application that the world reaches, it stays shut: to link and cookie."""
    cookie = f"helix_inspector_token_8377={app.state.access.token}"
    async with asking(app, client="203.0.113.7") as stranger:
        by_link = await stranger.get(f"/?token={app.state.access.token}")
        by_cookie = await stranger.get("/", headers={"Cookie": cookie})
    assert [by_link.status_code, by_cookie.status_code] == [403, 403]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8377",
        "127.0.0.1.evil.example:8377",
        "localhost.evil.example:8377",
        "127.0.0.1:9999",
        "127.0.0.1",
        "0.0.0.0:8377",
        "",
    ],
)
async def test_a_foreign_name_is_refused(app: Starlette, host: str) -> None:
    """A page whose name leads to 127.0.0.1 by now (DNS rebinding) has no cookie, and is told nothing."""
    async with holding_link(app) as browser:
        answer = await browser.get("/", headers={"Host": host})
    assert answer.status_code == 421
    assert "--allow-host" in answer.text
    assert "hosts=" in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8377", "localhost:8377", "LOCALHOST:8377", "[::1]:8377"])
async def test_this_machines_names_are_answered(app: Starlette, host: str) -> None:
    """Whichever of them somebody types."""
    async with holding_link(app) as browser:
        assert (await browser.get("/", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["a b", "https://inspector.example", "inspector.example/x", "", "a:port"])
def test_a_host_that_no_browser_asks_for_is_refused(backends: Backends, host: str) -> None:
    """It would let nobody in, and each answer would be 421 without a reason."""
    with pytest.raises(InvalidConfigError, match=r"localhost:9000"):
        create_inspector(backends, hosts=[host])


@pytest.mark.parametrize("host", ["inspector.example", "localhost:9000", "[::1]:9000", "my_box"])
def test_a_host_as_browsers_send_it_is_taken(backends: Backends, host: str) -> None:
    """A check that is too strict keeps a tunnel from being used."""
    assert create_inspector(backends, hosts=[host]).routes


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "data:text/html,x", "localhost:8233", "http://", "http://[", "//x"]
)
def test_a_link_to_temporal_that_is_no_address_is_refused(backends: Backends, address: str) -> None:
    """The policy stops its script; a link that does nothing is still a trap."""
    with pytest.raises(InvalidConfigError, match="http://localhost:8233"):
        create_inspector(backends, temporal_ui=address)


async def test_named_hosts_are_the_only_ones(backends: Backends) -> None:
    """Behind a proxy the proxy's name is the one that counts."""
    app = create_inspector(backends, authorise=let_all_in, hosts=["inspector.example"])
    async with asking(app, base="http://inspector.example") as browser:
        assert (await browser.get("/")).status_code == 200
        assert (await browser.get("/", headers={"Host": "127.0.0.1:8377"})).status_code == 421


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:9999"},
    {"Origin": "http://127.0.0.1:8377", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://127.0.0.1:8377", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_is_changed_from_another_page(
    app: Starlette, headers: dict[str, str], method: str
) -> None:
    """A page in another tab can send forms; the browser says where they come from."""
    async with holding_link(app) as browser:
        answer = await browser.request(method, "/sessions/s/approve", headers=headers)
    assert answer.status_code == 403
    assert "Behind a proxy: it must pass on the header Host" in answer.text


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8377", "ftp://127.0.0.1:8377", "127.0.0.1:8377"])
async def test_over_tls_a_page_without_it_is_another(app: Starlette, origin: str) -> None:
    """Whoever can change pages that are not encrypted must not get at those that are."""
    async with holding_link(app, base="https://127.0.0.1:8377") as browser:
        answer = await browser.post("/sessions/s/approve", headers={"Origin": origin})
    assert answer.status_code == 403


OWN = [
    {"Origin": "http://127.0.0.1:8377"},
    {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://127.0.0.1:8377", "Sec-Fetch-Site": "same-origin"},
]


@pytest.mark.parametrize("headers", OWN)
async def test_forms_of_its_own_pages_get_through(app: Starlette, headers: dict[str, str]) -> None:
    """As browsers send them: without a referrer the origin of a form is ``null``."""
    async with holding_link(app) as browser:
        assert (await browser.post("/", headers=headers)).status_code == 405


async def test_methods_that_no_page_uses_are_refused(app: Starlette) -> None:
    """TRACE and the like give an answer of the same kind."""
    async with holding_link(app) as browser:
        answer = await browser.request("PUT", "/", headers={"Origin": "http://127.0.0.1:8377"})
    assert answer.status_code == 405
    check_headers(answer)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_it_listens_on_this_machine_alone(host: str) -> None:
    """Flower had no authentication and listened everywhere: CVE-2022-30034."""
    with pytest.raises(InvalidConfigError, match="this machine alone"):
        bind(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_printed_link_names_the_port_that_was_taken(app: Starlette, host: str) -> None:
    """With port 0 nobody knows it before."""
    with bind(host, 0) as listening:
        link = link_to(app, listening)
        assert f":{listening.getsockname()[1]}/?token={app.state.access.token}" in link


def test_a_port_in_use_is_told(app: Starlette) -> None:
    """With what to do about it, instead of a traceback."""
    with bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(InvalidConfigError, match=rf"port {port}.*--port"):
            bind("127.0.0.1", port)


async def test_mounted_it_keeps_to_its_path(backends: Backends) -> None:
    """In an application, links lead below the mount, and its cookies are sent nowhere else."""
    inspector = create_inspector(backends)
    outer = Starlette(routes=[Mount("/admin/inspector", inspector)])
    async with asking(outer) as browser:
        answer = await browser.get(f"/admin/inspector/?token={inspector.state.access.token}")
        assert answer.headers["location"] == "/admin/inspector/"
        assert "path=/admin/inspector;" in f"{answer.headers['set-cookie'].lower()};"
        page = await browser.get("/admin/inspector/")
        assert page.status_code == 200
        check_headers(page)
        links = httpx.Response(200, text=page.text).text.split('href="')[1:]
        assert all(each.startswith(("/admin/inspector/", "#", "http")) for each in links)


async def test_a_stranger_is_told_what_would_let_them_in(app: Starlette, backends: Backends) -> None:
    """A link that was printed lets nobody into an application that asks who comes."""
    async with asking(app) as browser:
        assert "link that helix-temporal inspect printed" in (await browser.get("/")).text
    async with asking(create_inspector(backends, authorise=lambda request: None)) as browser:
        refused = await browser.get("/")
    assert "Log in to the application" in refused.text
    assert "printed" not in refused.text


async def test_mounted_in_an_application_its_own_names_are_left_to_it(backends: Backends) -> None:
    """It has rights of its own, and may have many names."""
    app = create_inspector(backends, authorise=let_all_in)
    async with asking(app, base="https://tenant-7.example", client="203.0.113.7") as browser:
        assert (await browser.get("/")).status_code == 200
