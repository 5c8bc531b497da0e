"""``helix-temporal thread`` on real stores."""

import asyncio
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from helix_temporal.backends import Backends
from helix_temporal.cli._app import app
from helix_temporal.devstack import S3Endpoint
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from helix_temporal.testing.builders import a_step

THREAD = "order/7"


@pytest.fixture
def variables(redis_url: str, s3: S3Endpoint, unique: str) -> dict[str, str]:
    """Redis and S3, under names of the test's own."""
    assert s3.access_key is not None
    assert s3.secret_key is not None
    return {
        "HELIX_REDIS_URL": redis_url,
        "HELIX_REDIS_PREFIX": f"{unique}:",
        "HELIX_S3_ENDPOINT": s3.endpoint,
        "HELIX_S3_BUCKET": s3.bucket,
        "HELIX_S3_REGION": s3.region,
        "HELIX_S3_PREFIX": unique,
        "HELIX_S3_ACCESS_KEY": s3.access_key,
        "HELIX_S3_SECRET_KEY": s3.secret_key,
        "HELIX_ALLOW_PLAINTEXT": "true",
    }


@pytest.fixture
def manifest(variables: dict[str, str]) -> str:
    """The manifest's key of a thread of two messages, hot and archived."""

    async def make() -> str:
        backends = Backends(Settings.from_env(variables))
        assert backends.tiered is not None
        await backends.threads.open(OpenThread(THREAD, 1, "owner"))
        await backends.threads.append(replace(a_step(THREAD, epoch=1), commits=True))
        await backends.threads.flush(FlushThread(THREAD, 1))
        await backends.close()
        return backends.tiered.layout.manifest(THREAD)

    return asyncio.run(make())


def command(variables: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit status and output of ``helix-temporal thread``."""
    found = CliRunner().invoke(app, ["thread", *arguments], env=variables)
    return found.exit_code, found.output


def test_show_says_where_a_thread_stands_and_what_holds_it(variables: dict[str, str], manifest: str) -> None:
    """Keys hold escaped ids, which nobody works out by hand."""
    status, output = command(variables, "show", THREAD)
    assert status == 0
    assert "messages   2\n" in output
    assert "hot        yes\n" in output
    assert "archived   2 messages\n" in output
    assert f"below {manifest.removesuffix('manifest')}\n" in output
    assert output.endswith("  manifest\n")


def test_verify_finds_a_sound_thread_sound(variables: dict[str, str], manifest: str) -> None:
    """It reads everything, down to the last checksum."""
    assert manifest
    assert command(variables, "verify", THREAD) == (0, "order/7: 2 messages, all sound\n")


def test_verify_names_damage_and_fails(variables: dict[str, str], manifest: str) -> None:
    """A restore that went wrong is found by a command, not by the next customer."""

    async def damage() -> None:
        blobs = Backends(Settings.from_env(variables)).blobs
        assert blobs is not None
        stored = await blobs.get(manifest)
        assert stored is not None
        await blobs.put(manifest, stored.data[:-1] + bytes([stored.data[-1] ^ 1]))
        await blobs.close()

    asyncio.run(damage())
    status, output = command(variables, "verify", THREAD)
    assert status == 1
    assert "ArchiveCorruptError" in output


def test_an_unknown_thread_is_one_line(variables: dict[str, str]) -> None:
    """No traceback for a misspelt id."""
    status, output = command(variables, "show", "nobody")
    assert status == 1
    assert output.startswith("ThreadNotFoundError: thread 'nobody'")
    assert len(output.splitlines()) == 1
