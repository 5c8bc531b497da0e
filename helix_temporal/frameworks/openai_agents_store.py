"""Conversations of the OpenAI Agents SDK as threads that one workflow has open: steps, answers, items.

A step stands at a head that the workflow names, under ids made of the epoch and the position.  So each
attempt of a model activity has the same ids for the same places.  The thread's compare-and-append decides
which answer stands; the other attempts return that one.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from helix_temporal.activities.kept_answers import KeptAnswers
from helix_temporal.errors import (
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    NotArchivedError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.item_log import decode_item, encode_item
from helix_temporal.models.base import JsonObject
from helix_temporal.models.messages import Message, decode_message, encode_message
from helix_temporal.models.states import CreateSession
from helix_temporal.models.stored_messages import Head, StoredMessage
from helix_temporal.stores.protocols.hot import StepAppend, StepView
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.stores.protocols.threads import (
    FlushStatus,
    OpenThread,
    Progress,
    ReadPage,
    ThreadStore,
)
from helix_temporal.stores.threads.fences import replaced_error
from helix_temporal.stores.threads.standing_step import head_moved_error

ITEM_FORMAT: Final = "openai-agents/1"
KIND: Final = "openai-agents"
_ANSWER: Final = "helix_answer"
_PAGE: Final = 1_000
_PAGE_BYTES: Final = 8 * 1024 * 1024
_NEWEST_BYTES: Final = 256 * 1024
"""Of items that a workflow is given as they are: they are in its history."""


_log = logging.getLogger(__name__)


def thread_of(session_id: str) -> str:
    """The thread, and the session in the session store, of a conversation; `HelixSession` has the same."""
    return f"{KIND}/{session_id}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered.

    Attributes:
        items: As a later call is given them, each a row of the thread.
        rest: All that it takes to return the answer again, as text; kept with the first row.
    """

    items: tuple[JsonObject, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class Step:
    """One model call's place in a thread, and the items that are stored with its answer."""

    thread_id: str
    epoch: int
    head: Head
    inputs: tuple[JsonObject, ...]


class Conversations:
    """Threads of conversations.

    Args:
        threads: Where they are.
        sessions: The session store that lists them; None where there is none.
        flush_each_step: Archive every step at once.
        archive_required: No step is done before it is archived.
        kept: Answers that this process keeps while a store is away; None for those of this object alone.
    """

    def __init__(
        self,
        threads: ThreadStore,
        sessions: SessionStore | None,
        *,
        flush_each_step: bool = True,
        archive_required: bool = False,
        kept: KeptAnswers | None = None,
    ) -> None:
        self._threads, self._sessions = threads, sessions
        self._flush_each_step, self._archive_required = flush_each_step, archive_required
        self._kept = kept or KeptAnswers()

    async def open(self, session_id: str, epoch: int, owner: str, progress: Progress) -> Head:
        """Take the epoch of a conversation, which begins if there is none.  Nothing is cut.

        Raises:
            FencedError: A higher epoch, or an equal one of another owner, has it.
            StoreUnavailableError: A store did not answer.
        """
        thread_id = thread_of(session_id)
        if self._sessions is not None:
            create = CreateSession(agent_type=KIND)
            await self._sessions.create_session(thread_id, create, if_not_exists=True, revive=True)
            # A look carries out a cut that was ordered by a program which died before it had made it.
            await self._sessions.get_message_count(thread_id)
        opened = await self._threads.open(OpenThread(thread_id, epoch, owner), progress)
        return opened.at

    async def cut(
        self,
        thread_id: str,
        epoch: int,
        owner: str,
        to: int,
        items: Sequence[JsonObject],
        progress: Progress,
        *,
        mine: int,
    ) -> Head:
        """Cut a conversation at a position and let these items follow, in one step that takes a new epoch.

        Args:
            thread_id: Which one.
            epoch: The new one.
            owner: Who opens.
            to: Where to cut.
            items: What follows.
            progress: Told of objects that are moved.
            mine: The epoch under which the caller has it now.

        Raises:
            FencedError: Another execution has taken it over.
            HeadMovedError: It ends before that position.
        """
        await self._check_epoch(thread_id, mine, epoch)
        head = await self._find_head(thread_id, to)
        rows = _encode_rows(thread_id, epoch, head.position, items)
        opened = await self._threads.open(
            OpenThread(thread_id, epoch, owner, rewind_to=head, messages=rows), progress
        )
        return opened.header.head

    async def find_answer(self, step: Step, *, again: bool) -> Answer | None:
        """The answer that stands for a step; None if there is none yet.

        One that another attempt keeps, since its store is away, is waited for.

        Args:
            step: The step.
            again: It was tried before: the archive is asked, too, as the hot thread may be an older copy.

        Raises:
            FencedError: A newer epoch has the thread.
            HeadMovedError: Something else follows the head.
        """
        await self._kept.wait((step.thread_id, step.epoch, step.head))
        rows = _encode_rows(step.thread_id, step.epoch, step.head.position, step.inputs)
        view = await self._view(step, len(rows) + 1)
        if view.header.head.position == step.head.position:
            if again:
                await self._confirm_head(step)
            return None
        return await self._read_answer(step, rows, view)

    async def store_answer(self, step: Step, answer: Answer) -> Answer:
        """Store a step with its answer, or find the answer of the attempt that was first.

        Raises:
            FencedError: A newer epoch has the thread.
            HeadMovedError: Something else follows the head.
            NotArchivedError: It stands, and must be archived first; try again.
        """
        rows = (
            *_encode_rows(step.thread_id, step.epoch, step.head.position, step.inputs),
            *_encode_answer(step, answer),
        )
        append = StepAppend(step.thread_id, step.epoch, step.head, rows, commits=True)
        try:
            await self._kept.store((step.thread_id, step.epoch, step.head), partial(self._append, append))
        except (HeadMovedError, IdempotencyConflictError):
            found = await self.find_answer(step, again=False)
            if found is None:
                raise
            return found
        return answer

    async def append_items(self, thread_id: str, epoch: int, head: Head, items: Sequence[JsonObject]) -> Head:
        """Append items at the head; returns where the thread stands then.

        Raises:
            FencedError: A newer epoch has the thread.
            HeadMovedError: Something else follows the head.
        """
        rows = _encode_rows(thread_id, epoch, head.position, items)
        if rows:
            return await self._append(StepAppend(thread_id, epoch, head, rows, commits=True))
        view = await self._view(Step(thread_id, epoch, head, ()), 0)
        return view.header.head

    async def read_items(self, thread_id: str, epoch: int, start: int, head: Head) -> list[JsonObject]:
        """Items from a position on, up to a head of this epoch.

        Raises:
            FencedError: Another epoch has the thread.
            HeadMovedError: The thread does not hold the head.
        """
        await self._check_epoch(thread_id, epoch)
        rows: list[StoredMessage] = []
        while start + len(rows) < head.position:
            page = await self._read_rows(thread_id, epoch, start + len(rows), head.position)
            if not page:
                break
            rows += page
        if start + len(rows) != head.position or (rows and rows[-1].id != head.last_id):
            raise HeadMovedError(
                f"thread {thread_id!r} does not hold position {head.position} of the reference; open again",
                thread_id=thread_id,
            )
        return [_decode_row(thread_id, row) for row in rows]

    async def read_newest(self, thread_id: str, head: Head, count: int) -> tuple[Head, list[JsonObject]]:
        """The newest items before a head, never a result without its call; and the head before them."""
        if not count:
            return head, []
        page = await self._threads.read(
            ReadPage(
                thread_id, 0, head.position, limit=count, max_bytes=_NEWEST_BYTES, backward=True,
                committed_only=False,
            )
        )  # fmt: skip
        items = [_decode_row(thread_id, row) for row in page.messages]
        return await self._find_head(thread_id, page.first), items

    async def _check_epoch(self, thread_id: str, *mine: int) -> None:
        """Refuse who has none of the epochs that the thread may have for him.

        Raises:
            FencedError: Another execution has taken it over.
        """
        facts = await self._threads.read_facts(thread_id)
        if facts.epoch not in mine:
            raise replaced_error(
                f"thread {thread_id!r}",
                facts.epoch,
                mine[0],
                "is out: another execution has the conversation, and this one must end, or open it anew",
            )

    async def _view(self, step: Step, after: int) -> StepView:
        view = await self._threads.step_view(
            step.thread_id, step.epoch, step.head, after=after, limit=1, max_bytes=1, ids=0
        )
        if view.last_id_at_head != step.head.last_id:
            raise head_moved_error(view.header, step.head)
        return view

    async def _confirm_head(self, step: Step) -> None:
        try:
            await self._threads.confirm_head(step.thread_id, step.epoch, step.head)
        except StoreUnavailableError as down:
            _log.warning("thread %s: tried again without a look at its archive: %s", step.thread_id, down)

    async def _read_answer(self, step: Step, rows: Sequence[StoredMessage], view: StepView) -> Answer:
        """The answer behind a step's inputs, which stand at its head.

        Raises:
            HeadMovedError: Something else stands there.
        """
        after, count = view.after, len(rows)
        first = decode_message(after[count]) if len(after) > count else None
        fields = None if first is None else first.provider.get(_ANSWER)
        if tuple(after[:count]) != tuple(rows) or not isinstance(fields, dict):
            raise head_moved_error(view.header, step.head)
        start = step.head.position + count
        stop = start + int(str(fields["rows"]))
        stored = await self._read_rows(step.thread_id, step.epoch, start, stop)
        if len(stored) != stop - start:
            raise head_moved_error(view.header, step.head)
        # An attempt that died before it had archived the step did not tell anybody of it.
        await self._append(StepAppend(step.thread_id, step.epoch, step.head, (*rows, *stored), commits=True))
        items = tuple(_decode_row(step.thread_id, row) for row in stored)
        return Answer(items, str(fields["rest"]))

    async def _read_rows(self, thread_id: str, epoch: int, start: int, stop: int) -> list[StoredMessage]:
        page = await self._threads.read(
            ReadPage(
                thread_id, start, stop, limit=_PAGE, max_bytes=_PAGE_BYTES, committed_only=False,
                whole=False, epoch=epoch,
            )
        )  # fmt: skip
        return list(page.messages) if page.first == start else []

    async def _find_head(self, thread_id: str, position: int) -> Head:
        """The head at a position.

        Raises:
            HeadMovedError: The thread ends before it.
        """
        if position == 0:
            return Head(position=0, last_id="")
        page = await self._threads.read(ReadPage.of_message(thread_id, position - 1))
        if not page.messages:
            raise HeadMovedError(f"thread {thread_id!r} ends before position {position}", thread_id=thread_id)
        return Head(position=position, last_id=page.messages[0].id)

    async def _append(self, step: StepAppend) -> Head:
        """Append and archive; where the thread stands then, which a step that stood already may be behind."""
        appended = await self._threads.append(step)
        if not (self._flush_each_step or self._archive_required):
            await self._threads.confirm_step(step, appended)
            return appended.header.head
        receipt = await self._threads.archive_step(step, appended)
        if self._archive_required and receipt.status is FlushStatus.UNAVAILABLE:
            raise NotArchivedError(
                f"thread {step.thread_id!r}: a step is in the thread and not archived, which is required "
                f"({receipt.reason}); it is tried again"
            )
        return appended.header.head


def _encode_rows(
    thread_id: str, epoch: int, position: int, items: Sequence[JsonObject]
) -> tuple[StoredMessage, ...]:
    """Rows under the ids of their places: each attempt has the same ones."""
    return tuple(
        encode_message(_make_row(thread_id, epoch, at, item)) for at, item in enumerate(items, position)
    )


def _encode_answer(step: Step, answer: Answer) -> list[StoredMessage]:
    if not answer.items:
        raise InvalidRequestError(f"thread {step.thread_id!r}: an answer without items cannot be stored")
    start = step.head.position + len(step.inputs)
    first, *others = answer.items
    marked = {_ANSWER: {"rows": len(answer.items), "rest": answer.rest}}
    row = _make_row(step.thread_id, step.epoch, start, first, provider=marked)
    return [encode_message(row), *_encode_rows(step.thread_id, step.epoch, start + 1, others)]


def _make_row(thread_id: str, epoch: int, position: int, item: JsonObject, **fields: Any) -> Message:
    return encode_item(thread_id, ITEM_FORMAT, make_row_id(epoch, position), item, **fields)


def make_row_id(epoch: int, position: int) -> str:
    """The id of the row that an epoch stores at a position."""
    return f"{epoch}/{position}"


def _decode_row(thread_id: str, row: StoredMessage) -> JsonObject:
    return decode_item(thread_id, ITEM_FORMAT, decode_message(row))
