"""A message of the façade that is sent again under its id: its turn is told again, or goes on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.agents import Agent, Hooks, ModelRequest, ModelResponse, ToolContext, ToolOutcome, tool
from helix_temporal.errors import IdempotencyConflictError, InvalidRequestError
from helix_temporal.facade import create_session, fork_session, resume_session
from helix_temporal.facade.documents import FileSessionStorage
from helix_temporal.facade.session import BegunTurn, LocalEngine, Session, check_same_text, find_begun_turn
from helix_temporal.models.facade import ErrorEvent, ResultEvent, SessionEvent, StoredSession, UnfinishedTurn
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.sessions import UserMessage
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.stores.protocols.storage import SessionStorage


class Gone(BaseException):
    """The process is gone."""


class Shop:
    """An agent that pays twice, each in a step of its own, and what it did; it stops where it is told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.paid: list[str] = []
        self.stops: dict[str, BaseException] = {}

    def stop_at(self, place: str, error: BaseException | None = None) -> None:
        """Raise there, once."""
        self.stops[place] = error or InvalidRequestError("stopped")

    def reach(self, place: str) -> None:
        """Come to a place."""
        if place in self.stops:
            raise self.stops.pop(place)

    def build_agent(self, hooks: Hooks | None = None, max_steps: int = 9) -> Agent:
        """The agent."""

        @tool
        def pay(context: ToolContext, item: str) -> ToolOutcome:
            """Pay for an item."""
            self.reach(f"before {item}")
            self.paid.append(context.key)
            self.reach(f"after {item}")
            return ToolOutcome(
                f"paid {item}", state={item: True, "newest": item}, usage=Usage(input_tokens=10)
            )

        return Agent(name="shop", model=self, tools=[pay], hooks=hooks or Hooks(), max_steps=max_steps)

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """First the pen, then the ink, then the bill."""
        results = [each for each in request.messages if each.role == "tool"]
        users = [each for each in request.messages if each.role == "user"]
        step = len(results) - 2 * (len(users) - 1)
        self.asked.append(step)
        self.reach(f"model {step}")
        if step == 2:
            return ModelResponse(content=f"billed: {users[-1].text}", usage=Usage(output_tokens=1))
        item = ("pen", "ink")[step]
        call = ToolCall(id=f"c{step}", name="pay", arguments={"item": item})
        return ModelResponse(tool_calls=(call,), usage=Usage(output_tokens=1))


PLACES = ["model 1", "after ink", "before ink", "model 2", "after pen", "before pen", "model 0"]


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStorage:
    """One in memory, and one on disk."""
    return MemorySessionStorage() if request.param == "memory" else FileSessionStorage(tmp_path / "sessions")


def open_elsewhere(shop: Shop, storage: SessionStorage, hooks: Hooks | None = None) -> Session:
    """The session as another process has it."""
    agent = shop.build_agent(hooks)
    return Session("s", LocalEngine(agent, storage, "s", getattr(storage, "locks", None)), agent.name)


async def ask(session: Session, text: str, message_id: str = "req-17") -> list[SessionEvent]:
    """All events of the turn."""
    await session.send(text, message_id=message_id)
    return [event async for event in session.receive()]


def roles(stored: StoredSession | None) -> list[str]:
    assert stored is not None
    return [each.role for each in stored.messages]


WHOLE = ["user", "assistant", "tool", "assistant", "tool", "assistant"]


# -- the rule


def a_message(message_id: str, role: Any = "user", text: str = "x", **fields: Any) -> Message:
    return Message(id=message_id, role=role, content=text, **fields)


ANSWERED = StoredSession(id="s", messages=(a_message("u1"), a_message("a1", "assistant", "yes")))


def test_a_message_that_is_new_has_begun_no_turn() -> None:
    """Also beside an unfinished turn of another one."""
    unfinished = UnfinishedTurn(messages=(a_message("u2"), a_message("a2", "assistant")))
    assert find_begun_turn(ANSWERED.model_copy(update={"unfinished": unfinished}), "u3") is None


def test_a_finished_turn_is_found_by_its_message() -> None:
    """With its answer, however old it is."""
    begun = find_begun_turn(ANSWERED, "u1")
    assert begun == BegunTurn(ANSWERED.messages[0], finished=True, answer=ANSWERED.messages[1])


def test_an_unfinished_turn_is_found_by_its_message() -> None:
    """By the user's, which is the first; the others have ids that nobody gave."""
    unfinished = UnfinishedTurn(messages=(a_message("u2"), a_message("a2", "assistant")))
    stored = ANSWERED.model_copy(update={"unfinished": unfinished})
    assert find_begun_turn(stored, "u2") == BegunTurn(unfinished.messages[0], finished=False)
    assert find_begun_turn(stored, "a2") is None


def test_the_same_id_with_another_text_is_a_conflict() -> None:
    """One of the two would be lost without a word; the error has neither of them."""
    with pytest.raises(IdempotencyConflictError, match="'u1'") as caught:
        check_same_text(a_message("u1", text="secret"), UserMessage(id="u1", text="other"))
    assert caught.value.facts["message_id"] == "u1"
    assert "secret" not in str(caught.value)
    assert "other text" in str(caught.value)
    check_same_text(a_message("u1", text="same"), UserMessage(id="u1", text="same"))


# -- turns that go on


@pytest.mark.parametrize("place", PLACES)
async def test_a_turn_that_was_cut_off_anywhere_goes_on(storage: SessionStorage, place: str) -> None:
    """No step is paid for twice, and a tool whose result is there does not run again.

    One that was cut off before its result was stored runs again under the same key.
    """
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    shop.stop_at(place, Gone() if "ink" in place or "pen" in place else None)
    first = open_elsewhere(shop, storage)
    await asyncio.gather(ask(first, "buy"), return_exceptions=True)
    assert roles(await storage.load("s")) == []
    events = await ask(open_elsewhere(shop, storage), "buy")
    assert [each.type for each in events][-2:] == ["stop", "result"]
    assert isinstance(events[-1], ResultEvent)
    assert events[-1].text == "billed: buy"
    stored = await storage.load("s")
    assert stored is not None
    assert roles(stored) == WHOLE
    assert stored.unfinished is None
    assert (stored.state, stored.usage) == (
        {"pen": True, "ink": True, "newest": "ink"},
        Usage(input_tokens=20, output_tokens=3),
    )
    assert len(set(shop.paid)) == 2
    assert shop.asked == [0, *sorted([0, 1, 2, *([int(place[-1])] if "model" in place else [])])][1:]


async def test_a_turn_that_goes_on_is_told_from_its_beginning(storage: SessionStorage) -> None:
    """Whoever asks again may not know what the first one was told."""
    shop, other = Shop(), Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    shop.stop_at("model 2")
    await ask(open_elsewhere(shop, storage), "buy")
    again = [each.type for each in await ask(open_elsewhere(shop, storage), "buy")]
    await create_session(other.build_agent(), storage=storage, session_id="other")
    session = Session("other", LocalEngine(other.build_agent(), storage, "other", None), "shop")
    assert again == [each.type for each in await ask(session, "buy")]


async def test_a_turn_goes_on_as_often_as_it_is_cut_off(storage: SessionStorage) -> None:
    """Each time behind what was stored last: a tool runs again only where its own result was not."""
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    for place in ("after pen", "model 1", "before ink", "after ink", "model 2"):
        shop.stop_at(place, None if "model" in place else Gone())
        await asyncio.gather(ask(open_elsewhere(shop, storage), "buy"), return_exceptions=True)
    assert isinstance((await ask(open_elsewhere(shop, storage), "buy"))[-1], ResultEvent)
    assert (len(shop.paid), len(set(shop.paid))) == (4, 2)
    assert roles(await storage.load("s")) == WHOLE


async def test_a_finished_turn_is_told_and_nothing_runs(storage: SessionStorage) -> None:
    """From another process, behind turns that came after it."""
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    await ask(open_elsewhere(shop, storage), "buy")
    await ask(open_elsewhere(shop, storage), "more", "req-18")
    asked, paid = len(shop.asked), len(shop.paid)
    assert (await ask(open_elsewhere(shop, storage), "buy"))[-1] == ResultEvent(text="billed: buy")
    assert (len(shop.asked), len(shop.paid)) == (asked, paid)


@pytest.mark.parametrize("place", ["", "model 2"])
async def test_the_id_of_a_turn_with_another_text_is_refused(storage: SessionStorage, place: str) -> None:
    """Whether the turn is finished or not; it stays as it was, and can be asked for again."""
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    if place:
        shop.stop_at(place)
    await ask(open_elsewhere(shop, storage), "buy")
    before = await storage.load("s")
    (refused,) = await ask(open_elsewhere(shop, storage), "sell")
    assert isinstance(refused, ErrorEvent)
    assert refused.error_type == "IdempotencyConflictError"
    assert await storage.load("s") == before
    assert (await ask(open_elsewhere(shop, storage), "buy"))[-1].type == "result"


async def test_a_hook_is_not_asked_of_a_turn_that_goes_on(storage: SessionStorage) -> None:
    """It was asked when the turn began, and may have changed the text: texts are not compared then."""
    told: list[str] = []

    def redact(event: Any) -> str:
        told.append(event.text)
        return "***"

    shop, hooks = Shop(), Hooks(before_user_message=redact)
    await create_session(shop.build_agent(hooks), storage=storage, session_id="s")
    shop.stop_at("model 1")
    await ask(open_elsewhere(shop, storage, hooks), "secret")
    (*_, result) = await ask(open_elsewhere(shop, storage, hooks), "secret")
    assert isinstance(result, ResultEvent)
    assert result.text == "billed: ***"
    assert told == ["secret"]


async def test_another_message_has_the_unfinished_turn_forgotten_once_it_is_answered(
    storage: SessionStorage,
) -> None:
    """It is not before: one that fails leaves it as it was."""
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    shop.stop_at("model 1")
    await ask(open_elsewhere(shop, storage), "buy")
    shop.stop_at("model 0")
    await ask(open_elsewhere(shop, storage), "other", "req-18")
    kept = await storage.load("s")
    assert kept is not None
    assert kept.unfinished is not None
    assert kept.unfinished.messages[0].id == "req-17"
    await ask(open_elsewhere(shop, storage), "other", "req-18")
    stored = await storage.load("s")
    assert stored is not None
    assert [each.text for each in stored.messages if each.role == "user"] == ["other"]
    assert stored.unfinished is None
    assert stored.state == {"pen": True, "ink": True, "newest": "ink"}


async def test_readers_and_forks_see_no_unfinished_turn(storage: SessionStorage) -> None:
    """A copy would go on with calls that belong to the original."""
    shop = Shop()
    session = await create_session(shop.build_agent(), storage=storage, session_id="s")
    shop.stop_at("model 1")
    await ask(session, "buy")
    assert await session.get_messages() == []
    assert await session.get_state() == {}
    assert await session.get_usage() == Usage()
    await fork_session("s", shop.build_agent(), new_session_id="copy", storage=storage)
    copy = await storage.load("copy")
    assert copy is not None
    assert copy.unfinished is None


async def test_a_turn_without_tools_is_stored_once() -> None:
    """Only what tools may have done is worth a write of its own."""
    saved: list[str] = []

    class Counting(MemorySessionStorage):
        async def save(self, session: StoredSession) -> None:
            """Note what is saved."""
            last = None if session.unfinished is None else session.unfinished.messages[-1]
            saved.append("turn" if last is None else "results" if last.role == "tool" else "calls")
            await super().save(session)

    class Plain:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """No tools."""
            return ModelResponse(content="ok")

    storage, shop = Counting(), Shop()
    session = await create_session(Agent(name="plain", model=Plain()), storage=storage, session_id="plain")
    saved.clear()
    await ask(session, "hello")
    assert saved == ["turn"]
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    saved.clear()
    shop.stop_at("model 2")
    await ask(open_elsewhere(shop, storage), "buy")
    await ask(open_elsewhere(shop, storage), "buy")
    assert saved == ["calls", "results", "calls", "results", "turn"]


async def test_no_tool_runs_before_its_call_is_stored() -> None:
    """Else it would run under another key when the turn is asked for again."""

    class Full(MemorySessionStorage):
        async def save(self, session: StoredSession) -> None:
            """Take no unfinished turns."""
            if session.unfinished is not None:
                raise OSError("the disk is full")
            await super().save(session)

    storage, shop = Full(), Shop()
    session = await create_session(shop.build_agent(), storage=storage, session_id="s")
    (*_, failed) = await ask(session, "buy")
    assert isinstance(failed, ErrorEvent)
    assert failed.error_type == "OSError"
    assert shop.paid == []


async def test_two_who_ask_at_once_have_one_turn(storage: SessionStorage) -> None:
    """The second waits for the lease, and gets the answer of the first."""
    shop = Shop()
    await create_session(shop.build_agent(), storage=storage, session_id="s")
    both = await asyncio.gather(*(ask(open_elsewhere(shop, storage), "buy") for _ in range(2)))
    assert [events[-1].type for events in both] == ["result", "result"]
    assert {getattr(events[-1], "text", None) for events in both} == {"billed: buy"}
    assert shop.asked == [0, 1, 2]
    assert len(shop.paid) == 2
    assert roles(await storage.load("s")) == WHOLE


async def test_one_who_leaves_early_goes_on_later(storage: SessionStorage) -> None:
    """Nothing of the turn is in the session; what its tools did is known all the same."""
    shop = Shop()
    session = await create_session(shop.build_agent(), storage=storage, session_id="s")
    await session.send("buy", message_id="req-17")
    events = session.receive()
    async for event in events:
        if event.type == "tool_result":
            break
    await events.aclose()
    assert await session.get_messages() == []
    again = await resume_session("s", shop.build_agent(), storage=storage)
    assert (await ask(again, "buy"))[-1].type == "result"
    assert len(set(shop.paid)) == 2
    assert shop.asked.count(0) == 1


async def test_a_step_that_was_taken_back_is_not_gone_on_with() -> None:
    """The step that took its place is: what is stored is the turn as it stands."""
    paid: list[str] = []
    stop = [True]

    @tool
    def book(context: ToolContext) -> ToolOutcome:
        """Book, take back, book again, and be cut off."""
        paid.append(context.key)
        if len(paid) == 2 and stop.pop():
            raise Gone
        return ToolOutcome("booked", rewind=len(paid) == 1, state={f"try-{len(paid)}": True})

    class Model:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Book once."""
            if request.messages[-1].role == "tool":
                return ModelResponse(content="done")
            return ModelResponse(tool_calls=(ToolCall(id="c", name="book", arguments={}),))

    storage, agent = MemorySessionStorage(), Agent(name="cinema", model=Model(), tools=[book])
    await create_session(agent, storage=storage, session_id="s")
    first = Session("s", LocalEngine(agent, storage, "s", storage.locks), agent.name)
    await asyncio.gather(ask(first, "a seat"), return_exceptions=True)
    second = Session("s", LocalEngine(agent, storage, "s", storage.locks), agent.name)
    assert (await ask(second, "a seat"))[-1] == ResultEvent(text="done")
    assert (len(paid), len(set(paid)), paid[1]) == (3, 2, paid[2])
    stored = await storage.load("s")
    assert roles(stored) == ["user", "assistant", "tool", "assistant"]
    assert stored is not None
    assert stored.state == {"try-3": True}


async def test_results_of_all_kinds_are_those_that_the_tools_gave(storage: SessionStorage) -> None:
    """Long ones, lists, failures, and calls that nobody can answer: as in a turn that nothing has cut off."""
    ran: list[str] = []

    @tool
    def give(what: str) -> Any:
        """Give a result."""
        ran.append(what)
        if what == "error":
            raise InvalidRequestError("no")
        return {"long": "x" * 5000, "list": [{"a": [1.5, None]}]}[what]

    @tool(approval=True)
    def wipe() -> str:
        """Wipe the disk."""
        ran.append("wipe")
        return "wiped"

    failures: list[str] = []

    class Model:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Ask for everything twice, fail where it is told to, and answer."""
            step = sum(1 for each in request.messages if each.role == "assistant")
            if failures and failures[0] == str(step):
                raise InvalidRequestError(failures.pop(0))
            if step == 2:
                return ModelResponse(content="done")
            asked = [
                ToolCall(id=what, name="give", arguments={"what": what}) for what in ("long", "list", "error")
            ]
            asked += [ToolCall(id=name, name=name, arguments={}) for name in ("wipe", "nothing")]
            return ModelResponse(tool_calls=tuple(asked))

    def content(stored: StoredSession | None) -> list[object]:
        assert stored is not None
        return [each.model_dump(exclude={"id", "provider"}) for each in stored.messages]

    agent = Agent(name="kinds", model=Model(), tools=[give, wipe])
    whole = await create_session(agent, storage=storage, session_id="whole")
    assert (await ask(whole, "go"))[-1] == ResultEvent(text="done")
    assert sorted(ran) == sorted(2 * ["long", "list", "error"])
    session = await create_session(agent, storage=storage, session_id="s")
    failures += ["1", "2"]
    told = [(await ask(session, "go"))[-1].type for _ in range(3)]
    assert told == ["error", "error", "result"]
    assert sorted(ran) == sorted(4 * ["long", "list", "error"])
    assert content(await storage.load("s")) == content(await storage.load("whole"))


async def test_a_text_that_a_hook_changed_stays_changed_when_its_step_is_made_again() -> None:
    """The turn that goes on may take its first step back, which then takes the message once more."""
    outcomes: list[BaseException | ToolOutcome] = [
        Gone(),
        ToolOutcome("", rewind=True),
        ToolOutcome("booked"),
    ]

    @tool
    def book() -> ToolOutcome:
        """Be cut off, take back, book."""
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    class Model:
        async def generate(self, request: ModelRequest) -> ModelResponse:
            """Book once."""
            if request.messages[-1].role == "tool":
                return ModelResponse(content=request.messages[0].text)
            return ModelResponse(tool_calls=(ToolCall(id="c", name="book", arguments={}),))

    hooks, storage = Hooks(before_user_message=lambda _: "***"), MemorySessionStorage()
    agent = Agent(name="cinema", model=Model(), tools=[book], hooks=hooks)
    await create_session(agent, storage=storage, session_id="s")
    first = Session("s", LocalEngine(agent, storage, "s", storage.locks), agent.name)
    await asyncio.gather(ask(first, "secret"), return_exceptions=True)
    second = Session("s", LocalEngine(agent, storage, "s", storage.locks), agent.name)
    assert (await ask(second, "secret"))[-1] == ResultEvent(text="***")


async def test_the_last_step_allowed_stays_the_last(storage: SessionStorage) -> None:
    """Steps of the first try count, or a turn that is cut off again and again would have no end."""
    shop = Shop()
    agent = shop.build_agent(max_steps=2)
    await create_session(agent, storage=storage, session_id="s")
    shop.stop_at("before ink", Gone())
    first = Session("s", LocalEngine(agent, storage, "s", None), agent.name)
    await asyncio.gather(ask(first, "buy"), return_exceptions=True)
    second = Session("s", LocalEngine(agent, storage, "s", None), agent.name)
    assert (await ask(second, "buy"))[-1] == ResultEvent(
        text=None, usage=Usage(input_tokens=20, output_tokens=2)
    )
    assert shop.asked == [0, 1]
