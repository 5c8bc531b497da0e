"""Threads on a PostgreSQL that dies, and on a network that loses answers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helix_temporal.devstack import Stack, start_stack
from helix_temporal.errors import HelixError, StoreUnavailableError
from helix_temporal.models.stored_messages import EMPTY, Head, StoredMessage
from helix_temporal.stores.postgres import PostgresBackend
from helix_temporal.stores.protocols.hot import StepAppend
from helix_temporal.stores.protocols.threads import OpenThread, ReadPage
from helix_temporal.stores.threads.hot_only import HotThreads
from helix_temporal.testing.builders import a_message, a_step, an_answer
from helix_temporal.testing.proxy import CutReply, FaultProxy
from tests import _postgres

EPOCH = 10


@pytest.fixture
async def proxied(postgres_dsn: str) -> AsyncIterator[tuple[FaultProxy, PostgresBackend]]:
    """A backend whose one connection goes through a proxy."""
    parts = urlsplit(postgres_dsn)
    prefix = _postgres.own_prefix("faults")
    async with (
        _postgres.emptied(postgres_dsn, prefix),
        FaultProxy.start(f"{parts.hostname}:{parts.port}") as proxy,
    ):
        dsn = parts._replace(netloc=f"{parts.username}@{proxy.address}").geturl()
        backend = PostgresBackend(dsn, table_prefix=prefix, max_connections=1, timeout=30)
        yield proxy, backend
        await backend.close()


@pytest.mark.parametrize("passed", [0, 1, 20])
async def test_an_append_whose_answer_is_lost_counts_once(
    proxied: tuple[FaultProxy, PostgresBackend], passed: int
) -> None:
    """The connection went while the server committed; the second attempt gets the first one's answer."""
    proxy, backend = proxied
    threads = HotThreads(backend.threads)
    head = (await threads.open(OpenThread("t", EPOCH, "owner"))).header.head
    head = (await threads.append(a_step("t", head, epoch=EPOCH))).head
    step = a_step("t", head, epoch=EPOCH)
    proxy.fail(CutReply(after=passed))
    with pytest.raises(StoreUnavailableError):
        await threads.append(step)
    second = replace(step, answer=an_answer("another attempt's"))
    told = await threads.append(second)
    assert told.repeated
    assert told.messages == step.messages
    assert len((await threads.read(ReadPage("t", committed_only=False))).messages) == 4


@pytest.mark.parametrize("at", range(6))
async def test_an_open_cut_anywhere_is_all_or_nothing(
    proxied: tuple[FaultProxy, PostgresBackend], at: int
) -> None:
    """Begin, lock, header, messages, commit: whichever answer is lost, a repeat finishes the work."""
    proxy, backend = proxied
    threads = HotThreads(backend.threads)
    opened = await threads.open(
        OpenThread("t", EPOCH, "owner", messages=(a_message("one"), a_message("two")))
    )
    proxy.fail(CutReply(), skip=at)
    again = OpenThread("t", EPOCH + 1, "other", messages=(a_message("three"),))
    for _ in range(3):
        try:
            reopened = await threads.open(again)
            break
        except StoreUnavailableError:
            continue
    else:
        pytest.fail("not opened in three tries")
    page = await threads.read(ReadPage("t", committed_only=False))
    assert reopened.header.epoch == EPOCH + 1
    assert [message.body for message in page.messages][-1] == b"three"
    assert page.head.position == len(page.messages)
    assert opened.header.head.position >= page.messages.index(again.messages[0])


@dataclass
class Writer:
    """A worker that has one conversation: repeats what failed, and remembers what was acknowledged."""

    threads: HotThreads
    thread_id: str
    head: Head = EMPTY
    acknowledged: list[StoredMessage] = field(default_factory=list)
    failures: int = 0

    async def talk(self, ending: asyncio.Event) -> None:
        """Steps, each repeated until it is answered, with another answer at each attempt."""
        while not ending.is_set():
            inputs = (a_message(),)
            told = None
            while told is None:
                step = StepAppend(self.thread_id, EPOCH, self.head, inputs, an_answer(), commits=True)
                try:
                    told = await self.threads.append(step)
                except StoreUnavailableError:
                    self.failures += 1
                    await asyncio.sleep(0.02)
            self.head = told.head
            self.acknowledged += told.messages


@pytest.fixture
def own_postgres(open_directory: Path) -> Iterator[Stack]:
    """A server to kill, whose acknowledged commits survive that."""
    # A server that is given by its address is nobody's to kill.
    programs = {key: value for key, value in os.environ.items() if key == "PATH" or key.endswith("_BINARY")}
    with start_stack(["postgres"], directory=open_directory, environment=programs) as stack:
        yield stack


@pytest.mark.parametrize(
    ("writers", "crashes"),
    [(4, 3), pytest.param(8, 60, marks=[pytest.mark.campaign, pytest.mark.timeout(600)])],
)
async def test_a_server_that_keeps_crashing_loses_and_doubles_nothing(
    own_postgres: Stack, writers: int, crashes: int
) -> None:
    """Conversations go on while the server is killed again and again."""
    backend = PostgresBackend(own_postgres.postgres.dsn, max_connections=writers, timeout=10)
    await backend.migrations.run()
    threads = HotThreads(backend.threads)
    working = [Writer(threads, f"thread-{number}") for number in range(writers)]
    for writer in working:
        await threads.open(OpenThread(writer.thread_id, EPOCH, "owner"))
    ending = asyncio.Event()
    talking = [asyncio.create_task(writer.talk(ending)) for writer in working]
    for _ in range(crashes):
        await asyncio.sleep(0.4)
        await asyncio.to_thread(_crash, own_postgres)
    await asyncio.sleep(0.2)
    ending.set()
    await asyncio.gather(*talking)
    assert sum(writer.failures for writer in working) > 0
    for writer in working:
        page = await threads.read(
            ReadPage(writer.thread_id, start=max(0, writer.head.position - 10_000), limit=10_000)
        )
        assert list(page.messages) == writer.acknowledged[-10_000:]
        assert page.head == writer.head
    await backend.close()


async def test_a_stale_writer_is_refused_whatever_the_server_did(own_postgres: Stack) -> None:
    """The fence is in the row, not in a session that died with the server."""
    backend = PostgresBackend(own_postgres.postgres.dsn, timeout=10)
    await backend.migrations.run()
    threads = HotThreads(backend.threads)
    await threads.open(OpenThread("t", EPOCH, "old"))
    await threads.open(OpenThread("t", EPOCH + 1, "new"))
    await asyncio.to_thread(_crash, own_postgres)
    refused = None
    while refused is None or isinstance(refused, StoreUnavailableError):
        try:
            await threads.append(a_step("t", EMPTY, epoch=EPOCH))
        except HelixError as error:
            refused = error
    assert type(refused).__name__ == "FencedError"
    await backend.close()


def _crash(stack: Stack) -> None:
    server = stack.servers["postgres"]
    assert server.pid is not None
    # The server's own word for a crash: all its processes end at once and it recovers from its log.
    os.kill(server.pid, signal.SIGQUIT)
    server.restart()
