"""What an open puts right in the slice: a summary of what is cut, requests that it carries out, options.

A request to take turns back is remembered in the very swap that cuts the thread, so that one whose open
fails is not carried out again.  The session store follows in a second step; until it has, the request
names the checkpoint that is yet to be restored, and whatever open comes next restores it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.activities._step_rules import parse_state
from helix_temporal.activities._suspensions import with_asleep
from helix_temporal.errors import StaleStateError, StoreUnavailableError
from helix_temporal.models._json import canonical
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import OpenHandle, SessionOptions, SliceState
from helix_temporal.models.slices import TakenBack
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.suspensions import Suspension
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

    def options(self, request: OpenSessionInput) -> dict[str, SessionOptions]:
        """Tells the workflow how the session behaves, where that is not what it asked for."""
        found = self.state.options
        if found is None or found == request.options or request.parent is not None:
            return {}
        return {"options": found}

    def lost(self, request: OpenSessionInput) -> dict[str, bool]:
        """Tells the workflow if turns before the one under way were taken back, as it has forgotten."""
        if request.reopen is None:
            return {}
        start, known = request.reopen.turn_start.position, request.known_epoch
        gone = (each.to.position < start and forgotten(each, known) for each in self.found.taken_back)
        return {"taken_back": True} if any(gone) else {}


def forgotten(taken: TakenBack, known: int | None, tried: Collection[str] = ()) -> bool:
    """Whether it was done after the point to which the workflow, whose epoch is ``known``, was reset.

    What the workflow has ``tried`` it remembers, though not under which epoch.
    """
    return known is not None and taken.epoch > known and taken.id not in tried


def asked_for(state: SliceState, header: HotHeader) -> TakenBack | None:
    """The request because of which the thread stands where it does; None if it stands there by itself."""
    newest = state.taken_back[-1] if state.taken_back else None
    at_rest = header.committed == header.head.position
    return newest if newest is not None and at_rest and newest.to == header.head else None


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
        and (each.epoch == header.epoch or not forgotten(each, request.known_epoch, request.tried))
    )
    if taken is not None and all(each.id != taken.id for each in kept):
        taken = taken.model_copy(update={"epoch": header.epoch, "checkpoint": request.checkpoint})
        # Only the newest one is still waiting to be asked.
        older = [each.model_copy(update={"messages": ()}) for each in kept[1 - REMEMBERED :]]
        kept = (*older, taken)
    options = state.options if request.options is None else request.options.over(state.options)
    return state.model_copy(update={"summary": summary, "taken_back": kept, "options": options})


def remembering(request: OpenSessionInput, epoch: int) -> Callable[[bytes, Head, int], bytes] | None:
    """What `OpenThread.rewrites` does to the slice; None where the open takes nothing back."""
    if request.take_back is None:
        return None

    def rewrite(data: bytes, head: Head, born: int) -> bytes:
        stored = parse_state(data)
        wanted = tidy(stored, HotHeader(request.thread_id, epoch, request.owner, head, born=born), request)
        return data if wanted == stored else _encoded(wanted)

    return rewrite


async def tidied(
    threads: ThreadStore,
    request: OpenSessionInput,
    header: HotHeader,
    stored: SliceState,
    asleep: Suspension | None = None,
) -> Tidied:
    """Put the slice right after an open, before anything may follow it; a repeat finds it so.

    ``asleep`` is what the turn waits for that the thread ends with, should it have been kept.

    Raises:
        FencedError: A newer open has the thread.
    """
    unknown = Tidied(stored, header.slice_version, header, stored, saved=request.take_back is not None)
    return await _changed(
        threads, unknown, lambda state: tidy(with_asleep(state, header.head, asleep), header, request)
    )


async def followed(threads: ThreadStore, tidy: Tidied) -> Tidied:
    """The session store has followed the thread: no later open needs to see to that.

    Raises:
        FencedError: A newer open has the thread.
    """
    return await _changed(threads, tidy, _without_checkpoints)


def _without_checkpoints(state: SliceState) -> SliceState:
    if all(each.checkpoint is None for each in state.taken_back):
        return state
    told = tuple(each.model_copy(update={"checkpoint": None}) for each in state.taken_back)
    return state.model_copy(update={"taken_back": told})


async def _changed(threads: ThreadStore, known: Tidied, change: Callable[[SliceState], SliceState]) -> Tidied:
    header, stored, version = known.header, known.state, known.version
    for _ in range(_TRIES):
        wanted = change(stored)
        if wanted == stored:
            return replace(known, state=stored, version=version)
        try:
            version = await threads.save_slice(header.thread_id, header.epoch, _encoded(wanted), version)
        except StaleStateError:
            facts = await threads.facts(header.thread_id)
            stored, version = parse_state(facts.slice), facts.slice_version
        else:
            return replace(known, state=wanted, version=version, saved=True)
    raise StoreUnavailableError(f"thread {header.thread_id!r}: its state kept changing while it was opened")


def _encoded(state: SliceState) -> bytes:
    return canonical(state.model_dump(mode="json", exclude_defaults=True))
