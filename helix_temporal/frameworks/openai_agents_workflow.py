"""Sessions of the OpenAI Agents SDK inside a workflow: what runs in the workflow itself, without any store.

The session's history is one item, a signed reference.  The runner passes it on to the model activity, where
the worker puts the items in its place, and stores new items and the model's answer in the thread.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import Field
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import (
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowOutboundInterceptor,
)

from helix_temporal.errors import FencedError, InvalidReferenceError, InvalidRequestError
from helix_temporal.frameworks.openai_agents_references import (
    StepNote,
    find_reference,
    is_ours,
    make_reference_item,
    make_row_item,
    read_unverified,
)
from helix_temporal.frameworks.openai_agents_turns import RunItems, as_plain, find_answer_items
from helix_temporal.models.base import JsonObject, WireModel
from helix_temporal.models.ids import Id, validate_id
from helix_temporal.models.stored_messages import Head, Position

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

MODEL_ACTIVITIES: Final = frozenset({"invoke_model_activity", "invoke_model_activity_streaming"})
"""The model activities of temporalio-openai-agents."""
OPEN: Final = "helix.openai_agents.open"
APPEND: Final = "helix.openai_agents.append"
CUT: Final = "helix.openai_agents.cut"
_OPENS: Final = 5
"""Opens that are tried where a clock runs behind that of an earlier open."""
_RETRIES: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=10)
)

T = TypeVar("T")


class OpenConversationInput(WireModel):
    """Take a conversation over.

    Attributes:
        owner: The workflow's first execution.
        newest: So many items are wanted as they are.
    """

    session_id: Id
    owner: str
    newest: int = Field(default=0, ge=0, le=1_000)


class AppendItemsInput(WireModel):
    """Append items at a head, and issue a reference up to there."""

    reference: str
    head: Head
    items: list[JsonObject] = Field(default_factory=list)
    newest: int = Field(default=0, ge=0, le=1_000)


class CutConversationInput(WireModel):
    """Cut a conversation at a position and append items there; takes a new epoch."""

    reference: str
    owner: str
    to: Position
    items: list[JsonObject] = Field(default_factory=list)
    newest: int = Field(default=0, ge=0, le=1_000)


class ConversationPlace(WireModel):
    """Where a conversation stands.

    Attributes:
        reference: A signed one to all items.
        before: One to all but the newest, if some are wanted as they are.
        newest: Those.
        unconfirmed: Of an answer that waits for an approval: what the runner has yet to add.
    """

    reference: str
    before: str | None = None
    newest: list[JsonObject] = Field(default_factory=list)
    unconfirmed: list[str] = Field(default_factory=list)


class HelixWorkflowSession:
    """A `Session` of the OpenAI Agents SDK in a workflow; its items are in a thread, not in the history.

    ``Runner.run(agent, text, session=session)`` takes it as any other.  Only one execution has a
    conversation: the first use opens it, and an older execution is refused from then on.

    Args:
        session_id: The conversation's id; `HelixSession` outside of workflows has the same one under it.
        newest: So many of the newest items are given to whoever reads the list in the workflow, such as
            filters and guardrails, and are in the history with each model call.
        session_settings: As every session of the SDK: ``limit`` is how many items a model is given.
        place: Of `save`, by the run that this one was continued from.

    Raises:
        InvalidIdError: No store can keep that id.
    """

    def __init__(
        self,
        session_id: str,
        *,
        newest: int = 0,
        session_settings: "SessionSettings | None" = None,
        place: ConversationPlace | None = None,
    ) -> None:
        self.session_id, self.session_settings = validate_id(session_id, "session id"), session_settings
        self._newest, self._items = newest, RunItems()
        self._place: ConversationPlace | None = None
        self._head = Head(position=0, last_id="")
        self._lost_call = self._begins = self._is_running = False
        if place is not None:
            self._take_place(place)
            self._items.expect(place.unconfirmed)

    # -- what the runner calls

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The reference to the conversation, and the newest items if they were asked for.

        Raises:
            RuntimeError: The worker lacks `HelixOpenAIPlugin`, or has it before that of OpenAI.
            ActivityError: The conversation could not be opened; its cause has the type of our error.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if self._begins:
            self._begins = False
            await self._settle()
        place = await self._ensure_open()
        if self._newest and self._head.position and not place.newest:
            place = await self._append(())  # a place that was carried over has none, to be short
        if limit is not None:
            items = [make_reference_item(place.reference, max(limit, 0))]
        elif self._newest:
            items = [make_reference_item(place.before or place.reference), *place.newest]
        else:
            items = [make_reference_item(place.reference)]
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Take items, which are stored with the next model call, or else at the end of the run.

        Raises:
            InvalidReferenceError: One of them is a reference of ours: give a run new items alone.
        """
        added = [cast("JsonObject", as_plain(item)) for item in items]
        if any(is_ours(item) for item in added):
            raise InvalidReferenceError(
                f"session {self.session_id!r}: an item to be added is a reference to a conversation; with a "
                "session a run is given its new input alone, and not to_input_list()"
            )
        self._items.add(added)
        if not self._is_running:
            await self.save()

    async def pop_item(self) -> "TResponseInputItem | None":
        """Take the newest item back; None if there is none.  Late attempts of model calls are refused then.

        Raises:
            ActivityError: The conversation has another owner by now.
        """
        await self._settle()
        await self._ensure_open()
        if not self._head.position:
            return None
        kept = await self._append((), newest=1)
        newest = kept.newest[-1:]
        await self._cut(self._head.position - 1, ())
        return cast("TResponseInputItem | None", newest[0] if newest else None)

    async def clear_session(self) -> None:
        """Take all items back.

        Raises:
            ActivityError: The conversation has another owner by now.
        """
        await self._ensure_open()
        self._items = RunItems()
        await self._cut(0, ())

    # -- what workflows call

    async def open(self) -> None:
        """Open the conversation, unless it is open: a run does so by itself.

        Raises:
            RuntimeError: The worker lacks `HelixOpenAIPlugin`, or has it before that of OpenAI.
            ActivityError: A newer execution has it, or a store did not answer.
        """
        await self._ensure_open()

    async def save(self) -> ConversationPlace:
        """Store what is not stored yet; where the conversation stands, for ``continue_as_new``.

        Raises:
            InvalidRequestError: A run of the session is under way.
            ActivityError: The conversation has another owner by now.
        """
        if self._is_running:
            raise InvalidRequestError(f"session {self.session_id!r}: save it when its run has ended")
        await self._settle()
        place = await self._ensure_open()
        update = {"newest": [], "before": None, "unconfirmed": self._items.list_unconfirmed()}
        return place.model_copy(update=update)

    # -- a run, as the runner of the plugin tells of it

    def begin_run(self) -> None:
        """A run begins.

        Raises:
            InvalidRequestError: Another one is under way.
        """
        if self._is_running:
            raise InvalidRequestError(
                f"session {self.session_id!r} has a run under way; one conversation has one run at a time"
            )
        self._is_running = self._begins = True

    async def end_run(self, *, waits: bool) -> None:
        """A run has ended, well or not: store what is left, and cut answers that the runner did not keep.

        Args:
            waits: For an approval: the runner may add the answer when it goes on.
        """
        self._is_running = False
        await self._settle(waits=waits)

    def give_run_up(self) -> None:
        """A run was cancelled: what it has not stored is stored with what comes next."""
        self._is_running = False

    async def end_failed_run(self) -> None:
        """As `end_run`; the error of the run comes first, and what could not be stored is stored later."""
        try:
            await self.end_run(waits=False)
        except ActivityError as error:
            workflow.logger.warning(
                "session %s: its items are stored later: %s", self.session_id, type(error.cause).__name__
            )

    def prepare_call(self, request: Any) -> tuple[Any, list[JsonObject]]:
        """The input of a model activity with a note of its step, and the items that it will store.

        Raises:
            InvalidReferenceError: Something of the run's input claims to be such a note.
            InvalidRequestError: The session was not opened.
        """
        given = request["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        if any(is_ours(item) and find_reference(item) is None for item in items):
            raise InvalidReferenceError(f"session {self.session_id!r}: its input has an item of ours")
        if self._place is None:
            raise InvalidRequestError(
                f"session {self.session_id!r} is not open; `await session.open()` before a state is resumed"
            )
        sent = list(self._items.pending)
        note = StepNote(self._place.reference, self._head, tuple(_find_place(items, each) for each in sent))
        short = [
            item if at in note.pending or (place := self._items.find_position(item)) is None
            else make_row_item(place)
            for at, item in enumerate(items)
        ]  # fmt: skip
        return {**request, "input": [*short, note.as_item()]}, sent

    def take_result(self, sent: Sequence[JsonObject], done: "workflow.ActivityHandle[Any]") -> None:
        """A model activity has ended."""
        if done.cancelled() or done.exception() is not None:
            # An attempt that was given up may store its answer yet: the end of the run shuts it out.
            self._lost_call = True
            return
        answer = find_answer_items(done.result())
        if answer:
            items = [cast("JsonObject", as_plain(item)) for item in answer]
            self._items.take_stored(self._head.position, sent, items)
            self._move_head(len(sent) + len(items))

    # -- inside

    async def _settle(self, *, waits: bool = False) -> None:
        """Store what is left, so that the thread holds just what the runner has added."""
        if self._place is None and not self._items.pending:
            return
        await self._ensure_open()
        cut = None if waits else self._items.find_cut()
        if cut is None and self._lost_call:
            cut = self._head.position
        if cut is not None:
            await self._cut(cut, self._items.list_kept_from(cut))
        elif self._items.pending or self._is_ahead():
            await self._append(self._items.pending)
        self._items.forget_confirmed()

    def _is_ahead(self) -> bool:
        """Whether the reference does not say all that the thread holds."""
        assert self._place is not None
        return read_unverified(self._place.reference).head != self._head

    async def _ensure_open(self) -> ConversationPlace:
        if self._place is None:
            _check_runner()
            request = OpenConversationInput(
                session_id=self.session_id, owner=_find_owner(), newest=self._newest
            )
            self._take_place(await _open(request))
        assert self._place is not None
        return self._place

    async def _append(self, items: Sequence[JsonObject], newest: int | None = None) -> ConversationPlace:
        assert self._place is not None
        sent = list(items)
        request = AppendItemsInput(
            reference=self._place.reference,
            head=self._head,
            items=sent,
            newest=self._newest if newest is None else newest,
        )
        place = await _execute(APPEND, request)
        self._items.drop_pending(sent)
        self._take_place(place)
        return place

    async def _cut(self, to: int, items: Sequence[JsonObject]) -> None:
        assert self._place is not None
        request = CutConversationInput(
            reference=self._place.reference,
            owner=_find_owner(),
            to=to,
            items=list(items),
            newest=self._newest,
        )
        self._take_place(await _execute(CUT, request))
        self._items, self._lost_call = RunItems(), False

    def _take_place(self, place: ConversationPlace) -> None:
        self._place, self._head = place, read_unverified(place.reference).head

    def _move_head(self, count: int) -> None:
        assert self._place is not None
        position = self._head.position + count
        epoch = read_unverified(self._place.reference).epoch
        self._head = Head(position=position, last_id=f"{epoch}/{position - 1}")


running: ContextVar[HelixWorkflowSession | None] = ContextVar("helix_openai_session", default=None)
"""The session of the run that calls: a run within a run, of a guardrail or a tool, has its own or none."""


@contextlib.contextmanager
def serve_run(session: Any) -> Iterator[HelixWorkflowSession | None]:
    """Around a call of the runner: model calls in there are this session's."""
    ours = session if isinstance(session, HelixWorkflowSession) else None
    token = running.set(ours)
    try:
        yield ours
    finally:
        running.reset(token)


async def follow_stream(
    session: HelixWorkflowSession, events: AsyncIterator[T], streamed: Any
) -> AsyncIterator[T]:
    """The events of a streamed run, which ends with them."""
    try:
        async for event in events:
            yield event
    except Exception:
        await session.end_failed_run()
        raise
    except BaseException:
        session.give_run_up()
        raise
    await session.end_run(waits=bool(streamed.interruptions))


class ConversationInbound(WorkflowInboundInterceptor):
    """Brings `_ModelCalls` into each workflow."""

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        """As in `WorkflowInboundInterceptor`."""
        super().init(_ModelCalls(outbound))


class _ModelCalls(WorkflowOutboundInterceptor):
    """Adds the note of its step to a session's model call, and tells the session what came of it."""

    def start_activity(self, input: StartActivityInput) -> "workflow.ActivityHandle[Any]":  # noqa: A002
        return self._start(input, self.next.start_activity)

    def start_local_activity(self, input: StartLocalActivityInput) -> "workflow.ActivityHandle[Any]":  # noqa: A002
        return self._start(input, self.next.start_local_activity)

    def _start(self, call: Any, start: Any) -> "workflow.ActivityHandle[Any]":
        session = running.get()
        if session is None or call.activity not in MODEL_ACTIVITIES:
            return cast("workflow.ActivityHandle[Any]", start(call))
        request, sent = session.prepare_call(call.args[0])
        call.args = [request, *call.args[1:]]
        handle: workflow.ActivityHandle[Any] = start(call)
        handle.add_done_callback(partial(session.take_result, sent))
        return handle


def _find_place(items: Sequence[Any], wanted: JsonObject) -> int | JsonObject:
    """Where a model call's input has an item as it is to be stored; from the end, as it is a new one."""
    for at in range(len(items) - 1, -1, -1):
        if items[at] == wanted:
            return at
    return wanted


def _find_owner() -> str:
    info = workflow.info()
    return info.first_execution_run_id or info.run_id


def _check_runner() -> None:
    from agents.run import get_default_agent_runner  # noqa: PLC0415 (whoever has no SDK has no runner)

    if not getattr(get_default_agent_runner(), "serves_helix_sessions", False):
        # None of our errors, which would end the workflow: it goes on with a worker that is set up.
        raise RuntimeError(
            "HelixWorkflowSession needs HelixOpenAIPlugin on the client or the worker, behind "
            "OpenAIAgentsPlugin: plugins=[OpenAIAgentsPlugin(…), HelixOpenAIPlugin(settings)].  Where it "
            "has both, another worker of its process has ended and taken the runner with it: of several, the "
            "last one that began has to end first; restart the process"
        )


async def _open(request: OpenConversationInput) -> ConversationPlace:
    for _ in range(_OPENS - 1):
        try:
            return await _execute(OPEN, request)
        except ActivityError as error:
            if not _is_fenced(error):
                raise
            await workflow.sleep(1)
    return await _execute(OPEN, request)


def _is_fenced(error: ActivityError) -> bool:
    return isinstance(error.cause, ApplicationError) and error.cause.type == FencedError.__name__


async def _execute(name: str, request: WireModel) -> ConversationPlace:
    place: ConversationPlace = await workflow.execute_activity(
        name,
        request,
        result_type=ConversationPlace,
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(minutes=5),
        heartbeat_timeout=timedelta(seconds=10),
        retry_policy=_RETRIES,
    )
    return place
