"""Staging, the commit of a step, and checkpoints: a part of the session store."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, Protocol

from helix_temporal.models.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CommitResult,
    PromoteResult,
    StagedChange,
    StagedRow,
    StepCommit,
)
from helix_temporal.models.messages import Message
from helix_temporal.models.queries import (
    Page,
    SessionSnapshot,
)
from helix_temporal.models.runs import (
    RunChange,
)
from helix_temporal.models.states import (
    SessionState,
    StateChange,
)
from helix_temporal.stores.protocols.hot import Appended, StepAppend


class AnyVersion(Enum):
    """Marks a blind write."""

    ANY_VERSION = "any"


ANY_VERSION: Final = AnyVersion.ANY_VERSION


class CheckpointStore(Protocol):
    """What `SessionStore` does with staged changes and checkpoints."""

    # -- staging

    async def stage_changes(
        self, session_id: str, step_id: str, change: StagedChange, *, epoch: int | None = None
    ) -> None:
        """Keep one tool call's change aside; the same call again replaces it.

        Raises:
            StepClosedError: The step is committed, and not with this very change.
        """
        ...

    async def list_staged(self, session_id: str, step_id: str | None = None) -> list[StagedRow]:
        """What is staged, in the order in which it would be applied."""
        ...

    async def discard_staging(self, session_id: str, step_id: str, *, epoch: int | None = None) -> int:
        """Drop a step's staged changes; how many."""
        ...

    async def promote_staging(
        self,
        session_id: str,
        step_id: str,
        *,
        results: Sequence[str] | None = None,
        expected_version: int | None = None,
        on_conflict: Literal["error", "warn"] = "error",
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> PromoteResult:
        """Fold a step's staged changes into the custom state; version +1 if there were any.

        ``results`` as in `StepCommit`.

        Raises:
            PatchConflictError: A patch can't be applied; nothing was changed.
        """
        ...

    async def save_state_and_promote_staging(
        self,
        session_id: str,
        next_state: SessionState | StateChange,
        step: StepCommit,
        *,
        append: StepAppend | None = None,
        messages: Sequence[Message] = (),
        run: RunChange | None = None,
        expected_version: int | AnyVersion | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> tuple[CommitResult, Appended | None]:
        """Commit a step: state, staged changes, checkpoint, run, and messages where they lie here.

        ``next_state`` comes without the staged effects; a `StateChange` is applied to whatever is
        stored, without a look at the version unless one is expected.  (session, run, step) is the
        natural key: a repeat returns the first answer though the version has moved on.  ``append`` are
        the step's messages: in the same unit where threads lie in the same store (`HotTier.append`),
        else appended and flushed before.  With an answer in it, the first answer wins, and what
        follows from another one does not count.  ``run`` changes the step's run in the same unit.

        ``messages`` instead of ``append``: they go to the end of the session's thread, which is opened for
        the session if nobody has it; for sessions that no session workflow runs.  A message whose id is
        among the newest 200 stands there already.

        The head that is committed is that of ``append``, else that of a `StateChange`, else the
        thread's where that is further than the head in ``next_state``.

        Raises:
            StaleStateError: The version is another; nothing was changed.
            IdempotencyConflictError: The step was committed with other content.
            PatchConflictError: A staged patch can't be applied; nothing was changed.
            StateBehindThreadError: The state's head is before what the change ``follows``.
            InvalidRequestError: ``append`` and ``messages`` are both given.
        """
        ...

    # -- checkpoints

    async def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        """One checkpoint; None if it is not this session's."""
        ...

    async def get_latest_checkpoint(self, session_id: str, *, run_id: str | None = None) -> Checkpoint | None:
        """The one committed last."""
        ...

    async def list_checkpoints(
        self,
        session_id: str,
        *,
        limit: int = 50,
        cursor: str | None = None,
        order: Literal["asc", "desc"] = "desc",
    ) -> Page[CheckpointMeta]:
        """Checkpoints in commit order, by a cursor that stays complete while others are added.

        Raises:
            InvalidCursorError: See there.
        """
        ...

    async def restore_checkpoint(
        self,
        session_id: str,
        checkpoint_id: str,
        *,
        expected_version: int | None = None,
        epoch: int | None = None,
        operation_id: str | None = None,
    ) -> SessionState:
        """Make a checkpoint's state the present one; version +1, later checkpoints marked.

        The thread is cut to the checkpoint's head where this store has it, unless the caller has it open
        under ``epoch``: then the cut is the caller's.  Counters of the session's life do not go back.

        Raises:
            CheckpointNotFoundError, StaleStateError, ThreadBehindStateError: See there.
        """
        ...

    async def prune_checkpoints(self, session_id: str, *, keep_last: int, epoch: int | None = None) -> int:
        """Remove all but the newest; never one that a suspension refers to.  How many went.

        Raises:
            InvalidRequestError: ``keep_last`` is 0.
        """
        ...

    async def build_snapshot(self, session_id: str) -> SessionSnapshot | None:
        """The newest checkpoint with its messages, consistent whatever goes on meanwhile."""
        ...
