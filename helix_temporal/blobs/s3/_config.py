"""Where an S3 store is and how it is reached."""

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from helix_temporal.errors import InvalidConfigError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


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
        if not _BUCKET.fullmatch(self.bucket):
            raise InvalidConfigError(f"S3 bucket {self.bucket!r} is not a bucket's name")
        if not self.region:
            raise InvalidConfigError("the S3 region is empty; it is part of every signature")
        if (self.access_key is None) != (self.secret_key is None):
            raise InvalidConfigError("S3 access_key and secret_key must be given together, or neither")
        if self.endpoint is not None:
            _check_endpoint(self.endpoint)
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


def _check_endpoint(endpoint: str) -> None:
    parts = urlsplit(endpoint)
    if parts.username is not None or parts.password is not None:
        raise InvalidConfigError("the S3 endpoint holds a user or password; give access_key and secret_key")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidConfigError(f"the S3 endpoint must be like https://host:port, found {endpoint!r}")
