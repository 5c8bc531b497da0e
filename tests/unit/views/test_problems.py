"""What views say where a part cannot be read: an archive that is silent is not damage, nor damage silence."""

import pytest
from pydantic import ValidationError

from helix_temporal.client import SessionStores
from helix_temporal.stores.protocols.threads import ReadPage, ThreadFacts, ThreadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.faults import BlobFault
from helix_temporal.views import patience
from helix_temporal.views.models import ThreadPlace
from helix_temporal.views.problems import describe_problem
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._scene import Scene, answer, user
from tests.unit.views.test_archives import Archived, archived

__all__ = ["archived"]


def damaged_error() -> ValidationError:
    """What a row gives that another program wrote, with a secret in it."""
    with pytest.raises(ValidationError) as caught:
        ThreadPlace.model_validate({"thread_id": ["hunter2"]})
    return caught.value


class DamagedThreads(HotThreads):
    """Has rows that are of no known form."""

    async def read(self, request: ReadPage) -> ThreadPage:
        """Fails as a model does."""
        raise damaged_error()

    async def read_facts(self, thread_id: str) -> ThreadFacts:
        """Fails as a model does."""
        raise damaged_error()


FAULTS = [
    (
        BlobFault.DELAYED,
        "not all can be read: StoreUnavailableError: the archive did not answer within 0.05 s",
    ),
    (BlobFault.ERROR_BEFORE, "not all can be read: StoreUnavailableError"),
    (BlobFault.NO_ACCESS, "not all can be read: ArchiveAccessError"),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS)
async def test_a_page_says_why_a_part_is_missing(
    archived: Archived, monkeypatch: pytest.MonkeyPatch, fault: BlobFault, says: str
) -> None:
    """Rights that lack and a server that is silent are mended in other places than a damaged archive."""
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    archived.tiers.blobs.fail(fault, times=1_000)
    page = await archived.views.read_turns("t")
    place = await archived.views.get_place("t")
    await archived.tiers.blobs.release()
    assert page.problem is not None
    assert page.problem.startswith(says)
    assert place.problem is not None
    assert place.problem.startswith(says.removeprefix("not all can be read: "))


async def test_damage_is_not_told_as_an_archive_that_is_silent(scene: Scene) -> None:
    """Somebody would look for an outage that there is not."""
    writer = await scene.begin()
    await writer.turn(user("u1"), answer("a1"))
    damaged = DamagedThreads(scene.threads.hot)
    views = SessionViews(
        SessionStores(threads=damaged, usage=scene.stores.usage, sessions=scene.stores.sessions)
    )
    page = await views.read_turns("s1")
    place = await views.get_place("s1")
    assert page.problem == "damaged: ValidationError: what is stored is no ThreadPlace"
    assert place.problem == "ValidationError: what is stored is no ThreadPlace"


def test_what_is_stored_is_not_told() -> None:
    """The text of pydantic's errors quotes what it was given."""
    assert describe_problem(damaged_error()) == "ValidationError: what is stored is no ThreadPlace"
