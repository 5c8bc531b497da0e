"""Conversations of pydantic-ai inside workflows, on a real Temporal server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from pydantic_ai.models.function import FunctionModel
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Replayer,
    Worker,
)

from helix_temporal import Settings
from helix_temporal.errors import InvalidConfigError, InvalidReferenceError
from helix_temporal.frameworks.entry_tree import EntryPlace
from helix_temporal.frameworks.pydantic_ai import HelixConversationStore
from helix_temporal.frameworks.pydantic_ai_references import MARK, EntryReference, EntryReferenceSigner
from helix_temporal.frameworks.pydantic_ai_worker import HelixPydanticAIPlugin
from helix_temporal.frameworks.pydantic_ai_workflow import LOAD, SAVE
from helix_temporal.stores.protocols.sessions import SessionStore
from tests.docs._pages import ROOT, blocks, titled
from tests.frameworks._histories import list_unwatched
from tests.frameworks._pydantic_conversations import load
from tests.frameworks._pydantic_workflows import PlainChat, StoredChat, ThiefChat, answer, given

KEY = "a secret of the workers"


@dataclass(frozen=True, slots=True)
class Bench:
    """A worker that serves the chats, and its client."""

    client: Client
    store: HelixConversationStore
    queue: str

    async def start(self, name: str, *args: Any, chat: Any = StoredChat) -> WorkflowHandle[Any, Any]:
        """A chat."""
        return await self.client.start_workflow(
            chat.run, args=args, id=f"{self.queue}-{name}", task_queue=self.queue
        )


def plugins(store: SessionStore) -> list[Any]:
    """Ours is a guest."""
    settings = Settings.from_env({"HELIX_REFERENCE_KEY": KEY})
    backends: Any = SimpleNamespace(sessions=store)
    return [PydanticAIPlugin(), HelixPydanticAIPlugin(settings, backends=backends)]


@asynccontextmanager
async def serving(
    address: str, store: SessionStore, queue: str, *interceptors: Interceptor
) -> AsyncIterator[Bench]:
    """A worker."""
    client = await Client.connect(address, plugins=plugins(store))
    workflows = [StoredChat, PlainChat, ThiefChat]
    async with Worker(client, task_queue=queue, workflows=workflows, interceptors=interceptors):
        yield Bench(client, HelixConversationStore(store), queue)


@pytest.fixture
async def bench(temporal_address: str, store: SessionStore, unique: str) -> AsyncIterator[Bench]:
    """A worker over the stores."""
    given.clear()
    async with serving(temporal_address, store, unique) as found:
        yield found


async def finish(handle: WorkflowHandle[Any, Any]) -> Any:
    """End a chat; what it tells."""
    await handle.signal(StoredChat.end)
    return await handle.result()


async def ask(handle: WorkflowHandle[Any, Any], text: str) -> str:
    """A turn of a chat."""
    return str(await handle.execute_update("ask", text))


async def test_the_model_is_given_the_whole_conversation(bench: Bench) -> None:
    """The workflow holds one message of it; the store has all, as any program reads it."""
    chat = await bench.start("a", "c")
    assert [await ask(chat, text) for text in ("one", "look", "three")] == [
        "1 messages",
        "seen",
        "7 messages",
    ]
    expected = ["one", "1 messages", "look", "look()", "seen", "seen", "three"]
    assert given[-1] == expected
    assert await finish(chat) == 1
    conversation = await load(bench.store, "c")
    assert len(conversation.messages) == 8
    assert conversation.usage.requests == 4


async def test_a_worker_that_dies_is_noticed(bench: Bench) -> None:
    """Not after the time that an attempt may take, but after that without a heartbeat."""
    chat = await bench.start("a", "c")
    await ask(chat, "one")
    await finish(chat)
    assert list_unwatched(await chat.fetch_history(), 10) == []


async def test_another_workflow_and_a_program_go_on_with_it(bench: Bench) -> None:
    """One conversation is for all of them, one behind the other."""
    first = await bench.start("a", "c")
    await ask(first, "one")
    second = await bench.start("b", "c")
    assert await ask(second, "two") == "3 messages"
    assert await ask(first, "late") == "conflict"
    assert await ask(first, "again") == "5 messages"
    assert given[-1] == ["one", "1 messages", "two", "3 messages", "again"]


async def test_a_run_that_waits_for_people_goes_on_in_another_workflow(bench: Bench) -> None:
    """Its last request and answer stand in the workflow, since pydantic-ai looks at them."""
    first = await bench.start("a", "c")
    await ask(first, "one")
    assert await ask(first, "remove") == "waits"
    assert await finish(first) == 3
    second = await bench.start("b", "c")
    assert await ask(second, "yes") == "removed"
    assert given[-1] == ["one", "1 messages", "remove", "remove()", "removed"]
    assert await ask(second, "more") == "7 messages"


async def test_newest_messages_stand_in_the_workflow(bench: Bench) -> None:
    """For whoever looks at the history there; the model is given each message once."""
    chat = await bench.start("a", "c", 3)
    for text in ("one", "two", "three"):
        await ask(chat, text)
    assert given[-1] == ["one", "1 messages", "two", "3 messages", "three"]
    assert await finish(chat) == 5


async def test_histories_replay(bench: Bench, store: SessionStore) -> None:
    """With ids of entries that are the same in each replay."""
    chat = await bench.start("a", "c")
    for text in ("one", "look"):
        await ask(chat, text)
    await finish(chat)
    replayer = Replayer(workflows=[StoredChat], plugins=plugins(store))
    await replayer.replay_workflow(await chat.fetch_history())


class Losing(Interceptor):
    """Fails the first attempt of some activities, before or after its effect."""

    def __init__(self, when: str, *names: str) -> None:
        self.when, self.names, self.lost = when, names, list[str]()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        """Around each."""
        losing = self

        class Lost(ActivityInboundInterceptor):
            async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
                info = activity.info()
                loses = info.attempt == 1 and info.activity_type in losing.names
                answer: Any = None
                if loses:
                    losing.lost.append(info.activity_type)
                if not loses or losing.when == "after":
                    answer = await self.next.execute_activity(input)
                if loses:
                    raise ApplicationError(f"lost {losing.when} its effect")
                return answer

        return Lost(next)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_save_that_is_repeated_stands_once(
    temporal_address: str, store: SessionStore, unique: str, when: str
) -> None:
    """And the turn goes on; so does a load."""
    losing = Losing(when, LOAD, SAVE)
    async with serving(temporal_address, store, unique, losing) as bench:
        chat = await bench.start("a", "c")
        assert [await ask(chat, text) for text in ("one", "two")] == ["1 messages", "3 messages"]
        assert losing.lost == [LOAD, SAVE, SAVE]
        assert len((await load(bench.store, "c")).messages) == 4


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_reference_that_was_signed_for_another_workflow_is_refused(bench: Bench) -> None:
    """Whoever can put messages into a conversation reads nobody else's with it."""
    await ask(await bench.start("a", "c"), "secret")
    head = (await bench.store.load_entries("c") or [])[-1].id
    place = await bench.store.find_place(head)
    signed = EntryReferenceSigner(KEY).sign(EntryReference(head, place), f"{bench.queue}-a")
    thief = await bench.start("thief", {MARK: signed}, chat=ThiefChat)
    with pytest.raises(WorkflowFailureError) as failure:
        await thief.result()
    cause: Any = failure.value.cause
    assert cause.cause.type == "InvalidReferenceError"
    assert "secret" not in str(cause.cause)


@pytest.mark.parametrize(
    "spoil", [lambda text: text[:-1], lambda text: "x" + text, lambda text: text.partition(".")[0]]
)
def test_a_reference_that_was_changed_is_refused(spoil: Callable[[str], str]) -> None:
    """And one that was made with another key, or for another workflow."""
    signer, reference = EntryReferenceSigner(KEY), EntryReference("e", EntryPlace("s", 3))
    signed = signer.sign(reference, "w")
    assert signer.verify(signed, "w") == reference
    for text, workflow_id, other in (
        (spoil(signed), "w", signer),
        (signed, "v", signer),
        (signed, "w", EntryReferenceSigner(f"{KEY}2")),
    ):
        with pytest.raises(InvalidReferenceError, match="signed for this workflow"):
            other.verify(text, workflow_id)


def test_a_plugin_without_a_key_is_refused() -> None:
    """It could not tell its own references from others."""
    with pytest.raises(InvalidConfigError, match="HELIX_REFERENCE_KEY"):
        HelixPydanticAIPlugin(Settings.from_env({}))
    with pytest.raises(InvalidConfigError, match="fewer than 16"):
        EntryReferenceSigner("short")


@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_a_history_grows_with_what_is_new(bench: Bench) -> None:
    """Each turn of ours costs what the first ones did; of the plain way it costs the conversation."""
    sizes = {}
    for name, chat, args in (("ours", StoredChat, ["c"]), ("plain", PlainChat, [])):
        handle = await bench.start(name, *args, chat=chat)
        for number in range(12):
            await ask(handle, f"{number} ".ljust(2048, "x"))
            if number in {3, 7, 11}:
                history = await handle.fetch_history()
                sizes[name, number] = sum(event.ByteSize() for event in history.events)
    ours = sizes["ours", 11] - sizes["ours", 7], sizes["ours", 7] - sizes["ours", 3]
    plain = sizes["plain", 11] - sizes["plain", 7], sizes["plain", 7] - sizes["plain", 3]
    assert ours[0] == pytest.approx(ours[1], rel=0.02)
    assert plain[0] > 1.3 * plain[1] > 2 * ours[0]
    assert len(given[-1][0]) == 2048


async def test_the_programs_of_the_page_run_as_they_stand(
    temporal_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for their model."""
    programs = dict(titled(ROOT / "docs" / "frameworks" / "pydantic-ai.md", "python"))
    monkeypatch.setattr("pydantic_ai.Agent", lambda _, **named: Agent(FunctionModel(answer), **named))
    monkeypatch.syspath_prepend(tmp_path)
    for name, value in (
        ("HELIX_TEMPORAL_ADDRESS", temporal_address),
        ("HELIX_REFERENCE_KEY", KEY),
        ("HELIX_DATA_DIRECTORY", str(tmp_path / "data")),
    ):
        monkeypatch.setenv(name, value)
    (tmp_path / "chat.py").write_text(programs["chat.py"])
    program = programs["worker.py"].removesuffix("asyncio.run(main())\n")
    assert program != programs["worker.py"]
    served: dict[str, Any] = {}
    exec(compile(program, "worker.py", "exec"), served)
    worker = asyncio.create_task(served["main"]())
    try:
        client = await Client.connect(temporal_address, plugins=[PydanticAIPlugin()])
        chat = served["Chat"]
        answers = await client.execute_workflow(
            chat.run, args=["user-42", ["one", "two"]], id="page-chat", task_queue="chats"
        )
        assert answers == ["1 messages", "3 messages"]
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        sys.modules.pop("chat", None)


@pytest.mark.slow
@pytest.mark.timeout(400)  # an attempt of the save that was killed has 60 seconds
@pytest.mark.parametrize("variables", ["memory"], indirect=True)
async def test_the_example_prints_what_its_page_says(
    variables: dict[str, str], temporal_address: str
) -> None:
    """A model's answer that Temporal has not got is paid for again; a save stands once."""
    folder = ROOT / "examples" / "pydantic_ai_sessions"
    own = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(folder / "pydantic_ai_in_a_workflow.py"),
        stdout=asyncio.subprocess.PIPE,
        env={**own, **variables, "HELIX_TEMPORAL_ADDRESS": temporal_address},
    )
    async with asyncio.timeout(300):
        printed, _ = await process.communicate()
    assert process.returncode == 0
    lines = printed.decode().splitlines()
    assert lines[1:3] == [
        "worker   ended with -9 after agent__order_desk__model_request",
        "worker   ended with -9 after helix.pydantic_ai.save",
    ]
    assert lines[5:8] == [
        "calls    of the model: 5, with 1, 3, 3, 5, 7 messages",
        "calls    of find_order: 1",
        "stored   8 messages, usage of 4 requests",
    ]
    assert printed.decode() in blocks(folder / "README.md", "")
