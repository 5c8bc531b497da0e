"""Faults on purpose: stores that fail as real ones do, when a test says so."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from helix_temporal.blobs import Blob, BlobInfo, BlobStore, ConditionFailedError
from helix_temporal.errors import ArchiveAccessError, HelixError, StoreUnavailableError

T = TypeVar("T")


class BlobFault(StrEnum):
    """What can go wrong with one call of a blob store."""

    ERROR_BEFORE = "error before"
    """Fails as unavailable; nothing happened."""

    THROTTLED = "throttled"
    """Fails as unavailable after the server said to slow down; nothing happened."""

    NO_ACCESS = "no access"
    """Fails for good; nothing happened."""

    ANSWER_LOST = "answer lost"
    """Takes effect, then fails as unavailable."""

    FALSE_REFUSAL = "false refusal"
    """Takes effect, then fails as if the condition had not held: 412 to its own success."""

    LATE = "late"
    """Fails as unavailable now; takes effect (or is refused) when `FaultyBlobs.release` is called."""

    DELAYED = "delayed"
    """Waits for `FaultyBlobs.release`, then goes on as if nothing had been."""


@dataclass(frozen=True, slots=True)
class BlobCall:
    """One call of a store: what a plan decides by, and what `FaultyBlobs.calls` records.

    Attributes:
        number: Counts all calls of this store from 0.
        method: The protocol's method name.
        key: The key, a copy's source, or a listing's prefix.
        bytes_up: Size of the body sent.
        condition: Whether a put had a condition.
        bytes_down: Size of the body received.
        fault: What was injected.
        outcome: ``ok``, the name of the error's class, or ``pending``.
    """

    number: int
    method: str
    key: str
    bytes_up: int = 0
    condition: bool = False
    bytes_down: int = 0
    fault: BlobFault | None = None
    outcome: str = "pending"


BlobPlan = Callable[[BlobCall], BlobFault | None]
"""Decides for each call, before it is made, what goes wrong with it; None is nothing."""


@dataclass(slots=True)
class _Scripted:
    fault: BlobFault
    method: str | None
    key_has: str
    skip: int
    times: int

    def takes(self, call: BlobCall) -> bool:
        if self.method not in (None, call.method) or self.key_has not in call.key or not self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class FaultyBlobs:
    """A blob store around another one that fails by plan and records every call.

    What ``fail`` has scripted comes first, then ``plan`` is asked.  Without either it only records.
    """

    def __init__(self, inner: BlobStore, plan: BlobPlan | None = None) -> None:
        self.inner = inner
        self.plan = plan
        self.late_outcomes: list[str] = []
        self._calls: dict[int, BlobCall] = {}
        self._numbers = itertools.count()
        self._script: list[_Scripted] = []
        self._held: list[Callable[[], Awaitable[None]]] = []

    def fail(
        self, fault: BlobFault, *, method: str | None = None, key_has: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Let the next ``times`` calls that fit go wrong, after ``skip`` that fit have passed."""
        self._script.append(_Scripted(fault, method, key_has, skip, times))

    async def release(self) -> int:
        """Let what is held go on, in order; returns how many.

        Late calls have taken effect (or not: ``late_outcomes``) when this returns; delayed ones go on
        in their own tasks.
        """
        held, self._held = self._held, []
        for go_on in held:
            await go_on()
        return len(held)

    @property
    def calls(self) -> Sequence[BlobCall]:
        """All calls since the last ``forget``, in the order in which they were made."""
        return tuple(self._calls.values())

    def count(self, method: str, *, outcome: str | None = None) -> int:
        """How many calls of a method there were, with that outcome or any."""
        return sum(call.method == method and outcome in (None, call.outcome) for call in self.calls)

    @property
    def counts(self) -> Counter[str]:
        """Calls by method."""
        return Counter(call.method for call in self.calls)

    @property
    def bytes_up(self) -> int:
        """Bytes of all bodies sent, those of refused and failed calls included."""
        return sum(call.bytes_up for call in self.calls)

    @property
    def bytes_down(self) -> int:
        """Bytes of all bodies received."""
        return sum(call.bytes_down for call in self.calls)

    def forget(self) -> None:
        """Start counting anew; what is scripted or held stays."""
        self._calls.clear()

    async def get(self, key: str) -> Blob | None:
        """As the inner store, with faults."""
        return await self._call("get", key, lambda: self.inner.get(key), size=_blob_size)

    async def put(self, key: str, data: bytes, *, create: bool = False, if_match: str | None = None) -> str:
        """As the inner store, with faults."""
        return await self._call(
            "put",
            key,
            lambda: self.inner.put(key, data, create=create, if_match=if_match),
            bytes_up=len(data),
            condition=create or if_match is not None,
        )

    async def copy(self, source: str, target: str) -> None:
        """As the inner store, with faults."""
        await self._call("copy", source, lambda: self.inner.copy(source, target))

    async def list(self, prefix: str) -> AsyncIterator[BlobInfo]:
        """As the inner store, with faults before the first entry."""

        async def all_entries() -> tuple[BlobInfo, ...]:
            return tuple([info async for info in self.inner.list(prefix)])

        for info in await self._call("list", prefix, all_entries):
            yield info

    async def delete(self, key: str) -> None:
        """As the inner store, with faults."""
        await self._call("delete", key, lambda: self.inner.delete(key))

    async def probe(self, prefix: str) -> None:
        """As the inner store, with faults before it starts."""
        await self._call("probe", prefix, lambda: self.inner.probe(prefix))

    async def close(self) -> None:
        """Close the inner store; late calls that are still held never take effect."""
        self._held.clear()
        await self.inner.close()

    async def _call(
        self,
        method: str,
        key: str,
        act: Callable[[], Awaitable[T]],
        *,
        bytes_up: int = 0,
        condition: bool = False,
        size: Callable[[T], int] = lambda _: 0,
    ) -> T:
        asked = BlobCall(next(self._numbers), method, key, bytes_up, condition)
        call = replace(asked, fault=self._fault_for(asked))
        self._calls[call.number] = call
        try:
            answer = await self._faulty(call, act)
        except BaseException as error:
            self._record(replace(call, outcome=type(error).__name__))
            raise
        self._record(replace(call, outcome="ok", bytes_down=size(answer)))
        return answer

    def _fault_for(self, call: BlobCall) -> BlobFault | None:
        for scripted in self._script:
            if scripted.takes(call):
                return scripted.fault
        return self.plan(call) if self.plan else None

    def _record(self, call: BlobCall) -> None:
        if call.number in self._calls:
            self._calls[call.number] = call

    async def _faulty(self, call: BlobCall, act: Callable[[], Awaitable[T]]) -> T:
        what = f"injected fault: {call.method} of {call.key!r}"
        if call.fault in (BlobFault.ERROR_BEFORE, BlobFault.THROTTLED):
            raise StoreUnavailableError(f"{what}: {call.fault}")
        if call.fault is BlobFault.NO_ACCESS:
            raise ArchiveAccessError(f"{what}: {call.fault}")
        if call.fault is BlobFault.LATE:
            self._held.append(lambda: self._land(act))
            raise StoreUnavailableError(f"{what}: no answer yet")
        if call.fault is BlobFault.DELAYED:
            await self._delay()
        answer = await act()
        if call.fault is BlobFault.ANSWER_LOST:
            raise StoreUnavailableError(f"{what}: {call.fault}")
        if call.fault is BlobFault.FALSE_REFUSAL:
            raise ConditionFailedError(f"{what}: {call.fault}")
        return answer

    async def _land(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await act()
        except (ConditionFailedError, HelixError) as error:
            # Nobody waits for the answer any more.
            self.late_outcomes.append(type(error).__name__)
        else:
            self.late_outcomes.append("ok")

    async def _delay(self) -> None:
        gate = asyncio.Event()

        async def open_gate() -> None:
            gate.set()

        self._held.append(open_gate)
        await gate.wait()


def _blob_size(blob: Blob | None) -> int:
    return len(blob.data) if blob else 0
