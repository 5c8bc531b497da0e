"""The contract of `PayloadStore`.

::

    class TestMyPayloads(PayloadContract):
        @pytest.fixture
        async def payloads(self): ...  # an empty store
"""

import asyncio
from typing import Final

from helix_temporal.stores.protocols.hot import PayloadStore

__all__ = ["PayloadContract"]

_LONG: Final = 256
"""Characters of a long key: some stores have to shorten names."""


class PayloadContract:
    """All of it."""

    async def test_a_payload_comes_back_as_it_was(self, payloads: PayloadStore) -> None:
        """Tool results may be any bytes."""
        await payloads.put_payload("t", "k", bytes(range(256)), 60)
        assert await payloads.get_payload("t", "k") == bytes(range(256))

    async def test_what_was_never_put_is_not_there(self, payloads: PayloadStore) -> None:
        """Neither of a thread that has others, nor of one that has none."""
        await payloads.put_payload("t", "k", b"x", 60)
        assert await payloads.get_payload("t", "another") is None
        assert await payloads.get_payload("another", "k") is None

    async def test_the_same_key_overwrites(self, payloads: PayloadStore) -> None:
        """A tool's second attempt replaces what the first one left."""
        await payloads.put_payload("t", "k", b"one", 60)
        await payloads.put_payload("t", "k", b"", 60)
        assert await payloads.get_payload("t", "k") == b""

    async def test_threads_and_keys_do_not_mix(self, payloads: PayloadStore) -> None:
        """Separators inside ids separate nothing."""
        await payloads.put_payload("a:payload:b", "c", b"one", 60)
        await payloads.put_payload("a", "b:payload:c", b"two", 60)
        await payloads.put_payload("a", "x" * _LONG, b"three", 60)
        await payloads.put_payload("a", "x" * (_LONG - 1) + "y", b"four", 60)
        assert await payloads.get_payload("a:payload:b", "c") == b"one"
        assert await payloads.get_payload("a", "b:payload:c") == b"two"
        assert await payloads.get_payload("a", "x" * _LONG) == b"three"
        assert await payloads.get_payload("a", "b") is None

    async def test_a_deleted_payload_is_gone(self, payloads: PayloadStore) -> None:
        """Deleting twice is deleting once."""
        await payloads.put_payload("t", "k", b"x", 60)
        await payloads.delete_payload("t", "k")
        await payloads.delete_payload("t", "k")
        assert await payloads.get_payload("t", "k") is None

    async def test_a_deleted_thread_takes_its_payloads_along(self, payloads: PayloadStore) -> None:
        """Whoever has a conversation deleted has all of it deleted, and no other."""
        for thread_id in ("t", "other"):
            for key in ("a", "x" * _LONG):
                await payloads.put_payload(thread_id, key, b"x", 60)
        await payloads.delete_payloads("t")
        await payloads.delete_payloads("t")
        assert [await payloads.get_payload("t", key) for key in ("a", "x" * _LONG)] == [None, None]
        assert [await payloads.get_payload("other", key) for key in ("a", "x" * _LONG)] == [b"x", b"x"]

    async def test_a_payload_goes_by_itself(self, payloads: PayloadStore) -> None:
        """Nobody may be left to delete it: its run was terminated."""
        await payloads.put_payload("t", "k", b"x", 0.02)
        for _ in range(200):
            if await payloads.get_payload("t", "k") is None:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it is still there after ten seconds")

    async def test_a_megabyte_fits(self, payloads: PayloadStore) -> None:
        """A tool's result may be as large as a message."""
        data = bytes(1024 * 1024)
        await payloads.put_payload("t", "k", data, 60)
        assert await payloads.get_payload("t", "k") == data

    async def test_puts_at_the_same_time_leave_one_of_them_whole(self, payloads: PayloadStore) -> None:
        """Attempts of a call may overlap."""
        each = [bytes([number]) * 4096 for number in range(8)]
        await asyncio.gather(*(payloads.put_payload("t", "k", data, 60) for data in each))
        assert await payloads.get_payload("t", "k") in each
