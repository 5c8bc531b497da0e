"""What the SDK's tests ask of its own session stores, asked of ours, in our own words.

Read in openai-agents 0.24.0: ``tests/memory/test_session.py``, ``test_session_limit.py``,
``test_openai_responses_compaction_session.py``, and ``tests/extensions/memory`` of SQLAlchemy, Redis and the
encrypted session.  Left out is what speaks of their tables, connections, locks and closing, and what
``test_openai_agents.py`` has.  Two deviations are on the page: a damaged row is an error, and is not passed
by; a session is not closed, but its stores, by whoever opened them.
"""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, ModelResponse, RunConfig, Runner, function_tool
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings
from openai.types.responses import Response, ResponseCompletedEvent

from helix_temporal import Backends, Settings
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.frameworks.openai_agents import HelixSession
from helix_temporal.stores.protocols.sessions import SessionStore
from tests.frameworks.test_openai_agents import NO_TRACES, Scripted, called, roles, spoken

RUNS = ("run", "run_streamed")
SAID: list[Any] = [
    {"role": "user", "content": "Earlier message"},
    {"role": "assistant", "content": "Saved reply"},
]


class Streaming(Scripted):
    """As `Scripted`, for streams as well."""

    async def stream_response(self, *args: Any, **more: Any) -> AsyncIterator[Any]:
        """The next answer, as one event."""
        answer: ModelResponse = await self.get_response(*args, **more)
        response = Response(
            id="r", created_at=0, model="m", object="response", output=answer.output,
            tool_choice="none", tools=[], parallel_tool_calls=False,
        )  # fmt: skip
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


async def run_agent(how: str, model: Scripted, given: Any, session: Any, **config: Any) -> Any:
    """One run, to its end."""
    agent = Agent(name="a", model=model, tools=[delete_order])
    run_config = RunConfig(tracing_disabled=True, **config)
    if how == "run":
        return await Runner.run(agent, given, session=session, run_config=run_config)
    result = Runner.run_streamed(agent, given, session=session, run_config=run_config)
    async for _ in result.stream_events():
        pass
    return result


@function_tool(needs_approval=True)
def delete_order() -> str:
    """Deletes an order."""
    return "deleted"


def texts(items: list[Any]) -> list[Any]:
    """What each item says."""
    return [
        item["content"] if isinstance(item["content"], str) else item["content"][0]["text"] for item in items
    ]


# -- runs


@pytest.mark.parametrize("how", RUNS)
async def test_a_second_turn_is_given_the_first_one(store: SessionStore, how: str) -> None:
    """However it is run; another session has nothing of it."""
    model = Streaming(spoken("San Francisco"), spoken("dogs"), spoken("California"))
    one, other = HelixSession("one", store), HelixSession("other", store)
    await run_agent(how, model, "Which city has the Golden Gate Bridge?", one)
    await run_agent(how, model, "I like dogs", other)
    result = await run_agent(how, model, "Which state?", one)
    assert result.final_output == "California"
    assert texts(model.given[1]) == ["I like dogs"]
    assert texts(model.given[2]) == [
        "Which city has the Golden Gate Bridge?",
        "San Francisco",
        "Which state?",
    ]


@pytest.mark.filterwarnings("ignore:asynchronous generator:ResourceWarning")
async def test_runs_without_a_loop_of_their_own(settings: Settings) -> None:
    """`Runner.run_sync`, in a program that is not asynchronous.

    The SDK ends the asynchronous generators of its loop after each run, and then goes on with the loop.
    """
    model = Scripted(spoken("one"), spoken("two"))

    def program() -> list[Any]:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        backends = Backends(settings)
        session, agent = HelixSession("s", backends.sessions), Agent(name="a", model=model)
        for text in ("first", "second"):
            Runner.run_sync(agent, text, session=session, run_config=NO_TRACES)
        items = loop.run_until_complete(session.get_items())
        loop.run_until_complete(backends.close())
        loop.close()
        return items

    assert texts(await asyncio.to_thread(program)) == ["first", "one", "second", "two"]
    assert texts(model.given[1]) == ["first", "one", "second"]


@pytest.mark.parametrize("how", RUNS)
async def test_a_list_as_input_stands_behind_what_was_said(store: SessionStore, how: str) -> None:
    """And is stored, as a text is."""
    session, model = HelixSession("s", store), Streaming(spoken("yes"))
    await session.add_items(SAID)
    asked: list[Any] = [{"role": "user", "content": "Test message"}]
    await run_agent(how, model, asked, session)
    assert model.given[0] == SAID + asked
    assert texts(await session.get_items()) == ["Earlier message", "Saved reply", "Test message", "yes"]


@pytest.mark.parametrize("how", RUNS)
async def test_a_callback_chooses_what_the_model_is_given(store: SessionStore, how: str) -> None:
    """What it leaves out stays in the session."""

    def choose(history: list[Any], new: list[Any]) -> list[Any]:
        return [item for item in history if item["role"] == "user"] + new

    session, model = HelixSession("s", store), Streaming(spoken("yes"))
    await session.add_items(SAID)
    asked: list[Any] = [{"role": "user", "content": "new"}]
    await run_agent(how, model, asked, session, session_input_callback=choose)
    assert texts(model.given[0]) == ["Earlier message", "new"]
    assert len(await session.get_items()) == 4


@pytest.mark.parametrize("how", RUNS)
async def test_a_callback_that_repeats_history_does_not_store_it_again(store: SessionStore, how: str) -> None:
    """Only what is new is."""

    def repeat(history: list[Any], new: list[Any]) -> list[Any]:
        return [*history, *history[:1], *new]

    session, model = HelixSession("s", store), Streaming(*(spoken(f"a{n}") for n in range(3)))
    for number in range(3):
        await run_agent(how, model, f"u{number}", session, session_input_callback=repeat)
    assert texts(await session.get_items()) == ["u0", "a0", "u1", "a1", "u2", "a2"]


@pytest.mark.parametrize("how", RUNS)
async def test_a_run_that_waits_for_approval_goes_on_and_stores_nothing_twice(
    store: SessionStore, how: str
) -> None:
    """Its call, the result and the answer stand once."""
    session = HelixSession("s", store)
    model = Streaming(called("delete_order", "c1"), spoken("done"))
    waits = await run_agent(how, model, "delete it", session)
    assert len(waits.interruptions) == 1
    state = waits.to_state()
    state.approve(waits.interruptions[0])
    result = await run_agent(how, model, state, session)
    assert result.final_output == "done"
    expected = ["user", "function_call", "function_call_output", "assistant"]
    assert roles(await session.get_items()) == expected


@pytest.mark.parametrize("how", RUNS)
async def test_a_run_fails_where_its_items_cannot_be_stored(
    store: SessionStore, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not hang (openai-agents-python #2130)."""
    session = HelixSession("s", store)
    await session.add_items(SAID)

    async def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailableError("down")

    monkeypatch.setattr(session, "add_items", fail)
    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(run_agent(how, Streaming(spoken("lost")), "Hello", session), 60)
    assert await session.get_items() == SAID


# -- limits


@pytest.mark.parametrize("how", RUNS)
async def test_the_limit_of_a_run_counts_before_that_of_the_session(store: SessionStore, how: str) -> None:
    """A run's settings are laid over the session's."""
    session = HelixSession("s", store, session_settings=SessionSettings(limit=100))
    await session.add_items([{"role": "user", "content": f"m{n}"} for n in range(10)])
    model = Streaming(spoken("yes"))
    await run_agent(how, model, "now", session, session_settings=SessionSettings(limit=2))
    assert texts(model.given[0]) == ["m8", "m9", "now"]


@pytest.mark.parametrize("how", RUNS)
async def test_a_limit_leaves_no_result_without_its_call(store: SessionStore, how: str) -> None:
    """The session gives the newest items; the run leaves out what has lost its other half."""
    history: list[Any] = [
        {"role": "user", "content": "What is the weather?"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    session, model = HelixSession("s", store), Streaming(spoken("yes"))
    await session.add_items(history)
    assert await session.get_items(2) == history[2:]
    await run_agent(how, model, "And now?", session, session_settings=SessionSettings(limit=2))
    assert texts(model.given[0]) == ["It is sunny.", "And now?"]


async def test_settings_are_those_of_every_session(store: SessionStore) -> None:
    """Empty unless given; a dict is taken as well; a limit that is given counts first."""
    assert HelixSession("s", store).session_settings == SessionSettings()
    session = HelixSession("s", store, session_settings={"limit": 2})
    assert session.session_settings == SessionSettings(limit=2)
    await session.add_items([{"role": "user", "content": f"m{n}"} for n in range(5)])
    assert texts(await session.get_items()) == ["m3", "m4"]
    assert texts(await session.get_items(4)) == ["m1", "m2", "m3", "m4"]
    assert texts(await session.get_items(100)) == ["m0", "m1", "m2", "m3", "m4"]
    assert await session.get_items(0) == []
    with pytest.raises((TypeError, ValueError)):
        HelixSession("s", store, session_settings={"limits": 2})


# -- items


async def test_no_items_are_no_write(store: SessionStore) -> None:
    """Not even of a session."""
    session = HelixSession("s", store)
    await session.add_items([])
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_texts_come_back_as_they_were(store: SessionStore) -> None:
    """Of all alphabets, and what a database could take for its own."""
    said = [
        "こんにちは", "😊👍", "Привет", "O'Reilly", "DROP TABLE sessions;", "", " ", '{"a": "\\u0000"}',
        "\"SELECT * FROM users WHERE name = 'admin';\"", "Robert'); DROP TABLE students;--",
        "line\nbreak\ttab\\",
    ]  # fmt: skip
    session = HelixSession("s", store)
    items: list[Any] = [{"role": "user", "content": text} for text in said]
    await session.add_items(items)
    assert await session.get_items() == items


async def test_a_pop_leaves_other_sessions_alone(store: SessionStore) -> None:
    """Of equal items the last one goes."""
    one, two = HelixSession("one", store), HelixSession("two", store)
    same: list[Any] = [{"role": "user", "content": "same"}] * 2
    await one.add_items(same)
    await two.add_items(same)
    assert await two.pop_item() == same[0]
    assert (await one.get_items(), await two.get_items()) == (same, same[:1])


async def test_an_append_that_is_cancelled_is_there_whole_or_not_at_all(store: SessionStore) -> None:
    """And the session goes on."""
    session = HelixSession("s", store)
    await session.add_items(SAID)
    for pause in (0.0, 0.0002, 0.001, 0.004):
        before = await session.get_items()
        more: list[Any] = [{"role": "user", "content": f"{pause} {n}"} for n in range(3)]
        task = asyncio.create_task(session.add_items(more))
        await asyncio.sleep(pause)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.05)
        assert await session.get_items() in (before, before + more)
        assert await session.get_items(1)


# -- the SDK's sessions around ours


async def test_an_encrypted_session_lies_in_ours(store: SessionStore) -> None:
    """The store has none of its text."""
    inner = HelixSession("s", store)
    session = EncryptedSession("s", inner, encryption_key="a key of some length, kept secret")
    await session.add_items(SAID)
    assert await session.get_items() == SAID
    assert "Saved reply" not in str(await inner.get_items())
    assert await session.pop_item() == SAID[1]
    model = Streaming(spoken("yes"))
    await run_agent("run", model, "now", session)
    assert texts(await session.get_items()) == ["Earlier message", "now", "yes"]


class Compactor:
    """The part of OpenAI's client that compacts: one summary in place of all that it is given."""

    def __init__(self) -> None:
        self.given = list[Any]()
        self.responses = SimpleNamespace(compact=self._compact)

    async def _compact(self, **request: Any) -> Any:
        self.given.append(request)
        return SimpleNamespace(output=[{"type": "compaction", "summary": "all of it"}], usage=None)


def compacting(session: HelixSession) -> tuple[Compactor, OpenAIResponsesCompactionSession]:
    """The SDK's session that compacts, around one of ours."""
    client = Compactor()
    wrapped = OpenAIResponsesCompactionSession(
        session.session_id, session, client=client, compaction_mode="input"
    )  # fmt: skip
    return client, wrapped


async def test_a_compaction_replaces_what_is_in_ours(store: SessionStore) -> None:
    """By the SDK's own session, which clears ours and adds the summary."""
    inner = HelixSession("s", store)
    client, session = compacting(inner)
    await session.add_items(SAID)
    await session.run_compaction({"force": True})
    assert len(client.given) == 1
    assert await inner.get_items() == [{"type": "compaction", "summary": "all of it"}]
    await session.add_items(SAID[:1])
    assert len(await HelixSession("s", store).get_items()) == 2


async def test_a_compaction_that_fails_leaves_what_was_there(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary could not be stored: the SDK's session puts the items back."""
    inner = HelixSession("s", store)
    _, session = compacting(inner)
    await session.add_items(SAID)
    add, refused = inner.add_items, [StoreUnavailableError("down")]

    async def add_later(items: Any) -> None:
        if refused:
            raise refused.pop()
        await add(items)

    monkeypatch.setattr(inner, "add_items", add_later)
    with pytest.raises(StoreUnavailableError):
        await session.run_compaction({"force": True})
    assert await inner.get_items() == SAID
