"""Checks are made side by side: what hangs or breaks is one line, and the others are told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from helix_temporal.doctor import CheckReport, check_deployment
from helix_temporal.doctor.checks import Check, Probe, run_probes
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError


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
        {"HELIX_DATA_DIRECTORY": str(tmp_path), "HELIX_TEMPORAL_ADDRESS": silent_address}, within=0.3
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
