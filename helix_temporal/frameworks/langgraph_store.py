"""Memories of LangGraph: ``graph.compile(store=HelixStore(backends.records, backends.sessions))``."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    PutOp,
    SearchItem,
    SearchOp,
)

from helix_temporal._retries import repeat_unanswered
from helix_temporal.errors import InvalidRequestError, SessionNotFoundError
from helix_temporal.frameworks.background_loop import BackgroundLoop, shared_loop
from helix_temporal.frameworks.given_stores import check_records, check_sessions
from helix_temporal.frameworks.langgraph_items import (
    ITEM,
    STORE_KIND,
    ItemSessions,
    Namespace,
    StoredItem,
    make_group,
    make_item,
    matches_filter,
    matches_path,
    name_item,
    parse_group,
    read_item,
)
from helix_temporal.frameworks.langgraph_threads import repeat_overtaken
from helix_temporal.frameworks.stores_loop import bind_to_loop
from helix_temporal.models.store_calls import OrderBy, SessionQuery
from helix_temporal.stores.protocols.records import RecordChange, WantedRecords

if TYPE_CHECKING:
    from langgraph.store.base import Op, Result, TTLConfig

    from helix_temporal.stores.protocols.records import Records
    from helix_temporal.stores.protocols.sessions import SessionStore

T = TypeVar("T")

_PAGE: Final = 100
_LISTED: Final = 200


class HelixStore(BaseStore):
    """A `BaseStore` of LangGraph over a store of ours.

    Items are records of sessions; one session holds all namespaces that begin with the same labels.  Results
    of a search come in the order of namespace and key.  There is no search by meaning: ``query`` and
    ``index`` change nothing, as in the stores of LangGraph that have no index.

    Args:
        records: `Backends.records`, or another such store.
        sessions: `Backends.sessions`, of the same stores: it finds the sessions of a short prefix.
        name: Keeps stores apart that share a database.
        session_labels: How many labels of a namespace name its session: 2 gives each of
            ``("memories", user_id)`` one of its own.  A search by fewer labels looks through the list of
            sessions.  Never changed while a store has items.
        ttl: As the stores of LangGraph.  What has expired is not read any more; `asweep_ttl` frees it.
        loop: Where the methods without ``a`` run; otherwise on the one of the process.
    """

    supports_ttl = True

    def __init__(
        self,
        records: "Records",
        sessions: "SessionStore",
        *,
        name: str = "default",
        session_labels: int = 2,
        ttl: "TTLConfig | None" = None,
        loop: BackgroundLoop | None = None,
    ) -> None:
        if session_labels < 1:
            raise InvalidRequestError(f"session_labels {session_labels}: at least 1 expected")
        check_records(records)
        check_sessions(sessions)
        self._records = bind_to_loop(records, together_with=records)
        self._store = bind_to_loop(sessions, together_with=records)
        self._sessions = ItemSessions(name, session_labels)
        self._loop = shared_loop() if loop is None else loop
        self.ttl_config = ttl

    def batch(self, ops: "Iterable[Op]") -> "list[Result]":
        """As `abatch`, for programs without an event loop."""
        return self._loop.run(self.abatch(ops))

    async def abatch(self, ops: "Iterable[Op]") -> "list[Result]":
        """Do several things: first what reads, then what writes, of which the last counts for each key.

        Writes to namespaces of one session are one atomic change, and are repeated where the store does not
        answer.

        Raises:
            InvalidNamespaceError: A label is empty, no text, or has a period in it.
            InvalidRequestError: A value is no JSON, or there is no such operator.
        """
        listed = list(ops)
        for op in listed:
            _check_labels(op)
        results: list[Any] = [None] * len(listed)
        await self._get_items([(at, op) for at, op in enumerate(listed) if isinstance(op, GetOp)], results)
        for at, op in enumerate(listed):
            if isinstance(op, SearchOp):
                results[at] = await self._search_items(op)
            elif isinstance(op, ListNamespacesOp):
                results[at] = await self._list_namespaces(op)
        puts = {(op.namespace, op.key): op for op in listed if isinstance(op, PutOp)}
        for session_id, group in _group_by(puts.values(), lambda op: self._name(op.namespace)).items():
            await self._put_items(session_id, group)
        return results

    def sweep_ttl(self) -> int:
        """As `asweep_ttl`, for programs without an event loop."""
        return self._loop.run(self.asweep_ttl())

    async def asweep_ttl(self) -> int:
        """Free all items that have expired, and tell how many; reads the whole store."""
        swept = 0
        async for labels in self._list_sessions(()):
            session_id = self._name(labels)
            for group in await self._records.list_groups(session_id, ITEM):
                async for page in self._read_pages(session_id, group):
                    now = datetime.now(UTC)
                    old = [each for each in page if each.is_expired(now)]
                    swept += await self._change_items(session_id, old, _drop_expired)
        return swept

    def _name(self, namespace: Namespace) -> str:
        return self._sessions.name_session(namespace)

    async def _get_items(self, ops: "Sequence[tuple[int, GetOp]]", results: list[Any]) -> None:
        for session_id, group in _group_by(ops, lambda each: self._name(each[1].namespace)).items():
            names = tuple(dict.fromkeys(name_item(op.namespace, op.key) for _, op in group))
            view = await self._records.read(session_id, WantedRecords(names=names))
            now = datetime.now(UTC)
            found = {each.name: each for each in map(read_item, view.records) if not each.is_expired(now)}
            renewed: list[StoredItem] = []
            for at, op in group:
                item = found.get(name_item(op.namespace, op.key))
                results[at] = None if item is None else Item(**_tell(item))
                if item is not None and op.refresh_ttl and item.ttl is not None:
                    renewed.append(item)
            await self._change_items(session_id, renewed, _renew_living)

    async def _search_items(self, op: SearchOp) -> list[SearchItem]:
        found: list[StoredItem] = []
        to_skip = op.offset
        async for item in self._scan_items(op.namespace_prefix):
            if len(found) >= op.limit:
                break
            if op.filter and not matches_filter(item.value, op.filter):
                continue
            if to_skip > 0:
                to_skip -= 1
                continue
            found.append(item)
        if op.refresh_ttl:
            lasting = [each for each in found if each.ttl is not None]
            for session_id, group in _group_by(lasting, lambda each: self._name(each.namespace)).items():
                await self._change_items(session_id, group, _renew_living)
        return [SearchItem(**_tell(each)) for each in found]

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        prefixes = [each.path for each in conditions if each.match_type == "prefix"]
        begins = max((_cut_at_wildcard(path) for path in prefixes), key=len, default=())
        found: set[Namespace] = set()
        async for session in self._list_sessions(begins):
            for group in await self._records.list_groups(self._name(session), ITEM):
                namespace = parse_group(group)
                if all(
                    matches_path(namespace, each.path, at_end=each.match_type == "suffix")
                    for each in conditions
                ):
                    found.add(namespace[: op.max_depth])
        return sorted(found)[op.offset : op.offset + op.limit]

    async def _put_items(self, session_id: str, ops: Sequence[PutOp]) -> None:
        names = tuple(name_item(op.namespace, op.key) for op in ops)
        view = await self._records.read(session_id, WantedRecords(names=names))
        before = {each.name: read_item(each) for each in view.records}
        puts, removes = [], []
        for name, op in zip(names, ops, strict=True):
            if op.value is None:
                removes.append(name)
            else:
                item = make_item(op.namespace, op.key, op.value, op.ttl, before.get(name))
                puts.append(item.make_record())
        if not puts and not before:
            return
        change = RecordChange(puts=tuple(puts), removes=tuple(removes))
        create = self._sessions.describe(ops[0].namespace) if puts else None
        try:
            await repeat_unanswered(
                lambda: self._records.write(session_id, change, create=create, revive=bool(puts))
            )
        except SessionNotFoundError:
            return  # what was to be removed is gone with its session

    async def _change_items(
        self,
        session_id: str,
        items: Sequence[StoredItem],
        decide: Callable[[Sequence[StoredItem], datetime], RecordChange],
    ) -> int:
        """Renew or drop items as they stand now, however often others write meanwhile; how many."""
        if not items:
            return 0
        wanted = WantedRecords(names=tuple(dict.fromkeys(each.name for each in items)))

        async def attempt() -> int:
            view = await self._records.read(session_id, wanted)
            change = decide([read_item(each) for each in view.records], datetime.now(UTC))
            if change.puts or change.removes:
                await repeat_unanswered(
                    lambda: self._records.write(session_id, change, revision=view.revision)
                )
            return len(change.puts) + len(change.removes)

        try:
            return await repeat_overtaken(f"session {session_id!r}", attempt)
        except SessionNotFoundError:
            return 0

    async def _scan_items(self, prefix: Namespace) -> AsyncIterator[StoredItem]:
        """The items below a prefix that have not expired, by namespace and key."""
        beginning = make_group(prefix)
        async for session in self._list_sessions(prefix):
            session_id = self._name(session)
            for group in await self._records.list_groups(session_id, ITEM):
                if prefix and group != beginning and not group.startswith(f"{beginning}."):
                    continue
                async for page in self._read_pages(session_id, group):
                    now = datetime.now(UTC)
                    for each in page:
                        if not each.is_expired(now):
                            yield each

    async def _read_pages(self, session_id: str, group: str) -> AsyncIterator[list[StoredItem]]:
        after: str | None = None
        while True:
            records = await self._records.read_page(session_id, ITEM, group, limit=_PAGE, after=after)
            if records:
                yield [read_item(each) for each in records]
            if len(records) < _PAGE:
                return
            after = records[-1].key

    async def _list_sessions(self, prefix: Namespace) -> AsyncIterator[Namespace]:
        """The beginnings of namespaces that have a session, those below a prefix, in order."""
        if self._sessions.holds_all(prefix):
            yield prefix[: self._sessions.labels]
            return
        metadata = {"store": self._sessions.store} | ({"first": prefix[0]} if prefix else {})
        query = SessionQuery(
            agent_type=STORE_KIND,
            metadata=metadata,
            order_by=OrderBy(field="created_at", direction="asc"),
            limit=_LISTED,
        )
        found: list[Namespace] = []
        cursor: str | None = None
        while True:
            page = await self._store.list_sessions(query.model_copy(update={"cursor": cursor}))
            labels: Any = [each.metadata["labels"] for each in page.sessions]
            found += [tuple(each) for each in labels if tuple(each[: len(prefix)]) == prefix]
            cursor = page.next_cursor
            if cursor is None:
                break
        for each in sorted(found):
            yield each


def _renew_living(items: Sequence[StoredItem], now: datetime) -> RecordChange:
    living = (each for each in items if each.ttl is not None and not each.is_expired(now))
    return RecordChange(puts=tuple(each.renew(now).make_record() for each in living))


def _drop_expired(items: Sequence[StoredItem], now: datetime) -> RecordChange:
    return RecordChange(removes=tuple(each.name for each in items if each.is_expired(now)))


def _tell(item: StoredItem) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }


def _check_labels(op: "Op") -> None:
    """Who calls `batch` with an operation of their own has not been checked by LangGraph."""
    if isinstance(op, GetOp | PutOp):
        paths: list[Any] = [op.namespace]
        if not op.namespace:
            raise InvalidNamespaceError("a namespace is empty")
    elif isinstance(op, SearchOp):
        paths = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        paths = [each.path for each in op.match_conditions or ()]
    else:
        raise InvalidRequestError(f"{type(op).__name__} is no operation of a store")
    for path in paths:
        for label in path:
            if not isinstance(label, str) or not label or "." in label:
                raise InvalidNamespaceError(f"label {label!r} of {path}: text without a period expected")


def _cut_at_wildcard(path: Sequence[str]) -> Namespace:
    path = tuple(path)
    return path[: path.index("*")] if "*" in path else path


def _group_by(values: Iterable[T], name: Callable[[T], str]) -> dict[str, list[T]]:
    groups: dict[str, list[T]] = {}
    for each in values:
        groups.setdefault(name(each), []).append(each)
    return groups
