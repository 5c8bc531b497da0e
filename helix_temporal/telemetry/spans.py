"""Spans as facts: what a turn, a model call and a tool call look like in a trace.  Pure; no OpenTelemetry.

Workers and the backfill build them here, so that both say the same.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from temporalio.exceptions import ApplicationError

from helix_temporal.errors import HelixError
from helix_temporal.models.checkpoints import Run, RunStatus
from helix_temporal.models.messages import Usage
from helix_temporal.models.states import SubSessionRef
from helix_temporal.models.traces import TurnTrace, TurnWait
from helix_temporal.models.usage import (
    SubAgentUsageEntry,
    TokenCounts,
    TokenUsageEntry,
    ToolUsageEntry,
    UsageEntry,
)
from helix_temporal.telemetry import genai
from helix_temporal.telemetry.genai import Attributes
from helix_temporal.telemetry.ids import SpanOf, SpanRef, derive_span_id

MAX_CONTENT: Final = 8 * 1024
"""Bytes of one attribute that holds texts of a conversation."""
NANOS_IN_MS: Final = 1_000_000
TOOL_ERROR: Final = "tool_error"
"""``error.type`` of a call whose result is an error, whatever it says."""
ABANDONED: Final = "abandoned"
"""``error.type`` of a turn that died: its worker and its execution ended without a word."""
CUT_OFF: Final = "cut_off"
"""``error.type`` of a sub-agent's call whose result no step has taken."""
_CUT: Final = "…"
_MAX_NAME: Final = 100
_MAX_KINDS: Final = 200
_OTHER_ERROR: Final = "_OTHER"
_ERRORS: Final = {
    RunStatus.FAILED: "failed",
    RunStatus.ABORTED: "aborted",
    RunStatus.SUPERSEDED: ABANDONED,
}

Redact = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened while a span was open."""

    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict)


@dataclass(slots=True)  # not frozen, which would cost as much as the rest of telling
class Span:
    """A span that has ended.

    Attributes:
        parent: None for a root.
        content: Texts of the conversation by attribute, as they are: redacted and cut when they are written.
        error: ``error.type``; None for one that went well.
    """

    name: str
    ref: SpanRef
    parent: SpanRef | None
    start_ns: int
    end_ns: int
    attributes: Attributes
    kind: Literal["internal", "client"] = "internal"
    links: tuple[tuple[SpanRef, str], ...] = ()
    events: tuple[SpanEvent, ...] = ()
    content: Mapping[str, Any] | None = None
    error: str | None = None


class Stopwatch:
    """When something began, by the wall clock, and how long it takes, by the monotonic one."""

    __slots__ = ("_began", "start_ns")

    def __init__(self) -> None:
        self.start_ns, self._began = time.time_ns(), time.monotonic_ns()

    @property
    def end_ns(self) -> int:
        """The end if it is now; never before the start, whatever was done to the wall clock."""
        return self.start_ns + (time.monotonic_ns() - self._began)


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose spans they are.

    Attributes:
        root: The span of the turn itself.
    """

    session_id: str
    run_id: str
    agent: str
    root: SpanRef

    @classmethod
    def of_trace(cls, session_id: str, run_id: str, trace: TurnTrace) -> "Turn | None":
        """The turn whose trace this is; None if what is kept of it cannot be read."""
        root = SpanRef.parse(trace.root)
        return None if root is None else cls(session_id, run_id, trace.agent, root)

    def ref(self, what: SpanOf, *which: str) -> SpanRef:
        """A span of this turn."""
        return self.root.at(derive_span_id(self.session_id, self.run_id, what, *which))

    def _attributes(self, operation: str) -> Attributes:
        return genai.common_attributes(operation, self.session_id, self.run_id, self.agent)

    def end(self, trace: TurnTrace, outcome: str, end_ns: int, *, error: str | None = None) -> Span:
        """The turn itself: ``outcome`` says how it ended."""
        start_ns = trace.started * NANOS_IN_MS
        return Span(
            name=turn_name(self.agent),
            ref=self.root,
            parent=SpanRef.parse(trace.parent),
            start_ns=start_ns,
            end_ns=max(end_ns, start_ns),
            attributes=self._attributes(genai.INVOKE_AGENT) | {"helix.turn.outcome": outcome},
            links=_links_of(trace) if trace.links or trace.before else (),
            events=tuple(map(_describe_wait, trace.waits)) if trace.waits else (),
            error=error,
        )

    def chat(
        self,
        model: str,
        ref: SpanRef,
        start_ns: int,
        end_ns: int,
        *,
        step: int,
        used: Usage | None = None,
        summary: bool = False,
        finish: str | None = None,
        content: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> Span:
        """A model call, for a step's answer or for a summary."""
        attributes = self._attributes(genai.CHAT)
        attributes |= genai.model_attributes(model)
        attributes["helix.step"] = step
        if summary:
            attributes["helix.summary"] = True
        if used is not None:
            attributes |= genai.usage_attributes(used)
        if finish is not None:
            attributes |= genai.finish_attributes(finish)
        return Span(
            name=f"{genai.CHAT} {model}",
            ref=ref,
            parent=self.root,
            start_ns=start_ns,
            end_ns=max(end_ns, start_ns),
            attributes=attributes,
            kind="client",
            content=content,
            error=error,
        )

    def call(
        self,
        tool: str,
        call_id: str,
        result_id: str,
        start_ns: int,
        end_ns: int,
        *,
        step: int,
        failed: bool = False,
        attempt: int | None = None,
        sub_session_id: str | None = None,
    ) -> Span:
        """A tool call; with ``attempt``, one attempt of it that came to nothing."""
        kind = "function" if sub_session_id is None else "extension"
        attributes = self._attributes(genai.EXECUTE_TOOL) | genai.tool_attributes(tool, call_id, kind)
        attributes["helix.step"] = step
        if sub_session_id is not None:
            attributes["helix.sub_session.id"] = sub_session_id
        if attempt is not None:
            attributes["helix.attempt"] = attempt
        ref = self.ref("call", result_id) if attempt is None else self.ref("attempt", result_id, str(attempt))
        return Span(
            name=f"{genai.EXECUTE_TOOL} {tool}",
            ref=ref,
            parent=self.root,
            start_ns=start_ns,
            end_ns=max(end_ns, start_ns),
            attributes=attributes,
            error=TOOL_ERROR if failed else None,
        )


def turn_name(agent: str) -> str:
    """The name of a turn's root."""
    return f"{genai.INVOKE_AGENT} {agent}".strip()


def _links_of(trace: TurnTrace) -> tuple[tuple[SpanRef, str], ...]:
    told = [(SpanRef.parse(each), "caller") for each in trace.links]
    told.append((SpanRef.parse(trace.before), "turn before"))
    return tuple((ref, why) for ref, why in told if ref is not None)


def _describe_wait(wait: TurnWait) -> SpanEvent:
    about: Attributes = {
        "gen_ai.tool.name": wait.tool,
        "helix.wait.kind": wait.kind,
        "helix.wait.outcome": wait.outcome,
        "helix.wait.ms": max(wait.until - wait.since, 0),
    }
    return SpanEvent("helix.wait", wait.since * NANOS_IN_MS, about)


# -- from stores


def span_of_run(run: Run) -> Span | None:
    """The span of a turn by its run; None for one that has no trace, or that still goes on."""
    turn = None if run.trace is None else Turn.of_trace(run.session_id, run.run_id, run.trace)
    if turn is None or run.trace is None or run.status.live:
        return None
    error = _ERRORS.get(run.status)
    end_ms = run.ended_at or run.started_at
    return turn.end(run.trace, run.completion_reason or run.status.value, end_ms * NANOS_IN_MS, error=error)


def span_of_abandoned(run: Run, end_ms: int) -> Span | None:
    """The span of a turn that its session's end has left under way."""
    turn = None if run.trace is None else Turn.of_trace(run.session_id, run.run_id, run.trace)
    if turn is None or run.trace is None:
        return None
    return turn.end(run.trace, ABANDONED, end_ms * NANOS_IN_MS, error=ABANDONED)


_STEP, _SUMMARY, _CALL, _TOKENS, _CHILD = "step/", "summary/", "tool/", "tool-tokens/", "child/"


def spans_of_usage(turn: Turn, entries: list[UsageEntry]) -> list[Span]:
    """The spans within a turn by what it used: its model calls, and its tool calls that came to an end."""
    found: list[Span] = []
    tokens = {each.id.removeprefix(_TOKENS): each for each in entries if each.id.startswith(_TOKENS)}
    for each in entries:
        end_ns = each.timestamp * NANOS_IN_MS
        if isinstance(each, TokenUsageEntry):
            if not each.id.startswith((_STEP, _SUMMARY)):
                continue
            start_ns = end_ns - each.duration_ms * NANOS_IN_MS
            is_summary, which = each.id.startswith(_SUMMARY), each.id.split("/", 1)[1]
            ref = turn.ref("summary" if is_summary else "chat", which)
            used = _usage_of(each.tokens)
            found.append(
                turn.chat(
                    each.model, ref, start_ns, end_ns, step=each.step_count, used=used, summary=is_summary
                )
            )
        elif isinstance(each, ToolUsageEntry) and each.id.startswith(_CALL):
            result_id = each.id.removeprefix(_CALL)
            span = turn.call(
                each.tool_name,
                each.tool_call_id,
                result_id,
                end_ns - each.duration_ms * NANOS_IN_MS,
                end_ns,
                step=each.step_count,
                failed=not each.success,
            )
            own = tokens.get(result_id)
            if isinstance(own, TokenUsageEntry):
                span = replace(
                    span, attributes=span.attributes | genai.usage_attributes(_usage_of(own.tokens))
                )
            found.append(span)
        elif isinstance(each, SubAgentUsageEntry) and each.id.startswith(_CHILD):
            found.append(span_of_child(turn, each))
    return found


def span_of_child(turn: Turn, entry: SubAgentUsageEntry) -> Span:
    """The call of a sub-agent by its entry."""
    end_ns, result_id = entry.timestamp * NANOS_IN_MS, entry.id.removeprefix(_CHILD)
    name = entry.agent_type if entry.source is None else entry.source.name
    return turn.call(
        name,
        result_id,
        result_id,
        end_ns - entry.duration_ms * NANOS_IN_MS,
        end_ns,
        step=entry.step_count,
        failed=not entry.success,
        sub_session_id=entry.sub_session_id,
    )


def span_of_cut_call(run: Run, ref: SubSessionRef, called: Run, end_ms: int) -> Span | None:
    """The call of a sub-agent whose result no step of the turn has taken.

    Args:
        run: The turn that made the call.
        ref: The reference to the sub-agent's session.
        called: The sub-agent's turn, whose parent the call is; None comes of one that has none, or another.
        end_ms: When the call ended, if that turn goes on.
    """
    turn = None if run.trace is None else Turn.of_trace(run.session_id, run.run_id, run.trace)
    at = None if called.trace is None else SpanRef.parse(called.trace.parent)
    if turn is None or at is None or called.trace is None or at.trace_id != turn.root.trace_id:
        return None
    span = turn.call(
        ref.tool or ref.agent_type,
        ref.parent_tool_call_id or "",
        "",
        called.trace.started * NANOS_IN_MS,
        (called.ended_at or end_ms) * NANOS_IN_MS,
        step=0,
        sub_session_id=ref.sub_session_id,
    )
    return replace(span, ref=at, error=CUT_OFF)


def _usage_of(tokens: TokenCounts) -> Usage:
    return Usage(
        input_tokens=tokens.prompt,
        output_tokens=tokens.completion,
        reasoning_tokens=tokens.reasoning,
        cached_read_tokens=tokens.cached,
        cached_write_tokens=tokens.cache_write,
    )


# -- errors and content


class ErrorTypes:
    """Names of errors for ``error.type``: class names, and no more of them than a backend can bear.

    Code can make classes up; after so many different names the rest are ``_OTHER``, as the conventions say.
    """

    def __init__(self, limit: int = _MAX_KINDS) -> None:
        self._known: set[str] = set()
        self._limit = limit

    def name_error(self, error: BaseException) -> str:
        """The name of an error's class, or of the one that was raised where the error came from."""
        name = type(error).__name__
        if isinstance(error, ApplicationError) and error.type:
            name = error.type
        ours = isinstance(error, HelixError) and type(error).__module__.startswith("helix_temporal.")
        if ours or name in self._known:
            return name
        if len(name) > _MAX_NAME or not name.isidentifier() or len(self._known) >= self._limit:
            return _OTHER_ERROR
        self._known.add(name)
        return name


error_types: Final = ErrorTypes()
"""Of this process."""


def write_content(content: Mapping[str, Any], redact: Redact | None) -> Attributes:
    """Texts of a conversation as attributes: redacted, then cut."""
    found: Attributes = {}
    for name, value in content.items():
        text = genai.as_text(value)
        found[name] = cut_content(text if redact is None else redact(text))
    return found


def cut_content(text: str) -> str:
    """A text of at most 8 KiB; one that was longer ends with ``…``."""
    body = text.encode(errors="replace")
    if len(body) <= MAX_CONTENT:
        return body.decode()
    return body[: MAX_CONTENT - len(_CUT.encode())].decode(errors="ignore") + _CUT
