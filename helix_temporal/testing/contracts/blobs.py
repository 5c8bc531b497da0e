"""The promises of every blob store.

Bind a store with one class and one fixture::

class TestMyBlobs(BlobStoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[BlobStore]: ...
"""

import asyncio
import os

import pytest

from helix_temporal.blobs import Blob, BlobStore, ConditionFailedError
from helix_temporal.errors import InvalidRequestError

CONTENDERS = 16
CONTENDED_KEYS = ["c/1", "c/2", "c/3", "c/4"]

GOOD_KEYS = [
    "plain",
    "UPPER/Case",
    "ünï/çödé/日本",
    "e\u0301",
    "a..b/c.d/..hidden/x..",
    "sp ace+plus%41&=?#",
    "~x/!*'()@:,;$",
    "t/manifest.blob/x.blob",
    "deep/" * 20 + "end",
    "s" * 250,
    "日" * 60,
]
BAD_KEYS = ["", "/lead", "trail/", "a//b", ".", "..", "a/../b", "a/./b", "back\\slash", "nul\0", "new\nline",
            "x" * 1025, "\ud800"]  # fmt: skip


async def keys_of(store: BlobStore, prefix: str) -> list[str]:
    """The keys of a listing, sorted."""
    return sorted([info.key async for info in store.list(prefix)])


async def won(store: BlobStore, key: str, data: bytes, *, if_match: str | None = None) -> bytes | None:
    """Contend for a key, created or replaced; the data if it was accepted."""
    try:
        await store.put(key, data, create=if_match is None, if_match=if_match)
    except ConditionFailedError:
        return None
    return data


async def contend(store: BlobStore, key: str, *, if_match: str | None = None) -> list[bytes]:
    """Sixteen writers at once; what those wrote who were told that they won."""
    bodies = [f"{key} by {number}".encode() for number in range(CONTENDERS)]
    answers = await asyncio.gather(*(won(store, key, body, if_match=if_match) for body in bodies))
    return [answer for answer in answers if answer is not None]


async def put_before_all(store: BlobStore) -> str:
    """Something to be replaced under each contended key; all have the same etag."""
    etags = {await store.put(key, b"before") for key in CONTENDED_KEYS}
    return etags.pop()


class _Abstract:
    @pytest.fixture
    async def store(self) -> BlobStore:
        """The store under test, empty."""
        raise NotImplementedError("bind a store: override the fixture `store`")


class BlobStoreContract(_Abstract):
    """What `BlobStore` promises."""

    async def test_a_missing_object_is_none(self, store: BlobStore) -> None:
        """Never archived and not reachable must not look alike, so absence is a value."""
        assert await store.get("missing") is None

    async def test_an_object_comes_back_as_it_was_put(self, store: BlobStore) -> None:
        """Archives are bytes; nothing may decode, trim or compress them."""
        data = bytes(range(256)) + b"\r\n\0\n" + b"\xff\xfe"
        etag = await store.put("binary", data)
        assert await store.get("binary") == Blob(data, etag)

    async def test_an_empty_object_is_there(self, store: BlobStore) -> None:
        """No bytes is something else than no object."""
        etag = await store.put("empty", b"")
        assert await store.get("empty") == Blob(b"", etag)

    async def test_eight_mebibytes_come_back_whole(self, store: BlobStore) -> None:
        """Segments are large and written in one request."""
        data = os.urandom(8 << 20)
        await store.put("large", data)
        found = await store.get("large")
        assert found is not None
        assert found.data == data

    async def test_a_plain_put_overwrites(self, store: BlobStore) -> None:
        """Without a condition the last writer wins."""
        await store.put("key", b"long first value")
        await store.put("key", b"second")
        found = await store.get("key")
        assert found is not None
        assert found.data == b"second"

    async def test_an_etag_is_opaque_text_without_quotes(self, store: BlobStore) -> None:
        """It goes into If-Match as it is."""
        etag = await store.put("key", b"data")
        assert etag
        assert '"' not in etag

    async def test_the_same_bytes_have_the_same_etag(self, store: BlobStore) -> None:
        """As on AWS; whoever compares etags must make its contents differ."""
        first = await store.put("key", b"same")
        await store.put("key", b"other")
        assert await store.put("key", b"same") == first

    async def test_create_writes_what_is_not_there(self, store: BlobStore) -> None:
        """The first manifest of a thread."""
        etag = await store.put("key", b"first", create=True)
        assert await store.get("key") == Blob(b"first", etag)

    async def test_create_refuses_what_is_there(self, store: BlobStore) -> None:
        """Two that create the same thread must not both believe it is theirs."""
        etag = await store.put("key", b"first", create=True)
        with pytest.raises(ConditionFailedError):
            await store.put("key", b"second", create=True)
        assert await store.get("key") == Blob(b"first", etag)

    async def test_create_refuses_even_the_same_bytes(self, store: BlobStore) -> None:
        """The condition is about being there, not about what is there."""
        await store.put("key", b"same", create=True)
        with pytest.raises(ConditionFailedError):
            await store.put("key", b"same", create=True)

    async def test_create_works_again_after_delete(self, store: BlobStore) -> None:
        """Deleting leaves nothing behind that a condition could see."""
        await store.put("key", b"first", create=True)
        await store.delete("key")
        await store.put("key", b"second", create=True)
        assert (await store.get("key") or Blob(b"", "")).data == b"second"

    async def test_if_match_replaces_what_was_read(self, store: BlobStore) -> None:
        """Compare-and-swap moves a manifest."""
        await store.put("key", b"first")
        read = await store.get("key")
        assert read is not None
        etag = await store.put("key", b"second", if_match=read.etag)
        assert await store.get("key") == Blob(b"second", etag)

    async def test_a_stale_if_match_changes_nothing(self, store: BlobStore) -> None:
        """Else an archive would be replaced by an older one."""
        stale = await store.put("key", b"first")
        current = await store.put("key", b"second", if_match=stale)
        with pytest.raises(ConditionFailedError):
            await store.put("key", b"third", if_match=stale)
        assert await store.get("key") == Blob(b"second", current)

    async def test_if_match_on_a_missing_object_writes_nothing(self, store: BlobStore) -> None:
        """A manifest that was deleted must not come back by a late writer."""
        etag = await store.put("other", b"data")
        with pytest.raises(ConditionFailedError):
            await store.put("key", b"data", if_match=etag)
        assert await store.get("key") is None

    async def test_a_put_with_both_conditions_is_refused(self, store: BlobStore) -> None:
        """Servers disagree about what it means."""
        with pytest.raises(InvalidRequestError):
            await store.put("key", b"data", create=True, if_match="0" * 32)
        assert await store.get("key") is None

    async def test_one_of_many_creators_wins(self, store: BlobStore) -> None:
        """Every open and every first flush leans on it."""
        winners = await asyncio.gather(*(contend(store, key) for key in CONTENDED_KEYS))
        found = await asyncio.gather(*(store.get(key) for key in CONTENDED_KEYS))
        assert winners == [[blob and blob.data] for blob in found]

    async def test_one_of_many_replacers_wins(self, store: BlobStore) -> None:
        """Every later commit of a manifest leans on it."""
        etag = await put_before_all(store)
        winners = await asyncio.gather(*(contend(store, key, if_match=etag) for key in CONTENDED_KEYS))
        found = await asyncio.gather(*(store.get(key) for key in CONTENDED_KEYS))
        assert winners == [[blob and blob.data] for blob in found]

    async def test_readers_never_see_a_part(self, store: BlobStore) -> None:
        """A reader meets the old or the new object, whole, while it is replaced."""
        bodies = {bytes([letter]) * (256 << 10) for letter in b"abcd"}
        await store.put("key", next(iter(bodies)))

        async def read() -> set[bytes]:
            found = [await store.get("key") for _ in range(10)]
            return {blob.data if blob else b"" for blob in found}

        writing = asyncio.gather(*(store.put("key", body) for body in bodies))
        seen, also_seen, _ = await asyncio.gather(read(), read(), writing)
        assert seen | also_seen <= bodies

    @pytest.mark.parametrize("key", GOOD_KEYS)
    async def test_a_good_key_is_kept_as_it_is(self, store: BlobStore, key: str) -> None:
        """What is written under a key is read and listed under that key."""
        await store.put(key, key.encode())
        found = await store.get(key)
        assert found is not None
        assert found.data == key.encode()
        assert await keys_of(store, key) == [key]

    @pytest.mark.parametrize("key", BAD_KEYS)
    async def test_a_key_that_could_mean_another_is_refused(self, store: BlobStore, key: str) -> None:
        """Servers and disks fold or follow such keys; two threads could share an object."""
        with pytest.raises(InvalidRequestError):
            await store.put(key, b"data")
        with pytest.raises(InvalidRequestError):
            await store.get(key)
        assert await keys_of(store, "") == []

    async def test_keys_that_look_alike_are_different(self, store: BlobStore) -> None:
        """Neither case, nor Unicode form, nor escapes, nor a folder of the same name confuse them."""
        keys = ["k", "K", "k/k", "k.blob", "k%", "k%25", "\u00e9", "e\u0301", "~", "~7e", "%7e"]
        for key in keys:
            await store.put(key, key.encode())
        found = [await store.get(key) for key in keys]
        assert [blob and blob.data.decode() for blob in found] == keys
        assert await keys_of(store, "") == sorted(keys)

    async def test_a_listing_holds_all_that_starts_with_the_prefix(self, store: BlobStore) -> None:
        """A prefix is text, not a folder: it may end within a name."""
        for key in ("a/1", "a/10", "a/2", "ab/1", "a", "b/a/1"):
            await store.put(key, b"")
        assert await keys_of(store, "a/") == ["a/1", "a/10", "a/2"]
        assert await keys_of(store, "a/1") == ["a/1", "a/10"]
        assert await keys_of(store, "a") == ["a", "a/1", "a/10", "a/2", "ab/1"]
        assert await keys_of(store, "c/") == []

    async def test_a_listing_tells_size_and_etag(self, store: BlobStore) -> None:
        """Garbage collection and audits decide by them."""
        etag = await store.put("t/key", b"12345")
        assert [tuple(info)[:3] async for info in store.list("t/")] == [("t/key", 5, etag)]

    async def test_a_listing_tells_when_an_object_was_written(self, store: BlobStore) -> None:
        """What nobody came back for is told by its age; an overwrite and a copy are as young as a new one."""
        await store.put("old", b"1")
        await store.put("changed", b"1")
        await asyncio.sleep(1.1)  # some stores tell seconds only
        await store.put("new", b"1")
        await store.put("changed", b"2")
        await store.copy("old", "copied")
        found = {info.key: info.modified or 0.0 async for info in store.list("")}
        assert found["new"] > found["old"]
        assert min(found["changed"], found["copied"]) >= found["new"]

    async def test_a_long_listing_is_complete(self, store: BlobStore) -> None:
        """Servers answer in pages."""
        keys = sorted(f"t/{number:03}" for number in range(60))
        await asyncio.gather(*(store.put(key, b"x") for key in keys))
        assert await keys_of(store, "t/") == keys

    async def test_copy_makes_an_object_of_its_own(self, store: BlobStore) -> None:
        """Forked threads share no objects: the source may go."""
        await store.put("from/ünï+%41", b"data")
        await store.copy("from/ünï+%41", "to/copy")
        await store.put("from/ünï+%41", b"changed")
        await store.delete("from/ünï+%41")
        assert (await store.get("to/copy") or Blob(b"", "")).data == b"data"

    async def test_copy_overwrites(self, store: BlobStore) -> None:
        """A fork that is tried again copies again."""
        await store.put("source", b"new")
        await store.put("target", b"old and longer")
        await store.copy("source", "target")
        assert (await store.get("target") or Blob(b"", "")).data == b"new"

    async def test_copy_of_a_missing_object_is_refused(self, store: BlobStore) -> None:
        """The segment was collected meanwhile; the fork has to read the manifest again."""
        with pytest.raises(ConditionFailedError):
            await store.copy("missing", "target")
        assert await store.get("target") is None

    async def test_delete_removes(self, store: BlobStore) -> None:
        """Garbage collection frees what it deletes."""
        await store.put("key", b"data")
        await store.delete("key")
        assert await store.get("key") is None
        assert await keys_of(store, "") == []

    async def test_delete_may_be_repeated(self, store: BlobStore) -> None:
        """A retried collection meets what its first attempt deleted."""
        await store.put("key", b"data")
        await store.delete("key")
        await store.delete("key")
        await store.delete("never there")

    async def test_the_probe_passes_and_leaves_nothing(self, store: BlobStore) -> None:
        """A store that holds its conditions is accepted at every start."""
        await store.probe("probe")
        await store.probe("probe")
        assert await keys_of(store, "") == []

    async def test_close_may_be_repeated(self, store: BlobStore) -> None:
        """A worker that failed half-way closes what it has."""
        await store.close()
        await store.close()
