"""Drives an agent as a session does, without any store: one list of messages is the thread."""

import asyncio
from collections.abc import Callable

from helix_temporal.agents import (
    Agent,
    ModelRequest,
    ToolContext,
    call_model,
    choose_context,
    repair_tool_results,
)
from helix_temporal.models.messages import Message, ToolCall, decode_message, encode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.testing.recorded import ExpectedMessage

EXAMPLE = "examples/quickstart/conversation.json"


def a_context(**changes: object) -> ToolContext:
    facts = {"session_id": "s", "thread_id": "s", "agent": "a", "turn": 1, "call_id": "c", "key": "k"}
    return ToolContext(**(facts | changes))  # type: ignore[arg-type]


def a_request(*messages: Message) -> ModelRequest:
    return ModelRequest(agent="a", session_id="s", thread_id="s", messages=messages)


async def ask(fresh_agent: Callable[[], Agent], thread: list[StoredMessage], text: str) -> None:
    """One turn; each model call and each tool call is served by an agent of its own, as by other workers."""
    inputs = [Message(id=f"m{len(thread)}", role="user", content=text)]
    while inputs:
        thread += [encode_message(message) for message in inputs]
        answer = await _step(fresh_agent(), thread)
        thread.append(encode_message(answer))
        outcomes = await asyncio.gather(*(_result(fresh_agent(), call) for call in answer.tool_calls))
        inputs = [
            Message(
                id=f"m{len(thread) + at}", role="tool", content=text, tool_call_id=call.id, name=call.name
            )
            for at, (call, text) in enumerate(zip(answer.tool_calls, outcomes, strict=True))
        ]


async def _step(agent: Agent, thread: list[StoredMessage]) -> Message:
    window = choose_context(thread, agent.context, complete_before=True)
    messages, _ = repair_tool_results([decode_message(message) for message in window])
    response = await call_model(agent.model, a_request(*messages))
    return Message(
        id=f"m{len(thread)}",
        role="assistant",
        content=response.content,
        tool_calls=response.tool_calls,
        provider=response.provider,
    )


async def _result(agent: Agent, call: ToolCall) -> str:
    tool = agent.find_tool(call.name)
    assert tool is not None
    outcome = await tool.call_handler(call.arguments, a_context(call_id=call.id))
    assert isinstance(outcome.content, str)
    return outcome.content


def seen(thread: list[StoredMessage]) -> tuple[ExpectedMessage, ...]:
    """The thread in the words of a recording."""
    return tuple(_seen(decode_message(message)) for message in thread)


def _seen(message: Message) -> ExpectedMessage:
    answers = (message.tool_call_id,) if message.tool_call_id is not None else ()
    return ExpectedMessage(
        message.role, message.text, answers or tuple(call.id for call in message.tool_calls)
    )
