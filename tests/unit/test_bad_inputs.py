"""Bad inputs, by their row in the table of the reliability reference: a clear typed error, stores unchanged.

Rows that lie where their store is built: 16–19, 35, 41 and 45 in ``test_settings.py``; 36–40 in
``coldtier/test_codec.py`` and ``coldtier/test_v1.py`` byte by byte, here once through a whole store; 46 in
``stores/test_redis_check.py`` and ``blobs/test_probe.py``; 43 and 44 with streams and usage.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal.activities.threads import ThreadActivities
from helix_temporal.blobs.directory import DirectoryBlobs
from helix_temporal.blobs.memory import MemoryBlobs
from helix_temporal.coldtier import TieredThreads
from helix_temporal.coldtier.format import Layout
from helix_temporal.coldtier.zeitlich import V1Snapshots
from helix_temporal.errors import (
    ArchiveCorruptError,
    FencedError,
    HeadMovedError,
    HelixError,
    IdempotencyConflictError,
    InvalidConfigError,
    InvalidIdError,
    InvalidMessageError,
    InvalidRequestError,
    StaleStateError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models.ids import encode_id, validate_id
from helix_temporal.models.messages import Message, ToolCall, Usage
from helix_temporal.models.stored_messages import EMPTY, Head
from helix_temporal.models.threads import (
    AppendMessagesInput,
    OpenThreadInput,
    ReadMessagesInput,
    ReplaceMessagesInput,
)
from helix_temporal.stores.memory import MemoryThreads
from helix_temporal.stores.protocols.threads import ReadPage
from helix_temporal.stores.redis.connection import RedisConnection
from helix_temporal.testing.builders import a_message, an_answer, user_message
from helix_temporal.testing.contracts._threads_base import Author
from tests.unit.coldtier._v1_files import KEY, anthropic, body, packed, snapshot

ODD_IDS = ["../../etc/passwd", "..", ".", ".hidden", "a/b", "a\\b", "a:b", "*", "a?[b]", "{x}", "a}b", "{}"]


class Stores:
    """Both tiers, and all that can be seen of them."""

    def __init__(self) -> None:
        self.hot, self.blobs = MemoryThreads(), MemoryBlobs()
        self.threads = TieredThreads(self.hot, self.blobs, legacy=V1Snapshots(self.blobs, max_bytes=8 << 20))
        self.activities = ThreadActivities(self.threads, max_message=1 << 20)

    async def digest(self) -> object:
        """Everything that is stored."""
        return self.hot.backup(), [info async for info in self.blobs.list("")]

    async def author(self) -> Author:
        """Of a thread with one archived and one hot turn."""
        author = Author(self.threads, "t")
        await author.open()
        await author.turn()
        await author.flush()
        await author.turn()
        return author

    async def run(self, activity: Callable[..., Any], request: object) -> Any:
        """Run an activity as a worker does."""
        return await ActivityEnvironment().run(activity, request)


@pytest.fixture
async def stores() -> Stores:
    """Empty ones."""
    return Stores()


@pytest.fixture
async def author(stores: Stores) -> Author:
    """Of a thread with one archived and one hot turn."""
    return await stores.author()


class Unchanged:
    """``async with`` this: the error is that one, and the stores are as before."""

    def __init__(self, stores: Stores, error: type[HelixError], match: str) -> None:
        self._stores, self._error, self._match = stores, error, match

    async def __aenter__(self) -> None:
        self._before = await self._stores.digest()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        assert isinstance(error, self._error), f"{self._error.__name__} expected, got {error!r}"
        with pytest.raises(self._error, match=self._match):
            raise error
        assert not error.retryable
        assert await self._stores.digest() == self._before
        return True


def files_below(root: Path) -> list[Path]:
    """Where the files of a store really are."""
    return [path.resolve() for path in root.rglob("*") if path.is_file()]


def files_outside(root: Path) -> list[Path]:
    """Those that lie elsewhere although they were found here."""
    return [path for path in files_below(root) if not path.is_relative_to(root.resolve())]


class TestIds:
    """Rows 1 to 15: an id is refused with its reason, or kept apart from all others."""

    def test_row_01_an_empty_id(self) -> None:
        """It names nothing."""
        with pytest.raises(InvalidIdError, match="empty"):
            OpenThreadInput(thread_id="")

    @pytest.mark.parametrize("odd", ODD_IDS, ids=repr)
    async def test_rows_02_to_07_an_id_never_leaves_its_place(self, odd: str, tmp_path: Path) -> None:
        """Paths, dots, patterns and braces: one segment of an object key, one file below the root."""
        key = Layout("p").manifest_key(odd)
        assert key.count("/") == 4
        assert not set(key.split("/")) & {"", ".", ".."}
        await DirectoryBlobs(tmp_path).put(key, b"x")
        assert files_outside(tmp_path) == []
        assert encode_id(odd).strip("~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-") == ""

    def test_rows_04_and_05_ids_that_look_alike_have_keys_apart(self) -> None:
        r"""``a/b``, ``a\b``, ``a:b`` and ``a`` with a suffix."""
        assert len({encode_id(odd) for odd in [*ODD_IDS, "a", "b", "a~3ab"]}) == len(ODD_IDS) + 3

    @pytest.mark.parametrize("odd", ODD_IDS, ids=repr)
    def test_rows_06_and_07_a_redis_key_has_one_hash_tag_and_no_pattern(self, odd: str) -> None:
        """All keys of a thread lie in one slot, and no SCAN pattern is made of an id."""
        key = RedisConnection("redis://127.0.0.1:1", prefix="helix:").key_of(odd)
        assert (key.count("{"), key.count("}"), key[-1]) == (1, 1, "}")
        assert not set(key) & set("*?[]\\")

    @pytest.mark.parametrize(
        ("bad", "at"), [("a\x00b", "U+0000 at 1"), ("a\nb", "U+000A at 1"), ("\r\nSET x 1", "U+000D at 0")]
    )
    def test_rows_08_and_09_control_characters_in_an_id(self, bad: str, at: str) -> None:
        """They would split a protocol's lines or a log's."""
        with pytest.raises(InvalidIdError) as caught:
            OpenThreadInput(thread_id=bad)
        assert f"control character {at}" in str(caught.value)

    def test_row_10_a_lone_surrogate(self) -> None:
        """UTF-8 can't hold it: neither in an id nor in a message."""
        with pytest.raises(InvalidIdError, match="lone surrogate at 0"):
            OpenThreadInput(thread_id="\ud800")
        with pytest.raises(InvalidMessageError, match="lone surrogate at 0"):
            user_message("u1", "\ud800")

    def test_row_11_two_spellings_are_two_ids(self) -> None:
        """Nothing is normalised, so nothing is mixed up."""
        assert encode_id(validate_id("é")) != encode_id(validate_id("e\u0301"))

    @pytest.mark.parametrize("pair", [("ADMIN", "admin"), ("CON", "con"), ("nul.txt", "NUL.TXT")], ids=str)
    async def test_row_12_file_systems_that_fold_case(self, pair: tuple[str, str], tmp_path: Path) -> None:
        """The names of files differ in more than case."""
        store = DirectoryBlobs(tmp_path)
        for name in pair:
            await store.put(Layout().manifest_key(name), name.encode())
        assert len({path.as_posix().lower() for path in files_below(tmp_path / "v2")}) == 2

    def test_row_13_format_characters_are_told_apart(self) -> None:
        """A right-to-left mark or a zero-width joiner is a character like others; keys show it."""
        assert encode_id(validate_id("a\u202eb")) == "a~e2~80~aeb"
        assert encode_id(validate_id("a\u200db")) != encode_id("ab")

    @pytest.mark.parametrize(
        ("bad", "why"),
        [("x" * 257, "257 characters, at most 256"), ("x" * 10**7, "10000000 characters"),
         ("日" * 200, "600 bytes of UTF-8, at most 512")],
        ids=["257", "ten million", "bytes"],
    )  # fmt: skip
    def test_row_14_long_ids(self, bad: str, why: str) -> None:
        """The message names the limit and not the id."""
        with pytest.raises(InvalidIdError, match=why) as caught:
            OpenThreadInput(thread_id=bad)
        assert len(str(caught.value)) < 200

    @pytest.mark.parametrize("bad", [None, 5, b"x", True, ["x"]], ids=repr)
    def test_row_15_ids_that_are_no_text(self, bad: Any) -> None:
        """Nothing is converted."""
        with pytest.raises(InvalidIdError, match=f"text expected, got {type(bad).__name__}"):
            OpenThreadInput(thread_id=bad)


class TestConfiguration:
    """Row 20: what an object prefix may be.  The other rows are tested with the settings."""

    @pytest.mark.parametrize("prefix", ["/a/../b", "/a", "a//b", "a/.", "a\x00b", "a/"], ids=repr)
    def test_row_20_object_prefixes_that_climb(self, prefix: str) -> None:
        """Archives stay where they were configured to be."""
        with pytest.raises(InvalidConfigError, match=r"no empty, '\.' or"):
            Layout(prefix)


def deep(levels: int) -> list[Any]:
    """A list in a list in a list."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def cycle() -> dict[str, Any]:
    """A dict that holds itself."""
    value: dict[str, Any] = {}
    value["self"] = value
    return value


class TestMessages:
    """Rows 8, 10, 21, 23 to 29: refused before anything is stored; the message names the place."""

    @pytest.mark.parametrize(
        ("row", "value", "why"),
        [
            (8, {"a": "x\x00y"}, r"U\+0000 at 1"),
            (10, {"a": ["\ud800"]}, r"lone surrogate at 0 in \$\.a\[0\]"),
            (21, {"a": [1, 2, 3, float("nan")]}, r"nan not allowed at \$\.a\[3\]"),
            (21, {"a": float("inf")}, r"inf not allowed at \$\.a"),
            (23, {"a": 10**5000}, "over 4300 digits"),
            (24, {"a": 2**70}, "outside 64 bits"),
            (26, {"a": deep(100_000)}, "nesting over 64"),
            (27, {5: "x"}, "string keys expected, got int"),
            (28, {"t": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, r"not JSON: datetime at \$\.t"),
            (28, {"t": {1, 2}}, r"not JSON: set at \$\.t"),
            (28, {"t": object()}, r"not JSON: object at \$\.t"),
            (29, cycle(), "cycle at"),
        ],
        ids=lambda value: str(value) if isinstance(value, int) else "",
    )
    @pytest.mark.parametrize("place", ["metadata", "provider", "arguments", "part"])
    def test_rows_08_to_29_values_that_are_no_json(self, row: int, value: Any, why: str, place: str) -> None:
        """In each place where a message takes a caller's JSON."""
        makers: dict[str, Callable[[], object]] = {
            "metadata": lambda: Message(id="m", role="user", metadata=value),
            "provider": lambda: Message(id="m", role="user", provider=value),
            "arguments": lambda: ToolCall(id="c", name="look", arguments=value),
            "part": lambda: Message(id="m", role="user", content=[value]),
        }
        inner = why.replace(r"\$", r".*").replace(" at .*", ".*")
        with pytest.raises(InvalidMessageError, match=inner):
            makers[place]()

    @pytest.mark.parametrize("value", [2**70, -1, 1.5], ids=repr)
    def test_row_24_usage_outside_its_range(self, value: Any) -> None:
        """Sums stay exact in every store."""
        with pytest.raises(ValidationError):
            Usage(input_tokens=value)

    @pytest.mark.parametrize("value", [2**70, -1, True, 1.0, "1"], ids=repr)
    def test_row_25_positions_that_are_no_positions(self, value: Any) -> None:
        """Nothing is rounded or converted."""
        with pytest.raises(ValidationError):
            Head(position=value, last_id="")


class TestAppending:
    """Rows 30 to 34: refused, and nothing of the step is stored."""

    async def test_row_30_a_message_over_the_limit(self, stores: Stores, author: Author) -> None:
        """The limit is on its stored bytes, and the message says both."""
        request = AppendMessagesInput(
            thread_id="t", epoch=author.epoch, head=author.head,
            messages=(user_message("u1", "x" * (1 << 20)),),
        )  # fmt: skip
        before = await stores.digest()
        with pytest.raises(ApplicationError, match=r"message 'u1': \d+ > 1048576 bytes") as caught:
            await stores.run(stores.activities.append, request)
        assert (caught.value.type, caught.value.non_retryable) == ("TooLargeError", True)
        assert await stores.digest() == before

    async def test_row_31_a_batch_over_the_limit(self, stores: Stores, author: Author) -> None:
        """Ten thousand and one."""
        messages = tuple(user_message(f"u{n}", "x") for n in range(10_001))
        request = AppendMessagesInput(thread_id="t", epoch=author.epoch, head=author.head, messages=messages)
        before = await stores.digest()
        with pytest.raises(ApplicationError, match="10001 > 10000") as caught:
            await stores.run(stores.activities.append, request)
        assert caught.value.type == "TooLargeError"
        assert await stores.digest() == before

    async def test_row_31_an_empty_batch(self, stores: Stores, author: Author) -> None:
        """It changes nothing and says where the thread stands."""
        request = AppendMessagesInput(thread_id="t", epoch=author.epoch, head=author.head, messages=())
        before = await stores.digest()
        assert (await stores.run(stores.activities.append, request)).head == author.head
        assert await stores.digest() == before

    async def test_row_32_an_id_that_is_used_again_with_other_bytes(
        self, stores: Stores, author: Author
    ) -> None:
        """At the same place: the first content stands."""
        step = author.step(a_message("yes", message_id="u1"), answer=an_answer())
        await author.threads.append(step)
        async with Unchanged(stores, IdempotencyConflictError, "other content"):
            await author.threads.append(replace(step, inputs=(a_message("no", message_id="u1"),)))

    async def test_row_33_a_step_that_skips_another(self, stores: Stores, author: Author) -> None:
        """The thread ends before its head: the workflow opens again."""
        step = author.step(a_message(), answer=an_answer())
        async with Unchanged(stores, HeadMovedError, "does not go on from position 6"):
            await author.threads.append(replace(step, head=Head(position=6, last_id="x")))

    async def test_row_34_an_epoch_that_is_out(self, stores: Stores, author: Author) -> None:
        """Whatever it tries."""
        await author.later().open()
        async with Unchanged(stores, FencedError, f"{author.epoch} is out"):
            await author.turn()
        async with Unchanged(stores, FencedError, f"{author.epoch} is out"):
            await author.flush()
        async with Unchanged(stores, FencedError, f"{author.epoch} comes too late"):
            await author.open()

    async def test_row_35_a_state_against_an_old_version(self, stores: Stores, author: Author) -> None:
        """The message names both versions."""
        await author.threads.save_slice("t", author.epoch, b"one", 0)
        async with Unchanged(stores, StaleStateError, "at version 1, not 0"):
            await author.threads.save_slice("t", author.epoch, b"two", 0)


class TestArchives:
    """Rows 22, 23, 26, 27 and 36 to 40 through a whole store; byte by byte they are tested elsewhere."""

    @pytest.mark.parametrize(
        ("data", "error", "why"),
        [
            (packed(body(['{"x":NaN}'])), ArchiveCorruptError, "non-finite number"),
            (packed(body(['{"x":1e999}'])), ArchiveCorruptError, "non-finite number"),
            (packed(body([])[:-1] + b',"x":' + b"9" * 5000 + b"}"), ArchiveCorruptError, "not JSON"),
            (packed(b"[" * 100_000), ArchiveCorruptError, "nesting over 64"),
            (packed(b'{"v":1,"v":1}'), ArchiveCorruptError, "duplicate key 'v'"),
            (packed(b" " * (100 << 20)), TooLargeError, "expands past 8388608 bytes"),
            (snapshot([anthropic(0)])[:-5], ArchiveCorruptError, "truncated"),
            (snapshot([]) * 2, ArchiveCorruptError, "trailing data"),
            (snapshot([], v=2), UnsupportedFormatError, "v 2 found"),
        ],
        ids=["22 NaN", "22 1e999", "23", "26", "27", "36", "37 cut", "37 second member", "40"],
    )
    async def test_rows_22_to_40_a_bad_version_1_snapshot(
        self, stores: Stores, data: bytes, error: type[HelixError], why: str
    ) -> None:
        """Opening is refused; nothing becomes hot, nothing is archived."""
        await stores.blobs.put(KEY, data)
        async with Unchanged(stores, error, why):
            await Author(stores.threads, "t").open()

    @pytest.mark.parametrize(
        ("data", "error", "why"),
        [
            ("{}\n".encode("utf-16"), ArchiveCorruptError, "not JSON"),
            (b"\xef\xbb\xbf{}\n", ArchiveCorruptError, "not JSON"),
            (b"{}\n", ArchiveCorruptError, "not a helix manifest"),
            (b"null\n", ArchiveCorruptError, "not a helix manifest"),
            (b"[]\n", ArchiveCorruptError, "not a helix manifest"),
            (b"<html>\n", ArchiveCorruptError, "not JSON"),
            (b'{"format":4}\n', UnsupportedFormatError, "4 > 3, upgrade the library"),
        ],
        ids=["38 UTF-16", "38 BOM", "38 empty object", "38 null", "38 list", "38 html", "40"],
    )
    async def test_rows_38_and_40_a_bad_manifest(
        self, stores: Stores, author: Author, data: bytes, error: type[HelixError], why: str
    ) -> None:
        """Flush, open and a reader of the archive are refused; the hot thread is untouched."""
        await stores.blobs.put(stores.threads.layout.manifest_key("t"), data)
        cold = TieredThreads(MemoryThreads(), stores.blobs)
        later = replace(author.later(), threads=TieredThreads(stores.hot, stores.blobs))
        async with Unchanged(stores, error, why):
            await later.open()
        async with Unchanged(stores, error, why):
            await cold.read(ReadPage("t"))
        assert len(await author.everything()) == 4

    async def test_row_39_another_thread_s_manifest(self, stores: Stores, author: Author) -> None:
        """Somebody copied objects about."""
        blob = await stores.blobs.get(stores.threads.layout.manifest_key("t"))
        assert blob is not None
        await stores.blobs.put(stores.threads.layout.manifest_key("other"), blob.data)
        async with Unchanged(stores, ArchiveCorruptError, "belongs to another thread"):
            await Author(stores.threads, "other").open()


class TestReading:
    """Row 42: what a reader may ask for."""

    @pytest.mark.parametrize(
        "bounds",
        [{"start": 3, "stop": 2}, {"start": -1}, {"limit": -1}, {"limit": 10**9}, {"max_bytes": 0}],
        ids=str,
    )
    async def test_row_42_bounds_that_make_no_sense(
        self, stores: Stores, author: Author, bounds: dict[str, int]
    ) -> None:
        """Through the activity: permanent, and typed on the wire."""
        before = await stores.digest()
        request = ReadMessagesInput.model_validate({"thread_id": "t", **bounds})
        with pytest.raises(ApplicationError, match=r"allowed|must be") as caught:
            await stores.run(stores.activities.read, request)
        assert (caught.value.type, caught.value.non_retryable) == ("InvalidRequestError", True)
        assert await stores.digest() == before


class TestWire:
    """Row 47: inputs of older and newer workers."""

    def test_row_47_fields_of_a_newer_worker_are_ignored(self) -> None:
        """A roll-out mixes releases."""
        request = OpenThreadInput.model_validate({"thread_id": "t", "future": {"x": 1}})
        assert request == OpenThreadInput(thread_id="t")

    def test_row_47_fields_that_an_older_worker_did_not_send_have_defaults(self) -> None:
        """New fields never break old histories."""
        assert OpenThreadInput.model_validate_json(b'{"thread_id":"t"}').create == "auto"

    @pytest.mark.parametrize("model", [AppendMessagesInput, ReplaceMessagesInput, OpenThreadInput])
    def test_row_47_a_required_field_that_is_missing_is_named(self, model: Any) -> None:
        """Rather than guessed."""
        with pytest.raises(ValidationError, match="thread_id"):
            model.model_validate({})


async def test_all_of_it_leaves_the_store_working(stores: Stores) -> None:
    """After a refusal the next good call succeeds."""
    author = await stores.author()
    with pytest.raises(HelixError):
        await author.threads.append(replace(author.step(a_message(), answer=an_answer()), head=EMPTY))
    with pytest.raises(InvalidRequestError):
        await author.threads.read(ReadPage("t", limit=0))
    await author.turn()
    await author.flush()
    assert (await author.facts()).archived == 6
