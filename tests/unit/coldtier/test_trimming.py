"""A thread that stays open keeps hot what its next step reads, and little of what is archived besides."""

from dataclasses import dataclass, field

import pytest

from helix_temporal.coldtier import KeepHot, TieredThreads, store
from helix_temporal.models.stored_messages import EMPTY, Head, size_of
from helix_temporal.stores.protocols.hot import StepView
from helix_temporal.stores.protocols.threads import Create, ForkThread, ReadPage, Reopen
from helix_temporal.testing.builders import a_message, an_answer
from helix_temporal.testing.contracts._threads_base import Author
from helix_temporal.testing.faults import BlobFault
from helix_temporal.testing.faulty_hot import Fault, FaultyHot, fails
from tests.unit.coldtier._tiers import Tiers

LITTLE = KeepHot(archived_bytes=2_000, messages=8)
BODY = "x" * 200


@dataclass
class Session(Author):
    """An author who looks before each step, as a session does, and remembers all heads."""

    heads: list[Head] = field(default_factory=lambda: [EMPTY])

    async def look(self, head: Head | None = None, *, limit: int = 4, ids: int = 8) -> StepView:
        """What a step looks at."""
        return await self.threads.step_view(
            self.thread_id, self.epoch, head or self.head, after=2, limit=limit, max_bytes=10**6, ids=ids
        )

    async def all_ids(self) -> list[str]:
        """Ids of all messages."""
        page = await self.threads.read(ReadPage(self.thread_id, limit=1000, max_bytes=64 * 2**20))
        return [message.id for message in page.messages]

    async def talk(self, turns: int, *, archives: bool = True, limit: int = 4) -> None:
        """So many whole turns."""
        for _ in range(turns):
            await self.look(limit=limit)
            step = self.step(a_message(BODY), answer=an_answer(BODY))
            appended = await self.append(step)
            if archives:
                await self.threads.archive_step(step, appended)
            self.heads.append(self.head)


async def a_session(tiers: Tiers, *, keep_hot: KeepHot = LITTLE, **settings: float) -> Session:
    """A session on a worker that holds little."""
    session = Session(tiers.worker(keep_hot=keep_hot, **settings), "t")
    await session.open()
    return session


async def base(tiers: Tiers) -> int:
    """The lowest position that is hot."""
    header = await tiers.hot.read_header("t")
    assert header is not None
    return header.base.position


class TestWhatIsKept:
    async def test_the_thread_of_a_long_session_stays_small(self) -> None:
        """3,000 turns with results of 1 MB would otherwise hold 3 GB."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(100)
        header = await tiers.hot.read_header("t")
        assert header is not None
        assert header.size > 40_000
        assert header.size - header.base_size < 7_000

    async def test_the_newest_messages_stay_whatever_they_weigh(self) -> None:
        """The window of ids that is searched for repeated messages reaches so far back."""
        tiers = Tiers()
        session = await a_session(tiers, keep_hot=KeepHot(archived_bytes=1, messages=8))
        await session.talk(30)
        assert await base(tiers) == session.head.position - 2 - 8

    @pytest.mark.parametrize("end", [False, True])
    async def test_the_context_window_stays_even_if_it_is_larger(self, end: bool) -> None:
        """Else each step would read it from the archive; the end of a turn looks at one message alone."""
        tiers = Tiers()
        session = await a_session(tiers, keep_hot=KeepHot(archived_bytes=1, messages=8))
        for _ in range(40):
            await session.talk(1, limit=50)
            await session.look(limit=1 if end else 50, ids=0)
        assert await base(tiers) > 20
        tiers.blobs.forget()
        assert len((await session.look(limit=50)).before) == 50
        assert tiers.blobs.count("get") == 0

    async def test_steps_never_read_the_archive_because_of_it(self) -> None:
        """An object store that is down doesn't stop an open session."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(50)
        assert await base(tiers) > 0
        tiers.blobs.forget()
        await session.talk(20)
        assert tiers.blobs.count("get") == 0

    async def test_what_is_not_archived_is_never_forgotten(self) -> None:
        """The hot thread is then the only one that has it."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(10)
        await session.talk(60, archives=False)
        manifest = await tiers.manifest()
        assert manifest.head == session.heads[10]
        assert await base(tiers) <= manifest.head.position
        assert (await session.facts()).head == session.head

    async def test_nothing_is_forgotten_while_the_archive_is_down(self) -> None:
        """Until it comes back, and then everything is there."""
        tiers = Tiers()
        session = await a_session(tiers, step_seconds=0.02)
        await session.talk(10)
        known = (await tiers.manifest()).head.position
        tiers.blobs.plan = lambda call: BlobFault.ERROR_BEFORE if call.method == "put" else None
        await session.talk(40)
        assert await base(tiers) <= known
        tiers.blobs.plan = None
        await session.flush()
        assert (await tiers.manifest()).head == session.head
        assert [message.body for message in await session.everything()] == [BODY.encode()] * 100


class TestItsCost:
    async def test_a_plain_turn_costs_no_further_round_trip(self) -> None:
        """Only about every so many bytes one is worth it."""
        tiers = Tiers()
        hot = FaultyHot(tiers.hot)
        session = Session(TieredThreads(hot, tiers.blobs, keep_hot=LITTLE), "t")
        await session.open()
        await session.talk(100)
        trims = [call for call in hot.calls if call.method == "trim"]
        assert 10 < len(trims) < 30

    @pytest.mark.parametrize("fault", Fault)
    async def test_a_step_goes_on_where_forgetting_fails(self, fault: Fault) -> None:
        """It is housekeeping: the next step tries again."""
        tiers = Tiers()
        hot = FaultyHot(tiers.hot, fails(at=1, fault=fault, method="trim"))
        session = Session(TieredThreads(hot, tiers.blobs, keep_hot=LITTLE), "t")
        await session.open()
        await session.talk(30)
        await hot.land_late()
        await session.talk(10)
        assert await base(tiers) > 40
        assert len(await session.everything()) == 80


class TestWhatLiesBelow:
    async def test_pages_join_both_tiers(self) -> None:
        """A reader sees one thread."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        assert await base(tiers) > 0
        messages = await session.everything()
        assert len(messages) == 80
        assert size_of(messages) == (await session.facts()).size

    async def test_a_rewind_goes_further_back(self) -> None:
        """To a place that only the archive holds."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        later = session.later()
        opened = await later.open(rewind_to=session.heads[3])
        assert opened.header.head == session.heads[3]
        assert len(await later.everything()) == 6

    async def test_a_reopen_from_further_back_goes_on_at_the_end(self) -> None:
        """A workflow that was reset knows an old head, which the hot thread does not hold."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        later = session.later()
        opened = await later.open(
            create=Create.NEVER, reopen=Reopen(known_head=session.heads[5], turn_start=session.heads[5])
        )
        assert opened.header.head == opened.at == session.heads[40]

    async def test_a_fork_goes_further_back(self) -> None:
        """It is made of the archive alone."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        await session.threads.fork(ForkThread("t", "f", session.epoch + 1, "run-2", at=6))
        assert (await session.threads.read_facts("f")).head == session.heads[3]

    async def test_a_step_that_stands_further_back_is_found(self) -> None:
        """After a reset the workflow takes its steps again, and must get their first answers."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        assert await base(tiers) > session.heads[4].position
        everything = await session.everything()
        view = await session.look(session.heads[4])
        assert view.after == everything[8:10]
        assert view.last_id_at_head == session.heads[4].last_id
        assert view.before == everything[4:8]

    async def test_what_is_not_archived_yet_is_kept_when_it_comes_back(self) -> None:
        """It is archived before the hot thread is dropped."""
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        await session.talk(1, archives=False)
        await session.look(session.heads[4])
        assert len(await session.everything()) == 82

    async def test_too_much_is_not_made_hot_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The workflow opens again at the place that it knows, which needs no more than its newest part."""
        monkeypatch.setattr(store, "BROUGHT_BACK_MAX", 10_000)
        tiers = Tiers()
        session = await a_session(tiers)
        await session.talk(40)
        before = await base(tiers)
        view = await session.look(session.heads[4])
        assert (view.after, view.last_id_at_head) == ((), None)
        assert await base(tiers) == before


class TestIdsOfLargeMessages:
    """A thread with large messages is made hot by its newest 8 MiB alone."""

    async def resumed(self, tiers: Tiers, *, bytes_each: int = 1_000_000) -> Session:
        """A session of 40 messages that went cold, and goes on elsewhere."""
        session = Session(tiers.worker(), "t")
        await session.open()
        for _ in range(20):
            await session.append(session.step(a_message("q"), answer=an_answer("x" * bytes_each)))
            session.heads.append(session.head)
        await session.go_cold()
        later = Session(tiers.worker(), "t", session.epoch + 1, "run-2", heads=session.heads)
        await later.open()
        assert 0 < await base(tiers) < 40
        return later

    async def test_all_are_there_after_a_hydration(self) -> None:
        """A message that was sent again is found among the newest 200, whatever they weigh."""
        tiers = Tiers()
        later = await self.resumed(tiers)
        everything = await later.all_ids()
        view = await later.look(limit=4, ids=200)
        assert [*view.earlier_ids, *(message.id for message in view.before)] == everything

    async def test_they_are_read_once(self) -> None:
        """Not with each turn: that would read up to 200 messages of 1 MB from the archive each time."""
        tiers = Tiers()
        later = await self.resumed(tiers)
        first = await later.look(limit=4, ids=200)
        tiers.blobs.forget()
        await later.talk(5)
        view = await later.look(limit=4, ids=200)
        assert tiers.blobs.count("get") == 0
        assert view.earlier_ids[: len(first.earlier_ids)] == first.earlier_ids

    async def test_they_are_read_anew_after_an_open(self) -> None:
        """It may have cut them."""
        tiers = Tiers()
        later = await self.resumed(tiers)
        await later.look(limit=4, ids=200)
        again = Session(later.threads, "t", later.epoch + 1, "run-3")
        await again.open(rewind_to=later.heads[15])
        everything = await again.all_ids()
        view = await again.look(limit=4, ids=200)
        assert [*view.earlier_ids, *(message.id for message in view.before)] == everything
        assert len(everything) == 30
