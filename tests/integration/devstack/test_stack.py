"""The local servers: up, usable, kept where that was asked for."""

import os
import shutil
import urllib.request
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from helix_temporal.devstack import (
    ServerStartError,
    Valkey,
    postgres,
    start_stack,
    start_valkey,
    start_valkey_cluster,
)
from helix_temporal.devstack import temporal as temporal_server
from helix_temporal.devstack.servers import RequestSigner, bucket_answers
from helix_temporal.settings import Settings

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]  # each starts servers


def test_everything_starts_together_and_settings_read_it() -> None:
    """This is ``helix-temporal dev``: one call, four servers, and variables that say where they are."""
    ready: dict[str, float] = {}
    with start_stack(environment=os.environ, on_ready=ready.__setitem__) as stack:
        settings = Settings.from_env(stack.get_environment())
        assert sorted(ready) == ["postgres", "redis", "s3", "temporal"]
        assert settings.temporal_address == stack.temporal.address
        assert settings.redis_url == stack.redis.url
        assert settings.postgres_dsn == stack.postgres.dsn
        assert (settings.s3_endpoint, settings.s3_bucket) == (stack.s3.endpoint, stack.s3.bucket)


def test_the_ui_of_temporal_answers() -> None:
    """A new user looks at the session there."""
    with start_stack(["temporal"]) as stack:
        assert stack.temporal.ui_url
        with urllib.request.urlopen(stack.temporal.ui_url) as page:
            assert page.status == 200


async def test_temporal_has_a_clock_per_workflow(temporal_address: str) -> None:
    """Time-outs of days are tested in seconds; the server has to be told to allow it."""
    client = await Client.connect(temporal_address)
    assert await client.service_client.check_health()
    assert (
        "--dynamic-config-value=frontend.WorkflowTimeSkippingEnabled=true"
        in temporal_server.dynamic_config_arguments()
    )


async def test_the_dispatch_settings_also_suit_the_sdks_environment() -> None:
    """Benchmarks give every contestant the same server, however it was started."""
    binary = temporal_server.SOURCE.in_wheel()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(binary), dev_server_extra_args=temporal_server.dynamic_config_arguments()
    ) as environment:
        assert await environment.client.service_client.check_health()


def test_two_stacks_run_side_by_side() -> None:
    """Two test runs on one machine, or a test run beside ``helix-temporal dev``."""
    with start_stack(["redis", "s3"]) as first, start_stack(["redis", "s3"]) as second:
        assert first.redis.url != second.redis.url
        assert first.s3.endpoint != second.s3.endpoint


async def test_a_given_directory_keeps_the_data(open_directory: Path) -> None:
    """``--data`` lets one go on the next morning."""
    with start_stack(["redis", "postgres", "s3"], directory=open_directory) as stack:
        server = stack.servers["redis"]
        assert isinstance(server, Valkey)
        server.ask("SET", "kept", "yes")
        connection = await asyncpg.connect(stack.postgres.dsn)
        await connection.execute("CREATE TABLE kept (answer int); INSERT INTO kept VALUES (42)")
        await connection.close()
    with start_stack(["redis", "postgres", "s3"], directory=open_directory) as stack:
        connection = await asyncpg.connect(stack.postgres.dsn)
        assert await connection.fetchval("SELECT answer FROM kept") == 42
        await connection.close()
        server = stack.servers["redis"]
        assert isinstance(server, Valkey)
        assert server.ask("GET", "kept") == "yes"
        signer = RequestSigner(stack.s3.region, stack.s3.access_key or "", stack.s3.secret_key or "")
        assert bucket_answers(stack.s3.endpoint, stack.s3.bucket, signer)


def test_a_directory_serves_one_stack_at_a_time(tmp_path: Path) -> None:
    """Two servers on the same files would destroy them."""
    with (
        start_stack(["redis"], directory=tmp_path),
        pytest.raises(ServerStartError, match="used by another stack"),
        start_stack(["redis"], directory=tmp_path),
    ):
        pass


def test_a_server_that_ends_at_once_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """The reason is in the server's log; nobody should have to look for it."""
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\necho 'the moon is full' >&2\nexit 3\n")
    broken.chmod(0o755)
    with (
        pytest.raises(ServerStartError, match=r"(?s)valkey ended with code 3.*the moon is full"),
        start_stack(["redis"], environment={"HELIX_VALKEY_BINARY": str(broken)}),
    ):
        pass


def test_a_program_that_cannot_be_executed_is_reported(tmp_path: Path) -> None:
    """A binary of another platform, for example."""
    broken = tmp_path / "valkey-server"
    broken.write_bytes(b"\x00not a program")
    broken.chmod(0o755)
    with (
        pytest.raises(ServerStartError, match="spawn valkey: OSError"),
        start_stack(["redis"], environment={"HELIX_VALKEY_BINARY": str(broken)}),
    ):
        pass


def test_a_volatile_server_forgets_at_a_restart() -> None:
    """Tests of a lost Redis need one that really loses."""
    with start_valkey() as server:
        server.ask("SET", "forgotten", "soon")
        url = server.url
        server.restart(kill=True)
        assert server.url == url
        assert server.ask("GET", "forgotten") is None


def test_a_server_takes_arguments_of_ones_own() -> None:
    """Tests of the eviction policy need a server that has a wrong one."""
    with start_valkey(arguments=("--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb")) as server:
        assert server.ask("CONFIG", "GET", "maxmemory-policy") == ["maxmemory-policy", "allkeys-lru"]


def test_a_cluster_has_all_slots_on_three_primaries() -> None:
    """Scripts that reach across slots must fail here as they do in production."""
    with start_valkey_cluster() as nodes:
        info = str(nodes[2].ask("CLUSTER", "INFO"))
        assert "cluster_slots_ok:16384" in info
        assert "cluster_size:3" in info


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run PostgreSQL as somebody else")
def test_postgres_runs_from_a_closed_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As root, with the virtual environment below a home of mode 0700: the programs are copied."""
    closed = tmp_path_factory.mktemp("home")
    closed.chmod(0o700)
    wheel = postgres.SOURCE.in_wheel()
    assert wheel
    package = wheel.parents[2]
    for part in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(part, closed / part.name)
    named = closed / wheel.relative_to(package.parent)
    with start_stack(["postgres"], environment={"HELIX_POSTGRES_BINARY": str(named)}) as stack:
        assert (stack.directory / "postgres" / "programs").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run PostgreSQL as somebody else")
def test_a_data_directory_closed_to_postgres_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Else initdb would say no more than "permission denied"."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with (
        pytest.raises(ServerStartError, match=r"can't get through .*chmod o\+x"),
        start_stack(["postgres"], directory=closed),
    ):
        pass
