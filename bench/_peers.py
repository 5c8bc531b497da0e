"""Other packages, each in an environment and a process of its own, and ours in another process."""

import asyncio
import contextlib
import hashlib
import json
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg

from bench._lab import Lab
from bench._workers import ROOT

_SCRIPTS: Final = Path(__file__).parent / "peers"
_ENVIRONMENTS: Final = ROOT / "build" / "peers"
_LONGEST_LINE: Final = 64 * 2**20


class PeerMissingError(Exception):
    """A peer can't be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """A program of `bench.peers`.

    Attributes:
        environment: Whose packages it needs, as in ``peers/<environment>.txt``; None for our own.
    """

    name: str
    script: str
    environment: str | None = None
    arguments: tuple[str, ...] = ()


OURS: Final = PeerProgram("helix_temporal", "ours.py")
OURS_APPENDING: Final = PeerProgram("helix_temporal, append_messages", "ours.py", None, ("append",))
PEERS: Final = (
    PeerProgram("openai-agents SQLAlchemySession", "openai_agents.py", "openai-agents"),
    PeerProgram("LangGraph AsyncPostgresSaver", "langgraph_saver.py", "langgraph"),
    PeerProgram("LangGraph, DeltaChannel", "langgraph_saver.py", "langgraph", ("delta",)),
    PeerProgram("ADK DatabaseSessionService", "google_adk.py", "google-adk"),
)


class Peer:
    """A running program, with a database of its own."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, dsn: str) -> None:
        self.name, self._process, self._dsn = name, process, dsn
        self.versions: dict[str, str] = {}

    async def ask(self, do: str, session: str, **more: Any) -> dict[str, Any]:
        """Have it do something.

        Raises:
            RuntimeError: It failed; what it wrote is on standard error.
        """
        assert self._process.stdin is not None
        line = json.dumps({"do": do, "dsn": self._dsn, "session": session, **more})
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()
        return await self.read()

    async def read(self) -> dict[str, Any]:
        """Its next answer."""
        assert self._process.stdout is not None
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} ended")
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            raise RuntimeError(f"{self.name}: {found['error']}")
        return found


@contextlib.asynccontextmanager
async def running(lab: Lab, program: PeerProgram) -> AsyncIterator[Peer]:
    """The program, for as long as the block lasts.

    Raises:
        PeerMissingError: Its packages can't be had, or it does not start with them.
    """
    if program.environment is None:
        python = sys.executable
    else:
        python = await interpreter(lab, program.environment)
    async with _database(lab.postgres) as dsn:
        process = await asyncio.create_subprocess_exec(
            *(python, str(_SCRIPTS / program.script), *program.arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        assert process.stdin is not None
        try:
            peer = Peer(program.name, process, dsn)
            try:
                peer.versions = (await peer.read())["versions"]
            except RuntimeError as error:
                raise PeerMissingError("its program does not start") from error
            yield peer
        finally:
            process.stdin.close()
            try:
                async with asyncio.timeout(20):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@contextlib.asynccontextmanager
async def _database(dsn: str) -> AsyncIterator[str]:
    name = f"bench_{uuid.uuid4().hex[:12]}"
    await _execute(dsn, f"CREATE DATABASE {name}")
    try:
        yield f"{dsn.rpartition('/')[0]}/{name}"
    finally:
        await _execute(dsn, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(dsn: str, query: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(query)
    finally:
        await connection.close()


async def interpreter(lab: Lab, environment: str) -> str:
    """The interpreter of a peer's environment, which is made if it is not there or of other versions.

    Raises:
        PeerMissingError: Its packages can't be had, or peers are left out.
    """
    if not lab.peers:
        raise PeerMissingError("left out")
    packages, place = _SCRIPTS / f"{environment}.txt", _ENVIRONMENTS / environment
    python, stamp = place / "bin" / "python", place / ".installed"
    wanted = hashlib.sha256(packages.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return str(python)
    lab.say(f"installing {environment} into {place.relative_to(ROOT)}")
    place.parent.mkdir(parents=True, exist_ok=True)
    await _run("venv", "--clear", str(place), python=sys.executable)
    await _run(
        *("pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "-r", str(packages)),
        python=str(python),
    )
    stamp.write_text(wanted, "utf-8")
    return str(python)


async def _run(module: str, *arguments: str, python: str) -> None:
    process = await asyncio.create_subprocess_exec(python, "-m", module, *arguments)
    if await process.wait():
        raise PeerMissingError(f"can't be installed: {module} failed, see above")
