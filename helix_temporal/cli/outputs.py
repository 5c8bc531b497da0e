"""What commands about a deployment print with ``--json``: a model each.

Those about sessions print `helix_temporal.views.models`; its package brings Temporal's SDK, which a probe
must not.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from helix_temporal.models.maintenance import AgeCleanupSummary, CleanupSummary


class Output(BaseModel):
    """Base of what is printed; written with every field, so that its schema says what comes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---- thread verify ----------------------------------------------------------------------------------


class ThreadVerdict(Output):
    """What was found of one thread.

    Attributes:
        outcome: ``unread``: a store did not answer for it; ``not_found``: there is no such thread.
        messages: In the thread.
        unarchived: Of these, those that the hot store alone has.
        bytes_read: Of its data; 0 also of a short thread whose messages stand in its manifest.
        data_read: Its messages were read, as far as damage lets them; else its structure alone.
        problems: What is wrong, or why it could not be read.
    """

    thread_id: str
    outcome: Literal["sound", "damaged", "unread", "not_found"]
    messages: int = 0
    unarchived: int = 0
    bytes_read: int = 0
    problems: tuple[str, ...] = ()
    data_read: bool = False


class Verification(Output):
    """What ``thread verify`` has found.

    Attributes:
        threads: Those that were named; with ``--all`` those that are not sound.
        seen: How many were looked at; ``read`` with their data.
    """

    threads: tuple[ThreadVerdict, ...] = ()
    seen: int = 0
    sound: int = 0
    damaged: int = 0
    unread: int = 0
    read: int = 0
    messages: int = 0
    unarchived: int = 0
    bytes_read: int = 0


# ---- thread import-v1, export-v1 --------------------------------------------------------------------


class ThreadMove(Output):
    """What became of one thread that was to be taken over, or written as a snapshot.

    Attributes:
        messages: That it has, where it was taken over.
        adapter: Zeitlich's, as far as it is known.
        key: Of the snapshot that was written.
        error: Why it failed.
    """

    thread_id: str
    done: bool
    messages: int | None = None
    adapter: str | None = None
    key: str | None = None
    error: str | None = None


class ThreadMoves(Output):
    """All threads that were to be moved."""

    threads: tuple[ThreadMove, ...] = ()
    done: int = 0
    failed: int = 0


# ---- deployment -------------------------------------------------------------------------------------


class HealthAnswer(Output):
    """What a worker says of itself.

    Attributes:
        probe: ``ready``, ``live`` or ``started``.
        wrong: What is not well, by where; of a worker that does not answer that it does not.
        unknown: What could not be found out.
        degraded: What is away, and leaves the worker something to do.
        busy: What keeps a worker that is well from taking more work.
        notes: What is well, and still a reason why it has nothing to do.
    """

    probe: Literal["ready", "live", "started"]
    ok: bool
    wrong: dict[str, str] = Field(default_factory=dict)
    unknown: dict[str, str] = Field(default_factory=dict)
    degraded: dict[str, str] = Field(default_factory=dict)
    busy: dict[str, str] = Field(default_factory=dict)
    notes: dict[str, str] = Field(default_factory=dict)


class TableVersion(Output):
    """A migration of the tables."""

    version: int
    name: str


class MigrationReport(Output):
    """What ``migrate`` has done, or would do.

    Attributes:
        dry_run: Nothing was changed: ``--check`` or ``--sql``.
        version: Of the tables, now.
        applied: By this run.
        pending: Not applied; of a dry run those that would be.
        sql: What would run, with ``--sql``.
    """

    table_prefix: str
    dry_run: bool = False
    version: int
    applied: tuple[TableVersion, ...] = ()
    pending: tuple[TableVersion, ...] = ()
    sql: str | None = None


class CleanupReport(Output):
    """What a clean-up has done; None where it was not asked for.

    Attributes:
        dry_run: Nothing was changed: what would be is counted.
        operations_forgotten: Also None in a dry run, which does not count them.
    """

    dry_run: bool = False
    expired: CleanupSummary | None = None
    old: AgeCleanupSummary | None = None
    operations_forgotten: int | None = None


class Backfill(Output):
    """Turns that were told again.

    Attributes:
        turns: That were told; ``abandoned`` of them nobody has ended.
        under_way: Turns that go on, and are told when they end.
        untraced: Turns of sessions without traces.
        failed: Sessions that could not be read.
        spans: Of all turns; ``unsampled`` of them a sampler leaves out.
    """

    sessions: int = 0
    turns: int = 0
    abandoned: int = 0
    under_way: int = 0
    untraced: int = 0
    failed: int = 0
    spans: int = 0
    unsampled: int = 0
