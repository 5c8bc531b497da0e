"""Probes of a worker while a store, Temporal or the worker itself is away: each says what is wrong."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr

from helix_temporal import health, outages, slots, startup, worker
from helix_temporal.agents import Agent, ModelRequest, ModelResponse
from helix_temporal.blobs import probe
from helix_temporal.client import SessionClient
from helix_temporal.devstack import S3Endpoint
from helix_temporal.devstack.programs import free_port
from helix_temporal.errors import ArchiveAccessError, InvalidConfigError, StoreUnavailableError
from helix_temporal.models.sessions import SessionOptions
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.testing.proxy import FaultProxy, HoldRequest
from helix_temporal.testing.serving import Served, session_worker
from helix_temporal.worker import HelixWorker, connect
from tests import _postgres

pytestmark = pytest.mark.slow

WITHIN = 30.0
"""Seconds in which a probe must tell what has happened."""


def said_by(caplog: pytest.LogCaptureFixture, module: ModuleType) -> list[str]:
    """What a module has logged."""
    return [each.getMessage() for each in caplog.records if each.name == module.__name__]


@dataclass(frozen=True)
class Slow:
    """A model that answers when it may."""

    answering: asyncio.Event
    called: asyncio.Event

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Wait, and say so."""
        self.called.set()
        await self.answering.wait()
        return ModelResponse("done")


@dataclass
class Site:
    """A worker's servers, each behind something that can be switched off."""

    settings: Settings
    proxies: dict[str, FaultProxy]
    answering: asyncio.Event = field(default_factory=asyncio.Event)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    def agent(self) -> Agent:
        """One that answers when it may."""
        return Agent(name="slow", model=Slow(self.answering, self.called))

    async def probe(self, path: str, part: str = "wrong") -> tuple[int, dict[str, str]]:
        """Status and what is wrong, or another part of the answer; 0 if nobody listens."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.settings.health_port)
        except OSError:
            return 0, {}
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(body).get(part, {})

    async def wait_for(
        self, path: str, status: int, *wrong: str, says: str = "", part: str = "wrong"
    ) -> dict[str, str]:
        """What a probe says once it has this status, names just these things, and says this of them."""
        found: tuple[int, dict[str, str]] = (0, {})
        async with asyncio.timeout(WITHIN):
            while True:
                found = await self.probe(path, part)
                if found[0] == status and set(found[1]) == set(wrong) and says in str(found[1]):
                    return found[1]
                await asyncio.sleep(0.2)

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncIterator[Served]:
        """A worker of an agent that answers when it may."""
        idle = SessionOptions(idle_timeout=60)
        async with session_worker(self.settings, [self.agent()], options=idle, **options) as served:
            yield served

    @asynccontextmanager
    async def starting(self, *away: str) -> AsyncIterator[asyncio.Event]:
        """A worker that starts, as its command does, while these servers are away; the event ends it."""
        for name in away:
            self.proxies[name].refuse()
        stop = asyncio.Event()

        async def serve() -> None:
            async with worker.prepare_worker(self.settings, [self.agent()]) as (_, prepared), prepared:
                await stop.wait()

        serving = asyncio.create_task(serve())
        try:
            yield stop
            stop.set()
            await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def site(
    temporal_address: str, redis_url: str, postgres_dsn: str, s3: S3Endpoint, unique: str
) -> AsyncIterator[Site]:
    """Threads in Redis, state in PostgreSQL, an archive in S3."""
    prefix = _postgres.own_prefix("health")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_postgres.emptied(postgres_dsn, prefix))
        tables = PostgresBackend(postgres_dsn, table_prefix=prefix)
        await tables.migrations.run()
        await tables.close()
        redis, postgres, archive = (urlsplit(each) for each in (redis_url, postgres_dsn, s3.endpoint))
        targets = {
            "temporal": temporal_address,
            "redis": f"{redis.hostname}:{redis.port}",
            "postgres": f"{postgres.hostname}:{postgres.port}",
            "s3": f"{archive.hostname}:{archive.port}",
        }
        proxies = {
            name: await stack.enter_async_context(FaultProxy.start(target))
            for name, target in targets.items()
        }
        user, at, _ = postgres.netloc.rpartition("@")
        settings = Settings(
            temporal_address=proxies["temporal"].address,
            task_queue=unique,
            redis_url=redis._replace(netloc=proxies["redis"].address).geturl(),
            redis_prefix=f"{unique}:",
            postgres_dsn=postgres._replace(netloc=f"{user}{at}{proxies['postgres'].address}").geturl(),
            table_prefix=prefix,
            s3_endpoint=f"http://{proxies['s3'].address}",
            s3_bucket=s3.bucket,
            s3_region=s3.region,
            s3_access_key=SecretStr(s3.access_key or ""),
            s3_secret_key=SecretStr(s3.secret_key or ""),
            s3_prefix=unique,
            allow_plaintext=True,
            health_host="127.0.0.1",
            health_port=free_port(),
        )
        yield Site(settings, proxies)


async def test_a_worker_that_serves_is_well(site: Site) -> None:
    """By all three probes; before it is there, and afterwards, nobody answers."""
    assert await site.probe("/livez") == (0, {})
    async with site.worker():
        for path in ("/livez", "/startupz", "/readyz"):
            await site.wait_for(path, 200)
        assert (await site.probe("/healthz"))[0] == 404
    assert await site.probe("/livez") == (0, {})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("redis", "threads in redis"), ("postgres", "state in postgres"), ("temporal", "temporal")],
)
async def test_a_server_that_is_away_makes_a_worker_not_ready(site: Site, name: str, wrong: str) -> None:
    """And never dead; when it is back, the worker is ready again."""
    async with site.worker():
        await site.wait_for("/readyz", 200)
        site.proxies[name].refuse()
        await site.wait_for("/readyz", 503, wrong)
        assert (await site.probe("/livez"))[0] == 200
        assert (await site.probe("/startupz"))[0] == 200
        site.proxies[name].refuse(False)
        await site.wait_for("/readyz", 200)


@pytest.mark.parametrize(
    ("name", "wrong"), [("redis", "threads in redis"), ("postgres", "state in postgres")]
)
async def test_a_store_that_is_silent_makes_a_worker_not_ready(site: Site, name: str, wrong: str) -> None:
    """Each probe is answered meanwhile, whether or not a query ends by being cancelled."""
    async with site.worker():
        await site.wait_for("/readyz", 200)
        site.proxies[name].freeze()
        await site.wait_for("/readyz", 503, wrong, says="did not answer within 2 s")
        site.proxies[name].freeze(False)
        await site.wait_for("/readyz", 200)


async def test_an_archive_that_is_away_counts_where_it_is_required(site: Site) -> None:
    """Nobody is answered without it then."""
    site.settings = site.settings.model_copy(update={"archive": "required"})
    async with site.worker():
        await site.wait_for("/readyz", 200)
        site.proxies["s3"].refuse()
        await site.wait_for("/readyz", 503, "archive")
        site.proxies["s3"].refuse(False)
        await site.wait_for("/readyz", 200)


async def test_an_archive_that_is_away_is_told_by_a_worker_that_is_ready(site: Site) -> None:
    """Open sessions go on without it; new ones, and those that have ended, cannot be opened."""
    async with site.worker():
        await site.wait_for("/readyz", 200, part="degraded")
        site.proxies["s3"].refuse()
        await site.wait_for("/readyz", 200, "archive", part="degraded", says="S3 gave no whole answer")
        await site.wait_for("/readyz", 200)
        site.proxies["s3"].refuse(False)
        await site.wait_for("/readyz", 200, part="degraded")


async def test_a_worker_that_drains_is_not_ready(site: Site) -> None:
    """It lives until its calls have ended."""

    async def stop_in_the_middle() -> None:
        async with site.worker(drain=WITHIN) as served:
            await site.wait_for("/readyz", 200)
            session_id = f"{site.settings.task_queue}-slow"
            asked.append(asyncio.create_task(served.sessions.ask(session_id, "hello", agent="slow")))
            await site.called.wait()

    asked: list[asyncio.Task[Any]] = []
    worker = asyncio.create_task(stop_in_the_middle())
    await site.wait_for("/readyz", 503, "worker", says="drains")
    assert (await site.probe("/livez"))[0] == 200
    site.answering.set()
    await worker
    for each in asked:
        each.cancel()


async def test_a_worker_whose_stores_are_being_checked_has_not_started(site: Site) -> None:
    """It lives, and takes no work yet; once they have answered, it has started."""
    site.proxies["postgres"].fail(HoldRequest())
    served = asyncio.Event()

    async def begin() -> None:
        async with site.worker():
            await served.wait()

    beginning = asyncio.create_task(begin())
    found = await site.wait_for("/startupz", 503, "worker")
    assert "has not started" in found["worker"]
    assert (await site.probe("/livez"))[0] == 200
    assert (await site.probe("/readyz"))[0] == 503
    async with asyncio.timeout(WITHIN):
        while (await site.probe("/startupz"))[0] != 200:
            site.proxies["postgres"].release()  # also a request that was held only now
            await asyncio.sleep(0.1)
    served.set()
    await beginning


@pytest.fixture(autouse=True)
def _signals_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts takes SIGTERM for itself."""
    monkeypatch.setattr(worker, "end_on_sigterm", lambda: None)


@pytest.mark.parametrize(
    ("away", "wrong"),
    [
        (["redis"], {"threads in redis"}),
        (["postgres"], {"state in postgres"}),
        (["temporal"], {"temporal"}),
        (["redis", "postgres"], {"threads in redis", "state in postgres"}),
    ],
)
async def test_a_worker_waits_for_what_is_away_when_it_starts(
    site: Site, away: list[str], wrong: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It lives, has not started, and says what it waits for; one line tells of the begin, one of the end."""
    caplog.set_level(logging.INFO, logger="helix_temporal.startup")
    async with site.starting(*away):
        await site.wait_for("/startupz", 503, *wrong)
        assert (await site.probe("/livez"))[0] == 200
        await site.wait_for("/readyz", 503, *wrong)
        for name in away:
            site.proxies[name].refuse(False)
        await site.wait_for("/startupz", 200)
        await site.wait_for("/readyz", 200)
    said = said_by(caplog, startup)
    assert {each.split(", ")[0] for each in said[: len(wrong)]} == {f"waiting for {each}" for each in wrong}
    assert {each.split(", ")[0] for each in said[len(wrong) :]} == {f"{each} is there" for each in wrong}
    assert len(said) == 2 * len(wrong)


async def test_a_worker_that_waits_for_long_says_so_now_and_then(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute, however often it tries."""
    monkeypatch.setattr(startup, "SAY_EVERY", 1.5)
    async with site.starting("redis"):
        # A busy machine may take its time for a try.
        async with asyncio.timeout(60.0):
            while len(said_by(caplog, startup)) < 3:  # noqa: ASYNC110 (what is logged wakes nobody)
                await asyncio.sleep(0.1)
        said = said_by(caplog, startup)
        times = [record.created for record in caplog.records if record.name == startup.__name__]
        assert all(later - earlier > 1.4 for earlier, later in pairwise(times))
        assert "for 0 s" not in said[0]
        assert "which is away, for " in said[1]
        assert "see HELIX_REDIS_URL" in said[1]
        site.proxies["redis"].refuse(False)
        await site.wait_for("/readyz", 200)


async def test_a_worker_that_waits_ends_when_it_is_cancelled(site: Site) -> None:
    """At once, and its probes with it."""
    client, helix = await connect(site.settings)
    site.proxies["redis"].refuse()

    async def wait() -> None:
        async with HelixWorker(client, helix):
            pass

    waiting = asyncio.create_task(wait())
    await site.wait_for("/startupz", 503, "threads in redis")
    waiting.cancel()
    done, _ = await asyncio.wait([waiting], timeout=WITHIN)
    assert done
    assert waiting.cancelled()
    assert await site.probe("/livez") == (0, {})


async def test_what_is_wrong_ends_a_start_while_something_else_is_away(site: Site) -> None:
    """Waiting would not heal it."""
    site.settings = site.settings.model_copy(update={"s3_bucket": f"{site.settings.s3_bucket}-missing"})
    client, helix = await connect(site.settings)
    site.proxies["redis"].refuse()
    with pytest.raises(ArchiveAccessError):
        async with asyncio.timeout(WITHIN), HelixWorker(client, helix):
            pass
    assert await site.probe("/livez") == (0, {})


async def test_an_archive_that_is_away_when_a_worker_starts_keeps_it_from_nothing_else(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It serves, tells what is away, and opens sessions once the archive is there and has been proved."""
    caplog.set_level(logging.INFO, logger="helix_temporal.startup")
    probe._proved.clear()
    site.answering.set()
    async with site.starting("s3"):
        await site.wait_for("/startupz", 200)
        await site.wait_for("/readyz", 200, "archive", part="degraded")
        client, _ = await connect(site.settings)
        sessions = SessionClient(client, task_queue=site.settings.task_queue)
        asked = asyncio.create_task(sessions.ask(f"{site.settings.task_queue}-new", "hello", agent="slow"))
        await asyncio.sleep(1.0)
        assert not asked.done()
        site.proxies["s3"].refuse(False)
        assert (await asyncio.wait_for(asked, 30)).text == "done"
        await site.wait_for("/readyz", 200, part="degraded")
    said = [each.split(", ")[0] for each in said_by(caplog, startup)]
    assert said == ["waiting for archive", "archive is there"]


async def test_an_archive_that_is_required_is_waited_for(site: Site) -> None:
    """Nobody would be answered."""
    site.settings = site.settings.model_copy(update={"archive": "required"})
    async with site.starting("s3"):
        await site.wait_for("/startupz", 503, "archive")
        site.proxies["s3"].refuse(False)
        await site.wait_for("/readyz", 200)


async def test_a_worker_that_may_not_wait_ends(site: Site) -> None:
    """By itself, with an error that names the setting; its probes with it."""
    site.proxies["postgres"].refuse()
    with pytest.raises(StoreUnavailableError, match="HELIX_POSTGRES_DSN"):
        async with site.worker(wait=False):
            pass
    assert await site.probe("/livez") == (0, {})


async def test_a_worker_that_ended_by_itself_is_dead(site: Site) -> None:
    """Its process goes on and does nothing."""
    client, helix = await connect(site.settings)
    async with HelixWorker(client, helix) as worker:
        await site.wait_for("/livez", 200)
        await worker.shutdown()
        found = await site.wait_for("/livez", 503, "worker")
        assert "has ended" in found["worker"]


async def test_a_worker_that_does_not_poll_is_not_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all that it needs is there."""
    monkeypatch.setattr(health, "POLLED_WITHIN", -3600.0)
    async with site.worker():
        # Until its first poll has arrived the server sees nobody.
        await site.wait_for("/readyz", 503, "temporal", says="last polled")


async def test_a_worker_whose_slots_are_all_taken_is_ready(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not poll for activities until one has ended, which may be long."""
    monkeypatch.setattr(health, "POLLED_WITHIN", -3600.0)
    async with site.worker(max_concurrent_activities=1) as served:
        await site.wait_for("/readyz", 503, "temporal", says="last polled")
        session_id = f"{site.settings.task_queue}-slow"
        asked = asyncio.create_task(served.sessions.ask(session_id, "hello", agent="slow"))
        await site.wait_for("/readyz", 200)
        site.answering.set()
        await asked
        await site.wait_for("/readyz", 503, "temporal", says="last polled")


async def test_a_worker_whose_slots_are_all_taken_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To probes and once in its log: reads, stops and first messages wait, and nothing told why."""
    monkeypatch.setattr(slots, "TOLD_AFTER", 0.5)
    site.settings = site.settings.model_copy(update={"max_concurrent_activities": 1})
    async with site.worker() as served:
        await site.wait_for("/readyz", 200, part="busy")
        session_id = f"{site.settings.task_queue}-slow"
        asked = asyncio.create_task(served.sessions.ask(session_id, "hello", agent="slow"))
        async with asyncio.timeout(WITHIN):
            while not (site.answering.is_set() and "slot is free" in said_by(caplog, slots)[-1]):
                _, busy = await site.probe("/readyz", "busy")
                # Between two activities the slot is taken by none that has a name.
                by_step = "by 1 helix.sessions.run_step" in busy.get("activities", "")
                if by_step and "all 1 activity slots" in "".join(said_by(caplog, slots)[-1:]):
                    assert "HELIX_MAX_CONCURRENT_ACTIVITIES" in busy["activities"]
                    site.answering.set()
                await asyncio.sleep(0.2)
        await asked
    # On a busy machine the slot may have been free for a second before the step, and is told about twice.
    told = ["all 1 activity slots" in each for each in said_by(caplog, slots)]
    assert told == [number % 2 == 0 for number in range(len(told))]


@pytest.mark.parametrize("name", ["redis", "s3"])
async def test_a_store_that_is_away_is_logged_once_and_that_it_is_back(
    site: Site, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt of each activity was a traceback, and no line said what had happened."""
    site.answering.set()

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name == outages.__name__]

    async def until_told(beginning: str) -> None:
        async with asyncio.timeout(2 * WITHIN):
            while True:
                if any(each.startswith(beginning) for each in told()):
                    return
                await asyncio.sleep(0.1)

    async with site.worker() as served:
        await site.wait_for("/readyz", 200)
        site.proxies[name].refuse()
        ids = [f"{site.settings.task_queue}-{number}" for number in range(3)]
        asked = [asyncio.create_task(served.sessions.ask(each, "hello", agent="slow")) for each in ids]
        await until_told("store away: ")
        await asyncio.sleep(3.0)
        site.proxies[name].refuse(False)
        await asyncio.gather(*asked)
        await until_told("store back: ")
    away = [each for each in told() if each.startswith("store away: ")]
    # Redis has threads and state: on a busy machine one may be late, not refused, and has its own line then.
    assert 1 <= len(away) <= 2
    assert any(site.proxies[name].address in each for each in away)
    assert len(told()) - len(away) <= 2


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_probes_of_both_families_are_answered(site: Site, address: str) -> None:
    """By default: in a cluster with IPv6 alone, Kubernetes took every worker for dead."""
    site.settings = site.settings.model_copy(update={"health_host": Settings().health_host})
    async with site.worker():
        _, writer = await asyncio.open_connection(address, site.settings.health_port)
        writer.close()


async def test_a_port_that_is_taken_is_told(site: Site) -> None:
    """By which setting it is named."""
    async with site.worker():
        with pytest.raises(InvalidConfigError, match="health_port: cannot listen on"):
            async with site.worker():
                pass


async def test_a_request_that_is_none_is_answered_or_dropped(site: Site) -> None:
    """Whatever comes to an open port."""
    async with site.worker():
        for sent in (b"POST /livez HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n", b"x" * 100_000, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", site.settings.health_port)
            writer.write(sent)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 10)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 405")
            writer.close()
        await site.wait_for("/livez", 200)
