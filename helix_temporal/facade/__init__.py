"""Sessions for programs without a workflow of their own: create, resume, fork, send, receive."""

from helix_temporal.facade.make import (
    create_session,
    create_session_storage,
    delete_session,
    fork_session,
    get_default_storage,
    resume_session,
    set_default_storage,
)
from helix_temporal.facade.session import Session, generate_message_id, generate_session_id
from helix_temporal.models.facade import SessionEvent, StoredSession, UnfinishedTurn
from helix_temporal.stores.protocols.storage import SessionStorage

__all__ = [
    "Session",
    "SessionEvent",
    "SessionStorage",
    "StoredSession",
    "UnfinishedTurn",
    "create_session",
    "create_session_storage",
    "delete_session",
    "fork_session",
    "generate_message_id",
    "generate_session_id",
    "get_default_storage",
    "resume_session",
    "set_default_storage",
]
