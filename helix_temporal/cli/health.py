"""``helix-temporal health``: what a worker on this machine says of itself."""

import http.client
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, Literal

import typer

from helix_temporal.cli._output import AsJson, print_output, print_text
from helix_temporal.cli.outputs import HealthAnswer
from helix_temporal.cli.statuses import ExitStatus
from helix_temporal.errors import InvalidConfigError
from helix_temporal.settings import Settings

_SECONDS = 10.0
_ALL: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (to be asked, not listened on)
_LOCAL: Final = ("127.0.0.1", "::1")
_PATHS = {"ready": "/readyz", "live": "/livez", "started": "/startupz"}


Probe = Literal["ready", "live", "started"]


def health(
    probe: Annotated[Probe, typer.Argument(help="Which probe to ask.")] = "ready",
    *,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="By default HELIX_HEALTH_PORT.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the worker on this machine how it is: exit status 0 if well, 1 if not, with what is wrong.

    It is asked where HELIX_HEALTH_HOST says that it listens.

    ready: it polls its task queue, its stores answer, and it does not drain.  live: its event loop turns.
    started: Temporal and its stores passed their check; what is away is named until then.
    """
    settings = Settings.from_env(os.environ)
    port = settings.health_port if port is None else port
    if port is None:
        raise InvalidConfigError("there is no port to ask; set HELIX_HEALTH_PORT, or give --port")
    host = settings.health_host
    hosts = _LOCAL if host is None or host in _ALL else (host,)
    try:
        status, body = _ask(hosts, port, _PATHS[probe])
    except (OSError, http.client.HTTPException) as error:
        said = f"no answer on port {port} of {' or '.join(hosts)}: {type(error).__name__}"
        answer = HealthAnswer(probe=probe, ok=False, wrong={"worker": said})
    else:
        answer, said = _read_answer(probe, status, body), body
    print_output(answer, lambda _: print_text(said), as_json=as_json)
    raise typer.Exit(ExitStatus.DONE if answer.ok else ExitStatus.FAILED)


def _read_answer(probe: Probe, status: int, body: str) -> HealthAnswer:
    """What a worker answered; of another server on this port that it is none."""
    try:
        told = json.loads(body)
        known = {name: told[name] for name in HealthAnswer.model_fields if name in told}
        return HealthAnswer(**{**known, "probe": probe, "ok": status == http.HTTPStatus.OK})
    except (ValueError, TypeError):
        said = f"the answer on its port is none of a worker's (HTTP {status}): another program listens there"
        return HealthAnswer(probe=probe, ok=False, wrong={"worker": said})


def _ask(hosts: Sequence[str], port: int, path: str) -> tuple[int, str]:
    """Status and body of the first host that somebody listens on.

    Raises:
        OSError, HTTPException: Nobody does, or there is no answer in time.
    """
    for host in hosts[:-1]:
        # Any other failure is the answer: only where nobody listens is there another address to ask.
        with suppress(ConnectionRefusedError):
            return _ask_host(host, port, path)
    return _ask_host(hosts[-1], port, path)


def _ask_host(host: str, port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
