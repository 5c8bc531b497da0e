"""Export, import, export: the same bytes, wherever the session is kept, and a session that goes on."""

import asyncio
import io
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_temporal.backends import Backends
from helix_temporal.client import SessionStores
from helix_temporal.errors import (
    InvalidRequestError,
    SessionExistsError,
    SessionNotFoundError,
    ThreadExistsError,
)
from helix_temporal.models.checkpoints import NewRun, RunChange, RunRecorded, RunStatus
from helix_temporal.models.messages import Message, Usage
from helix_temporal.models.states import CreateSession, SessionStatus
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.session.record import SessionRecord, Summary, encode_record, parse_record
from helix_temporal.session_files import export_session
from helix_temporal.session_files.imports import rename_child
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.testing.contracts._usage_base import a_tool_call, one_of_each
from tests.unit.session_files._scenes import (
    export_bytes,
    export_whole,
    import_bytes,
    list_texts,
    make_messages,
    make_session,
    make_tree,
    make_turn,
    open_memory,
    open_sqlite,
)

Opener = Callable[[], AbstractAsyncContextManager[Backends]]


@pytest.fixture(params=["memory", "sqlite", "memory and archive", "sqlite and archive"])
def open_target(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Other stores than those that a session comes from."""
    archive, data = tmp_path / "archive", tmp_path / "data"
    archive.mkdir()
    openers: dict[str, Opener] = {
        "memory": open_memory,
        "sqlite": lambda: open_sqlite(data),
        "memory and archive": lambda: open_memory(cold_directory=archive),
        "sqlite and archive": lambda: open_memory(cold_directory=archive, data_directory=data),
    }
    return openers[request.param]


async def test_a_session_comes_back_with_equal_bytes(open_target: Opener) -> None:
    """A file is a backup only if nothing of the session is lost or changed on the way."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        data = await export_bytes(source)
        done = await import_bytes(target, data)
        assert (done.outcome, done.sessions, done.messages) == ("imported", 1, 8)
        assert await export_bytes(target) == data


async def test_entries_of_usage_come_back_with_equal_bytes(open_target: Opener) -> None:
    """With all of their fields; what is as usual is not written."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        for entry in [*one_of_each("s"), a_tool_call("s", 9)]:
            await source.usage.record_entry(entry)
        data = await export_bytes(source)
        await import_bytes(target, data)
        assert await export_bytes(target) == data
        assert data.count(b'"attempts":3') == data.count(b'"attempts"') == 1


async def test_a_tree_comes_back_with_equal_bytes(open_target: Opener) -> None:
    """The sessions of sub-agents hold what the answer was made of."""
    async with open_memory() as source, open_target() as target:
        _, grandchild = await make_tree(source)
        data = await export_bytes(source, children=True)
        assert (await import_bytes(target, data)).sessions == 3
        assert await export_bytes(target, children=True) == data
        assert await list_texts(target, grandchild) == [each.text for each in make_messages(1)]


async def test_a_second_import_changes_nothing(open_target: Opener) -> None:
    """Whoever is not sure that an import ended makes it again."""
    async with open_memory() as source, open_target() as target:
        await make_tree(source)
        data = await export_bytes(source, children=True)
        await import_bytes(target, data)
        facts = await target.threads.read_facts("s")
        assert (await import_bytes(target, data)).outcome == "there"
        assert await target.threads.read_facts("s") == facts
        assert await export_bytes(target, children=True) == data


async def test_a_dry_run_changes_nothing(open_target: Opener) -> None:
    """It is asked before anything is risked."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        assert (await import_bytes(target, await export_bytes(source), dry_run=True)).outcome == "sound"
        with pytest.raises(SessionNotFoundError):
            await export_bytes(target)


async def test_an_imported_session_goes_on(open_target: Opener) -> None:
    """Turns are counted on, and messages follow the last one: it is a session, not a museum piece."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        await import_bytes(target, await export_bytes(source))
        started = await target.sessions.start_run("s", NewRun(run_id="run-3"))
        await target.sessions.append_messages("s", [Message(id="u3", role="user", content="And now?")])
        assert isinstance(started, RunRecorded)
        assert started.run.turn == 3
        assert (await list_texts(target))[-2:] == ["Order 2 was sent.", "And now?"]


async def test_a_session_that_has_gone_on_is_not_imported_over(open_target: Opener) -> None:
    """An import takes nothing back."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        data = await export_bytes(source)
        await import_bytes(target, data)
        await make_turn(target, "s", 3)
        with pytest.raises(
            SessionExistsError,
            match=r"in updated_at, version, messages of finished turns \(12, the file has 8\)",
        ):
            await import_bytes(target, data)
        assert len(await list_texts(target)) == 12


async def test_messages_behind_the_state_are_said() -> None:
    """A turn came into the thread, and its state has not been committed."""
    async with open_memory() as source:
        await make_session(source)
        data = await export_bytes(source)
        facts = await source.threads.read_facts("s")
        await source.threads.append(StepAppend("s", facts.epoch, facts.head, make_row(), commits=True))
        with pytest.raises(SessionExistsError, match=r"in messages of finished turns \(9, the file has 8\)"):
            await import_bytes(source, data)


async def test_another_session_of_the_id_stays(open_target: Opener) -> None:
    """Nothing is ever overwritten; --as is the way around."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        await make_session(target, turns=1)
        data = await export_bytes(source)
        with pytest.raises(SessionExistsError):
            await import_bytes(target, data)
        assert (await import_bytes(target, data, new_id="other")).session_id == "other"
        assert (len(await list_texts(target)), len(await list_texts(target, "other"))) == (4, 8)


async def test_a_foreign_thread_of_the_id_stays(open_target: Opener) -> None:
    """A session workflow may have just begun it: its state is not there yet."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        data = await export_bytes(source)
        await target.threads.open(OpenThread("s", 1, "somebody"))
        with pytest.raises(ThreadExistsError):
            await import_bytes(target, data)
        assert (await target.threads.read_facts("s")).owner == "somebody"


async def test_a_session_without_messages_is_not_put_over_a_thread() -> None:
    """It would show somebody else's conversation as its own."""
    async with open_memory() as source, open_memory() as target:
        await source.sessions.create_session("s", CreateSession(title="Nothing yet"))
        data = await export_bytes(source)
        await target.threads.open(OpenThread("s", 1, "somebody"))
        with pytest.raises(ThreadExistsError):
            await import_bytes(target, data)
        assert not await target.sessions.session_exists("s")


async def test_a_deleted_session_is_imported_again(open_target: Opener) -> None:
    """That is what people keep files for."""
    async with open_memory() as source, open_target() as target:
        await make_session(source)
        data = await export_bytes(source)
        await import_bytes(target, data)
        await target.sessions.delete_session("s")
        assert (await import_bytes(target, data)).outcome == "imported"
        assert await export_bytes(target) == data


async def test_under_another_id_and_back_the_bytes_are_equal(open_target: Opener) -> None:
    """All that names the session is renamed, in its sub-agents' sessions as well, and nothing else."""
    async with open_memory() as source, open_target() as target, open_memory() as third:
        await make_tree(source)
        data = await export_bytes(source, children=True)
        await import_bytes(target, data, new_id="copy")
        copied = await export_bytes(target, "copy", children=True)
        assert b'"s>search' not in copied.replace(b'"sub-s>search', b"")
        await import_bytes(third, copied, new_id="s")
        assert await export_bytes(third, children=True) == data


async def test_a_copy_of_a_sub_agents_session_stands_alone() -> None:
    """It would be deleted with a parent that does not know it."""
    async with open_memory() as source, open_memory() as target:
        child, _ = await make_tree(source)
        await import_bytes(target, await export_bytes(source, child), new_id="alone")
        state = await target.sessions.load_state("alone")
        assert state is not None
        assert (state.parent_session_id, state.root_session_id) == (None, None)


async def test_a_sub_agents_session_alone_comes_back_with_equal_bytes() -> None:
    """Its file names no session that is not in it; where it came from, it is there already."""
    async with open_memory() as source, open_memory() as target:
        child, grandchild = await make_tree(source)
        data = await export_bytes(source, child, children=True)
        assert (await import_bytes(source, data)).outcome == "there"
        await import_bytes(target, data)
        assert await export_bytes(target, child, children=True) == data
        state = await target.sessions.load_state(grandchild)
        assert state is not None
        assert (state.parent_session_id, state.root_session_id) == (child, child)


async def test_a_session_with_a_thread_of_another_id_comes_back_with_its_own() -> None:
    """The first ``ask`` may name a thread; a file that could name one could take another's."""
    async with open_memory() as source, open_memory() as target:
        await _make_workflow_thread(source, SessionRecord(agent="support"), "elsewhere")
        await source.sessions.create_session("s", CreateSession(thread_id="elsewhere"))
        data = await export_bytes(source)
        assert (await import_bytes(source, data)).outcome == "there"
        await import_bytes(target, data)
        assert await export_bytes(target) == data
        assert (await target.threads.read_facts("s")).committed == 2


def test_a_child_whose_renamed_id_is_too_long_gets_a_short_one() -> None:
    """The same one each time, so that a second import finds it."""
    name, new = "s>" + "tool" * 60, "n" * 250
    renamed = rename_child(name, "s", new)
    assert len(renamed) <= 256
    assert renamed == rename_child(name, "s", new)
    assert renamed.startswith("n" * 80 + ">")


async def test_without_children_none_are_named() -> None:
    """A file that names sessions which are not in it would make a tree with holes."""
    async with open_memory() as source:
        await make_tree(source)
        data = await export_bytes(source)
        assert b'{"child"' not in data
        assert data.count(b'{"session"') == 1


async def test_a_session_without_messages_is_a_file(open_target: Opener) -> None:
    """It has a title and a state, and nobody has said anything yet."""
    async with open_memory() as source, open_target() as target:
        await source.sessions.create_session("s", CreateSession(title="Nothing yet"))
        data = await export_bytes(source)
        await import_bytes(target, data)
        assert await export_bytes(target) == data


async def test_what_a_session_workflow_keeps_with_its_thread_is_kept(open_target: Opener) -> None:
    """Without its pinned instructions and its summary the model would be given something else."""
    record = SessionRecord(
        agent="support",
        instructions="Be brief.",
        turns=1,
        steps=1,
        usage=Usage(input_tokens=7),
        values={"plan": "gold"},
        summary=Summary(text="They said hello.", upto=Head(position=2, last_id="a")),
        run="r",
        writer="w",
    )
    async with open_memory() as source, open_target() as target:
        await _make_workflow_thread(source, record)
        data = await export_bytes(source)
        await import_bytes(target, data)
        assert await export_bytes(target) == data
        kept = parse_record((await target.threads.read_facts("s")).slice)
        assert kept == record.model_copy(update={"run": None, "writer": ""})


async def _make_workflow_thread(stores: Backends, record: SessionRecord, thread_id: str = "s") -> None:
    await stores.threads.open(
        OpenThread(thread_id, 1, "workflow", slice=encode_record(record), adapter="anthropic")
    )
    inputs = (StoredMessage("u", "u", b'{"content":"hi","role":"user"}'),)
    answer = StoredMessage("a", "a", b'{"content":"hello","role":"assistant"}')
    await stores.threads.append(StepAppend(thread_id, 1, EMPTY, inputs, answer, commits=True))


async def test_a_thread_without_a_state_is_a_file() -> None:
    """Deployments without a session store have threads alone."""
    async with open_memory(session_store="none") as source, open_memory(session_store="none") as target:
        await _make_workflow_thread(source, SessionRecord(agent="support"))
        data = await export_bytes(source)
        assert (await import_bytes(target, data)).outcome == "imported"
        assert (await import_bytes(target, data)).outcome == "there"
        assert await export_bytes(target) == data


async def test_without_a_store_of_sessions_no_children_are_promised() -> None:
    """From an archive alone, a backup with children had none of them, and the status was 0."""
    async with open_memory(session_store="none") as source:
        await _make_workflow_thread(source, SessionRecord(agent="support"))
        with pytest.raises(InvalidRequestError, match="leave the children out"):
            await export_session(source, "s", io.BytesIO(), children=True)


async def test_places_in_a_stream_that_is_not_there_are_left_out() -> None:
    """Who followed an imported turn would wait for a sequence that never comes."""
    async with open_memory() as source, open_memory() as target:
        await source.sessions.create_session("s")
        await source.sessions.start_run("s", NewRun(run_id="r", start_sequence=700))
        await source.sessions.update_run("s", "r", RunChange(status=RunStatus.COMPLETED))
        await import_bytes(target, await export_bytes(source))
        run = await target.sessions.get_run("s", "r")
        assert run is not None
        assert (run.turn, run.start_sequence) == (1, 0)


async def test_a_turn_under_way_is_left_out() -> None:
    """Its half would be a call without a result, and a run that nobody ends."""
    async with open_memory() as source, open_memory() as target:
        await make_session(source)
        await source.sessions.start_run("s", NewRun(run_id="live"))
        facts = await source.threads.read_facts("s")
        question = StoredMessage("u", "u9", b'{"content":"half","role":"user"}')
        await source.threads.append(StepAppend("s", facts.epoch, facts.head, (question,)))
        await source.sessions.update_status("s", SessionStatus.PAUSED)
        data = await export_bytes(source)
        assert b"half" not in data
        assert b'"live"' not in data
        await import_bytes(target, data)
        state = await target.sessions.load_state("s")
        assert state is not None
        assert (state.status, state.current_run_id) == (SessionStatus.ACTIVE, None)
        assert await export_bytes(target) == data


async def test_a_session_that_goes_on_meanwhile_is_written_as_it_was_found() -> None:
    """A file of two moments would have messages that its state knows nothing of."""
    async with open_memory() as source:
        await make_session(source, turns=400)

        def go_on(done: int, total: int) -> None:
            if done == 1:
                tasks.append(asyncio.ensure_future(make_turn(source, "s", 401)))

        tasks: list[asyncio.Task[None]] = []
        data, exported = await export_whole(source, progress=go_on)
        await asyncio.gather(*tasks)
        assert exported.messages == 1600
        assert b'"u401"' not in data
        assert data.count(b'{"run"') == 400


async def test_a_thread_that_is_cut_meanwhile_is_read_again() -> None:
    """Else the file had the beginning of one conversation and the end of another."""
    async with open_memory() as source:
        await make_session(source, turns=600)
        cut = _CutOnce(source)
        data = (await export_whole(replace_threads(source, cut)))[0]
        assert cut.done
        # From the second page on the old thread would have had other texts.
        assert data.count(b'{"message"') == 8
        assert b"Where is order 3?" not in data


async def test_a_thread_that_is_opened_again_and_again_is_written() -> None:
    """Each turn of a session that ends after its answer opens the thread: none of that cuts it."""
    async with open_memory() as source:
        await make_session(source)
        plain = await export_bytes(source)
        opening = _OpenEachTime(source)
        assert (await export_whole(replace_threads(source, opening)))[0] == plain
        assert opening.opens >= 2


class _OpenEachTime:
    """Threads of which one is opened after each page that is read of it."""

    def __init__(self, stores: Backends) -> None:
        self._threads, self.opens = stores.threads, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._threads, name)

    async def read(self, request: Any) -> Any:
        page = await self._threads.read(request)
        self.opens += 1
        facts = await self._threads.read_facts("s")
        await self._threads.open(OpenThread("s", facts.epoch + 2, f"workflow {self.opens}"))
        return page


class _CutOnce:
    """Threads of which one is cut after its first page was read."""

    def __init__(self, stores: Backends) -> None:
        self._stores, self.done = stores, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores.threads, name)

    async def read(self, request: Any) -> Any:
        page = await self._stores.threads.read(request)
        if request.limit > 1 and not self.done:
            self.done = True
            await self._stores.sessions.truncate_messages("s", 8)
        return page


def replace_threads(stores: Backends, threads: Any) -> Any:
    """The same stores with other threads."""
    return SessionStores(threads=threads, usage=stores.usage, sessions=stores.sessions)


async def test_a_long_thread_comes_in_several_steps(open_target: Opener) -> None:
    """No store is given a whole long conversation at once."""
    async with open_memory() as source, open_target() as target:
        await source.sessions.create_session("s")
        for number in range(14):
            texts = [Message(id=f"m{number}-{at}", role="user", content="x" * 200) for at in range(100)]
            await source.sessions.append_messages("s", texts)
        data = await export_bytes(source)
        await import_bytes(target, data)
        assert await export_bytes(target) == data


_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_text, _json, max_size=3)
_messages = st.builds(
    lambda role, content, metadata: {"role": role, "content": content, "metadata": metadata},
    st.sampled_from(["user", "assistant", "system"]),
    _text | st.lists(st.builds(lambda text: {"type": "text", "text": text}, _text), max_size=2),
    _objects,
)


@settings(max_examples=60)
@given(
    state=_objects,
    metadata=_objects,
    title=_text,
    tags=st.lists(_text, max_size=3),
    messages=st.lists(_messages, max_size=4),
    opaque=st.lists(st.binary(min_size=1, max_size=40), max_size=3),
)
def test_whatever_a_session_holds_comes_back(
    state: Any, metadata: Any, title: str, tags: list[str], messages: list[Any], opaque: list[bytes]
) -> None:
    """Texts of all alphabets, numbers of all sizes, and bytes that are no message of ours."""

    async def check() -> None:
        async with open_memory() as source, open_memory() as target:
            options = CreateSession(custom_state=state, metadata=metadata, title=title, tags=tuple(tags))
            await source.sessions.create_session("s", options)
            made = [Message(id=f"m{number}", **fields) for number, fields in enumerate(messages)]
            await source.sessions.append_messages("s", made or [Message(id="m", role="user")])
            facts = await source.threads.read_facts("s")
            inputs = tuple(StoredMessage("o", f"o{number}", body) for number, body in enumerate(opaque))
            step = StepAppend("s", facts.epoch, facts.head, inputs or make_row(), commits=True)
            await source.threads.append(step)
            data = await export_bytes(source)
            await import_bytes(target, data)
            assert await export_bytes(target) == data
            assert await read_stored(target) == await read_stored(source)

    asyncio.run(check())


def make_row() -> tuple[StoredMessage, ...]:
    """A row of another format."""
    return (StoredMessage("o", "row", b"{}"),)


async def read_stored(stores: Backends) -> list[StoredMessage]:
    """All messages as the store has them."""
    return list((await stores.threads.read(ReadPage("s", limit=1000))).messages)
