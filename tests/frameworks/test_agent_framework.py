"""`HelixHistoryProvider` under the `Agent` of agent-framework, on every store."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import agent_framework
import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    HistoryProvider,
    Message,
    tool,
)

from helix_temporal import Backends, Settings
from helix_temporal.errors import (
    InvalidIdError,
    SessionNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.agent_framework import HelixHistoryProvider
from helix_temporal.frameworks.item_log import ItemLog
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.proxy import CutReply, FaultProxy
from tests.docs._pages import ROOT, titled
from tests.frameworks._examples import check_example, check_example_on_temporal
from tests.frameworks.conftest import StoreOpener

Call = Content.from_function_call("call-1", "look", arguments={})


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """Answers as it was told, and remembers what it was given."""

    def __init__(self, *answers: Content | str, **more: Any) -> None:
        super().__init__(**more)
        self.answers, self.given = list(answers), list[list[Message]]()

    async def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> ChatResponse:
        del stream, options
        self.given.append(list(messages))
        return ChatResponse(messages=[Message("assistant", [self.answers.pop(0)])])


@tool
def look() -> str:
    """Looks."""
    return "seen"


def said(text: str, role: str = "user", **more: Any) -> Message:
    """A message of text."""
    return Message(role, [text], **more)


def texts(messages: Sequence[Message]) -> list[str]:
    """Of each message."""
    return [each.text for each in messages]


async def run(provider: HistoryProvider, client: Scripted, text: str) -> Any:
    """One run of an agent with this history."""
    agent = Agent(client, tools=[look], context_providers=[provider])
    return await agent.run(text, session=AgentSession(session_id="s"))


async def test_a_conversation_goes_on_in_another_process(open_store: StoreOpener) -> None:
    """The model is given all that was said and done, with calls and results."""
    async with open_store() as store:
        answer = await run(HelixHistoryProvider(store), Scripted(Call, "I have seen it"), "look at it")
        assert answer.text == "I have seen it"
    async with open_store() as store:
        provider, client = HelixHistoryProvider(store), Scripted("as I said")
        await run(provider, client, "and now?")
        expected = ["user", "assistant", "tool", "assistant", "user"]
        assert [each.role for each in client.given[0]] == expected
        stored = await provider.get_messages("s")
        assert [each.role for each in stored] == [*expected, "assistant"]
        assert stored[1].contents[0].call_id == stored[2].contents[0].call_id == "call-1"


async def test_messages_come_back_as_they_were(store: SessionStore) -> None:
    """Whatever is in them."""
    provider = HelixHistoryProvider(store)
    odd = Message(
        "user",
        ["\x00\ud800 é\n", Content.from_uri("https://example.com/a.png", media_type="image/png")],
        author_name="A",
        message_id="m1",
        additional_properties={"z": [1.5, None]},
    )
    await provider.save_messages("s", [odd])
    (found,) = await provider.get_messages("s")
    assert found.to_dict() == odd.to_dict()


async def test_a_message_that_is_saved_again_stands_once(store: SessionStore) -> None:
    """By its id; of two without one nobody can tell."""
    provider = HelixHistoryProvider(store)
    turn = [said("hi", message_id="m1"), said("hello", "assistant", message_id="m2")]
    for _ in range(2):
        await provider.save_messages("s", turn)
    await provider.save_messages("s", [*turn[1:], said("more", message_id="m3")])
    assert texts(await provider.get_messages("s")) == ["hi", "hello", "more"]


async def test_the_same_turn_said_twice_is_two_turns(store: SessionStore) -> None:
    """A user may ask the same again, and be told the same."""
    provider = HelixHistoryProvider(store)
    for _ in range(2):
        await run(provider, Scripted("fine"), "how is it?")
    assert texts(await provider.get_messages("s")) == ["how is it?", "fine"] * 2


async def test_a_transcript_in_front_of_new_messages_is_left_out(store: SessionStore) -> None:
    """Workflows hand an agent the whole conversation, turn after turn."""
    provider = HelixHistoryProvider(store)
    transcript = [said("a"), said("b", "assistant")]
    await provider.save_messages("s", transcript)
    for text in ("c", "d"):
        transcript += [said(text), said(f"re {text}", "assistant")]
        await provider.save_messages("s", transcript)
    assert texts(await provider.get_messages("s")) == ["a", "b", "c", "re c", "d", "re d"]


async def test_two_messages_of_one_id_in_a_batch_both_stand(store: SessionStore) -> None:
    """Some services name a whole response with one id."""
    provider = HelixHistoryProvider(store)
    await provider.save_messages("s", [said("a", message_id="m"), said("b", "assistant", message_id="m")])
    assert texts(await provider.get_messages("s")) == ["a", "b"]


async def test_writers_at_once_lose_nothing(open_store: StoreOpener) -> None:
    """From several processes; each batch is in one piece, the first ones make the session."""
    async with open_store() as one, open_store() as two:
        providers = [HelixHistoryProvider(one), HelixHistoryProvider(two)]
        turns = [[said(f"q{n}"), said(f"a{n}", "assistant")] for n in range(10)]
        await asyncio.gather(*(providers[n % 2].save_messages("s", turn) for n, turn in enumerate(turns)))
        found = texts(await providers[0].get_messages("s"))
        pairs = [found[at : at + 2] for at in range(0, len(found), 2)]
        assert sorted(pairs) == sorted(texts(turn) for turn in turns)


async def test_the_newest_messages_are_given(store: SessionStore) -> None:
    """As many as were asked for; nothing is trimmed in the store."""
    full, short = HelixHistoryProvider(store), HelixHistoryProvider(store, limit=2)
    for n in range(4):
        await full.save_messages("s", [said(f"m{n}")])
    assert texts(await short.get_messages("s")) == ["m2", "m3"]
    client = Scripted("yes")
    await run(short, client, "now")
    assert texts(client.given[0]) == ["m2", "m3", "now"]
    assert len(await full.get_messages("s")) == 6


async def test_a_window_does_not_begin_with_a_result(store: SessionStore) -> None:
    """Services refuse one whose call they were not told."""
    await run(HelixHistoryProvider(store), Scripted(Call, "done"), "look")
    found = await HelixHistoryProvider(store, limit=2).get_messages("s")
    assert texts(found) == ["done"]
    assert len(await HelixHistoryProvider(store, limit=3).get_messages("s")) == 3


async def test_messages_that_a_compaction_marked_are_left_out(store: SessionStore) -> None:
    """If asked."""
    provider = HelixHistoryProvider(store, skip_excluded=True)
    marked = said("old", additional_properties={"_excluded": True})
    await provider.save_messages("s", [marked, said("new")])
    assert texts(await provider.get_messages("s")) == ["new"]
    assert texts(await HelixHistoryProvider(store).get_messages("s")) == ["old", "new"]


async def test_the_flags_say_what_is_loaded_and_stored(store: SessionStore) -> None:
    """An audit beside the history: it stores answers alone, and loads nothing."""
    audit = HelixHistoryProvider(store, "audit", load_messages=False, store_inputs=False)
    client, history = Scripted("a1", "a2"), HelixHistoryProvider(store)
    agent = Agent(client, context_providers=[history, audit])
    for text in ("q1", "q2"):
        await agent.run(text, session=AgentSession(session_id="s"))
    assert texts(client.given[1]) == ["q1", "a1", "q2"]
    assert texts(await audit.get_messages("s")) == ["a1", "a2"]
    assert texts(await history.get_messages("s")) == ["q1", "a1", "q2", "a2"]


async def test_histories_do_not_meet(store: SessionStore) -> None:
    """However sessions and providers are named."""
    await HelixHistoryProvider(store, "a").save_messages("b/c", [said("one")])
    for source, session in (("a/b", "c"), ("a", "b"), ("helix", "a/b/c"), ("helix", ".a/b/c")):
        assert await HelixHistoryProvider(store, source).get_messages(session) == []


async def test_a_session_that_was_cleared_goes_on(store: SessionStore) -> None:
    """Under its id, and one that never was can be cleared too."""
    provider = HelixHistoryProvider(store)
    await provider.clear("s")
    await provider.save_messages("s", [said("a")])
    await provider.clear("s")
    assert await provider.get_messages("s") == []
    await provider.save_messages("s", [said("b")])
    assert texts(await provider.get_messages("s")) == ["b"]


async def test_a_session_that_was_deleted_is_not_brought_back(open_store: StoreOpener) -> None:
    """By a run that ends later, in another process."""
    async with open_store() as one, open_store() as two:
        late, other = HelixHistoryProvider(one), HelixHistoryProvider(two)
        await late.save_messages("s", [said("a")])
        await other.delete("s")
        with pytest.raises(SessionNotFoundError, match="was deleted"):
            await run(late, Scripted("too late"), "b")
        assert await other.get_messages("s") == []
        await other.delete("s")


async def test_ids_that_no_store_can_keep_are_refused(store: SessionStore) -> None:
    """Also none at all."""
    provider = HelixHistoryProvider(store)
    for session_id in (None, "", "a\nb"):
        with pytest.raises(InvalidIdError, match="session id"):
            await provider.get_messages(session_id)


async def test_a_row_that_is_no_message_is_told_without_its_text(store: SessionStore) -> None:
    """It names the session."""
    await ItemLog(store, "agent-framework/s", "agent-framework/1").append_items([{"secret": 1}])
    with pytest.raises(StoreCorruptError, match="session 's'") as told:
        await HelixHistoryProvider(store).get_messages("s")
    assert "secret" not in str(told.value)


@asynccontextmanager
async def through_a_proxy(
    redis_url: str, prefix: str
) -> AsyncIterator[tuple[HelixHistoryProvider, FaultProxy]]:
    """A provider whose way to Redis can be broken."""
    async with FaultProxy.start(redis_url) as proxy:
        variables = {
            "HELIX_REDIS_URL": f"redis://{proxy.address}",
            "HELIX_REDIS_PREFIX": f"{prefix}:",
            "HELIX_ALLOW_PLAINTEXT": "true",
        }
        backends = Backends(Settings.from_env(variables))
        try:
            yield HelixHistoryProvider(backends.sessions), proxy
        finally:
            await backends.close()


async def test_a_write_whose_answer_is_lost_stands_once(redis_url: str, unique: str) -> None:
    """Messages without ids, at each of the first exchanges with the server."""
    async with through_a_proxy(redis_url, unique) as (provider, proxy):
        await provider.save_messages("warm", [said("up")])
        for skip in range(4):
            proxy.fail(CutReply(), skip=skip)
            await provider.save_messages(f"s{skip}", [said("q"), said("a", "assistant")])
            proxy.forget()
            assert texts(await provider.get_messages(f"s{skip}")) == ["q", "a"]


async def test_a_store_that_stays_away_is_a_typed_error(
    redis_url: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what was said."""
    monkeypatch.setattr("helix_temporal.frameworks.item_log.retry_pause", lambda *_, **__: 0)
    async with through_a_proxy(redis_url, unique) as (provider, proxy):
        proxy.refuse()
        with pytest.raises(StoreUnavailableError) as told:
            await provider.save_messages("s", [said("secret")])
        assert "secret" not in str(told.value)


def test_the_program_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for its model; a second run goes on with the conversation."""
    page = ROOT / "docs" / "frameworks" / "agent-framework.md"
    program = dict(titled(page, "python"))["support.py"]
    client = Scripted("On its way.", "As I said.")
    openai: Any = type(sys)("agent_framework.openai")
    openai.OpenAIChatClient = lambda: client
    monkeypatch.setitem(sys.modules, "agent_framework.openai", openai)
    monkeypatch.setattr(cast("Any", agent_framework), "openai", openai, raising=False)
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    for _ in range(2):
        exec(compile(program, "support.py", "exec"), {"__name__": "__main__"})
    assert [each.role for each in client.given[1]] == ["user", "assistant", "user"]


def test_the_example_prints_what_its_page_says() -> None:
    """Alone, in processes of its own."""
    check_example("agent_framework_sessions")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variables", ["sqlite", "redis and s3"], indirect=True)
async def test_the_example_runs_in_a_workflow(variables: dict[str, str], temporal_address: str) -> None:
    """Question and answer stand once, though the worker was killed before it could report them."""
    variables = {**variables, "HELIX_TEMPORAL_ADDRESS": temporal_address}
    await check_example_on_temporal("agent_framework_sessions", "agent_framework_in_a_workflow.py", variables)
