"""Pages that say why another one is not shown."""

from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from helix_temporal.errors import HelixError
from helix_temporal.inspector.access import LocalAccess
from helix_temporal.inspector.defences import FormRefusedError
from helix_temporal.inspector.page_request import PageRequest
from helix_temporal.inspector.pages.frame import show_template
from helix_temporal.inspector.rendering import render_template


class Refusal(NamedTuple):
    """A heading, what it means, and what to do."""

    heading: str
    text: str
    advice: str = ""


_REFUSALS: Final = {
    400: Refusal("This address asks for something that can’t be", "One of its values is not understood."),
    403: Refusal(
        "You may not look here",
        "This page is for those who have been let in.",
        "Log in to the application around this page.",
    ),
    404: Refusal(
        "Not here",
        "There is nothing at this address, or it is not yours to see.",
        "It may have been deleted meanwhile, or its id has another spelling.",
    ),
    429: Refusal(
        "Too many pages are followed",
        "So many conversations are open and in sight that this one can’t be followed as well.",
        "Close some of them, or load this page again later: what is stored is shown all the same.",
    ),
    503: Refusal(
        "A store does not answer",
        "What this page shows lies in a store that can’t be reached just now.",
        "Nothing is lost by that. Try it again in a moment; helix-temporal doctor tells what is away.",
    ),
}
_LINK_LACKED: Final = "Open the link that helix-temporal inspect printed."
_FORM_REFUSED: Final = Refusal(
    "This form was not taken",
    "It was not made for this browser, or its cookie is gone meanwhile; nothing was changed.",
    "Load the page anew, and send the form from there.",
)
_NOT_ALLOWED: Final = Refusal(
    "You may not do this", "You may look here, and this is done by others; nothing was changed."
)
_NOT_TAKEN: Final = Refusal(
    "This request was not taken", "It is not one that the inspector’s own pages send; nothing was changed."
)
_FAILED: Final = Refusal("This page failed", "The server’s log says why.")


async def show_error(
    request: Request,
    page: PageRequest | None,
    status: int,
    error: Exception,
) -> Response:
    """What kept a page from being shown; ``page`` is None for those who may not look."""
    heading, text, advice = choose_words(
        status,
        error,
        let_in=page is not None,
        has_link=isinstance(request.app.state.access, LocalAccess),
    )
    values = {"heading": heading, "text": text, "advice": advice}
    if page is None:
        return HTMLResponse(render_template("refused.html", **values), status)
    return show_template(page, "error.html", status=status, **values)


def choose_words(status: int, error: Exception, *, let_in: bool = True, has_link: bool = False) -> Refusal:
    """The words for a status; our own errors say themselves what was found and what to do.

    Args:
        status: Of the response.
        error: What kept the page from being shown.
        let_in: Who asks may look: a link or a login would not help them.
        has_link: Whoever has the printed link may look; else the application around the page says who.
    """
    if status == 403 and let_in:
        return _FORM_REFUSED if isinstance(error, FormRefusedError) else _NOT_ALLOWED
    if status == 403 and has_link:
        return _REFUSALS[403]._replace(advice=_LINK_LACKED)
    words = _REFUSALS.get(status, _NOT_TAKEN if status < 500 else _FAILED)
    if isinstance(error, HelixError) and status != 500:
        return words._replace(text=str(error))
    return words
