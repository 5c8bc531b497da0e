"""`HelixSession` under the runner of the OpenAI Agents SDK, on every store."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.memory import Session, SessionSettings
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from helix_temporal.errors import InvalidIdError
from helix_temporal.frameworks.openai_agents import HelixSession
from helix_temporal.stores.protocols.sessions import SessionStore
from tests.docs._pages import ROOT, titled
from tests.frameworks.conftest import StoreOpener

NO_TRACES = RunConfig(tracing_disabled=True)


def spoken(text: str) -> ResponseOutputMessage:
    """An answer of the model."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="msg_fake", type="message", role="assistant", status="completed", content=[part]
    )


def called(name: str, call_id: str) -> ResponseFunctionToolCall:
    """A call of the model."""
    return ResponseFunctionToolCall(type="function_call", name=name, call_id=call_id, arguments="{}")


class Scripted(Model):
    """Answers as it was told, and remembers what it was given."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.given = list(answers), list[list[Any]]()

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002 (the SDK's name)
        """The next answer."""
        self.given.append([input] if isinstance(input, str) else list(input))
        return ModelResponse(output=[self.answers.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """Not used."""
        raise NotImplementedError


@function_tool
def look() -> str:
    """Looks."""
    return "seen"


def roles(items: list[Any]) -> list[str]:
    """What each item is."""
    return [item.get("role") or item["type"] for item in items]


async def test_it_is_a_session(store: SessionStore) -> None:
    """As the SDK checks it."""
    assert isinstance(HelixSession("s", store), Session)


async def test_a_conversation_goes_on_in_another_process(open_store: StoreOpener) -> None:
    """The model is given all that was said and done, with calls and results."""
    async with open_store() as store:
        first = Scripted(called("look", "c1"), spoken("I have seen it"))
        agent = Agent(name="a", model=first, tools=[look])
        result = await Runner.run(agent, "look at it", session=HelixSession("s", store), run_config=NO_TRACES)
        assert result.final_output == "I have seen it"
    async with open_store() as store:
        second, session = Scripted(spoken("as I said")), HelixSession("s", store)
        agent = Agent(name="a", model=second, tools=[look])
        await Runner.run(agent, "and now?", session=session, run_config=NO_TRACES)
        expected = ["user", "function_call", "function_call_output", "assistant", "user"]
        assert roles(second.given[0]) == expected
        assert roles(await session.get_items()) == [*expected, "assistant"]


async def test_a_run_is_given_as_many_items_as_the_settings_say(store: SessionStore) -> None:
    """Of the session, or of the run."""
    session = HelixSession("s", store, session_settings=SessionSettings(limit=2))
    items: list[Any] = [{"role": "user", "content": f"m{n}"} for n in range(5)]
    await session.add_items(items)
    assert await session.get_items() == items[3:]
    assert await session.get_items(4) == items[1:]
    model = Scripted(spoken("yes"))
    await Runner.run(Agent(name="a", model=model), "now", session=session, run_config=NO_TRACES)
    assert [item["content"] for item in model.given[0]] == ["m3", "m4", "now"]


async def test_items_come_back_as_they_were(store: SessionStore) -> None:
    """Whatever text is in them."""
    odd: list[Any] = [
        {"role": "user", "content": [{"type": "input_text", "text": "\x00\ud800 é\n", "z": [1.5, None]}]}
    ]
    session = HelixSession("s", store)
    await session.add_items(odd)
    assert await session.get_items() == odd


async def test_a_thousand_items_are_read(store: SessionStore) -> None:
    """Over several pages, and the newest of them."""
    session = HelixSession("s", store)
    items: list[Any] = [{"role": "user", "content": str(n)} for n in range(1000)]
    for first in range(0, 1000, 250):
        await session.add_items(items[first : first + 250])
    assert await session.get_items() == items
    assert await session.get_items(3) == items[-3:]


async def test_the_newest_item_is_popped(store: SessionStore) -> None:
    """To the last one, and then there is none."""
    session = HelixSession("s", store)
    items: list[Any] = [
        {"role": "user", "content": "a"},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    ]
    await session.add_items(items)
    assert [await session.pop_item() for _ in range(3)] == [items[1], items[0], None]
    await session.add_items(items[:1])
    assert await session.get_items() == items[:1]


async def test_two_processes_never_pop_the_same_item(open_store: StoreOpener) -> None:
    """While a third adds (openai-agents-python #4205)."""
    async with open_store() as one, open_store() as two, open_store() as three:
        sessions = [HelixSession("s", store) for store in (one, two, three)]
        await sessions[2].add_items([{"role": "user", "content": str(n)} for n in range(6)])
        popped = await asyncio.gather(
            *(session.pop_item() for session in sessions[:2] for _ in range(3)),
            *(sessions[2].add_items([{"role": "user", "content": str(n)}]) for n in range(6, 9)),
        )
        left: list[Any] = await sessions[0].get_items()
        found = [item["content"] for item in (*popped, *left) if item is not None]
        assert sorted(found) == [str(n) for n in range(9)]


async def test_first_writers_that_come_at_once_lose_nothing(open_store: StoreOpener) -> None:
    """The session is made by one of them (openai-agents-python #2722)."""
    async with open_store() as one, open_store() as two:
        sessions = [HelixSession("s", store) for store in (one, two) for _ in range(4)]
        await asyncio.gather(
            *(each.add_items([{"role": "user", "content": str(n)}]) for n, each in enumerate(sessions))
        )
        items: list[Any] = await sessions[0].get_items()
        assert sorted(item["content"] for item in items) == [str(n) for n in range(8)]


async def test_a_session_that_was_cleared_goes_on(store: SessionStore) -> None:
    """Under its id (openai-agents-python #3116)."""
    session = HelixSession("s", store)
    items: list[Any] = [{"role": "user", "content": str(n)} for n in range(3)]
    await session.clear_session()
    await session.add_items(items)
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items(items[:1])
    assert await HelixSession("s", store).get_items() == items[:1]


async def test_sessions_do_not_meet(store: SessionStore) -> None:
    """One id is one conversation."""
    await HelixSession("a", store).add_items([{"role": "user", "content": "a"}])
    assert await HelixSession("b", store).get_items() == []


async def test_an_id_that_no_store_can_keep_is_refused(store: SessionStore) -> None:
    """Where the session is made."""
    with pytest.raises(InvalidIdError, match="control character"):
        HelixSession("a\nb", store)


def test_the_program_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its model; a second run goes on with the conversation."""
    program = dict(titled(ROOT / "docs" / "frameworks" / "openai-agents.md", "python"))["support.py"]
    model = Scripted(spoken("On its way."), spoken("As I said."))
    monkeypatch.setattr("agents.Agent", partial(Agent, model=model))
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    for _ in range(2):
        exec(compile(program, "support.py", "exec"), {"__name__": "__main__"})
    assert roles(model.given[1]) == ["user", "assistant", "user"]
