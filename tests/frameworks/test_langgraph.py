"""`HelixSaver` under the suite that LangGraph has for savers, and who may write to a thread."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT

from helix_temporal import Backends
from helix_temporal.errors import (
    FencedError,
    InvalidConfigError,
    InvalidRequestError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from helix_temporal.frameworks.background_loop import shared_loop
from helix_temporal.frameworks.langgraph import HelixSaver
from helix_temporal.frameworks.langgraph_records import CHECKPOINT, RUN, VALUE, WRITE, name_session
from tests.frameworks.conftest import BackendsOpener

T = TypeVar("T")

SUITE = 81
"""Tests of langgraph-checkpoint-conformance 0.0.2, of all eight capabilities."""


def make_saver(backends: Backends, **options: Any) -> HelixSaver:
    """A saver as another process has it."""
    assert backends.records is not None
    assert backends.sessions is not None
    return HelixSaver(backends.records, backends.sessions, **options)


async def run_without_loop(open_backends: BackendsOpener, use: Callable[[Backends], T]) -> T:
    """Use stores in a thread that has no event loop, as a program that is not async does."""

    def run() -> T:
        opened = open_backends()
        backends = shared_loop().run(opened.__aenter__())
        try:
            return use(backends)
        finally:
            shared_loop().run(opened.__aexit__(None, None, None))

    return await asyncio.to_thread(run)


@pytest.fixture
async def backends(open_backends: BackendsOpener) -> AsyncIterator[Backends]:
    """The stores under test."""
    async with open_backends() as opened:
        yield opened


@pytest.fixture
async def saver(backends: Backends) -> HelixSaver:
    """The saver under test."""
    return make_saver(backends)


def place(thread_id: str = "t", checkpoint_id: str | None = None, namespace: str = "") -> Any:
    """A config that names a place in a thread."""
    named = {} if checkpoint_id is None else {"checkpoint_id": checkpoint_id}
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, **named}}


def checkpoint(step: int, **values: Any) -> tuple[Any, Any]:
    """A checkpoint in which the given channels are new, and their versions."""
    versions: Any = dict.fromkeys(values, f"{step:032}.{step}")
    made = {**empty_checkpoint(), "id": str(uuid6(clock_seq=step))}
    return {**made, "channel_values": values, "channel_versions": versions}, versions


async def put(saver: HelixSaver, config: Any, step: int = 0, **values: Any) -> Any:
    """Put one checkpoint behind the one that the config names; its own config."""
    made, versions = checkpoint(step, **values)
    return await saver.aput(config, made, {"source": "loop", "step": step, "parents": {}}, versions)


async def put_chain(saver: HelixSaver, length: int, thread_id: str = "t", **metadata: Any) -> list[Any]:
    """Checkpoints one behind the other, each with a value of its own and a write; their configs."""
    configs: list[Any] = []
    config = place(thread_id)
    for step in range(length):
        made, versions = checkpoint(step, n=step)
        config = await saver.aput(config, made, {"source": "loop", "step": step, **metadata}, versions)
        await saver.aput_writes(config, [("n", step)], f"task-{step}")
        configs.append(config)
    return configs


async def list_steps(saver: HelixSaver, thread_id: str = "t", **options: Any) -> list[int]:
    """The steps of a thread's checkpoints, as a list tells them."""
    return [found.metadata["step"] async for found in saver.alist(place(thread_id), **options)]


async def count_records(backends: Backends, kind: str, thread_id: str = "t") -> int:
    """How many records of a kind a thread has in all."""
    assert backends.records is not None
    session_id = name_session(thread_id)
    pages = [
        await backends.records.read_page(session_id, kind, group, limit=1_000)
        for group in await backends.records.list_groups(session_id, kind)
    ]
    return sum(map(len, pages))


class Unanswering:
    """Records whose answers to writes are lost, now and then; what was written is written."""

    def __init__(self, inner: Any, every: int = 2) -> None:
        self._inner, self._every, self.writes, self.paged = inner, every, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, *args: Any, **options: Any) -> int:
        """Write, and say nothing about every second one."""
        done: int = await self._inner.write(*args, **options)
        self.writes += 1
        if self.writes % self._every == 1:
            raise StoreUnavailableError("the answer is lost")
        return done

    async def read_page(self, *args: Any, **options: Any) -> Any:
        """Read, and count."""
        found = await self._inner.read_page(*args, **options)
        self.paged += len(found)
        return found


class TestSuite:
    async def test_the_suite_of_langgraph(self, open_backends: BackendsOpener) -> None:
        """All capabilities, none of them left out."""

        @checkpointer_test(name="HelixSaver")
        async def registered() -> AsyncIterator[HelixSaver]:
            async with open_backends() as opened:
                yield make_saver(opened)

        report = await validate(registered)
        results = report.results.values()
        assert [failure for each in results for failure in each.failures] == []
        assert sum(each.tests_passed for each in results) == SUITE


class TestOwnership:
    async def test_of_two_exclusive_savers_the_older_one_is_refused(
        self, open_backends: BackendsOpener
    ) -> None:
        """With an error that says which thread; what it wrote before stays."""
        async with open_backends() as one, open_backends() as two:
            older, newer = make_saver(one, exclusive=True), make_saver(two, exclusive=True)
            first = await put(older, place(), 0, n=0)
            assert await newer.aget_tuple(place()) is not None
            with pytest.raises(FencedError) as put_refused:
                await put(older, first, 1, n=1)
            with pytest.raises(FencedError):
                await older.aput_writes(first, [("n", 1)], "task")
            assert put_refused.value.facts["thread_id"] == "t"
            await put(newer, first, 2, n=2)
            assert await list_steps(newer) == [2, 0]

    async def test_an_exclusive_saver_that_was_refused_stays_so_until_it_takes_over(
        self, open_backends: BackendsOpener
    ) -> None:
        """A read does not lift the fence."""
        async with open_backends() as one, open_backends() as two:
            older, newer = make_saver(one, exclusive=True), make_saver(two, exclusive=True)
            first = await put(older, place(), 0, n=0)
            await newer.take_over("t")
            assert await older.aget_tuple(place()) is not None
            with pytest.raises(FencedError):
                await put(older, first, 1, n=1)
            await older.take_over("t")
            await put(older, first, 2, n=2)
            with pytest.raises(FencedError):
                await put(newer, first, 3, n=3)

    async def test_a_run_that_began_before_a_take_over_is_refused(
        self, open_backends: BackendsOpener
    ) -> None:
        """Of any saver: the fence that it read goes with its config."""
        async with open_backends() as one, open_backends() as two:
            plain, owner = make_saver(one), make_saver(two)
            await put(plain, place(), 0, n=0)
            begun = await plain.aget_tuple(place())
            assert begun is not None
            await owner.take_over("t")
            with pytest.raises(FencedError):
                await put(plain, begun.config, 1, n=1)
            with pytest.raises(FencedError):
                await plain.aput_writes(begun.config, [("n", 1)], "task")
            again = await plain.aget_tuple(place())
            assert again is not None
            await put(plain, again.config, 2, n=2)

    async def test_the_fence_is_no_metadata(self, saver: HelixSaver) -> None:
        """LangGraph copies what a config has into the metadata of checkpoints."""
        await saver.take_over("t")
        first = await put(saver, place(), 0, n=0)
        begun = await saver.aget_tuple(first)
        assert begun is not None
        await put(saver, begun.config, 1, n=1)
        newest = await saver.aget_tuple(place())
        assert newest is not None
        assert set(newest.metadata) == {"source", "step", "parents"}

    async def test_a_put_that_is_repeated_stands_once(self, backends: Backends, saver: HelixSaver) -> None:
        """The same checkpoint again is the same checkpoint."""
        made, versions = checkpoint(0, n=7)
        for _ in range(2):
            await saver.aput(place(), made, {"step": 0}, versions)
        assert await list_steps(saver) == [0]
        assert await count_records(backends, VALUE) == 1

    async def test_a_write_stands_as_it_came_first(self, open_backends: BackendsOpener) -> None:
        """A task that runs again does not change what it wrote."""
        async with open_backends() as one, open_backends() as two:
            config = await put(make_saver(one), place(), 0, n=0)
            await make_saver(one).aput_writes(config, [("n", "first"), ("m", 1)], "task")
            await make_saver(two).aput_writes(config, [("n", "second"), ("m", 2)], "task")
            found = await make_saver(one).aget_tuple(config)
            assert found is not None
            assert found.pending_writes == [("task", "n", "first"), ("task", "m", 1)]

    async def test_errors_and_interrupts_are_replaced(self, saver: HelixSaver) -> None:
        """A task that fails again tells its newest error."""
        config = await put(saver, place(), 0, n=0)
        for text in ("first", "second"):
            await saver.aput_writes(config, [(ERROR, text), (INTERRUPT, text)], "task")
        found = await saver.aget_tuple(config)
        assert found is not None
        assert sorted(found.pending_writes or []) == [
            ("task", ERROR, "second"),
            ("task", INTERRUPT, "second"),
        ]

    async def test_a_lost_answer_changes_nothing(self, backends: Backends) -> None:
        """The store wrote and did not say so: the saver asks again, and everything stands once."""
        assert backends.records is not None
        assert backends.sessions is not None
        records = Unanswering(backends.records)
        saver = HelixSaver(records, backends.sessions)
        config = place()
        for step in range(3):
            config = await put(saver, config, step, n=step)
            await saver.aput_writes(config, [("n", step), (ERROR, "e")], "task")
        assert records.writes > 6
        assert await list_steps(saver) == [2, 1, 0]
        assert await count_records(backends, WRITE) == 6
        assert await count_records(backends, CHECKPOINT) == 3

    async def test_writes_of_many_tasks_at_once_are_all_there(self, open_backends: BackendsOpener) -> None:
        """From several processes, to one checkpoint; LangGraph #8114."""
        async with AsyncExitStack() as stack:
            savers = [make_saver(await stack.enter_async_context(open_backends())) for _ in range(3)]
            config = await put(savers[0], place(), 0, n=0)
            await asyncio.gather(
                *(savers[n % 3].aput_writes(config, [("n", n), ("m", n)], f"task-{n:02}") for n in range(15))
            )
            found = await savers[1].aget_tuple(config)
            assert found is not None
            expected = [(f"task-{n:02}", channel, n) for n in range(15) for channel in ("n", "m")]
            assert found.pending_writes == expected

    async def test_of_one_task_that_runs_twice_one_result_stands(self, open_backends: BackendsOpener) -> None:
        """Whole: not a write of the one, and one of the other."""
        async with open_backends() as one, open_backends() as two:
            savers = make_saver(one), make_saver(two)
            config = await put(savers[0], place(), 0, n=0)
            await asyncio.gather(
                *(
                    saver.aput_writes(config, [("n", number), ("m", number)], "task")
                    for number, saver in enumerate(savers)
                )
            )
            found = await savers[0].aget_tuple(config)
            assert found is not None
            assert found.pending_writes in ([("task", c, n) for c in ("n", "m")] for n in range(2))

    async def test_a_thread_goes_on_in_another_process(self, open_backends: BackendsOpener) -> None:
        """With values, writes and the checkpoint before."""
        async with open_backends() as backends:
            saver = make_saver(backends)
            first = await put(saver, place(), 0, n=0, m="kept")
            made, versions = checkpoint(1, n=1)
            made["channel_values"]["m"] = "kept"
            made["channel_versions"]["m"] = f"{0:032}.0"
            second = await saver.aput(first, made, {"step": 1}, {"n": versions["n"]})
            await saver.aput_writes(second, [("n", 2)], "task", "path")
        async with open_backends() as backends:
            found = await make_saver(backends).aget_tuple(place())
            assert found is not None
            assert found.checkpoint["channel_values"] == {"n": 1, "m": "kept"}
            assert found.pending_writes == [("task", "n", 2)]
            assert found.parent_config == first


class TestDeletion:
    async def test_a_late_write_does_not_bring_a_thread_back(self, open_backends: BackendsOpener) -> None:
        """Neither pending writes nor checkpoints of a run that began before; LangGraph #7206."""
        async with open_backends() as one, open_backends() as two:
            late, other = make_saver(one), make_saver(two)
            config = await put(late, place(), 0, n=0)
            await other.adelete_thread("t")
            with pytest.raises(SessionNotFoundError) as refused:
                await late.aput_writes(config, [("n", 1)], "task")
            with pytest.raises(SessionNotFoundError):
                await put(late, config, 1, n=1)
            with pytest.raises(SessionNotFoundError):
                await put(late, place(namespace="child:1"), 1, n=1)
            assert refused.value.facts["thread_id"] == "t"
            assert await other.aget_tuple(place()) is None
            assert await list_steps(other) == []

    async def test_a_new_run_begins_a_deleted_thread_anew(self, open_backends: BackendsOpener) -> None:
        """Its first checkpoint has none before it; nothing of the old thread is there."""
        async with open_backends() as one, open_backends() as two:
            await put_chain(make_saver(one), 3)
            await make_saver(one).adelete_thread("t")
            await put(make_saver(two), place(), 7, n=7)
            assert await list_steps(make_saver(one)) == [7]

    async def test_an_old_run_does_not_write_into_the_thread_that_came_after(
        self, open_backends: BackendsOpener
    ) -> None:
        """The fence outlives the thread that it was read of."""
        async with open_backends() as one, open_backends() as two:
            late, other = make_saver(one), make_saver(two)
            await put(late, place(), 0, n=0)
            begun = await late.aget_tuple(place())
            assert begun is not None
            await other.adelete_thread("t")
            await put(other, place(), 7, n=7)
            with pytest.raises(FencedError):
                await late.aput_writes(begun.config, [("n", 1)], "task")
            with pytest.raises(FencedError):
                await put(late, begun.config, 1, n=1)
            assert await list_steps(other) == [7]

    async def test_what_a_new_run_writes_may_come_in_any_order(self, saver: HelixSaver) -> None:
        """LangGraph does not wait for a checkpoint before it stores what comes of it."""
        await put(saver, place(), 0, n=0)
        await saver.adelete_thread("t")
        assert await saver.aget_tuple(place()) is None
        await saver.aput_writes(place(checkpoint_id="1"), [("n", 1)], "task")
        await put(saver, place(), 1, n=1)
        await saver.adelete_thread("t")
        with pytest.raises(SessionNotFoundError):
            await saver.aput_writes(place(checkpoint_id="1"), [("n", 1)], "task")

    async def test_pending_writes_may_come_before_the_first_checkpoint(self, saver: HelixSaver) -> None:
        """Of a thread that never was."""
        made, versions = checkpoint(0, n=0)
        await saver.aput_writes(place(checkpoint_id=made["id"]), [("n", 1)], "task")
        await saver.aput(place(), made, {"step": 0}, versions)
        found = await saver.aget_tuple(place())
        assert found is not None
        assert found.pending_writes == [("task", "n", 1)]

    async def test_runs_are_deleted_in_every_thread(self, open_backends: BackendsOpener) -> None:
        """By their index; values that others refer to stay."""
        async with open_backends() as one, open_backends() as two:
            saver = make_saver(one)
            for thread_id in ("a", "b"):
                kept = await put_chain(saver, 2, thread_id, run_id="kept")
                made, _ = checkpoint(9)
                values = {"channel_values": {"n": 1}, "channel_versions": {"n": f"{1:032}.1"}}
                await saver.aput(kept[-1], made | values, {"step": 9, "run_id": "gone"}, {})
            await make_saver(two).adelete_for_runs(["gone", "unknown"])
            assert await list_steps(saver, "a") == await list_steps(saver, "b") == [1, 0]
            newest = await saver.aget_tuple(place("a"))
            assert newest is not None
            assert newest.checkpoint["channel_values"] == {"n": 1}
            assert await count_records(one, RUN, "a") == 2

    async def test_a_deleted_thread_leaves_nothing_in_the_index_of_runs(self, backends: Backends) -> None:
        """And a thread of the same id that is begun anew is not touched by runs of the old one."""
        saver = make_saver(backends)
        await put_chain(saver, 2, run_id="run")
        await saver.adelete_thread("t")
        assert await saver._runs.list_threads("run") == []
        await put_chain(saver, 2, run_id="other")
        await saver.adelete_for_runs(["run"])
        assert await list_steps(saver) == [1, 0]


class TestPruning:
    async def test_what_only_old_checkpoints_referred_to_is_freed(
        self, backends: Backends, saver: HelixSaver
    ) -> None:
        """Checkpoints, values and writes: what is left is what the newest one needs."""
        configs = await put_chain(saver, 250)
        made, _ = checkpoint(250)
        old = {"channel_values": {"n": 3}, "channel_versions": {"n": f"{3:032}.3"}}
        await saver.aput(configs[-1], made | old, {"step": 250}, {})
        await saver.aprune(["t"])
        assert await list_steps(saver) == [250]
        found = await saver.aget_tuple(place())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": 3}
        counts = [await count_records(backends, kind) for kind in (CHECKPOINT, VALUE, WRITE)]
        assert counts == [1, 1, 0]

    async def test_a_checkpoint_that_comes_meanwhile_is_kept(self, open_backends: BackendsOpener) -> None:
        """The one that was the newest when pruning began may go; the thread can be read all the time."""
        async with open_backends() as one, open_backends() as two:
            writer, pruner = make_saver(one), make_saver(two)
            config = (await put_chain(writer, 30))[-1]

            async def write() -> None:
                nonlocal config
                for step in range(30, 45):
                    config = await put(writer, config, step, n=step)
                    found = await writer.aget_tuple(place())
                    assert found is not None
                    assert found.checkpoint["channel_values"] == {"n": step}

            async def prune() -> None:
                for _ in range(3):
                    await pruner.aprune(["t"])

            await asyncio.gather(write(), prune())
            await pruner.aprune(["t"])
            assert await list_steps(pruner) == [44]

    async def test_an_unknown_strategy_is_refused(self, saver: HelixSaver) -> None:
        """Before anything is removed."""
        await put_chain(saver, 2)
        with pytest.raises(InvalidRequestError, match="keep_newest"):
            await saver.aprune(["t"], strategy="keep_newest")
        assert await list_steps(saver) == [1, 0]


class TestLists:
    async def test_a_short_list_reads_one_page_of_a_long_thread(self, backends: Backends) -> None:
        """Whether it is long or not."""
        assert backends.records is not None
        assert backends.sessions is not None
        await put_chain(make_saver(backends), 120)
        records = Unanswering(backends.records)
        saver = HelixSaver(records, backends.sessions)
        assert await list_steps(saver, limit=3) == [119, 118, 117]
        assert records.paged <= 20

    async def test_a_long_list_is_complete(self, saver: HelixSaver) -> None:
        """Across pages, with and without a filter, a limit and a bound."""
        configs = await put_chain(saver, 90)
        assert await list_steps(saver) == list(range(89, -1, -1))
        assert await list_steps(saver, before=configs[50], limit=45) == list(range(49, 4, -1))
        assert await list_steps(saver, filter={"step": 2}) == [2]
        assert await list_steps(saver, limit=0) == []

    async def test_all_namespaces_are_listed_newest_first(self, saver: HelixSaver) -> None:
        """Where the config names none."""
        for step in range(6):
            await put(saver, place(namespace=("", "a:1", "b|é:2")[step % 3]), step, n=step)
        everything: Any = {"configurable": {"thread_id": "t"}}
        found = [each async for each in saver.alist(everything)]
        assert [each.metadata["step"] for each in found] == [5, 4, 3, 2, 1, 0]
        assert found[0].config["configurable"]["checkpoint_ns"] == "b|é:2"

    async def test_all_threads_are_listed(self, saver: HelixSaver) -> None:
        """Where there is no config: each once, a thread at a time."""
        for thread_id in ("a", "b"):
            await put_chain(saver, 2, thread_id)
        found = [
            (each.config["configurable"]["thread_id"], each.metadata["step"])
            async for each in saver.alist(None, limit=3)
        ]
        assert len(set(found)) == 3
        assert [step for _, step in found] == [1, 0, 1]

    async def test_a_copy_has_everything_and_goes_its_own_way(self, saver: HelixSaver) -> None:
        """Again, it stands once."""
        configs = await put_chain(saver, 45, "source", run_id="run")
        for _ in range(2):
            await saver.acopy_thread("source", "target")
        await put(saver, place("source", configs[-1]["configurable"]["checkpoint_id"]), 45, n=45)
        source = [each async for each in saver.alist(place("source"))][1:]
        target = [each async for each in saver.alist(place("target"))]
        assert [each.checkpoint for each in target] == [each.checkpoint for each in source]
        assert [each.pending_writes for each in target] == [each.pending_writes for each in source]
        await saver.adelete_for_runs(["run"])
        assert await list_steps(saver, "target") == []

    async def test_odd_names_are_kept_apart(self, saver: HelixSaver) -> None:
        """Threads, channels and namespaces are text of users."""
        threads = ["a/b", "a~2fb", "é" * 150, "x" * 250]
        for step, thread_id in enumerate(threads):
            await put(saver, place(thread_id, namespace="n" * 1_500), step, **{"c\x00é" * 500: step})
        for step, thread_id in enumerate(threads):
            (found,) = [each async for each in saver.alist({"configurable": {"thread_id": thread_id}})]
            assert found.checkpoint["channel_values"] == {"c\x00é" * 500: step}
            assert found.config["configurable"]["checkpoint_ns"] == "n" * 1_500


class TestArchive:
    @pytest.mark.parametrize("variables", ["redis and s3"], indirect=True)
    async def test_old_checkpoints_are_read_from_the_archive_as_before(self, saver: HelixSaver) -> None:
        """With their values, in lists and by name; pruning frees them there too."""
        config = place()
        for step in range(30):
            config = await put(saver, config, step, text=f"{step} " * 1_000)
        before = [each async for each in saver.alist(place())]
        assert await saver.aarchive("t", older_than=timedelta(hours=1)) == 0
        assert await saver.aarchive("t", older_than=timedelta(0)) >= 30
        assert [each async for each in saver.alist(place())] == before
        await put(saver, config, 30, text="new")
        await saver.aprune(["t"])
        newest = await saver.aget_tuple(place())
        assert newest is not None
        assert newest.checkpoint["channel_values"] == {"text": "new"}

    @pytest.mark.parametrize("variables", ["memory"], indirect=True)
    async def test_without_an_archive_it_is_refused(self, saver: HelixSaver) -> None:
        """Nothing is moved that nobody could read."""
        await put_chain(saver, 2)
        with pytest.raises(InvalidConfigError):
            await saver.aarchive("t", older_than=timedelta(0))
