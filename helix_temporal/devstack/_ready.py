"""Is it up?  One question per kind of server, in its own protocol, by the standard library alone.

Drivers take longer to import than most of these servers to start.
"""

import contextlib
import hashlib
import hmac
import http.client
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from helix_temporal.devstack import _resp
from helix_temporal.devstack._errors import ServerStartError
from helix_temporal.devstack._processes import Program, Supervisor, last_lines

_PAUSE: Final = 0.01
_TIMEOUT: Final = 5.0
_POSTGRES_PROTOCOL: Final = 196608


def wait_until_ready(
    supervisor: Supervisor, program: Program, is_ready: Callable[[], bool], *, seconds: float = 60.0
) -> None:
    """Wait for a started program to answer.

    Raises:
        ServerStartError: It ended, or did not answer in time.
    """
    deadline = time.monotonic() + seconds
    while not is_ready():
        code = supervisor.exit_code(program)
        if code is not None:
            raise ServerStartError(
                f"{program.name} ended with code {code} at its start:\n{last_lines(program.log)}", exit=code
            )
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"{program.name} runs but did not answer within {seconds:g} s:\n{last_lines(program.log)}"
            )
        time.sleep(_PAUSE)


def redis_answers(host: str, port: int) -> bool:
    """Whether ``PING`` is answered; not yet while data are being loaded."""
    try:
        with _resp.Connection(host, port) as connection:
            return connection.ask("PING") == "PONG"
    except (OSError, _resp.ReplyError):
        return False


def http_answers(port: int, path: str) -> bool:
    """Whether a GET is answered with 200."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
    return False


def postgres_answers(host: str, port: int, user: str) -> bool:
    """Whether a session can be opened: the port answers earlier, with "is starting up"."""
    parameters = f"user\0{user}\0database\0postgres\0\0".encode()
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT) as connection:
            connection.sendall(struct.pack("!ii", len(parameters) + 8, _POSTGRES_PROTOCOL) + parameters)
            answered = connection.recv(1) == b"R"
            if answered:
                connection.sendall(b"X\x00\x00\x00\x04")
            return answered
    except OSError:
        return False


def tcp_answers(host: str, port: int) -> bool:
    """Whether anybody listens there."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests without a query or a body (AWS Signature Version 4)."""

    region: str
    access_key: str
    secret_key: str

    def headers(self, method: str, host: str, path: str) -> dict[str, str]:
        """The headers of one request, good for the next minutes."""
        now = datetime.now(UTC)
        stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        empty = hashlib.sha256(b"").hexdigest()
        headers = {"host": host, "x-amz-content-sha256": empty, "x-amz-date": stamp}
        names = ";".join(headers)
        request = "\n".join([method, path, "", *(f"{k}:{v}" for k, v in headers.items()), "", names, empty])
        scope = f"{day}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signature = self._sign(f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}", scope)
        credential = f"Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}

    def _sign(self, text: str, scope: str) -> str:
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()


def bucket_answers(endpoint: str, bucket: str, signer: Signer) -> bool:
    """Whether the bucket takes a signed PUT and a signed DELETE.

    An endpoint that answers at all is not ready yet: right after it the bucket can still be missing.
    """
    host = urlsplit(endpoint).netloc
    try:
        for method, expected in (("PUT", 200), ("DELETE", 204)):
            connection = http.client.HTTPConnection(host, timeout=_TIMEOUT)
            try:
                path = f"/{bucket}/.ready"
                headers = signer.headers(method, host, path)
                connection.request(method, path, body=b"" if method == "PUT" else None, headers=headers)
                if connection.getresponse().status != expected:
                    return False
            finally:
                connection.close()
    except (OSError, http.client.HTTPException):
        return False
    return True
