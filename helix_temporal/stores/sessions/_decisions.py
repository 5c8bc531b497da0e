"""Pure: what a change of a session is asked, sees and decides."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from helix_temporal.errors import SessionNotFoundError
from helix_temporal.models.states import SessionState
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_records import (
    RecordKey,
    RecordKind,
    SessionRecord,
    SessionView,
)
from helix_temporal.stores.sessions._codec import digest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a change.

    Attributes:
        content: All arguments, for the digest.
        fenced: False for what comes from outside the session's writer and has no epoch.
    """

    name: str
    session_id: str
    content: tuple[object, ...] = ()
    epoch: int | None = None
    operation_id: str | None = None
    fenced: bool = True

    def digest(self) -> str:
        """Of what is asked for; neither who asks nor when is in it."""
        return digest(self.name, *self.content)


@dataclass(frozen=True, slots=True)
class Seen:
    """A view with its state decoded."""

    session_id: str
    view: SessionView
    state: SessionState | None

    @property
    def now(self) -> int:
        """The store's clock."""
        return self.view.now

    @property
    def present(self) -> SessionState:
        """The state.

        Raises:
            SessionNotFoundError: There is none.
        """
        if self.state is None:
            raise SessionNotFoundError(
                f"Session not found: {self.session_id!r} was never created, or was deleted",
                session_id=self.session_id,
            )
        return self.state

    def bumped(self, **changes: Any) -> SessionState:
        """The state with these changes as its next version."""
        return next_version(self.present, self.present, self.now, **changes)


def next_version(state: SessionState, stored: SessionState, now: int, **changes: Any) -> SessionState:
    """``state`` in the place of ``stored``: one version higher, and never earlier."""
    return state.model_copy(
        update={
            **changes,
            "version": stored.version + 1,
            "created_at": stored.created_at,
            "updated_at": max(now, stored.updated_at + 1),
        }
    )


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """What to answer and what to write; without anything to write nothing is written.

    Attributes:
        body: ``state`` as it is stored, if that is known already.
    """

    answer: T
    state: SessionState | None = None
    body: bytes | None = None
    puts: tuple[SessionRecord, ...] = ()
    removes: tuple[RecordKey, ...] = ()
    clears: tuple[tuple[RecordKind, str], ...] = ()
    deletes: bool = False
    append: StepAppend | None = None

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.state or self.puts or self.removes or self.clears or self.deletes or self.append)


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A change was made, or had been made before.

    Attributes:
        repeated: The operation's first answer was found, and nothing was decided.
        appended: What became of the decision's step.
    """

    answer: T
    repeated: bool = False
    appended: Appended | None = None
