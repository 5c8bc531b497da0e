"""What a worker that starts waits for, and what ends its start."""

import asyncio
import ssl
import time
from typing import NoReturn

import pytest

from helix_temporal import startup
from helix_temporal.errors import HelixError, InvalidConfigError, StoreUnavailableError
from helix_temporal.settings import Settings
from helix_temporal.startup import wait_for_servers
from helix_temporal.worker import _connection_error
from tests.unit._web import until


async def is_away() -> None:
    raise StoreUnavailableError("nobody answers")


async def is_wrong() -> None:
    raise InvalidConfigError("refused the password")


async def test_what_is_wrong_ends_the_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is found after a while; and nothing is told to be away any more."""
    away = dict[str, str]()
    tries = iter([is_away, is_away, is_wrong])

    async def starts_up_and_refuses() -> None:
        await next(tries)()

    monkeypatch.setattr(startup, "_FIRST_PAUSE", 0.01)
    with pytest.raises(InvalidConfigError, match="refused the password"):
        await wait_for_servers({"a": is_away, "b": starts_up_and_refuses}, away)
    assert away == {}


async def test_all_that_is_away_is_named() -> None:
    """Each with what was found."""
    away = dict[str, str]()

    async def is_there() -> None:
        pass

    waiting = asyncio.create_task(wait_for_servers({"a": is_away, "b": is_there, "c": is_away}, away))
    await until(lambda: len(away) > 1)
    assert away == {"a": "nobody answers", "c": "nobody answers"}
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_check_that_hangs_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a driver waits for."""
    monkeypatch.setattr(startup, "_ATTEMPT", 0.05)
    monkeypatch.setattr(startup, "_FIRST_PAUSE", 0.01)
    hangs = iter([60.0, 60.0, 0.0])
    began = time.monotonic()

    async def check() -> None:
        await asyncio.sleep(next(hangs))

    await wait_for_servers({"a": check}, {})
    assert time.monotonic() - began < 10


async def test_a_certificate_that_is_not_trusted_is_not_waited_for() -> None:
    """The server is there."""

    async def check() -> NoReturn:
        try:
            raise ssl.SSLCertVerificationError("self-signed certificate")
        except ssl.SSLError as error:
            raise StoreUnavailableError("did not answer") from error

    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(wait_for_servers({"a": check}, {}), 5)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "`get_system_info` call error: Status { code: Unauthenticated }",
            InvalidConfigError,
        ),
        (
            "`get_system_info` call error: Status { code: PermissionDenied }",
            InvalidConfigError,
        ),
        ("Server connection error: invalid peer certificate: UnknownIssuer", InvalidConfigError),
        ("Server connection error: tcp connect error: Connection refused", StoreUnavailableError),
        ("Server connection error: dns error: Name or service not known", StoreUnavailableError),
        (
            '`get_system_info` call error: { code: Cancelled, "Timeout" }',
            StoreUnavailableError,
        ),
    ],
)
def test_a_temporal_that_refuses_is_told_from_one_that_is_away(said: str, kind: type[HelixError]) -> None:
    """Waiting does not mend a key; both name what is set in the environment."""
    error = _connection_error(Settings(), RuntimeError(f"Failed client connect: {said}"))
    assert type(error) is kind
    assert "HELIX_TEMPORAL_TLS" in str(error)
