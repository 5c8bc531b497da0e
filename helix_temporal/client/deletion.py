"""Deletion of sessions: what runs is ended, what is stored is removed, closed executions are deleted."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from temporalio.api.activity.v1 import ActivityExecutionInfo
from temporalio.api.common.v1 import WorkflowExecution as ExecutionName
from temporalio.api.workflowservice.v1 import (
    DeleteActivityExecutionRequest,
    DeleteWorkflowExecutionRequest,
    DescribeActivityExecutionRequest,
)
from temporalio.client import Client, WorkflowExecution, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal._deployments import identity_in
from helix_temporal.activities.deletion import DeletionActivities
from helix_temporal.activities.executions import (
    find_execution,
    is_ours,
    is_running,
    refuse_foreign_identity,
    unless_gone,
)
from helix_temporal.client._connection import SessionConnection
from helix_temporal.errors import (
    ForeignDeploymentError,
    InvalidRequestError,
    NoWorkerError,
    SessionTerminatedError,
    StoreCorruptError,
    UnsupportedFormatError,
)
from helix_temporal.models.base import only_set
from helix_temporal.models.deployments import Deployment
from helix_temporal.models.handles import (
    DeleteResult,
    EraseSessionInput,
    EraseSessionResult,
    LeftBehind,
    ListChildrenInput,
)
from helix_temporal.models.ids import (
    child_workflow_prefix,
    is_session_workflow,
    session_of,
    short_workflow_prefix,
    workflow_id,
)
from helix_temporal.models.store_calls import MAX_LIMIT
from helix_temporal.models.waiting import is_child_id

_ASKED_FOR: Final = 5.0
"""Seconds in which an execution that has ended must say what its thread is."""
_LOOK_EVERY: Final = 0.1
_QUIET: Final = 3
"""Looks at the server's list in a row that find nothing: it lags behind."""
_NAMES_AT_ONCE: Final = 20
_NAMED: Final = 5
"""At most so many executions that the server does not delete are named."""
_OLDER_RUNS: Final = "all but the newest of the session's"
_ACTIVITIES: Final = "standalone activities of the session's calls"
_LISTS: Final = frozenset({_OLDER_RUNS, _ACTIVITIES})
_REFUSED: Final = frozenset(
    {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.INVALID_ARGUMENT}
)


class ExecutionRun(NamedTuple):
    """One execution of a workflow, or a standalone activity."""

    id: str
    run_id: str
    is_activity: bool = False


class SessionDeletion:
    """Deletes one session for good, with those of its sub-agents.

    Args:
        connection: By which the session is reached.
        session_id: Which; or a thread that no session has used.
        keep_usage: Leave what was recorded of its use.
    """

    def __init__(self, connection: SessionConnection, session_id: str, *, keep_usage: bool) -> None:
        self._reader, self._updates = connection.reader, connection.updates
        self._session_id, self._keep_usage = session_id, keep_usage
        self._own = connection.deployment.name
        self._executions = SessionExecutions(
            connection.client, connection.deployment, connection.also_known_as
        )

    async def delete_session(self, grace: float, settle: float) -> DeleteResult:
        """Carry it out; may be repeated.

        Args:
            grace: Seconds until what runs is terminated.
            settle: Seconds to wait at most until the server has deleted the executions.
        """
        executions = self._executions
        thread_id = await self._find_thread()
        names, left = await self._find_tree()
        left += await executions.end_running(names, grace)
        # What ended may have started others meanwhile.
        names, unknown = await self._find_tree()
        left += [each for each in unknown if each not in left]
        # Before the stores, which know the sub-agents: a deletion that dies on its way is repeated.
        left += await executions.delete_closed(names, [thread_id])
        removed: Counter[str] = Counter()
        for name in reversed(names):
            erased = await self._erase_stores(name, thread_id if name == self._session_id else None)
            removed.update(erased.removed)
            left += [each for each in erased.left if each not in left]
        refused = await executions.delete_closed(names, [thread_id])
        left += [each for each in refused if each not in left]
        # Reads of the session had executions of their own, and so has this deletion.
        if own := [each for each in executions.deleted if is_session_workflow(each.id, self._own)]:
            removed["execution"] = len(own)
        return DeleteResult(
            sessions=tuple(names),
            removed=dict(removed),
            pending=tuple(
                sorted(f"{each.id} {each.run_id}" for each in await executions.list_undeleted(settle))
            ),
            left=tuple(left),
        )

    async def _erase_stores(self, name: str, thread_id: str | None) -> EraseSessionResult:
        named = only_set(thread_id=thread_id)
        named |= {"keep_usage": True} if self._keep_usage else {}
        erase = EraseSessionInput(session_id=name, **named)
        return await self._reader.change(DeletionActivities.erase, erase)

    async def _find_thread(self) -> str:
        """By its state, or where that is none or damaged by its last execution, if it can still be asked."""
        try:
            state = await self._reader.load_state(self._session_id)
        except (StoreCorruptError, UnsupportedFormatError):
            state = None
        if state is not None:
            return state.messages_thread_id
        try:
            if await self._updates.has_ended_pinned(self._session_id):
                return (await self._updates.read_start(self._session_id)).thread
            return (await self._updates.query_status(self._session_id, _ASKED_FOR)).thread_id
        except (RPCError, ForeignDeploymentError, NoWorkerError, SessionTerminatedError):
            return self._session_id  # it never ran here, or no worker serves it

    async def _find_tree(self) -> tuple[list[str], list[LeftBehind]]:
        """The session and its sub-agents', those above before those below."""
        found, left = {self._session_id: None}, list[LeftBehind]()
        async for each in self._executions.list_sub_agents(self._session_id):
            found.setdefault(each)
        looked: set[str] = set()
        while len(looked) < len(found):
            name = next(each for each in found if each not in looked)
            looked.add(name)
            try:
                found |= dict.fromkeys(
                    each for each in await self._list_sub_agents(name) if each not in found
                )
            except (InvalidRequestError, StoreCorruptError, UnsupportedFormatError) as error:
                left.append(LeftBehind(what="sub_agents", where=name, why=f"not known: {error}"))
        return list(found), left

    async def _list_sub_agents(self, session_id: str) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            # It may never have opened: as an error that would be in the worker's log, with its traceback.
            page = await self._reader.list_children(
                ListChildrenInput(session_id=session_id, limit=MAX_LIMIT, cursor=cursor, if_any=True)
            )
            names += [
                each.session_id for each in page.items if each.remote is None and is_child_id(each.session_id)
            ]
            cursor = page.next_cursor
            if cursor is None:
                return names


class _Refusals:
    """What the server refuses in a deletion, which goes on with what it may do."""

    def __init__(self) -> None:
        self._found: dict[str, RPCStatusCode] = {}

    def __contains__(self, where: object) -> bool:
        """Whether something was refused there."""
        return where in self._found

    @contextmanager
    def noting(self, where: str) -> Iterator[None]:
        """Note a refusal, which ends the block, and what stays because of it."""
        try:
            yield
        except RPCError as error:
            if error.status not in _REFUSED:
                raise
            self._found.setdefault(where, error.status)

    def list_left(self) -> list[LeftBehind]:
        """What stays; executions that were refused alike are told together."""
        alike: dict[tuple[str, RPCStatusCode], list[str]] = {}
        for where, status in sorted(self._found.items()):
            alike.setdefault(("does not list" if where in _LISTS else "does not delete", status), []).append(
                where
            )
        return [
            LeftBehind(
                what="executions",
                where=", ".join([*places[:_NAMED], *(["…"] if len(places) > _NAMED else [])]),
                why=f"the server {what} them ({status.name}); they go with the namespace's retention",
            )
            for (what, status), places in alike.items()
        ]


class SessionExecutions:
    """Executions of a deployment's sessions, and of what clients had done around them, on one server.

    Args:
        deployment: Whose.
        also_known_as: Identities that are the same deployment.

    Attributes:
        deleted: Those whose deletion the server has accepted.
    """

    def __init__(self, client: Client, deployment: Deployment, also_known_as: Sequence[str]) -> None:
        self._client, self._deployment, self._also_known_as = client, deployment, also_known_as
        self.deleted: set[ExecutionRun] = set()

    async def list_sub_agents(self, session_id: str) -> AsyncIterator[str]:
        """Sessions of sub-agents, by the names of their executions."""
        prefix = child_workflow_prefix(session_id, self._deployment.name)
        if prefix is None:
            return
        try:
            async for each in self._client.list_workflows(f"WorkflowId STARTS_WITH '{prefix}'"):
                name = session_of(each.id, self._deployment.name)
                if name is not None and await self._is_ours(each):
                    yield name
        except RPCError as error:
            if error.status not in _REFUSED:
                raise

    async def end_running(self, session_ids: Sequence[str], grace: float) -> list[LeftBehind]:
        """Cancel what runs; terminate what has not ended within ``grace`` seconds."""
        running = [each for each in session_ids if await self._is_running(each)]
        for each in running:
            with unless_gone():
                await self._workflow_handle(each).cancel()
        deadline = time.monotonic() + grace
        while running and time.monotonic() < deadline:
            await asyncio.sleep(_LOOK_EVERY)
            running = [each for each in running if await self._is_running(each)]
        for each in running:
            with unless_gone():
                await self._workflow_handle(each).terminate(reason="the session is deleted")
        why = (
            "it was terminated: what an activity of it puts aside late is collected after a week, by the "
            "maintenance worker or by its time to live"
        )
        return [LeftBehind(what="late_writes", where=each, why=why) for each in running]

    async def delete_closed(self, session_ids: Sequence[str], threads: Collection[str]) -> list[LeftBehind]:
        """Have all closed executions deleted, as far as the server lets us; what it refuses.

        Its lists lag behind: they are looked at until nothing new is in them, a few times in a row.  They
        are deleted only then: the server puts off what it is asked just after an execution has ended.
        """
        refusals = _Refusals()
        found, quiet = set[ExecutionRun](), 0
        while quiet < _QUIET:
            runs = [each async for each in self._list_runs(session_ids, threads, refusals)]
            new = set(runs) - self.deleted - found
            found |= new
            quiet = 0 if new else quiet + 1
            await asyncio.sleep(_LOOK_EVERY)
        for each in found:
            with refusals.noting(each.id):
                await self._delete_run(each)
                self.deleted.add(each)
        return refusals.list_left()

    async def list_undeleted(self, settle: float) -> list[ExecutionRun]:
        """Those that the server has not deleted yet, after at most ``settle`` seconds."""
        deadline = time.monotonic() + settle
        while True:
            there = [each for each in self.deleted if await self._run_exists(each)]
            if not there or time.monotonic() >= deadline:
                return there
            await asyncio.sleep(_LOOK_EVERY)

    async def _list_runs(
        self, session_ids: Sequence[str], threads: Collection[str], refusals: "_Refusals"
    ) -> AsyncIterator[ExecutionRun]:
        own = self._deployment.name
        prefixes = [
            short_workflow_prefix(kind, each, own)
            for each in dict.fromkeys((*session_ids, *threads))
            for kind in ("thread", "look")
        ]
        terms = [f"WorkflowId = '{workflow_id(each, own)}'" for each in session_ids]
        terms += [f"WorkflowId STARTS_WITH '{prefix}'" for prefix in prefixes]
        with refusals.noting(_OLDER_RUNS):
            for some in _split(terms):
                async for found in self._client.list_workflows(some):
                    if await self._is_ours(found):
                        yield ExecutionRun(found.id, found.run_id)
        if _OLDER_RUNS in refusals:
            async for run in self._list_newest_runs(session_ids):
                yield run
        with refusals.noting(_ACTIVITIES):
            for some in _split([f"ActivityId STARTS_WITH '{prefix}'" for prefix in prefixes]):
                async for run in self._list_activities(some, refusals):
                    yield run

    async def _list_newest_runs(self, session_ids: Sequence[str]) -> AsyncIterator[ExecutionRun]:
        """What is known of without a list of the server."""
        for each in session_ids:
            found = await find_execution(self._workflow_handle(each))
            if found is not None and found.run_id and await self._is_ours(found):
                yield ExecutionRun(found.id, found.run_id)

    async def _list_activities(self, query: str, refusals: "_Refusals") -> AsyncIterator[ExecutionRun]:
        """Standalone activities that their callers did not have deleted, as one that was killed."""
        try:
            async for found in self._client.list_activities(query):
                run = ExecutionRun(found.activity_id, found.activity_run_id or "", is_activity=True)
                with refusals.noting(run.id):
                    info = await self._describe_activity(run)
                    if info is not None and self._is_own_activity(info):
                        yield run
        except RPCError as error:
            if error.status is not RPCStatusCode.UNIMPLEMENTED:  # a server without them has none
                raise

    async def _describe_activity(self, run: ExecutionRun) -> ActivityExecutionInfo | None:
        request = DescribeActivityExecutionRequest(
            namespace=self._client.namespace, activity_id=run.id, run_id=run.run_id
        )
        try:
            return (await self._client.workflow_service.describe_activity_execution(request)).info
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return None

    async def _delete_run(self, run: ExecutionRun) -> None:
        service, namespace = self._client.workflow_service, self._client.namespace
        with unless_gone():
            if run.is_activity:
                await service.delete_activity_execution(
                    DeleteActivityExecutionRequest(namespace=namespace, activity_id=run.id, run_id=run.run_id)
                )
                return
            name = ExecutionName(workflow_id=run.id, run_id=run.run_id)
            await service.delete_workflow_execution(
                DeleteWorkflowExecutionRequest(namespace=namespace, workflow_execution=name)
            )

    async def _run_exists(self, run: ExecutionRun) -> bool:
        if run.is_activity:
            try:
                return await self._describe_activity(run) is not None
            except RPCError as error:
                if error.status not in _REFUSED:
                    raise
                return True  # as far as we may know
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        return await find_execution(handle) is not None

    async def _is_running(self, session_id: str) -> bool:
        found = await find_execution(self._workflow_handle(session_id))
        return found is not None and await is_running(found, self._deployment, self._also_known_as)

    def _workflow_handle(self, session_id: str) -> WorkflowHandle[Any, Any]:
        return self._client.get_workflow_handle(workflow_id(session_id, self._deployment.name))

    async def _is_ours(self, found: WorkflowExecution) -> bool:
        return await is_ours(found, self._deployment, self._also_known_as)

    def _is_own_activity(self, info: ActivityExecutionInfo) -> bool:
        """By its header; where that cannot be read, the id says for which deployment's name it was."""
        said = identity_in(info.header.fields)
        try:
            refuse_foreign_identity(said, info.task_queue, self._deployment, self._also_known_as)
        except ForeignDeploymentError:
            return False
        return True


def _split(terms: Sequence[str]) -> list[str]:
    """Queries for what matches one of the terms, a few terms in each."""
    starts = range(0, len(terms), _NAMES_AT_ONCE)
    return [" OR ".join(terms[start : start + _NAMES_AT_ONCE]) for start in starts]
