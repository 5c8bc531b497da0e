"""What cannot be read is not told as absent: a store that is away, or damage, has an error of its own."""

import pytest

from helix_temporal.client import SessionStores
from helix_temporal.errors import (
    ArchiveCorruptError,
    InvalidRequestError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.testing.faults import BlobFault
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import Scene, answer, user
from tests.unit.views.test_archives import TURNS, Archived, archived
from tests.unit.views.test_problems import DamagedThreads

__all__ = ["archived"]


async def test_a_message_that_cannot_be_read_is_not_called_absent(archived: Archived) -> None:
    """A link to it would be taken for a wrong one while S3 is away."""
    await archived.author.go_cold()
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    with pytest.raises(StoreUnavailableError):
        await archived.views.read_message("t", 1)


async def test_a_damaged_message_is_not_called_absent(archived: Archived) -> None:
    """Who reads that the thread ends before it looks for a deletion, not for damage."""
    await archived.damage()
    with pytest.raises(ArchiveCorruptError):
        await archived.views.read_message("t", 1)
    await archived.author.go_cold()
    with pytest.raises(ArchiveCorruptError):
        await archived.views.read_message("t", 1)


async def test_a_message_beyond_a_known_end_is_absent_while_the_archive_is_away(archived: Archived) -> None:
    """The hot store alone knows where the thread ends."""
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    with pytest.raises(InvalidRequestError, match=f"it ends at {2 * TURNS}$"):
        await archived.views.read_message("t", 1_000)


async def test_a_message_of_no_known_form_is_damage(scene: Scene) -> None:
    """The page has a status for damage, and none for what a model says of it."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    stores = SessionStores(
        threads=DamagedThreads(scene.threads.hot), usage=scene.stores.usage, sessions=scene.stores.sessions
    )
    with pytest.raises(StoreCorruptError, match="ValidationError: what is stored is no ThreadPlace"):
        await SessionViews(stores).read_message("s1", 0)
