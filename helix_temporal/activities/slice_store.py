"""The slice of a session's thread: read, changed and saved, and again if somebody was faster."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from helix_temporal.errors import HelixError, StaleStateError, StoreUnavailableError
from helix_temporal.models.base import canonical
from helix_temporal.models.records import Head
from helix_temporal.models.slices import SliceState
from helix_temporal.stores.protocols.hot import HotHeader
from helix_temporal.stores.protocols.threads import ThreadFacts, ThreadStore

T = TypeVar("T")

_TRIES: Final = 5


def parse_state(data: bytes) -> SliceState:
    """The state in a slice's bytes."""
    return SliceState.model_validate_json(data) if data else SliceState()


def encode_state(state: SliceState) -> bytes:
    """Inverse of `parse_state`."""
    return canonical(state.model_dump(mode="json", exclude_defaults=True))


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as it is stored.

    Attributes:
        head: Where the thread stood when it was read.
        saved: It was changed, and saved so, since it was read.
    """

    state: SliceState
    version: int
    head: Head
    saved: bool = False

    @classmethod
    def of(cls, found: HotHeader | ThreadFacts) -> "StoredSlice":
        """What was read of a thread."""
        return cls(parse_state(found.slice), found.slice_version, found.head)


async def swap_slice(
    threads: ThreadStore,
    thread_id: str,
    write: Callable[[StoredSlice], Awaitable[T]],
    during: str,
    *,
    known: StoredSlice | None = None,
    otherwise: type[HelixError] = StoreUnavailableError,
) -> T:
    """Write against the version that is stored, and against the newer one if it was saved meanwhile.

    Args:
        threads: Where the thread is.
        thread_id: Whose slice it is.
        write: Writes what it makes of the stored slice against its version.
        during: What is done meanwhile, for the error.
        known: The slice as the caller has read it; None to read it first.
        otherwise: What is raised if somebody was faster each time.
    """
    for _ in range(_TRIES):
        stored = known or StoredSlice.of(await threads.facts(thread_id))
        try:
            return await write(stored)
        except StaleStateError:
            known = None
    raise otherwise(f"thread {thread_id!r}: its state changed {_TRIES} times while {during}")


async def update_slice(
    threads: ThreadStore,
    thread_id: str,
    epoch: int,
    change: Callable[[StoredSlice], SliceState],
    during: str,
    *,
    known: StoredSlice | None = None,
) -> StoredSlice:
    """Save what ``change`` makes of the slice, as `swap_slice`; nothing where that is the same.

    Returns:
        The slice as it is stored then.

    Raises:
        FencedError: A newer open has the thread.
        StoreUnavailableError: Somebody was faster each time.
    """

    async def write(stored: StoredSlice) -> StoredSlice:
        wanted = change(stored)
        if wanted == stored.state:
            return stored
        version = await threads.save_slice(thread_id, epoch, encode_state(wanted), stored.version)
        return StoredSlice(wanted, version, stored.head, saved=True)

    return await swap_slice(threads, thread_id, write, during, known=known)
