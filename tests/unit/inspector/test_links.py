"""Paths of pages: ids are any text."""

import pytest
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from helix_temporal.inspector.page_request import IdConvertor, PageLinks

IDS = [
    "plain-id_7",
    "a/b",
    "..",
    ".",
    "a b",
    "a%2Fb",
    "~2f",
    "#?&=+",
    "ünï/çødé",
    "\u202eevil",
    "👩\u200d💻",
    '"><script>',
    "javascript:alert(1)",
    "-dash",
    "x" * 256,
]


@pytest.mark.parametrize("session_id", IDS)
def test_any_id_comes_back_from_its_path(session_id: str) -> None:
    """Proxies decode ``%2F``, browsers take ``..`` away, and an id may be either."""
    convertor = IdConvertor()
    segment = convertor.to_string(session_id)
    assert set(segment) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~")
    assert convertor.convert(segment) == session_id


@pytest.mark.parametrize("segment", ["~", "~zz", "~2", "a~ff", "~c3~28"])
def test_what_is_no_ids_form_is_not_found(segment: str) -> None:
    """A link that somebody cut off."""
    with pytest.raises(HTTPException) as raised:
        IdConvertor().convert(segment)
    assert raised.value.status_code == 404


def test_links_stand_below_the_mount_and_leave_out_what_is_none() -> None:
    """Templates give all filters, set or not."""
    router = Router([Route("/sessions/{session_id:helix_id}", lambda _: None, name="conversation")])
    links = PageLinks(router, "/admin")
    assert links.link("conversation", {"a": None, "b": ["x", "ä"]}, session_id="a/b") == (
        "/admin/sessions/a~2fb?b=x&b=%C3%A4"
    )
