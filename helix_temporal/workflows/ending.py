"""Clean-up: save, flush, evict, each to completion and independent of the others, with receipts."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityHandle

from helix_temporal import errors
from helix_temporal._failures import describe_failure
from helix_temporal.errors import FencedError, HeadMovedError
from helix_temporal.models.base import only_set
from helix_temporal.models.sessions import Receipt, ReopenHeads
from helix_temporal.models.steps import SaveValuesInput
from helix_temporal.models.threads import FlushThreadInput, ThreadEpochInput
from helix_temporal.models.waiting import AnswerReceipt, CallOutcome, Suspension
from helix_temporal.workflows.calls import TemporalCalls, asyncio_cancelled, run_to_completion, typed_error
from helix_temporal.workflows.opening import CurrentThread, build_reopen_request, reopen_thread

_SAVES: Final = 3


@dataclass(frozen=True, slots=True)
class Ending:
    """What is to be saved of a session that ends.

    Attributes:
        values: The application's values if they are not saved.
        changed: Keys that the application changed.
        status: For the session store, and those who watch.
        closes: Shut the epoch: a step may still be running somewhere.
        run_id: The run of a turn that was cut short.
        outcomes: What is known of the calls of the turn that stays suspended.
        suspended: All that it waits for, where sub-agents are suspended.
        answered: Calls that were answered, to be remembered.
        stays: With ``closes``: a turn stays suspended, for the next execution.
    """

    values: dict[str, Any] | None
    changed: tuple[str, ...]
    status: str
    error: str | None = None
    closes: bool = False
    run_id: str | None = None
    outcomes: tuple[CallOutcome, ...] | None = None
    suspended: Suspension | None = None
    answered: tuple[AnswerReceipt, ...] = ()
    stays: bool = False

    @property
    def in_slice(self) -> bool:
        """Something of it is saved in the slice."""
        kept = self.values is not None or self.outcomes is not None or self.suspended is not None
        return kept or bool(self.answered)

    def state_fields(self, session_id: str) -> dict[str, Any]:
        """What the session store is told."""
        told: dict[str, Any] = {"session_id": session_id, "status": self.status}
        if self.error is not None:
            told["error"] = self.error
        if self.closes and not self.stays:
            told["ends_run"] = True
        return told | only_set(run_id=self.run_id)


class Finaliser:
    """Runs the clean-up of one open thread.

    A second cancel does not stop it; each step has a budget, and past it the receipt says what is
    left to the maintenance worker.

    Args:
        on_cancel: Remembers a cancel that has to wait.
        gives_way: Whether somebody wants the session, so that an archive that does not answer is no
            longer waited for.

    Attributes:
        committed: Messages of finished turns, as far as the flush could tell.
    """

    def __init__(
        self,
        calls: TemporalCalls,
        on_cancel: Callable[[], None],
        gives_way: Callable[[], bool] = lambda: False,
    ) -> None:
        self._calls, self._on_cancel, self._gives_way = calls, on_cancel, gives_way
        self.committed = 0

    async def run(self, thread: CurrentThread, ending: Ending) -> tuple[Receipt, ...]:
        """Save what is unsaved, archive what is not archived, then drop the hot thread if it is."""
        receipts: list[Receipt] = []
        cuts = ending.closes and not ending.stays
        await self._calls.children.wait_until_ended(self._on_cancel, thread.request, cut=cuts)
        if (heads := thread.to_open_first) is not None:
            receipts.append(await self._open_thread(thread, heads))
        if self._has_news(ending):
            receipts.append(await self._save_ending(thread, ending))
        if ending.closes or not thread.handle.archived:
            receipts.extend(await self._flush_thread(thread, ending))
        if thread.handle.archived:
            receipts.append(await self._evict_thread(thread))
        else:
            receipts.append(Receipt(name="evict", ok=False, detail="not archived"))
        if thread.repairs:
            mended = f"{thread.repairs} results of tool calls were mended for model calls"
            receipts.append(Receipt(name="repair", ok=True, detail=mended))
        return tuple(receipts)

    def _has_news(self, ending: Ending) -> bool:
        """Whether there is anything to save, or to tell those who watch."""
        if ending.in_slice or self._calls.policy.keeps_state:
            return True
        return ending.run_id is not None

    async def _open_thread(self, thread: CurrentThread, heads: ReopenHeads) -> Receipt:
        """Open again: an open without an answer, or a step from before a reset, could undo the rest."""
        request, seed, before = build_reopen_request(thread, heads), thread.seed(), thread.handle
        receipt, opened = await self._run_to_receipt("open", lambda: self._calls.start_open(request))
        if opened is not None:
            thread.note_opened(opened.handle, seed)
            if opened.reset:
                thread.note_reset_point(before.head.position, before.epoch)
        return receipt

    async def _save_ending(self, thread: CurrentThread, ending: Ending) -> Receipt:
        cut = tuple(self._calls.children.cut)
        told = self._calls.policy.keeps_state or ending.run_id is not None
        request = SaveValuesInput(
            thread_id=thread.request.thread_id,
            epoch=thread.handle.epoch,
            values=ending.values,
            **({} if ending.values is None else {"changed": ending.changed}),
            **(ending.state_fields(thread.request.session_id) if told else {}),
            **({"cut_children": cut} if cut else {}),
            **_call_fields(ending),
        )
        receipt, saved = await self._run_to_receipt("save", lambda: self._calls.start_save(request))
        if saved is not None:
            self._calls.children.forget_cut(cut)
        if saved is not None and ending.in_slice:
            update = {"slice_version": saved.version, "archived": False}
            thread.handle = thread.handle.model_copy(update=update)
        return receipt

    async def _flush_thread(self, thread: CurrentThread, ending: Ending) -> list[Receipt]:
        """Archive; a state that was lost between its save and this is saved again."""
        receipts: list[Receipt] = []
        for _ in range(_SAVES):
            receipt = await self._flush_once(thread, ending)
            receipts.append(receipt)
            lost = ending.in_slice and _is_of(receipt.detail, HeadMovedError)
            if not lost:
                break
            receipts.append(await self._save_ending(thread, ending))
        return receipts

    async def _flush_once(self, thread: CurrentThread, ending: Ending) -> Receipt:
        fields: dict[str, Any] = {"ends": False} if ending.stays else {}
        if ending.in_slice:
            fields["slice_version"] = thread.handle.slice_version
        if not ending.closes:
            fields["head"] = thread.head
        request = FlushThreadInput(
            thread_id=thread.request.thread_id, epoch=thread.handle.epoch, closes=ending.closes, **fields
        )
        receipt, flushed = await self._run_to_receipt("flush", lambda: self._calls.start_flush(request))
        if flushed is None:
            thread.note_flush_failed(receipt.detail)
            return receipt
        thread.note_flushed(flushed)
        self.committed = flushed.committed
        return Receipt(name="flush", ok=thread.handle.archived, detail=flushed.status)

    async def _evict_thread(self, thread: CurrentThread) -> Receipt:
        request = ThreadEpochInput(thread_id=thread.request.thread_id, epoch=thread.handle.epoch)
        receipt, evicted = await self._run_to_receipt("evict", lambda: self._calls.start_evict(request))
        if evicted is None:
            return receipt
        return Receipt(name="evict", ok=evicted.outcome != "newer", detail=evicted.outcome)

    async def run_within_budget(self, name: str, task: "asyncio.Task[bool]") -> Receipt:
        """Let something end, within the budget; cancels meanwhile are remembered."""
        late = workflow.now() + timedelta(seconds=self._calls.policy.finaliser_budget)
        while not task.done():
            left = (late - workflow.now()).total_seconds()
            try:
                await workflow.wait_condition(task.done, timeout=max(left, 0.0))
            except asyncio.CancelledError:
                self._on_cancel()
            except TimeoutError:
                task.cancel()
                await self._await_task_end(task)
                return Receipt(name=name, ok=False, detail="took too long")
        error = task.exception()
        if error is not None:
            return Receipt(name=name, ok=False, detail=describe_failure(error))
        return Receipt(name=name, ok=task.result())

    async def await_hooks(self, telling: Coroutine[Any, Any, bool]) -> Receipt:
        """Wait until the end hooks have run, whatever happens meanwhile."""
        task = asyncio.create_task(telling)
        await self._await_task_end(task)
        return Receipt(name="session_ended", ok=task.result())

    async def _await_task_end(self, task: "asyncio.Task[bool]") -> None:
        """Wait for the end of a task; cancels meanwhile are remembered."""
        while not task.done():
            try:
                await workflow.wait([task])
            except asyncio.CancelledError:
                self._on_cancel()

    async def _run_to_receipt(
        self, name: str, start: Callable[[], ActivityHandle[Any]]
    ) -> tuple[Receipt, Any]:
        try:
            result = await run_to_completion(start(), self._on_cancel, self._gives_way)
        except ActivityError as error:
            cause = typed_error(error)
            return Receipt(name=name, ok=False, detail=describe_failure(cause)), None
        return Receipt(name=name, ok=True), result


async def try_to_archive(calls: TemporalCalls, thread: CurrentThread, *, at_rest: bool) -> None:
    """Try once to archive what an earlier flush left; it is tried again if that fails.

    Where the messages are gone, the thread is opened again ``at_rest``: what is lost is known then.
    """
    request = FlushThreadInput(
        thread_id=thread.request.thread_id, epoch=thread.handle.epoch, head=thread.head
    )
    try:
        thread.note_flushed(await calls.try_flush(request))
    except ActivityError as error:
        if asyncio_cancelled(error):
            raise asyncio.CancelledError from error
        cause = typed_error(error)
        thread.note_flush_failed(describe_failure(cause))
        if at_rest and isinstance(cause, HeadMovedError):
            await _open_after_loss(calls, thread)


async def _open_after_loss(calls: TemporalCalls, thread: CurrentThread) -> None:
    try:
        await reopen_thread(calls, thread, ReopenHeads(head=thread.head, turn_start=thread.head))
    except (ActivityError, errors.HelixError) as error:
        # The next turn, or the end, opens it.
        workflow.logger.warning("thread %s: not opened after a loss: %s", thread.request.thread_id, error)


def would_lose_answers(receipts: Sequence[Receipt], ending: Ending) -> bool:
    """Whether an end now would lose suspended sub-agents, or an answer: they are saved nowhere."""
    failed = [each.detail for each in receipts if each.name == "save" and not each.ok]
    if all(_is_of(each, FencedError) for each in failed):
        return False  # saved, or another execution's by now
    if ending.suspended is not None:
        return True
    passes = not all(_is_permanent(each) for each in failed)
    return passes and ending.outcomes is not None


def _is_of(detail: str, kind: type[errors.HelixError]) -> bool:
    return errors.error_class(errors.split_text(detail)[0]) is kind


def _is_permanent(detail: str) -> bool:
    kind = errors.error_class(errors.split_text(detail)[0])
    return kind is not None and not kind.retryable


def _call_fields(ending: Ending) -> dict[str, Any]:
    told: dict[str, Any] = {"answered": ending.answered} if ending.answered else {}
    if ending.suspended is not None:
        return told | {"suspended": ending.suspended}
    return told if ending.outcomes is None else told | {"outcomes": ending.outcomes}
