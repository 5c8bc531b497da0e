"""Executions of sessions, as the Temporal server knows them: which are there, whose they are, which run."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.errors import ForeignDeploymentError, StoreUnavailableError
from helix_temporal.models.deployments import KEY, Deployment, DeploymentCheck
from helix_temporal.models.ids import workflow_id

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowHandle


async def find_execution(handle: "WorkflowHandle[Any, Any]") -> "WorkflowExecutionDescription | None":
    """What the server knows of an execution; None if it never was, or is past the retention."""
    try:
        return await handle.describe()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None


async def is_running(found: "WorkflowExecution", deployment: Deployment, also: Sequence[str] = ()) -> bool:
    """Whether an execution has not ended, and is one of this deployment."""
    return found.close_time is None and await is_ours(found, deployment, also)


async def is_ours(found: "WorkflowExecution", deployment: Deployment, also: Sequence[str] = ()) -> bool:
    """Whether an execution is one of this deployment."""
    try:
        await refuse_foreign_execution(found, deployment, also)
    except ForeignDeploymentError:
        return False
    return True


async def refuse_foreign_execution(
    found: "WorkflowExecution", asking: Deployment, also: Sequence[str] = ()
) -> None:
    """Refuse what an execution of another deployment could tell.

    Raises:
        ForeignDeploymentError: It was started by another deployment.
    """
    said = await found.memo_value(KEY, "", type_hint=str)
    refuse_foreign_identity(said, found.task_queue if found.parent_id is None else None, asking, also)


def refuse_foreign_identity(
    said: str | None, queue: str | None, asking: Deployment, also: Sequence[str] = ()
) -> None:
    """Refuse what belongs to somebody else.

    Args:
        said: The identity of whose it is; nothing where that is not said.
        queue: Its task queue, where that tells deployments apart.
        asking: Who asks.
        also: Identities that are the same deployment.

    Raises:
        ForeignDeploymentError: It is another deployment's.
    """
    whose = Deployment.parse(said) if said else Deployment(asking.name)
    DeploymentCheck(whose, also, names_all=False, process="a session").refuse(str(asking), queue)


@contextmanager
def unless_gone() -> Iterator[None]:
    """What the server does not know, any more, needs nothing."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


_CLOSE_WITHIN: Final = timedelta(seconds=5)
"""How long a session is waited for that no worker runs now; the next clean-up asks again."""


class TemporalExecutions:
    """`Executions` of one namespace.

    Args:
        client: Gives the client once it is needed; by default that of the activity that runs.
        deployment: Whose the sessions are.
        also_known_as: Identities that are the same deployment.
    """

    def __init__(
        self,
        client: "Callable[[], Awaitable[Client]] | None" = None,
        *,
        deployment: Deployment = Deployment(),  # noqa: B008 (frozen)
        also_known_as: Sequence[str] = (),
    ) -> None:
        self._client = client or _of_this_activity
        self._deployment, self._also_known_as = deployment, also_known_as

    async def is_running(self, session_id: str) -> bool:
        """See `Executions.is_running`; another deployment's session of this id is none of ours."""
        try:
            found = await find_execution(await self._get_workflow_handle(session_id))
        except RPCError as error:
            raise StoreUnavailableError(
                f"session {session_id!r}: Temporal does not say whether it runs: {error.status.name}"
            ) from error
        return found is not None and await is_running(found, self._deployment, self._also_known_as)

    async def close(self, session_id: str) -> None:
        """See `Executions.close`; one that no worker serves now is asked again by the next clean-up."""
        handle = await self._get_workflow_handle(session_id)
        try:
            if await is_ours(await handle.describe(), self._deployment, self._also_known_as):
                await handle.execute_update("close", rpc_timeout=_CLOSE_WITHIN)
        except (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError):
            return  # it has ended meanwhile, or no worker serves it

    async def _get_workflow_handle(self, session_id: str) -> "WorkflowHandle[Any, Any]":
        name = workflow_id(session_id, self._deployment.name)
        return (await self._client()).get_workflow_handle(name)


async def _of_this_activity() -> "Client":
    return activity.client()
