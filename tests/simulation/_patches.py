"""What is replaced in the code under test: chance, and sizes so small that everything happens soon."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from helix_temporal import _retries
from helix_temporal.activities import kept_answers, payloads, sessions, steps
from helix_temporal.coldtier import archive, opening, plan, store
from helix_temporal.stores import record_packs
from tests.simulation import _worker

SIZES: dict[Any, dict[str, int]] = {
    plan: {
        "INLINE_MAX": 600,
        "TAIL_MESSAGES": 8,
        "TAIL_SEGMENT_MESSAGES": 8,
        "BULK_SEGMENT_RAW": 3000,
        "SMALL_RAW": 250,
        "FAN_OUT": 2,
        "MAX_MERGED": 4,
        "MIN_GROWTH": 1,
        "DIRECT_MAX": 3,
        "DIRECT_KEPT": 2,
    },
    steps: {"DEDUP_WINDOW": 24},
    opening: {"TAIL_MESSAGES": 8, "TAIL_BYTES": 2500},
    archive: {"OFFLOAD_BYTES": 1200},
    store: {"DIRECT_MAX": 3},
}


@contextmanager
def simulated(chance: random.Random, clock: Callable[[], float], *, keeps_answers: bool) -> Iterator[None]:
    """The code under test draws from this seed alone, has this clock, and its limits are small.

    Args:
        chance: The seed's.
        clock: The seed's.
        keeps_answers: Steps wait for a store that is away, as in production.  Otherwise it is away for longer
            than they wait: the attempt fails, and the next one asks the model again.
    """
    token = SimpleNamespace(token_hex=lambda size: chance.randbytes(size).hex())
    with ExitStack() as stack:
        for module, sizes in SIZES.items():
            for name, value in sizes.items():
                stack.enter_context(patch.object(module, name, value))
        if chance.random() < 0.5:
            # Hardly anything is merged: then the index has its turn.
            stack.enter_context(patch.object(plan, "MIN_GROWTH", 3))
            stack.enter_context(patch.object(plan, "DIRECT_KEPT", 1))
        state_max = chance.choice((20, 256))
        stack.enter_context(patch.object(archive, "SLICE_INLINE_MAX", state_max))
        for module in (archive, record_packs):
            stack.enter_context(patch.object(module, "secrets", token))
        stack.enter_context(patch.object(_retries, "random", chance))
        names = count()
        unique = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(names):032x}"))
        stack.enter_context(patch.object(archive, "uuid", unique))
        if not keeps_answers:
            stack.enter_context(patch.object(kept_answers, "STORE_AWAY_PAUSES", ()))
        numbers = iter(range(1, 1_000_000))
        stack.enter_context(patch.object(steps, "new_id", lambda: f"a{next(numbers)}"))
        for module in _modules_with("wall_clock_ms"):
            stack.enter_context(patch.object(module, "wall_clock_ms", lambda: int(clock() * 1000)))
        stack.enter_context(patch.object(steps, "scheduled_ms", lambda: _worker.scheduled_epoch() // 1000))
        for module in (steps, payloads):
            stack.enter_context(patch.object(module, "current_attempt", _worker.current_attempt))
        for module in (sessions, steps):
            stack.enter_context(patch.object(module, "workflow_run", _worker.workflow_run))
        stack.enter_context(patch.object(sessions, "scheduled_epoch", _worker.scheduled_epoch))
        stack.enter_context(patch.object(sessions, "heartbeat_with_progress", _worker.beating))
        yield


def _modules_with(name: str) -> list[ModuleType]:
    """Every module of the code under test that has the name: one that was forgotten would not replay."""
    return [
        each
        for path, each in sorted(sys.modules.items())
        if path.startswith("helix_temporal") and name in vars(each)
    ]
