"""The named statements, the names of tables, and rows as the protocols speak of them."""

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final
from zlib import crc32

from helix_temporal._setting_rules import TABLE_PREFIX
from helix_temporal.errors import InvalidConfigError
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.stores.checksums import SIZE, damaged_error
from helix_temporal.stores.postgres.database import DatabaseRow
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.threads.header_columns import header_from_columns, header_to_columns


def header_of(thread_id: str, row: DatabaseRow) -> HotHeader:
    """The header in a row that has its columns.

    Raises:
        StoreCorruptError: Header or slice is not what was stored.
    """
    where = f"thread {thread_id!r} in PostgreSQL"
    if not row["sound"]:
        raise damaged_error(where, "the checksum of its header is wrong")
    return header_from_columns(thread_id, row, f"the slice of {where}")


_COLUMNS: Final = (
    "epoch", "owner", "closed", "head", "last_id", "committed", "base", "base_id", "slice", "slice_version",
    "adapter", "size", "base_size", "archived", "archived_size", "unarchived_since", "deleted", "born", "cut",
    "origin",
)  # fmt: skip
"""Of a header, in the order in which ``thread_insert`` and ``thread_replace`` name them."""


def header_values(header: HotHeader) -> tuple[Any, ...]:
    """The thread's id and its header, as arguments of these statements."""
    columns = header_to_columns(header)
    return (header.thread_id, *(columns[name] for name in _COLUMNS))


def read_messages(row: DatabaseRow, thread_id: str, first: int, side: str = "") -> tuple[StoredMessage, ...]:
    """The messages in a row's columns ``kinds``, ``ids`` and ``bodies``; aggregates of nothing are null.

    Args:
        row: It has these columns.
        thread_id: For the error.
        first: Position of the first message.
        side: What stands before the columns' names.

    Raises:
        StoreCorruptError: A message is not what was stored at its position.
    """
    kinds: list[str] | None = row[f"{side}kinds"]
    if kinds is None:
        return ()
    found: list[StoredMessage] = []
    for position, (kind, message_id, stored) in enumerate(
        zip(kinds, row[f"{side}ids"], row[f"{side}bodies"], strict=True), first
    ):
        body = stored[:-SIZE]
        if _message_checksum(position, kind, message_id, body) != stored[-SIZE:]:
            what = f"the message at position {position} is not the one that was stored"
            raise damaged_error(f"thread {thread_id!r} in PostgreSQL", what, position=position)
        found.append(StoredMessage(kind, message_id, body))
    return tuple(found)


def check_none_is_missing(thread_id: str, first: int, expected: int, there: int) -> None:
    """Refuse a range of messages of which some rows are gone.

    Args:
        thread_id: For the error.
        first: Position of the first message of the range.
        expected: Messages that the header says are there.
        there: Rows that were found.

    Raises:
        StoreCorruptError: There are fewer.
    """
    if there < expected:
        what = f"of {expected} messages from position {first} on, {expected - there} are missing"
        raise damaged_error(f"thread {thread_id!r} in PostgreSQL", what, position=first)


def message_columns(
    first: int, messages: Sequence[StoredMessage]
) -> tuple[list[str], list[str], list[bytes]]:
    """Kinds, ids and bodies with their checksums, from position ``first`` on."""
    kinds: list[str] = []
    ids: list[str] = []
    bodies: list[bytes] = []
    for position, (kind, message_id, body) in enumerate(messages, first):
        kinds.append(kind)
        ids.append(message_id)
        bodies.append(body + _message_checksum(position, kind, message_id, body))
    return kinds, ids, bodies


def _message_checksum(position: int, kind: str, message_id: str, body: bytes) -> bytes:
    start = f"{position} {kind} {message_id}"
    return crc32(body, crc32(start.encode())).to_bytes(SIZE, "big")


DEFAULT_PREFIX: Final = "__agents_"


def check_prefix(prefix: object) -> str:
    """Return the prefix if tables may begin with it.

    PostgreSQL cuts names at 63 bytes without a word, and two prefixes would then share a table: so it is
    short.  In SQL it always stands inside quotes: case is kept, and reserved words are names like others.

    Raises:
        InvalidConfigError: It is not text of ``[A-Za-z_][A-Za-z0-9_]*`` with at most 30 characters.
    """
    if not isinstance(prefix, str):
        raise InvalidConfigError(f"table_prefix: text expected, got {type(prefix).__name__}")
    if not TABLE_PREFIX.fullmatch(prefix):
        shown = ascii(prefix[:40])
        raise InvalidConfigError(
            f"table_prefix {shown} must match [A-Za-z_][A-Za-z0-9_]* and have at most 30 characters"
        )
    return prefix


_FOLDER: Final = files("helix_temporal.stores.postgres") / "sql"
_INCLUDE: Final = re.compile(r"\{include:([a-z_]+)(?:\+(\d+))?\}")
_ARGUMENT: Final = re.compile(r"\$(\d+)")
_COMMENT: Final = re.compile(r"^\s*--.*\n", re.MULTILINE)

NOW: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
"""The server's clock in ms."""


class Queries:
    """The statements of one prefix, by name.

    In a file, ``{prefix}`` (always inside double quotes) is the prefix and ``{now}`` the server's clock
    in ms.  ``{include:name}`` puts in a part, and ``{include:name+3}`` the same with its arguments
    numbered from ``$4`` on; parts are files that begin with ``_``.

    Raises:
        InvalidConfigError: See `check_prefix`.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = check_prefix(prefix)
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """The statement of that name, ready to send."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = load_statement(name).replace("{prefix}", self.prefix)
        return text


@lru_cache(256)
def load_statement(name: str) -> str:
    """A statement with its parts put in and ``{prefix}`` still in it."""
    return _fill_includes(name).replace("{now}", NOW)


def statement_names() -> list[str]:
    """Of all statements."""
    found = (path.name for path in _FOLDER.iterdir())
    return sorted(n.removesuffix(".sql") for n in found if n.endswith(".sql") and not n.startswith("_"))


def _fill_includes(name: str) -> str:
    text = _COMMENT.sub("", (_FOLDER / f"{name}.sql").read_text("utf-8")).strip()
    return _INCLUDE.sub(
        lambda found: _shift_arguments(_fill_includes(f"_{found[1]}"), int(found[2] or 0)), text
    )


def _shift_arguments(text: str, by: int) -> str:
    """The text with its arguments numbered from ``$by + 1`` on."""
    return _ARGUMENT.sub(lambda found: f"${int(found[1]) + by}", text)
