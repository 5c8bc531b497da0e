"""The pack's workflows for workers with Worker Versioning.

A session is pinned within a turn, and moves between turns.  Where the SDK or the server does not tell it that
it should move, it is taken over by the current version at once, as all other workflows of the pack are: they
replay the histories of earlier releases.  These are classes of their own, since a server refuses a versioning
behaviour from a worker without versioning.
"""

from collections.abc import Sequence
from typing import Final

from temporalio import workflow
from temporalio.common import VersioningBehavior

from helix_temporal.models.ids import SESSION_WORKFLOW
from helix_temporal.models.maintenance import (
    CleanupInput,
    CleanupResult,
    KeepInput,
    KeepResult,
    SweepInput,
    SweepResult,
)
from helix_temporal.models.sessions import SessionInput, SessionResult
from helix_temporal.models.waiting import WakeInput, WakeResult
from helix_temporal.workflows.maintenance import CleanupWorkflow, KeepWorkflow, SweepWorkflow, WakeWorkflow
from helix_temporal.workflows.session import SessionWorkflow
from helix_temporal.workflows.short_calls import (
    LookReply,
    LookRequest,
    LookWorkflow,
    ThreadReply,
    ThreadRequest,
    ThreadWorkflow,
)

_BEHAVIOUR: Final = VersioningBehavior.AUTO_UPGRADE


@workflow.defn(name=SESSION_WORKFLOW, versioning_behavior=VersioningBehavior.PINNED)
class PinnedSessionWorkflow(SessionWorkflow):
    @workflow.init
    def __init__(self, input: SessionInput) -> None:
        super().__init__(input)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:
        return await super().run(input)


@workflow.defn(name=SESSION_WORKFLOW, versioning_behavior=_BEHAVIOUR)
class VersionedSessionWorkflow(SessionWorkflow):
    @workflow.init
    def __init__(self, input: SessionInput) -> None:
        super().__init__(input)

    @workflow.run
    async def run(self, input: SessionInput) -> SessionResult:
        return await super().run(input)


@workflow.defn(name="helix.cleanup", versioning_behavior=_BEHAVIOUR)
class VersionedCleanupWorkflow(CleanupWorkflow):
    @workflow.run
    async def run(self, input: CleanupInput) -> CleanupResult:
        return await super().run(input)


@workflow.defn(name="helix.keep", versioning_behavior=_BEHAVIOUR)
class VersionedKeepWorkflow(KeepWorkflow):
    @workflow.run
    async def run(self, input: KeepInput) -> KeepResult:
        return await super().run(input)


@workflow.defn(name="helix.look", versioning_behavior=_BEHAVIOUR)
class VersionedLookWorkflow(LookWorkflow):
    @workflow.run
    async def run(self, input: LookRequest) -> LookReply:
        return await super().run(input)


@workflow.defn(name="helix.sweep", versioning_behavior=_BEHAVIOUR)
class VersionedSweepWorkflow(SweepWorkflow):
    @workflow.run
    async def run(self, input: SweepInput) -> SweepResult:
        return await super().run(input)


@workflow.defn(name="helix.thread", versioning_behavior=_BEHAVIOUR)
class VersionedThreadWorkflow(ThreadWorkflow):
    @workflow.run
    async def run(self, input: ThreadRequest) -> ThreadReply:
        return await super().run(input)


@workflow.defn(name="helix.wake", versioning_behavior=_BEHAVIOUR)
class VersionedWakeWorkflow(WakeWorkflow):
    @workflow.run
    async def run(self, input: WakeInput) -> WakeResult:
        return await super().run(input)


_VERSIONED: Final[dict[type, type]] = {
    CleanupWorkflow: VersionedCleanupWorkflow,
    KeepWorkflow: VersionedKeepWorkflow,
    LookWorkflow: VersionedLookWorkflow,
    SweepWorkflow: VersionedSweepWorkflow,
    ThreadWorkflow: VersionedThreadWorkflow,
    WakeWorkflow: VersionedWakeWorkflow,
}


def with_versioning(workflows: Sequence[type], *, pins_sessions: bool) -> list[type]:
    """The same workflows, those of the pack as a worker with Worker Versioning takes them.

    Args:
        workflows: What the worker serves.
        pins_sessions: The server and the SDK tell a pinned session that another version is to serve it.
    """
    sessions = PinnedSessionWorkflow if pins_sessions else VersionedSessionWorkflow
    return [sessions if each is SessionWorkflow else _VERSIONED.get(each, each) for each in workflows]
