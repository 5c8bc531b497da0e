"""Blobs in S3 or a server that speaks its protocol.  The only module that imports aioboto3."""

import asyncio
import base64
import contextlib
import functools
import hashlib
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast
from urllib.parse import quote, urlsplit

import aioboto3
from aiobotocore.config import AioConfig
from aiobotocore.httpsession import AIOHTTPSession
from aiobotocore.session import AioSession
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigNotFound,
    ConfigParseError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
)
from botocore.loaders import create_loader

from helix_temporal._retries import retry_pause
from helix_temporal._setting_rules import check_bucket_name, check_s3_endpoint
from helix_temporal._tls_failures import TlsSettings, find_tls_failure
from helix_temporal.blobs.probe import prove_conditional_writes
from helix_temporal.blobs.protocol import (
    Blob,
    BlobInfo,
    ConditionFailedError,
    check_conditions,
    check_key,
    check_prefix,
)
from helix_temporal.errors import (
    ArchiveAccessError,
    ConditionalWritesUnsupportedError,
    HelixError,
    InvalidConfigError,
    InvalidRequestError,
    StoreUnavailableError,
    TooLargeError,
)

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client


@dataclass(frozen=True)
class S3Config:
    """Checked settings; secrets stay out of its repr.  Times are in seconds."""

    bucket: str
    endpoint: str | None
    region: str
    virtual_hosted: bool | None
    connect_timeout: float
    read_timeout: float
    total_timeout: float
    max_connections: int
    access_key: str | None = field(repr=False)
    secret_key: str | None = field(repr=False)
    session_token: str | None = field(repr=False)

    def __post_init__(self) -> None:
        _check_setting("S3 bucket", check_bucket_name, self.bucket)
        if not self.region:
            raise InvalidConfigError("the S3 region is empty; it is part of every signature")
        if (self.access_key is None) != (self.secret_key is None):
            raise InvalidConfigError("S3 access_key and secret_key must be given together, or neither")
        if self.endpoint is not None:
            _check_setting("S3 endpoint", check_s3_endpoint, self.endpoint)
        times = (self.connect_timeout, self.read_timeout, self.total_timeout)
        if not all(time > 0 for time in times) or self.max_connections < 1:
            raise InvalidConfigError(f"S3 time-outs and max_connections must be above 0, found {self!r}")


def base_url(server: str, bucket: str, virtual_hosted: bool | None) -> str:
    """The address that keys are added to, given the server's address.

    By default the bucket is part of the host name at AWS, where it must be for most regions, and part
    of the path elsewhere.  A dot in the bucket's name would not match AWS's certificate.
    """
    server = server.rstrip("/")
    parts = urlsplit(server)
    if virtual_hosted is None:
        virtual_hosted = ".amazonaws.com" in (parts.hostname or "") and "." not in bucket
    if virtual_hosted:
        return f"{parts.scheme}://{bucket}.{parts.netloc}{parts.path}/"
    return f"{server}/{quote(bucket)}/"


def quoted_key(key: str) -> str:
    """A key as part of an address, in the one form that S3's signature is made over."""
    return quote(key, safe="/~")


def _check_setting(name: str, check: Callable[[str], str], value: str) -> None:
    try:
        check(value)
    except ValueError as error:
        raise InvalidConfigError(f"{name}: {error}") from None


_LARGE_BYTES = 1 << 20
_GETS: Final = 4
"""So often an object is asked for while S3 refuses (503).  A long thread is read by many GETs: with each
twentieth refused, most of its reads would fail.
"""


class Response(NamedTuple):
    """A whole answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class S3Connection:
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
    async def open_client(cls, config: S3Config) -> Self:
        """Create the client.  No request is sent.

        Raises:
            NoCredentialsError: None are configured.
        """
        core = AioSession()
        core.register_component("data_loader", _get_data_loader())
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

    async def send_request(
        self, method: str, key: str, headers: dict[str, str], data: bytes = b""
    ) -> Response:
        """One signed request, never repeated by us.

        Raises:
            HTTPClientError: The connection failed, timed out, or the answer was cut short.
        """
        credentials = await self._credentials.get_frozen_credentials()
        url = self._base + quoted_key(key)
        # Hashing large bodies would stall the event loop.
        if len(data) > _LARGE_BYTES:
            request = await asyncio.to_thread(self._sign_request, method, url, headers, data, credentials)
        else:
            request = self._sign_request(method, url, headers, data, credentials)
        response = await self._http.send(request)
        return Response(response.status_code, response.headers, await response.content)

    def _sign_request(
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
def _get_data_loader() -> Any:
    # Reading the description of S3 takes 80 ms; each session would do it again.
    return create_loader()


def _stay_here(request_dict: dict[str, Any], **_: Any) -> None:
    # A redirect to another region is an error in our settings.  Left to itself the client asks for the
    # region, and asks without end when that is answered by a redirect, too.
    request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True


_STYLES: Final = {True: "virtual", False: "path", None: "auto"}
"""How the client that lists, copies and deletes addresses a bucket; see `base_url` for gets and puts."""


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
        s3={"addressing_style": _STYLES[config.virtual_hosted]},
        http_session_cls=open_http,
    )


_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_PASSING = frozenset(
    {
        # Throttling and clumsy servers use 400 and even 200 for these.
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
        "RequestTimeout",
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        # Bytes that were changed on the way.
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "XAmzContentChecksumMismatch",
        "IncompleteBody",
        # Somebody else changes the same object or bucket.
        "OperationAborted",
        "ConditionalRequestConflict",
        "ConcurrentModification",
    }
)
_NO_PLACE = frozenset(
    {
        "ExistingObjectIsDirectory",
        "ExistingObjectIsFile",
        "ObjectParentIsFile",
        "XMinioObjectExistsAsDirectory",
        "XMinioParentIsObject",
    }
)
"""Codes of servers that keep objects as files: a key cannot be what another key has before a slash."""


_WRITES = frozenset({"put", "copy", "delete"})
_NOT_SENT = frozenset({"EndpointConnectionError", "ConnectTimeoutError"})
"""Errors of botocore that come before a request has left."""


class BucketPlace(NamedTuple):
    """What was asked of which bucket; for messages."""

    operation: str
    bucket: str
    key: str
    region: str
    endpoint: str | None = None

    def __str__(self) -> str:
        where = f"region {self.region}" + (f", {self.endpoint}" if self.endpoint else "")
        return f"{self.operation} of {self.key!r} in bucket {self.bucket!r} ({where})"


def code_of(body: bytes) -> str:
    """The error code in an error body, or an empty text when it is not one of S3's."""
    found = _CODE.search(body, 0, 4096)
    return found[1].decode() if found else ""


def is_absent(status: int, code: str) -> bool:
    """Whether the object, and not the bucket or the whole address, is what is not there.

    The code is required: a wrong endpoint or a proxy answers 404 too, and 403 may hide an absent one.
    """
    return status == 404 and code == "NoSuchKey"


def response_error(
    place: BucketPlace, status: int, code: str, *, create: bool = False, if_match: bool = False
) -> HelixError | ConditionFailedError:
    """The error for an answer that is not a success."""
    found = f"{status} {code}".strip()
    conditional = create or if_match
    refused = status == 412 or (status == 409 and code not in _NO_PLACE)
    if conditional and (refused or (if_match and is_absent(status, code))):
        return ConditionFailedError(f"S3 refused the condition of {place}: {found}")
    if conditional and status == 501:
        return ConditionalWritesUnsupportedError(
            f"S3 does not know the condition of {place}: {found}; use a server with conditional PUT",
            **_error_facts(place, status, code),
        )
    kind, advice = _classify_error(status, code)
    return kind(f"S3 refused {place}: {found}; {advice}", **_error_facts(place, status, code))


def no_answer(place: BucketPlace, reason: str) -> StoreUnavailableError:
    """The error for a request whose answer never came, or came in part."""
    writes = place.operation in _WRITES and reason not in _NOT_SENT
    effect = "the request may have taken effect; " if writes else ""
    return StoreUnavailableError(
        f"S3 gave no whole answer to {place}: {reason}; {effect}repeat it later",
        **_error_facts(place, None, reason),
    )


def no_access(place: BucketPlace, reason: str) -> ArchiveAccessError:
    """The error for a request that could not even be made."""
    return ArchiveAccessError(f"cannot ask S3 for {place}: {reason}", **_error_facts(place, None, reason))


def _classify_error(status: int, code: str) -> tuple[type[HelixError], str]:
    if code in _NO_PLACE:
        return InvalidRequestError, (
            "another object's key is a part of this one up to a slash, or the reverse, and this server keeps"
            " objects as files; remove that object, or use a prefix or a bucket that nobody else uses"
        )
    if code in _PASSING or status == 429 or (status >= 500 and status != 501):
        return StoreUnavailableError, "repeat it later"
    if code == "KeyTooLongError":
        return InvalidRequestError, "this server takes only shorter keys, or shorter parts between slashes"
    if code == "EntityTooLarge":
        return TooLargeError, "this server takes only smaller objects"
    return ArchiveAccessError, "check endpoint, bucket, region, and what the credentials may do"


def _error_facts(place: BucketPlace, status: int | None, code: str) -> dict[str, str | int | None]:
    return {**place._asdict(), "status": status, "code": code}


class S3Blobs:
    """A bucket of S3 or of a server that speaks its protocol and honours write conditions.

    Opens its connections with the first call and again on another event loop.  A GET that S3 refuses for
    the moment is made up to four times, other requests once; only the HTTP client below repeats a request
    whose connection was closed before an answer.

    Args:
        bucket: Must exist.
        endpoint: Like ``http://host:port``; None is AWS.
        region: Part of every signature; servers of one's own usually want ``us-east-1``.
        access_key: With ``secret_key``; without them AWS's usual sources are asked.
        session_token: Of temporary credentials.
        virtual_hosted: Whether the bucket is part of the host name; None is "at AWS only".
        connect_timeout: Seconds until a connection stands.
        read_timeout: Seconds without a byte of the answer.
        total_timeout: Seconds for one request with its body and answer.
        max_connections: At most so many at once; more requests wait.
        list_page_size: Keys in one page of a listing, 1 to 1,000.

    Raises (every method):
        StoreUnavailableError: Throttled, 5xx, time-out or connection lost; a write may have happened,
            or may still happen later.
        ArchiveAccessError: The bucket is missing, access is denied, or there are no credentials.
        InvalidRequestError: The key could not be kept apart from others by every store.
    """

    def __init__(
        self,
        bucket: str,
        *,
        endpoint: str | None = None,
        region: str = "us-east-1",
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        virtual_hosted: bool | None = None,
        connect_timeout: float = 2.0,
        read_timeout: float = 5.0,
        total_timeout: float = 60.0,
        max_connections: int = 50,
        list_page_size: int = 1000,
    ) -> None:
        self._config = S3Config(
            bucket=bucket,
            endpoint=endpoint,
            region=region,
            virtual_hosted=virtual_hosted,
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            total_timeout=total_timeout,
            max_connections=max_connections,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
        )
        self._list_page_size = list_page_size
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[S3Connection]] = {}

    def __repr__(self) -> str:
        config = self._config
        return f"S3Blobs({config.bucket!r}, endpoint={config.endpoint!r}, region={config.region!r})"

    async def get(self, key: str) -> Blob | None:
        """The whole object; None if and only if S3 says that this key is not there."""
        check_key(key)
        for attempt in range(_GETS - 1):
            try:
                return await self._get_once(key)
            except StoreUnavailableError as error:
                if error.facts["status"] is None:
                    raise  # without an answer the time has been waited for already
                await asyncio.sleep(retry_pause(attempt, first=0.1, longest=1.0))
        return await self._get_once(key)

    async def _get_once(self, key: str) -> Blob | None:
        place = self._bucket_place("get", key)
        async with self._use_connection(place) as connection:
            response = await connection.send_request("GET", key, {})
        if response.status == 200:
            _check_length(place, response)
            return Blob(response.body, _parse_etag(response.headers.get("etag", "")))
        if is_absent(response.status, code := code_of(response.body)):
            return None
        raise response_error(place, response.status, code)

    async def read_clock(self, key: str) -> float | None:
        """The server's time in seconds since 1970, by the date of its answer; None if it has none.

        Args:
            key: Of any object, there or not; it is asked for, and nothing changes.
        """
        place = self._bucket_place("get", key)
        async with self._use_connection(place) as connection:
            response = await connection.send_request("GET", key, {})
        if response.status != 200 and not is_absent(response.status, code := code_of(response.body)):
            raise response_error(place, response.status, code)
        try:
            return parsedate_to_datetime(response.headers.get("date", "")).timestamp()
        except ValueError:
            return None

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """Write the object in one request and return its etag.

        Raises:
            ConditionFailedError: S3 refused the condition; perhaps after it took this very write.
            ConditionalWritesUnsupportedError: The server says that it knows no conditions.
        """
        check_key(key)
        check_conditions(create, if_match)
        headers = {"Content-Length": str(len(data))}
        if create:
            headers["If-None-Match"] = "*"
        if if_match is not None:
            # Without quotes: Ceph takes no others, everybody else takes both.
            headers["If-Match"] = if_match
        place = self._bucket_place("put", key)
        async with self._use_connection(place) as connection:
            response = await connection.send_request("PUT", key, headers, data)
        if response.status == 200:
            return _parse_etag(response.headers.get("etag", ""))
        code = code_of(response.body)
        raise response_error(place, response.status, code, create=create, if_match=if_match is not None)

    async def copy(self, source: str, target: str) -> None:
        """Copy within the bucket, on the server's side; overwrites.

        Raises:
            ConditionFailedError: The source is not there.
        """
        check_key(source)
        check_key(target)
        bucket = self._config.bucket
        async with self._use_connection(self._bucket_place("copy", source)) as connection:
            await connection.client.copy_object(
                Bucket=bucket, Key=target, CopySource={"Bucket": bucket, "Key": source}
            )

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """All objects whose key starts with ``prefix``, page by page."""
        check_prefix(prefix)
        place = self._bucket_place("list", prefix)
        more: Any = {}
        while True:
            async with self._use_connection(place) as connection:
                answer = await connection.client.list_objects_v2(
                    Bucket=self._config.bucket, Prefix=prefix, MaxKeys=self._list_page_size, **more
                )
            page = cast("Mapping[str, Any]", answer)
            for entry in page.get("Contents", []):
                modified = entry["LastModified"].timestamp() if "LastModified" in entry else None
                yield BlobInfo(entry["Key"], entry["Size"], _parse_etag(entry["ETag"]), modified)
            if not page.get("IsTruncated"):
                return
            if "NextContinuationToken" not in page:
                raise no_answer(place, "the listing breaks off without saying where to go on")
            more = {"ContinuationToken": page["NextContinuationToken"]}

    async def delete(self, key: str) -> None:
        """Remove the object; nothing if it is not there."""
        check_key(key)
        # Some servers answer 404 for a key that is not there; AWS answers 204.
        with contextlib.suppress(ConditionFailedError):
            async with self._use_connection(self._bucket_place("delete", key)) as connection:
                await connection.client.delete_object(Bucket=self._config.bucket, Key=key)

    async def probe(self, prefix: str) -> None:
        """Prove on objects of its own below ``prefix`` that the server honours write conditions.

        Raises:
            ConditionalWritesUnsupportedError: Creating twice or a stale If-Match succeeded.
        """
        await prove_conditional_writes(self, prefix)

    async def close(self) -> None:
        """Give back the connections of this event loop; a later call opens new ones."""
        opening = self._opening.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await asyncio.wait([opening])
            await _close_opened(opening)
        await self._forget_closed_loops()

    @contextlib.asynccontextmanager
    async def _use_connection(self, place: BucketPlace) -> AsyncIterator[S3Connection]:
        with _translate_errors(place):
            connection = await self._get_connection()
            async with asyncio.timeout(self._config.total_timeout):
                yield connection

    async def _get_connection(self) -> S3Connection:
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            await self._forget_closed_loops()
            opening = self._opening[loop] = loop.create_task(S3Connection.open_client(self._config))
        # Others wait for it too: one caller's cancellation must not take it from them.
        return await asyncio.shield(opening)

    async def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._opening if loop.is_closed()]:
            await _close_opened(self._opening.pop(loop))

    def _bucket_place(self, operation: str, key: str) -> BucketPlace:
        return BucketPlace(operation, self._config.bucket, key, self._config.region, self._config.endpoint)


async def _close_opened(opening: "asyncio.Task[S3Connection]") -> None:
    """Close what was opened; what could not be has nothing to give back."""
    if opening.done() and not opening.cancelled() and not opening.exception():
        await opening.result().close()


@contextlib.contextmanager
def _translate_errors(place: BucketPlace) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise no_answer(place, "total_timeout passed") from error
    except (HTTPClientError, SSLError) as error:
        raise _lost_answer(place, error) from error
    except ClientError as error:
        answer = cast("Mapping[str, Any]", error.response)
        status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"].get("Code", "")
        if is_absent(status, code):
            raise ConditionFailedError(f"nothing is there for {place}") from error
        raise response_error(place, status, code) from error
    except NoCredentialsError as error:
        raise no_access(place, "no credentials; give access_key and secret_key") from error
    except (ConfigNotFound, ConfigParseError, PartialCredentialsError, ProfileNotFound) as error:
        raise no_access(
            place, f"{type(error).__name__} in the configuration of AWS; see AWS_PROFILE"
        ) from error
    except BotoCoreError as error:
        raise no_answer(place, type(error).__name__) from error


_TLS: Final = TlsSettings(
    files="AWS_CA_BUNDLE, or ca_bundle in the configuration of AWS",
    trust="set AWS_CA_BUNDLE=<file>",
    identify="no certificate can be set for S3",
)


def _lost_answer(place: BucketPlace, error: Exception) -> HelixError:
    failure = find_tls_failure(error, _TLS)
    if failure is None:
        return no_answer(place, type(error).__name__)
    return (no_answer if failure.passes else no_access)(place, f"it {failure.told}")


def _check_length(place: BucketPlace, response: Response) -> None:
    declared = response.headers.get("content-length")
    if declared is None and "chunked" not in response.headers.get("transfer-encoding", "").lower():
        raise no_answer(place, "the answer does not say how long it is, so it may be cut short")
    if declared is not None and int(declared) != len(response.body):
        raise no_answer(place, f"{len(response.body)} bytes came of {declared}")


def _parse_etag(header: str) -> str:
    return header.strip('"')
