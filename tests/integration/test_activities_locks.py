"""Activities ``helix.locks.*`` and ``helix.usage.*``: a second attempt gives the first answer."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from helix_temporal._converter import HelixPayloadConverter
from helix_temporal.activities import LockActivities, UsageActivities
from helix_temporal.models.store_calls import AcquireLockInput, LockInfo, RefreshLockInput, ReleaseLockInput
from helix_temporal.models.usage import (
    CustomUsageEntry,
    RecordUsageInput,
    UsageEntriesInput,
    UsageQuery,
    UsageRollupInput,
)
from helix_temporal.stores.memory import MemoryLocks, MemoryUsage
from helix_temporal.testing.contracts._usage_base import one_of_each, some_tokens

R = TypeVar("R")

CONVERTER = HelixPayloadConverter()


@pytest.fixture
def locks() -> LockActivities:
    """Over memory."""
    return LockActivities(MemoryLocks())


@pytest.fixture
def usage() -> UsageActivities:
    """Over memory, with room for a few entries in a result."""
    return UsageActivities(MemoryUsage(), max_payload=2_000)


def typed_environment() -> ActivityEnvironment:
    """Where inputs are decoded as in a worker of ours."""
    environment = ActivityEnvironment()
    environment.payload_converter = CONVERTER
    return environment


async def run(function: Callable[[Any], Awaitable[R]], request: Any, *, run_id: str = "run-1") -> R:
    """One attempt, its input and its result as they travel."""
    environment = typed_environment()
    environment.info = dataclasses.replace(environment.info, workflow_run_id=run_id)
    (payload,) = CONVERTER.to_payloads([request])
    result = await environment.run(function, RawValue(payload))
    (back,) = CONVERTER.from_payloads(CONVERTER.to_payloads([result]), [type(result)])
    found: R = back
    return found


async def run_raw(function: Callable[..., Awaitable[object]], payload: Payload) -> None:
    """One attempt with an input that no model of ours would have written."""
    await typed_environment().run(function, RawValue(payload))


async def acquired(locks: LockActivities, operation_id: str = "op-1", **fields: Any) -> LockInfo:
    """A lease on ``k``."""
    run_id = fields.pop("run_id", "run-1")
    request = AcquireLockInput(key="k", operation_id=operation_id, **fields)
    lock = (await run(locks.acquire, request, run_id=run_id)).lock
    assert lock is not None
    return lock


async def test_a_second_attempt_of_an_acquire_gets_the_same_token(locks: LockActivities) -> None:
    """The first one's answer was lost, its lease was not."""
    first = await acquired(locks)
    again = await acquired(locks)
    assert again.fencing_token == first.fencing_token


async def test_another_operation_of_the_workflow_gets_a_higher_token(locks: LockActivities) -> None:
    """It starts over: what it did before is shut out."""
    first = await acquired(locks)
    assert (await acquired(locks, "op-2")).fencing_token > first.fencing_token


async def test_another_workflow_gets_no_lock(locks: LockActivities) -> None:
    """Though it mints the same operation id."""
    await acquired(locks)
    request = AcquireLockInput(key="k", operation_id="op-1")
    assert (await run(locks.acquire, request, run_id="run-2")).lock is None


async def test_a_lease_is_refreshed_and_given_back(locks: LockActivities) -> None:
    """By its token; a repeat of the release finds nothing to do."""
    lock = await acquired(locks, owner="me", ttl_ms=5_000)
    lease = {"key": "k", "fencing_token": lock.fencing_token}
    assert (await run(locks.refresh, RefreshLockInput(**lease, ttl_ms=9_000))).held
    assert [(await run(locks.release, ReleaseLockInput(**lease))).released for _ in range(2)] == [True, False]
    assert not (await run(locks.refresh, RefreshLockInput(**lease))).held


@pytest.mark.parametrize("ttl_ms", [0, -1, 10**12])
async def test_a_bad_time_is_a_permanent_error(locks: LockActivities, ttl_ms: int) -> None:
    """No attempt will ever do better."""
    with pytest.raises(ApplicationError) as caught:
        await run(locks.acquire, AcquireLockInput(key="k", operation_id="op", ttl_ms=ttl_ms))
    assert (caught.value.type, caught.value.non_retryable) == ("InvalidRequestError", True)


async def test_entries_of_all_kinds_travel(usage: UsageActivities) -> None:
    """Fields that were not set are not written; the kind always is."""
    entries = one_of_each("s")
    recorded = [(await run(usage.record, RecordUsageInput(entry=entry))).recorded for entry in entries]
    assert recorded == [True] * 4
    assert (await run(usage.entries, UsageEntriesInput(session_id="s"))).entries == tuple(entries)


async def test_an_entry_of_defaults_travels(usage: UsageActivities) -> None:
    """The kind is what an entry is told apart by, and it is a default."""
    entry = CustomUsageEntry(id="1", session_id="s", timestamp=1, metric="m", key="k")
    assert (await run(usage.record, RecordUsageInput(entry=entry))).recorded
    page = await run(usage.query, UsageQuery(kinds=("custom",)))
    assert page.items == (entry,)


async def test_a_second_attempt_of_a_record_finds_the_entry(usage: UsageActivities) -> None:
    """It is paid for once."""
    request = RecordUsageInput(entry=some_tokens("s"))
    assert [(await run(usage.record, request)).recorded for _ in range(2)] == [True, False]
    rollup = (await run(usage.rollup, UsageRollupInput(session_id="s"))).rollup
    assert rollup is not None
    assert rollup.tokens.total == 110


async def test_sums_of_nothing_are_none(usage: UsageActivities) -> None:
    """Not zero: nothing was recorded."""
    assert (await run(usage.rollup, UsageRollupInput(session_id="s", include_sub_agents=True))).rollup is None


async def test_a_result_that_is_too_large_is_refused_with_advice(usage: UsageActivities) -> None:
    """Rather than by Temporal, for ever."""
    for number in range(40):
        await run(usage.record, RecordUsageInput(entry=some_tokens("s", number)))
    with pytest.raises(ApplicationError, match="ask for fewer") as caught:
        await run(usage.entries, UsageEntriesInput(session_id="s"))
    assert (caught.value.type, caught.value.non_retryable) == ("TooLargeError", True)
    page = await run(usage.query, UsageQuery(limit=5))
    assert (len(page.items), page.total, page.has_more) == (5, 40, True)


BAD_FIELDS = [
    '"tokens": {"prompt": -5}', '"tokens": {"prompt": 1.5}', '"tokens": {"prompt": 9223372036854775808}',
    '"tokens": {"prompt": "5"}', '"tokens": {"prompt": true}', '"cost_usd": 0.1', '"cost_usd": "1e-400"',
    '"cost_usd": "NaN"', '"cost_usd": -1', '"cost_usd": "1e999"', '"model": ""', '"model": "a\\u0000b"',
    '"model": 7', '"step_count": 2147483648', '"timestamp": 1.0', '"timestamp": -1', '"kind": "token"',
    '"source": {"type": "agent", "name": ""}', '"tokens": {"prompt": 5e18}',
    '"tokens": {"prompt": 5000000000000000000, "completion": 5000000000000000000}',
]  # fmt: skip


@pytest.mark.parametrize("field", BAD_FIELDS)
async def test_a_bad_entry_is_a_permanent_error_and_changes_nothing(
    usage: UsageActivities, field: str
) -> None:
    """Row 44 of the list of bad inputs: no sum is ever poisoned."""
    good = '"kind": "tokens", "id": "1", "session_id": "s", "timestamp": 1, "model": "m"'
    payload = Payload(metadata={"encoding": b"json/plain"}, data=f'{{"entry": {{{good}, {field}}}}}'.encode())
    with pytest.raises(ApplicationError) as caught:
        await run_raw(usage.record, payload)
    assert (caught.value.type, caught.value.non_retryable) == ("InvalidRequestError", True)
    assert (await run(usage.query, UsageQuery())).total == 0
