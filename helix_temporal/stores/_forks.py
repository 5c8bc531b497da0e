"""Pure: what a fork answered is kept with the thread that it made, so that a repeat answers the same."""

from typing import Final

from pydantic import TypeAdapter, ValidationError

from helix_temporal.errors import ThreadExistsError
from helix_temporal.stores.protocols.threads import ForkedThread, ForkThread

_ANSWER: Final = TypeAdapter(ForkedThread)


def origin_of(forked: ForkedThread) -> str:
    """What the new thread remembers of the fork that makes it."""
    return _ANSWER.dump_json(forked).decode()


def made_as(origin: str) -> ForkedThread | None:
    """The fork that made a thread; None if none did."""
    try:
        return _ANSWER.validate_json(origin)
    except ValidationError:
        return None


def first_answer(request: ForkThread, origin: str) -> ForkedThread:
    """What the first attempt of this very fork answered.

    Raises:
        ThreadExistsError: The thread was made by something else.
    """
    exists = ThreadExistsError(f"thread {request.target_id!r} exists; fork into another id")
    forked = made_as(origin)
    if forked is None:
        raise exists
    wanted = (request.source_id, request.target_id, request.epoch, request.owner)
    if (forked.source_id, forked.thread_id, forked.epoch, forked.owner) != wanted:
        raise exists
    return forked
