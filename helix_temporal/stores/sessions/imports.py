"""Sessions of another store: made with their runs and children in one commit, just as they were there."""

from collections.abc import Sequence
from dataclasses import dataclass

from helix_temporal.errors import SessionExistsError
from helix_temporal.models.checkpoints import Run
from helix_temporal.models.states import SessionState, SubSessionRef
from helix_temporal.stores.protocols.session_rows import STATE_ALONE, SessionRow
from helix_temporal.stores.protocols.threads import ThreadFacts
from helix_temporal.stores.sessions.base import SessionStoreBase
from helix_temporal.stores.sessions.decisions import Call, Decision, SeenSession
from helix_temporal.stores.sessions.outlines import encode_outline, owner_of, parse_outline
from helix_temporal.stores.sessions.runs import row_of_child, row_of_run


@dataclass(frozen=True, slots=True)
class ImportedSession:
    """A session to make: its version, its times and its turns stay as they are.

    Attributes:
        state: No run of it is live.
        runs: By turn.
        children: In their order.
    """

    state: SessionState
    runs: Sequence[Run] = ()
    children: Sequence[SubSessionRef] = ()

    def list_rows(self) -> tuple[SessionRow, ...]:
        """What is stored beside the state."""
        version = self.state.version
        return (
            *(row_of_run(run, version) for run in self.runs),
            *(row_of_child(ref, order) for order, ref in enumerate(self.children, 1)),
        )


def decide_import(seen: SeenSession, session: ImportedSession) -> Decision[bool]:
    """Make the session, unless it is there as it would be made; whether it was made now.

    Raises:
        SessionExistsError: It is there, and is another, or has gone on.
    """
    if seen.state is None:
        return Decision(True, session.state, puts=session.list_rows())
    if seen.state != session.state:
        raise SessionExistsError(
            f"session {seen.session_id!r} exists, and is another than the one that is imported, or has gone "
            "on since; choose another id",
            session_id=seen.session_id,
        )
    return Decision(False)


async def make_session(store: SessionStoreBase, session: ImportedSession) -> bool:
    """Make a session with its runs and children, all at once; False if it is there already, just so.

    Its thread must stand: nobody looks at it here.

    Raises:
        SessionExistsError: A session of this id is there, and is another, or has gone on.
        TooLargeError: The state is too large.
    """
    call = Call("import_session", session.state.session_id, fenced=False)
    return await store.make_change(call, STATE_ALONE, lambda seen: decide_import(seen, session), bool)


def make_outline(store: SessionStoreBase, state: SessionState) -> bytes:
    """The slice of the thread of a session that no workflow has; empty where threads carry no outline."""
    return encode_outline(state, 0) if store.threads.carries_outlines else b""


def owner_without_workflow(session_id: str) -> str:
    """Who has the thread of a session that no workflow has."""
    return owner_of(session_id)


def is_without_workflow(facts: ThreadFacts) -> bool:
    """Whether no session workflow has left anything with a thread: there is no record of one in it."""
    return not facts.slice or parse_outline(facts.slice) is not None
