"""A lead who writes articles with two specialists: a researcher, and a critic.

They answer by scripts; by Claude where ANTHROPIC_API_KEY is set, by GPT where OPENAI_API_KEY is.
"""

import os

from helix_temporal import (
    Agent,
    ModelRequest,
    ModelResponse,
    ScriptedModel,
    ToolCall,
    Usage,
    agent_tool,
    tool,
)
from helix_temporal.adapters import model_by_key


@tool(approval=True)
def buy_report(topic: str) -> str:
    """Buy a report on a topic; it costs 90 euros and covers all of Europe."""
    return f"The report on {topic}: Norway has 210, Denmark has 49."


def lead_answers(request: ModelRequest) -> ModelResponse:
    """Give both specialists their tasks in one step; make a text of what they say."""
    newest = request.messages[-1]
    if newest.role == "user":
        return ModelResponse(
            tool_calls=(
                ToolCall(id="1", name="research", arguments={"task": f"Numbers for: {newest.text}"}),
                ToolCall(id="2", name="review", arguments={"task": f"What to mind in: {newest.text}"}),
            ),
            usage=_used(request),
        )
    results = [each.text for each in request.messages[-2:]]
    return ModelResponse(f"My article. {' '.join(results)}", usage=_used(request))


def researcher_answers(request: ModelRequest) -> ModelResponse:
    """Buy the report once; the tasks of one article are in one thread with those of the next."""
    tasks = [each.text for each in request.messages if each.role == "user"]
    report = next((each.text for each in request.messages if each.role == "tool"), None)
    if report is None:
        call = ToolCall(id="1", name="buy_report", arguments={"topic": "lighthouses"})
        return ModelResponse(tool_calls=(call,), usage=_used(request))
    return ModelResponse(f"{report} (My task number {len(tasks)}.)", usage=_used(request))


def critic_answers(request: ModelRequest) -> ModelResponse:
    """Mind what the caller has written before: a fork begins with the caller's finished turns."""
    *before, _task = [each.text for each in request.messages if each.role == "user"]
    said = f"Do not repeat what you wrote for {before[-1]!r}." if before else "Begin with a number."
    return ModelResponse(said, usage=_used(request))


def _used(request: ModelRequest) -> Usage:
    return Usage(input_tokens=100 * len(request.messages), output_tokens=20)


real = model_by_key(os.environ)
researcher = Agent(
    name="researcher",
    model=real or ScriptedModel(researcher_answers),
    instructions="Find numbers. Buy a report with buy_report unless you have one. Answer in a sentence.",
    tools=[buy_report],
)
critic = Agent(
    name="critic",
    model=real or ScriptedModel(critic_answers),
    instructions="Say in one sentence what to mind, given what was written before. Write no article.",
)
lead = Agent(
    name="lead",
    model=real or ScriptedModel(lead_answers),
    instructions=(
        "You write articles of three sentences. First call research and review, both in one step; "
        "then write, with what they say."
    ),
    tools=[
        agent_tool("research", agent=researcher, thread="continue", timeout=3 * 86400),
        agent_tool("review", agent=critic, thread="fork"),
    ],
)
