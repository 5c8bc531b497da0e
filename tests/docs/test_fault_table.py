"""The table of faults: its verdicts tell a store that fails from one that does not; its page has its form."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis.asyncio as redis

from bench.faults import trials
from bench.faults.environments import list_frameworks
from bench.faults.stores import Item, Store, Subject
from bench.faults.table import BEGIN, END, TITLES, Result, find_table, render_table, replace_table
from bench.faults.trials import FAULTS, Trial
from tests.docs._pages import ROOT


class Listed:
    """A list in memory that is all that a store should not be."""

    def __init__(self, items: list[str]) -> None:
        self.items = items
        self.known: list[str] = []

    async def append(self, items: Sequence[Item]) -> None:
        """What was there when it looked, and these."""
        self.items[:] = [*self.known, *(each.text for each in items)]
        self.known = list(self.items)

    async def read(self, newest: int | None = None) -> list[str]:
        """All."""
        return list(self.items)

    async def refresh(self) -> None:
        """Look again."""
        self.known = list(self.items)

    async def delete(self) -> None:
        """Empty it."""
        self.items.clear()

    async def close(self) -> None:
        """Nothing."""


class Appending(Listed):
    """Whoever appends appends to what is there."""

    async def append(self, items: Sequence[Item]) -> None:
        """Behind what is there."""
        self.items.extend(each.text for each in items)


class Named(Appending):
    """What is there stands once, and nothing comes back."""

    async def append(self, items: Sequence[Item]) -> None:
        """What is not there yet."""
        if "deleted" in self.items:
            raise KeyError("deleted")
        self.items.extend([each.text for each in items if each.text not in self.items])

    async def read(self, newest: int | None = None) -> list[str]:
        """All but the mark."""
        return [text for text in self.items if text != "deleted"]

    async def delete(self) -> None:
        """With a mark that stays."""
        self.items[:] = ["deleted"]


def in_memory(kind: Callable[[list[str]], Store]) -> Trial:
    """A trial of a list that all who open it share."""
    lists: dict[str, list[str]] = {}

    async def opened(_: str, session: str) -> Store:
        return kind(lists.setdefault(session, []))

    return Trial("none", Subject("list", "memory", opened), "")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Listed, ["stands once", "lost 10 of 20", "what was deleted is back"]),
        (Appending, ["doubled", "all 20 kept", "begins anew"]),
        (Named, ["stands once", "all 20 kept", "stays deleted (KeyError)"]),
    ],
)
async def test_each_verdict_can_be_bad(kind: Callable[[list[str]], Store], expected: list[str]) -> None:
    """A store that overwrites, one that only appends, and one that does it right."""
    trial = in_memory(kind)
    found = [
        await trials.ask_twice(trial),
        await trials.write_at_once(trial),
        await trials.write_after_delete(trial),
    ]
    assert found == expected


class InRedis:
    """A list or a sorted set in Redis, by a client that repeats nothing by itself."""

    def __init__(self, client: Any, key: str, *, named: bool) -> None:
        self._client, self._key, self._named = client, key, named

    async def append(self, items: Sequence[Item]) -> None:
        """In one command."""
        texts = [each.text for each in items]
        if self._named:
            await self._client.zadd(self._key, dict.fromkeys(texts, 0.0), nx=True)
        else:
            await self._client.rpush(self._key, *texts)

    async def read(self, newest: int | None = None) -> list[str]:
        """All, in the order that the trial wants of sorted ones."""
        if self._named:
            found = await self._client.zrange(self._key, 0, -1)
            return sorted((each.decode() for each in found), reverse=True)
        return [each.decode() for each in await self._client.lrange(self._key, 0, -1)]

    async def refresh(self) -> None:
        """Nothing."""

    async def delete(self) -> None:
        """The key."""
        await self._client.delete(self._key)

    async def close(self) -> None:
        """The connection."""
        await self._client.aclose()


@pytest.mark.parametrize(("named", "expected"), [(False, "doubled at 1 of 1"), (True, "stands once (1 cut)")])
async def test_a_lost_answer_is_lost_behind_the_write(redis_url: str, named: bool, expected: str) -> None:
    """The request arrives: whoever repeats it without a name doubles it."""

    async def opened(address: str, session: str) -> Store:
        client = redis.Redis.from_url(address, retry=None)
        await client.ping()
        return InRedis(client, f"faults:{session}", named=named)

    assert await trials.lose_answers(Trial("none", Subject("bare", "redis", opened), redis_url)) == expected


def test_a_cell_tells_what_was_seen() -> None:
    """Each kind of damage has its words."""
    assert trials.judge(["a", "b"], ["a", "b"]) == "once"
    assert trials.judge(["a", "b", "b"], ["a", "b"]) == "1 of 2 doubled"
    assert trials.judge(["b"], ["a", "b"]) == "1 of 2 lost"
    assert trials.judge(["b", "a"], ["a", "b"]) == "out of order"
    assert trials.tell_cuts({"once": 3, "doubled": 1}) == "doubled at 1 of 4"
    assert trials.tell_cuts({}) == "not struck"
    assert trials.tell_writers(["a1", "a0"], [["a0", "a1"]], 0) == "all 2 kept, out of order"
    assert trials.tell_writers(["a0", "a0"], [["a0"]], 2) == "1 of 1 doubled, 2 refused and repeated"


def test_the_table_is_written_between_its_marks() -> None:
    """And nothing else of the page changes; a page without marks is refused."""
    row = {"store": "S", "place": "redis", "ours": True, "cells": {"two writers": "all kept"}}
    table = render_table([Result("langgraph", ["langgraph 1"], [row]), Result("other", [], [], "left out")])
    assert table.splitlines()[2:4] == [
        "| LangGraph | **S, Redis** | all kept |",
        "| other | left out | – |",
    ]
    page = replace_table(f"before\n{BEGIN}\nold\n{END}\nafter", table)
    assert page == f"before\n{BEGIN}\n\n{table}\n\n{END}\nafter"
    assert find_table(page) == table
    with pytest.raises(ValueError, match="marks"):
        replace_table("no marks", table)


def test_the_page_has_a_table_of_this_form() -> None:
    """A row for each store, a cell for each fault, and rows of ours and theirs."""
    lines = find_table((ROOT / "docs" / "frameworks.md").read_text()).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert rows[0][2:8] == list(FAULTS)
    assert {len(row) for row in rows} == {len(rows[0])}
    assert {row[0] for row in rows[2:]} <= set(TITLES.values())
    ours = [row[1].startswith("**") for row in rows[2:]]
    assert any(ours)
    assert not all(ours)


def test_each_framework_with_packages_has_a_module_and_a_title() -> None:
    """Adding one is a module, its packages, and its name in the table."""
    modules = {path.stem for path in (ROOT / "bench" / "faults" / "frameworks").glob("[a-z]*.py")}
    assert modules == set(list_frameworks()) == set(TITLES)
