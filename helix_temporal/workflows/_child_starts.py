"""What a sub-agent's session is started with: for a call, once it may go on, and to be ended."""

from typing import Any, Final

from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import MessageRef, ParentLink, Wake, call_of, child_session_id, task_of
from helix_temporal.models.messages import are_left_out
from helix_temporal.models.sessions import ForkFrom, SessionInput, SessionOptions, UserMessage
from helix_temporal.models.slices import ArchiveMode
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.steps import ToolInput
from helix_temporal.models.suspensions import ChildWait
from helix_temporal.workflows._sleepers import Woken

END_SECONDS: Final = 300.0
"""How long a session may take that is started to end its turn."""


def task_message(facts: ToolFacts, request: ToolInput, call: str) -> UserMessage | None:
    """The task as the child's first message; large arguments stay in the parent's thread."""
    if are_left_out(request.call.arguments):
        answer, ordinal = request.key.rsplit("/", 2)[1:]
        ref = MessageRef(
            thread_id=request.thread_id,
            position=request.position - 1,
            id=answer,
            call=int(ordinal),
            argument=facts.argument,
        )
        return UserMessage(id=call, ref=ref.named())
    text = task_of(request.call.arguments, facts.argument)
    return None if text is None else UserMessage(id=call, text=text)


def fresh(
    facts: ToolFacts,
    request: ToolInput,
    wait: ChildWait,
    message: UserMessage,
    link: ParentLink,
    options: SessionOptions,
) -> SessionInput:
    """For a call that is made."""
    fields: dict[str, Any] = {}
    if facts.thread == "fork":
        # What is finished is all before the turn that asks: no call without its result is copied.
        fields = {"mode": "fork", "fork_from": ForkFrom(thread_id=request.thread_id)}
    return SessionInput(
        session_id=wait.session_id,
        agent=facts.agent or "",
        options=options,
        messages=(message,),
        parent=link,
        **fields,
        **_metadata(request.metadata),
        **_trace(request),
    )


def again(
    woken: Woken, request: ToolInput, message: UserMessage, link: ParentLink, options: SessionOptions
) -> SessionInput:
    """For a call that has waited.

    The message is the same: where the turn has ended meanwhile its answer is found, where it is lost it is
    run again.
    """
    wait = woken.wait
    if woken.ends or woken.late:
        return ending(wait, link, request.metadata)
    letters: dict[str, Any] = {"submits": woken.letters} if woken.letters else {}
    return SessionInput(
        session_id=wait.session_id,
        agent=wait.agent,
        mode="continue",
        options=options,
        messages=(message,),
        parent=link,
        woken=Wake(**letters),
        **_metadata(request.metadata),
        **_trace(request),
    )


def ending(wait: ChildWait, link: ParentLink, metadata: dict[str, str]) -> SessionInput:
    """For a call that is nobody's any more: its turn ends, and what waits below it."""
    return SessionInput(
        session_id=wait.session_id,
        agent=wait.agent,
        mode="continue",
        options=child_options(exits=True),
        parent=link,
        woken=Wake(ends=True),
        **_metadata(metadata),
    )


def seconds_left(facts: ToolFacts, start: SessionInput, wait: ChildWait, now: int) -> float | None:
    """How long its execution may last; None for ever."""
    if start.woken is None:
        return facts.schedule_to_close
    if start.woken.ends:
        return END_SECONDS
    return None if wait.until is None else max((wait.until - now) / 1000, 0.001)


def should_wait(facts: ToolFacts, request: ToolInput, now: int) -> ChildWait:
    """The call, should it have to wait."""
    call, limit = call_of(request.key), facts.schedule_to_close
    fields: dict[str, Any] = {} if limit is None else {"until": now + int(limit * 1000)}
    if facts.task_queue is not None:
        fields["task_queue"] = facts.task_queue
    return ChildWait(
        at=int(request.key.rsplit("/", 1)[1]),
        session_id=child_session_id(request.session_id, facts.name, facts.thread, call),
        call=call,
        agent=facts.agent or "",
        since=now,
        **fields,
    )


def facts_of(wait: ChildWait) -> ToolFacts:
    """Of the tool that was called, as far as it takes to end the call."""
    elsewhere: dict[str, Any] = {} if wait.task_queue is None else {"task_queue": wait.task_queue}
    return ToolFacts(name=wait.agent, activity="", kind="agent", agent=wait.agent, **elsewhere)


def child_options(*, exits: bool, archive: ArchiveMode | None = None) -> SessionOptions:
    """How the session of a sub-agent behaves; ``archive`` is its caller's."""
    # What an earlier call left unanswered must not hold up a new one.
    leaves: dict[str, Any] = {"suspend": "exit"} if exits else {}
    if archive is not None:
        leaves["archive"] = archive
    return SessionOptions(persistent=False, while_suspended="supersede", **leaves)


def _metadata(metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": metadata} if metadata else {}


def _trace(request: ToolInput) -> dict[str, Any]:
    trace = request.tracing_context
    return {} if trace is None else {"properties": SessionProperties(tracing_context=trace)}
