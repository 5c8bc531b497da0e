"""The inspector and its stores: it changes nothing in them, and shows what it can while one is away."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from shop_agents import make_agents
from shop_talk import RETURNS, fill_shop

from helix_temporal.backends import Backends
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.testing.environment import helix_env
from helix_temporal.testing.proxy import FaultProxy
from tests._browser import browser
from tests._postgres import emptied, own_prefix
from tests.integration._crawl import crawl, kind_of
from tests.integration._inspected import Inspector, inspector_over, opened_at, session_path
from tests.integration._store_dumps import dump_archive, dump_files, dump_postgres, dump_redis

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

KINDS = 13
"""Kinds of pages that there are."""


async def fill(settings: Settings) -> None:
    """A shop's sessions, whose worker has gone."""
    async with helix_env(make_agents(), options=SessionOptions(suspend="exit"), settings=settings) as env:
        await fill_shop(env.sessions)


async def look_at_all(stores: Backends) -> None:
    """Every page, with scripts, verified storage, and what is live."""
    agents = {agent.name: agent for agent in make_agents()}

    async def look(page: Page) -> None:
        await page.evaluate("() => document.querySelectorAll('details').forEach(each => each.open = true)")

    async with inspector_over(stores, agents=agents) as inspector:
        async with browser() as chromium, opened_at(chromium, inspector) as (page, _):
            starts = [
                session_path(inspector.app, RETURNS),
                f"{session_path(inspector.app, RETURNS, 'storage')}?verify=1",
                "/calls?failed=1",
                "/waiting",
                "/?need=waiting",
                "/?need=failed",
                "/?need=behind",
            ]
            opened = await crawl(page, inspector, look, starts=starts, most=90, each_kind=8)
        await watch_live(inspector)
    assert len({kind_of(each) for each in opened}) >= KINDS


async def watch_live(inspector: Inspector) -> None:
    """Follow a conversation until its first piece."""
    async with httpx.AsyncClient(follow_redirects=True, timeout=60) as http:
        await http.get(inspector.link)
        async with http.stream(
            "GET", f"{inspector.address}{session_path(inspector.app, RETURNS, 'live')}"
        ) as live:
            assert live.status_code == 200
            async for text in live.aiter_text():
                if "hx-partial" in text:
                    return


async def check_unchanged(settings: Settings, dump: Callable[[Backends], Awaitable[dict[str, Any]]]) -> None:
    """Look at all pages, and find in the stores what was there before."""
    await fill(settings)
    backends = Backends(settings)
    try:
        before = await dump(backends)
        assert len(before) > 3
        await look_at_all(backends)
        after = await dump(backends)
    finally:
        await backends.close()
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] != before[name]] == []


async def test_no_page_changes_redis_or_s3(settings: Settings, redis_url: str) -> None:
    """Not a key, not a time at which one expires: whoever looks keeps nothing alive."""

    async def dump(backends: Backends) -> dict[str, Any]:
        keys = await dump_redis(redis_url, settings.redis_prefix)
        return {**keys, **await dump_archive(backends)}

    await check_unchanged(settings, dump)


async def test_no_page_changes_postgres(postgres_dsn: str, tmp_path: Path, unique: str) -> None:
    """Not even by writing the same again."""
    prefix = own_prefix("inspect")
    cold = tmp_path / "cold"
    cold.mkdir()
    async with emptied(postgres_dsn, prefix):
        settings = Settings.from_env(
            {
                "HELIX_POSTGRES_DSN": postgres_dsn,
                "HELIX_TABLE_PREFIX": prefix,
                "HELIX_COLD_DIRECTORY": str(cold),
                "HELIX_TASK_QUEUE": unique,
                "HELIX_ALLOW_PLAINTEXT": "true",
            }
        )

        async def dump(_: Backends) -> dict[str, Any]:
            return {**await dump_postgres(postgres_dsn, prefix), **dump_files(cold)}

        await check_unchanged(settings, dump)


async def test_no_page_changes_sqlite(tmp_path: Path, unique: str) -> None:
    """Without any server."""
    (tmp_path / "cold").mkdir()
    settings = Settings(data_directory=tmp_path / "data", cold_directory=tmp_path / "cold", task_queue=unique)

    async def dump(_: Backends) -> dict[str, Any]:
        return dump_files(tmp_path)

    await check_unchanged(settings, dump)


@asynccontextmanager
async def pages_of(settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, Inspector]]:
    """A browser without scripts that has the link, over stores of its own."""
    backends = Backends(settings)
    try:
        async with (
            inspector_over(backends) as inspector,
            httpx.AsyncClient(base_url=inspector.address, follow_redirects=True, timeout=100) as http,
        ):
            await http.get(inspector.link)
            yield http, inspector
    finally:
        await backends.close()


async def test_a_bucket_that_is_away_hides_no_hot_session(settings: Settings) -> None:
    """What is in Redis is shown, and what is missing is named; nothing hangs."""
    assert settings.s3_endpoint is not None
    await fill(settings)
    async with FaultProxy.start(settings.s3_endpoint) as proxy:
        through = settings.model_copy(update={"s3_endpoint": f"http://{proxy.address}"})
        async with pages_of(through) as (http, inspector):
            proxy.refuse()
            listed = await http.get("/")
            assert (listed.status_code, "Return of order 4711" in listed.text) == (200, True)
            one = await http.get(session_path(inspector.app, RETURNS))
            assert one.status_code == 200
            assert "Return of order 4711" in one.text
            storage = await http.get(session_path(inspector.app, RETURNS, "storage"))
            assert storage.status_code == 200
            assert "notice" in storage.text


async def test_a_redis_that_is_away_is_told(settings: Settings) -> None:
    """With its name and what to do, not with a traceback; and it is well again by itself."""
    assert settings.redis_url is not None
    await fill(settings)
    async with FaultProxy.start(settings.redis_url) as proxy:
        through = settings.model_copy(update={"redis_url": f"redis://{proxy.address}"})
        async with pages_of(through) as (http, inspector):
            proxy.refuse()
            away = await http.get(session_path(inspector.app, RETURNS))
            assert away.status_code == 503
            assert "does not answer" in away.text
            assert "Traceback" not in away.text
            proxy.refuse(False)
            assert (await http.get(session_path(inspector.app, RETURNS))).status_code == 200


async def test_a_damaged_archive_is_shown_as_far_as_it_can_be_read(tmp_path: Path, unique: str) -> None:
    """The rest of the conversation is there, and the place of the damage is named."""
    (tmp_path / "cold").mkdir()
    settings = Settings(data_directory=tmp_path / "data", cold_directory=tmp_path / "cold", task_queue=unique)
    await fill(settings)
    damaged = [path for path in (tmp_path / "cold").rglob("*") if path.is_file() and path.stat().st_size]
    assert damaged != []
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
    async with pages_of(settings) as (http, inspector):
        assert "Return of order 4711" in (await http.get("/")).text
        answers = {
            name: await http.get(session_path(inspector.app, RETURNS, name))
            for name in ("conversation", "storage", "timeline", "state", "usage", "tree")
        }
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 200)
    assert "notice bad" in answers["storage"].text


async def test_a_session_that_is_deleted_while_it_is_looked_at(tmp_path: Path) -> None:
    """Its page says so, instead of an error of the server's."""
    async with helix_env(make_agents(), directory=tmp_path) as env:
        await env.sessions.ask("gone", "Hello?", agent="support")
        async with (
            inspector_over(env.backends) as inspector,
            browser() as chromium,
            opened_at(chromium, inspector) as (page, _),
        ):
            await page.goto(inspector.address + session_path(inspector.app, "gone"))
            await expect(page.locator("#live-status")).to_contain_text("Following")
            await env.sessions.session("gone").delete()
            await expect(page.locator("#live-status")).to_contain_text("deleted")
            answer = await page.reload()
            assert answer is not None
            assert answer.status == 404
            await expect(page.locator("h1")).to_have_text("Not here")
