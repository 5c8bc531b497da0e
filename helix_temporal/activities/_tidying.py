"""What an open puts right in the slice: a summary of what is cut, requests that it carries out, options.

A request to take turns back is remembered in the very swap that cuts the thread, so that one whose open
fails is not carried out again.  The session store follows in a second step; until it has, the request
names the checkpoint that is yet to be restored, and whatever open comes next restores it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from helix_temporal.activities._suspensions import with_asleep
from helix_temporal.activities.slice_store import StoredSlice, encode_state, parse_state, update_slice
from helix_temporal.models.records import Head
from helix_temporal.models.sessions import OpenHandle, ReopenHeads, SessionOptions, SliceState
from helix_temporal.models.slices import TakenBack
from helix_temporal.models.steps import OpenSessionInput
from helix_temporal.models.waiting import Suspension
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadStore

REMEMBERED: Final = 8
"""Requests to take turns back that a thread remembers."""
CUT_REMEMBERED: Final = 128
"""Messages that were taken back and that a thread remembers, each by 12 letters."""


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

    def handle(self, at: Head | None = None) -> OpenHandle:
        """What the workflow carries of the open thread; it goes on ``at`` this head."""
        return OpenHandle(
            epoch=self.header.epoch,
            head=at or self.header.head,
            slice_version=self.version,
            **({"archived": False} if self.saved else {}),
        )

    def options(self, request: OpenSessionInput) -> dict[str, SessionOptions]:
        """Tells the workflow how the session behaves, where that is not what it asked for."""
        found = self.state.options
        if found is None or found == request.options or request.parent is not None:
            return {}
        return {"options": found}

    def reset(self, request: OpenSessionInput, at: Head) -> dict[str, bool]:
        """Tells the workflow of finished turns, and of turns taken back, that it does not know of."""
        heads = request.reopen
        if heads is None:
            return {}
        ahead = at != heads.known and at.position > heads.turn_start.position
        back = any(is_unknown(each, request.known_epoch) for each in self.found.taken_back)
        return {"reset": True} if ahead or back else {}


def is_unknown(taken: TakenBack, known: int | None) -> bool:
    """Whether it was done after the open that the workflow knows of, whose epoch is ``known``.

    The workflow was reset to before it, or that open failed and took effect all the same.
    """
    return known is not None and taken.epoch > known


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
        # A fork has those of its source, from before it was made.
        if each.epoch >= header.born
    )
    if taken is not None and all(each.id != taken.id for each in kept):
        taken = taken.model_copy(update={"epoch": header.epoch, "checkpoint": request.checkpoint})
        # Only the newest one is still waiting to be asked.
        older = [each.model_copy(update={"messages": ()}) for each in kept[1 - REMEMBERED :]]
        kept = _with_few_ids((*older, taken))
    options = state.options if request.options is None else request.options.over(state.options)
    return state.model_copy(update={"summary": summary, "taken_back": kept, "options": options})


def _with_few_ids(taken: tuple[TakenBack, ...]) -> tuple[TakenBack, ...]:
    """The same requests with the ids of the newest messages: all of this is written with each step."""
    room, fewer = CUT_REMEMBERED, list[TakenBack]()
    for each in reversed(taken):
        kept = each.cut[max(len(each.cut) - room, 0) :] if room else ()
        fewer.append(each if kept == each.cut else each.model_copy(update={"cut": kept}))
        room -= len(kept)
    return tuple(reversed(fewer))


async def unless_carried_out(threads: ThreadStore, request: OpenSessionInput, epoch: int) -> OpenSessionInput:
    """The request to open; as a re-open where the turns that it takes back were taken back before.

    The workflow was reset to between its plan and the open that followed, or that open failed and took effect
    all the same: what was finished since stays.
    """
    taken = request.take_back
    if taken is None or request.rewind_to is None:
        return request
    known = parse_state((await threads.facts(request.thread_id)).slice).taken_back
    if all(each.id != taken.id or each.epoch >= epoch for each in known):
        return request
    asked = tuple(each.id for each in taken.messages)
    heads = ReopenHeads(known=request.rewind_to, turn_start=request.rewind_to, inputs=asked)
    return request.model_copy(
        update={"reopen": heads, "rewind_to": None, "take_back": None, "checkpoint": None}
    )


def remembering(request: OpenSessionInput, epoch: int) -> Callable[[bytes, Head, int], bytes] | None:
    """What `OpenThread.rewrites` does to the slice; None where the open takes nothing back."""
    if request.take_back is None:
        return None

    def rewrite(data: bytes, head: Head, born: int) -> bytes:
        stored = parse_state(data)
        wanted = tidy(stored, HotHeader(request.thread_id, epoch, request.owner, head, born=born), request)
        return data if wanted == stored else encode_state(wanted)

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
    header = known.header
    before = StoredSlice(known.state, known.version, header.head)
    after = await update_slice(
        threads,
        header.thread_id,
        header.epoch,
        lambda stored: change(stored.state),
        "it was opened",
        known=before,
    )
    saved = known.saved or after.saved
    return replace(known, state=after.state, version=after.version, saved=saved)
