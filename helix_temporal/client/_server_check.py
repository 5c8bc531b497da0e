"""Whether a Temporal server answers, and has the namespace."""

from datetime import timedelta
from typing import Final

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from helix_temporal.client._looks import RPC
from helix_temporal.errors import InvalidConfigError, StoreUnavailableError

_NO_ANSWER: Final = frozenset(
    {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
)
_BROKEN: Final = "transport error"
"""The SDK's word for a connection that broke."""


async def check_temporal(client: Client) -> None:
    """Refuse a server that does not answer, or lacks the namespace; what else it says shows later.

    Raises:
        StoreUnavailableError: It does not answer.
        InvalidConfigError: It does not have the namespace.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        await client.workflow_service.describe_namespace(request, timeout=RPC)
    except RPCError as error:
        refuse_unknown_namespace(client, error)
        if _is_silence(error):
            where = client.service_client.config.target_host
            raise StoreUnavailableError(
                f"Temporal at {where} does not answer ({error.status.name}); see HELIX_TEMPORAL_ADDRESS"
            ) from error


async def find_silence(client: Client, seconds: float) -> str:
    """Why a server does not answer, within so many seconds; empty if it does, whatever it says.

    By a health check of gRPC: it reads nothing, and is no action of Temporal Cloud.
    """
    try:
        await client.service_client.check_health(timeout=timedelta(seconds=seconds))
    except RPCError as error:
        if _is_silence(error):
            return f"{client.service_client.config.target_host} does not answer ({error.status.name})"
    return ""


def _is_silence(error: RPCError) -> bool:
    """Whether nobody answered; any other error is the answer of a server."""
    return error.status in _NO_ANSWER or _BROKEN in str(error)


def refuse_unknown_namespace(client: Client, error: RPCError) -> None:
    """Refuse a namespace that the server does not have; other errors pass.

    Raises:
        InvalidConfigError: That is what the error says.
    """
    said = str(error).lower()
    if error.status is RPCStatusCode.NOT_FOUND and said.startswith("namespace") and "not found" in said:
        raise InvalidConfigError(
            f"namespace {client.namespace!r} is not known to the Temporal server; correct "
            "HELIX_TEMPORAL_NAMESPACE, or register it (temporal operator namespace create)"
        ) from error
