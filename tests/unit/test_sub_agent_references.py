"""References to sub-agents' sessions follow the calls that the thread has open."""

from collections.abc import Collection
from typing import Any

import pytest

from helix_temporal.activities.sub_agent_references import SubAgentReferences
from helix_temporal.errors import FencedError, StoreUnavailableError
from helix_temporal.models.states import CreateSession, PendingClientToolCall, SessionStatus, SubSessionRef
from helix_temporal.session.projection import list_cut_refs
from helix_temporal.stores.memory.backend import MemoryBackend
from helix_temporal.stores.sessions.store import RowSessions

EPOCH = 1_800_000_000_000_000
PENDING = {"q": PendingClientToolCall(tool_call_id="q", tool_name="ask_user")}


async def a_store(*children: str) -> RowSessions:
    """Session ``s`` with these sub-sessions at work."""
    store = RowSessions(MemoryBackend().sessions)
    await store.create_session("s", CreateSession(), epoch=EPOCH)
    await store.add_sub_session_refs("s", [SubSessionRef(sub_session_id=each) for each in children])
    return store


async def waiting(store: RowSessions, session_id: str, *below: str) -> None:
    """A sub-agent's session that waits for people, and those below it at work."""
    state = await store.create_session(session_id, CreateSession())
    changed = {"status": SessionStatus.PAUSED, "pending_client_tool_calls": PENDING}
    await store.save_state(session_id, state.model_copy(update=changed))
    await store.add_sub_session_refs(session_id, [SubSessionRef(sub_session_id=each) for each in below])


async def settle(store: Any, *called: str) -> list[str]:
    """The statuses afterwards."""

    async def found() -> Collection[str]:
        return called

    await SubAgentReferences(store).follow_thread("s", EPOCH, found)
    return [each.status.value for each in await store.list_sub_session_refs("s")]


def test_calls_that_are_open_are_not_cut_off() -> None:
    """Their sub-agents may be at work, or be called again."""
    refs = [SubSessionRef(sub_session_id=each) for each in ("s>a>1.0", "s>b")]
    assert list_cut_refs(refs, ["s>b"]) == refs[:1]


async def test_those_whose_calls_are_gone_work_no_more() -> None:
    """Once and again: a repeat changes nothing."""
    store = await a_store("s>a>1.0", "s>a>2.0")
    for _ in range(2):
        assert await settle(store, "s>a>2.0") == ["interrupted", "active"]


async def test_an_applications_own_references_are_its_own() -> None:
    """It may have sessions of its own at work for this one, whatever is in the thread."""
    assert await settle(await a_store("mine")) == ["active"]


async def test_what_waits_below_is_passed_over_with_it() -> None:
    """A question that nobody will take an answer for is no question."""
    store = await a_store("s>a>1.0")
    await waiting(store, "s>a>1.0", "s>a>1.0>b>1.0")
    await waiting(store, "s>a>1.0>b>1.0")
    assert await settle(store) == ["interrupted"]
    for each in ("s>a>1.0", "s>a>1.0>b>1.0"):
        state = await store.load_state(each)
        assert state is not None
        assert (state.status, state.pending_client_tool_calls) == (SessionStatus.INTERRUPTED, {})


class Dying(RowSessions):
    """A store that goes away before a write of a number."""

    writes = 0

    async def save_state(self, *args: Any, **kwargs: Any) -> Any:
        """One of them."""
        self._counted()
        return await super().save_state(*args, **kwargs)

    async def update_sub_session_ref(self, *args: Any, **kwargs: Any) -> Any:
        """One of them."""
        self._counted()
        return await super().update_sub_session_ref(*args, **kwargs)

    def _counted(self) -> None:
        self.writes -= 1
        if not self.writes:
            raise StoreUnavailableError("on purpose")


async def test_an_open_that_came_too_late_passes_nobody_over() -> None:
    """Those who wait are the newer one's, whatever the older one has read of the thread."""
    store = await a_store("s>a>1.0")
    await waiting(store, "s>a>1.0")
    await store.compare_and_set_status("s", set(SessionStatus), SessionStatus.ACTIVE, epoch=EPOCH + 1)
    with pytest.raises(FencedError):
        await settle(store)
    state = await store.load_state("s>a>1.0")
    assert state is not None
    assert list(state.pending_client_tool_calls) == ["q"]


@pytest.mark.parametrize("before", [1, 2, 3, 4, 5, 6])
async def test_who_dies_on_the_way_is_followed_by_one_who_finds_the_rest(before: int) -> None:
    """The reference is the last that changes: by it the next open finds what is below."""
    backend = MemoryBackend()
    whole = RowSessions(backend.sessions)
    await whole.create_session("s", CreateSession(), epoch=EPOCH)
    await whole.add_sub_session_refs("s", [SubSessionRef(sub_session_id="s>a>1.0")])
    await waiting(whole, "s>a>1.0", "s>a>1.0>b>1.0")
    await waiting(whole, "s>a>1.0>b>1.0")
    dying = Dying(backend.sessions)
    dying.writes = before
    with pytest.raises(StoreUnavailableError):
        await settle(dying)
    assert await settle(whole) == ["interrupted"]
    state = await whole.load_state("s>a>1.0>b>1.0")
    assert state is not None
    assert state.pending_client_tool_calls == {}
