"""What each command prints with ``--json``: a model each, published as JSON schemas.

``docs/schemas/commands`` has them, written by ``python -m tests.unit.cli._schemas``.
"""

from typing import Final

from pydantic import BaseModel

from helix_temporal.cli.outputs import (
    Backfill,
    CleanupReport,
    HealthAnswer,
    MigrationReport,
    ThreadMoves,
    Verification,
)
from helix_temporal.cli.session_outputs import LiveLine, StoredThread, TurnList
from helix_temporal.doctor import CheckReport
from helix_temporal.models.maintenance import SweepResult
from helix_temporal.session_files import Exported, Imported
from helix_temporal.views.models import (
    CheckpointList,
    ConversationTurn,
    FoundCall,
    ModelContext,
    SessionBranch,
    SessionList,
    SessionOverview,
    SessionView,
    StateAt,
    StateComparison,
    UsageSums,
)

OUTPUTS: Final[dict[str, type[BaseModel]]] = {
    "cleanup": CleanupReport,
    "doctor": CheckReport,
    "health": HealthAnswer,
    "migrate": MigrationReport,
    "sweep": SweepResult,
    "telemetry backfill": Backfill,
    "session list": SessionList,
    "session list --all": SessionOverview,
    "session show": SessionView,
    "session messages": ConversationTurn,
    "session messages --follow": LiveLine,
    "session turns": TurnList,
    "session calls": FoundCall,
    "session context": ModelContext,
    "session state": StateAt,
    "session state --diff": StateComparison,
    "session checkpoints": CheckpointList,
    "session tree": SessionBranch,
    "session usage": UsageSums,
    "session export": Exported,
    "session import": Imported,
    "thread show": StoredThread,
    "thread verify": Verification,
    "thread import-v1": ThreadMoves,
    "thread export-v1": ThreadMoves,
}
"""By the command's path, with the option where one makes the output another.  Of commands that print many
objects, one to a line, the model is that of a line: ``session list --all``, ``session messages``, ``session
calls``."""
