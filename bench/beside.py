"""Ours beside other packages on the same PostgreSQL: a turn, a long session, eight writers, a repeat."""

import contextlib
import statistics
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from bench._lab import Lab, in_turns
from bench._peers import OURS, OURS_APPENDING, PEERS, Peer, PeerMissingError, running
from bench._report import Row, compared, told

_HYDRATES: Final = 10
_REPEATS: Final = 5
_WRITERS: Final = 8


async def beside(lab: Lab) -> list[Row]:
    """Each in a process of its own, with a database of its own on the same server; in turns."""
    missing: list[Row] = []
    async with contextlib.AsyncExitStack() as stack:
        ours = await stack.enter_async_context(running(lab, OURS))
        appending = await stack.enter_async_context(running(lab, OURS_APPENDING))
        peers: list[Peer] = []
        for program in PEERS:
            try:
                peers.append(await stack.enter_async_context(running(lab, program)))
            except PeerMissingError as error:
                missing.append(Row(f"beside: {program.name}", None, "", note=str(error)))
        lab.versions |= {peer.name: peer.versions for peer in (ours, *peers)}
        rows = [
            *await _timed(lab, "turn of 2 × 1 KB with state", ours, peers, _turns),
            *await _timed(
                lab, f"hydrate of {2 * lab.sizes.beside_hydrated} messages", ours, peers, _hydrates(lab)
            ),
            *await _writers(lab, (ours, appending), peers),
            *await _repeats(lab, ours, peers),
        ]
    return [*rows, *missing]


async def _timed(
    lab: Lab,
    what: str,
    ours: Peer,
    peers: Sequence[Peer],
    measure: Callable[[Lab, Peer], Awaitable[float]],
) -> list[Row]:
    """Ours, and each other one with ours as its floor."""
    contestants = {peer.name: _bound(measure, lab, peer) for peer in (ours, *peers)}
    found = await in_turns(lab, what, contestants)
    rows = [told(f"{what}: {ours.name}", "ms", found[ours.name])]
    for peer in peers:
        note = f"floor: {ours.name}"
        if "turn" in what:
            note = f"{_version(peer)}; {note}{'; it has no state' if 'openai' in peer.name else ''}"
        rows.append(compared(f"{what}: {peer.name}", "ms", found[peer.name], found[ours.name], note=note))
    return rows


def _bound(
    measure: Callable[[Lab, Peer], Awaitable[float]], lab: Lab, peer: Peer
) -> Callable[[], Awaitable[float]]:
    return lambda: measure(lab, peer)


async def _turns(lab: Lab, peer: Peer) -> float:
    """Milliseconds of a turn, in a session that begins empty."""
    turns = _make(lab, lab.sizes.beside_turns)
    found = await peer.ask("turns", _session(), turns=turns)
    return _median(found)


def _hydrates(lab: Lab) -> Callable[[Lab, Peer], Awaitable[float]]:
    sessions: dict[str, str] = {}
    turns = _make(lab, lab.sizes.beside_hydrated)

    async def measure(_: Lab, peer: Peer) -> float:
        """Milliseconds until state and all messages are there."""
        if peer.name not in sessions:
            sessions[peer.name] = _session()
            await peer.ask("turns", sessions[peer.name], turns=turns)
        found = await peer.ask("hydrate", sessions[peer.name], times=_HYDRATES)
        assert found["messages"] == 2 * len(turns), (peer.name, found)
        return _median(found)

    return measure


def _median(found: dict[str, Any]) -> float:
    seconds: list[float] = found["seconds"]
    return 1e3 * statistics.median(seconds)


async def _writers(lab: Lab, ours: Sequence[Peer], peers: Sequence[Peer]) -> list[Row]:
    """What several writers of one session lose; each has its own connections, and looks again if refused.

    Ours twice: at an exact head with state, and, as peers without state do it, wherever the session ends.
    """
    rows: list[Row] = []
    for peer in (*ours, *peers):
        lab.say(f"{_WRITERS} writers on one session: {peer.name}")
        turns = _make(lab, _WRITERS * lab.sizes.beside_writes)
        found = await peer.ask("writers", _session(), turns=turns)
        given_up = 2 * len(turns) - found["acknowledged"]
        note = f"{2 * len(turns)} messages; {found['refused']} refusals, {given_up} messages given up"
        if peer.name == OURS_APPENDING.name:
            note += "; no state, nobody fenced, ids looked for among the newest"
        what, none = f"{_WRITERS} writers on one session: {peer.name}", 0 if peer in ours else None
        rows += [
            told(f"{what}: lost", "messages", [found["lost"]], at_most=none, note=note),
            told(f"{what}: doubled", "messages", [found["doubled"]], at_most=none),
            told(f"{what}: stored", "messages/s", [found["acknowledged"] / found["seconds"]]),
        ]
    return rows


async def _repeats(lab: Lab, ours: Peer, peers: Sequence[Peer]) -> list[Row]:
    """What a turn leaves that is written again, with the same ids, because its answer was lost."""
    rows = []
    for peer in (ours, *peers):
        found = await peer.ask("repeat", _session(), turns=_make(lab, _REPEATS))
        rows.append(
            told(
                f"{_REPEATS} turns written twice: {peer.name}: doubled",
                "messages",
                [found["doubled"]],
                at_most=0 if peer is ours else None,
                note=f"of {2 * _REPEATS} messages; the repeat gets {', '.join(found['answers'])}",
            )
        )
    return rows


def _make(lab: Lab, count: int) -> list[list[Any]]:
    words = lab.words
    return [
        [number, f"turn-{number}", words.text(1024), words.text(1024), words.text(1024)]
        for number in range(count)
    ]


def _session() -> str:
    return f"bench-{uuid.uuid4().hex}"


def _version(peer: Peer) -> str:
    return ", ".join(f"{name} {version}" for name, version in peer.versions.items())
