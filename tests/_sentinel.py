"""A primary, a replica and three sentinels: the servers of one Redis that survives its primary."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from helix_temporal.devstack import Valkey, programs
from helix_temporal.devstack.processes import Program
from helix_temporal.devstack.programs import free_port
from helix_temporal.devstack.servers import LocalServer, ServerPlace, open_place
from helix_temporal.devstack.valkey import SOURCE, redis_answers, send_command, start_local_server

SERVICE = "helix"
_SENTINELS = 3
_AT_ONCE = ("--repl-diskless-sync-delay", "0")
_SECONDS = 120.0


@dataclass
class Watched:
    """Two servers, one of them the primary, and those that watch them."""

    servers: list[Valkey]
    ports: list[int]

    @property
    def url(self) -> str:
        """The address that stays."""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def primary(self) -> Valkey:
        """Whom the first sentinel names now."""
        answer = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return next(each for each in self.servers if each.port == int(str(answer[1])))

    def ask(self, *words: str) -> Any:
        """Send one command to the first sentinel."""
        return send_command("127.0.0.1", self.ports[0], *words)

    def wait_for_another(self, than: Valkey) -> None:
        """Wait until a failover is through."""
        end = time.monotonic() + _SECONDS
        while self.primary is than:
            assert time.monotonic() < end, "no failover"
            time.sleep(0.05)

    def wait_until_all_name_another(self, than: Valkey) -> None:
        """Wait until whoever asks any sentinel, in whatever way, is told another primary."""
        end = time.monotonic() + _SECONDS
        while any(_told(port)["port"] == str(than.port) for port in self.ports):
            assert time.monotonic() < end, "no failover"
            time.sleep(0.05)

    def wait_until_level(self) -> None:
        """Wait until the replica has heard of all that the primary has.

        `WAIT` can't tell: it counts who has heard of the writes of the connection that asks.
        """
        wanted, _ = self._offsets()
        end = time.monotonic() + _SECONDS
        while self._offsets()[1] < wanted:
            assert time.monotonic() < end, "the replica does not catch up"
            time.sleep(0.05)

    def _offsets(self) -> tuple[int, int]:
        """How much the primary has written, and the replica has heard of."""
        facts = _pairs(str(self.primary.ask("INFO", "replication")).splitlines(), ":")
        replica = _pairs(facts.get("slave0", "").split(","), "=")
        heard = int(replica["offset"]) if replica.get("state") == "online" else -1
        return int(facts["master_repl_offset"]), heard


@contextmanager
def watched() -> Iterator[Watched]:
    """Started, and stopped at the end.

    Raises:
        ServerMissingError: There is no program for it.
    """
    with open_place(None, None) as place:
        primary = start_local_server(place, name="primary", arguments=_AT_ONCE)
        follows = ("--replicaof", f"127.0.0.1 {primary.port}", *_AT_ONCE)
        replica = start_local_server(place, name="replica", arguments=follows)
        ports = [_start_sentinel(place, number, primary.port) for number in range(_SENTINELS)]
        found = Watched([primary, replica], ports)
        _wait_until_all_know(found)
        yield found


def _start_sentinel(place: ServerPlace, number: int, primary: int) -> int:
    name, port = f"sentinel-{number}", free_port()
    directory = place.make_directory(name)
    settings = directory / "sentinel.conf"
    settings.write_text(
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n"
        f"sentinel down-after-milliseconds {SERVICE} 2000\n"
        f"sentinel failover-timeout {SERVICE} 3000\n"
    )
    program = Program(
        name=name,
        argv=[
            str(programs.find_program(SOURCE, place.environment)),
            str(settings),
            "--sentinel",
            *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(directory)),
        ],
        directory=directory,
        close_signal=place.close_signal,
    )
    LocalServer(place.supervisor, program, partial(redis_answers, "127.0.0.1", port)).start()
    return port


def _wait_until_all_know(found: Watched) -> None:
    end = time.monotonic() + _SECONDS
    while not all(map(_knows_all, found.ports)):
        assert time.monotonic() < end, "the sentinels do not find each other"
        time.sleep(0.05)


def _knows_all(port: int) -> bool:
    facts = _told(port)
    return (facts["num-other-sentinels"], facts["num-slaves"]) == (str(_SENTINELS - 1), "1")


def _told(port: int) -> dict[str, str]:
    """What a sentinel says of the primary, as the driver asks it."""
    answer = send_command("127.0.0.1", port, "SENTINEL", "MASTER", SERVICE)
    return dict(zip(map(str, answer[::2]), map(str, answer[1::2]), strict=True))


def _pairs(lines: Iterable[str], separator: str) -> dict[str, str]:
    found = [line.partition(separator) for line in lines]
    return {name: value for name, _, value in found}
