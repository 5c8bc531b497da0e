"""`HelixStore`: what the stores of LangGraph promise, and what happens to it when several write."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)

from helix_temporal import Backends
from helix_temporal.errors import InvalidRequestError
from helix_temporal.frameworks.langgraph import HelixStore
from helix_temporal.frameworks.langgraph_items import ITEM, make_group, name_item, read_item
from helix_temporal.stores.protocols.records import WantedRecords
from tests.frameworks.conftest import BackendsOpener
from tests.frameworks.test_langgraph import run_without_loop

DOCS = ("docs", "u1")


def make_store(backends: Backends, **options: Any) -> HelixStore:
    """A store as another process has it."""
    assert backends.records is not None
    assert backends.sessions is not None
    return HelixStore(backends.records, backends.sessions, **options)


@pytest.fixture
async def backends(open_backends: BackendsOpener) -> AsyncIterator[Backends]:
    """The stores under test."""
    async with open_backends() as opened:
        yield opened


@pytest.fixture(params=[1, 2, 3])
async def store(backends: Backends, request: pytest.FixtureRequest) -> HelixStore:
    """The store under test: namespaces of this file have one to four labels."""
    return make_store(backends, session_labels=request.param)


async def find_keys(store: HelixStore, prefix: tuple[str, ...], **options: Any) -> list[str]:
    """The keys that a search finds."""
    return [each.key for each in await store.asearch(prefix, **options)]


class TestItems:
    async def test_an_item_is_found_as_it_was_put(self, store: HelixStore) -> None:
        """Any JSON, under its namespace and key."""
        value = {"text": "hi\x00\ud800", "n": 1.5, "deep": {"list": [1, None, True]}}
        await store.aput(DOCS, "k", value)
        item = await store.aget(DOCS, "k")
        assert item is not None
        assert (item.namespace, item.key, item.value) == (DOCS, "k", value)
        assert await store.aget(DOCS, "other") is None
        assert await store.aget(("docs", "u2"), "k") is None

    async def test_an_item_that_is_put_again_keeps_when_it_came(self, open_backends: BackendsOpener) -> None:
        """And tells when it was changed, from whatever process."""
        async with open_backends() as one, open_backends() as two:
            await make_store(one).aput(DOCS, "k", {"n": 1})
            first = await make_store(two).aget(DOCS, "k")
            await asyncio.sleep(0.01)
            await make_store(two).aput(DOCS, "k", {"n": 2})
            second = await make_store(one).aget(DOCS, "k")
            assert first is not None
            assert second is not None
            assert second.value == {"n": 2}
            assert second.created_at == first.created_at
            assert second.updated_at > first.updated_at

    async def test_an_item_is_deleted(self, store: HelixStore) -> None:
        """With its namespace, if it was the last one; again, it is no error."""
        await store.aput(DOCS, "k", {"n": 1})
        for _ in range(2):
            await store.adelete(DOCS, "k")
        assert await store.aget(DOCS, "k") is None
        assert await store.alist_namespaces() == []
        await store.adelete(("never",), "k")
        await store.aput(DOCS, "k", {"n": 2})
        assert await find_keys(store, DOCS) == ["k"]

    async def test_stores_of_two_names_know_nothing_of_each_other(self, backends: Backends) -> None:
        """In one database."""
        one, two = make_store(backends, name="one"), make_store(backends, name="two")
        await one.aput(DOCS, "k", {"n": 1})
        assert await two.aget(DOCS, "k") is None
        assert await two.asearch(()) == []
        assert await two.alist_namespaces() == []

    async def test_a_value_that_is_no_json_is_refused(self, store: HelixStore) -> None:
        """Before anything of the batch is written."""
        puts = [PutOp(DOCS, "a", {"n": 1}), PutOp(DOCS, "b", {"n": object()})]
        with pytest.raises(InvalidRequestError, match="no JSON"):
            await store.abatch(puts)
        assert await find_keys(store, DOCS) == []

    @pytest.mark.parametrize("namespace", [(), ("a.b",), ("a", ""), ("a", 1)])
    async def test_a_namespace_that_means_another_is_refused(
        self, backends: Backends, namespace: Any
    ) -> None:
        """In a batch too, where LangGraph does not look."""
        store = make_store(backends)
        for op in (GetOp(namespace, "k"), PutOp(namespace, "k", {"n": 1})):
            with pytest.raises(InvalidNamespaceError):
                await store.abatch([op])


class TestBatches:
    async def test_reads_come_before_writes_and_the_last_write_counts(self, store: HelixStore) -> None:
        """As in the stores of LangGraph."""
        await store.aput(DOCS, "k", {"n": 0})
        results: Any = await store.abatch(
            [
                PutOp(DOCS, "k", {"n": 1}),
                GetOp(DOCS, "k"),
                SearchOp(("docs",)),
                PutOp(DOCS, "k", {"n": 2}),
                ListNamespacesOp(),
                PutOp(("other",), "gone", {"n": 3}),
                PutOp(("other",), "gone", None),
                GetOp(DOCS, "none"),
            ]
        )
        assert results[1].value == {"n": 0}
        assert [each.value for each in results[2]] == [{"n": 0}]
        assert results[4] == [DOCS]
        assert [results[at] for at in (0, 3, 5, 6, 7)] == [None] * 5
        item = await store.aget(DOCS, "k")
        assert item is not None
        assert item.value == {"n": 2}
        assert await store.asearch(("other",)) == []

    async def test_writes_of_several_processes_are_all_there(self, open_backends: BackendsOpener) -> None:
        """In one namespace, at once."""
        async with open_backends() as one, open_backends() as two:
            stores = make_store(one), make_store(two)
            await asyncio.gather(*(stores[n % 2].aput(DOCS, f"{n:02}", {"n": n}) for n in range(20)))
            found = await stores[0].asearch(DOCS, limit=100)
            assert [each.value["n"] for each in found] == list(range(20))

    async def test_it_works_without_an_event_loop(self, open_backends: BackendsOpener) -> None:
        """By the methods that are not async."""

        def use(backends: Backends) -> Any:
            store = make_store(backends)
            store.put(DOCS, "k", {"n": 1}, ttl=0.0001)
            store.put(DOCS, "l", {"n": 2})
            time.sleep(0.05)
            found = [each.key for each in store.search(("docs",), filter={"n": 2})]
            store.delete(DOCS, "l")
            return found, store.get(DOCS, "l"), store.sweep_ttl(), store.list_namespaces()

        assert await run_without_loop(open_backends, use) == (["l"], None, 1, [])


class TestSearches:
    async def test_a_prefix_finds_what_is_below_it(self, store: HelixStore) -> None:
        """Labels, not letters."""
        for namespace in (("a",), ("a", "b"), ("a", "b", "c", "d"), ("a", "bb"), ("aa", "b"), ("b",)):
            await store.aput(namespace, make_group(namespace), {"n": 1})
        assert await find_keys(store, ("a", "b")) == ["a.b", "a.b.c.d"]
        assert sorted(await find_keys(store, ("a",))) == ["a", "a.b", "a.b.c.d", "a.bb"]
        assert sorted(await find_keys(store, ())) == ["a", "a.b", "a.b.c.d", "a.bb", "aa.b", "b"]
        assert await find_keys(store, ("c",)) == []

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"kind": "x"}, ["0", "2"]),
            ({"kind": {"$ne": "x"}}, ["1", "3"]),
            ({"n": {"$gt": 1}}, ["2", "3"]),
            ({"n": {"$gte": 1, "$lt": 3}}, ["1", "2"]),
            ({"n": {"$lte": 1}, "kind": {"$eq": "x"}}, ["0"]),
            ({"deep": {"m": 3}}, ["3"]),
            ({"deep": {"m": {"$lt": 2}}}, ["0", "1"]),
            ({"list": [1, 2]}, ["0", "1", "2", "3"]),
            ({"none": {"$gt": 1}}, []),
            ({"kind": {"$gt": 1}}, []),
        ],
    )
    async def test_a_filter_compares_what_is_in_the_value(
        self, backends: Backends, wanted: Any, found: list[str]
    ) -> None:
        """Equal, by operators, and deep."""
        store = make_store(backends)
        for n, kind in enumerate("xyxy"):
            await store.aput(DOCS, str(n), {"n": n, "kind": kind, "deep": {"m": n}, "list": [1, 2]})
        assert await find_keys(store, DOCS, filter=wanted) == found

    async def test_an_unknown_operator_is_refused(self, backends: Backends) -> None:
        """It is not taken for a filter that nothing matches."""
        store = make_store(backends)
        await store.aput(DOCS, "k", {"n": 1})
        with pytest.raises(InvalidRequestError, match=r"\$near"):
            await store.asearch(DOCS, filter={"n": {"$near": 1}})

    async def test_results_come_in_pages(self, backends: Backends) -> None:
        """Each once, over several namespaces and sessions."""
        store = make_store(backends)
        for user in range(3):
            await store.abatch([PutOp(("docs", f"u{user}"), f"{n:03}", {"n": n}) for n in range(120)])
        pages = [await store.asearch(("docs",), limit=50, offset=offset) for offset in range(0, 400, 50)]
        found = [(each.namespace[1], each.key) for page in pages for each in page]
        assert found == [(f"u{user}", f"{n:03}") for user in range(3) for n in range(120)]


class TestNamespaces:
    async def test_namespaces_are_listed_by_conditions(self, store: HelixStore) -> None:
        """By beginning and end, with wildcards, cut and in pages."""
        namespaces = [
            ("a", "b", "c"),
            ("a", "b", "d", "e"),
            ("a", "b", "d", "i"),
            ("a", "b", "f"),
            ("a", "c", "f"),
            ("b", "a", "f"),
            ("users", "123"),
        ]
        await store.abatch([PutOp(each, f"{n}", {"n": n}) for each in namespaces for n in range(2)])
        listed = store.alist_namespaces
        assert await listed() == namespaces
        assert await listed(prefix=("a", "b")) == namespaces[:4]
        assert await listed(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
        assert await listed(prefix=("a",), suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
        assert await listed(prefix=("*", "b"), suffix=("*", "i")) == [("a", "b", "d", "i")]
        assert await listed(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
        assert await listed(max_depth=2) == [("a", "b"), ("a", "c"), ("b", "a"), ("users", "123")]
        assert await listed(limit=2, offset=3) == namespaces[3:5]
        assert await listed(prefix=("a", "b", "c", "d", "e")) == []

    async def test_a_condition_longer_than_a_namespace_does_not_match(self, store: HelixStore) -> None:
        """Nor is it cut to it."""
        await store.aput(("a",), "k", {"n": 1})
        for kind in ("prefix", "suffix"):
            conditions: Any = (MatchCondition(kind, ("a", "*")),)
            assert await store.abatch([ListNamespacesOp(match_conditions=conditions)]) == [[]]


class TestTimeToLive:
    async def expires_at(self, backends: Backends, store: HelixStore, key: str) -> Any:
        """When an item expires, as it is stored."""
        assert backends.records is not None
        wanted = WantedRecords(names=(name_item(DOCS, key),))
        view = await backends.records.read(store._sessions.name_session(DOCS), wanted)
        return read_item(view.records[0]).expires_at

    async def test_what_has_expired_is_not_read(self, backends: Backends) -> None:
        """And is freed by a sweep, which leaves the rest."""
        store = make_store(backends, ttl={"default_ttl": 0.0001})
        await store.aput(DOCS, "short", {"n": 1})
        await store.aput(DOCS, "long", {"n": 2}, ttl=60)
        await store.aput(DOCS, "ever", {"n": 3}, ttl=None)
        await asyncio.sleep(0.05)
        assert await store.aget(DOCS, "short") is None
        assert await find_keys(store, DOCS) == ["ever", "long"]
        assert await store.asweep_ttl() == 1
        assert await store.asweep_ttl() == 0
        assert backends.records is not None
        session_id = store._sessions.name_session(DOCS)
        left = await backends.records.read_page(session_id, ITEM, make_group(DOCS), limit=10)
        assert [each.key for each in left] == ["ever", "long"]

    async def test_a_read_renews_unless_it_is_told_not_to(self, backends: Backends) -> None:
        """By key and by search; the time when it was changed stays."""
        store = make_store(backends)
        await store.aput(DOCS, "k", {"n": 1}, ttl=60)
        first = await self.expires_at(backends, store, "k")
        await store.aget(DOCS, "k", refresh_ttl=False)
        await store.asearch(DOCS, refresh_ttl=False)
        assert await self.expires_at(backends, store, "k") == first
        put = await store.aget(DOCS, "k")
        second = await self.expires_at(backends, store, "k")
        (found,) = await store.asearch(DOCS)
        third = await self.expires_at(backends, store, "k")
        assert first < second < third < datetime.now(UTC) + timedelta(minutes=61)
        assert put is not None
        assert put.updated_at == found.updated_at

    async def test_an_item_that_expired_comes_anew(self, backends: Backends) -> None:
        """It does not keep when it first came."""
        store = make_store(backends)
        await store.aput(DOCS, "k", {"n": 1}, ttl=0.0001)
        await asyncio.sleep(0.05)
        between = datetime.now(UTC)
        await store.aput(DOCS, "k", {"n": 2})
        item = await store.aget(DOCS, "k")
        assert item is not None
        assert item.created_at > between


class Counted(TypedDict):
    """The state of a graph that remembers."""

    n: int


async def test_a_graph_remembers_across_threads(open_backends: BackendsOpener) -> None:
    """As LangGraph hands it to nodes."""

    async def count(state: Counted, runtime: Runtime[Any]) -> Any:
        assert runtime.store is not None
        item = await runtime.store.aget(("memories", "u1"), "count")
        n = 1 if item is None else item.value["n"] + 1
        await runtime.store.aput(("memories", "u1"), "count", {"n": n})
        return {"n": n}

    graph = StateGraph(Counted)
    graph.add_node("count", count)
    graph.add_edge(START, "count")
    for expected in (1, 2):
        async with open_backends() as backends:
            app = graph.compile(store=make_store(backends))
            assert await app.ainvoke({"n": 0}) == {"n": expected}
