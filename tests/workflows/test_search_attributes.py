"""Sessions are found by what their creators said of them."""

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.common import SearchAttributeKey

from helix_temporal.client import SessionClient
from tests.workflows.conftest import Stand

pytestmark = pytest.mark.asyncio(loop_scope="session")

TENANT = SearchAttributeKey.for_keyword("HelixTestTenant")


async def test_metadata_becomes_search_attributes_where_that_is_asked_for(stand: Stand, sid: str) -> None:
    """An operator looks for a tenant's sessions in Temporal's own UI."""
    client = stand.served.client
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={TENANT.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
        )
    )
    queue = stand.served.plugin.settings.task_queue
    sessions = SessionClient(client, task_queue=queue, search_attributes={"tenant": TENANT})
    await sessions.ask(sid, "hello", agent="main", metadata={"tenant": "acme", "plan": "free"})
    described = await stand.handle(sid).describe()
    assert described.typed_search_attributes.get(TENANT) == "acme"
