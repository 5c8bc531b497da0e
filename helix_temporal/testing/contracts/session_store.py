"""The contract of `SessionStore`: bind it by a class and a fixture.

::

    class TestMySessions(SessionStoreContract):
        @pytest.fixture
        def opener(self, ...) -> SessionOpener:
            # Gives an async context manager of the same store each time it is called; the store is
            # empty at first.
            return partial(open_my_sessions, url, prefix)

Where other processes can open the store as well, the opener is picklable, as a `functools.partial` of a
module's function is, and the class binds `SharedSessionsContract`, too.

Numbers in docstrings, like (case 21), are those of the project's list of cases.
"""

from helix_temporal.testing.contracts._sessions_append import AppendContract
from helix_temporal.testing.contracts._sessions_base import OpenSessions, SessionOpener
from helix_temporal.testing.contracts._sessions_cas import StatusContract, VersionContract
from helix_temporal.testing.contracts._sessions_checkpoints import CheckpointContract
from helix_temporal.testing.contracts._sessions_cleanup import CleanupContract
from helix_temporal.testing.contracts._sessions_commit import CommitContract
from helix_temporal.testing.contracts._sessions_cuts import CutsContract
from helix_temporal.testing.contracts._sessions_delete import DeleteContract
from helix_temporal.testing.contracts._sessions_fences import FenceContract, OperationContract
from helix_temporal.testing.contracts._sessions_fork import ForkContract
from helix_temporal.testing.contracts._sessions_life import LifeContract
from helix_temporal.testing.contracts._sessions_messages import MessagesContract
from helix_temporal.testing.contracts._sessions_queries import ExpiryContract, QueryContract
from helix_temporal.testing.contracts._sessions_runs import RunContract, StopContract, SubSessionContract
from helix_temporal.testing.contracts._sessions_shared import SharedSessionsContract
from helix_temporal.testing.contracts._sessions_staging import StagingContract
from helix_temporal.testing.contracts._sessions_tools import ToolCallContract

__all__ = ["OpenSessions", "SessionOpener", "SessionStoreContract", "SharedSessionsContract"]


class SessionStoreContract(
    LifeContract,
    DeleteContract,
    VersionContract,
    StatusContract,
    FenceContract,
    OperationContract,
    MessagesContract,
    CutsContract,
    AppendContract,
    StagingContract,
    CommitContract,
    CheckpointContract,
    RunContract,
    StopContract,
    SubSessionContract,
    ToolCallContract,
    QueryContract,
    ExpiryContract,
    ForkContract,
    CleanupContract,
):
    """Every promise of `SessionStore`, one test each."""
