"""Contract of thread stores: forks."""

from collections.abc import Sequence

import pytest

from helix_temporal.errors import FencedError, InvalidRequestError, ThreadExistsError, ThreadNotFoundError
from helix_temporal.models.stored_messages import EMPTY, StoredMessage
from helix_temporal.stores.protocols.threads import ForkThread, ThreadStore
from helix_temporal.testing.builders import a_message
from helix_temporal.testing.contracts._threads_base import LATER, Author, ThreadFixtures, noise


def fork_of(author: Author, *, at: int | None = None, state: bytes | None = None) -> ForkThread:
    """A fork of this author's thread into one of its own."""
    return ForkThread(author.thread_id, f"{author.thread_id}-fork", LATER, "forker", at, state)


def copy_of(author: Author, request: ForkThread) -> Author:
    """The author of the fork."""
    return Author(author.threads, request.target_id, request.epoch, request.owner)


class ForkContract(ThreadFixtures):
    """A fork copies finished turns into a thread of its own."""

    async def test_a_fork_holds_the_finished_turns(self, author: Author) -> None:
        """The turn under way is not a fork's business."""
        await author.turns(3)
        finished = await author.everything()
        await author.asks_for_tools()
        request = fork_of(author)
        forked = await author.threads.fork(request)
        assert (forked.head.position, forked.epoch, forked.owner) == (6, LATER, "forker")
        assert await copy_of(author, request).everything() == finished

    async def test_a_fork_leaves_its_source_alone(self, author: Author) -> None:
        """The session of the source may be in the middle of a turn."""
        await author.turn()
        await author.asks_for_tools()
        before = await author.everything()
        await author.threads.fork(fork_of(author))
        assert await author.everything() == before
        await author.append(author.step(a_message("result", kind="t"), answer=None, commits=False))

    async def test_a_fork_at_a_position(self, author: Author) -> None:
        """A conversation is taken up again where it went wrong."""
        await author.turns(3)
        request = fork_of(author, at=4)
        await author.threads.fork(request)
        assert await copy_of(author, request).everything() == (await author.everything())[:4]

    async def test_a_fork_at_the_beginning_is_empty(self, author: Author) -> None:
        """It has the source's state, and no messages."""
        await author.turn()
        request = fork_of(author, at=0)
        assert (await author.threads.fork(request)).head.position == 0

    @pytest.mark.parametrize("at", [4, 5])
    async def test_a_fork_inside_a_tool_call_is_refused(self, author: Author, at: int) -> None:
        """A call without all its results is malformed for every model."""
        await author.turn()
        await author.tool_turn(results=2)
        await self._fork_refused(author, at, "between a tool call and its result")

    @pytest.mark.parametrize("at", [3, -1])
    async def test_a_fork_beyond_what_is_finished_is_refused(self, author: Author, at: int) -> None:
        """Only committed positions can be forked from."""
        await author.turn()
        await author.asks_for_tools()
        await self._fork_refused(author, at, "2 are committed")

    @staticmethod
    async def _fork_refused(author: Author, at: int, why: str) -> None:
        request = fork_of(author, at=at)
        with pytest.raises(InvalidRequestError, match=why):
            await author.threads.fork(request)
        with pytest.raises(ThreadNotFoundError):
            await author.threads.read_facts(request.target_id)

    async def test_a_retried_fork_finds_its_first_copy(self, author: Author) -> None:
        """The source may have grown between the attempts; nothing is mixed."""
        await author.turn("one")
        request = fork_of(author)
        first = await author.threads.fork(request)
        await author.turn("two")
        assert await author.threads.fork(request) == first
        assert await copy_of(author, request).texts() == ["one", "hi there"]

    async def test_a_fork_says_where_its_thread_stands(self, author: Author) -> None:
        """Who made it can go on from the answer."""
        await author.turns(2)
        request = fork_of(author, state=b"own")
        forked = await author.threads.fork(request)
        facts = await copy_of(author, request).facts()
        assert (forked.head, forked.size) == (facts.head, facts.size)
        assert (forked.hot, forked.archived) == (facts.hot, facts.archived)
        assert (forked.slice_version, forked.adapter) == (facts.slice_version, facts.adapter)

    async def test_a_fork_retried_after_its_thread_was_used_changes_nothing(self, author: Author) -> None:
        """A late attempt finds a session at work on the copy, and answers what the first one did."""
        await author.turn("one")
        request = fork_of(author)
        first = await author.threads.fork(request)
        user = copy_of(author, request).later(owner="run-2")
        await user.open()
        await user.turn("two")
        before = await user.image()
        assert await author.threads.fork(request) == first
        assert await user.image() == before

    async def test_a_fork_retried_after_its_thread_was_rewound(self, author: Author) -> None:
        """The first answer is kept, not worked out from what is there."""
        await author.turns(2)
        request = fork_of(author)
        first = await author.threads.fork(request)
        user = copy_of(author, request).later(owner="run-2")
        await user.open(rewind_to=EMPTY)
        await user.turn("anew")
        assert await author.threads.fork(request) == first

    async def test_a_fork_retried_after_its_source_was_deleted(self, author: Author) -> None:
        """The copy is complete; the caller only has not heard of it."""
        await author.turn()
        request = fork_of(author)
        first = await author.threads.fork(request)
        await author.threads.delete(author.thread_id, author.epoch)
        assert await author.threads.fork(request) == first

    async def test_a_transform_is_not_asked_again(self, author: Author) -> None:
        """It may have called a model."""
        await author.turn()
        request = fork_of(author)
        asked: list[int] = []

        async def transform(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
            asked.append(len(messages))
            return messages[:1]

        first = await author.threads.fork(request, transform)
        assert await author.threads.fork(request, transform) == first
        assert asked == [2]

    async def test_a_late_fork_does_not_revive_a_deleted_thread(self, author: Author) -> None:
        """Deleted is deleted, also for an attempt that was held up."""
        await author.turn()
        request = fork_of(author)
        await author.threads.fork(request)
        await author.threads.delete(request.target_id, request.epoch + 1)
        with pytest.raises(FencedError):
            await author.threads.fork(request)
        with pytest.raises(ThreadNotFoundError):
            await author.threads.read_facts(request.target_id)

    async def test_a_fork_into_a_deleted_thread_makes_it_anew(self, author: Author) -> None:
        """The id is free again for whoever comes later."""
        await author.turn()
        old = fork_of(author)
        await author.threads.fork(old)
        await author.threads.delete(old.target_id, old.epoch)
        request = ForkThread(old.source_id, old.target_id, old.epoch + 1, old.owner)
        assert (await author.threads.fork(request)).head == author.head

    async def test_a_fork_never_overwrites_a_thread(self, author: Author) -> None:
        """An id that is taken is refused, and what it names is untouched."""
        await author.turn()
        request = fork_of(author)
        other = Author(author.threads, request.target_id)
        await other.open()
        await other.turn("mine")
        before = await other.image()
        with pytest.raises(ThreadExistsError):
            await author.threads.fork(request)
        assert await other.image() == before

    async def test_another_fork_into_the_same_thread_is_refused(self, author: Author) -> None:
        """Two callers can't both own it."""
        await author.turn()
        request = fork_of(author)
        await author.threads.fork(request)
        with pytest.raises(ThreadExistsError):
            await author.threads.fork(
                ForkThread(request.source_id, request.target_id, request.epoch + 1, "another")
            )

    async def test_there_is_no_fork_of_nothing(self, threads: ThreadStore, thread_id: str) -> None:
        """A mistyped source is an error rather than an empty copy."""
        request = fork_of(Author(threads, thread_id))
        with pytest.raises(ThreadNotFoundError):
            await threads.fork(request)
        with pytest.raises(ThreadNotFoundError):
            await threads.read_facts(request.target_id)

    async def test_a_transform_changes_the_messages_of_a_fork(self, author: Author) -> None:
        """A summary may take the place of what was said; all of it counts as finished."""
        await author.turns(3)
        seen: list[StoredMessage] = []

        async def summarise(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
            seen.extend(messages)
            return (a_message("summary", message_id="s"), *messages[-2:])

        request = fork_of(author)
        forked = await author.threads.fork(request, summarise)
        assert tuple(seen) == await author.everything()
        assert forked.head.position == 3
        assert (await copy_of(author, request).facts()).committed == 3
        assert await copy_of(author, request).texts() == ["summary", "question 2", "answer 2"]

    async def test_a_transform_that_fails_leaves_no_thread(self, author: Author) -> None:
        """A fork is there as a whole or not at all."""
        await author.turn()

        async def fail(messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
            raise ValueError(len(messages))

        request = fork_of(author)
        with pytest.raises(ValueError, match="2"):
            await author.threads.fork(request, fail)
        with pytest.raises(ThreadNotFoundError):
            await author.threads.read_facts(request.target_id)

    async def test_source_and_fork_go_their_own_ways(self, author: Author) -> None:
        """Neither sees what the other says from then on."""
        await author.turn("one")
        request = fork_of(author)
        await author.threads.fork(request)
        user = copy_of(author, request).later()
        await user.open()
        await user.turn("left")
        await author.turn("right")
        assert await user.texts() == ["one", "hi there", "left", "hi there"]
        assert await author.texts() == ["one", "hi there", "right", "hi there"]

    async def test_a_fork_survives_the_deletion_of_its_source(self, author: Author) -> None:
        """Threads never share what they are made of."""
        await author.append(author.step(*noise(50), answer=None))
        request = fork_of(author)
        await author.threads.fork(request)
        before = await copy_of(author, request).everything()
        await author.threads.delete(author.thread_id, author.epoch)
        assert await copy_of(author, request).everything() == before

    async def test_a_fork_of_a_fork(self, author: Author) -> None:
        """Copies are threads like any other."""
        await author.turns(2)
        request = fork_of(author)
        await author.threads.fork(request)
        second = fork_of(copy_of(author, request), at=2)
        await author.threads.fork(second)
        assert await copy_of(author, second).everything() == (await author.everything())[:2]

    async def test_a_fork_takes_the_state_along(self, author: Author) -> None:
        """Tasks and values belong to the conversation."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        request = fork_of(author)
        await author.threads.fork(request)
        facts = await copy_of(author, request).facts()
        assert (facts.slice, facts.slice_version) == (b"state", 1)

    async def test_a_fork_may_have_a_state_of_its_own(self, author: Author) -> None:
        """The caller decides where the source's would be wrong."""
        await author.threads.save_slice(author.thread_id, author.epoch, b"state", 0)
        request = fork_of(author, state=b"own")
        await author.threads.fork(request)
        assert (await copy_of(author, request).facts()).slice == b"own"

    async def test_a_fork_keeps_the_adapter(self, threads: ThreadStore, thread_id: str) -> None:
        """The bodies are the same, so is their format."""
        author = Author(threads, thread_id)
        await author.open(adapter="anthropic")
        assert (await threads.fork(fork_of(author))).adapter == "anthropic"
