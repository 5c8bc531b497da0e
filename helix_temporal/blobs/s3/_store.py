"""The blob store on S3."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError

from helix_temporal.blobs._checks import check_conditions, check_key, check_prefix
from helix_temporal.blobs._probe import prove_conditional_writes
from helix_temporal.blobs._protocol import Blob, BlobInfo, ConditionFailedError
from helix_temporal.blobs.s3._config import S3Config
from helix_temporal.blobs.s3._connection import Connection, Response
from helix_temporal.blobs.s3._failures import Place, code_of, failure, is_absent, no_access, no_answer


class S3Blobs:
    """A bucket of S3 or of a server that speaks its protocol and honours write conditions.

    Opens its connections with the first call and again on another event loop.  Requests are made
    once; only the HTTP client below repeats a request whose connection was closed before an answer.

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
        probe_prefix: Where ``probe`` may write.

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
        probe_prefix: str = "helix-probe",
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
        self._probe_prefix = probe_prefix
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Task[Connection]] = {}

    def __repr__(self) -> str:
        config = self._config
        return f"S3Blobs({config.bucket!r}, endpoint={config.endpoint!r}, region={config.region!r})"

    async def get(self, key: str) -> Blob | None:
        """The whole object; None if and only if S3 says that this key is not there."""
        check_key(key)
        place = self._place("get", key)
        async with self._request(place) as connection:
            response = await connection.send("GET", key, {})
        if response.status == 200:
            _check_length(place, response)
            return Blob(response.body, _etag(response.headers.get("etag", "")))
        if is_absent(response.status, code := code_of(response.body)):
            return None
        raise failure(place, response.status, code)

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
        place = self._place("put", key)
        async with self._request(place) as connection:
            response = await connection.send("PUT", key, headers, data)
        if response.status == 200:
            return _etag(response.headers.get("etag", ""))
        code = code_of(response.body)
        raise failure(place, response.status, code, create=create, if_match=if_match is not None)

    async def copy(self, source: str, target: str) -> None:
        """Copy within the bucket, on the server's side; overwrites.

        Raises:
            ConditionFailedError: The source is not there.
        """
        check_key(source)
        check_key(target)
        bucket = self._config.bucket
        async with self._request(self._place("copy", source)) as connection:
            await connection.client.copy_object(
                Bucket=bucket, Key=target, CopySource={"Bucket": bucket, "Key": source}
            )

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """All objects whose key starts with ``prefix``, page by page."""
        check_prefix(prefix)
        place = self._place("list", prefix)
        more: Any = {}
        while True:
            async with self._request(place) as connection:
                answer = await connection.client.list_objects_v2(
                    Bucket=self._config.bucket, Prefix=prefix, MaxKeys=self._list_page_size, **more
                )
            page = cast("Mapping[str, Any]", answer)
            for entry in page.get("Contents", []):
                modified = entry["LastModified"].timestamp() if "LastModified" in entry else None
                yield BlobInfo(entry["Key"], entry["Size"], _etag(entry["ETag"]), modified)
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
            async with self._request(self._place("delete", key)) as connection:
                await connection.client.delete_object(Bucket=self._config.bucket, Key=key)

    async def probe(self) -> None:
        """Prove on an object of its own that the server honours write conditions.

        Raises:
            ConditionalWritesUnsupportedError: Creating twice or a stale If-Match succeeded.
        """
        await prove_conditional_writes(self, self._probe_prefix)

    async def close(self) -> None:
        """Give back the connections of this event loop; a later call opens new ones."""
        opening = self._opening.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).close()
        await self._forget_closed_loops()

    @contextlib.asynccontextmanager
    async def _request(self, place: Place) -> AsyncIterator[Connection]:
        with _reporting(place):
            connection = await self._connection()
            async with asyncio.timeout(self._config.total_timeout):
                yield connection

    async def _connection(self) -> Connection:
        loop = asyncio.get_running_loop()
        opening = self._opening.get(loop)
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
            await self._forget_closed_loops()
            opening = self._opening[loop] = loop.create_task(Connection.open(self._config))
        # Others wait for it too: one caller's cancellation must not take it from them.
        return await asyncio.shield(opening)

    async def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._opening if loop.is_closed()]:
            opening = self._opening.pop(loop)
            if opening.done() and not opening.cancelled() and not opening.exception():
                await opening.result().close()

    def _place(self, operation: str, key: str) -> Place:
        return Place(operation, self._config.bucket, key, self._config.region, self._config.endpoint)


@contextlib.contextmanager
def _reporting(place: Place) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise no_answer(place, "total_timeout passed") from error
    except HTTPClientError as error:
        raise no_answer(place, type(error).__name__) from error
    except ClientError as error:
        answer = cast("Mapping[str, Any]", error.response)
        status, code = answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"].get("Code", "")
        if is_absent(status, code):
            raise ConditionFailedError(f"nothing is there for {place}") from error
        raise failure(place, status, code) from error
    except NoCredentialsError as error:
        raise no_access(place, "no credentials; give access_key and secret_key") from error
    except BotoCoreError as error:
        raise no_answer(place, type(error).__name__) from error


def _check_length(place: Place, response: Response) -> None:
    declared = response.headers.get("content-length")
    if declared is None and "chunked" not in response.headers.get("transfer-encoding", "").lower():
        raise no_answer(place, "the answer does not say how long it is, so it may be cut short")
    if declared is not None and int(declared) != len(response.body):
        raise no_answer(place, f"{len(response.body)} bytes came of {declared}")


def _etag(header: str) -> str:
    return header.strip('"')
