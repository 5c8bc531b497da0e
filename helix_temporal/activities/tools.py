"""Activities of tools and hooks: each tool and each hook of an agent is its own activity type."""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from helix_temporal._failures import describe_failure, tell_tool_failure
from helix_temporal.activities._runtime import (
    ATTEMPTS,
    CODE_ERRORS,
    STORE_AWAY_PAUSES,
    application_code,
    application_error,
    current_attempt,
    find_most_attempts,
    heartbeat_with_progress,
    is_bug,
    is_cancellation,
    is_current_attempt,
    raise_application_errors,
    repeat_while_away,
    with_text,
)
from helix_temporal.activities.live import Streaming, ToolStream
from helix_temporal.activities.payloads import FAR, Payloads, References, payload_key
from helix_temporal.activities.traces import CallTrace, TurnTraces
from helix_temporal.activities.usage import ToolCounts, UsageLog
from helix_temporal.agents import Agent, Tool, ToolContext, ToolOutcome
from helix_temporal.errors import (
    HelixError,
    InvalidRequestError,
    PayloadNotFoundError,
    StoreUnavailableError,
    ThreadNotFoundError,
    TooLargeError,
)
from helix_temporal.models.agents import (
    AfterUserMessage,
    BeforeUserMessage,
    HookEvent,
    SessionEnded,
    SessionStarted,
    TurnCompleted,
    UserMessageDecision,
)
from helix_temporal.models.base import JsonObject, canonical_json, dump_json
from helix_temporal.models.ids import CallKey
from helix_temporal.models.limits import INLINE_RESULT, INLINE_TEXT, MAX_TEXT, largest_result
from helix_temporal.models.messages import Message, are_left_out, check_size, decode_message
from helix_temporal.models.steps import ToolInput, ToolResult
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore

_BESIDE_CONTENT: Final = 16 * 1024
"""Bytes that a stored result may have beside its content: ids and names."""

_EVENTS: dict[str, type[HookEvent]] = {
    "session_started": SessionStarted,
    "session_ended": SessionEnded,
    "turn_completed": TurnCompleted,
    "before_user_message": BeforeUserMessage,
    "after_user_message": AfterUserMessage,
}


class ToolChanges(Protocol):
    """Where tools leave what they change of a session's state."""

    async def stage_changes(self, request: ToolInput, changes: JsonObject) -> str:
        """Keep aside what a call changes; the name that the call's result says it by."""
        ...


def _describe_attempt(error: BaseException, text: str, number: int) -> HelixError | ApplicationError:
    """What an attempt fails with; ``text`` is its message."""
    if isinstance(error, (HelixError, ApplicationError)):
        return with_text(error, text)
    return ApplicationError(
        text, type=type(error).__name__, non_retryable=is_bug(error) and number >= ATTEMPTS
    )


def _is_last(tool: Tool, failure: HelixError | ApplicationError, number: int) -> bool:
    """Whether no attempt follows this one, so that the model is told of the failure."""
    most = find_most_attempts(tool.attempts)
    told = failure if isinstance(failure, ApplicationError) else application_error(failure, number)
    return told.non_retryable or (most is not None and number >= most)


class ToolRunner:
    """Runs tools and keeps large results aside before the activity completes.

    Args:
        inline_result: Results up to so many bytes travel in the activity's result.
        inline_text: Texts of users up to so many bytes do.
        max_result: A result of more bytes, as JSON, is refused: it could not enter the thread.
        beat_every: Seconds between background heartbeats.
        states: Takes what tools change of the state; None where there is no session store.
        streams: Where tools are shown live.
        used: Where what they used is recorded.
        traces: Who tells of them in traces.
    """

    def __init__(
        self,
        threads: ThreadStore,
        payloads: Payloads,
        *,
        inline_result: int = INLINE_RESULT,
        inline_text: int = INLINE_TEXT,
        max_result: int = largest_result(MAX_TEXT),
        beat_every: float = 1.0,
        states: ToolChanges | None = None,
        streams: Streaming | None = None,
        used: UsageLog | None = None,
        traces: TurnTraces | None = None,
    ) -> None:
        self._traces = traces or TurnTraces()
        self._states, self._streams, self._used = states, streams or Streaming(), used or UsageLog()
        self._threads, self._payloads = threads, payloads
        self._inline_result, self._inline_text = inline_result, inline_text
        self._max_result, self._beat_every = max_result, beat_every

    def define_activities(self, agent: Agent) -> list[Callable[..., Any]]:
        """The activities of one agent's tools and hooks."""
        facts = agent.build_facts()
        tools = [
            self._define_tool_activity(tool, tool.build_facts(agent.name).activity, hides=agent.hide_errors)
            for tool in agent.tools
        ]
        hooks = [
            self._define_hook_activity(agent, name, getattr(facts.hooks, name)) for name in agent.hooks.names
        ]
        return [*tools, *hooks]

    def _define_tool_activity(self, tool: Tool, name: str, *, hides: bool) -> Callable[..., Any]:
        @activity.defn(name=name)
        @raise_application_errors
        async def run_tool(request: ToolInput) -> ToolResult:
            async with heartbeat_with_progress(self._beat_every):
                return await self.run(tool, request, hides=hides)

        return run_tool

    async def run(
        self, tool: Tool, request: ToolInput, *, hides: bool = False, number: int | None = None
    ) -> ToolResult:
        """Run a tool once; its own exceptions pass, so that Temporal tries again.

        ``hides``: of an exception the model is told the type alone.  ``number``: of the attempt, unless it is
        the activity's.
        """
        number = current_attempt() if number is None else number
        hides = hides or tool.hide_errors
        async with self._streams.open_tool_stream(request) as live:
            with self._traces.open_call(request, number) as traced:
                return await self._run_tool(tool, request, live, traced, number, hides=hides)

    async def _run_tool(
        self,
        tool: Tool,
        request: ToolInput,
        live: ToolStream,
        traced: CallTrace,
        number: int,
        *,
        hides: bool,
    ) -> ToolResult:
        counts = ToolCounts()
        context = ToolContext(
            session_id=request.session_id,
            thread_id=request.thread_id,
            agent=request.agent,
            turn=request.turn,
            call_id=request.call.id,
            key=request.key,
            metadata=dict(request.metadata),
            attempt=number,
            emit=live.emit,
            record=counts.record,
            tracing_context=request.tracing_context,
        )
        arguments = request.call.arguments
        if are_left_out(arguments):
            arguments = await self._read_arguments(request)
        began = time.monotonic()
        try:
            outcome = self._limit_result(tool, await tool.call_handler(arguments, context))
            traced.note_outcome(arguments, outcome)
        except CODE_ERRORS as error:
            if is_cancellation(error):
                raise
            # Without the cause: its traceback holds more than the model may see.
            activity.logger.warning("tool %s failed", tool.name, exc_info=error)
            text = f"tool {tool.name!r}: {describe_failure(error, hides=hides)}"
            failure = _describe_attempt(error, text, number)
            # Of an attempt that has timed out, the next one tells how the call ended.
            if _is_last(tool, failure, number) and await is_current_attempt():
                async with self._used.recording_failed_tool(request, time.monotonic() - began, number):
                    await live.tell_end(ToolOutcome(tell_tool_failure(text), is_error=True))
            raise failure from None
        took = time.monotonic() - began
        current = await is_current_attempt(took)
        async with self._used.recording_tool(
            request, outcome, took, counts, attempts=number, current=current
        ):
            result = await self._keep_result(tool, request, outcome)
            if current:
                await live.tell_end(outcome)
        return result

    def _limit_result(self, tool: Tool, outcome: ToolOutcome) -> ToolOutcome:
        """The outcome; an error if no message could hold it, with all that goes with it in the thread.

        The tool has done its work, and what it used is paid for.
        """
        try:
            check_size(
                len(dump_json(outcome.content)),
                self._max_result - _BESIDE_CONTENT,
                f"result of tool {tool.name!r}, which may return a part of it, or say where it is",
            )
        except TooLargeError as error:
            activity.logger.warning("tool %s has run, and its result is not kept: %s", tool.name, error)
            return ToolOutcome(tell_tool_failure(str(error)), is_error=True, usage=outcome.usage)
        return outcome

    async def _keep_result(self, tool: Tool, request: ToolInput, outcome: ToolOutcome) -> ToolResult:
        """What the workflow gets; the tool has done its work, and a further attempt would do it again.

        Raises:
            StoreUnavailableError: A store was away for too long.  The model is told no more of it.
        """
        try:
            staged = await self._stage_changes(tool, request, outcome.state) if outcome.state else ""
            return await self._build_result(request, outcome, staged)
        except StoreUnavailableError as error:
            activity.logger.warning("tool %s has run, and its result is not kept", tool.name, exc_info=error)
            raise StoreUnavailableError(
                f"tool {tool.name!r} has run, but its result could not be kept: a store did not answer"
            ) from None

    async def _stage_changes(self, tool: Tool, request: ToolInput, changes: JsonObject) -> str:
        if self._states is None:
            raise InvalidRequestError(
                f"tool {tool.name!r} changes the session's state, but there is no session store; "
                "set one (docs/settings.md) or return no state"
            )
        states = self._states
        return await repeat_while_away(
            lambda: states.stage_changes(request, changes),
            f"session {request.session_id!r}: what tool {tool.name!r} changed",
            STORE_AWAY_PAUSES,
        )

    async def _read_arguments(self, request: ToolInput) -> dict[str, Any]:
        """Large arguments are read from the answer that asked, just before the step's position."""
        page = await self._threads.read(
            ReadPage.of_message(request.thread_id, request.position - 1, epoch=request.epoch)
        )
        key = CallKey.parse(request.key)
        # A late attempt may find another answer there: its arguments are none of this call's.
        if not page.messages or page.messages[0].id != key.answer_id:
            raise ThreadNotFoundError(
                f"thread {request.thread_id!r}: the answer that asks for the tool is gone"
            )
        return dict(decode_message(page.messages[0]).tool_calls[key.at].arguments)

    async def _build_result(self, request: ToolInput, outcome: ToolOutcome, staged: str) -> ToolResult:
        fields: dict[str, Any] = {}
        content = outcome.content
        size = len(content.encode()) if isinstance(content, str) else len(canonical_json(content))
        if size > self._inline_result:
            fields["ref"] = await repeat_while_away(
                lambda: self._payloads.put(request.thread_id, request.position, request.key, content),
                f"session {request.session_id!r}: the result of tool {request.tool!r}",
                STORE_AWAY_PAUSES,
            )
        else:
            fields["text" if isinstance(content, str) else "parts"] = content
        for name in ("is_error", "rewind", "wait", "usage"):
            if getattr(outcome, name):
                fields[name] = getattr(outcome, name)
        if staged:
            fields["staged"] = staged
        return ToolResult(**fields)

    # -- hooks

    def _define_hook_activity(self, agent: Agent, hook: str, name: str) -> Callable[..., Any]:
        event_type: Any = _EVENTS[hook]

        async def run_hook(event: Any) -> UserMessageDecision | None:
            if isinstance(event, BeforeUserMessage):
                return await self._call_message_hook(agent, event)
            with application_code(f"hook {hook} of agent {agent.name!r}"):
                return await agent.hooks.run_hook(hook, event)

        run_hook.__annotations__ = {"event": event_type, "return": UserMessageDecision | None}
        return activity.defn(name=name)(raise_application_errors(run_hook))

    async def _call_message_hook(self, agent: Agent, event: BeforeUserMessage) -> UserMessageDecision | None:
        """Show the hook the whole text, and put aside a long one that it makes of it."""
        if event.ref is not None:
            try:
                # As the step finds it: whoever sent it may not have known its session's thread.
                content = await References(self._payloads, self._threads).get(
                    event.thread_id, event.ref, event.session_id
                )
            except PayloadNotFoundError:
                # The step knows whether the message is in the thread already; where it is not, a text that
                # comes back is none that the hook has seen.
                return UserMessageDecision(ref=payload_key(FAR, f"unseen/{event.message_id}", b""))
            text = Message(id=event.message_id, role="user", content=content).text
            event = event.model_copy(update={"text": text, "ref": None})
        with application_code(f"hook before_user_message of agent {agent.name!r}"):
            decision = await agent.hooks.run_hook("before_user_message", event)
        if decision is None or len((decision.text or "").encode()) <= self._inline_text:
            return decision
        # A name of its own: the hook may be run again, on the text as it was sent.
        key = f"text/{event.message_id}/changed"
        ref = await self._payloads.put(event.thread_id, FAR, key, decision.text or "")
        return UserMessageDecision(ref=ref)
