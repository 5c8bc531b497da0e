"""``helix-temporal thread`` on real stores."""

import asyncio
import json
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from helix_temporal.backends import Backends
from helix_temporal.cli.commands import app
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import FlushThread, OpenThread
from helix_temporal.testing.builders import a_step
from tests.unit.cli._schemas import file_of
from tests.unit.coldtier._v1_files import STATE, anthropic, body, google, snapshot

THREAD = "order/7"


@pytest.fixture
def variables(redis_url: str, s3_variables: dict[str, str], unique: str) -> dict[str, str]:
    """Redis and S3, under names of the test's own."""
    return {
        "HELIX_REDIS_URL": redis_url,
        "HELIX_REDIS_PREFIX": f"{unique}:",
        **s3_variables,
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
        return backends.tiered.layout.manifest_key(THREAD)

    return asyncio.run(make())


def command(variables: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit status and output of ``helix-temporal thread``."""
    found = CliRunner().invoke(app, ["thread", *arguments], env=variables)
    return found.exit_code, found.output


def test_show_says_where_a_thread_stands_and_what_holds_it(variables: dict[str, str], manifest: str) -> None:
    """Keys hold escaped ids, which nobody works out by hand."""
    status, output = command(variables, "show", THREAD)
    assert status == 0
    assert "messages  2\n" in output
    assert "hot       yes\n" in output
    assert "archived  2 messages\n" in output
    assert f"below {manifest.removesuffix('manifest')}\n" in output
    assert output.endswith("  manifest\n")


def test_show_as_json_fits_its_schema(variables: dict[str, str], manifest: str) -> None:
    """A program reads the same."""
    status, output = command(variables, "show", THREAD, "--json")
    assert status == 0
    found = json.loads(output)
    Draft202012Validator(json.loads(file_of("thread show").read_text())).validate(found)
    assert [each["key"] for each in found["objects"]] == [manifest]
    assert found["place"]["archived"] == 2


def test_an_unknown_thread_is_one_line(variables: dict[str, str]) -> None:
    """No traceback for a misspelt id."""
    status, output = command(variables, "show", "nobody")
    assert status == 4
    assert output.startswith("ThreadNotFoundError: thread 'nobody'")
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["show", THREAD], ["verify", THREAD], ["verify", "--all"]])
def test_without_stores_it_says_so(arguments: list[str]) -> None:
    """Forgotten variables must not read as a thread that was deleted: its own memory is always empty."""
    status, output = command({"HELIX_TEMPORAL_ADDRESS": "127.0.0.1:7233"}, *arguments)
    assert status == 2
    assert output.startswith("InvalidConfigError: there is no store of threads that this command can reach")


# ---- from zeitlich and back -----------------------------------------------------------------------


@pytest.fixture
def snapshots(variables: dict[str, str], unique: str) -> dict[str, str]:
    """Variables of a bucket with two threads of zeitlich's, and one that is damaged."""
    found = {**variables, "HELIX_V1_PREFIX": f"{unique}-old"}

    async def put() -> None:
        blobs = Backends(Settings.from_env(found)).blobs
        assert blobs is not None
        rows = [anthropic(0), anthropic(1)]
        await blobs.put(f"{unique}-old/messages/order/7.json.gz", snapshot(rows))
        await blobs.put(f"{unique}-old/messages/b.json", body([google(0)], STATE))
        await blobs.put(f"{unique}-old/messages/broken.json.gz", snapshot(rows)[:-9])
        await blobs.close()

    asyncio.run(put())
    return found


def stored(variables: dict[str, str], name: str) -> bytes:
    """A snapshot as it lies in the bucket."""

    async def get() -> bytes:
        blobs = Backends(Settings.from_env(variables)).blobs
        assert blobs is not None
        found = await blobs.get(f"{variables['HELIX_V1_PREFIX']}/messages/{name}")
        await blobs.close()
        assert found is not None
        return found.data

    return asyncio.run(get())


def test_all_threads_of_zeitlich_s_are_taken_over_but_the_damaged(snapshots: dict[str, str]) -> None:
    """One bad thread of a thousand must neither stop the others nor go unnoticed."""
    status, output = command(snapshots, "import-v1", "--all")
    assert status == 3
    assert "1/3 b: 1 messages, adapter googleGenAI\n" in output
    assert "2/3 broken: ArchiveCorruptError: " in output
    assert "3/3 order/7: 2 messages, adapter anthropic\n" in output
    assert "2 of 3 threads\n" in output
    assert command(snapshots, "verify", THREAD) == (0, "order/7: 2 messages, all sound\n")
    again = command(snapshots, "import-v1", THREAD)
    assert again == (0, "1/1 order/7: 2 messages, adapter anthropic\n")


def test_a_thread_that_was_taken_over_goes_back_as_it_was(snapshots: dict[str, str]) -> None:
    """Nobody changed it, so nothing is written."""
    before = stored(snapshots, "b.json")
    assert command(snapshots, "import-v1", "b")[0] == 0
    status, output = command(snapshots, "export-v1", "b")
    assert (status, output) == (0, f"1/1 b: {snapshots['HELIX_V1_PREFIX']}/messages/b.json\n")
    assert stored(snapshots, "b.json") == before


def test_threads_are_named_or_all_are_meant(snapshots: dict[str, str]) -> None:
    """Neither, and both, are mistakes; so is an adapter that zeitlich has not."""
    for arguments in ([], ["x", "--all"], ["x", "--adapter", "openai"]):
        assert command(snapshots, "import-v1", *arguments)[0] == 2
    status, output = command(snapshots, "import-v1", "nobody")
    assert status == 4
    assert "1/1 nobody: ThreadNotFoundError: thread 'nobody' has no version 1 snapshot" in output


def test_a_thread_of_our_own_needs_the_adapter_that_shall_read_it(
    snapshots: dict[str, str], manifest: str
) -> None:
    """Nobody can guess the program that goes on with it."""
    assert manifest
    status, output = command(snapshots, "export-v1", THREAD)
    assert status == 2
    assert "InvalidRequestError" in output
    assert "give --adapter (anthropic, googleGenAI, langChain)" in output


def test_without_an_archive_there_is_nowhere_to_move_to() -> None:
    """The message names what to set."""
    status, output = command({"HELIX_ALLOW_PLAINTEXT": "true"}, "import-v1", "x")
    assert status == 2
    assert "HELIX_S3_BUCKET" in output
