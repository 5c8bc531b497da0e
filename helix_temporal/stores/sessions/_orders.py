"""Pure: what a session's thread must still be told: a cut that its state has decided, or a fork.

State and thread may lie in different stores, so that no unit holds both.  The state decides first and
keeps an order for the thread in the same commit; the thread then follows, and the order is taken away.
Whoever comes to the messages of a session with an order carries it out first, so that a crash between
the two halves is finished by the repeated call or by the next one.  An order names the epoch under which
the thread is opened: carried out twice, or after somebody else has opened the thread, it changes nothing.
"""

from typing import Final, Protocol

from helix_temporal.models.ids import Id
from helix_temporal.models.records import EMPTY, Epoch, Head
from helix_temporal.models.states import Millis, StoredModel
from helix_temporal.stores.protocols.session_records import RecordKey, RecordKind, SessionRecord
from helix_temporal.stores.sessions._codec import decode, encode
from helix_temporal.stores.sessions._decisions import Seen

KEY: Final = RecordKey(RecordKind.THREAD, "order")
KEYS: Final = (KEY,)


class HasHead(Protocol):
    """Where a thread stands."""

    @property
    def epoch(self) -> int:
        """Who has it."""
        ...

    @property
    def head(self) -> Head:
        """Its end."""
        ...

    @property
    def committed(self) -> int:
        """Messages of finished turns."""
        ...


class ThreadOrder(StoredModel):
    """What the thread must be told.

    Attributes:
        epoch: Under which it is opened for that.
        head: Where it ends afterwards.
        source: The thread that it is a fork of; None for a cut.
    """

    epoch: Epoch
    head: Head = EMPTY
    source: Id | None = None


def owner_of(session_id: str) -> str:
    """Who has the thread of a session that is used without a workflow."""
    return f"session/{session_id}"


def pending(seen: Seen) -> ThreadOrder | None:
    """The order that is not carried out yet, if there is one."""
    record = seen.view.find(*KEY)
    return None if record is None else decode(ThreadOrder, record.body, "order for the thread")


def record_of(order: ThreadOrder) -> SessionRecord:
    """The order as it is stored with the state."""
    return SessionRecord(KEY.kind, KEY.key, encode(order, "order for the thread"))


def next_epoch(now: Millis, thread_epoch: int = 0) -> int:
    """An epoch that is higher than the thread's, and the store's time in microseconds if that is higher."""
    return max(now * 1000, thread_epoch + 1)


def cut(thread: HasHead, head: Head, now: int) -> ThreadOrder | None:
    """The order that cuts a thread; None where it ends there already."""
    if thread.head == head and thread.committed == head.position:
        return None
    return ThreadOrder(epoch=next_epoch(now, thread.epoch), head=head)
