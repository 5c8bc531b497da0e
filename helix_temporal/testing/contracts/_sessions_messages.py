"""Messages, for those who use the store without the session workflow."""

import asyncio

import pytest

from helix_temporal.errors import (
    IdempotencyConflictError,
    InvalidRequestError,
    StaleStateError,
)
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.sessions import SessionStore
from helix_temporal.testing.contracts._sessions_base import (
    MANY,
    Crowd,
    SessionFixtures,
    ids_of,
    image,
    loaded,
    messages_of,
    said,
    talk,
)


class MessagesContract(SessionFixtures):
    """A session's messages are one ordered log."""

    async def test_messages_keep_their_order(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """They are numbered from 0 without gaps (case 27)."""
        first = await store.append_messages(session_id, talk(3))
        second = await store.append_messages(session_id, talk(2, "n"))
        assert [(each.first_index, each.count) for each in (first, second)] == [(0, 3), (3, 2)]
        assert (second.head.position, second.head.last_id) == (5, "n1")
        assert await messages_of(store, session_id) == talk(3) + talk(2, "n")
        assert await store.get_message_count(session_id) == 5

    async def test_an_append_is_no_new_version(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Parallel tools add messages without making each other's state stale (case 27)."""
        await store.append_messages(session_id, talk(3))
        assert (await loaded(store, session_id)).version == 1

    @pytest.mark.parametrize(
        ("offset", "limit", "expected", "more"),
        [
            (0, 3, [0, 1, 2], True),
            (4, 3, [4, 5, 6], True),
            (7, 3, [7, 8, 9], False),
            (8, 3, [8, 9], False),
            (10, 3, [], False),
            (99, 3, [], False),
            (0, 200, [*range(10)], False),
        ],
    )
    async def test_pages_are_cut_anywhere(
        self,
        store: SessionStore,
        state: SessionState,
        session_id: str,
        offset: int,
        limit: int,
        expected: list[int],
        more: bool,
    ) -> None:
        """At the start, in the middle, at the exact end and beyond it (case 27)."""
        await store.append_messages(session_id, talk(10))
        page = await store.get_messages(session_id, offset=offset, limit=limit)
        assert [each.id for each in page.messages] == [f"m{n}" for n in expected]
        assert (page.offset, page.limit, page.total, page.has_more) == (offset, limit, 10, more)

    async def test_pages_may_be_read_from_the_end(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A user interface shows the newest first (case 27)."""
        await store.append_messages(session_id, talk(10))
        page = await store.get_messages(session_id, offset=1, limit=3, order="desc")
        assert [each.id for each in page.messages] == ["m8", "m7", "m6"]
        assert page.has_more
        page = await store.get_messages(session_id, offset=7, limit=3, order="desc")
        assert [each.id for each in page.messages] == ["m2", "m1", "m0"]
        assert not page.has_more

    async def test_a_page_has_fifty_messages_unless_asked(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The default is bounded (case 28)."""
        await store.append_messages(session_id, talk(60))
        page = await store.get_messages(session_id)
        assert (len(page.messages), page.limit, page.total, page.has_more) == (50, 50, 60, True)

    @pytest.mark.parametrize(("offset", "limit"), [(0, 0), (0, -1), (0, 201), (-1, 10)])
    async def test_a_page_out_of_range_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str, offset: int, limit: int
    ) -> None:
        """Not clamped: the caller would take a cut page for the whole (case 28)."""
        with pytest.raises(InvalidRequestError):
            await store.get_messages(session_id, offset=offset, limit=limit)

    async def test_appends_of_many_never_interleave(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str
    ) -> None:
        """Each call's messages stand together, and none is lost or doubled (case 29)."""
        calls = [next(crowd).append_messages(session_id, talk(3, f"{n:02}-")) for n in range(MANY)]
        results = await asyncio.gather(*calls)
        found = await ids_of(store, session_id)
        assert sorted(each.first_index for each in results) == list(range(0, 3 * MANY, 3))
        expected = {
            result.first_index: [f"{n:02}-{at}" for at in range(3)] for n, result in enumerate(results)
        }
        assert found == [each for first in sorted(expected) for each in expected[first]]

    async def test_a_message_that_is_there_is_not_added_again(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A repeat is known by its ids, even without an operation id (case 30)."""
        first = await store.append_messages(session_id, talk(3))
        await store.append_messages(session_id, [said("later", message_id="later")])
        again = await store.append_messages(session_id, talk(3))
        assert again == first
        assert await ids_of(store, session_id) == ["m0", "m1", "m2", "later"]

    async def test_what_is_new_in_an_append_is_added(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A caller may send what it is not sure of together with what is new (case 30)."""
        await store.append_messages(session_id, talk(2))
        await store.append_messages(session_id, talk(4))
        assert await messages_of(store, session_id) == talk(4)

    async def test_an_id_is_not_used_for_another_text(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Nothing of that call is appended (case 30)."""
        await store.append_messages(session_id, talk(3))
        before = await image(store, session_id)
        with pytest.raises(IdempotencyConflictError):
            await store.append_messages(session_id, [said("new"), said("other", message_id="m1")])
        assert await image(store, session_id) == before

    async def test_the_first_content_of_an_id_may_be_kept(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """A mirror that sends an entry again, changed, is told what the first one was told."""
        first = await store.append_messages(session_id, talk(3))
        other = [said("other", message_id="m0"), said("another", message_id="m1"), talk(3)[2]]
        before = await image(store, session_id)
        assert await store.append_messages(session_id, other, on_duplicate="keep_first") == first
        assert await image(store, session_id) == before
        new = said("new", message_id="new")
        twice = [other[1], new, said("twice", message_id="new")]
        added = await store.append_messages(session_id, twice, on_duplicate="keep_first")
        assert (added.first_index, added.count, added.head.position) == (1, 2, 4)
        assert await messages_of(store, session_id) == [*talk(3), new]
        with pytest.raises(IdempotencyConflictError):
            await store.append_messages(session_id, other)
        with pytest.raises(InvalidRequestError):
            await store.append_messages(session_id, twice)
        with pytest.raises(InvalidRequestError):
            await store.append_messages(session_id, other, on_duplicate="replace")  # type: ignore[arg-type]

    @pytest.mark.parametrize("touch", [True, False])
    async def test_two_hundred_ids_are_looked_at(
        self, store: SessionStore, crowd: Crowd, state: SessionState, session_id: str, touch: bool
    ) -> None:
        """By whoever appended before, and by whoever did not; of a larger append all."""
        await store.append_messages(session_id, talk(201), touch=touch)
        for each in (store, next(crowd)):
            again = await each.append_messages(session_id, talk(201)[1:4], touch=touch)
            assert (again.first_index, again.head.position) == (1, 4)
            assert (await each.append_messages(session_id, talk(201), touch=touch)).first_index == 0
        await store.append_messages(session_id, talk(9, "later-"), touch=touch)
        again = await store.append_messages(session_id, talk(11)[10:], touch=touch)
        assert (again.first_index, again.head.position) == (10, 11)
        assert await store.get_message_count(session_id) == 210

    async def test_messages_of_a_turn_are_cut_away(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """What comes next goes on where the cut was made (case 32)."""
        await store.append_messages(session_id, talk(6))
        result = await store.truncate_messages(session_id, 2, expected_version=1)
        assert result.new_version == 2 == (await loaded(store, session_id)).version
        assert await ids_of(store, session_id) == ["m0", "m1"]
        assert await store.get_message_count(session_id) == 2
        added = await store.append_messages(session_id, talk(2, "n"))
        assert added.first_index == 2
        assert await ids_of(store, session_id) == ["m0", "m1", "n0", "n1"]

    async def test_all_messages_may_be_cut_away(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """The session starts anew (case 32)."""
        await store.append_messages(session_id, talk(4))
        await store.truncate_messages(session_id, 0)
        assert await ids_of(store, session_id) == []
        assert (await store.append_messages(session_id, talk(2))).first_index == 0

    @pytest.mark.parametrize("count", [7, -1])
    async def test_a_cut_beyond_the_messages_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str, count: int
    ) -> None:
        """The caller thinks of another session, or of another time (case 32)."""
        await store.append_messages(session_id, talk(6))
        before = await image(store, session_id)
        with pytest.raises(InvalidRequestError):
            await store.truncate_messages(session_id, count)
        assert await image(store, session_id) == before

    async def test_a_cut_at_another_version_is_refused(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Messages that somebody wrote meanwhile are not cut away unread (case 32)."""
        await store.append_messages(session_id, talk(6))
        with pytest.raises(StaleStateError):
            await store.truncate_messages(session_id, 2, expected_version=2)
        assert await store.get_message_count(session_id) == 6

    @pytest.mark.parametrize("count", [2, 3])
    async def test_a_call_and_its_results_stay_together(
        self, store: SessionStore, state: SessionState, session_id: str, count: int
    ) -> None:
        """No provider accepts a call without its results (case 32)."""
        await store.append_messages(session_id, a_tool_turn())
        with pytest.raises(InvalidRequestError):
            await store.truncate_messages(session_id, count)
        assert await messages_of(store, session_id) == a_tool_turn()

    async def test_every_part_of_a_message_comes_back(
        self, store: SessionStore, state: SessionState, session_id: str
    ) -> None:
        """Blocks, calls, files and what providers need are not ours to change (case 33)."""
        full = [
            Message(
                id="m ü 🙂",
                role="assistant",
                content=[
                    {"type": "thinking", "text": "hm", "signature": "abc="},
                    {"type": "text", "text": "ü 🙂 \u2028"},
                    {"type": "image", "data": "aGVsbG8=", "media_type": "image/png"},
                    {"type": "file", "filename": "a/../b.pdf", "size": 2**53 + 1, "none": None},
                ],
                tool_calls=(
                    ToolCall(id="call-1", name="look", arguments={"q": [1, 1.0, {"deep": None}]}),
                    ToolCall(id="call-2", name="look"),
                ),
                usage=Usage(input_tokens=2**53 + 1, output_tokens=2),
                provider={"id": "msg_1", "extra": [True]},
                metadata={"hidden": True},
            ),
            Message(
                id="r1", role="tool", tool_call_id="call-1", name="look", content="not\nfound", is_error=True
            ),
            Message(id="r2", role="tool", tool_call_id="call-2", name="look", content=""),
            Message(id="s", role="system", content="be kind"),
            Message(id="f", role="foreign", content="{raw", format="zeitlich-v1/anthropic"),
        ]
        await store.append_messages(session_id, full)
        assert await messages_of(store, session_id) == full


def a_tool_turn() -> list[Message]:
    """A question, an answer that asks for two tools, their results, and the answer."""
    calls = (ToolCall(id="c1", name="look"), ToolCall(id="c2", name="look"))
    return [
        said("find it", message_id="u"),
        Message(id="a", role="assistant", tool_calls=calls),
        Message(id="r1", role="tool", tool_call_id="c1", content="one"),
        Message(id="r2", role="tool", tool_call_id="c2", content="two"),
        Message(id="b", role="assistant", content="found"),
    ]
