"""Who is refused by a thread's fence."""

import pytest

from helix_temporal.errors import FencedError, HeadMovedError, HelixError
from helix_temporal.models.stored_messages import Epoch
from helix_temporal.stores.protocols.threads import Create, OpenThread
from helix_temporal.stores.threads.fences import Fence

OPEN = Fence("t", 5, "me")
CLOSED = Fence("t", 5, "me", closed=True)
DELETED = Fence("t", 5, "me", deleted=True)


@pytest.mark.parametrize(
    ("fence", "epoch", "refusal", "of_who_closes"),
    [
        pytest.param(OPEN, 5, None, None, id="its own"),
        pytest.param(OPEN, 4, FencedError, FencedError, id="replaced"),
        pytest.param(OPEN, 6, HeadMovedError, HeadMovedError, id="the hot thread went back"),
        pytest.param(CLOSED, 5, FencedError, None, id="closed"),
        pytest.param(DELETED, 5, FencedError, None, id="deleted"),
        pytest.param(CLOSED, 4, FencedError, FencedError, id="replaced by one that is closed"),
        pytest.param(DELETED, 6, HeadMovedError, HeadMovedError, id="deleted before the open"),
    ],
)
def test_who_may_write(
    fence: Fence, epoch: Epoch, refusal: type[HelixError] | None, of_who_closes: type[HelixError] | None
) -> None:
    """The one that has the thread, until it closes it."""
    found = [fence.find_refusal(epoch), fence.find_refusal(epoch, closing=True)]
    assert [None if each is None else type(each) for each in found] == [refusal, of_who_closes]
    assert fence.admits(epoch) is (refusal is None)


@pytest.mark.parametrize("fence", [OPEN, CLOSED, DELETED])
def test_only_who_was_replaced_may_not_drop(fence: Fence) -> None:
    """A copy, a drop or a deletion may come after the end."""
    fence.check_not_replaced(5)
    fence.check_not_replaced(6)
    with pytest.raises(FencedError, match="epoch 5 has it, 4 is out"):
        fence.check_not_replaced(4)


@pytest.mark.parametrize(
    ("fence", "epoch", "owner"),
    [
        pytest.param(OPEN, 4, "me", id="a higher epoch came before"),
        pytest.param(OPEN, 5, "another", id="the same epoch of another"),
        pytest.param(DELETED, 5, "me", id="deleted"),
    ],
)
def test_an_open_that_comes_too_late(fence: Fence, epoch: Epoch, owner: str) -> None:
    """The thread stays whose it is."""
    with pytest.raises(FencedError, match="comes too late"):
        fence.is_repeated_open(OpenThread("t", epoch, owner, Create.AUTO))


def test_an_open_takes_the_thread_once() -> None:
    """A repeat of it finds that it has."""
    assert OPEN.is_repeated_open(OpenThread("t", 6, "another", Create.AUTO)) is False
    assert OPEN.is_repeated_open(OpenThread("t", 5, "me", Create.AUTO)) is True
