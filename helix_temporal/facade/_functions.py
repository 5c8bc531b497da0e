"""How sessions are made, resumed and forked, and where they are kept unless one says."""

from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from temporalio.client import Client

from helix_temporal.agents import Agent
from helix_temporal.client import SessionClient
from helix_temporal.errors import InvalidConfigError, InvalidRequestError, SessionNotFoundError
from helix_temporal.facade._session import (
    LocalEngine,
    Session,
    WorkflowEngine,
    generate_session_id,
    leased,
    now,
)
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Usage
from helix_temporal.models.records import Kind
from helix_temporal.models.rows import kinds_of
from helix_temporal.stores.memory.storage import MemorySessionStorage
from helix_temporal.stores.protocols.storage import SessionStorage

_default: ContextVar[SessionStorage | None] = ContextVar("helix_session_storage", default=None)
_process_default: list[SessionStorage] = []
_active: WeakValueDictionary[tuple[int, str], Session] = WeakValueDictionary()


def create_session_storage(
    kind: Literal["memory", "file", "redis", "postgres"] = "memory",
    *,
    directory: Path | str | None = None,
    url: str | None = None,
    prefix: str | None = None,
) -> SessionStorage:
    """A storage for sessions.

    Args:
        kind: Where it keeps them.
        directory: For ``file``.
        url: For ``redis`` and ``postgres`` (there a DSN; `helix-temporal migrate` makes the tables).
        prefix: Of keys or tables, instead of ``session:`` or ``__agents_``.

    Raises:
        InvalidConfigError: What the kind needs is missing, or the kind is unknown.
    """
    match kind:
        case "memory":
            return MemorySessionStorage()
        case "file":
            from helix_temporal.stores.file.storage import FileSessionStorage  # noqa: PLC0415

            return FileSessionStorage(_needed(directory, kind, "directory"))
        case "redis":
            from helix_temporal.stores.redis.storage import RedisSessionStorage  # noqa: PLC0415

            return RedisSessionStorage(_needed(url, kind, "url"), prefix=prefix or "session:")
        case "postgres":
            from helix_temporal.stores.postgres.storage import PostgresSessionStorage  # noqa: PLC0415

            return PostgresSessionStorage(_needed(url, kind, "url"), table_prefix=prefix or "__agents_")
    raise InvalidConfigError(f"session storage {kind!r}: memory, file, redis or postgres expected")


def _needed(value: Any, kind: str, what: str) -> Any:
    if not value:
        raise InvalidConfigError(f"session storage {kind!r} needs {what}")
    return value


def set_default_storage(storage: SessionStorage | None, *, here: bool = False) -> None:
    """Where sessions are kept that name no storage; sessions that exist keep theirs.

    ``here`` sets it for this context only (a test, a task) rather than for the process.
    """
    if here:
        _default.set(storage)
        return
    _process_default[:] = [] if storage is None else [storage]


def get_default_storage() -> SessionStorage:
    """The storage of sessions that name none: this process's memory unless another was set."""
    found = _default.get()
    if found is not None:
        return found
    if not _process_default:
        _process_default.append(MemorySessionStorage())
    return _process_default[0]


async def create_session(
    agent: Agent,
    *,
    storage: SessionStorage | None = None,
    session_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    resume: str | None = None,
    fork: str | None = None,
    client: Client | SessionClient | None = None,
) -> Session:
    """A new session with an agent, or with ``resume`` or ``fork`` one of before.

    It runs in this process, each turn under a lease and stored at its end; with a Temporal ``client`` it
    goes through the session workflow instead, and its workers' stores keep it.

    Raises:
        InvalidRequestError: Both ``resume`` and ``fork`` are given, or ``session_id`` is taken.
        SessionNotFoundError: The session to resume or to fork is not there.
    """
    if resume is not None and fork is not None:
        raise InvalidRequestError("resume and fork are both given; a session is one or the other")
    if client is not None:
        if fork is not None:
            return await fork_session(fork, agent, new_session_id=session_id, client=client)
        return _through_workflow(agent, client, resume or session_id or generate_session_id())
    storage = storage or get_default_storage()
    if resume is not None:
        return await resume_session(resume, agent, storage=storage)
    if fork is not None:
        return await fork_session(fork, agent, new_session_id=session_id, storage=storage)
    made_at = now()
    session = StoredSession(
        id=validate_id(session_id or generate_session_id(), "session id"),
        metadata=metadata or {},
        created_at=made_at,
        updated_at=made_at,
    )
    if session_id is None:
        await storage.save(session)
    else:
        await _save_new(storage, session)
    return _active_session(agent, storage, session)


async def resume_session(
    session_id: str,
    agent: Agent,
    *,
    storage: SessionStorage | None = None,
    client: Client | SessionClient | None = None,
) -> Session:
    """A session of before; one that is in use in this process is the same object.

    Raises:
        SessionNotFoundError: It is not in the storage.
    """
    if client is not None:
        return _through_workflow(agent, client, session_id)
    storage = storage or get_default_storage()
    found = await _found(storage, session_id)
    active = _active.get((id(storage), session_id))
    if active is not None and not active.closed:
        return active
    return _active_session(agent, storage, found)


async def fork_session(
    session_id: str,
    agent: Agent,
    *,
    new_session_id: str | None = None,
    at_message: int | None = None,
    at_checkpoint: str | None = None,
    copy_usage: bool = False,
    storage: SessionStorage | None = None,
    client: Client | SessionClient | None = None,
) -> Session:
    """A copy of a session under a new id; the original stays as it is.

    Args:
        session_id: The session to copy.
        agent: Who goes on.
        new_session_id: Of the copy; the same one again gives the first copy.
        at_message: Copy only so many messages; not between a tool call and its result.
        at_checkpoint: Copy what the session was at this checkpoint; only with ``client``, since sessions of
            a storage have none.
        copy_usage: Count what the original used for the copy as well.
        storage: Where both are kept.
        client: The session is a workflow's, and so is the copy; its new id must be free.

    Raises:
        SessionNotFoundError: The original is not in the storage.
        InvalidRequestError: The new id belongs to another session, or ``at_message`` is out of place.
    """
    if client is not None:
        return await _forked_by_workflow(session_id, agent, client, new_session_id, at_message, at_checkpoint)
    if at_checkpoint is not None:
        raise InvalidRequestError("sessions of a storage have no checkpoints; say at_message instead")
    storage = storage or get_default_storage()
    source = await _found(storage, session_id)
    made = None if new_session_id is None else await storage.load(new_session_id)
    if made is not None:
        if made.parent_id != session_id:
            raise InvalidRequestError(f"session {new_session_id!r} exists and is no fork of {session_id!r}")
        return _active_session(agent, storage, made)
    copy = _copied(source, new_session_id, at_message, copy_usage=copy_usage)
    await storage.save(copy)
    return _active_session(agent, storage, copy)


def _copied(
    source: StoredSession, new_session_id: str | None, at_message: int | None, *, copy_usage: bool
) -> StoredSession:
    made_at = now()
    return source.model_copy(
        update={
            "id": validate_id(new_session_id or generate_session_id(), "session id"),
            "messages": source.messages[: _cut(source, at_message)],
            "usage": source.usage if copy_usage else Usage(),
            "created_at": made_at,
            "updated_at": made_at,
            "parent_id": source.id,
        }
    )


async def _forked_by_workflow(
    session_id: str,
    agent: Agent,
    client: Client | SessionClient,
    new_session_id: str | None,
    at_message: int | None,
    at_checkpoint: str | None,
) -> Session:
    talker = client if isinstance(client, SessionClient) else SessionClient(client)
    target = new_session_id or generate_session_id()
    await talker.fork(session_id, target, at=at_message, at_checkpoint=at_checkpoint)
    return _through_workflow(agent, talker, target)


async def _save_new(storage: SessionStorage, session: StoredSession) -> None:
    async with leased(getattr(storage, "locks", None), session.id):
        if await storage.load(session.id) is not None:
            raise InvalidRequestError(f"session {session.id!r} exists; resume it, or choose another id")
        await storage.save(session)


def _cut(source: StoredSession, at: int | None) -> int:
    size = len(source.messages)
    if at is None:
        return size
    if not 0 <= at <= size:
        raise InvalidRequestError(f"session {source.id!r}: fork at {at}, but it has {size} messages")
    kinds = kinds_of(source.messages)
    if (at and kinds[at - 1] == Kind.CALLS) or (at < size and kinds[at] == Kind.RESULT):
        raise InvalidRequestError(f"session {source.id!r}: {at} is between a tool call and its result")
    return at


async def _found(storage: SessionStorage, session_id: str) -> StoredSession:
    found = await storage.load(validate_id(session_id, "session id"))
    if found is None:
        raise SessionNotFoundError(f"Session not found: {session_id!r}")
    return found


def _active_session(agent: Agent, storage: SessionStorage, session: StoredSession) -> Session:
    made = Session(session.id, LocalEngine(agent, storage, session.id, getattr(storage, "locks", None)))
    _active[id(storage), session.id] = made
    return made


def _through_workflow(agent: Agent, client: Client | SessionClient, session_id: str) -> Session:
    talker = client if isinstance(client, SessionClient) else SessionClient(client)
    return Session(session_id, WorkflowEngine(talker, session_id, agent.name))
