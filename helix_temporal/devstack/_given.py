"""Endpoints from and to environment variables, by the names that `Settings.from_env` reads."""

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from helix_temporal.devstack import _ready
from helix_temporal.devstack._errors import ServerMissingError
from helix_temporal.devstack.postgres import PostgresEndpoint
from helix_temporal.devstack.seaweedfs import REGION, S3Endpoint
from helix_temporal.devstack.temporal import TemporalEndpoint
from helix_temporal.devstack.valkey import RedisEndpoint

Endpoint = TemporalEndpoint | RedisEndpoint | PostgresEndpoint | S3Endpoint

ADDRESS_VARIABLES: Final[Mapping[str, str]] = {
    "temporal": "HELIX_TEMPORAL_ADDRESS",
    "redis": "HELIX_REDIS_URL",
    "redis-cluster": "HELIX_REDIS_CLUSTER_URL",
    "postgres": "HELIX_POSTGRES_DSN",
    "s3": "HELIX_S3_ENDPOINT",
}
_DEFAULT_PORTS: Final = {
    "redis": 6379,
    "rediss": 6379,
    "postgresql": 5432,
    "postgres": 5432,
    "http": 80,
    "https": 443,
}


def endpoint(name: str, environment: Mapping[str, str]) -> Endpoint | None:
    """The server that the environment names, or None.

    Raises:
        ServerMissingError: It names one where nobody listens, or only half of what it takes.
    """
    variable = ADDRESS_VARIABLES[name]
    address = environment.get(variable)
    if not address:
        return None
    _require_listener(name, variable, address)
    make: dict[str, Callable[[], Endpoint]] = {
        "temporal": lambda: TemporalEndpoint(
            address, environment.get("HELIX_TEMPORAL_NAMESPACE") or "default"
        ),
        "redis": lambda: RedisEndpoint(address),
        "redis-cluster": lambda: RedisEndpoint(address),
        "postgres": lambda: PostgresEndpoint(address),
        "s3": lambda: _given_bucket(address, environment),
    }
    return make[name]()


def variables(name: str, endpoint: Endpoint) -> dict[str, str]:
    """The variables that name an endpoint."""
    match endpoint:
        case TemporalEndpoint():
            return {
                "HELIX_TEMPORAL_ADDRESS": endpoint.address,
                "HELIX_TEMPORAL_NAMESPACE": endpoint.namespace,
            }
        case RedisEndpoint():
            mode = "true" if name == "redis-cluster" else "false"
            return {"HELIX_REDIS_URL": endpoint.url, "HELIX_REDIS_CLUSTER": mode}
        case PostgresEndpoint():
            return {"HELIX_POSTGRES_DSN": endpoint.dsn}
        case S3Endpoint():
            found = {
                "HELIX_S3_ENDPOINT": endpoint.endpoint,
                "HELIX_S3_BUCKET": endpoint.bucket,
                "HELIX_S3_REGION": endpoint.region,
                "HELIX_S3_ACCESS_KEY": endpoint.access_key,
                "HELIX_S3_SECRET_KEY": endpoint.secret_key,
            }
            return {variable: value for variable, value in found.items() if value}


def _given_bucket(address: str, environment: Mapping[str, str]) -> S3Endpoint:
    bucket = environment.get("HELIX_S3_BUCKET")
    if not bucket:
        raise ServerMissingError(
            "HELIX_S3_ENDPOINT is set but HELIX_S3_BUCKET is not; name a bucket that exists"
        )
    return S3Endpoint(
        address,
        bucket,
        environment.get("HELIX_S3_REGION") or REGION,
        environment.get("HELIX_S3_ACCESS_KEY"),
        environment.get("HELIX_S3_SECRET_KEY"),
    )


def _require_listener(name: str, variable: str, address: str) -> None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    if parts.hostname and port and not _ready.tcp_answers(parts.hostname, port):
        raise ServerMissingError(
            f"{variable} names {name} at {parts.hostname}:{port}, where nobody listens;"
            f" start it there, or unset {variable} to have a local one started"
        )
