"""`HelixSessionStore` under the suite that the Claude Agent SDK has for stores, and beyond it."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.testing import run_session_store_conformance

from bench.faults.trials import FAULTS
from helix_temporal.errors import SessionNotFoundError
from helix_temporal.frameworks.claude_agent_sdk import HelixSessionStore
from helix_temporal.stores.protocols.sessions import SessionStore
from tests._production import Production
from tests.docs._pages import ROOT, titled
from tests.frameworks._examples import check_example, check_example_on_temporal
from tests.frameworks.conftest import StoreOpener

KEY: Any = {"project_key": "/home/u/a project", "session_id": "0b7c"}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}


def entry(number: int, **more: Any) -> Any:
    """An entry with a name."""
    return {"type": "user", "uuid": f"u{number}", "n": number, **more}


class Prefixed:
    """The store with projects of its own: the suite wants an empty one each time."""

    def __init__(self, inner: HelixSessionStore) -> None:
        self._inner, self._prefix = inner, uuid.uuid4().hex

    def _own(self, key: Any) -> Any:
        return (
            f"{self._prefix}{key}"
            if isinstance(key, str)
            else {**key, "project_key": f"{self._prefix}{key['project_key']}"}
        )

    async def append(self, key: Any, entries: Any) -> None:
        """As the store."""
        await self._inner.append(self._own(key), entries)

    async def load(self, key: Any) -> Any:
        """As the store."""
        return await self._inner.load(self._own(key))

    async def list_sessions(self, project_key: str) -> Any:
        """As the store."""
        return await self._inner.list_sessions(self._own(project_key))

    async def list_session_summaries(self, project_key: str) -> Any:
        """As the store."""
        return await self._inner.list_session_summaries(self._own(project_key))

    async def delete(self, key: Any) -> None:
        """As the store."""
        await self._inner.delete(self._own(key))

    async def list_subkeys(self, key: Any) -> Any:
        """As the store."""
        return await self._inner.list_subkeys(self._own(key))


@pytest.fixture
async def sessions(store: SessionStore) -> HelixSessionStore:
    """The store under test."""
    return HelixSessionStore(store)


async def test_the_suite_of_the_sdk(sessions: HelixSessionStore) -> None:
    """All of its contracts, the optional ones too."""
    await run_session_store_conformance(lambda: Prefixed(sessions))


async def test_a_batch_that_is_sent_again_stands_once(sessions: HelixSessionStore) -> None:
    """Whole, or overlapping another one: the uuid is the name."""
    await sessions.append(KEY, [entry(n) for n in range(4)])
    await sessions.append(KEY, [entry(n) for n in range(4)])
    await sessions.append(KEY, [entry(n) for n in range(2, 7)])
    assert await sessions.load(KEY) == [entry(n) for n in range(7)]


async def test_an_entry_whose_content_has_changed_since_stands_as_it_came_first(
    sessions: HelixSessionStore,
) -> None:
    """Ignored, as the contract allows, and no error."""
    await sessions.append(KEY, [entry(1)])
    await sessions.append(KEY, [entry(1, more="text"), entry(2)])
    assert await sessions.load(KEY) == [entry(1), entry(2)]


async def test_entries_without_a_name_are_appended_as_they_are(sessions: HelixSessionStore) -> None:
    """Titles and tags, twice if they come twice."""
    title: Any = {"type": "custom-title", "customTitle": "hi"}
    for _ in range(2):
        await sessions.append(KEY, [title])
    assert await sessions.load(KEY) == [title, title]


async def test_appends_at_once_lose_nothing(open_store: StoreOpener) -> None:
    """From several processes; each batch is in one piece."""
    async with AsyncExitStack() as stack:
        stores = [HelixSessionStore(await stack.enter_async_context(open_store())) for _ in range(3)]
        batches = [[entry(10 * n + at) for at in range(3)] for n in range(12)]
        await asyncio.gather(*(stores[n % 3].append(KEY, batch) for n, batch in enumerate(batches)))
        loaded: list[Any] = await stores[0].load(KEY) or []
        found = [loaded[at : at + 3] for at in range(0, len(loaded), 3)]
        assert sorted(found, key=lambda batch: batch[0]["n"]) == batches


async def test_the_summary_is_that_of_all_entries(open_store: StoreOpener) -> None:
    """Whoever appended them, in the order in which they stand."""
    entries = [
        entry(
            n,
            timestamp=f"2026-01-01T00:00:0{n}.000Z",
            customTitle=f"title {n}",
            message={"role": "user", "content": f"m{n}"},
        )
        for n in range(8)
    ]
    async with open_store() as one, open_store() as two:
        stores = [HelixSessionStore(one), HelixSessionStore(two)]
        for at, each in enumerate(entries):
            await stores[at % 2].append(KEY, [each])
        (summary,) = await stores[0].list_session_summaries(KEY["project_key"])
        folded: Any = None
        for each in entries:
            folded = fold_session_summary(folded, KEY, [each])
        assert (summary["session_id"], summary["data"]) == (KEY["session_id"], folded["data"])


async def test_a_summary_may_hold_any_text(sessions: HelixSessionStore) -> None:
    """A first prompt with a NUL must not cost its batch."""
    odd = "a\0b \ud800 c"
    await sessions.append(KEY, [entry(0, message={"role": "user", "content": odd}, cwd=odd)])
    await sessions.append(KEY, [entry(1, type="summary", customTitle=odd)])
    loaded = await sessions.load(KEY)
    assert loaded is not None
    assert [each["uuid"] for each in loaded] == ["u0", "u1"]
    (summary,) = await sessions.list_session_summaries(KEY["project_key"])
    assert summary["data"]["cwd"] == odd


async def test_no_subpath_is_the_main_transcript(sessions: HelixSessionStore) -> None:
    """Also where it is said to be None."""
    none: Any = {**KEY, "subpath": None}
    await sessions.append(none, [entry(0)])
    await sessions.append(SUB, [entry(1)])
    assert [each["session_id"] for each in await sessions.list_sessions(KEY["project_key"])] == ["0b7c"]
    assert await sessions.list_subkeys(none) == ["subagents/agent-1"]
    await sessions.delete(none)
    assert (await sessions.load(KEY), await sessions.load(SUB)) == (None, None)


async def test_the_newest_transcript_is_told_by_its_time(sessions: HelixSessionStore) -> None:
    """An append changes it."""
    other: Any = {**KEY, "session_id": "other"}
    await sessions.append(KEY, [entry(1)])
    await sessions.append(other, [entry(1)])
    await asyncio.sleep(0.01)
    await sessions.append(KEY, [entry(2)])
    times = {each["session_id"]: each["mtime"] for each in await sessions.list_sessions(KEY["project_key"])}
    assert times[KEY["session_id"]] > times["other"]


async def test_a_transcript_that_was_deleted_is_not_brought_back(open_store: StoreOpener) -> None:
    """By a process that still mirrors it, or one of its sub-agents."""
    async with open_store() as one, open_store() as two:
        late, other = HelixSessionStore(one), HelixSessionStore(two)
        await late.append(KEY, [entry(1)])
        await late.append(SUB, [entry(1)])
        await other.delete(KEY)
        for key in (KEY, SUB):
            with pytest.raises(SessionNotFoundError, match="was deleted"):
                await late.append(key, [entry(2)])
            assert await other.load(key) is None
        assert await other.list_sessions(KEY["project_key"]) == []


async def test_a_thousand_entries_are_loaded(sessions: HelixSessionStore) -> None:
    """In order, as they were."""
    entries = [entry(n, text="\x00\ud800 é" * 3) for n in range(1000)]
    for first in range(0, 1000, 250):
        await sessions.append(KEY, entries[first : first + 250])
    assert await sessions.load(KEY) == entries


async def test_a_transcript_is_there_in_another_process(open_store: StoreOpener) -> None:
    """With those of its sub-agents."""
    async with open_store() as store:
        await HelixSessionStore(store).append(KEY, [entry(1)])
        await HelixSessionStore(store).append(SUB, [entry(2)])
    async with open_store() as store:
        sessions = HelixSessionStore(store)
        assert await sessions.load(KEY) == [entry(1)]
        assert await sessions.load(SUB) == [entry(2)]
        assert await sessions.list_subkeys(KEY) == [SUB["subpath"]]


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a", 'b","c'), ('a","b', "c")), (("a/b", "c"), ("a", "b/c")), (("x" * 300, "s"), ("x" * 301, "s"))],
)
async def test_keys_do_not_meet(sessions: HelixSessionStore, one: Any, other: Any) -> None:
    """However they are made up, and however long they are."""
    first: Any = {"project_key": one[0], "session_id": one[1]}
    second: Any = {"project_key": other[0], "session_id": other[1]}
    await sessions.append(first, [entry(1)])
    assert await sessions.load(second) is None
    await sessions.append({**second, "subpath": "s" * 300}, [entry(2)])
    assert await sessions.load(first) == [entry(1)]


def test_the_program_of_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the process that the SDK starts: what it would mirror is in the store afterwards."""
    programs = dict(titled(ROOT / "docs" / "frameworks" / "claude-agent-sdk.md", "python"))

    async def query(*, prompt: str, options: Any) -> AsyncIterator[str]:
        await options.session_store.append(KEY, [entry(1, text=prompt)])
        for each in await options.session_store.load(KEY):
            yield each["text"]

    monkeypatch.setattr("claude_agent_sdk.query", query)
    monkeypatch.setenv("HELIX_DATA_DIRECTORY", str(tmp_path / "data"))
    printed: list[Any] = []
    code = compile(programs["assistant.py"], "assistant.py", "exec")
    exec(code, {"__name__": "__main__", "print": printed.append})
    assert printed == ["What is in this folder?"]


def test_the_table_of_faults_is_made(postgres_dsn: str, redis_url: str, unique: str) -> None:
    """All faults in this environment, with short sessions: the SDK's own store doubles, ours does not."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.faults.run", "claude_agent_sdk", "--sizes", "40"],
        env={
            **os.environ,
            "FAULTS_POSTGRES": postgres_dsn,
            "FAULTS_REDIS": redis_url,
            "FAULTS_PREFIX": f"{unique}:",
        },
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    theirs, *ours = [json.loads(line) for line in done.stdout.splitlines()]
    assert list(theirs["cells"]) == [*FAULTS, "40 items"]
    assert (theirs["cells"]["same turn asked twice"], theirs["cells"]["another process"]) == (
        "doubled",
        "gone",
    )
    assert len(ours) == 2
    for row in ours:
        told = list(row["cells"].values())
        assert told[0].startswith("stands once (")
        assert told[1:6] == [
            "stands once",
            "all 20 kept",
            "the same",
            "stays deleted (SessionNotFoundError)",
            "stands once",
        ]


@pytest.fixture
async def production(redis_url: str, redis_prefix: str, s3_prefix: str) -> AsyncIterator[Production]:
    """Redis without PostgreSQL, and an archive."""
    async with Production.opened(redis_url, redis_prefix, s3_prefix) as made:
        yield made


async def test_a_wiped_redis_gives_transcripts_back(production: Production) -> None:
    """With their summary, which goes on, and their sub-agents."""
    before = HelixSessionStore(production.store())
    await before.append(SUB, [entry(9)])
    await before.append(KEY, [entry(0, message={"role": "user", "content": "the first prompt"})])
    await before.append({**KEY, "subpath": "subagents/agent-2"}, [entry(8)])
    await production.sweep()
    await production.wipe()
    after = HelixSessionStore(production.store())
    await after.append(KEY, [entry(1, message={"role": "user", "content": "another"})])
    assert [each["uuid"] for each in await after.load(KEY) or []] == ["u0", "u1"]
    (summary,) = await after.list_session_summaries(KEY["project_key"])
    assert "the first prompt" in json.dumps(summary["data"])
    assert sorted(await after.list_subkeys(KEY)) == ["subagents/agent-1", "subagents/agent-2"]


async def test_a_delete_reaches_archived_transcripts_and_holds(production: Production) -> None:
    """Those of sub-agents, too, and after another wipe."""
    before = HelixSessionStore(production.store())
    await before.append(KEY, [entry(0)])
    await before.append(SUB, [entry(9)])
    await production.sweep()
    await production.wipe()
    await HelixSessionStore(production.store()).append(KEY, [entry(1)])
    await HelixSessionStore(production.store()).delete(KEY)
    await production.wipe()
    after = HelixSessionStore(production.store())
    for key in (KEY, SUB):
        with pytest.raises(SessionNotFoundError):
            await after.append(key, [entry(2)])
        assert await after.load(key) is None


def test_the_example_prints_what_its_page_says() -> None:
    """Alone, in processes of its own."""
    check_example("claude_agent_sdk_sessions")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("variables", ["sqlite", "redis and s3"], indirect=True)
async def test_the_example_runs_in_a_workflow(variables: dict[str, str], temporal_address: str) -> None:
    """Question and answer stand once, though the worker was killed before it could report them."""
    variables = {**variables, "HELIX_TEMPORAL_ADDRESS": temporal_address}
    await check_example_on_temporal("claude_agent_sdk_sessions", "claude_in_a_workflow.py", variables)
