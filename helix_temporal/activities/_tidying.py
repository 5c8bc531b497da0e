"""What an open puts right in the slice: a summary of what is cut, and requests that it carries out."""

from dataclasses import dataclass
from typing import Final

from helix_temporal.activities._step_rules import parse_state
from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models._json import canonical
from helix_temporal.models.sessions import OpenHandle, SliceState
from helix_temporal.models.slices import TakenBack
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadStore

REMEMBERED: Final = 8
"""Requests to take turns back that a thread remembers."""
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Tidied:
    """The slice as it is stored now, and its version.

    Attributes:
        found: As the open found it.
        saved: It was, or may have been, by this open: nothing has archived it yet.
    """

    state: SliceState
    version: int
    header: HotHeader
    found: SliceState
    saved: bool

    def handle(self) -> OpenHandle:
        """What the workflow carries of the open thread."""
        return OpenHandle(
            epoch=self.header.epoch,
            head=self.header.head,
            slice_version=self.version,
            **({"archived": False} if self.saved else {}),
        )

    def lost(self, request: OpenSessionInput) -> dict[str, bool]:
        """Tells the workflow if turns before the one under way were taken back, as it has forgotten."""
        if request.reopen is None:
            return {}
        start, known = request.reopen.turn_start.position, request.known_epoch
        gone = (each.to.position < start and forgotten(each, known) for each in self.found.taken_back)
        return {"taken_back": True} if any(gone) else {}


def forgotten(taken: TakenBack, known: int | None) -> bool:
    """Whether it was done after the point to which the workflow, whose epoch is ``known``, was reset."""
    return known is not None and taken.epoch > known


def tidy(state: SliceState, header: HotHeader, request: OpenSessionInput) -> SliceState:
    """The slice of a thread that was opened; no summary may say more than the thread does."""
    at, taken = header.head.position, request.take_back
    summary = state.summary if state.summary and state.summary.upto.position <= at else None
    kept = tuple(
        each
        for each in state.taken_back
        # An attempt of this very open may have recorded its own.  A fork has those of its source, from
        # before it was made.
        if each.epoch >= header.born
        and (each.epoch == header.epoch or not forgotten(each, request.known_epoch))
    )
    if taken is not None and all(each.id != taken.id for each in kept):
        taken = taken.model_copy(update={"epoch": header.epoch})
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
    version, found = header.slice_version, stored
    for _ in range(_TRIES):
        wanted = tidy(stored, header, request)
        if wanted == stored:
            return Tidied(stored, version, header, found, saved=request.take_back is not None)
        data = canonical(wanted.model_dump(mode="json", exclude_defaults=True))
        try:
            version = await threads.save_slice(request.thread_id, header.epoch, data, version)
        except StaleStateError:
            facts = await threads.facts(request.thread_id)
            stored, version = parse_state(facts.slice), facts.slice_version
        else:
            return Tidied(wanted, version, header, found, saved=True)
    raise StoreUnavailableError(f"thread {request.thread_id!r}: its state kept changing while it was opened")
