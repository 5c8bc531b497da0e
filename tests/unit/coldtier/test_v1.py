"""Version 1 snapshots are taken over without losing a byte, written back, and never trusted blindly."""

import gzip
import tracemalloc
from typing import Any

import orjson
import pytest

from helix_temporal.blobs import Blob
from helix_temporal.blobs.protocol import etag_of
from helix_temporal.coldtier.zeitlich import V1Snapshots
from helix_temporal.coldtier.zeitlich_format import decode_snapshot, inflate_gzip
from helix_temporal.errors import (
    ArchiveCorruptError,
    HelixError,
    InvalidConfigError,
    InvalidRequestError,
    LegacyWriterActiveError,
    ThreadExistsError,
    ThreadNotFoundError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models.messages import Message, ToolCall, decode_message, encode_message
from helix_temporal.models.stored_messages import EMPTY
from helix_temporal.session.record import SessionRecord
from helix_temporal.stores.protocols.threads import Create, ForkThread, ReadPage, Reopen
from helix_temporal.testing.contracts._threads_base import LATER, Author, pages
from tests.unit.coldtier._tiers import Tiers
from tests.unit.coldtier._v1_files import (
    KEY,
    STATE,
    anthropic,
    body,
    google,
    lang_chain,
    packed,
    snapshot,
    text,
)


def tiers_with(data: bytes | None = None, key: str = KEY, **settings: Any) -> Tiers:
    """Both tiers, and perhaps a version 1 object in the bucket."""
    tiers = Tiers()
    tiers.legacy = V1Snapshots(tiers.blobs, **settings)
    tiers.threads = tiers.worker()
    if data is not None:
        tiers.bucket._blobs[key] = blob(data)
    return tiers


def blob(data: bytes) -> Any:
    """As the bucket keeps it."""
    return Blob(data, etag_of(data))


async def rows(author: Author, count: int | None = None) -> list[str]:
    """The raw rows that the thread keeps."""
    request = ReadPage(author.thread_id, stop=count, limit=10_000, max_bytes=1 << 24)
    page = await author.threads.read(request)
    return [str(decode_message(message).content) for message in page.messages]


class TestTakingOver:
    """A thread without a manifest goes on from its version 1 snapshot."""

    @pytest.mark.parametrize("length", [0, 1, 10_000])
    async def test_every_row_is_kept_byte_for_byte(self, length: int) -> None:
        """Also the empty thread, and the long one."""
        wanted = [anthropic(n) for n in range(length)]
        tiers = tiers_with(snapshot(wanted, STATE))
        author = Author(tiers.threads, "t")
        opened = await author.open(create=Create.NEVER)
        assert (opened.created, opened.header.committed) == (False, length)
        assert await rows(author) == wanted
        await author.turn("goes on")
        await author.go_cold()
        assert await rows(author, length) == wanted

    @pytest.mark.parametrize(
        ("row", "adapter"), [(anthropic, "anthropic"), (google, "googleGenAI"), (lang_chain, "langChain")]
    )
    async def test_rows_keep_their_ids_and_name_their_format(self, row: Any, adapter: str) -> None:
        """What an adapter needs to convert them later."""
        tiers = tiers_with(snapshot([row(0), row(1)]))
        opened = await Author(tiers.threads, "t").open()
        found = [decode_message(r) for r in await Author(tiers.threads, "t").everything()]
        assert [message.id for message in found] == ["m-0", "m-1"]
        assert {(message.role, message.format) for message in found} == {
            ("foreign", f"zeitlich-v1/{adapter}")
        }
        assert opened.header.adapter == adapter

    async def test_the_session_s_adapter_names_the_format(self) -> None:
        """Version 1 does not store it."""
        tiers = tiers_with(snapshot(["{}"]))
        opened = await Author(tiers.threads, "t").open(adapter="own")
        record = (await Author(tiers.threads, "t").everything())[0]
        assert (opened.header.adapter, decode_message(record).format) == ("own", "zeitlich-v1/own")

    async def test_rows_of_another_adapter_are_refused(self) -> None:
        """Rather than given to code that can't read them."""
        tiers = tiers_with(snapshot([google(0)]))
        with pytest.raises(InvalidRequestError, match="'googleGenAI', not 'anthropic'"):
            await Author(tiers.threads, "t").open(adapter="anthropic")
        assert await tiers.keys() == []

    async def test_rows_without_a_usable_id_get_one(self) -> None:
        """From the list of dedup ids where that fits, else of their place and content."""
        tiers = tiers_with(
            snapshot([text({"a": 1}), text({"id": "same"}), text({"id": "same"}), text({"id": ""})],
                     dedupIds=["d-0", "d-1", "same", "x\ny"])
        )  # fmt: skip
        await Author(tiers.threads, "t").open()
        ids = [message.id for message in await Author(tiers.threads, "t").everything()]
        assert ids[:2] == ["d-0", "same"]
        assert [name[:5] for name in ids[2:]] == ["v1-2-", "v1-3-"]
        assert len(set(ids)) == 4

    async def test_the_state_becomes_the_session_s_values(self) -> None:
        """Tasks and custom values are where an application looks for them."""
        tiers = tiers_with(snapshot([anthropic(0)], STATE))
        opened = await Author(tiers.threads, "t").open()
        assert SessionRecord.model_validate_json(opened.header.slice).values == STATE
        assert opened.header.slice_version == 1

    async def test_no_state_is_no_slice(self) -> None:
        """Null is what version 1 writes for none."""
        tiers = tiers_with(snapshot([anthropic(0)], None))
        opened = await Author(tiers.threads, "t").open(state=b"default")
        assert (opened.header.slice, opened.header.slice_version) == (b"", 0)

    async def test_uncompressed_snapshots_are_found(self) -> None:
        """The setting may have been toggled: version 1 then lost sight of all archives."""
        tiers = tiers_with(body([anthropic(0)]), "threads/messages/t.json")
        await Author(tiers.threads, "t").open(create=Create.NEVER)
        assert await rows(Author(tiers.threads, "t")) == [anthropic(0)]

    @pytest.mark.parametrize(
        ("settings", "key"),
        [
            ({"prefix": ""}, "messages/t.json.gz"),
            ({"prefix": "/prod/threads/"}, "prod/threads/messages/t.json.gz"),
            ({"thread_key": "chat"}, "threads/chat/t.json.gz"),
            ({"prefix": "", "thread_key": ""}, "t.json.gz"),
        ],
        ids=str,
    )
    async def test_keys_are_those_of_version_1(self, settings: dict[str, str], key: str) -> None:
        """Parts joined by slashes, empty ones left away."""
        tiers = tiers_with(snapshot([anthropic(0)]), key, **settings)
        assert (await Author(tiers.threads, "t").open(create=Create.NEVER)).header.committed == 1

    async def test_new_refuses_a_version_1_thread(self) -> None:
        """It exists, though nobody has opened it here."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        with pytest.raises(ThreadExistsError):
            await Author(tiers.threads, "t").open(create=Create.NEW)
        assert await tiers.keys() == []

    async def test_a_reopen_is_not_satisfied_by_an_old_snapshot(self) -> None:
        """Who had the thread open knew a manifest; its loss must not be hidden."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        with pytest.raises(ThreadNotFoundError):
            await Author(tiers.threads, "t").open(reopen=Reopen(EMPTY, EMPTY))

    async def test_a_deleted_thread_is_not_taken_over_again(self) -> None:
        """The old snapshot still lies there."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        author = Author(tiers.threads, "t")
        await author.open()
        await tiers.threads.delete("t", author.epoch)
        with pytest.raises(ThreadNotFoundError):
            await author.facts()
        opened = await author.later().open()
        assert (opened.created, opened.header.head) == (True, EMPTY)

    async def test_the_snapshot_is_left_as_it_is(self) -> None:
        """A roll-back stays possible."""
        data = snapshot([anthropic(0)])
        tiers = tiers_with(data)
        author = Author(tiers.threads, "t")
        await author.open()
        await author.turn()
        await author.flush()
        found = await tiers.bucket.get(KEY)
        assert found is not None
        assert found.data == data

    @pytest.mark.parametrize("thread_id", ["/t", "t/", "a//b", "..", "a/../b", "a\\b", "x" * 256])
    async def test_ids_that_version_1_can_not_keep_apart_have_no_snapshot(self, thread_id: str) -> None:
        """``/t`` and ``t`` were one object there."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        assert (await Author(tiers.threads, thread_id).open()).created


class TestBeforeTakingOver:
    """A snapshot can be looked at, forked and imported although nobody has opened its thread."""

    async def test_it_is_read_page_by_page(self) -> None:
        """Without writing anything."""
        wanted = [anthropic(n) for n in range(10)]
        tiers = tiers_with(snapshot(wanted))
        found = await pages(tiers.threads, ReadPage("t", limit=3))
        assert [len(page) for page in found] == [3, 3, 3, 1]
        assert await rows(Author(tiers.threads, "t")) == wanted
        assert await tiers.keys() == []

    async def test_it_has_facts(self) -> None:
        """No epoch yet."""
        tiers = tiers_with(snapshot([anthropic(0), anthropic(1)], STATE))
        facts = await tiers.threads.read_facts("t")
        assert (facts.head.position, facts.committed, facts.epoch, facts.hot) == (2, 2, 0, False)
        assert facts.adapter == "anthropic"

    async def test_it_is_forked(self) -> None:
        """The source is imported on the way."""
        tiers = tiers_with(snapshot([anthropic(n) for n in range(4)]))
        await tiers.threads.fork(ForkThread("t", "copy", LATER, "forker", at=2))
        assert await rows(Author(tiers.threads, "copy")) == [anthropic(0), anthropic(1)]

    async def test_it_is_imported_by_request(self) -> None:
        """Beforehand, with the adapter named; an open then goes on from it."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        facts = await tiers.threads.import_v1("t", "anthropic")
        assert (facts.committed, facts.adapter, facts.epoch) == (1, "anthropic", 0)
        assert await tiers.threads.import_v1("t") == facts
        opened = await Author(tiers.threads, "t").open(create=Create.NEVER)
        assert (opened.created, opened.header.committed) == (False, 1)

    async def test_what_is_not_there_cannot_be_imported(self) -> None:
        """A mistyped id."""
        with pytest.raises(ThreadNotFoundError, match="no version 1 snapshot"):
            await tiers_with().threads.import_v1("t")

    async def test_an_import_never_replaces_a_thread(self) -> None:
        """Neither an archived nor a hot one."""
        tiers = tiers_with()
        author = await tiers.author()
        await author.turn()
        tiers.bucket._blobs[KEY] = blob(snapshot([anthropic(0)]))
        with pytest.raises(ThreadExistsError):
            await tiers.threads.import_v1("t")

    async def test_without_a_place_for_them_there_is_no_import(self) -> None:
        """The message says what to configure."""
        with pytest.raises(InvalidConfigError, match="legacy"):
            await Tiers().threads.import_v1("t")


class TestAnOldWriter:
    """A snapshot that changes after it was taken over means that version 1 still writes."""

    async def test_it_is_found_at_open(self) -> None:
        """Whether the thread is hot or cold."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        author = Author(tiers.threads, "t")
        await author.open()
        tiers.bucket._blobs[KEY] = blob(snapshot([anthropic(0), anthropic(1)]))
        before = await author.image()
        with pytest.raises(LegacyWriterActiveError):
            await author.later().open()
        assert await author.image() == before
        await author.go_cold()
        with pytest.raises(LegacyWriterActiveError):
            await author.later().open()

    async def test_it_is_found_at_import(self) -> None:
        """A second import must not look as if all were well."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        await tiers.threads.import_v1("t")
        tiers.bucket._blobs[KEY] = blob(snapshot([anthropic(1)]))
        with pytest.raises(LegacyWriterActiveError):
            await tiers.threads.import_v1("t")

    async def test_a_snapshot_that_was_cleaned_up_is_no_writer(self) -> None:
        """Removing it is the last step of a migration."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        author = Author(tiers.threads, "t")
        await author.open()
        await tiers.bucket.delete(KEY)
        assert (await author.later().open()).header.committed == 1


def generic(message_id: str, role: str, content: str) -> str:
    """The envelope of messages that did not come from version 1."""
    return f'{{"id":"{message_id}","message":{{"role":"{role}","content":"{content}"}}}}'


class TestWritingBack:
    """A thread can be given back to version 1."""

    async def test_foreign_rows_are_written_as_they_were(self) -> None:
        """Byte for byte, and the state, too: a thread that nobody changed gives the same snapshot."""
        data = snapshot([anthropic(n) for n in range(5)], STATE)
        tiers = tiers_with(data)
        await tiers.threads.import_v1("t")
        assert await tiers.threads.export_v1("t") == KEY
        found = await tiers.bucket.get(KEY)
        assert found is not None
        assert orjson.loads(gzip.decompress(found.data)) == orjson.loads(gzip.decompress(data))
        assert found.data[:10] == bytes.fromhex("1f8b0800000000000003")

    async def test_our_own_messages_get_the_generic_envelope(self) -> None:
        """Members in version 1's order; tool calls and results are not lost."""
        tiers = tiers_with()
        author = await tiers.author()
        step = author.step(
            encode_message(Message(id="u1", role="user", content="hi")),
            answer=encode_message(
                Message(id="a1", role="assistant", tool_calls=(ToolCall(id="c", name="look"),))
            ),
            commits=False,
        )
        await author.append(step)
        results = encode_message(Message(id="r1", role="tool", content="42", tool_call_id="c"))
        final = encode_message(Message(id="a2", role="assistant", content="ü"))
        await author.append(author.step(results, answer=final))
        await tiers.threads.export_v1("t", instructions="be brief")
        found = await tiers.bucket.get(KEY)
        assert found is not None
        fields = orjson.loads(gzip.decompress(found.data))
        assert list(fields) == ["v", "messages", "state", "dedupIds"]
        assert fields["dedupIds"] == ["instructions", "u1", "a1", "r1", "a2"]
        assert fields["messages"][0] == generic("instructions", "system", "be brief")
        assert fields["messages"][1] == generic("u1", "user", "hi")
        assert fields["messages"][4] == generic("a2", "assistant", "ü")
        assert orjson.loads(fields["messages"][2])["message"]["tool_calls"] == [{"id": "c", "name": "look"}]

    async def test_an_export_can_be_imported_again(self) -> None:
        """Into another deployment."""
        tiers = tiers_with(snapshot([anthropic(0)], STATE))
        await tiers.threads.import_v1("t")
        await tiers.threads.export_v1("t")
        found = await tiers.bucket.get(KEY)
        assert found is not None
        other = tiers_with(found.data)
        assert await rows(Author(other.threads, "t")) == [anthropic(0)]

    async def test_our_own_export_is_not_taken_for_an_old_writer(self) -> None:
        """The manifest remembers what was written."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        author = Author(tiers.threads, "t")
        await author.open()
        await tiers.threads.export_v1("t", instructions="new first row")
        assert (await author.later().open()).header.committed == 1

    async def test_an_export_twice_is_an_export_once(self) -> None:
        """The same messages have the same bytes."""
        tiers = tiers_with(snapshot([anthropic(0)]))
        await tiers.threads.import_v1("t")
        await tiers.threads.export_v1("t")
        first = await tiers.bucket.get(KEY)
        await tiers.threads.export_v1("t")
        assert await tiers.bucket.get(KEY) == first

    async def test_an_export_never_replaces_somebody_else_s_snapshot(self) -> None:
        """A thread of ours and one of theirs had the same id."""
        tiers = tiers_with()
        await tiers.author()
        tiers.bucket._blobs[KEY] = blob(snapshot([anthropic(0)]))
        with pytest.raises(LegacyWriterActiveError):
            await tiers.threads.export_v1("t")
        assert (await tiers.bucket.get(KEY)) == blob(snapshot([anthropic(0)]))

    async def test_a_thread_that_is_not_there_cannot_be_exported(self) -> None:
        """Nothing is written."""
        tiers = tiers_with()
        with pytest.raises(ThreadNotFoundError):
            await tiers.threads.export_v1("t")

    async def test_values_of_our_own_become_custom_state(self) -> None:
        """Version 1 has no other place for them."""
        tiers = tiers_with()
        author = await tiers.author()
        await author.threads.save_slice("t", author.epoch, b'{"values":{"a":1},"turns":3}', 0)
        await tiers.threads.export_v1("t")
        found = await tiers.bucket.get(KEY)
        assert found is not None
        assert orjson.loads(gzip.decompress(found.data))["state"] == {"tasks": [], "custom": {"a": 1}}


GOOD = snapshot([anthropic(0), anthropic(1)], STATE)


class TestDamage:
    """Whatever lies at the key: a typed error, and both tiers as they were."""

    @staticmethod
    async def refused(data: bytes, error: type[HelixError], why: str, **settings: Any) -> None:
        """Opening fails like this, and leaves nothing anywhere."""
        tiers = tiers_with(data, **settings)
        with pytest.raises(error, match=why):
            await Author(tiers.threads, "t").open()
        assert (await tiers.keys(), await tiers.hot.read_header("t")) == ([], None)
        assert not error.retryable

    @pytest.mark.parametrize("length", [0, 1, 9, 10, 20, len(GOOD) // 2, len(GOOD) - 8, len(GOOD) - 1])
    async def test_a_truncated_one(self, length: int) -> None:
        """Row 37."""
        await self.refused(GOOD[:length], ArchiveCorruptError, "truncated")

    async def test_a_flipped_bit(self) -> None:
        """Row 37: any bit behind gzip's header; its own checksum tells, whatever the JSON looks like."""
        undetected = []
        for bit in range(10 * 8, len(GOOD) * 8):
            changed = bytearray(GOOD)
            changed[bit // 8] ^= 1 << bit % 8
            try:
                decode_snapshot(inflate_gzip(bytes(changed), 1 << 20, "it"), "", "it")
            except ArchiveCorruptError:
                continue
            undetected.append(bit)
        assert undetected == []

    @pytest.mark.parametrize("tail", [b"\x00", b"x", GOOD], ids=["zero", "byte", "second member"])
    async def test_one_with_something_behind_it(self, tail: bytes) -> None:
        """Row 37: plain decompression would accept a second member."""
        await self.refused(GOOD + tail, ArchiveCorruptError, "trailing data")

    async def test_one_that_expands_without_end(self) -> None:
        """Row 36: a fifth of a megabyte that becomes two hundred never fills the memory."""
        bomb = packed(b" " * 200_000_000)
        assert len(bomb) < 200_000
        tracemalloc.start()
        await self.refused(bomb, TooLargeError, "expands past 8388608 bytes", max_bytes=8 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20

    async def test_a_large_uncompressed_one(self) -> None:
        """The same limit."""
        tiers = tiers_with(body([anthropic(0)] * 100), "threads/messages/t.json", max_bytes=1000)
        with pytest.raises(TooLargeError, match="> 1000 bytes"):
            await Author(tiers.threads, "t").open()

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (body([anthropic(0)]).decode().encode("utf-16"), "not UTF-8"),
            (b"\xef\xbb\xbf" + body([anthropic(0)]), "byte order mark"),
            (b"", "not JSON"),
            (b"<html>", "not JSON"),
            (b"null", "no field v"),
            (b"[]", "no field v"),
            (b"{}", "no field v"),
            (body([], v="1"), "v is no number"),
            (body([], v=True), "v is no number"),
            (body([], v=1.0), "v is no number"),
            (body([], messages=...), "messages is no list"),
            (body([], messages={}), "messages is no list"),
            (body([], messages=[1]), "messages is no list"),
            (body([], dedupIds=...), "dedupIds is no list"),
            (body([], dedupIds=[None]), "dedupIds is no list"),
            (body([], state=...), "state is neither"),
            (body([], state=[1]), "state is neither"),
            (body([], state="x"), "state is neither"),
            (body(["not json"]), "row 0: not JSON"),
            (body([anthropic(0), "[]"]), "row 1: no JSON object"),
            (body(["null"]), "row 0: no JSON object"),
            (body(['{"id":"a","id":"b"}']), "row 0: duplicate key 'id'"),
            (body(['{"x":NaN}']), "row 0: non-finite number NaN"),
            (body(['{"x":1e999}']), "row 0: non-finite number"),
            (body(['{"x":-Infinity}']), "non-finite number -Infinity"),
            (b'{"v":1,"v":1,"messages":[],"state":null,"dedupIds":[]}', "duplicate key 'v'"),
            (b'{"v":1,"messages":[],"state":{"a":NaN},"dedupIds":[]}', "non-finite number"),
            (b'{"v":1,"messages":[],"state":{"a":1e999},"dedupIds":[]}', "non-finite number"),
            (body([])[:-1] + b',"x":' + b"9" * 5000 + b"}", "not JSON"),
            (b"[" * 100_000 + b"]" * 100_000, "no field v"),
            (body([anthropic(0)])[:-1] + b',"\xff":1}', "not UTF-8"),
        ],
        ids=lambda value: str(value)[:30],
    )
    async def test_one_that_is_no_snapshot(self, data: bytes, why: str) -> None:
        """Rows 22, 23, 26, 27 and 38: version 1 took such for empty, or tried again for 22 minutes."""
        await self.refused(packed(data), ArchiveCorruptError, why)

    async def test_one_of_a_later_version(self) -> None:
        """Version 1 code accepted it silently."""
        await self.refused(snapshot([], v=2), UnsupportedFormatError, "v 2 found, 1 expected")

    async def test_lone_surrogates_in_a_row_are_kept(self) -> None:
        """Half an emoji is escaped text to us, and comes back as it was."""
        row = r'{"id":"m-0","message":{"role":"user","content":"\ud83d cut \u0000"}}'
        tiers = tiers_with(snapshot([row]))
        await Author(tiers.threads, "t").open()
        assert await rows(Author(tiers.threads, "t")) == [row]
