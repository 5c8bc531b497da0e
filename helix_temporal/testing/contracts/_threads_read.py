"""Contract of thread stores: pages and facts."""

import pytest

from helix_temporal.errors import InvalidRequestError, ThreadNotFoundError
from helix_temporal.models.stored_messages import EMPTY, Kind, size_of
from helix_temporal.stores.protocols.threads import ReadPage, ThreadStore
from helix_temporal.testing.contracts._threads_base import Author, ThreadFixtures, pages


class ReadContract(ThreadFixtures):
    """Pages both ways, by count and by bytes, whole steps."""

    async def test_pages_forward_give_every_message_once(self, author: Author) -> None:
        """A reader that follows ``after`` neither misses nor repeats a message."""
        await author.turns(10)
        found = await pages(author.threads, ReadPage(author.thread_id, limit=3))
        assert [len(page) for page in found] == [3, 3, 3, 3, 3, 3, 2]
        assert tuple(message for page in found for message in page) == await author.everything()

    async def test_pages_backward_give_every_message_once(self, author: Author) -> None:
        """A reader that starts at the newest and follows ``before``."""
        await author.turns(10)
        found = await pages(author.threads, ReadPage(author.thread_id, limit=3, backward=True))
        assert [len(page) for page in found] == [3, 3, 3, 3, 3, 3, 2]
        assert tuple(message for page in reversed(found) for message in page) == await author.everything()

    async def test_a_page_says_where_it_begins(self, author: Author) -> None:
        """Positions are the thread's, not the page's."""
        await author.turns(5)
        page = await author.threads.read(ReadPage(author.thread_id, limit=4, backward=True))
        assert (page.first, page.before, page.after) == (6, 6, None)
        assert (page.head, page.committed) == (author.head, 10)

    async def test_pages_by_bytes_hold_no_more_than_asked(self, author: Author) -> None:
        """A reader with little memory gets small pages."""
        await author.turns(10)
        everything = await author.everything()
        room = size_of(everything[:3])
        found = await pages(author.threads, ReadPage(author.thread_id, max_bytes=room))
        assert max(size_of(page) for page in found) <= room
        assert tuple(message for page in found for message in page) == everything

    async def test_pages_by_bytes_backward_hold_no_more_than_asked(self, author: Author) -> None:
        """The same from the newest on."""
        await author.turns(10)
        everything = await author.everything()
        room = size_of(everything[-3:])
        found = await pages(author.threads, ReadPage(author.thread_id, max_bytes=room, backward=True))
        assert max(size_of(page) for page in found) <= room
        assert tuple(message for page in reversed(found) for message in page) == everything

    async def test_a_page_holds_at_least_one_message(self, author: Author) -> None:
        """A message larger than a page can still be read."""
        await author.turn("x" * 5000)
        page = await author.threads.read(ReadPage(author.thread_id, max_bytes=1))
        assert len(page.messages) == 1

    async def test_a_forward_page_never_ends_between_a_call_and_its_results(self, author: Author) -> None:
        """What a model or a person gets to see is well formed."""
        await author.turn()
        await author.tool_turn(results=40)
        page = await author.threads.read(ReadPage(author.thread_id, limit=4))
        assert [message.kind for message in page.messages[3:]] == [Kind.CALLS, *[Kind.RESULT] * 40]
        assert page.after == 44

    async def test_a_backward_page_never_begins_between_a_call_and_its_results(self, author: Author) -> None:
        """The same from the other side."""
        await author.tool_turn(results=40)
        page = await author.threads.read(ReadPage(author.thread_id, limit=2, backward=True))
        assert page.messages[0].kind == Kind.CALLS
        assert (page.first, page.before, len(page.messages)) == (1, 1, 42)

    async def test_pages_of_whole_steps_give_every_message_once(self, author: Author) -> None:
        """Also where pages were made longer for it."""
        for _ in range(4):
            await author.tool_turn(results=3)
        found = await pages(author.threads, ReadPage(author.thread_id, limit=2))
        assert tuple(message for page in found for message in page) == await author.everything()

    async def test_steps_may_be_split_where_asked(self, author: Author) -> None:
        """A copier wants pages of exactly the size it said."""
        await author.tool_turn(results=3)
        found = await pages(author.threads, ReadPage(author.thread_id, limit=2, whole=False))
        assert [len(page) for page in found] == [2, 2, 2]

    async def test_a_range_is_read_and_no_more(self, author: Author) -> None:
        """Start and stop are positions of the thread."""
        await author.turns(10)
        page = await author.threads.read(ReadPage(author.thread_id, start=5, stop=9))
        assert (page.first, page.messages) == (5, (await author.everything())[5:9])
        assert (page.before, page.after) == (5, 9)

    async def test_a_range_beyond_the_end_is_empty(self, author: Author) -> None:
        """Polling for what is new is no error."""
        await author.turn()
        page = await author.threads.read(ReadPage(author.thread_id, start=2))
        assert (page.messages, page.after) == ((), None)

    async def test_pages_of_a_range_come_to_an_end(self, author: Author) -> None:
        """A reader that follows ``after`` up to a stop is not led in circles."""
        await author.turns(5)
        found = await pages(author.threads, ReadPage(author.thread_id, stop=4, limit=3))
        assert [len(page) for page in found] == [3, 1, 0]

    async def test_an_empty_thread_has_an_empty_page(self, author: Author) -> None:
        """It exists, and nothing was said."""
        page = await author.threads.read(ReadPage(author.thread_id))
        assert (page.messages, page.before, page.after, page.head) == ((), None, None, EMPTY)

    @pytest.mark.parametrize(
        "bounds",
        [
            {"start": -1},
            {"start": 3, "stop": 2},
            {"limit": 0},
            {"limit": -1},
            {"limit": 10_001},
            {"limit": 10**9},
            {"max_bytes": 0},
            {"max_bytes": 10**12},
        ],
        ids=str,
    )
    async def test_bounds_that_make_no_sense_are_refused(
        self, author: Author, bounds: dict[str, int]
    ) -> None:
        """Row 42: the message says what is allowed."""
        with pytest.raises(InvalidRequestError, match=r"allowed|must be"):
            await author.threads.read(ReadPage(author.thread_id, **bounds))  # type: ignore[arg-type]

    async def test_a_thread_that_is_not_there_cannot_be_read(
        self, threads: ThreadStore, thread_id: str
    ) -> None:
        """It is not the same as an empty one."""
        with pytest.raises(ThreadNotFoundError):
            await threads.read(ReadPage(thread_id))
        with pytest.raises(ThreadNotFoundError):
            await threads.read_facts(thread_id)

    async def test_facts_say_where_a_thread_stands(self, author: Author) -> None:
        """Without a single message."""
        await author.turn()
        await author.asks_for_tools()
        facts = await author.facts()
        assert (facts.thread_id, facts.head, facts.committed) == (author.thread_id, author.head, 2)
        assert (facts.epoch, facts.owner, facts.closed, facts.hot) == (author.epoch, "run-1", False, True)
        assert facts.size == size_of(await author.everything())

    async def test_the_hot_header_says_where_the_hot_thread_stands(self, author: Author) -> None:
        """Who shows a session while the archive is away shows what it has; reading it changes nothing."""
        await author.turn()
        await author.asks_for_tools()
        before = await author.image()
        header = await author.threads.read_hot_header(author.thread_id)
        assert header is not None
        assert (header.head, header.committed, header.epoch) == (author.head, 2, author.epoch)
        assert await author.image() == before

    async def test_a_thread_that_is_not_there_has_no_hot_header(self, threads: ThreadStore) -> None:
        """As one that is cold: nothing of it is hot."""
        assert await threads.read_hot_header("nowhere") is None
