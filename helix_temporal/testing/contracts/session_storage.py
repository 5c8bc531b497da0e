"""What every `SessionStorage` must do: bind it to one's own by a class line and a fixture.

::

    class TestMine(SessionStorageContract):
        @pytest.fixture
        async def storage(self) -> MyStorage:
            return MyStorage()
"""

import asyncio

import pytest

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ToolContext, ToolOutcome, tool
from helix_temporal.errors import (
    HelixError,
    InvalidIdError,
    InvalidRequestError,
    SessionExistsError,
    SessionNotFoundError,
)
from helix_temporal.facade import Session, create_session, fork_session, resume_session
from helix_temporal.facade.session import LocalEngine
from helix_temporal.models.facade import SessionEvent, StoredSession, UnfinishedTurn
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.states import SessionProperties
from helix_temporal.stores.protocols.storage import SessionStorage

HOSTILE = ("../x", "a/b", "%2e%2e", " ", "a:b", "{}", "é", "e\u0301", "🦊", "x" * 256, ".", "CON", "facade:*")


class _Model:
    async def generate(self, request: ModelRequest) -> ModelResponse:
        last = request.messages[-1]
        usage = Usage(input_tokens=2, output_tokens=1)
        if last.role == "user" and last.text.startswith("use "):
            call = ToolCall(id="c1", name="double", arguments={"number": int(last.text[4:])})
            return ModelResponse(tool_calls=(call,), usage=usage)
        if last.role == "user" and last.text == "fail":
            raise InvalidRequestError("the model refuses")
        return ModelResponse(content=f"{len(request.messages)}: {last.text}", usage=usage)


def _agent() -> Agent:
    @tool
    def double(number: int) -> int:
        """Twice a number."""
        return 2 * number

    return Agent(name="contract", model=_Model(), tools=[double])


def _stored(session_id: str, *texts: str) -> StoredSession:
    messages = tuple(Message(id=f"m{at}", role="user", content=text) for at, text in enumerate(texts))
    return StoredSession(
        id=session_id, messages=messages, metadata={"a": [1, 1.5, {}]}, created_at=5, updated_at=6
    )


class SessionStorageContract:
    """Bind with a fixture ``storage``, empty at the start of each test."""

    async def test_what_was_saved_is_loaded(self, storage: SessionStorage) -> None:
        """Everything: messages, metadata, state, usage, parent (case 122)."""
        session = _stored("s", "one", "zwölf 🦊").model_copy(
            update={"usage": Usage(input_tokens=3), "parent_id": "p", "state": {"plan": {"size": 1.5}}}
        )
        await storage.save(session)
        found = await storage.load("s")
        assert found is not None
        kept = {"id", "messages", "usage", "metadata", "state", "parent_id"}
        assert found.model_dump(include=kept) == session.model_dump(include=kept)

    async def test_an_unfinished_turn_is_kept_until_a_save_has_none(self, storage: SessionStorage) -> None:
        """Whatever its size, and beside more messages and fewer: it counts as it was saved last."""
        text = "zwölf 🦊 \x01" * 100_000
        messages = (Message(id="u", role="user", content="one"), Message(id="r", role="tool", content=text))
        unfinished = UnfinishedTurn(messages=messages, changes={"a/000000": {"plan": {"size": 1.5}}})
        for texts in (("a", "b"), ("a",), ("a", "b", "c")):
            await storage.save(_stored("s", *texts).model_copy(update={"unfinished": unfinished}))
            found = await storage.load("s")
            assert found is not None
            assert found.unfinished == unfinished
            assert [each.text for each in found.messages] == list(texts)
        await storage.save(_stored("s", "a", "b", "c"))
        found = await storage.load("s")
        assert found is not None
        assert found.unfinished is None

    async def test_properties_are_kept(self, storage: SessionStorage) -> None:
        """When it expires, whose it is; taken back by name, too."""
        wanted = SessionProperties(expires_at=2**50, user_id="u", tags=("a", "b"))
        await storage.save(_stored("s").model_copy(update={"properties": wanted}))
        found = await storage.load("s")
        assert found is not None
        kept = found.properties
        assert (kept.expires_at, kept.user_id, kept.tags) == (2**50, "u", ("a", "b"))
        never = SessionProperties(expires_at=None).over(found.properties)
        await storage.save(found.model_copy(update={"properties": never}))
        found = await storage.load("s")
        assert found is not None
        assert (found.properties.expires_at, found.properties.user_id) == (None, "u")

    async def test_an_expired_session_takes_no_message(self, storage: SessionStorage) -> None:
        """Who resumes it under another time renews it."""
        late = await create_session(
            _agent(), storage=storage, session_id="s", properties=SessionProperties(expires_at=1)
        )
        await late.send("one")
        assert [each.error_type async for each in late.receive() if each.type == "error"] == [
            "SessionExpiredError"
        ]
        assert await late.get_messages() == []
        renewed = await resume_session(
            "s", _agent(), storage=storage, properties=SessionProperties(expires_at=None)
        )
        await renewed.send("two")
        assert [each.type async for each in renewed.receive()][-1] == "result"

    async def test_saving_again_replaces(self, storage: SessionStorage) -> None:
        """Upsert: more, fewer and other messages (case 122)."""
        for texts in (("a", "b"), ("a", "b", "c"), ("a",), ("other",), ()):
            await storage.save(_stored("s", *texts))
            found = await storage.load("s")
            assert found is not None
            assert [each.text for each in found.messages] == list(texts)

    async def test_what_is_not_there_is_none(self, storage: SessionStorage) -> None:
        """Missing is no error, and deleting it is silent (case 122)."""
        assert await storage.load("nobody") is None
        await storage.delete("nobody")
        assert await storage.list() == []

    async def test_deleted_is_gone(self, storage: SessionStorage) -> None:
        """And others stay (case 122)."""
        await storage.save(_stored("a"))
        await storage.save(_stored("b"))
        await storage.delete("a")
        assert await storage.load("a") is None
        assert await storage.list() == ["b"]

    async def test_hostile_ids_are_ids_like_others(self, storage: SessionStorage) -> None:
        """Nothing is normalised, nothing collides, nothing leaves its place (case 11)."""
        for session_id in HOSTILE:
            await storage.save(_stored(session_id, session_id))
        assert await storage.list() == sorted(HOSTILE)
        for session_id in HOSTILE:
            found = await storage.load(session_id)
            assert found is not None
            assert found.messages[0].text == session_id

    @pytest.mark.parametrize("session_id", ["", "x" * 257, "a\x00b", "\ud800"])
    async def test_a_bad_id_is_refused(self, storage: SessionStorage, session_id: str) -> None:
        """Before the store sees it."""
        with pytest.raises(InvalidIdError):
            await storage.load(session_id)
        assert await storage.list() == []

    async def test_what_was_loaded_is_a_copy(self, storage: SessionStorage) -> None:
        """Changing it changes nothing in the store (case 6)."""
        await storage.save(_stored("s"))
        found = await storage.load("s")
        assert found is not None
        found.metadata["new"] = 1
        again = await storage.load("s")
        assert again is not None
        assert "new" not in again.metadata

    # -- sessions over it

    async def test_a_session_answers_and_is_stored(self, storage: SessionStorage) -> None:
        """Send, receive, and what was said is in the store before the result is told."""
        session = await create_session(_agent(), storage=storage, metadata={"who": "me"})
        events = await _asked(session, "hello")
        assert [each.type for each in events] == ["message", "message", "text", "stop", "result"]
        found = await storage.load(session.id)
        assert found is not None
        assert [each.text for each in found.messages] == ["hello", "1: hello"]
        assert (found.usage.input_tokens, found.metadata["who"]) == (2, "me")

    async def test_tools_run_and_are_told(self, storage: SessionStorage) -> None:
        """The call, its result, and the answer."""
        session = await create_session(_agent(), storage=storage)
        events = await _asked(session, "use 21")
        told = [each.type for each in events if each.type not in {"message", "text"}]
        assert told == ["tool_use", "tool_result", "stop", "result"]
        assert "42" in str(next(each for each in events if each.type == "tool_result").content)
        assert [each.role for each in await session.get_messages()] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]

    async def test_a_turn_that_fails_leaves_the_session_as_it_was(self, storage: SessionStorage) -> None:
        """It is told, and the next message is answered as if nothing had been."""
        session = await create_session(_agent(), storage=storage)
        failed = await _asked(session, "fail")
        assert failed[-1].type == "error"
        await _asked(session, "hello")
        assert [each.text for each in await session.get_messages()] == ["hello", "1: hello"]

    async def test_a_turn_that_was_cut_off_goes_on(self, storage: SessionStorage) -> None:
        """Its message, sent again from elsewhere, has no second turn: its tools do not run again."""
        agent, ran = _failing_agent()
        session = await create_session(agent, storage=storage, session_id="s")
        assert (await _asked(session, "go", "req-17"))[-1].type == "error"
        assert await session.get_messages() == []
        for text in ("go", "go"):
            (*_, result) = await _asked(_open_elsewhere(storage, "s", agent), text, "req-17")
            assert (result.type, getattr(result, "text", None)) == ("result", "ran once")
        (refused,) = await _asked(_open_elsewhere(storage, "s", agent), "another text", "req-17")
        assert getattr(refused, "error_type", None) == "IdempotencyConflictError"
        found = await storage.load("s")
        assert found is not None
        assert [each.role for each in found.messages] == ["user", "assistant", "tool", "assistant"]
        assert (found.state, found.unfinished, ran) == ({"ran": 1}, None, ["s"])

    async def test_a_message_that_two_send_at_once_has_one_turn(self, storage: SessionStorage) -> None:
        """Whoever comes second waits for the first, and gets its answer."""
        if getattr(storage, "locks", None) is None:
            return  # one writer at a time is the application's own affair there
        made = await create_session(_agent(), storage=storage)
        sessions = [_open_elsewhere(storage, made.id, _agent()) for _ in range(3)]
        told = await asyncio.gather(*(_asked(each, "use 21", "req-17") for each in sessions))
        assert {(events[-1].type, getattr(events[-1], "text", None)) for events in told} == {
            ("result", "3: 42")
        }
        assert len(await made.get_messages()) == 4

    async def test_a_session_is_resumed(self, storage: SessionStorage) -> None:
        """With its messages; in the same process it is the same object."""
        session = await create_session(_agent(), storage=storage)
        session_id = session.id
        await _asked(session, "one")
        assert await resume_session(session_id, _agent(), storage=storage) is session
        del session
        again = await resume_session(session_id, _agent(), storage=storage)
        assert (await _asked(again, "two"))[-1].type == "result"
        assert [each.text for each in await again.get_messages()] == ["one", "1: one", "two", "3: two"]

    async def test_an_unknown_session_is_not_resumed(self, storage: SessionStorage) -> None:
        """The error says which (case 124)."""
        with pytest.raises(SessionNotFoundError, match="Session not found"):
            await resume_session("nobody", _agent(), storage=storage)

    async def test_a_fork_is_a_copy(self, storage: SessionStorage) -> None:
        """New id, parent named, neither changes the other; again it is the same fork (case 125)."""
        source = await create_session(_agent(), storage=storage)
        await _asked(source, "one")
        fork = await fork_session(source.id, _agent(), new_session_id="copy", storage=storage)
        await _asked(fork, "two")
        again = await fork_session(source.id, _agent(), new_session_id="copy", storage=storage)
        assert len(await again.get_messages()) == 4
        assert [each.text for each in await source.get_messages()] == ["one", "1: one"]
        stored = await storage.load("copy")
        assert stored is not None
        assert stored.parent_id == source.id
        with pytest.raises(SessionExistsError):
            await fork_session("copy", _agent(), new_session_id=source.id, storage=storage)

    async def test_a_fork_at_a_message_is_cut_there(self, storage: SessionStorage) -> None:
        """Not between a call and its result (case 125)."""
        source = await create_session(_agent(), storage=storage)
        await _asked(source, "use 1")
        await _asked(source, "two")
        fork = await fork_session(source.id, _agent(), at=4, storage=storage)
        assert len(await fork.get_messages()) == 4
        with pytest.raises(InvalidRequestError, match="between"):
            await fork_session(source.id, _agent(), at=2, storage=storage)

    async def test_two_who_have_the_same_session_lose_nothing(self, storage: SessionStorage) -> None:
        """Turns are taken one after the other, each on top of what is stored then."""
        if getattr(storage, "locks", None) is None:
            return  # one writer at a time is the application's own affair there
        made = await create_session(_agent(), storage=storage)
        await asyncio.gather(*(_another(storage, made.id, number) for number in range(4)))
        found = await storage.load(made.id)
        assert found is not None
        assert len(found.messages) == 8
        assert len({each.id for each in found.messages}) == 8

    async def test_misuse_is_told(self, storage: SessionStorage) -> None:
        """Each its own error, and nothing happens."""
        session = await create_session(_agent(), storage=storage)
        with pytest.raises(InvalidRequestError):
            await anext(session.receive())
        await session.send("one")
        with pytest.raises(InvalidRequestError):
            await session.send("two")
        await session.close()
        for use in (session.send("x"), anext(session.receive())):
            with pytest.raises(HelixError):
                await use
        with pytest.raises(InvalidRequestError):
            await create_session(_agent(), storage=storage, resume="a", fork="b")
        with pytest.raises(SessionExistsError):
            await create_session(_agent(), storage=storage, session_id=session.id)


async def _asked(session: Session, text: str, message_id: str | None = None) -> list[SessionEvent]:
    await session.send(text, message_id=message_id)
    return [event async for event in session.receive()]


async def _another(storage: SessionStorage, session_id: str, number: int) -> None:
    await _asked(_open_elsewhere(storage, session_id, _agent()), f"m{number}")


def _open_elsewhere(storage: SessionStorage, session_id: str, agent: Agent) -> Session:
    """As another process would have it: an engine of its own."""
    locks = getattr(storage, "locks", None)
    return Session(session_id, LocalEngine(agent, storage, session_id, locks), agent.name)


def _failing_agent() -> tuple[Agent, list[str]]:
    """An agent whose model fails once behind its tool, and the sessions for which the tool ran."""
    ran: list[str] = []
    failures = [InvalidRequestError("the model refuses")]

    @tool
    def run(context: ToolContext) -> ToolOutcome:
        """Run."""
        ran.append(context.session_id)
        return ToolOutcome("ran once", state={"ran": len(ran)})

    class Model:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            last = request.messages[-1]
            if last.role == "user":
                return ModelResponse(tool_calls=(ToolCall(id="c1", name="run", arguments={}),))
            if failures:
                raise failures.pop()
            return ModelResponse(content=last.text)

    return Agent(name="contract", model=Model(), tools=[run]), ran
