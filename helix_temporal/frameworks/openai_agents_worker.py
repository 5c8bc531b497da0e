"""What a worker has for sessions of the OpenAI Agents SDK in workflows: plugin, activities, interceptors."""

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from helix_temporal.activities._runtime import (
    application_error,
    heartbeat_in_background,
    heartbeat_with_progress,
    raise_application_errors,
    scheduled_epoch,
)
from helix_temporal.activities.kept_answers import KeptAnswers
from helix_temporal.errors import HelixError, InvalidReferenceError
from helix_temporal.frameworks.openai_agents_references import (
    StepNote,
    ThreadReference,
    ThreadReferenceSigner,
    find_reference,
    find_row,
    find_step_note,
    is_ours,
)
from helix_temporal.frameworks.openai_agents_store import Answer, Conversations, Step, thread_of
from helix_temporal.frameworks.openai_agents_turns import COMPLETED, as_plain, find_answer_items, read_field
from helix_temporal.frameworks.openai_agents_workflow import (
    MODEL_ACTIVITIES,
    AppendItemsInput,
    ConversationInbound,
    ConversationPlace,
    CutConversationInput,
    OpenConversationInput,
    follow_stream,
    serve_run,
)
from helix_temporal.frameworks.store_plugin import HEARTBEAT_EVERY, StorePlugin, read_reference_keys
from helix_temporal.models.base import JsonObject
from helix_temporal.models.foreign_rows.openai_agents import drop_unanswered_calls
from helix_temporal.models.stored_messages import Head
from helix_temporal.settings import Settings

if TYPE_CHECKING:
    from helix_temporal.backends import Backends

Invoke = Callable[[Any], Awaitable[Any]]


class HelixOpenAIPlugin(StorePlugin):
    """Conversations of `HelixWorkflowSession` in our stores; stands behind ``OpenAIAgentsPlugin``.

    A guest: it looks at the model activities of that plugin, and there only at calls that hold a reference.
    A process that has a client alone opens no store.

    Args:
        settings: Where the stores are; ``reference_key`` signs references.
        backends: Stores from elsewhere, as `helix_temporal.backends.Backends`; whoever made them closes them.

    Raises:
        InvalidConfigError: There is no ``reference_key``.
    """

    def __init__(self, settings: Settings, *, backends: "Backends | None" = None) -> None:
        self.signer = ThreadReferenceSigner(*read_reference_keys(settings))
        self._kept = KeptAnswers()
        mine = WorkflowSessionActivities(self)
        super().__init__(
            "helix.HelixOpenAIPlugin",
            settings,
            backends,
            activities=[mine.open, mine.append, mine.cut],
            interceptors=[_SessionInterceptor(self)],
        )

    @property
    def conversations(self) -> Conversations:
        """The threads of this process, whose stores are opened by the first call that needs one."""
        backends = self.backends
        return Conversations(
            backends.threads,
            backends.sessions if backends.keeps_sessions else None,
            flush_each_step=self.settings.flush == "step",
            archive_required=self.settings.archive == "required",
            kept=self._kept,
        )

    def make_model_calls(self) -> "ReferencedModelCalls":
        """What stands around model activities."""
        return ReferencedModelCalls(self.conversations, self.signer)

    @contextlib.contextmanager
    def serve_worker(self) -> Iterator[None]:
        """Let runs in workflows of this process tell their sessions when they begin and end."""
        from agents.run import (  # noqa: PLC0415 (whoever imports this for its types need not have it)
            get_default_agent_runner,
            set_default_agent_runner,
        )

        # Of each worker anew: OpenAIAgentsPlugin has put its own runner there for this one.
        before = get_default_agent_runner()
        set_default_agent_runner(_make_runner(before))
        try:
            yield
        finally:
            set_default_agent_runner(before)


def _make_runner(inner: Any) -> Any:
    """A runner that tells a session when its run begins and ends, and leaves all else to the inner one."""
    from agents.run import AgentRunner  # noqa: PLC0415

    class SessionRunner(AgentRunner):
        serves_helix_sessions = True

        async def run(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:  # noqa: A002
            with serve_run(kwargs.get("session")) as session:
                if session is None:
                    return await inner.run(starting_agent, input, **kwargs)
                session.begin_run()
                try:
                    await session.open()
                    result = await inner.run(starting_agent, input, **kwargs)
                except Exception:
                    await session.end_failed_run()
                    raise
                except BaseException:
                    session.give_run_up()
                    raise
                await session.end_run(waits=bool(result.interruptions))
                return result

        def run_sync(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:  # noqa: A002
            return inner.run_sync(starting_agent, input, **kwargs)

        def run_streamed(self, starting_agent: Any, input: Any, **kwargs: Any) -> Any:  # noqa: A002
            with serve_run(kwargs.get("session")) as session:
                if session is None:
                    return inner.run_streamed(starting_agent, input, **kwargs)
                session.begin_run()
                streamed = inner.run_streamed(starting_agent, input, **kwargs)
            events = streamed.stream_events
            streamed.stream_events = lambda: follow_stream(session, events(), streamed)
            return streamed

    return SessionRunner()


class _SessionInterceptor(Interceptor):
    def __init__(self, plugin: HelixOpenAIPlugin) -> None:
        self._plugin = plugin

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _SessionModelActivities(next, self._plugin)

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: A002, ARG002 — the name in the SDK
    ) -> type[WorkflowInboundInterceptor]:
        return ConversationInbound


class _SessionModelActivities(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, plugin: HelixOpenAIPlugin) -> None:  # noqa: A002
        super().__init__(next)
        self._plugin = plugin

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        """Serve a model call that holds references; any other activity passes as it is."""
        if activity.info().activity_type not in MODEL_ACTIVITIES or not _names_ours(input.args):
            return await self.next.execute_activity(input)

        async def invoke(request: Any) -> Any:
            return await self.next.execute_activity(dataclasses.replace(input, args=[request]))

        try:
            return await self._plugin.make_model_calls().run(input.args[0], invoke)
        except HelixError as error:
            # The cause would carry its traceback, and with it whatever a driver put into it.
            raise application_error(error) from None


def _names_ours(args: Sequence[Any]) -> bool:
    items = args[0].get("input") if args and isinstance(args[0], dict) else None
    return isinstance(items, list) and any(map(is_ours, items))


class ReferencedModelCalls:
    """Model calls whose input holds references: what stands around the model activity.

    Args:
        conversations: The threads.
        signer: Verifies references.
    """

    def __init__(self, conversations: Conversations, signer: ThreadReferenceSigner) -> None:
        self._conversations, self._signer = conversations, signer

    async def run(self, request: Any, invoke: Invoke) -> Any:
        """Give the model the items that references stand for; store its answer, or find it standing.

        Raises:
            InvalidReferenceError: A reference was not signed for this workflow, or is another conversation's.
            FencedError: A reference's epoch was replaced: another execution has the conversation.
            HeadMovedError: Something else stands at the step's place.
            NotArchivedError: The answer stands, and must be archived first.
        """
        items = [as_plain(item) for item in request["input"]]
        note = find_step_note(items[-1])
        if note is None:
            return await invoke({**request, "input": await self._expand(items, None)})
        step = self._read_step(StepNote.parse(note), items[:-1])
        async with _beating():
            found = await self._conversations.find_answer(step, again=activity.info().attempt > 1)
            if found is not None:
                return decode_answer(found)
            given = await self._expand(items[:-1], step)
        result = await invoke({**request, "input": given})
        answer = encode_answer(result)
        if answer is None:
            return result
        async with _beating():
            stored = await self._conversations.store_answer(step, answer)
        return result if stored is answer else decode_answer(stored)

    def _read_step(self, note: StepNote, items: Sequence[Any]) -> Step:
        reference = self._verify(note.reference)
        return Step(reference.thread_id, reference.epoch, note.head, tuple(note.select_pending(items)))

    def _verify(self, text: str) -> ThreadReference:
        return self._signer.verify(text, activity.info().workflow_id or "")

    async def _expand(self, items: Sequence[Any], step: Step | None) -> list[JsonObject]:
        """The items with what ours stand for in their place.

        Args:
            items: What the runner gave.
            step: Of a session's own call; a run inside of it, of a guardrail or a tool, may have references.

        Raises:
            InvalidReferenceError: One must not stand there.
        """
        rows = {} if step is None else await self._read_rows(items, step)
        expanded: list[JsonObject] = []
        stored: set[int] = set()
        for item in items:
            text, before = find_reference(item), len(expanded)
            if text is not None:
                expanded += await self._read_reference(text, step)
                stored.update(range(before, len(expanded)))
            elif is_ours(item):
                position = find_row(item)
                if position not in rows:
                    raise InvalidReferenceError(
                        "a model call has an item of ours that a session did not put there"
                    )
                expanded.append(rows[position])
            else:
                expanded.append(item)
        return drop_unanswered_calls(expanded, stored)

    async def _read_rows(self, items: Sequence[Any], step: Step) -> dict[int | None, JsonObject]:
        """The stored items that rows stand for: they are of this run, and stand close together."""
        positions = [position for position in map(find_row, items) if position is not None]
        if not positions:
            return {}
        first = min(positions)
        found = await self._conversations.read_items(step.thread_id, step.epoch, first, step.head)
        return {at: item for at, item in enumerate(found, first) if at in set(positions)}

    async def _read_reference(self, text: str, step: Step | None) -> list[JsonObject]:
        """The items that a reference stands for.

        Raises:
            InvalidReferenceError: It is another conversation's than the session's.
        """
        reference = self._verify(text)
        if step is not None and reference.thread_id != step.thread_id:
            raise InvalidReferenceError(
                "the input of a session's run holds a reference to another conversation; give the run "
                "new items alone",
                thread_id=reference.thread_id,
            )
        rows = await self._conversations.read_items(
            reference.thread_id, reference.epoch, reference.start, reference.head
        )
        if any(map(is_ours, rows)):
            raise InvalidReferenceError(
                f"thread {reference.thread_id!r} holds an item that is a reference itself; take it back",
                thread_id=reference.thread_id,
            )
        return rows


@contextlib.asynccontextmanager
async def _beating() -> AsyncIterator[None]:
    """Heartbeat while a long thread is read, or a store is asked again."""
    async with heartbeat_in_background(HEARTBEAT_EVERY, tuple):
        yield


class WorkflowSessionActivities:
    """Activities ``helix.openai_agents.*``, which open conversations and issue references.

    Args:
        plugin: Has the threads, and signs references.
    """

    def __init__(self, plugin: HelixOpenAIPlugin) -> None:
        self._plugin = plugin

    @activity.defn(name="helix.openai_agents.open")
    @raise_application_errors
    async def open(self, request: OpenConversationInput) -> ConversationPlace:
        """Take a conversation over; it begins if there is none."""
        async with heartbeat_with_progress(HEARTBEAT_EVERY) as progress:
            epoch = scheduled_epoch()
            head = await self._plugin.conversations.open(request.session_id, epoch, request.owner, progress)
            return await self._make_place(thread_of(request.session_id), epoch, head, request.newest)

    @activity.defn(name="helix.openai_agents.append")
    @raise_application_errors
    async def append(self, request: AppendItemsInput) -> ConversationPlace:
        """Append items at the head; a repeat finds them there."""
        reference = self._verify(request.reference)
        async with heartbeat_with_progress(HEARTBEAT_EVERY):
            head = await self._plugin.conversations.append_items(
                reference.thread_id, reference.epoch, request.head, request.items
            )
            return await self._make_place(reference.thread_id, reference.epoch, head, request.newest)

    @activity.defn(name="helix.openai_agents.cut")
    @raise_application_errors
    async def cut(self, request: CutConversationInput) -> ConversationPlace:
        """Cut a conversation and let items follow; late attempts of before are refused then."""
        reference = self._verify(request.reference)
        async with heartbeat_with_progress(HEARTBEAT_EVERY) as progress:
            epoch = scheduled_epoch()
            head = await self._plugin.conversations.cut(
                reference.thread_id, epoch, request.owner, request.to, request.items, progress,
                mine=reference.epoch,
            )  # fmt: skip
            return await self._make_place(reference.thread_id, epoch, head, request.newest)

    def _verify(self, text: str) -> ThreadReference:
        return self._plugin.signer.verify(text, activity.info().workflow_id or "")

    async def _make_place(self, thread_id: str, epoch: int, head: Head, count: int) -> ConversationPlace:
        before, newest = await self._plugin.conversations.read_newest(thread_id, head, count)
        return ConversationPlace(
            reference=self._sign(ThreadReference(thread_id, epoch, head)),
            before=self._sign(ThreadReference(thread_id, epoch, before)) if newest else None,
            newest=newest,
        )

    def _sign(self, reference: ThreadReference) -> str:
        return self._plugin.signer.sign(reference, activity.info().workflow_id or "")


def encode_answer(result: Any) -> Answer | None:
    """A model activity's result as it is stored; None where it holds nothing that could be."""
    from agents import ModelResponse, Usage  # noqa: PLC0415

    output = find_answer_items(result)
    if not output:
        return None
    items = ModelResponse(output=output, usage=Usage(), response_id=None).to_input_items()
    if isinstance(result, list):
        result = next(each for each in reversed(result) if read_field(each, "type") == COMPLETED)
    wire = json.loads(activity.payload_converter().to_payload(result).data)
    return Answer(tuple(as_plain(item) for item in items), _keep_rest(wire, items))


def _keep_rest(wire: Any, items: Sequence[Any]) -> str:
    """The result without the items that rows have as they are."""
    holder = wire["response"] if wire.get("type") == COMPLETED else wire
    plain = [as_plain(item) for item in items]
    holder["output"] = [None if each == plain[at] else each for at, each in enumerate(holder["output"])]
    return json.dumps(wire, separators=(",", ":"))


def decode_answer(answer: Answer) -> Any:
    """The result of the model activity that stored this: a response, or the last event of a stream."""
    from agents import ModelResponse  # noqa: PLC0415
    from agents.items import TResponseStreamEvent  # noqa: PLC0415

    wire = json.loads(answer.rest)
    is_stream = wire.get("type") == COMPLETED
    holder = wire["response"] if is_stream else wire
    holder["output"] = [
        answer.items[at] if each is None else each for at, each in enumerate(holder["output"])
    ]
    data = json.dumps([wire] if is_stream else wire).encode()
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data)
    kind: Any = list[TResponseStreamEvent] if is_stream else ModelResponse
    return activity.payload_converter().from_payload(payload, kind)
