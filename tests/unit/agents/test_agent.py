"""Agents: what they are made of, what workflows learn of them, and how they are found."""

from typing import Any

import pytest

from helix_temporal.agents import (
    Agent,
    AgentFacts,
    AgentRegistry,
    BeforeUserMessage,
    Hooks,
    InstructionsContext,
    ScriptedModel,
    SessionStarted,
    UserMessageDecision,
    tool,
)
from helix_temporal.errors import (
    AgentNotServedError,
    InvalidConfigError,
    InvalidMessageError,
    InvalidRequestError,
)

MODEL = ScriptedModel(["hello"])
CONTEXT = InstructionsContext(agent="a", session_id="s-1", thread_id="s-1", metadata={"tier": "gold"})


@tool
def look() -> str:
    """Look."""
    return ""


def _an_agent(**changes: Any) -> Agent:
    facts: dict[str, Any] = {"name": "support", "model": MODEL}
    return Agent(**(facts | changes))


def _before(**changes: Any) -> BeforeUserMessage:
    facts: dict[str, Any] = {
        "session_id": "s",
        "thread_id": "s",
        "agent": "a",
        "message_id": "m",
        "text": "hi",
    }
    return BeforeUserMessage(**(facts | changes))


def test_facts_name_the_activities_of_tools_and_hooks() -> None:
    """These names are on the wire and in histories: they never change."""
    facts = _an_agent(
        tools=[look], hooks=Hooks(turn_completed=print), max_steps=7, parallel_tools=False
    ).build_facts()
    tool_facts = facts.tool("look")
    assert tool_facts is not None
    assert tool_facts.activity == "helix.tools.support.look"
    assert facts.hooks.turn_completed == "helix.hooks.support.turn_completed"
    assert facts.hooks.session_started is None
    assert (facts.max_steps, facts.parallel_tools) == (7, False)


def test_facts_survive_the_wire() -> None:
    """A workflow gets them as an activity's result."""
    facts = _an_agent(tools=[look], hooks=Hooks(session_ended=print)).build_facts()
    assert AgentFacts.model_validate_json(facts.model_dump_json(exclude_defaults=True)) == facts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a/b"}, "agent name 'a/b'"),
        ({"name": None}, "agent name 'None'"),
        ({"tools": [look, look]}, "two tools are named 'look'"),
        ({"tools": look}, "agent 'support': tools: a list expected, got Tool"),
        ({"tools": [print]}, "is no Tool; decorate the function with @tool"),
        ({"model": object()}, "needs a generate or a stream method"),
        ({"instructions": 5}, "instructions must be text or a function"),
        ({"hooks": [print]}, "agent 'support': hooks: Hooks expected, got list"),
        ({"hooks": {"turn_completed": print}}, "agent 'support': hooks: Hooks expected, got dict"),
        ({"context": 20}, "agent 'support': context: ContextPolicy expected, got int"),
        ({"compaction": True}, "agent 'support': compaction: Compaction expected, got bool"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"instructions_mode": "new"}, "instructions_mode must be 'agent' or 'pinned'"),
    ],
)
def test_what_an_agent_may_not_be_is_refused(changes: dict[str, Any], message: str) -> None:
    """At definition, not in a session."""
    with pytest.raises(InvalidConfigError, match=message):
        _an_agent(**changes)


def test_a_hook_that_is_no_function_is_refused() -> None:
    """At definition: in a session its failure would be a line in the log."""
    with pytest.raises(InvalidConfigError, match="hook turn_completed: a function expected, got str"):
        Hooks(turn_completed="log")  # type: ignore[arg-type]


def test_agents_are_found_by_name() -> None:
    """A session names its agent."""
    agent = _an_agent()
    registry = AgentRegistry([agent, _an_agent(name="sales")])
    assert registry.get_agent("support") is agent
    assert [each.name for each in registry] == ["support", "sales"]


def test_an_unknown_agent_is_refused_with_those_that_are_known() -> None:
    """A typo, or a worker that was not deployed."""
    with pytest.raises(
        AgentNotServedError, match="'suport' is not known to the worker that was asked; it knows: sales, sup"
    ):
        AgentRegistry([_an_agent(), _an_agent(name="sales")]).get_agent("suport")


def test_two_agents_of_one_name_are_refused() -> None:
    """Their activities would have one name, too."""
    with pytest.raises(InvalidConfigError, match="two agents are named 'support'"):
        AgentRegistry([_an_agent(), _an_agent()])


async def test_instructions_may_be_text() -> None:
    """The usual case."""
    assert await _an_agent(instructions="Be kind.").instructions_for(CONTEXT) == "Be kind."


async def test_instructions_may_follow_the_session() -> None:
    """Plain and async functions alike."""

    async def later(context: InstructionsContext) -> str:
        return f"{context.metadata['tier']} {context.session_id}"

    assert await _an_agent(instructions=later).instructions_for(CONTEXT) == "gold s-1"
    assert await _an_agent(instructions=lambda context: context.agent).instructions_for(CONTEXT) == "a"


async def test_instructions_that_are_no_text_are_refused() -> None:
    """A forgotten return would send "None" to the model."""
    with pytest.raises(InvalidMessageError, match="returned NoneType"):
        await _an_agent(instructions=lambda _: None).instructions_for(CONTEXT)


@pytest.mark.parametrize(
    ("result", "decision"),
    [
        (None, UserMessageDecision()),
        ("hello", UserMessageDecision(text="hello")),
        (UserMessageDecision(refuse="rude"), UserMessageDecision(refuse="rude")),
    ],
)
async def test_a_hook_decides_about_a_users_message(result: object, decision: UserMessageDecision) -> None:
    """Let it pass, change it, or refuse it."""
    hooks = Hooks(before_user_message=lambda _: result)
    assert await hooks.run_hook("before_user_message", _before()) == decision


async def test_a_decision_that_is_none_of_these_is_refused() -> None:
    """``return False`` must not let a message pass."""
    with pytest.raises(InvalidMessageError, match="returned bool"):
        await Hooks(before_user_message=lambda _: False).run_hook("before_user_message", _before())


async def test_other_hooks_decide_nothing() -> None:
    """What they return is nobody's business."""
    seen: list[str] = []
    started = SessionStarted(session_id="s", thread_id="s", agent="a", mode="new")
    hooks = Hooks(session_started=lambda event: seen.append(event.mode))
    assert await hooks.run_hook("session_started", started) is None
    assert seen == ["new"]


async def test_a_hook_that_is_not_there_is_an_error() -> None:
    """An older worker may be asked for a newer agent's hook."""
    with pytest.raises(InvalidRequestError, match="it has: turn_completed"):
        await Hooks(turn_completed=print).run_hook("before_user_message", _before())


def test_a_message_is_not_both_changed_and_refused() -> None:
    """One of the two would be ignored silently."""
    with pytest.raises(ValueError, match="give text or refuse, not both"):
        UserMessageDecision(text="a", refuse="b")
