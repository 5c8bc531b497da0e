"""What an open puts right in the slice: a summary of what is cut, and requests that it carries out."""

from dataclasses import dataclass
from typing import Final

from helix_temporal.activities._step_rules import parse_state
from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models._json import canonical
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.slices import TakenBack
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadStore

REMEMBERED: Final = 8
"""Requests to take turns back that a thread remembers."""
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Tidied:
    """The slice as it is stored now, and its version."""

    state: SliceState
    version: int


def tidy(state: SliceState, position: int, taken: TakenBack | None) -> SliceState:
    """The slice of a thread that ends at ``position``; no summary may say more than the thread does."""
    summary = state.summary if state.summary and state.summary.upto.position <= position else None
    kept = state.taken_back
    if taken is not None and all(each.id != taken.id for each in kept):
        # Only the newest one is still waiting to be asked.
        older = [each.model_copy(update={"messages": ()}) for each in kept[1 - REMEMBERED :]]
        kept = (*older, taken)
    return state.model_copy(update={"summary": summary, "taken_back": kept})


async def tidied(
    threads: ThreadStore, request: OpenSessionInput, header: HotHeader, stored: SliceState
) -> Tidied:
    """Put the slice right after an open, before anything may follow it; a repeat finds it so.

    Raises:
        FencedError: A newer open has the thread.
    """
    version = header.slice_version
    for _ in range(_TRIES):
        wanted = tidy(stored, header.head.position, request.take_back)
        if wanted == stored:
            return Tidied(stored, version)
        data = canonical(wanted.model_dump(mode="json", exclude_defaults=True))
        try:
            version = await threads.save_slice(request.thread_id, header.epoch, data, version)
        except StaleStateError:
            facts = await threads.facts(request.thread_id)
            stored, version = parse_state(facts.slice), facts.slice_version
        else:
            return Tidied(wanted, version)
    raise StoreUnavailableError(f"thread {request.thread_id!r}: its state kept changing while it was opened")
