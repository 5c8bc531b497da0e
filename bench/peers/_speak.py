"""How a peer's process is spoken to: a JSON object a line, both ways.  Standard library only.

Each of these programs runs in an environment of its own, with the peer's packages and nothing of ours.
"""

import asyncio
import importlib.metadata
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

WRITERS = 8
TRIES = 200


@dataclass(frozen=True)
class Turn:
    """Two messages with ids of their own, and what goes into the state."""

    number: int
    name: str
    user: str
    answer: str
    note: str


class RefusedError(Exception):
    """The store says that somebody else was faster; the documented answer is to look again."""


class Writer(Protocol):
    """One process's way to one session, with connections of its own."""

    async def write(self, turn: Turn) -> None:
        """Store a turn, or what of it is not stored yet after `RefusedError`."""

    async def hydrate(self) -> list[str]:
        """The texts of all messages, in order, with the state."""

    async def refresh(self) -> None:
        """Look again, after `RefusedError`."""

    async def close(self) -> None:
        """Give back connections."""


Opener = Callable[[str, str], Awaitable[Writer]]
"""From a DSN and a session's id to a writer; makes tables and the session where there are none."""


async def _turns(opener: Opener, asked: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each turn of a session, one after the other."""
    writer = await opener(asked["dsn"], asked["session"])
    try:
        seconds = []
        for turn in _read(asked["turns"]):
            started = time.perf_counter()
            await writer.write(turn)
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds}
    finally:
        await writer.close()


async def _hydrate(opener: Opener, asked: dict[str, Any]) -> dict[str, Any]:
    """Seconds that it takes to have all messages of a session and its state."""
    writer = await opener(asked["dsn"], asked["session"])
    try:
        await writer.hydrate()
        seconds, found = [], 0
        for _ in range(asked["times"]):
            started = time.perf_counter()
            found = len(await writer.hydrate())
            seconds.append(time.perf_counter() - started)
        return {"seconds": seconds, "messages": found}
    finally:
        await writer.close()


async def _writers(opener: Opener, asked: dict[str, Any]) -> dict[str, Any]:
    """Several writers of one session: what was acknowledged, and what is there."""
    turns = _read(asked["turns"])
    writers = [await opener(asked["dsn"], asked["session"]) for _ in range(WRITERS)]
    try:
        started = time.perf_counter()
        done = await asyncio.gather(*(_all(writer, turns[at::WRITERS]) for at, writer in enumerate(writers)))
        seconds = time.perf_counter() - started
        acknowledged = [text for texts, _ in done for text in texts]
        stored = await writers[0].hydrate()
    finally:
        await asyncio.gather(*(writer.close() for writer in writers))
    return {
        "seconds": seconds,
        "acknowledged": len(acknowledged),
        "refused": sum(refused for _, refused in done),
        "lost": len(set(acknowledged) - set(stored)),
        "doubled": len(stored) - len(set(stored)),
    }


async def _all(writer: Writer, turns: Sequence[Turn]) -> tuple[list[str], int]:
    acknowledged: list[str] = []
    refused = 0
    for turn in turns:
        for _ in range(TRIES):
            try:
                await writer.write(turn)
            except RefusedError:
                refused += 1
                await writer.refresh()
                continue
            acknowledged += (turn.user, turn.answer)
            break
    return acknowledged, refused


async def _repeat(opener: Opener, asked: dict[str, Any]) -> dict[str, Any]:
    """Each turn twice: the second time by a writer that had looked before the first one wrote, as a retry
    with the same input has; whatever it is told, it is counted.
    """
    answers: list[str] = []
    for turn in _read(asked["turns"]):
        first, second = [await opener(asked["dsn"], asked["session"]) for _ in range(2)]
        try:
            await first.write(turn)
            answers.append(await _again(second, turn))
        finally:
            await asyncio.gather(first.close(), second.close())
    writer = await opener(asked["dsn"], asked["session"])
    try:
        stored = await writer.hydrate()
    finally:
        await writer.close()
    return {"doubled": len(stored) - len(set(stored)), "answers": sorted(set(answers))}


async def _again(writer: Writer, turn: Turn) -> str:
    try:
        try:
            await writer.write(turn)
        except RefusedError:
            await writer.refresh()
            await writer.write(turn)
    except Exception as error:  # noqa: BLE001 (each has errors of its own)
        return type(error).__name__
    return "success"


def _read(turns: Sequence[Sequence[Any]]) -> list[Turn]:
    return [Turn(*turn) for turn in turns]


_DO = {"turns": _turns, "hydrate": _hydrate, "writers": _writers, "repeat": _repeat}


def serve(opener: Opener, *packages: str) -> None:
    """Tell versions, then answer until standard input ends."""
    asyncio.run(_serve(opener, packages))


async def _serve(opener: Opener, packages: Sequence[str]) -> None:
    _say({"versions": {name: importlib.metadata.version(name) for name in packages}})
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            _say(await _DO[asked["do"]](opener, asked))
        except Exception as error:  # noqa: BLE001 (told to whoever asked)
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            _say({"error": type(error).__name__})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
