"""What is due: ends, deadlines, clean-ups, old operations; and all sessions there are."""

from typing import Any

from helix_temporal.models.states import ClientToolResponse, PendingClientToolCall, SuspendedChildWait
from helix_temporal.models.store_calls import ExpiredSession
from helix_temporal.stores.protocols.session_rows import (
    RowKind,
    SessionRow,
    SessionRows,
    WantedRows,
)
from helix_temporal.testing.contracts._rows_base import (
    SessionRowsFixtures,
    a_change,
    a_removal,
    a_row,
    a_state,
    committed,
    saved,
)


class DueContract(SessionRowsFixtures):
    """Sessions whose time has come."""

    async def test_expired_sessions_come_in_order(self, store: SessionRows) -> None:
        """The one that waits longest first; the limit of time is not part of it."""
        times = {"c": 30, "b": 20, "a": 20, "never": None, "later": 50, "exact": 40}
        for name, at in times.items():
            await saved(store, name, expires_at=at, cleanup_pending=name == "c")
        found = await store.list_expired(40, limit=9)
        assert [(each.session_id, each.expires_at) for each in found] == [("a", 20), ("b", 20), ("c", 30)]
        assert found[2] == ExpiredSession(session_id="c", expires_at=30, cleanup_pending=True)

    async def test_expired_sessions_come_in_pages(self, store: SessionRows) -> None:
        """A sweep takes some at a time, and goes on beyond those that it could not end."""
        for n in range(5):
            await saved(store, f"s{n}", expires_at=10 + n // 2)
        first = await store.list_expired(99, limit=2)
        last = first[-1]
        assert last.expires_at is not None
        rest = await store.list_expired(99, limit=9, after=(last.expires_at, last.session_id))
        assert [each.session_id for each in (*first, *rest)] == [f"s{n}" for n in range(5)]

    async def test_a_session_that_was_ended_or_prolonged_is_not_expired(self, store: SessionRows) -> None:
        """The list follows the state."""
        for name in ("ended", "prolonged", "deleted"):
            await saved(store, name, expires_at=10)
        await saved(store, "ended", expires_at=None)
        await saved(store, "prolonged", expires_at=99)
        await committed(store, a_removal("deleted", 1))
        assert await store.list_expired(50, limit=9) == ()

    async def test_unfinished_cleanups_come_in_order(self, store: SessionRows) -> None:
        """By id, some at a time, until they are finished."""
        for name in ("d", "b", "a", "c"):
            await saved(store, name, cleanup_pending=name != "c")
        assert await store.list_cleanup_pending(limit=2) == ("a", "b")
        assert await store.list_cleanup_pending(limit=2, after="b") == ("d",)
        await saved(store, "a", cleanup_pending=False)
        await committed(store, a_removal("b", 1))
        assert await store.list_cleanup_pending(limit=9) == ("d",)

    async def test_calls_past_their_deadline_are_found(self, store: SessionRows) -> None:
        """By the earliest one of a session that has no answer yet."""
        await saved(store, "two", **_calls(40, 20))
        await saved(store, "one", **_calls(30))
        await saved(store, "later", **_calls(50))
        await saved(store, "none", **_calls(None))
        await saved(store, "answered", **_calls(10, answered=True))
        assert await due(store, 50, limit=9) == ((20, "two"), (30, "one"))
        assert await due(store, 50, limit=1) == ((20, "two"),)
        assert await due(store, 50, limit=9, after=(20, "two")) == ((30, "one"),)
        await saved(store, "two", **_calls(40))
        await committed(store, a_removal("one", 1))
        assert await due(store, 50, limit=9) == ((40, "two"),)

    async def test_sessions_whose_sub_agents_have_used_up_their_time_are_found(
        self, store: SessionRows
    ) -> None:
        """Their sessions have ended, so no timer says so; a question's deadline counts if it is earlier."""
        await saved(store, "below", **_below(30, 20))
        await saved(store, "both", **_calls(10), **_below(40))
        await saved(store, "awake", **_below(None))
        await saved(store, "told", **_below(10, resolved=True))
        assert await due(store, 50, limit=9) == ((10, "both"), (20, "below"))
        await saved(store, "both", **_below(40))
        await saved(store, "below")
        assert await due(store, 50, limit=9) == ((40, "both"),)


async def due(store: SessionRows, before: int, **page: Any) -> tuple[tuple[int, str], ...]:
    """Times and ids of sessions whose deadline has passed."""
    return tuple((each.due_at, each.session_id) for each in await store.list_due(before, **page))


class PurgeContract(SessionRowsFixtures):
    """Old operation rows go."""

    async def test_old_operations_go_and_nothing_else(self, store: SessionRows, session_id: str) -> None:
        """A repeat is told so for a time, not for ever."""
        other = a_row("c1", order=1)
        puts = tuple(operation(f"o{n}", n) for n in range(10))
        await committed(store, a_change(session_id, puts=(*puts, other)))
        assert await store.purge_operations(6, limit=100) == 6
        view = await store.view(session_id, WantedRows(keys=tuple(each.name for each in (*puts, other))))
        assert set(view.rows) == {*puts[6:], other}
        assert await store.purge_operations(6, limit=100) == 0

    async def test_operations_go_some_at_a_time_from_all_sessions(self, store: SessionRows) -> None:
        """A sweep is many short calls."""
        names = [f"s{n}" for n in range(4)]
        for name in names:
            puts = tuple(operation(f"o{n}", n) for n in range(5))
            await committed(store, a_change(name, puts=puts))
        counts = [await store.purge_operations(3, limit=5) for _ in range(4)]
        assert counts == [5, 5, 2, 0]
        for name in names:
            assert (await store.read_page(name, RowKind.OPERATION, limit=9)).total == 2

    async def test_operations_of_commits_without_a_state_go_too(
        self, store: SessionRows, session_id: str
    ) -> None:
        """What must be purged does not depend on what else a commit wrote."""
        await committed(store, a_change(session_id, state=None, puts=(operation("o1", 1),)))
        await committed(store, a_change(session_id, 1, state=None, puts=(operation("o0", 0),)))
        assert await store.purge_operations(1, limit=9) == 1
        await committed(store, a_change(session_id, 2, state=None, puts=(operation("o5", 5),)))
        assert await store.purge_operations(9, limit=9) == 2

    async def test_a_session_goes_on_after_a_purge(self, store: SessionRows, session_id: str) -> None:
        """A purge is no change of the session: whoever has read it may commit."""
        await committed(store, a_change(session_id, puts=(operation("o1", 1),)))
        await store.purge_operations(9, limit=9)
        again = operation("o1", 20)
        await committed(store, a_change(session_id, 1, puts=(again,)))
        assert (await store.view(session_id, WantedRows(keys=(again.name,)))).rows == (again,)
        assert await store.purge_operations(21, limit=9) == 1

    async def test_a_deleted_session_leaves_no_operations(self, store: SessionRows, session_id: str) -> None:
        """They went with it."""
        await committed(store, a_change(session_id, puts=(operation("o1", 1),)))
        await committed(store, a_removal(session_id, 1))
        assert await store.purge_operations(9, limit=9) == 0


class ScanContract(SessionRowsFixtures):
    """All sessions there are."""

    async def test_a_scan_finds_every_session_that_is_not_deleted(self, store: SessionRows) -> None:
        """Also those without any row, and none that has rows only."""
        names = {f"s{n}" for n in range(50)}
        for name in names:
            await committed(store, a_change(name, state=a_state(name, b"{}")))
        await committed(store, a_removal("s7", 1))
        await committed(store, a_change("no-state", state=None, puts=(a_row("c1"),)))
        assert {each async for each in store.scan()} == names - {"s7"}

    async def test_an_empty_store_scans_to_nothing(self, store: SessionRows) -> None:
        """And lists nothing as due."""
        assert [each async for each in store.scan()] == []
        assert await store.list_expired(2**62, limit=9) == ()
        assert await store.list_due(2**62, limit=9) == ()
        assert await store.list_cleanup_pending(limit=9) == ()
        assert await store.purge_operations(2**62, limit=9) == 0

    async def test_the_store_has_a_clock(self, store: SessionRows) -> None:
        """Milliseconds since 1970, never a year ago."""
        first = await store.now()
        assert 1_700_000_000_000 < first <= await store.now() < 10**13

    async def test_a_healthy_store_passes_its_check(self, store: SessionRows) -> None:
        """Every time."""
        await store.check()
        await store.check()


def operation(key: str, at: int) -> SessionRow:
    """An operation's answer, kept at a time."""
    return a_row(key, RowKind.OPERATION, order=at)


def _calls(*deadlines: int | None, answered: bool = False) -> dict[str, Any]:
    response = ClientToolResponse(result=1) if answered else None
    calls = [
        PendingClientToolCall(tool_call_id=f"t{n}", tool_name="ask", deadline_at=at, response=response)
        for n, at in enumerate(deadlines)
    ]
    return {"pending_client_tool_calls": {each.tool_call_id: each for each in calls}}


def _below(*deadlines: int | None, resolved: bool = False) -> dict[str, Any]:
    waits = tuple(
        SuspendedChildWait(sub_session_id=f"below-{at}", tool_call_id="c", until=until, resolved=resolved)
        for at, until in enumerate(deadlines)
    )
    return {"suspended_awaiting_children": waits}
