"""Each guard of the protocol, removed from the real code: what it protects from must then be seen."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from helix_temporal.activities import sessions, steps
from helix_temporal.activities._runtime import as_reopen
from helix_temporal.blobs import ConditionFailedError
from helix_temporal.coldtier import KeepHot, TieredThreads, liveness, opening, plan, store
from helix_temporal.coldtier.archive import Archive
from helix_temporal.coldtier.format import Manifest
from helix_temporal.coldtier.opening import Opening
from helix_temporal.errors import FencedError, HelixError
from helix_temporal.models.sessions import ReopenHeads
from helix_temporal.models.stored_messages import Head, size_of
from helix_temporal.stores.memory.threads import MemoryThreads
from helix_temporal.stores.protocols.hot import Appended, HotHeader, HotSnapshot, StepAppend, StepView
from helix_temporal.stores.protocols.threads import FlushReceipt, FlushThread, OpenThread, Reopen
from helix_temporal.stores.threads import opening as threads_opening
from helix_temporal.stores.threads import operations, standing_step
from helix_temporal.stores.threads.fences import Fence
from helix_temporal.stores.threads.opening import OpenPlace, OpenPlaces
from helix_temporal.stores.threads.operations import HotThread
from helix_temporal.workflows import opening as session_opening
from helix_temporal.workflows.opening import CurrentThread
from tests.simulation._run import Verdict, simulate
from tests.simulation._worker import Shop
from tests.simulation._world import Rates


@contextmanager
def _all(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


@contextmanager
def fence(shop: Shop) -> Iterator[None]:
    """Who was replaced may write on, in the hot thread and in the archive."""
    find_refusal = Fence.find_refusal

    def not_the_replaced(self: Fence, epoch: int, *, closing: bool = False) -> HelixError | None:
        return None if self.epoch > epoch else find_refusal(self, epoch, closing=closing)

    with patch.object(Fence, "find_refusal", not_the_replaced):
        yield


@contextmanager
def fence_of_the_older(shop: Shop) -> Iterator[None]:
    """A hot thread or a manifest that is older than the writer's open takes its writes."""
    find_refusal = Fence.find_refusal

    def not_older(self: Fence, epoch: int, *, closing: bool = False) -> HelixError | None:
        return None if self.epoch < epoch else find_refusal(self, epoch, closing=closing)

    with patch.object(Fence, "find_refusal", not_older):
        yield


@contextmanager
def fence_of_the_ended(shop: Shop) -> Iterator[None]:
    """Who has closed its epoch may write on under it."""
    find_refusal = Fence.find_refusal

    def never_over(self: Fence, epoch: int, *, closing: bool = False) -> HelixError | None:
        return find_refusal(self, epoch, closing=True)

    with patch.object(Fence, "find_refusal", never_over):
        yield


@contextmanager
def fence_for_opens(shop: Shop) -> Iterator[None]:
    """An open that comes late takes the thread back from the one that came before it."""
    is_repeated_open = Fence.is_repeated_open

    def whoever_comes(self: Fence, request: OpenThread) -> bool:
        return is_repeated_open(self, request) if self.epoch == request.epoch else False

    with patch.object(Fence, "is_repeated_open", whoever_comes):
        yield


@contextmanager
def fence_for_copies(shop: Shop) -> Iterator[None]:
    """A copy, a drop or a deletion of an older epoch takes the place of a newer one's record."""
    with patch.object(Fence, "check_not_replaced", lambda *_: None):
        yield


@contextmanager
def compare_and_swap(shop: Shop) -> Iterator[None]:
    """The manifest is put whatever is there."""
    with patch.object(shop.blobs, "is_conditional", new=False):
        yield


@contextmanager
def first_answer(shop: Shop) -> Iterator[None]:
    """The last answer wins: a later attempt replaces the step that stands."""
    append = MemoryThreads.append

    async def overwriting(self: MemoryThreads, step: StepAppend) -> Appended | None:
        thread = self._find_thread(step.thread_id)
        at = step.head.position
        if thread is not None and thread.header.epoch == step.epoch and at < thread.header.head.position:
            stored = thread.messages_from(at)
            known = thread.id_before(at) == step.head.last_id
            if known and standing_step.is_same_step(step, stored[: len(step.messages)]):
                header = thread.header
                kept = thread.messages[: at - header.base.position]
                header = replace(
                    header,
                    head=step.head,
                    committed=min(header.committed, at),
                    size=header.size - size_of(stored),
                )
                self._threads[step.thread_id] = HotThread(header, kept)
                step = replace(step, slice_version=header.slice_version)
        return await append(self, step)

    def never_standing(view: StepView, head: Head, input_ids: object) -> None:
        return None

    with _all(
        patch.object(MemoryThreads, "append", overwriting),
        patch.object(steps, "find_standing_step", never_standing),
    ):
        yield


@contextmanager
def last_id(shop: Shop) -> Iterator[None]:
    """A head is a position alone: whatever message comes before it."""
    append, standing = MemoryThreads.append, standing_step.find_standing_step

    async def trusting(self: MemoryThreads, step: StepAppend) -> Appended | None:
        thread = self._find_thread(step.thread_id)
        if thread is not None:
            known = thread.id_before(step.head.position)
            if known is not None:
                step = replace(step, head=Head(position=step.head.position, last_id=known))
        return await append(self, step)

    def standing_there(view: StepView, head: Head, input_ids: Any) -> Any:
        if view.last_id_at_head is not None:
            view = replace(view, last_id_at_head=head.last_id)
        return standing(view, head, input_ids)

    with _all(
        patch.object(MemoryThreads, "append", trusting),
        patch.object(steps, "find_standing_step", standing_there),
    ):
        yield


@contextmanager
def cut_at_open(shop: Shop) -> Iterator[None]:
    """An open keeps what lies beyond the last finished turn, or beyond what the workflow knows."""

    async def no_cut(self: OpenPlaces) -> OpenPlace:
        return OpenPlace(self.thread.head, self.thread.head)

    with patch.object(OpenPlaces, "find_place", no_cut):
        yield


@contextmanager
def hot_continues(shop: Shop) -> Iterator[None]:
    """Whatever is hot is believed, the archive's own messages or not."""

    def believing(hot: HotSnapshot | None, archive: Manifest) -> bool:
        return hot is not None and not hot.header.deleted

    with _all(
        patch.object(liveness, "continues_archive", believing),
        patch.object(plan, "continues_archive", believing),
        patch.object(opening, "continues_archive", believing),
    ):
        yield


@contextmanager
def read_back(shop: Shop) -> Iterator[None]:
    """A refused swap is taken for one's own success, sent twice."""
    commit = Archive.commit_plan

    async def believing(self: Archive, *arguments: Any, **named: Any) -> None:
        try:
            await commit(self, *arguments, **named)
        except ConditionFailedError:
            return

    with patch.object(Archive, "commit_plan", believing):
        yield


@contextmanager
def read_back_of_success(shop: Shop) -> Iterator[None]:
    """A refused swap is taken for somebody else's: the caller is told that it was fenced."""
    commit = Archive.commit_plan

    async def giving_up(self: Archive, *arguments: Any, **named: Any) -> None:
        try:
            await commit(self, *arguments, **named)
        except ConditionFailedError as error:
            raise FencedError("somebody else's swap came first", owner="unknown") from error

    with patch.object(Archive, "commit_plan", giving_up):
        yield


@contextmanager
def generation(shop: Shop) -> Iterator[None]:
    """Garbage collection leaves the generation as it is: new objects may have the names of old ones."""
    following = Manifest.make_next

    def same_generation(self: Manifest, nonce: str, **changes: Any) -> Manifest:
        changes.pop("gen", None)
        return following(self, nonce, **changes)

    with patch.object(Manifest, "make_next", same_generation):
        yield


@contextmanager
def owner_check(shop: Shop) -> Iterator[None]:
    """A re-open cuts what another execution wrote."""
    with patch.object(Fence, "check_same_owner", lambda *_: None):
        yield


@contextmanager
def closed(shop: Shop) -> Iterator[None]:
    """A finaliser leaves its epoch open for late attempts."""
    flush = TieredThreads.flush

    async def leaving_open(self: TieredThreads, request: FlushThread, *arguments: Any) -> FlushReceipt:
        return await flush(self, replace(request, closes=False), *arguments)

    with patch.object(TieredThreads, "flush", leaving_open):
        yield


@contextmanager
def evict_compare(shop: Shop) -> Iterator[None]:
    """A hot thread is dropped whether or not all of it is archived."""
    with patch.object(operations, "archived_all", lambda header, epoch, archived: header.epoch == epoch):
        yield


@contextmanager
def fence_before_swap(shop: Shop) -> Iterator[None]:
    """An open swaps the manifest while the old epoch may still be acknowledged in the hot tier."""

    async def no_fence(self: Opening, *looked_at: object) -> bool:
        return True

    with patch.object(Opening, "_fence_old_epoch", no_fence):
        yield


@contextmanager
def kept_step(shop: Shop) -> Iterator[None]:
    """A re-open cuts the step under way although it stands."""
    with patch.object(threads_opening, "count_kept_messages", lambda *_: 0):
        yield


@contextmanager
def committed_stays(shop: Shop) -> Iterator[None]:
    """A re-open cuts at the head that its workflow knows, though more is committed."""
    reopened = OpenPlaces.find_reopen_place

    async def at_known(self: OpenPlaces, reopen: Reopen) -> OpenPlace:
        if reopen.known_head is not None and await self.holds(reopen.known_head):
            return OpenPlace(await self.find_end_of_step(reopen, reopen.known_head), reopen.known_head)
        return await reopened(self, reopen)

    with patch.object(OpenPlaces, "find_reopen_place", at_known):
        yield


@contextmanager
def window_since_reset(shop: Shop) -> Iterator[None]:
    """A message counts as sent again among the newest ones alone, however far back the reset went."""
    with patch.object(steps, "_dedup_window", lambda request: vars(steps)["DEDUP_WINDOW"]):
        yield


@contextmanager
def whole_step(shop: Shop) -> Iterator[None]:
    """A step that begins with these messages and goes on with another one is taken for theirs."""
    standing = standing_step.find_standing_step

    def beginning(view: StepView, head: Head, input_ids: Any) -> Any:
        step = view.after[: len(input_ids) + 1]
        begins = [message.id for message in step[:-1]] == list(input_ids)
        return step if begins and len(step) > len(input_ids) else standing(view, head, input_ids)

    with patch.object(steps, "find_standing_step", beginning):
        yield


@contextmanager
def asked_archive(shop: Shop) -> Iterator[None]:
    """A step that the hot thread lacks is made, or given up, whatever the archive has of it."""

    async def nothing(self: TieredThreads, thread_id: str, epoch: int, head: Head) -> None:
        return

    with patch.object(TieredThreads, "confirm_head", nothing):
        yield


@contextmanager
def kept_turn(shop: Shop) -> Iterator[None]:
    """An open cuts a turn that waits for somebody, as any other that has not ended."""

    async def nothing(self: OpenPlaces) -> None:
        return

    with patch.object(OpenPlaces, "find_kept_head", nothing):
        yield


@contextmanager
def settled_open(shop: Shop) -> Iterator[None]:
    """A session ends under the epoch that it knows, though an open of it may still land."""
    remembered = session_opening.remember_if_unclear

    @contextmanager
    def forgotten(thread: CurrentThread, heads: ReopenHeads) -> Iterator[None]:
        try:
            with remembered(thread, heads):
                yield
        finally:
            thread.unsettled = None

    with patch.object(session_opening, "remember_if_unclear", forgotten):
        yield


@contextmanager
def trim_of_archived(shop: Shop) -> Iterator[None]:
    """An open thread forgets its oldest messages, archived or not."""

    def place(view: StepView, head: Head, archived: object, keep_hot: KeepHot) -> int:
        return head.position - keep_hot.messages

    def trimmed_base(header: HotHeader, _: object, epoch: int, archived: object, keep_from: int) -> int:
        mine = header.epoch == epoch and not header.closed
        return max(header.base.position, keep_from) if mine else header.base.position

    with _all(
        patch.object(store, "keep_from", place), patch.object(operations, "trimmed_base", trimmed_base)
    ):
        yield


@contextmanager
def own_epoch(shop: Shop) -> Iterator[None]:
    """A run that was reset goes on under the epoch of the run before it."""
    with patch.object(CurrentThread, "opened_by_another_run", new=False):
        yield


@contextmanager
def reset_cuts_nothing(shop: Shop) -> Iterator[None]:
    """A run that was reset cuts what it does not know, as one does that has lost steps."""

    def forgetting(heads: ReopenHeads | None) -> Reopen | None:
        known = as_reopen(heads)
        return None if known is None else replace(known, reset=False)

    with patch.object(sessions, "as_reopen", forgetting):
        yield


@contextmanager
def catches_up(shop: Shop) -> Iterator[None]:
    """Only the first open after a reset cuts nothing."""
    with patch.object(CurrentThread, "catches_up", new=property(lambda _: False, lambda *_: None)):
        yield


@dataclass(frozen=True)
class Guard:
    """A guard that can be removed.

    Attributes:
        within: Seeds among which its absence is seen, by a wide margin.
        known: One of them that showed it, looked at first; another protocol may need another one.
        rates: Surroundings in which it matters.
        exit_mode: As for `simulate`.
    """

    remove: Callable[[Shop], Any]
    within: int
    rates: Rates = field(default_factory=Rates)
    exit_mode: bool | None = False
    known: int = 0


_FINISHING = Rates(cancel=0.5, zombie=0.25)
_COLLECTING = Rates(beside=0.9, beside_kinds=("collect",), slow=0.08, zombie=0.2)
_TAKEN_OVER = Rates(terminate=0.5, late_open=1.0, skew=0.8)
_UNARCHIVED = Rates(outage=0.03)
_FORGETTING = Rates(wipe=0.02, snapshot=0.1, zombie=0.25, completion_lost=0.2, beside=0)
_RESETTING = Rates(reset=0.25, reset_older=0, rewind=0.01, terminate=0.05, cancel=0.05, end=0.03, beside=0)
_WAITING = Rates(
    reset=0.25, reset_older=0, rewind=0.01, terminate=0.05, cancel=0.05, end=0.03, beside=0, zombie=0.25,
    wipe=0.02, snapshot=0.1,
)  # fmt: skip
_REOPENING = Rates(
    cancel=0.85, snapshot=0.3, wipe=0.02, zombie=0.4, slow=0.06, late_script=0.1, beside=0, outage=0,
    reset=0, reset_older=0, terminate=0.02, end=0.02, rewind=0.02,
)  # fmt: skip

GUARDS = {
    each.remove.__name__: each
    for each in (
        Guard(fence, 200, known=59),
        Guard(fence_of_the_older, 5000, _FORGETTING, known=320),
        Guard(fence_of_the_ended, 1000, _FINISHING, known=19),
        Guard(fence_for_opens, 3000, _TAKEN_OVER, known=5),
        Guard(fence_for_copies, 1000, _TAKEN_OVER, exit_mode=True, known=2),
        Guard(compare_and_swap, 200, known=10),
        Guard(first_answer, 50, known=0),
        Guard(last_id, 3000, _FORGETTING, known=1200),
        Guard(cut_at_open, 50, known=1),
        Guard(hot_continues, 50, known=3),
        Guard(read_back, 1000, known=2),
        Guard(read_back_of_success, 1000, known=69),
        Guard(generation, 5000, _COLLECTING, known=22),
        Guard(owner_check, 200, known=26),
        Guard(closed, 1000, _FINISHING, known=1),
        Guard(evict_compare, 200, known=41),
        Guard(fence_before_swap, 3000, _TAKEN_OVER, exit_mode=True, known=432),
        Guard(kept_step, 1000, known=293),
        Guard(kept_turn, 100, known=14),
        Guard(committed_stays, 100, known=8),
        Guard(window_since_reset, 3000, _RESETTING, known=86),
        Guard(whole_step, 5000, _RESETTING, known=7909),
        Guard(asked_archive, 100, _FORGETTING, known=4),
        Guard(settled_open, 5000, _REOPENING, known=221),
        Guard(trim_of_archived, 1000, _UNARCHIVED, known=271),
        Guard(own_epoch, 5000, _WAITING, known=10),
        Guard(reset_cuts_nothing, 5000, _WAITING, known=707),
        Guard(catches_up, 5000, _WAITING, known=707),
    )
}


def first_caught(guard: Guard, seeds: Iterable[int]) -> Verdict | None:
    """The first of these seeds in which users see that the guard is missing."""
    verdicts = (
        simulate(seed, exit_mode=guard.exit_mode, rates=guard.rates, strict=False, broken=guard.remove)
        for seed in seeds
    )
    return next((verdict for verdict in verdicts if verdict.why), None)
