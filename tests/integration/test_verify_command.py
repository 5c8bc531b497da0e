"""``helix-temporal thread verify`` on real stores, beside what goes on there."""

import asyncio
import json
from collections.abc import Callable
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from helix_temporal.backends import Backends
from helix_temporal.blobs import BlobStore
from helix_temporal.cli.commands import app
from helix_temporal.cli.outputs import Verification
from helix_temporal.settings import Settings
from helix_temporal.testing.contracts._threads_base import Author, noise
from tests._verification import verify_beside_sessions

THREADS: Final = ("order/7", "b", "c")


@pytest.fixture
def variables(redis_url: str, s3_variables: dict[str, str], unique: str) -> dict[str, str]:
    """Redis and S3, under names of the test's own."""
    return {
        "HELIX_REDIS_URL": redis_url,
        "HELIX_REDIS_PREFIX": f"{unique}:",
        **s3_variables,
    }


@pytest.fixture
def segments(variables: dict[str, str]) -> dict[str, str]:
    """The key of a segment of each of three threads that were made."""

    async def make() -> dict[str, str]:
        backends = Backends(Settings.from_env(variables))
        assert backends.tiered is not None
        assert backends.blobs is not None
        found = {}
        for name in THREADS:
            author = Author(backends.threads, name)
            await author.open()
            await author.append(author.step(*noise(60, size=3000), answer=None))
            await author.flush()
            prefix = backends.tiered.layout.thread_prefix(name)
            found[name] = next(iter([each.key async for each in backends.blobs.list(f"{prefix}seg/")]))
        await backends.close()
        return found

    return asyncio.run(make())


def verify(variables: dict[str, str], *arguments: str) -> Result:
    """``helix-temporal thread verify``."""
    return CliRunner().invoke(app, ["thread", "verify", *arguments], env=variables)


def change(variables: dict[str, str], key: str, make: Callable[[bytes], bytes | None]) -> None:
    """Replace an object by what is made of it; None removes it."""

    async def replace_object(blobs: BlobStore) -> None:
        stored = await blobs.get(key)
        assert stored is not None
        made = make(stored.data)
        await (blobs.delete(key) if made is None else blobs.put(key, made))
        await blobs.close()

    blobs = Backends(Settings.from_env(variables)).blobs
    assert blobs is not None
    asyncio.run(replace_object(blobs))


def flip(data: bytes) -> bytes:
    """The last byte is another one."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_sound_thread_is_sound(variables: dict[str, str], segments: dict[str, str]) -> None:
    """It reads everything, down to the last checksum."""
    assert segments
    found = verify(variables, "order/7")
    assert (found.exit_code, found.output) == (0, "order/7: 60 messages, all sound\n")


@pytest.mark.parametrize("make", [flip, lambda data: data[:-5], lambda _: None])
def test_a_damaged_thread_is_named_and_has_a_status_of_its_own(
    variables: dict[str, str], segments: dict[str, str], make: Callable[[bytes], bytes | None]
) -> None:
    """A restore that went wrong is found by a command, not by the next customer."""
    change(variables, segments["b"], make)
    found = verify(variables, "b")
    assert (found.exit_code, found.stdout) == (6, "")
    assert found.stderr.startswith("b: damaged: ArchiveCorruptError: ")


def test_of_all_the_damaged_ones_are_named_and_the_others_go_on(
    variables: dict[str, str], segments: dict[str, str]
) -> None:
    """Each damaged thread is an entry; a script reads them."""
    change(variables, segments["b"], flip)
    change(variables, segments["c"], lambda _: None)
    found = verify(variables, "--all", "--json")
    report = Verification.model_validate_json(found.stdout)
    assert (found.exit_code, report.seen, report.sound, report.damaged) == (3, 3, 1, 2)
    assert sorted(each.thread_id for each in report.threads) == ["b", "c"]


def test_without_data_nothing_is_read_of_segments(
    variables: dict[str, str], segments: dict[str, str]
) -> None:
    """What is missing is found by the listing; what is in an object is not asked."""
    change(variables, segments["b"], flip)
    change(variables, segments["c"], lambda _: None)
    report = Verification.model_validate_json(
        verify(variables, "--all", "--read-data-subset", "0%", "--json").stdout
    )
    assert (report.damaged, report.read, report.bytes_read) == (1, 0, 0)


def test_threads_that_are_named_are_verified_each(
    variables: dict[str, str], segments: dict[str, str]
) -> None:
    """One that is not there fails alone."""
    assert segments
    found = verify(variables, "b", "nobody")
    assert (found.exit_code, "b: 60 messages, all sound\n" in found.stdout) == (3, True)
    assert "nobody: not_found: ThreadNotFoundError" in found.stderr
    assert verify(variables, "nobody").exit_code == 4


def test_a_place_that_is_none_and_a_subset_that_is_none_are_refused(variables: dict[str, str]) -> None:
    """A typing error must not look like a sound archive."""
    assert verify(variables, "--all", "--from", "nowhere").exit_code == 2
    assert verify(variables, "--all", "--read-data-subset", "half").exit_code == 2
    assert verify(variables, "x", "--read-data-subset", "1/2").exit_code == 2
    assert verify(variables).exit_code == 2


def test_a_store_that_is_away_has_its_status(variables: dict[str, str]) -> None:
    """Nothing is known of the threads, so nothing is said of them."""
    found = verify({**variables, "HELIX_S3_ENDPOINT": "http://127.0.0.1:9"}, "--all", "--json")
    assert (found.exit_code, found.stdout) == (7, "")
    assert json.loads(found.stderr)["error"]["type"] == "StoreUnavailableError"


def test_a_wrong_key_is_no_damage(variables: dict[str, str]) -> None:
    """It is one line, whatever lies in the bucket."""
    assert verify({**variables, "HELIX_S3_SECRET_KEY": "wrong"}, "--all").exit_code == 8


@pytest.mark.slow
async def test_no_false_alarm_beside_live_sessions_and_maintenance(variables: dict[str, str]) -> None:
    """Who is called at night for nothing will not come the next time."""
    found = await verify_beside_sessions(variables, sessions=12, seconds=20)
    assert found.alarms == ()
    assert found.passes > 0
    assert found.changes > 50


@pytest.mark.campaign
@pytest.mark.timeout(1800)
async def test_no_false_alarm_in_ten_minutes(variables: dict[str, str]) -> None:
    """The long form: fifty sessions."""
    found = await verify_beside_sessions(variables, sessions=50, seconds=600)
    print(found)  # noqa: T201 (what a campaign has done is its result)
    assert found.alarms == ()
    assert found.passes > 0
