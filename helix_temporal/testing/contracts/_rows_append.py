"""A step of the thread as a part of a commit, where the threads lie with the sessions."""

import asyncio
from dataclasses import replace

import pytest

from helix_temporal.errors import (
    FencedError,
    HeadMovedError,
    IdempotencyConflictError,
    InvalidRequestError,
    StaleStateError,
    ThreadNotFoundError,
)
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.stores.protocols.hot import HotTier, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionRows,
    WantedRows,
)
from helix_temporal.testing.builders import EPOCH, a_message, a_step, an_answer, grown, messages, opened
from helix_temporal.testing.contracts._rows_base import (
    SessionRowsFixtures,
    a_change,
    a_row,
    a_state,
    committed,
    image,
    staged,
)

LOG = messages(2)
END = Head(position=2, last_id="m1")
STALE = StepAppend("", EPOCH, END, (a_message(message_id="new"),), an_answer(), slice=b"s", slice_version=7)

REFUSED = [
    pytest.param(a_step("", END, epoch=EPOCH - 1), FencedError, id="an older epoch"),
    pytest.param(a_step("", END, epoch=EPOCH + 1), HeadMovedError, id="a row behind the open"),
    pytest.param(a_step("", EMPTY), HeadMovedError, id="another step stands there"),
    pytest.param(a_step("", Head(position=2, last_id="x")), HeadMovedError, id="another message before"),
    pytest.param(a_step("", Head(position=3, last_id="m2")), HeadMovedError, id="beyond the thread"),
    pytest.param(
        a_step("", EMPTY, inputs=[a_message("other", message_id="m0")]),
        IdempotencyConflictError,
        id="the same id with other content",
    ),
    pytest.param(STALE, StaleStateError, id="a slice against another version"),
    pytest.param(StepAppend("", EPOCH, END, ()), InvalidRequestError, id="a step without messages"),
]


class AppendCommitContract(SessionRowsFixtures):
    """State and thread commit together or not at all."""

    @pytest.fixture
    async def joined(self, store: SessionRows, threads: HotTier, session_id: str) -> str:
        """A session of revision 1 with a thread of two messages."""
        await grown(threads, session_id, LOG)
        await committed(
            store, a_change(session_id, state=a_state(session_id, b"old"), puts=(staged("s1", "t"),))
        )
        return session_id

    async def test_the_store_says_that_it_keeps_threads(self, store: SessionRows) -> None:
        """Whoever binds this contract must be used in this way."""
        assert store.keeps_threads

    async def test_a_view_shows_the_thread(self, store: SessionRows, joined: str, threads: HotTier) -> None:
        """A commit of the state names the head that it goes with."""
        view = await store.view(joined, WantedRows(thread=True))
        assert view.thread == await threads.read_header(joined)
        assert (await store.view("unknown", WantedRows(thread=True))).thread is None

    async def test_a_step_is_committed_with_the_state(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """There is no moment at which one knows of the step and the other does not."""
        step = replace(a_step(joined, END), commits=True)
        change = a_change(
            joined,
            1,
            state=a_state(joined, b"new"),
            clears=((RowKind.STAGED, "s1"),),
            puts=(a_row("c1"),),
            append=step,
        )
        done = await store.commit(change)
        assert done is not None
        assert done.appended is not None
        assert (done.revision, done.appended.messages, done.appended.repeated) == (2, step.messages, False)
        assert done.appended.header == await threads.read_header(joined)
        assert done.appended.header.committed == done.appended.head.position == 4
        snapshot = await threads.read_snapshot(joined, 0)
        assert snapshot is not None
        assert snapshot.messages == LOG + step.messages
        assert (await store.view(joined, WantedRows())).state == b"new"

    async def test_a_commit_without_a_step_answers_none(self, store: SessionRows, joined: str) -> None:
        """Nothing became of what was not given."""
        done = await store.commit(a_change(joined, 1))
        assert done is not None
        assert done.appended is None

    async def test_a_moved_revision_appends_nothing(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """The step of a state that is not current does not enter the thread."""
        before = await image(store, joined), await threads.read_snapshot(joined, 0)
        assert await store.commit(a_change(joined, 0, append=a_step(joined, END))) is None
        assert (await image(store, joined), await threads.read_snapshot(joined, 0)) == before

    async def test_a_commit_that_takes_for_new_what_is_there_appends_nothing(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """The step and the rest happen together or not at all."""
        await committed(store, a_change(joined, 1, puts=(a_row("r1", RowKind.RUN),)))
        before = await image(store, joined), await threads.read_snapshot(joined, 0)
        unless = WantedRows(keys=(RowKey(RowKind.RUN, "r1"),))
        assert await store.commit(a_change(joined, 2, append=a_step(joined, END), unless=unless)) is None
        assert (await image(store, joined), await threads.read_snapshot(joined, 0)) == before
        new = WantedRows(keys=(RowKey(RowKind.RUN, "r2"),))
        done = await store.commit(a_change(joined, 2, append=a_step(joined, END), unless=new))
        assert done is not None
        assert done.appended is not None

    @pytest.mark.parametrize(("step", "error"), REFUSED)
    async def test_a_refused_step_refuses_the_commit(
        self, store: SessionRows, joined: str, threads: HotTier, step: StepAppend, error: type[Exception]
    ) -> None:
        """Each way in which an append is refused leaves thread and session as they were."""
        before = await image(store, joined), await threads.read_snapshot(joined, 0)
        change = a_change(
            joined,
            1,
            state=a_state(joined, b"new"),
            max_epoch=EPOCH + 9,
            clears=((RowKind.STAGED, "s1"),),
            puts=(a_row("c1"),),
            append=replace(step, thread_id=joined),
        )
        with pytest.raises(error):
            await store.commit(change)
        assert (await image(store, joined), await threads.read_snapshot(joined, 0)) == before

    async def test_a_closed_epoch_refuses_the_commit(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """A late attempt of a session that has ended changes neither."""
        await threads.close_epoch(joined, EPOCH)
        before = await image(store, joined), await threads.read_snapshot(joined, 0)
        with pytest.raises(FencedError):
            await store.commit(a_change(joined, 1, append=a_step(joined, END)))
        assert (await image(store, joined), await threads.read_snapshot(joined, 0)) == before

    async def test_a_thread_that_is_not_hot_refuses_the_commit(
        self, store: SessionRows, session_id: str, threads: HotTier
    ) -> None:
        """The caller hydrates it and comes again."""
        await committed(store, a_change(session_id))
        before = await image(store, session_id)
        with pytest.raises(ThreadNotFoundError):
            await store.commit(a_change(session_id, 1, append=a_step(session_id)))
        assert await image(store, session_id) == before
        assert await threads.read_header(session_id) is None

    async def test_a_step_that_stands_commits_the_rest(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """An attempt that died between append and commit elsewhere is completed here, with its answer."""
        step = a_step(joined, END)
        await threads.append(step)
        late = replace(step, answer=an_answer("another thought"), commits=True)
        done = await store.commit(a_change(joined, 1, state=a_state(joined, b"new"), append=late))
        assert done is not None
        assert done.appended is not None
        assert (done.appended.messages, done.appended.repeated) == (step.messages, True)
        assert done.appended.header.committed == 4
        view = await store.view(joined, WantedRows())
        assert (view.revision, view.state) == (2, b"new")

    async def test_of_many_commits_with_a_step_exactly_one_wins(
        self, store: SessionRows, joined: str, threads: HotTier
    ) -> None:
        """Neither the thread nor the state takes anything of those that lost."""
        steps = [a_step(joined, END) for _ in range(16)]
        changes = [a_change(joined, 1, append=step) for step in steps]
        outcomes = await asyncio.gather(*map(store.commit, changes))
        won = [n for n, outcome in enumerate(outcomes) if outcome is not None]
        assert len(won) == 1
        snapshot = await threads.read_snapshot(joined, 0)
        assert snapshot is not None
        assert snapshot.messages == LOG + steps[won[0]].messages

    async def test_a_delete_leaves_the_thread(
        self, store: SessionRows, session_id: str, threads: HotTier
    ) -> None:
        """Messages are deleted by their own store, archive and all."""
        await opened(threads, session_id)
        await committed(store, a_change(session_id))
        await committed(store, a_change(session_id, 1, state=None, deletes=True))
        assert await threads.read_header(session_id) is not None
