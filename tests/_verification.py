"""`verify --all` beside sessions that write, end, are forked and deleted, and the work of maintenance.

``python -m tests._verification SECONDS SESSIONS`` runs it on the stores of HELIX_… variables.
"""

import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from helix_temporal.backends import Backends
from helix_temporal.cli.outputs import ThreadVerdict, Verification
from helix_temporal.errors import ConflictError, NotFoundError, StoreUnavailableError
from helix_temporal.models.maintenance import ARCHIVE_PARTS, KeepPartInput
from helix_temporal.settings import Settings
from helix_temporal.stores.protocols.threads import ForkThread
from helix_temporal.stores.threads.keep import keep_part
from helix_temporal.testing.contracts._threads_base import Author, noise

_COMMAND = "from helix_temporal.cli import main; main()"
_PASSING = (ConflictError, NotFoundError, StoreUnavailableError)
"""What others do meanwhile, and a server that is slow on a busy machine."""


@dataclass
class Campaign:
    """What happened: ``alarms`` are threads that were called damaged, and nobody damaged any."""

    alarms: tuple[ThreadVerdict, ...] = ()
    unread: int = 0
    seen: int = 0
    messages: int = 0
    passes: int = 0
    changes: int = 0
    kinds: dict[str, int] = field(default_factory=dict)

    def note(self, kind: str) -> None:
        """Something was changed."""
        self.changes += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def note_pass(self, status: int | None, said: bytes, complaint: str) -> None:
        """The command has ended; with 7 a server was too slow for it, and nothing is known."""
        if status == 7:
            self.unread += 1
            return
        if not said:
            raise AssertionError(f"status {status}: {complaint[-2000:]}")
        found = Verification.model_validate_json(said)
        self.seen, self.passes = self.seen + found.seen, self.passes + 1
        self.messages, self.unread = self.messages + found.messages, self.unread + found.unread
        self.alarms += tuple(each for each in found.threads if each.outcome == "damaged")


async def verify_beside_sessions(variables: Mapping[str, str], *, sessions: int, seconds: float) -> Campaign:
    """Verify all threads again and again while all that changes threads goes on.

    Args:
        variables: ``HELIX_…``, of stores that nobody else uses.
        sessions: How many run side by side.
        seconds: For how long; a pass that has begun then is waited for.
    """
    settings = Settings.from_env(variables)
    campaign, until = Campaign(), time.monotonic() + seconds
    # As processes of their own would have them.
    async with (
        _stores(settings) as live,
        _stores(settings) as kept,
        asyncio.TaskGroup() as group,
    ):
        for number in range(sessions):
            group.create_task(_run_session(live, f"s{number}", until, campaign))
        group.create_task(_sweep(kept, until, campaign))
        group.create_task(_keep(kept, until, campaign))
        group.create_task(_verify(variables, until, campaign))
    return campaign


@asynccontextmanager
async def _stores(settings: Settings) -> AsyncIterator[Backends]:
    backends = Backends(settings)
    try:
        yield backends
    finally:
        await backends.close()


async def _run_session(backends: Backends, name: str, until: float, campaign: Campaign) -> None:
    """A session that is opened again and again, and now and then forked or deleted."""
    chance = random.Random(name)
    for life in itertools.count():
        if time.monotonic() > until:
            return
        author = Author(backends.threads, f"{name}-{life // 4}")
        author = author.later(owner=f"run-{life}", by=life * 1_000_000)
        with suppress(*_PASSING):
            await author.open()
            campaign.note("open")
            for _ in range(chance.randrange(1, 8)):
                await _take_turn(author, chance)
                campaign.note("turn")
            await author.flush(closes=True)
            # Maintenance may have dropped it already.
            await backends.threads.evict(author.thread_id, author.epoch)
            campaign.note("end")
        await _fork_or_delete(backends, author, life, chance, campaign)


async def _take_turn(author: Author, chance: random.Random) -> None:
    prefix = f"{chance.getrandbits(40):x}-"
    count, size = chance.randrange(1, 40), chance.choice((50, 400, 4000))
    await author.append(author.step(*noise(count, size=size, prefix=prefix), answer=None))
    await author.flush()
    await asyncio.sleep(chance.random() / 2)


async def _fork_or_delete(
    backends: Backends, author: Author, life: int, chance: random.Random, campaign: Campaign
) -> None:
    with suppress(*_PASSING):
        if life % 4 == 2:
            copy = f"{author.thread_id}-copy{life}"
            await backends.threads.fork(ForkThread(author.thread_id, copy, author.epoch + 1, "fork"))
            campaign.note("fork")
        if life % 4 == 3 and chance.random() < 0.7:
            await backends.threads.delete(author.thread_id, author.epoch + 1)
            campaign.note("delete")


async def _sweep(backends: Backends, until: float, campaign: Campaign) -> None:
    for evict in itertools.cycle((False, False, True)):
        if time.monotonic() > until:
            return
        with suppress(StoreUnavailableError):
            await backends.sweep(evict=evict)
            campaign.note("sweep")
        await asyncio.sleep(1)


async def _keep(backends: Backends, until: float, campaign: Campaign) -> None:
    assert backends.tiered is not None
    while time.monotonic() < until:
        for part in range(ARCHIVE_PARTS):
            with suppress(StoreUnavailableError):
                await keep_part(backends.tiered.upkeep, KeepPartInput(part=part, abandoned_after=3600))
            if time.monotonic() > until:
                break
        campaign.note("keep")


async def _verify(variables: Mapping[str, str], until: float, campaign: Campaign) -> None:
    """The command, in a process of its own as somebody would run it."""
    while time.monotonic() < until:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _COMMAND, "thread", "verify", "--all", "--json"),
            env={**os.environ, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complaint = await process.communicate()
        campaign.note_pass(process.returncode, said, complaint.decode())


def main() -> int:
    """Run it, and print what happened; 1 if there was a false alarm."""
    seconds, sessions = float(sys.argv[1]), int(sys.argv[2])
    variables = {name: value for name, value in os.environ.items() if name.startswith("HELIX_")}
    found = asyncio.run(verify_beside_sessions(variables, sessions=sessions, seconds=seconds))
    sys.stdout.write(
        f"{found.passes} passes saw {found.seen:,} threads beside {found.changes:,} changes {found.kinds}; "
        f"{len(found.alarms)} false alarms, {found.unread} not read\n"
    )
    for each in found.alarms:
        sys.stdout.write(f"{each}\n")
    return 1 if found.alarms else 0


if __name__ == "__main__":
    sys.exit(main())
