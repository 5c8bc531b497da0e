"""Checks are made side by side: what hangs or breaks is one line, and the others are told."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from helix_temporal.backends import Backends
from helix_temporal.doctor import CheckReport, check_deployment
from helix_temporal.doctor.checks import Check, Probe, run_probes
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread
from helix_temporal.stores.sqlite.backend import SqliteBackend
from helix_temporal.testing.builders import EPOCH, a_message, archived, grown


async def be_well() -> Sequence[Check]:
    return [Check(about="a", name="well", status="ok", says="well")]


async def hang() -> NoReturn:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            # As a driver does that waits for a silent server to agree.
            await asyncio.sleep(0.2)
            raise


def failing(error: Exception) -> Probe:
    """One that raises."""

    async def fail() -> NoReturn:
        raise error

    return Probe("b", "server", fail)


async def test_what_hangs_is_away_and_holds_nobody_up() -> None:
    """A silent server is the most frequent reason to call a doctor."""
    found = await run_probes([Probe("b", "server", hang), Probe("a", "well", be_well)], 0.05)
    assert [(each.about, each.status, each.away) for each in found] == [
        ("b", "failed", True),
        ("a", "ok", False),
    ]


@pytest.mark.parametrize(
    ("error", "away", "said"),
    [
        (StoreUnavailableError("no answer"), True, "StoreUnavailableError: no answer"),
        (InvalidConfigError("wrong"), False, "InvalidConfigError: wrong"),
        (ConnectionRefusedError("refused"), True, "refused"),
    ],
)
async def test_what_fails_is_told_by_its_error(error: Exception, away: bool, said: str) -> None:
    """Errors of ours say what to do; whether the server answered decides the exit status."""
    (found,) = await run_probes([failing(error)], 1.0)
    assert (found.status, found.away, said in found.says) == ("failed", away, True)


async def test_a_bug_in_a_check_shows_no_text_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """Any exception may quote a password."""
    (found,) = await run_probes([failing(KeyError("sesame"))], 1.0)
    assert (found.status, "sesame" in found.says) == ("failed", False)
    assert "a check failed by a bug" in caplog.text


def test_a_report_is_as_bad_as_the_worst_of_its_checks() -> None:
    """A script looks at one word."""
    well, warned, failed = (
        Check(about="a", name="n", status=each, says="") for each in ("ok", "warning", "failed")
    )
    told = [CheckReport.of(each).status for each in ([], [well], [warned, well], [well, failed, warned])]
    assert told == ["ok", "ok", "warning", "failed"]


@pytest.fixture
async def silent_address() -> AsyncIterator[str]:
    """A port on which somebody listens, takes what comes and never answers."""
    hung_up = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hung_up.wait()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    hung_up.set()
    server.close()


async def test_a_silent_temporal_is_one_line(tmp_path: Path, silent_address: str) -> None:
    """Workers, maintenance and schedules are asked there too: four failures would look like four faults."""
    report = await check_deployment(
        {"HELIX_DATA_DIRECTORY": str(tmp_path), "HELIX_TEMPORAL_ADDRESS": silent_address}, within=3.0
    )
    away = [(each.about, each.name, each.server) for each in report.checks if each.away]
    assert away == [("temporal", "server", "temporal")]


async def test_silences_of_two_servers_are_two_lines(silent_address: str) -> None:
    """Each has to be looked after, though the same is said of both."""
    report = await check_deployment(
        {"HELIX_REDIS_URL": f"redis://{silent_address}/0", "HELIX_TEMPORAL_ADDRESS": silent_address},
        within=0.3,
    )
    assert [each.about for each in report.checks if each.away] == ["redis", "temporal"]


async def test_a_deployment_on_one_disk_is_checked_without_servers(tmp_path: Path) -> None:
    """SQLite and a directory, without Temporal; nothing is made there."""
    (tmp_path / "cold").mkdir()
    report = await check_deployment(
        {
            "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
            "HELIX_COLD_DIRECTORY": str(tmp_path / "cold"),
        },
        temporal=False,
    )
    assert {each.about for each in report.checks} == {"versions", "settings", "sqlite", "archive"}
    assert not report.away
    assert "the first worker makes it" in str(report.checks)
    assert [each for each in report.checks if each.status == "failed"] == []
    assert not await asyncio.to_thread((tmp_path / "data").exists)


async def test_a_damaged_database_file_is_found(tmp_path: Path) -> None:
    """A doctor that calls it well lets people look for the fault elsewhere, and write on into the file."""
    variables = {"HELIX_DATA_DIRECTORY": str(tmp_path)}
    file = Settings.from_env(variables).sqlite_file
    assert file is not None
    backend = SqliteBackend(file)
    await backend.payloads.put_payload("t", "k", b"a" * 100_000, ttl=60)
    await backend.close()
    sound = await check_deployment(variables, temporal=False)
    with file.open("r+b") as database:
        database.seek(-5 * 4096, os.SEEK_END)
        database.write(b"\xff" * 5 * 4096)
    damaged = await check_deployment(variables, temporal=False)
    found = [
        [each.status for each in report.checks if (each.about, each.name) == ("sqlite", "structure")]
        for report in (sound, damaged)
    ]
    assert found == [["ok"], ["failed"]]


async def test_the_look_through_a_database_file_ends_in_time(tmp_path: Path) -> None:
    """A file of 100 GB takes minutes; and nobody who reads after it is interrupted."""
    backend = SqliteBackend(tmp_path / "file.db")
    for number in range(40):
        await backend.payloads.put_payload("t", str(number), b"a" * 100_000, ttl=60)
    assert await backend.find_damage(0) is None
    assert await backend.find_damage(60) == ()
    await backend.close()


async def test_a_thread_that_was_archived_step_by_step_is_not_counted_as_behind(tmp_path: Path) -> None:
    """No sweep has been by since, and there was nothing for it to do: all of the thread is archived."""
    variables = {
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_COLD_DIRECTORY": str(tmp_path / "cold"),
    }
    file = Settings.from_env(variables).sqlite_file
    assert file is not None
    backend = SqliteBackend(file)
    await archived(backend.threads, await grown(backend.threads, "whole", [a_message()]))
    await grown(backend.threads, "behind", [a_message()])
    await backend.close()
    report = await check_deployment(variables, temporal=False)
    (said,) = [each.says for each in report.checks if each.name == "backlog"]
    assert said == "of 2 hot threads 1 has messages that are not archived yet"


async def test_a_thread_whose_last_flush_the_hot_store_was_not_told_of_is_not_counted_as_behind(
    tmp_path: Path,
) -> None:
    """A session waited for a person: the archive had all, and after ten minutes a warning said it had not."""
    variables = {
        "HELIX_DATA_DIRECTORY": str(tmp_path / "data"),
        "HELIX_COLD_DIRECTORY": str(tmp_path / "cold"),
    }
    (tmp_path / "cold").mkdir()
    backends = Backends(Settings.from_env(variables))
    await grown(backends.hot, "waits", [a_message()])
    await backends.threads.flush(FlushThread("waits", EPOCH))
    header = await backends.hot.read_header("waits")
    assert header is not None
    assert header.archived < header.head.position
    await backends.close()
    report = await check_deployment(variables, temporal=False)
    (said,) = [each.says for each in report.checks if each.name == "backlog"]
    assert said == "of 1 hot threads 0 have messages that are not archived yet"
