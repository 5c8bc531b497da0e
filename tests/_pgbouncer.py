"""A real PgBouncer in front of a server, in transaction mode or another one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from helix_temporal.devstack import LocalServer, servers
from helix_temporal.devstack.processes import Program
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import open_place

_ROOT = Path(__file__).parent.parent
_SETTINGS = """\
[databases]
* = host={host} port={server} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 4
max_client_conn = 500
{account}
"""


@contextmanager
def pgbouncer(dsn: str, mode: str = "transaction") -> Iterator[str]:
    """The address of a pooler with four connections to the server; stopped at the end."""
    program, libraries = _program()
    parts, port = urlsplit(dsn), free_port()
    with open_place(None, None) as place:
        directory = place.make_directory("pgbouncer")
        settings = directory / "pgbouncer.ini"
        # It refuses to run as root, and becomes somebody else by itself.
        account = "" if os.geteuid() else "user = nobody"
        settings.write_text(
            _SETTINGS.format(
                host=parts.hostname,
                server=parts.port,
                user=parts.username,
                port=port,
                mode=mode,
                account=account,
            )
        )
        run = Program(
            name="pgbouncer",
            argv=[str(program), str(settings)],
            directory=directory,
            environment={"LD_LIBRARY_PATH": libraries},
        )
        ready = partial(servers.postgres_answers, "127.0.0.1", port, parts.username or "")
        LocalServer(place.supervisor, run, ready).start()
        yield f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}"


def _program() -> tuple[Path, str]:
    place = Path(sys.prefix) / "pgbouncer"
    if not (place / "usr").exists() and shutil.which("pgbouncer") is None:
        subprocess.run([sys.executable, _ROOT / ".ci" / "pgbouncer"], check=True)
    found = next(place.glob("usr/sbin/pgbouncer"), None) or shutil.which("pgbouncer")
    if found is None:
        pytest.fail("PgBouncer can't be had: apt-get install pgbouncer, or brew install pgbouncer")
    libraries = ":".join(str(each) for each in place.glob("usr/lib/*-linux-gnu"))
    return Path(found), libraries
