"""Where a session's messages lie, as a person sees it; a broken archive hides nothing that is hot."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from helix_temporal import Backends
from helix_temporal.errors import StoreUnavailableError
from helix_temporal.models.messages import Message
from helix_temporal.models.stored_messages import Head
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from helix_temporal.testing.builders import EPOCH, a_message, a_step, an_answer
from helix_temporal.views.sessions import SessionViews
from tests.unit.views._backends import PLACES, create, open_stores, read_refusal


@pytest.fixture(params=PLACES)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backends]:
    """A session whose last turn is not archived yet; and one without messages."""
    (tmp_path / "archive").mkdir()
    async with open_stores(request.param, tmp_path, cold_directory=tmp_path / "archive") as made:
        await create(made, "s", user_id="ann")
        await create(made, "empty")
        opened = await made.threads.open(OpenThread("s", EPOCH, "owner"))
        head = await append_turn(made, opened.header.head, "x" * 10_000)
        await archive(made)
        await append_turn(made, head, "done")
        yield made


async def append_turn(stores: Backends, head: Head, answer: str) -> Head:
    """A finished turn of two messages; where the thread stands behind it."""
    step = a_step("s", head, inputs=[a_message()], answer=an_answer(answer))
    return (await stores.threads.append(replace(step, commits=True))).head


async def archive(stores: Backends) -> None:
    """All of the thread as it is."""
    await stores.threads.flush(FlushThread("s", EPOCH))


def contents_of(directory: Path) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(each): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


async def test_a_place_tells_what_is_archived_and_what_is_not(stores: Backends) -> None:
    """Whoever is about to delete a hot store wants to know what that would lose."""
    place = await SessionViews(stores).get_place("s")
    assert (place.messages, place.unfinished, place.hot) == (4, 0, True)
    assert (place.archived, place.unarchived) == (2, 2)
    assert place.manifest_version is not None
    assert (place.epoch, place.owner, place.problem) == (EPOCH, "owner", None)


async def test_a_place_names_the_objects_that_hold_the_messages(stores: Backends) -> None:
    """With the name an operator finds the object in the bucket."""
    await archive(stores)
    place = await SessionViews(stores).get_place("s")
    assert (place.archived, place.unarchived) == (4, 0)
    borders = [(each.first, each.stop) for each in place.segments]
    assert borders[0][0] == 0
    assert borders[-1][1] == 4
    assert [stop for _, stop in borders[:-1]] == [first for first, _ in borders[1:]]
    assert stores.tiered is not None
    prefix = stores.tiered.layout.thread_prefix("s")
    objects = {info.key: info.size async for info in stores.tiered.blobs.list(prefix)}
    assert (place.objects, place.object_bytes) == (len(objects), sum(objects.values()))
    assert {prefix + each.name for each in place.segments} <= set(objects)


async def test_a_session_without_messages_has_an_empty_place(stores: Backends) -> None:
    """It was made, and nobody has said anything."""
    place = await SessionViews(stores).get_place("empty")
    assert (place.messages, place.hot, place.segments, place.objects) == (0, False, (), 0)
    assert (place.manifest_version, place.problem) == (None, None)


async def test_a_cold_session_stays_cold(stores: Backends, tmp_path: Path) -> None:
    """Looking at it would cost memory of the hot store, and hide that nobody uses it."""
    await archive(stores)
    await stores.threads.evict("s", EPOCH)
    before = contents_of(tmp_path / "archive")
    views = SessionViews(stores)
    place = await views.get_place("s")
    assert (place.hot, place.archived, place.messages) == (False, 4, 4)
    audit = await views.verify_thread("s")
    assert audit is not None
    assert audit.problems == ()
    assert not (await views.get_place("s")).hot
    assert contents_of(tmp_path / "archive") == before


async def test_an_archive_that_is_away_is_told_of(stores: Backends, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is hot is shown all the same: in an outage that is what somebody wants to see."""
    assert stores.tiered is not None
    refusal = StoreUnavailableError("the archive does not answer")
    monkeypatch.setattr(stores.tiered.blobs, "refusal", refusal)
    views = SessionViews(stores)
    place = await views.get_place("s")
    assert (place.messages, place.hot, place.segments, place.objects) == (4, True, (), None)
    assert place.problem == "StoreUnavailableError: the archive does not answer"
    with pytest.raises(StoreUnavailableError):
        await views.verify_thread("s")


async def test_a_damaged_archive_is_told_of(stores: Backends, tmp_path: Path) -> None:
    """And what is hot is shown."""
    (manifest,) = (tmp_path / "archive").rglob("s/manifest.blob")
    manifest.write_bytes(b"no manifest")
    views = SessionViews(stores)
    place = await views.get_place("s")
    assert (place.messages, place.hot) == (4, True)
    assert "ArchiveCorruptError" in (place.problem or "")
    audit = await views.verify_thread("s")
    assert audit is not None
    assert len(audit.problems) == 1


async def test_without_an_archive_there_is_nothing_to_verify(tmp_path: Path) -> None:
    """The place says so by the fields that only an archive has."""
    async with open_stores("memory", tmp_path) as stores:
        await create(stores, "s")
        await stores.sessions.append_messages("s", [Message(id="m", role="user", content="hi")])
        views = SessionViews(stores)
        place = await views.get_place("s")
        assert (place.hot, place.archived, place.manifest_version, place.objects) == (True, None, None, None)
        assert place.problem is None
        assert await views.verify_thread("s") is None


async def test_places_of_sessions_that_are_not_ones_own_are_not_there(stores: Backends) -> None:
    """As if the session were not."""
    views = SessionViews(stores, admits=lambda session: session.user_id == "bob")
    missing = (await read_refusal(views.get_place("no-such"))).replace("no-such", "s")
    assert await read_refusal(views.get_place("s")) == missing
    assert await read_refusal(views.verify_thread("s")) == missing
