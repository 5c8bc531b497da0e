"""Sessions of the façade whose save does not come to its end: readers see the old one or the new one."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helix_temporal.agents import Agent, ModelRequest, ModelResponse, ScriptedModel, ToolContext, tool
from helix_temporal.facade import create_session, fork_session
from helix_temporal.facade.documents import FileLocks, FileSessionStorage
from helix_temporal.facade.session import LocalEngine, Session
from helix_temporal.models.facade import SessionEvent, StoredSession
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.protocols.storage import SessionStorage
from helix_temporal.stores.sessions import RowSessions
from helix_temporal.stores.storage import StoreSessionStorage
from helix_temporal.stores.threads.hot_only import HotThreads

CALLS = range(1, 12)
STEPS = ("created", "written", "synced", "renamed", "settled")


class Crash(Exception):  # noqa: N818 (the process is gone; no error of ours)
    """The process is gone."""


class Dying:
    """A session store whose user is gone before, or right after, its n-th change."""

    CHANGES = ("create_session", "append_messages", "truncate_messages", "save_state", "merge_custom_state")

    def __init__(self, store: RowSessions, at: int, *, after: bool) -> None:
        self._store, self._left, self._after = store, at, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "iter_session_ids":
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)  # others come between any two calls
            self._left -= name in self.CHANGES
            if name in self.CHANGES and self._left == 0 and not self._after:
                raise Crash
            answer = await found(*args, **kwargs)
            if name in self.CHANGES and self._left == 0:
                raise Crash
            return answer

        return call


class Place:
    """One store, and storages over it that live or die."""

    def __init__(self) -> None:
        backend = MemoryBackend()
        self._locks = backend.locks
        self._store = RowSessions(backend.sessions, HotThreads(backend.threads))
        self.alive = StoreSessionStorage(self._store, self._locks)

    def dying(self, at: int, *, after: bool) -> StoreSessionStorage:
        """A storage whose process is gone at that change."""
        store: Any = Dying(self._store, at, after=after)
        return StoreSessionStorage(store, self._locks)


def a_session(*texts: str, parent: str | None = None) -> StoredSession:
    messages = tuple(Message(id=f"m{at}", role="user", content=text) for at, text in enumerate(texts))
    return StoredSession(
        id="s",
        messages=messages,
        usage=Usage(input_tokens=len(texts)),
        metadata={"size": len(texts)},
        parent_id=parent,
    )


def seen(session: StoredSession | None) -> object:
    """What has to hang together."""
    if session is None:
        return None
    texts = [each.text for each in session.messages]
    return texts, session.usage.input_tokens, session.metadata, session.parent_id


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
async def test_a_turn_whose_save_is_cut_off_is_there_or_not(at: int, *, after: bool) -> None:
    """Never its messages without what they cost; and saved again it is there once."""
    place, old, new = Place(), a_session("a", "b"), a_session("a", "b", "c", "d")
    await place.alive.save(old)
    cut_off = (await asyncio.gather(place.dying(at, after=after).save(new), return_exceptions=True))[0]
    assert cut_off is None or isinstance(cut_off, Crash)
    assert seen(await place.alive.load("s")) in (seen(old), seen(new))
    await place.alive.save(new)
    assert seen(await place.alive.load("s")) == seen(new)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
async def test_a_turn_that_was_cut_off_leaves_nothing_to_the_next(at: int, *, after: bool) -> None:
    """Whoever goes on, goes on from what readers see."""
    place = Place()
    await place.alive.save(a_session("a", "b"))
    await asyncio.gather(
        place.dying(at, after=after).save(a_session("a", "b", "c", "d")), return_exceptions=True
    )
    found = await place.alive.load("s")
    assert found is not None
    other = Message(id="other", role="user", content="other")
    wanted = found.model_copy(update={"messages": (*found.messages, other)})
    await place.alive.save(wanted)
    assert seen(await place.alive.load("s")) == seen(wanted)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
async def test_a_session_that_was_not_made_to_the_end_is_none(at: int, *, after: bool) -> None:
    """A fork that has its parent's name and nothing of its messages would be taken for a whole one."""
    place, new = Place(), a_session("a", "b", parent="p")
    await asyncio.gather(place.dying(at, after=after).save(new), return_exceptions=True)
    assert seen(await place.alive.load("s")) in (None, seen(new))
    await place.alive.save(new)
    assert seen(await place.alive.load("s")) == seen(new)


@pytest.mark.parametrize("at", CALLS)
async def test_a_fork_that_was_cut_off_is_made_by_its_repeat(at: int) -> None:
    """The same new id gives the whole copy, whatever the first try left (case 125)."""
    place, agent = Place(), Agent(name="a", model=ScriptedModel(["x"]))
    await place.alive.save(a_session("a", "b").model_copy(update={"id": "source"}))
    dying = place.dying(at, after=True)
    await asyncio.gather(
        fork_session("source", agent, new_session_id="copy", storage=dying), return_exceptions=True
    )
    fork = await fork_session("source", agent, new_session_id="copy", storage=place.alive)
    assert [each.text for each in await fork.get_messages()] == ["a", "b"]


async def test_a_reader_beside_a_writer_sees_whole_turns() -> None:
    """Messages and usage of one moment, also for who forks meanwhile (case 126)."""
    place = Place()
    sessions = [a_session(*(str(number) for number in range(size))) for size in range(1, 40)]
    await place.alive.save(sessions[0])
    found: list[StoredSession | None] = []

    async def write() -> None:
        for session in sessions:
            await place.dying(0, after=False).save(session)

    writer = asyncio.create_task(write())
    while not writer.done():
        found.append(await place.dying(0, after=False).load("s"))
        await asyncio.sleep(0)
    await writer
    whole = [seen(session) for session in sessions]
    assert found
    assert [each for each in map(seen, found) if each not in whole] == []


async def test_a_long_session_is_kept_whole() -> None:
    """More messages than a page or a step of any store has."""
    place, session = Place(), a_session(*(str(number) for number in range(3000)))
    await place.alive.save(session)
    assert seen(await place.alive.load("s")) == seen(session)


@pytest.mark.parametrize("step", STEPS)
def test_a_file_whose_writer_is_killed_is_the_old_one_or_the_new_one(tmp_path: Path, step: str) -> None:
    """Killed after each step of a save: never half a session, and nothing is left behind (case 123)."""
    old, new = a_session("old"), a_session("old", "n" * 100_000)
    storage = FileSessionStorage(tmp_path)
    asyncio.run(storage.save(old))
    assert _killed_while_saving(tmp_path, new, step) == 9
    found = asyncio.run(storage.load("s"))
    assert seen(found) == seen(new if step in {"renamed", "settled"} else old)
    asyncio.run(storage.save(new))
    assert seen(asyncio.run(storage.load("s"))) == seen(new)
    assert asyncio.run(storage.list()) == ["s"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["s.json"]


def _killed_while_saving(directory: Path, session: StoredSession, step: str) -> int:
    """The exit status of a process that is gone right after that step, as by SIGKILL."""

    def after(done: str) -> None:
        if done == step:
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(FileSessionStorage(directory, after=after).save(session))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# -- a turn that is asked for again


class Payer:
    """An agent with one tool call a turn: what it did is appended to a file, which outlives its process."""

    def __init__(self, log: Path, reach: Callable[[str], None] = lambda _: None) -> None:
        self._log, self._reach = log, reach

    def write(self, what: str) -> None:
        """Note what is done, where the process may be gone before and after."""
        self._reach(f"before {what.partition(' ')[0]}")
        with self._log.open("a") as log:
            log.write(f"{what}\n")
        self._reach(f"after {what.partition(' ')[0]}")

    def read_log(self) -> list[str]:
        """What was done."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def build_agent(self) -> Agent:
        """The agent."""

        @tool
        def pay(context: ToolContext) -> str:
            """Pay."""
            self.write(f"pay {context.key}")
            return "paid"

        return Agent(name="payer", model=self, tools=[pay])

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Pay, and say so."""
        if request.messages[-1].role == "user":
            self.write("call")
            return ModelResponse(tool_calls=(ToolCall(id="c", name="pay", arguments={}),))
        self.write("answer")
        return ModelResponse(content=request.messages[-1].text)


async def ask(storage: SessionStorage, payer: Payer) -> list[SessionEvent]:
    """The same turn, as every process asks for it."""
    agent = payer.build_agent()
    session = Session("s", LocalEngine(agent, storage, "s", getattr(storage, "locks", None)), agent.name)
    await session.send("pay", message_id="req-17")
    return [event async for event in session.receive()]


def check_one_turn(events: list[SessionEvent], stored: StoredSession | None, log: list[str]) -> None:
    """One turn, whose tool ran under one key, and whose result went to the model as it was paid for."""
    assert getattr(events[-1], "text", None) == "paid"
    assert stored is not None
    assert [each.role for each in stored.messages] == ["user", "assistant", "tool", "assistant"]
    assert stored.unfinished is None
    assert len({each for each in log if each.startswith("pay ")}) == 1
    assert len(log) <= 3 + 1  # what was under way is done again, and nothing else


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", CALLS)
async def test_a_turn_whose_store_failed_is_one_turn_when_it_is_asked_for_again(
    tmp_path: Path, at: int, *, after: bool
) -> None:
    """Failed at any change of any of its saves, whether the change was made or not."""
    place, payer = Place(), Payer(tmp_path / "log")
    await create_session(payer.build_agent(), storage=place.alive, session_id="s")
    await ask(place.dying(at, after=after), payer)
    events = await ask(place.alive, payer)
    check_one_turn(events, await place.alive.load("s"), payer.read_log())


PLACES = [f"{when} {what}" for what in ("call", "pay", "answer") for when in ("before", "after")]
SAVES = [f"save {number} {step}" for number in (1, 2, 3) for step in STEPS]


@pytest.mark.parametrize("place", [*PLACES, *SAVES])
def test_a_turn_whose_process_is_killed_is_one_turn_when_it_is_asked_for_again(
    tmp_path: Path, place: str
) -> None:
    """Killed in its model, in its tool, and after each step of each of its saves."""
    storage, payer = FileSessionStorage(tmp_path), Payer(tmp_path / "log")
    asyncio.run(_create(storage, payer))
    assert _killed_while_asking(tmp_path, place) == 9
    # The lease of the process that is gone ends by itself.
    storage.locks = FileLocks(tmp_path / ".locks", clock=lambda: time.time() + 60)
    events = asyncio.run(ask(storage, payer))
    check_one_turn(events, asyncio.run(storage.load("s")), payer.read_log())
    assert (asyncio.run(ask(storage, payer)))[-1].type == "result"
    check_one_turn(events, asyncio.run(storage.load("s")), payer.read_log())


async def _create(storage: SessionStorage, payer: Payer) -> None:
    await create_session(payer.build_agent(), storage=storage, session_id="s")


def _killed_while_asking(directory: Path, place: str) -> int:
    """The exit status of a process that is gone when its turn reaches that place, as by SIGKILL."""
    saves = 0

    def reach(name: str) -> None:
        if name == place:
            os._exit(9)

    def after(step: str) -> None:
        nonlocal saves
        saves += step == "created"
        reach(f"save {saves} {step}")

    child = os.fork()
    if child == 0:
        try:
            asyncio.run(ask(FileSessionStorage(directory, after=after), Payer(directory / "log", reach)))
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
