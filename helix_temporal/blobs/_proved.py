"""What this process has proved of object stores, so that its next worker need not."""

import time
from dataclasses import dataclass
from typing import Final

from helix_temporal.blobs._probe import ask
from helix_temporal.blobs._protocol import BlobStore

_SECONDS: Final = 3600.0
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class ProvedPlace:
    """A bucket as one account sees it."""

    endpoint: str | None
    region: str
    bucket: str
    access_key: str | None


_proved: dict[ProvedPlace, float] = {}


async def prove_once(store: BlobStore, place: ProvedPlace | None) -> None:
    """Prove that a store honours write conditions, unless this process has, within the last hour.

    Then one read shows that it answers and gives access.  A store without a place is proved every time,
    and so is one that failed.

    Raises:
        As `BlobStore.probe`.
    """
    until = None if place is None else _proved.get(place)
    if until is not None and time.monotonic() < until:
        await ask(store, "helix-probe")
        return
    await store.probe()
    if place is not None:
        _proved.pop(place, None)
        while len(_proved) >= _MOST:
            del _proved[next(iter(_proved))]
        _proved[place] = time.monotonic() + _SECONDS
