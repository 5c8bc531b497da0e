"""What a change of a session is asked, sees and decides; and rows as bytes.  Pure."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from helix_temporal.errors import (
    HelixError,
    SessionNotFoundError,
    StoreCorruptError,
    TooLargeError,
    UnsupportedFormatError,
)
from helix_temporal.models.base import canonical_json
from helix_temporal.models.checkpoints import CheckpointMeta
from helix_temporal.models.limits import MAX_STATE
from helix_temporal.models.states import SCHEMA_VERSION, SessionState
from helix_temporal.stores.protocols.hot import Appended, StepAppend
from helix_temporal.stores.protocols.session_rows import (
    RowKey,
    RowKind,
    SessionRow,
    SessionView,
)

M = TypeVar("M", bound=BaseModel)


def encode_model(model: BaseModel, what: str) -> bytes:
    """The model as JSON.

    Raises:
        TooLargeError: It exceeds 16 MiB.
    """
    body = model.model_dump_json(by_alias=True).encode()
    if len(body) > MAX_STATE:
        raise TooLargeError(f"{what}: {len(body)} > {MAX_STATE} bytes")
    return body


def decode_model(kind: type[M], body: bytes, what: str) -> M:
    """Inverse of `encode_model`.

    Raises:
        StoreCorruptError: The bytes are no such model.
        UnsupportedFormatError: A newer version of this package wrote them.
    """
    try:
        found = kind.model_validate_json(body)
    except ValidationError as error:
        if newer := _find_newer(body, error):
            raise _newer_error(what, newer) from error
        raise StoreCorruptError(f"{what}: the stored bytes are not a {kind.__name__}") from error
    except HelixError as error:
        raise StoreCorruptError(f"{what}: the stored bytes are not a {kind.__name__}") from error
    version = getattr(found, "schema_version", SCHEMA_VERSION)
    if version > SCHEMA_VERSION:
        raise _newer_error(what, _describe_version(version))
    return found


def _find_newer(body: bytes, error: ValidationError) -> str | None:
    """What a newer version wrote; None where nothing says that one did.

    The store has verified that the bytes are those that were written: a value that is none of ours in a field
    that has a few known ones is another version's.
    """
    try:
        version = json.loads(body).get("schema_version")
    except (ValueError, AttributeError, RecursionError):
        return None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return _describe_version(version)
    found = error.errors(include_url=False, include_input=False, include_context=False)
    if any(each["type"] not in {"enum", "literal_error"} for each in found):
        return None
    fields = ", ".join(sorted({".".join(map(str, each["loc"])) for each in found}))
    return f"a value of {fields} that this version does not know"


def _describe_version(version: int) -> str:
    return f"schema_version {version}, {SCHEMA_VERSION} or lower expected"


def _newer_error(what: str, found: str) -> UnsupportedFormatError:
    return UnsupportedFormatError(f"{what}: {found}: a newer version wrote it; upgrade helix_temporal")


def checkpoint_row(meta: CheckpointMeta) -> SessionRow:
    """A checkpoint as it is stored, its state apart."""
    return SessionRow(RowKind.CHECKPOINT, meta.id, encode_model(meta, "checkpoint"), order=meta.seq)


def checkpoint_state_row(meta: CheckpointMeta, body: bytes) -> SessionRow:
    """The state of a checkpoint as it is stored."""
    return SessionRow(RowKind.CHECKPOINT_STATE, meta.id, body, order=meta.seq)


@lru_cache(256)
def answer_adapter(kind: Any) -> TypeAdapter[Any]:
    """For answers that are kept with their operation."""
    return TypeAdapter(kind)


def digest_parts(*parts: object) -> str:
    """The same for the same request, whichever process makes it."""
    return hashlib.sha256(canonical_json([_plain_value(part) for part in parts])).hexdigest()


def _plain_value(part: object) -> object:
    if isinstance(part, BaseModel):
        return part.model_dump(mode="json")
    if isinstance(part, bytes):
        return hashlib.sha256(part).hexdigest()
    if isinstance(part, tuple | list | set | frozenset):
        plain = [_plain_value(each) for each in part]
        return plain if isinstance(part, tuple | list) else sorted(map(str, plain))
    if isinstance(part, dict):
        return {key: _plain_value(value) for key, value in part.items()}
    return part


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

    @property
    def named(self) -> bool:
        """Whether it says who makes it, or which operation it is."""
        return self.epoch is not None or self.operation_id is not None

    def compute_digest(self) -> str:
        """Of what is asked for; neither who asks nor when is in it."""
        return digest_parts(self.name, *self.content)


@dataclass(frozen=True, slots=True)
class SeenSession:
    """A view with its state decoded.

    Attributes:
        looked_at: When the store had answered, by this process's clock that never goes back, in seconds: so
            `now` may be late by the time that the answer took, and is never ahead of the store's clock.
        passed: Milliseconds since, where the view is used again without asking.
    """

    session_id: str
    view: SessionView
    state: SessionState | None
    looked_at: float = 0.0
    passed: int = 0

    @property
    def now(self) -> int:
        """The store's clock."""
        return self.view.now + self.passed

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

    def next_state(self, **changes: Any) -> SessionState:
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
    puts: tuple[SessionRow, ...] = ()
    removes: tuple[RowKey, ...] = ()
    clears: tuple[tuple[RowKind, str], ...] = ()
    deletes: bool = False
    append: StepAppend | None = None

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.state or self.puts or self.removes or self.clears or self.deletes or self.append)


@dataclass(frozen=True, slots=True)
class ChangeDone(Generic[T]):
    """A change was made, or had been made before.

    Attributes:
        repeated: The operation's first answer was found, and nothing was decided.
        appended: What became of the decision's step.
        revision: The session's, after the change.
    """

    answer: T
    repeated: bool = False
    appended: Appended | None = None
    revision: int = 0
