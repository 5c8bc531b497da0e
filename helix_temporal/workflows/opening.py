"""How a workflow opens a thread, opens it again, and what it knows of it then."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from helix_temporal.errors import FencedError, HelixError
from helix_temporal.models.agents import AgentFacts
from helix_temporal.models.base import only_set
from helix_temporal.models.sessions import ArchiveLag, Carried, OpenHandle, Receipt, ReopenHeads, ResetPoint
from helix_temporal.models.states import TracingContext
from helix_temporal.models.steps import OpenSessionInput, OpenSessionResult, RunStepResult
from helix_temporal.models.stored_messages import Head
from helix_temporal.models.threads import FlushThreadResult
from helix_temporal.workflows.calls import Calls, OpenedDespiteCancel

OPEN_TRIES: Final = 5
"""Opens that meet another epoch before a session gives up: clocks of servers differ a little."""
OPEN_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Positions of messages that were acknowledged, and that no store has any more."""

    start: int
    stop: int

    def build_receipt(self) -> Receipt:
        """The receipt that reports it."""
        return Receipt(name="lost", ok=False, detail=f"lost: {self.start}..{self.stop - 1}")


@dataclass(slots=True)
class CurrentThread:
    """An open thread as the workflow knows it; outlives turns, changed only here.

    Attributes:
        tried: Requests to take turns back whose open failed, and may all the same have cut the thread.
        unsettled: An open ended without an answer, and an attempt of it may still land and cut the thread.
            So the thread is opened again here before anything else is done.
        archives: There is a cold tier.
        lag: How far it is behind.
        losses: Messages that were acknowledged and are gone, as an open found; not told yet.
        now: Milliseconds since 1970.
        tracing_context: Of the session's caller.
        since: The oldest place from which it has gone on after a reset, while messages may be applied again.
        seed: Of the workflow's random numbers: the server gives a run another one when it resets it.
        seed_before: The same when the thread was opened; None: another run opened it.
        catches_up: The workflow was reset, and the thread has steps of the turn that it has not come to yet.
    """

    request: OpenSessionInput
    handle: OpenHandle
    facts: AgentFacts
    backlog: int = 0
    reopened: int = 0
    turns_run_again: int = 0
    repairs: int = 0
    tried: tuple[str, ...] = ()
    unsettled: ReopenHeads | None = None
    archives: bool = True
    lag: ArchiveLag | None = None
    losses: tuple[Loss, ...] = ()
    now: Callable[[], int] = int
    since: ResetPoint | None = None
    tracing_context: TracingContext | None = None
    seed: Callable[[], int] = int
    seed_before: int | None = 0
    catches_up: bool = False

    @classmethod
    def of(
        cls, request: OpenSessionInput, carried: Carried, now: Callable[[], int], seed: Callable[[], int]
    ) -> "CurrentThread":
        """The thread as the run before has left it."""
        return cls(
            request,
            carried.handle,
            carried.facts,
            tried=carried.tried,
            unsettled=carried.unsettled,
            archives=carried.policy.archives,
            lag=carried.lag,
            now=now,
            since=carried.since,
            tracing_context=carried.tracing_context,
            seed=seed,
            seed_before=None,
        )

    def carry_over(self) -> dict[str, Any]:
        """The fields of `Carried` that say where the thread is."""
        return only_set(
            handle=self.handle,
            facts=self.facts,
            tried=self.tried or None,
            unsettled=self.unsettled,
            lag=self.lag,
            since=self.since,
            tracing_context=self.tracing_context,
        )

    @property
    def opened_by_another_run(self) -> bool:
        """Another run has opened the thread: this one was reset, or continues it as new, or both.

        What that run left under way has the same epoch, and what it did after the reset is not known here.
        """
        return self.seed() != self.seed_before

    @property
    def to_open_first(self) -> ReopenHeads | None:
        """At which heads to open before the session ends; None where its own open holds."""
        if self.unsettled is None and self.opened_by_another_run:
            return ReopenHeads(head=self.head, turn_start=self.head)
        return self.unsettled

    def note_opened(self, handle: OpenHandle, seed: int) -> None:
        """Note that the thread was opened under a new epoch: no earlier open is in doubt any more.

        ``seed`` is that of when it was asked to be opened: a reset may have come meanwhile.
        """
        self.handle, self.tried, self.unsettled, self.lag = handle, (), None, None
        self.seed_before = seed

    def move_to(self, head: Head) -> None:
        """Go on from this head: steps that stand behind it are found there."""
        self.handle = self.handle.model_copy(update={"head": head})

    def note_reopened(self, heads: ReopenHeads, opened: OpenSessionResult, seed: int) -> None:
        """Note that the thread was opened again; finished turns that are gone are lost, except by a reset."""
        self.note_opened(opened.handle, seed)
        first, end = opened.handle.head.position, heads.turn_start.position
        # Only the beginning of a turn that this execution has finished may be left.  The open then tells of a
        # turn under way, as it does to a workflow that was reset and knows less than the thread.
        is_reset = opened.reset and (self.catches_up or not opened.under_way)
        if first < end and not is_reset:
            self.losses = (*self.losses, Loss(first, end))

    def note_flushed(self, result: FlushThreadResult) -> None:
        """Note the result of a flush."""
        archived = result.status != "unavailable"
        self.handle = self.handle.model_copy(update={"archived": archived})
        if archived:
            self.lag = None

    def note_flush_failed(self, error: str) -> None:
        """Note why a flush failed."""
        if self.lag is not None:
            self.lag = self.lag.model_copy(update={"error": error})

    def note_reset_point(self, position: int, epoch: int) -> None:
        """Remember the oldest place, and epoch, from which a reset workflow went on elsewhere."""
        since = self.since or ResetPoint(position=position, epoch=epoch)
        self.since = ResetPoint(position=min(since.position, position), epoch=min(since.epoch, epoch))

    def check_settled(self) -> None:
        """Refuse to go on under an epoch that does not hold for certain.

        An open that ended without an answer may still replace it; and if another run opened the thread, its
        steps may still come.

        Raises:
            FencedError: The thread has to be opened again first.
        """
        if self.unsettled is not None:
            thread_id = self.request.thread_id
            raise FencedError(f"thread {thread_id!r}: an open of it ended without a verdict; open it again")
        if self.opened_by_another_run:
            raise FencedError(f"thread {self.request.thread_id!r}: another run opened it; open it again")

    @property
    def head(self) -> Head:
        """Where the thread stands."""
        return self.handle.head

    def note_step(self, result: RunStepResult) -> None:
        """Remember what a step says of the thread."""
        self.catches_up = result.goes_on
        if result.head == self.head:
            return  # answered before: nothing was added or archived
        self.backlog = result.backlog
        self.repairs += result.repairs
        self.lag = None if result.archived else self._lag_after(result)
        self.handle = OpenHandle(
            epoch=self.handle.epoch,
            head=result.head,
            slice_version=result.slice_version,
            archived=result.archived,
        )

    def _lag_after(self, result: RunStepResult) -> ArchiveLag:
        start = self.head.position if self.lag is None else self.lag.start
        return ArchiveLag(
            start=start,
            messages=result.head.position - start,
            bytes=result.backlog,
            since=self.now() if self.lag is None else self.lag.since,
            error=result.reason,
        )


async def open_session_thread(calls: Calls, request: OpenSessionInput) -> OpenSessionResult:
    """Open a thread; one that meets another epoch tries again, as a new open with a higher one.

    Raises:
        FencedError: Another execution took the thread over, or every try met another epoch.
    """
    for attempt in range(OPEN_TRIES):
        try:
            return await calls.open(request)
        except FencedError as fenced:
            if "owner" in fenced.facts or attempt == OPEN_TRIES - 1:
                raise
            await calls.pause(OPEN_PAUSE)
    raise AssertionError("unreachable")  # pragma: no cover


async def reopen_thread(
    calls: Calls,
    thread: CurrentThread,
    heads: ReopenHeads,
    *,
    abandoned: str | None = None,
    cuts: bool = False,
) -> OpenSessionResult:
    """Open again under a new epoch, keeping what this execution knows and nothing beyond it.

    ``abandoned`` is the run of a turn that is given up; where the thread has more of it, that is cut also
    after a reset.

    Raises:
        FencedError: Another execution took the thread over.
    """
    thread.reopened += 1
    request, seed = build_reopen_request(thread, heads, abandoned=abandoned, cuts=cuts), thread.seed()
    with remember_if_unclear(thread, heads):
        opened = await open_session_thread(calls, request)
    thread.note_reopened(heads, opened, seed)
    return opened


def build_reopen_request(
    thread: CurrentThread, heads: ReopenHeads, *, abandoned: str | None = None, cuts: bool = False
) -> OpenSessionInput:
    """The request of an open that goes on with what this execution knows."""
    thread.catches_up = thread.catches_up or thread.opened_by_another_run
    if thread.catches_up and not cuts:
        heads = heads.model_copy(update={"reset": True})
    return thread.request.model_copy(
        update={
            "reopen": heads,
            "mode": "continue",
            "rewind_to": None,
            "abandoned": abandoned,
            "known_epoch": thread.handle.epoch,
        }
    )


@contextmanager
def remember_if_unclear(thread: CurrentThread, heads: ReopenHeads) -> Iterator[None]:
    """Around an open: where it ends without a verdict, ``thread`` remembers at which heads to open again."""
    seed = thread.seed()
    try:
        yield
    except OpenedDespiteCancel as cancelled:
        thread.note_opened(cancelled.opened.handle, seed)
        raise
    except (Exception, asyncio.CancelledError) as error:
        refused = isinstance(error, HelixError) and not error.retryable
        if not refused:
            thread.unsettled = heads
        raise


def thread_field(request: OpenSessionInput) -> dict[str, Any]:
    """The thread's id where it is not the session's."""
    return {} if request.thread_id == request.session_id else {"thread_id": request.thread_id}
