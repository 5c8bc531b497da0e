"""Items of a LangGraph store: how one lies in a record, which session holds it, and what a filter means."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from helix_temporal.errors import InvalidRequestError, StoreCorruptError
from helix_temporal.models.ids import encode_id
from helix_temporal.models.states import CreateSession
from helix_temporal.stores.protocols.records import Record, RecordName

STORE_KIND: Final = "langgraph-store"
ITEM: Final = "langgraph.item"

Namespace: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored.

    Attributes:
        ttl: Minutes that it lives from its last write, or read; None: for ever.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    ttl: float | None = None
    expires_at: datetime | None = None

    @property
    def name(self) -> RecordName:
        """Of its record."""
        return name_item(self.namespace, self.key)

    def is_expired(self, now: datetime) -> bool:
        """Whether its time is over: it is not there any more for readers."""
        return self.expires_at is not None and self.expires_at <= now

    def renew(self, now: datetime) -> "StoredItem":
        """The item as it is after a read that renews it."""
        return replace(self, expires_at=None if self.ttl is None else now + timedelta(minutes=self.ttl))

    def make_record(self) -> Record:
        """Its record.

        Raises:
            InvalidRequestError: The value is no JSON.
        """
        fields = {
            "value": self.value,
            "created": self.created_at.isoformat(),
            "updated": self.updated_at.isoformat(),
            "ttl": self.ttl,
            "expires": None if self.expires_at is None else self.expires_at.isoformat(),
        }
        try:
            body = json.dumps(fields, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise InvalidRequestError(
                f"item {self.key!r} of {self.namespace}: its value is no JSON ({type(error).__name__}); "
                "give a dict of plain values"
            ) from None
        return Record(self.name.kind, self.name.key, body, self.name.group)


def read_item(record: Record) -> StoredItem:
    """Inverse of `StoredItem.make_record`."""
    try:
        fields = json.loads(record.body)
        expires = fields["expires"]
        return StoredItem(
            parse_group(record.group),
            record.key,
            fields["value"],
            datetime.fromisoformat(fields["created"]),
            datetime.fromisoformat(fields["updated"]),
            fields["ttl"],
            None if expires is None else datetime.fromisoformat(expires),
        )
    except (KeyError, TypeError, ValueError):
        raise StoreCorruptError(f"a record of kind {record.kind!r} holds no item") from None


def make_item(
    namespace: Namespace, key: str, value: Mapping[str, Any], ttl: float | None, before: StoredItem | None
) -> StoredItem:
    """An item that is put now; it keeps the time when it came first."""
    now = datetime.now(UTC)
    lives = before is not None and not before.is_expired(now)
    created = before.created_at if before is not None and lives else now
    return StoredItem(namespace, key, dict(value), created, now, ttl).renew(now)


def name_item(namespace: Namespace, key: str) -> RecordName:
    """The record of an item."""
    return RecordName(ITEM, key, make_group(namespace))


def make_group(namespace: Namespace) -> str:
    """A namespace as the group of its items.  LangGraph allows no period in a label."""
    return ".".join(namespace)


def parse_group(group: str) -> Namespace:
    """Inverse of `make_group`."""
    return tuple(group.split("."))


@dataclass(frozen=True, slots=True)
class ItemSessions:
    """Which session holds the items of a namespace: one for each beginning of ``labels`` labels.

    Attributes:
        store: The name of the store.
        labels: How many; a namespace that has fewer has a session of its own.
    """

    store: str
    labels: int

    def name_session(self, namespace: Namespace) -> str:
        """The id of the session."""
        return f"{STORE_KIND}/{encode_id(json.dumps([self.store, *namespace[: self.labels]]))}"

    def describe(self, namespace: Namespace) -> CreateSession:
        """What the session begins with: lists find it by this."""
        labels = namespace[: self.labels]
        return CreateSession(
            agent_type=STORE_KIND, metadata={"store": self.store, "first": labels[0], "labels": list(labels)}
        )

    def holds_all(self, prefix: Namespace) -> bool:
        """Whether one session holds everything below a prefix."""
        return len(prefix) >= self.labels


def matches_filter(value: Any, wanted: Any) -> bool:
    """Whether a value is as a filter of LangGraph says: equal, or by operators such as ``{"$gt": 3}``.

    Raises:
        InvalidRequestError: There is no such operator.
    """
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compare(value, operator, other) for operator, other in wanted.items())
        return isinstance(value, Mapping) and all(
            matches_filter(value.get(key), each) for key, each in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(matches_filter(one, other) for one, other in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def matches_path(namespace: Namespace, path: Sequence[str], *, at_end: bool) -> bool:
    """Whether a namespace begins, or ends, with a path, whose ``*`` stand for any label."""
    part = namespace[-len(path) :] if at_end and path else namespace[: len(path)]
    return len(part) == len(path) and all(
        wanted in {"*", label} for label, wanted in zip(part, path, strict=True)
    )


_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$gt": lambda one, other: bool(one > other),
    "$gte": lambda one, other: bool(one >= other),
    "$lt": lambda one, other: bool(one < other),
    "$lte": lambda one, other: bool(one <= other),
}


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    if operator not in _OPERATORS:
        known = ", ".join(("$eq", "$ne", *_OPERATORS))
        raise InvalidRequestError(f"filter operator {operator!r}: one of {known} expected")
    # What has no order, as a text and a number, is neither more nor less.
    numbers = isinstance(value, int | float) and isinstance(other, int | float)
    texts = isinstance(value, str) and isinstance(other, str)
    return (numbers or texts) and _OPERATORS[operator](value, other)
