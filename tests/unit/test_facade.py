"""Sessions of the façade where something goes wrong, or goes on elsewhere."""

import asyncio
from contextlib import aclosing

import pytest

from helix_temporal.agents import Agent, Hooks, ModelRequest, ModelResponse
from helix_temporal.errors import (
    InvalidRequestError,
    SessionExistsError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from helix_temporal.facade import Session, create_session, delete_session, fork_session, resume_session
from helix_temporal.models.agents import BeforeUserMessage, UserMessageDecision
from helix_temporal.models.facade import ErrorEvent, ResultEvent, SessionEvent, StoredSession
from helix_temporal.models.messages import Usage
from helix_temporal.models.states import SessionProperties
from helix_temporal.stores.memory.storage import MemorySessionStorage


class Echo:
    """Says what was said; waits while it is told to."""

    def __init__(self) -> None:
        self.free, self.asked = asyncio.Event(), asyncio.Event()
        self.free.set()

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """The last text."""
        self.asked.set()
        await self.free.wait()
        return ModelResponse(content=request.messages[-1].text)


class Storage(MemorySessionStorage):
    """Fails, or takes its time, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.failures = 0
        self.saving, self.may_save = asyncio.Event(), asyncio.Event()
        self.may_save.set()
        self.deleting, self.may_delete = asyncio.Event(), asyncio.Event()
        self.may_delete.set()

    async def delete(self, session_id: str) -> None:
        """Once it may."""
        self.deleting.set()
        await self.may_delete.wait()
        await super().delete(session_id)

    async def save(self, session: StoredSession) -> None:
        """Once it may, and unless it fails, always or so many times."""
        self.saving.set()
        await self.may_save.wait()
        if self.error is not None:
            raise self.error
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailableError("no answer")
        await super().save(session)

    async def load(self, session_id: str) -> StoredSession | None:
        """After others."""
        await asyncio.sleep(0)
        return await super().load(session_id)


def echo(model: Echo | None = None, hooks: Hooks | None = None) -> Agent:
    return Agent(name="echo", model=model or Echo(), hooks=hooks or Hooks())


async def ask(session: Session, text: str, message_id: str | None = None) -> SessionEvent:
    """The last event."""
    await session.send(text, message_id=message_id)
    return [event async for event in session.receive()][-1]


async def texts(session: Session) -> list[str]:
    return [each.text for each in await session.get_messages()]


async def test_a_turn_that_was_not_stored_is_not_in_the_session() -> None:
    """What one's own process shows is what everybody else finds."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    storage.error = StoreUnavailableError("the disk is full")
    failed = await ask(session, "lost")
    assert isinstance(failed, ErrorEvent)
    assert failed.error_type == "StoreUnavailableError"
    assert await texts(session) == []


async def test_an_answer_is_stored_once_its_storage_is_back() -> None:
    """A storage that is silent for a moment just then: nobody has to send, and to pay, again."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    storage.failures = 3
    assert isinstance(await ask(session, "kept"), ResultEvent)
    assert await texts(session) == ["kept", "kept"]


async def test_a_session_shows_the_turns_of_other_processes() -> None:
    """It may be in use in two of them."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    found = await storage.load(session.id)
    assert found is not None
    other = await create_session(echo(), storage=storage)
    await ask(other, "elsewhere")
    theirs = await storage.load(other.id)
    assert theirs is not None
    await storage.save(theirs.model_copy(update={"id": session.id}))
    assert await texts(session) == ["elsewhere", "elsewhere"]


async def test_a_closed_session_is_resumed_as_a_new_one() -> None:
    """Also while somebody still holds the closed one."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    await session.close()
    again = await resume_session(session.id, echo(), storage=storage)
    assert isinstance(await ask(again, "hello"), ResultEvent)


async def test_a_session_is_not_resumed_under_another_id() -> None:
    """Else whoever gave the id would look for the session there."""
    storage = MemorySessionStorage()
    session = await create_session(echo(), storage=storage)
    with pytest.raises(InvalidRequestError, match="name two sessions"):
        await create_session(echo(), storage=storage, resume=session.id, session_id="other")
    again = await create_session(echo(), storage=storage, resume=session.id, session_id=session.id)
    assert again.id == session.id


async def test_a_session_that_was_deleted_is_not_resumed() -> None:
    """Not even where it is still in use."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    await storage.delete(session.id)
    with pytest.raises(SessionNotFoundError):
        await resume_session(session.id, echo(), storage=storage)
    failed = await ask(session, "anybody?")
    assert isinstance(failed, ErrorEvent)
    assert failed.error_type == "SessionNotFoundError"
    assert await storage.load(session.id) is None


async def test_two_who_resume_at_once_get_the_same_session() -> None:
    """Or both could send, and each would think the other's turn its own."""
    storage = Storage()
    session_id = (await create_session(echo(), storage=storage)).id
    first, second = await asyncio.gather(
        *(resume_session(session_id, echo(), storage=storage) for _ in range(2))
    )
    assert first is second


async def test_leaving_early_cancels_the_turn_and_stores_nothing() -> None:
    """And the session takes the next message."""
    storage, model = Storage(), Echo()
    session = await create_session(echo(model), storage=storage)
    model.free.clear()
    await session.send("one")
    async with aclosing(session.receive()) as events:
        running = asyncio.ensure_future(anext(events))
        await model.asked.wait()
        running.cancel()
        await asyncio.wait([running])
    model.free.set()
    assert await texts(session) == []
    assert isinstance(await ask(session, "two"), ResultEvent)
    assert await texts(session) == ["two", "two"]


async def test_a_save_that_has_begun_is_waited_for() -> None:
    """Else it would go on after the lease was given back, over the next one's turn."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    storage.saving.clear()
    storage.may_save.clear()
    await session.send("one")
    receiving = asyncio.ensure_future(_all(session))
    await storage.saving.wait()
    receiving.cancel()
    await asyncio.wait([receiving], timeout=0.01)
    assert await storage.locks.is_locked(f"session/{session.id}")
    storage.may_save.set()
    await asyncio.wait([receiving])
    assert not await storage.locks.is_locked(f"session/{session.id}")
    assert await texts(session) == ["one", "one"]


async def _all(session: Session) -> list[SessionEvent]:
    return [event async for event in session.receive()]


async def test_a_message_that_the_hook_refuses_is_not_answered() -> None:
    """A rule on what may be said holds here as in the workflow."""

    def refuse(event: BeforeUserMessage) -> UserMessageDecision:
        return UserMessageDecision(refuse=f"not {event.text!r}")

    storage = Storage()
    session = await create_session(echo(hooks=Hooks(before_user_message=refuse)), storage=storage)
    failed = await ask(session, "this")
    assert isinstance(failed, ErrorEvent)
    assert "not 'this'" in failed.message
    assert await texts(session) == []


async def test_a_message_that_is_sent_again_gets_the_answer_that_it_got() -> None:
    """It got that of the newest message; it is stored once, and its answer is paid for once."""
    storage, model = Storage(), Echo()
    session = await create_session(echo(model), storage=storage)
    await ask(session, "one", "m1")
    await ask(session, "two", "m2")
    model.asked.clear()
    again = await ask(session, "one", "m1")
    assert again == ResultEvent(text="one")
    assert not model.asked.is_set()
    assert await texts(session) == ["one", "one", "two", "two"]


async def test_an_answer_that_was_given_is_given_again_whatever_is_refused_by_now() -> None:
    """A hook is asked of what is new; nor does a session that has expired take an answer back."""
    refused: list[str] = []
    hooks = Hooks(before_user_message=lambda _: UserMessageDecision(refuse=refused[0] if refused else None))
    storage = Storage()
    session = await create_session(echo(hooks=hooks), storage=storage)
    await ask(session, "one", "m1")
    refused.append("closed for today")
    await resume_session(session.id, echo(), storage=storage, properties=SessionProperties(expires_at=1))
    assert await ask(session, "one", "m1") == ResultEvent(text="one")
    assert isinstance(await ask(session, "two", "m2"), ErrorEvent)


async def test_an_id_of_an_answer_is_refused_for_a_message() -> None:
    """As by a session workflow; nothing could be found under it."""
    session = await create_session(echo(), storage=Storage())
    await ask(session, "one")
    answer = (await session.get_messages())[-1]
    failed = await ask(session, "two", answer.id)
    assert isinstance(failed, ErrorEvent)
    assert failed.error_type == "IdempotencyConflictError"


async def test_a_message_that_the_hook_changes_is_stored_as_changed() -> None:
    """The text that the hook took out is nowhere."""
    storage = Storage()
    hooks = Hooks(before_user_message=lambda event: event.text.replace("secret", "***"))
    session = await create_session(echo(hooks=hooks), storage=storage)
    await ask(session, "my secret")
    assert await texts(session) == ["my ***", "my ***"]


async def test_a_hook_that_fails_refuses_without_its_text() -> None:
    """What an application's error says may hold what must not be told."""

    def fail(event: BeforeUserMessage) -> None:
        raise ValueError("password")

    session = await create_session(echo(hooks=Hooks(before_user_message=fail)), storage=Storage())
    failed = await ask(session, "hello")
    assert isinstance(failed, ErrorEvent)
    assert "password" not in failed.message


@pytest.mark.parametrize("error", [KeyError("colour"), asyncio.CancelledError()])
async def test_a_turn_whose_model_fails_ends_with_an_event(error: BaseException) -> None:
    """Whoever reads `receive` needs no handler beside the loop; the session takes the next message."""

    class Failing:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Fails for one message."""
            if request.messages[-1].text == "one":
                raise error
            return ModelResponse(content=request.messages[-1].text)

    session = await create_session(Agent(name="echo", model=Failing()), storage=Storage())
    failed = await ask(session, "one")
    assert isinstance(failed, ErrorEvent)
    assert failed.error_type == type(error).__name__
    assert failed.message.endswith(("KeyError: 'colour'", "raised CancelledError"))
    assert await ask(session, "two") == ResultEvent(text="two")


async def test_each_turn_asks_its_model_under_keys_of_its_own() -> None:
    """After a turn that failed, the next message stood where it had stood: one key for two requests."""
    keys: list[str] = []

    class Failing:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Fails once."""
            keys.append(request.step_key)
            if len(keys) == 1:
                raise InvalidRequestError("the provider refuses")
            return ModelResponse(content="ok")

    session = await create_session(Agent(name="echo", model=Failing()), storage=Storage(), session_id="s")
    assert isinstance(await ask(session, "one"), ErrorEvent)
    assert isinstance(await ask(session, "two"), ResultEvent)
    assert [each.split("/")[::2] for each in keys] == [["s", "0"], ["s", "0"]]
    assert keys[0] != keys[1]


async def test_a_storage_that_fails_ends_the_turn_with_an_event() -> None:
    """Also one of one's own, whose errors are none of this package."""
    storage = Storage()
    session = await create_session(echo(), storage=storage)
    storage.error = OSError("the disk is full")
    failed = await ask(session, "one")
    assert isinstance(failed, ErrorEvent)
    assert (failed.error_type, failed.message) == ("OSError", "OSError: the disk is full")


async def test_a_session_id_that_is_taken_is_refused_to_the_second_of_two_at_once() -> None:
    """Else the later one would replace the first one's session."""
    storage = Storage()
    made = await asyncio.gather(
        *(create_session(echo(), storage=storage, session_id="mine") for _ in range(2)),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in made) == ["Session", "SessionExistsError"]
    assert any(isinstance(each, SessionExistsError) for each in made)


async def test_two_who_fork_at_once_get_the_same_copy() -> None:
    """The later of two copies was saved over the turns of the first."""
    storage = Storage()
    await ask(await create_session(echo(), storage=storage, session_id="s"), "one")
    storage.saving.clear()
    storage.may_save.clear()
    first = asyncio.create_task(fork_session("s", echo(), new_session_id="copy", storage=storage))
    await storage.saving.wait()
    held, storage.may_save = storage.may_save, asyncio.Event()
    storage.may_save.set()
    second = asyncio.create_task(_forked_and_asked(storage))
    await asyncio.wait([second], timeout=0.05)
    held.set()
    assert await first is await second
    assert await texts(await first) == ["one", "one", "two", "two"]


async def _forked_and_asked(storage: Storage) -> Session:
    session = await fork_session("s", echo(), new_session_id="copy", storage=storage)
    await ask(session, "two")
    return session


async def test_a_fork_that_is_asked_for_again_waits_for_no_turn_of_the_copy() -> None:
    """It is there, and what the session does meanwhile is its own business."""
    storage, model = Storage(), Echo()
    await ask(await create_session(echo(), storage=storage, session_id="s"), "one")
    copy = await fork_session("s", echo(model), new_session_id="copy", storage=storage)
    model.free.clear()
    model.asked.clear()
    asked = asyncio.create_task(ask(copy, "two"))
    await model.asked.wait()
    assert await fork_session("s", echo(), new_session_id="copy", storage=storage) is copy
    model.free.set()
    assert isinstance(await asked, ResultEvent)


async def test_usage_is_summed_over_all_turns_and_a_fork_begins_anew_unless_it_is_told() -> None:
    """Copies are not billed twice; whoever wants the sum along says so."""

    class Metered:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Uses three tokens."""
            return ModelResponse(content="ok", usage=Usage(input_tokens=2, output_tokens=1))

    agent, storage = Agent(name="echo", model=Metered()), MemorySessionStorage()
    session = await create_session(agent, storage=storage)
    assert await session.get_usage() == Usage()
    await ask(session, "one")
    await ask(session, "two")
    assert await session.get_usage() == Usage(input_tokens=4, output_tokens=2)
    again = await resume_session(session.id, agent, storage=storage)
    assert await again.get_usage() == Usage(input_tokens=4, output_tokens=2)
    copy = await fork_session(session.id, agent, storage=storage)
    assert await copy.get_usage() == Usage()
    full = await fork_session(session.id, agent, storage=storage, copy_usage=True)
    assert await full.get_usage() == Usage(input_tokens=4, output_tokens=2)


async def test_a_session_of_a_storage_has_no_checkpoints() -> None:
    """Refused, rather than a copy of everything."""
    session = await create_session(echo(), storage=MemorySessionStorage())
    with pytest.raises(InvalidRequestError, match="no checkpoints"):
        await fork_session(session.id, echo(), at_checkpoint="cpv1-x-s1-t1-abcdef")


async def test_a_session_is_deleted_for_good() -> None:
    """Whoever has it in hand, here or elsewhere, is told; its id begins anew, and its forks stay."""
    storage = Storage()
    session = await create_session(echo(), storage=storage, session_id="s")
    await ask(session, "one")
    await fork_session("s", echo(), new_session_id="copy", storage=storage)
    result = await delete_session("s", storage=storage)
    assert result.complete
    assert (result.sessions, result.removed) == (("s",), {"thread": 1, "state": 1, "usage": 1})
    with pytest.raises(SessionNotFoundError):
        await session.get_messages()
    with pytest.raises(SessionNotFoundError):
        await resume_session("s", echo(), storage=storage)
    assert await storage.list() == ["copy"]
    again = await create_session(echo(), storage=storage, session_id="s")
    assert await texts(again) == []


async def test_a_repeated_deletion_finds_nothing() -> None:
    """So does one of a session that was never there."""
    result = await delete_session("never", storage=Storage())
    assert (result.complete, result.sessions, result.removed) == (True, ("never",), {})


@pytest.mark.parametrize("locks", [True, False])
async def test_a_turn_under_way_does_not_bring_a_deleted_session_back(*, locks: bool) -> None:
    """Its receiver is told; also in a storage of four methods, which has no locks."""
    storage, model = Storage(), Echo()
    if not locks:
        del storage.locks
    session = await create_session(echo(model), storage=storage, session_id="s")
    model.free.clear()
    asked = asyncio.create_task(ask(session, "one"))
    await model.asked.wait()
    assert (await delete_session("s", storage=storage)).complete
    told = await asked
    assert isinstance(told, ErrorEvent)
    assert told.error_type == "SessionNotFoundError"
    assert await storage.list() == []


async def test_what_is_being_stored_is_stored_before_it_is_deleted() -> None:
    """A save that is under way would come after the deletion otherwise."""
    storage = Storage()
    session = await create_session(echo(), storage=storage, session_id="s")
    storage.may_save.clear()
    storage.saving.clear()
    asked = asyncio.create_task(ask(session, "one"))
    await storage.saving.wait()
    deleting = asyncio.create_task(delete_session("s", storage=storage))
    await asyncio.sleep(0.05)
    storage.may_save.set()
    assert (await deleting).complete
    assert isinstance(await asked, ErrorEvent)
    assert await storage.list() == []


async def test_a_deletion_that_has_begun_is_waited_for() -> None:
    """Else it would go on after the lease was given back, and take what was made anew under the id."""
    storage = Storage()
    await create_session(echo(), storage=storage, session_id="s")
    storage.deleting.clear()
    storage.may_delete.clear()
    deleting = asyncio.create_task(delete_session("s", storage=storage))
    await storage.deleting.wait()
    deleting.cancel()
    await asyncio.wait([deleting], timeout=0.01)
    assert await storage.locks.is_locked("session/s")
    storage.may_delete.set()
    await asyncio.wait([deleting])
    assert await storage.list() == []


async def test_a_storage_keeps_no_use_apart() -> None:
    """What was asked for can't be had."""
    with pytest.raises(InvalidRequestError, match="keep_usage"):
        await delete_session("s", keep_usage=True, storage=Storage())
