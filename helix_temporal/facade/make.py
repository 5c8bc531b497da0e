"""How sessions are made, resumed and forked, and where they are kept unless one says."""

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal
from weakref import WeakValueDictionary

from temporalio.client import Client

from helix_temporal._arguments import typed_arguments
from helix_temporal._futures import finish_before_cancel
from helix_temporal.agents import Agent
from helix_temporal.client import SessionClient
from helix_temporal.errors import (
    AgentMismatchError,
    InvalidConfigError,
    InvalidRequestError,
    SessionExistsError,
    TooLargeError,
)
from helix_temporal.facade.documents import FileSessionStorage
from helix_temporal.facade.session import (
    LocalEngine,
    Session,
    WorkflowEngine,
    generate_session_id,
    hold_lease,
    session_not_found_error,
)
from helix_temporal.models.base import wall_clock_ms
from helix_temporal.models.facade import StoredSession
from helix_temporal.models.handles import DeleteResult
from helix_temporal.models.ids import validate_id
from helix_temporal.models.messages import Usage
from helix_temporal.models.states import SessionProperties
from helix_temporal.models.turns import check_split, kinds_of
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
            return FileSessionStorage(_require_option(directory, kind, "directory"))
        case "redis":
            from helix_temporal.stores.redis.storage import RedisSessionStorage  # noqa: PLC0415

            return RedisSessionStorage(_require_option(url, kind, "url"), prefix=prefix or "session:")
        case "postgres":
            from helix_temporal.stores.postgres.storage import PostgresSessionStorage  # noqa: PLC0415

            return PostgresSessionStorage(
                _require_option(url, kind, "url"), table_prefix=prefix or "__agents_"
            )
    raise InvalidConfigError(f"session storage {kind!r}: memory, file, redis or postgres expected")


def _require_option(value: Any, kind: str, what: str) -> Any:
    if not value:
        raise InvalidConfigError(f"session storage {kind!r}: no {what} is given; give one")
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


@typed_arguments
async def create_session(
    agent: Agent,
    *,
    storage: SessionStorage | None = None,
    session_id: str | None = None,
    metadata: dict[str, Any] | None = None,
    resume: str | None = None,
    fork: str | None = None,
    client: Client | SessionClient | None = None,
    properties: SessionProperties | None = None,
) -> Session:
    """A new session with an agent, or with ``resume`` or ``fork`` one of before.

    It runs in this process, each turn under a lease and stored at its end; with a Temporal ``client`` it
    goes through the session workflow instead, and its workers' stores keep it.  ``properties`` say when it
    expires, its user and tags; with a client they are set with the first message.  ``metadata`` is for hooks,
    instructions and tools, which get its texts; a session workflow takes nothing else.

    Raises:
        InvalidRequestError: Both ``resume`` and ``fork`` are given, or ``storage`` and ``client``;
            ``session_id`` is another one than ``resume``; ``metadata`` is given for a session that has its
            own, or is no text.
        SessionExistsError: ``session_id`` is taken.
        SessionNotFoundError: The session to resume or to fork is not there.
    """
    if resume is not None and fork is not None:
        raise InvalidRequestError("resume and fork are both given; give one of them")
    if metadata and (resume is not None or fork is not None):
        raise InvalidRequestError(
            "metadata is for a new session; leave it out for one that is resumed or forked, which has its own"
        )
    if resume is not None:
        if session_id not in (None, resume):
            raise InvalidRequestError("resume and session_id name two sessions; a resumed one keeps its id")
        return await resume_session(resume, agent, storage=storage, client=client, properties=properties)
    if fork is not None:
        return await fork_session(
            fork, agent, new_session_id=session_id, storage=storage, client=client, properties=properties
        )
    if client is not None:
        _refuse_both(storage)
        session_id = session_id or generate_session_id()
        return _open_workflow_session(
            agent, client, session_id, properties, _require_text_metadata(metadata or {})
        )
    storage, made_at = storage or get_default_storage(), wall_clock_ms()
    new = StoredSession(
        id=validate_id(session_id or generate_session_id(), "session id"),
        metadata=metadata or {},
        created_at=made_at,
        updated_at=made_at,
        properties=properties or SessionProperties(),
    )
    if session_id is None:
        await storage.save(new)
    elif await _save_new(storage, new) is not new:
        raise SessionExistsError(f"session {session_id!r} exists; resume it, or choose another id")
    return _new_session(agent, storage, new.id)


@typed_arguments
async def resume_session(
    session_id: str,
    agent: Agent,
    *,
    storage: SessionStorage | None = None,
    client: Client | SessionClient | None = None,
    properties: SessionProperties | None = None,
) -> Session:
    """A session of before; one that is in use in this process is the same object.

    ``properties`` are set where they are named: ``expires_at`` renews a session that has expired.

    Raises:
        SessionNotFoundError: It is not in the storage, or no session of the client's workers.
        AgentMismatchError: It is open in this process with another agent.
        InvalidRequestError: ``storage`` and ``client`` are both given.
    """
    if client is not None:
        _refuse_both(storage)
        metadata = await _load_metadata(client, session_id)
        return _open_workflow_session(agent, client, session_id, properties, metadata)
    storage = storage or get_default_storage()
    await _load_session(storage, session_id)
    if properties is not None:
        await _set_properties(storage, session_id, properties)
    return _open_stored_session(agent, storage, session_id)


@typed_arguments
async def fork_session(
    session_id: str,
    agent: Agent,
    *,
    new_session_id: str | None = None,
    at: int | None = None,
    at_checkpoint: str | None = None,
    copy_usage: bool = False,
    storage: SessionStorage | None = None,
    client: Client | SessionClient | None = None,
    properties: SessionProperties | None = None,
) -> Session:
    """A copy of a session under a new id; the original stays as it is.

    Args:
        session_id: The session to copy.
        agent: Who goes on.
        new_session_id: Of the copy; the same one again gives the first copy.
        at: Copy only so many messages; not between a tool call and its result.
        at_checkpoint: Copy what the session was at this checkpoint; only with ``client``.
        copy_usage: Count what the original used for the copy as well; only without ``client``.
        storage: Where both are kept.
        client: The session is a workflow's, and so is the copy; its new id must be free.
        properties: Of the copy where they are named: when it expires, its user and tags.

    Raises:
        SessionNotFoundError: The original is not in the storage, or no session of the client's workers.
        SessionExistsError: The new id belongs to another session.
        InvalidRequestError: ``at`` is out of place, or ``storage`` and ``client`` are both given.
    """
    if client is not None:
        _refuse_both(storage)
        if copy_usage:
            raise InvalidRequestError(
                "copy_usage is for sessions of a storage; leave it out where a client is given"
            )
        return await _fork_by_workflow(
            session_id, agent, client, new_session_id, at, at_checkpoint, properties
        )
    if at_checkpoint is not None:
        raise InvalidRequestError(
            "sessions of a storage have no checkpoints; give at, a number of messages, instead"
        )
    storage = storage or get_default_storage()
    source = await _load_session(storage, session_id)
    target = validate_id(new_session_id or generate_session_id(), "session id")
    made = await storage.load(target)
    if made is None:
        copy = _copy_session(source, target, at, properties, copy_usage=copy_usage)
        made = await _save_new(storage, copy)
    if made.parent_id != session_id:
        raise SessionExistsError(
            f"session {target!r} exists and is no fork of {session_id!r}; choose another id"
        )
    return _open_stored_session(agent, storage, target)


@typed_arguments
async def delete_session(
    session_id: str,
    *,
    keep_usage: bool = False,
    storage: SessionStorage | None = None,
    client: Client | SessionClient | None = None,
) -> DeleteResult:
    """Remove a session for good; forks of it stay.  May be repeated, also for one that was never there.

    A turn of it in this process ends, and whoever receives it gets an `ErrorEvent`; one in another process
    is waited for, where the storage has locks.  With ``client`` it is `SessionHandle.delete`.

    Args:
        session_id: Which.
        keep_usage: Leave what was recorded of its use; only with ``client``.
        storage: Where it is kept.
        client: The session is a workflow's.

    Returns:
        What was removed, and what is left and why.

    Raises:
        InvalidRequestError: ``storage`` and ``client`` are both given, or ``keep_usage`` without ``client``.
    """
    if client is not None:
        _refuse_both(storage)
        return await _session_client(client).session(session_id).delete(keep_usage=keep_usage)
    if keep_usage:
        raise InvalidRequestError(
            "keep_usage is for sessions of a client; leave it out for a storage, which has usage within "
            "the session"
        )
    storage = storage or get_default_storage()
    validate_id(session_id, "session id")
    active = _active.pop((id(storage), session_id), None)
    if active is not None:
        await active.end_deleted()
    async with hold_lease(getattr(storage, "locks", None), session_id):
        found = await storage.load(session_id)
        await finish_before_cancel(storage.delete(session_id))
    removed: dict[str, int] = {} if found is None else {"thread": 1, "state": 1, "usage": 1}
    return DeleteResult(sessions=(session_id,), removed=removed)


def _copy_session(
    source: StoredSession,
    new_session_id: str,
    at: int | None,
    properties: SessionProperties | None,
    *,
    copy_usage: bool,
) -> StoredSession:
    made_at, inherited = wall_clock_ms(), SessionProperties(**_inherited_properties(source.properties))
    return source.model_copy(
        update={
            "id": new_session_id,
            "messages": source.messages[: _fork_position(source, at)],
            "unfinished": None,
            "usage": source.usage if copy_usage else Usage(),
            "created_at": made_at,
            "updated_at": made_at,
            "parent_id": source.id,
            "properties": inherited if properties is None else properties.over(inherited),
        }
    )


async def _fork_by_workflow(
    session_id: str,
    agent: Agent,
    client: Client | SessionClient,
    new_session_id: str | None,
    at: int | None,
    at_checkpoint: str | None,
    properties: SessionProperties | None,
) -> Session:
    sessions = _session_client(client)
    target = new_session_id or generate_session_id()
    await sessions.session(session_id).fork(target, at=at, at_checkpoint=at_checkpoint)
    return _open_workflow_session(agent, sessions, target, properties)


async def _save_new(storage: SessionStorage, session: StoredSession) -> StoredSession:
    """Save a session unless its id is taken; the one that has the id."""
    async with hold_lease(getattr(storage, "locks", None), session.id):
        found = await storage.load(session.id)
        if found is None:
            await finish_before_cancel(storage.save(session))
        return found or session


def _fork_position(source: StoredSession, at: int | None) -> int:
    size = len(source.messages)
    if at is None:
        return size
    if not 0 <= at <= size:
        raise InvalidRequestError(
            f"session {source.id!r}: fork at {at}: 0 to {size} expected, the number of its messages"
        )
    kinds = kinds_of(source.messages)
    before, after = kinds[at - 1] if at else None, kinds[at] if at < size else None
    check_split(f"session {source.id!r}", at, before, after)
    return at


def _inherited_properties(properties: SessionProperties) -> dict[str, Any]:
    """What a copy has of it: whose it is, its title and its tags, not its end nor its workspaces."""
    inherited = {"user_id", "title", "tags"}
    return {name: value for name, value in properties.changes().items() if name in inherited}


async def _set_properties(storage: SessionStorage, session_id: str, properties: SessionProperties) -> None:
    async with hold_lease(getattr(storage, "locks", None), session_id):
        found = await _load_session(storage, session_id)
        changed = found.model_copy(update={"properties": properties.over(found.properties)})
        await finish_before_cancel(storage.save(changed))


async def _load_session(storage: SessionStorage, session_id: str) -> StoredSession:
    found = await storage.load(validate_id(session_id, "session id"))
    if found is None:
        raise session_not_found_error(session_id)
    return found


def _open_stored_session(agent: Agent, storage: SessionStorage, session_id: str) -> Session:
    """The session that is in use in this process, or else a new one for what is stored.

    Raises:
        AgentMismatchError: It is in use with another agent.
    """
    active = _active.get((id(storage), session_id))
    if active is not None and not active.closed:
        if active.agent_name != agent.name:
            raise AgentMismatchError(
                f"session {session_id!r} is open here with agent {active.agent_name!r}, not with "
                f"{agent.name!r}; close it first"
            )
        return active
    return _new_session(agent, storage, session_id)


def _new_session(agent: Agent, storage: SessionStorage, session_id: str) -> Session:
    engine = LocalEngine(agent, storage, session_id, getattr(storage, "locks", None))
    made = Session(session_id, engine, agent.name)
    _active[id(storage), session_id] = made
    return made


def _refuse_both(storage: SessionStorage | None) -> None:
    if storage is not None:
        raise InvalidRequestError(
            "storage and client are both given; give one of them: with a client the session is in its "
            "workers' stores"
        )


def _require_text_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Metadata as a session workflow takes it.

    Raises:
        InvalidRequestError: A value is no text.
    """
    for name, value in metadata.items():
        if not isinstance(value, str):
            raise InvalidRequestError(
                f"metadata {name!r} is {type(value).__name__}; a session workflow takes texts: give one"
            )
    return dict(metadata)


async def _load_metadata(client: Client | SessionClient, session_id: str) -> dict[str, str]:
    """The metadata of a session that is there, for an execution that has to be started.

    Raises:
        SessionNotFoundError: There is no such session.
    """
    try:
        state = await _session_client(client).session(session_id).get_state()
    except TooLargeError:  # too large to travel, but there
        return {}
    return {name: value for name, value in state.metadata.items() if isinstance(value, str)}


def _open_workflow_session(
    agent: Agent,
    client: Client | SessionClient,
    session_id: str,
    properties: SessionProperties | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Session:
    session = _session_client(client).session(session_id, agent=agent.name)
    return Session(session_id, WorkflowEngine(session, properties, metadata), agent.name)


def _session_client(client: Client | SessionClient) -> SessionClient:
    return client if isinstance(client, SessionClient) else SessionClient(client)
