"""Each answer of S3 becomes the right error, and nothing secret gets into it."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from helix_temporal.blobs import ConditionFailedError
from helix_temporal.blobs.s3 import S3Blobs, _client_config
from helix_temporal.errors import (
    ArchiveAccessError,
    InvalidConfigError,
    InvalidRequestError,
    StoreUnavailableError,
    TooLargeError,
)
from tests.unit.blobs.conftest import StubS3

Call = Callable[[S3Blobs], Awaitable[object]]


async def first_page(store: S3Blobs) -> None:
    """A listing, to its end."""
    [info async for info in store.list("p/")]


CALLS = {
    "get": lambda store: store.get("p/key"),
    "put": lambda store: store.put("p/key", b"data"),
    "create": lambda store: store.put("p/key", b"data", create=True),
    "replace": lambda store: store.put("p/key", b"data", if_match="0" * 32),
    "copy": lambda store: store.copy("p/key", "p/other"),
    "list": first_page,
    "delete": lambda store: store.delete("p/key"),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
@pytest.mark.parametrize(
    ("status", "code"),
    [(503, "SlowDown"), (503, ""), (500, "InternalError"), (502, ""), (504, ""), (429, "TooManyRequests"),
     (400, "RequestTimeout")],
)  # fmt: skip
async def test_a_passing_failure_is_retryable(
    stub: StubS3, stub_blobs: S3Blobs, call: Call, status: int, code: str
) -> None:
    """Temporal tries again; the store asked only once, but for reading, which has no effect."""
    stub.handler = stub.refuse(status, code)
    with pytest.raises(StoreUnavailableError, match=f"{status} {code}".strip()):
        await call(stub_blobs)
    assert len(stub.requests) == (4 if call is CALLS["get"] else 1)


async def test_a_get_that_is_refused_for_a_moment_is_asked_again(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """As S3 asks for with 503."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if len(stub.requests) < 4:
            return await stub.refuse(503, "SlowDown")(request)
        return web.Response(body=b"data", headers={"ETag": '"e"'})

    stub.handler = answer
    found = await stub_blobs.get("p/key")
    assert found is not None
    assert found.data == b"data"


@every_call
@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (403, "InvalidAccessKeyId"), (403, ""), (404, "NoSuchBucket"), (404, ""),
     (301, "PermanentRedirect"), (400, "AuthorizationHeaderMalformed"), (400, "ExpiredToken")],
)  # fmt: skip
async def test_refused_access_is_permanent_and_says_where(
    stub: StubS3, stub_blobs: S3Blobs, call: Call, status: int, code: str
) -> None:
    """A missing bucket or a denial is no missing object; an operator needs bucket, key and region."""
    stub.handler = stub.refuse(status, code)
    where = r"'p/.*' in bucket 'bucket' \(region us-east-1, http:.*\)"
    with pytest.raises(ArchiveAccessError, match=where) as caught:
        await call(stub_blobs)
    assert caught.value.facts["bucket"] == "bucket"
    assert caught.value.facts["status"] == status


async def test_only_no_such_key_means_not_there(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """A wrong endpoint answers 404 too; taking that for absence would start threads anew."""
    stub.handler = stub.refuse(404, "NoSuchKey")
    assert await stub_blobs.get("p/key") is None
    stub.handler = stub.refuse(404, body="<html>Not Found</html>")
    with pytest.raises(ArchiveAccessError):
        await stub_blobs.get("p/key")


@pytest.mark.parametrize("call", [CALLS["create"], CALLS["replace"]])
@pytest.mark.parametrize(
    ("status", "code"), [(412, "PreconditionFailed"), (409, "ConditionalRequestConflict"), (412, "")]
)
async def test_a_refused_condition_is_no_failure(
    stub: StubS3, stub_blobs: S3Blobs, call: Call, status: int, code: str
) -> None:
    """The caller reads back; it may even have won."""
    stub.handler = stub.refuse(status, code)
    with pytest.raises(ConditionFailedError):
        await call(stub_blobs)


async def test_if_match_on_a_missing_object_is_a_refused_condition(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """AWS answers 404 where others answer 412."""
    stub.handler = stub.refuse(404, "NoSuchKey")
    with pytest.raises(ConditionFailedError):
        await stub_blobs.put("p/key", b"data", if_match="0" * 32)


@every_call
@pytest.mark.parametrize("code", ["ObjectParentIsFile", "ExistingObjectIsDirectory"])
async def test_a_key_that_has_no_place_is_permanent(
    stub: StubS3, stub_blobs: S3Blobs, call: Call, code: str
) -> None:
    """A server that keeps objects as files answers 409, and does so for ever; it is no refused condition."""
    stub.handler = stub.refuse(409, code)
    with pytest.raises(InvalidRequestError, match=f"409 {code}; .*prefix"):
        await call(stub_blobs)


@pytest.mark.parametrize("call", [CALLS["put"], CALLS["get"], CALLS["delete"]])
async def test_a_conflict_that_nobody_knows_is_permanent(
    stub: StubS3, stub_blobs: S3Blobs, call: Call
) -> None:
    """Without a condition nothing says that it passes; the message has the server's code."""
    stub.handler = stub.refuse(409, "InvalidBucketState")
    with pytest.raises(ArchiveAccessError, match="409 InvalidBucketState"):
        await call(stub_blobs)


@pytest.mark.parametrize("code", ["OperationAborted", "ConditionalRequestConflict"])
async def test_a_conflict_without_condition_is_retryable(
    stub: StubS3, stub_blobs: S3Blobs, code: str
) -> None:
    """Nothing was promised about what is there, so nothing failed but the moment."""
    stub.handler = stub.refuse(409, code)
    with pytest.raises(StoreUnavailableError):
        await stub_blobs.put("p/key", b"data")


async def test_deleting_what_a_server_does_not_find_is_done(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """Some servers answer 404 NoSuchKey instead of 204."""
    stub.handler = stub.refuse(404, "NoSuchKey")
    await stub_blobs.delete("p/key")


async def test_too_long_and_too_large_are_told_as_such(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """Trying again would not help, and neither would other credentials."""
    stub.handler = stub.refuse(400, "KeyTooLongError")
    with pytest.raises(InvalidRequestError):
        await stub_blobs.put("p/key", b"data")
    stub.handler = stub.refuse(400, "EntityTooLarge")
    with pytest.raises(TooLargeError):
        await stub_blobs.put("p/key", b"data")


async def test_conditions_travel_in_the_form_all_servers_take(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """Ceph takes If-Match without quotes only."""
    with pytest.raises(ConditionFailedError):
        await stub_blobs.put("p/key", b"data", if_match="abc")
    with pytest.raises(ArchiveAccessError):
        await stub_blobs.put("p/key", b"data", create=True)
    replace, create = stub.headers
    assert (replace["If-Match"], replace["Content-Length"]) == ("abc", "4")
    assert (create["If-None-Match"], create["Content-Length"]) == ("*", "4")


async def test_a_key_is_sent_as_it_is_signed(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """One escape too many or too few is another object or a bad signature."""
    assert await stub_blobs.get("p/ü +%41~(1)") is None
    assert stub.requests == [("GET", "/bucket/p/%C3%BC%20%2B%2541~%281%29")]


async def test_a_slow_server_is_unavailable(stub: StubS3) -> None:
    """No request waits for ever, even when bytes trickle in."""

    async def trickle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000", "ETag": '"x"'})
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x")
            await asyncio.sleep(0.05)
        return response

    stub.handler = trickle
    store = stub.blobs(read_timeout=3.0, total_timeout=0.5)
    with pytest.raises(StoreUnavailableError, match="total_timeout"):
        await store.get("p/key")
    await store.close()


async def test_cancelling_passes_through(stub: StubS3, stub_blobs: S3Blobs) -> None:
    """A cancelled activity must see its cancellation and no store error."""
    entered = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        entered.set()
        await asyncio.sleep(30)
        return web.Response()

    stub.handler = hang
    getting = asyncio.create_task(stub_blobs.get("p/key"))
    await entered.wait()
    getting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await getting


async def test_nobody_listening_is_unavailable() -> None:
    """The server is restarted, the session goes on."""
    store = S3Blobs("bucket", endpoint="http://127.0.0.1:9", access_key="a", secret_key="s")
    with pytest.raises(StoreUnavailableError):
        await store.get("key")
    with pytest.raises(StoreUnavailableError):
        await store.delete("key")
    await store.close()


async def test_secrets_stay_inside(stub: StubS3) -> None:
    """Errors end in workflow histories and logs."""
    store = stub.blobs(access_key="AK-VISIBLE", secret_key="SK-VISIBLE", session_token="ST-VISIBLE")
    stub.handler = stub.refuse(403, "SignatureDoesNotMatch")
    with pytest.raises(ArchiveAccessError) as caught:
        await store.get("key")
    shown = f"{store!r} {store._config!r} {caught.value!r} {caught.value.facts}"
    assert "VISIBLE" not in shown
    await store.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"endpoint": "127.0.0.1:8333"},
        {"endpoint": "http://user:pass@host"},
        {"endpoint": "http://host/?x=1"},
        {"region": ""},
        {"access_key": "a"},
        {"read_timeout": 0},
        {"max_connections": 0},
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(settings: dict[str, Any]) -> None:
    """A typo shows at start-up and not with the first flush."""
    with pytest.raises(InvalidConfigError) as caught:
        S3Blobs(**{"bucket": "bucket", **settings})
    assert "pass" not in str(caught.value).replace("password", "")


def test_one_store_serves_one_event_loop_after_another() -> None:
    """Scripts call asyncio.run several times; nothing may be left or warned about."""
    code = (
        "import asyncio\n"
        "from helix_temporal.blobs.s3 import S3Blobs\n"
        "from helix_temporal.errors import StoreUnavailableError\n"
        "s = S3Blobs('bucket', endpoint='http://127.0.0.1:9', access_key='a', secret_key='s')\n"
        "async def ask():\n"
        "    try: await s.get('key')\n"
        "    except StoreUnavailableError: print('asked')\n"
        "for _ in range(3): asyncio.run(ask())\n"
        "asyncio.run(s.close())\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.split() == ["asked"] * 3
    assert done.stderr == ""


def test_the_door_of_blobs_is_light() -> None:
    """Workflows import it: a driver behind it could not be loaded in Temporal's sandbox."""
    code = (
        "import sys, helix_temporal.blobs, helix_temporal.blobs.memory\n"
        "print([m for m in ('aioboto3', 'botocore', 'aiohttp', 'asyncio.subprocess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "boto" not in done.stdout
    assert "aiohttp" not in done.stdout


@pytest.mark.parametrize(("given", "style"), [(True, "virtual"), (False, "path"), (None, "auto")])
def test_the_client_that_lists_addresses_a_bucket_as_gets_and_puts_do(given: bool | None, style: str) -> None:
    """Where only one form is reachable, or allowed, listings and copies must have it, too."""
    store = S3Blobs("bucket", virtual_hosted=given)
    config: Any = _client_config(store._config, None)
    assert config.s3["addressing_style"] == style


async def test_a_misspelt_profile_of_aws_is_wrong_and_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waited for it would wait for ever."""
    monkeypatch.setenv("AWS_PROFILE", "nobody-has-this")
    store = S3Blobs("bucket", region="us-east-1")
    with pytest.raises(ArchiveAccessError, match="ProfileNotFound in the configuration of AWS"):
        await store.get("key")
    await store.close()


@every_call
@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_a_file_of_certificates_that_is_none_is_permanent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, text: str | None
) -> None:
    """A worker that starts would wait for a file that nobody brings."""
    file = tmp_path / "ca.pem"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(file))
    blobs = S3Blobs("bucket", endpoint="https://localhost:1", access_key="a", secret_key="b")
    try:
        with pytest.raises(ArchiveAccessError, match="AWS_CA_BUNDLE"):
            await call(blobs)
    finally:
        await blobs.close()
