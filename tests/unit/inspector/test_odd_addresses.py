"""Addresses that nobody's link has: what they ask for is refused, and nothing of ours fails."""

import itertools
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.routing import Route

from helix_temporal.backends import Backends
from helix_temporal.errors import InvalidConfigError
from helix_temporal.inspector import Viewer, create_inspector
from helix_temporal.models.states import CreateSession
from helix_temporal.settings import Settings
from tests.unit.inspector._asking import asking, holding_link

DIGITS = "9" * 5_000


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    """Stores in this process, with one session."""
    made = Backends(Settings())
    assert made.sessions is not None
    await made.sessions.create_session("s1", CreateSession(user_id="jo"))
    yield made
    await made.close()


@pytest.fixture
async def browser(backends: Backends) -> AsyncIterator[httpx.AsyncClient]:
    """A browser on the inspector of these stores."""
    async with holding_link(create_inspector(backends)) as opened:
        yield opened


PAGES = ["/", "/calls", "/waiting", "/open", *(f"/sessions/s1{each}" for each in ("", "/timeline", "/state"))]
NAMES = (
    *("user", "agent", "tag", "meta", "status", "when", "since", "until", "need", "parent", "cursor"),
    *("tool", "session", "failed", "id", "before", "after", "turn", "at", "said"),
)
ODD = (
    "\0",
    "\udcff".encode("utf-8", "surrogatepass").decode("latin-1"),
    DIGITS,
    "-1",
    "%",
    "a=b=\0",
    "\u2028",
)


@pytest.mark.parametrize(("path", "name"), list(itertools.product(PAGES, NAMES)))
async def test_no_value_of_an_address_makes_a_page_fail(
    browser: httpx.AsyncClient, path: str, name: str
) -> None:
    """Scanners and slips send all of these; a log full of our failures hides the real ones."""
    statuses = {value: (await browser.get(path, params={name: value})).status_code for value in ODD}
    assert {value: status for value, status in statuses.items() if status >= 500} == {}


def list_numbered() -> list[str]:
    """Every page whose path has a number, asked for with more digits than Python turns into one."""
    return [
        route.path_format.format(session_id="s1", number=DIGITS, position=DIGITS)
        for route in create_inspector(Backends(Settings())).routes
        if isinstance(route, Route) and {"number", "position"} & route.param_convertors.keys()
    ]


@pytest.mark.parametrize("path", list_numbered(), ids=lambda path: path.partition("99")[0])
async def test_a_number_in_a_path_has_few_digits(browser: httpx.AsyncClient, path: str) -> None:
    """Python refuses to read 5,000 of them."""
    assert (await browser.get(path)).status_code == 404


async def test_a_user_with_a_zero_byte_is_told(browser: httpx.AsyncClient) -> None:
    """No store can hold it: the address is at fault, and the page says which value."""
    answer = await browser.get("/", params={"user": "\0"})
    assert answer.status_code in {200, 400}
    assert "This page failed" not in answer.text


async def test_whoever_asks_for_rights_may_take_too_long(backends: Backends) -> None:
    """A database of rights that is slow is away, and nothing has failed here."""

    async def look_up(request: Request) -> Viewer:
        raise TimeoutError

    async with asking(create_inspector(backends, authorise=look_up)) as browser:
        answer = await browser.get("/")
    assert answer.status_code == 503
    assert "A store does not answer" in answer.text


async def test_a_method_that_no_page_takes_is_not_a_failure_of_the_page(browser: httpx.AsyncClient) -> None:
    """The log has nothing of it, so the page must not send anybody there."""
    answer = await browser.put("/", headers={"Origin": "http://127.0.0.1:8377"})
    assert answer.status_code == 405
    assert "log" not in answer.text
    assert "was not taken" in answer.text


def test_actions_need_a_client(backends: Backends) -> None:
    """An inspector that was to act, and silently only shows, is found out on the day it is needed."""
    with pytest.raises(InvalidConfigError, match="client"):
        create_inspector(backends, actions=True)
