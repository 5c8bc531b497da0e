"""Every error that helix_temporal raises, as one tree.

::

    HelixError
    ├── InvalidIdError · InvalidMessageError · InvalidRequestError · TooLargeError · RunningLoopError
    ├── InvalidReferenceError
    ├── InvalidConfigError
    │   ├── NotServedError · AgentNotServedError                           (retryable)
    │   └── ForeignDeploymentError · UnknownEncodingError
    ├── NotFoundError
    │   ├── ThreadNotFoundError · SessionNotFoundError · CheckpointNotFoundError · StreamNotFoundError
    │   └── PayloadNotFoundError
    ├── ConflictError
    │   ├── HeadMovedError · StaleStateError · FencedError · IdempotencyConflictError · LeaseLostError
    │   ├── ThreadExistsError · ColdTierBehindError · ThreadBehindStateError · StateBehindThreadError
    │   ├── AgentMismatchError · SessionExistsError · StepClosedError · PatchConflictError · StreamClosedError
    │   └── LockHeldError                                                  (retryable)
    ├── SessionFailedError · SessionTerminatedError · SessionInterruptedError · SessionExpiredError
    ├── ArchiveError
    │   ├── ArchiveCorruptError · ColdRegressedError · LegacyWriterActiveError
    │   └── UnsupportedFormatError · ArchiveAccessError
    ├── StreamTruncatedError · InvalidCursorError · StreamFailedError · StreamAbandonedError
    ├── StreamDroppedError                                                 (retryable)
    ├── UnsafeRedisPolicyError · ConditionalWritesUnsupportedError · UnsupportedServerError
    ├── StoreCorruptError · SessionFileError
    ├── MigrationError · SchemaVersionError
    ├── ModelRequestError · RemoteClientToolUnsupportedError
    ├── ModelRateLimitedError · ModelUnavailableError · ModelStreamEndedError   (retryable)
    ├── ApplicationCodeError                                               (retryable)
    ├── NoWorkerError                                                      (retryable)
    └── StoreUnavailableError                                              (retryable)
        └── NotArchivedError                                               (retryable)

The class name is the Temporal error type on the wire, so renaming one is a breaking change; a golden
test pins them.  ``retryable`` says whether the same call may succeed later: everything else is
permanent and leaves activities as a non-retryable ``ApplicationError``.  Messages say what was found,
what was expected and what to do; they never contain message bodies or secrets.
"""

from collections.abc import Sequence
from typing import ClassVar


class HelixError(Exception):
    """Base of all errors of this package.

    Attributes:
        retryable: Whether repeating the same call may succeed.
        facts: What was found and expected, JSON-compatible, without bodies or secrets.
    """

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **facts: str | int | bool | None) -> None:
        super().__init__(message)
        self.facts = facts


class InvalidIdError(HelixError):
    """An id is empty, too long, not text, or holds characters that ids may not have."""


class InvalidMessageError(HelixError):
    """A message cannot be stored as it is: not JSON, too deep, not finite, bad text."""


class InvalidRequestError(HelixError):
    """Arguments contradict each other or lie outside their range."""


class InvalidReferenceError(HelixError):
    """A reference to a conversation was not signed for this workflow, or must not stand where it does."""


class RunningLoopError(HelixError):
    """A synchronous call inside a running event loop, which would stand still; await the async form."""


class InvalidConfigError(HelixError):
    """A setting is outside what is allowed."""


class NotServedError(InvalidConfigError):
    """A worker lacks a tool, hook or transform that it was asked for; another worker may have it.

    It is tried again for ``timeouts.roll_out``, since workers of two versions serve one task queue while
    a new version is rolled out.
    """

    retryable: ClassVar[bool] = True


class AgentNotServedError(NotServedError):
    """A worker lacks an agent that it was asked for, or that is the tool of another.

    ``facts`` has ``known``, the agents of the worker that was asked for one.
    """


class ForeignDeploymentError(InvalidConfigError):
    """A session belongs to another deployment, or to other stores, than the process that was asked."""


class UnknownEncodingError(InvalidConfigError):
    """Payloads are in an encoding that the client does not know: it lacks the workers' payload codec.

    A request whose answer it is may have taken effect.  ``facts`` has ``encoding``.
    """


class TooLargeError(HelixError):
    """Something exceeds a stated limit; the message names the field, its size and the limit."""


class NotFoundError(HelixError):
    """Base of the errors for things that are not there."""


class ThreadNotFoundError(NotFoundError):
    """The thread was never created, or was deleted."""


class SessionNotFoundError(NotFoundError):
    """No session of this id is known."""


class CheckpointNotFoundError(NotFoundError):
    """No checkpoint of this id is known."""


class StreamNotFoundError(NotFoundError):
    """No stream of this id is known."""


class PayloadNotFoundError(NotFoundError):
    """A long text or tool result that was put aside is gone, and its step is not in the thread.

    The message fails, the session serves on: send it again.  ``facts`` has ``message_id``.
    """


class ConflictError(HelixError):
    """Base of the errors that say: what is stored is not what the caller believes."""


class HeadMovedError(ConflictError):
    """The thread does not stand at the head that the caller names.  The workflow opens again."""


class StaleStateError(ConflictError):
    """A state was saved against a version that is no longer the current one."""


class FencedError(ConflictError):
    """A newer epoch has opened the thread, or this epoch is closed; the writer must stop."""


class IdempotencyConflictError(ConflictError):
    """The same id was used before with other content."""


class LeaseLostError(ConflictError):
    """Another holder took the lock after this lease ran out."""


class LockHeldError(ConflictError):
    """Somebody else held the lock for as long as the caller would wait; nothing was changed."""

    retryable: ClassVar[bool] = True


class ThreadExistsError(ConflictError):
    """A thread was to be created under an id that is taken; creating never overwrites."""


class ColdTierBehindError(ConflictError):
    """Too much of the thread is not archived yet; the turn is refused until the archive catches up."""


class ThreadBehindStateError(ConflictError):
    """The state names a head that the thread no longer holds."""


class StateBehindThreadError(ConflictError):
    """The state lacks turns that its thread has: its store was restored, or lost them."""


class SessionExistsError(ConflictError):
    """A session was to be created under an id that is taken; creating never overwrites."""


class AgentMismatchError(ConflictError):
    """The session runs with another agent than the one that is asked; nothing was sent to it."""


class StepClosedError(ConflictError):
    """The step was committed already; nothing more can be staged for it."""


class PatchConflictError(ConflictError):
    """A staged patch cannot be applied to the state; nothing was changed."""


class SessionFailedError(HelixError):
    """The session's run ended by a failure.  ``facts`` has ``type``, that of the failure."""


class SessionTerminatedError(HelixError):
    """The session's workflow was terminated or timed out while the caller waited, or tells nothing since."""


class SessionInterruptedError(HelixError):
    """The turn, or the session's run, was stopped or cancelled before it gave an answer, or a result."""


class SessionExpiredError(HelixError):
    """The session is past its ``expires_at``: it takes no answer and no message until somebody renews it."""


class ArchiveError(HelixError):
    """Base of the permanent errors of the cold tier."""


class ArchiveCorruptError(ArchiveError):
    """An archived object is damaged or is not what its manifest says; nothing of it was used."""


class UnsupportedFormatError(ArchiveError):
    """What is stored or archived has a format newer than this version reads; upgrade the library."""


class ColdRegressedError(ArchiveError):
    """The archive holds less than it did: it was deleted or restored behind our back."""


class LegacyWriterActiveError(ArchiveError):
    """A version 1 snapshot changed after it was taken over: an old writer is still alive."""


class ArchiveAccessError(ArchiveError):
    """The bucket is missing or refuses access; nothing is concluded about the objects in it."""


class StreamTruncatedError(HelixError):
    """The position asked for was trimmed from the stream."""


class StreamClosedError(ConflictError):
    """The stream has ended, or ended another way than asked for; nothing was written."""


class StreamFailedError(HelixError):
    """The stream's producer gave up; what it wrote before was read, and the message says why."""


class StreamAbandonedError(HelixError):
    """The stream's producer has been silent for too long and left no end; it is taken to be gone."""


class StreamDroppedError(HelixError):
    """The connection to a stream was lost before its end; read on from the last sequence."""

    retryable: ClassVar[bool] = True


class InvalidCursorError(HelixError):
    """A cursor is not one that this store gave out."""


class UnsafeRedisPolicyError(HelixError):
    """Redis may evict keys without a time to live, which would lose unarchived messages."""


class ConditionalWritesUnsupportedError(HelixError):
    """The object store ignores write conditions, so compare-and-swap would lose data."""


class UnsupportedServerError(HelixError):
    """A server is too old, read-only, or lacks what we need of it."""


class MigrationError(HelixError):
    """A database migration failed and nothing of it took effect, or an applied one has another text here."""


class SchemaVersionError(HelixError):
    """The database's tables are older or newer than this version of the package needs."""


class StoreCorruptError(HelixError):
    """What a store holds is damaged or is not what its place says; nothing of it was used or changed."""


class SessionFileError(HelixError):
    """A session file is damaged, cut, or none at all; nothing of it was imported.

    ``facts`` has ``line``, from 1, where it is known.
    """


class StoreUnavailableError(HelixError):
    """A store did not answer, or answered that it cannot now.  Repeat the same call later."""

    retryable: ClassVar[bool] = True


class NotArchivedError(StoreUnavailableError):
    """The step is in the thread, and nobody is answered before the archive has it (``archive="required"``).

    ``facts`` has ``committed``: the step ended its turn.
    """


class ApplicationCodeError(HelixError):
    """A model, hook, transform or another function of the application has a bug, such as a `KeyError`.

    Its activity is tried three times; then the error is permanent.
    """

    retryable: ClassVar[bool] = True


class NoWorkerError(HelixError):
    """No worker answers for a session: none polls its task queue, or those that do don't answer in time."""

    retryable: ClassVar[bool] = True


class ModelStreamEndedError(HelixError):
    """A model's stream broke off before its response.  Nothing of it counts; call the model again."""

    retryable: ClassVar[bool] = True


class ModelRequestError(HelixError):
    """A model's provider refuses the request as it is: wrong key, unknown model, bad or too large input."""


class ModelRateLimitedError(HelixError):
    """A model's provider asks to slow down; ``facts`` has ``retry_after_ms`` if it says for how long."""

    retryable: ClassVar[bool] = True


class ModelUnavailableError(HelixError):
    """A model's provider did not answer, or answered with a failure of its own.  Call it again later."""

    retryable: ClassVar[bool] = True


class RemoteClientToolUnsupportedError(HelixError):
    """A sub-agent that runs elsewhere asks for a tool that only a client of this session could run."""


# ---- back from the wire -----------------------------------------------------------------------------


def error_class(kind: str) -> type[HelixError] | None:
    """The class of ours with this wire type; None for a type of somebody else."""
    found = globals().get(kind)
    return found if isinstance(found, type) and issubclass(found, HelixError) else None


def from_wire(kind: str, message: str, details: Sequence[object] = ()) -> HelixError | None:
    """The error that another process raised, with the facts that its details begin with; None if not ours."""
    found = error_class(kind)
    facts = details[0] if details and isinstance(details[0], dict) else {}
    return None if found is None else found(message, **facts)


def split_text(text: str) -> tuple[str, str]:
    """Type and message of a failure that is told as ``type: message``.

    A text without a type is all type, and has no message.
    """
    kind, _, message = text.partition(": ")
    return kind, message


def for_caller(kind: str, message: str, details: Sequence[object] = ()) -> Exception:
    """What a client raises for a failure of this type: our own, or a refused request where it is foreign."""
    if kind == TimeoutError.__name__:
        return TimeoutError(message)
    return from_wire(kind, message, details) or InvalidRequestError(message)


def error_of_text(text: str) -> Exception:
    """What a client raises for a failure that is told as ``type: message``."""
    kind, message = split_text(text)
    return for_caller(kind, message if error_class(kind) else text)
