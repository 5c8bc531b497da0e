"""Pure: whose ids a session may begin under."""

from helix_temporal.models.children import check_own_id, is_child_id
from helix_temporal.models.steps import OpenSessionInput


def as_own(request: OpenSessionInput) -> OpenSessionInput:
    """The request as it may be carried out: under an id that a sub-agent's session may have, only a
    sub-agent's begins; whatever is there goes on, whoever asks for it.

    Raises:
        InvalidIdError: It insists on beginning such a one, or on another thread for it.
    """
    if request.parent is not None or request.reopen is not None or request.mode == "continue":
        return request
    session, thread = is_child_id(request.session_id), is_child_id(request.thread_id)
    if not (session or thread):
        return request
    if request.mode != "auto" or (session and request.thread_id != request.session_id):
        refuse_own(request)
    return request.model_copy(update={"mode": "continue"})


def refuse_own(request: OpenSessionInput) -> None:
    """Raise what such a session is refused with.

    Raises:
        InvalidIdError: Always, for a request that `as_own` does not give back as it is.
    """
    check_own_id(request.session_id)
    check_own_id(request.thread_id, "thread_id")
