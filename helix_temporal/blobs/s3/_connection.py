"""One open client: aioboto3 for the rare calls, its signer and its HTTP session for GET and PUT.

A small PUT through the client costs 0.8 ms of processor time, of which 0.5 ms are endpoint rules, hooks
and parsing; signed here and sent through the same pool of connections it costs 0.3 ms.
"""

import asyncio
import base64
import contextlib
import functools
import hashlib
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aioboto3
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import NoCredentialsError
from botocore.loaders import create_loader

from helix_temporal.blobs.s3._config import S3Config, base_url, quoted_key

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

_LARGE_BYTES = 1 << 20


class Response(NamedTuple):
    """A whole answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """Lives on the event loop that opened it."""

    def __init__(
        self,
        stack: contextlib.AsyncExitStack,
        client: "S3Client",
        http: Any,  # AIOHTTPSession and AioCredentials: their stubs are wrong about what is awaited
        credentials: Any,
        config: S3Config,
    ) -> None:
        self.client = client
        self._stack = stack
        self._http = http
        self._credentials = credentials
        self._region = config.region
        self._base = base_url(client.meta.endpoint_url, config.bucket, config.virtual_hosted)

    @classmethod
    async def open(cls, config: S3Config) -> Self:
        """Create the client.  No request is sent.

        Raises:
            NoCredentialsError: None are configured.
        """
        core = AioSession()
        core.register_component("data_loader", _loader())
        session = aioboto3.Session(
            botocore_session=core,
            aws_access_key_id=config.access_key,
            aws_secret_access_key=config.secret_key,
            aws_session_token=config.session_token,
            region_name=config.region,
        )
        find_credentials: Any = session.get_credentials  # its stubs forget that it is awaited
        credentials = await find_credentials()
        if credentials is None:
            raise NoCredentialsError
        opened: list[AIOHTTPSession] = []

        def open_http(**settings: Any) -> AIOHTTPSession:
            # The client configures it (certificates, proxies, time-outs); kept to be shared.
            opened.append(AIOHTTPSession(**settings))
            return opened[-1]

        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                session.client("s3", endpoint_url=config.endpoint, config=_client_config(config, open_http))
            )
            client.meta.events.register_first("needs-retry.s3", _stay_here)
            return cls(stack.pop_all(), client, opened[-1], credentials, config)

    async def send(self, method: str, key: str, headers: dict[str, str], data: bytes = b"") -> Response:
        """One signed request, never repeated by us.

        Raises:
            HTTPClientError: The connection failed, timed out, or the answer was cut short.
        """
        credentials = await self._credentials.get_frozen_credentials()
        url = self._base + quoted_key(key)
        # Hashing large bodies would stall the event loop.
        if len(data) > _LARGE_BYTES:
            request = await asyncio.to_thread(self._signed, method, url, headers, data, credentials)
        else:
            request = self._signed(method, url, headers, data, credentials)
        response = await self._http.send(request)
        return Response(response.status_code, response.headers, await response.content)

    def _signed(
        self, method: str, url: str, headers: dict[str, str], data: bytes, credentials: ReadOnlyCredentials
    ) -> AWSPreparedRequest:
        # aiohttp wants large bytes as a stream, to send them piece by piece.
        body = io.BytesIO(data) if len(data) > _LARGE_BYTES else data or None
        request = AWSRequest(method, url, headers, body)
        if method == "PUT":
            # Not every server compares the body with the hash in its signature; all know this one.
            digest = hashlib.md5(data, usedforsecurity=False).digest()
            request.headers["Content-MD5"] = base64.b64encode(digest).decode()
        S3SigV4Auth(credentials, "s3", self._region).add_auth(request)
        return request.prepare()

    async def close(self) -> None:
        """Close the client and its connections."""
        await self._stack.aclose()


@functools.cache
def _loader() -> Any:
    # Reading the description of S3 takes 80 ms; each session would do it again.
    return create_loader()


def _stay_here(request_dict: dict[str, Any], **_: Any) -> None:
    # A redirect to another region is an error in our settings.  Left to itself the client asks for the
    # region, and asks without end when that is answered by a redirect, too.
    request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


def _client_config(config: S3Config, open_http: Any) -> AioConfig:
    return AioConfig(
        connect_timeout=config.connect_timeout,
        read_timeout=config.read_timeout,
        max_pool_connections=config.max_connections,
        # A repeated conditional PUT is refused for its own success; whoever calls knows what to do.
        retries={"total_max_attempts": 1},
        # Bodies are hashed for the signature already.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "virtual" if config.virtual_hosted else "auto"},
        http_session_cls=open_http,
    )
