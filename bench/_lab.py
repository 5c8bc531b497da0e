"""What every benchmark gets: servers, sizes, text, and a way to say how far it is."""

import gc
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from helix_temporal.models.messages import Message, Role, encode_message
from helix_temporal.models.stored_messages import StoredMessage
from helix_temporal.settings import Settings
from helix_temporal.stores.postgres import PostgresBackend

SEED: Final = 20_260_401
_LETTERS: Final = "etaoinshrdlucmfwypvbgkjqxz"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; the smaller ones show that it works, and about how fast."""

    rounds: int = 5
    appends: int = 2_000
    hydrated: int = 10_000
    hydrates: int = 3
    flushed: tuple[int, ...] = (100, 10_000, 100_000)
    flushes: int = 40
    long_run: int = 1_000
    tails: tuple[int, int] = (200, 100_000)
    tail_hydrates: int = 15
    read: int = 20_000
    stored: int = 10_000
    history_turns: tuple[int, int] = (10, 1_000)
    sessions: tuple[int, ...] = (1, 32)
    turns: tuple[int, ...] = (50, 16)
    long_turns: int = 3_000
    tool_bytes: int = 1_000_000
    starts: int = 5
    commits: int = 300
    listed: int = 100_000
    list_calls: int = 50
    listed_sessions: int = 1_000_000
    long_conversation: int = 100_000
    written: int = 25
    beside_turns: int = 100
    beside_hydrated: int = 50
    beside_writes: int = 10
    chunks: int = 500
    readers: int = 1_000
    read_chunks: int = 40
    chats: tuple[int, ...] = (1, 32, 128)
    chat_turns: int = 50
    chat_rounds: tuple[int, ...] = (3, 1, 1)
    chat_long: int = 500
    chat_full: int = 650
    threads: tuple[int, ...] = (1_000, 10_000, 100_000)
    model_calls: int = 500
    described: int = 400
    cost_turns: int = 200
    model_seconds: float = 12.0


FULL: Final = Sizes()
QUICK: Final = Sizes(
    rounds=3,
    appends=500,
    hydrates=1,
    flushes=10,
    long_run=300,
    tail_hydrates=5,
    stored=2_000,
    history_turns=(10, 100),
    turns=(50, 8),
    long_turns=100,
    starts=3,
    commits=100,
    listed=20_000,
    list_calls=20,
    listed_sessions=20_000,
    long_conversation=4_000,
    written=10,
    beside_turns=30,
    beside_writes=5,
    chats=(1, 32),
    chat_rounds=(1, 1),
    chat_long=120,
    threads=(1_000, 10_000),
    described=200,
    model_calls=60,
    cost_turns=20,
)
TINY: Final = Sizes(
    rounds=2,
    appends=20,
    hydrated=300,
    hydrates=1,
    flushed=(20, 200, 1_000),
    flushes=2,
    long_run=20,
    tails=(20, 900),
    tail_hydrates=2,
    read=300,
    stored=100,
    history_turns=(3, 5),
    sessions=(1, 2),
    turns=(3, 2),
    long_turns=3,
    tool_bytes=20_000,
    starts=1,
    commits=5,
    listed=2_000,
    list_calls=3,
    listed_sessions=2_000,
    long_conversation=400,
    written=3,
    beside_turns=3,
    beside_hydrated=4,
    beside_writes=2,
    chunks=10,
    readers=20,
    read_chunks=3,
    chats=(1, 2),
    chat_turns=4,
    chat_rounds=(1, 1),
    chat_long=6,
    threads=(20, 200),
    model_calls=5,
    described=5,
    cost_turns=2,
    model_seconds=0.1,
)


class Words:
    """Random words from a fixed seed: text that compresses as text does, not as a repeated line."""

    def __init__(self, seed: int = SEED) -> None:
        self._random = random.Random(seed)
        self._vocabulary = [
            "".join(self._random.choices(_LETTERS, k=self._random.randint(2, 10))) for _ in range(8192)
        ]
        self._thread: list[StoredMessage] = []

    def text(self, size: int) -> str:
        """Text of exactly ``size`` characters, all of them ASCII."""
        words = self._random.choices(self._vocabulary, k=size // 4 + 1)
        return " ".join(words)[:size]

    def record(self, role: Role = "user", size: int = 1024) -> StoredMessage:
        """A message of so much text, as the stores keep it."""
        return encode_message(Message(id=uuid.uuid4().hex, role=role, content=self.text(size)))

    def steps(self, count: int, size: int = 1024) -> list[tuple[StoredMessage, StoredMessage]]:
        """Steps of two messages."""
        return [(self.record("user", size), self.record("assistant", size)) for _ in range(count)]

    def thread(self, count: int) -> tuple[StoredMessage, ...]:
        """So many messages of 1 KB, users' and answers in turn; a longer thread begins as a shorter one."""
        for at in range(len(self._thread), count):
            self._thread.append(self.record("assistant" if at % 2 else "user"))
        return tuple(self._thread[:count])


@dataclass(slots=True)
class Lab:
    """Where benchmarks run.

    Attributes:
        settings: Addresses of the servers; take `own` for names of one's own on them.
        processes: Process ids of those servers that are ours, for their processor time.
        peers: Whether other packages run; their environments are made where they are missing.
        versions: Of other packages, noted by the benchmarks that run them.
        say: Told how far it is.
    """

    settings: Settings
    processes: Mapping[str, int] = field(default_factory=dict)
    sizes: Sizes = FULL
    say: Callable[[str], None] = lambda _: None
    words: Words = field(default_factory=Words)
    peers: bool = True
    versions: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def postgres(self) -> str:
        """The PostgreSQL server.

        Raises:
            RuntimeError: There is none.
        """
        if self.settings.postgres_dsn is None:
            raise RuntimeError("this benchmark needs PostgreSQL, and settings name none")
        return self.settings.postgres_dsn

    def own(self, **changes: Any) -> Settings:
        """Settings with prefixes and a task queue that nobody else has.

        What a session must know is with its thread, and nothing is in PostgreSQL; see `own_with_state`.
        """
        name = f"bench-{uuid.uuid4().hex[:8]}"
        names = {"redis_prefix": f"{name}:", "s3_prefix": name, "task_queue": name}
        slices = {"session_store": "none", "postgres_dsn": None}
        return self.settings.model_copy(update={**names, **slices, **changes})

    async def own_with_state(self, **changes: Any) -> Settings:
        """As `own`, with state in PostgreSQL: tables of its own, empty."""
        prefix = own_tables()
        await migrated(self.postgres, prefix)
        places = {"session_store": "postgres", "postgres_dsn": self.postgres, "table_prefix": prefix}
        return self.own(**places, **changes)


def own_tables() -> str:
    """A prefix of tables that nobody else has."""
    return f"b{uuid.uuid4().hex[:8]}_"


async def migrated(dsn: str, prefix: str) -> None:
    """Make the tables."""
    backend = PostgresBackend(dsn, table_prefix=prefix)
    try:
        await backend.migrations.run()
    finally:
        await backend.close()


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds that it takes."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def in_turns(
    lab: Lab, what: str, contestants: Mapping[str, Callable[[], Awaitable[float]]]
) -> dict[str, list[float]]:
    """One warm-up of each, then rounds in which each has its turn, A/B/A/B."""
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(lab.sizes.rounds + 1):
        lab.say(f"{what}: {'warm-up' if number == 0 else f'round {number} of {lab.sizes.rounds}'}")
        for name, contestant in contestants.items():
            gc.collect()
            value = await contestant()
            if number:
                found[name].append(value)
    return found


def environment(settings: Settings) -> dict[str, str]:
    """The variables that tell another process of these settings."""
    secrets = {"s3_access_key": settings.s3_access_key, "s3_secret_key": settings.s3_secret_key}
    plain = (
        *("temporal_address", "temporal_namespace", "task_queue", "redis_url", "redis_prefix"),
        *("s3_endpoint", "s3_bucket", "s3_prefix", "s3_region", "flush"),
        *("session_store", "postgres_dsn", "table_prefix"),
    )
    found = {f"HELIX_{name.upper()}": str(getattr(settings, name) or "") for name in plain}
    found |= {f"HELIX_{name.upper()}": key.get_secret_value() for name, key in secrets.items() if key}
    usual = {name: value for name, value in os.environ.items() if not name.startswith("HELIX_")}
    return {**usual, **found, "HELIX_ALLOW_PLAINTEXT": "true"}


def per(seconds: Sequence[float], scale: float) -> list[float]:
    """In another unit."""
    return [each * scale for each in seconds]
