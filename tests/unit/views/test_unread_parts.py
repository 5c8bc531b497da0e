"""What cannot be read is not told as absent: a store that is away, or damage, has an error of its own."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from helix_temporal.backends import Backends
from helix_temporal.client import SessionStores
from helix_temporal.errors import (
    ArchiveCorruptError,
    NotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from helix_temporal.settings import Settings
from helix_temporal.testing.faults import BlobFault
from helix_temporal.views import patience
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
    with pytest.raises(NotFoundError, match=f"it ends at {2 * TURNS}$"):
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


async def test_what_is_not_known_of_a_session_is_not_told_as_zero(archived: Archived) -> None:
    """Somebody who reads 0 messages while S3 is away believes that the conversation is lost."""
    await archived.author.go_cold()
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    found = await archived.views.get_session("t")
    page = await archived.views.read_turns("t")
    assert (found.messages, found.turns, page.committed, page.head) == (None, None, None, None)
    assert found.place is not None
    assert (found.place.hot, found.place.messages, found.place.bytes) == (False, None, None)
    assert (found.place.unarchived, found.place.epoch) == (0, None)


async def test_the_end_of_a_hot_thread_is_known_without_the_archive(archived: Archived) -> None:
    """Only what lies in the archive is unknown while that is away."""
    archived.tiers.blobs.fail(BlobFault.ERROR_BEFORE, times=1_000)
    page = await archived.views.read_turns("t", after=2 * TURNS)
    found = await archived.views.get_session("t")
    assert (page.turns, page.committed, page.head, found.messages) == ((), 80, 80, 80)


class SilentHot:
    """A hot store whose connection is open, and which answers nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def read_header(self, *_: Any) -> None:
        """Waits for ever."""
        self.asked += 1
        await asyncio.Event().wait()

    read_page = read_snapshot = read_header


async def test_a_silent_hot_store_is_not_told_as_a_silent_archive(
    archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis hangs, and S3 is sound: the one is looked after that is named."""
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    threads, silent = archived.tiers.worker(), SilentHot()
    monkeypatch.setattr(threads, "_unrepaired", silent)
    found = await SessionViews(replace(archived.stores, threads=threads)).get_session("t")
    assert found.problem is not None
    assert found.problem.startswith("StoreUnavailableError: the hot store did not answer within 0.05 s")
    assert found.place is not None
    assert (found.place.hot, found.place.bytes) == (None, None)


async def test_a_page_waits_once_for_a_silent_store(
    archived: Archived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a turn waited four times as long for a hanging S3 as for one answer."""
    monkeypatch.setattr(patience, "PATIENCE", 0.3)
    await archived.author.go_cold()
    archived.tiers.blobs.fail(BlobFault.DELAYED, times=1_000)
    archived.tiers.blobs.forget()
    views = archived.views
    await views.get_session("t")
    await views.read_turns("t")
    await views.get_place("t")
    assert await archived.tiers.blobs.release() == 1


async def test_a_store_that_was_silent_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long command goes on when the store is back."""
    now = [100.0]
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waits, back = patience.Patience("the archive", 0.01), asyncio.Event()
    with pytest.raises(StoreUnavailableError, match=r"the archive did not answer within 0\.01 s"):
        await waits.wait(back.wait)
    back.set()
    with pytest.raises(StoreUnavailableError):
        await waits.wait(back.wait)
    now[0] += patience._REMEMBERED
    assert await waits.wait(back.wait)


async def test_the_patience_follows_the_time_that_settings_give_s3(archived: Archived) -> None:
    """A slow archive can be shown by whoever raises the limit of its answers."""
    settings = Settings.from_env({"HELIX_TIMEOUT_S3_READ": "30s"})
    backends = Backends(settings)
    assert patience.choose_patience(backends) == 30
    await backends.close()
    assert patience.choose_patience(archived.stores) == 4
