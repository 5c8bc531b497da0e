"""`HelixStorage` beside the storages that Strands Agents brings, and under its agents."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import strands
from strands import Agent
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage, Storage
from strands.types.exceptions import StorageError

from helix_temporal import Backends, Settings
from helix_temporal.errors import FencedError, InvalidIdError, SessionNotFoundError
from helix_temporal.frameworks.background_loop import shared_loop
from helix_temporal.frameworks.strands import HelixStorage
from tests.docs._pages import ROOT, titled
from tests.frameworks._examples import check_example, check_example_on_temporal


class Echo(Model):
    """Answers with the texts of all messages of the user."""

    def update_config(self, **model_config: Any) -> None:
        """It has none."""

    def get_config(self) -> Any:
        """It has none."""
        return {}

    def structured_output(self, *args: Any, **more: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **more: Any) -> AsyncIterator[Any]:
        """One text."""
        del args, more
        said = [each["content"][0]["text"] for each in messages if each["role"] == "user"]
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": " | ".join(said)}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


@pytest.fixture
async def backends(settings: Settings) -> AsyncIterator[Backends]:
    """Stores that the loop in the background uses alone."""
    made = Backends(settings)
    yield made
    await shared_loop().call(made.close())


@pytest.fixture
async def another(settings: Settings, backends: Backends) -> AsyncIterator[Backends]:
    """The same stores, as another process has them; those in memory are one process's."""
    if settings.state_in == "memory":
        yield backends
        return
    made = Backends(settings)
    yield made
    await shared_loop().call(made.close())


def storage_of(backends: Backends, session_id: str = "user-42", **options: Any) -> HelixStorage:
    """A storage over these stores."""
    return HelixStorage(session_id, backends.records, **options)


def agent_with(storage: Storage, session_id: str = "user-42") -> Agent:
    """An agent that keeps its snapshots there."""
    manager = SnapshotSessionManager(session_id, storage=storage)
    return Agent(model=Echo(), session_manager=manager, callback_handler=None)


def test_it_is_a_storage_of_the_package(backends: Backends) -> None:
    """By the package's own check."""
    assert isinstance(storage_of(backends), Storage)


OPERATIONS: list[tuple[str, str, bytes | None]] = [
    ("write", "a/b", b"one two"),
    ("write", "/a//c/", b"\x00\xff" * 10),
    ("write", "b", b""),
    ("write", "a/b", b"two three"),
    ("write", "a0", b"three"),
    ("write", "\u00e9/\U0001f600", b"x"),
    ("write", "", b"x"),
    ("write", "//", b"x"),
    ("write", "a/../b", b"x"),
    ("write", "a\\b", b"x"),
    ("write", "a..b/.c", b"dots"),
    ("read", "a/b", None),
    ("read", "a//b", None),
    ("read", "a", None),
    ("read", "none", None),
    ("read", "..", None),
    ("list", "", None),
    ("list", "a", None),
    ("list", "a/", None),
    ("list", "/a/", None),
    ("list", "a//", None),
    ("list", "none", None),
    ("list", "../", None),
    ("list", "a\\", None),
    ("delete", "none", None),
    ("delete", "b", None),
    ("delete", "", None),
    ("read", "b", None),
    ("list", "", None),
    ("search", "two three", None),
    ("search", "unheard-of", None),
]


async def outcome(storage: Any, operation: str, key: str, data: bytes | None) -> object:
    """What an operation gives, or that it is refused."""
    try:
        result = await getattr(storage, operation)(*((key,) if data is None else (key, data)))
    except StorageError:
        return StorageError
    return result


async def test_it_does_what_the_packages_storage_does(backends: Backends) -> None:
    """With every key, prefix and query, good or not."""
    mine, theirs = storage_of(backends), InMemoryStorage()
    for operation in OPERATIONS:
        assert await outcome(mine, *operation) == await outcome(theirs, *operation), operation


async def test_many_files_are_listed_in_order(backends: Backends, another: Backends) -> None:
    """All of them, though a look finds five hundred."""
    storage = storage_of(backends)
    names = [f"f/{number:04}" for number in range(530)]
    for first in range(0, len(names), 50):
        await asyncio.gather(*(storage.write(each, b"x") for each in reversed(names[first : first + 50])))
    assert await storage_of(another).list("f/") == names
    assert await storage_of(another).list("f/052") == names[520:530]


async def test_a_stale_writer_is_refused(backends: Backends, another: Backends) -> None:
    """Whoever came last has the session; what the other one still writes would replace its files."""
    old, new = storage_of(backends, exclusive=True), storage_of(another, exclusive=True)
    await old.write("a", b"old")
    assert await new.read("a") == b"old"
    await new.write("a", b"new")
    for late in (old.write("a", b"late"), old.delete("a")):
        with pytest.raises(StorageError) as caught:
            await late
        assert isinstance(caught.value.__cause__, FencedError)
    assert await old.read("a") == b"new"


async def test_many_first_calls_take_over_once(backends: Backends) -> None:
    """The calls of one storage do not shut each other out."""
    storage = storage_of(backends, exclusive=True)
    await asyncio.gather(*(storage.write(f"f{number}", b"x") for number in range(8)))
    assert len(await storage.list("")) == 8


async def test_those_who_share_lose_nothing(backends: Backends, another: Backends) -> None:
    """Files that are written at once all stand."""
    shared = [storage_of(backends), storage_of(another)]
    await asyncio.gather(*(shared[number % 2].write(f"{number:02}", b"x") for number in range(12)))
    assert await shared[0].list("") == [f"{number:02}" for number in range(12)]


async def test_a_deleted_session_stays_deleted(backends: Backends, another: Backends) -> None:
    """A process that still runs gets an error, and brings nothing back."""
    storage = storage_of(another)
    await storage.write("a", b"x")
    assert await shared_loop().call(backends.sessions.delete_session("strands-agents/user-42"))
    with pytest.raises(StorageError) as caught:
        await storage.write("a", b"late")
    assert isinstance(caught.value.__cause__, SessionNotFoundError)
    assert (await storage.read("a"), await storage.list("")) == (None, [])


@pytest.mark.parametrize("exclusive", [False, True])
async def test_whoever_comes_after_a_delete_begins_anew(
    backends: Backends, another: Backends, exclusive: bool
) -> None:
    """The user talks to the agent again; a process from before is refused still."""
    before = storage_of(another)
    await before.write("a", b"x")
    assert await shared_loop().call(backends.sessions.delete_session("strands-agents/user-42"))
    after = storage_of(backends, exclusive=exclusive)
    assert await after.read("a") is None
    await after.write("b", b"y")
    assert await storage_of(backends).list("") == ["b"]


@pytest.mark.parametrize("session_id", [None, 42, "", "a\0"])
async def test_an_id_that_is_none_is_refused(backends: Backends, session_id: Any) -> None:
    """Nobody's session must not be everybody's."""
    with pytest.raises(InvalidIdError, match="session id"):
        storage_of(backends, session_id)


async def test_sessions_do_not_meet(backends: Backends) -> None:
    """Each has files of its own."""
    one, other = storage_of(backends, "a"), storage_of(backends, "b")
    await one.write("f", b"1")
    await other.write("f", b"2")
    assert (await one.read("f"), await other.read("f")) == (b"1", b"2")


async def test_a_search_strategy_is_told_and_asked(backends: Backends) -> None:
    """As by the package's storages: with the key as it is stored."""
    told: list[Any] = []

    class Strategy:
        async def index(self, storage: Any, key: str, data: bytes, **more: Any) -> None:
            told.append((key, data))

        async def search(self, storage: Any, query: str, **more: Any) -> Any:
            return [query]

    storage = storage_of(backends, search_strategy=Strategy())
    await storage.write("/a//b", b"x")
    assert told == [("a/b", b"x")]
    assert await storage.search("q") == ["q"]


async def test_what_cannot_be_stored_is_a_storage_error(backends: Backends) -> None:
    """Whoever catches the package's error catches ours; the message has no content."""
    for key, data in (("x" * 1025, b""), ("a\0b", b""), ("big", b"secret" * 3_000_000)):
        with pytest.raises(StorageError) as caught:
            await storage_of(backends).write(key, data)
        assert "secret" not in str(caught.value)


async def test_a_conversation_goes_on_in_another_process(backends: Backends, another: Backends) -> None:
    """The newest snapshot is restored when an agent is made."""
    first = agent_with(storage_of(backends))
    assert str(await first.invoke_async("one")).strip() == "one"
    second = agent_with(storage_of(another))
    assert str(await second.invoke_async("two")).strip() == "one | two"


async def test_an_old_agent_does_not_replace_the_snapshot_of_a_new_one(
    backends: Backends, another: Backends
) -> None:
    """Its turn fails when it is saved; the conversation is the new one's."""
    old = agent_with(storage_of(backends, exclusive=True))
    await old.invoke_async("one")
    new = agent_with(storage_of(another, exclusive=True))
    await new.invoke_async("two")
    with pytest.raises(StorageError):
        await old.invoke_async("late")
    last = agent_with(storage_of(backends))
    assert str(await last.invoke_async("three")).strip() == "one | two | three"


async def test_the_manager_deletes_what_it_wrote(backends: Backends) -> None:
    """Snapshots of the past among it."""
    storage = storage_of(backends)
    manager = SnapshotSessionManager("user-42", storage=storage)
    agent = Agent(model=Echo(), session_manager=manager, callback_handler=None)
    await agent.invoke_async("one")
    snapshot = await manager.save_snapshot(agent, is_latest=False)
    await agent.invoke_async("two")
    assert await manager.list_snapshot_ids(agent) == [snapshot]
    assert await manager.restore_snapshot(agent, snapshot_id=snapshot)
    assert len(agent.messages) == 2
    await manager.delete_session()
    assert await storage.list("") == []


def test_the_program_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the model: it asks what was said, and each call has an event loop of its own."""
    programs = dict(titled(ROOT / "docs" / "frameworks" / "strands-agents.md", "python"))
    monkeypatch.setattr(strands, "Agent", lambda **given: Agent(model=Echo(), callback_handler=None, **given))
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    printed: list[str] = []
    code = compile(programs["assistant.py"], "assistant.py", "exec")
    for _ in range(2):
        exec(code, {"__name__": "__main__", "print": lambda text: printed.append(str(text).strip())})
    said = ["My name is Ada.", "What is my name?"]
    assert printed == [" | ".join(said), " | ".join(said * 2)]


def test_the_example_prints_what_its_page_says() -> None:
    """Alone, in processes of its own."""
    check_example("strands_agents_sessions")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variables", ["sqlite", "redis and s3"], indirect=True)
async def test_the_example_runs_in_a_workflow(variables: dict[str, str], temporal_address: str) -> None:
    """Question and answer stand once, though the worker was killed before it could report them."""
    variables = {**variables, "HELIX_TEMPORAL_ADDRESS": temporal_address}
    await check_example_on_temporal("strands_agents_sessions", "strands_in_a_workflow.py", variables)
