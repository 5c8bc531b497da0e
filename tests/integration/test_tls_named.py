"""TLS where an address does not say so, or the reverse: the error names TLS and the setting."""

import asyncio
import contextlib
import re
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_temporal.backends import Backends
from helix_temporal.blobs.s3 import S3Blobs
from helix_temporal.errors import HelixError, InvalidConfigError, StoreUnavailableError
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import AsyncpgDatabase


async def refused(directory: Path, **where: object) -> HelixError:
    """What a worker's check of its stores says at the start."""
    settings = Settings.model_validate({"cold_directory": directory, "allow_plaintext": True} | where)
    backends = Backends(settings)
    try:
        with pytest.raises(HelixError) as caught:
            await backends.check()
    finally:
        await backends.close()
    return caught.value


def make_certificate(key: Path, certificate: Path, name: str) -> None:
    """One that nobody has signed."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    made += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)


@pytest.fixture
async def tls_port(tmp_path: Path) -> AsyncIterator[int]:
    """Of a server that speaks TLS, with a certificate that nobody has signed."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    await asyncio.to_thread(make_certificate, key, certificate, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("cluster", [False, True])
async def test_rediss_to_a_port_without_tls(
    redis_url: str, redis_cluster: str, tmp_path: Path, *, cluster: bool
) -> None:
    """The server waits for the end of a command, so only a time-out was told."""
    url = (redis_cluster if cluster else redis_url).replace("redis://", "rediss://")
    found = await refused(tmp_path, redis_url=url, redis_cluster=cluster)
    assert isinstance(found, InvalidConfigError)
    assert "speaks without TLS, and redis_url says rediss://" in str(found)


async def test_redis_to_a_port_with_tls(tls_port: int, tmp_path: Path) -> None:
    """The server hangs up, as one does that is restarted."""
    found = await refused(tmp_path, redis_url=f"redis://localhost:{tls_port}/0")
    assert isinstance(found, InvalidConfigError)
    assert "speaks TLS, and redis_url says redis://; write rediss://" in str(found)


async def test_a_certificate_of_s3_that_is_not_trusted(tls_port: int) -> None:
    """The name of the client's error alone said nothing."""
    blobs = S3Blobs("bucket", endpoint=f"https://localhost:{tls_port}", access_key="a", secret_key="b")
    with pytest.raises(StoreUnavailableError, match=r"\(self.signed certificate\).*AWS_CA_BUNDLE"):
        await blobs.put("key", b"data")
    await blobs.close()


async def test_a_certificate_of_postgres_that_is_not_trusted(tls_port: int, tmp_path: Path) -> None:
    """As of Redis."""
    other = tmp_path / "other"
    make_certificate(tmp_path / "other-key", other, "other")

    async def agree_to_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"S")
        there, onward = await asyncio.open_connection("localhost", tls_port)
        await asyncio.gather(_pass_on(reader, onward), _pass_on(there, writer), return_exceptions=True)

    async with await asyncio.start_server(agree_to_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        database = AsyncpgDatabase.from_dsn(
            f"postgresql://u@localhost:{port}/d?sslmode=verify-full&sslrootcert={other}"
        )
        with pytest.raises(StoreUnavailableError, match=r"\(self.signed certificate\).*add sslrootcert"):
            await database.fetchval("SELECT 1")
        await database.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(4096):
        writer.write(data)
    writer.close()


async def test_a_certificate_that_is_not_trusted(tls_port: int, tmp_path: Path) -> None:
    """It is renewed, or its maker is made known: until then nothing goes on."""
    found = await refused(tmp_path, redis_url=f"rediss://localhost:{tls_port}/0")
    assert isinstance(found, StoreUnavailableError)
    assert re.search(r"a certificate that is not trusted here \(self.signed certificate\)", str(found))
    assert "add ssl_ca_certs=<file> to redis_url" in str(found)


async def test_a_database_without_the_tls_that_is_asked_for(postgres_dsn: str, tmp_path: Path) -> None:
    """The driver's error spoke of a connection that broke off."""
    mark = "&" if "?" in postgres_dsn else "?"
    found = await refused(tmp_path, postgres_dsn=f"{postgres_dsn}{mark}sslmode=require")
    assert isinstance(found, InvalidConfigError)
    assert "speaks without TLS, which sslmode in postgres_dsn asks for" in str(found)


async def test_a_database_whose_certificate_cannot_be_checked(
    postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver looks for a file in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    mark = "&" if "?" in postgres_dsn else "?"
    found = await refused(tmp_path, postgres_dsn=f"{postgres_dsn}{mark}sslmode=verify-full")
    assert isinstance(found, InvalidConfigError)
    assert "add sslrootcert=<file>" in str(found)


async def test_a_server_that_wants_a_certificate_of_its_clients(tmp_path: Path) -> None:
    """It says so after the handshake, where the driver knows of a lost connection alone."""
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    await asyncio.to_thread(make_certificate, key, certificate, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(asyncio.to_thread(refuse_clients, listener, context))
        url = f"rediss://localhost:{listener.getsockname()[1]}/0?ssl_ca_certs={certificate}"
        found = await refused(tmp_path, redis_url=url)
        listener.shutdown(socket.SHUT_RDWR)
        await serving
    assert isinstance(found, StoreUnavailableError)
    assert "add ssl_certfile=<file>&ssl_keyfile=<file> to redis_url" in str(found)


def refuse_clients(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Shake hands with one after another; asyncio's server would close without an alert."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as refused:
                with contextlib.suppress(ssl.SSLError):
                    refused.do_handshake()
                # What the client sent is read to its end: closed before, the kernel may drop the alert.
                refused.settimeout(5)
                while socket.socket.recv(refused, 4096):
                    continue
