"""Redis gets an old copy of a thread back, from a worker that was slow to read it from the archive."""

from collections.abc import Awaitable, Callable

import pytest

from helix_temporal.models.checkpoints import StepCommit
from helix_temporal.models.messages import Message
from helix_temporal.stores.memory import MemorySessions
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sessions import RowSessions
from tests.unit.coldtier._tiers import Tiers

Append = Callable[[RowSessions, str], Awaitable[object]]


def said(name: str) -> Message:
    return Message(id=name, role="user", content=name)


async def append_unnamed(store: RowSessions, name: str) -> None:
    await store.append_messages("s", [said(name)])


async def append_by_operation(store: RowSessions, name: str) -> None:
    await store.append_messages("s", [said(name)], operation_id=f"op-{name}")


async def commit_a_step(store: RowSessions, name: str) -> None:
    state = await store.load_state("s")
    assert state is not None
    await store.save_state_and_promote_staging("s", state, StepCommit(step_id=name), messages=[said(name)])


@pytest.mark.parametrize("append", [append_unnamed, append_by_operation, commit_a_step])
@pytest.mark.parametrize("beside", [False, True], ids=["apart", "beside"])
async def test_what_is_acknowledged_on_an_old_copy_is_kept(append: Append, beside: bool) -> None:
    """The archive has gone on meanwhile: the append counts behind all of it."""
    tiers = Tiers()
    rows = MemorySessions(tiers.hot if beside else None)

    def a_process() -> RowSessions:
        return RowSessions(rows, tiers.worker())

    async def go_cold() -> int:
        threads = tiers.worker()
        epoch = (await threads.read_facts("s")).epoch
        await threads.flush(FlushThread("s", epoch))
        assert await threads.evict("s", epoch) == "dropped"
        return epoch

    first, second = a_process(), a_process()
    await first.create_session("s")
    await first.append_messages("s", [said("one")])
    await tiers.worker().hydrate("s", await go_cold())
    old = tiers.hot.backup()
    await second.append_messages("s", [said("two")])
    await go_cold()
    tiers.hot.restore(old)
    await append(first, "three")
    await a_process().append_messages("s", [said("four")])
    page = await a_process().get_messages("s")
    assert [message.id for message in page.messages] == ["one", "two", "three", "four"]
