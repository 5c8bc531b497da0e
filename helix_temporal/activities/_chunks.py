"""Pure: what is told of steps, tools and turns, as chunks under keys that are the same for every attempt."""

from collections.abc import Sequence
from typing import Any, Final

from helix_temporal.activities._outlet import Keyed
from helix_temporal.activities._state_turns import ending
from helix_temporal.agents import Agent, ToolOutcome
from helix_temporal.models import chunks
from helix_temporal.models._json import JsonObject, dumps
from helix_temporal.models.agents import ToolFacts
from helix_temporal.models.children import child_session_id
from helix_temporal.models.messages import Message, ToolCall, are_left_out
from helix_temporal.models.records import Head
from helix_temporal.models.runs import RunStatus
from helix_temporal.models.sessions import SliceState
from helix_temporal.models.steps import EndTurnInput, RunStepInput, RunStepResult, ToolInput
from helix_temporal.models.suspensions import WaitingCall
from helix_temporal.stores._stream_runs import BegunRun

SHOWN: Final = 16 * 1024
"""Bytes of a tool's arguments or result, as JSON, that are shown; larger ones are read from the thread."""
SHOWN_OF_CHILD: Final = 2000
"""Characters of a sub-agent's answer that are shown with its end."""


def run_of(request: RunStepInput | EndTurnInput | ToolInput) -> str:
    """The run that a request belongs to; a turn that began before there were runs has its number."""
    number = request.turn if isinstance(request, RunStepInput | ToolInput) else 0
    return request.run_id or f"turn-{number}"


def step_of(request: RunStepInput) -> str:
    """A step's name: of its run and place, so that a step that is taken back and done again has the same."""
    return f"{run_of(request)}/{request.head.position}"


def turn_begins(request: RunStepInput, inputs: Sequence[Message]) -> list[Keyed]:
    """With a turn's first step: which messages it is for."""
    asked = tuple(each.id for each in inputs if each.role == "user")
    if not asked:
        return []
    return [Keyed(chunks.RunStarted(turn=request.turn, message_ids=asked), f"run/{run_of(request)}/started")]


def step_begins(request: RunStepInput, message_id: str, number: int, attempt: int) -> list[Keyed]:
    """An attempt calls the model; what earlier ones said is void."""
    told: dict[str, Any] = {"step_id": step_of(request), "step": number}
    items = []
    if any(each.answered is not None for each in request.inputs):
        items.append(Keyed(chunks.RunResumed(step=number), f"answer/{request.head.last_id}/resumed"))
    if attempt > 1:
        void = chunks.StepDiscarded(**told, attempt=attempt - 1)
        items.append(Keyed(void, f"answer/{message_id}/instead"))
    started = chunks.StepStarted(**told, message_id=message_id, attempt=attempt)
    return [*items, Keyed(started, f"answer/{message_id}/started")]


def step_fails(request: RunStepInput, message_id: str, number: int, attempt: int) -> Keyed:
    """The attempt came to nothing."""
    void = chunks.StepDiscarded(step_id=step_of(request), step=number, message_id=message_id, attempt=attempt)
    return Keyed(void, f"answer/{message_id}/discarded")


def step_stands(
    request: RunStepInput, agent: Agent, answer: Message, position: int, number: int | None
) -> list[Keyed]:
    """The answer is in the thread, and these tools are asked for."""
    about: dict[str, Any] = {"message_id": answer.id} | ({} if number is None else {"step": number})
    committed = chunks.StepCommitted(
        step_id=step_of(request), position=position, characters=len(answer.text), **about
    )
    items = [Keyed(committed, f"answer/{answer.id}/committed")]
    if answer.usage is not None:
        items.append(Keyed(chunks.UsageChunk(usage=answer.usage, **about), f"answer/{answer.id}/usage"))
    for ordinal, call in enumerate(answer.tool_calls):
        start = chunks.ToolStart(
            tool_call_id=call.id, tool_name=call.name, **_shown("arguments", call.arguments, {}), **about
        )
        items.append(Keyed(start, f"call/{answer.id}.{ordinal}/start"))
        facts = _facts(agent, call.name)
        if facts is not None and facts.kind == "agent":
            child = child_session_id(request.session_id, facts.name, facts.thread, f"{answer.id}.{ordinal}")
            sub = chunks.SubAgentStart(
                sub_session_id=child,
                sub_agent_type=facts.agent or "",
                tool_call_id=call.id,
                **about,
            )
            items.append(Keyed(sub, f"call/{answer.id}.{ordinal}/child"))
    return items


def step_ends(request: RunStepInput, result: RunStepResult) -> list[Keyed]:
    """What comes after the step: the end of the turn, or a wait for people."""
    if not result.calls:
        return [_turn_ends(request, result.head, answered=True)]
    if not result.waiting:
        return []
    asker = result.head.last_id
    waits = [(each, result.calls[each.at]) for each in result.waiting]
    calls = tuple(_waiting(each, call) for each, call in waits)
    asks = [_approval(each, call, asker) for each, call in waits if each.kind == "approval"]
    return [*asks, Keyed(chunks.Suspended(calls=calls, message_id=asker), f"answer/{asker}/suspended")]


def _waiting(waiting: WaitingCall, call: ToolCall) -> JsonObject:
    told: JsonObject = {"id": waiting.id, "tool_call_id": call.id, "tool_name": call.name}
    until: JsonObject = {} if waiting.until is None else {"until": waiting.until}
    return {**told, "kind": waiting.kind, **until}


def _approval(waiting: WaitingCall, call: ToolCall, asker: str) -> Keyed:
    large = are_left_out(call.arguments)
    asked = chunks.ToolApprovalRequest(
        tool_call_id=call.id,
        tool_name=call.name,
        approval_id=waiting.id,
        input=None if large else call.arguments,
        message_id=asker,
    )
    return Keyed(asked, f"call/{waiting.id}/approval")


def turn_ends(request: EndTurnInput, inputs: Sequence[Message], head: Head) -> list[Keyed]:
    """The turn is over with the results of its tools."""
    return [*tools_end(request, None, inputs), _turn_ends(request, head, answered=False)]


def _turn_ends(request: RunStepInput | EndTurnInput, head: Head, *, answered: bool) -> Keyed:
    status, reason = ending(request)
    answer = {"message_id": head.last_id, "position": head.position - 1} if answered else {}
    ended = chunks.RunEnded(status=status.value, exit_reason=reason or status.value, **answer)
    return Keyed(ended, f"run/{run_of(request)}/ended")


def turn_is_cut(run_id: str, status: RunStatus, reason: str) -> Keyed:
    """The turn came to no end of its own, and does not stay in the thread."""
    ended = chunks.RunEnded(status=status.value, exit_reason=reason, in_thread=False)
    return Keyed(ended, f"run/{run_id}/ended")


def stands(run: BegunRun, state: SliceState) -> bool:
    """Whether the turn of this run is in the thread whose slice this is."""
    return run.run_id == state.run if run.turn is None else run.turn <= state.turns


def tools_end(
    request: RunStepInput | EndTurnInput, agent: Agent | None, inputs: Sequence[Message]
) -> list[Keyed]:
    """The results that a step takes: those that their tools told of already, and those of other calls."""
    children = {each.id: each.child for each in request.inputs if each.child is not None}
    items = []
    for result in inputs:
        if result.role != "tool":
            continue
        child = children.get(result.id)
        if child is not None:
            facts = None if agent is None else _facts(agent, result.name or "")
            end = chunks.SubAgentEnd(
                sub_session_id=child.session_id,
                sub_agent_type=child.agent or ("" if facts is None else facts.agent or ""),
                tool_call_id=result.tool_call_id,
                result=result.text[:SHOWN_OF_CHILD],
                success=child.status == "completed",
                message_id=_asked_by(result.id),
            )
            items.append(Keyed(end, f"call/{result.id}/child-end"))
        items.append(_tool_end(result))
    return items


def tool_ends(request: ToolInput, outcome: ToolOutcome) -> list[Keyed]:
    """A tool has run, and what it changed of the state."""
    answer_id, ordinal = call_of(request)
    result = Message(
        id=f"{answer_id}.{ordinal}",
        role="tool",
        content=outcome.content,
        tool_call_id=request.call.id,
        is_error=outcome.is_error,
    )
    items = [_tool_end(result)]
    if outcome.state:
        patches = tuple(_patch(name, value) for name, value in outcome.state.items())
        patch = chunks.StatePatch(patches=patches, message_id=answer_id)
        items.insert(0, Keyed(patch, f"call/{result.id}/state"))
    return items


def call_of(request: ToolInput) -> tuple[str, str]:
    """The answer that asks for the tool, and which of its calls this is."""
    answer_id, ordinal = request.key.rsplit("/", 2)[1:]
    return answer_id, ordinal


def _facts(agent: Agent, tool: str) -> ToolFacts | None:
    found = agent.tool(tool)
    return None if found is None else found.facts(agent.name)


def _asked_by(result_id: str) -> str:
    """The answer that asks for the tool whose result has this id."""
    return result_id.rsplit(".", 1)[0]


def _tool_end(result: Message) -> Keyed:
    fields: dict[str, Any] = {} if result.is_error else _shown("result", result.content, None)
    if result.is_error:
        fields = {"success": False, "error": result.text[:SHOWN]}
    end = chunks.ToolEnd(tool_call_id=result.tool_call_id or "", message_id=_asked_by(result.id), **fields)
    return Keyed(end, f"call/{result.id}/end")


def _shown(field: str, value: Any, instead: Any) -> dict[str, Any]:
    """The field if it is small enough, else its size."""
    size = len(dumps(value))
    return {field: value} if size <= SHOWN else {field: instead, f"{field}_bytes": size}


def _patch(name: str, value: Any) -> JsonObject:
    # A member's name in a JSON pointer (RFC 6901).
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    return {"op": "add", "path": path, "value": value}
