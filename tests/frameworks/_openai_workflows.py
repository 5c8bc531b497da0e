"""Workflows with sessions of the OpenAI Agents SDK, and a model that counts its calls in a file."""

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    Model,
    ModelProvider,
    ModelResponse,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunState,
    Usage,
    function_tool,
)
from agents.memory import SessionSettings
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)
from temporalio import activity, workflow
from temporalio.contrib.workflow_streams import WorkflowStream
from temporalio.exceptions import is_cancelled_exception
from temporalio.openai_agents.workflow import activity_as_tool

from helix_temporal.frameworks.openai_agents import ConversationPlace, HelixWorkflowSession

QUIET = RunConfig(tracing_disabled=True)
# A state that was read from JSON has agents whose model is no activity: the model is named here.
RESUMED = RunConfig(tracing_disabled=True, model="scripted")


# ---- the model ----------------------------------------------------------------------------------------


def make_message(text: str) -> ResponseOutputMessage:
    """A message of the model."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    name = f"msg_{secrets.token_hex(4)}"
    return ResponseOutputMessage(
        id=name, type="message", role="assistant", status="completed", content=[part]
    )


def make_call(name: str, **arguments: Any) -> ResponseFunctionToolCall:
    """A call of the model."""
    return ResponseFunctionToolCall(
        type="function_call",
        name=name,
        call_id=f"call_{secrets.token_hex(4)}",
        arguments=json.dumps(arguments),
    )


class CountingModel(Model):
    """Answers by what it was asked; each call is a line of a file, which outlives the process.

    ``tool NAME`` asks for a tool, ``think`` comes with reasoning, ``size N`` is as long,
    ``times N`` asks for a tool so often; all else is echoed.
    Each answer has a text of its own, so that two that were paid for cannot be taken for one.
    """

    def __init__(self, calls: Path, gate: asyncio.Event | None = None) -> None:
        self._calls, self._gate = calls, gate

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002
        """The answer to the newest item."""
        output = await self._answer(system_instructions, input)
        usage = Usage(requests=1, input_tokens=7, output_tokens=3, total_tokens=10)
        return ModelResponse(output=output, usage=usage, response_id="resp_1")

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002
        *_: Any,
        **__: Any,
    ) -> AsyncIterator[Any]:
        """The same, word by word."""
        output = await self._answer(system_instructions, input)
        yield ResponseTextDeltaEvent(
            type="response.output_text.delta", content_index=0, delta="…", item_id="m", output_index=0,
            sequence_number=0, logprobs=[],
        )  # fmt: skip
        response = Response(
            id="resp_1", created_at=0, model="scripted", object="response", output=output, tool_choice="auto",
            tools=[], parallel_tool_calls=False,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=1)

    async def _answer(self, instructions: Any, given: Any) -> list[Any]:
        items = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        line = {"instructions": instructions, "items": items, "process": os.getpid()}
        with self._calls.open("a") as file:
            file.write(json.dumps(line, default=str) + "\n")
        if self._gate is not None:
            await self._gate.wait()
        last = items[-1]
        number = secrets.token_hex(4)
        spoken = max(at for at, item in enumerate(items) if item.get("role") == "user")
        wanted = str(items[spoken]["content"]).partition(" times ")[2]
        results = [item for item in items[spoken:] if item.get("type") == "function_call_output"]
        if wanted and len(results) < int(wanted):
            return [make_call("look")]
        if last.get("type") == "function_call_output":
            return [make_message(f"result {last['output']} {number}")]
        text = str(last.get("content"))
        if instructions == "judge":
            return [make_message(f"judged {number}")]
        if text.startswith("tool "):
            return [make_call(text.split()[1])]
        if text.startswith("hand over"):
            return [make_call("transfer_to_colleague")]
        if text.startswith("think"):
            thought = ResponseReasoningItem(id=f"rs_{number}", type="reasoning", summary=[])
            return [thought, make_message(f"thought {number}")]
        if text.startswith("size "):
            return [make_message(number + "x" * (int(text.split()[1]) - len(number)))]
        return [make_message(f"echo {text} {number}")]


class CountingProvider(ModelProvider):
    """Gives the one model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> Model:
        """The model."""
        return self._model


def read_calls(path: Path) -> list[dict[str, Any]]:
    """What the model was given, call by call."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- agents -------------------------------------------------------------------------------------------


@activity.defn
async def look() -> str:
    """Looks."""
    return "seen"


@function_tool(needs_approval=True)
async def pay() -> str:
    """Pays."""
    return "paid"


@function_tool(failure_error_function=None)
async def explode() -> str:
    """Raises in the workflow."""
    raise ValueError("exploded")


def make_agent(*, guarded: bool = False) -> Agent[Any]:
    """The agent of all workflows here."""

    async def check_input(_: Any, __: Any, given: Any) -> GuardrailFunctionOutput:
        # As the SDK's own examples do: the guardrail is an agent, which is given the whole list.
        judge: Agent[Any] = Agent(name="judge", instructions="judge")
        verdict = await Runner.run(judge, given, run_config=QUIET)
        return GuardrailFunctionOutput(
            output_info=verdict.final_output, tripwire_triggered="forbidden" in str(given[-1])
        )

    async def check_output(_: Any, __: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered="secret" in str(output))

    tools = [
        activity_as_tool(look, start_to_close_timeout=timedelta(seconds=10)),
        pay,
        explode,
    ]
    colleague: Agent[Any] = Agent(name="colleague", instructions="colleague")
    return Agent(
        name="clerk",
        instructions="clerk",
        tools=tools,
        handoffs=[colleague],
        input_guardrails=[InputGuardrail(check_input)] if guarded else [],
        output_guardrails=[OutputGuardrail(check_output)] if guarded else [],
    )


@dataclass
class Talk:
    """What a workflow is to do.

    Attributes:
        lines: What the user says, a run each.
        each: Continue as new after so many lines.
    """

    session_id: str
    lines: list[str]
    newest: int = 0
    limit: int | None = None
    streams: bool = False
    guarded: bool = False
    each: int = 0
    place: ConversationPlace | None = None
    said: list[str] = field(default_factory=list)
    waits: bool = False


@workflow.defn
class Conversation:
    """Runs an agent on each line; then ends, continues as new, or waits to be closed."""

    @workflow.init
    def __init__(self, talk: Talk) -> None:
        self.stream = WorkflowStream() if talk.streams else None
        self.closed = False
        self.heard: list[str] = []
        self.answered = 0

    @workflow.run
    async def run(self, talk: Talk) -> list[str]:
        """What was answered."""
        settings = SessionSettings(limit=talk.limit) if talk.limit is not None else None
        session = HelixWorkflowSession(
            talk.session_id, newest=talk.newest, session_settings=settings, place=talk.place
        )
        agent = make_agent(guarded=talk.guarded)
        for at, line in enumerate(talk.lines, 1):
            talk.said.append(await self._answer(talk, agent, line, session))
            if at == talk.each and at < len(talk.lines):
                talk.lines, talk.place = talk.lines[at:], await session.save()
                workflow.continue_as_new(talk)
        while talk.waits:
            await workflow.wait_condition(lambda: bool(self.heard) or self.closed)
            if self.closed:
                break
            talk.said.append(await self._answer(talk, agent, self.heard.pop(0), session))
        return talk.said

    @workflow.query
    def count(self) -> int:
        """How many lines were answered."""
        return self.answered

    @workflow.signal
    def say(self, line: str) -> None:
        """One more line."""
        self.heard.append(line)

    @workflow.signal
    def close(self) -> None:
        """Let it end."""
        self.closed = True

    async def _answer(self, talk: Talk, agent: Agent[Any], line: str, session: Any) -> str:
        said = await self._run_agent(talk, agent, line, session)
        self.answered += 1
        return said

    async def _run_agent(self, talk: Talk, agent: Agent[Any], line: str, session: Any) -> str:
        try:
            if talk.streams:
                streamed = Runner.run_streamed(agent, line, session=session, run_config=QUIET)
                async for _ in streamed.stream_events():
                    pass
                return str(streamed.final_output)
            result = await Runner.run(agent, line, session=session, run_config=QUIET)
            if not result.interruptions:
                return str(result.final_output)
            # The state as another process has it.
            state = await RunState.from_json(agent, result.to_state().to_json())
            await workflow.sleep(0.1)
            for each in state.get_interruptions():
                state.approve(each)
            result = await Runner.run(agent, state, session=session, run_config=RESUMED)
            return str(result.final_output)
        except (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered) as error:
            return type(error).__name__
        except Exception as error:
            if not line.endswith("caught"):
                raise
            return type(error).__name__


@workflow.defn
class Asker:
    """Runs an agent on items as they are given, with a session or without."""

    @workflow.run
    async def run(self, items: list[dict[str, Any]], session_id: str | None = None) -> str:
        """What was answered."""
        session = HelixWorkflowSession(session_id) if session_id is not None else None
        given: Any = items
        if session is not None:
            run_config = RunConfig(
                tracing_disabled=True, call_model_input_filter=lambda data: _put(data, items)
            )
            result = await Runner.run(make_agent(), "hello", session=session, run_config=run_config)
        else:
            result = await Runner.run(make_agent(), given, run_config=QUIET)
        return str(result.final_output)


def _put(data: Any, items: list[dict[str, Any]]) -> Any:
    """A filter that puts items of its own into a model call."""
    data.model_data.input = [*items, *data.model_data.input]
    return data.model_data


@workflow.defn
class Keeper:
    """Uses a session by hand."""

    @workflow.run
    async def run(self, session_id: str) -> list[Any]:
        """What was popped, and the place."""
        session = HelixWorkflowSession(session_id)
        found: list[Any] = [await session.pop_item()]
        await session.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
        found.append(await session.pop_item())
        place = await session.save()
        result = await Runner.run(make_agent(), "after", session=session, run_config=QUIET)
        found += [str(result.final_output), place.reference]
        return found


@workflow.defn
class Clearer:
    """Clears a session, and goes on with it."""

    @workflow.run
    async def run(self, session_id: str) -> str:
        """What was answered afterwards."""
        session = HelixWorkflowSession(session_id)
        await session.clear_session()
        result = await Runner.run(make_agent(), "anew", session=session, run_config=QUIET)
        return str(result.final_output)


@workflow.defn
class Approver:
    """Waits for an approval over a continue-as-new."""

    @workflow.run
    async def run(
        self, session_id: str, place: ConversationPlace | None = None, state: dict[str, Any] | None = None
    ) -> str:
        """What was answered once it was approved."""
        session, agent = HelixWorkflowSession(session_id, place=place), make_agent()
        if state is None:
            result = await Runner.run(agent, "tool pay", session=session, run_config=QUIET)
            waits = result.to_state().to_json()
            workflow.continue_as_new(args=[session_id, await session.save(), waits])
        resumed = await RunState.from_json(agent, state)
        for each in resumed.get_interruptions():
            resumed.approve(each)
        result = await Runner.run(agent, resumed, session=session, run_config=RESUMED)
        return str(result.final_output)


@workflow.defn
class Cancelled:
    """Is cancelled while the model is called, and saves what the user said."""

    @workflow.run
    async def run(self, session_id: str) -> str:
        """Where it ended."""
        session = HelixWorkflowSession(session_id)
        try:
            await Runner.run(make_agent(), "one", session=session, run_config=QUIET)
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            await session.save()
            return "cancelled"
        return "not cancelled"


ACTIVITIES = [look]
WORKFLOWS = [Conversation, Asker, Keeper, Clearer, Approver, Cancelled]
